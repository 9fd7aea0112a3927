// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of CRAFT: checks, estimates gains from balancedness, allocates replicas by a knapsack and
/// its knee, and plans.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/eplb.hpp>
#include <plimsoll/detail/call/ids.hpp>
#include <plimsoll/detail/call/knapsack.hpp>
#include <plimsoll/detail/call/load_tensor.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/call/replay.hpp>
#include <plimsoll/detail/call/slot_assignment.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/planning/judge.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/systems/craft_types.hpp>
#include <plimsoll/systems/eplb_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline eplb_options eplb_options_of(craft_options const& options,
                                    matrix_ref<std::int32_t const> rank_offsets) {
  return {.on = options.on,
          .rank_offsets = rank_offsets,
          .groups = options.groups,
          .policy = options.policy,
          .refine = options.refine,
          .load_exponent = options.load_exponent,
          .replica_anti_affinity = options.replica_anti_affinity,
          .anti_affinity_strength = options.anti_affinity_strength};
}

/// Checks the members of the options that no shape constrains.
inline void expect_craft_values(std::string_view name, craft_options const& options) {
  expect_enumerator(name, "options.objective", craft_objective::replicas_times_gain,
                    options.objective);
  expect_enumerator(name, "options.fill", knapsack_fill::exactly, options.fill);
  expect_enumerator(name, "options.split", split_rule::optimal, options.split);
  expect_enumerator(name, "options.remainder", remainder_spread::endpoints, options.remainder);
  eplb_options const how = eplb_options_of(options, {});
  expect_eplb_values(name, how);
  expect_placement_values(name, "options", placement_options_of(how));
}

/// Checks the ranks of the options and returns the number of live ones.
template <class Context>
index_t live_ranks(std::string_view name, Context const& context, craft_options const& options) {
  expect_rank_set(name, options.on);
  expect_no_speeds(name, options.on, "gains count tokens");
  if (options.on.active.data == nullptr) {
    return options.on.ranks;
  }
  auto const active = on_host(context, options.on.active);
  auto const dead = std::count(active.begin(), active.end(), 0);
  expect_between(name, "options.on.active", 1, options.on.ranks, options.on.ranks - dead,
                 "live ranks");
  return options.on.ranks - dead;
}

inline void expect_budget(std::string_view name, craft_options const& options) {
  expect_between(name, "options.budget", automatic_budget, INT64_MAX, options.budget,
                 "replicas (-1: automatic)");
}

inline void expect_replica_counts(std::string_view name, argument_name const& argument,
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

/// Checks the options and fills in the default replica counts.
template <class Context>
craft_options checked(std::string_view name, Context const& context, craft_options options) {
  index_t const live = live_ranks(name, context, options);
  expect_craft_values(name, options);
  if (options.replica_counts.empty()) {
    options.replica_counts = usual_replica_counts(live);
  }
  expect_replica_counts(name, "options.replica_counts", options.replica_counts);
  return options;
}

/// Returns the slots of every layer of every plan, `[plans, layers]`: plan 0 has one slot for each
/// expert, and plan i has `counts[i - 1]` more.
inline std::vector<std::int32_t> slots_of_plans(std::vector<std::int32_t> const& counts,
                                                index_t layers, index_t experts) {
  auto const n = static_cast<std::size_t>(layers);
  auto const fewest = static_cast<std::int32_t>(experts);
  std::vector<std::int32_t> slots(n, fewest);
  for (std::int32_t const count : counts) {
    slots.insert(slots.end(), n, fewest + count);
  }
  return slots;
}

/// Makes the estimate from the balancedness `[plans, layers]` of the plans of `slots_of_plans`.
inline gain_estimate estimate_of(std::vector<std::int32_t> const& counts,
                                 std::vector<double> const& balancedness) {
  std::size_t const layers = balancedness.size() / (counts.size() + 1);
  gain_estimate result{.replica_counts = counts, .base = balancedness, .gain = {}};
  result.base.resize(layers);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    for (std::size_t row = layers + layer; row < balancedness.size(); row += layers) {
      result.gain.push_back(balancedness[row] - balancedness[layer]);
    }
  }
  return result;
}

inline void expect_estimate(std::string_view name, gain_estimate const& estimate) {
  auto const& counts = estimate.replica_counts;
  auto const width = static_cast<index_t>(counts.size());
  expect_between(name, "estimate.replica_counts", 1, rank_limit - 1, width, "counts");
  expect_replica_counts(name, "estimate.replica_counts", counts);
  expect_extent(name, "estimate.gain", static_cast<index_t>(estimate.base.size()) * width,
                static_cast<index_t>(estimate.gain.size()), "elements (layers * counts)");
}

/// Classes of the knapsack, `[layers, counts]`: a class is a layer, an option a replica count.
struct replica_classes {
  std::vector<std::int32_t> weights = {};
  std::vector<double> values = {};
};

inline replica_classes classes_of(std::string_view name, gain_estimate const& estimate,
                                  craft_objective objective) {
  auto const& counts = estimate.replica_counts;
  replica_classes result;
  for (std::size_t i = 0; i < estimate.gain.size(); ++i) {
    double const gain = estimate.gain[i];
    std::int32_t const count = counts[i % counts.size()];
    if (!(gain > -0x1p900 && gain < 0x1p900)) {
      fail(name, "estimate.gain", "numbers below 2^900",
           text(gain, " in layer ", i / counts.size(), " for ", count, " replicas"));
    }
    result.weights.push_back(count);
    result.values.push_back(objective == craft_objective::gain ? gain : count * gain);
  }
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

/// Adds the curve over replicas per rank, the knee and the budget to `result`. `best` is the
/// largest gain for every number of replicas.
inline void choose_budget(std::vector<double> const& best, index_t ranks, index_t budget,
                          replica_allocation& result) {
  for (std::size_t i = 0; i < best.size(); i += static_cast<std::size_t>(ranks)) {
    result.curve.push_back(best[i]);
  }
  result.knee = knee(result.curve);
  result.budget = budget == automatic_budget ? result.knee * ranks : budget;
}

/// Adds the chosen option of every layer to `result`; -1 is no replica.
inline void take_choices(std::vector<std::int32_t> const& choices, gain_estimate const& estimate,
                         replica_allocation& result) {
  auto const& counts = estimate.replica_counts;
  std::size_t first = 0;
  for (std::int32_t const choice : choices) {
    auto const k = static_cast<std::size_t>(choice);
    result.replicas.push_back(choice < 0 ? 0 : counts[k]);
    result.gain.push_back(choice < 0 ? 0 : estimate.gain[first + k]);
    result.used += result.replicas.back();
    first += counts.size();
  }
}

/// Makes room for the loads summed over the steps, once per plan of the estimate, so that one batch
/// of `eplb` makes all plans. Sums are doubles: exact below 2^53, and a sum that is too large does
/// not wrap, so that `eplb` refuses it.
template <class Context, class Loads>
buffer<double, Context> make_sums(Context const& context, Loads const& load,
                                  craft_options const& options) {
  auto const plans = static_cast<index_t>(options.replica_counts.size()) + 1;
  return {context, plans * load.extent(1) * load.extent(2)};
}

/// Estimates gains, and fills `sums`, `[plans, layers, experts]`.
template <class Context, class Loads>
gain_estimate estimate_gains(std::string_view name, Context const& context, Loads const& load,
                             craft_options const& options, buffer<double, Context> const& sums) {
  auto const& counts = options.replica_counts;
  index_t const layers = load.extent(1);
  index_t const experts = load.extent(2);
  auto const plans = static_cast<index_t>(counts.size()) + 1;
  index_t const rows = plans * layers;
  index_t const slots = experts + counts.back();
  buffer<std::int32_t, Context> const offsets(context, rows * (options.on.ranks + 1));
  matrix_ref<std::int32_t> const rank_offsets(offsets.data(), rows, options.on.ranks + 1);
  eplb_options const how = eplb_options_of(options, rank_offsets);
  expect_between(name, "loads", 1, 0x7fffffff, load.extent(0), "steps");
  expect_plannable(name, rows, experts, slots, how);

  matrix_ref<double> const sum(sums.data(), layers, experts);
  enqueue_sum_steps(context, load, sum);
  for (index_t plan = 1; plan < plans; ++plan) {
    copy_rows<Context, double>(context, sum,
                               {sums.data() + plan * layers * experts, layers, experts});
  }
  buffer<std::int32_t, Context> const layer_slots(context, slots_of_plans(counts, layers, experts));
  buffer<std::int32_t, Context> const map(context, rows * slots);
  buffer<std::int32_t, Context> const copies(context, rows * experts);
  buffer<double, Context> const means(context, rows);
  matrix_ref<std::int32_t> const placement(map.data(), rows, slots);
  matrix_ref<std::int32_t> const replicas(copies.data(), rows, experts);
  // The reports of the replay come first: they name the step of a wrong load, too.
  index_t const replays = replay_reports(load.extent(0), layers);
  index_t const planned = rows * eplb_steps(how);
  buffer<problem_report, Context> const reports(context, replays + planned + plans);
  enqueue_slot_assignment(context, {layer_slots.data(), rows}, plans,
                          {.on = options.on, .remainder = options.remainder}, rank_offsets,
                          reports.data() + replays + planned);
  enqueue_eplb(context, matrix_ref<double const>(sums.data(), rows, experts), how, placement,
               replicas, reports.data() + replays);
  placement_ref const all{.physical_to_logical = placement,
                          .replica_count = replicas,
                          .ranks = options.on.ranks,
                          .rank_offsets = rank_offsets};
  matrix_ref<double> const balancedness(means.data(), plans, layers);
  enqueue_replay(context, load, all, options.on.active, balancedness, reports.data());
  collect(name, reports, layers);
  if (options.split == split_rule::optimal) {
    run_optimal_replay(name, context, load, all, options.on.active, balancedness);
  }
  return estimate_of(counts, means.read());
}

/// Chooses one replica count for every layer, or none, with the largest total gain.
template <class Context>
replica_allocation allocate_replicas(std::string_view name, Context const& context,
                                     gain_estimate const& estimate, craft_options const& options) {
  index_t const ranks = live_ranks(name, context, options);
  expect_craft_values(name, options);
  expect_estimate(name, estimate);
  expect_budget(name, options);
  auto const layers = static_cast<index_t>(estimate.base.size());
  auto const width = static_cast<index_t>(estimate.replica_counts.size());
  replica_classes const classes = classes_of(name, estimate, options.objective);
  buffer<std::int32_t, Context> const weights(context, classes.weights);
  auto const choose = [&](buffer<double, Context> const& values, knapsack_options const& how,
                          matrix_ref<std::int32_t> choices, matrix_ref<double> best) {
    expect_capacity(name, how);
    return run_planning(name, context, 1, 1, [&](problem_report* reports) {
      enqueue_knapsack(context, tensor_ref<std::int32_t const>(weights.data(), 1, layers, width),
                       tensor_ref<double const>(values.data(), 1, layers, width), how, choices,
                       best, reports);
    });
  };

  index_t const most = (layers * estimate.replica_counts.back() + ranks - 1) / ranks;
  index_t const capacity = most * ranks;
  buffer<double, Context> const gains(context, estimate.gain);
  buffer<double, Context> const best(context, capacity + 1);
  knapsack_options how{.capacity = capacity, .choice = class_choice::at_most_one};
  choose(gains, how, {}, {best.data(), 1, capacity + 1});
  replica_allocation result;
  choose_budget(best.read(), ranks, options.budget, result);

  // No choice weighs more than the largest count in every layer.
  how.capacity = std::min(result.budget, capacity);
  how.fill = options.fill;
  buffer<double, Context> const values(context, classes.values);
  buffer<std::int32_t, Context> const chosen(context, layers);
  auto const found = choose(values, how, {chosen.data(), 1, layers}, {});
  if (found[0].status == certificate_status::infeasible ||
      (options.fill == knapsack_fill::exactly && result.budget > capacity)) {
    fail(name, "options.budget", "a sum of at most one replica count per layer",
         text(result.budget));
  }
  take_choices(chosen.read(), estimate, result);
  return result;
}

/// Plans every layer for the replicas that it was given. `sums` are the loads of one plan. The
/// outputs hold int32 or int64.
template <class Context, class Id, class Offset, class Count>
std::vector<certificate> plan_layers(std::string_view name, Context const& context,
                                     matrix_ref<double const> sums,
                                     std::vector<std::int32_t> const& replicas,
                                     craft_options const& options,
                                     matrix_ref<Id> physical_to_logical,
                                     matrix_ref<Offset> rank_offsets,
                                     matrix_ref<Count> replica_count) {
  index_t const layers = sums.extent(0);
  std::vector<std::int32_t> slots = replicas;
  for (std::int32_t& count : slots) {
    count += static_cast<std::int32_t>(sums.extent(1));
  }
  buffer<std::int32_t, Context> const layer_slots(context, slots);
  int32_ids<Context, Id, 2> const placement(context, physical_to_logical);
  int32_ids<Context, Offset, 2> const offsets(context, rank_offsets);
  int32_ids<Context, Count, 2> const counts(context, replica_count);
  eplb_options const how = eplb_options_of(options, offsets.view());
  run_planning(name, context, 1, 1, [&](problem_report* reports) {
    enqueue_slot_assignment(context, {layer_slots.data(), layers}, 1,
                            {.on = options.on, .remainder = options.remainder}, offsets.view(),
                            reports);
  });
  index_t const steps = eplb_steps(how);
  auto const enqueue = [&](problem_report* reports) {
    enqueue_eplb(context, sums, how, placement.view(), counts.view(), reports);
    placement.store();
    offsets.store();
    counts.store();
  };
  return certificates_of_step(run_planning(name, context, layers, steps, enqueue), layers,
                              steps - 1);
}

}}}  // namespace plimsoll::detail
