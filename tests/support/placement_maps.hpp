// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of placement_maps, calls under every policy, and what the results must be.
#pragma once

#include <plimsoll/placement_maps.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "generators.hpp"
#include "hash.hpp"
#include "policies.hpp"

namespace plimsoll_test::placement_maps_support {

using plimsoll::anti_affinity;
using plimsoll::index_t;
using ints = std::vector<std::int32_t>;
using named = std::pair<char const*, index_t>;

/// A sequence of random integers.
class map_draws : public generator {
 public:
  using generator::generator;
  bool once_in(index_t n) { return between(1, n) == 1; }
  template <class T>
  void shuffle(std::vector<T>& values, std::size_t first, std::size_t last) {
    for (std::size_t i = last; i > first + 1; --i) {
      auto const n = static_cast<index_t>(i - first) - 1;
      std::swap(values[i - 1], values[first + static_cast<std::size_t>(between(0, n))]);
    }
  }
};

/// One placement in all its forms, computed without the library.
struct forms {
  index_t layers = 0;
  index_t experts = 0;
  index_t ranks = 0;
  index_t slots = 0;
  index_t copies_width = 0;
  index_t ranks_width = 0;
  bool even = false;  ///< without offsets
  index_t row_width = 0;
  ints map, counts, rank_offsets, replica_offsets, replica_slots, padded, rank_experts, rank_rows;

  [[nodiscard]] std::size_t slot(index_t layer, index_t s) const {
    return static_cast<std::size_t>(layer * slots + s);
  }
  [[nodiscard]] index_t rank_begin(index_t layer, index_t rank) const {
    return rank_offsets[static_cast<std::size_t>(layer * (ranks + 1) + rank)];
  }

  /// Computes all other forms from the map and the rank offsets.
  void derive(index_t spare_width) {
    counts.clear(), replica_offsets.clear(), replica_slots.clear();
    padded.clear(), rank_experts.clear(), rank_rows.clear();
    copies_width = ranks_width = row_width = 1;
    std::vector<ints> of_experts, of_ranks;
    for (index_t l = 0; l < layers; ++l) {
      replica_offsets.push_back(0);
      for (index_t e = 0; e < experts; ++e) {
        ints list;
        for (index_t s = 0; s < slots; ++s) {
          if (map[slot(l, s)] == e) {
            list.push_back(static_cast<std::int32_t>(s));
          }
        }
        counts.push_back(static_cast<std::int32_t>(list.size()));
        replica_offsets.push_back(replica_offsets.back() + counts.back());
        replica_slots.insert(replica_slots.end(), list.begin(), list.end());
        copies_width = std::max<index_t>(copies_width, counts.back());
        of_experts.push_back(list);
      }
      replica_slots.resize(static_cast<std::size_t>((l + 1) * slots), -1);
      for (index_t r = 0; r < ranks; ++r) {
        ints list;
        for (index_t s = rank_begin(l, r); s < rank_begin(l, r + 1); ++s) {
          if (map[slot(l, s)] >= 0) {
            list.push_back(map[slot(l, s)]);
          }
        }
        ranks_width = std::max(ranks_width, static_cast<index_t>(list.size()));
        row_width = std::max(row_width, rank_begin(l, r + 1) - rank_begin(l, r));
        of_ranks.push_back(list);
      }
    }
    copies_width += spare_width;
    ranks_width += spare_width;
    row_width += spare_width;
    for (index_t row = 0; row < layers * ranks; ++row) {
      for (index_t i = 0; i < row_width; ++i) {
        index_t const s = rank_begin(row / ranks, row % ranks) + i;
        bool const exists = s < rank_begin(row / ranks, row % ranks + 1);
        rank_rows.push_back(exists ? map[slot(row / ranks, s)] : -1);
      }
    }
    for (ints& list : of_experts) {
      list.resize(static_cast<std::size_t>(copies_width), -1);
      padded.insert(padded.end(), list.begin(), list.end());
    }
    for (ints& list : of_ranks) {
      list.resize(static_cast<std::size_t>(ranks_width), -1);
      rank_experts.insert(rank_experts.end(), list.begin(), list.end());
    }
  }

  /// Returns the map and the rank offsets with all empty slots moved to the end.
  [[nodiscard]] std::pair<ints, ints> packed() const {
    ints packed_map, offsets;
    for (index_t l = 0; l < layers; ++l) {
      auto const begin = packed_map.size();
      for (index_t r = 0; r <= ranks; ++r) {
        offsets.push_back(static_cast<std::int32_t>(packed_map.size() - begin));
        for (index_t s = rank_begin(l, r); r < ranks && s < rank_begin(l, r + 1); ++s) {
          if (map[slot(l, s)] >= 0) {
            packed_map.push_back(map[slot(l, s)]);
          }
        }
      }
      packed_map.resize(begin + static_cast<std::size_t>(slots), -1);
    }
    return {packed_map, offsets};
  }
};

/// A random valid placement, with uneven ranks, empty slots and slots of no rank.
inline forms random_forms(std::uint64_t seed, index_t most_experts) {
  map_draws draw(seed);
  forms f;
  f.layers = draw.between(0, 9) == 0 ? 0 : draw.between(1, 4);
  f.experts = draw.between(1, most_experts);
  f.ranks = draw.between(1, 12);
  f.slots = f.experts + draw.between(0, 2 * f.experts);
  f.even = draw.once_in(3);
  for (index_t l = 0; l < f.layers; ++l) {
    index_t const used = f.even || draw.once_in(2) ? f.slots : draw.between(f.experts, f.slots);
    ints offsets{0};
    for (index_t r = 1; r < f.ranks; ++r) {
      offsets.push_back(
          static_cast<std::int32_t>(f.even ? r * f.slots / f.ranks : draw.between(0, used)));
    }
    offsets.push_back(static_cast<std::int32_t>(used));
    std::sort(offsets.begin(), offsets.end());
    f.rank_offsets.insert(f.rank_offsets.end(), offsets.begin(), offsets.end());
    ints row;
    for (index_t s = 0; s < used; ++s) {
      row.push_back(static_cast<std::int32_t>(s < f.experts     ? s
                                              : draw.once_in(3) ? -1
                                                                : draw.between(0, f.experts - 1)));
    }
    draw.shuffle(row, 0, row.size());
    row.resize(static_cast<std::size_t>(f.slots), -1);
    f.map.insert(f.map.end(), row.begin(), row.end());
  }
  f.derive(draw.between(0, 2));
  return f;
}

/// A placement on other ranks, computed without the library.
struct resized {
  ints source_ranks, map, counts, rank_offsets;
  index_t slots = 0;

  [[nodiscard]] index_t ranks() const { return static_cast<index_t>(source_ranks.size()); }

  /// Some of the ranks of `f` in any order, with ranks that join between them, and room for all.
  resized(forms const& f, std::uint64_t seed) {
    map_draws draw(seed);
    for (index_t r = 0; r < f.ranks; ++r) {
      if (!draw.once_in(4)) {
        source_ranks.push_back(static_cast<std::int32_t>(r));
      }
    }
    source_ranks.resize(source_ranks.size() + static_cast<std::size_t>(draw.between(0, 3)), -1);
    if (source_ranks.empty()) {
      source_ranks.push_back(-1);
    }
    draw.shuffle(source_ranks, 0, source_ranks.size());
    std::vector<ints> rows;
    for (index_t l = 0; l < f.layers; ++l) {
      ints row;
      rank_offsets.push_back(0);
      for (std::int32_t const from : source_ranks) {
        for (index_t s = from < 0 ? 0 : f.rank_begin(l, from);
             from >= 0 && s < f.rank_begin(l, from + 1); ++s) {
          row.push_back(f.map[f.slot(l, s)]);
        }
        if (draw.once_in(2) && row.size() > static_cast<std::size_t>(rank_offsets.back()) &&
            row.back() < 0) {
          row.pop_back();  // an empty last slot may go
        }
        row.resize(row.size() + static_cast<std::size_t>(draw.between(0, 2)), -1);
        rank_offsets.push_back(static_cast<std::int32_t>(row.size()));
      }
      slots = std::max(slots, static_cast<index_t>(row.size()));
      rows.push_back(row);
    }
    slots += draw.between(0, 2);
    slots = std::max<index_t>(slots, 1);
    for (ints& row : rows) {
      row.resize(static_cast<std::size_t>(slots), -1);
      for (std::int32_t e = 0; e < f.experts; ++e) {
        counts.push_back(static_cast<std::int32_t>(std::count(row.begin(), row.end(), e)));
      }
      map.insert(map.end(), row.begin(), row.end());
    }
  }
};

/// All forms in the memory of a policy.
template <class P>
struct stored {
  forms f;
  array_in<std::int32_t, P> map, counts, rank_offsets, replica_offsets, replica_slots, padded,
      rank_experts;

  explicit stored(forms const& from)
      : f(from),
        map(from.map),
        counts(from.counts),
        rank_offsets(from.rank_offsets),
        replica_offsets(from.replica_offsets),
        replica_slots(from.replica_slots),
        padded(from.padded),
        rank_experts(from.rank_experts) {}

  [[nodiscard]] plimsoll::placement_ref placement() const {
    plimsoll::placement_ref result{
        map.view2(f.layers, f.slots), counts.view2(f.layers, f.experts), f.ranks, {}};
    if (!f.even) {
      result.rank_offsets = rank_offsets.view2(f.layers, f.ranks + 1);
    }
    return result;
  }
  [[nodiscard]] plimsoll::replica_lists_ref replicas() const {
    return {replica_offsets.view2(f.layers, f.experts + 1), replica_slots.view2(f.layers, f.slots)};
  }
  [[nodiscard]] plimsoll::tensor_ref<std::int32_t const> inverse() const {
    return padded.view3(f.layers, f.experts, f.copies_width);
  }
  [[nodiscard]] plimsoll::tensor_ref<std::int32_t const> lists() const {
    return rank_experts.view3(f.layers, f.ranks, f.ranks_width);
  }
};

/// End of a message: layer and position of the fault.
template <class... Parts>
std::string at(index_t layer, Parts const&... parts) {
  std::string text = " in layer " + std::to_string(layer);
  auto const add = [&](std::pair<char const*, index_t> const& part) {
    text += std::string(", ") + part.first + " " + std::to_string(part.second);
  };
  (add(parts), ...);
  return text;
}

struct rules {
  anti_affinity replica_anti_affinity = anti_affinity::none;
  index_t nodes = 1;
  std::vector<std::uint8_t> active;
};

/// Expected message of `validate` for a placement, found by plain loops in the documented order.
inline std::string first_fault(forms const& f, rules const& r) {
  std::string const map = "validate: physical_to_logical: expected ";
  for (index_t l = 0; l < f.layers; ++l) {
    auto const expert = [&](index_t s) { return index_t{f.map[f.slot(l, s)]}; };
    auto const begin = [&](index_t rank) { return f.rank_begin(l, rank); };
    for (index_t rank = 0; rank < f.ranks; ++rank) {
      if ((rank == 0 && begin(0) != 0) || begin(rank) > begin(rank + 1) ||
          begin(rank + 1) > f.slots) {
        return "validate: rank_offsets: expected offsets that rise from 0 to at most the number of "
               "slots, got " +
               std::to_string(begin(rank + 1)) + at(l, named{"rank", rank});
      }
    }
    auto const rank_of = [&](index_t s) {
      index_t rank = 0;
      while (rank < f.ranks && begin(rank + 1) <= s) {
        ++rank;
      }
      return rank;
    };
    for (index_t s = 0; s < f.slots; ++s) {
      if (expert(s) < -1 || expert(s) >= f.experts) {
        std::string const got =
            map + "-1 or an expert of the layer, got " + std::to_string(expert(s));
        return rank_of(s) < f.ranks ? got + at(l, named{"rank", rank_of(s)}, named{"slot", s})
                                    : got + at(l, named{"slot", s});
      }
    }
    for (index_t s = begin(f.ranks); s < f.slots; ++s) {
      if (expert(s) >= 0) {
        return map + "-1 in slots that belong to no rank, got " + std::to_string(expert(s)) +
               at(l, named{"slot", s});
      }
    }
    std::vector<index_t> held;
    for (index_t e = 0; e < f.experts; ++e) {
      held.push_back(std::count(f.map.begin() + l * f.slots, f.map.begin() + (l + 1) * f.slots, e));
    }
    for (index_t e = 0; e < f.experts; ++e) {
      if (held[static_cast<std::size_t>(e)] == 0) {
        return map + "every expert on a live rank, got none" + at(l, named{"expert", e});
      }
    }
    for (index_t e = 0; e < f.experts; ++e) {
      index_t const stated = f.counts[static_cast<std::size_t>(l * f.experts + e)];
      if (held[static_cast<std::size_t>(e)] != stated) {
        return "validate: replica_count: expected " +
               std::to_string(held[static_cast<std::size_t>(e)]) +
               " copies, as in physical_to_logical, got " + std::to_string(stated) +
               at(l, named{"expert", e});
      }
    }
    bool const on_nodes = r.replica_anti_affinity == anti_affinity::node;
    index_t const groups = r.replica_anti_affinity == anti_affinity::none ? 0
                           : on_nodes                                     ? r.nodes
                                                                          : f.ranks;
    for (index_t g = 0; g < groups; ++g) {
      index_t const first = begin(g * f.ranks / groups);
      index_t const last = begin((g + 1) * f.ranks / groups);
      for (index_t s = first; s < last; ++s) {
        index_t replicas = 0;
        for (index_t other = first; other < last; ++other) {
          replicas += expert(other) == expert(s) ? 1 : 0;
        }
        if (expert(s) >= 0 && replicas > 1) {
          char const* const group = on_nodes ? "node" : "rank";
          return map + "at most 1 replica of an expert on a " + group + ", got " +
                 std::to_string(replicas) + at(l, named{group, g}, named{"expert", expert(s)});
        }
      }
    }
    for (index_t s = 0; s < begin(f.ranks) && !r.active.empty(); ++s) {
      if (expert(s) >= 0 && r.active[static_cast<std::size_t>(rank_of(s))] == 0) {
        return map + "-1 in the slots of a rank that is not active, got " +
               std::to_string(expert(s)) + at(l, named{"rank", rank_of(s)}, named{"slot", s});
      }
    }
  }
  return "no error";
}

/// Expected message of `validate` for an inverse in either form, found by plain loops.
inline std::string first_difference(forms const& f, bool padded) {
  std::string const lists = std::string("validate: ") +
                            (padded ? "logical_to_physical" : "replica_slots") + ": expected ";
  for (index_t l = 0; l < f.layers; ++l) {
    std::vector<ints> of(static_cast<std::size_t>(f.experts));
    if (padded) {
      for (index_t e = 0; e < f.experts; ++e) {
        bool over = false;
        for (index_t i = 0; i < f.copies_width; ++i) {
          std::int32_t const slot =
              f.padded[static_cast<std::size_t>((l * f.experts + e) * f.copies_width + i)];
          if (slot != -1 && over) {
            return lists + "-1 only behind all slots of an expert, got slot " +
                   std::to_string(slot) + " behind a -1" + at(l, named{"expert", e});
          }
          over = slot == -1;
          if (!over) {
            of[static_cast<std::size_t>(e)].push_back(slot);
          }
        }
      }
    } else {
      auto const offset = [&](index_t e) {
        return index_t{f.replica_offsets[static_cast<std::size_t>(l * (f.experts + 1) + e)]};
      };
      for (index_t e = 0; e <= f.experts; ++e) {
        if (e == 0 ? offset(0) != 0 : offset(e) < offset(e - 1) || offset(e) > f.slots) {
          return "validate: replica_offsets: expected offsets that rise from 0 to at most the "
                 "number of slots, got " +
                 std::to_string(offset(e)) + at(l, named{"offset", e});
        }
      }
      for (index_t e = 0; e < f.experts; ++e) {
        for (index_t i = offset(e); i < offset(e + 1); ++i) {
          of[static_cast<std::size_t>(e)].push_back(f.replica_slots[f.slot(l, i)]);
        }
      }
    }
    for (index_t e = 0; e < f.experts; ++e) {
      for (std::int32_t const slot : of[static_cast<std::size_t>(e)]) {
        if (slot < 0 || slot >= f.slots) {
          return lists + "slots from 0 to below the number of slots, got " + std::to_string(slot) +
                 at(l, named{"expert", e});
        }
      }
    }
    std::vector<index_t> owner(static_cast<std::size_t>(f.slots), -1);
    for (index_t e = 0; e < f.experts; ++e) {
      for (std::int32_t const slot : of[static_cast<std::size_t>(e)]) {
        if (owner[static_cast<std::size_t>(slot)] >= 0) {
          return lists + "every slot once, got slot " + std::to_string(slot) + " again" +
                 at(l, named{"expert", e});
        }
        owner[static_cast<std::size_t>(slot)] = e;
      }
    }
    for (index_t s = 0; s < f.slots; ++s) {
      if (f.map[f.slot(l, s)] < -1 || f.map[f.slot(l, s)] >= f.experts) {
        return "validate: physical_to_logical: expected -1 or an expert of the layer, got " +
               std::to_string(f.map[f.slot(l, s)]) + at(l, named{"slot", s});
      }
    }
    for (index_t s = 0; s < f.slots; ++s) {
      index_t const listed = owner[static_cast<std::size_t>(s)];
      if (listed >= 0 && f.map[f.slot(l, s)] != listed) {
        return lists + "slots that hold the expert, got slot " + std::to_string(s) +
               ", which holds " + std::to_string(f.map[f.slot(l, s)]) +
               at(l, named{"expert", listed});
      }
    }
    for (index_t s = 0; s < f.slots; ++s) {
      if (owner[static_cast<std::size_t>(s)] < 0 && f.map[f.slot(l, s)] >= 0) {
        return lists + "every slot that holds the expert, got no slot " + std::to_string(s) +
               at(l, named{"expert", f.map[f.slot(l, s)]});
      }
    }
  }
  return "no error";
}

}  // namespace plimsoll_test::placement_maps_support
