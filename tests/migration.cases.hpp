// SPDX-License-Identifier: Apache-2.0
// Tests of align, count_changes and changed_layers under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/minmax_lp.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "support/draws.hpp"
#include "support/generators.hpp"
#include "support/golden.hpp"
#include "support/hash.hpp"
#include "support/migration.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"

namespace plimsoll_test {

using namespace migration_support;

inline void check_by_hand(align_fn align) {
  // The new ranks 0, 1, 2 hold most of what ranks 1, 2, 0 held. Expert 5 moves from rank 1 to rank
  // 2.
  migration_case c{.experts = 6, .slots = 6, .from = {0, 1, 2, 5, 3, 4}, .to = {3, 2, 4, 5, 1, 0}};
  c.where.ranks = 3;
  aligned got = align(c);
  // The first two new ranks each share one expert with ranks 1 and 2: of both assignments the one
  // that the lower ranks get first.
  CHECK(got.map == ints{0, 1, 2, 3, 5, 4});
  CHECK(got.changes == longs{2, 0});
  CHECK(got.certificates == longs{2, 2, 1});
  // Where ranks share nothing, each takes the first label left, after one scan.
  c.to = {5, 4, 3, 2, 1, 0};
  c.from = {-1, -1, -1, -1, -1, -1};
  CHECK(align(c).map == c.to);
  CHECK(align(c).work == longs{3});
  c.from = {0, 1, 2, 5, 3, 4};
  c.to = {3, 2, 4, 5, 1, 0};
  // Without other labels only slots are exchanged: rank 1 keeps expert 5.
  c.relabel = relabeling::none;
  got = align(c);
  CHECK(got.map == ints{3, 2, 4, 5, 1, 0});
  CHECK(got.changes == longs{5, 0});
  CHECK(got.certificates == longs{5, 5, 1});
  CHECK(got.work == longs{0});
}

PLIMSOLL_TEST_CASE("align: ranks get the labels with which most experts stay, by hand", P,
                   PLIMSOLL_POLICIES) {
  check_by_hand(align_of<P>);
}

inline void check_slots_by_hand(align_fn align) {
  // Expert 2 had slots 0 and 3 and keeps the lower one. Expert 1 keeps slot 1 and fills another
  // one: a local copy. Experts 4 and 3 fill slots 2 and 3 in the order of the new placement, expert
  // 1 slot 4, and the empty slot comes last.
  migration_case c{
      .experts = 5, .slots = 6, .from = {2, 1, 0, 2, -1, -1}, .to = {4, -1, 3, 1, 2, 1}};
  aligned const got = align(
      {.experts = 5, .slots = 7, .from = {2, 1, 0, 2, -1, -1, -1}, .to = {4, -1, 3, 1, 2, 1, 0}});
  CHECK(got.map == ints{2, 1, 0, 4, 3, 1, -1});
  CHECK(got.changes == longs{2, 1});
  c.to = {4, 0, 3, 1, 2, 1};
  CHECK(align(c).map == ints{2, 1, 0, 4, 3, 1});
  // An expert in more slots than before keeps all of them, and the further copy fills a slot.
  c = {.experts = 2, .slots = 4, .from = {1, 0, 1, -1}, .to = {1, 1, 1, 0}};
  CHECK(align(c).map == ints{1, 0, 1, 1});
  CHECK(align(c).changes == longs{0, 1});
  // An expert that arrives in two slots moves once.
  c = {.experts = 2, .slots = 4, .from = {1, -1, -1, 1}, .to = {0, 0, 1, -1}};
  CHECK(align(c).map == ints{1, 0, 0, -1});
  CHECK(align(c).changes == longs{1, 1});
}

PLIMSOLL_TEST_CASE("align: experts that stay keep their slots, by hand", P, PLIMSOLL_POLICIES) {
  check_slots_by_hand(align_of<P>);
}

inline void check_kinds_by_hand(align_fn align) {
  // All of rank 0 moved to rank 2, and the reverse. Rank 1 is dead; what it holds cannot be read.
  migration_case c{
      .experts = 4, .slots = 6, .from = {0, 1, 3, 3, 2, 3}, .to = {2, 3, -1, -1, 0, 1}};
  c.where.ranks = 3;
  c.where.active = {1, 0, 1};
  CHECK(align(c).map == ints{0, 1, -1, -1, 2, 3});
  CHECK(align(c).changes == longs{0, 0});
  // A new placement may leave it as it is.
  migration_case same = c;
  same.to = {2, 3, 3, 3, 0, 1};
  CHECK(align(same).map == ints{0, 1, 3, 3, 2, 3});
  CHECK(align(same).changes == longs{0, 0});
  // Ranks of other speed or with other slots keep their labels.
  c.where.speeds = {1, 1, 2};
  CHECK(align(c).map == c.to);
  CHECK(align(c).changes == longs{4, 0});
  CHECK(align(c).certificates == longs{4, 4, 1});
  c.where = {.ranks = 3, .rank_offsets = {0, 2, 3, 6}};
  c.to = {2, 3, 2, 0, 1, -1};
  CHECK(align(c).map == ints{2, 3, 2, 0, 1, -1});
  // Ranks of a node stay together: rank by rank, nodes 0 and 1 exchange their labels, and so do the
  // ranks of each. Without nodes no expert would move.
  c = {.experts = 4, .slots = 4, .from = {0, 1, 2, 3}, .to = {3, 2, 0, 1}};
  c.where = {.ranks = 4, .nodes = 2};
  CHECK(align(c).map == ints{0, 1, 2, 3});
  c.to = {0, 2, 1, 3};
  CHECK(align(c).map == ints{0, 2, 1, 3});
  CHECK(align(c).certificates == longs{2, 2, 1});
  c.where.nodes = 1;
  CHECK(align(c).map == ints{0, 1, 2, 3});
  // Ranks may also have to stay on their node.
  c = {.experts = 4, .slots = 4, .from = {0, 1, 2, 3}, .to = {1, 0, 3, 2}};
  c.where = {.ranks = 4, .nodes = 2};
  c.relabel = relabeling::within_nodes;
  CHECK(align(c).map == c.from);
  c.to = {3, 2, 0, 1};
  CHECK(align(c).map == c.to);
  CHECK(align(c).certificates == longs{4, 4, 1});
  // Nodes of one rank and of two ranks.
  c = {.experts = 3, .slots = 3, .from = {0, 1, 2}, .to = {2, 0, 1}};
  c.where = {.ranks = 3, .nodes = 2};
  CHECK(align(c).map == ints{2, 1, 0});
}

PLIMSOLL_TEST_CASE("align: dead ranks, speeds, slots, nodes, by hand", P, PLIMSOLL_POLICIES) {
  check_kinds_by_hand(align_of<P>);
}

inline void check_layers_by_hand(align_fn align) {
  // The ranks change their labels in layers 0 and 2, in layer 1 they do not.
  migration_case c{.layers = 3,
                   .experts = 4,
                   .slots = 4,
                   .from = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3},
                   .to = {2, 3, 0, 1, 0, 1, 2, 3, 2, 3, 1, 0}};
  c.where.ranks = 2;
  aligned got = align(c);
  CHECK(got.map == c.from);
  CHECK(got.certificates == longs{0, 0, 1, 0, 0, 1, 0, 0, 1});
  // One exchange for all layers costs layer 1.
  c.relabel = relabeling::all_layers;
  got = align(c);
  CHECK(got.map == ints{0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3});
  CHECK(got.changes == longs{0, 0, 4, 0, 0, 0});
  CHECK(got.certificates == longs{4, 4, 1});
  // Ranks with equal slots in some layers only keep their labels.
  c.where.rank_offsets = {0, 2, 4, 0, 1, 4, 0, 2, 4};
  CHECK(align(c).changes == longs{4, 0, 0, 0, 4, 0});
  c.relabel = relabeling::per_layer;
  CHECK(align(c).map == c.from);
  // No layers.
  for (relabeling const relabel : {relabeling::per_layer, relabeling::all_layers}) {
    got = align({.layers = 0, .experts = 3, .slots = 4, .relabel = relabel});
    CHECK(got.changes.empty());
    CHECK(got.certificates.empty());
  }
}

PLIMSOLL_TEST_CASE("align: one exchange per layer, or one for all, by hand", P, PLIMSOLL_POLICIES) {
  check_layers_by_hand(align_of<P>);
}

/// Checks a result against all exchanges of labels of each relabeling. Returns whether they differ.
inline bool check_against_all(migration_case const& c, aligned const& got) {
  bool differ = false;
  index_t const step = c.relabel == relabeling::all_layers ? c.layers : 1;
  REQUIRE(std::ssize(got.certificates) == 3 * (c.layers / step));
  for (index_t first = 0; first < c.layers; first += step) {
    best_exchanges const best = slow_align(c, first, first + step);
    std::int64_t moves = 0;
    std::int64_t copies = 0;
    for (index_t layer = first; layer < first + step; ++layer) {
      auto const i = static_cast<std::size_t>(2 * layer);
      auto const [layer_moves, layer_copies] = slow_changes(c, got.map, layer);
      CHECK(got.changes[i] == layer_moves);
      CHECK(got.changes[i + 1] == layer_copies);
      moves += layer_moves;
      copies += layer_copies;
    }
    CHECK(moves == best.changes.first);
    CHECK(copies == best.changes.second);
    auto const i = static_cast<std::size_t>(3 * (first / step));
    CHECK(longs(&got.certificates[i], &got.certificates[i] + 3) == longs{moves, moves, 1});
    auto const begin = first * c.slots;
    auto const n = step * c.slots;
    CHECK(std::any_of(best.maps.begin(), best.maps.end(), [&](ints const& map) {
      return std::equal(map.begin() + begin, map.begin() + begin + n, got.map.begin() + begin);
    }));
    differ = differ || best.maps.front() != c.to;
  }
  return differ;
}

inline void check_random(align_fn align, longs (*count)(migration_case const&)) {
  fnv1a hash;
  int differ = 0;
  std::uint64_t const cases = cases_of(400);
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    migration_case c = random_migration(seed);
    aligned const got = align(c);
    differ += check_against_all(c, got) ? 1 : 0;
    longs before;
    for (index_t layer = 0; layer < c.layers; ++layer) {
      auto const [moves, copies] = slow_changes(c, c.to, layer);
      before.insert(before.end(), {moves, copies});
    }
    CHECK(count(c) == before);
    hash.add(got.map);
    hash.add(got.changes);
    hash.add(got.work);
    c.to = got.map;
    CHECK(count(c) == got.changes);
    // Another alignment gains nothing.
    CHECK(align(c).certificates == got.certificates);
  }
  CHECK(differ > static_cast<int>(cases / 2));
  if (cases == 400) {
    report_hash("migration.align_random", hash.value());
  }
}

PLIMSOLL_TEST_CASE("align: equals the best of all exchanges on random pairs", P,
                   PLIMSOLL_POLICIES) {
  check_random(align_of<P>, changes_of<P>);
}

PLIMSOLL_TEST_CASE(
    "align: int64 outputs, the output in place of the new placement, and the call "
    "that returns a plan",
    P, PLIMSOLL_POLICIES) {
  for (std::uint64_t seed = 0; seed < cases_of(40); ++seed) {
    CAPTURE(seed);
    migration_case const c = random_migration(seed);
    aligned const expected = align_of<P>(c);
    CHECK((align_of<P, std::int64_t>(c) == expected));
    CHECK((align_in_place<P>(c) == expected));
    if constexpr (can_be_kept<P>) {
      placements_in<P> const in(c);
      auto const made = plimsoll::align(make_policy<P>(), in.from(), in.to(), in.options());
      CHECK((with_report(made.physical_to_logical.to_host(), made.alignment) == expected));
      CHECK(made.replica_count.to_host() ==
            ints(static_cast<std::size_t>(c.layers * c.experts), 1));
      CHECK(made.ref().ranks == c.where.ranks);
    }
  }
}

/// Peaks of every layer under an even split and under an optimal one.
template <class P>
std::vector<double> peaks_of(migration_case const& c, ints const& map, longs const& loads) {
  array_in<std::int64_t, P> const loads_in(loads);
  array_in<std::int32_t, P> const map_in(map);
  ints counts(static_cast<std::size_t>(c.layers * c.experts), 0);
  for (std::size_t i = 0; i < map.size(); ++i) {
    if (map[i] >= 0) {
      ++counts[static_cast<std::size_t>(static_cast<index_t>(i) / c.slots * c.experts + map[i])];
    }
  }
  array_in<std::int32_t, P> const counts_in(counts);
  options_in<P> const where(c.where, c.layers);
  placement_ref const placement{map_in.view2(c.layers, c.slots),
                                counts_in.view2(c.layers, c.experts), c.where.ranks,
                                (*where).rank_offsets};
  array_in<double, P> even(c.layers * c.where.ranks);
  plimsoll::rank_loads(make_policy<P>(), loads_in.view2(c.layers, c.experts), placement,
                       even.view2(c.layers, c.where.ranks));
  std::vector<double> result = even.values();
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i] /=
        c.where.speeds.empty() ? 1 : c.where.speeds[i % static_cast<std::size_t>(c.where.ranks)];
  }
  for (index_t layer = 0; layer < c.layers; ++layer) {
    std::sort(result.begin() + layer * c.where.ranks, result.begin() + (layer + 1) * c.where.ranks);
  }
  if constexpr (can_be_kept<P>) {
    array_in<double, P> split(c.layers * c.slots);
    plimsoll::rank_set on = (*where).on;
    on.nodes = 1;
    plimsoll::minmax_lp lp(make_policy<P>(), placement, {.on = on, .tolerance = 0});
    lp.solve(loads_in.view2(c.layers, c.experts), split.view2(c.layers, c.slots));
    for (plimsoll::certificate const& one : plimsoll::read(make_policy<P>(), lp.certificates())) {
      result.push_back(one.value);
    }
  }
  return result;
}

PLIMSOLL_TEST_CASE("align: rank loads and optimal peaks do not change", P, PLIMSOLL_POLICIES) {
  for (std::uint64_t seed = 0; seed < cases_of(40); ++seed) {
    CAPTURE(seed);
    migration_case const c = seed % 4 == 0 ? large_migration(seed, 12, 5) : random_migration(seed);
    longs const loads = random_integers(seed, c.layers * c.experts, 0, 1000);
    std::vector<double> const before = peaks_of<P>(c, c.to, loads);
    std::vector<double> const after = peaks_of<P>(c, align_of<P>(c).map, loads);
    REQUIRE(after.size() == before.size());
    for (std::size_t i = 0; i < before.size(); ++i) {
      CHECK(after[i] == doctest::Approx(before[i]).epsilon(1e-9));
    }
  }
}

inline void check_large(align_fn align, longs (*count)(migration_case const&)) {
  fnv1a hash;
  for (index_t const ranks : {16, 33, 70}) {
    for (index_t const nodes : {1, 3}) {
      CAPTURE(ranks);
      migration_case c = large_migration(3, ranks, 6);
      c.where.nodes = nodes;
      for (relabeling const relabel : {relabeling::none, relabeling::within_nodes,
                                       relabeling::per_layer, relabeling::all_layers}) {
        c.relabel = relabel;
        aligned const got = align(c);
        for (std::size_t i = 0; i < got.certificates.size(); i += 3) {
          CHECK(got.certificates[i] == got.certificates[i + 1]);
          CHECK(got.certificates[i + 2] == 1);
        }
        hash.add(got.map);
        hash.add(got.work);
        migration_case now = c;
        now.to = got.map;
        CHECK(count(now) == got.changes);
      }
    }
  }
  report_hash("migration.align_large", hash.value());
}

PLIMSOLL_TEST_CASE("align: many ranks, with proofs", P, PLIMSOLL_POLICIES) {
  check_large(align_of<P>, changes_of<P>);
}

inline void check_golden(align_fn align) {
  // Optima of SciPy's linear_sum_assignment; tests/support/migration_golden.py made the cases.
  int compared = 0;
  for (std::string const name : {"64x5", "8x40", "16x5_nodes"}) {
    CAPTURE(name);
    golden_case const golden(std::filesystem::path(PLIMSOLL_TESTS_DIR) / "golden" / "migration" /
                             name);
    migration_case c{.layers = golden.integer("layers"),
                     .experts = golden.integer("experts"),
                     .slots = golden.integer("slots"),
                     .from = golden.array<std::int32_t>("from"),
                     .to = golden.array<std::int32_t>("to")};
    c.where = {.ranks = golden.integer("ranks"), .nodes = golden.integer("nodes")};
    REQUIRE(std::ssize(c.from) == c.layers * c.slots);
    CHECK(align(c).changes == golden.array<std::int64_t>("per_layer"));
    c.relabel = relabeling::all_layers;
    aligned const got = align(c);
    longs sums(2, 0);
    for (std::size_t i = 0; i < got.changes.size(); ++i) {
      sums[i % 2] += got.changes[i];
    }
    CHECK(sums == golden.array<std::int64_t>("all_layers"));
    ++compared;
  }
  CHECK(compared == 3);
}

PLIMSOLL_TEST_CASE("align: the optima of another solver", P, PLIMSOLL_POLICIES) {
  check_golden(align_of<P>);
}

PLIMSOLL_TEST_CASE("count_changes: the maps as they are, by hand", P, PLIMSOLL_POLICIES) {
  // Rank 0 holds both experts already, but in other slots. Expert 2 arrives on rank 1 in two slots;
  // the slot that becomes empty does not count.
  migration_case c{.layers = 2,
                   .experts = 3,
                   .slots = 6,
                   .from = {0, 1, 2, 1, 1, 0, 0, 1, 2, 1, 1, 0},
                   .to = {1, 0, 2, 2, 2, -1, 0, 1, 2, 1, 1, 0}};
  c.where.ranks = 2;
  CHECK(changes_of<P>(c) == longs{1, 3, 0, 0});
  CHECK(changed_layers_of<P>(c) == longs{0});
  // A slot that becomes empty, or no longer is, changes its layer.
  c.from = c.to;
  CHECK(changed_layers_of<P>(c).empty());
  c.to[11] = -1;
  CHECK(changed_layers_of<P>(c) == longs{1});
  CHECK(changes_of<P>(c) == longs(4, 0));
  std::swap(c.from, c.to);
  CHECK(changed_layers_of<P>(c) == longs{1});
  CHECK(changes_of<P>(c) == longs{0, 0, 1, 0});
  // Of the placement in use experts may be missing.
  std::fill(c.from.begin(), c.from.end(), -1);
  CHECK(changes_of<P>(c) == longs{4, 1, 5, 1});
}

inline void check_refusals(align_fn align, longs (*count)(migration_case const&)) {
  migration_case const good{.layers = 2,
                            .experts = 3,
                            .slots = 5,
                            .from = {0, 1, 2, 0, -1, 0, 1, 2, 0, -1},
                            .to = {1, 2, 0, 1, -1, 1, 2, 0, 1, -1},
                            .where = {.ranks = 2, .rank_offsets = {0, 2, 4, 0, 2, 4}}};
  auto const refused = [&](migration_case c, std::string const& message) {
    for (relabeling const relabel : {relabeling::none, relabeling::within_nodes,
                                     relabeling::per_layer, relabeling::all_layers}) {
      c.relabel = relabel;
      check_message(refusal_of([&] { align(c); }), "align: " + message);
    }
    check_message(refusal_of([&] { count(c); }), "count_changes: " + message);
  };
  CHECK(align(good).changes.size() == 4);
  migration_case c = good;
  c.from[7] = 3;
  refused(c,
          "from.physical_to_logical: expected -1 or an expert of the layer, got 3 in layer 1, slot "
          "2");
  c = good;
  c.to[6] = -2;
  refused(c,
          "to.physical_to_logical: expected -1 or an expert of the layer, got -2 in layer 1, slot "
          "1");
  c = good;
  c.from[4] = 1;
  refused(c,
          "from.physical_to_logical: expected -1 in slots of dead ranks and of no rank, got 1 in "
          "layer 0, slot 4");
  c = good;
  c.to[9] = 1;
  refused(c,
          "to.physical_to_logical: expected -1 in slots of dead ranks and of no rank, got 1 in "
          "layer 1, slot 4");
  c = good;
  c.where.active = {0, 1};
  refused(c,
          "to.physical_to_logical: expected -1 in slots of dead ranks and of no rank, got 1 in "
          "layer 0, slot 0");
  c.to = {-1, -1, 0, 1, -1, -1, -1, 0, 1, -1};
  refused(c,
          "to.physical_to_logical: expected every expert on a live rank, got "
          "none in layer 0, expert 2");
  c = good;
  c.where.active = {0, 0};
  refused(c, "on.active: expected at least 1 live rank, got 0");
  c = good;
  c.where.rank_offsets = {0, 2, 4, 0, 6, 4};
  refused(c,
          "from.rank_offsets: expected offsets that rise from 0 to at most the number of slots, "
          "got 6 in layer 1, rank 0");
  c.where.rank_offsets = {0, 2, 4, -7, 3, 2000000000};
  refused(c,
          "from.rank_offsets: expected offsets that rise from 0 to at most the number of slots, "
          "got 3 in layer 1, rank 0");
  c = good;
  c.where.speeds = {1, 0};
  refused(c, "on.speeds: expected values from 2^-64 to 2^64, got 0 in layer 0, rank 1");
  c.where.speeds = {1, std::numeric_limits<double>::quiet_NaN()};
  refused(c, "on.speeds: expected values from 2^-64 to 2^64, got NaN in layer 0, rank 1");
}

PLIMSOLL_TEST_CASE("align: bad values are named", P, PLIMSOLL_POLICIES) {
  check_refusals(align_of<P>, changes_of<P>);
}

PLIMSOLL_TEST_CASE("align: both placements have the same rank offsets", P, PLIMSOLL_POLICIES) {
  array_in<std::int32_t, P> const map(ints{0, 1, 1, 0});
  array_in<std::int32_t, P> const counts(ints{2, 2});
  array_in<std::int32_t, P> const offsets(ints{0, 1, 4});
  array_in<std::int32_t, P> out(4, -7);
  placement_ref const from{map.view2(1, 4), counts.view2(1, 2), 2};
  placement_ref to = from;
  to.rank_offsets = offsets.view2(1, 3);
  check_message(
      refusal_of([&] { plimsoll::align(make_policy<P>(), from, to, {}, out.view2(1, 4)); }),
      "align: to.rank_offsets: expected the slots of from, which end at 2, got 1 in "
      "layer 0, rank 0");
}

}  // namespace plimsoll_test
