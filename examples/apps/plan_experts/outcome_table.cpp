// SPDX-License-Identifier: Apache-2.0
#include "outcome_table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace examples {
namespace {

/// One line of a table: the figures of one plan, summed or step by step.
struct row {
  std::string loads;  // empty below the row that names them
  std::string plan;
  double mean;
  double tail;  // a percentile
  double worst;
  std::string place;  // layer, and step, of the worst
};

template <class Statistics>
[[nodiscard]] row row_of(std::string const& loads, char const* plan, Statistics const& s,
                         double tail, bool with_step) {
  auto const layer = fmt::format("layer {}", s.worst_layer);
  return {loads, plan,    s.mean,
          tail,  s.worst, with_step ? fmt::format("{}, step {}", layer, s.worst_step) : layer};
}

/// Returns the names of the files of loads, without folders unless two names would be the same.
[[nodiscard]] std::vector<std::string> names_of(outcome const& result) {
  std::vector<std::string> names;
  for (comparison const& c : result.comparisons) {
    names.push_back(std::filesystem::path(c.loads).filename().string());
  }
  if (names.size() > 1 && names.front() == names.back()) {
    names = {result.comparisons.front().loads, result.comparisons.back().loads};
  }
  return names;
}

[[nodiscard]] std::vector<row> rows_of_balance(outcome const& result) {
  std::vector<row> rows;
  auto const add = [&](std::string const& loads, balance_statistics const& before,
                       balance_statistics const& after, bool with_step) {
    rows.push_back(row_of(loads, "before", before, before.fifth_percentile, with_step));
    rows.push_back(row_of("", "after", after, after.fifth_percentile, with_step));
  };
  auto const names = names_of(result);
  for (std::size_t i = 0; i < names.size(); ++i) {
    comparison const& c = result.comparisons[i];
    if (c.steps == 1) {
      add(names[i], c.before.summed, c.after.summed, false);
      add(names[i] + ", optimal split", c.before.optimal, c.after.optimal, false);
      continue;
    }
    add(fmt::format("{}, sum of {} {}", names[i], c.filled_steps(),
                    c.filled_steps() == 1 ? "step" : "steps"),
        c.before.summed, c.after.summed, false);
    add(fmt::format("{}, step by step", names[i]), *c.before.per_step, *c.after.per_step, true);
    add(fmt::format("{}, step by step, optimal split", names[i]), c.before.optimal, c.after.optimal,
        true);
  }
  return rows;
}

[[nodiscard]] std::vector<row> rows_of_latency(outcome const& result) {
  std::vector<row> rows;
  auto const names = names_of(result);
  for (std::size_t i = 0; i < names.size(); ++i) {
    comparison const& c = result.comparisons[i];
    if (c.before.latency && c.after.latency) {
      rows.push_back(row_of(names[i], "before", *c.before.latency,
                            c.before.latency->ninety_fifth_percentile, c.steps > 1));
      rows.push_back(row_of("", "after", *c.after.latency, c.after.latency->ninety_fifth_percentile,
                            c.steps > 1));
    }
  }
  return rows;
}

/// Formats a table; empty without rows.
[[nodiscard]] std::string table_of(std::string const& title, std::string const& tail,
                                   std::vector<row> const& rows, std::size_t width, int digits) {
  if (rows.empty()) {
    return "";
  }
  std::string text =
      fmt::format("{:<{}}  {:<6}{:>9}{:>16}{:>9}\n", title, width, "", "mean", tail, "worst");
  for (row const& r : rows) {
    text += fmt::format("{0:<{1}}  {2:<6}{3:>9.{7}f}{4:>16.{7}f}{5:>9.{7}f}  in {6}\n", r.loads,
                        width, r.plan, r.mean, r.tail, r.worst, r.place, digits);
  }
  return text + "\n";
}

/// Formats the traffic of both plans; empty if it is not shown.
[[nodiscard]] std::string table_of_traffic(outcome const& result) {
  if (!shows_traffic(result)) {
    return "";
  }
  std::string text;
  for (comparison const& c : result.comparisons) {
    auto const line = [&](char const* rule, char const* plan, plan_traffic const& t,
                          crossing_copies const& crossing) {
      auto const cell = [&](double copies) {
        return fmt::format("{:.0f} ({:.1f} %)", copies, t.copies > 0 ? 100 * copies / t.copies : 0);
      };
      text += fmt::format("{:<20}  {:<6}{:>22}", rule, plan, cell(crossing.ranks));
      text += result.nodes > 1 ? fmt::format("{:>22}\n", cell(crossing.nodes)) : "\n";
    };
    auto const& before = comparison::traffic_in_service(c.before, result.split);
    auto const& after = comparison::traffic_in_service(c.after, result.split);
    text += fmt::format("token copies of a step on {}, of {:.0f}{}:\n", c.loads, before.copies,
                        result.sources.empty() ? ", as many from every rank" : "");
    text += fmt::format("{:<28}{:>22}", "", "between ranks");
    text += result.nodes > 1 ? fmt::format("{:>22}\n", "between nodes") : "\n";
    line("to any replica", "before", before, before.split);
    line("", "after", after, after.split);
    line("to the nearest one", "before", before, before.nearest);
    line("", "after", after, after.nearest);
    text += "\n";
  }
  return text;
}

/// Formats the layers as "58 layers (3 to 60)", so that the reader notices wrong ids.
[[nodiscard]] std::string layers_of(plan const& p) {
  bool const in_a_row = p.layer_ids.back() - p.layer_ids.front() == p.layers - 1;
  return fmt::format("{} {} ({} to {}{})", p.layers, p.layers == 1 ? "layer" : "layers",
                     p.layer_ids.front(), p.layer_ids.back(), in_a_row ? "" : ", not all");
}

/// Formats the slots as "of 5 slots", or in other words if ranks or layers differ.
[[nodiscard]] std::string slots_of(plan const& p) {
  auto const [least, most] = slots_of_layers(p);
  if (least != most) {
    return fmt::format("with {} to {} slots a layer", least, most);
  }
  return most % p.ranks == 0 ? fmt::format("of {} slots", most / p.ranks)
                             : fmt::format("with {} slots in all", most);
}

[[nodiscard]] std::string sizes_of(outcome const& result) {
  plan const& p = result.after;
  auto const extra = extra_replicas(p);
  bool const alike = std::all_of(extra.begin(), extra.end(),
                                 [&](std::int64_t count) { return count == extra[0]; });
  return fmt::format("{} of {} experts on {} ranks {}: {}\n", layers_of(p), p.experts, p.ranks,
                     slots_of(p),
                     alike ? fmt::format("{} extra replicas a layer", extra[0])
                           : fmt::format("{} extra replicas in all",
                                         std::accumulate(extra.begin(), extra.end(), index_t{0})));
}

[[nodiscard]] std::string weights_of(outcome const& result) {
  auto const after = bytes_of_fullest_rank(result.after, result.expert_bytes);
  if (!after) {
    return "";
  }
  // The weights of the experts without replicas, spread evenly: the least that the fullest rank
  // has.
  auto const experts = result.after.layers * result.after.experts;
  auto const bare = (experts + result.after.ranks - 1) / result.after.ranks * *result.expert_bytes;
  return fmt::format("weights of the fullest rank: {}, of which replicas cost {}\n",
                     bytes_text(*after), bytes_text(*after - bare));
}

/// Reports a plan that is worse than the one before; figures alone may hide it.
[[nodiscard]] std::string losses_of(outcome const& result) {
  std::string text;
  for (comparison const& c : result.comparisons) {
    if (c.before.latency && c.after.latency) {  // gem minimizes latency
      if (c.after.latency->mean > c.before.latency->mean) {
        text += fmt::format("on {} the plan is slower than before: {:.2f} instead of {:.2f} us\n",
                            c.loads, c.after.latency->mean, c.before.latency->mean);
      }
      continue;
    }
    double const before = comparison::served(c.before, result.split).mean;
    double const after = comparison::served(c.after, result.split).mean;
    if (after < before) {
      text += fmt::format("on {} the plan is worse than before: {:.4f} instead of {:.4f}\n",
                          c.loads, after, before);
    }
  }
  return text;
}

/// Names the steps that the figures leave out.
[[nodiscard]] std::string empty_of(outcome const& result) {
  std::string text;
  auto const names = names_of(result);
  for (std::size_t i = 0; i < names.size(); ++i) {
    comparison const& c = result.comparisons[i];
    if (c.empty_steps > 0 && c.steps > 1) {
      text += fmt::format("{}: {} of {} steps have no load and are left out\n", names[i],
                          c.empty_steps, c.steps);
    }
  }
  index_t const idle = idle_layers(result);
  return text + (idle == 0 ? "" : fmt::format("layers without load, left out: {}\n", idle));
}

[[nodiscard]] std::string warning_lines_of(outcome const& result) {
  std::string text;
  for (std::string const& warning : warnings_of(result)) {
    text += "warning: " + warning + "\n";
  }
  return text;
}

/// Describes the replicas of craft: their number, the layers, and the gain.
[[nodiscard]] std::string craft_of(outcome const& result) {
  if (!result.craft) {
    return "";
  }
  craft_outcome const& c = *result.craft;
  auto const [least, most] = slots_of_ranks(result.after);
  measured_plan const& measured = result.comparisons.front().after;
  std::string layers;
  for (auto const& [replicas, count] : layers_by_replicas(c)) {
    layers += layers.empty()
                  ? fmt::format("{} in {} {}", replicas, count, count == 1 ? "layer" : "layers")
                  : fmt::format(", {} in {}", replicas, count);
  }
  return fmt::format(
      "replicas: {} on each rank over all layers ({}), {} in all, {} used\n"
      "slots of a rank over all layers: {}\n"
      "replicas of a layer: {}\n"
      "planned from {}, all held in memory: {}\n"
      "mean balancedness{}: {:.4f} without replicas, {:.4f} expected with them, {:.4f} "
      "measured\n\n",
      c.replicas_per_rank, choice_text(c), c.allocation.budget,
      c.allocation.used == c.allocation.budget ? "all" : fmt::format("{}", c.allocation.used),
      least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most), layers,
      c.steps == 1 ? "1 step" : fmt::format("{} steps", c.steps),
      bytes_text(c.steps * result.after.layers * result.after.experts *
                 static_cast<index_t>(sizeof(double))),
      measured.per_step ? " step by step" : "", c.mean_base(), c.mean_expected(),
      comparison::served(measured, result.split).mean);
}

/// Describes the trace of gem, and its result with the lower bound.
[[nodiscard]] std::string gem_of(outcome const& result) {
  if (!result.gem) {
    return "";
  }
  gem_outcome const& g = *result.gem;
  return fmt::format(
      "planned from the last {} of {} steps, {} {} a layer: mean latency {:.2f} us, lower bound "
      "{:.2f} us\n\n",
      g.trace_length, result.comparisons.front().filled_steps(), g.restarts,
      g.restarts == 1 ? "search" : "searches", g.mean(), g.mean_bound());
}

/// Lists the candidates of auto with their balancedness in the half that their plans had not seen.
[[nodiscard]] std::string candidates_of(outcome const& result) {
  if (!result.selected) {
    return "";
  }
  selection const& s = *result.selected;
  std::string const title =
      fmt::format("mean balancedness of steps that a plan had not seen, {} split:",
                  result.split == plimsoll::split_rule::even ? "even" : "optimal");
  if (result.planner == "flow") {
    double const mean = s.candidates.front().balancedness;
    return mean == 0 ? "" : fmt::format("{} {:.4f}\n\n", title, mean);
  }
  std::string text = fmt::format("planner chosen: {}\n{}\n", s.candidates[s.chosen].name, title);
  for (plimsoll::planner_report const& one : s.candidates) {
    text += one.error.empty() ? (one.balancedness == 0
                                     ? fmt::format("  {:<13} not judged\n", one.name)
                                     : fmt::format("  {:<13} {:.4f}\n", one.name, one.balancedness))
                              : fmt::format("  {:<13} {}\n", one.name, one.error);
  }
  return text + "\n";
}

/// Describes the moves from the plan of --previous, and when they pay off.
[[nodiscard]] std::string moves_of(outcome const& result) {
  if (!result.moves) {
    return "";
  }
  moves_text const text = text_of_moves(result);
  std::string lines = text.ranks.empty() ? "" : fmt::format("ranks: {}\n", text.ranks);
  lines += fmt::format("moves: {}\n", text.moves);
  lines += text.gain.empty() ? "" : fmt::format("gain: {}\n", text.gain);
  lines += fmt::format("transfers: {}\n", text.transfers);
  for (std::string const& loads : text.break_even) {
    lines += fmt::format("break-even: {}\n", loads);
  }
  return lines + "\n";
}

[[nodiscard]] std::string decision_of(outcome const& result) {
  return result.decision ? fmt::format("verdict: {}\nwhat would change it: {}\n",
                                       result.decision->text(), result.decision->change())
                         : "";
}

[[nodiscard]] std::string planner_of(outcome const& result) {
  std::string const before =
      result.before_name == "trivial"
          ? "slot i holds expert i mod " + std::to_string(result.after.experts)
      : result.before_name == "tensorrt-llm"
          ? fmt::format("rank r begins with expert floor(r x {} / {}), as in TensorRT-LLM",
                        result.after.experts, result.after.ranks)
          : result.before_name;
  if (!result.milliseconds) {
    return fmt::format(
        "before: {}; after: {}\n", before,
        result.moves ? "the plan that was read, with these moves" : "the plan as it was read");
  }
  std::string how = result.planner == "none" ? "no planner" : result.planner;
  if (result.hierarchical && result.nodes > 1) {
    how += fmt::format(", {} groups on {} nodes", result.groups, result.nodes);
  }
  if (result.refinement != "none") {
    how += ", refined by " + result.refinement;
  }
  return fmt::format("before: {}\nplanned in {:.3f} ms ({}, {}, median of {})\n", before,
                     *result.milliseconds, how, result.policy, result.runs);
}

/// Returns the options of an engine that serves the plan.
[[nodiscard]] std::string engine_options_of(outcome const& result) {
  plan const& p = result.after;
  auto const [least, most] = slots_of_layers(p);
  if (least != most || most % p.ranks != 0) {
    return fmt::format("an EP size of {} and slots that differ between ranks or layers", p.ranks);
  }
  if (result.format == "trtllm") {
    return fmt::format("TensorRT-LLM's moe_expert_parallel_size: {} and load_balancer: {}", p.ranks,
                       result.output);
  }
  if (result.format == "vllm") {
    return fmt::format(
        "vLLM's --enable-expert-parallel --enable-eplb on {} ranks, and in --eplb-config "
        "num_redundant_experts: {} and initial_expert_map_path: {}",
        p.ranks, most - p.experts, result.output);
  }
  if (result.format == "vllm-ascend") {
    return fmt::format("vLLM Ascend's --enable-expert-parallel on {} ranks and expert_map_path {}",
                       p.ranks, result.output);
  }
  return fmt::format("SGLang's --ep-size {} --ep-num-redundant-experts {}{}", p.ranks,
                     most - p.experts,
                     result.format == "sglang" ? " --init-expert-location " + result.output : "");
}

/// Warns of copies that take no load off a rank.
[[nodiscard]] std::vector<std::string> useless_copies_of(outcome const& result) {
  plan const& p = result.after;
  auto const useless = [&](std::int32_t copies) { return copies > p.ranks; };
  auto const& counts = p.replica_count;
  auto const found = std::find_if(counts.begin(), counts.end(), useless);
  if (found == counts.end()) {
    return {};
  }
  auto const at = found - counts.begin();
  auto const others = std::count_if(counts.begin(), counts.end(), useless) - 1;
  bool const has_option = result.planner == "eplb" || result.planner == "craft";
  return {fmt::format(
      "expert {} of layer {} has {} copies on {} ranks{}; a second copy on a rank takes no load "
      "off "
      "it{}",
      at % p.experts, p.layer_ids[static_cast<std::size_t>(at / p.experts)], *found, p.ranks,
      others == 0 ? ""
                  : fmt::format(", and {} more {} too many", others,
                                others == 1 ? "expert has" : "experts have"),
      !has_option                    ? ""
      : result.refinement == "joint" ? ": plan with --apart rank"
                                     : ": plan with --apart rank or --refine joint")};
}

/// Warns of a refinement that makes other loads no more balanced.
[[nodiscard]] std::vector<std::string> useless_refinement_of(outcome const& result) {
  constexpr double least_gain = 0.001;
  if (!result.unrefined_mean) {
    return {};
  }
  comparison const& other = result.comparisons.back();
  double const refined = comparison::served(other.after, result.split).mean;
  if (refined - *result.unrefined_mean >= least_gain) {
    return {};
  }
  return {fmt::format(
      "--refine {} changes nothing unseen: mean balancedness on {} is {:.4f}, and {:.4f} without "
      "it",
      result.refinement, other.per_step_text(result.split), refined, *result.unrefined_mean)};
}

}  // namespace

std::vector<std::string> warnings_of(outcome const& result) {
  std::vector<std::string> warnings = useless_copies_of(result);
  for (std::string& more : useless_refinement_of(result)) {
    warnings.push_back(std::move(more));
  }
  return warnings;
}

std::string verdict_of(outcome const& result) {
  comparison const& c = result.comparisons.back();
  std::string const options = engine_options_of(result);
  std::string const where = c.per_step_text(result.split);
  if (c.before.latency && c.after.latency) {
    double const before = c.before.latency->mean;
    double const after = c.after.latency->mean;
    return after < before
               ? fmt::format(
                     "Serve this plan, with {}: a layer takes {:.2f} us on average instead of "
                     "{:.2f} us on {}",
                     options, after, before, where)
               : fmt::format(
                     "Keep what is in use: with this plan a layer takes {:.2f} us on average, not "
                     "less than the {:.2f} us before, on {}",
                     after, before, where);
  }
  double const before = comparison::served(c.before, result.split).mean;
  double const after = comparison::served(c.after, result.split).mean;
  return after > before
             ? fmt::format(
                   "Serve this plan, with {}: mean balancedness rises from {:.4f} to {:.4f} on {}",
                   options, before, after, where)
             : fmt::format(
                   "Keep what is in use: mean balancedness is {:.4f} with this plan, not more than "
                   "the {:.4f} before, on {}",
                   after, before, where);
}

/// Says what a plan within a limit gains.
std::string gain_text(migration_outcome const& m) {
  balance_gain const& gain = m.gain.value();
  if (m.steps == 1) {
    return fmt::format(
        "mean balancedness {:+.4f}, on the loads planned from; unseen steps need 2 recorded ones",
        gain.expected);
  }
  return gain.expected > 0
             ? fmt::format(
                   "mean balancedness {:+.4f} on steps that such plans were not made from, "
                   "{:+.4f} on all",
                   gain.expected, gain.after - gain.before)
             : std::string("none that holds on steps that such plans were not made from");
}

moves_text text_of_moves(outcome const& result) {
  migration_outcome const& m = result.moves.value();
  auto const& layers = m.transfers.layers;
  auto const counted = [](index_t count, char const* one, char const* more) {
    return fmt::format("{} {}", count, count == 1 ? one : more);
  };
  moves_text text;
  auto const& sources = result.ranks.source_ranks;
  auto const joined = std::count(sources.begin(), sources.end(), -1);
  auto const lost = result.ranks.before - (result.after.ranks - joined);
  if (joined > 0 || lost > 0) {
    text.ranks = fmt::format("{} instead of {}, {} joined, {} lost", result.after.ranks,
                             result.ranks.before, joined, lost);
  }
  if (result.ranks.lost_experts > 0) {
    text.ranks += fmt::format(
        "; {} no rank any more and {} read from the host",
        counted(result.ranks.lost_experts, "expert of a layer is on", "experts of layers are on"),
        result.ranks.lost_experts == 1 ? "is" : "are");
  }
  text.moves =
      fmt::format("{}{}, {} within a rank, in {} of {}", counted(m.moves(), "slot", "slots"),
                  m.max_moves   ? fmt::format(" of at most {}", *m.max_moves)
                  : m.max_bytes ? fmt::format(" of at most {}", bytes_text(*m.max_bytes))
                                : std::string(),
                  counted(m.local_copies(), "copy", "copies"), m.changed_layers.size(),
                  counted(result.after.layers, "layer", "layers"));
  text.gain = m.gain ? gain_text(m) : "";
  auto const longest =
      std::max_element(layers.begin(), layers.end(),
                       [](auto const& a, auto const& b) { return a.rounds < b.rounds; });
  text.transfers =
      fmt::format("{} ({}), at most {} a layer", counted(m.round_count(), "round", "rounds"),
                  m.rounds, longest->rounds);
  if (result.expert_bytes) {
    text.transfers +=
        fmt::format(", {} in about {:.1f} us", bytes_text(m.bytes()), 1e6 * m.transfers.seconds);
  }
  for (comparison const& c : result.comparisons) {
    if (result.ranks.lost_experts > 0) {
      break;  // these moves must be made
    }
    double const saved = saved_us(result, c);
    auto const steps = break_even_steps(result, c);
    text.break_even.push_back(
        fmt::format("{}, on {}: a step {}",
                    !steps ? std::string("unknown without --expert-bytes")
                    : std::isinf(*steps)
                        ? std::string("never")
                        : fmt::format("after {:.0f} {}", *steps, *steps == 1 ? "step" : "steps"),
                    c.per_step_text(result.split),
                    saved == 0 ? std::string("takes as long as before")
                               : fmt::format("takes about {:.1f} us {}", std::abs(saved),
                                             saved > 0 ? "less" : "more")));
  }
  return text;
}

std::string choice_text(craft_outcome const& c) {
  if (c.chosen == "automatic") {
    return "chosen at the knee";
  }
  std::string const how = c.budget_bytes ? "as many as " + bytes_text(*c.budget_bytes) + " hold"
                                         : std::string("as asked");
  return how + (c.allocation.knee == c.replicas_per_rank
                    ? ", which is the knee"
                    : fmt::format("; the knee is at {}", c.allocation.knee));
}

std::string bytes_text(std::int64_t bytes) {
  constexpr char const* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) {
    value /= 1024;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 2, units[unit]);
}

std::string table_of(outcome const& result) {
  auto const balance = rows_of_balance(result);
  auto const latency = rows_of_latency(result);
  std::string const balance_title = "balancedness of the ranks";
  std::string const latency_title = "latency of a layer in a step, us";
  std::size_t width = latency.empty() ? balance_title.size() : latency_title.size();
  for (auto const* rows : {&balance, &latency}) {
    for (row const& r : *rows) {
      width = std::max(width, r.loads.size());
    }
  }
  return sizes_of(result) + "\n" + table_of(balance_title, "5th percentile", balance, width, 4) +
         table_of(latency_title, "95th percentile", latency, width, 2) + table_of_traffic(result) +
         craft_of(result) + gem_of(result) + candidates_of(result) + moves_of(result) +
         losses_of(result) + warning_lines_of(result) + empty_of(result) + weights_of(result) +
         planner_of(result) + decision_of(result);
}

}  // namespace examples
