// SPDX-License-Identifier: Apache-2.0
// Tests of replication under the host's policies; every team, shapes, temporaries.
#include "replication.cases.hpp"

#include <plimsoll/random.hpp>

#include "support/random_placement.hpp"
#include "support/report_values.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

TEST_CASE("replication: the same bits in every team") {
  auto const check = [](index_t experts, index_t slots, std::int32_t least, std::int32_t most,
                        host_options const& options) {
    CAPTURE(experts);
    auto loads = as<float>(skewed_loads(4, experts, 9));
    loads.back() = -1;  // invalid load in the last layer
    std::vector<std::int32_t> counts(loads.size(), -7);
    std::vector<plimsoll::detail::problem_report> reports(4);
    options_in<plimsoll::seq_policy> const where(options, 4);
    using view = plimsoll::matrix_ref<float const>;
    plimsoll::detail::replication_body<view> const body{
        .loads = view(loads.data(), 4, experts),
        .slots = slots,
        .where = plimsoll::detail::topology_of(*where, slots),
        .rule = plimsoll::detail::rule_of(*where),
        .least = {least, {}},
        .most = {most, {}},
        .load_exponent = where->load_exponent,
        .replica_count = plimsoll::matrix_ref<std::int32_t>(counts.data(), 4, experts),
        .reports = reports.data()};
    check_all_teams(body, 4, counts, [&] { return report_values(reports); });
  };
  host_options const nowhere{.ranks = 0};
  check(1, 3, 1, 99, nowhere);
  check(40, 40, 1, 1, nowhere);
  check(40, 67, 1, 99, nowhere);
  check(70, 131, 1, 3, nowhere);
  check(70, 131, 1, 99, {.ranks = 0, .load_exponent = 0.85});
  host_options where{.ranks = 7, .nodes = 3, .active = {1, 1, 1, 0, 1, 1, 1}};
  check(24, 70, 1, 99, where);
  where.replica_anti_affinity = anti_affinity::rank;
  where.anti_affinity_strength = strictness::required;
  check(24, 63, 1, 5, where);
  check(24, 63, 2, 5, where);
  check(24, 63, 3, 5, where);  // the minima do not fit
  where.replica_anti_affinity = anti_affinity::node;
  check(20, 63, 2, 99, where);
  check(20, 63, 4, 99, where);  // more minimum copies than nodes
  where.replica_anti_affinity = anti_affinity::rank;
  for (int layer = 0; layer < 4; ++layer) {
    where.node_experts.insert(where.node_experts.end(), {5, 3, 1, 0, 2, 4, 6, 7});
    where.node_offsets.insert(where.node_offsets.end(), {0, 5, 5, 8});
  }
  check(8, 35, 1, 99, where);
  where.anti_affinity_strength = strictness::preferred;
  check(8, 35, 1, 99, where);
}

/// Smallest possible largest load per copy, in fixed point, over all counts from `counts` up to
/// `most` that fit.
std::int64_t lowest_share(oracle::vector const& load, oracle::vector counts, std::int64_t most,
                          oracle::site const& where, std::size_t expert = 0) {
  if (expert == counts.size()) {
    std::int64_t peak = 0;
    for (std::size_t e = 0; e < counts.size(); ++e) {
      peak = std::max(peak, load[e] / counts[e]);
    }
    return peak;
  }
  auto best = std::numeric_limits<std::int64_t>::max();
  for (; counts[expert] <= most && oracle::fits(counts, where); ++counts[expert]) {
    best = std::min(best, lowest_share(load, counts, most, where, expert + 1));
  }
  return best;
}

TEST_CASE("replication: counts for ranks can be placed, and no better counts can be placed") {
  std::uint64_t made = 0;
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 0; seed < cases_of(3000); ++seed) {
    CAPTURE(seed);
    random_case const given(seed + 300000);
    generator random(seed);
    auto const experts = given.loads.size();
    oracle::site const where = given.site();
    auto const loads = wide(given.loads);
    auto const least = static_cast<std::int32_t>(random.between(1, 5) / 4 + 1);
    // Without required anti-affinity the maxima must fill the slots.
    auto const most = where.required ? static_cast<std::int32_t>(random.between(least, 6)) : 1000;
    oracle::vector const floors(experts, least);
    bool const possible = oracle::fits(floors, where);
    try {
      auto const got = replicated_for<plimsoll::seq_policy>(
          given.loads, 1, given.slots, given.options, {.min_copies = least, .max_copies = most});
      REQUIRE(possible);
      ++made;
      REQUIRE(wide(got.counts) ==
              oracle::replicate(loads, floors, oracle::vector(experts, most), where));
      if (experts < 5) {
        auto const load = oracle::fixed(loads);
        REQUIRE(got.certificates[0].value * fixed_unit(loads) ==
                static_cast<double>(lowest_share(load, floors, most, where)));
      }
      options_in<plimsoll::seq_policy> const there(given.options, 1);
      ints map(static_cast<std::size_t>(given.slots));
      auto const n = static_cast<index_t>(experts);
      REQUIRE_NOTHROW(plimsoll::place(
          plimsoll::seq, plimsoll::matrix_ref<std::int32_t const>(given.loads.data(), 1, n),
          plimsoll::matrix_ref<std::int32_t const>(got.counts.data(), 1, n), *there,
          plimsoll::matrix_ref<std::int32_t>(map.data(), 1, given.slots)));
    } catch (plimsoll::invalid_input const&) {
      ++refused;
      REQUIRE_FALSE(possible);
    }
  }
  CHECK(made > cases_of(1000));
  CHECK(refused > cases_of(300));
}

TEST_CASE("replication: loads count with a precision of 47 bits of their total") {
  replicated<plimsoll::seq_policy> const got(std::vector<double>{16, 16 + 0x1p-38, 1}, 1, 3, 4);
  CHECK(got.counts == std::vector<std::int32_t>{1, 2, 1});
}

TEST_CASE("replication: loads may be a function of the indices") {
  std::vector<std::int32_t> counts(4);
  plimsoll::replicate(plimsoll::seq,
                      plimsoll::generate([](index_t, index_t e) { return e == 2 ? 8 : 1; }, 1, 4),
                      7, {}, plimsoll::matrix_ref<std::int32_t>(counts.data(), 1, 4));
  CHECK(counts == std::vector<std::int32_t>{1, 1, 4, 1});
}

TEST_CASE("replication: shapes are checked") {
  std::vector<float> loads(6, 1.0f);
  std::vector<std::int32_t> counts(8);
  auto const run = [&](index_t layers, index_t experts) {
    plimsoll::replicate(plimsoll::seq, plimsoll::matrix_ref<float>(loads.data(), 2, 3), 5, {},
                        plimsoll::matrix_ref<std::int32_t>(counts.data(), layers, experts));
  };
  CHECK_THROWS_WITH_AS(run(1, 3), "replicate: replica_count: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(run(2, 4), "replicate: replica_count: expected 3 experts, got 4",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(
      plimsoll::replicate(plimsoll::seq, plimsoll::matrix_ref<float>(loads.data(), 2, 0), 5, {},
                          plimsoll::matrix_ref<std::int32_t>(counts.data(), 2, 0)),
      "replicate: loads: expected 1 to 65535 experts, got 0", plimsoll::invalid_input);
}

TEST_CASE("replication: a threshold counts copies as a division does") {
  using plimsoll::detail::limited_expert;
  using plimsoll::detail::share_threshold;
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    auto const draw = [i](std::uint64_t which, double most) {
      return static_cast<std::uint64_t>(most * plimsoll::random::uniform(3, which, i));
    };
    // Powers of two of every size, times 1 to 2.
    double const scale = static_cast<double>(std::uint64_t{1} << 17 << draw(0, 31));
    std::uint64_t const share = static_cast<std::uint64_t>(scale) + draw(1, scale);
    std::uint64_t const most = std::uint64_t{1} << 47;
    std::uint64_t const multiple = share * draw(2, static_cast<double>(most / share) + 1);
    for (std::uint64_t const load : {multiple, multiple + 1, multiple + share - 1}) {
      if (load <= most) {
        limited_expert const expert{static_cast<double>(load), 0, 1, 0xffff};
        std::uint64_t const expected = std::min<std::uint64_t>(load / share + 1, 0xffff);
        share_threshold const threshold(static_cast<double>(share));
        wrong += static_cast<std::uint64_t>(threshold.copies(expert)) != expected ? 1 : 0;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("replication: temporaries come from the policy and go back, also when it throws") {
  std::vector<float> loads(60, 1.0f);
  std::vector<std::int32_t> counts(60);
  auto const run = [&](auto& resource) {
    plimsoll::replicate(plimsoll::seq(resource), plimsoll::matrix_ref<float>(loads.data(), 3, 20),
                        25, {}, plimsoll::matrix_ref<std::int32_t>(counts.data(), 3, 20));
  };
  check_temporaries(2, run);  // reports and one scratch area
}

TEST_CASE("replication: owned counts and int64 counts give back what they take") {
  plimsoll::array const loads(plimsoll::seq, std::vector<float>(60, 1.0f), 3, 20);
  check_temporaries(3, [&](auto& resource) {  // reports, one scratch area, counts
    static_cast<void>(plimsoll::replicate(plimsoll::seq(resource), loads, 25, {}));
  });
  auto counts = plimsoll::zeros<std::int64_t>(plimsoll::seq, 3, 20);
  check_temporaries(3, [&](auto& resource) {  // reports, one scratch area, counts in int32
    plimsoll::replicate(plimsoll::seq(resource), loads, 25, {}, counts);
  });
  CHECK_THROWS_WITH_AS(
      static_cast<void>(plimsoll::replicate(plimsoll::seq, loads, 19, {})),
      "replicate: slots: expected 20 to 32786 slots (at least one per expert), got 19",
      plimsoll::invalid_input);
}

}  // namespace plimsoll_test
