// SPDX-License-Identifier: Apache-2.0
#include "metrics.cases.hpp"

#include "support/run_body.hpp"

namespace plimsoll_test {

// NaN compares unequal, so compare bits.
inline std::vector<std::uint64_t> bits_of(std::vector<balance> const& rows) {
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
    std::vector<balance> out(4);
    using view = plimsoll::matrix_ref<T const>;
    plimsoll::detail::metrics_body<view, balance> const body{
        view(loads.data(), 4, columns), plimsoll::vector_ref<balance>(out.data(), 4)};
    check_all_teams(body, 4, [&] { return bits_of(out); });
  }
}

TEST_CASE("metrics: shapes are checked") {
  std::vector<float> loads(6, 1.0f);
  std::vector<balance> out(3);
  CHECK_THROWS_WITH_AS(
      plimsoll::measure(plimsoll::seq, plimsoll::matrix_ref<float>(loads.data(), 2, 3), out),
      "measure: out: expected 2 rows, got 3", plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(
      plimsoll::measure(plimsoll::seq, plimsoll::matrix_ref<float>(loads.data(), 3, 0), out),
      "measure: loads: expected 1 to 65535 columns, got 0", plimsoll::invalid_input);
}

TEST_CASE("metrics: vectors are outputs, functions are loads") {
  std::vector<balance> out(2);
  plimsoll::measure(plimsoll::seq,
                    plimsoll::generate([](index_t r, index_t c) { return r + c; }, 2, 3), out);
  CHECK(out[1].mean == 2);
  CHECK(out[1].peak == 3);
}

}  // namespace plimsoll_test
