// SPDX-License-Identifier: Apache-2.0
// The bodies of planning calls, as in all_headers.cu. They are the largest bodies, so they are
// compiled here for one type of loads only; their tests use more types, for one architecture.
#include <every_header.hpp>

#include <cstdint>

/// A user's cost. It is not in the unnamed namespace, whose types kernels cannot use.
struct squared_cost {
  PLIMSOLL_HD double operator()(plimsoll::index_t, double tokens) const { return tokens * tokens; }
};

namespace {

using plimsoll::matrix_ref, plimsoll::tensor_ref, plimsoll::vector_ref;

/// Never called: the test is that they compile.
[[maybe_unused]] void instantiate_planners(plimsoll::gpu_policy const& policy,
                                           matrix_ref<double const> const& loads,
                                           tensor_ref<double const> const& steps) {
  matrix_ref<std::int32_t> ints;
  plimsoll::replicate(policy, loads, 1, {}, ints);
  plimsoll::flow_placement(policy, steps, {.on = {.ranks = 1}}, ints, ints);
  plimsoll::placement_ref const given;
  plimsoll::align(policy, given, given, {}, ints);
  plimsoll::plan_within(policy, loads, given, given, {}, {}, ints, ints);
  static_cast<void>(plimsoll::transfers(policy, given, given));
  static_cast<void>(plimsoll::changed_layers(policy, given, given));
  plimsoll::certify(policy, steps, {});
  plimsoll::select_planner(policy, steps, 1, {.on = {.ranks = 1}});
  plimsoll::slot_assignment(policy, vector_ref<std::int32_t>(), {.on = {.ranks = 1}}, ints);
  plimsoll::place(policy, loads, ints, {.on = {.ranks = 1}}, ints);
  plimsoll::place_groups(policy, loads, 1, 1, {.on = {.ranks = 1}}, ints, ints);
  plimsoll::refine(policy, loads, {.on = {.ranks = 1}}, {}, ints, ints);
  plimsoll::knapsack(policy, tensor_ref<std::int32_t const>(), tensor_ref<double const>(), {},
                     ints);
  plimsoll::eplb(policy, loads, {.on = {.ranks = 1}}, ints, ints);
  plimsoll::replay(policy, steps, {}, {}, matrix_ref<double>());
  plimsoll::craft(policy, steps, {.on = {.ranks = 1}}, ints, ints, ints);
  plimsoll::rebalance_experts(policy, loads, 1, 1, 1, 1, ints, tensor_ref<std::int32_t>(), ints);
  plimsoll::lplb planner(policy, plimsoll::placement_ref(), {});
  planner.plan(matrix_ref<std::int32_t const>());
  planner.dispatch(0, matrix_ref<std::int32_t const>(), ints,
                   vector_ref<plimsoll::dispatch_counters>());
  plimsoll::minmax_lp split(policy, plimsoll::placement_ref(), {});
  split.solve(matrix_ref<std::int32_t const>(), matrix_ref<double>());
  plimsoll::quota(policy, matrix_ref<std::int32_t const>(), {}, matrix_ref<double const>(), ints,
                  vector_ref<plimsoll::quota_report>());
  plimsoll::capacity_mask mask(policy, {});
  mask.apply(matrix_ref<std::int32_t const>(), matrix_ref<float const>(), plimsoll::kept_pairs());
  plimsoll::token_drop drop(policy, {});
  drop.apply(matrix_ref<float const>(), plimsoll::kept_pairs());
  plimsoll::waterfill ballast(policy, plimsoll::placement_ref(), {});
  ballast.count(matrix_ref<std::int32_t const>());
  ballast.fill(matrix_ref<std::int32_t const>(), {}, ints);
  plimsoll::llep spills(policy, {});
  spills.count(matrix_ref<std::int32_t const>());
  spills.plan();
  spills.route(matrix_ref<std::int32_t const>(), ints, ints,
               vector_ref<plimsoll::spill_counters>());
  spills.arrange(vector_ref<std::int32_t>(), vector_ref<plimsoll::spill_segment>());
  plimsoll::least_loaded priced(policy, {}, plimsoll::spill_price{squared_cost(), 1, 1});
  priced.plan(vector_ref<std::int32_t const>());
  plimsoll::source_quotas(policy, vector_ref<std::int32_t const>(),
                          matrix_ref<std::int32_t const>(), {}, 1, ints);
}

[[maybe_unused]] void instantiate_latencies(plimsoll::gpu_policy const& policy,
                                            tensor_ref<double const> const& steps,
                                            plimsoll::latency_curves const& curves) {
  tensor_ref<double> reals;
  plimsoll::latency_table const table(policy, curves, 1);
  plimsoll::rank_latencies(policy, steps, {}, table.cost(), reals);
  plimsoll::step_latencies(policy, steps, {}, table.cost(), matrix_ref<double>());
  plimsoll::correlate(policy, steps, reals);
  plimsoll::classify_experts(policy, steps, {}, matrix_ref<plimsoll::expert_use>());
}

[[maybe_unused]] void instantiate_searches(plimsoll::gpu_policy const& policy,
                                           tensor_ref<double const> const& steps,
                                           plimsoll::latency_curves const& curves) {
  matrix_ref<std::int32_t> ints;
  matrix_ref<double> reals;
  plimsoll::latency_table const table(policy, curves, 1);
  plimsoll::swap_search(policy, steps, table.cost(), {.on = {.ranks = 1}}, ints, reals);
  plimsoll::swap_search(policy, steps, plimsoll::token_cost(), {.on = {.ranks = 1}}, ints);
  plimsoll::swap_search(policy, steps, squared_cost(), {.on = {.ranks = 1}}, ints);
  plimsoll::gem(policy, steps, curves, {.on = {.ranks = 1}}, ints, ints);
  plimsoll::trace_length_latencies(policy, steps, curves, 1, 1, {1}, {.on = {.ranks = 1}}, reals);
}

[[maybe_unused]] void instantiate_maps(plimsoll::gpu_policy const& policy,
                                       plimsoll::placement_ref const& placement,
                                       plimsoll::replica_lists_ref const& replicas) {
  matrix_ref<std::int32_t> ints;
  tensor_ref<std::int32_t> lists;
  plimsoll::count_replicas(policy, ints, ints);
  matrix_ref<std::int64_t> const longs;
  plimsoll::count_replicas(policy, longs, longs);
  plimsoll::slots_to_replicas(policy, ints, ints, ints);
  plimsoll::replicas_to_slots(policy, replicas, ints);
  plimsoll::replicas_to_padded(policy, replicas, lists);
  plimsoll::padded_to_replicas(policy, lists, ints, ints);
  plimsoll::slots_to_ranks(policy, placement, lists);
  plimsoll::ranks_to_slots(policy, lists, ints, ints);
  plimsoll::resize_placement(policy, placement, plimsoll::vector_ref<std::int32_t const>(), {},
                             ints, ints);
  plimsoll::validate(policy, placement);
  plimsoll::validate(policy, placement, replicas);
  plimsoll::validate(policy, placement, lists);
}

}  // namespace
