// SPDX-License-Identifier: Apache-2.0
// Replaces the router of an engine and the all-reduce of its ranks, and checks the results.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <plimsoll/array.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/systems/waterfill.hpp>
#include <plimsoll/views.hpp>
#include <vector>

namespace one_step {

using plimsoll::index_t;

constexpr index_t ranks = 4, rank_tokens = 128, tokens = ranks * rank_tokens, top_k = 4;
constexpr index_t experts = 32, slots = 40;
constexpr int steps = 4;

/// `[tokens, experts]`: logits that favor a few experts, others in every step.
inline std::vector<float> router_output(int step) {
  std::vector<float> logits;
  for (index_t i = 0; i < tokens * experts; ++i) {
    double const noise = plimsoll::random::uniform(0, static_cast<std::uint64_t>(step),
                                                   static_cast<std::uint64_t>(i));
    double const popularity = 1.0 / static_cast<double>(1 + (i + 3 * step) % experts);
    logits.push_back(static_cast<float>(4 * noise + 3 * popularity));
  }
  return logits;
}

/// `[1, experts]`: loads like those of the first steps. In an engine, recorded ones.
template <class Policy>
auto recorded_loads(Policy const& policy) {
  std::vector<std::int32_t> loads;
  for (index_t expert = 0; expert < experts; ++expert) {
    loads.push_back(static_cast<std::int32_t>(50 + 350 / (1 + expert)));
  }
  return plimsoll::array(policy, loads, 1, experts);
}

/// The only row of a matrix.
template <class Policy>
auto row_of(plimsoll::array<std::int32_t, Policy, 2>& all) {
  return plimsoll::vector_ref<std::int32_t>(all.data_handle(), all.extent(1));
}
/// The rows of a rank's tokens.
template <class Policy>
auto rows(plimsoll::array<std::int32_t, Policy, 2>& all, index_t rank) {
  index_t const width = all.extent(1);
  return plimsoll::matrix_ref<std::int32_t>(all.data_handle() + rank * rank_tokens * width,
                                            rank_tokens, width);
}

/// Adds up the loads of all ranks' objects, in place in each.
template <class Policy>
void all_reduce(Policy const& policy, plimsoll::array<std::int64_t, Policy, 3>& gathered,
                std::vector<plimsoll::waterfill<Policy>>& shared) {
  std::int64_t* row = gathered.data_handle();
  for (auto& one : shared) {
    plimsoll::array_ref<std::int64_t const, 3> const own(one.loads().data, 1, 2, ranks);
    plimsoll::sum_steps(policy, own, plimsoll::matrix_ref<std::int64_t>(row, 2, ranks));
    row += 2 * ranks;
  }
  for (auto& one : shared) {
    plimsoll::sum_steps(policy, gathered, one.loads());
  }
}

/// Prints how even a step became; returns whether every kept copy reached a slot of its expert, and
/// no other did.
template <class Policy>
bool is_right(int step, plimsoll::placement<Policy> const& placement,
              plimsoll::array<std::int32_t, Policy, 2> const& kept,
              plimsoll::array<std::int32_t, Policy, 2> const& chosen,
              plimsoll::array<std::int32_t, Policy, 2> const& filled) {
  auto const map = placement.physical_to_logical.to_host();
  auto const expert = kept.to_host();
  auto const slot = chosen.to_host();
  auto const row = filled.to_host();
  std::vector<index_t> alone(ranks), split(ranks), with_shared(ranks);
  index_t copies = 0;
  bool right = true;
  for (std::size_t i = 0; i < expert.size(); ++i) {
    if (expert[i] < 0) {
      right = right && slot[i] < 0;
      continue;
    }
    right = right && slot[i] >= 0 && map[static_cast<std::size_t>(slot[i])] == expert[i];
    ++alone[static_cast<std::size_t>(expert[i] / (experts / ranks))];
    ++split[static_cast<std::size_t>(std::max(slot[i], 0) / (slots / ranks))];
    ++copies;
  }
  for (std::int32_t const id : row) {  // every rank has one more slot, for the shared expert
    if (id >= 0) {
      ++with_shared[static_cast<std::size_t>(id / (slots / ranks + 1))];
    }
  }
  auto const uneven = [](std::vector<index_t> const& loads) {
    double const sum = static_cast<double>(std::accumulate(loads.begin(), loads.end(), index_t{0}));
    return static_cast<double>(*std::max_element(loads.begin(), loads.end())) * ranks / sum;
  };
  std::printf(
      "step %d: %d copies, %d dropped; peak / mean %.3f without replicas, %.3f split, %.3f with "
      "shared%s\n",
      step, static_cast<int>(tokens * top_k), static_cast<int>(tokens * top_k - copies),
      uneven(alone), uneven(split), uneven(with_shared), right ? "" : "; a slot is wrong");
  return right;
}

/// Prints what the ring holds; returns whether that is every copy that was routed, dropped or not.
template <class Policy>
bool has_all_steps(Policy const& policy, plimsoll::load_window<std::int32_t, Policy>& ring) {
  auto sum = plimsoll::zeros<std::int64_t>(policy, 1, experts);
  ring.sum(sum);
  auto const loads = sum.to_host();
  auto const copies = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  std::printf("the ring has %d steps with %d token copies\n", static_cast<int>(ring.size()),
              static_cast<int>(copies));
  return copies == std::int64_t{steps} * tokens * top_k;
}

}  // namespace one_step
