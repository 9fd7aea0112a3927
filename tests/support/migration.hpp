// SPDX-License-Identifier: Apache-2.0
// Pairs of placements, calls of align, count_changes and changed_layers under every policy, and
// their results by the definition: all exchanges of labels are tried.
#pragma once

#include <plimsoll/migration.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "draws.hpp"
#include "hash.hpp"
#include "owned.hpp"
#include "placement_inputs.hpp"
#include "planning_oracle.hpp"
#include "policies.hpp"

namespace plimsoll_test::migration_support {

using plimsoll::alignment_options;
using plimsoll::alignment_report;
using plimsoll::placement_ref;
using plimsoll::relabeling;
using plimsoll::slot_changes;

using longs = std::vector<std::int64_t>;

struct migration_case {
  index_t layers = 1;
  index_t experts = 1;
  index_t slots = 1;
  ints from = {};  ///< [layers, slots]
  ints to = {};    ///< [layers, slots]
  host_options where = {};
  relabeling relabel = relabeling::per_layer;

  [[nodiscard]] std::int32_t const* row(ints const& map, index_t layer) const {
    return map.data() + layer * slots;
  }
};

/// The two placements of a case in the memory of a policy.
template <class P>
class placements_in {
 public:
  explicit placements_in(migration_case const& c)
      : layers_(c.layers),
        slots_(c.slots),
        from_(c.from),
        to_(c.to),
        counts_(c.layers * c.experts, 1),  // only the shape is read
        where_(c.where, c.layers),
        options_{(*where_).on, c.relabel} {}

  [[nodiscard]] placement_ref from() const { return of(from_); }
  [[nodiscard]] placement_ref to() const { return of(to_); }
  [[nodiscard]] alignment_options const& options() const { return options_; }
  /// The array of the new placement.
  [[nodiscard]] array_in<std::int32_t, P>& to_array() { return to_; }

 private:
  [[nodiscard]] placement_ref of(array_in<std::int32_t, P> const& map) const {
    return {map.view2(layers_, slots_),
            counts_.view2(layers_, layers_ == 0 ? 1 : counts_.size() / layers_), options_.on.ranks,
            (*where_).rank_offsets};
  }

  index_t layers_;
  index_t slots_;
  array_in<std::int32_t, P> from_;
  array_in<std::int32_t, P> to_;
  array_in<std::int32_t, P> counts_;
  options_in<P> where_;
  alignment_options options_;
};

/// Results and outputs of a call of align.
struct aligned {
  ints map;
  longs changes;       ///< [layers, 2]: moves and local copies
  longs certificates;  ///< [relabelings, 3]: moves, bound, whether optimal
  longs work;

  bool operator==(aligned const&) const = default;
};

inline longs numbers_of(std::vector<slot_changes> const& layers) {
  longs result;
  for (slot_changes const& one : layers) {
    result.insert(result.end(), {one.moves, one.local_copies});
  }
  return result;
}

inline aligned with_report(ints map, alignment_report const& report) {
  aligned result{std::move(map), numbers_of(report.layers), {}, {}};
  for (plimsoll::certificate const& one : report.certificates) {
    bool const is_optimal = one.status == plimsoll::certificate_status::optimal;
    result.certificates.insert(result.certificates.end(),
                               {static_cast<std::int64_t>(one.value),
                                static_cast<std::int64_t>(one.lower_bound), is_optimal ? 1 : 0});
    result.work.push_back(one.work);
  }
  return result;
}

template <class P, class Id = std::int32_t>
aligned align_of(migration_case const& c) {
  placements_in<P> const in(c);
  array_in<Id, P> out(c.layers * c.slots, -7);
  auto const report = plimsoll::align(make_policy<P>(), in.from(), in.to(), in.options(),
                                      out.view2(c.layers, c.slots));
  return with_report(as_int32(out.values()), report);
}
using align_fn = aligned (*)(migration_case const&);

/// Writes to the array of the new placement.
template <class P>
aligned align_in_place(migration_case const& c) {
  placements_in<P> in(c);
  auto const report = plimsoll::align(make_policy<P>(), in.from(), in.to(), in.options(),
                                      in.to_array().view2(c.layers, c.slots));
  return with_report(in.to_array().values(), report);
}

template <class P>
longs changes_of(migration_case const& c) {
  placements_in<P> const in(c);
  return numbers_of(plimsoll::count_changes(make_policy<P>(), in.from(), in.to(), in.options()));
}

template <class P>
longs changed_layers_of(migration_case const& c) {
  placements_in<P> const in(c);
  return plimsoll::changed_layers(make_policy<P>(), in.from(), in.to());
}

// ----- by the definition -------------------------------------------------------------------------

/// Moves, then local copies, of the maps as they are.
inline std::pair<std::int64_t, std::int64_t> slow_changes(migration_case const& c, ints const& to,
                                                          index_t layer) {
  oracle::site const where = site_of(c.where, c.slots, layer, c.experts);
  std::int32_t const* const old_map = c.row(c.from, layer);
  std::int32_t const* const new_map = c.row(to, layer);
  std::int64_t moves = 0;
  std::int64_t changed = 0;
  for (std::size_t r = 0; r < where.ranks(); ++r) {
    std::set<std::int32_t> const held(old_map + where.offsets[r], old_map + where.offsets[r + 1]);
    std::set<std::int32_t> arrived;
    for (std::int64_t s = where.offsets[r]; s < where.offsets[r + 1]; ++s) {
      changed += new_map[s] >= 0 && new_map[s] != old_map[s] ? 1 : 0;
      if (new_map[s] >= 0 && held.count(new_map[s]) == 0) {
        arrived.insert(new_map[s]);
      }
    }
    moves += std::ssize(arrived);
  }
  return {moves, changed - moves};
}

/// Gives each new rank r the label labels[r] in a layer of `map`, and lets experts that stay keep
/// their slots.
inline void slow_relabel(migration_case const& c, std::vector<std::size_t> const& labels,
                         index_t layer, ints& map) {
  oracle::site const where = site_of(c.where, c.slots, layer, c.experts);
  std::int32_t const* const old_map = c.row(c.from, layer);
  std::int32_t const* const new_map = c.row(c.to, layer);
  std::int32_t* const out = map.data() + layer * c.slots;
  std::fill(out, out + c.slots, -1);
  for (std::size_t r = 0; r < where.ranks(); ++r) {
    std::int64_t const first = where.offsets[labels[r]];
    std::int64_t const last = where.offsets[labels[r] + 1];
    ints arriving;
    for (std::int64_t s = where.offsets[r]; s < where.offsets[r + 1]; ++s) {
      std::int64_t keeps = first;
      while (keeps < last && (old_map[keeps] != new_map[s] || out[keeps] >= 0)) {
        ++keeps;
      }
      if (new_map[s] >= 0 && keeps < last) {
        out[keeps] = new_map[s];
      } else if (new_map[s] >= 0) {
        arriving.push_back(new_map[s]);
      }
    }
    std::int64_t next = first;
    for (std::int32_t const e : arriving) {
      while (out[next] >= 0) {
        ++next;
      }
      out[next] = e;
    }
  }
}

/// Returns whether new ranks may have these labels in a layer: ranks with equal slots, speed and
/// liveness, and those of a node stay together, or on the node.
inline bool may_have(migration_case const& c, std::vector<std::size_t> const& labels,
                     index_t layer) {
  oracle::site const where = site_of(c.where, c.slots, layer, c.experts);
  std::map<std::size_t, std::size_t> node_label;
  for (std::size_t r = 0; r < where.ranks(); ++r) {
    std::size_t const p = labels[r];
    auto const slots = [&](std::size_t k) { return where.offsets[k + 1] - where.offsets[k]; };
    bool const alike = slots(r) == slots(p) &&
                       (where.speeds.empty() || where.speeds[r] == where.speeds[p]) &&
                       (where.active.empty() || (where.active[r] != 0) == (where.active[p] != 0));
    auto const [entry, is_new] = node_label.emplace(where.node_of(r), where.node_of(p));
    bool const stays =
        c.relabel != relabeling::within_nodes || where.node_of(r) == where.node_of(p);
    if (!alike || !stays || entry->second != where.node_of(p)) {
      return false;
    }
  }
  return true;
}

/// The exchanges of labels of some layers with the fewest moves, and of these the ones with the
/// fewest local copies.
struct best_exchanges {
  std::pair<std::int64_t, std::int64_t> changes{-1, -1};
  std::vector<ints> maps;  ///< of all layers; other layers are those of `to`
};

inline best_exchanges slow_align(migration_case const& c, index_t first, index_t last) {
  best_exchanges best;
  std::vector<std::size_t> labels(static_cast<std::size_t>(c.where.ranks));
  std::iota(labels.begin(), labels.end(), std::size_t{0});
  do {
    bool allowed = c.relabel != relabeling::none || std::is_sorted(labels.begin(), labels.end());
    for (index_t layer = first; layer < last; ++layer) {
      allowed = allowed && may_have(c, labels, layer);
    }
    if (!allowed) {
      continue;
    }
    ints map = c.to;
    std::pair<std::int64_t, std::int64_t> changes{0, 0};
    for (index_t layer = first; layer < last; ++layer) {
      slow_relabel(c, labels, layer, map);
      auto const [moves, copies] = slow_changes(c, map, layer);
      changes.first += moves;
      changes.second += copies;
    }
    if (best.maps.empty() || changes < best.changes) {
      best = {changes, {}};
    }
    if (changes == best.changes) {
      best.maps.push_back(std::move(map));
    }
  } while (std::next_permutation(labels.begin(), labels.end()));
  return best;
}

// ----- random cases ------------------------------------------------------------------------------

/// Fills the slots of a layer: every expert on a live rank at least once if `complete`, where there
/// are enough slots; other slots at random, with copies on one rank and empty slots.
inline ints random_map(draws& draw, migration_case const& c, index_t layer, bool is_new) {
  oracle::site const where = site_of(c.where, c.slots, layer, c.experts);
  ints map(static_cast<std::size_t>(c.slots), -1);
  std::vector<std::size_t> usable;
  for (std::size_t r = 0; r < where.ranks(); ++r) {
    for (std::int64_t s = where.offsets[r]; s < where.offsets[r + 1]; ++s) {
      if (!is_new || where.room(r) > 0) {
        usable.push_back(static_cast<std::size_t>(s));
      }
    }
  }
  for (std::size_t i = usable.size(); i > 1; --i) {
    std::swap(usable[i - 1],
              usable[static_cast<std::size_t>(draw.among(0, static_cast<std::int64_t>(i) - 1))]);
  }
  std::int32_t next = 0;
  for (std::size_t const slot : usable) {
    auto const any = draw.among(-1, c.experts - 1);
    map[slot] = is_new && next < c.experts ? next : any;
    ++next;
  }
  return map;
}

/// Returns a pair on at most 5 ranks.
inline migration_case random_migration(std::uint64_t seed) {
  draws draw(seed);
  migration_case c{.layers = draw.among(1, 3), .experts = draw.among(1, 6)};
  c.relabel = draw.any(
      {relabeling::per_layer, relabeling::all_layers, relabeling::within_nodes, relabeling::none});
  c.where.ranks = draw.among(1, 5);
  c.where.nodes = draw.one_in(2) ? 1 : draw.among(1, c.where.ranks);
  if (draw.one_in(3)) {
    c.where.active.assign(static_cast<std::size_t>(c.where.ranks), 1);
    c.where.active[static_cast<std::size_t>(draw.among(0, c.where.ranks - 1))] =
        c.where.ranks == 1 ? 1 : 0;
  }
  if (draw.one_in(4)) {
    for (index_t r = 0; r < c.where.ranks; ++r) {
      c.where.speeds.push_back(draw.any({1.0, 1.0, 2.0}));
    }
  }
  index_t const live = c.where.ranks - (c.where.active.empty() || c.where.ranks == 1 ? 0 : 1);
  index_t const least = (c.experts + live - 1) / live;  // slots of a rank
  c.slots = c.where.ranks * (least + draw.among(0, 2));
  c.slots += draw.among(0, c.where.ranks - 1);
  if (draw.one_in(2)) {
    index_t most = 0;
    bool const same = draw.one_in(2);
    for (index_t layer = 0; layer < c.layers; ++layer) {
      std::int32_t end = 0;
      for (index_t r = 0; r <= c.where.ranks; ++r) {
        c.where.rank_offsets.push_back(
            same && layer > 0 ? c.where.rank_offsets[static_cast<std::size_t>(r)] : end);
        end += static_cast<std::int32_t>(least) + draw.any({0, 0, 1});
      }
      most = std::max<index_t>(most, c.where.rank_offsets.back());
    }
    c.slots = most + draw.among(0, 2);
  }
  for (index_t layer = 0; layer < c.layers; ++layer) {
    ints const from = random_map(draw, c, layer, false);
    ints to = random_map(draw, c, layer, true);
    if (draw.one_in(5) && c.where.rank_offsets.empty() && layer > 0) {
      to.assign(c.to.end() - c.slots, c.to.end());
    }
    c.from.insert(c.from.end(), from.begin(), from.end());
    c.to.insert(c.to.end(), to.begin(), to.end());
  }
  return c;
}

/// Returns a pair with many ranks: a shuffled placement, and the same with other labels and some
/// slots exchanged.
inline migration_case large_migration(std::uint64_t seed, index_t ranks, index_t slots_of_rank) {
  draws draw(seed);
  migration_case c{
      .layers = 2, .experts = ranks * slots_of_rank * 4 / 5, .slots = ranks * slots_of_rank};
  c.where.ranks = ranks;
  auto const shuffle = [&](ints& values, std::size_t first, std::size_t n) {
    for (std::size_t i = n; i > 1; --i) {
      std::swap(values[first + i - 1], values[first + static_cast<std::size_t>(draw.among(
                                                          0, static_cast<std::int64_t>(i) - 1))]);
    }
  };
  for (index_t layer = 0; layer < c.layers; ++layer) {
    ints row;
    for (std::int32_t s = 0; s < c.slots; ++s) {
      row.push_back(s < c.experts ? s : draw.among(0, c.experts / 8));
    }
    shuffle(row, 0, row.size());
    c.from.insert(c.from.end(), row.begin(), row.end());
    ints labels(static_cast<std::size_t>(ranks));
    std::iota(labels.begin(), labels.end(), 0);
    shuffle(labels, 0, labels.size());
    ints next;
    for (std::int32_t const p : labels) {
      next.insert(next.end(), row.begin() + p * slots_of_rank,
                  row.begin() + (p + 1) * slots_of_rank);
    }
    for (index_t r = 0; r < ranks; ++r) {
      shuffle(next, static_cast<std::size_t>(r * slots_of_rank),
              static_cast<std::size_t>(slots_of_rank));
    }
    for (index_t i = 0; i < c.slots / 3; ++i) {
      std::swap(next[static_cast<std::size_t>(draw.among(0, c.slots - 1))],
                next[static_cast<std::size_t>(draw.among(0, c.slots - 1))]);
    }
    c.to.insert(c.to.end(), next.begin(), next.end());
  }
  return c;
}

}  // namespace plimsoll_test::migration_support
