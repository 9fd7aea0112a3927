// SPDX-License-Identifier: Apache-2.0
// Tests of the verdict of plan_experts: its answer, its words, and the steps that would tell.
#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "../decision.hpp"

using namespace examples;
using plimsoll::replan_answer;

namespace {

/// Steps of one layer of four experts on two ranks, alike but for a token more in every other one.
npy::any_array steps_of(std::vector<std::int64_t> const& loads, index_t steps) {
  npy::array<std::int64_t> result{{steps, 1, 4}, {}};
  for (index_t step = 0; step < steps; ++step) {
    result.values.insert(result.values.end(), loads.begin(), loads.end());
    result.values.back() += step % 2;
  }
  return result;
}
plan plan_of(std::vector<std::int32_t> map) {
  plan result = trivial_plan(1, 4, 2, 4);
  result.physical_to_logical = std::move(map);
  return result;
}
decision_request moving(std::int64_t horizon, std::int64_t bytes) {
  decision_request request{.token_us = 1, .counts_moves = true, .knows_bytes = true};
  request.how.horizon = horizon;
  request.how.expert_bytes = bytes;
  request.how.bandwidths = {1e6, 1e6, 1e6, 1e6};  // a byte takes 1 us
  return request;
}

plan const together = plan_of({0, 1, 2, 3});
plan const apart = plan_of({0, 2, 1, 3});

}  // namespace

TEST_CASE("decision: try it where the transfers pay") {
  auto const found =
      decide(steps_of({30, 30, 10, 10}, 4), together, {.after = apart}, moving(100, 200));
  CHECK(found.answer == replan_answer::move);
  CHECK(found.exit_status() == 0);
  CHECK(found.judged.break_even_steps == 11);  // 200 us, of which a step gives 19.5
  CHECK(found.text() ==
        "try it: on steps that such plans were not made from, a step saves 19.5 us of 60.0 us in "
        "experts (32.5 %, standard error 0.3 us), and the transfers, 200.0 us, pay after 11 steps");
  CHECK(found.change() == "decisions every 11 steps or more often");
}

TEST_CASE("decision: not now where they do not") {
  auto const found =
      decide(steps_of({30, 30, 10, 10}, 4), together, {.after = apart}, moving(10, 200));
  CHECK(found.answer == replan_answer::keep);
  CHECK(found.exit_status() == 3);
  CHECK(found.text() ==
        "not now: the transfers, 200.0 us, pay only after 11 steps, and the next decision is after "
        "10 steps");
  CHECK(found.change() ==
        "more than 11 steps between decisions (--horizon), or fewer moves (--max-moves)");
}

TEST_CASE("decision: not now where nothing is to be gained") {
  decision_request const request{.how = {.horizon = 1000}, .token_us = 1};
  auto const equal = decide(steps_of({10, 10, 10, 9}, 4), together, {.after = apart}, request);
  CHECK(equal.answer == replan_answer::keep);
  CHECK(equal.change() == "loads that are less equal, or that stay longer as they are");
  auto const same = decide(steps_of({30, 30, 10, 10}, 4), together, {.after = together}, request);
  CHECK(same.text() == "not now: the new plan is the one in use");
  decision_request flat = request;
  flat.flat_below = 61;
  auto const small = decide(steps_of({30, 30, 10, 10}, 4), together, {.after = apart}, flat);
  CHECK(small.answer == replan_answer::keep);
  CHECK(small.text() == "not now: no rank has more tokens than take no time of their own");
  CHECK(small.change() ==
        "larger batches: a rank has 40 token copies of a layer, and 61 take no time of their own");
  auto const worse = decide(steps_of({30, 30, 10, 10}, 4), apart, {.after = together}, request);
  CHECK(worse.answer == replan_answer::keep);
  CHECK(worse.text().starts_with("not now: even perfect balance would save only 0.3 us of "));
}

TEST_CASE("decision: without transfers, a gain of a hundredth of the time is the least") {
  decision_request const request{.how = {.horizon = 1000, .transfer_share = 0}, .token_us = 1};
  auto const found = decide(steps_of({300, 300, 298, 298}, 4), together, {.after = apart}, request);
  CHECK(found.answer == replan_answer::keep);
  auto const more = decide(steps_of({300, 300, 280, 280}, 4), together, {.after = apart}, request);
  CHECK(more.answer == replan_answer::move);
  CHECK(more.change() ==
        "batches so small that the 580 token copies of a rank in a layer take no time of their own "
        "(--flat-below)");
}

TEST_CASE("decision: not enough to tell") {
  auto const few =
      decide(steps_of({30, 30, 10, 10}, 1), together, {.after = apart}, moving(100, 200));
  CHECK(few.exit_status() == 4);
  CHECK(few.more_steps() == 3);
  CHECK(few.text() == "not enough to tell: record 3 more steps, since 1 has load");
  // The plan gains 20 us in every other step, and loses 16 us in between: 2 us in the mean, with a
  // standard error of 10.4 us.
  npy::array<std::int64_t> steps{{4, 1, 4}, {30, 30, 10, 10, 28, 12, 28, 12}};
  steps.values.insert(steps.values.end(), steps.values.begin(), steps.values.begin() + 8);
  auto const noisy = decide(steps, together, {.after = apart}, moving(1000, 1));
  CHECK(noisy.answer == replan_answer::insufficient_evidence);
  CHECK(noisy.more_steps() == 105);  // 109 steps have a standard error of 2 us
  CHECK(
      noisy.text().starts_with("not enough to tell: record 105 more steps, since a step saves "
                               "2.0 us of 50.0 us in experts"));
  CHECK(noisy.change() == "more steps, of the same traffic");
}

TEST_CASE("decision: plans of halves are judged on the other half") {
  npy::array<std::int64_t> steps{{4, 1, 4},
                                 {30, 30, 10, 10, 30, 30, 10, 10, 30, 10, 30, 10,  //
                                  30, 10, 30, 10}};
  plan const neither = plan_of({0, 3, 1, 2});
  decision_request const request{.how = {.horizon = 1000, .transfer_share = 0}, .token_us = 1};
  auto const found =
      decide(steps, together, {.after = neither, .of_halves = {{apart, together}}}, request);
  CHECK(found.judged.gain_seconds == doctest::Approx(-10e-6));
  CHECK(found.answer == replan_answer::keep);
}

TEST_CASE("decision: latency curves take the place of a time per token") {
  decision_request request{.how = {.horizon = 1000, .transfer_share = 0}, .token_us = 1};
  request.curves = curve_samples{.tokens = {0, 100}, .latency_us = {0, 400}};
  auto const found = decide(steps_of({30, 30, 10, 10}, 4), together, {.after = apart}, request);
  CHECK(found.step_seconds == doctest::Approx(240e-6));
}

TEST_CASE("decision: a part of the steps is a file of its own") {
  auto const file = part_of(steps_of({30, 30, 10, 10}, 4), 1, 3, "loads.npy");
  CHECK(file.name() == "loads.npy");
  CHECK(file.shape() == std::array<index_t, 3>{2, 1, 4});
  std::vector<std::int64_t> values(8);
  file.read(0, 2, values.data());
  CHECK(values == std::vector<std::int64_t>{30, 30, 10, 11, 30, 30, 10, 10});
}
