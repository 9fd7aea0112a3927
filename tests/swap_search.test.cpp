// SPDX-License-Identifier: Apache-2.0
// Tests of swap_search under the host's policies; every team, shapes, temporaries.
#include "swap_search.cases.hpp"

#include <plimsoll/placement_maps.hpp>

#include "support/report_values.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

/// Memory of a call whose launches are checked in every team.
struct checked_memory {
  std::vector<std::byte> bytes = std::vector<std::byte>(std::size_t{1} << 22, std::byte{0xA5});
  std::size_t used = 0;
};
/// Outputs of a launch, in addition to its buffers.
struct checked_outputs {
  checked_memory memory = {};
  ints map;
  reals scores;
  std::vector<plimsoll::detail::problem_report> reports;
  int launches = 0;
};
struct team_context {
  checked_outputs* outputs = nullptr;
};

template <class Body>
void launch(team_context const& context, index_t problems, Body const& body) {
  checked_outputs& out = *context.outputs;
  ++out.launches;
  CAPTURE(out.launches);
  check_all_teams(body, problems, out.memory.bytes, out.map, out.scores,
                  [&] { return report_values(out.reports); });
}

}  // namespace plimsoll_test

template <>
struct plimsoll::detail::memory_of<plimsoll_test::team_context> {
  static void* allocate(plimsoll_test::team_context const& where, std::size_t bytes,
                        std::size_t alignment) {
    auto& memory = where.outputs->memory;
    std::byte* const data = memory.bytes.data();
    std::size_t const begin =
        memory.used +
        (alignment - reinterpret_cast<std::uintptr_t>(data + memory.used) % alignment) % alignment;
    REQUIRE(begin + bytes <= memory.bytes.size());
    memory.used = begin + bytes;
    return data + begin;
  }
  static void deallocate(plimsoll_test::team_context const&, void*, std::size_t, std::size_t) {}
};

namespace plimsoll_test {

TEST_CASE("swap_search: the same bits in every team") {
  search_case c{.steps = 3, .layers = 2, .experts = 4, .slots = 7};
  c.options.on.ranks = 3;
  c.options.restarts = 2;
  c.options.min_gain = 0;
  c.options.max_swaps = 2;
  c.options.max_plateau_moves = 1;
  generator random(43);
  for (index_t i = 0; i < c.steps * c.layers * c.experts; ++i) {
    c.loads.push_back(static_cast<double>(random.between(0, 90)));
  }
  c.loads.back() = -1;
  c.cost.tile = 8;
  c.cost.idle[1] = 2;
  c.cost.of_tile[0] = 5;
  c.cost.of_tile[2] = 4;
  auto const check = [](search_case const& of) {
    using namespace plimsoll::detail;
    checked_outputs out{.map = ints(static_cast<std::size_t>(of.layers * of.slots), -7),
                        .scores = reals(static_cast<std::size_t>(of.layers * 2), -7.0),
                        .reports = std::vector<problem_report>(2)};
    search_options_in<plimsoll::seq_policy> const options(of);
    std::vector<float> const loads(of.loads.begin(), of.loads.end());
    enqueue_swap_search(
        team_context{&out},
        plimsoll::tensor_ref<float const>(loads.data(), of.steps, of.layers, of.experts), of.cost,
        *options, plimsoll::matrix_ref<std::int32_t>(out.map.data(), of.layers, of.slots),
        plimsoll::matrix_ref<double>(out.scores.data(), of.layers, 2), out.reports.data());
    CHECK(out.launches == (of.options.max_perturbations > 0 ? 7 : 6));
    CHECK(out.reports[1].refused.kind == plimsoll::fault_kind::load);
    CHECK(out.map.back() == -7);
    search_case good = of;
    good.loads.back() = 1;
    search_outcome const expected = searched<plimsoll::seq_policy>(good);
    CHECK(std::equal(expected.scores.begin(), expected.scores.begin() + 2, out.scores.begin()));
    CHECK(std::equal(expected.map.begin(), expected.map.begin() + of.slots, out.map.begin()));
    CHECK(expected.certificates[0].work > 0);
    CHECK(expected.certificates[0].lower_bound == out.reports[0].result.lower_bound);
  };
  SUBCASE("sum") { check(c); }
  SUBCASE("quantile, and copies") {
    c.options.objective = latency_objective::quantile;
    c.options.quantile = 0.6;
    c.offsets = {0, 1, 4, 7, 0, 3, 6, 7};
    c.counts = {2, 1, 1, 1, 1, 2, 1, 2};
    check(c);
  }
  SUBCASE("perturbations, and copies") {
    c.options.max_swaps = 8;
    c.options.max_perturbations = 1;
    c.offsets = {0, 2, 4, 7, 0, 3, 6, 7};
    c.counts = {2, 1, 1, 1, 1, 2, 1, 2};
    check(c);
  }
}

TEST_CASE("swap_search: loads of any type, in any layout, or generated") {
  using P = plimsoll::seq_policy;
  search_case const c = wide_search(7);
  search_outcome const expected = searched<P>(c);
  for_each_load_type([&]<class T>(T) { CHECK((searched<P, T>(c) == expected)); });

  std::vector<float> wide(2 * c.loads.size(), -1);
  for (std::size_t i = 0; i < c.loads.size(); ++i) {
    wide[2 * i] = static_cast<float>(c.loads[i]);
  }
  plimsoll::tensor_ref<float const> view(wide.data(), c.steps, c.layers, c.experts);
  view.strides[0] *= 2;
  view.strides[1] *= 2;
  view.strides[2] *= 2;
  CHECK(search_of<P>(c, view, c.cost) == expected);
  CHECK(search_of<P>(
            c,
            plimsoll::generate([&c](index_t t, index_t l,
                                    index_t e) { return static_cast<float>(c.load(t, l, e)); },
                               c.steps, c.layers, c.experts),
            c.cost) == expected);

  // Column-major outputs and arrays of options; no scores.
  index_t const ranks = c.ranks();
  ints map(static_cast<std::size_t>(c.layers * c.slots), -7);
  plimsoll::matrix_ref<std::int32_t> out(map.data(), c.layers, c.slots);
  out.strides[0] = 1;
  out.strides[1] = c.layers;
  ints offsets;
  for (index_t r = 0; r <= ranks; ++r) {
    offsets.insert(offsets.end(), static_cast<std::size_t>(c.layers),
                   static_cast<std::int32_t>(r * c.slots / ranks));
  }
  ints const counts(static_cast<std::size_t>(2 * c.experts * c.layers), 1);
  flags const active(static_cast<std::size_t>(3 * ranks), 1);
  plimsoll::swap_search_options options = c.options;
  options.rank_offsets = {offsets.data(), c.layers, ranks + 1};
  options.rank_offsets.strides[0] = 1;
  options.rank_offsets.strides[1] = c.layers;
  options.replica_count = {counts.data(), c.layers, c.experts};
  options.replica_count.strides[1] = 2;
  options.on.active = {active.data(), ranks};
  options.on.active.strides[0] = 3;
  auto const certificates = plimsoll::swap_search(plimsoll::seq, view, c.cost, options, out);
  for (index_t layer = 0; layer < c.layers; ++layer) {
    CHECK(certificates[static_cast<std::size_t>(layer)].value ==
          expected.certificates[static_cast<std::size_t>(layer)].value);
    for (index_t slot = 0; slot < c.slots; ++slot) {
      CHECK(out(layer, slot) == expected.map[static_cast<std::size_t>(layer * c.slots + slot)]);
    }
  }
}

TEST_CASE("swap_search: costs too large for units are refused, not converted") {
  // Tables are filled before costs are checked.
  plimsoll::detail::search_units const units{4, 1, 0};
  CHECK(units.floor(-std::numeric_limits<double>::infinity()) == 0);
  CHECK(units.floor(-1e300) == 0);
  CHECK(units.floor(std::numeric_limits<double>::infinity()) == 4);
  ints const loads{5, 3, 2};
  constexpr double infinite = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  for (double const slope : {infinite, -infinite, nan, -1e300}) {
    ints map(3);
    auto const cost = [slope](index_t rank, double tokens) {
      return rank == 1 ? (tokens > 0 ? slope : 0.0) : tokens;
    };
    std::string const got = refusal_of([&] {
      plimsoll::swap_search(plimsoll::seq,
                            plimsoll::tensor_ref<std::int32_t const>(loads.data(), 1, 1, 3), cost,
                            {.on = {.ranks = 3}, .restarts = 1},
                            plimsoll::matrix_ref<std::int32_t>(map.data(), 1, 3));
    });
    CHECK(got.find("swap_search: cost: expected numbers from 0 to below 2^960") == 0);
  }
}

TEST_CASE("swap_search: a live rank slower than 2^-16 of the fastest is refused") {
  ints const loads{5, 3, 2};
  auto const message = [&](reals const& speeds, flags const& active) {
    ints map(6);
    return refusal_of([&] {
      plimsoll::swap_search(plimsoll::seq,
                            plimsoll::tensor_ref<std::int32_t const>(loads.data(), 1, 1, 3),
                            plimsoll::token_cost{{speeds.data(), 3}},
                            {.on = {.ranks = 3, .active = {active.data(), 3}}, .restarts = 1},
                            plimsoll::matrix_ref<std::int32_t>(map.data(), 1, 6));
    });
  };
  CHECK(message({1, 0x1p-16, 1}, {1, 1, 1}) == "no error");
  CHECK(message({1, 0.5, 0x1p20}, {1, 1, 1}) ==
        "swap_search: cost.speeds: expected speeds of live ranks from 2^-16 of the fastest to the "
        "fastest, got 1 for rank 0, where rank 2 is the fastest");
  CHECK(message({1, 0x1p-40, 1}, {1, 0, 1}) == "no error");
  CHECK(message({1, 0, 1}, {1, 1, 1}) ==
        "swap_search: cost.speeds: expected values from 2^-64 to 2^64, got 0 in layer 0, rank 1");
}

TEST_CASE("swap_search: the library's own costs") {
  using P = plimsoll::seq_policy;
  search_case c = wide_search(11);
  std::vector<float> const loads(c.loads.begin(), c.loads.end());
  plimsoll::tensor_ref<float const> const view(loads.data(), c.steps, c.layers, c.experts);
  SUBCASE("loads") {
    c.cost = {.tile = 1};
    CHECK(search_of<P>(c, view, plimsoll::token_cost{}) == searched<P>(c));
    reals const speeds{0.5, 0.25, 0.125, 1, 0.5};
    for (std::size_t r = 0; r < speeds.size(); ++r) {
      c.cost.of_tile[r] = 1 / speeds[r];
    }
    search_outcome const got = search_of<P>(c, view, plimsoll::token_cost{{speeds.data(), 5}});
    CHECK(got == searched<P>(c));
    check_searched(c, got);
  }
  SUBCASE("curves") {
    longs const tokens{8, 16, 24, 40, 400, 1000};
    reals latency;
    for (std::size_t r = 0; r < 5; ++r) {
      for (std::int64_t const n : tokens) {
        latency.push_back(3 + static_cast<double>(n) * (1 + 0.1 * static_cast<double>(r)));
      }
    }
    plimsoll::latency_curves const curves{{tokens.data(), 6}, {latency.data(), 5, 6}, 40};
    plimsoll::latency_table const table(plimsoll::seq, curves, 5);
    search_outcome const got = search_of<P>(c, view, curves);
    CHECK(got == search_of<P>(c, view, table.cost()));
    reals latencies(static_cast<std::size_t>(c.steps * c.layers));
    ints const ones = c.all_copies();
    plimsoll::step_latencies(plimsoll::seq, view,
                             {.physical_to_logical = {got.map.data(), c.layers, c.slots},
                              .replica_count = {ones.data(), c.layers, c.experts},
                              .ranks = 5},
                             table.cost(),
                             plimsoll::matrix_ref<double>(latencies.data(), c.steps, c.layers));
    for (index_t layer = 0; layer < c.layers; ++layer) {
      double sum = 0;
      for (index_t t = 0; t < c.steps; ++t) {
        sum += latencies[static_cast<std::size_t>(t * c.layers + layer)];
      }
      CHECK(got.certificates[static_cast<std::size_t>(layer)].value ==
            doctest::Approx(sum).epsilon(1e-12));
    }
  }
}

TEST_CASE("swap_search: the bound holds for fractions of tokens") {
  // Three copies, each alone on a rank with a third of the tokens.
  search_case c{.slots = 3, .loads = {10}, .counts = {3}};
  c.options.on.ranks = 3;
  std::vector<float> const loads{10};
  search_outcome const got = search_of<plimsoll::seq_policy>(
      c, plimsoll::tensor_ref<float const>(loads.data(), 1, 1, 1), plimsoll::token_cost{});
  CHECK(got.certificates[0].value == doctest::Approx(10.0 / 3).epsilon(1e-12));
  CHECK(got.certificates[0].lower_bound <= got.certificates[0].value);
  CHECK(got.certificates[0].lower_bound > 3.3);
}

TEST_CASE("swap_search: shapes and options are checked") {
  struct shapes {
    index_t loads[3] = {2, 3, 4};
    index_t map[2] = {3, 6};
    index_t scores[2] = {3, 5};
    index_t offsets[2] = {3, 3};
    index_t active = 2;
    index_t counts[2] = {3, 4};
  };
  reals const loads(24, 1);
  ints map(18);
  reals scores(15);
  ints const offsets{0, 3, 6, 0, 3, 6, 0, 3, 6};
  flags const active(2, 1);
  ints const counts(12, 1);
  auto const check = [&](shapes const& s, auto change, std::string const& expected) {
    plimsoll::swap_search_options options{.on = {.ranks = 2}, .restarts = 5};
    options.rank_offsets = {offsets.data(), s.offsets[0], s.offsets[1]};
    options.on.active = {active.data(), s.active};
    options.replica_count = {counts.data(), s.counts[0], s.counts[1]};
    stairs cost;
    change(options, cost);
    check_message(
        refusal_of([&] {
          plimsoll::swap_search(
              plimsoll::seq,
              plimsoll::tensor_ref<double const>(loads.data(), s.loads[0], s.loads[1], s.loads[2]),
              cost, options, plimsoll::matrix_ref<std::int32_t>(map.data(), s.map[0], s.map[1]),
              plimsoll::matrix_ref<double>(scores.data(), s.scores[0], s.scores[1]));
        }),
        expected == "no error" ? expected : "swap_search: " + expected);
  };
  auto const shape = [&](shapes const& s, std::string const& expected) {
    check(
        s, [](auto&, auto&) {}, expected);
  };
  shape({}, "no error");
  shape({.loads = {0, 3, 4}}, "loads: expected 1 to 2147483647 steps, got 0");
  shape({.loads = {0x80000000, 3, 4}}, "loads: expected 1 to 2147483647 steps, got 2147483648");
  shape({.loads = {2, 3, 0}}, "loads: expected 1 to 65535 experts, got 0");
  shape({.loads = {2, 3, 65536}}, "loads: expected 1 to 65535 experts, got 65536");
  shape({.map = {3, 3}},
        "physical_to_logical: expected 4 to 65535 slots (at least one per expert), got 3");
  shape({.map = {3, 65536}},
        "physical_to_logical: expected 4 to 65535 slots (at least one per expert), got 65536");
  shape({.map = {2, 6}}, "physical_to_logical: expected 3 layers, got 2");
  shape({.scores = {2, 5}}, "restart_scores: expected 3 layers, got 2");
  shape({.scores = {3, 4}}, "restart_scores: expected 5 restarts, got 4");
  shape({.offsets = {2, 3}}, "options.rank_offsets: expected 3 layers, got 2");
  shape({.offsets = {3, 2}}, "options.rank_offsets: expected 3 offsets (ranks + 1), got 2");
  shape({.active = 3}, "options.on.active: expected 2 ranks, got 3");
  shape({.counts = {1, 4}}, "options.replica_count: expected 3 layers, got 1");
  shape({.counts = {3, 5}}, "options.replica_count: expected 4 experts, got 5");

  using options_type = plimsoll::swap_search_options;
  auto const option = [&](auto change, std::string const& expected) {
    check(
        {}, [&](options_type& o, stairs&) { change(o); }, expected);
  };
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  option([](options_type& o) { o.on.ranks = 0; },
         "options.on.ranks: expected 1 to 32767 ranks, got 0");
  option([](options_type& o) { o.on.ranks = 32768; },
         "options.on.ranks: expected 1 to 32767 ranks, got 32768");
  check(
      {.scores = {3, 0}}, [](options_type& o, stairs&) { o.restarts = 0; },
      "options.restarts: expected 1 to 16777216 restarts, got 0");
  option([](options_type& o) { o.max_swaps = -1; },
         "options.max_swaps: expected 0 to 2147483647 swaps, got -1");
  option([](options_type& o) { o.max_plateau_moves = -1; },
         "options.max_plateau_moves: expected 0 to 2147483647 swaps, got -1");
  option([](options_type& o) { o.max_perturbations = -1; },
         "options.max_perturbations: expected 0 to 16777216 perturbations, got -1");
  option([](options_type& o) { o.max_perturbations = (1 << 24) + 1; },
         "options.max_perturbations: expected 0 to 16777216 perturbations, got 16777217");
  option([](options_type& o) { o.min_gain = 0; }, "no error");
  option([](options_type& o) { o.min_gain = 1; }, "no error");
  option([](options_type& o) { o.min_gain = -0.5; },
         "options.min_gain: expected a number from 0 to 1, got -0.5");
  option([](options_type& o) { o.min_gain = 2; },
         "options.min_gain: expected a number from 0 to 1, got 2");
  option([](options_type& o) { o.min_gain = nan; },
         "options.min_gain: expected a number from 0 to 1, got NaN");
  option([](options_type& o) { o.noise = 0; }, "no error");
  option([](options_type& o) { o.noise = 1; },
         "options.noise: expected a number from 0 to below 1, got 1");
  option([](options_type& o) { o.noise = -0.25; },
         "options.noise: expected a number from 0 to below 1, got -0.25");
  option([](options_type& o) { o.noise = nan; },
         "options.noise: expected a number from 0 to below 1, got NaN");
  option([](options_type& o) { o.quantile = 1; }, "no error");
  option([](options_type& o) { o.quantile = 0; },
         "options.quantile: expected a number above 0, at most 1, got 0");
  option([](options_type& o) { o.quantile = 1.5; },
         "options.quantile: expected a number above 0, at most 1, got 1.5");
  option([](options_type& o) { o.quantile = nan; },
         "options.quantile: expected a number above 0, at most 1, got NaN");
  check(
      {}, [](options_type&, stairs& cost) { cost.rank_count = 2; }, "no error");
  check(
      {}, [](options_type&, stairs& cost) { cost.rank_count = 3; },
      "cost: expected 2 ranks, got 3");
}

TEST_CASE("swap_search: temporaries come from the policy and go back, also when it throws") {
  search_case const c = wide_search(2);
  std::vector<float> const loads(c.loads.begin(), c.loads.end());
  ints map(static_cast<std::size_t>(c.layers * c.slots));
  auto const run = [&](auto& resource) {
    plimsoll::swap_search(
        plimsoll::seq(resource),
        plimsoll::tensor_ref<float const>(loads.data(), c.steps, c.layers, c.experts), c.cost,
        c.options, plimsoll::matrix_ref<std::int32_t>(map.data(), c.layers, c.slots));
  };
  counting_resource counting;
  run(counting);
  CHECK(counting.allocations() > 3);
  check_temporaries(counting.allocations(), run);

  auto const made = [&](auto& resource) {
    static_cast<void>(plimsoll::swap_search(
        plimsoll::seq(resource),
        plimsoll::tensor_ref<float const>(loads.data(), c.steps, c.layers, c.experts), c.cost,
        c.slots, c.options));
  };
  counting_resource arrays_too;
  made(arrays_too);
  check_temporaries(arrays_too.allocations(), made);
}

TEST_CASE("swap_search: a returned placement: arguments are checked; replicas and offsets") {
  ints const loads{5, 3, 2, 4, 4, 1};
  ints const offsets{0, 3, 5, 0, 2, 5};
  ints const counts{2, 1, 1, 1, 2, 1};
  auto const made = [&](index_t layers, index_t slots,
                        plimsoll::swap_search_options const& options) {
    return plimsoll::swap_search(
        plimsoll::seq, plimsoll::tensor_ref<std::int32_t const>(loads.data(), 1, layers, 3),
        plimsoll::token_cost{}, slots, options);
  };
  auto const message = [&](index_t slots, plimsoll::swap_search_options const& options) {
    return refusal_of([&] { static_cast<void>(made(2, slots, options)); });
  };
  plimsoll::swap_search_options options{.on = {.ranks = 2}};
  CHECK(message(2, options) ==
        "swap_search: slots: expected 3 to 65535 slots (at least one per expert), got 2");
  CHECK(message(65536, options) ==
        "swap_search: slots: expected 3 to 65535 slots (at least one per expert), got 65536");
  options.rank_offsets = {offsets.data(), 2, 2};
  CHECK(message(5, options) ==
        "swap_search: options.rank_offsets: expected 3 offsets (ranks + 1), got 2");
  options.rank_offsets = {offsets.data(), 2, 3};
  options.replica_count = {counts.data(), 1, 3};
  CHECK(message(5, options) == "swap_search: options.replica_count: expected 2 layers, got 1");
  options.replica_count = {counts.data(), 2, 3};
  auto const plan = made(2, 5, options);
  CHECK(plan.rank_offsets.to_host() == offsets);
  CHECK(plan.replica_count.to_host() == counts);
  CHECK(plan.certificates.size() == 2);
  plimsoll::validate(plimsoll::seq, plan.ref());
  CHECK(made(0, 5, {.on = {.ranks = 2}}).certificates.empty());
}

}  // namespace plimsoll_test
