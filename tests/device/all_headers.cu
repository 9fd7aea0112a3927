// SPDX-License-Identifier: Apache-2.0
// Compiles every header with nvcc and, together with all_samples.cu, instantiates every body for
// its device team, so that device code is compiled for all architectures even without a GPU. Here
// are the types of loads and ids that samples leave out.
#include <every_header.hpp>

#include <cstdint>
#include <vector>

namespace {

using plimsoll::matrix_ref, plimsoll::tensor_ref, plimsoll::vector_ref;

/// Never called: the test is that it compiles.
template <class Load>
[[maybe_unused]] void instantiate(plimsoll::gpu_policy const& policy,
                                  matrix_ref<Load const> const& loads,
                                  tensor_ref<Load const> const& steps) {
  using sum = plimsoll::detail::load_sum_t<Load>;
  matrix_ref<std::int32_t> ints;
  matrix_ref<sum> sums;
  plimsoll::placement_ref const placement{ints, ints, 1, {}};

  plimsoll::measure(policy, loads, vector_ref<plimsoll::balance_stats>());
  plimsoll::summarize(policy, vector_ref<plimsoll::balance_stats>());
  plimsoll::sum_steps(policy, steps, sums);
  plimsoll::rank_loads(policy, steps, placement, tensor_ref<double>());
  plimsoll::rank_loads(policy, loads, placement, matrix_ref<double>());

  plimsoll::load_window<Load, plimsoll::gpu_policy> window(policy, 1, 1);
  window.push(loads);
  window.sum(sums);
  plimsoll::load_decay<plimsoll::gpu_policy> decay(policy, 1, 1);
  decay.push(loads);
  decay.reset();
}

template <class Id, class Count>
[[maybe_unused]] void instantiate_counting(plimsoll::gpu_policy const& policy,
                                           matrix_ref<Id const> const& ids,
                                           tensor_ref<Id const> const& layers) {
  vector_ref<Count> row;
  matrix_ref<Count> rows;
  vector_ref<plimsoll::routing_counters> counters;
  plimsoll::count_tokens(policy, ids, {}, row, counters);
  plimsoll::count_tokens(policy, layers, {}, rows, counters);
  plimsoll::count_tokens_by_source(policy, ids, vector_ref<std::int32_t>(), {}, rows, counters);
  plimsoll::scatter_to_logical(policy, rows, matrix_ref<Id>(), matrix_ref<std::int64_t>(),
                               vector_ref<plimsoll::scatter_counters>());
}

template void instantiate(plimsoll::gpu_policy const&, matrix_ref<float const> const&,
                          tensor_ref<float const> const&);
template void instantiate_counting<std::int64_t, std::int64_t>(
    plimsoll::gpu_policy const&, matrix_ref<std::int64_t const> const&,
    tensor_ref<std::int64_t const> const&);

}  // namespace
