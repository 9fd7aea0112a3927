// SPDX-License-Identifier: Apache-2.0
// Tests of latency under the host's policies; every team, shapes, temporaries.
#include "latency.cases.hpp"

#include "support/report_values.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

using plimsoll::latency_sampling_options;
using plimsoll::sampling_plan;
using seq_curves = curves_in<plimsoll::seq_policy>;

TEST_CASE("latency: samples far apart, and tokens up to 2^47") {
  auto const check = [](curve_case const& c, index_t ranks) {
    seq_curves const in(c);
    latency_curves const curves = in.view();
    plimsoll::latency_table const table(plimsoll::seq, curves, ranks);
    reals tokens;
    std::int64_t const last = c.tokens.back();
    auto const add = [&](std::int64_t n) {
      for (std::int64_t const near : {n - 1, n, n + 1}) {
        tokens.push_back(static_cast<double>(std::clamp<std::int64_t>(near, 0, (1LL << 47) - 1)));
      }
    };
    for (std::int64_t const sample : c.tokens) {
      add(sample);
    }
    generator random(static_cast<std::uint64_t>(last));
    for (int i = 0; i < 400; ++i) {
      add(random.between(0, 2 * last));
      // Multiples of powers of two, at which buckets may begin.
      std::int64_t const power = std::int64_t{1} << random.between(0, 46);
      add(random.between(0, last) / power * power);
    }
    std::sort(tokens.begin(), tokens.end());
    reals searched;
    reals looked_up;
    for (double const n : tokens) {
      for (index_t r = 0; r < ranks; ++r) {
        searched.push_back(curves(r, n));
        looked_up.push_back(table.cost()(r, n));
      }
    }
    check_curve(c, ranks, tokens, searched);
    check_same(looked_up, searched);
  };
  check({{1, 2, 1 << 30}, {1, 3, 1e6}}, 1);
  check({{1, 2, 3, 5, 8, 1 << 30}, {1, 3, 3, 3, 4, 1e6}, 8}, 1);
  check({{0, 1 << 20, 1 << 30}, {1, 3, 1e6}, 1 << 20, {1, 0.7}}, 2);
  curve_case crowd{{0}, {0}};  // many samples per bucket
  for (std::int64_t n = 1; n < 400; n += 1 + n / 3 % 5) {
    crowd.tokens.push_back(n);
    crowd.latency.push_back(0.1 * static_cast<double>(n + n % 5));
  }
  crowd.tokens.push_back(1LL << 40);
  crowd.latency.push_back(1e9);
  std::sort(crowd.latency.begin(), crowd.latency.end());
  crowd.dense_until = crowd.tokens[20];
  check(crowd, 1);
  check({{3, (1LL << 47) - 1}, {1, 3, 0, 1e6}, 3}, 2);
  check({{(1 << 16) - 1, 1 << 16, (1 << 16) + 1}, {1, 3, 9}, (1 << 16)}, 1);
  check({{1, (1 << 16) - 1}, {1, 3}}, 1);
  check({{1, 1 << 16}, {1, 3}}, 1);
  check({{(1LL << 47) - 2, (1LL << 47) - 1}, {0, 0}}, 1);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    check(random_curve(seed, 3, std::int64_t{1} << (seed + 10)), 3);
  }
}

TEST_CASE("latency: sampling plans") {
  CHECK(sampling_plan({.tile = 64, .dense_until = 256, .sparse_step = 100, .max_tokens = 500}) ==
        longs{64, 128, 192, 256, 356, 456, 556});
  CHECK(sampling_plan({.tile = 64, .dense_until = 200, .sparse_step = 100, .max_tokens = 456}) ==
        longs{64, 128, 192, 256, 356, 456});
  CHECK(sampling_plan({.tile = 10, .dense_until = 0, .sparse_step = 7, .max_tokens = 25}) ==
        longs{10, 17, 24, 31});
  CHECK(sampling_plan({.tile = 10, .dense_until = 99, .sparse_step = 7, .max_tokens = 25}) ==
        longs{10, 20, 30});
  // At least two samples, which define a line.
  CHECK(sampling_plan({.max_tokens = 5}) == longs{64, 128});
  CHECK(sampling_plan({.dense_until = 0, .max_tokens = 64}) == longs{64, 1088});
  CHECK(sampling_plan({.max_tokens = 1500}) == longs{64, 128, 192, 256, 320, 384, 448, 512, 1536});
  auto const refuse = [](latency_sampling_options const& options) {
    return refusal_of([&] { static_cast<void>(sampling_plan(options)); });
  };
  std::string const name = "sampling_plan: options.";
  CHECK(refuse({}) == name + "max_tokens: expected 1 to 4294967296 tokens, got 0");
  CHECK(refuse({.tile = 0}) == name + "tile: expected 1 to 4294967296 tokens, got 0");
  CHECK(refuse({.dense_until = -1}) ==
        name + "dense_until: expected 0 to 4294967296 tokens, got -1");
  CHECK(refuse({.sparse_step = 0}) == name + "sparse_step: expected 1 to 4294967296 tokens, got 0");
  CHECK(refuse({.max_tokens = (1LL << 32) + 1}) ==
        name + "max_tokens: expected 1 to 4294967296 tokens, got 4294967297");
#if !defined(PLIMSOLL_TEST_FEW_CASES)  // 2^24 samples take seconds under ThreadSanitizer
  CHECK(refuse({.tile = 1, .sparse_step = 1, .max_tokens = (1 << 24) + 1}) ==
        name + "max_tokens: expected at most 2^24 samples, got more");
#endif
}

TEST_CASE("latency: curves from a sampling plan reproduce the staircase") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    generator random(seed);
    latency_sampling_options options;
    options.tile = random.between(1, 70);
    options.dense_until = random.between(0, 600);
    options.max_tokens = random.between(100, 3000);
    options.sparse_step = options.tile * random.between(1, 9);
    auto const climb = [&](std::int64_t n) {
      return 20.0 + 3.0 * static_cast<double>((n + options.tile - 1) / options.tile);
    };
    curve_case c;
    c.tokens = sampling_plan(options);
    for (std::int64_t const n : c.tokens) {
      c.latency.push_back(climb(n));
    }
    c.dense_until = (options.dense_until + options.tile - 1) / options.tile * options.tile;
    REQUIRE(c.tokens.back() >= options.max_tokens);
    seq_curves const in(c);
    plimsoll::latency_table const table(plimsoll::seq, in.view(), 1);
    bool same = true;
    bool near = true;
    for (std::int64_t n = 1; n <= options.max_tokens; ++n) {
      double const got = table.cost()(0, static_cast<double>(n));
      same = same && (n > c.dense_until || got == climb(n));
      near = near && got <= climb(n) + 1e-9 && got >= climb(n) - 3 - 1e-9;
    }
    CHECK(same);
    CHECK(near);
  }
}

TEST_CASE("latency: cost models") {
  plimsoll::moe_cost const moe{.launch = 8, .per_token = 0.5, .per_expert = 2};
  CHECK(moe(0, 0) == 0);
  CHECK(moe(0, 5) == 0);
  CHECK(moe(6, 1) == 13);
  CHECK(moe(6, 3) == 17);
  CHECK(moe(0.5, 3) == 14.25);
  CHECK(plimsoll::moe_cost{}(6, 3) == 0);
  // The result is rounded after each operation.
  CHECK(plimsoll::moe_cost{0.1, 0.3, 0.7}(3, 3) == doctest::Approx(0.1 + 0.9 + 2.1).epsilon(1e-15));

  CHECK(plimsoll::token_cost{}(7, 2.5) == 2.5);
  CHECK(plimsoll::token_cost{}.ranks() == 0);
  reals const speeds{1, 0.5, 3};
  plimsoll::token_cost const uneven{plimsoll::vector_ref<double const>(speeds)};
  CHECK(uneven.ranks() == 3);
  CHECK(uneven(1, 2.5) == 5);
  CHECK(uneven(2, 1) == 1.0 / 3);
}

template <class Loads, class Cost>
void check_latency_teams(replay_case const& c, Loads const& loads, Cost const& cost) {
  using namespace plimsoll::detail;
  replay_in<plimsoll::seq_policy> const in(c);
  auto const placement = in.placement();
  reals of_step(at(c.steps * c.layers), -7);
  reals of_rank(at(c.steps * c.layers * c.ranks), -7);
  latencies_body<Loads, Cost> body{.loads = loads,
                                   .physical_to_logical = placement.physical_to_logical,
                                   .replica_count = placement.replica_count,
                                   .ranges = {placement.rank_offsets, c.slots, c.ranks},
                                   .cost = cost,
                                   .out = {.of_step = {of_step.data(), c.steps, c.layers},
                                           .of_rank = {of_rank.data(), c.steps, c.layers, c.ranks}},
                                   .reports = nullptr};
  std::vector<problem_report> reports(at(body.problems()));
  body.reports = reports.data();
  check_all_teams(body, body.problems(), of_step, of_rank, [&] {
    reals values = report_values(reports);
    for (double& value : values) {
      value = value == value ? value : -1;  // NaN compares unequal to itself
    }
    return values;
  });
}

TEST_CASE("latency: the same bits in every team") {
  auto const stored = [](replay_case const& c, reals const& loads, auto const& cost) {
    check_latency_teams(
        c, plimsoll::tensor_ref<double const>(loads.data(), c.steps, c.layers, c.experts), cost);
  };
  for (std::uint64_t const seed : {404u, 412u}) {  // nine steps: two problems per layer
    CAPTURE(seed);
    replay_case const c = random_trace(seed);
    reals loads = c.loads_as<double>();
    for (double& load : loads) {
      load *= 0.1;
    }
    seq_curves const in(random_curve(seed, c.ranks));
    stored(c, loads, in.view());
    plimsoll::latency_table const table(plimsoll::seq, in.view(), c.ranks);
    check_latency_teams(
        c, plimsoll::generate(product_load{c.layers, c.experts}, c.steps, c.layers, c.experts),
        table.cost());
  }
  // Invalid loads and costs among valid ones, in two steps of a problem.
  replay_case const plain = plain_trace();
  reals loads = plain.loads_as<double>();
  broken_cost const fine{-1, 0, 0};
  loads[6] = -1;
  loads[18] = -2;
  loads[27] = 0x1p47;
  stored(plain, loads, fine);
  loads = plain.loads_as<double>();
  loads[8] = 30;
  loads[20] = 40;
  stored(plain, loads, broken_cost{1, 20, -1});
  stored(plain, loads, broken_cost{0, 0, std::numeric_limits<double>::quiet_NaN()});
  // Placements that `validate` refuses must do no harm: they are read before they are refused.
  replay_case broken = plain;
  broken.map[1] = 1000000;
  broken.map[5] = -1000000;
  broken.counts[2] = -4;
  broken.offsets = {0, 2, 1000000, 4, 3, -1000000};
  stored(broken, broken.loads_as<double>(), fine);
}

TEST_CASE("latency: shapes are checked") {
  struct shapes {
    index_t loads[3] = {2, 3, 4};
    index_t map[2] = {3, 5};
    index_t counts[2] = {3, 4};
    index_t offsets[2] = {3, 3};
    index_t ranks = 2;
    index_t speeds = 2;
    index_t out[3] = {2, 3, 2};
  };
  reals const loads(24, 1);
  ints map;
  ints offsets;
  for (int layer = 0; layer < 3; ++layer) {
    map.insert(map.end(), {3, 2, 1, 0, -1});
    offsets.insert(offsets.end(), {0, 2, 5});
  }
  ints const counts(12, 1);
  reals const speeds(3, 1);
  reals out(12);
  auto const refuse = [&](shapes const& s) {
    plimsoll::tensor_ref<double const> const in(loads.data(), s.loads[0], s.loads[1], s.loads[2]);
    plimsoll::placement_ref const placement{
        plimsoll::matrix_ref<std::int32_t const>(map.data(), s.map[0], s.map[1]),
        plimsoll::matrix_ref<std::int32_t const>(counts.data(), s.counts[0], s.counts[1]), s.ranks,
        plimsoll::matrix_ref<std::int32_t const>(offsets.data(), s.offsets[0], s.offsets[1])};
    plimsoll::token_cost const cost{plimsoll::vector_ref<double const>(speeds.data(), s.speeds)};
    std::string const of_ranks = refusal_of([&] {
      plimsoll::rank_latencies(
          plimsoll::seq, in, placement, cost,
          plimsoll::tensor_ref<double>(out.data(), s.out[0], s.out[1], s.out[2]));
    });
    std::string const of_steps = refusal_of([&] {
      plimsoll::step_latencies(plimsoll::seq, in, placement, cost,
                               plimsoll::matrix_ref<double>(out.data(), s.out[0], s.out[1]));
    });
    // Both messages are the same, except for the name of the function.
    if (s.out[2] == s.ranks && of_ranks != "no error") {
      CHECK(of_steps.substr(of_steps.find(':')) == of_ranks.substr(of_ranks.find(':')));
      CHECK(of_steps.substr(0, of_steps.find(':')) == "step_latencies");
    }
    return of_ranks;
  };
  CHECK(refuse({}) == "no error");
  CHECK(refuse({.loads = {1, 3, 4}}) == "rank_latencies: latencies: expected 1 steps, got 2");
  CHECK(refuse({.loads = {2, 2, 4}}) == "rank_latencies: latencies: expected 2 layers, got 3");
  CHECK(refuse({.out = {2, 3, 1}}) == "rank_latencies: latencies: expected 2 ranks, got 1");
  CHECK(refuse({.loads = {2, 3, 0}}) ==
        "rank_latencies: loads: expected 1 to 65535 experts, got 0");
  CHECK(refuse({.loads = {2, 3, 65536}}) ==
        "rank_latencies: loads: expected 1 to 65535 experts, got 65536");
  CHECK(refuse({.map = {2, 5}}) ==
        "rank_latencies: placement.physical_to_logical: expected 3 layers, got 2");
  CHECK(refuse({.map = {3, 0}}) ==
        "rank_latencies: placement.physical_to_logical: expected 1 to 2147483647 slots, got 0");
  CHECK(refuse({.counts = {2, 4}}) ==
        "rank_latencies: placement.replica_count: expected 3 layers, got 2");
  CHECK(refuse({.counts = {3, 5}}) ==
        "rank_latencies: placement.replica_count: expected 4 experts, got 5");
  CHECK(refuse({.ranks = 0, .out = {2, 3, 0}}) ==
        "rank_latencies: placement.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(refuse({.offsets = {2, 3}}) ==
        "rank_latencies: placement.rank_offsets: expected 3 layers, got 2");
  CHECK(refuse({.offsets = {3, 2}}) ==
        "rank_latencies: placement.rank_offsets: expected 3 offsets (ranks + 1), got 2");
  CHECK(refuse({.speeds = 3}) == "rank_latencies: cost: expected 2 ranks, got 3");

  // Other costs that are for a fixed number of ranks.
  replay_case const c = plain_trace();
  replay_in<plimsoll::seq_policy> const in(c);
  auto const with = [&](auto const& cost) {
    return refusal_of([&] { both_of<plimsoll::seq_policy>(c, c.loads_as<double>(), cost); });
  };
  seq_curves const three({{1, 2}, {1, 2, 3, 4, 5, 6}});
  CHECK(with(three.view()) ==
        "rank_latencies: cost.latency: expected 2 ranks, or 1 for all, got 3");
  seq_curves const uneven({{1, 2}, {1, 2}, 0, {1, 1, 1}});
  CHECK(with(uneven.view()) == "rank_latencies: cost.speeds: expected 2 ranks, got 3");
  seq_curves const point({{64}, {1}});
  CHECK(with(point.view()) == "rank_latencies: cost.tokens: expected 2 to 16777216 samples, got 1");
  plimsoll::latency_table const table(plimsoll::seq, three.view(), 3);
  CHECK(with(table.cost()) == "rank_latencies: cost: expected 2 ranks, got 3");
  reals const stopped{1, 0};
  CHECK(
      with(plimsoll::token_cost{stopped}) ==
      "rank_latencies: cost.speeds: expected values from 2^-64 to 2^64, got 0 in layer 0, rank 1");
  seq_curves const any({{1, 2}, {1, 2}});
  CHECK(with(any.view()) == "no error");

  reals const latency(6, 1);
  longs const tokens{1, 2, 3};
  CHECK(refusal_of([&] {
          static_cast<void>(plimsoll::latency_table(
              plimsoll::seq, latency_curves{tokens, {latency.data(), 3, 2}}, 3));
        }) == "latency_table: curves.latency: expected 3 samples, got 2");
}

TEST_CASE("latency: temporaries come from the policy and go back, also when it throws") {
  replay_case const c = plain_trace();
  replay_in<plimsoll::seq_policy> const in(c);
  seq_curves const curves({{1, 2, 9}, {1, 2, 4}, 2, {1, 0.5}});
  reals out(18);
  // Reports, and the scratch of the check and of the replay.
  check_temporaries(3, [&](auto& resource) {
    plimsoll::step_latencies(
        plimsoll::seq(resource), plimsoll::tensor_ref<std::int64_t const>(c.loads.data(), 9, 2, 3),
        in.placement(), curves.view(), plimsoll::matrix_ref<double>(out.data(), 9, 2));
  });
  // The three arrays of the table; a host policy reads the curves without copies.
  check_temporaries(3, [&](auto& resource) {
    plimsoll::latency_table const table(plimsoll::seq(resource), curves.view(), 2);
    CHECK(resource.live() == 3);
    CHECK(table.cost()(1, 3.0) > 0);
  });
}

TEST_CASE("latency: memory takes the documented bytes") {
  plimsoll::detail::latencies_body<plimsoll::tensor_ref<float const>, plimsoll::token_cost> body{};
  body.loads = {nullptr, 17, 3, 800};
  body.ranges.ranks = 700;
  auto const bytes = static_cast<index_t>(body.scratch_bytes());
  CHECK(bytes >= 8 * 800 + 16 * 700);
  CHECK(bytes <= 8 * 800 + 16 * 700 + 64);
  CHECK(body.problems() == 9);
  auto const largest = [](curve_case const& c, index_t ranks) {
    seq_curves const in(c);
    counting_resource memory;
    plimsoll::latency_table const table(plimsoll::seq(memory), in.view(), ranks);
    return static_cast<index_t>(memory.largest());
  };
  // Buckets: 2^30 tokens with a smallest gap of 1, but at most 2^16 + 2 buckets.
  index_t const far = largest({{1, 2, 1 << 30}, {1, 2, 3}}, 1);
  CHECK(far <= 4 * ((1 << 16) + 2));
  CHECK(far >= 4 * (1 << 15));
  // Pieces: one per gap, one before the first sample, one past the last, and one for 0 tokens.
  CHECK(largest({{64, 128, 192}, {1, 2, 3}}, 100) == 32 * 100 * 5);
  CHECK(largest({{0, 128, 192}, {1, 2, 3}}, 100) == 32 * 100 * 4);
}

}  // namespace plimsoll_test
