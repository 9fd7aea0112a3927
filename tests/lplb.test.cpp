// SPDX-License-Identifier: Apache-2.0
// Tests of lplb under the host's policies; every team, temporaries.
#include "lplb.cases.hpp"

#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

TEST_CASE("lplb: a plan gives the same bits in every team") {
  using c = lplb_case<plimsoll::seq_policy>;
  c const in;
  // In `refused`, layer 1 has a negative count and layer 2 more tokens than a layer may have.
  ints refused = in.counts;
  refused[c::experts + 3] = -2;
  refused[2 * c::experts] = 0x7fffffff;
  plimsoll::detail::minmax_lp_pipeline<plimsoll::host_context<plimsoll::inline_executor>> const
      prepared({}, in.placement, {}, "test", true);
  for (ints const& counts : {in.counts, refused}) {
    using loads = plimsoll::matrix_ref<std::int32_t const>;
    loads const load(counts.data(), c::layers, c::experts);
    std::vector<double> split(c::layers * c::slots, -7);
    std::vector<certificate> certificates(c::layers);
    ints quotas(split.size(), -7);
    std::vector<quota_report> reports(c::layers);
    plimsoll::detail::minmax_lp_body<loads> solve{};
    solve.graph = prepared.graph;
    solve.loads = load;
    solve.max_iterations = 1 << 20;
    solve.split = {split.data(), c::layers, c::slots};
    solve.certificates = {certificates.data(), c::layers};
    plimsoll::detail::quota_body<loads> const round{
        .loads = load,
        .physical_to_logical = in.placement.physical_to_logical,
        .ranges = {{}, c::slots, c::ranks},
        .split = solve.split,
        .quotas = {quotas.data(), c::layers, c::slots},
        .reports = {reports.data(), c::layers},
        .lists = prepared.lists};
    plimsoll::detail::lplb_plan_body<loads> const body{solve, round, 0};
    check_all_teams(body, c::layers, split, quotas, [&] {
      std::vector<double> values;
      for (std::size_t layer = 0; layer < c::layers; ++layer) {
        values.insert(values.end(),
                      {static_cast<double>(certificates[layer].work),
                       static_cast<double>(certificates[layer].status),
                       static_cast<double>(reports[layer].peak), reports[layer].split_peak,
                       static_cast<double>(reports[layer].moves),
                       static_cast<double>(reports[layer].refused.kind)});
      }
      return values;
    });
    CHECK(!reports[1].refused == (counts == in.counts));

    // The same counts, a rank after the other having one more of the rest.
    ints by_rank(static_cast<std::size_t>(c::layers * c::ranks * c::experts));
    for (std::size_t i = 0; i < by_rank.size(); ++i) {
      auto const e = static_cast<index_t>(i) % c::experts;
      auto const rank = static_cast<index_t>(i) / c::experts % c::ranks;
      auto const layer = static_cast<index_t>(i) / (c::experts * c::ranks);
      std::int32_t const count = counts[static_cast<std::size_t>(layer * c::experts + e)];
      by_rank[i] = count < 0 ? (rank == 1 ? count : 0)
                             : static_cast<std::int32_t>((count + rank) / c::ranks);
    }
    using own_loads = plimsoll::tensor_ref<std::int32_t const>;
    using added = plimsoll::matrix_ref<std::int64_t const>;
    std::vector<std::int64_t> sums(counts.size(), -7);
    std::vector<plimsoll::fault> faults(c::layers);
    ints shares(quotas.size(), -7);
    plimsoll::detail::minmax_lp_body<added> solve_sums{};
    solve_sums.graph = prepared.graph;
    solve_sums.loads = {sums.data(), c::layers, c::experts};
    solve_sums.max_iterations = 1 << 20;
    solve_sums.split = solve.split;
    solve_sums.certificates = solve.certificates;
    solve_sums.faults = faults.data();
    plimsoll::detail::lplb_own_plan_body<own_loads> const own{
        .plan = {solve_sums,
                 {.loads = solve_sums.loads,
                  .physical_to_logical = round.physical_to_logical,
                  .ranges = round.ranges,
                  .split = round.split,
                  .quotas = round.quotas,
                  .reports = round.reports,
                  .lists = round.lists},
                 0},
        .counts = own_loads(by_rank.data(), c::layers, c::ranks, c::experts),
        .where = {.ranges = round.ranges, .nodes = 2},
        .source = 1,
        .sums = {sums.data(), c::layers, c::experts},
        .shares = {shares.data(), c::layers, c::slots}};
    check_all_teams(own, c::layers, sums, quotas, shares);
    CHECK(std::equal(counts.begin(), counts.end(), sums.begin()));

    plimsoll::lplb planner(plimsoll::seq, in.placement, c::options());
    planner.plan(load);
    CHECK(std::equal(quotas.begin(), quotas.end(), planner.quotas().data));
    CHECK(std::equal(split.begin(), split.end(), planner.split().data));
  }
}

TEST_CASE("lplb: updating, planning and dispatching allocate nothing") {
  using c = lplb_case<plimsoll::seq_policy>;
  c const in;
  ints slots(static_cast<std::size_t>(c::tokens * c::k));
  std::vector<dispatch_counters> counters(1);
  auto const run = [&](auto& resource) {
    plimsoll::lplb planner(plimsoll::seq(resource), in.placement, c::options());
    auto const before = resource.allocations();
    planner.update(0, in.placement);
    planner.plan(plimsoll::matrix_ref<std::int32_t const>(in.counts.data(), c::layers, c::experts));
    planner.dispatch(1, plimsoll::matrix_ref<std::int32_t const>(in.ids[1].data(), c::tokens, c::k),
                     plimsoll::matrix_ref<std::int32_t>(slots.data(), c::tokens, c::k), counters);
    planner.plan(plimsoll::generate([](index_t, index_t, index_t) { return 1; }, c::layers,
                                    c::ranks, c::experts),
                 0);
    CHECK(resource.allocations() == before);
  };
  // The graph of minmax_lp with the lists of slots, the reports of updates, and the scratch of the
  // constructor; the seven arrays of a plan; scratch and the memory of dispatch.
  check_temporaries(3 + 7 + 2, run);
}

TEST_CASE("lplb: counts of one layer need no dimension for layers") {
  ints const map{0, 1, 0, 2, 0, 1, 0, 2};
  auto const planner_of = [&](index_t layers) {
    return plimsoll::lplb(plimsoll::seq,
                          {.physical_to_logical = {map.data(), layers, 4},
                           .replica_count = {nullptr, layers, 3},
                           .ranks = 2},
                          {.max_token_copies = 8});
  };
  auto planner = planner_of(1);
  ints const counts{5, 2, 3};
  planner.plan(plimsoll::array_ref(counts, 1, 3));
  ints const expected =
      plimsoll::read(plimsoll::seq, plimsoll::array_ref(planner.quotas().data, 4));
  planner.plan(ints{0, 0, 0});
  planner.plan(counts);
  CHECK(plimsoll::read(plimsoll::seq, plimsoll::array_ref(planner.quotas().data, 4)) == expected);
  planner.plan(ints{0, 0, 0});
  planner.plan(
      plimsoll::generate([&](index_t e) { return counts[static_cast<std::size_t>(e)]; }, 3));
  CHECK(plimsoll::read(plimsoll::seq, plimsoll::array_ref(planner.quotas().data, 4)) == expected);
  CHECK_NOTHROW(planner.check());

  CHECK(refusal_of([&] {
          planner.plan(ints{5, 2});
        }) == "lplb::plan: counts: expected 3 experts, got 2");
  auto two_layers = planner_of(2);
  CHECK(refusal_of([&] { two_layers.plan(counts); }) ==
        "lplb::plan: counts: expected 2 layers, got 1");
  two_layers.plan(1, counts);
  CHECK(plimsoll::read(plimsoll::seq, plimsoll::array_ref(two_layers.quotas().data + 4, 4)) ==
        expected);
  CHECK(refusal_of([&] { two_layers.plan(-1, counts); }) ==
        "lplb::plan: first_layer: expected 0 to 1 as layer, got -1");
}

}  // namespace plimsoll_test
