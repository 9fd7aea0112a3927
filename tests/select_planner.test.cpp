// SPDX-License-Identifier: Apache-2.0
// Tests of select_planner under the host's policies; types of loads, and its body in every team.
#include "select_planner.cases.hpp"

#include "support/report_values.hpp"
#include "support/run_body.hpp"

namespace plimsoll_test {

TEST_CASE("select_planner: the same bits in every team") {
  for (std::uint64_t const seed : {0u, 3u, 5u, 6u}) {
    history_case const c = random_history(seed);
    longs loads = c.loads;
    loads[seed] = seed == 3 ? -1 : loads[seed];
    loads[seed] = seed == 5 ? std::int64_t{1} << 47 : loads[seed];
    std::vector<std::uint8_t> loaded(static_cast<std::size_t>(c.steps * c.layers), 7);
    std::vector<plimsoll::detail::problem_report> reports(static_cast<std::size_t>(c.layers));
    using view = plimsoll::tensor_ref<std::int64_t const>;
    plimsoll::detail::history_check_body<view> const body{
        view(loads.data(), c.steps, c.layers, c.experts), loaded.data(), reports.data()};
    check_all_teams(body, c.layers, loaded, [&] { return report_values(reports); });
  }
}

/// Loads as a function of the indices.
struct stored_load {
  plimsoll::tensor_ref<std::int64_t const> loads;
  PLIMSOLL_HD std::int64_t operator()(index_t step, index_t layer, index_t e) const {
    return loads(step, layer, e);
  }
};

TEST_CASE("select_planner: integer, floating and generated loads") {
  using P = plimsoll::seq_policy;
  history_case const c = random_history(8);
  selection const expected = select<P>(c);
  selection const doubles = select<P, double>(c);
  CHECK(doubles.map == expected.map);
  CHECK(doubles.candidates[0].balancedness == expected.candidates[0].balancedness);
  array_in<std::int64_t, P> const loads(c.loads);
  auto const got = plimsoll::select_planner(
      make_policy<P>(),
      plimsoll::generate(stored_load{loads.view3(c.steps, c.layers, c.experts)}, c.steps, c.layers,
                         c.experts),
      c.slots, {.on = {.ranks = c.where.ranks}, .split = c.split});
  CHECK(got.physical_to_logical.to_host() == expected.map);
}

}  // namespace plimsoll_test
