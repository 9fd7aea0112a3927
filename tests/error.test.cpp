// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <plimsoll/error.hpp>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>

static_assert(std::is_base_of_v<std::invalid_argument, plimsoll::invalid_input>);
static_assert(std::is_base_of_v<std::runtime_error, plimsoll::cuda_error>);
static_assert(!std::is_base_of_v<std::logic_error, plimsoll::cuda_error>);

TEST_CASE("error: the message names function, argument, expected and got") {
  CHECK_THROWS_WITH_AS(plimsoll::detail::fail("f", "ranks", "a positive number", "-3"),
                       "f: ranks: expected a positive number, got -3", plimsoll::invalid_input);
  // It can also be caught as the standard exception.
  CHECK_THROWS_AS(plimsoll::detail::fail("f", "x", "y", "z"), std::invalid_argument);
}

TEST_CASE("error: expect_between accepts both ends") {
  auto const check = [](long long got) {
    plimsoll::detail::expect_between("f", "k", -2, 5, got, "ranks");
  };
  CHECK_NOTHROW(check(-2));
  CHECK_NOTHROW(check(0));
  CHECK_NOTHROW(check(5));
  CHECK_THROWS_WITH_AS(check(-3), "f: k: expected -2 to 5 ranks, got -3", plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(check(6), "f: k: expected -2 to 5 ranks, got 6", plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(plimsoll::detail::expect_between("f", "k", 1, 0, 1, "slots"),
                       "f: k: expected 1 to 0 slots, got 1", plimsoll::invalid_input);
}

TEST_CASE("error: expect_extent accepts the expected value only") {
  auto const check = [](long long got) {
    plimsoll::detail::expect_extent("f", "out", 4, got, "rows (layers of loads)");
  };
  CHECK_NOTHROW(check(4));
  CHECK_THROWS_WITH_AS(check(3), "f: out: expected 4 rows (layers of loads), got 3",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(check(5), "f: out: expected 4 rows (layers of loads), got 5",
                       plimsoll::invalid_input);
}

TEST_CASE("error: numbers have the fewest digits that identify them") {
  using plimsoll::detail::text;
  constexpr double inf = std::numeric_limits<double>::infinity();
  CHECK(text(-1e-9) == "-1e-09");
  CHECK(text(1e301) == "1e+301");
  CHECK(text(-std::numeric_limits<double>::max()) == "-1.7976931348623157e+308");
  CHECK(text(std::numeric_limits<double>::denorm_min()) == "5e-324");
  CHECK(text(0.1, " ", 1.5, " ", 0.1f) == "0.1 1.5 0.1");
  CHECK(text(0.1 + 0.2) == "0.30000000000000004");
  CHECK(text(0.0, " ", -0.0, " ", 4.0, " ", -140737488355328.0) == "0 0 4 -140737488355328");
  CHECK(text(0x1p64) == "18446744073709551616");
  CHECK(text(inf, " ", -inf, " ", std::nan("")) == "inf -inf NaN");
  CHECK(text("of ", -7, std::string(" to "), 8u) == "of -7 to 8");
}

TEST_CASE("error: cuda_error keeps the code") {
  plimsoll::cuda_error const error(719, "kernel launch: unspecified launch failure");
  CHECK(error.code() == 719);
  CHECK(std::string(error.what()) == "kernel launch: unspecified launch failure");
  static_assert(noexcept(error.code()));
}
