// SPDX-License-Identifier: Apache-2.0
// The words of all kinds of faults, and whether messages of calls are these.
#include <doctest/doctest.h>
#include <plimsoll/array.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/knapsack.hpp>
#include <plimsoll/least_loaded.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/quota.hpp>
#include <plimsoll/refinement.hpp>
#include <plimsoll/replication.hpp>
#include <plimsoll/slot_assignment.hpp>
#include <plimsoll/waterline.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "support/enumerators.hpp"
#include "support/refusal.hpp"

namespace plimsoll_test { namespace {

using plimsoll::describe;
using plimsoll::fault;
using plimsoll::fault_kind;
using plimsoll::fault_side;
using plimsoll::index_t;
using plimsoll::seq;

using bytes = std::vector<std::uint8_t>;
using ints = std::vector<std::int32_t>;
using reals = std::vector<double>;

fault fault_with(fault_kind kind, index_t where, double got, index_t also = -1) {
  return {kind, fault_side::from, where, got, also};
}

/// `describe` of every kind, with the numbers 3, 7 and 5 for `where`, `got` and `also`.
struct described_kind {
  fault_kind kind;
  char const* words;
};
constexpr described_kind described[] = {
    {fault_kind::none, "no fault"},
    {fault_kind::expert_id,
     "physical_to_logical: expected -1 or an expert of the layer, got 7, rank 5, slot 3"},
    {fault_kind::stray_slot,
     "physical_to_logical: expected -1 in slots that belong to no rank, got 7, slot 3"},
    {fault_kind::missing_expert,
     "physical_to_logical: expected every expert on a live rank, got none, expert 3"},
    {fault_kind::miscounted,
     "replica_count: expected 5 copies, as in physical_to_logical, got 7, expert 3"},
    {fault_kind::shared_rank,
     "physical_to_logical: expected at most 1 replica of an expert on a rank, got 7, rank 5, "
     "expert 3"},
    {fault_kind::shared_node,
     "physical_to_logical: expected at most 1 replica of an expert on a node, got 7, node 5, "
     "expert 3"},
    {fault_kind::dead_rank,
     "physical_to_logical: expected -1 in the slots of a rank that is not active, got 7, rank 5, "
     "slot 3"},
    {fault_kind::replica_offsets,
     "replica_offsets: expected offsets that rise from 0 to at most the number of slots, got 7, "
     "offset 3"},
    {fault_kind::replica_gap,
     "replica_slots: expected -1 only behind all slots of an expert, got slot 7 behind a -1, "
     "expert 3"},
    {fault_kind::replica_slot,
     "replica_slots: expected slots from 0 to below the number of slots, got 7, expert 3"},
    {fault_kind::replica_twice,
     "replica_slots: expected every slot once, got slot 7 again, expert 3"},
    {fault_kind::replica_elsewhere,
     "replica_slots: expected slots that hold the expert, got slot 5, which holds 7, expert 3"},
    {fault_kind::replica_unlisted,
     "replica_slots: expected every slot that holds the expert, got no slot 7, expert 3"},
    {fault_kind::replica_width,
     "logical_to_physical: expected at least 5 columns, got 7, expert 3"},
    {fault_kind::rank_gap,
     "rank_experts: expected -1 only behind all experts of a rank, got expert 7 behind a -1, rank "
     "3"},
    {fault_kind::rank_entry, "rank_experts: expected -1 or an expert, got 7, rank 3"},
    {fault_kind::rank_width, "rank_experts: expected at least 5 columns, got 7, rank 3"},
    {fault_kind::rank_total, "physical_to_logical: expected at least 5 slots, got 7"},
    {fault_kind::source_rank,
     "source_ranks: expected -1 or a rank below the 5 of from, got 7 for rank 3"},
    {fault_kind::source_twice,
     "source_ranks: expected every rank of from at most once, got rank 3 7 times"},
    {fault_kind::rank_room,
     "rank_offsets: expected a slot of rank 5 for every expert that it holds, got none for expert "
     "7, slot 3"},
    {fault_kind::load, "loads: expected values from 0 to below 2^47, got 7, expert 3, step 5"},
    {fault_kind::total_load, "loads: expected a total below 2^47 per layer, got 7, step 5"},
    {fault_kind::floor, "min_copies: expected at least 1 for every expert, got 7, expert 3"},
    {fault_kind::cap_below_floor,
     "max_copies: expected at least min_copies for every expert, got 7, expert 3"},
    {fault_kind::floors,
     "slots: expected at least 7 on live ranks, for all required copies, got 5, node 3"},
    {fault_kind::floors_apart,
     "replica_anti_affinity: expected slots for min_copies of every expert under the required "
     "rule, got 7, node 3"},
    {fault_kind::caps, "max_copies: expected a total of at least the slots, got 7, node 3"},
    {fault_kind::copies,
     "replica_count: expected 1 to 32767 copies of every expert on live ranks, got 7, expert 3"},
    {fault_kind::copies_total,
     "replica_count: expected a total of at most the slots, got 7, node 3"},
    {fault_kind::layer_slots, "layer_slots: expected at least 0 in every layer, got 7 in layer 3"},
    {fault_kind::no_rank, "on.active: expected at least 1 live rank, got 0"},
    {fault_kind::no_room_apart,
     "replica_anti_affinity: expected slots for all copies under the required rule, got 7 copies, "
     "expert 3"},
    {fault_kind::group_places, "groups: expected no more than the nodes' slots hold, 7, got more"},
    {fault_kind::speed, "on.speeds: expected values from 2^-64 to 2^64, got 7, rank 3"},
    {fault_kind::relative_speed,
     "on.speeds: expected speeds of live ranks from 2^-16 of the fastest to the fastest, got 7 for "
     "rank 3, where rank 5 is the fastest"},
    {fault_kind::node_offsets,
     "node_offsets: expected offsets that rise from 0 to the number of experts, got 7, node 3"},
    {fault_kind::node_experts,
     "node_experts: expected every expert once, got another list, expert 3"},
    {fault_kind::unusable_slot,
     "physical_to_logical: expected -1 in slots of dead ranks and of no rank, got 7, slot 3"},
    {fault_kind::off_node,
     "physical_to_logical: expected replicas on the node that lists their expert, node 7, got "
     "another node, expert 3"},
    {fault_kind::rank_offsets,
     "rank_offsets: expected offsets that rise from 0 to at most the number of slots, got 7, after "
     "5, rank 3"},
    {fault_kind::other_offsets,
     "to.rank_offsets: expected the slots of from, which end at 5, got 7, rank 3"},
    {fault_kind::capacity,
     "options.capacities: expected values from 0 to options.capacity, 3, got 7"},
    {fault_kind::option_count,
     "options.option_count: expected 1 to 5 options of every class, got 7, class 3"},
    {fault_kind::weight, "weights: expected at least 0, got 7, class 3, option 5"},
    {fault_kind::tokens, "loads: expected at most 2^31 - 1 tokens, got 7"},
    {fault_kind::share,
     "split: expected values from 0 to the load of the slot's expert, 0 in empty slots, got 7, "
     "slot 3"},
    {fault_kind::shares,
     "split: expected shares that add up to the expert's load, 7, got others, expert 3"},
    {fault_kind::value, "values: expected numbers below 2^960, got 7, class 3, option 5"},
    {fault_kind::cost,
     "cost: expected numbers from 0 to below 2^960 that do not fall as tokens rise, got 7, rank 3, "
     "step 5"},
    {fault_kind::counts, "counts: expected the planned load, 5 tokens, got 7, expert 3"},
    {fault_kind::source, "source: expected the source for which plan was called last, 3, got 7"},
    {fault_kind::home_rank, "home_rank: expected ranks from 0 to 5, got 7, expert 3"},
    {fault_kind::empty_rank,
     "rank_offsets: expected at least 1 slot for every live rank, got 0, rank 3"},
    {fault_kind::unequal_ranks,
     "options.arithmetic: expected exact unless all ranks are live and equally fast, got sglang "
     "with 7 of 5 ranks live"},
    {fault_kind::base_load,
     "inputs.base_load: expected values from 0 to below 2^47, got 7, rank 3"},
    {fault_kind::dead_load, "inputs.base_load: expected no load on dead ranks, got 7, rank 3"},
    {fault_kind::unplaced_load,
     "loads: expected load only on experts with a slot of a live rank, got 7, expert 3"},
    {fault_kind::routed_load, "loads: expected values from 0 to 2^31 - 1, got 7 in row 5, rank 3"},
    {fault_kind::dead_routed_load,
     "loads: expected 0 of a rank that is not active, got 7 in row 5, rank 3"},
};

TEST_CASE("faults: every kind has words") {
  REQUIRE(std::ssize(described) == enumerators<fault_kind>());
  for (int k = 0; k < enumerators<fault_kind>(); ++k) {
    fault_kind const kind{k};
    REQUIRE(described[k].kind == kind);
    std::string const words = describe(fault_with(kind, 3, 7, 5));
    check_message(words, described[k].words);
    bool const has_form = words.find(": expected ") > 0 && words.find(", got ") != words.npos;
    CHECK((has_form || kind == fault_kind::none));
    CHECK(words.find_first_of("#@&%~$") == words.npos);
  }
}

TEST_CASE("faults: indices that are not known are left out") {
  CHECK(describe(fault_with(fault_kind::expert_id, 3, 9)) ==
        "physical_to_logical: expected -1 or an expert of the layer, got 9, slot 3");
  CHECK(describe(fault_with(fault_kind::load, 3, std::nan(""))) ==
        "loads: expected values from 0 to below 2^47, got NaN, expert 3");
  CHECK(describe(fault_with(fault_kind::load, 0, -1, 0)) ==
        "loads: expected values from 0 to below 2^47, got -1, expert 0, step 0");
  CHECK(describe(fault_with(fault_kind::total_load, -1, 0x1p47)) ==
        "loads: expected a total below 2^47 per layer, got 140737488355328");
  CHECK(describe(fault_with(fault_kind::source, -1, 2)) ==
        "source: expected the source for which plan was called last, got 2");
}

TEST_CASE("faults: values that are no kind have words, too") {
  CHECK(describe({}) == "no fault");
  CHECK(describe(fault_with(fault_kind{enumerators<fault_kind>()}, 1, 2)) ==
        "kind: expected a kind of fault, got " + std::to_string(enumerators<fault_kind>()));
  CHECK(describe({fault_kind{-1}, fault_side{7}, -5, std::nan(""), -9}) ==
        "kind: expected a kind of fault, got -1");
}

/// A placement of 2 experts in one layer, on 2 ranks with 2 slots each.
struct placed {
  ints map = {0, 1, 1, 0};
  ints counts = {2, 2};
  ints offsets = {};
  index_t ranks = 2;

  [[nodiscard]] plimsoll::placement_ref ref() const {
    auto const row = [](ints const& list) {
      return plimsoll::matrix_ref<std::int32_t const>(list.data(), list.empty() ? 0 : 1,
                                                      std::ssize(list));
    };
    return {row(map), row(counts), ranks,
            offsets.empty() ? decltype(row(offsets)){} : row(offsets)};
  }
};

template <class T>
plimsoll::array<T, plimsoll::seq_policy, 2> row_of(std::vector<T> const& values) {
  return {seq, values, 1, std::ssize(values)};
}

/// Checks that a call throws the words of a fault after its own name. Its name of the argument may
/// begin with the struct that has it, and the layer may be named.
template <class Call>
void check_words(fault const& refused, Call&& call) {
  std::string message = refusal_of(call);
  for (std::string_view const layer : {" in layer 0", " in problem 0"}) {
    if (auto const at = message.find(layer);
        at != message.npos && refused.kind != fault_kind::layer_slots) {
      message.erase(at, layer.size());
    }
  }
  std::string const words = describe(refused);
  INFO(message);
  INFO(words);
  CHECK(message.ends_with(words));
  auto const name_end = message.find(": ");
  CHECK(name_end + 2 <= message.size() - words.size());
}

TEST_CASE("faults: messages about placements") {
  auto const refused = [](fault const& found, placed const& given,
                          plimsoll::validation_options const& options = {}) {
    check_words(found, [&] { plimsoll::validate(seq, given.ref(), options); });
  };
  refused(fault_with(fault_kind::rank_offsets, 1, 2), {.offsets = {0, 3, 2}});
  refused(fault_with(fault_kind::expert_id, 2, 2, 1), {.map = {0, 1, 2, 0}});
  refused(fault_with(fault_kind::stray_slot, 3, 0), {.offsets = {0, 2, 3}});
  refused(fault_with(fault_kind::missing_expert, 1, 0), {.map = {0, 0, 0, 0}});
  refused(fault_with(fault_kind::miscounted, 1, 1, 2), {.counts = {2, 1}});
  refused(fault_with(fault_kind::shared_rank, 0, 2, 0), {.map = {0, 0, 1, 1}},
          {.replica_anti_affinity = plimsoll::anti_affinity::rank});
  refused(fault_with(fault_kind::shared_node, 0, 2, 0), {},
          {.replica_anti_affinity = plimsoll::anti_affinity::node});
  bytes const live{1, 0};
  refused(fault_with(fault_kind::dead_rank, 2, 1, 1), {}, {.on = {.active = live}});

  placed const from;
  auto const changed = [&](fault const& found, placed const& to, bytes const& active = {}) {
    plimsoll::alignment_options options;
    options.on.active = {active.empty() ? nullptr : active.data(), std::ssize(active)};
    check_words(found, [&] { plimsoll::count_changes(seq, from.ref(), to.ref(), options); });
  };
  changed(fault_with(fault_kind::other_offsets, 0, 1, 2), {.offsets = {0, 1, 4}});
  changed(fault_with(fault_kind::unusable_slot, 2, 0), {.map = {0, 1, 0, 0}}, {1, 0});
  CHECK(refusal_of([&] {
          plimsoll::count_changes(seq, from.ref(), placed{.map = {0, 1, 2, 0}}.ref());
        }) ==
        "count_changes: to." +
            describe({fault_kind::expert_id, fault_side::to, 2, 2})
                .insert(std::string_view("physical_to_logical: expected -1 or an expert of the "
                                         "layer, got 2")
                            .size(),
                        " in layer 0"));
}

TEST_CASE("faults: messages about lists of slots and of ranks") {
  ints out(4);
  plimsoll::matrix_ref<std::int32_t> const map(out.data(), 1, 4);
  auto const listed = [&](fault const& found, ints const& offsets, ints const& slots) {
    auto const begin = row_of(offsets);
    auto const list = row_of(slots);
    check_words(found, [&] { plimsoll::replicas_to_slots(seq, {begin.view(), list.view()}, map); });
  };
  listed(fault_with(fault_kind::replica_offsets, 2, 1), {0, 2, 1}, {0, 1, 2, 3});
  listed(fault_with(fault_kind::replica_slot, 1, 4), {0, 2, 4}, {0, 3, 4, 2});
  listed(fault_with(fault_kind::replica_twice, 1, 3), {0, 2, 4}, {0, 3, 3, 2});

  auto const begin = row_of(ints{0, 2, 4});
  auto const compared = [&](fault const& found, ints const& offsets, ints const& slots) {
    auto const begins = row_of(offsets);
    auto const list = row_of(slots);
    plimsoll::replica_lists_ref const lists{begins.view(), list.view()};
    check_words(found, [&] { plimsoll::validate(seq, placed{}.ref(), lists); });
  };
  compared(fault_with(fault_kind::replica_elsewhere, 0, 1, 1), {0, 2, 4}, {0, 1, 2, 3});
  compared(fault_with(fault_kind::replica_unlisted, 1, 2), {0, 2, 3}, {0, 3, 1, -1});

  auto const lists = row_of(ints{0, 3, 1, 2});
  plimsoll::array padded(seq, ints{9, 9}, 1, 2, 1);
  check_words(fault_with(fault_kind::replica_width, 0, 1, 2), [&] {
    plimsoll::replicas_to_padded(seq, {begin.view(), lists.view()}, padded.view());
  });

  auto const on_ranks = [&](fault const& found, ints const& rank_experts, index_t slots) {
    plimsoll::array const rows(seq, rank_experts, 1, 2, 2);
    auto made = row_of(ints(static_cast<std::size_t>(slots)));
    auto ends = row_of(ints(3));
    check_words(found, [&] { plimsoll::ranks_to_slots(seq, rows, made.view(), ends.view()); });
  };
  on_ranks(fault_with(fault_kind::rank_gap, 1, 1), {0, 1, -1, 1}, 4);
  on_ranks(fault_with(fault_kind::rank_entry, 1, -2), {0, 1, -2, 1}, 4);
  on_ranks(fault_with(fault_kind::rank_total, -1, 3, 4), {0, 1, 1, 0}, 3);
  plimsoll::array rows(seq, ints{9, 9}, 1, 2, 1);
  check_words(fault_with(fault_kind::rank_width, 0, 1, 2),
              [&] { plimsoll::slots_to_ranks(seq, placed{}.ref(), rows.view()); });

  auto const resized = [&](fault const& found, ints const& sources, ints const& offsets) {
    auto const ends = row_of(offsets);
    check_words(found,
                [&] { plimsoll::resize_placement(seq, placed{}.ref(), sources, 4, ends.view()); });
  };
  resized(fault_with(fault_kind::source_rank, 1, 2, 2), {0, 2}, {0, 2, 4});
  resized(fault_with(fault_kind::source_twice, 1, 2), {1, 1}, {0, 2, 4});
  resized(fault_with(fault_kind::rank_room, 1, 1, 0), {0, 1}, {0, 1, 4});
  resized(fault_with(fault_kind::rank_offsets, 1, 5), {0, 1}, {0, 1, 5});
}

TEST_CASE("faults: messages of planning calls") {
  auto const replicated = [](fault const& found, reals const& given,
                             plimsoll::replication_options const& options, index_t slots = 4) {
    auto const loads = row_of(given);
    auto counts = row_of(ints(given.size()));
    check_words(found, [&] { plimsoll::replicate(seq, loads, slots, options, counts.view()); });
  };
  plimsoll::rank_set const two{.ranks = 2};
  reals const even{1, 1};
  replicated(fault_with(fault_kind::load, 1, -1), {1, -1}, {.where = {.on = two}});
  replicated(fault_with(fault_kind::total_load, -1, 0x1p47), {0x1p46, 0x1p46},
             {.where = {.on = two}});
  ints const none{1, 0};
  replicated(fault_with(fault_kind::floor, 1, 0), even,
             {.min_copies_each = none, .where = {.on = two}});
  ints const both{2, 2};
  ints const few{2, 1};
  replicated(fault_with(fault_kind::cap_below_floor, 1, 1), even,
             {.min_copies_each = both, .max_copies_each = few, .where = {.on = two}});
  ints const many{3, 2};
  replicated(fault_with(fault_kind::floors, -1, 5, 4), even,
             {.min_copies_each = many, .where = {.on = two}});
  replicated(fault_with(fault_kind::caps, -1, 3), even,
             {.max_copies_each = few, .where = {.on = two}});
  reals const zero{1, 0};
  replicated(fault_with(fault_kind::speed, 1, 0), even,
             {.where = {.on = {.ranks = 2, .speeds = zero}}});
  reals const slow{1, 0x1p-20};
  replicated(fault_with(fault_kind::relative_speed, 1, 0x1p-20, 0), even,
             {.where = {.on = {.ranks = 2, .speeds = slow}}});
  auto const twice = row_of(ints{0, 0});
  auto const nodes = row_of(ints{0, 1, 2});
  auto const past = row_of(ints{0, 1, 3});
  plimsoll::rank_set const apart{.ranks = 2, .nodes = 2};
  replicated(fault_with(fault_kind::node_experts, 1, 0), even,
             {.where = {.on = apart, .node_experts = twice.view(), .node_offsets = nodes.view()}});
  replicated(fault_with(fault_kind::node_offsets, 1, 3), even,
             {.where = {.on = apart, .node_experts = twice.view(), .node_offsets = past.view()}});

  auto const put = [&](fault const& found, ints const& given,
                       plimsoll::placement_options const& options, index_t slots = 4) {
    auto const loads = row_of(even);
    auto const counts = row_of(given);
    auto map = row_of(ints(static_cast<std::size_t>(slots)));
    check_words(found, [&] { plimsoll::place(seq, loads, counts, options, map.view()); });
  };
  put(fault_with(fault_kind::copies, 1, 0), {1, 0}, {.on = two});
  put(fault_with(fault_kind::copies_total, -1, 5), {2, 3}, {.on = two});
  put(fault_with(fault_kind::no_room_apart, 0, 3), {3, 1},
      {.on = two,
       .replica_anti_affinity = plimsoll::anti_affinity::rank,
       .anti_affinity_strength = plimsoll::strictness::required});

  auto const loads = row_of(even);
  ints const in_use{0, 1, 5, 0};
  CHECK(refusal_of([&] {
          plimsoll::array const steps(seq, even, 1, 1, 2);
          plimsoll::place_by_flow(
              seq, steps, 4,
              {.on = two, .in_use = plimsoll::matrix_ref<std::int32_t const>(in_use.data(), 1, 4)});
        }) ==
        "place_by_flow: options.in_use: expected -1 or an expert of the layer, got 5 in layer 0, "
        "slot 2");

  auto ends = row_of(ints(3));
  auto const divided = [&](fault const& found, std::int32_t slots, bytes const& active) {
    plimsoll::slot_assignment_options const options{.on = {.ranks = 2, .active = active}};
    check_words(found, [&] { plimsoll::assign_slots(seq, ints{slots}, options, ends.view()); });
  };
  divided(fault_with(fault_kind::layer_slots, 0, -1), -1, {1, 1});
  divided(fault_with(fault_kind::no_rank, -1, 0), 4, {0, 0});
}

TEST_CASE("faults: messages about knapsacks") {
  auto const packed = [](fault const& found, ints const& given, reals const& worth,
                         plimsoll::knapsack_options options) {
    plimsoll::array const weights(seq, given, 1, 1, 2);
    plimsoll::array const values(seq, worth, 1, 1, 2);
    auto choices = row_of(ints(1));
    options.capacity = 4;
    check_words(found, [&] { plimsoll::knapsack(seq, weights, values, options, choices.view()); });
  };
  packed(fault_with(fault_kind::weight, 0, -1, 1), {2, -1}, {5, 7}, {});
  packed(fault_with(fault_kind::value, 0, std::nan(""), 0), {2, 1}, {std::nan(""), 7}, {});
  std::vector<std::int64_t> const capacity{5};
  packed(fault_with(fault_kind::capacity, 4, 5), {2, 1}, {5, 7}, {.capacities = capacity});
  ints const count{3};
  packed(fault_with(fault_kind::option_count, 0, 3, 2), {2, 1}, {5, 7},
         {.option_count = plimsoll::matrix_ref<std::int32_t const>(count.data(), 1, 1)});
}

// These report their fault, too, so that an engine can describe it without an exception.
TEST_CASE("faults: messages of check, and reports") {
  placed const given{.map = {0, 1, -1, 0}, .counts = {2, 1}};
  auto const rounded = [&](fault const& found, ints const& loads, reals const& shares) {
    auto const tokens = row_of(loads);
    auto const split = row_of(shares);
    auto quotas = row_of(ints(4));
    std::vector<plimsoll::quota_report> reports(1);
    plimsoll::round_split(seq, tokens, given.ref(), split, quotas.view(), reports);
    CHECK(describe(reports[0].refused) == describe(found));
    check_words(found, [&] { plimsoll::check(seq, reports); });
  };
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  rounded(fault_with(fault_kind::tokens, -1, 2147483648.0), {most, 1}, {most, 1, 0, 0});
  rounded(fault_with(fault_kind::share, 2, 1), {3, 1}, {1, 1, 1, 2});
  rounded(fault_with(fault_kind::shares, 0, 3), {3, 1}, {1, 1, 0, 1});
  rounded(fault_with(fault_kind::load, 1, -1), {3, -1}, {1, 1, 0, 2});

  bytes const live{1, 0};
  plimsoll::minmax_lp lp(seq, given.ref(), {.on = {.active = live}});
  auto const solved = [&](fault const& found, reals const& loads, reals const& base = {0, 0}) {
    auto const tokens = row_of(loads);
    auto const before = row_of(base);
    auto split = row_of(reals(4));
    lp.solve(tokens, {.base_load = before.view()}, split.view(), {});
    CHECK(describe(lp.faults()[0]) == describe(found));
    check_words(found, [&] { lp.check(); });
  };
  solved(fault_with(fault_kind::load, 1, -2), {1, -2});
  solved(fault_with(fault_kind::total_load, -1, 0x1p47), {0x1p46, 0x1p46});
  solved(fault_with(fault_kind::base_load, 0, -3), {1, 1}, {-3, 0});
  solved(fault_with(fault_kind::dead_load, 1, 3), {1, 1}, {0, 3});
  placed const partly{.map = {0, -1, -1, 1}, .counts = {1, 1}};
  lp.update(0, partly.ref());
  solved(fault_with(fault_kind::unplaced_load, 1, 4), {1, 4});

  plimsoll::waterline line(
      seq, {.on = {.ranks = 2, .active = live}, .slots = 4, .top_k = 1, .max_tokens = 4});
  auto const planned = [&](fault const& found, std::vector<std::int64_t> const& loads) {
    plimsoll::array const rows(seq, loads, 2, 2);
    line.plan(rows, 0);
    CHECK(describe(line.report()->refused) == describe(found));
    check_words(found, [&] { line.check(); });
  };
  planned(fault_with(fault_kind::routed_load, 0, -1, 1), {1, 0, -1, 0});
  planned(fault_with(fault_kind::dead_routed_load, 1, 2, 0), {1, 2, 1, 0});
  planned(fault_with(fault_kind::tokens, -1, 4294967294.0), {most, 0, most, 0});
  ints const falling{0, 3, 2};
  line.update(falling);
  check_words(fault_with(fault_kind::rank_offsets, 1, 2, 3), [&] { line.check(); });
  ints const empty{0, 0, 4};
  line.update(empty);
  check_words(fault_with(fault_kind::empty_rank, 0, 0), [&] { line.check(); });
  check_words(fault_with(fault_kind::unequal_ranks, -1, 1, 2), [&] {
    plimsoll::waterline(seq, {.on = {.ranks = 2, .active = live},
                              .slots = 4,
                              .top_k = 1,
                              .method = plimsoll::fill_method::sampled,
                              .arithmetic = plimsoll::fill_arithmetic::sglang});
  });

  auto const cost = [](index_t rank, double tokens) { return rank == 1 ? -1 : tokens; };
  plimsoll::least_loaded planner(seq, {.on = {.ranks = 2}, .experts = 2, .min_chunk = 1},
                                 plimsoll::spill_price{cost, 1, 1});
  planner.plan(ints{5, 1});
  CHECK(describe(planner.report()->refused) == describe(fault_with(fault_kind::cost, 1, -1)));
  check_words(fault_with(fault_kind::cost, 1, -1), [&] { planner.check(); });
  ints const homes{0, 2};
  planner.update({.home_rank = homes});
  check_words(fault_with(fault_kind::home_rank, 1, 2, 1), [&] { planner.check(); });
}

}}  // namespace plimsoll_test::(anonymous)
