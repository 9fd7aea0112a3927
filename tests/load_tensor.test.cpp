// SPDX-License-Identifier: Apache-2.0
// Tests of load_tensor under the host's policies; every team, shapes.
#include "load_tensor.cases.hpp"

#include <new>
#include <span>

#include "support/run_body.hpp"

namespace plimsoll_test {

using plimsoll::invalid_input;
using plimsoll::matrix_ref;
using plimsoll::seq;
using plimsoll::tensor_ref;
using plimsoll::vector_ref;

// ----- bodies in every team ----------------------------------------------------------------------

TEST_CASE_TEMPLATE("load_tensor: sum_steps in every team", T, std::int32_t, float) {
  using sum = plimsoll::detail::load_sum_t<T>;
  using view = tensor_ref<T const>;
  for (index_t const experts : {1, 130, 260}) {
    auto const loads = rough_loads<T>(9 * 2 * experts, 11);
    std::vector<sum> out(static_cast<std::size_t>(2 * experts));
    check_all_teams(
        plimsoll::detail::sum_steps_body<view, sum>{view(loads.data(), 9, 2, experts),
                                                    matrix_ref<sum>(out.data(), 2, experts)},
        2 * plimsoll::detail::tiles_of(experts), out);
  }
}

TEST_CASE("load_tensor: generated sums in every team") {
  auto const loads = plimsoll::generate(
      [](index_t t, index_t l, index_t e) {
        return (0.1 + static_cast<double>(t)) * (1.7 + static_cast<double>(l * 31 + e));
      },
      40, 2, 260);
  std::vector<double> out(520);
  check_all_teams(
      plimsoll::detail::sum_steps_body<decltype(loads), double>{
          loads, matrix_ref<double>(out.data(), 2, 260)},
      4, out);
  double first = 0;
  for (int t = 0; t < 40; ++t) {
    double const volatile load = (0.1 + t) * 1.7;
    first += load;
  }
  CHECK(out[0] == first);
}

TEST_CASE("load_tensor: rank_loads in every team") {
  test_placement const placement(2, 12, 31);
  auto const loads = rough_loads<float>(9 * 2 * 12, 12);
  using view = tensor_ref<float const>;
  for (index_t const ranks : {1, 5, 40}) {
    std::vector<double> out(static_cast<std::size_t>(9 * 2 * ranks));
    plimsoll::detail::rank_loads_body<view> const body{
        view(loads.data(), 9, 2, 12),
        matrix_ref<std::int32_t const>(placement.map.data(), 2, 31),
        matrix_ref<std::int32_t const>(placement.copies.data(), 2, 12),
        {{}, 31, ranks},
        tensor_ref<double>(out.data(), 9, 2, ranks)};
    check_all_teams(body, body.problems(), out);
  }
}

TEST_CASE("load_tensor: scatter in every team") {
  auto const map = random_ids<std::int32_t>(3 * 50, 20, 13);
  auto const counts = rough_loads<std::int32_t>(3 * 50, 14);
  std::vector<std::int64_t> logical(3 * 20);
  std::vector<scatter_counters> counters(3);
  check_all_teams(
      plimsoll::detail::scatter_body<std::int32_t, std::int64_t, std::int32_t>{
          matrix_ref<std::int32_t const>(counts.data(), 3, 50),
          matrix_ref<std::int32_t const>(map.data(), 3, 50),
          matrix_ref<std::int64_t>(logical.data(), 3, 20),
          vector_ref<scatter_counters>(counters.data(), 3)},
      3, logical, counters);
}

TEST_CASE("load_tensor: clearing of counts in every team") {
  using counting = plimsoll::detail::token_counting<std::int32_t, std::int64_t, std::int32_t>;
  std::vector<std::int64_t> counts(2 * 3 * 40, 1);
  std::vector<routing_counters> counters(2, routing_counters{1, 2, 3});
  check_all_teams(plimsoll::detail::clear_counts_body<counting>{counting{
                      {},
                      {},
                      tensor_ref<std::int64_t>(counts.data(), 2, 3, 40),
                      vector_ref<routing_counters>(counters.data(), 2)}},
                  6, counts, counters);
  CHECK(counts == std::vector<std::int64_t>(2 * 3 * 40));
  CHECK(members(counters) == std::vector<std::int64_t>(6));
}

TEST_CASE_TEMPLATE("load_tensor: the window in every team", T, std::int32_t, float) {
  constexpr index_t window = 3;
  constexpr index_t experts = 260;
  using view = matrix_ref<T const>;
  for (plimsoll::detail::window_state const state :
       {plimsoll::detail::window_state{0, 0}, {2, 2}, {0, 3}, {1, 3}}) {
    auto const loads = rough_loads<T>(2 * experts, 15);
    auto ring = rough_loads<T>(window * 2 * experts, 16);
    std::vector<std::int64_t> sums(2 * experts, 1000);
    std::vector<std::int64_t> states{state.next, state.size, state.next, state.size};
    auto* const in_place = reinterpret_cast<plimsoll::detail::window_state*>(states.data());
    tensor_ref<T> const ring_view(ring.data(), window, 2, experts);
    check_all_teams(
        plimsoll::detail::window_push_body<view, T>{
            view(loads.data(), 2, experts), ring_view,
            matrix_ref<std::int64_t>(sums.data(), 2, experts), in_place},
        2, ring, sums, states);
    std::vector<double> out(2 * experts);
    check_all_teams(
        plimsoll::detail::window_sum_body<T>{ring_view, in_place,
                                             matrix_ref<double>(out.data(), 2, experts)},
        4, out);
    std::vector<T> steps(ring.size());
    plimsoll::tensor_ref<T> const to(steps.data(), ring_view.extent(0), 2, experts);
    check_all_teams(plimsoll::detail::window_steps_body<T>{ring_view, in_place, to},
                    2 * ring_view.extent(0), steps);
  }
}

TEST_CASE("load_tensor: decay and copies of rows in every team") {
  auto const loads = rough_loads<float>(2 * 70, 17);
  auto values = rough_loads<double>(2 * 70, 18);
  using view = matrix_ref<float const>;
  check_all_teams(plimsoll::detail::decay_body<view>{view(loads.data(), 2, 70), 0.9,
                                                     matrix_ref<double>(values.data(), 2, 70)},
                  2, values);
  // The form that CUB runs on a device, one index at a time.
  std::vector<double> in_teams = values;
  plimsoll::detail::decay_body<view> const whole{view(loads.data(), 2, 70), 0.9,
                                                 matrix_ref<double>(values.data(), 2, 70)};
  plimsoll::detail::serial_team team;
  for (index_t layer = 0; layer < 2; ++layer) {
    auto body = whole;
    body.values.data = in_teams.data();
    body(team, plimsoll::detail::scratch(nullptr), layer);
  }
  for (index_t i = 2 * 70; i-- > 0;) {
    whole(i);
  }
  CHECK(values == in_teams);
  std::vector<double> copy(2 * 70);
  check_all_teams(plimsoll::detail::copy_rows_body<double>{matrix_ref<double>(values.data(), 2, 70),
                                                           matrix_ref<double>(copy.data(), 2, 70)},
                  2, copy);
  CHECK(copy == values);
}

// ----- memory ------------------------------------------------------------------------------------

TEST_CASE_TEMPLATE("load_tensor: prepared objects allocate once", P, PLIMSOLL_HOST_POLICIES) {
  counting_resource memory;
  {
    auto const policy = P{}(memory);
    plimsoll::load_window<std::int32_t, P> integers(policy, 3, 200, {.window = 4});
    plimsoll::load_window<float, P> reals(policy, 3, 200, {.window = 4});
    plimsoll::load_decay<P> average(policy, 3, 200);
    std::size_t const prepared = memory.allocations();
    CHECK(prepared == 3 + 2 + 1);
    auto const loads = rough_loads<float>(600, 19);
    std::vector<std::int32_t> const counts(600, 2);
    std::vector<std::int64_t> sum(600);
    std::vector<std::int32_t> steps(2400);
    std::vector<double> real_sum(600);
    for (int step = 0; step < 9; ++step) {
      integers.push(matrix_ref<std::int32_t const>(counts.data(), 3, 200));
      integers.sum(matrix_ref<std::int64_t>(sum.data(), 3, 200));
      integers.steps(plimsoll::tensor_ref<std::int32_t>(steps.data(), 4, 3, 200));
      reals.push(matrix_ref<float const>(loads.data(), 3, 200));
      reals.sum(matrix_ref<double>(real_sum.data(), 3, 200));
      average.push(matrix_ref<float const>(loads.data(), 3, 200));
      average.reset(2);
    }
    CHECK(integers.size() == 4);
    CHECK(sum == std::vector<std::int64_t>(600, 8));
    CHECK(steps == std::vector<std::int32_t>(2400, 2));
    CHECK(memory.allocations() == prepared);
  }
  CHECK(memory.live() == 0);
  CHECK(memory.mismatches() == 0);
}

TEST_CASE_TEMPLATE("load_tensor: running out of memory leaks none", P, PLIMSOLL_HOST_POLICIES) {
  auto const ids = random_ids<std::int32_t>(40000, 50, 20);
  std::vector<std::int64_t> counts(50);
  std::vector<routing_counters> counters(1);
  for (std::size_t const allowed : {0u, 1u, 2u}) {
    throwing_resource memory(allowed);
    auto const policy = P{}(memory);
    auto const count = [&] {
      plimsoll::count_tokens(policy, matrix_ref<std::int32_t const>(ids.data(), 10000, 4), {},
                             counts, counters);
    };
    if (allowed == 0) {
      CHECK_THROWS_AS(count(), std::bad_alloc);
    } else {
      try {  // the executor chooses the number of blocks
        count();
      } catch (std::bad_alloc const&) {
      }
    }
    CHECK_THROWS_AS((plimsoll::load_window<std::int32_t, P>(policy, 2, 2, {.window = 2})),
                    std::bad_alloc);
    CHECK(memory.live() == 0);
    CHECK(memory.mismatches() == 0);
  }
}

// ----- views and messages ------------------------------------------------------------------------

TEST_CASE("load_tensor: vectors and spans are outputs, functions are loads") {
  std::vector<std::int32_t> const ids{0, 1, 1, -1};
  std::vector<std::int64_t> counts(2);
  std::vector<routing_counters> counters(1);
  plimsoll::count_tokens(seq, matrix_ref<std::int32_t const>(ids.data(), 2, 2), {}, counts,
                         std::span(counters));
  CHECK(counts == std::vector<std::int64_t>{1, 2});
  std::vector<std::int32_t> const offsets{0, 1, 2};
  std::vector<std::int64_t> by_source(4);
  plimsoll::count_tokens_by_source(seq, matrix_ref<std::int32_t const>(ids.data(), 2, 2), offsets,
                                   {}, matrix_ref<std::int64_t>(by_source.data(), 2, 2), counters);
  CHECK(by_source == std::vector<std::int64_t>{1, 1, 0, 1});

  auto const loads = plimsoll::generate([](index_t l, index_t e) { return l * 10 + e; }, 2, 3);
  std::vector<std::int64_t> sum(6);
  plimsoll::load_window<std::int64_t, plimsoll::seq_policy> window(seq, 2, 3, {.window = 5});
  plimsoll::load_decay average(seq, 2, 3, {.decay = 0.5});
  for (int step = 0; step < 2; ++step) {
    window.push(loads);
    average.push(loads);
  }
  window.sum(matrix_ref<std::int64_t>(sum.data(), 2, 3));
  CHECK(sum == std::vector<std::int64_t>{0, 2, 4, 20, 22, 24});
  CHECK(average.values()(1, 2) == 18);

  plimsoll::sum_steps(
      seq, plimsoll::generate([](index_t t, index_t l, index_t e) { return t + l + e; }, 4, 2, 3),
      matrix_ref<std::int64_t>(sum.data(), 2, 3));
  CHECK(sum == std::vector<std::int64_t>{6, 10, 14, 10, 14, 18});

  std::vector<std::int32_t> const map{0, 1, 2, 2, 1, 0, 0, 1};
  std::vector<std::int32_t> const copies{1, 1, 2, 2, 2, 0};
  std::vector<double> out(4);
  plimsoll::rank_loads(seq, loads,
                       {matrix_ref<std::int32_t const>(map.data(), 2, 4),
                        matrix_ref<std::int32_t const>(copies.data(), 2, 3), 2},
                       matrix_ref<double>(out.data(), 2, 2));
  CHECK(out == std::vector<double>{1, 2, 10.5, 10.5});
}

TEST_CASE("load_tensor: objects can be moved") {
  std::vector<std::int32_t> const loads{1, 2};
  matrix_ref<std::int32_t const> const view(loads.data(), 1, 2);
  plimsoll::load_window<std::int32_t, plimsoll::seq_policy> window(seq, 1, 2, {.window = 2});
  window.push(view);
  auto moved = std::move(window);
  moved.push(view);
  std::vector<std::int64_t> sum(2);
  moved.sum(matrix_ref<std::int64_t>(sum.data(), 1, 2));
  CHECK(sum == std::vector<std::int64_t>{2, 4});
}

#define CHECK_REFUSED(call, message) CHECK_THROWS_WITH_AS(call, message, invalid_input)

TEST_CASE("load_tensor: shapes of counting are checked") {
  std::vector<std::int32_t> ids(24);
  std::vector<std::int32_t> counts(8);
  std::vector<routing_counters> counters(2);
  matrix_ref<std::int32_t> const tokens(ids.data(), 6, 4);
  vector_ref<routing_counters> const one(counters.data(), 1);
  CHECK_REFUSED(plimsoll::count_tokens(seq, tokens, {}, counts, counters),
                "count_tokens: counters: expected 1 element, got 2");
  CHECK_REFUSED(
      plimsoll::count_tokens(seq, matrix_ref<std::int32_t>(ids.data(), 6, 0), {}, counts, one),
      "count_tokens: topk_ids: expected 1 to 65535 ids per token, got 0");
  CHECK_REFUSED(plimsoll::count_tokens(seq, tokens, {}, std::span(counts).first(0), one),
                "count_tokens: counts: expected 1 to 65535 experts, got 0");
  CHECK_REFUSED(
      plimsoll::count_tokens(seq, matrix_ref<std::int32_t>(ids.data(), 1 << 28, 8), {}, counts,
                             one),
      "count_tokens: topk_ids: expected at most 2147483647 ids per layer for int32 counts, got "
      "2147483648");
  CHECK_REFUSED(plimsoll::count_tokens(seq, tensor_ref<std::int32_t>(ids.data(), 3, 2, 4), {},
                                       matrix_ref<std::int32_t>(counts.data(), 2, 4), counters),
                "count_tokens: counts: expected 3 layers, got 2");
}

TEST_CASE("load_tensor: sources are checked") {
  std::vector<std::int32_t> ids(24);
  std::vector<std::int32_t> counts(8);
  std::vector<routing_counters> counters(1);
  auto const count = [&](std::vector<std::int32_t> const& offsets, index_t sources) {
    plimsoll::count_tokens_by_source(seq, matrix_ref<std::int32_t>(ids.data(), 6, 4), offsets, {},
                                     matrix_ref<std::int32_t>(counts.data(), sources, 2), counters);
  };
  CHECK_REFUSED(count({0, 6}, 0),
                "count_tokens_by_source: counts: expected 1 to 32767 sources, got 0");
  CHECK_REFUSED(count({0, 6}, 2),
                "count_tokens_by_source: source_offsets: expected 3 offsets (sources + 1), got 2");
  CHECK_REFUSED(count({0, 4, 3, 6}, 3),
                "count_tokens_by_source: source_offsets: expected rising offsets, 4 or more at 2, "
                "got 3");
  CHECK_REFUSED(count({0, 5}, 1),
                "count_tokens_by_source: source_offsets: expected offsets from 0 to 6 (tokens), "
                "got 0 to 5");
  CHECK_REFUSED(count({1, 6}, 1),
                "count_tokens_by_source: source_offsets: expected offsets from 0 to 6 (tokens), "
                "got 1 to 6");
  CHECK_NOTHROW(count({0, 6, 6}, 2));
}

TEST_CASE("load_tensor: shapes of scatter and sums are checked") {
  std::vector<std::int32_t> in(24);
  std::vector<std::int64_t> out(24);
  std::vector<scatter_counters> counters(3);
  auto const scatter = [&](index_t layers, index_t slots, index_t out_layers, index_t counted) {
    plimsoll::scatter_to_logical(seq, matrix_ref<std::int32_t>(in.data(), 2, 4),
                                 matrix_ref<std::int32_t>(in.data(), layers, slots),
                                 matrix_ref<std::int64_t>(out.data(), out_layers, 3),
                                 vector_ref<scatter_counters>(counters.data(), counted));
  };
  CHECK_REFUSED(scatter(3, 4, 2, 2),
                "scatter_to_logical: physical_to_logical: expected 2 layers, got 3");
  CHECK_REFUSED(scatter(2, 5, 2, 2),
                "scatter_to_logical: physical_to_logical: expected 4 slots, got 5");
  CHECK_REFUSED(scatter(2, 4, 1, 2), "scatter_to_logical: logical: expected 2 layers, got 1");
  CHECK_REFUSED(scatter(2, 4, 2, 3),
                "scatter_to_logical: counters: expected 2 elements (one per layer), got 3");
  auto const sum = [&](index_t layers, index_t experts) {
    plimsoll::sum_steps(seq, tensor_ref<std::int32_t>(in.data(), 2, 3, 4),
                        matrix_ref<std::int64_t>(out.data(), layers, experts));
  };
  CHECK_REFUSED(sum(2, 4), "sum_steps: out: expected 3 layers, got 2");
  CHECK_REFUSED(sum(3, 5), "sum_steps: out: expected 4 experts, got 5");
}

TEST_CASE("load_tensor: shapes of rank_loads are checked") {
  std::vector<std::int32_t> in(64);
  std::vector<double> out(64);
  auto const map = [&](index_t rows, index_t columns) {
    return matrix_ref<std::int32_t const>(in.data(), rows, columns);
  };
  auto const loads = [&](plimsoll::placement_ref const& placement, index_t steps, index_t layers,
                         index_t ranks) {
    plimsoll::rank_loads(seq, tensor_ref<std::int32_t>(in.data(), 2, 3, 4), placement,
                         tensor_ref<double>(out.data(), steps, layers, ranks));
  };
  CHECK_REFUSED(loads({map(3, 5), map(3, 4), 0}, 2, 3, 0),
                "rank_loads: placement.ranks: expected 1 to 32767 ranks, got 0");
  CHECK_REFUSED(loads({map(2, 5), map(3, 4), 2}, 2, 3, 2),
                "rank_loads: placement.physical_to_logical: expected 3 layers, got 2");
  CHECK_REFUSED(loads({map(3, 5), map(1, 4), 2}, 2, 3, 2),
                "rank_loads: placement.replica_count: expected 3 layers, got 1");
  CHECK_REFUSED(loads({map(3, 5), map(3, 5), 2}, 2, 3, 2),
                "rank_loads: placement.replica_count: expected 4 experts, got 5");
  CHECK_REFUSED(loads({map(3, 5), map(3, 4), 2, map(2, 3)}, 2, 3, 2),
                "rank_loads: placement.rank_offsets: expected 3 layers, got 2");
  CHECK_REFUSED(loads({map(3, 5), map(3, 4), 2, map(3, 2)}, 2, 3, 2),
                "rank_loads: placement.rank_offsets: expected 3 offsets (ranks + 1), got 2");
  CHECK_REFUSED(loads({map(3, 5), map(3, 4), 2}, 1, 3, 2),
                "rank_loads: out: expected 2 steps, got 1");
  CHECK_REFUSED(loads({map(3, 5), map(3, 4), 2}, 2, 1, 2),
                "rank_loads: out: expected 3 layers, got 1");
  CHECK_REFUSED(loads({map(3, 5), map(3, 4), 2}, 2, 3, 1),
                "rank_loads: out: expected 2 ranks, got 1");
}

TEST_CASE("load_tensor: shapes and options of prepared objects are checked") {
  using window = plimsoll::load_window<std::int32_t, plimsoll::seq_policy>;
  CHECK_REFUSED(window(seq, 2, 3, {.window = 0}),
                "load_window: options.window: expected 1 to 2147483647 steps, got 0");
  CHECK_REFUSED(window(seq, -1, 3), "load_window: layers: expected 1 to 2147483647 layers, got -1");
  CHECK_REFUSED(window(seq, 2, 70000),
                "load_window: experts: expected 1 to 65535 experts, got 70000");
  std::vector<std::int32_t> loads(12);
  std::vector<std::int64_t> out(12);
  window steps(seq, 2, 3, {.window = 1});
  CHECK_REFUSED(steps.push(matrix_ref<std::int32_t>(loads.data(), 1, 3)),
                "load_window::push: loads: expected 2 layers, got 1");
  CHECK_REFUSED(steps.sum(matrix_ref<std::int64_t>(out.data(), 2, 4)),
                "load_window::sum: out: expected 3 experts, got 4");
  auto const read = [&](index_t rows, index_t layers, index_t experts) {
    steps.steps(plimsoll::tensor_ref<std::int32_t>(loads.data(), rows, layers, experts));
  };
  CHECK_REFUSED(read(2, 2, 3), "load_window::steps: out: expected 1 steps (the window), got 2");
  CHECK_REFUSED(read(1, 1, 3), "load_window::steps: out: expected 2 layers, got 1");
  CHECK_REFUSED(read(1, 2, 4), "load_window::steps: out: expected 3 experts, got 4");

  plimsoll::load_decay average(seq, 2, 3, {.decay = 1});
  CHECK_REFUSED(average.push(matrix_ref<std::int32_t>(loads.data(), 3, 3)),
                "load_decay::push: loads: expected 2 layers, got 3");
  CHECK_REFUSED(average.push(matrix_ref<std::int32_t>(loads.data(), 2, 2)),
                "load_decay::push: loads: expected 3 experts, got 2");
  CHECK_REFUSED(average.reset(2), "load_decay::reset: layer: expected 0 to 1 as the layer, got 2");
  double const nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_REFUSED(plimsoll::load_decay(seq, 2, 3, {.decay = 0.0}),
                "load_decay: options.decay: expected a number above 0 and up to 1, got 0");
  CHECK_REFUSED(plimsoll::load_decay(seq, 2, 3, {.decay = 1.5}),
                "load_decay: options.decay: expected a number above 0 and up to 1, got 1.5");
  CHECK_REFUSED(plimsoll::load_decay(seq, 2, 3, {.decay = nan}),
                "load_decay: options.decay: expected a number above 0 and up to 1, got NaN");
  CHECK_REFUSED(plimsoll::load_decay(seq, 0, 3),
                "load_decay: layers: expected 1 to 2147483647 layers, got 0");
}

}  // namespace plimsoll_test
