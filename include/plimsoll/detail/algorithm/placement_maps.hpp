// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of the conversions between the forms of a placement, of `resize_placement` and
/// `validate`.
///
/// Every input form is first converted to a slot map in scratch memory. From it each expert's slots
/// are linked in rising order by a walk over all slots. One thread does that walk, and the one that
/// finds a slot listed twice, in one short step per slot: a warp that sorts 320 slots instead takes
/// as many steps, and the host takes many more. The whole team does the rest.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Returns the lowest index in [0, n) for which `bad` holds, or n. Calls `bad` once per index.
template <class Team, class F>
PLIMSOLL_HD index_t first_where(Team& team, index_t n, F bad) {
  return minimum{}(n, team.min(n, [=](index_t i) { return bad(i) ? i : n; }));
}

// ----- lists padded with -1 ----------------------------------------------------------------------

/// One row of padded lists.
struct padded_row {
  index_t length;  ///< number of entries before the first -1
  index_t behind;  ///< position of the first entry after that -1, or the width
};
PLIMSOLL_HD inline padded_row measure_row(tensor_ref<std::int32_t const> const& lists,
                                          index_t layer, index_t row) {
  index_t const width = lists.extent(2);
  padded_row result{0, 0};
  while (result.length < width && lists(layer, row, result.length) != -1) {
    ++result.length;
  }
  result.behind = result.length;
  while (result.behind < width && lists(layer, row, result.behind) == -1) {
    ++result.behind;
  }
  return result;
}

/// Computes the CSR offsets `begin` `[rows + 1]` of a layer's padded lists. Refuses entries after a
/// -1.
template <class Team>
PLIMSOLL_HD problem_report line_up(Team& team, tensor_ref<std::int32_t const> const& lists,
                                   index_t layer, fault_kind gap, index_t* begin) {
  index_t const rows = lists.extent(1);
  index_t const bad_row = first_where(team, rows, [=](index_t row) {
    padded_row const measured = measure_row(lists, layer, row);
    begin[row] = measured.length;
    return measured.behind < lists.extent(2);
  });
  if (bad_row < rows) {
    return refusal(gap, bad_row, lists(layer, bad_row, measure_row(lists, layer, bad_row).behind));
  }
  team.exclusive_scan(
      rows + 1, [=](index_t row) { return row < rows ? begin[row] : index_t{0}; }, begin);
  return problem_report{};
}

// ----- slot maps ---------------------------------------------------------------------------------

/// Input form: slot map.
struct slot_source {
  matrix_ref<std::int32_t const> map;
  index_t experts;

  PLIMSOLL_HD index_t slots() const { return map.extent(1); }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  /// Copies the layer's map to `owner` and refuses invalid ids.
  template <class Team>
  PLIMSOLL_HD problem_report read(Team& team, scratch&, index_t layer, std::int32_t* owner) const {
    index_t const unknown = first_where(team, slots(), [=, this](index_t s) {
      owner[s] = map(layer, s);
      return owner[s] < -1 || owner[s] >= experts;
    });
    return unknown < slots() ? refusal(fault_kind::expert_id, unknown, owner[unknown])
                             : problem_report{};
  }
};

/// Scratch of input forms that list every expert's slots: the lists in CSR form.
struct listed_slots {
  scratch_ref memory;
  index_t experts;
  index_t slots;

  index_t* begin = memory.take(experts + 1);
  std::int32_t* line = memory.take(slots + 1);
};

/// Writes to `owner` the expert of every slot, from lists of every expert's slots. The entries of
/// expert e have positions [begin[e], begin[e + 1]) in `line`, and `slot_at(e, i)` is the i-th of
/// them. Refuses slots that do not exist or are listed twice.
template <class Team, class F>
PLIMSOLL_HD problem_report claim_slots(Team& team, listed_slots const& listed, index_t experts,
                                       index_t slots, F slot_at, std::int32_t* owner) {
  index_t const* const begin = listed.begin;
  std::int32_t* const line = listed.line;
  auto const exists = [slots](std::int32_t slot) { return slot >= 0 && slot < slots; };
  index_t const out_of_range = first_where(team, experts, [=](index_t e) {
    bool bad = false;
    for (index_t position = begin[e]; position < begin[e + 1]; ++position) {
      std::int32_t const slot = slot_at(e, position - begin[e]);
      bad = bad || !exists(slot);
      if (position <= slots) {  // slots + 1 entries already contain a duplicate
        line[position] = slot;
      }
    }
    return bad;
  });
  if (out_of_range < experts) {
    index_t i = 0;
    while (exists(slot_at(out_of_range, i))) {
      ++i;
    }
    return refusal(fault_kind::replica_slot, out_of_range, slot_at(out_of_range, i));
  }
  team.for_each(slots, [=](index_t s) { owner[s] = -1; });
  auto const twice = team.broadcast([=] {
    for (index_t e = 0; e < experts; ++e) {
      for (index_t position = begin[e]; position < begin[e + 1]; ++position) {
        std::int32_t const slot = line[position];
        if (owner[slot] >= 0) {
          return extreme<index_t>{slot, e};
        }
        owner[slot] = static_cast<std::int32_t>(e);
      }
    }
    return extreme<index_t>{0, -1};
  });
  return twice.index >= 0 ? refusal(fault_kind::replica_twice, twice.index, twice.key)
                          : problem_report{};
}

/// Input form: replica lists in CSR form.
struct replica_source {
  matrix_ref<std::int32_t const> offsets;
  matrix_ref<std::int32_t const> listed;
  index_t experts;

  PLIMSOLL_HD index_t slots() const { return listed.extent(1); }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<listed_slots>(experts, slots());
  }

  template <class Team>
  PLIMSOLL_HD problem_report read(Team& team, scratch& memory, index_t layer,
                                  std::int32_t* owner) const {
    listed_slots const claimed{memory, experts, slots()};
    index_t* const begin = claimed.begin;
    team.for_each(experts + 1, [=, this](index_t e) { begin[e] = offsets(layer, e); });
    index_t const falling = first_where(team, experts + 1, [=, this](index_t e) {
      return e == 0 ? begin[e] != 0 : begin[e] < begin[e - 1] || begin[e] > slots();
    });
    if (falling <= experts) {
      return refusal(fault_kind::replica_offsets, falling, begin[falling]);
    }
    return claim_slots(
        team, claimed, experts, slots(),
        [=, this](index_t e, index_t i) { return listed(layer, begin[e] + i); }, owner);
  }
};

/// Input form: replica lists padded with -1.
struct padded_source {
  tensor_ref<std::int32_t const> lists;
  index_t slot_count;

  PLIMSOLL_HD index_t slots() const { return slot_count; }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<listed_slots>(lists.extent(1), slot_count);
  }

  template <class Team>
  PLIMSOLL_HD problem_report read(Team& team, scratch& memory, index_t layer,
                                  std::int32_t* owner) const {
    index_t const experts = lists.extent(1);
    listed_slots const claimed{memory, experts, slot_count};
    problem_report const bad_row =
        line_up(team, lists, layer, fault_kind::replica_gap, claimed.begin);
    if (bad_row.refused) {
      return bad_row;
    }
    return claim_slots(
        team, claimed, experts, slot_count,
        [=, this](index_t e, index_t i) { return lists(layer, e, i); }, owner);
  }
};

// ----- from a slot map to an expert's slots ------------------------------------------------------

/// Working memory of `link_slots`: what the slots of a window become.
struct link_window {
  static constexpr index_t size = 32;

  std::int32_t* next;     ///< `[size]`
  std::int32_t* heading;  ///< `[size]`: expert whose list begins with the slot; -1: none does

  [[nodiscard]] PLIMSOLL_HD static link_window in(scratch& memory) {
    return {memory.take<std::int32_t>(size), memory.take<std::int32_t>(size)};
  }
};

/// Linked lists of every expert's slots in rising order: first[e], next[first[e]], ..., -1.
struct linked_slots {
  std::int32_t* first;   ///< `[experts]`
  std::int32_t* copies;  ///< `[experts + 1]`
  std::int32_t* next;    ///< `[slots]`; -1 at an empty slot too
  link_window window;

  /// Takes the arrays of experts. `next` is an array of the caller's.
  [[nodiscard]] PLIMSOLL_HD static linked_slots in(scratch& memory, index_t experts,
                                                   std::int32_t* next = nullptr) {
    return {memory.take<std::int32_t>(experts), memory.take<std::int32_t>(experts + 1), next,
            link_window::in(memory)};
  }
  PLIMSOLL_HD static std::size_t scratch_bytes(index_t experts) {
    return bytes_taken_by<linked_slots>(experts);
  }

  /// Links the slots of every expert, and counts them. `owner` may be `next`.
  template <class Team>
  PLIMSOLL_HD void link(Team& team, std::int32_t const* owner, index_t slots,
                        index_t experts) const {
    linked_slots const links = *this;
    team.for_each(experts, [=](index_t e) {
      links.first[e] = -1;
      links.copies[e] = 0;
    });
    if constexpr (Team::is_serial) {
      for (index_t s = slots; s-- > 0;) {
        std::int32_t const e = owner[s];
        links.next[s] = e < 0 ? -1 : links.first[e];
        if (e >= 0) {
          links.first[e] = static_cast<std::int32_t>(s);
          ++links.copies[e];
        }
      }
    } else {
      index_t const windows = (slots + link_window::size - 1) / link_window::size;
      for (index_t i = windows; i-- > 0;) {
        links.link_window_of(team, owner, i * link_window::size, slots);
      }
    }
  }

 private:
  /// Links the slots from `begin` on to those after them, whose lists are complete.
  template <class Team>
  PLIMSOLL_HD void link_window_of(Team& team, std::int32_t const* owner, index_t begin,
                                  index_t slots) const {
    linked_slots const links = *this;
    index_t const size = minimum{}(link_window::size, slots - begin);
    team.for_each(size, [=](index_t i) {
      std::int32_t const e = owner[begin + i];
      std::int32_t following = -1;
      std::int32_t alike = 0;
      bool is_first = e >= 0;
      PLIMSOLL_NO_UNROLL
      for (index_t j = size; j-- > 0;) {
        bool const is_alike = e >= 0 && owner[begin + j] == e;
        alike += is_alike ? 1 : 0;
        following = is_alike && j > i ? static_cast<std::int32_t>(begin + j) : following;
        is_first = is_first && !(is_alike && j < i);
      }
      links.window.next[i] = e >= 0 && following < 0 ? links.first[e] : following;
      links.window.heading[i] = is_first ? e : -1;
      if (is_first) {
        links.copies[e] += alike;
      }
    });
    team.for_each(size, [=](index_t i) {
      links.next[begin + i] = links.window.next[i];
      if (links.window.heading[i] >= 0) {
        links.first[links.window.heading[i]] = static_cast<std::int32_t>(begin + i);
      }
    });
  }
};

/// Links the slots of every expert. Overwrites the slot map `owner`, which becomes `next`.
template <class Team>
PLIMSOLL_HD linked_slots link_slots(Team& team, scratch& memory, std::int32_t* owner, index_t slots,
                                    index_t experts) {
  auto const links = linked_slots::in(memory, experts, owner);
  links.link(team, owner, slots, experts);
  return links;
}

/// Outputs to write from a slot map; empty ones are not written.
struct map_outputs {
  matrix_ref<std::int32_t> physical_to_logical = {};
  matrix_ref<std::int32_t> replica_count = {};
  matrix_ref<std::int32_t> replica_offsets = {};  ///< with or without the end of the last list
  matrix_ref<std::int32_t> replica_slots = {};    ///< written together with `replica_offsets`
  tensor_ref<std::int32_t> logical_to_physical = {};
  matrix_ref<std::int32_t const> expected = {};  ///< slot map to compare with, instead of outputs
};

/// Converts one form to others, or compares it with a slot map. Problem = layer.
template <class Source>
struct map_body {
  using device_team = warp;

  Source source;
  index_t experts;
  map_outputs out;
  problem_report* reports = nullptr;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int32_t>(source.slots()) + source.scratch_bytes() +
           linked_slots::scratch_bytes(experts);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    auto* const owner = memory.take<std::int32_t>(source.slots());
    problem_report outcome = source.read(team, memory, layer, owner);
    if (!outcome.refused) {
      outcome = out.expected.data == nullptr ? write(team, memory, layer, owner)
                                             : compare(team, layer, owner);
    }
    team.single([=, this] { reports[layer] = outcome; });
  }

 private:
  template <class Team>
  PLIMSOLL_HD problem_report compare(Team& team, index_t layer, std::int32_t const* owner) const {
    index_t const slots = source.slots();
    auto const held = [=, this](index_t s) { return out.expected(layer, s); };
    index_t const unknown = first_where(
        team, slots, [=, this](index_t s) { return held(s) < -1 || held(s) >= experts; });
    if (unknown < slots) {
      return refusal(fault_kind::expert_id, unknown, held(unknown));
    }
    index_t const elsewhere =
        first_where(team, slots, [=](index_t s) { return owner[s] >= 0 && owner[s] != held(s); });
    if (elsewhere < slots) {
      return refusal(fault_kind::replica_elsewhere, owner[elsewhere], held(elsewhere), elsewhere);
    }
    index_t const unlisted =
        first_where(team, slots, [=](index_t s) { return owner[s] != held(s); });
    return unlisted < slots ? refusal(fault_kind::replica_unlisted, held(unlisted), unlisted)
                            : problem_report{};
  }

  template <class Team>
  PLIMSOLL_HD problem_report write(Team& team, scratch& memory, index_t layer,
                                   std::int32_t* owner) const {
    index_t const slots = source.slots();
    if (out.physical_to_logical.data != nullptr) {
      team.for_each(slots, [=, this](index_t s) { out.physical_to_logical(layer, s) = owner[s]; });
      return problem_report{};
    }
    linked_slots const links = link_slots(team, memory, owner, slots, experts);
    if (out.replica_count.data != nullptr) {
      team.for_each(experts,
                    [=, this](index_t e) { out.replica_count(layer, e) = links.copies[e]; });
    }
    if (out.logical_to_physical.data != nullptr) {
      index_t const width = out.logical_to_physical.extent(2);
      index_t const wide =
          first_where(team, experts, [=](index_t e) { return links.copies[e] > width; });
      if (wide < experts) {
        return refusal(fault_kind::replica_width, wide, width, links.copies[wide]);
      }
      team.for_each(experts, [=, this](index_t e) {
        index_t i = 0;
        for (std::int32_t slot = links.first[e]; slot >= 0; slot = links.next[slot]) {
          out.logical_to_physical(layer, e, i++) = slot;
        }
        for (; i < width; ++i) {
          out.logical_to_physical(layer, e, i) = -1;
        }
      });
    }
    if (out.replica_offsets.data != nullptr) {
      auto* const begin = links.copies;
      team.exclusive_scan(
          experts + 1, [=, n = experts](index_t e) { return e < n ? begin[e] : 0; }, begin);
      team.for_each(experts + 1, [=, this](index_t e) {
        if (e < out.replica_offsets.extent(1)) {
          out.replica_offsets(layer, e) = begin[e];
        }
        index_t position = begin[e];
        for (std::int32_t slot = e < experts ? links.first[e] : -1; slot >= 0;
             slot = links.next[slot]) {
          out.replica_slots(layer, position++) = slot;
        }
      });
      index_t const filled = begin[experts];
      team.for_each(slots - filled,
                    [=, this](index_t i) { out.replica_slots(layer, filled + i) = -1; });
    }
    return problem_report{};
  }
};

// ----- ranks -------------------------------------------------------------------------------------

/// Input form: slot map with the slot ranges of ranks.
struct ranked_source {
  slot_source source;
  slot_ranges ranges;

  PLIMSOLL_HD index_t slots() const { return source.slots(); }

  template <class Team>
  PLIMSOLL_HD problem_report read(Team& team, scratch& memory, index_t layer,
                                  std::int32_t* owner) const {
    index_t const ranks = ranges.ranks;
    index_t const falling = ranges.first_fault(team, layer);
    if (falling < ranks) {
      return refusal(fault_kind::rank_offsets, falling, ranges.end(layer, falling));
    }
    problem_report unknown = source.read(team, memory, layer, owner);
    if (unknown.refused) {
      index_t const rank = first_where(team, ranks, [=, this](index_t r) {
        return ranges.end(layer, r) > unknown.refused.where;
      });
      unknown.refused.also = rank < ranks ? rank : -1;
      return unknown;
    }
    index_t const last = ranges.end(layer, ranks - 1);
    index_t const stray =
        last + first_where(team, slots() - last, [=](index_t i) { return owner[last + i] >= 0; });
    return stray < slots() ? refusal(fault_kind::stray_slot, stray, owner[stray])
                           : problem_report{};
  }
};

inline ranked_source ranked_source_of(placement_ref const& placement, index_t experts) {
  auto const& map = placement.physical_to_logical;
  return {{map, experts}, {placement.rank_offsets, map.extent(1), placement.ranks}};
}

/// Body of `slots_to_ranks` and `slots_to_rank_rows`. Problem = layer.
struct slots_to_ranks_body {
  using device_team = warp;

  ranked_source source;
  tensor_ref<std::int32_t> rank_experts;
  bool keeps_empty;  ///< whether an empty slot takes an entry, too
  problem_report* reports = nullptr;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int32_t>(source.slots());
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    auto* const owner = memory.take<std::int32_t>(source.slots());
    problem_report outcome = source.read(team, memory, layer, owner);
    if (!outcome.refused) {
      outcome = write(team, layer, owner);
    }
    team.single([=, this] { reports[layer] = outcome; });
  }

 private:
  template <class Team>
  PLIMSOLL_HD problem_report write(Team& team, index_t layer, std::int32_t const* owner) const {
    slot_ranges const& ranges = source.ranges;
    index_t const width = rank_experts.extent(2);
    auto const entries = [=, this](index_t r) {
      index_t count = 0;
      for (index_t s = source.ranges.begin(layer, r); s < source.ranges.end(layer, r); ++s) {
        count += keeps_empty || owner[s] >= 0 ? 1 : 0;
      }
      return count;
    };
    index_t const wide =
        first_where(team, ranges.ranks, [=](index_t r) { return entries(r) > width; });
    if (wide < ranges.ranks) {
      return refusal(fault_kind::rank_width, wide, width, entries(wide));
    }
    team.for_each(ranges.ranks, [=, this](index_t r) {
      index_t i = 0;
      for (index_t s = source.ranges.begin(layer, r); s < source.ranges.end(layer, r); ++s) {
        if (keeps_empty || owner[s] >= 0) {
          rank_experts(layer, r, i++) = owner[s];
        }
      }
      for (; i < width; ++i) {
        rank_experts(layer, r, i) = -1;
      }
    });
    return problem_report{};
  }
};

/// Body of `ranks_to_slots`. Problem = layer.
struct ranks_to_slots_body {
  using device_team = warp;

  tensor_ref<std::int32_t const> rank_experts;
  matrix_ref<std::int32_t> physical_to_logical;
  matrix_ref<std::int32_t> rank_offsets;
  problem_report* reports = nullptr;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<index_t>(rank_experts.extent(1) + 1);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    auto* const begin = memory.take<index_t>(rank_experts.extent(1) + 1);
    problem_report const outcome = convert(team, layer, begin);
    team.single([=, this] { reports[layer] = outcome; });
  }

 private:
  template <class Team>
  PLIMSOLL_HD problem_report convert(Team& team, index_t layer, index_t* begin) const {
    index_t const ranks = rank_experts.extent(1);
    index_t const slots = physical_to_logical.extent(1);
    problem_report const bad_row = line_up(team, rank_experts, layer, fault_kind::rank_gap, begin);
    if (bad_row.refused) {
      return bad_row;
    }
    // Position of the first invalid expert id in a rank's list, or the length of the list.
    auto const unknown_of = [=, this](index_t r) {
      index_t i = 0;
      while (begin[r] + i < begin[r + 1] && rank_experts(layer, r, i) >= 0 &&
             rank_experts(layer, r, i) < expert_limit) {
        ++i;
      }
      return i;
    };
    index_t const unknown = first_where(
        team, ranks, [=](index_t r) { return begin[r] + unknown_of(r) < begin[r + 1]; });
    if (unknown < ranks) {
      return refusal(fault_kind::rank_entry, unknown,
                     rank_experts(layer, unknown, unknown_of(unknown)));
    }
    index_t const total = begin[ranks];
    if (total > slots) {
      return refusal(fault_kind::rank_total, -1, slots, total);
    }
    team.for_each(ranks + 1, [=, this](index_t r) {
      rank_offsets(layer, r) = static_cast<std::int32_t>(begin[r]);
      for (index_t position = begin[r]; r < ranks && position < begin[r + 1]; ++position) {
        physical_to_logical(layer, position) = rank_experts(layer, r, position - begin[r]);
      }
    });
    team.for_each(slots - total,
                  [=, this](index_t i) { physical_to_logical(layer, total + i) = -1; });
    return problem_report{};
  }
};

// ----- other ranks -------------------------------------------------------------------------------

/// Body of `resize_placement`. Problem = layer. The report's value is 1 for a fault of the new
/// ranks' slots, and 0 for others.
struct resize_placement_body {
  using device_team = warp;

  ranked_source source;
  vector_ref<std::int32_t const> source_ranks;
  slot_ranges ranges;
  matrix_ref<std::int32_t> physical_to_logical;
  matrix_ref<std::int32_t> replica_count;
  problem_report* reports = nullptr;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int32_t>(source.slots()) +
           scratch_bytes_of<std::int32_t>(source.ranges.ranks) +
           scratch_bytes_of<std::int32_t>(source.source.experts);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    auto* const owner = memory.take<std::int32_t>(source.slots());
    auto* const uses = memory.take<std::int32_t>(source.ranges.ranks);
    auto* const copies = memory.take<std::int32_t>(source.source.experts);
    problem_report outcome = source.read(team, memory, layer, owner);
    if (!outcome.refused) {
      outcome = examine(team, layer, owner, uses);
    }
    if (!outcome.refused) {
      write(team, layer, owner, copies);
    }
    team.single([=, this] { reports[layer] = outcome; });
  }

 private:
  /// Number of slots of a new rank that keep their experts.
  PLIMSOLL_HD index_t kept(index_t layer, index_t rank) const {
    std::int32_t const was = source_ranks[rank];
    return was < 0 ? 0
                   : minimum{}(ranges.end(layer, rank) - ranges.begin(layer, rank),
                               source.ranges.end(layer, was) - source.ranges.begin(layer, was));
  }

  template <class Team>
  PLIMSOLL_HD problem_report examine(Team& team, index_t layer, std::int32_t const* owner,
                                     std::int32_t* uses) const {
    index_t const ranks = ranges.ranks;
    index_t const before = source.ranges.ranks;
    index_t const unknown = first_where(team, ranks, [=, this](index_t r) {
      return source_ranks[r] < -1 || source_ranks[r] >= before;
    });
    if (unknown < ranks) {
      return refusal(fault_kind::source_rank, unknown, source_ranks[unknown], before);
    }
    team.histogram(
        ranks, [=, this](index_t r) { return source_ranks[r]; }, uses, before);
    index_t const twice = first_where(team, before, [=](index_t r) { return uses[r] > 1; });
    if (twice < before) {
      return refusal(fault_kind::source_twice, twice, uses[twice]);
    }
    problem_report outcome;
    index_t const falling = ranges.first_fault(team, layer);
    if (falling < ranks) {
      outcome = refusal(fault_kind::rank_offsets, falling, ranges.end(layer, falling));
      outcome.refused.side = fault_side::to;
      return outcome;
    }
    // The first slot that a rank has no room for, or -1.
    auto const left_out = [=, this](index_t r) {
      std::int32_t const was = source_ranks[r];
      index_t const end = was < 0 ? 0 : source.ranges.end(layer, was);
      index_t s = was < 0 ? 0 : source.ranges.begin(layer, was) + kept(layer, r);
      while (s < end && owner[s] < 0) {
        ++s;
      }
      return s < end ? s : index_t{-1};
    };
    index_t const full = first_where(team, ranks, [=](index_t r) { return left_out(r) >= 0; });
    if (full < ranks) {
      index_t const slot = left_out(full);
      outcome = refusal(fault_kind::rank_room, slot, owner[slot], full);
      outcome.refused.side = fault_side::to;
    }
    return outcome;
  }

  template <class Team>
  PLIMSOLL_HD void write(Team& team, index_t layer, std::int32_t const* owner,
                         std::int32_t* copies) const {
    index_t const ranks = ranges.ranks;
    index_t const end = ranges.end(layer, ranks - 1);
    team.for_each(ranks, [=, this](index_t r) {
      index_t const begin = ranges.begin(layer, r);
      index_t const keeps = kept(layer, r);
      index_t const from = keeps == 0 ? 0 : source.ranges.begin(layer, source_ranks[r]);
      for (index_t i = 0; begin + i < ranges.end(layer, r); ++i) {
        physical_to_logical(layer, begin + i) = i < keeps ? owner[from + i] : -1;
      }
    });
    team.for_each(ranges.slots - end,
                  [=, this](index_t i) { physical_to_logical(layer, end + i) = -1; });
    index_t const experts = source.source.experts;
    team.histogram(
        ranges.slots, [=, this](index_t s) { return physical_to_logical(layer, s); }, copies,
        experts);
    team.for_each(experts, [=, this](index_t e) { replica_count(layer, e) = copies[e]; });
  }
};

// ----- validate ----------------------------------------------------------------------------------

/// Body of `validate` for a placement. Problem = layer.
struct validation_body {
  using device_team = warp;

  ranked_source source;
  matrix_ref<std::int32_t const> replica_count;
  vector_ref<std::uint8_t const> active;  ///< `[ranks]` or empty
  index_t groups;  ///< number of groups of ranks with at most one replica of an expert; 0: no limit
  fault_kind shared;  ///< fault of a group with more
  problem_report* reports = nullptr;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int32_t>(source.slots()) +
           linked_slots::scratch_bytes(replica_count.extent(1));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    auto* const owner = memory.take<std::int32_t>(source.slots());
    problem_report outcome = source.read(team, memory, layer, owner);
    if (!outcome.refused) {
      outcome = examine(team, memory, layer, owner);
    }
    team.single([=, this] { reports[layer] = outcome; });
  }

 private:
  /// First slot of the first rank of a group.
  PLIMSOLL_HD index_t begin_of(index_t layer, index_t group) const {
    return source.ranges.begin(layer, group * source.ranges.ranks / groups);
  }

  template <class Team>
  PLIMSOLL_HD problem_report examine(Team& team, scratch& memory, index_t layer,
                                     std::int32_t* owner) const {
    slot_ranges const& ranges = source.ranges;
    index_t const experts = replica_count.extent(1);
    linked_slots const links = link_slots(team, memory, owner, source.slots(), experts);

    index_t const missing =
        first_where(team, experts, [=](index_t e) { return links.copies[e] == 0; });
    if (missing < experts) {
      return refusal(fault_kind::missing_expert, missing, 0);
    }
    index_t const miscounted = first_where(
        team, experts, [=, this](index_t e) { return links.copies[e] != replica_count(layer, e); });
    if (miscounted < experts) {
      return refusal(fault_kind::miscounted, miscounted, replica_count(layer, miscounted),
                     links.copies[miscounted]);
    }

    // An expert's slots are linked in rising order, so its replicas in one group are consecutive.
    auto const shared_in = [=, this](index_t group) {
      index_t const end = begin_of(layer, group + 1);
      index_t slot = begin_of(layer, group);
      while (slot < end && (links.next[slot] < 0 || links.next[slot] >= end)) {
        ++slot;
      }
      return slot;
    };
    index_t const crowded = first_where(
        team, groups, [=, this](index_t g) { return shared_in(g) < begin_of(layer, g + 1); });
    if (crowded < groups) {
      index_t replicas = 0;
      index_t const found = shared_in(crowded);
      for (index_t s = found; s >= 0 && s < begin_of(layer, crowded + 1); s = links.next[s]) {
        ++replicas;
      }
      return refusal(shared, source.source.map(layer, found), replicas, crowded);
    }

    if (active.data != nullptr) {
      auto const filled_in = [=, this](index_t r) {
        index_t slot = source.ranges.begin(layer, r);
        while (slot < source.ranges.end(layer, r) && source.source.map(layer, slot) < 0) {
          ++slot;
        }
        return slot;
      };
      index_t const dead = first_where(team, ranges.ranks, [=, this](index_t r) {
        return active[r] == 0 && filled_in(r) < source.ranges.end(layer, r);
      });
      if (dead < ranges.ranks) {
        index_t const slot = filled_in(dead);
        return refusal(fault_kind::dead_rank, slot, source.source.map(layer, slot), dead);
      }
    }
    return problem_report{};
  }
};

}}}  // namespace plimsoll::detail
