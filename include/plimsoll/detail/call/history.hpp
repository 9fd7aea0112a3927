// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parts of a history of steps, and means with their standard errors: what calls share that plan on
/// one part of a history and judge on the other.
#pragma once

#include <cstddef>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// The loads of a history from one step on.
template <class Loads>
struct loads_from_step {
  Loads loads;
  index_t first;

  PLIMSOLL_HD auto operator()(index_t step, index_t layer, index_t expert) const {
    return loads(first + step, layer, expert);
  }
};

/// Returns the loads of `count` steps of a history.
template <class T>
tensor_ref<T> part_of(tensor_ref<T> const& loads, index_t first, index_t count) {
  tensor_ref<T> result = loads;
  result.data += first * loads.stride(0);
  result.extents[0] = count;
  return result;
}
template <class F>
auto part_of(generated<F, 3> const& loads, index_t first, index_t count) {
  return generate(loads_from_step<generated<F, 3>>{loads, first}, count, loads.extent(1),
                  loads.extent(2));
}

/// Mean of a[i] - b[i], and its standard error; b may be empty.
struct mean_difference {
  double mean = 0;
  double standard_error = 0;

  template <class List>
  mean_difference(List const& a, List const& b) {
    auto const count = static_cast<double>(a.size());
    auto const difference = [&](std::size_t i) { return b.empty() ? a[i] : add(a[i], -b[i]); };
    if (a.empty()) {
      return;
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
      mean = add(mean, difference(i));
    }
    mean = divide(mean, count);
    double squares = 0;
    for (std::size_t i = 0; i < a.size() && a.size() > 1; ++i) {
      double const off = add(difference(i), -mean);
      squares = mul_then_add(off, off, squares);
    }
    standard_error = a.size() > 1 ? square_root(divide(squares, multiply(count, count - 1))) : 0.0;
  }
};

}}}  // namespace plimsoll::detail
