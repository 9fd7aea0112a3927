// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tiles of consecutive steps, one problem for each tile and layer.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// The steps [first, last) of a layer.
struct step_tile {
  index_t layer;
  index_t first;
  index_t last;
};

/// Steps of all layers in tiles of up to `Size` consecutive steps.
template <index_t Size>
struct step_tiles {
  index_t steps;
  index_t layers;

  [[nodiscard]] PLIMSOLL_HD index_t count() const { return (steps + Size - 1) / Size; }
  [[nodiscard]] PLIMSOLL_HD index_t problems() const { return count() * layers; }
  [[nodiscard]] PLIMSOLL_HD step_tile tile(index_t problem) const {
    index_t const first = problem / layers * Size;
    return {problem % layers, first, minimum{}(first + Size, steps)};
  }
};

}}}  // namespace plimsoll::detail
