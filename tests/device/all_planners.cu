// SPDX-License-Identifier: Apache-2.0
// The bodies of planning calls, as in all_headers.cu. They are the largest, so one type of load has
// to do here; their tests have more, for one architecture.
#include <every_header.hpp>

#include <cstdint>

namespace {

using plimsoll::matrix_ref, plimsoll::tensor_ref, plimsoll::vector_ref;

/// Nothing calls these: compiling them is the test.
[[maybe_unused]] void instantiate_planners(plimsoll::gpu_policy const& policy,
                                           matrix_ref<double const> const& loads,
                                           tensor_ref<double const> const& steps) {
  matrix_ref<std::int32_t> ints;
  plimsoll::replicate(policy, loads, 1, {}, ints);
  plimsoll::slot_assignment(policy, vector_ref<std::int32_t>(), {.ranks = 1}, ints);
  plimsoll::place(policy, loads, ints, {.ranks = 1}, ints);
  plimsoll::place_groups(policy, loads, 1, 1, {.ranks = 1}, ints, ints);
  plimsoll::refine(policy, loads, {.ranks = 1}, {}, ints, ints);
  plimsoll::knapsack(policy, tensor_ref<std::int32_t const>(), tensor_ref<double const>(), {},
                     ints);
  plimsoll::eplb(policy, loads, {.ranks = 1}, ints, ints);
  plimsoll::replay(policy, steps, {}, {}, matrix_ref<double>());
  plimsoll::craft(policy, steps, {.ranks = 1}, ints, ints, ints);
  plimsoll::rebalance_experts(policy, loads, 1, 1, 1, 1, ints, tensor_ref<std::int32_t>(), ints);
  plimsoll::lplb const planner(policy, plimsoll::placement_ref(), {});
  planner.plan(matrix_ref<std::int32_t const>());
  planner.dispatch(0, matrix_ref<std::int32_t const>(), ints,
                   vector_ref<plimsoll::dispatch_counters>());
  plimsoll::token_drop const drop(policy, {});
  drop.apply(matrix_ref<float const>(), plimsoll::kept_pairs());
  plimsoll::waterfill const ballast(policy, plimsoll::placement_ref(), {});
  ballast.count(matrix_ref<std::int32_t const>());
  ballast.fill(matrix_ref<std::int32_t const>(), {}, ints);
  plimsoll::source_quotas(policy, {}, 1, vector_ref<std::int32_t const>(),
                          matrix_ref<std::int32_t const>(), ints);
}

[[maybe_unused]] void instantiate_maps(plimsoll::gpu_policy const& policy,
                                       plimsoll::placement_ref const& placement,
                                       plimsoll::replica_lists_ref const& replicas) {
  matrix_ref<std::int32_t> ints;
  tensor_ref<std::int32_t> lists;
  plimsoll::count_replicas(policy, ints, ints);
  plimsoll::slots_to_replicas(policy, ints, ints, ints);
  plimsoll::replicas_to_slots(policy, replicas, ints);
  plimsoll::replicas_to_padded(policy, replicas, lists);
  plimsoll::padded_to_replicas(policy, lists, ints, ints);
  plimsoll::slots_to_ranks(policy, placement, lists);
  plimsoll::ranks_to_slots(policy, lists, ints, ints);
  plimsoll::validate(policy, placement);
  plimsoll::validate(policy, placement, replicas);
  plimsoll::validate(policy, placement, lists);
}

}  // namespace
