// SPDX-License-Identifier: Apache-2.0
/// @file
/// Body of `place`: the heaviest replica goes to the least loaded rank with a free slot.
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

/// Where each rank's slots begin. Without offsets they are spread evenly: rank r begins at
/// floor(r * slots / ranks).
struct slot_ranges {
  matrix_ref<std::int32_t const> offsets;  ///< `[layers, ranks + 1]` or empty
  index_t slots;
  index_t ranks;

  PLIMSOLL_HD index_t begin(index_t layer, index_t rank) const {
    return offsets.data == nullptr ? rank * slots / ranks : offsets(layer, rank);
  }
  PLIMSOLL_HD index_t end(index_t layer, index_t rank) const { return begin(layer, rank + 1); }
};

/// Problem = layer.
template <class Loads>
struct placement_body {
  using device_team = warp;

  Loads loads;
  matrix_ref<std::int32_t const> replica_count;
  slot_ranges ranges;
  matrix_ref<std::int32_t> physical_to_logical;
  problem_report* reports;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    index_t const experts = loads.extent(1);
    return scratch_bytes_of<std::uint64_t>(experts) +
           scratch_bytes_of<std::uint64_t>(ranges.ranks) +
           2 * scratch_bytes_of<std::int32_t>(ranges.ranks);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    index_t const experts = loads.extent(1);
    problem_report* const report = reports + layer;
    load_scale const scale =
        scale_loads(team, experts, [this, layer](index_t e) { return loads(layer, e); });
    index_t const copies =
        team.sum(experts, [this, layer](index_t e) { return index_t{replica_count(layer, e)}; });
    problem_report const refusal = refuse(team, scale, layer, copies);
    if (refusal.what != fault::none) {
      team.single([=] { *report = refusal; });
      return;
    }

    auto* const keys = memory.take<std::uint64_t>(experts);
    auto* const rank_keys = memory.take<std::uint64_t>(ranges.ranks);
    auto* const next = memory.take<std::int32_t>(ranges.ranks);  // free slot of each rank
    auto* const end = memory.take<std::int32_t>(ranges.ranks);
    team.for_each(experts, [=, this](index_t e) {
      keys[e] = heavier_first(divide_floor(to_fixed(loads(layer, e), scale.shift),
                                           static_cast<std::uint32_t>(replica_count(layer, e))),
                              e);
    });
    index_t const open = team.exclusive_scan(
        ranges.ranks,
        [this, layer](index_t r) {
          return static_cast<std::int32_t>(ranges.end(layer, r) > ranges.begin(layer, r));
        },
        end);
    team.for_each(ranges.ranks, [=, this](index_t r) {
      std::int32_t const position = end[r];
      next[r] = static_cast<std::int32_t>(ranges.begin(layer, r));
      end[r] = static_cast<std::int32_t>(ranges.end(layer, r));
      if (end[r] > next[r]) {
        rank_keys[position] = lighter_first(0, r);
      }
    });

    fixed_load peak = 0;
    fixed_load bound = 0;
    if (copies == ranges.slots && open == ranges.slots) {
      peak = bound = place_one_each(team, keys, next, scale.shift, layer);
    } else {
      team.sort(keys, experts);
      auto lightest = team.queue(rank_keys, open);
      fixed_load total = 0;
      index_t placed = 0;
      for (index_t i = 0; i < experts; ++i) {
        index_t const e = id_of(keys[i]);
        fixed_load const weight = heavy_load_of(keys[i]);
        for (std::int32_t left = replica_count(layer, e); left > 0; --left, ++placed) {
          std::uint64_t const rank = lightest.top();
          index_t const r = id_of(rank);
          fixed_load const load = light_load_of(rank) + weight;
          std::int32_t const slot = next[r];
          team.single([=, this] {
            physical_to_logical(layer, slot) = static_cast<std::int32_t>(e);
            next[r] = slot + 1;
          });
          if (slot + 1 == end[r]) {
            lightest.pop();
          } else {
            lightest.replace_top(lighter_first(load, r));
          }
          peak = maximum{}(peak, load);
          total += weight;
          // Two of the `open + 1` heaviest replicas must share a rank. (Where there are fewer, one
          // weight remains here, and the heaviest bounds better.)
          bound += placed == open - 1 || placed == open ? weight : 0;
        }
      }
      bound = maximum{}(bound, heavy_load_of(keys[0]));
      auto const ranks = static_cast<fixed_load>(open);
      bound = maximum{}(bound, (total + ranks - 1) / ranks);
      team.for_each(ranges.ranks, [=, this](index_t r) {
        for (index_t slot = next[r]; slot < end[r]; ++slot) {
          physical_to_logical(layer, slot) = -1;
        }
      });
    }
    team.single([=] {
      *report = problem_report{
          certificate{from_fixed(peak, scale.shift), from_fixed(bound, scale.shift), copies,
                      peak == bound ? certificate_status::optimal : certificate_status::feasible}};
    });
  }

 private:
  /// With one replica per rank there is nothing to balance. As in EPLB the replicas keep the order
  /// of their making: first copies by id, then further ones as `replicate` hands them out.
  /// Returns the heaviest replica.
  template <class Team>
  PLIMSOLL_HD fixed_load place_one_each(Team& team, std::uint64_t* keys, std::int32_t* made,
                                        int shift, index_t layer) const {
    index_t const experts = loads.extent(1);
    fixed_load const peak = team.max(experts, [=](index_t e) { return heavy_load_of(keys[e]); });
    team.for_each(experts, [=, this](index_t e) {
      physical_to_logical(layer, e) = static_cast<std::int32_t>(e);
      keys[e] = heavier_first(to_fixed(loads(layer, e), shift), e);
      made[e] = 1;
    });
    auto heaviest = team.queue(keys, experts);
    for (index_t slot = experts; slot < ranges.slots;) {
      index_t const e = id_of(heaviest.top());
      if (made[e] == replica_count(layer, e)) {
        heaviest.pop();
        continue;
      }
      std::int32_t const copies = made[e] + 1;
      team.single([=, this] {
        physical_to_logical(layer, slot) = static_cast<std::int32_t>(e);
        made[e] = copies;
      });
      heaviest.replace_top(heavier_first(
          divide_floor(to_fixed(loads(layer, e), shift), static_cast<std::uint32_t>(copies)), e));
      ++slot;
    }
    return peak;
  }

  PLIMSOLL_HD bool has_copies(index_t layer, index_t expert) const {
    return replica_count(layer, expert) >= 1 && replica_count(layer, expert) <= rank_limit;
  }

  template <class Team>
  PLIMSOLL_HD problem_report refuse(Team& team, load_scale const& scale, index_t layer,
                                    index_t copies) const {
    if (scale.what != fault::none) {
      return problem_report{certificate{}, scale.what, scale.where, scale.got};
    }
    index_t const experts = loads.extent(1);
    index_t const unusable =
        team.min(experts, [=, this](index_t e) { return has_copies(layer, e) ? experts : e; });
    if (unusable < experts) {
      return problem_report{certificate{}, fault::copies, unusable,
                            static_cast<double>(replica_count(layer, unusable))};
    }
    if (copies > ranges.slots) {
      return problem_report{certificate{}, fault::copies_total, -1, static_cast<double>(copies)};
    }
    index_t const ranks = ranges.ranks;
    index_t const falling = team.min(ranks, [=, this](index_t r) {
      bool const first = r > 0 || ranges.begin(layer, 0) == 0;
      bool const last = r < ranks - 1 || ranges.end(layer, r) == ranges.slots;
      return first && last && ranges.begin(layer, r) <= ranges.end(layer, r) ? ranks : r;
    });
    if (falling < ranks) {
      return problem_report{certificate{}, fault::rank_offsets, falling,
                            static_cast<double>(ranges.end(layer, falling))};
    }
    return problem_report{};
  }
};

}  // namespace plimsoll::inline PLIMSOLL_ABI::detail
