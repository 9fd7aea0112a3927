// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts arrays in memory to files of loads, and back.
#pragma once

#include <cstddef>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <plimsoll/latency.hpp>

#include "../evaluation.hpp"
#include "../loads.hpp"
#include "../npy.hpp"

namespace loads_tests {

using examples::index_t;

template <class Load>
[[nodiscard]] examples::load_file file_of(std::string const& name,
                                          examples::npy::array<Load> const& loads) {
  std::ostringstream bytes;
  examples::npy::write<Load>(bytes, loads.shape, loads.values);
  return examples::load_file::of_bytes(bytes.str(), name);
}

/// Reads all loads of a file: `[steps, layers, experts]`.
[[nodiscard]] inline examples::npy::any_array array_of(examples::load_file const& file) {
  return file.with_type([&]<class Load>(Load) -> examples::npy::any_array {
    examples::npy::array<Load> result{{file.steps(), file.layers(), file.experts()}, {}};
    result.values.resize(static_cast<std::size_t>(file.steps() * file.layers() * file.experts()));
    file.read(0, file.steps(), result.values.data());
    return result;
  });
}

/// Calls `examples::compare` without the checks of loads, which test data need not pass.
template <class Load>
[[nodiscard]] examples::comparison compare(
    std::string const& name, examples::npy::array<Load> const& loads, examples::plan const& before,
    examples::plan const& after, std::optional<plimsoll::latency_curves> const& curves = {},
    examples::token_sources const& sources = {}) {
  index_t const steps = loads.shape[0];
  index_t const layers = loads.shape[1];
  index_t const experts = loads.shape[2];
  examples::npy::array<Load> sums{{layers, experts}, {}};
  sums.values.resize(static_cast<std::size_t>(layers * experts));
  examples::load_totals totals{{}, std::vector<index_t>(static_cast<std::size_t>(layers)), 0};
  for (index_t step = 0; step < steps; ++step) {
    bool empty = true;
    for (index_t layer = 0; layer < layers; ++layer) {
      bool has_load = false;
      for (index_t expert = 0; expert < experts; ++expert) {
        Load const load =
            loads.values[static_cast<std::size_t>((step * layers + layer) * experts + expert)];
        sums.values[static_cast<std::size_t>(layer * experts + expert)] += load;
        has_load = has_load || load != 0;
      }
      totals.filled[static_cast<std::size_t>(layer)] += has_load ? 1 : 0;
      empty = empty && !has_load;
    }
    totals.empty_steps += empty ? 1 : 0;
  }
  totals.loads = std::move(sums);
  return examples::compare(file_of(name, loads), totals, before, after, curves, {}, sources);
}

}  // namespace loads_tests
