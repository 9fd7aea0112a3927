// SPDX-License-Identifier: Apache-2.0
/// @file
/// The results of plan_experts: the plans before and after, and the balance of each on each file of
/// loads. The table, the JSON file and the report all print these results and nothing else.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <plimsoll/migration_types.hpp>
#include <plimsoll/systems/craft.hpp>
#include <plimsoll/types.hpp>

#include "curves_file.hpp"
#include "decision.hpp"
#include "plan.hpp"
#include "selection.hpp"

namespace examples {

/// Balancedness over several rows (layers, or layers of all steps) with load.
struct balance_statistics {
  double mean = 1;
  double ratio_of_sums = 1;  ///< sum of mean loads / sum of largest loads
  double peaks = 0;          ///< sum of largest loads
  double worst = 1;
  index_t worst_layer = 0;  ///< the first with `worst`, as the model's layer id
  index_t worst_step = 0;
  /// The smallest value that at least a twentieth of the rows do not exceed.
  double fifth_percentile = 1;
};

/// Latencies of layers in steps by the latency curves: those of the slowest rank.
struct latency_statistics {
  double mean = 0;  ///< over layers and steps
  double worst = 0;
  index_t worst_layer = 0;  ///< the first with `worst`, as the model's layer id
  index_t worst_step = 0;
  /// The smallest value that at least nineteen of twenty values do not exceed.
  double ninety_fifth_percentile = 0;
  std::vector<double> of_layers = {};  ///< [layers], mean over the steps
  std::vector<double> of_ranks = {};   ///< [layers, ranks], mean over the steps
};

/// Token copies that leave the rank, or the node, on which their token is.
struct crossing_copies {
  double ranks = 0;
  double nodes = 0;
};

/// Traffic of a plan, over all layers of a mean step.
struct plan_traffic {
  double copies = 0;             ///< token copies in all
  crossing_copies split = {};    ///< if the split alone chooses the replica
  crossing_copies nearest = {};  ///< if a token goes to a replica on its rank, else on its node
};

/// Measurements of one plan on one file of loads. Replicas of an expert share its load equally,
/// except in `optimal`.
struct measured_plan {
  std::vector<double> rank_loads;                  ///< [layers, ranks], of the summed steps
  std::vector<double> balancedness;                ///< [layers], of the summed steps
  balance_statistics summed;                       ///< over the layers, of the summed steps
  std::optional<balance_statistics> per_step;      ///< over layers and steps, if several
  balance_statistics optimal = {};                 ///< of steps that are split optimally
  plan_traffic traffic = {};                       ///< with the even split
  plan_traffic optimal_traffic = {};               ///< of steps that are split optimally
  std::optional<latency_statistics> latency = {};  ///< with curves
};

/// Measurements of both plans on one file of loads.
struct comparison {
  std::string loads;  ///< the file's name
  index_t steps = 1;
  index_t empty_steps = 0;           ///< steps without load in any layer, left out of all figures
  std::vector<double> expert_loads;  ///< [layers, experts], of the summed steps
  measured_plan before;
  measured_plan after;

  [[nodiscard]] index_t filled_steps() const { return steps - empty_steps; }
  /// Names the loads behind the figures that count in service.
  [[nodiscard]] std::string per_step_text(plimsoll::split_rule split) const {
    return loads + (before.per_step && after.per_step ? ", step by step" : "") +
           (split == plimsoll::split_rule::optimal ? ", split optimally" : "");
  }
  /// Returns the figures that count in service: step by step if there are several steps.
  [[nodiscard]] static balance_statistics const& served(measured_plan const& m,
                                                        plimsoll::split_rule split) {
    return split == plimsoll::split_rule::optimal ? m.optimal : m.per_step ? *m.per_step : m.summed;
  }
  /// Returns the traffic with the split of service.
  [[nodiscard]] static plan_traffic const& traffic_in_service(measured_plan const& m,
                                                              plimsoll::split_rule split) {
    return split == plimsoll::split_rule::even ? m.traffic : m.optimal_traffic;
  }
};

/// Settings and results of craft.
struct craft_outcome {
  std::string chosen;  ///< origin of the limit: "automatic", "replicas_per_rank" or "budget_bytes"
  std::optional<std::int64_t> budget_bytes = {};  ///< per rank, if given
  index_t replicas_per_rank = 0;                  ///< limit over all layers
  index_t steps = 1;                              ///< number of steps that it planned from
  std::vector<index_t> filled = {};               ///< [layers]: steps in which the layer has load
  plimsoll::gain_estimate estimate = {};
  plimsoll::replica_allocation allocation = {};

  /// Returns the mean step-by-step balancedness without replicas, over all layers with load.
  [[nodiscard]] double mean_base() const {
    double sum = 0;
    for (std::size_t layer = 0; layer < filled.size(); ++layer) {
      sum += estimate.base[layer] * static_cast<double>(filled[layer]);
    }
    return rows() > 0 ? sum / rows() : 1;
  }
  /// Returns the mean with replicas whose gains sum to `gains`, in the unit of `allocation.curve`.
  [[nodiscard]] double mean_with(double gains) const {
    return mean_base() + (rows() > 0 ? gains * static_cast<double>(steps) / rows() : 0);
  }
  /// Returns the estimated mean with the replicas that the layers got.
  [[nodiscard]] double mean_expected() const {
    double sum = 0;
    for (std::size_t layer = 0; layer < filled.size(); ++layer) {
      sum += allocation.gain[layer] * static_cast<double>(filled[layer]);
    }
    return mean_base() + (rows() > 0 ? sum / rows() : 0);
  }

 private:
  [[nodiscard]] double rows() const {
    return static_cast<double>(std::accumulate(filled.begin(), filled.end(), index_t{0}));
  }
};

/// Removes steps without load from the means of every layer: the library counts a layer without
/// load as balanced in that step. The curve remains a sum of means over all steps.
inline void leave_empty_steps_out(craft_outcome& c) {
  std::size_t const counts = c.estimate.replica_counts.size();
  auto const steps = static_cast<double>(c.steps);
  for (std::size_t layer = 0; layer < c.filled.size(); ++layer) {
    auto const filled = static_cast<double>(c.filled[layer]);
    if (c.filled[layer] == c.steps || c.filled[layer] == 0) {
      continue;
    }
    c.estimate.base[layer] = (c.estimate.base[layer] * steps - (steps - filled)) / filled;
    c.allocation.gain[layer] *= steps / filled;
    for (std::size_t k = 0; k < counts; ++k) {
      c.estimate.gain[layer * counts + k] *= steps / filled;
    }
  }
}

/// Settings and results of gem.
struct gem_outcome {
  std::string latency;       ///< the file with the curves
  curve_samples curves;      ///< its content
  index_t trace_length = 0;  ///< last steps with load of LOADS that it used
  index_t restarts = 0;
  std::vector<index_t> steps = {};                 ///< [layers]: steps in which the layer has load
  std::vector<plimsoll::certificate> layers = {};  ///< sums over the steps of the trace

  /// Returns the mean latency of a layer in a step of the trace.
  [[nodiscard]] double mean() const { return mean_of(&plimsoll::certificate::value); }
  /// Returns the lower bound of that mean for any plan.
  [[nodiscard]] double mean_bound() const { return mean_of(&plimsoll::certificate::lower_bound); }

 private:
  [[nodiscard]] double mean_of(double plimsoll::certificate::*member) const {
    double sum = 0;
    for (plimsoll::certificate const& layer : layers) {
      sum += layer.*member;
    }
    auto const rows = std::accumulate(steps.begin(), steps.end(), index_t{0});
    return sum / static_cast<double>(std::max<index_t>(1, rows));
  }
};

/// Mean balancedness of layers and steps of LOADS under the plan in use and a plan within a limit
/// on moves, and what that plan gained in steps that plans like it were not made from.
struct balance_gain {
  double before = 0;
  double after = 0;
  double expected = 0;
};

/// Transfers from the plan in use to the plan after, and the settings behind their estimates.
struct migration_outcome {
  std::optional<std::int64_t> max_moves = {};  ///< limit over all layers, if given
  std::optional<std::int64_t> max_bytes = {};  ///< likewise
  std::string rounds = "one-peer";             ///< rule of the rounds, as in --rounds
  double token_us = 0;                         ///< time of a token copy on a rank
  index_t steps = 1;                           ///< of LOADS with load
  std::optional<balance_gain> gain = {};       ///< if the moves are limited
  std::vector<index_t> changed_layers = {};    ///< with a slot that gets another expert
  plimsoll::transfer_plan transfers = {};

  [[nodiscard]] index_t moves() const {
    return sum_of([](plimsoll::layer_transfers const& layer) { return layer.changes.moves; });
  }
  [[nodiscard]] index_t local_copies() const {
    return sum_of(
        [](plimsoll::layer_transfers const& layer) { return layer.changes.local_copies; });
  }
  /// Returns the rounds of all layers, which follow one another.
  [[nodiscard]] index_t round_count() const {
    return sum_of([](plimsoll::layer_transfers const& layer) { return layer.rounds; });
  }
  /// Returns the most staging slots that a rank needs at one time.
  [[nodiscard]] index_t staging_slots() const {
    index_t most = 0;
    for (plimsoll::layer_transfers const& layer : transfers.layers) {
      most = std::max(most, layer.staging_slots);
    }
    return most;
  }
  /// Returns the bytes that ranks receive from other ranks.
  [[nodiscard]] std::int64_t bytes() const {
    auto const& received = transfers.received_bytes;
    return std::accumulate(received.begin(), received.end(), std::int64_t{0});
  }

 private:
  template <class Count>
  [[nodiscard]] index_t sum_of(Count const& count) const {
    index_t sum = 0;
    for (plimsoll::layer_transfers const& layer : transfers.layers) {
      sum += count(layer);
    }
    return sum;
  }
};

/// Describes how the ranks of the plan in use became those of the new plan.
struct rank_change {
  std::string previous = {};  ///< the file of the plan in use
  index_t before = 0;         ///< its ranks
  std::vector<std::int32_t> source_ranks =
      {};                    ///< [ranks]: the rank that each was, -1 if it joined
  index_t lost_experts = 0;  ///< pairs of layer and expert that are on no rank any more
};

/// All results to print.
struct outcome {
  /// "eplb", "auto", "flow", "craft", "gem", or "none" if the plan was only read
  std::string planner;
  plimsoll::split_rule split = plimsoll::split_rule::even;  ///< by which the plan is judged
  std::string refinement;                                   ///< "none", "packing", "joint"
  std::string policy;                                       ///< "seq", "omp", "gpu"
  std::string before_name;   ///< "trivial", "tensorrt-llm", or the file of the plan in use
  std::string program = {};  ///< its name and version
  std::string date = {};     ///< when it ran
  std::string command = {};  ///< the command line, quoted for a shell
  std::string output = {};   ///< the file of the plan; empty if none is written
  std::string format = {};   ///< format of that file
  index_t nodes = 1;
  std::string sources = {};  ///< the file of --sources; empty: as many tokens on every rank
  index_t groups = 1;
  bool hierarchical = false;                      ///< each group of experts stays on a node
  std::optional<std::int64_t> expert_bytes = {};  ///< the weights of one expert in one layer
  std::optional<double> milliseconds = {};        ///< time of one call of the planner, if one ran
  int runs = 0;                                   ///< number of calls; the time is their median
  std::optional<craft_outcome> craft = {};        ///< if craft planned
  std::optional<gem_outcome> gem = {};            ///< if gem planned
  std::optional<selection> selected = {};         ///< if auto or flow planned
  std::optional<migration_outcome> moves = {};    ///< with --previous
  rank_change ranks = {};                         ///< with --previous
  plan before = {};
  plan after = {};
  /// The plan without --refine, if there is a file of --evaluate to compare it on.
  std::optional<plan> unrefined = {};
  std::optional<double> unrefined_mean = {};      ///< its mean balancedness there, as served
  std::vector<comparison> comparisons = {};       ///< LOADS, then the file of --evaluate
  std::optional<decision_outcome> decision = {};  ///< with --verdict
};

/// Returns whether the traffic is printed: with one node and tokens on all ranks alike it is the
/// same for nearly every plan.
[[nodiscard]] inline bool shows_traffic(outcome const& result) {
  return result.nodes > 1 || !result.sources.empty();
}

/// Counts the layers that got each number of replicas.
[[nodiscard]] inline std::map<std::int32_t, index_t> layers_by_replicas(craft_outcome const& c) {
  std::map<std::int32_t, index_t> layers;
  for (std::int32_t const replicas : c.allocation.replicas) {
    ++layers[replicas];
  }
  return layers;
}

/// Returns the microseconds that a step saves with the plan after, summed over the layers; negative
/// if it takes longer. Latencies count if there are any, else the tokens of the most loaded rank.
[[nodiscard]] inline double saved_us(outcome const& result, comparison const& c) {
  auto const of_step = [&](measured_plan const& m) {
    if (m.latency) {
      auto const& layers = m.latency->of_layers;
      return std::accumulate(layers.begin(), layers.end(), 0.0);
    }
    auto const steps = static_cast<double>(std::max<index_t>(1, c.filled_steps()));
    return comparison::served(m, result.split).peaks / steps * result.moves.value().token_us;
  };
  constexpr double rounding = 1e-6;  // an optimal split is found to within as much
  double const before = of_step(c.before);
  double const saved = before - of_step(c.after);
  return std::abs(saved) > rounding * before ? saved : 0;
}

/// Returns the number of steps after which the plan after has saved the time of the transfers:
/// infinite if it never does, and empty if the bytes of an expert are not known.
[[nodiscard]] inline std::optional<double> break_even_steps(outcome const& result,
                                                            comparison const& c) {
  auto const& transfers = result.moves.value().transfers;
  if (transfers.list.empty()) {
    return 0;
  }
  if (!result.expert_bytes) {
    return {};
  }
  double const saved = saved_us(result, c);
  return saved > 0 ? std::ceil(1e6 * transfers.seconds / saved)
                   : std::numeric_limits<double>::infinity();
}

/// Returns the extra replicas of every layer, `[layers]`.
[[nodiscard]] inline std::vector<std::int64_t> extra_replicas(plan const& p) {
  std::vector<std::int64_t> extra;
  for (auto row = p.replica_count.begin(); row != p.replica_count.end(); row += p.experts) {
    extra.push_back(std::accumulate(row, row + p.experts, -p.experts));
  }
  return extra;
}

/// Counts the layers that have no load in LOADS.
[[nodiscard]] inline index_t idle_layers(outcome const& result) {
  auto const& loads = result.comparisons.front().expert_loads;
  index_t idle = 0;
  for (auto layer = loads.begin(); layer != loads.end(); layer += result.after.experts) {
    idle += std::all_of(layer, layer + result.after.experts, [](double load) { return load == 0; });
  }
  return idle;
}

/// Returns the bytes of weights on the rank that holds most, if the bytes of an expert are known.
[[nodiscard]] inline std::optional<std::int64_t> bytes_of_fullest_rank(
    plan const& p, std::optional<std::int64_t> expert_bytes) {
  if (!expert_bytes) {
    return {};
  }
  std::vector<std::int64_t> held(static_cast<std::size_t>(p.ranks));
  auto const placement = p.placement();
  for (index_t layer = 0; layer < p.layers; ++layer) {
    for (index_t rank = 0; rank < p.ranks; ++rank) {
      for (index_t slot = placement.rank_offsets(layer, rank);
           slot < placement.rank_offsets(layer, rank + 1); ++slot) {
        held[static_cast<std::size_t>(rank)] += placement.physical_to_logical(layer, slot) >= 0;
      }
    }
  }
  return *std::max_element(held.begin(), held.end()) * *expert_bytes;
}

}  // namespace examples
