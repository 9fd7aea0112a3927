// SPDX-License-Identifier: Apache-2.0
#include "outcome_json.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <plimsoll/migration_types.hpp>

#include "outcome_table.hpp"

namespace examples {
namespace {

using json = nlohmann::ordered_json;

template <class T>
[[nodiscard]] json rows_of(std::vector<T> const& values, index_t rows) {
  auto const columns = static_cast<std::ptrdiff_t>(values.size()) / rows;
  json result = json::array();
  for (index_t row = 0; row < rows; ++row) {
    auto const first = values.begin() + row * columns;
    result.push_back(std::vector<T>(first, first + columns));
  }
  return result;
}

template <class T>
[[nodiscard]] json or_null(std::optional<T> const& value) {
  return value ? json(*value) : json();
}

[[nodiscard]] json to_json(balance_statistics const& s, bool of_steps) {
  return {{"mean", s.mean},
          {"ratio_of_sums", s.ratio_of_sums},
          {"worst", s.worst},
          {"worst_layer", s.worst_layer},
          {"worst_step", of_steps ? json(s.worst_step) : json()},
          {"fifth_percentile", s.fifth_percentile}};
}

[[nodiscard]] json to_json(latency_statistics const& s) {
  return {{"mean", s.mean},
          {"ninety_fifth_percentile", s.ninety_fifth_percentile},
          {"worst", s.worst},
          {"worst_layer", s.worst_layer},
          {"worst_step", s.worst_step},
          {"of_layers", s.of_layers},
          {"of_ranks", rows_of(s.of_ranks, static_cast<index_t>(s.of_layers.size()))}};
}

[[nodiscard]] json to_json(plan_traffic const& t) {
  auto const crossing = [](crossing_copies const& c) {
    return json{{"between_ranks", c.ranks}, {"between_nodes", c.nodes}};
  };
  return {{"copies", t.copies}, {"split", crossing(t.split)}, {"nearest", crossing(t.nearest)}};
}

[[nodiscard]] json to_json(measured_plan const& m, index_t layers) {
  json per_step;
  if (m.per_step) {
    per_step = to_json(*m.per_step, true);
  }
  return {{"summed", to_json(m.summed, false)},
          {"per_step", per_step},
          {"optimal_split", to_json(m.optimal, m.per_step.has_value())},
          {"balancedness", m.balancedness},
          {"rank_loads", rows_of(m.rank_loads, layers)},
          {"traffic", to_json(m.traffic)},
          {"optimal_split_traffic", to_json(m.optimal_traffic)},
          {"latency_us", m.latency ? to_json(*m.latency) : json()}};
}

[[nodiscard]] json to_json(comparison const& c, index_t layers) {
  return {{"loads", c.loads},
          {"steps", c.steps},
          {"empty_steps", c.empty_steps},
          {"before", to_json(c.before, layers)},
          {"after", to_json(c.after, layers)},
          {"expert_loads", rows_of(c.expert_loads, layers)}};
}

[[nodiscard]] json to_json(plan const& p, outcome const& result) {
  return {{"ranks", p.ranks},
          {"slots", p.slots},
          {"extra_replicas", extra_replicas(p)},
          {"bytes_of_fullest_rank", or_null(bytes_of_fullest_rank(p, result.expert_bytes))},
          {"replica_count", rows_of(p.replica_count, p.layers)}};
}

[[nodiscard]] json to_json(craft_outcome const& c) {
  auto const layers = static_cast<index_t>(c.estimate.base.size());
  return {{"chosen", c.chosen},
          {"budget_bytes", or_null(c.budget_bytes)},
          {"replicas_per_rank", c.replicas_per_rank},
          {"steps", c.steps},
          {"knee", c.allocation.knee},
          {"budget", c.allocation.budget},
          {"used", c.allocation.used},
          {"mean_base", c.mean_base()},
          {"mean_expected", c.mean_expected()},
          {"replicas", c.allocation.replicas},
          {"expected_gain", c.allocation.gain},
          {"curve", c.allocation.curve},
          {"replica_counts", c.estimate.replica_counts},
          {"base", c.estimate.base},
          {"gain", rows_of(c.estimate.gain, layers)}};
}

[[nodiscard]] json to_json(gem_outcome const& g) {
  std::vector<double> latency;
  std::vector<double> bound;
  std::vector<std::int64_t> swaps;
  for (std::size_t i = 0; i < g.layers.size(); ++i) {
    auto const steps = static_cast<double>(std::max<index_t>(1, g.steps[i]));
    latency.push_back(g.layers[i].value / steps);
    bound.push_back(g.layers[i].lower_bound / steps);
    swaps.push_back(g.layers[i].work);
  }
  return {{"latency", g.latency},
          {"trace_length", g.trace_length},
          {"restarts", g.restarts},
          {"mean_us", g.mean()},
          {"mean_bound_us", g.mean_bound()},
          {"latency_us", latency},
          {"lower_bound_us", bound},
          {"swaps", swaps}};
}

[[nodiscard]] json to_json(selection const& s) {
  json candidates = json::array();
  for (plimsoll::planner_report const& one : s.candidates) {
    bool const judged = one.error.empty() && one.balancedness > 0;
    candidates.push_back({{"name", one.name},
                          {"balancedness", judged ? json(one.balancedness) : json()},
                          {"standard_error", judged ? json(one.standard_error) : json()},
                          {"error", one.error.empty() ? json() : json(one.error)}});
  }
  return {{"chosen", s.candidates[s.chosen].name}, {"candidates", candidates}};
}

[[nodiscard]] json bytes_or_null(outcome const& result, json const& bytes) {
  return result.expert_bytes ? bytes : json();
}

/// Returns what both files say about the transfers.
[[nodiscard]] json totals_of(outcome const& result) {
  migration_outcome const& m = result.moves.value();
  return {{"round_rule", m.rounds},
          {"moves", m.moves()},
          {"local_copies", m.local_copies()},
          {"bytes", bytes_or_null(result, m.bytes())},
          {"rounds", m.round_count()},
          {"staging_slots", m.staging_slots()},
          {"seconds", bytes_or_null(result, m.transfers.seconds)}};
}

[[nodiscard]] json moves_of(outcome const& result) {
  migration_outcome const& m = result.moves.value();
  json moves = totals_of(result);
  moves["previous"] = result.ranks.previous;
  moves["ranks_before"] = result.ranks.before;
  moves["source_ranks"] = result.ranks.source_ranks;
  moves["lost_experts"] = result.ranks.lost_experts;
  moves["max_moves"] = or_null(m.max_moves);
  moves["max_bytes"] = or_null(m.max_bytes);
  moves["gain"] = !m.gain ? json()
                          : json{{"balancedness_before", m.gain->before},
                                 {"balancedness", m.gain->after},
                                 {"expected", m.gain->expected},
                                 {"validated", m.steps > 1}};
  moves["token_us"] = result.gem ? json() : json(m.token_us);
  moves["changed_layers"] = json::array();
  for (index_t const layer : m.changed_layers) {
    moves["changed_layers"].push_back(result.after.layer_ids[static_cast<std::size_t>(layer)]);
  }
  for (plimsoll::layer_transfers const& layer : m.transfers.layers) {
    moves["moves_of_layers"].push_back(layer.changes.moves);
    moves["local_copies_of_layers"].push_back(layer.changes.local_copies);
    moves["rounds_of_layers"].push_back(layer.rounds);
  }
  for (comparison const& c : result.comparisons) {
    auto const steps = break_even_steps(result, c);
    moves["saved_us"].push_back(saved_us(result, c));
    moves["break_even_steps"].push_back(steps && std::isinf(*steps) ? json("never")
                                                                    : or_null(steps));
  }
  return moves;
}

[[nodiscard]] char const* name_of(plimsoll::transfer_kind kind) {
  switch (kind) {
    case plimsoll::transfer_kind::local_copy:
      return "local_copy";
    case plimsoll::transfer_kind::same_node:
      return "same_node";
    case plimsoll::transfer_kind::across_nodes:
      return "across_nodes";
    case plimsoll::transfer_kind::from_host:
      break;
  }
  return "from_host";
}

json to_json(decision_outcome const& d) {
  using plimsoll::replan_answer;
  auto const number_or_null = [](double value) {
    return std::isfinite(value) ? json(value) : json();
  };
  return {{"answer", d.answer == replan_answer::move   ? "move"
                     : d.answer == replan_answer::keep ? "keep"
                                                       : "insufficient_evidence"},
          {"text", d.text()},
          {"change", d.change()},
          {"steps", d.steps},
          {"gain", d.judged.gain},
          {"gain_us", 1e6 * d.judged.gain_seconds},
          {"standard_error_us", 1e6 * d.judged.standard_error},
          {"step_us", 1e6 * d.step_seconds},
          {"possible_us", 1e6 * d.possible_seconds},
          {"move_us", d.counts_moves && d.knows_bytes ? json(1e6 * d.judged.move_seconds) : json()},
          {"break_even_steps", number_or_null(d.judged.break_even_steps)},
          {"horizon", d.counts_moves ? json(d.horizon) : json()},
          {"flat_below", d.flat_below},
          {"rank_tokens", d.rank_tokens}};
}

/// Writes one key per line, so that a person can read the head of the file.
void write_object(std::ostream& out, json const& object) {
  char const* separator = "{\n";
  for (auto const& [key, value] : object.items()) {
    // File names may be any bytes, but JSON is UTF-8.
    out << separator << json(key) << ": "
        << value.dump(-1, ' ', false, json::error_handler_t::replace);
    separator = ",\n";
  }
  out << "\n}\n";
}

}  // namespace

void write_transfers(std::ostream& out, outcome const& result) {
  plan const& p = result.after;
  auto const& transfers = result.moves.value().transfers;
  json layers = json::array();
  for (std::size_t layer = 0; layer < transfers.layers.size(); ++layer) {
    layers.push_back({{"layer", p.layer_ids[layer]},
                      {"rounds", transfers.layers[layer].rounds},
                      {"staging_slots", transfers.layers[layer].staging_slots},
                      {"transfers", json::array()}});
  }
  for (plimsoll::transfer const& t : transfers.list) {
    layers[static_cast<std::size_t>(t.layer)]["transfers"].push_back(
        {{"expert", t.expert},
         {"source_rank", t.source_rank},
         {"source_slot", t.source_slot},
         {"destination_rank", t.destination_rank},
         {"destination_slot", t.destination_slot},
         {"round", t.round},
         {"staging_slot", t.staging_slot},
         {"commit_round", t.commit_round},
         {"kind", name_of(t.kind)},
         {"bytes", bytes_or_null(result, t.bytes)}});
  }
  json object = {{"format", "plimsoll-transfers"},
                 {"version", 1},
                 {"program", result.program},
                 {"plan_before", result.ranks.previous},
                 {"ranks", p.ranks},
                 {"source_ranks", result.ranks.source_ranks},
                 {"slots", p.slots},
                 {"nodes", result.nodes},
                 {"expert_bytes", or_null(result.expert_bytes)}};
  object.update(totals_of(result));
  object["sent_bytes"] = bytes_or_null(result, transfers.sent_bytes);
  object["received_bytes"] = bytes_or_null(result, transfers.received_bytes);
  object["layers"] = std::move(layers);
  write_object(out, object);
}

void write_outcome(std::ostream& out, outcome const& result) {
  plan const& p = result.after;
  json comparisons = json::array();
  for (comparison const& c : result.comparisons) {
    comparisons.push_back(to_json(c, p.layers));
  }
  json const object = {{"format", "plimsoll-result"},
                       {"version", 1},
                       {"program", result.program},
                       {"date", result.date},
                       {"command", result.command},
                       {"verdict", verdict_of(result)},
                       {"warnings", warnings_of(result)},
                       {"planner", result.planner},
                       {"split", result.split == plimsoll::split_rule::even ? "even" : "optimal"},
                       {"refine", result.refinement},
                       {"policy", result.policy},
                       {"nodes", result.nodes},
                       {"sources", result.sources.empty() ? json() : json(result.sources)},
                       {"groups", result.groups},
                       {"hierarchical", result.hierarchical},
                       {"planning_milliseconds", or_null(result.milliseconds)},
                       {"expert_bytes", or_null(result.expert_bytes)},
                       {"layers", p.layers},
                       {"experts", p.experts},
                       {"layer_ids", p.layer_ids},
                       {"plan_before", result.before_name},
                       {"before", to_json(result.before, result)},
                       {"after", to_json(p, result)},
                       {"craft", result.craft ? to_json(*result.craft) : json()},
                       {"gem", result.gem ? to_json(*result.gem) : json()},
                       {"selected", result.selected ? to_json(*result.selected) : json()},
                       {"moves", result.moves ? moves_of(result) : json()},
                       {"decision", result.decision ? to_json(*result.decision) : json()},
                       {"comparisons", comparisons}};
  write_object(out, object);
}

}  // namespace examples
