// SPDX-License-Identifier: Apache-2.0
// Steps of an engine that keeps its arrays in Thrust's vectors. Thrust routes tokens, decays loads
// and counts the token copies of each rank; Plimsoll counts loads, plans a placement and assigns
// every token copy to a slot. This code is independent of where it runs: thrust::device_vector is
// in the memory of Thrust's device system, OpenMP in main.cpp and CUDA in main_gpu.cu, and every
// call takes the policy.
#pragma once

#include <thrust/adjacent_difference.h>
#include <thrust/binary_search.h>
#include <thrust/device_vector.h>
#include <thrust/functional.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/discard_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/memory.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <thrust/tabulate.h>
#include <thrust/transform.h>

#include <cstdint>
#include <cstdio>
#include <plimsoll/execution/thrust.cuh>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/lplb.hpp>
#include <plimsoll/views.hpp>

namespace thrust_pipeline_example {

using plimsoll::index_t;

constexpr index_t steps = 16, layers = 2, tokens = 2048, top_k = 2;
constexpr index_t experts = 16, ranks = 4, slots = 20;

template <class T>
using array = thrust::device_vector<T>;

/// Returns a row-major view of the elements from `first` on.
template <class T, class... Extents>
auto view(array<T>& values, index_t first, Extents... extents) {
  return plimsoll::array_ref(thrust::raw_pointer_cast(values.data()) + first, extents...);
}

/// Synthetic router: returns the expert of copy i of a step, `[layers, tokens, top_k]`. A few
/// experts are popular; they differ between layers and change slowly.
struct router {
  index_t step;

  PLIMSOLL_HD std::int32_t operator()(index_t i) const {
    auto const draw = [this](index_t pair) {
      return plimsoll::random::uniform(0, static_cast<std::uint64_t>(step),
                                       static_cast<std::uint64_t>(pair));
    };
    double const u = draw(i - i % top_k);
    index_t const layer = i / (tokens * top_k);
    index_t const first = static_cast<index_t>(experts * u * u * u) + 5 * layer + step / 8;
    index_t const other = static_cast<index_t>((experts - 1) * draw(i));
    return static_cast<std::int32_t>((i % top_k == 0 ? first : first + 1 + other) % experts);
  }
};

/// Exponential decay: every step counts half as much as the next one.
struct fade {
  PLIMSOLL_HD double operator()(double weighted, std::int32_t load) const {
    return weighted / 2 + load;
  }
};

/// Returns layer and rank, as one number, of copy i of a step in slot `slot`.
struct rank_of_copy {
  PLIMSOLL_HD std::int32_t operator()(index_t i, std::int32_t slot) const {
    return static_cast<std::int32_t>(i / (tokens * top_k) * ranks + slot / (slots / ranks));
  }
};
/// Returns layer and rank, as one number, of expert i of `[layers, experts]` without replicas.
struct home_of_expert {
  PLIMSOLL_HD index_t operator()(index_t i) const { return i / (experts / ranks); }
};

/// Plans from `steps` steps, runs one more, and prints its balance. `policy` is one of Thrust's;
/// `prepared_policy`, which runs in the same place and order, is for objects that outlive a call.
/// Returns true if the peaks of the ranks are those that Plimsoll reported.
template <class Policy, class PreparedPolicy>
bool run(Policy const& policy, PreparedPolicy const& prepared_policy) {
  constexpr index_t copies_of_layer = tokens * top_k;
  array<std::int32_t> ids(layers * copies_of_layer), chosen(ids.size()), rank_of(ids.size());
  array<std::int32_t> loads(layers * experts), replicas(layers * experts);
  array<double> weighted(layers * experts);
  array<std::int32_t> map(layers * slots);
  array<std::int32_t> before(layers * ranks), after(layers * ranks);
  array<plimsoll::routing_counters> routed(layers);
  array<plimsoll::dispatch_counters> dispatched(layers);
  thrust::counting_iterator<index_t> const from_zero(0);

  auto const route = [&](index_t step) {
    thrust::tabulate(policy, ids.begin(), ids.end(), router{step});
    plimsoll::count_tokens(policy, view(ids, 0, layers, tokens, top_k), {},
                           view(loads, 0, layers, experts), view(routed, 0, layers));
  };
  for (index_t step = 0; step < steps; ++step) {
    route(step);
    thrust::transform(policy, weighted.begin(), weighted.end(), loads.begin(), weighted.begin(),
                      fade{});
  }

  // Rarely: plan a placement from the loads of the last steps.
  plimsoll::eplb(policy, view(weighted, 0, layers, experts), {.on = {.ranks = ranks}},
                 view(map, 0, layers, slots), view(replicas, 0, layers, experts));
  plimsoll::lplb split(prepared_policy,
                       plimsoll::placement_ref{view(map, 0, layers, slots),
                                               view(replicas, 0, layers, experts), ranks},
                       {.max_token_copies = copies_of_layer});

  // Every step: choose the replica of every token copy. No call waits for the device.
  route(steps);
  split.plan(view(loads, 0, layers, experts));
  for (index_t layer = 0; layer < layers; ++layer) {
    index_t const first = layer * copies_of_layer;
    split.dispatch(layer, view(ids, first, tokens, top_k), view(chosen, first, tokens, top_k),
                   view(dispatched, layer, 1));
  }

  // Count the copies of every rank: sort them by rank, then find where each rank ends.
  thrust::transform(policy, from_zero, from_zero + layers * copies_of_layer, chosen.begin(),
                    rank_of.begin(), rank_of_copy{});
  thrust::sort(policy, rank_of.begin(), rank_of.end());
  thrust::upper_bound(policy, rank_of.begin(), rank_of.end(), from_zero, from_zero + layers * ranks,
                      after.begin());
  thrust::adjacent_difference(policy, after.begin(), after.end(), after.begin());
  // Count them without replicas, too, with each expert on its home rank.
  auto const homes = thrust::make_transform_iterator(from_zero, home_of_expert{});
  thrust::reduce_by_key(policy, homes, homes + layers * experts, loads.begin(),
                        thrust::make_discard_iterator(), before.begin());

  split.check();
  auto const promised = plimsoll::read(prepared_policy, split.reports());
  bool kept = true;
  for (index_t layer = 0; layer < layers; ++layer) {
    auto const peak_of = [&](array<std::int32_t> const& loads_of_ranks) {
      auto const first = loads_of_ranks.begin() + layer * ranks;
      return thrust::reduce(policy, first, first + ranks, 0, thrust::maximum<std::int32_t>{});
    };
    double const mean = static_cast<double>(copies_of_layer) / ranks;
    std::int32_t const worst = peak_of(before), peak = peak_of(after);
    std::printf(
        "layer %d: mean of %d ranks %.0f copies, peak %d without replicas, %d with; "
        "balancedness %.3f, %.3f\n",
        static_cast<int>(layer), static_cast<int>(ranks), mean, worst, peak, mean / worst,
        mean / peak);
    kept = kept && peak == promised[static_cast<std::size_t>(layer)].peak;
  }
  std::printf("%s\n", kept ? "peaks are as promised" : "a peak is not as promised");
  return kept;
}

}  // namespace thrust_pipeline_example
