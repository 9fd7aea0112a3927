// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks that extents are valid, and that they multiply to the size of a range.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Returns the product of the extents, the number of elements of `bytes` bytes; throws if an extent
/// is negative or the elements do not fit in the address space.
template <std::size_t Rank>
constexpr index_t element_count(std::string_view function, index_t const (&extents)[Rank],
                                index_t bytes) {
  index_t size = bytes;
  bool fits = true;
  bool empty = false;
  for (index_t const extent : extents) {
    if (extent < 0) {
      fail(function, "extents", "at least 0 each", text(extent));
    }
    empty = empty || extent == 0;
    fits = fits && !__builtin_mul_overflow(size, extent, &size);
  }
  if (!fits && !empty) {
    fail(function, "extents", "fewer than 2^63 bytes in all", "more");
  }
  return empty ? 0 : size / bytes;
}

template <std::size_t Rank>
[[noreturn]] void fail_size(std::string_view function, index_t const (&extents)[Rank],
                            index_t count, index_t size) {
  std::string shape = text(extents[0]);
  for (std::size_t d = 1; d < Rank; ++d) {
    shape += text(" x ", extents[d]);
  }
  fail(function, "elements", text(count, " elements (", shape, ")"), text(size));
}

/// Returns `size`, the size of a range; throws unless the extents multiply to it.
template <std::size_t Rank>
constexpr index_t expect_size(std::string_view function, index_t const (&extents)[Rank],
                              index_t size) {
  index_t const count = element_count(function, extents, 1);
  if (count != size) {
    fail_size(function, extents, count, size);
  }
  return size;
}

}}}  // namespace plimsoll::detail
