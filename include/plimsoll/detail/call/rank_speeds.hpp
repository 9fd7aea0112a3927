// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads and normalizes rank liveness and speeds on the host.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Checked speeds of ranks on the host.
struct rank_speeds {
  host_list<double> speed;  ///< `[ranks]`, as given; 0 for dead ranks
  double fastest = 1;
  bool equal_speeds = true;  ///< all live ranks have the same speed

  /// Returns the speeds in integer units; `stored` is where the policy keeps the elements of
  /// `speed`.
  [[nodiscard]] speed_units units(double const* stored) const {
    return {stored, equal_speeds ? 1.0 : __builtin_ldexp(1.0, 44 - __builtin_ilogb(fastest)),
            equal_speeds};
  }
  [[nodiscard]] index_t live() const {
    return std::count_if(speed.begin(), speed.end(),
                         [](double rank_speed) { return rank_speed > 0; });
  }
};

/// Returns what ranks get; null: they keep what they have.
inline rank_input input_of(rank_set const* on) {
  return on == nullptr ? rank_input{true, {}, {}} : rank_input{false, on->active, on->speeds};
}

/// Reads the liveness and the speeds of ranks and checks their values; the caller has checked the
/// shapes. The list is in memory of `lists`.
template <class Context>
rank_speeds read_speeds(std::string_view function, Context const& context, rank_set const& on,
                        resource_ref lists = {}) {
  auto const n = static_cast<std::size_t>(on.ranks);
  host_list<std::uint8_t> lives(n, 1, lists);
  rank_speeds result{.speed = host_list<double>(n, 1.0, lists)};
  host_list<double>& speed = result.speed;
  if (on.active.data != nullptr) {
    copy_to_host(context, on.active, lives.data());
  }
  if (on.speeds.data != nullptr) {
    copy_to_host(context, on.speeds, speed.data());
  }
  fault_names const names{{{"on.", "options.on."}}};
  auto const speed_fault = [&speed](fault_kind kind, std::size_t r, index_t also) {
    return fault_of(kind, static_cast<index_t>(r), speed[r], also);
  };
  for (std::size_t r = 0; r < n; ++r) {
    if (!(speed[r] >= topology::least_speed && speed[r] <= topology::greatest_speed)) {
      expect_no_fault(function, speed_fault(fault_kind::speed, r, -1), -1, names);
    }
    if (lives[r] == 0) {
      speed[r] = 0;
    }
  }
  double const fastest = result.fastest = *std::max_element(speed.begin(), speed.end());
  if (fastest == 0) {
    expect_no_fault(function, fault_of(fault_kind::no_rank), -1, names);
  }
  for (std::size_t r = 0; r < n; ++r) {
    if (speed[r] > 0 && speed[r] < fastest * topology::least_relative_speed) {
      auto const first = std::find(speed.begin(), speed.end(), fastest) - speed.begin();
      expect_no_fault(function, speed_fault(fault_kind::relative_speed, r, first), -1, names);
    }
    result.equal_speeds = result.equal_speeds && (speed[r] == 0 || speed[r] == fastest);
  }
  return result;
}

}}}  // namespace plimsoll::detail
