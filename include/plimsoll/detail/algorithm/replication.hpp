// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `replicate`: the next copy goes to the expert with the largest load per copy.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/fixed_load.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll::inline PLIMSOLL_ABI::detail {

/// One number for every expert, or one each.
struct copy_limits {
  std::int32_t uniform;
  vector_ref<std::int32_t const> each;  ///< empty: uniform

  PLIMSOLL_HD std::int32_t operator()(index_t expert) const {
    return each.data == nullptr ? uniform : each[expert];
  }
};

/// Problem = layer.
template <class Loads>
struct replication_body {
  using device_team = warp;

  Loads loads;
  index_t slots;
  copy_limits least;
  copy_limits most;
  matrix_ref<std::int32_t> replica_count;
  problem_report* reports;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    index_t const experts = loads.extent(1);
    return scratch_bytes_of<fixed_load>(experts) + scratch_bytes_of<std::uint64_t>(experts) +
           scratch_bytes_of<std::int32_t>(experts);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    index_t const experts = loads.extent(1);
    problem_report* const report = reports + layer;
    load_scale const scale =
        scale_loads(team, experts, [this, layer](index_t e) { return loads(layer, e); });
    problem_report const refusal = refuse(team, scale);
    if (refusal.what != fault::none) {
      team.single([=] { *report = refusal; });
      return;
    }

    auto* const load = memory.take<fixed_load>(experts);
    auto* const keys = memory.take<std::uint64_t>(experts);
    auto* const copies = memory.take<std::int32_t>(experts);
    team.for_each(experts, [=, this](index_t e) {
      load[e] = to_fixed(loads(layer, e), scale.shift);
      copies[e] = least(e);
      keys[e] = heavier_first(share(load[e], copies[e]), e);
    });

    index_t const extra = slots - team.sum(experts, [=](index_t e) { return index_t{copies[e]}; });
    auto heaviest = team.queue(keys, experts);
    fixed_load peak = 0;  // of the experts that can have no more copies
    for (index_t given = 0; given < extra;) {
      std::uint64_t const key = heaviest.top();
      index_t const e = id_of(key);
      std::int32_t const more = copies[e] + 1;
      if (more > most(e)) {
        peak = maximum{}(peak, heavy_load_of(key));
        heaviest.pop();
        continue;
      }
      team.single([=] { copies[e] = more; });
      heaviest.replace_top(heavier_first(share(load[e], more), e));
      ++given;
    }
    if (!heaviest.empty()) {
      peak = maximum{}(peak, heavy_load_of(heaviest.top()));
    }

    team.for_each(experts, [=, this](index_t e) { replica_count(layer, e) = copies[e]; });
    team.single([=] {
      // No other counts do better: to relieve the heaviest expert, another would have to give up
      // a copy that it got for being at least as heavy.
      double const value = from_fixed(peak, scale.shift);
      *report = problem_report{certificate{value, value, extra, certificate_status::optimal}};
    });
  }

 private:
  PLIMSOLL_HD static fixed_load share(fixed_load load, std::int32_t copies) {
    return copies == 1 ? load : divide_floor(load, static_cast<std::uint32_t>(copies));
  }

  template <class Team>
  PLIMSOLL_HD problem_report refuse(Team& team, load_scale const& scale) const {
    if (scale.what != fault::none) {
      return problem_report{certificate{}, scale.what, scale.where, scale.got};
    }
    index_t const experts = loads.extent(1);
    index_t const low =
        team.min(experts, [=, this](index_t e) { return least(e) < 1 ? e : experts; });
    if (low < experts) {
      return problem_report{certificate{}, fault::floor, low, static_cast<double>(least(low))};
    }
    index_t const crossed =
        team.min(experts, [=, this](index_t e) { return most(e) < least(e) ? e : experts; });
    if (crossed < experts) {
      return problem_report{certificate{}, fault::cap_below_floor, crossed,
                            static_cast<double>(most(crossed))};
    }
    index_t const fewest = team.sum(experts, [this](index_t e) { return index_t{least(e)}; });
    index_t const greatest = team.sum(experts, [this](index_t e) { return index_t{most(e)}; });
    if (fewest > slots) {
      return problem_report{certificate{}, fault::floors, -1, static_cast<double>(fewest)};
    }
    if (greatest < slots) {
      return problem_report{certificate{}, fault::caps, -1, static_cast<double>(greatest)};
    }
    return problem_report{};
  }
};

}  // namespace plimsoll::inline PLIMSOLL_ABI::detail
