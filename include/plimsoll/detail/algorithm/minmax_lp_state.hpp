// SPDX-License-Identifier: Apache-2.0
/// @file
/// The state of a layer while `minmax_lp` splits its loads.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/split_graph.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// A layer's graph as a device team reads it in `team_flow`: positions count within the layer, and
/// an *arc* is a target as seen from its rank. Sets of ranks are bit masks, in `words` of 64 ranks.
struct layer_graph {
  index_t words;
  index_t experts;             ///< stride of the masks of experts
  std::int32_t* target_begin;  ///< `[experts + 1]`
  std::int32_t* arc_begin;     ///< `[ranks + 1]`: the arcs of each rank
  std::int32_t* arc_target;    ///< `[slots]`
  std::int32_t* arc_expert;    ///< `[slots]`: the replicated expert
  std::uint64_t* holders;      ///< `[words, experts]`: the ranks with a target of the expert
  std::uint64_t* givers;       ///< `[words, experts]`: those whose share is above 0
  std::uint64_t* under;        ///< `[words]`: ranks below their capacity
  std::uint64_t* at_depth;     ///< `[ranks + 1, words]`: ranks of each depth
  std::uint64_t* unreached;    ///< `[ranks + 1, words]`: ranks of no depth up to this one
  std::uint64_t* leading;      ///< `[ranks + 1, words]`: ranks of the depth that lead on

  [[nodiscard]] PLIMSOLL_HD static layer_graph in(scratch& memory, split_graph const& graph) {
    layer_graph g{};
    g.words = (graph.ranks + 63) / 64;
    g.experts = graph.most_replicated();
    memory.take(g.target_begin, g.experts + 1);
    memory.take(g.arc_begin, graph.ranks + 1);
    memory.take(g.arc_target, graph.slots);
    memory.take(g.arc_expert, graph.slots);
    memory.take(g.holders, g.words * g.experts);
    memory.take(g.givers, g.words * g.experts);
    memory.take(g.under, g.words);
    for (std::uint64_t** const array : {&g.at_depth, &g.unreached, &g.leading}) {
      memory.take(*array, (graph.ranks + 1) * g.words);
    }
    return g;
  }

  /// Copies the lists of a layer, and collects the ranks of every expert.
  template <class Team>
  PLIMSOLL_HD void fill(Team& team, split_graph const& graph, index_t layer,
                        std::int64_t const* share) const {
    index_t const replicated = graph.layers[layer].replicated;
    index_t const first_replicated = graph.first_replicated(layer);
    index_t const first_rank = graph.first_rank(layer);
    auto const first = static_cast<std::int32_t>(graph.first_target(layer));
    team.for_each(maximum{}(replicated, graph.ranks) + 1, [=, this](index_t i) {
      if (i <= replicated) {
        target_begin[i] = graph.target_begin[first_replicated + i] - first;
      }
      if (i <= graph.ranks) {
        arc_begin[i] = graph.rank_begin[first_rank + i] - first;
      }
    });
    team.for_each(target_begin[replicated], [=, this](index_t i) {
      std::int32_t const target = graph.rank_target[first + i];
      arc_target[i] = target - first;
      arc_expert[i] = graph.target_owner[target] - static_cast<std::int32_t>(first_replicated);
    });
    team.for_each(replicated, [=, this](index_t i) {
      std::int32_t const end = target_begin[i + 1];
      PLIMSOLL_NO_UNROLL
      for (index_t word = 0; word < words; ++word) {
        holders[word * experts + i] = givers[word * experts + i] = 0;
      }
      PLIMSOLL_NO_UNROLL
      for (std::int32_t k = target_begin[i]; k < end; ++k) {
        std::int32_t const r = graph.target_rank[first + k];
        of(holders, i, r) |= bit(r);
        of(givers, i, r) |= share[k] > 0 ? bit(r) : 0;
      }
    });
  }

  [[nodiscard]] PLIMSOLL_HD static std::uint64_t bit(std::int32_t r) {
    return std::uint64_t{1} << (r & 63);
  }
  /// Returns the word of an expert's mask that contains rank r.
  [[nodiscard]] PLIMSOLL_HD std::uint64_t& of(std::uint64_t* mask, index_t expert,
                                              std::int32_t r) const {
    return mask[(r >> 6) * experts + expert];
  }
  /// Returns an expert's target on rank r: targets are in the order of ranks.
  [[nodiscard]] PLIMSOLL_HD std::int32_t target_of(index_t expert, std::int32_t r) const {
    std::int32_t target = target_begin[expert];
    PLIMSOLL_NO_UNROLL
    for (index_t word = 0; word < (r >> 6); ++word) {
      target += bit_count(holders[word * experts + expert]);
    }
    return target + bit_count(of(holders, expert, r) & (bit(r) - 1));
  }
};

/// The state of a layer during `solve`, in units of 2^-shift.
struct split_state {
  split_graph graph;
  index_t layer;
  speed_units speed;         ///< `[ranks]`
  index_t first_rank;        ///< position of the layer in `rank_begin`
  index_t first_replicated;  ///< first replicated expert of the layer
  index_t first_target;
  index_t replicated;      ///< number of replicated experts of the layer
  std::int64_t* load;      ///< `[ranks]`: base load, experts at home, and shares
  std::int64_t* share;     ///< `[targets of the layer]`: load of the expert on the target
  std::int64_t* demand;    ///< `[replicated experts of the layer]`: the expert's load
  std::int64_t* capacity;  ///< `[ranks]`: the most load within the bound
  std::int32_t* distance;  ///< `[ranks]`: the depth in `blocking_flow`
  std::int32_t* queue;     ///< `[ranks]`: reached ranks, by distance
  std::int32_t* arc;       ///< `[ranks]`: a position in `rank_target`, or an arc of `local`
  std::int32_t* next;      ///< `[ranks]`: a target of the arc's expert, -1 before the first
  std::int32_t* path;      ///< `[ranks]`: the ranks from the source on
  std::int32_t* set;       ///< `[ranks]`: number of the bottleneck set, from 1; 0: none yet
  // Of `team_flow`:
  std::int32_t* expert_depth;  ///< `[replicated experts of the layer]`
  std::int32_t* receiver;      ///< `[replicated experts of the layer]`: a rank
  layer_graph local;           ///< filled for `team_flow`

  /// Takes arrays that suffice for every layer.
  [[nodiscard]] PLIMSOLL_HD static split_state in(scratch& memory, split_graph const& graph) {
    split_state s{};
    s.graph = graph;
    memory.take(s.load, graph.ranks);
    memory.take(s.capacity, graph.ranks);
    memory.take(s.share, graph.slots);
    memory.take(s.demand, graph.most_replicated());
    for (std::int32_t** const array : {&s.distance, &s.queue, &s.arc, &s.next, &s.path, &s.set}) {
      memory.take(*array, graph.ranks);
    }
    memory.take(s.expert_depth, graph.most_replicated());
    memory.take(s.receiver, graph.most_replicated());
    s.local = layer_graph::in(memory, graph);
    return s;
  }

  PLIMSOLL_HD std::int64_t& share_of(index_t target) const { return share[target - first_target]; }
  /// Returns load over speed, or the load if speeds are equal; 0 for a dead rank, which has no
  /// load.
  PLIMSOLL_HD double level(index_t rank) const {
    auto const whole = static_cast<double>(load[rank]);
    return speed.equal_speeds || whole == 0 ? whole : divide(whole, speed.speed[rank]);
  }
  PLIMSOLL_HD double level_rounded_up(index_t rank) const {
    auto const whole = static_cast<double>(load[rank]);
    return speed.equal_speeds || whole == 0 ? whole : divide_up(whole, speed.speed[rank]);
  }
};

}}}  // namespace plimsoll::detail
