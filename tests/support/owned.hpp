// SPDX-License-Identifier: Apache-2.0
// Comparisons of the forms of a planning call: int32 and int64 outputs, and results that own their
// memory.
#pragma once

#include <plimsoll/array.hpp>
#include <plimsoll/types.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "policies.hpp"

namespace plimsoll_test {

/// Converts to int64, the type of index tensors.
inline std::vector<std::int64_t> as_int64(std::vector<std::int32_t> const& values) {
  return {values.begin(), values.end()};
}

/// Converts to int32, so that outputs of both types compare.
template <class Id>
std::vector<std::int32_t> as_int32(std::vector<Id> const& values) {
  return {values.begin(), values.end()};
}

inline bool same(std::vector<plimsoll::certificate> const& a,
                 std::vector<plimsoll::certificate> const& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](plimsoll::certificate const& x, plimsoll::certificate const& y) {
                      return x.value == y.value && x.lower_bound == y.lower_bound &&
                             x.work == y.work && x.status == y.status;
                    });
}

}  // namespace plimsoll_test
