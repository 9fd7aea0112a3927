// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads measured loads: how many tokens went to every expert of every layer.
///
/// | file | holds |
/// |---|---|
/// | `.npy` | an array `[layers, experts]` or `[steps, layers, experts]` of any number dtype |
/// | `.json` | an object whose key `logical_count` is such an array, as nested lists; other keys
/// are
///   ignored |
/// | `.csv` | without column names: a line per layer, a number per expert, an empty line between
///   steps |
/// | | with the column names `layer`, `expert`, `load` and perhaps `step`, in any order: a line per
///   load; loads without a line are 0, but every layer and step from 0 on has a line |
/// | `-` | the standard input, any of these, told apart by the first bytes |
///
/// Whatever the file, every load is a number from 0 to below 2^47, and so is the sum of a layer's
/// loads over all steps; a file that breaks this, or any other rule, is a `file_error`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

#include "input_file.hpp"
#include "npy.hpp"

namespace examples {

using plimsoll::index_t;

/// Reads the loads `[steps, layers, experts]` in `file`: as `std::int64_t` where all are whole
/// numbers, else as `double`. A file of two dimensions is one step.
[[nodiscard]] npy::any_array read_loads(std::string const& file,
                                        reading_progress const& progress = {});

/// The same for the bytes of a file, whose name says what they are.
[[nodiscard]] npy::any_array parse_loads(std::string_view bytes, std::string const& file);

/// The layers from `first` up to, not including, `last` of every step; `Load` is `std::int64_t` or
/// `double`. Throws `std::out_of_range` unless 0 <= first < last <= layers.
template <class Load>
[[nodiscard]] npy::array<Load> select_layers(npy::array<Load> const& loads, index_t first,
                                             index_t last);

template <class Load>
[[nodiscard]] plimsoll::tensor_ref<Load const> view_of(npy::array<Load> const& loads) {
  return {loads.values.data(), loads.shape[0], loads.shape[1], loads.shape[2]};
}

/// The sums over the steps, `[layers, experts]`; `Load` is `std::int64_t` or `double`.
template <class Load>
[[nodiscard]] std::vector<Load> total_loads(npy::array<Load> const& loads);

}  // namespace examples
