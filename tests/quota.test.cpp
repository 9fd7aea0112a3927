// SPDX-License-Identifier: Apache-2.0
// Tests of quota under the host's policies; every team, temporaries.
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

namespace {

/// Lists the slots of every layer, as `lplb` does beforehand.
void list_slots(plimsoll::detail::slot_lists const& lists,
                plimsoll::matrix_ref<std::int32_t const> const& map) {
  plimsoll::detail::serial_team team;
  for (index_t layer = 0; layer < map.extent(0); ++layer) {
    lists.of_layer(layer).fill(team, plimsoll::detail::row_of(map, layer), nullptr, nullptr);
  }
}

/// The body of `quota` for a case, with its outputs.
class rounding {
 public:
  using loads = plimsoll::matrix_ref<std::int32_t const>;
  using body_type = plimsoll::detail::quota_body<loads>;

  explicit rounding(quota_case const& c)
      : c_(c),
        in_(c),
        quotas(c.map.size(), -7),
        reports_(static_cast<std::size_t>(c.layers)),
        first_(static_cast<std::size_t>(c.layers * (c.experts + 1))),
        slot_(c.map.size()) {}

  [[nodiscard]] body_type body() {
    return {in_.loads(),
            in_.placement().physical_to_logical,
            {in_.placement().rank_offsets, c_.slots, c_.ranks},
            in_.split(),
            {quotas.data(), c_.layers, c_.slots},
            {reports_.data(), c_.layers}};
  }
  /// Returns the body with the slots of every expert listed beforehand.
  [[nodiscard]] body_type body_with_lists() {
    body_type result = body();
    result.lists = {c_.experts, c_.slots, first_.data(), slot_.data()};
    list_slots(result.lists, result.physical_to_logical);
    return result;
  }
  [[nodiscard]] std::vector<quota_report> const& reports() const { return reports_; }
  [[nodiscard]] reals numbers() const {
    reals values;
    for (quota_report const& report : reports_) {
      values.insert(
          values.end(),
          {static_cast<double>(report.peak), report.split_peak, static_cast<double>(report.moves),
           static_cast<double>(report.refused.kind), static_cast<double>(report.refused.where),
           std::isnan(report.refused.got) ? -0.5 : report.refused.got});
    }
    return values;
  }

 private:
  quota_case c_;
  quota_in<plimsoll::seq_policy> in_;

 public:
  ints quotas;

 private:
  std::vector<quota_report> reports_;
  ints first_;
  ints slot_;
};

/// Draws experts with several copies on nearby ranks, so that fractions connect groups of ranks;
/// ranks are renumbered, so that groups interleave. With `nearby` 1, a group is a path or a cycle.
quota_case scattered_shares(std::uint64_t seed) {
  generator random(seed);
  auto const among = [&](std::int64_t low, std::int64_t high) {
    return static_cast<std::int32_t>(random.between(low, high));
  };
  std::int32_t const ranks = among(1, 80);
  std::int32_t const experts = among(1, 120);
  std::int32_t const nearby = among(1, 3);
  bool const tiny = among(0, 1) == 0;
  ints number(static_cast<std::size_t>(ranks));
  std::iota(number.begin(), number.end(), 0);
  for (std::int32_t i = ranks - 1; i > 0; --i) {
    std::swap(number[static_cast<std::size_t>(i)], number[static_cast<std::size_t>(among(0, i))]);
  }
  std::vector<ints> of_rank(number.size());
  ints loads;
  for (std::int32_t e = 0; e < experts; ++e) {
    std::int32_t const home = among(0, ranks - 1);
    for (std::int32_t copies = among(1, 1 + nearby); copies >= 0; --copies) {
      auto const r = static_cast<std::size_t>((home + among(0, nearby)) % ranks);
      of_rank[static_cast<std::size_t>(number[r])].push_back(e);
    }
    loads.push_back(among(0, 9) == 0 ? 0 : among(1, tiny ? 3 : 5000000));
  }
  quota_case c = one_layer(of_rank, loads, {});
  std::vector<reals> weights(loads.size());
  reals sums(loads.size(), 0);
  for (std::int32_t const e : c.map) {
    weights[static_cast<std::size_t>(e)].push_back(among(0, 7) == 0 ? 0 : random.unit() + 0.01);
    sums[static_cast<std::size_t>(e)] += weights[static_cast<std::size_t>(e)].back();
  }
  ints seen(loads.size(), 0);
  for (std::int32_t const expert : c.map) {
    auto const e = static_cast<std::size_t>(expert);
    auto const copy = static_cast<std::size_t>(seen[e]++);
    c.split.push_back(sums[e] > 0 ? loads[e] * (weights[e][copy] / sums[e])
                      : copy == 0 ? loads[e]
                                  : 0);
  }
  return c;
}

/// Returns one path through all ranks, numbered from below and from above in turn. Rank 0 is at one
/// end, so that the lowest label has the longest way.
quota_case long_path(std::int32_t ranks) {
  std::vector<ints> of_rank(static_cast<std::size_t>(ranks));
  auto const number = [&](std::int32_t place) {
    return static_cast<std::size_t>(place % 2 == 0 ? place / 2 : ranks - 1 - place / 2);
  };
  for (std::int32_t e = 0; e + 1 < ranks; ++e) {
    of_rank[number(e)].push_back(e);
    of_rank[number(e + 1)].push_back(e);
  }
  auto const experts = static_cast<std::size_t>(ranks) - 1;
  return one_layer(of_rank, ints(experts, 1), reals(2 * experts, 0.5));
}

}  // namespace

TEST_CASE("quota: rounding gives the same bits in every team") {
  std::vector<quota_case> cases{random_shares(1),    random_shares(2),
                                random_shares(3),    one_layer({{0}, {0}}, {4}, {1, 1}),
                                scattered_shares(1), scattered_shares(2),
                                long_path(40)};
  for (refusal const& refused : refusals()) {
    cases.push_back(refused.bad);
  }
  for (quota_case const& c : cases) {
    rounding run(c);
    auto const numbers = [&] { return run.numbers(); };
    check_all_teams(run.body(), c.layers, run.quotas, numbers);
    check_all_teams(run.body_with_lists(), c.layers, run.quotas, numbers);
  }
}

TEST_CASE("quota: rounding by groups of ranks gives the bits of one thread") {
  std::int64_t several = 0;
  for (std::uint64_t i = 0; i < 600; ++i) {
    CAPTURE(i);
    quota_case const c = i % 3 == 0 ? random_shares(100 + i) : scattered_shares(100 + i);
    rounding one(c);
    rounding parted(c);
    run_body(one.body(), c.layers, serial, 0);
    check_quotas(c, {one.quotas, one.reports(), ""});
    run_body(i % 2 == 0 ? parted.body() : parted.body_with_lists(), c.layers, 1, i);
    CHECK(parted.quotas == one.quotas);
    CHECK(parted.numbers() == one.numbers());
    several += one.reports()[0].moves > 8;
  }
  CHECK(several > 100);
}

TEST_CASE("quota: sources get the same bits in every team") {
  source_case const c = random_sources(4, 1);
  auto const at_size = [](index_t n) { return static_cast<std::size_t>(n); };
  quota_in<plimsoll::seq_policy> const in(c.plan);
  ints first(at_size(c.plan.experts + 1), -7);
  ints slot(at_size(c.plan.slots), -7);
  ints rank(at_size(c.plan.slots), -7);
  std::vector<std::uint64_t> keys(at_size(c.plan.slots));
  std::vector<std::byte> storage(at_size(
      plimsoll::detail::sort_bytes<plimsoll::detail::block<128>, std::uint64_t>(c.plan.slots)));
  ints out(at_size(c.plan.ranks * c.plan.slots), -7);
  plimsoll::detail::source_quotas_body body{
      .lists = {c.plan.experts, c.plan.slots, first.data(), slot.data()},
      .expert_of = {c.plan.map.data(), c.plan.slots},
      .where = {.ranges = {in.placement().rank_offsets, c.plan.slots, c.plan.ranks},
                .nodes = c.nodes},
      .quotas = {c.quotas.data(), c.plan.slots},
      .counts = {c.counts.data(), c.plan.ranks, c.plan.experts},
      .source_quotas = {out.data(), c.plan.ranks, c.plan.slots},
      .rank = rank.data(),
      .keys = keys.data(),
      .sort_storage = storage.data(),
      .listing = true};
  for (bool const listing : {true, false}) {
    body.listing = listing;
    check_all_teams(body, body.problems(), first, slot, rank, out);
  }
  check_sources(c, out);
}

TEST_CASE("quota: tokens go to the same slots in every team") {
  using plimsoll::vector_ref;
  struct form {
    bool sampled;
    bool listed;   // slots are listed beforehand
    bool by_tile;  // tiles add up the counts before them, as on a GPU with few tiles
  };
  for (auto const [sampled, listed, by_tile] :
       {form{false, false, false}, form{true, false, true}, form{false, true, true}}) {
    routing_case const c = random_routing(6, 211, 5);
    ints const ids(c.ids.begin(), c.ids.end());
    auto const places = std::ssize(c.map);
    using body_type = plimsoll::detail::dispatch_body<std::int32_t, std::int32_t>;
    ints chosen(c.ids.size(), -7);
    std::vector<dispatch_counters> counters(1);
    longs before(c.map.size(), -7);
    longs total(static_cast<std::size_t>(c.options.experts), -7);
    ints first(total.size() + 1, -7);
    ints slot(c.map.size(), -7);
    body_type body{.ids = {ids.data(), c.tokens, c.k},
                   .expert_of = {c.map.data(), places},
                   .quotas = {c.quotas.data(), places},
                   .chosen = {chosen.data(), c.tokens, c.k},
                   .counters = {counters.data(), 1},
                   .lists = {c.options.experts, places, first.data(), slot.data()},
                   .listed = listed,
                   .before = before.data(),
                   .total = total.data(),
                   .tiles = {},
                   .sampled = sampled,
                   .seed = 3,
                   .subsequence = 5,
                   .first_token = 7,
                   .now = body_type::phase::count};
    index_t const columns = c.options.experts + 2;
    ints counts(static_cast<std::size_t>(3 * columns), -7);
    ints totals(static_cast<std::size_t>(columns), -7);
    body.tiles = {std::ssize(ids), columns, counts.data(), totals.data()};
    body.tiles.by_tile = by_tile;
    CHECK(body.tiles.tiles() == 3);
    if (listed) {
      list_slots(body.lists, {c.map.data(), 1, places});
    }
    // `before` is longer than the lists, and sorting writes to all of it.
    auto const quotas_before = [&] {
      return longs(before.begin(), before.begin() + std::max(first.back(), 0));
    };
    using phase = body_type::phase;
    for (phase const now : {phase::count, phase::scan, phase::assign}) {
      if (now != phase::scan || !by_tile) {
        body.now = now;
        check_all_teams(body, body.problems(), counts, totals, counters, quotas_before, total,
                        first, slot, chosen);
      }
    }
    routing_case drawn = c;
    drawn.options.method = dispatch_method::sampled;
    drawn.options.seed = 3;
    drawn.options.subsequence = 5;
    drawn.options.first_token = 7;
    routed const expected = sampled ? route<plimsoll::seq_policy>(drawn) : route_in_order(c);
    CHECK(chosen == expected.slots);
    CHECK(routed{chosen, counters[0]}.counts() == expected.counts());
  }
}

TEST_CASE("quota: temporary memory") {
  quota_case const plan = one_layer({{0, 1}, {0}}, {4, 1}, {1.5, 1, 2.5});
  quota_in<plimsoll::seq_policy> const in(plan);
  ints quotas(3);
  ints numbers(6);
  ints const counts{4, 0, 0, 1};
  ints const ids{0, 1, 0, 0};
  std::vector<quota_report> reports(1);
  std::vector<dispatch_counters> counters(1);
  check_temporaries(1, [&](auto& resource) {
    plimsoll::round_split(plimsoll::seq(resource), in.loads(), in.placement(), in.split(),
                          plimsoll::matrix_ref<std::int32_t>(quotas.data(), 1, 3), reports);
  });
  // The lists of slots, and the scratch of the division.
  check_temporaries(2, [&](auto& resource) {
    plimsoll::divide_quotas(plimsoll::seq(resource), quotas,
                            plimsoll::matrix_ref<std::int32_t const>(counts.data(), 2, 2),
                            in.placement(), {},
                            plimsoll::matrix_ref<std::int32_t>(numbers.data(), 2, 3));
  });
  // The arrays that all tiles share, and the scratch of the two launches over tiles.
  check_temporaries(3, [&](auto& resource) {
    plimsoll::dispatch(plimsoll::seq(resource),
                       plimsoll::matrix_ref<std::int32_t const>(ids.data(), 4, 1), plan.map, quotas,
                       {.experts = 2}, plimsoll::matrix_ref<std::int32_t>(numbers.data(), 4, 1),
                       counters);
  });
}

}  // namespace plimsoll_test
