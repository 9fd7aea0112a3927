// SPDX-License-Identifier: Apache-2.0
// Tests of align, count_changes and changed_layers under the host's policies; every team, shapes,
// temporaries.
#include "migration.cases.hpp"

#include "support/report_values.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

#include <functional>
#include <numeric>

namespace plimsoll_test {

TEST_CASE("align: the same bits in every team") {
  auto const check = [](migration_case const& c) {
    placements_in<plimsoll::seq_policy> const in(c);
    auto const pair =
        plimsoll::detail::expect_migration("align", in.from(), in.to(), in.options().on);
    auto const& where = pair.where;
    index_t const groups = c.relabel == relabeling::all_layers ? 1 : c.layers;
    std::vector<std::int64_t> numbers(
        static_cast<std::size_t>(groups * plimsoll::detail::relabeling_numbers(where)));
    ints labels(static_cast<std::size_t>(groups * plimsoll::detail::relabeling_labels(where)), -7);
    std::vector<plimsoll::detail::assignment_outcome> results(static_cast<std::size_t>(groups));
    auto const exchange =
        plimsoll::detail::relabelings_in(pair, groups, c.relabel == relabeling::within_nodes,
                                         numbers.data(), labels.data(), results.data());
    std::vector<plimsoll::detail::alignment_outcome> outcomes(static_cast<std::size_t>(c.layers));
    ints map(static_cast<std::size_t>(c.layers * c.slots), -7);
    auto const reported = [&] {
      std::vector<double> values;
      for (auto const& [changes, refused] : outcomes) {
        add_report(values,
                   {static_cast<double>(changes.moves), static_cast<double>(changes.local_copies)},
                   refused);
      }
      return values;
    };
    check_all_teams(plimsoll::detail::interchange_body{where, exchange}, groups, numbers);
    // Overlaps are added to what there is, so every run begins with a copy.
    plimsoll::detail::overlap_body const overlap{pair, exchange, outcomes.data()};
    check_all_teams(overlap, c.layers, numbers, reported);
    plimsoll::detail::rank_assignment_body const ranks{where, exchange};
    check_all_teams(ranks, ranks.problems(), numbers, labels);
    check_all_teams(plimsoll::detail::node_assignment_body{where, exchange}, groups, labels,
                    results);
    plimsoll::detail::slot_alignment_body const slots{
        pair, exchange, {map.data(), c.layers, c.slots}, outcomes.data()};
    check_all_teams(slots, c.layers, map, reported);
    check_all_teams(plimsoll::detail::slot_alignment_body{pair, {}, {}, outcomes.data()}, c.layers,
                    reported);
    longs changed(outcomes.size(), -7);
    check_all_teams(plimsoll::detail::changed_slots_body{pair.from, pair.to, changed.data()},
                    c.layers, changed);
    for (index_t layer = 0; layer < c.layers; ++layer) {
      auto const from = c.from.begin() + layer * c.slots;
      CHECK(changed[static_cast<std::size_t>(layer)] ==
            c.slots - std::inner_product(from, from + c.slots, c.to.begin() + layer * c.slots,
                                         index_t{0}, std::plus{}, std::equal_to{}));
    }
  };
  for (std::uint64_t seed = 0; seed < cases_of(12); ++seed) {
    CAPTURE(seed);
    check(random_migration(seed));
  }
  migration_case large = large_migration(1, 40, 5);
  check(large);
  large.where.nodes = 3;
  large.relabel = relabeling::all_layers;
  check(large);
  large.to[7] = static_cast<std::int32_t>(large.experts);
  check(large);
}

TEST_CASE("align: the bound holds whatever the prices, and is below the optimum otherwise") {
  // Rows 0 and 1 both want column 0: the weights are 5 + 3 or 4 + 5.
  std::int64_t const weights[] = {5, 4, 5, 3};
  alignas(16) std::byte memory[96];
  plimsoll::detail::scratch all(memory);
  plimsoll::detail::assignment_arrays const arrays{all, 2};
  plimsoll::detail::serial_team team;
  auto const weight = [&](index_t r, index_t c) { return weights[2 * r + c]; };
  auto const found = plimsoll::detail::solve_assignment(team, 2, weight, weight, arrays);
  CHECK(found.weight == 9);
  CHECK(found.bound == 9);
  CHECK(arrays.price[0] == -1);
  CHECK(arrays.column_of[0] == 1);
}

TEST_CASE("align: shapes are checked") {
  ints const map(12, 0);
  ints const counts(12, 1);
  ints const offsets(12, 0);
  ints out(24);
  auto const placement = [&](index_t layers, index_t slots, index_t experts, index_t ranks) {
    return placement_ref{{map.data(), layers, slots}, {counts.data(), layers, experts}, ranks, {}};
  };
  auto const run = [&](placement_ref const& from, placement_ref const& to,
                       alignment_options const& options, index_t layers = 2, index_t slots = 4) {
    return refusal_of([&] {
      plimsoll::align(plimsoll::seq, from, to, options,
                      plimsoll::matrix_ref<std::int32_t>(out.data(), layers, slots));
    });
  };
  placement_ref const good = placement(2, 4, 1, 2);
  CHECK(run(good, good, {}) == "no error");
  CHECK(run(good, good, {}, 3) == "align: physical_to_logical: expected 2 layers, got 3");
  CHECK(run(good, good, {}, 2, 5) == "align: physical_to_logical: expected 4 slots, got 5");
  CHECK(run(good, placement(1, 4, 1, 2), {}) ==
        "align: to.physical_to_logical: expected 2 layers, as in from, got 1");
  CHECK(run(good, placement(2, 3, 1, 2), {}) ==
        "align: to.physical_to_logical: expected 4 slots, as in from, got 3");
  CHECK(run(good, placement(2, 4, 2, 2), {}) ==
        "align: to.replica_count: expected 1 experts, as in from, got 2");
  CHECK(run(good, placement(2, 4, 1, 3), {}) ==
        "align: to.ranks: expected 2 ranks, as in from, got 3");
  CHECK(run(placement(2, 4, 1, 0), good, {}) ==
        "align: from.ranks: expected 1 to 32767 ranks, got 0");
  placement_ref torn = good;
  torn.rank_offsets = {offsets.data(), 2, 4};
  CHECK(run(good, torn, {}) == "align: to.rank_offsets: expected 3 offsets (ranks + 1), got 4");
  CHECK(run(good, good, {.on = {.ranks = 3}}) ==
        "align: options.on.ranks: expected 2 ranks, as in the placement, got 3");
  CHECK(run(good, good, {.on = {.nodes = 3}}) ==
        "align: options.on.nodes: expected 1 to 2 nodes (at most one per rank), got 3");
  CHECK(refusal_of([&] {
          static_cast<void>(plimsoll::count_changes(plimsoll::seq, good, placement(2, 3, 1, 2)));
        }) == "count_changes: to.physical_to_logical: expected 4 slots, as in from, got 3");
  CHECK(refusal_of([&] {
          static_cast<void>(plimsoll::changed_layers(plimsoll::seq, placement(1, 3, 1, 2), good));
        }) == "changed_layers: to.physical_to_logical: expected 1 layers, as in from, got 2");
}

TEST_CASE("align: temporaries come from the policy and go back, also when it throws") {
  migration_case const c = large_migration(1, 8, 5);
  placements_in<plimsoll::seq_policy> const in(c);
  ints out(c.to.size());
  check_temporaries(9, [&](auto& resource) {  // reports, exchanges (3), five scratch areas
    plimsoll::align(plimsoll::seq(resource), in.from(), in.to(), {},
                    plimsoll::matrix_ref<std::int32_t>(out.data(), c.layers, c.slots));
  });
  check_temporaries(11, [&](auto& resource) {  // and map and counts
    static_cast<void>(plimsoll::align(plimsoll::seq(resource), in.from(), in.to()));
  });
  check_temporaries(3, [&](auto& resource) {  // reports and two scratch areas
    plimsoll::align(plimsoll::seq(resource), in.from(), in.to(), {.relabel = relabeling::none},
                    plimsoll::matrix_ref<std::int32_t>(out.data(), c.layers, c.slots));
  });
  check_temporaries(3, [&](auto& resource) {
    static_cast<void>(plimsoll::count_changes(plimsoll::seq(resource), in.from(), in.to()));
  });
  check_temporaries(1, [&](auto& resource) {
    static_cast<void>(plimsoll::changed_layers(plimsoll::seq(resource), in.from(), in.to()));
  });
}

}  // namespace plimsoll_test
