// SPDX-License-Identifier: Apache-2.0
/// @file
/// A placement with its sizes, where it comes from and how balanced it is.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/metrics.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/views.hpp>

namespace examples {

using plimsoll::index_t;

/// Loads `[layers, experts]` on the host.
template <class Load>
using loads_ref = plimsoll::matrix_ref<Load const>;

/// Which expert every slot of every layer holds. Ranks share the slots evenly: rank r begins at
/// floor(r * slots / ranks).
struct plan {
  index_t layers = 0;
  index_t experts = 0;
  index_t ranks = 0;
  index_t slots = 0;
  std::vector<std::int32_t> physical_to_logical = {};  ///< [layers, slots], slots ordered by rank
  std::vector<std::int32_t> replica_count = {};        ///< [layers, experts]

  plan(index_t layer_count, index_t expert_count, index_t rank_count, index_t slot_count)
      : layers(layer_count),
        experts(expert_count),
        ranks(rank_count),
        slots(slot_count),
        physical_to_logical(static_cast<std::size_t>(layers * slots)),
        replica_count(static_cast<std::size_t>(layers * experts)) {}

  [[nodiscard]] plimsoll::placement_ref placement() const {
    return {.physical_to_logical = {physical_to_logical.data(), layers, slots},
            .replica_count = {replica_count.data(), layers, experts},
            .ranks = ranks};
  }
};

/// What an engine does without a plan: slot i holds expert i mod experts.
[[nodiscard]] inline plan trivial_plan(index_t layers, index_t experts, index_t ranks,
                                       index_t slots) {
  plan result(layers, experts, ranks, slots);
  for (index_t layer = 0; layer < layers; ++layer) {
    for (index_t slot = 0; slot < slots; ++slot) {
      index_t const expert = slot % experts;
      result.physical_to_logical[static_cast<std::size_t>(layer * slots + slot)] =
          static_cast<std::int32_t>(expert);
      ++result.replica_count[static_cast<std::size_t>(layer * experts + expert)];
    }
  }
  return result;
}

/// Plans with EPLB into `result`.
template <class Policy, class Load>
void plan_eplb(Policy const& policy, loads_ref<Load> loads, plan& result) {
  using matrix = plimsoll::matrix_ref<std::int32_t>;
  plimsoll::eplb(policy, loads, {.ranks = result.ranks},
                 matrix(result.physical_to_logical.data(), result.layers, result.slots),
                 matrix(result.replica_count.data(), result.layers, result.experts));
}

/// Measures a plan on loads, every replica taking an equal part of its expert's load.
template <class Load>
[[nodiscard]] plimsoll::balance_summary evaluate(loads_ref<Load> loads, plan const& p) {
  std::vector<double> rank_loads(static_cast<std::size_t>(p.layers * p.ranks));
  plimsoll::matrix_ref<double> const per_rank(rank_loads.data(), p.layers, p.ranks);
  plimsoll::rank_loads(plimsoll::seq, loads, p.placement(), per_rank);
  std::vector<plimsoll::balance> rows(static_cast<std::size_t>(p.layers));
  plimsoll::measure(plimsoll::seq, per_rank, rows);
  return plimsoll::summarize(plimsoll::seq, rows);
}

/// Plans on the first GPU; returns the milliseconds of one call. Defined in plan_gpu.cu, so only in
/// builds with CUDA. Throws `plimsoll::cuda_error`, also where there is no GPU.
double plan_on_gpu(loads_ref<std::int64_t> loads, plan& result);
double plan_on_gpu(loads_ref<double> loads, plan& result);

/// Calls `once` five times and gives the median of the milliseconds it returns, so that what only
/// the first call pays for (pages, caches, loading of kernels) is not called planning time.
template <class Once>
[[nodiscard]] double median_of_five(Once&& once) {
  double times[5];
  for (double& time : times) {
    time = once();
  }
  std::sort(std::begin(times), std::end(times));
  return times[2];
}

}  // namespace examples
