// SPDX-License-Identifier: Apache-2.0
// Tests of placement under the host's policies; every team, shapes, temporaries.
#include "placement.cases.hpp"

#include <set>
#include <utility>

#include "support/random_placement.hpp"
#include "support/report_values.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

/// Runs four layers, the last of which has an invalid load, in every team. `counts` is repeated.
inline void check_place_in_teams(index_t experts, ints const& counts, index_t slots,
                                 host_options const& options) {
  CAPTURE(experts);
  auto loads = as<float>(skewed_loads(4, experts, 9));
  loads.back() = -1;
  ints copies;
  for (std::size_t i = 0; i < loads.size(); ++i) {
    copies.push_back(counts[i % counts.size()]);
  }
  ints map(static_cast<std::size_t>(4 * slots), -7);
  std::vector<plimsoll::detail::problem_report> reports(4);
  options_in<plimsoll::seq_policy> const where(options, 4);
  using view = plimsoll::matrix_ref<float const>;
  plimsoll::detail::placement_body<view> const body{
      view(loads.data(), 4, experts),
      plimsoll::matrix_ref<std::int32_t const>(copies.data(), 4, experts),
      plimsoll::detail::topology_of(*where, slots),
      plimsoll::detail::rule_of(*where),
      where->load_exponent,
      plimsoll::matrix_ref<std::int32_t>(map.data(), 4, slots),
      reports.data()};
  check_all_teams(body, 4, map, [&] { return report_values(reports); });
}

/// Repeats a row for four layers.
inline ints repeated(ints const& row) {
  ints all;
  for (int layer = 0; layer < 4; ++layer) {
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

TEST_CASE("placement: the same bits in every team") {
  constexpr anti_affinity rank = anti_affinity::rank;
  constexpr anti_affinity node = anti_affinity::node;
  SUBCASE("plain") {
    check_place_in_teams(1, {1}, 1, {.ranks = 1});
    check_place_in_teams(40, {1}, 45, {.ranks = 7});
    check_place_in_teams(40, {1}, 45, {.ranks = 7, .load_exponent = 0.85});
    check_place_in_teams(15, {1, 2, 1, 3, 1}, 30, {.ranks = 9});
    check_place_in_teams(40, {1}, 40, {.ranks = 40});
    check_place_in_teams(30, {1, 1, 1, 1, 2}, 36, {.ranks = 36});
    check_place_in_teams(5, {1}, 9, {.ranks = 3});
  }
  SUBCASE("dead ranks, and slots of no rank") {
    check_place_in_teams(
        20, {1, 2}, 60,
        {.ranks = 4, .rank_offsets = repeated({0, 11, 22, 40, 55}), .active = {1, 0, 1, 1}});
    check_place_in_teams(20, {1, 2}, 60, {.ranks = 60, .active = std::vector<std::uint8_t>(60, 0)});
  }
  SUBCASE("speeds") {
    check_place_in_teams(12, {1, 2, 3}, 30, {.ranks = 5, .speeds = {1, 2.5, 1, 0.1, 7}});
    check_place_in_teams(12, {1}, 90, {.ranks = 2, .speeds = {1, 0}});
  }
  SUBCASE("anti-affinity") {
    check_place_in_teams(12, {1, 2, 3}, 24, {.ranks = 4, .replica_anti_affinity = rank});
    check_place_in_teams(12, {1, 2, 5}, 34,
                         {.ranks = 7, .nodes = 3, .replica_anti_affinity = node});
    check_place_in_teams(12, {1, 2, 3}, 34,
                         {.ranks = 7,
                          .nodes = 3,
                          .replica_anti_affinity = node,
                          .anti_affinity_strength = strictness::required});
    // The first layers need augmenting paths.
    check_place_in_teams(6, {4, 4, 2, 2, 3, 1}, 16,
                         {.ranks = 4,
                          .rank_offsets = repeated({0, 6, 10, 14, 16}),
                          .replica_anti_affinity = rank,
                          .anti_affinity_strength = strictness::required});
  }
  SUBCASE("node lists") {
    host_options options = listed_nodes();
    options.node_experts.insert(options.node_experts.end(), options.node_experts.begin(),
                                options.node_experts.end());
    options.node_offsets.insert(options.node_offsets.end(), options.node_offsets.begin(),
                                options.node_offsets.end());
    check_place_in_teams(12, {1, 2}, 49, options);
    check_place_in_teams(12, {1, 2}, 28, options);  // layer 0 has too few slots
    options.replica_anti_affinity = rank;
    options.anti_affinity_strength = strictness::required;
    options.speeds = {1, 2, 3, 4, 5, 6, 7};
    check_place_in_teams(12, {1, 2}, 49, options);
    options.node_experts[15] = 0;  // duplicate in layer 1
    options.node_offsets[10] = 13;
    check_place_in_teams(12, {1, 2}, 49, options);
  }
}

TEST_CASE("placement: groups get the same bits in every team") {
  auto const check = [](index_t experts, index_t groups, index_t slots,
                        host_options const& options) {
    CAPTURE(experts);
    auto loads = as<float>(skewed_loads(4, experts, 9));
    loads.back() = -1;  // the last layer is refused
    ints lists(loads.size(), -7);
    ints offsets(static_cast<std::size_t>(4 * (options.nodes + 1)), -7);
    std::vector<plimsoll::detail::problem_report> reports(4);
    options_in<plimsoll::seq_policy> const where(options, 4);
    using view = plimsoll::matrix_ref<float const>;
    plimsoll::detail::group_placement_body<view> const body{
        view(loads.data(), 4, experts),
        groups,
        plimsoll::detail::topology_of(*where, slots),
        where->load_exponent,
        plimsoll::matrix_ref<std::int32_t>(lists.data(), 4, experts),
        plimsoll::matrix_ref<std::int32_t>(offsets.data(), 4, options.nodes + 1),
        reports.data()};
    check_all_teams(body, 4, lists, offsets, [&] { return report_values(reports); });
  };
  check(1, 1, 1, {});
  check(40, 8, 60, {.ranks = 9, .nodes = 4});
  check(40, 8, 60, {.ranks = 9, .nodes = 4, .load_exponent = 0.85});
  check(36, 36, 60, {.ranks = 9, .nodes = 9, .active = {1, 1, 0, 1, 1, 1, 1, 1, 1}});
  check(40, 4, 60, {.ranks = 4, .nodes = 4});  // each node has a capacity of one group
  check(40, 40, 60, {.ranks = 4, .nodes = 3, .speeds = {1, 2, 3, 4.5}});
  check(8, 4, 12, {.ranks = 4, .rank_offsets = repeated({0, 1, 2, 3, 11}), .nodes = 4});
  check(40, 2, 40, {.ranks = 5, .nodes = 5});  // no node has enough slots for a group
}

/// Returns whether a map holds the given counts in usable slots and satisfies required
/// anti-affinity.
bool is_legal(ints const& map, random_case const& given) {
  oracle::site const where = given.site();
  ints counts(given.counts.size(), 0);
  std::set<std::pair<std::int32_t, std::size_t>> homes;
  std::size_t filled = 0;
  for (std::size_t r = 0; r < where.ranks(); ++r) {
    for (std::int64_t i = 0; i < where.room(r); ++i) {
      std::int32_t const e = map[static_cast<std::size_t>(where.offsets[r] + i)];
      if (e < 0) {
        continue;
      }
      ++filled;
      ++counts[static_cast<std::size_t>(e)];
      std::size_t const domain = where.rule == oracle::apart::node ? where.node_of(r) : r;
      if (!homes.emplace(e, domain).second && where.required) {
        return false;
      }
      if (!where.lists.empty()) {
        auto const& list = where.lists[where.node_of(r)];
        if (std::find(list.begin(), list.end(), e) == list.end()) {
          return false;
        }
      }
    }
  }
  auto const empty = static_cast<std::size_t>(std::count(map.begin(), map.end(), -1));
  return counts == given.counts && filled + empty == map.size();
}

TEST_CASE(
    "placement: random shapes match the argmin loop, and satisfiable anti-affinity is satisfied") {
  std::uint64_t made = 0;
  std::uint64_t greedy_was_stuck = 0;
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 0; seed < cases_of(40000); ++seed) {
    CAPTURE(seed);
    random_case const given(seed, 12);
    oracle::site const where = given.site();
    auto const loads = wide(given.loads);
    auto const counts = wide(given.counts);
    bool const possible = oracle::fits(counts, where);
    try {
      placed<plimsoll::seq_policy> const got(given.loads, given.counts, 1, given.slots,
                                             given.options);
      REQUIRE(possible);
      REQUIRE(is_legal(got.map, given));
      auto const expected =
          oracle::place(loads, counts, where, static_cast<std::size_t>(given.slots));
      if (expected) {
        ++made;
        REQUIRE(wide(got.map) == *expected);
      } else {
        ++greedy_was_stuck;
      }
      double peak = 0;
      auto const weight = oracle::weights(loads, counts);
      for (std::size_t r = 0; r < where.ranks(); ++r) {
        std::int64_t carried = 0;
        for (std::int64_t i = 0; i < where.room(r); ++i) {
          std::int32_t const e = got.map[static_cast<std::size_t>(where.offsets[r] + i)];
          carried += e < 0 ? 0 : weight[static_cast<std::size_t>(e)];
        }
        peak = std::max(peak, where.cost(r, carried));
      }
      // The value may exceed the peak by the rounding of weights, to distinguish it from the bound.
      double const value = got.certificates[0].value;
      REQUIRE(value >= peak / fixed_unit(loads));
      REQUIRE(value <= peak / fixed_unit(loads) * (1 + 1e-12));
      REQUIRE(got.certificates[0].lower_bound <= value);
    } catch (plimsoll::invalid_input const&) {
      ++refused;
      REQUIRE_FALSE(possible);
    }
  }
  CHECK(made > cases_of(20000));
  CHECK(greedy_was_stuck > cases_of(400));
  CHECK(refused > cases_of(10000));
}

TEST_CASE("placement: no placement is below the bound") {
  std::uint64_t optimal = 0;
  std::uint64_t open = 0;
  for (std::uint64_t seed = 0; seed < cases_of(6000); ++seed) {
    CAPTURE(seed);
    random_case const given(seed + 100000);
    oracle::site const where = given.site();
    auto const loads = wide(given.loads);
    auto const counts = wide(given.counts);
    if (!oracle::fits(counts, where)) {
      continue;
    }
    double const best = oracle::lowest_peak(loads, counts, where) / fixed_unit(loads);
    placed<plimsoll::seq_policy> const got(given.loads, given.counts, 1, given.slots,
                                           given.options);
    certificate const& c = got.certificates[0];
    REQUIRE(c.lower_bound <= best);
    REQUIRE(best <= c.value);
    REQUIRE((c.status == certificate_status::optimal) == (c.value == c.lower_bound));
    ++(c.status == certificate_status::optimal ? optimal : open);
  }
  CHECK(optimal > cases_of(1000));
  CHECK(open > cases_of(1000));
}

TEST_CASE("placement: groups on random shapes") {
  std::uint64_t made = 0;
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    CAPTURE(seed);
    random_case given(seed + 200000);
    generator random(seed);
    index_t const groups = random.between(1, 6);
    index_t const size = random.between(1, 3);
    given.loads.clear();
    for (index_t e = 0; e < groups * size; ++e) {
      given.loads.push_back(static_cast<std::int32_t>(random.between(0, 12)));
    }
    given.options.node_experts.clear();
    given.options.node_offsets.clear();
    index_t const factor = 1 + given.slots * given.options.ranks % 3;
    for (std::int32_t& offset : given.options.rank_offsets) {
      offset *= static_cast<std::int32_t>(factor);
    }
    given.slots *= factor;
    if (given.slots < groups * size) {
      continue;
    }
    oracle::site const where = given.site();
    auto const loads = wide(given.loads);
    auto const places = oracle::places_of_groups(groups, size, where);
    auto const expected = oracle::place_groups(loads, static_cast<std::size_t>(groups), where);
    try {
      grouped<plimsoll::seq_policy> const got(given.loads, 1, groups, given.slots, given.options);
      REQUIRE(expected.has_value());
      ++made;
      REQUIRE(got.offsets.front() == 0);
      REQUIRE(got.offsets.back() == groups * size);
      auto const slots = oracle::slots_of_nodes(where);
      for (std::size_t n = 0; n < where.nodes; ++n) {
        oracle::vector const mine(got.experts.begin() + got.offsets[n],
                                  got.experts.begin() + got.offsets[n + 1]);
        REQUIRE(mine == (*expected)[n]);
        REQUIRE(static_cast<std::int64_t>(mine.size()) <= slots[n]);
        for (std::size_t i = 0; i < mine.size(); ++i) {
          REQUIRE(mine[i] / size ==
                  mine[i / static_cast<std::size_t>(size) * static_cast<std::size_t>(size)] / size);
        }
      }
      ints sorted = got.experts;
      std::sort(sorted.begin(), sorted.end());
      REQUIRE(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
      REQUIRE(sorted.front() == 0);

      // Solve the same problem with nodes as ranks, for the peak and the optimum.
      oracle::site nodes{{0}};
      nodes.speeds = oracle::speeds_of_nodes(where);
      auto const weight =
          oracle::loads_of_groups(oracle::fixed(loads), static_cast<std::size_t>(groups));
      double peak = 0;
      for (std::size_t n = 0; n < where.nodes; ++n) {
        nodes.offsets.push_back(nodes.offsets.back() + (*places)[n]);
        std::int64_t carried = 0;
        for (std::int64_t const e : (*expected)[n]) {
          carried += e % size == 0 ? weight[static_cast<std::size_t>(e / size)] : 0;
        }
        peak = std::max(peak, carried == 0 ? 0 : nodes.cost(n, carried));
      }
      double const unit = fixed_unit(loads);
      REQUIRE(got.certificates[0].value >= peak / unit);
      REQUIRE(got.certificates[0].value <= peak / unit * (1 + 1e-12));
      REQUIRE(got.certificates[0].work == groups);
      auto const totals = oracle::loads_of_groups(loads, static_cast<std::size_t>(groups));
      double const best =
          oracle::lowest_peak(totals, oracle::vector(totals.size(), 1), nodes) / unit;
      REQUIRE(got.certificates[0].lower_bound <= best);
      REQUIRE(best <= got.certificates[0].value);
    } catch (plimsoll::invalid_input const&) {
      ++refused;
      REQUIRE_FALSE(expected.has_value());
    }
  }
  CHECK(made > 1000);
  CHECK(refused > 100);
}

TEST_CASE("placement: views may be strided, and there may be no layers") {
  // One layer of four experts, in arrays with a gap after each element.
  ints loads{1, 99, 5, 99, 3, 99, 4, 99};
  ints counts{1, 77, 1, 77, 1, 77, 1, 77};
  ints map(12, -7);
  ints lists(8, -7);
  ints offsets(6, -7);
  auto const every_second = [](ints& values) {
    auto const n = static_cast<index_t>(values.size());
    plimsoll::matrix_ref<std::int32_t> view(values.data(), 1, n / 2);
    view.strides[0] = n;
    view.strides[1] = 2;
    return view;
  };
  plimsoll::placement_options where{.on = {.ranks = 4, .nodes = 2}};
  plimsoll::place_groups(plimsoll::seq, every_second(loads), 4, 6, where, every_second(lists),
                         every_second(offsets));
  CHECK(lists == ints{1, -7, 0, -7, 3, -7, 2, -7});
  CHECK(offsets == ints{0, -7, 2, -7, 4, -7});
  where.node_experts = every_second(lists);
  where.node_offsets = every_second(offsets);
  plimsoll::place(plimsoll::seq, every_second(loads), every_second(counts), where,
                  every_second(map));
  CHECK(map == ints{1, -7, 0, -7, -1, -7, 3, -7, 2, -7, -1, -7});

  plimsoll::matrix_ref<std::int32_t> const none(nullptr, 0, 4);
  CHECK(plimsoll::place_groups(plimsoll::seq, none, 2, 6, {.on = {.ranks = 4, .nodes = 2}}, none,
                               plimsoll::matrix_ref<std::int32_t>(nullptr, 0, 3))
            .empty());
}

TEST_CASE("placement: shapes are checked") {
  std::vector<float> loads(6, 1.0f);
  ints counts(6, 1);
  ints map(8);
  auto const run = [&](index_t count_layers, index_t count_experts, index_t map_layers) {
    plimsoll::place(plimsoll::seq, plimsoll::matrix_ref<float>(loads.data(), 2, 3),
                    plimsoll::matrix_ref<std::int32_t>(counts.data(), count_layers, count_experts),
                    {.on = {.ranks = 2}},
                    plimsoll::matrix_ref<std::int32_t>(map.data(), map_layers, 4));
  };
  CHECK_NOTHROW(run(2, 3, 2));
  CHECK_THROWS_WITH_AS(run(1, 3, 2), "place: replica_count: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 2, 2), "place: replica_count: expected 3 experts, got 2",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 3, 1), "place: physical_to_logical: expected 2 layers, got 1",
                       plimsoll::invalid_input);

  ints lists(8);
  auto const group = [&](index_t list_layers, index_t list_experts, index_t offset_layers,
                         index_t offsets) {
    plimsoll::place_groups(
        plimsoll::seq, plimsoll::matrix_ref<float>(loads.data(), 2, 3), 3, 4,
        {.on = {.ranks = 2, .nodes = 2}},
        plimsoll::matrix_ref<std::int32_t>(lists.data(), list_layers, list_experts),
        plimsoll::matrix_ref<std::int32_t>(map.data(), offset_layers, offsets));
  };
  CHECK_NOTHROW(group(2, 3, 2, 3));
  CHECK_THROWS_WITH_AS(group(1, 3, 2, 3), "place_groups: node_experts: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(group(2, 4, 2, 3), "place_groups: node_experts: expected 3 experts, got 4",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(group(2, 3, 1, 3), "place_groups: node_offsets: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(group(2, 3, 2, 2),
                       "place_groups: node_offsets: expected 3 offsets (nodes + 1), got 2",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(
      plimsoll::place_groups(plimsoll::seq, plimsoll::matrix_ref<float>(loads.data(), 2, 0), 1, 4,
                             {.on = {.ranks = 1}},
                             plimsoll::matrix_ref<std::int32_t>(lists.data(), 2, 0),
                             plimsoll::matrix_ref<std::int32_t>(map.data(), 2, 2)),
      "place_groups: loads: expected 1 to 65535 experts, got 0", plimsoll::invalid_input);
}

TEST_CASE("placement: temporaries come from the policy and go back, also when it throws") {
  std::vector<float> loads(60, 1.0f);
  ints counts(60, 1);
  ints map(72);
  ints offsets(9);
  check_temporaries(2, [&](auto& resource) {  // reports and one scratch area
    plimsoll::place(plimsoll::seq(resource), plimsoll::matrix_ref<float>(loads.data(), 3, 20),
                    plimsoll::matrix_ref<std::int32_t>(counts.data(), 3, 20), {.on = {.ranks = 8}},
                    plimsoll::matrix_ref<std::int32_t>(map.data(), 3, 24));
  });
  check_temporaries(2, [&](auto& resource) {
    plimsoll::place_groups(
        plimsoll::seq(resource), plimsoll::matrix_ref<float>(loads.data(), 3, 20), 5, 24,
        {.on = {.ranks = 8, .nodes = 2}}, plimsoll::matrix_ref<std::int32_t>(map.data(), 3, 20),
        plimsoll::matrix_ref<std::int32_t>(offsets.data(), 3, 3));
  });
}

TEST_CASE("placement: owned placements check their arguments and give back what they take") {
  plimsoll::array const loads(plimsoll::seq, std::vector<float>(60, 1.0f), 3, 20);
  plimsoll::array const counts(plimsoll::seq, ints(60, 1), 3, 20);
  plimsoll::array const few(plimsoll::seq, ints(40, 1), 2, 20);
  plimsoll::placement_options const where{.on = {.ranks = 8}};
  auto const place = [&](auto const& copies, index_t slots) {
    static_cast<void>(plimsoll::place(plimsoll::seq, loads, copies, slots, where));
  };
  CHECK_NOTHROW(place(counts, 24));
  CHECK_THROWS_WITH_AS(
      place(counts, 19),
      "place: slots: expected 20 to 2147483647 slots (at least one per expert), got 19",
      plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(
      place(counts, -1),
      "place: slots: expected 20 to 2147483647 slots (at least one per expert), got -1",
      plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(place(few, 24), "place: replica_count: expected 3 layers, got 2",
                       plimsoll::invalid_input);
  check_temporaries(4, [&](auto& resource) {  // reports, one scratch area, map and counts
    static_cast<void>(plimsoll::place(plimsoll::seq(resource), loads, counts, 24, where));
  });
}

}  // namespace plimsoll_test
