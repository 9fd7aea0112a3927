// SPDX-License-Identifier: Apache-2.0
#include "quota.cases.hpp"

#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

TEST_CASE("quota: a thousand instances, the smallest peak in whole tokens") {
  for (int i = 0; i < split_instance_count; ++i) {
    CAPTURE(i);
    std::int64_t ceiling = 0;
    quota_case const c = optimal_case(i, ceiling);
    quota_result const got = quotas_of<plimsoll::seq_policy>(c);
    check_quotas(c, got);
    CHECK(got.reports[0].peak == ceiling);
  }
}

TEST_CASE("quota: rounding gives the same bits in every team") {
  std::vector<quota_case> cases{random_shares(1), random_shares(2), random_shares(3),
                                one_layer({{0}, {0}}, {4}, {1, 1})};
  for (quota_case const& c : cases) {
    quota_in<plimsoll::seq_policy> const in(c);
    ints quotas(c.map.size(), -7);
    std::vector<quota_report> reports(static_cast<std::size_t>(c.layers));
    using loads = plimsoll::matrix_ref<std::int32_t const>;
    plimsoll::detail::quota_body<loads, quota_report> const body{
        in.loads(),
        in.placement().physical_to_logical,
        {in.placement().rank_offsets, c.slots, c.ranks},
        in.split(),
        {quotas.data(), c.layers, c.slots},
        {reports.data(), c.layers}};
    check_all_teams(body, c.layers, quotas, [&] {
      reals values;
      for (quota_report const& report : reports) {
        values.insert(
            values.end(),
            {static_cast<double>(report.peak), report.split_peak, static_cast<double>(report.moves),
             static_cast<double>(report.what), static_cast<double>(report.where), report.got});
      }
      return values;
    });
  }
}

TEST_CASE("quota: sources get the same bits in every team") {
  source_case const c = random_sources(4, 1);
  auto const at_size = [](index_t n) { return static_cast<std::size_t>(n); };
  quota_in<plimsoll::seq_policy> const in(c.plan);
  ints first(at_size(c.plan.experts + 1), -7);
  ints slot(at_size(c.plan.slots), -7);
  ints rank(at_size(c.plan.slots), -7);
  ints room(at_size(c.plan.slots), -7);
  ints out(at_size(c.plan.ranks * c.plan.slots), -7);
  plimsoll::detail::source_quotas_body body{
      {c.plan.experts, c.plan.slots, first.data(), slot.data()},
      {c.plan.map.data(), c.plan.slots},
      {.ranges = {in.placement().rank_offsets, c.plan.slots, c.plan.ranks}, .nodes = c.nodes},
      {c.quotas.data(), c.plan.slots},
      {c.counts.data(), c.plan.ranks, c.plan.experts},
      {out.data(), c.plan.ranks, c.plan.slots},
      rank.data(),
      room.data(),
      true};
  for (bool const listing : {true, false}) {
    body.listing = listing;
    check_all_teams(body, 1, first, slot, rank, room, out);
  }
  check_sources(c, out);
}

TEST_CASE("quota: tokens go to the same slots in every team") {
  using plimsoll::vector_ref;
  for (bool const sampled : {false, true}) {
    routing_case const c = random_routing(6, 211, 5);
    ints const ids(c.ids.begin(), c.ids.end());
    auto const places = std::ssize(c.map);
    using body_type = plimsoll::detail::dispatch_body<std::int32_t, dispatch_counters>;
    ints chosen(c.ids.size(), -7);
    std::vector<dispatch_counters> counters(1);
    longs before(c.map.size(), -7);
    longs total(static_cast<std::size_t>(c.options.experts), -7);
    ints first(total.size() + 1, -7);
    ints slot(c.map.size(), -7);
    body_type body{{ids.data(), c.tokens, c.k},
                   {c.map.data(), places},
                   {c.quotas.data(), places},
                   {chosen.data(), c.tokens, c.k},
                   {counters.data(), 1},
                   {c.options.experts, places, first.data(), slot.data()},
                   before.data(),
                   total.data(),
                   {},
                   sampled,
                   3,
                   5,
                   7,
                   body_type::phase::count};
    index_t const columns = c.options.experts + 2;
    ints counts(static_cast<std::size_t>(3 * columns), -7);
    ints totals(static_cast<std::size_t>(columns), -7);
    body.tiles = {std::ssize(ids), columns, counts.data(), totals.data()};
    CHECK(body.tiles.tiles() == 3);
    using phase = body_type::phase;
    for (phase const now : {phase::count, phase::scan, phase::assign}) {
      body.now = now;
      check_all_teams(body, body.problems(), counts, totals, counters, before, total, first, slot,
                      chosen);
    }
    if (!sampled) {
      CHECK(chosen == route_in_order(c).slots);
    }
  }
}

TEST_CASE("quota: temporaries") {
  quota_case const plan = one_layer({{0, 1}, {0}}, {4, 1}, {1.5, 1, 2.5});
  quota_in<plimsoll::seq_policy> const in(plan);
  ints quotas(3);
  ints numbers(6);
  ints const counts{4, 0, 0, 1};
  ints const ids{0, 1, 0, 0};
  std::vector<quota_report> reports(1);
  std::vector<dispatch_counters> counters(1);
  check_temporaries(1, [&](auto& resource) {
    plimsoll::quota(plimsoll::seq(resource), in.placement(), in.loads(), in.split(),
                    plimsoll::matrix_ref<std::int32_t>(quotas.data(), 1, 3), reports);
  });
  // The lists of slots; bodies need nothing.
  check_temporaries(1, [&](auto& resource) {
    plimsoll::source_quotas(plimsoll::seq(resource), in.placement(), 1, quotas,
                            plimsoll::matrix_ref<std::int32_t const>(counts.data(), 2, 2),
                            plimsoll::matrix_ref<std::int32_t>(numbers.data(), 2, 3));
  });
  // What all tiles share, and scratch memory of the two launches over tiles.
  check_temporaries(3, [&](auto& resource) {
    plimsoll::dispatch(plimsoll::seq(resource),
                       plimsoll::matrix_ref<std::int32_t const>(ids.data(), 4, 1), plan.map, quotas,
                       {.experts = 2}, plimsoll::matrix_ref<std::int32_t>(numbers.data(), 4, 1),
                       counters);
  });
}

}  // namespace plimsoll_test
