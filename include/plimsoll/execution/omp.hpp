// SPDX-License-Identifier: Apache-2.0
/// @file
/// Opt-in: the `plimsoll::omp` policy. Needs OpenMP switched on in the compiler.
#pragma once

#if !defined(_OPENMP)
#error \
    "Plimsoll: <plimsoll/execution/omp.hpp> needs OpenMP; compile with -fopenmp or link OpenMP::OpenMP_CXX"
#endif

#include <omp.h>

#include <plimsoll/execution.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Runs blocks on OpenMP threads; no process-wide OpenMP state is changed.
struct omp_executor {
  int threads = 0;  ///< 0: OpenMP's own choice

  template <class F>
  void for_blocks(index_t n, F&& f) const {
    int const workers = threads > 0 ? threads : omp_get_max_threads();
    // Several blocks a thread, so that one slow block does not hold the others up.
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

  /// At most `count` threads.
  [[nodiscard]] omp_policy operator()(int count) const { return {count, memory}; }
  /// Temporaries from `resource`, which must be safe to call from several threads.
  template <host_resource R>
  [[nodiscard]] omp_policy operator()(R& resource) const {
    return {threads, resource_ref(resource)};
  }
};
/// Runs on OpenMP threads: `omp`, `omp(threads)`, `omp(resource)`.
inline constexpr omp_policy omp{};

template <>
struct policy_traits<omp_policy> {
  static host_context<omp_executor> resolve(omp_policy const& policy) {
    return {omp_executor{policy.threads}, policy.memory};
  }
};

}}  // namespace plimsoll
