// SPDX-License-Identifier: Apache-2.0
// Ids that are not experts, such as the number of experts, in maps that bodies read before or while
// `validate` checks them: they count as empty slots, whatever is in memory after the arrays.
#include <doctest/doctest.h>
#include <plimsoll/latency.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/replay.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/draws.hpp"
#include "support/replay_case.hpp"
#include "support/run_body.hpp"

namespace plimsoll_test { namespace {

using plimsoll::tensor_ref;

/// A case with out-of-range ids in one slot of eight, and the same case with those slots empty.
struct stray_case {
  replay_case stray;
  replay_case empty;

  explicit stray_case(std::uint64_t seed) : stray(random_replay(seed)), empty(stray) {
    draws draw(seed);
    auto const experts = static_cast<std::int32_t>(stray.experts);
    for (std::size_t slot = 0; slot < stray.map.size(); ++slot) {
      if (draw.one_in(8)) {
        stray.map[slot] = draw.one_in(2) ? experts
                                         : draw.any({experts + 1, -2, experts + 1000,
                                                     std::numeric_limits<std::int32_t>::max(),
                                                     std::numeric_limits<std::int32_t>::min()});
        empty.map[slot] = -1;
      }
    }
  }
};

/// Checks that `results` returns the same for both cases, with either garbage in scratch memory.
template <class Results>
void check_strays(Results results) {
  for (std::uint64_t seed = 0; seed < cases_of(400); ++seed) {
    CAPTURE(seed);
    stray_case const c(seed);
    reals const expected = results(c.empty, 0);
    CHECK(results(c.stray, 0) == expected);
    CHECK(results(c.stray, 1) == expected);
  }
}

tensor_ref<double const> loads_of(replay_case const& c, reals const& loads) {
  return {loads.data(), c.steps, c.layers, c.experts};
}

TEST_CASE("stray_ids: rank_loads") {
  check_strays([](replay_case const& c, std::uint64_t junk) {
    replay_in<plimsoll::seq_policy> const in(c);
    auto const placement = in.placement();
    reals const loads = c.loads_as<double>();
    reals out(static_cast<std::size_t>(c.steps * c.layers * c.ranks));
    plimsoll::detail::rank_loads_body<tensor_ref<double const>> const body{
        loads_of(c, loads),
        placement.physical_to_logical,
        placement.replica_count,
        {placement.rank_offsets, c.slots, c.ranks},
        {out.data(), c.steps, c.layers, c.ranks}};
    run_body(body, body.problems(), serial, junk);
    return out;
  });
}

TEST_CASE("stray_ids: latencies of ranks") {
  check_strays([](replay_case const& c, std::uint64_t junk) {
    replay_in<plimsoll::seq_policy> const in(c);
    auto const placement = in.placement();
    reals const loads = c.loads_as<double>();
    reals out(static_cast<std::size_t>(c.steps * c.layers * c.ranks));
    plimsoll::detail::latencies_body<tensor_ref<double const>, plimsoll::token_cost> body{
        .loads = loads_of(c, loads),
        .physical_to_logical = placement.physical_to_logical,
        .replica_count = placement.replica_count,
        .ranges = {placement.rank_offsets, c.slots, c.ranks},
        .cost = {},
        .out = {.of_rank = {out.data(), c.steps, c.layers, c.ranks}},
        .reports = nullptr};
    std::vector<plimsoll::detail::problem_report> reports(
        static_cast<std::size_t>(body.problems()));
    body.reports = reports.data();
    run_body(body, body.problems(), serial, junk);
    return out;
  });
}

TEST_CASE("stray_ids: replayed steps") {
  check_strays([](replay_case const& c, std::uint64_t junk) {
    using plimsoll::detail::replay_reports, plimsoll::detail::replay_tiles;
    replay_in<plimsoll::seq_policy> const in(c);
    auto const placement = in.placement();
    reals const loads = c.loads_as<double>();
    reals sums(static_cast<std::size_t>(c.rows() * replay_tiles(c.steps)));
    std::vector<plimsoll::detail::problem_report> reports(
        static_cast<std::size_t>(replay_reports(c.steps, c.layers)));
    plimsoll::detail::replay_body<tensor_ref<double const>> const body{
        .loads = loads_of(c, loads),
        .physical_to_logical = placement.physical_to_logical,
        .replica_count = placement.replica_count,
        .ranges = {placement.rank_offsets, c.slots, c.ranks},
        .active = in.options().on.active,
        .plans = c.plans,
        .sums = {sums.data(), c.rows(), replay_tiles(c.steps)},
        .reports = reports.data()};
    run_body(body, body.problems(), serial, junk);
    return sums;
  });
}

}  // namespace
}  // namespace plimsoll_test
