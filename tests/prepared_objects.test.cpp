// SPDX-License-Identifier: Apache-2.0
// Checks of prepared objects wait for the work enqueued before them and throw what it refused; one
// object serves several ranks in turn. samples.test.cpp checks that constructors wait and work
// calls do not.
#include <doctest/doctest.h>
#include <plimsoll/plimsoll.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/refusal.hpp"
#include "support/stream_policy.hpp"

namespace {

using plimsoll_test::on_the_stream, plimsoll_test::stream_policy;

/// Checks `check` of an object: before the first step, after a step, after one with a bad load, and
/// after the next good one. `step` works on `loads` and does not wait.
template <class Object, class Step>
void check_of(Object& object, Step const& step, std::vector<std::int32_t>& loads) {
  auto const checked = [&] {
    std::string const message = plimsoll_test::refusal_of([&] { object.check(); });
    CHECK(on_the_stream.enqueued == 0);
    return message;
  };
  auto const run = [&](std::int32_t load) {
    loads[1] = load;
    on_the_stream.reset();
    step();
    CHECK(on_the_stream.enqueued > 0);
    CHECK(on_the_stream.waits == 0);
    return checked();
  };
  CHECK(checked() == "no error");
  CHECK(run(1) == "no error");
  CHECK(run(-1).ends_with("got -1 in layer 0, expert 1"));
  CHECK(run(2) == "no error");
}

/// Two ranks with experts 0 to 3; the second rank has another replica of expert 0.
struct small_layer {
  std::vector<std::int32_t> map{0, 1, -1, 2, 3, 0};
  std::vector<std::int32_t> copies{2, 1, 1, 1};
  [[nodiscard]] plimsoll::placement_ref placement() const {
    return {.physical_to_logical = {map.data(), 1, 6},
            .replica_count = {copies.data(), 1, 4},
            .ranks = 2};
  }
};

constexpr stream_policy on_stream{};

}  // namespace

TEST_CASE("prepared objects: checks wait: minmax_lp and lplb") {
  small_layer const in;
  std::vector<std::int32_t> counts{5, 1, 1, 1};
  plimsoll::matrix_ref<std::int32_t const> const loads(counts.data(), 1, 4);
  std::vector<double> split(6);
  plimsoll::minmax_lp lp(on_stream, in.placement());
  check_of(
      lp, [&] { lp.solve(loads, plimsoll::matrix_ref<double>(split.data(), 1, 6)); }, counts);
  plimsoll::lplb planner(on_stream, in.placement(), {.max_token_copies = 8});
  check_of(
      planner, [&] { planner.plan(loads); }, counts);
}

namespace {

/// Returns the message of `planner.check()`, "none" without one. Checks that it waits.
template <class Planner>
std::string refusal_by(Planner const& planner) {
  on_the_stream.waits = 0;
  std::string message = "none";
  try {
    planner.check();
  } catch (plimsoll::invalid_input const& refused) {
    message = refused.what();
  }
  CHECK(on_the_stream.waits > 0);
  return message;
}

using ints = std::vector<std::int32_t>;

/// A step of two ranks with experts 0 and 1, 2 and 3. Rank 0 sends tokens of expert 0 to rank 1.
struct two_ranks {
  static constexpr plimsoll::index_t tokens = 6;

  plimsoll::least_loaded_options options = {
      .on = {.ranks = 2}, .experts = 4, .min_chunk = 1, .lambda = 0, .max_token_copies = tokens};
  std::vector<ints> ids = {{0, 0, 0, 2, 0, -1}, {0, 3, 0, 1, 7, 0}};
  ints counts = {4, 0, 1, 0, 3, 1, 0, 1};  // [ranks, experts]

  template <class Id = std::int32_t>
  [[nodiscard]] plimsoll::matrix_ref<Id> matrix(std::vector<Id>& values) const {
    return {values.data(), tokens, 1};
  }
  [[nodiscard]] plimsoll::matrix_ref<std::int32_t const> counts_of_ranks() const {
    return {counts.data(), 2, 4};
  }
  template <class Planner>
  void plan(Planner& planner) const {
    planner.add_up(counts_of_ranks());
    planner.plan();
  }
};

/// The outputs for one rank.
template <class Id>
struct routed {
  std::vector<Id> destinations = std::vector<Id>(two_ranks::tokens, 99);
  std::vector<Id> rows = std::vector<Id>(two_ranks::tokens, 99);
  std::vector<Id> arranged = std::vector<Id>(8, 99);
  std::vector<plimsoll::spill_segment> groups = std::vector<plimsoll::spill_segment>(4);
  std::vector<plimsoll::spill_counters> counters = std::vector<plimsoll::spill_counters>(1);

  template <class Planner>
  routed(Planner& planner, two_ranks& in, plimsoll::index_t rank, bool arranges_first = false) {
    ints row(4);
    auto& ids = in.ids[static_cast<std::size_t>(rank)];
    if (arranges_first) {
      planner.arrange(rank, arranged, groups);
    }
    planner.count(in.matrix(ids), row);
    planner.route(rank, in.matrix(ids), in.matrix(destinations), in.matrix(rows), counters);
    if (!arranges_first) {
      planner.arrange(rank, arranged, groups);
    }
  }
  /// All numbers, to compare.
  [[nodiscard]] std::vector<std::int64_t> numbers() const {
    std::vector<std::int64_t> all(destinations.begin(), destinations.end());
    all.insert(all.end(), rows.begin(), rows.end());
    all.insert(all.end(), arranged.begin(), arranged.end());
    for (plimsoll::spill_segment const& of : groups) {
      all.insert(all.end(), {of.expert, of.rank, of.begin, of.end});
    }
    all.insert(all.end(), {counters[0].routed, counters[0].unplanned, counters[0].unrouted,
                           counters[0].out_of_range});
    return all;
  }
};

}  // namespace

TEST_CASE("prepared objects: least_loaded routes the tokens of two ranks in turn") {
  two_ranks in;
  plimsoll::least_loaded planner(on_stream, in.options);
  on_the_stream.reset();
  in.plan(planner);
  planner.exchange();
  routed<std::int32_t> const first(planner, in, 0);
  CHECK(first.destinations == ints{0, 0, 0, 1, 0, -1});
  CHECK(first.rows == ints{0, 1, 2, 4, 3, -1});
  CHECK(first.arranged == ints{0, 1, 2, 3, 4, -1, -1, -1});
  routed<std::int32_t> const second(planner, in, 1);
  CHECK(second.destinations == ints{1, 1, 1, 0, -1, 1});
  CHECK(second.rows == ints{1, 4, 2, 0, -1, 3});
  CHECK(second.arranged == ints{3, 0, 1, 2, 4, -1, -1, -1});
  // Neither rank's calls change the results of the other, in any order.
  for (bool const arranges_first : {false, true}) {
    CHECK(routed<std::int32_t>(planner, in, 0, arranges_first).numbers() == first.numbers());
    CHECK(routed<std::int32_t>(planner, in, 1, arranges_first).numbers() == second.numbers());
    CHECK(routed<std::int64_t>(planner, in, 1, arranges_first).numbers() == second.numbers());
    CHECK(routed<std::int64_t>(planner, in, 0, arranges_first).numbers() == first.numbers());
  }
  CHECK(on_the_stream.enqueued > 0);
  CHECK(on_the_stream.waits == 0);
  CHECK(planner.send_counts()(0, 1) == 1);
  CHECK(planner.receive_counts()(1, 0) == 1);
  CHECK(planner.exchange_reports()[0].received == 5);
  CHECK(planner.exchange_reports()[1].sent == 5);
  CHECK(refusal_by(planner) == "none");
}

TEST_CASE("prepared objects: least_loaded routes nothing before the exchange of a plan") {
  two_ranks in;
  plimsoll::least_loaded planner(on_stream, in.options);
  auto const check_unplanned = [&] {
    for (plimsoll::index_t const rank : {0, 1}) {
      routed<std::int32_t> const got(planner, in, rank);
      CHECK(got.destinations == ints(two_ranks::tokens, -1));
      CHECK(got.rows == ints(two_ranks::tokens, -1));
      CHECK(got.arranged == ints(8, -1));
      CHECK(got.groups[0].expert == -1);
      CHECK(got.counters[0].routed == 0);
      CHECK(got.counters[0].unplanned == 5);
    }
  };
  check_unplanned();
  in.plan(planner);
  check_unplanned();
  planner.exchange();
  CHECK(routed<std::int32_t>(planner, in, 0).counters[0].routed == 5);
  // A new plan ends the exchange of the old one.
  in.plan(planner);
  check_unplanned();
}

TEST_CASE("prepared objects: least_loaded::check throws what the last calls refused") {
  two_ranks in;
  plimsoll::least_loaded planner(on_stream, in.options);
  std::vector<std::int64_t> const good = {7, 1, 1, 1};
  std::vector<std::int64_t> const fewer = {6, 1, 1, 1};
  std::vector<std::int64_t> const negative = {7, 1, -1, 1};
  std::string const counts =
      "least_loaded::exchange: counts: expected the planned load, 6 tokens, got 7, expert 0";
  std::string const loads =
      "least_loaded::plan: loads: expected values from 0 to below 2^47, got -1, expert 2";
  CHECK(refusal_by(planner) == "none");
  planner.plan(negative);
  CHECK(refusal_by(planner) == loads);
  CHECK(refusal_by(planner) == loads);
  planner.plan(good);
  CHECK(refusal_by(planner) == "none");
  planner.add_up(in.counts_of_ranks());
  planner.plan(fewer);
  CHECK(refusal_by(planner) == "none");  // there is no exchange yet
  planner.exchange();
  CHECK(refusal_by(planner) == counts);
  CHECK(planner.exchange_reports()[0].refused.kind == plimsoll::fault_kind::counts);
  CHECK(planner.exchange_reports()[1].refused.kind == plimsoll::fault_kind::counts);
  planner.plan(good);
  CHECK(refusal_by(planner) == "none");  // the refused exchange belongs to an older plan
  planner.exchange();
  CHECK(refusal_by(planner) == "none");
  CHECK(planner.exchange_reports()[1].refused.kind == plimsoll::fault_kind::none);
  // The plan comes first.
  planner.plan(negative);
  planner.exchange();
  CHECK(refusal_by(planner) == loads);
}

TEST_CASE("prepared objects: llep::check throws what the last plan refused") {
  two_ranks const in;
  plimsoll::llep step(on_stream, {.rank = 1, .assignment = in.options});
  CHECK(refusal_by(step) == "none");
  auto const counts = step.counts();
  std::copy(in.counts.begin(), in.counts.end(), counts.data);
  step.plan();
  CHECK(refusal_by(step) == "none");
  counts(0, 3) = -4;
  step.plan();
  CHECK(refusal_by(step) ==
        "llep::plan: loads: expected values from 0 to below 2^47, got -4, expert 3");
  counts(0, 3) = 0;
  step.plan();
  CHECK(refusal_by(step) == "none");
}

TEST_CASE("prepared objects: check waits and throws what was refused: waterline and waterfill") {
  small_layer const in;
  std::vector<std::int32_t> const ids{0, 0, 3, 3};
  std::vector<std::int64_t> bad{1, 0, 4, -4};
  std::vector<std::int64_t> good{1, 0, 4, 0};
  plimsoll::matrix_ref<std::int32_t const> const topk_ids(ids.data(), 4, 1);
  plimsoll::matrix_ref<std::int32_t> const no_ids;
  auto const refused_by = [](auto const& object) {
    on_the_stream.waits = 0;
    std::string const message = plimsoll_test::refusal_of([&] { object.check(); });
    CHECK(on_the_stream.waits == 2);  // the reports of the update and of the step
    return message;
  };
  plimsoll::waterline line(on_stream,
                           {.on = {.ranks = 2}, .slots = 6, .top_k = 1, .max_tokens = 4});
  CHECK(refused_by(line) == "no error");
  line.plan(plimsoll::matrix_ref<std::int64_t>(bad.data(), 2, 2), 0);
  line.fill(topk_ids, 0, {}, no_ids, {});
  CHECK(refused_by(line) ==
        "waterline::plan: loads: expected values from 0 to 2^31 - 1, got -4 in row 1, rank 1");
  CHECK(refused_by(line) != "no error");  // a check clears nothing
  line.plan(plimsoll::matrix_ref<std::int64_t>(good.data(), 2, 2), 0);
  line.fill(topk_ids, 0, {}, no_ids, {});
  CHECK(refused_by(line) == "no error");
  plimsoll::waterfill fill(on_stream, in.placement(), {.line = {.top_k = 1, .max_tokens = 4}});
  CHECK(refused_by(fill) == "no error");
  fill.count(topk_ids);
  fill.loads()(1, 1) = -4;
  fill.fill(topk_ids, {}, no_ids);
  CHECK(refused_by(fill) ==
        "waterfill::fill: loads: expected values from 0 to 2^31 - 1, got -4 in row 1, rank 1");
}

TEST_CASE("prepared objects: one waterline fills two sources in turn as two objects do") {
  std::vector<std::int32_t> const ids{0, 3, 0, 3, 4, 0, 0, 1};
  std::vector<std::int64_t> loads{20, 2, 4, 4};
  plimsoll::matrix_ref<std::int32_t const> const topk_ids(ids.data(), 4, 2);
  plimsoll::matrix_ref<std::int64_t> const summed(loads.data(), 2, 2);
  plimsoll::waterline_options const options{
      .on = {.ranks = 2}, .slots = 6, .top_k = 2, .max_tokens = 4, .min_tokens = 0};
  auto const filled = [&](auto& line, plimsoll::index_t source) {
    std::vector<std::int32_t> ranks(4, -7);
    line.plan(summed, source);
    line.fill(topk_ids, source, {}, plimsoll::matrix_ref<std::int32_t>(), {.ranks = ranks});
    line.check();
    return ranks;
  };
  plimsoll::waterline both(on_stream, options);
  plimsoll::waterline first(on_stream, options);
  plimsoll::waterline second(on_stream, options);
  for (int turn = 0; turn < 2; ++turn) {
    CHECK(filled(both, 0) == filled(first, 0));
    CHECK(filled(both, 1) == filled(second, 1));
  }
  CHECK(filled(both, 0) != filled(both, 1));
}

TEST_CASE("prepared objects: a priced plan neither allocates nor waits") {
  two_ranks const in;
  plimsoll::least_loaded planner(on_stream, in.options,
                                 plimsoll::spill_price{plimsoll::moe_cost{1, 1, 1}, 1, 1});
  on_the_stream.reset();
  in.plan(planner);
  CHECK(on_the_stream.enqueued > 0);
  CHECK(on_the_stream.allocations == 0);
  CHECK(on_the_stream.waits == 0);
  CHECK(refusal_by(planner) == "none");
}
