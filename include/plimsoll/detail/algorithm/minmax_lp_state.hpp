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

/// The ranks of one word with a target of an expert, which a device reads at once.
struct alignas(16) expert_ranks {
  std::uint64_t holders;  ///< ranks with a target
  std::uint64_t givers;   ///< those whose share is above 0
};

/// The words with a target of an expert, from the first to the last.
struct alignas(8) word_range {
  std::int32_t first;
  std::int32_t last;
};

/// An *arc*: a target as seen from its rank.
struct alignas(8) rank_arc {
  std::int32_t target;
  std::int32_t expert;
};

/// A rank's first arc to the next depth, and the rank that it leads to.
struct alignas(16) rank_way {
  std::int32_t to;   ///< -1: not known
  std::int32_t arc;  ///< no earlier arc leads on
  std::int32_t end;  ///< of the rank's arcs
};

/// A rank on a path, and the arc by which the path goes on.
struct alignas(8) path_step {
  std::int32_t rank;
  std::int32_t arc;
};

/// A layer's graph as a device team reads it in `team_flow`: positions count within the layer. Sets
/// of ranks are bit masks, in `words` of 64 ranks.
struct layer_graph {
  std::int32_t words;
  std::int32_t stride;         ///< of the words of `of_expert`
  std::int32_t quarter;        ///< of the number of replicated experts, rounded up
  std::int32_t* target_begin;  ///< `[experts + 1]`
  std::int32_t* arc_begin;     ///< `[ranks + 1]`: the arcs of each rank
  rank_arc* arcs;              ///< `[slots]`
  expert_ranks* of_expert;     ///< `[words, stride]`; no ranks from the last replicated expert on
  word_range* words_of;        ///< `[stride]`: of an expert
  std::int32_t* is_met;        ///< `[stride]`: of an expert, in `across`
  std::uint64_t* unsettled;    ///< `[words]`: ranks in no earlier bottleneck set
  std::uint64_t* above;        ///< `[words]`: those above their capacity
  std::uint64_t* under;        ///< `[words]`: those below their capacity
  std::uint64_t* at_step;      ///< `[ranks + 1, words]`: ranks that a search reaches by step
  std::uint64_t* unreached;    ///< `[ranks + 1, words]`: ranks not reached up to this step
  rank_way* way;               ///< `[ranks]`
  path_step* path;             ///< `[ranks + 1]`: the ranks from the source on

  [[nodiscard]] PLIMSOLL_HD static layer_graph in(scratch& memory, split_graph const& graph) {
    layer_graph g{};
    g.words = static_cast<std::int32_t>((graph.ranks + 63) / 64);
    g.stride = static_cast<std::int32_t>((graph.most_replicated() + 3) / 4 * 4);
    memory.take(g.target_begin, graph.most_replicated() + 1);
    memory.take(g.arc_begin, graph.ranks + 1);
    memory.take(g.arcs, graph.slots);
    memory.take(g.of_expert, index_t{g.words} * g.stride);
    memory.take(g.words_of, g.stride);
    memory.take(g.is_met, g.stride);
    memory.take(g.unsettled, g.words);
    memory.take(g.above, g.words);
    memory.take(g.under, g.words);
    for (std::uint64_t** const array : {&g.at_step, &g.unreached}) {
      memory.take(*array, (graph.ranks + 1) * g.words);
    }
    memory.take(g.way, graph.ranks);
    memory.take(g.path, graph.ranks + 1);
    return g;
  }

  /// Copies the lists of a layer, and collects the ranks of every expert.
  template <class Team>
  PLIMSOLL_HD void fill(Team& team, split_graph const& graph, index_t layer,
                        std::int64_t const* share) {
    index_t const replicated = graph.layers[layer].replicated;
    index_t const first_replicated = graph.first_replicated(layer);
    index_t const first_rank = graph.first_rank(layer);
    auto const first = static_cast<std::int32_t>(graph.first_target(layer));
    quarter = static_cast<std::int32_t>((replicated + 3) / 4);
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
      arcs[i] = {target - first,
                 graph.target_owner[target] - static_cast<std::int32_t>(first_replicated)};
    });
    team.for_each(4 * quarter, [=, this](index_t expert) {
      auto const i = static_cast<std::int32_t>(expert);
      PLIMSOLL_NO_UNROLL
      for (std::int32_t word = 0; word < words; ++word) {
        ranks_of(word, i) = {0, 0};
      }
      std::int32_t const begin = i < replicated ? target_begin[i] : 0;
      std::int32_t const end = i < replicated ? target_begin[i + 1] : 0;
      words_of[i] = begin < end ? word_range{graph.target_rank[first + begin] >> 6,
                                             graph.target_rank[first + end - 1] >> 6}
                                : word_range{0, -1};
      PLIMSOLL_NO_UNROLL
      for (std::int32_t k = begin; k < end; ++k) {
        std::int32_t const r = graph.target_rank[first + k];
        ranks_with(i, r).holders |= bit(r);
        ranks_with(i, r).givers |= share[k] > 0 ? bit(r) : 0;
      }
    });
  }

  [[nodiscard]] PLIMSOLL_HD static std::uint64_t bit(std::int32_t r) {
    return std::uint64_t{1} << (r & 63);
  }
  /// Returns true if a row of words contains rank r.
  [[nodiscard]] PLIMSOLL_HD static bool contains(std::uint64_t const* row, std::int32_t r) {
    return (row[r >> 6] & bit(r)) != 0;
  }
  /// Takes rank r out of a row that contains it.
  PLIMSOLL_HD static void remove(std::uint64_t* row, std::int32_t r) { row[r >> 6] ^= bit(r); }
  /// Returns a word of an expert's ranks.
  [[nodiscard]] PLIMSOLL_HD expert_ranks& ranks_of(std::int32_t word, std::int32_t expert) const {
    return of_expert[static_cast<std::uint32_t>(word * stride + expert)];
  }
  /// Returns the word of an expert's ranks that contains rank r.
  [[nodiscard]] PLIMSOLL_HD expert_ranks& ranks_with(std::int32_t expert, std::int32_t r) const {
    return ranks_of(r >> 6, expert);
  }
  /// Returns an expert's target on rank r: targets are in the order of ranks.
  [[nodiscard]] PLIMSOLL_HD std::int32_t target_of(std::int32_t expert, std::int32_t r) const {
    std::int32_t target = target_begin[expert];
    PLIMSOLL_NO_UNROLL
    for (std::int32_t word = 0; word < (r >> 6); ++word) {
      target += bit_count(ranks_of(word, expert).holders);
    }
    return target + bit_count(ranks_with(expert, r).holders & (bit(r) - 1));
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
  std::int64_t* fixed;     ///< `[ranks]`: base load and experts at home
  std::int64_t* load;      ///< `[ranks]`: the same and shares
  std::int64_t* share;     ///< `[targets of the layer]`: load of the expert on the target
  std::int64_t* demand;    ///< `[replicated experts of the layer]`: the expert's load
  std::int64_t* capacity;  ///< `[ranks]`: the most load within the bound
  std::int32_t* distance;  ///< `[ranks]`: the depth in `blocking_flow`
  std::int32_t* queue;     ///< `[ranks]`: reached ranks, by distance
  std::int32_t* arc;       ///< `[ranks]`: a position in `rank_target`
  std::int32_t* next;      ///< `[ranks]`: a target of the arc's expert, -1 before the first
  std::int32_t* path;      ///< `[ranks]`: the ranks from the source on
  std::int32_t* set;       ///< `[ranks]`: number of the bottleneck set, from 1; 0: none yet
  layer_graph local;       ///< filled for `team_flow`

  /// Takes arrays that suffice for every layer.
  [[nodiscard]] PLIMSOLL_HD static split_state in(scratch& memory, split_graph const& graph) {
    split_state s{};
    s.graph = graph;
    memory.take(s.fixed, graph.ranks);
    memory.take(s.load, graph.ranks);
    memory.take(s.capacity, graph.ranks);
    memory.take(s.share, graph.slots);
    memory.take(s.demand, graph.most_replicated());
    for (std::int32_t** const array : {&s.distance, &s.queue, &s.arc, &s.next, &s.path, &s.set}) {
      memory.take(*array, graph.ranks);
    }
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
