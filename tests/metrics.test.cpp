// SPDX-License-Identifier: Apache-2.0
// Tests of metrics under the host's policies; every team, shapes, temporaries.
#include <utility>

#include "metrics.cases.hpp"

#include "support/refusal.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

// NaN compares unequal, so compare bits.
inline std::vector<std::uint64_t> bits_of(std::vector<balance_stats> const& rows) {
  std::vector<std::uint64_t> bits;
  for (double const member : members(rows)) {
    bits.push_back(plimsoll::detail::bits_of(member));
  }
  return bits;
}

TEST_CASE_TEMPLATE("metrics: the same bits in every team", T, std::int32_t, float) {
  for (index_t const columns : {1, 31, 33, 100}) {
    auto loads = as<T>(skewed_loads(4, columns, 9));
    loads.back() = T{-1};
    std::vector<balance_stats> out(4);
    using view = plimsoll::matrix_ref<T const>;
    plimsoll::detail::metrics_body<view> const body{
        view(loads.data(), 4, columns), plimsoll::vector_ref<balance_stats>(out.data(), 4)};
    check_all_teams(body, 4, [&] { return bits_of(out); });
  }
}

TEST_CASE("metrics: shapes are checked") {
  std::vector<float> loads(6, 1.0f);
  std::vector<balance_stats> out(3);
  CHECK_THROWS_WITH_AS(
      plimsoll::measure(plimsoll::seq, plimsoll::matrix_ref<float>(loads.data(), 2, 3), out),
      "measure: out: expected 2 rows, got 3", plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(
      plimsoll::measure(plimsoll::seq, plimsoll::matrix_ref<float>(loads.data(), 3, 0), out),
      "measure: loads: expected 1 to 65535 columns, got 0", plimsoll::invalid_input);
}

TEST_CASE("metrics: vectors are outputs, functions are loads") {
  std::vector<balance_stats> out(2);
  plimsoll::measure(plimsoll::seq,
                    plimsoll::generate([](index_t r, index_t c) { return r + c; }, 2, 3), out);
  CHECK(out[1].mean == 2);
  CHECK(out[1].peak == 3);
}

TEST_CASE("metrics: correlation and classes have the same bits in every team") {
  auto const check = [](auto const& loads) {
    using view = std::remove_cvref_t<decltype(loads)>;
    index_t const layers = loads.extent(1);
    index_t const experts = loads.extent(2);
    reals correlation(static_cast<std::size_t>(layers * experts * experts), -7);
    plimsoll::detail::correlation_body<view> const alike{
        loads, {correlation.data(), layers, experts, experts}};
    check_all_teams(alike, layers * experts, correlation);
    uses use(static_cast<std::size_t>(layers * experts));
    plimsoll::detail::classes_body<view> const classes{
        loads, {1, 0.5, 0.5, 1.5}, {use.data(), layers, experts}};
    check_all_teams(classes, layers, use);
  };
  for (std::uint64_t const seed : {0u, 1u, 6u}) {
    CAPTURE(seed);
    steps_case const c = random_steps(seed);
    reals loads = as<double>(c.loads);
    for (double& load : loads) {
      load *= 0.1;  // so that sums depend on their order
    }
    check(plimsoll::tensor_ref<double const>(loads.data(), c.steps, c.layers, c.experts));
  }
  check(plimsoll::generate(product_steps{}, 5, 1, 35));
}

TEST_CASE("metrics: shapes and options of correlation and classes are checked") {
  longs const loads(24, 1);
  reals correlation(48, 1);
  uses use(12);
  struct shapes {
    index_t loads[3] = {2, 3, 4};
    index_t matrix[3] = {3, 4, 4};
    index_t use[2] = {3, 4};
  };
  auto const views = [&](shapes const& s, auto call) {
    return refusal_of([&] {
      call(plimsoll::tensor_ref<std::int64_t const>(loads.data(), s.loads[0], s.loads[1],
                                                    s.loads[2]),
           plimsoll::tensor_ref<double>(correlation.data(), s.matrix[0], s.matrix[1], s.matrix[2]),
           plimsoll::matrix_ref<expert_use>(use.data(), s.use[0], s.use[1]));
    });
  };
  auto const correlate = [&](shapes const& s) {
    return views(s, [](auto in, auto out, auto) { plimsoll::correlate(plimsoll::seq, in, out); });
  };
  CHECK(correlate({}) == "no error");
  CHECK(correlate({.loads = {0, 3, 4}}) ==
        "correlate: loads: expected 1 to 2147483647 steps, got 0");
  CHECK(correlate({.loads = {2, 3, 0}}) == "correlate: loads: expected 1 to 65535 experts, got 0");
  CHECK(correlate({.loads = {2, 2, 4}}) == "correlate: correlation: expected 2 layers, got 3");
  CHECK(correlate({.matrix = {3, 5, 4}}) == "correlate: correlation: expected 4 experts, got 5");
  CHECK(correlate({.matrix = {3, 4, 3}}) == "correlate: correlation: expected 4 experts, got 3");

  auto const classify = [&](shapes const& s, expert_use_options const& options = {}) {
    return views(s, [&](auto in, auto, auto out) {
      plimsoll::classify_experts(plimsoll::seq, in, options, out);
    });
  };
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  std::string const name = "classify_experts: ";
  CHECK(classify({}) == "no error");
  CHECK(classify({.loads = {0, 3, 4}}) == name + "loads: expected 1 to 2147483647 steps, got 0");
  CHECK(classify({.loads = {2, 3, 65536}}) ==
        name + "loads: expected 1 to 65535 experts, got 65536");
  CHECK(classify({.use = {2, 4}}) == name + "use: expected 3 layers, got 2");
  CHECK(classify({.use = {3, 3}}) == name + "use: expected 4 experts, got 3");
  CHECK(classify({}, {.busy = -1}) ==
        name + "options.busy: expected a number from 0 to 65536, got -1");
  CHECK(classify({}, {.consistent_part = 1.5}) ==
        name + "options.consistent_part: expected a number from 0 to 1, got 1.5");
  CHECK(classify({}, {.temporal_part = -0.5}) ==
        name + "options.temporal_part: expected a number from 0 to 1, got -0.5");
  CHECK(classify({}, {.surge = nan}) ==
        name + "options.surge: expected a number from 0 to 65536, got NaN");

  auto const pairs = [&](shapes const& s, double least = 0.8) {
    return views(s, [&](auto, auto matrix, auto classes) {
      static_cast<void>(plimsoll::correlated_pairs(plimsoll::seq, matrix, classes, least));
    });
  };
  CHECK(pairs({}) == "no error");
  CHECK(pairs({.matrix = {3, 4, 3}}) == "correlated_pairs: correlation: expected 4 experts, got 3");
  CHECK(pairs({.use = {2, 4}}) == "correlated_pairs: use: expected 3 layers, got 2");
  CHECK(pairs({.use = {3, 3}}) == "correlated_pairs: use: expected 4 experts, got 3");
  CHECK(pairs({}, 2) == "correlated_pairs: least: expected a number from -1 to 1, got 2");
  CHECK(pairs({}, nan) == "correlated_pairs: least: expected a number from -1 to 1, got NaN");
}

TEST_CASE("metrics: temporaries come from the policy and go back, also when it throws") {
  longs const loads(24, 1);
  reals correlation(48, 1);
  uses use(12);
  plimsoll::tensor_ref<std::int64_t const> const in(loads.data(), 2, 3, 4);
  plimsoll::tensor_ref<double> const matrix(correlation.data(), 3, 4, 4);
  plimsoll::matrix_ref<expert_use> const classes(use.data(), 3, 4);
  check_temporaries(
      1, [&](auto& resource) { plimsoll::correlate(plimsoll::seq(resource), in, matrix); });
  check_temporaries(1, [&](auto& resource) {
    plimsoll::classify_experts(plimsoll::seq(resource), in, {}, classes);
  });
  check_temporaries(0, [&](auto& resource) {
    static_cast<void>(plimsoll::correlated_pairs(plimsoll::seq(resource), matrix, classes));
  });
  // A matrix whose columns are not adjacent is gathered, layer by layer.
  plimsoll::tensor_ref<double> transposed = matrix;
  std::swap(transposed.strides[1], transposed.strides[2]);
  check_temporaries(3, [&](auto& resource) {
    static_cast<void>(plimsoll::correlated_pairs(plimsoll::seq(resource), transposed, classes));
  });
}

}  // namespace plimsoll_test
