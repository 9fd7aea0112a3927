// SPDX-License-Identifier: Apache-2.0
// replan_rules PAGE    prints the time that rules lose which decide when a new plan comes into use
// Some loads are measured, so it needs the files under PLIMSOLL_TRACE_DIR; without it the rows are
// copied from PAGE.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/replan_gate.hpp>
#include <plimsoll/replay.hpp>

#include "../../../examples/apps/make_loads/workload.hpp"
#include "../domain_changes.hpp"

namespace {

using examples::seq_placement;
using make_loads::workload;
using plimsoll::index_t;
using plimsoll::replan_answer;
using plimsoll::seq;
using plimsoll::split_rule;
using view = plimsoll::tensor_ref<std::int64_t const>;

/// A step takes 30 ms, half of it in experts if all ranks are busy alike.
constexpr double expert_seconds = 0.015;
constexpr std::int64_t expert_bytes = 24 << 20;
constexpr double bandwidth = 50e9;
/// Series of recorded loads; they come first.
constexpr int measured = 4;
/// Milliseconds a step from which ratios say something.
constexpr double least_loss = 0.01;

/// Windows of consecutive steps. A plan is made from each, and judged in the next one.
struct series {
  std::string name;
  index_t ranks;
  index_t steps;           ///< of a window
  index_t windows_of_run;  ///< after them everything starts again; 0: never
  index_t layers;
  index_t experts;
  std::vector<std::int64_t> loads;

  [[nodiscard]] index_t slots() const { return experts + ranks; }
  [[nodiscard]] index_t windows() const { return std::ssize(loads) / (steps * layers * experts); }
  [[nodiscard]] view window(index_t i) const {
    return {loads.data() + i * steps * layers * experts, steps, layers, experts};
  }
  [[nodiscard]] index_t run() const { return windows_of_run == 0 ? windows() : windows_of_run; }
  /// Seconds of a token in a layer, so that balanced ranks take `expert_seconds`.
  [[nodiscard]] double token_seconds(index_t i) const {
    view const of = window(i);
    double tokens = 0;
    for (index_t k = 0; k < of.extent(0) * layers * experts; ++k) {
      tokens += static_cast<double>(of.data[k]);
    }
    return expert_seconds * static_cast<double>(of.extent(0) * ranks) / tokens;
  }
};

series recorded(std::string name, std::string const& file, index_t first, index_t last,
                index_t ranks, index_t steps, index_t windows_of_run = 0) {
  auto const counts = examples::measured_counts(file, static_cast<int>(last + 1));
  index_t const size = counts.shape[1] * counts.shape[2];
  auto const at = [&](index_t step) {
    return counts.values.begin() + static_cast<std::ptrdiff_t>(step * size);
  };
  return {std::move(name),          ranks, steps, windows_of_run, counts.shape[1], counts.shape[2],
          {at(first), at(last + 1)}};
}

series drawn(std::string name, workload kind) {
  make_loads::workload_shape const shape{64, 4096, 6};
  constexpr index_t layers = 8;
  series result{std::move(name), 8, 4, 0, layers, shape.experts, {}};
  std::vector<std::int64_t> const offsets = make_loads::source_offsets(kind, shape.tokens, 1);
  std::vector<std::int32_t> counts(static_cast<std::size_t>(shape.experts));
  for (index_t step = 0; step < 96; ++step) {
    for (index_t layer = 0; layer < layers; ++layer) {
      make_loads::count_workload(kind, shape, 1, layer, step, offsets, counts);
      result.loads.insert(result.loads.end(), counts.begin(), counts.end());
    }
  }
  return result;
}

std::vector<series> all_series(std::string const& folder) {
  std::string const glm = folder + "/glm-5.2-ten-domains/counts_by_chunk.npy";
  return {recorded("GLM-5.2, ten domains in order", glm, 0, 79, 32, 2),
          recorded("GLM-5.2, one domain", glm, 0, 79, 32, 2, 4),
          recorded("DeepSeek-V2-Lite, four tasks",
                   folder + "/deepseek-v2-lite-esft/counts_by_256tok.npy", 0, 127, 32, 4),
          recorded("gpt-oss-20b, decoding",
                   folder + "/gpt-oss-20b-decode/counts_by_decode_step.npy", 0, 495, 8, 16),
          drawn("W1, hot experts", workload::hot_experts),
          drawn("W2, hot rank", workload::hot_rank),
          drawn("W6, hot spot that moves", workload::moving_hot_spot),
          drawn("W7, burst", workload::burst)};
}

/// Plans for a window, and for each half of it.
struct fresh_plans {
  seq_placement all;
  seq_placement of_first;
  seq_placement of_second;
};

seq_placement flow_of(series const& of, view const& window) {
  return plimsoll::place_by_flow(seq, window, of.slots(), {.on = {.ranks = of.ranks}});
}

/// Input of a rule.
struct situation {
  series const& of;
  index_t i;  ///< the window that just ended
  seq_placement const& in_use;
  seq_placement const& aligned;  ///< the fresh plan
  fresh_plans const& fresh;
  fresh_plans const& last;  ///< of the window before
  double horizon;
  std::vector<double> const& committed;  ///< of each layer: balancedness planned for

  [[nodiscard]] view window() const { return of.window(i); }
  [[nodiscard]] plimsoll::replan_options<> gate_options() const {
    return {.cost = {.per_token = of.token_seconds(i)},
            .horizon = static_cast<std::int64_t>(horizon),
            .expert_bytes = expert_bytes,
            .bandwidths = {.same_node = bandwidth, .across_nodes = bandwidth},
            .rounds = plimsoll::round_rule::send_and_receive,
            .least_steps = 2};
  }
};

std::vector<double> balance(view const& window, seq_placement const& plan) {
  auto out = plimsoll::zeros<double>(seq, 1, window.extent(1));
  plimsoll::replay(seq, window, plan.ref(), {.split = split_rule::optimal}, out);
  return out.to_host();
}
double mean_of(std::vector<double> const& values) {
  double sum = 0;
  for (double const one : values) {
    sum += one;
  }
  return sum / static_cast<double>(values.size());
}

/// Marks the layers that get the fresh plan.
using decision = std::vector<bool>;
struct rule {
  std::string name;
  std::function<decision(situation const&)> decide;
};

decision all_if(situation const& s, bool acts) {
  return decision(static_cast<std::size_t>(s.of.layers), acts);
}
decision by_layer(situation const& s, std::function<bool(index_t)> const& acts) {
  decision result;
  for (index_t layer = 0; layer < s.of.layers; ++layer) {
    result.push_back(acts(layer));
  }
  return result;
}

double cosine(view const& a, view const& b, index_t layer) {
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (index_t e = 0; e < a.extent(2); ++e) {
    double x = 0;
    double y = 0;
    for (index_t t = 0; t < a.extent(0); ++t) {
      x += static_cast<double>(a(t, layer, e));
      y += static_cast<double>(b(t, layer, e));
    }
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 1.0;
}

plimsoll::replan_decision gate(situation const& s, plimsoll::replan_candidate const& to,
                               plimsoll::replan_options<> const& options) {
  return plimsoll::decide_replan(seq, s.window(), s.in_use.ref(), {to}, options);
}
/// The decision about the fresh plan, judged by the plans of both halves.
plimsoll::candidate_judgment validated(situation const& s) {
  seq_placement const first = plimsoll::align(seq, s.in_use.ref(), s.fresh.of_first.ref());
  seq_placement const second = plimsoll::align(seq, s.in_use.ref(), s.fresh.of_second.ref());
  return gate(s, {s.aligned.ref(), first.ref(), second.ref()}, s.gate_options()).candidates[0];
}

std::vector<rule> rules() {
  std::vector<rule> all;
  all.push_back({"never", [](situation const& s) { return all_if(s, false); }});
  all.push_back({"always: an interval, as in vLLM and SGLang",
                 [](situation const& s) { return all_if(s, true); }});
  for (index_t const k : {2, 4, 8}) {
    all.push_back({"every " + std::to_string(k) + " windows",
                   [k](situation const& s) { return all_if(s, s.i % k == 0); }});
  }
  for (double const least : {0.9, 0.8, 0.7}) {
    all.push_back({"balancedness below " + examples::cell(least, 1) + ", as in SGLang",
                   [least](situation const& s) {
                     return all_if(s, mean_of(balance(s.window(), s.in_use)) < least);
                   }});
  }
  for (double const least : {0.8, 0.95}) {
    all.push_back(
        {"layers with a cosine of loads below " + examples::cell(least, 2) + ", as in xLLM",
         [least](situation const& s) {
           return by_layer(s, [&](index_t layer) {
             return cosine(s.window(), s.of.window(s.i - 1), layer) < least;
           });
         }});
  }
  all.push_back({"layers 0.05 below what their plan promised, as in STAIR", [](situation const& s) {
                   std::vector<double> const now = balance(s.window(), s.in_use);
                   std::vector<double> const then = balance(s.window(), s.aligned);
                   return by_layer(s, [&](index_t layer) {
                     auto const l = static_cast<std::size_t>(layer);
                     return now[l] < s.committed[l] - 0.05 && then[l] > now[l] + 0.05;
                   });
                 }});
  all.push_back({"gain on the steps planned from exceeds the cost", [](situation const& s) {
                   plimsoll::replan_options<> options = s.gate_options();
                   options.standard_errors = 0;
                   return all_if(s, gate(s, {s.aligned.ref()}, options).chosen == 0);
                 }});
  all.push_back({"`decide_replan`", [](situation const& s) {
                   return all_if(s, validated(s).answer == replan_answer::move);
                 }});
  all.push_back({"`decide_replan`, layer by layer", [](situation const& s) {
                   auto const judged = validated(s).layers;
                   return by_layer(s, [&](index_t layer) {
                     return judged[static_cast<std::size_t>(layer)].answer == replan_answer::move;
                   });
                 }});
  all.push_back({"`decide_replan` of the plan of the window before", [](situation const& s) {
                   seq_placement const last =
                       plimsoll::align(seq, s.in_use.ref(), s.last.all.ref());
                   return all_if(s, gate(s, {last.ref()}, s.gate_options()).chosen == 0);
                 }});
  all.push_back({"oracle", nullptr});
  return all;
}

/// Returns the fresh plan in some layers, and the plan in use in the others.
seq_placement mixed(seq_placement const& in_use, seq_placement const& to, decision const& layers) {
  std::vector<std::int32_t> map = in_use.physical_to_logical.to_host();
  std::vector<std::int32_t> counts = in_use.replica_count.to_host();
  auto const copy = [&](std::vector<std::int32_t>& into, std::vector<std::int32_t> const& from) {
    std::size_t const width = into.size() / layers.size();
    for (std::size_t i = 0; i < into.size(); ++i) {
      into[i] = layers[i / width] ? from[i] : into[i];
    }
  };
  copy(map, to.physical_to_logical.to_host());
  copy(counts, to.replica_count.to_host());
  auto const rows = std::ssize(layers);
  return plimsoll::copy_placement(
      seq, plimsoll::matrix_ref<std::int32_t const>(map.data(), rows, std::ssize(map) / rows),
      plimsoll::matrix_ref<std::int32_t const>(counts.data(), rows, std::ssize(counts) / rows),
      in_use.ref().ranks);
}

/// Milliseconds that a step of a window is longer than if all ranks were busy alike.
double lost(series const& of, index_t i, seq_placement const& plan) {
  auto const judged = plimsoll::decide_replan(
      seq, of.window(i), plan.ref(), {},
      plimsoll::replan_options<>{.cost = {.per_token = of.token_seconds(i)}, .horizon = 1});
  return 1e3 * judged.possible_seconds;
}
double move_milliseconds(seq_placement const& from, seq_placement const& to) {
  return 1e3 * plimsoll::plan_transfers(
                   seq, from.ref(), to.ref(),
                   {.rounds = plimsoll::round_rule::send_and_receive,
                    .expert_bytes = expert_bytes,
                    .bandwidths = {.same_node = bandwidth, .across_nodes = bandwidth}})
                   .seconds;
}

struct outcome {
  double lost = 0;   ///< milliseconds a step
  double moved = 0;  ///< percent of the slots, per decision
};

outcome follow(series const& of, std::vector<fresh_plans> const& fresh, rule const& by,
               double horizon) {
  outcome sum;
  double decisions = 0;
  std::optional<seq_placement> in_use;
  std::vector<double> committed;
  for (index_t i = 0; i + 1 < of.windows(); ++i) {
    fresh_plans const& plans = fresh[static_cast<std::size_t>(i)];
    if (i % of.run() == of.run() - 1) {
      continue;  // the next window is that of another run
    }
    if (i % of.run() == 0) {
      in_use.emplace(mixed(plans.all, plans.all, decision(static_cast<std::size_t>(of.layers))));
      committed = balance(of.window(i), *in_use);
      continue;
    }
    seq_placement const aligned = plimsoll::align(seq, in_use->ref(), plans.all.ref());
    situation const now{
        of, i, *in_use, aligned, plans, fresh[static_cast<std::size_t>(i - 1)], horizon, committed};
    double const kept = lost(of, i + 1, *in_use);
    decision acts = by.decide != nullptr ? by.decide(now) : decision{};
    if (by.decide == nullptr) {
      double const moved = lost(of, i + 1, aligned) + move_milliseconds(*in_use, aligned) / horizon;
      acts = all_if(now, moved < kept);
    }
    if (std::find(acts.begin(), acts.end(), true) == acts.end()) {
      sum.lost += kept;
    } else {
      seq_placement next = mixed(*in_use, aligned, acts);
      sum.lost += lost(of, i + 1, next) + move_milliseconds(*in_use, next) / horizon;
      std::vector<double> const promised = balance(of.window(i), next);
      std::size_t layer = 0;
      for (auto const& changed : plimsoll::count_changes(seq, in_use->ref(), next.ref())) {
        sum.moved += 100.0 * static_cast<double>(changed.moves) /
                     static_cast<double>(of.layers * of.slots());
        committed[layer] = acts[layer] ? promised[layer] : committed[layer];
        ++layer;
      }
      in_use.emplace(std::move(next));
    }
    decisions += 1;
  }
  return {sum.lost / decisions, sum.moved / decisions};
}

void print(std::string const& folder) {
  std::vector<series> const all = all_series(folder);
  std::vector<std::vector<fresh_plans>> fresh;
  for (series const& of : all) {
    auto& plans = fresh.emplace_back();
    for (index_t i = 0; i < of.windows(); ++i) {
      view const window = of.window(i);
      index_t const half = of.steps / 2;
      plans.push_back({flow_of(of, window),
                       flow_of(of, plimsoll::detail::part_of(window, {0, half})),
                       flow_of(of, plimsoll::detail::part_of(window, {half, of.steps - half}))});
    }
  }
  for (double const horizon : {100.0, 1000.0}) {
    std::vector<double> always;
    std::vector<double> best;  // of always and never
    for (rule const& one : rules()) {
      double ratios = 0;
      double worst = 0;
      std::cout << "| " << examples::cell(horizon, 0) << " | " << one.name;
      for (std::size_t k = 0; k < all.size(); ++k) {
        outcome const found = follow(all[k], fresh[k], one, horizon);
        std::cout << " | " << examples::cell(found.lost, 2) << " ("
                  << examples::cell(found.moved, 0) << ")";
        if (one.name == "never") {
          best.push_back(found.lost);
          continue;
        }
        if (always.size() < all.size()) {
          always.push_back(found.lost);
          best[k] = std::min(best[k], found.lost);
        }
        ratios += k < measured ? found.lost / always[k] / measured : 0;
        worst = std::max(worst, best[k] < least_loss ? 0 : found.lost / best[k]);
      }
      bool const is_never = one.name == "never";
      std::cout << " | " << (is_never ? "" : examples::cell(ratios, 2)) << " | "
                << (is_never ? "" : examples::cell(worst, 2)) << " |" << std::endl;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return examples::make_measured_table(
      "replan_rules", argc, argv,
      "| steps between decisions | rule | GLM-5.2, ten domains | GLM-5.2, one domain | "
      "DeepSeek-V2-Lite, four tasks | gpt-oss-20b, decoding | W1 | W2 | W6 | W7 | mean | worst |\n"
      "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
      print);
}
