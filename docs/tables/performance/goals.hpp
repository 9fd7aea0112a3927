// SPDX-License-Identifier: Apache-2.0
/// @file
/// The performance goals, and the only definition of their limits.
#pragma once

#include <optional>

namespace examples {

/// Limit of a median, in microseconds or as a multiple of the median of an alternative in the same
/// run.
struct limit {
  double value;
  char const* times_alternative = nullptr;
};

/// A benchmark `goal/<name>`.
struct goal {
  char const* name;
  char const* what;
  std::optional<limit> host_limit;
  std::optional<limit> h200_limit;
};

// Add a goal together with its benchmark.
inline constexpr goal all_goals[] = {
    {"eplb", "rebalance 58 layers x 256 experts, 320 slots, 64 ranks, one core", limit{1500},
     limit{150}},
    {"flow_placement",
     "place one layer of 256 experts, 64 ranks, 64 additional replicas, by 16 steps, one core; on "
     "a "
     "GPU 58 layers",
     limit{500}, limit{5000}},
    {"flow_placement_short", "the same by 4 steps", limit{300}, std::nullopt},
    {"select_planner",
     "choose among five planners and plan 58 layers x 256 experts, 64 ranks, 64 additional "
     "replicas, by 16 steps, two cores",
     limit{150000}, std::nullopt},
    {"select_planner_exponents", "the same with four exponents of the loads", limit{800000},
     std::nullopt},
    {"select_planner_long", "choose among five planners by 3000 steps, two cores", limit{3000000},
     std::nullopt},
    {"select_planner_long_exponents", "the same with four exponents of the loads", limit{8000000},
     std::nullopt},
    {"plan_within",
     "find the best plan of 58 layers x 256 experts, 320 slots, 64 ranks, by 8 steps, if at most a "
     "tenth of the slots change, two cores",
     limit{150000}, std::nullopt},
    {"plan_within_validated", "the same, judged on steps that plans were not made from",
     limit{300000}, std::nullopt},
    {"plan_within_layer", "the same for one layer, prepared, one core", limit{5000}, std::nullopt},
    {"plan_within_layer_validated",
     "the same, judged on steps that plans were not made from, one core", limit{10000},
     std::nullopt},
    {"plan_within_layer_short", "the same with one plan beside the one in use, one core",
     limit{1000}, std::nullopt},
    {"refine",
     "refine plans of 58 layers x 256 experts of 8 tokens on 32 ranks, 32 additional replicas, "
     "where no plan reaches the bound, two cores",
     limit{60000}, std::nullopt},
    {"migration",
     "align a new plan of 58 layers x 320 slots on 64 ranks with the one in use, and list its "
     "transfers in rounds, one core",
     limit{20000}, std::nullopt},
    {"craft",
     "estimate, allocate and place: 3000 steps x 58 layers x 256 experts, 64 ranks, 7 replica "
     "counts, two cores",
     limit{150000}, limit{3000}},
    {"gem_small",
     "place 48 layers x 16 experts on 4 ranks of unequal speed by 16 steps, 30 restarts, two cores",
     limit{20000}, limit{2000}},
    {"gem_large", "the same for 58 layers x 256 experts on 32 ranks", limit{2000000},
     limit{100000}},
    {"minmax_lp",
     "split one layer of 256 experts, 64 ranks, 64 additional replicas, gap 1e-6; on a GPU 58 "
     "layers in one launch",
     limit{3}, limit{200}},
    {"minmax_lp_coarse", "the same with gap 1e-3", std::nullopt, limit{100}},
    {"minmax_lp_dense", "the same with 256 additional replicas, gap 1e-6", limit{60}, limit{500}},
    {"lplb",
     "from the counts of one layer to the slots of 4096 tokens, top-8: split, quotas, dispatch; 64 "
     "ranks, 64 additional replicas",
     std::nullopt, limit{40}},
    {"lplb_update",
     "take new placements of 58 layers into a prepared object, 64 ranks, 64 additional replicas, "
     "one core; on a GPU captured",
     limit{1000}, limit{100}},
    {"token_drop",
     "mask 16384 tokens x 256 experts, top-8, capacity factor 1, from scores to kept pairs, one "
     "core",
     limit{2.5, "nth_element"}, limit{3, "one_read"}},
    {"waterline",
     "rows of the shared expert for 16384 tokens, top-8, on the busiest of 16 ranks, from counts "
     "to ids and weights, one core",
     limit{1, "waterfill_loop"}, limit{12}},
    {"least_loaded",
     "plan a step's spills: 256 experts, 64 ranks, from loads to segments, one core", limit{10},
     limit{20}},
};

}  // namespace examples
