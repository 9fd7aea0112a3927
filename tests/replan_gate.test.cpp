// SPDX-License-Identifier: Apache-2.0
// Tests of replan_gate under the host's policies; teams, shapes and options.
#include "replan_gate.cases.hpp"

#include "support/run_body.hpp"

namespace plimsoll_test {

TEST_CASE("replan_gate: the same bits in every team") {
  gate_case const c = random_gate(5);
  plan_in<plimsoll::seq_policy> const plan(c, c.in_use);
  using view = plimsoll::tensor_ref<std::int32_t const>;
  index_t const problems = c.steps() * c.layers;
  std::vector<plimsoll::detail::timed_step> steps(static_cast<std::size_t>(problems));
  std::vector<plimsoll::detail::problem_report> reports(steps.size());
  reals const speed(static_cast<std::size_t>(c.ranks), 1.0);
  std::vector<plimsoll::certificate> peaks(steps.size());
  for (std::size_t i = 0; i < peaks.size(); ++i) {
    peaks[i].value = 20 + static_cast<double>(i);
  }
  for (bool const is_optimal : {false, true}) {
    plimsoll::detail::step_balance_body<view, moe_cost> const body{
        .loads = view(c.loads.data(), c.steps(), c.layers, c.experts),
        .plans = {.physical_to_logical = plan.ref().physical_to_logical,
                  .replica_count = plan.ref().replica_count,
                  .ranges = {{}, c.slots(), c.ranks},
                  .speed = speed.data(),
                  .total_speed = static_cast<double>(c.ranks),
                  .peaks = is_optimal ? peaks.data() : nullptr},
        .cost = c.options.cost,
        .results = steps.data(),
        .reports = reports.data()};
    ints none(1);
    check_all_teams(body, problems, none, [&] {
      reals values;
      for (auto const& step : steps) {
        values.insert(values.end(), {step.mean, step.peak, step.seconds, step.least_seconds});
      }
      return values;
    });
  }
}

TEST_CASE("replan_gate: shapes and options are checked") {
  auto const refused = [](auto const& change) {
    gate_case c = hot_rank();
    change(c);
    return refusal_of([&] { decide<plimsoll::seq_policy>(c); });
  };
  CHECK(refused([](gate_case& c) { c.options.horizon = 0; }) ==
        "decide_replan: options.horizon: expected 1 to 9007199254740992 steps, got 0");
  CHECK(refused([](gate_case& c) { c.options.cost.per_token = -1; }) ==
        "decide_replan: options.cost.per_token: expected a number from 0 to below 2^960, got -1");
  CHECK(refused([](gate_case& c) { c.options.cost.per_token = 0; }) ==
        "decide_replan: options.cost.per_token: expected a number above 0, since balance is worth "
        "nothing without, got 0");
  CHECK(refused([](gate_case& c) { c.options.cost.launch = std::nan(""); }) ==
        "decide_replan: options.cost.launch: expected a number from 0 to below 2^960, got NaN");
  CHECK(refused([](gate_case& c) { c.options.cost.flat_below = -2; }) ==
        "decide_replan: options.cost.flat_below: expected a number from 0 to below 2^960, got -2");
  CHECK(refused([](gate_case& c) {
          c.options.layer_stall = -1;
        }).starts_with("decide_replan: options.layer_stall: expected a number from 0 to "));
  CHECK(refused([](gate_case& c) { c.options.transfer_share = 2; }) ==
        "decide_replan: options.transfer_share: expected a number from 0 to 1, got 2");
  CHECK(refused([](gate_case& c) {
          c.options.standard_errors = std::nan("");
        }).starts_with("decide_replan: options.standard_errors: expected a number from 0 to "));
  CHECK(refused([](gate_case& c) { c.options.enough_balancedness = 1.5; }) ==
        "decide_replan: options.enough_balancedness: expected a number from 0 to 1, got 1.5");
  CHECK(refused([](gate_case& c) { c.options.least_steps = 0; }) ==
        "decide_replan: options.least_steps: expected 1 to 2147483647 steps, got 0");
  CHECK(refused([](gate_case& c) {
          c.options.expert_bytes = 0;
        }).starts_with("decide_replan: options.expert_bytes: expected 1 to "));
  CHECK(refused([](gate_case& c) { c.options.bandwidths.same_node = 0; }) ==
        "decide_replan: options.bandwidths.same_node: expected a number above 0, got 0");
  CHECK(
      refused([](gate_case& c) {
        c.speeds = {1, 2};
      }) ==
      "decide_replan: options.on.speeds: expected none, since copies share evenly on ranks of any "
      "speed, got speeds");
  CHECK(
      refused([](gate_case& c) { c.candidates[0].plan = {0, 1, 2, 3, 3, 3}; }) ==
      "decide_replan: candidates[0].plan.physical_to_logical: expected 4 slots, as in in_use, got "
      "6");
  CHECK(refused([](gate_case& c) { c.candidates[0].of_first_half = c.in_use; }) ==
        "decide_replan: candidates[0].of_second_half: expected a plan, since there is one of the "
        "other half, got none");
  CHECK(
      refused([](gate_case& c) {
        c.loads.resize(4);
        c.candidates[0].of_first_half = c.candidates[0].of_second_half = c.in_use;
      }) ==
      "decide_replan: loads: expected 2 to 2147483647 steps, since there are plans of halves, got "
      "1");
  CHECK(refused([](gate_case& c) { c.candidates[0].plan.clear(); }) ==
        "decide_replan: candidates[0].plan.physical_to_logical: expected 1 to 2147483647 slots, "
        "got 0");
}

}  // namespace plimsoll_test
