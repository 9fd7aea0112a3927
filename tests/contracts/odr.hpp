// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/plimsoll.hpp>

#include <cstdint>
#include <vector>

namespace odr {

/// Computes a small plan in the translation unit that calls it.
template <class Policy>
std::vector<std::int32_t> plan_here(Policy const& policy) {
  constexpr std::int64_t layers = 3, experts = 10, slots = 16, ranks = 4;
  std::vector<std::int32_t> loads(layers * experts);
  for (std::size_t i = 0; i < loads.size(); ++i) {
    loads[i] = static_cast<std::int32_t>((i * 7919) % 101);
  }
  std::vector<std::int32_t> placement(layers * slots), copies(layers * experts);
  plimsoll::eplb(policy, plimsoll::matrix_ref<std::int32_t const>(loads.data(), layers, experts),
                 plimsoll::eplb_options{.on = {.ranks = ranks}},
                 plimsoll::matrix_ref<std::int32_t>(placement.data(), layers, slots),
                 plimsoll::matrix_ref<std::int32_t>(copies.data(), layers, experts));
  placement.insert(placement.end(), copies.begin(), copies.end());
  return placement;
}

std::vector<std::int32_t> plan_in_other_file();
std::vector<std::int32_t> plan_in_nvcc_file();

}  // namespace odr
