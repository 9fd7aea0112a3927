// SPDX-License-Identifier: Apache-2.0
// Values and properties of vLLM's tests (github.com/vllm-project/vllm, Apache-2.0):
// - tests/distributed/test_eplb_algo.py (at 030ea52): plans, maps, slots that stay, balancedness;
// - tests/distributed/test_eplb_migration_scheduler.py (pull request 52641, at 4f63218 and, with
//   the same cases on other functions, at 394576d): batches of transfers.
// Only numbers and properties are theirs. Where a case differs here, its comment says why.
#include <doctest/doctest.h>
#include <plimsoll/array.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/metrics.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/refusal.hpp"

namespace plimsoll_outside_vllm {

using plimsoll::index_t;
using plimsoll::seq;
using plimsoll::transfer;
using plimsoll::transfer_kind;
using plimsoll::transfer_plan;
using plimsoll_test::refusal_of;
using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;

// --- test_eplb_algo.py -------------------------------------------------------------------------

TEST_CASE("outside: vLLM: balancedness is a ratio of sums over layers") {
  std::vector<float> const tokens{100, 0, 0, 0, 100, 0, 0, 0};
  auto const rows = plimsoll::measure(seq, plimsoll::array(seq, tokens, 2, 4));
  double means = 0;
  double peaks = 0;
  for (plimsoll::balance_stats const& row : rows.to_host()) {
    means += row.mean;
    peaks += row.peak;
  }
  CHECK(means == 50);
  CHECK(peaks == 200);
  CHECK(plimsoll::summarize(seq, rows).ratio_of_sums == 0.25);
}

TEST_CASE("outside: vLLM: the example of DeepSeek's EPLB, slot by slot") {
  ints const loads{90, 132, 40,  61, 104, 165, 39,  4,   73,  56, 183, 86,  //
                   20, 107, 104, 64, 19,  197, 187, 157, 172, 86, 16,  27};
  plimsoll::array const in(seq, loads, 2, 12);
  auto map = plimsoll::zeros<std::int64_t>(seq, 2, 16);
  auto inverse = plimsoll::zeros<std::int64_t>(seq, 2, 12, 2);  // as wide as the largest count
  auto copies = plimsoll::zeros<std::int64_t>(seq, 2, 12);
  plimsoll::rebalance_experts(seq, in, 16, 4, 2, 8, map, inverse, copies);
  CHECK(map.to_host() == longs{5, 6,  5, 7, 8, 4,  3, 4, 10, 9, 10, 2, 0, 1, 11, 1,  //
                               7, 10, 6, 8, 6, 11, 8, 9, 2,  4, 5,  1, 5, 0, 3,  1});
  CHECK(copies.to_host() == longs{1, 2, 1, 1, 2, 2, 1, 1, 1, 1, 2, 1,  //
                                  1, 2, 1, 1, 1, 2, 2, 1, 2, 1, 1, 1});
  auto const plan = plimsoll::copy_placement(seq, map, copies, 8);
  CHECK_NOTHROW(plimsoll::validate(seq, plan.ref()));
  CHECK_NOTHROW(plimsoll::validate(seq, plan.ref(), inverse));
}

struct eplb_shape {
  index_t layers, slots, groups, nodes, ranks;
};
struct eplb_case {
  std::string name;
  eplb_shape shape;
  /// vLLM asserts that the heaviest expert has several copies, or more than a light one.
  bool heaviest_has_more;
  ints loads;  ///< [layers, experts]
};

inline plimsoll::placement<plimsoll::seq_policy> planned(ints const& loads,
                                                         eplb_shape const& shape) {
  index_t const experts = static_cast<index_t>(loads.size()) / shape.layers;
  return plimsoll::eplb(
      seq, plimsoll::array(seq, loads, shape.layers, experts), shape.slots,
      {.on = {.ranks = shape.ranks, .nodes = shape.nodes}, .groups = shape.groups});
}

TEST_CASE("outside: vLLM: shapes, counts and heavy experts of plans") {
  ints const four{10, 20, 30, 40};
  eplb_case const cases[] = {
      {"single GPU", {1, 4, 1, 1, 1}, false, four},
      {"equal loads", {1, 8, 2, 2, 4}, false, ints(8, 50)},
      {"extreme imbalance", {1, 12, 2, 2, 4}, true, {1000, 1, 1, 1, 1, 1, 1, 1}},
      {"several layers",
       {3, 8, 2, 2, 4},
       false,
       {10, 20, 30, 40, 50, 60, 60, 50, 40, 30, 20, 10, 25, 25, 25, 25, 25, 25}},
      {"hierarchical", {1, 12, 4, 2, 4}, true, {100, 50, 200, 75, 150, 25, 300, 80}},
      {"nodes do not divide groups", {1, 8, 3, 2, 4}, false, {10, 20, 30, 40, 50, 60}},
      {"two devices", {1, 6, 2, 1, 2}, false, four},
      {"eight ranks",
       {1, 24, 8, 4, 8},
       false,
       {50, 100, 75, 120, 90, 60, 80, 110, 40, 70, 95, 85, 65, 55, 45, 35}},
      {"falling and rising",
       {2, 10, 3, 1, 2},
       true,
       {200, 150, 100, 50, 25, 12, 12, 25, 50, 100, 150, 200}},
      // vLLM asserts that ranks divide the slots, and refuses this shape. Here the numbers of slots
      // of ranks differ by one.
      {"seven slots on four ranks", {1, 7, 2, 2, 4}, false, four},
  };
  for (eplb_case const& c : cases) {
    CAPTURE(c.name);
    auto const plan = planned(c.loads, c.shape);
    // Ids are in range, every expert has a slot, and the counts are those of the map.
    CHECK_NOTHROW(plimsoll::validate(seq, plan.ref()));
    ints const copies = plan.replica_count.to_host();
    auto const experts = static_cast<std::ptrdiff_t>(plan.replica_count.extent(1));
    for (index_t layer = 0; layer < c.shape.layers; ++layer) {
      auto const of_layer = copies.begin() + layer * experts;
      CHECK(std::accumulate(of_layer, of_layer + experts, index_t{0}) == c.shape.slots);
      CHECK(*std::min_element(of_layer, of_layer + experts) >= 1);
      if (c.heaviest_has_more) {
        auto const load = c.loads.begin() + layer * experts;
        auto const [lightest, heaviest] = std::minmax_element(load, load + experts);
        CHECK(of_layer[heaviest - load] > of_layer[lightest - load]);
      }
    }
  }
}

TEST_CASE("outside: vLLM: groups that nodes do not divide are planned globally") {
  ints const six{10, 20, 30, 40, 50, 60};
  CHECK(planned(six, {1, 8, 3, 2, 4}).physical_to_logical.to_host() ==
        planned(six, {1, 8, 1, 1, 4}).physical_to_logical.to_host());
  // vLLM also plans three groups of four experts, by ignoring the groups. Here groups must divide
  // the experts, as those of a group-limited router do; anything else is a mistake of the caller.
  ints const four{10, 20, 30, 40};
  CHECK(refusal_of([&] { planned(four, {1, 8, 3, 2, 4}); }).starts_with("eplb: groups: "));
  CHECK_NOTHROW(planned(four, {1, 8, 1, 2, 4}));
}

TEST_CASE("outside: vLLM: slots of -1 are in no list of replicas") {
  plimsoll::array const map(seq, longs{0, 1, -1, 2, 3, -1, 3, -1, 2, 1, 0, -1}, 2, 6);
  auto copies = plimsoll::zeros<std::int64_t>(seq, 2, 4);
  auto offsets = plimsoll::zeros<std::int32_t>(seq, 2, 5);
  auto lists = plimsoll::zeros<std::int32_t>(seq, 2, 6);
  auto padded = plimsoll::zeros<std::int64_t>(seq, 2, 4, 1);
  plimsoll::count_replicas(seq, map, copies);
  plimsoll::slots_to_replicas(seq, map, offsets, lists);
  plimsoll::replicas_to_padded(seq, {offsets.view(), lists.view()}, padded);
  CHECK(copies.to_host() == longs(8, 1));
  // Theirs are the values of the first layer, and that none of the second is -1.
  CHECK(padded.to_host() == longs{0, 1, 3, 4, 4, 3, 2, 0});
}

TEST_CASE("outside: vLLM: experts that stay on a rank keep their slots") {
  struct stay_case {
    std::string name;
    index_t ranks, width;
    ints in_use, fresh;
  };
  stay_case const cases[] = {
      {"simple", 2, 4, {0, 1, 2, 3, 4, 5, 6, 7}, {1, 5, 0, 4, 6, 2, 7, 3}},
      {"duplicates", 2, 5, {0, 1, 0, 2, 3, 4, 5, 6, 1, 2}, {0, 5, 4, 0, 1, 6, 2, 3, 2, 1}},
      {"one expert on most ranks",
       3,
       4,
       {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3},
       {0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 0}},
  };
  for (stay_case const& c : cases) {
    CAPTURE(c.name);
    index_t const experts = 1 + *std::max_element(c.in_use.begin(), c.in_use.end());
    auto const place = [&](ints const& slots) {
      plimsoll::array const map(seq, slots, 1, c.ranks * c.width);
      auto copies = plimsoll::zeros<std::int32_t>(seq, 1, experts);
      plimsoll::count_replicas(seq, map, copies);
      return plimsoll::copy_placement(seq, map, copies, c.ranks);
    };
    auto const in_use = place(c.in_use);
    auto const fresh = place(c.fresh);
    // `none` is what vLLM's preserve_intragpu_slots does; the default also exchanges ranks.
    auto const aligned =
        plimsoll::align(seq, in_use.ref(), fresh.ref(), {.relabel = plimsoll::relabeling::none});
    ints const got = aligned.physical_to_logical.to_host();
    for (index_t rank = 0; rank < c.ranks; ++rank) {
      CAPTURE(rank);
      auto const of_rank = [&](ints const& slots) {
        auto const first = slots.begin() + static_cast<std::ptrdiff_t>(rank * c.width);
        return ints(first, first + static_cast<std::ptrdiff_t>(c.width));
      };
      ints const old = of_rank(c.in_use);
      ints const now = of_rank(got);
      ints wanted = of_rank(c.fresh);
      ints sorted = now;
      std::sort(wanted.begin(), wanted.end());
      std::sort(sorted.begin(), sorted.end());
      CHECK(sorted == wanted);
      for (std::int32_t const expert : wanted) {
        auto const before = std::find(old.begin(), old.end(), expert);
        if (before != old.end()) {
          CHECK(now[static_cast<std::size_t>(before - old.begin())] == expert);
        }
      }
    }
  }
}

// --- test_eplb_migration_scheduler.py ----------------------------------------------------------

/// An expert that one rank sends to another.
struct send {
  std::int32_t source, destination, expert;
  friend auto operator<=>(send const&, send const&) = default;
};

/// Two placements of one layer, with as many slots on every rank.
struct placements {
  index_t ranks, experts;
  ints from, to;
};

inline transfer_plan transfers_of(placements const& moved,
                                  plimsoll::transfer_options const& options = {}) {
  ints const copies(static_cast<std::size_t>(moved.experts));  // not read
  auto const ref = [&](ints const& map) {
    return plimsoll::placement_ref{.physical_to_logical = {map, 1, map.size()},
                                   .replica_count = {copies, 1, moved.experts},
                                   .ranks = moved.ranks};
  };
  transfer_plan plan = plimsoll::plan_transfers(seq, ref(moved.from), ref(moved.to), options);
  CHECK_NOTHROW(plimsoll::validate(seq, ref(moved.from), ref(moved.to), plan, options));
  return plan;
}

/// Placements between which exactly these experts move; each has one copy.
inline placements placements_of(index_t ranks, std::vector<send> const& sends) {
  index_t const width = static_cast<index_t>(sends.size());
  auto const slots = static_cast<std::size_t>(ranks * width);
  placements result{ranks, width, ints(slots, -1), ints(slots, -1)};
  for (send const& s : sends) {
    result.from[static_cast<std::size_t>(s.source * width + s.expert)] = s.expert;
    result.to[static_cast<std::size_t>(s.destination * width + s.expert)] = s.expert;
  }
  return result;
}

/// The transfers between ranks, sorted.
inline std::vector<send> sends_of(transfer_plan const& plan) {
  std::vector<send> result;
  for (transfer const& t : plan.list) {
    if (t.kind != transfer_kind::local_copy) {
      result.push_back({t.source_rank, t.destination_rank, t.expert});
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

/// Checks that a rank has one peer in each round, and that a pair's transfers are in one round.
inline void check_one_peer(transfer_plan const& plan) {
  using pair = std::pair<std::int32_t, std::int32_t>;
  std::map<pair, std::int32_t> peer_of;   // of round and rank
  std::map<pair, std::int32_t> round_of;  // of source and destination
  for (transfer const& t : plan.list) {
    if (t.kind != transfer_kind::local_copy) {
      CHECK(peer_of.try_emplace({t.round, t.source_rank}, t.destination_rank).first->second ==
            t.destination_rank);
      CHECK(peer_of.try_emplace({t.round, t.destination_rank}, t.source_rank).first->second ==
            t.source_rank);
      CHECK(round_of.try_emplace({t.source_rank, t.destination_rank}, t.round).first->second ==
            t.round);
    }
  }
}

/// Checks that a rank sends to one rank and receives from one rank in each round.
inline void check_one_direction(transfer_plan const& plan) {
  std::map<std::array<std::int32_t, 3>, std::int32_t> peer_of;  // of round, direction and rank
  for (transfer const& t : plan.list) {
    CHECK(peer_of.try_emplace({t.round, 0, t.source_rank}, t.destination_rank).first->second ==
          t.destination_rank);
    CHECK(peer_of.try_emplace({t.round, 1, t.destination_rank}, t.source_rank).first->second ==
          t.source_rank);
  }
}

/// The first and second number of each of vLLM's 80 random pairs of eight ranks, numpy's
/// default_rng(42).integers(0, 8, size=2). Pairs of equal numbers are no transfers.
inline constexpr std::string_view drawn =
    "0653360510475656416342176536433104706625165207375661233041557527327203613153"
    "2145731655026636637215516160666535264344011035536406454404624023712376016062"
    "72351446";

inline std::vector<send> drawn_sends() {
  std::vector<send> sends;
  for (std::size_t i = 0; i < drawn.size(); i += 2) {
    if (drawn[i] != drawn[i + 1]) {
      sends.push_back(
          {drawn[i] - '0', drawn[i + 1] - '0', static_cast<std::int32_t>(sends.size())});
    }
  }
  return sends;
}

TEST_CASE("outside: vLLM: batches of transfers") {
  struct batch_case {
    std::string name;
    index_t ranks;
    std::vector<send> sends;
    index_t theirs, one_peer, send_and_receive;  ///< numbers of batches
  };
  // vLLM puts each flow into the first batch without its ranks, in order of experts. In the first
  // case a batch is made before rank 0 comes, which needs four more; here rounds are at most one
  // more than the most peers of a rank (Vizing). Of the random pairs vLLM asserts no number; its
  // rule gives 14, since the two directions of a pair exclude each other. Under `one_peer` they
  // share a round.
  batch_case const cases[] = {
      {"in order", 5, {{1, 3, 0}, {2, 4, 1}, {0, 1, 2}, {0, 2, 3}, {0, 3, 4}, {0, 4, 5}}, 5, 4, 4},
      {"pairs", 4, {{0, 1, 0}, {0, 1, 1}, {2, 3, 2}}, 1, 1, 1},
      {"ring of four", 4, {{1, 0, 1}, {2, 1, 2}, {3, 2, 3}, {0, 3, 0}}, 2, 2, 1},
      {"random", 8, drawn_sends(), 14, 7, 7},
  };
  CHECK(cases[3].sends.size() == 73);
  for (batch_case const& c : cases) {
    CAPTURE(c.name);
    std::vector<send> expected = c.sends;
    std::sort(expected.begin(), expected.end());
    placements const moved = placements_of(c.ranks, c.sends);
    transfer_plan const plan = transfers_of(moved);
    CHECK(plan.list.size() == c.sends.size());  // every transfer once
    CHECK(sends_of(plan) == expected);
    check_one_peer(plan);
    CHECK(plan.layers[0].rounds == c.one_peer);
    CHECK(plan.layers[0].rounds <= c.theirs);
    transfer_plan const duplex =
        transfers_of(moved, {.rounds = plimsoll::round_rule::send_and_receive});
    CHECK(sends_of(duplex) == expected);
    check_one_direction(duplex);
    CHECK(duplex.layers[0].rounds == c.send_and_receive);
  }
}

TEST_CASE("outside: vLLM: slots that do not change are not transferred") {
  transfer_plan const plan = transfers_of({2, 3, {0, 1, 1, 2}, {0, 1, 0, 2}});
  CHECK(plan.list.size() == 1);
  CHECK(sends_of(plan) == std::vector<send>{{0, 1, 0}});
}

TEST_CASE("outside: vLLM: the holders of an expert share its transfers") {
  // Ranks 0 and 1 hold the expert that ranks 2 to 4 need. vLLM's list is 0 to 2, 0 to 4, 1 to 3.
  transfer_plan const plan = transfers_of({5, 1, {0, 0, -1, -1, -1}, {0, 0, 0, 0, 0}});
  CHECK(plan.list.size() == 3);
  longs sent = plan.sent_bytes;
  std::sort(sent.begin(), sent.end());
  CHECK(sent == longs{0, 0, 0, 1, 2});
  CHECK(plan.received_bytes == longs{0, 0, 1, 1, 1});
  CHECK(plan.layers[0].rounds == 2);
  check_one_peer(plan);
  // vLLM's slots of ranks 2 to 4 hold an expert that nobody holds afterwards. That loses its
  // weights, and is refused here.
  placements const lost{5, 2, {0, 0, 1, 1, 1}, {0, 0, 0, 0, 0}};
  CHECK(refusal_of([&] { transfers_of(lost); })
            .starts_with(
                "plan_transfers: to.physical_to_logical: expected every expert on a live rank"));
}

TEST_CASE("outside: vLLM: an expert for two slots of a rank is sent once") {
  // Rank 0 receives expert 1 in slot 0 and copies it to slot 1, after the round that received it.
  // (vLLM's slot 1 holds an expert that nobody holds afterwards; here it is empty, and later
  // experts have the next lower number.)
  transfer_plan const plan = transfers_of({2, 3, {0, -1, 1, 2}, {1, 1, 0, 2}});
  CHECK(sends_of(plan) == std::vector<send>{{0, 1, 0}, {1, 0, 1}});
  CHECK(plan.list.size() == 3);
  CHECK(plan.layers[0].changes == plimsoll::slot_changes{2, 1});
  auto const received = std::find_if(plan.list.begin(), plan.list.end(), [](transfer const& t) {
    return t.expert == 1 && t.kind == transfer_kind::same_node;
  });
  auto const copied = std::find_if(plan.list.begin(), plan.list.end(), [](transfer const& t) {
    return t.kind == transfer_kind::local_copy;
  });
  REQUIRE(received != plan.list.end());
  REQUIRE(copied != plan.list.end());
  CHECK(received->destination_slot == 0);
  CHECK(copied->source_slot == 0);
  CHECK(copied->destination_slot == 1);
  CHECK(copied->round > received->round);
}

TEST_CASE("outside: vLLM: placements of different shapes are refused") {
  placements const unequal{1, 2, {0, 1}, {0}};
  CHECK(refusal_of([&] {
          transfers_of(unequal);
        }).starts_with("plan_transfers: to.physical_to_logical: expected 2 slots"));
}

}  // namespace plimsoll_outside_vllm
