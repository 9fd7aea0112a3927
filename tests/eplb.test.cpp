// SPDX-License-Identifier: Apache-2.0
// Tests of eplb under the host's policies; shapes.
#include "eplb.cases.hpp"

#include <cstdlib>
#include <numeric>

#include "support/generators.hpp"

namespace plimsoll_test {

TEST_CASE("eplb: shapes are checked") {
  ints loads(6, 1);
  ints map(8);
  ints counts(6);
  auto const run = [&](index_t map_layers, index_t count_layers, index_t count_experts) {
    plimsoll::eplb(plimsoll::seq, plimsoll::matrix_ref<std::int32_t>(loads.data(), 2, 3),
                   {.on = {.ranks = 2}},
                   plimsoll::matrix_ref<std::int32_t>(map.data(), map_layers, 4),
                   plimsoll::matrix_ref<std::int32_t>(counts.data(), count_layers, count_experts));
  };
  CHECK_NOTHROW(run(2, 2, 3));
  CHECK_THROWS_WITH_AS(run(1, 2, 3), "eplb: physical_to_logical: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 1, 3), "eplb: replica_count: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 2, 2), "eplb: replica_count: expected 3 experts, got 2",
                       plimsoll::invalid_input);
}

/// DeepSeek's algorithm, literally: load / copies and sums in float32, ties to the first. Exact
/// arithmetic runs alongside, in units of 1/2520 token, so that load / copies is whole for up to 10
/// copies.
struct literal_eplb {
  static constexpr std::int64_t unit = 2520;
  ints map;
  ints counts;
  /// True if some decision was between numbers that are equal, or that float32 may treat as equal.
  /// Ties between empty ranks do not count: both algorithms take the first.
  bool has_tie = false;

  literal_eplb(ints const& loads, index_t ranks, index_t slots)
      : map(static_cast<std::size_t>(slots)), counts(loads.size(), 1) {
    ints expert_of(loads.size());
    std::iota(expert_of.begin(), expert_of.end(), 0);
    auto const share = [&](std::size_t e) {
      return static_cast<float>(loads[e]) / static_cast<float>(counts[e]);
    };
    auto const exact = [&](std::size_t e) { return loads[e] * unit / counts[e]; };
    while (std::ssize(expert_of) < slots) {
      std::size_t best = 0;
      for (std::size_t e = 1; e < loads.size(); ++e) {
        best = share(e) > share(best) ? e : best;
      }
      for (std::size_t e = 0; e < loads.size(); ++e) {
        has_tie = has_tie || (e != best && is_close(exact(e), exact(best)));
      }
      ++counts[best];
      has_tie = has_tie || counts[best] > 10;
      expert_of.push_back(static_cast<std::int32_t>(best));
    }
    if (slots == ranks) {
      map = expert_of;  // the reference does not sort if each rank has one slot
      return;
    }
    auto const at = [](std::int32_t e) { return static_cast<std::size_t>(e); };
    std::stable_sort(expert_of.begin(), expert_of.end(),
                     [&](std::int32_t a, std::int32_t b) { return share(at(a)) > share(at(b)); });
    for (std::size_t a = 0; a < loads.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        has_tie = has_tie || is_close(exact(a), exact(b));
      }
    }
    auto const n = static_cast<std::size_t>(ranks);
    auto const room = static_cast<std::size_t>(slots) / n;
    std::vector<float> sum(n, 0);
    std::vector<std::int64_t> exact_sum(n, 0);
    std::vector<std::size_t> used(n, 0);
    for (std::int32_t const e : expert_of) {
      std::size_t best = n;
      for (std::size_t r = 0; r < n; ++r) {
        best = used[r] < room && (best == n || sum[r] < sum[best]) ? r : best;
      }
      for (std::size_t r = 0; r < n; ++r) {
        has_tie = has_tie || (r != best && used[r] < room && used[r] + used[best] > 0 &&
                              is_close(exact_sum[r], exact_sum[best]));
      }
      map[best * room + used[best]++] = e;
      sum[best] += share(at(e));
      exact_sum[best] += exact(at(e));
    }
  }

 private:
  /// Relative difference of at most 1e-5, many times the error of so few roundings to float32.
  static bool is_close(std::int64_t a, std::int64_t b) {
    return 100000 * std::abs(a - b) <= std::max(a, b);
  }
};

TEST_CASE("eplb: equals DeepSeek's result slot by slot if no comparison ties") {
  std::int64_t compared = 0;
  std::int64_t tied = 0;
  for (std::uint64_t seed = 0; seed < cases_of(3000); ++seed) {
    CAPTURE(seed);
    generator draw(seed);
    index_t const experts = draw.between(1, 12);
    index_t const ranks = draw.between(1, 6);
    index_t const room = (experts + ranks - 1) / ranks + draw.between(0, 3);
    ints loads;
    for (index_t e = 0; e < experts; ++e) {
      loads.push_back(static_cast<std::int32_t>(draw.between(1, seed % 4 == 0 ? 30 : 100000)));
    }
    literal_eplb const expected(loads, ranks, ranks * room);
    planned<plimsoll::seq_policy> const got(loads, 1, experts, {.on = {.ranks = ranks}},
                                            ranks * room);
    if (expected.has_tie) {
      ++tied;
      continue;
    }
    ++compared;
    REQUIRE(got.counts == expected.counts);
    REQUIRE(got.map == expected.map);
  }
  CHECK(compared > cases_of(900));
  CHECK(tied > cases_of(100));
}

TEST_CASE("eplb: if rank sums tie, the reference's rounding decides differently") {
  // Load / copies is 22/3, 8, 10, 5 and 26/3: all differ. Two ranks have 52/3 when expert 3 is
  // placed.
  ints const loads{22, 8, 10, 5, 26};
  literal_eplb const reference(loads, 3, 9);
  CHECK(reference.has_tie);
  CHECK(reference.map == ints{2, 0, 0, 4, 4, 3, 4, 1, 0});
  planned<plimsoll::seq_policy> const got(loads, 1, 5, {.on = {.ranks = 3}}, 9);
  CHECK(got.counts == reference.counts);
  CHECK(got.map == ints{2, 0, 3, 4, 4, 0, 4, 1, 0});
}

/// Generated loads that count their calls.
struct counted_loads {
  int* calls;
  std::int32_t operator()(index_t, index_t e) const {
    ++*calls;
    return static_cast<std::int32_t>(e);
  }
};

TEST_CASE("eplb: options are checked before anything runs") {
  int calls = 0;
  ints map(8, -7);
  ints counts(4, -7);
  auto const run = [&](plimsoll::anti_affinity replica_anti_affinity) {
    plimsoll::eplb(plimsoll::seq, plimsoll::generate(counted_loads{&calls}, 1, 4),
                   {.on = {.ranks = 4, .nodes = 2},
                    .groups = 2,
                    .replica_anti_affinity = replica_anti_affinity},
                   plimsoll::matrix_ref<std::int32_t>(map.data(), 1, 8),
                   plimsoll::matrix_ref<std::int32_t>(counts.data(), 1, 4));
  };
  CHECK_THROWS_WITH_AS(run(plimsoll::anti_affinity::node),
                       "eplb: options.replica_anti_affinity: expected none or rank, since "
                       "every expert stays on one node, got node",
                       plimsoll::invalid_input);
  CHECK(calls == 0);
  CHECK(map == ints(8, -7));
  CHECK(counts == ints(4, -7));
  run(plimsoll::anti_affinity::rank);
  CHECK(calls > 0);
}

TEST_CASE("eplb: any shape with any options gives a valid plan or an error") {
  std::uint64_t planned_shapes = 0;
  std::uint64_t hierarchical = 0;
  for (std::uint64_t seed = 0; seed < cases_of(4000); ++seed) {
    generator draw(seed);
    index_t const groups = draw.between(1, 6);
    index_t const experts = groups * draw.between(1, 6);
    index_t const ranks = draw.between(1, 9);
    index_t const nodes = draw.between(1, ranks);
    index_t const slots = experts + draw.between(0, 2 * experts);
    CAPTURE(seed);
    plimsoll::eplb_options options{.on = {.ranks = ranks, .nodes = nodes}, .groups = groups};
    options.policy = static_cast<plimsoll::eplb_policy>(draw.between(0, 2));
    options.refine = static_cast<plimsoll::eplb_refinement>(draw.between(0, 2));
    options.replica_anti_affinity = static_cast<plimsoll::anti_affinity>(draw.between(0, 2));
    options.anti_affinity_strength = static_cast<plimsoll::strictness>(draw.between(0, 1));
    bool const groups_on_nodes =
        options.policy == plimsoll::eplb_policy::hierarchical ||
        (options.policy == plimsoll::eplb_policy::automatic && groups > 1 && groups % nodes == 0);
    if (groups_on_nodes && options.replica_anti_affinity == plimsoll::anti_affinity::node) {
      options.replica_anti_affinity = plimsoll::anti_affinity::rank;
    }
    std::vector<std::uint8_t> active;
    std::vector<double> speeds;
    for (index_t r = 0; r < ranks; ++r) {
      active.push_back(static_cast<std::uint8_t>(draw.between(0, 7) > 0));
      speeds.push_back(static_cast<double>(draw.between(1, 8)) / 4);
    }
    if (draw.between(0, 2) > 0) {
      active.assign(active.size(), 1);
    }
    if (draw.between(0, 2) > 0) {
      speeds.clear();
    }
    std::vector<std::int64_t> loads = skewed_loads(2, experts, seed);
    if (draw.between(0, 9) == 0) {
      loads.assign(loads.size(), draw.between(0, 1) * 7);
    }

    // Number of slots of each node's live ranks.
    std::vector<index_t> on_node(static_cast<std::size_t>(nodes), 0);
    index_t usable = 0;
    for (index_t node = 0; node < nodes; ++node) {
      for (index_t r = node * ranks / nodes; r < (node + 1) * ranks / nodes; ++r) {
        index_t const count = (r + 1) * slots / ranks - r * slots / ranks;
        on_node[static_cast<std::size_t>(node)] += active[static_cast<std::size_t>(r)] * count;
      }
      usable += on_node[static_cast<std::size_t>(node)];
    }
    index_t places = 0;
    for (index_t const count : on_node) {
      places += count / (experts / groups);
    }
    bool const fits = usable >= experts && (!groups_on_nodes || places >= groups);
    std::string refusal;
    try {
      planned<plimsoll::seq_policy> const got(loads, 2, experts, options, slots, active, speeds);
      ++planned_shapes;
      CHECK(fits);
      for (index_t layer = 0; layer < 2; ++layer) {
        auto const at = static_cast<std::size_t>(layer);
        plimsoll::certificate const& c = got.certificates[at];
        CHECK(c.lower_bound <= c.value);
        if (groups_on_nodes) {
          ++hierarchical;
          CHECK(
              groups_stay_together(nodes_of(got.map, layer, experts, slots, ranks, nodes), groups));
        }
        double peak = 0;
        index_t filled = 0;
        for (index_t r = 0; r < ranks; ++r) {
          double load = 0;
          for (index_t slot = r * slots / ranks; slot < (r + 1) * slots / ranks; ++slot) {
            std::int32_t const e = got.map[static_cast<std::size_t>(layer * slots + slot)];
            if (e >= 0) {
              auto const of = static_cast<std::size_t>(layer * experts + e);
              load += static_cast<double>(loads[of]) / got.counts[of];
              ++filled;
            }
          }
          peak =
              std::max(peak, load / (speeds.empty() ? 1.0 : speeds[static_cast<std::size_t>(r)]));
        }
        CHECK(c.value == doctest::Approx(peak).epsilon(1e-9));
        if (options.anti_affinity_strength == plimsoll::strictness::preferred ||
            options.replica_anti_affinity == plimsoll::anti_affinity::none) {
          index_t expected = usable;
          if (groups_on_nodes) {  // slots of a node without groups stay free
            ints const node_of = nodes_of(got.map, layer, experts, slots, ranks, nodes);
            for (index_t node = 0; node < nodes; ++node) {
              bool const empty = std::count(node_of.begin(), node_of.end(), node) == 0;
              expected -= empty ? on_node[static_cast<std::size_t>(node)] : 0;
            }
          }
          CHECK(filled == expected);
        }
      }
      if (options.refine != plimsoll::eplb_refinement::none) {
        plimsoll::eplb_options plain = options;
        plain.refine = plimsoll::eplb_refinement::none;
        planned<plimsoll::seq_policy> const before(loads, 2, experts, plain, slots, active, speeds);
        CHECK(got.certificates[0].value <= before.certificates[0].value);
        CHECK(got.certificates[1].value <= before.certificates[1].value);
      }
    } catch (plimsoll::invalid_input const& error) {
      refusal = error.what();
    }
    CAPTURE(refusal);
    // Required anti-affinity is never refused: the counts are chosen so that it can be satisfied.
    CHECK(fits == refusal.empty());
  }
  CHECK(planned_shapes > cases_of(3000));
  CHECK(hierarchical > cases_of(500));
}

TEST_CASE("eplb: owned placements check the number of slots") {
  plimsoll::array const loads(plimsoll::seq, ints{5, 6, 7}, 1, 3);
  auto const plan = [&](index_t slots, index_t ranks) {
    static_cast<void>(plimsoll::eplb(plimsoll::seq, loads, slots, {.on = {.ranks = ranks}}));
  };
  CHECK_NOTHROW(plan(3, 2));
  CHECK_THROWS_WITH_AS(plan(2, 2),
                       "eplb: slots: expected 3 to 32769 slots (at least one per expert), got 2",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(plan(-3, 2),
                       "eplb: slots: expected 3 to 32769 slots (at least one per expert), got -3",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(plan(4, 0), "eplb: options.on.ranks: expected 1 to 32767 ranks, got 0",
                       plimsoll::invalid_input);
}

}  // namespace plimsoll_test
