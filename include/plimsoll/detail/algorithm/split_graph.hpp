// SPDX-License-Identifier: Apache-2.0
/// @file
/// The graph of experts and ranks on which `minmax_lp` splits loads, and the body that makes it
/// from a placement.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/rank_levels.hpp>
#include <plimsoll/detail/common/slot_lists.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// The numbers of a layer that follow from its placement.
struct split_layer {
  rank_numbers ranks;
  std::int32_t replicated;
  std::int32_t colors;

  /// Divides levels: the speed of live ranks if it is equal, else 1.
  [[nodiscard]] PLIMSOLL_HD double speed_unit() const {
    return ranks.equal_speeds != 0 ? ranks.fastest : 1.0;
  }
};

/// The bipartite graph of experts and the ranks that may take their load. A live rank with copies
/// of an expert is one *target* of the expert, however many copies it has. An expert with several
/// targets is *replicated*, one with a single target is at *home* there, and one without a target
/// is *absent*. Replicated experts of one *color* have no rank in common.
///
/// Every layer has room for any placement on its slots, so that a new placement needs no other
/// memory: layer l begins at l times the capacity of each list. Positions are absolute.
struct split_graph {
  index_t experts;
  index_t ranks;
  index_t slots;
  split_layer* layers;         ///< `[layers]`
  double* speed;               ///< `[layers, ranks]`: 0 for dead ranks
  std::int32_t* map;           ///< `[layers, slots]`: the expert in each slot, or -1
  std::int32_t* rank_offsets;  ///< `[layers, ranks + 1]`
  std::int32_t* expert;        ///< `[layers, most_replicated + 1]`, by color
  std::int32_t* target_begin;  ///< `[layers, most_replicated + 1]` into the targets
  std::int32_t* target_rank;   ///< `[layers, slots]`, rising for each expert
  std::int32_t* target_owner;  ///< `[layers, slots]`: the replicated expert
  std::int32_t* color_begin;   ///< `[layers, most_replicated + 1]` into the replicated experts
  std::int32_t* rank_begin;    ///< `[layers, ranks + 1]` into `rank_target`
  std::int32_t* rank_target;   ///< `[layers, slots]`: targets, by rank
  std::int32_t* home_begin;    ///< `[layers, ranks + 1]` into `home`
  std::int32_t* home;          ///< `[layers, experts]`: those at home, by rank, then those absent
  std::int32_t* slot_source;   ///< `[layers, slots]`: a target; -1: no load; -2 - e: all of e
  /// `[layers, slots]`: the number of the expert's copies on the rank, which share its part;
  /// negative except for the first copy, which also takes the remainder.
  std::int32_t* slot_copies;

  [[nodiscard]] PLIMSOLL_HD static split_graph in(scratch& memory, index_t experts, index_t ranks,
                                                  index_t slots, index_t layers) {
    split_graph g{};
    g.experts = experts;
    g.ranks = ranks;
    g.slots = slots;
    memory.take(g.layers, layers);
    memory.take(g.speed, layers * ranks);
    for (std::int32_t** const list : {&g.map, &g.target_rank, &g.target_owner, &g.rank_target,
                                      &g.slot_source, &g.slot_copies}) {
      memory.take(*list, layers * slots);
    }
    for (std::int32_t** const list : {&g.rank_offsets, &g.rank_begin, &g.home_begin}) {
      memory.take(*list, layers * (ranks + 1));
    }
    for (std::int32_t** const list : {&g.expert, &g.target_begin, &g.color_begin}) {
      memory.take(*list, layers * (g.most_replicated() + 1));
    }
    memory.take(g.home, layers * experts);
    return g;
  }

  /// Returns the most replicated experts of a layer: each has two slots at least.
  [[nodiscard]] PLIMSOLL_HD index_t most_replicated() const {
    return minimum{}(experts, slots / 2);
  }
  /// Returns the first replicated expert of a layer, and its first color.
  [[nodiscard]] PLIMSOLL_HD index_t first_replicated(index_t layer) const {
    return layer * (most_replicated() + 1);
  }
  [[nodiscard]] PLIMSOLL_HD index_t first_target(index_t layer) const { return layer * slots; }
  /// Returns the position of a layer in the lists with an element for each rank and one more.
  [[nodiscard]] PLIMSOLL_HD index_t first_rank(index_t layer) const { return layer * (ranks + 1); }
  [[nodiscard]] PLIMSOLL_HD speed_units speeds(index_t layer) const {
    return layers[layer].ranks.units(speed + layer * ranks);
  }
};

/// Gives every replicated expert of a layer the lowest color that no earlier expert on its ranks
/// has (greedy coloring), 64 colors at a time.
struct split_coloring {
  static constexpr std::int32_t undecided = -1;
  static constexpr std::int32_t deferred = -2;  ///< to the next 64 colors

  slot_lists lists;             ///< of the layer
  std::int32_t const* rank_of;  ///< `[slots]`: the live rank of a slot, or -1
  std::int32_t const* map;      ///< `[slots]`
  std::int32_t const* offsets;  ///< `[ranks + 1]`
  std::int32_t const* expert;   ///< `[replicated]`, rising
  std::int32_t const* number;   ///< `[experts]`: position in `expert`
  std::int32_t const* targets;  ///< `[experts]`
  std::int32_t* color;          ///< `[replicated]`
  std::uint64_t* used;          ///< `[ranks]`: bits of the colors of the rank's experts
  std::int32_t* next;           ///< `[ranks]`: the rank's first undecided expert

  /// Returns the number of colors.
  template <class Team>
  PLIMSOLL_HD index_t run(Team& team, index_t replicated, index_t ranks) const {
    std::int32_t* const colors = color;
    team.for_each(replicated, [=](index_t i) { colors[i] = undecided; });
    std::int32_t base = 0;
    for (bool more = replicated > 0; more; base += 64) {
      std::uint64_t* const bits = used;
      team.for_each(ranks, [=](index_t r) { bits[r] = 0; });
      color_some(team, replicated, ranks, base);
      more = team.any(replicated, [=](index_t i) {
        bool const is_deferred = colors[i] == deferred;
        colors[i] = is_deferred ? undecided : colors[i];
        return is_deferred;
      });
    }
    return replicated == 0 ? 0 : team.max(replicated, [=](index_t i) { return colors[i]; }) + 1;
  }

 private:
  /// Decides all undecided experts. An expert can be decided once all earlier ones on its ranks
  /// are, so that a team decides all such experts at once; one thread decides them in order, which
  /// takes a tenth of the time on EPLB's placements.
  template <class Team>
  PLIMSOLL_HD void color_some(Team& team, index_t replicated, index_t ranks,
                              std::int32_t base) const {
    if constexpr (Team::is_serial) {
      team.single([=, this] {
        for (index_t i = 0; i < replicated; ++i) {
          if (color[i] == undecided) {
            decide(i, base);
          }
        }
      });
    } else {
      bool more = true;
      PLIMSOLL_NO_UNROLL
      while (more) {
        team.for_each(ranks, [=, this](index_t r) { next[r] = first_undecided(r); });
        more = team.any(replicated, [=, this](index_t i) {
          if (color[i] != undecided) {
            return false;
          }
          if (!is_next(i)) {
            return true;
          }
          decide(i, base);
          return false;
        });
      }
    }
  }

  template <class Visit>
  PLIMSOLL_HD void for_ranks(index_t i, Visit visit) const {
    index_t const e = expert[i];
    PLIMSOLL_NO_UNROLL
    for (index_t k = lists.first[e]; k < lists.first[e + 1]; ++k) {
      std::int32_t const r = rank_of[lists.slot[k]];
      if (r >= 0) {
        visit(r);
      }
    }
  }
  PLIMSOLL_HD void decide(index_t i, std::int32_t base) const {
    std::uint64_t taken = 0;
    for_ranks(i, [&](std::int32_t r) { taken |= used[r]; });
    if (taken == ~std::uint64_t{0}) {
      color[i] = deferred;
      return;
    }
    std::uint64_t const lowest_free = ~taken & (taken + 1);
    color[i] = base + bit_width(lowest_free) - 1;
    for_ranks(i, [&](std::int32_t r) { used[r] |= lowest_free; });
  }
  [[nodiscard]] PLIMSOLL_HD bool is_next(index_t i) const {
    bool result = true;
    for_ranks(i, [&](std::int32_t r) { result = result && next[r] == i; });
    return result;
  }
  [[nodiscard]] PLIMSOLL_HD std::int32_t first_undecided(index_t r) const {
    std::int32_t first = highest<std::int32_t>;
    PLIMSOLL_NO_UNROLL
    for (index_t slot = offsets[r]; slot < offsets[r + 1]; ++slot) {
      std::int32_t const e = map[slot];
      if (e >= 0 && rank_of[slot] >= 0 && targets[e] > 1 && color[number[e]] == undecided) {
        first = minimum{}(first, number[e]);
      }
    }
    return first;
  }
};

/// Makes the graph of layers from their placements, and the lists of their slots. A layer whose
/// placement is refused stays as it is. Problem = row of the placement.
struct split_graph_body {
  using device_team = warp;

  split_graph graph;
  slot_lists lists;     ///< of every layer; if empty, they are scratch
  index_t first_layer;  ///< that of the first row
  matrix_ref<std::int32_t const> physical_to_logical;  ///< `[rows, slots]`, at most graph.slots
  slot_ranges ranges;                                  ///< of every row
  rank_input on;
  problem_report* reports;  ///< `[layers]`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<arrays>(graph, lists.first == nullptr);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t row) const {
    index_t const layer = first_layer + row;
    problem_report const outcome = refuse(team, row);
    team.single([=, this] { reports[layer] = outcome; });
    if (outcome.refused) {
      return;
    }
    arrays s{memory, graph, lists.first == nullptr};
    if (lists.first != nullptr) {
      s.lists = lists.of_layer(layer);
    }
    rank_numbers const ranks = on.write(team, graph.ranks, graph.speed + layer * graph.ranks);
    copy_placement(team, row, layer, s);
    s.lists.fill(team, vector_ref<std::int32_t const>(graph.map + layer * graph.slots, graph.slots),
                 s.keys, s.sort_storage);
    index_t const replicated = count_targets(team, s);
    index_t const colors = list_experts(team, layer, s, replicated);
    list_targets(team, layer, s);
    list_by_rank(team, layer, s, replicated, colors);
    list_homes(team, layer, s);
    team.single([=, this] {
      graph.layers[layer] = {ranks, static_cast<std::int32_t>(replicated),
                             static_cast<std::int32_t>(colors)};
    });
  }

 private:
  struct arrays {
    scratch_ref memory;
    split_graph const& graph;
    bool has_lists;

    slot_lists lists =
        has_lists ? slot_lists::in(memory, graph.experts, graph.slots) : slot_lists{};
    std::int32_t* rank_of = memory.take(graph.slots);  ///< the live rank of a slot, or -1
    /// `[slots]` or `[experts]`: results of scans.
    std::int32_t* position = memory.take(maximum{}(graph.slots, graph.experts));
    std::int32_t* targets = memory.take(graph.experts);
    std::int32_t* number = memory.take(graph.experts);  ///< of replicated ones, rising
    std::int32_t* place = memory.take(graph.experts);   ///< of replicated ones: position by color
    std::int32_t* expert = memory.take(graph.most_replicated());  ///< rising
    std::int32_t* color = memory.take(graph.most_replicated());
    std::int32_t* of_rank = memory.take(graph.ranks);
    std::uint64_t* used = memory.take(graph.ranks);
    std::uint64_t* keys = memory.take(graph.slots);
    std::byte* sort_storage = memory.take(sort_bytes<device_team, std::uint64_t>(graph.slots));
  };

  /// Refuses speeds, offsets and ids out of range, in this order.
  template <class Team>
  PLIMSOLL_HD problem_report refuse(Team& team, index_t row) const {
    index_t const ranks = graph.ranks;
    problem_report const of_ranks = on.refuse(team, ranks);
    if (of_ranks.refused) {
      return of_ranks;
    }
    index_t const rank = ranges.first_fault(team, row);
    if (rank < ranks) {
      return refusal(fault_kind::rank_offsets, rank, ranges.end(row, rank));
    }
    index_t const used = ranges.end(row, ranks - 1);
    index_t const odd = team.min(used, [=, this](index_t slot) {
      std::int32_t const e = physical_to_logical(row, slot);
      return e >= -1 && e < graph.experts ? used : slot;
    });
    if (odd < used) {
      index_t const holder =
          team.min(ranks, [=, this](index_t r) { return odd < ranges.end(row, r) ? r : ranks; });
      return refusal(fault_kind::expert_id, odd, physical_to_logical(row, odd), holder);
    }
    return problem_report{};
  }

  /// Copies the map and the offsets, finds the rank of every slot, and takes the load off all
  /// slots.
  template <class Team>
  PLIMSOLL_HD void copy_placement(Team& team, index_t row, index_t layer, arrays const& s) const {
    index_t const given = physical_to_logical.extent(1);
    std::int32_t* const offsets = graph.rank_offsets + graph.first_rank(layer);
    team.for_each(maximum{}(graph.slots, graph.ranks + 1), [=, this](index_t i) {
      if (i < graph.slots) {
        index_t const number = layer * graph.slots + i;
        graph.map[number] = i < given ? physical_to_logical(row, i) : -1;
        graph.slot_source[number] = -1;
        graph.slot_copies[number] = 1;
        s.rank_of[i] = -1;
      }
      if (i <= graph.ranks) {
        offsets[i] = static_cast<std::int32_t>(ranges.begin(row, i));
      }
    });
    double const* const speed = graph.speed + layer * graph.ranks;
    team.for_each(graph.ranks, [=](index_t r) {
      PLIMSOLL_NO_UNROLL
      for (index_t slot = offsets[r]; speed[r] > 0 && slot < offsets[r + 1]; ++slot) {
        s.rank_of[slot] = static_cast<std::int32_t>(r);
      }
    });
  }

  /// Returns true if a list's slot is the first one of the expert on a live rank.
  PLIMSOLL_HD static bool begins_target(arrays const& s, index_t e, index_t i) {
    std::int32_t const r = s.rank_of[s.lists.slot[i]];
    return r >= 0 && (i == s.lists.first[e] || s.rank_of[s.lists.slot[i - 1]] != r);
  }

  /// Counts the targets of every expert, and numbers the replicated ones. Returns their number.
  template <class Team>
  PLIMSOLL_HD index_t count_targets(Team& team, arrays const& s) const {
    team.for_each(graph.experts, [=](index_t e) {
      std::int32_t count = 0;
      PLIMSOLL_NO_UNROLL
      for (index_t i = s.lists.first[e]; i < s.lists.first[e + 1]; ++i) {
        count += begins_target(s, e, i);
      }
      s.targets[e] = count;
    });
    index_t const replicated = team.exclusive_scan(
        graph.experts, [=](index_t e) { return static_cast<std::int32_t>(s.targets[e] > 1); },
        s.number);
    team.for_each(graph.experts, [=](index_t e) {
      if (s.targets[e] > 1) {
        s.expert[s.number[e]] = static_cast<std::int32_t>(e);
      }
    });
    return replicated;
  }

  /// Lists the replicated experts by color, and where their targets begin. Returns the number of
  /// colors.
  template <class Team>
  PLIMSOLL_HD index_t list_experts(Team& team, index_t layer, arrays const& s,
                                   index_t replicated) const {
    split_coloring const coloring{.lists = s.lists,
                                  .rank_of = s.rank_of,
                                  .map = graph.map + layer * graph.slots,
                                  .offsets = graph.rank_offsets + graph.first_rank(layer),
                                  .expert = s.expert,
                                  .number = s.number,
                                  .targets = s.targets,
                                  .color = s.color,
                                  .used = s.used,
                                  .next = s.of_rank};
    index_t const colors = coloring.run(team, replicated, graph.ranks);
    team.for_each(replicated, [=](index_t i) {
      s.keys[i] = static_cast<std::uint64_t>(s.color[i]) << 32 | static_cast<std::uint64_t>(i);
    });
    team.sort(s.keys, replicated, s.sort_storage);
    index_t const first = graph.first_replicated(layer);
    team.for_each(replicated, [=, this](index_t place) {
      std::uint64_t const color = s.keys[place] >> 32;
      std::int32_t const e = s.expert[static_cast<std::uint32_t>(s.keys[place])];
      graph.expert[first + place] = e;
      s.place[e] = static_cast<std::int32_t>(place);
      if (place == 0 || s.keys[place - 1] >> 32 != color) {
        graph.color_begin[first + static_cast<index_t>(color)] =
            static_cast<std::int32_t>(first + place);
      }
    });
    std::int32_t const all = team.exclusive_scan(
        replicated, [=, this](index_t place) { return s.targets[graph.expert[first + place]]; },
        s.position);
    index_t const first_target = graph.first_target(layer);
    team.for_each(replicated + 1, [=, this](index_t place) {
      index_t const before = place < replicated ? s.position[place] : all;
      graph.target_begin[first + place] = static_cast<std::int32_t>(first_target + before);
      if (place == replicated) {
        graph.color_begin[first + colors] = static_cast<std::int32_t>(first + replicated);
      }
    });
    return colors;
  }

  /// Lists the targets by replicated expert, and the source of every slot.
  template <class Team>
  PLIMSOLL_HD void list_targets(Team& team, index_t layer, arrays const& s) const {
    index_t const first = graph.first_replicated(layer);
    index_t const row = layer * graph.slots;
    team.for_each(graph.experts, [=, this](index_t e) {
      index_t const owner = s.targets[e] > 1 ? first + s.place[e] : -1;
      index_t target = owner < 0 ? 0 : graph.target_begin[owner];
      index_t const end = s.lists.first[e + 1];
      PLIMSOLL_NO_UNROLL
      for (index_t i = s.lists.first[e]; i < end;) {
        std::int32_t const r = s.rank_of[s.lists.slot[i]];
        index_t next = i + 1;
        PLIMSOLL_NO_UNROLL
        while (next < end && s.rank_of[s.lists.slot[next]] == r) {
          ++next;
        }
        if (r >= 0) {
          auto const copies = static_cast<std::int32_t>(next - i);
          PLIMSOLL_NO_UNROLL
          for (index_t j = i; j < next; ++j) {
            index_t const number = row + s.lists.slot[j];
            graph.slot_source[number] = static_cast<std::int32_t>(owner < 0 ? -2 - e : target);
            graph.slot_copies[number] = j == i ? copies : -copies;
          }
          if (owner >= 0) {
            graph.target_rank[target] = r;
            graph.target_owner[target] = static_cast<std::int32_t>(owner);
            ++target;
          }
        }
        i = next;
      }
    });
  }

  /// Lists the targets by rank, and by color within a rank. Targets of one color are on different
  /// ranks.
  template <class Team>
  PLIMSOLL_HD void list_by_rank(Team& team, index_t layer, arrays const& s, index_t replicated,
                                index_t colors) const {
    index_t const first = graph.first_replicated(layer);
    index_t const first_target = graph.first_target(layer);
    index_t const targets = graph.target_begin[first + replicated] - first_target;
    team.histogram(
        targets, [=, this](index_t i) { return graph.target_rank[first_target + i]; }, s.of_rank,
        graph.ranks);
    std::int32_t* const begin = graph.rank_begin + graph.first_rank(layer);
    team.exclusive_scan(
        graph.ranks, [=](index_t r) { return s.of_rank[r]; }, begin);
    team.for_each(graph.ranks + 1, [=, this](index_t r) {
      index_t const before = r < graph.ranks ? begin[r] : targets;
      begin[r] = static_cast<std::int32_t>(first_target + before);
      if (r < graph.ranks) {
        s.of_rank[r] = begin[r];
      }
    });
    PLIMSOLL_NO_UNROLL
    for (index_t c = first; c < first + colors; ++c) {
      index_t const from = graph.target_begin[graph.color_begin[c]];
      index_t const to = graph.target_begin[graph.color_begin[c + 1]];
      team.for_each(to - from, [=, this](index_t i) {
        std::int32_t const r = graph.target_rank[from + i];
        graph.rank_target[s.of_rank[r]] = static_cast<std::int32_t>(from + i);
        ++s.of_rank[r];
      });
    }
  }

  /// Lists the experts at home by rank, and the absent ones.
  template <class Team>
  PLIMSOLL_HD void list_homes(Team& team, index_t layer, arrays const& s) const {
    index_t const row = layer * graph.slots;
    index_t const first = layer * graph.experts;
    auto const is_home = [=, this](index_t slot) {
      return graph.slot_source[row + slot] < -1 && graph.slot_copies[row + slot] > 0;
    };
    index_t const homes = team.exclusive_scan(
        graph.slots, [=](index_t slot) { return static_cast<std::int32_t>(is_home(slot)); },
        s.position);
    team.for_each(maximum{}(graph.slots, graph.ranks + 1), [=, this](index_t i) {
      if (i < graph.slots && is_home(i)) {
        graph.home[first + s.position[i]] = -2 - graph.slot_source[row + i];
      }
      if (i <= graph.ranks) {
        index_t const begin = graph.rank_offsets[graph.first_rank(layer) + i];
        graph.home_begin[graph.first_rank(layer) + i] =
            static_cast<std::int32_t>(first + (begin < graph.slots ? s.position[begin] : homes));
      }
    });
    team.exclusive_scan(
        graph.experts, [=](index_t e) { return static_cast<std::int32_t>(s.targets[e] == 0); },
        s.position);
    team.for_each(graph.experts, [=, this](index_t e) {
      if (s.targets[e] == 0) {
        graph.home[first + homes + s.position[e]] = static_cast<std::int32_t>(e);
      }
    });
  }
};

}}}  // namespace plimsoll::detail
