// SPDX-License-Identifier: Apache-2.0
/// @file
/// CRAFT: gives each layer as many replicas as recorded steps show to be worth their memory.
/// Source: CRAFT, cost-aware expert replica allocation with fine-grained layerwise estimations
/// (algorithms 1 to 3).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/load_tensor.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/host/craft.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/knapsack.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/replay.hpp>
#include <plimsoll/slot_assignment.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Objective that the allocation of replicas maximises.
enum class craft_objective : std::int32_t {
  gain,                ///< the sum of the layers' gains, as in CRAFT's text
  replicas_times_gain  ///< the sum of replicas times gain, as in CRAFT's algorithm 2
};

/// Budget value that lets `allocate_replicas` choose the budget from the gains.
inline constexpr index_t automatic_budget = -1;

/// Returns the number of replicas that fit in `bytes_per_rank` on every rank, for use as
/// `craft_options::budget`.
inline index_t replica_budget(std::int64_t bytes_per_rank, std::int64_t expert_bytes,
                              index_t ranks) {
  constexpr char const* name = "replica_budget";
  detail::expect_between(name, "ranks", 1, rank_limit, ranks, "ranks");
  detail::expect_between(name, "bytes_per_rank", 0, INT64_MAX / ranks, bytes_per_rank, "bytes");
  detail::expect_between(name, "expert_bytes", 1, INT64_MAX, expert_bytes, "bytes");
  return bytes_per_rank / expert_bytes * ranks;
}

/// Options of CRAFT. Arrays are in the policy's memory.
struct craft_options {
  /// Number of ranks, 1 to 32767.
  index_t ranks = 0;
  /// Replicas of all layers together, at least 0, or `automatic_budget`. CRAFT's R replicas per
  /// rank are R * ranks. It need not be a multiple of the ranks; the slots of the ranks over all
  /// layers then differ by at most one.
  index_t budget = automatic_budget;
  /// Numbers of replicas that a layer may get, apart from 0: rising, from at least 1. Empty: the
  /// powers of two below the number of live ranks, and that number.
  std::vector<std::int32_t> replica_counts = {};
  craft_objective objective = craft_objective::gain;
  /// Use of the budget: as an upper limit, or exactly, as in the table of algorithm 2.
  knapsack_fill fill = knapsack_fill::at_most;
  /// As in `slot_assignment_options`.
  remainder_spread remainder = remainder_spread::interleaved;
  /// As in `eplb_options`. CRAFT's paper has none of these options.
  index_t nodes = 1;
  index_t groups = 1;
  eplb_policy policy = eplb_policy::automatic;
  eplb_refinement refine = eplb_refinement::none;
  vector_ref<std::uint8_t const> active = {};
  anti_affinity replica_anti_affinity = anti_affinity::none;
  strictness anti_affinity_strength = strictness::preferred;
};

/// Estimated gain in balancedness from replicas, on the host. Balancedness is that of `replay`.
struct gain_estimate {
  /// `[counts]`: those of the options, or the default counts.
  std::vector<std::int32_t> replica_counts = {};
  std::vector<double> base = {};  ///< `[layers]`: balancedness without replicas
  std::vector<double> gain = {};  ///< `[layers, counts]`: balancedness with replicas, minus base
};

/// Number of replicas of every layer, on the host.
struct replica_allocation {
  std::vector<std::int32_t> replicas = {};  ///< `[layers]`
  std::vector<double> gain = {};            ///< `[layers]`: estimated gain of these replicas
  /// Element R is the largest sum of gains with R replicas on each live rank, up to the R at which
  /// every layer may have the largest count.
  std::vector<double> curve = {};
  index_t knee = 0;    ///< the R that the automatic budget chooses
  index_t budget = 0;  ///< the budget of the options, or the automatic budget
  index_t used = 0;    ///< the sum of `replicas`
};

/// Results of `craft`, on the host.
struct craft_plan {
  gain_estimate estimate = {};
  replica_allocation allocation = {};
  /// `[layers]`: certificates of `eplb` on the summed loads.
  std::vector<certificate> placement = {};
};

namespace detail {

inline namespace PLIMSOLL_DEVICE_ABI {

template <class Policy>
index_t live_ranks(std::string_view name, Policy const& policy, craft_options const& options) {
  expect_between(name, "options.ranks", 1, rank_limit, options.ranks, "ranks");
  if (options.active.data == nullptr) {
    return options.ranks;
  }
  expect_extent(name, "options.active", options.ranks, options.active.extent(0), "ranks");
  auto const active = read(policy, options.active);
  auto const dead = std::count(active.begin(), active.end(), 0);
  expect_between(name, "options.active", 1, options.ranks, options.ranks - dead, "live ranks");
  return options.ranks - dead;
}

}  // namespace PLIMSOLL_DEVICE_ABI

inline void expect_budget(std::string_view name, craft_options const& options) {
  expect_between(name, "options.budget", automatic_budget, INT64_MAX, options.budget,
                 "replicas (-1: automatic)");
}

inline void expect_replica_counts(std::string_view name, std::string const& argument,
                                  std::vector<std::int32_t> const& counts) {
  std::int32_t least = 1;
  for (std::int32_t const count : counts) {
    expect_between(name, argument, least, rank_limit - 1, count, "replicas, rising from 1");
    least = count + 1;
  }
}

inline std::vector<std::int32_t> usual_replica_counts(index_t ranks) {
  std::vector<std::int32_t> counts;
  for (index_t count = 1; count < ranks; count *= 2) {
    counts.push_back(static_cast<std::int32_t>(count));
  }
  counts.push_back(static_cast<std::int32_t>(std::min(ranks, rank_limit - 1)));
  return counts;
}

inline eplb_options eplb_options_of(craft_options const& options,
                                    matrix_ref<std::int32_t const> rank_offsets) {
  return {.ranks = options.ranks,
          .rank_offsets = rank_offsets,
          .nodes = options.nodes,
          .groups = options.groups,
          .policy = options.policy,
          .refine = options.refine,
          .active = options.active,
          .replica_anti_affinity = options.replica_anti_affinity,
          .anti_affinity_strength = options.anti_affinity_strength};
}

/// Estimates gains. Writes the sums over the steps to `sums`, once per plan, so that one batch of
/// `eplb` makes all plans. Sums are doubles: exact below 2^53, and a sum that is too large does not
/// wrap, so that `eplb` refuses it.
template <class Context, class Loads>
gain_estimate estimate_gains(std::string_view name, Context const& context, Loads const& load,
                             craft_options const& options, buffer<double, Context> const& sums) {
  auto const& counts = options.replica_counts;
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  index_t const plans = static_cast<index_t>(counts.size()) + 1;
  index_t const rows = plans * layers;
  index_t const slots = experts + counts.back();
  index_t const ends = options.ranks + 1;
  buffer<std::int32_t, Context> const offsets(context, rows * ends);
  matrix_ref<std::int32_t> const rank_offsets(offsets.data(), rows, ends);
  eplb_options const how = eplb_options_of(options, rank_offsets);
  expect_between(name, "loads", 1, 0x7fffffff, load.extent(0), "steps");
  expect_plannable(name, rows, experts, slots, how);

  auto const rows_of = [&](index_t plan) {
    return matrix_ref<double>(sums.data() + plan * layers * experts, layers, experts);
  };
  launch(context, layers * tiles_of(experts), sum_steps_body<Loads, double>{load, rows_of(0)});
  std::vector<std::int32_t> slots_of;
  for (index_t plan = 0; plan < plans; ++plan) {
    std::int32_t const replicas = plan == 0 ? 0 : counts[static_cast<std::size_t>(plan - 1)];
    slots_of.insert(slots_of.end(), static_cast<std::size_t>(layers),
                    static_cast<std::int32_t>(experts) + replicas);
    if (plan > 0) {
      copy_rows(context, matrix_ref<double const>(rows_of(0)), rows_of(plan));
    }
  }

  buffer<std::int32_t, Context> const layer_slots(context, slots_of);
  buffer<std::int32_t, Context> const map(context, rows * slots);
  buffer<std::int32_t, Context> const copies(context, rows * experts);
  buffer<double, Context> const means(context, rows);
  // The reports of the replay come first: they name the step of a wrong load, too.
  index_t const replays = replay_problems(load.extent(0), layers);
  buffer<problem_report, Context> const reports(context, replays + rows * eplb_steps(how) + plans);
  launch(context, plans,
         slot_assignment_body{{layer_slots.data(), rows},
                              layers,
                              options.active,
                              options.ranks,
                              options.remainder == remainder_spread::endpoints,
                              rank_offsets,
                              reports.data() + replays + rows * eplb_steps(how)});
  placement_ref const placement{.physical_to_logical = {map.data(), rows, slots},
                                .replica_count = {copies.data(), rows, experts},
                                .ranks = options.ranks,
                                .rank_offsets = rank_offsets};
  enqueue_eplb(context, matrix_ref<double const>(sums.data(), rows, experts), how,
               {map.data(), rows, slots}, {copies.data(), rows, experts}, reports.data() + replays);
  enqueue_replay(context, load, placement, options.active, {means.data(), plans, layers},
                 reports.data());
  collect(name, reports, layers, throw_craft_fault);

  gain_estimate result{.replica_counts = counts, .base = means.read(), .gain = {}};
  for (index_t layer = 0; layer < layers; ++layer) {
    for (index_t row = layers + layer; row < rows; row += layers) {
      result.gain.push_back(result.base[static_cast<std::size_t>(row)] -
                            result.base[static_cast<std::size_t>(layer)]);
    }
  }
  result.base.resize(static_cast<std::size_t>(layers));
  return result;
}

/// Returns the number of replicas per rank at which the curve is furthest above the straight line
/// from its first point to its last.
inline index_t knee(std::vector<double> const& curve) {
  auto const last = static_cast<double>(curve.size() - 1);
  auto const height = [&](std::size_t i) {
    return add(multiply(curve[i], last), -multiply(static_cast<double>(i), curve.back()));
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < curve.size(); ++i) {
    best = height(i) > height(best) ? i : best;
  }
  return static_cast<index_t>(best);
}

inline namespace PLIMSOLL_DEVICE_ABI {

template <class Policy>
replica_allocation allocate_replicas(std::string_view name, Policy const& policy,
                                     gain_estimate const& estimate, craft_options const& options) {
  auto const& counts = estimate.replica_counts;
  index_t const ranks = live_ranks(name, policy, options);
  auto const layers = static_cast<index_t>(estimate.base.size());
  auto const width = static_cast<index_t>(counts.size());
  expect_between(name, "estimate.replica_counts", 1, rank_limit - 1, width, "counts");
  expect_replica_counts(name, "estimate.replica_counts", counts);
  expect_extent(name, "estimate.gain", layers * width, static_cast<index_t>(estimate.gain.size()),
                "elements (layers * counts)");
  expect_budget(name, options);

  auto const context = resolve(policy);
  using context_type = std::remove_const_t<decltype(context)>;
  std::vector<std::int32_t> weights;
  std::vector<double> values;
  for (std::size_t i = 0; i < estimate.gain.size(); ++i) {
    if (!(estimate.gain[i] > -0x1p900 && estimate.gain[i] < 0x1p900)) {
      fail(name, "estimate.gain", "numbers below 2^900",
           text(estimate.gain[i], " in layer ", i / counts.size(), " for ",
                counts[i % counts.size()], " replicas"));
    }
    weights.push_back(counts[i % counts.size()]);
    values.push_back(options.objective == craft_objective::gain
                         ? estimate.gain[i]
                         : weights.back() * estimate.gain[i]);
  }
  buffer<std::int32_t, context_type> const weight(context, weights);
  tensor_ref<std::int32_t const> const weight_of(weight.data(), 1, layers, width);
  auto const values_of = [&](buffer<double, context_type> const& from) {
    return tensor_ref<double const>(from.data(), 1, layers, width);
  };

  replica_allocation result;
  index_t const most = (layers * counts.back() + ranks - 1) / ranks;
  index_t const capacity = most * ranks;
  buffer<double, context_type> const gain(context, estimate.gain);
  buffer<double, context_type> const best(context, capacity + 1);
  knapsack_options how{.capacity = capacity, .choice = class_choice::at_most_one};
  knapsack_curve(policy, weight_of, values_of(gain), how,
                 matrix_ref<double>(best.data(), 1, capacity + 1));
  auto const all = best.read();
  for (index_t replicas = 0; replicas <= capacity; replicas += ranks) {
    result.curve.push_back(all[static_cast<std::size_t>(replicas)]);
  }
  result.knee = knee(result.curve);
  result.budget = options.budget == automatic_budget ? result.knee * ranks : options.budget;

  // No choice weighs more than the largest count in every layer.
  how.capacity = std::min(result.budget, capacity);
  how.fill = options.fill;
  buffer<double, context_type> const value(context, values);
  buffer<std::int32_t, context_type> const chosen(context, layers);
  auto const found = knapsack(policy, weight_of, values_of(value), how,
                              matrix_ref<std::int32_t>(chosen.data(), 1, layers));
  if (found[0].status == certificate_status::infeasible ||
      (options.fill == knapsack_fill::exactly && result.budget > capacity)) {
    fail(name, "options.budget", "a sum of at most one replica count per layer",
         text(result.budget));
  }
  index_t layer = 0;
  for (std::int32_t const choice : chosen.read()) {
    auto const k = static_cast<std::size_t>(choice);
    result.replicas.push_back(choice < 0 ? 0 : counts[k]);
    result.gain.push_back(choice < 0 ? 0
                                     : estimate.gain[static_cast<std::size_t>(layer * width) + k]);
    result.used += result.replicas.back();
    ++layer;
  }
  return result;
}

/// Checks the options and fills in the default replica counts.
template <class Policy>
craft_options checked(std::string_view name, Policy const& policy, craft_options options) {
  index_t const live = live_ranks(name, policy, options);
  if (options.replica_counts.empty()) {
    options.replica_counts = usual_replica_counts(live);
  }
  expect_replica_counts(name, "options.replica_counts", options.replica_counts);
  return options;
}

}  // namespace PLIMSOLL_DEVICE_ABI

/// Allocates memory for the sums over the steps, once per plan of the estimate.
template <class Context, class Loads>
buffer<double, Context> make_load_sums(Context const& context, Loads const& load,
                                       craft_options const& options) {
  auto const plans = static_cast<index_t>(options.replica_counts.size()) + 1;
  return {context, plans * load.extent(1) * load.extent(2)};
}

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Estimates the gain in balancedness from replicas in every layer: CRAFT's algorithm 1.
///
/// For every count r, `slot_assignment` divides the E + r slots of every layer among the ranks,
/// `eplb` with these options fills them for the loads summed over the steps, and `replay` averages
/// the balancedness of the recorded steps. The gain is this average minus the one for r = 0.
///
/// @param loads `[steps, layers, experts]`, in the policy's memory, as for `replay`; the total of a
///   layer over all steps below 2^47
/// @param options ranks, replica counts and the options of placement; the budget is not used
/// @return base and gains; a layer without load has gain 0
/// @throws invalid_input for wrong shapes and options; and for wrong loads, naming layer, step and
///   expert
/// @complexity O(steps layers (experts + counts slots)), and `eplb` for each count; two passes over
///   the loads
/// @workspace that of `replay` and `eplb` for (counts + 1) times the layers; and for each of these,
///   4 bytes per slot, 12 bytes per expert and 4 bytes per rank. The loads are not copied
/// @stream synchronises
/// @determinism the same bits under every policy
template <execution_policy P, load_tensor_view Loads>
gain_estimate estimate_gains(P const& policy, Loads const& loads, craft_options const& options) {
  auto const load = detail::argument<3>("estimate_gains", "loads", loads);
  auto const how = detail::checked("estimate_gains", policy, options);
  auto const context = detail::resolve(policy);
  auto const sums = detail::make_load_sums(context, load, how);
  return detail::estimate_gains("estimate_gains", context, load, how, sums);
}

/// @brief Divides a budget of replicas among the layers (CRAFT's algorithm 2), and chooses the
/// budget if it is automatic.
///
/// `knapsack` finds the replica counts with the largest total gain within the budget; of equal
/// ones, those with fewer replicas in later layers. No layer gets replicas with a negative gain,
/// unless the budget must be used up.
///
/// The automatic budget is the knee of the curve of largest gain over replicas per rank: the point
/// furthest above the straight line between its ends. Up to there an additional replica gains more
/// than the average replica, beyond it less. (CRAFT's own rule, the largest gain per replica, picks
/// the smallest budget whenever additional replicas gain less and less.) The curve is always that
/// of the gain, whatever the objective.
///
/// @param estimate the result of `estimate_gains`, or numbers from elsewhere
/// @param options ranks, budget, objective, and use of the budget
/// @return replicas of every layer, their gains, and the curve
/// @throws invalid_input for wrong shapes and options; for a gain that is not a number; and for a
///   budget that must be used up and cannot be
/// @complexity O(layers counts C), where C is layers times the largest count
/// @workspace as `knapsack` with a capacity of C
/// @stream synchronises
/// @determinism the same bits under every policy
template <execution_policy P>
replica_allocation allocate_replicas(P const& policy, gain_estimate const& estimate,
                                     craft_options const& options) {
  return detail::allocate_replicas("allocate_replicas", policy, estimate, options);
}

/// @brief Plans every layer as CRAFT does: `estimate_gains`, `allocate_replicas`, and then, for the
/// replicas of each layer, `slot_assignment` and `eplb` on the summed loads.
///
/// Layers get different numbers of slots. Within a layer, the slots of two ranks differ by at most
/// one, and so do their totals over all layers; the totals are equal if the number of ranks divides
/// the number of all slots.
///
/// @param loads `[steps, layers, experts]`, in the policy's memory, as for `estimate_gains`
/// @param options ranks, budget, and the options of placement
/// @param[out] physical_to_logical `[layers, slots]` int32, where slots is at least the number of
///   experts plus the largest replica count: the expert in every slot; -1 beyond the slots of the
///   layer
/// @param[out] rank_offsets `[layers, ranks + 1]` int32: the first slot of each rank
/// @param[out] replica_count `[layers, experts]` int32
/// @return the estimate, the allocation, and the certificates of the placement
/// @throws invalid_input as `estimate_gains`, `allocate_replicas` and `eplb`
/// @complexity as `estimate_gains` and `allocate_replicas`
/// @workspace as `estimate_gains` and `allocate_replicas`
/// @stream synchronises
/// @determinism the same bits under every policy
template <execution_policy P, load_tensor_view Loads, output_of<std::int32_t, 2> Placement,
          output_of<std::int32_t, 2> Offsets, output_of<std::int32_t, 2> Counts>
craft_plan craft(P const& policy, Loads const& loads, craft_options const& options,
                 Placement&& physical_to_logical, Offsets&& rank_offsets, Counts&& replica_count) {
  constexpr char const* name = "craft";
  auto const load = detail::argument<3>(name, "loads", loads);
  matrix_ref<std::int32_t> const placement =
      detail::argument<2>(name, "physical_to_logical", physical_to_logical);
  matrix_ref<std::int32_t> const offsets = detail::argument<2>(name, "rank_offsets", rank_offsets);
  matrix_ref<std::int32_t> const counts = detail::argument<2>(name, "replica_count", replica_count);
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  auto const how = detail::checked(name, policy, options);
  detail::expect_budget(name, how);
  detail::expect_extent(name, "physical_to_logical", layers, placement.extent(0), "layers");
  detail::expect_between(name, "physical_to_logical", experts + how.replica_counts.back(),
                         0x7fffffff, placement.extent(1),
                         "slots (experts and the largest replica count)");
  detail::expect_extent(name, "rank_offsets", layers, offsets.extent(0), "layers");
  detail::expect_extent(name, "rank_offsets", how.ranks + 1, offsets.extent(1),
                        "offsets (ranks + 1)");
  detail::expect_extent(name, "replica_count", layers, counts.extent(0), "layers");
  detail::expect_extent(name, "replica_count", experts, counts.extent(1), "experts");
  detail::expect_plannable(name, layers, experts, placement.extent(1),
                           detail::eplb_options_of(how, offsets));

  auto const context = detail::resolve(policy);
  auto const sums = detail::make_load_sums(context, load, how);
  craft_plan plan;
  plan.estimate = detail::estimate_gains(name, context, load, how, sums);
  plan.allocation = detail::allocate_replicas(name, policy, plan.estimate, how);

  std::vector<std::int32_t> slots = plan.allocation.replicas;
  for (std::int32_t& count : slots) {
    count += static_cast<std::int32_t>(experts);
  }
  detail::buffer<std::int32_t, std::remove_const_t<decltype(context)>> const layer_slots(context,
                                                                                         slots);
  slot_assignment(policy, vector_ref<std::int32_t const>(layer_slots.data(), layers),
                  {.ranks = how.ranks, .remainder = how.remainder, .active = how.active}, offsets);
  plan.placement =
      detail::run_eplb(name, context, matrix_ref<double const>(sums.data(), layers, experts),
                       detail::eplb_options_of(how, offsets), placement, counts);
  return plan;
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll
