// SPDX-License-Identifier: Apache-2.0
// Strided views with guard values between their elements.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/types.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

namespace plimsoll_test {

/// Guard value, written to outputs before a call, and between their elements.
inline constexpr std::int32_t gap_value = -99;

/// Returns the row stride of a matrix of `columns` columns whose elements are `step` apart.
constexpr plimsoll::index_t spread_row(plimsoll::index_t columns, plimsoll::index_t step) {
  return columns * step + step - 1;
}

/// Returns the memory of a strided view with these rows, with guard values between the elements.
template <class T>
std::vector<T> spread_out(std::vector<T> const& values, plimsoll::index_t columns,
                          plimsoll::index_t step) {
  using plimsoll::index_t;
  index_t const row = spread_row(columns, step);
  index_t const rows = columns == 0 ? 0 : std::ssize(values) / columns;
  std::vector<T> result(static_cast<std::size_t>(rows * row), static_cast<T>(gap_value));
  for (index_t i = 0; i < std::ssize(values); ++i) {
    result[static_cast<std::size_t>(i / columns * row + i % columns * step)] =
        values[static_cast<std::size_t>(i)];
  }
  return result;
}

/// Returns the rows of a strided view, and checks that the guard values are unchanged.
template <class T>
std::vector<T> gathered(std::vector<T> const& spread, plimsoll::index_t columns,
                        plimsoll::index_t step) {
  using plimsoll::index_t;
  index_t const row = spread_row(columns, step);
  index_t const rows = columns == 0 ? 0 : std::ssize(spread) / row;
  std::vector<T> result(static_cast<std::size_t>(rows * columns));
  for (index_t i = 0; i < std::ssize(result); ++i) {
    result[static_cast<std::size_t>(i)] =
        spread[static_cast<std::size_t>(i / columns * row + i % columns * step)];
  }
  REQUIRE(spread_out(result, columns, step) == spread);
  return result;
}

/// Returns a strided view of an array from `spread_out`.
template <class Array>
auto spread_matrix(Array& array, plimsoll::index_t rows, plimsoll::index_t columns,
                   plimsoll::index_t step) {
  auto view = array.view2(rows, columns);
  view.strides[0] = spread_row(columns, step);
  view.strides[1] = step;
  return view;
}
/// Returns a strided view of an array from `spread_out`; the empty view if there are no elements.
template <class Array>
auto spread_vector(Array& array, plimsoll::index_t n, plimsoll::index_t step) {
  auto view = array.view1();
  view.extents[0] = n;
  view.strides[0] = spread_row(1, step);
  if (n == 0) {
    view.data = nullptr;
  }
  return view;
}

}  // namespace plimsoll_test
