// SPDX-License-Identifier: Apache-2.0
/// @file
/// The `plimsoll::omp` policy (opt-in header). The compiler must have OpenMP enabled.
#pragma once

#if !defined(_OPENMP)
#error \
    "Plimsoll: <plimsoll/execution/omp.hpp> needs OpenMP; compile with -fopenmp or link OpenMP::OpenMP_CXX"
#endif

#include <omp.h>

#include <plimsoll/execution.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Executor that runs blocks on OpenMP threads. It changes no process-wide OpenMP state.
struct omp_executor {
  int threads = 0;  ///< number of threads; 0: OpenMP's default

  template <class F>
  void for_blocks(index_t n, F&& f) const {
    int const workers = threads > 0 ? threads : omp_get_max_threads();
    // Several blocks per thread, so that one slow block does not delay the whole loop.
    index_t const wanted = index_t{4} * workers;
    index_t const blocks = n < wanted ? n : wanted;
#pragma omp parallel for schedule(dynamic) num_threads(workers)
    for (index_t block = 0; block < blocks; ++block) {
      f(n * block / blocks, n * (block + 1) / blocks);
    }
  }
};

/// Type of `plimsoll::omp`.
struct omp_policy {
  int threads = 0;
  resource_ref memory = {};

  /// Returns the policy with at most `count` threads.
  [[nodiscard]] omp_policy operator()(int count) const { return {count, memory}; }
  /// Returns the policy with temporaries from `resource`, which must be thread-safe.
  template <host_resource R>
  [[nodiscard]] omp_policy operator()(R& resource) const {
    return {threads, resource_ref(resource)};
  }
};
/// Policy that runs on OpenMP threads: `omp`, `omp(threads)`, `omp(resource)`.
inline constexpr omp_policy omp{};

template <>
struct policy_traits<omp_policy> {
  static host_context<omp_executor> resolve(omp_policy const& policy) {
    return {omp_executor{policy.threads}, policy.memory};
  }
};

}}  // namespace plimsoll
