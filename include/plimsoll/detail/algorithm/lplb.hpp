// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of `lplb::plan`: one team splits and rounds a layer, in one launch, and divides the
/// quotas among the sources.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/minmax_lp.hpp>
#include <plimsoll/detail/algorithm/quota.hpp>
#include <plimsoll/detail/common/slot_lists.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Counts of some layers, which the bodies find under the numbers of these layers.
template <class Counts>
struct counts_from_layer {
  Counts counts;
  index_t first_layer;

  PLIMSOLL_HD auto operator()(index_t layer, index_t expert) const {
    return counts(layer - first_layer, expert);
  }
};

/// Runs the body of `minmax_lp` and then that of `round_split` on the split that the first wrote.
/// Problem = layer, counted from the first one.
template <class Loads>
struct lplb_plan_body {
  // A step plans few layers, so that a block for each finds room. It takes a quarter fewer
  // instructions in sequence than a warp, whose lanes go over the experts eight times.
  using device_team = block<128>;

  minmax_lp_body<Loads> split;
  quota_body<Loads> round;
  index_t first_layer;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return maximum{}(split.scratch_bytes(), round.scratch_bytes());
  }
  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    split(team, memory, first_layer + problem);
    round(team, memory, first_layer + problem);
  }
};

/// Adds up the counts of all ranks, runs `lplb_plan_body` on the sums, and divides the quotas as
/// `divide_quotas` does, of which it writes the row of one source. Problem = layer, counted from
/// the first one.
template <class Counts>
struct lplb_own_plan_body {
  using device_team = typename lplb_plan_body<Counts>::device_team;

  lplb_plan_body<matrix_ref<std::int64_t const>> plan;
  Counts counts;  ///< `[problems, ranks, experts]`
  topology where;
  index_t source;
  matrix_ref<std::int64_t> sums;    ///< `[layers, experts]`, the loads of `plan`
  matrix_ref<std::int32_t> shares;  ///< `[layers, slots]`: quotas for the tokens of the source

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<arrays>(where.ranges.slots, counts.extent(2)) + plan.scratch_bytes();
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const layer = plan.first_layer + problem;
    arrays const a{memory, where.ranges.slots, counts.extent(2)};
    team.for_each(counts.extent(2),
                  [=, this](index_t e) { sums(layer, e) = add_up(a.seen[e], problem, e); });
    team.for_each(where.ranges.slots, [=, this](index_t slot) {
      a.rank[slot] = -1;
      shares(layer, slot) = 0;
    });
    team.for_each(where.ranks(), [=, this](index_t r) {
      for (index_t slot = where.begin(layer, r); slot < where.end(layer, r); ++slot) {
        a.rank[slot] = static_cast<std::int32_t>(r);
      }
    });
    plan(team, memory, problem);
    if (!plan.round.reports[layer].refused && !plan.split.faults[layer]) {
      team.for_each(counts.extent(2), [=, this](index_t e) { divide(a, problem, e); });
    }
  }

 private:
  /// Tokens for an expert, by source.
  struct source_sums {
    std::int64_t earlier_nodes;
    std::int64_t earlier_in_node;
    std::int64_t in_node;
  };
  struct arrays {
    scratch_ref memory;
    index_t slots;
    index_t experts;

    source_sums* seen = memory.take(experts);
    std::int32_t* rank = memory.take(slots);  ///< of a slot; -1 without
    std::int32_t* room = memory.take(slots);  ///< that a slot has left
  };
  /// Tokens in a row, which fill slots in order.
  struct token_range {
    std::int64_t begin;
    std::int64_t end;

    /// Returns how many go to a slot with this room, behind `before` of earlier slots.
    [[nodiscard]] PLIMSOLL_HD std::int32_t in(std::int64_t before, std::int32_t room) const {
      std::int64_t const common = minimum{}(end, before + room) - maximum{}(begin, before);
      return static_cast<std::int32_t>(maximum{}(common, std::int64_t{0}));
    }
  };

  /// Returns the tokens of all ranks for an expert, or the negative count of one.
  PLIMSOLL_HD std::int64_t add_up(source_sums& seen, index_t problem, index_t e) const {
    index_t const node = where.node_of(source);
    index_t const ends[] = {where.first_rank(node), source, where.first_rank(node + 1),
                            where.ranks()};
    std::int64_t sums_to[4];
    std::int64_t sum = 0;
    std::int64_t least = 0;
    index_t r = 0;
    for (int part = 0; part < 4; ++part) {
      for (; r < ends[part]; ++r) {
        auto const count = static_cast<std::int64_t>(counts(problem, r, e));
        sum += minimum{}(maximum{}(count, std::int64_t{0}), std::int64_t{1} << 40);  // no overflow
        least = minimum{}(least, count);
      }
      sums_to[part] = sum;
    }
    seen = {sums_to[0], sums_to[1] - sums_to[0], sums_to[2] - sums_to[0]};
    return least < 0 ? least : sum;
  }

  /// Divides the quotas of an expert: sources fill slots on their own rank, then on their node,
  /// then any, in order of sources and slots.
  PLIMSOLL_HD void divide(arrays const& a, index_t problem, index_t e) const {
    index_t const layer = plan.first_layer + problem;
    slot_lists const lists = plan.round.lists.of_layer(layer);
    auto const quotas = row_of(plan.round.quotas, layer);
    auto const count_of = [this, problem, e](index_t r) {
      return static_cast<std::int64_t>(counts(problem, r, e));
    };
    index_t const own_node = where.node_of(source);
    index_t const last = lists.first[e + 1];
    // Tokens of earlier sources without room near them, and those of this source after them.
    std::int64_t ahead = a.seen[e].earlier_nodes;
    token_range own{a.seen[e].earlier_in_node, a.seen[e].earlier_in_node + count_of(source)};
    index_t i = lists.first[e];
    while (i < last && a.rank[lists.slot[i]] >= 0) {
      index_t const first = i;
      index_t const node = where.node_of(a.rank[lists.slot[i]]);
      index_t const end_rank = where.first_rank(node + 1);
      bool const is_own = node == own_node;
      std::int64_t tokens = a.seen[e].in_node;
      if (!is_own) {
        tokens = 0;
        for (index_t r = where.first_rank(node); r < end_rank; ++r) {
          tokens += count_of(r);
        }
      }
      ahead -= node < own_node ? tokens : 0;
      std::int64_t free = 0;
      std::int64_t left = 0;
      for (std::int32_t counted = -1; i < last; ++i) {
        std::int32_t const slot = lists.slot[i];
        std::int32_t const r = a.rank[slot];
        if (r < 0 || r >= end_rank) {
          break;
        }
        left = r == counted ? left : count_of(r);
        counted = r;
        auto const given = static_cast<std::int32_t>(minimum{}(left, std::int64_t{quotas[slot]}));
        left -= given;
        tokens -= given;
        own.begin -= is_own && r < source ? given : 0;
        own.end -= is_own && r <= source ? given : 0;
        a.room[slot] = quotas[slot] - given;
        free += a.room[slot];
        shares(layer, slot) = r == source ? given : 0;
      }
      std::int64_t before = 0;
      std::int32_t sent = 0;
      for (index_t k = first; k < i; ++k) {
        std::int32_t const slot = lists.slot[k];
        std::int32_t const mine = is_own ? own.in(before, a.room[slot]) : 0;
        std::int32_t const taken = token_range{0, tokens}.in(before, a.room[slot]);
        before += a.room[slot];
        a.room[slot] -= taken;
        shares(layer, slot) += mine;
        sent += mine;
      }
      if (is_own) {
        std::int64_t const still = own.end - own.begin - sent;
        own.begin = maximum{}(own.begin - free, std::int64_t{0});
        own.end = own.begin + still;
      }
      ahead += node < own_node ? maximum{}(tokens - free, std::int64_t{0}) : 0;
    }
    own = {ahead + own.begin, ahead + own.end};
    std::int64_t before = 0;
    for (index_t k = lists.first[e]; k < i; ++k) {
      std::int32_t const slot = lists.slot[k];
      shares(layer, slot) += own.in(before, a.room[slot]);
      before += a.room[slot];
    }
  }
};

}}}  // namespace plimsoll::detail
