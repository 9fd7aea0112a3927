// SPDX-License-Identifier: Apache-2.0
// Tests of replay under the host's policies; every team, shapes, temporaries.
#include "replay.cases.hpp"

#include <cmath>

#include "support/report_values.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

template <class Loads>
void check_replay_teams(replay_case const& c, Loads const& loads) {
  using namespace plimsoll::detail;
  replay_in<plimsoll::seq_policy> const in(c);
  auto const placement = in.placement();
  reals sums(static_cast<std::size_t>(c.rows() * replay_tiles(c.steps)), -7);
  plimsoll::matrix_ref<double> const parts(sums.data(), c.rows(), replay_tiles(c.steps));
  std::vector<problem_report> reports(static_cast<std::size_t>(replay_reports(c.steps, c.layers)));
  replay_body<Loads> const body{.loads = loads,
                                .physical_to_logical = placement.physical_to_logical,
                                .replica_count = placement.replica_count,
                                .ranges = {placement.rank_offsets, c.slots, c.ranks},
                                .active = in.options().on.active,
                                .plans = c.plans,
                                .sums = parts,
                                .reports = reports.data()};
  check_all_teams(body, body.problems(), sums, [&] { return report_values(reports); });

  reals means(static_cast<std::size_t>(c.rows()), -7);
  check_all_teams(
      step_means_body<plimsoll::matrix_ref<double const>>{
          parts, c.steps, {means.data(), c.plans, c.layers}},
      c.rows(), means);
}

TEST_CASE("replay: the same mean of optimal splits in every team") {
  constexpr index_t steps = 70;
  constexpr index_t layers = 5;
  constexpr index_t rows = 2 * layers;
  std::vector<plimsoll::detail::step_balance> judged;
  for (std::int64_t const peak : random_loads<std::int64_t>(9, steps * rows)) {
    judged.push_back({0.1, 0.2 + static_cast<double>(peak)});  // sums depend on their order
  }
  std::fill_n(judged.begin() + 2 * rows, rows, plimsoll::detail::step_balance{});  // no load
  auto const of_steps =
      plimsoll::generate(plimsoll::detail::balancedness_of_steps{judged.data(), rows}, rows, steps);
  CHECK(of_steps(layers, 2) == 1);
  CHECK(of_steps(layers, 3) < 1);
  reals out(2 * layers, -7.0);
  check_all_teams(
      plimsoll::detail::step_means_body<std::remove_const_t<decltype(of_steps)>>{
          of_steps, steps, {out.data(), 2, layers}},
      rows, out);
  CHECK(out[layers] > 0);
  CHECK(out[layers] < 1);
}

TEST_CASE("replay: means of rows, the same bits in every team") {
  for (index_t const steps : {1, 2, 31, 33, 100}) {
    constexpr index_t layers = 3;
    reals const values = random_reals(static_cast<std::uint64_t>(steps), steps * layers);
    reals means(2 * layers, -7);
    plimsoll::detail::step_means_body<plimsoll::matrix_ref<double const>> const body{
        {values.data(), layers, steps}, steps, {means.data() + layers, 1, layers}};
    check_all_teams(body, layers, means);
    auto value = values.begin();
    for (index_t layer = 0; layer < layers; ++layer) {
      long double sum = 0;
      long double size = 0;
      for (index_t t = 0; t < steps; ++t, ++value) {
        sum += *value;
        size += std::abs(*value);
      }
      auto const mean = static_cast<std::size_t>(layers + layer);
      CHECK(std::abs(means[mean] - sum / static_cast<long double>(steps)) <= 1e-14L * size);
      CHECK(means[mean - layers] == -7);
    }
  }
}

TEST_CASE("replay: the same bits in every team") {
  auto const stored = [](replay_case const& c, reals const& loads) {
    check_replay_teams(
        c, plimsoll::tensor_ref<double const>(loads.data(), c.steps, c.layers, c.experts));
  };
  for (std::uint64_t seed = 400; seed < 408; ++seed) {
    CAPTURE(seed);
    replay_case const c = random_replay(seed);
    reals loads = c.loads_as<double>();
    for (double& load : loads) {
      load *= 0.1;  // so that sums depend on their order
    }
    stored(c, loads);
    for (double& load : loads) {
      load *= 0x1p-1030;  // too small for products with a reciprocal
    }
    stored(c, loads);
    check_replay_teams(
        c, plimsoll::generate(product_load{c.layers, c.experts}, c.steps, c.layers, c.experts));
  }
  // More tiles than the threads of a team.
  replay_case many{.steps = 330, .experts = 3, .slots = 3, .ranks = 2};
  many.loads = random_loads<std::int64_t>(5, 990);
  many.map = {1, 0, 2};
  many.counts = {1, 1, 1};
  stored(many, many.loads_as<double>());
  // Steps with refused loads among valid ones, and ranks that are all dead.
  replay_case bad = plain_replay();
  reals loads = bad.loads_as<double>();
  loads[6] = -1;
  loads[27] = 0x1p47;
  loads[50] = -2;  // in the second tile of a layer
  stored(bad, loads);
  bad.active = {0, 0};
  stored(bad, loads);
  // Placements that `validate` refuses must do no harm: they are read before they are refused.
  replay_case broken = plain_replay();
  broken.map[1] = 1000000;
  broken.map[5] = -1000000;
  broken.counts[2] = -4;
  broken.offsets = {0, 2, 1000000, 0, 3, 2, -1000000, 2, 4, 4, 2, 0};
  stored(broken, broken.loads_as<double>());
}

TEST_CASE("replay: a total that reaches 2^47 in one order of additions only is refused") {
  replay_case c{.experts = 3, .slots = 3, .ranks = 1};
  c.map = {0, 1, 2};
  c.counts = {1, 1, 1};
  // Added in order, the first two loads are half a unit in the last place of the third.
  reals const loads{0x1p-8, 0x1p-8, 0x1p47 - 0x1p-6};
  CHECK(replay_refusal<plimsoll::seq_policy>(c, loads) ==
        "replay: loads: expected a total below 2^47 per layer, got 140737488355328 in layer 0, "
        "step 0");
}

TEST_CASE("replay: a body without live ranks reports the fault") {
  replay_case c = plain_replay();
  c.active = {0, 0};
  replay_in<plimsoll::seq_policy> const in(c);
  auto const placement = in.placement();
  reals const loads = c.loads_as<double>();
  reals sums(8);
  std::vector<plimsoll::detail::problem_report> reports(4);
  using body_type = plimsoll::detail::replay_body<plimsoll::tensor_ref<double const>>;
  body_type const body{.loads = {loads.data(), 9, 2, 3},
                       .physical_to_logical = placement.physical_to_logical,
                       .replica_count = placement.replica_count,
                       .ranges = {placement.rank_offsets, 4, 2},
                       .active = in.options().on.active,
                       .plans = 2,
                       .sums = {sums.data(), 4, 2},
                       .reports = reports.data()};
  run_body(body, body.problems(), serial, 0);
  for (auto const& report : reports) {
    CHECK(report.refused.kind == plimsoll::fault_kind::no_rank);
  }
}

TEST_CASE("replay: shapes are checked") {
  struct shapes {
    index_t loads[3] = {2, 3, 4};
    index_t map[2] = {6, 5};
    index_t counts[2] = {6, 4};
    index_t offsets[2] = {6, 3};
    index_t ranks = 2;
    index_t active = 2;
    index_t out[2] = {2, 3};
  };
  longs const loads(24, 1);
  ints map;
  for (std::int32_t row = 0; row < 6; ++row) {
    map.insert(map.end(), {3, 2, 1, 0, -1});
  }
  ints const counts(24, 1);
  ints const offsets{0, 2, 5, 0, 2, 5, 0, 2, 5, 0, 2, 5, 0, 2, 5, 0, 2, 5};
  flags const active(2, 1);
  reals out(6);
  auto const refusal = [&](shapes const& s) -> std::string {
    try {
      plimsoll::replay(
          plimsoll::seq,
          plimsoll::tensor_ref<std::int64_t const>(loads.data(), s.loads[0], s.loads[1],
                                                   s.loads[2]),
          plimsoll::placement_ref{
              plimsoll::matrix_ref<std::int32_t const>(map.data(), s.map[0], s.map[1]),
              plimsoll::matrix_ref<std::int32_t const>(counts.data(), s.counts[0], s.counts[1]),
              s.ranks,
              plimsoll::matrix_ref<std::int32_t const>(offsets.data(), s.offsets[0], s.offsets[1])},
          {.on = {.active = plimsoll::vector_ref<std::uint8_t const>(active.data(), s.active)}},
          plimsoll::matrix_ref<double>(out.data(), s.out[0], s.out[1]));
    } catch (plimsoll::invalid_input const& error) {
      return error.what();
    }
    return "no error";
  };
  CHECK(refusal({}) == "no error");
  CHECK(refusal({.loads = {0, 3, 4}}) == "replay: loads: expected 1 to 2147483647 steps, got 0");
  CHECK(refusal({.loads = {0x80000000, 3, 4}}) ==
        "replay: loads: expected 1 to 2147483647 steps, got 2147483648");
  CHECK(refusal({.loads = {2, 3, 0}}) == "replay: loads: expected 1 to 65535 experts, got 0");
  CHECK(refusal({.loads = {2, 3, 65536}}) ==
        "replay: loads: expected 1 to 65535 experts, got 65536");
  CHECK(refusal({.out = {3, 2}}) == "replay: balancedness: expected 3 layers, got 2");
  CHECK(refusal({.out = {1, 3}}) ==
        "replay: placement.physical_to_logical: expected 3 rows (plans * layers), got 6");
  CHECK(refusal({.map = {3, 5}}) ==
        "replay: placement.physical_to_logical: expected 6 rows (plans * layers), got 3");
  CHECK(refusal({.map = {6, 0}}) ==
        "replay: placement.physical_to_logical: expected 1 to 2147483647 slots, got 0");
  CHECK(refusal({.counts = {3, 4}}) ==
        "replay: placement.replica_count: expected 6 rows (plans * layers), got 3");
  CHECK(refusal({.counts = {6, 5}}) ==
        "replay: placement.replica_count: expected 4 experts, got 5");
  CHECK(refusal({.ranks = 0}) == "replay: placement.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(refusal({.offsets = {3, 3}}) == "replay: placement.rank_offsets: expected 6 layers, got 3");
  CHECK(refusal({.offsets = {6, 2}}) ==
        "replay: placement.rank_offsets: expected 3 offsets (ranks + 1), got 2");
  CHECK(refusal({.active = 3}) == "replay: options.on.active: expected 2 ranks, got 3");
}

TEST_CASE("replay: temporaries come from the policy and go back, also when it throws") {
  replay_case const c = plain_replay();
  replay_in<plimsoll::seq_policy> const in(c);
  reals out(4);
  // Reports, partial sums of the means, and the scratch of the check and of the replay.
  check_temporaries(4, [&](auto& resource) {
    plimsoll::replay(plimsoll::seq(resource),
                     plimsoll::tensor_ref<std::int64_t const>(c.loads.data(), 9, 2, 3),
                     in.placement(), {}, plimsoll::matrix_ref<double>(out.data(), 2, 2));
  });
}

TEST_CASE("replay: scratch takes the documented bytes") {
  replay_case c{.steps = 3, .experts = 800, .slots = 800, .ranks = 15, .plans = 3};
  c.loads = random_loads<std::int64_t>(6, 2400);
  generator random(6);
  c.place(random);
  replay_in<plimsoll::seq_policy> const in(c);
  reals out(3);
  counting_resource memory;
  plimsoll::replay(plimsoll::seq(memory),
                   plimsoll::tensor_ref<std::int64_t const>(c.loads.data(), 3, 1, 800),
                   in.placement(), {}, plimsoll::matrix_ref<double>(out.data(), 3, 1));
  CHECK(memory.largest() == (264 + 32) * 800 + 2304 + 3 * (256 + 4 * 16));
}

}  // namespace plimsoll_test
