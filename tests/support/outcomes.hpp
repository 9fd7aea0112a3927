// SPDX-License-Identifier: Apache-2.0
// Comparisons of what planning calls return.
#pragma once

#include <plimsoll/types.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace plimsoll_test {

/// Returns ids as int32, so that outputs of int32 and int64 compare.
template <class Id>
std::vector<std::int32_t> as_int32(std::vector<Id> const& ids) {
  return {ids.begin(), ids.end()};
}

/// True if all members of all certificates are equal.
inline bool same_certificates(std::vector<plimsoll::certificate> const& a,
                              std::vector<plimsoll::certificate> const& b) {
  auto const equal = [](plimsoll::certificate const& x, plimsoll::certificate const& y) {
    return x.value == y.value && x.lower_bound == y.lower_bound && x.work == y.work &&
           x.status == y.status;
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
}

}  // namespace plimsoll_test
