// SPDX-License-Identifier: Apache-2.0
/// @file
/// The state of a layer while `minmax_lp` splits its loads.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/split_graph.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// The state of a layer during `solve`, in units of 2^-shift.
struct split_state {
  split_graph graph;
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
  std::int32_t* arc;       ///< `[ranks]`: a position in `rank_target`
  std::int32_t* next;      ///< `[ranks]`: a target of the arc's expert, -1 before the first
  std::int32_t* path;      ///< `[ranks]`: the ranks from the source on
  std::int32_t* set;       ///< `[ranks]`: number of the bottleneck set, from 1; 0: none yet
  // Of `team_flow`:
  std::int32_t* expert_depth;  ///< `[replicated experts of the layer]`
  std::int32_t* receiver;      ///< `[replicated experts of the layer]`: a target, or -1

  /// Takes arrays that suffice for every layer.
  template <class Memory>
  [[nodiscard]] PLIMSOLL_HD static split_state in(Memory& memory, split_graph const& graph) {
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
