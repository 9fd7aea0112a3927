// SPDX-License-Identifier: Apache-2.0
// Tests of transfers and validate under the host's policies; every team, shapes, temporaries.
#include "migration_transfers.cases.hpp"

#include "support/report_values.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

TEST_CASE("transfers: the same bits in every team") {
  auto const check = [](transfer_case const& c) {
    transfer_arguments<plimsoll::seq_policy> const in(c);
    std::vector<transfer> list(static_cast<std::size_t>(c.layers * c.slots));
    std::vector<plimsoll::layer_transfers> summaries(static_cast<std::size_t>(c.layers));
    std::vector<plimsoll::detail::problem_report> reports(static_cast<std::size_t>(c.layers));
    plimsoll::detail::transfers_body const body{
        .pair = plimsoll::detail::expect_transfers("transfers", in.from(), in.to(), in.options()),
        .rule = c.rule,
        .expert_bytes = c.expert_bytes,
        .list = plimsoll::matrix_ref<transfer>(list.data(), c.layers, c.slots),
        .summaries = summaries.data(),
        .reports = reports.data()};
    auto const counts = [&] {
      std::vector<index_t> values;
      for (plimsoll::layer_transfers const& one : summaries) {
        values.insert(values.end(), {one.rounds, one.rounds_bound, one.staging_slots,
                                     one.changes.moves, one.changes.local_copies});
      }
      return values;
    };
    check_all_teams(body, c.layers, list, counts, [&] { return report_values(reports); });
  };
  for (std::uint64_t seed = 0; seed < cases_of(12); ++seed) {
    CAPTURE(seed);
    check(random_transfers(seed, {12, 6, 2}));
  }
  // Graphs whose colors need long paths and fans.
  for (round_rule const rule : {round_rule::one_peer, round_rule::send_and_receive}) {
    transfer_case c = permuted_experts(3, 33, 2);
    c.rule = rule;
    check(c);
  }
}

TEST_CASE("transfers: shapes are checked") {
  ints const from(24, 0);
  ints const counts(24, 1);
  ints const offsets(24, 0);
  using view = plimsoll::matrix_ref<std::int32_t const>;
  auto const placement = [&](index_t layers, index_t slots, index_t experts, index_t ranks,
                             view const& ends = {}) {
    return plimsoll::placement_ref{view(from.data(), layers, slots),
                                   view(counts.data(), layers, experts), ranks, ends};
  };
  plimsoll::placement_ref const good = placement(2, 4, 3, 2);
  auto const refused = [&](plimsoll::placement_ref const& a, plimsoll::placement_ref const& b,
                           std::string const& message,
                           plimsoll::transfer_options const& options = {}) {
    check_message(refusal_of([&] {
                    static_cast<void>(plimsoll::plan_transfers(plimsoll::seq, a, b, options));
                  }),
                  "plan_transfers: " + message);
    check_message(refusal_of([&] { plimsoll::validate(plimsoll::seq, a, b, {}, options); }),
                  "validate: " + message);
  };
  refused(good, placement(1, 4, 3, 2),
          "to.physical_to_logical: expected 2 layers, as in from, got 1");
  refused(good, placement(2, 5, 3, 2),
          "to.physical_to_logical: expected 4 slots, as in from, got 5");
  refused(good, placement(2, 4, 2, 2), "to.replica_count: expected 3 experts, as in from, got 2");
  refused(good, placement(2, 4, 3, 1), "to.ranks: expected 2 ranks, as in from, got 1");
  refused(placement(2, 4, 3, 0), good, "from.ranks: expected 1 to 32767 ranks, got 0");
  refused(good, good, "options.on.ranks: expected 2 ranks, as in the placement, got 3",
          {.on = {.ranks = 3}});
  ints const ends{0, 2, 4, 0, 1, 4};
  ints const others{0, 2, 4, 0, 2, 4};
  refused(placement(2, 4, 1, 2, view(ends.data(), 2, 3)),
          placement(2, 4, 1, 2, view(others.data(), 2, 3)),
          "to.rank_offsets: expected the slots of from, which end at 1, got 2 in layer 1, rank 0");
  // Offsets that are given for one of them only must be those of an even spread.
  refused(placement(2, 4, 1, 2), placement(2, 4, 1, 2, view(ends.data(), 2, 3)),
          "to.rank_offsets: expected the slots of from, which end at 2, got 1 in layer 1, rank 0");
  plimsoll::placement_ref const even = placement(2, 4, 1, 2);
  CHECK(plimsoll::plan_transfers(plimsoll::seq, even,
                                 placement(2, 4, 1, 2, view(others.data(), 2, 3)))
            .list.empty());
}

TEST_CASE("transfers: temporaries come from the policy and go back, also when it throws") {
  transfer_case const c = full_case();
  transfer_arguments<plimsoll::seq_policy> const in(c);
  check_temporaries(4, [&](auto& resource) {  // list, summaries, reports and one scratch area
    static_cast<void>(
        plimsoll::plan_transfers(plimsoll::seq(resource), in.from(), in.to(), in.options()));
  });
  transfer_plan const plan = transfers_of<plimsoll::seq_policy>(c);
  check_temporaries(0, [&](auto& resource) {
    plimsoll::validate(plimsoll::seq(resource), in.from(), in.to(), plan, in.options());
  });
}

}  // namespace plimsoll_test
