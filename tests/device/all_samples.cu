// SPDX-License-Identifier: Apache-2.0
// The samples of all public headers for a device policy, as in all_headers.cu: never called, the
// test is that they compile. Loads of planners have one type here; their tests use more, for one
// architecture. A cuda::stream_ref resolves to the same context, and so to the same kernels: only
// the host's pass compiles its calls.
#include <every_header.hpp>

#include <cstdint>
#include <type_traits>

#include "support/sample_run.hpp"

static_assert(std::is_same_v<plimsoll::detail::context_of<cuda::stream_ref>,
                             plimsoll::detail::context_of<plimsoll::gpu_policy>>);

#undef PLIMSOLL_SAMPLE
#if defined(__CUDA_ARCH__)
#define PLIMSOLL_SAMPLE(name) template void sample_##name(sample_run<plimsoll::gpu_policy>&)
#else
#define PLIMSOLL_SAMPLE(name)                                     \
  template void sample_##name(sample_run<plimsoll::gpu_policy>&); \
  template void sample_##name(sample_run<cuda::stream_ref>&)
#endif
#include "samples/all.hpp"

/// A user's cost. It is not in the unnamed namespace, whose types kernels cannot use.
struct squared_cost {
  PLIMSOLL_HD double operator()(plimsoll::index_t, double tokens) const { return tokens * tokens; }
};

namespace {

using plimsoll::matrix_ref, plimsoll::tensor_ref, plimsoll::vector_ref;

/// Costs of users and of tables, which samples leave out.
[[maybe_unused]] void instantiate_costs(plimsoll::gpu_policy const& policy,
                                        tensor_ref<double const> const& steps,
                                        plimsoll::latency_curves const& curves) {
  matrix_ref<std::int32_t> ints;
  matrix_ref<double> reals;
  plimsoll::latency_table const table(policy, curves, 1);
  plimsoll::swap_search(policy, steps, table.cost(), {.on = {.ranks = 1}}, ints, reals);
  plimsoll::swap_search(policy, steps, squared_cost(), {.on = {.ranks = 1}}, ints);
  plimsoll::least_loaded priced(policy, {}, plimsoll::spill_price{squared_cost(), 1, 1});
  priced.plan(vector_ref<std::int32_t const>());
  matrix_ref<std::int64_t> const longs;
  plimsoll::count_replicas(policy, longs, longs);
}

}  // namespace
