// SPDX-License-Identifier: Apache-2.0
// Tests of transfers and validate under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/migration.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/draws.hpp"
#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/migration_transfers.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"

namespace plimsoll_test {

using namespace migration_transfers_support;

/// Transfer of an expert of one byte in layer 0; the source, the destination, then the times.
inline transfer moved(std::int32_t expert, std::int32_t source_rank, std::int32_t source_slot,
                      std::int32_t rank, std::int32_t slot, std::int32_t round,
                      std::int32_t staging_slot, std::int32_t commit_round, transfer_kind kind) {
  return {0,     expert,       source_rank,  source_slot, rank, slot,
          round, staging_slot, commit_round, kind,        1};
}

inline void check_exchange(transfers_fn run, validate_fn validate) {
  // Two ranks exchange their experts: each reads a slot that the other overwrites.
  transfer_case c{.experts = 2, .slots = 2, .from = {0, 1}, .to = {1, 0}};
  c.where.ranks = 2;
  for (round_rule const rule : {round_rule::one_peer, round_rule::send_and_receive}) {
    c.rule = rule;
    transfer_plan const plan = run(c);
    validate(c, plan);
    CHECK(plan.list ==
          std::vector<transfer>{moved(1, 1, 1, 0, 0, 0, 0, 0, transfer_kind::same_node),
                                moved(0, 0, 0, 1, 1, 0, 0, 0, transfer_kind::same_node)});
    CHECK(plan.layers[0].rounds == 1);
    CHECK(plan.layers[0].rounds_bound == 1);
    CHECK(plan.layers[0].staging_slots == 1);
    CHECK(plan.layers[0].changes == plimsoll::slot_changes{2, 0});
    CHECK(plan.sent_bytes == std::vector<std::int64_t>{1, 1});
    CHECK(plan.received_bytes == std::vector<std::int64_t>{1, 1});
    CHECK(plan.seconds == 1 / 450e9);
  }
  c.where.nodes = 2;
  c.expert_bytes = 100;
  c.bandwidths.across_nodes = 50;
  CHECK(run(c).list[0].kind == transfer_kind::across_nodes);
  CHECK(run(c).list[0].bytes == 100);
  CHECK(run(c).seconds == 2);
}

PLIMSOLL_TEST_CASE("transfers: two ranks exchange experts, by hand", P, PLIMSOLL_POLICIES) {
  check_exchange(transfers_of<P>, validate_of<P>);
}

inline void check_cycle(transfers_fn run, validate_fn validate) {
  // Expert 1 moves to rank 0, expert 2 to rank 1 and expert 0 to rank 2. Each rank sends to one and
  // receives from one, but has two peers, and three ranks in a ring need three rounds.
  transfer_case c{.experts = 3, .slots = 3, .from = {0, 1, 2}, .to = {1, 2, 0}};
  c.where.ranks = 3;
  c.rule = round_rule::send_and_receive;
  transfer_plan plan = run(c);
  validate(c, plan);
  CHECK(plan.layers[0].rounds == 1);
  CHECK(plan.layers[0].rounds_bound == 1);
  CHECK(plan.layers[0].staging_slots == 1);
  c.rule = round_rule::one_peer;
  plan = run(c);
  validate(c, plan);
  CHECK(plan.list ==
        std::vector<transfer>{moved(1, 1, 1, 0, 0, 0, 0, 1, transfer_kind::same_node),
                              moved(0, 0, 0, 2, 2, 1, 0, 2, transfer_kind::same_node),
                              moved(2, 2, 2, 1, 1, 2, -1, 2, transfer_kind::same_node)});
  CHECK(plan.layers[0].rounds == 3);
  CHECK(plan.layers[0].rounds_bound == 2);
  CHECK(plan.layers[0].staging_slots == 1);
}

PLIMSOLL_TEST_CASE("transfers: three ranks in a ring, by hand", P, PLIMSOLL_POLICIES) {
  check_cycle(transfers_of<P>, validate_of<P>);
}

inline void check_dead_and_copies(transfers_fn run, validate_fn validate) {
  // Rank 1 is dead and held the only copy of expert 1, which comes from the host. Rank 0 gets it in
  // slot 0 and again in slot 2, after all else; slot 1 is copied from slot 0, which must wait for
  // that in a staging slot. Rank 2 keeps expert 0.
  transfer_case c{.experts = 2,
                  .slots = 5,
                  .from = {0, -1, -1, 1, 0},
                  .to = {1, 0, 1, -1, 0},
                  .bandwidths = {.local_copy = 4, .from_host = 2}};
  c.where.ranks = 3;
  c.where.rank_offsets = {0, 3, 4, 5};
  c.where.active = {1, 0, 1};
  transfer_plan plan = run(c);
  validate(c, plan);
  CHECK(plan.list ==
        std::vector<transfer>{moved(1, -1, -1, 0, 0, 0, 0, 0, transfer_kind::from_host),
                              moved(0, 0, 0, 0, 1, 0, -1, 0, transfer_kind::local_copy),
                              moved(1, 0, 0, 0, 2, 1, -1, 1, transfer_kind::local_copy)});
  CHECK(plan.layers[0].rounds == 2);
  CHECK(plan.layers[0].rounds_bound == 0);
  CHECK(plan.layers[0].staging_slots == 1);
  CHECK(plan.layers[0].changes == plimsoll::slot_changes{1, 2});
  CHECK(plan.sent_bytes == std::vector<std::int64_t>{0, 0, 0});
  CHECK(plan.received_bytes == std::vector<std::int64_t>{1, 0, 0});
  CHECK(plan.seconds == 1.0 / 4 + 1.0 / 2 + 1.0 / 4);
  CHECK(plan.layers[0].seconds == plan.seconds);
  // What the dead rank holds may stay listed: it is neither a copy nor a source.
  c.to[3] = 1;
  transfer_plan const same = run(c);
  validate(c, same);
  CHECK(same.list == plan.list);
  CHECK(same.layers[0].changes == plan.layers[0].changes);
  // Slots of a rank exchange their experts by way of two staging slots.
  c = {.experts = 2, .slots = 2, .from = {0, 1}, .to = {1, 0}};
  plan = run(c);
  validate(c, plan);
  CHECK(plan.list ==
        std::vector<transfer>{moved(1, 0, 1, 0, 0, 0, 0, 0, transfer_kind::local_copy),
                              moved(0, 0, 0, 0, 1, 0, 1, 0, transfer_kind::local_copy)});
  CHECK(plan.layers[0].staging_slots == 2);
  // Rank 0 copies within itself only after rank 1 has read the slot: slot 0 is read in round 0.
  c = {.experts = 3, .slots = 4, .from = {0, 1, 2, -1}, .to = {1, 1, 0, 2}};
  c.where.ranks = 2;
  plan = run(c);
  validate(c, plan);
  CHECK(plan.list ==
        std::vector<transfer>{moved(0, 0, 0, 1, 2, 0, 0, 0, transfer_kind::same_node),
                              moved(2, 1, 2, 1, 3, 0, -1, 0, transfer_kind::local_copy),
                              moved(1, 0, 1, 0, 0, 1, -1, 1, transfer_kind::local_copy)});
  CHECK(plan.sent_bytes == std::vector<std::int64_t>{1, 0});
  CHECK(plan.received_bytes == std::vector<std::int64_t>{0, 1});
}

PLIMSOLL_TEST_CASE("transfers: dead ranks, copies within ranks, by hand", P, PLIMSOLL_POLICIES) {
  check_dead_and_copies(transfers_of<P>, validate_of<P>);
}

inline void check_sources(transfers_fn run, validate_fn validate) {
  // Experts 0 and 2 are on ranks 0 and 1, expert 1 on ranks 1 and 2. Rank 0 sends expert 0 and rank
  // 1 expert 1. For expert 2 either would send a second one, unless rank 2 sends expert 1 instead.
  transfer_case c{.experts = 3,
                  .slots = 12,
                  .from = {0, 2, -1, 0, 1, 2, 1, -1, -1, -1, -1, -1},
                  .to = {0, 2, -1, 0, 1, 2, 1, -1, -1, 0, 1, 2}};
  c.where.ranks = 4;
  transfer_plan plan = run(c);
  validate(c, plan);
  std::map<std::int32_t, std::int32_t> source_of;
  for (transfer const& t : plan.list) {
    source_of[t.expert] = t.source_rank;
  }
  CHECK(source_of == std::map<std::int32_t, std::int32_t>{{0, 0}, {1, 2}, {2, 1}});
  // A rank of the node comes first, though it sends everything then.
  c.where.nodes = 2;
  c.from = {0, 1, 2, 0, 1, 2, 0, 1, 2, -1, -1, -1};
  plan = run(c);
  validate(c, plan);
  for (transfer const& t : plan.list) {
    if (t.destination_rank == 3) {
      CHECK(t.source_rank == 2);
      CHECK(t.kind == transfer_kind::same_node);
    }
  }
}

PLIMSOLL_TEST_CASE("transfers: sources, by hand", P, PLIMSOLL_POLICIES) {
  check_sources(transfers_of<P>, validate_of<P>);
}

PLIMSOLL_TEST_CASE("transfers: nothing to do", P, PLIMSOLL_POLICIES) {
  transfer_case c{.experts = 2, .slots = 4, .from = {0, 1, 0, 1}, .to = {0, 1, -1, 1}};
  c.where.ranks = 2;
  transfer_plan plan = transfers_of<P>(c);
  validate_of<P>(c, plan);
  CHECK(plan.list.empty());
  CHECK(plan.layers[0].rounds == 0);
  CHECK(plan.seconds == 0);
  CHECK(plan.sent_bytes == std::vector<std::int64_t>{0, 0});
  c.layers = 0;
  c.from.clear();
  c.to.clear();
  plan = transfers_of<P>(c);
  validate_of<P>(c, plan);
  CHECK(plan.layers.empty());
}

/// Totals over the random cases.
struct seen_transfers {
  int sent = 0;
  int from_host = 0;
  int second_copies = 0;
  int staged = 0;
  int odd = 0;  ///< layers with a round more than the bound
};

/// Checks rounds and staging slots of a layer against the definition.
inline void check_times(std::vector<transfer> const& list, slow_transfers const& slow,
                        plimsoll::layer_transfers const& summary, seen_transfers& seen) {
  std::map<std::int32_t, std::int32_t> sent_until;  // last round in which other ranks read a slot
  std::map<std::int32_t, std::int32_t> read_until;
  std::int32_t rounds = 0;
  for (transfer const& t : list) {
    if (is_sent(t)) {
      auto const at = sent_until.insert({t.source_slot, t.round}).first;
      at->second = std::max(at->second, t.round);
    }
  }
  read_until = sent_until;
  for (transfer const& t : list) {
    bool const is_second = slow.wanted().at(t.destination_slot).is_second_copy;
    if (!is_second) {
      rounds = std::max(rounds, t.round + 1);
    }
    if (!is_second && !is_sent(t)) {
      bool const is_read = sent_until.contains(t.destination_slot);
      CHECK(t.round == (is_read ? sent_until[t.destination_slot] + 1 : 0));
    }
    if (!is_second && t.kind == transfer_kind::local_copy) {
      auto const at = read_until.insert({t.source_slot, t.round}).first;
      at->second = std::max(at->second, t.round);
    }
  }
  std::map<std::pair<std::int32_t, std::int32_t>, index_t> in_use;  // by rank and round
  index_t most = 0;
  for (transfer const& t : list) {
    if (slow.wanted().at(t.destination_slot).is_second_copy) {
      CHECK(t.round == rounds);
      ++seen.second_copies;
    }
    auto const read = read_until.find(t.destination_slot);
    bool const is_staged = read != read_until.end() && read->second >= t.round;
    CHECK((t.staging_slot >= 0) == is_staged);
    CHECK(t.commit_round == (is_staged ? read->second : t.round));
    for (std::int32_t round = t.round; is_staged && round <= t.commit_round; ++round) {
      most = std::max(most, ++in_use[{t.destination_rank, round}]);
    }
    seen.staged += is_staged;
  }
  CHECK(summary.staging_slots == most);
  CHECK(summary.rounds == (list.empty() ? 0 : list.back().round + 1));
}

/// Checks a plan against the definition.
inline void check_plan(transfer_case const& c, transfer_plan const& plan, seen_transfers& seen) {
  REQUIRE(std::ssize(plan.layers) == c.layers);
  for (index_t layer = 0; layer < c.layers; ++layer) {
    plimsoll::layer_transfers const& summary = plan.layers[static_cast<std::size_t>(layer)];
    std::vector<transfer> const list = of_layer(plan, layer);
    slow_transfers const slow(c, layer);
    REQUIRE(list.size() == slow.wanted().size());
    std::map<std::int32_t, index_t> sends;
    index_t most = 0;
    index_t copies = 0;
    index_t rounds = 0;
    for (transfer const& t : list) {
      wanted_transfer const& wanted = slow.wanted().at(t.destination_slot);
      CHECK(t.expert == wanted.expert);
      CHECK(t.kind == wanted.kind);
      CHECK(t.bytes == c.expert_bytes);
      CHECK(std::find(wanted.sources.begin(), wanted.sources.end(), t.source_slot) !=
            wanted.sources.end());
      copies += t.kind == transfer_kind::local_copy;
      seen.from_host += t.kind == transfer_kind::from_host;
      if (is_sent(t)) {
        ++seen.sent;
        most = std::max(most, ++sends[t.source_rank]);
        rounds = std::max<index_t>(rounds, t.round + 1);
      }
    }
    CHECK(most == slow.fewest_sends());
    CHECK(summary.changes.local_copies == copies);
    CHECK(summary.changes.moves == std::ssize(list) - copies);
    CHECK(summary.rounds_bound == largest_degree(list, c.rule));
    CHECK(rounds >= summary.rounds_bound);
    CHECK(rounds <= summary.rounds_bound + (c.rule == round_rule::one_peer ? 1 : 0));
    seen.odd += rounds > summary.rounds_bound;
    check_times(list, slow, summary, seen);
  }
  CHECK(plan.seconds == doctest::Approx(slow_seconds(c, plan)).epsilon(1e-12));
  double seconds = 0;
  for (plimsoll::layer_transfers const& layer : plan.layers) {
    seconds += layer.seconds;
  }
  CHECK(seconds == doctest::Approx(plan.seconds).epsilon(1e-12));
}

inline void check_random_transfers(transfers_fn run, validate_fn validate) {
  fnv1a hash;
  seen_transfers seen;
  int refused = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    transfer_case const c =
        random_transfers(seed, seed % 3 == 0 ? transfer_sizes{20, 6, 2} : transfer_sizes{});
    transfer_plan plan;
    try {
      plan = run(c);
    } catch (plimsoll::invalid_input const&) {
      ++refused;  // ranks without a live slot
      continue;
    }
    validate(c, plan);
    check_plan(c, plan, seen);
    add(hash, plan);
  }
  CHECK(refused < 30);
  CHECK(seen.sent > 1000);
  CHECK(seen.from_host > 100);
  CHECK(seen.second_copies > 100);
  CHECK(seen.staged > 300);
  CHECK(seen.odd > 3);
  report_hash("transfers.random", hash.value());
}

PLIMSOLL_TEST_CASE("transfers: equal the definition on random placements", P, PLIMSOLL_POLICIES) {
  check_random_transfers(transfers_of<P>, validate_of<P>);
}

/// A permutation of experts.
struct permutation {
  std::uint64_t seed;
  index_t ranks;
  index_t slots_per_rank;
};

inline void check_dense(transfers_fn run, validate_fn validate) {
  fnv1a hash;
  seen_transfers seen;
  // In these, a color is free on two ranks of a fan.
  std::vector<permutation> graphs = {{7, 8, 2}, {17, 7, 4}, {15, 7, 6}, {31, 9, 8}, {47, 7, 7}};
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    index_t const ranks = std::vector<index_t>{7, 16, 33, 64}[seed % 4];
    graphs.push_back({seed, ranks, 1 + static_cast<index_t>(seed % 7)});
  }
  for (permutation const& graph : graphs) {
    CAPTURE(graph.seed);
    CAPTURE(graph.ranks);
    transfer_case c = permuted_experts(graph.seed, graph.ranks, graph.slots_per_rank);
    for (round_rule const rule : {round_rule::one_peer, round_rule::send_and_receive}) {
      c.rule = rule;
      transfer_plan const plan = run(c);
      validate(c, plan);
      check_plan(c, plan, seen);
      add(hash, plan);
    }
  }
  // Complete graphs: every rank sends to every other one. An odd number of ranks needs a round
  // more.
  for (index_t const ranks : {8, 9, 40, 41}) {
    CAPTURE(ranks);
    transfer_case c{.experts = ranks, .slots = ranks * ranks};
    c.where.ranks = ranks;
    for (index_t slot = 0; slot < c.slots; ++slot) {
      c.from.push_back(static_cast<std::int32_t>(slot % ranks == 0 ? slot / ranks : -1));
      c.to.push_back(static_cast<std::int32_t>((slot / ranks + slot) % ranks));
    }
    transfer_plan plan = run(c);
    validate(c, plan);
    CHECK(plan.layers[0].rounds_bound == ranks - 1);
    CHECK(plan.layers[0].rounds == ranks - 1 + ranks % 2);
    c.rule = round_rule::send_and_receive;
    plan = run(c);
    validate(c, plan);
    CHECK(plan.layers[0].rounds == ranks - 1);
    add(hash, plan);
  }
  CHECK(seen.odd > 0);
  report_hash("transfers.dense", hash.value());
}

PLIMSOLL_TEST_CASE("transfers: many ranks with many peers", P, PLIMSOLL_POLICIES) {
  check_dense(transfers_of<P>, validate_of<P>);
}

/// One layer with everything that validate checks: live ranks 0 to 2 form a ring, rank 1 also gets
/// expert 4 from rank 2, and rank 2 expert 3, which only dead rank 3 held, in two slots.
inline transfer_case full_case() {
  transfer_case c{.experts = 5,
                  .slots = 16,
                  .from = {0, -1, -1, -1, 1, -1, -1, -1, 2, 4, -1, -1, 3, -1, -1, -1},
                  .to = {1, -1, -1, -1, 2, 4, -1, -1, 0, 4, 3, 3, -1, -1, -1, -1}};
  c.where.ranks = 4;
  c.where.active = {1, 1, 1, 0};
  return c;
}

inline void check_faults(transfers_fn run, validate_fn validate) {
  transfer_case const c = full_case();
  transfer_plan const good = run(c);
  validate(c, good);
  transfer_plan highest = good;
  highest.layers[0].staging_slots = index_t{1} << 31;
  highest.list[0].staging_slot = std::numeric_limits<std::int32_t>::max();
  validate(c, highest);
  // Transfers 0 and 1 are in round 0: expert 1 to slot 0, staged until round 1, and expert 3 to
  // slot 10 from the host. 2 is in round 1: expert 0 to slot 8, staged until round 2. 3 and 4 are
  // in round 2: experts 2 and 4 to slots 4 and 5. 5 is in round 3: expert 3 to slot 11.
  REQUIRE(good.list.size() == 6);
  auto const refused = [&](auto change, std::string const& message) {
    transfer_plan plan = good;
    change(plan);
    check_message(refusal_of([&] { validate(c, plan); }), "validate: plan." + message);
  };
  auto const refused_at = [&](std::size_t i, auto change, std::string const& message) {
    refused([&](transfer_plan& plan) { change(plan.list[i]); },
            "list: expected " + message + " in layer 0, round " +
                std::to_string(good.list[i].round) + ", transfer " + std::to_string(i));
  };
  refused_at(
      0, [](transfer& t) { t.destination_slot = 16; }, "a destination slot from 0 to 15, got 16");
  refused_at(
      1, [](transfer& t) { t.destination_slot = -1; }, "a destination slot from 0 to 15, got -1");
  refused_at(
      1, [](transfer& t) { t.destination_slot = 0; },
      "destination slots that rise in a round, got 0");
  refused_at(
      0, [](transfer& t) { t.destination_rank = 1; }, "for slot 0 destination rank 0, got 1");
  refused_at(
      0, [](transfer& t) { t.destination_slot = 1; },
      "one transfer to each slot that gets another expert, got slot 1");
  refused_at(
      0, [](transfer& t) { t.expert = 2; }, "for slot 0 expert 1, got 2");
  refused_at(
      0, [](transfer& t) { t.bytes = 2; }, "bytes of an expert: 1, got 2");
  refused_at(
      0, [](transfer& t) { t.kind = static_cast<transfer_kind>(4); }, "a kind of transfer, got 4");
  refused_at(
      0, [](transfer& t) { t.kind = transfer_kind::local_copy; }, "kind same_node, got local_copy");
  refused_at(
      1, [](transfer& t) { t.source_slot = 12; }, "host memory as source: slot -1, got 12");
  refused_at(
      1, [](transfer& t) { t.source_rank = 3; }, "host memory as source: rank -1, got 3");
  refused_at(
      0, [](transfer& t) { t.source_slot = 16; }, "a source slot of a live rank, got 16");
  refused_at(
      0, [](transfer& t) { t.source_slot = -1; }, "a source slot of a live rank, got -1");
  refused_at(
      0, [](transfer& t) { t.source_slot = 12; }, "a source slot of a live rank, got 12");
  refused_at(
      0, [](transfer& t) { t.source_rank = 2; }, "for slot 4 source rank 1, got 2");
  refused_at(
      0, [](transfer& t) { t.source_slot = 5; }, "expert 1 in source slot 5, got expert -1");
  refused_at(
      0, [](transfer& t) { t.staging_slot = 1; }, "-1 or a staging slot below 1, got 1");
  refused_at(
      0, [](transfer& t) { t.staging_slot = -2; }, "-1 or a staging slot below 1, got -2");
  refused_at(
      0, [](transfer& t) { t.commit_round = 4; }, "a commit_round from 0 to 3, got 4");
  refused_at(
      2, [](transfer& t) { t.commit_round = 0; }, "a commit_round from 1 to 3, got 0");
  refused_at(
      0, [](transfer& t) { t.staging_slot = -1; }, "without a staging slot commit_round 0, got 1");
  refused_at(
      0,
      [](transfer& t) {
        t.staging_slot = -1;
        t.commit_round = 0;
      },
      "expert 0 to stay readable, got slot 0, its last, overwritten after round 0");
  refused_at(
      0, [](transfer& t) { t.commit_round = 0; },
      "expert 0 to stay readable, got slot 0, its last, overwritten after round 0");
  refused(
      [](transfer_plan& plan) {
        plan.list[2].staging_slot = -1;
        plan.list[2].commit_round = 1;
      },
      "list: expected expert 2 to stay readable, got slot 8, its last, overwritten after round 1 "
      "in "
      "layer 0, round 1, transfer 2");
  refused(
      [](transfer_plan& plan) { plan.list.erase(plan.list.begin()); },
      "list: expected expert 1 to stay readable, got slot 4, its last, overwritten after round 2 "
      "in layer 0, round 2, transfer 2");
  refused([](transfer_plan& plan) { plan.list.pop_back(); },
          "list: expected a transfer of expert 3 to slot 11, got none in layer 0");
  refused(
      [](transfer_plan& plan) {
        plan.layers[0].rounds = index_t{1} << 40;
        plan.list[0].commit_round = std::numeric_limits<std::int32_t>::max();
      },
      "list: expected a transfer of expert 1 to slot 0, got none in layer 0");
  refused([](transfer_plan& plan) { std::swap(plan.list[1], plan.list[2]); },
          "list: expected round 2 next, got round 0 in layer 0, round 0, transfer 2");
  refused([](transfer_plan& plan) { plan.list.erase(plan.list.begin() + 2); },
          "list: expected round 1 next, got round 2 in layer 0, round 2, transfer 2");
  refused([](transfer_plan& plan) { plan.list[5].layer = 1; },
          "list: expected a transfer of expert 3 to slot 11, got none in layer 0");
  refused([](transfer_plan& plan) { plan.list.push_back(plan.list[0]); },
          "list: expected round 4 next, got round 0 in layer 0, round 0, transfer 6");
  refused(
      [](transfer_plan& plan) {
        plan.list.push_back(plan.list[5]);
        plan.list.back().round = plan.list.back().commit_round = 4;
      },
      "list: expected one transfer to each slot that gets another expert, got slot 11 in layer 0, "
      "round 4, transfer 6");
  refused(
      [](transfer_plan& plan) {
        plan.list.push_back(plan.list[5]);
        plan.list.back().layer = 1;
      },
      "list: expected layers that rise from 0 to the last of the placements, got 1, transfer 6");
  refused([](transfer_plan& plan) { ++plan.layers[0].rounds; },
          "layers: expected 4 rounds, got 5 in layer 0");
  refused([](transfer_plan& plan) { ++plan.layers[0].changes.moves; },
          "layers: expected 5 moves, got 6 in layer 0");
  refused([](transfer_plan& plan) { --plan.layers[0].changes.local_copies; },
          "layers: expected 1 local copies, got 0 in layer 0");
  refused([](transfer_plan& plan) { ++plan.layers[0].rounds_bound; },
          "layers: expected 2 rounds at least, got 3 in layer 0");
  refused([](transfer_plan& plan) { plan.layers.pop_back(); }, "layers: expected 1 layers, got 0");
  refused([](transfer_plan& plan) { plan.sent_bytes.push_back(0); },
          "sent_bytes: expected 4 ranks, got 5");
  refused([](transfer_plan& plan) { plan.received_bytes.clear(); },
          "received_bytes: expected 4 ranks, got 0");
  refused([](transfer_plan& plan) { ++plan.sent_bytes[1]; },
          "sent_bytes: expected 1 bytes, got 2, rank 1");
  refused([](transfer_plan& plan) { --plan.received_bytes[2]; },
          "received_bytes: expected 2 bytes, got 1, rank 2");
}

PLIMSOLL_TEST_CASE("validate: faults of transfers are named", P, PLIMSOLL_POLICIES) {
  check_faults(transfers_of<P>, validate_of<P>);
}

inline void check_fault_of_rules(transfers_fn run, validate_fn validate) {
  auto const refused = [&](transfer_case const& c, transfer_plan const& plan,
                           std::string const& message) {
    check_message(refusal_of([&] { validate(c, plan); }), "validate: plan.list: " + message);
  };
  // A ring in one round.
  transfer_case c{.experts = 3, .slots = 3, .from = {0, 1, 2}, .to = {1, 2, 0}};
  c.where.ranks = 3;
  c.rule = round_rule::send_and_receive;
  transfer_plan const ring = run(c);
  validate(c, ring);
  c.rule = round_rule::one_peer;
  refused(
      c, ring,
      "expected rank 1 to exchange with no rank but 0, got rank 2 in layer 0, round 0, transfer "
      "1");
  transfer_plan direct = ring;
  c.rule = round_rule::send_and_receive;
  direct.list[1].staging_slot = -1;
  refused(c, direct,
          "expected a staging slot, since the round reads slot 1, got -1 in layer 0, round 0, "
          "transfer 1");
  // Rank 0 sends to two ranks, then two ranks send to rank 0, in one round.
  c = {.experts = 2, .slots = 6, .from = {0, 1, -1, -1, -1, -1}, .to = {0, 1, 0, -1, 1, -1}};
  c.where.ranks = 3;
  c.rule = round_rule::send_and_receive;
  transfer_plan plan = run(c);
  validate(c, plan);
  REQUIRE(plan.list.size() == 2);
  plan.list[1].round = plan.list[1].commit_round = 0;
  refused(c, plan,
          "expected rank 0 to send to no rank but 1, got rank 2 in layer 0, round 0, transfer 1");
  c.from = {-1, -1, 0, -1, 1, -1};
  c.to = {0, 1, 0, -1, 1, -1};
  plan = run(c);
  validate(c, plan);
  plan.list[1].round = plan.list[1].commit_round = 0;
  refused(c, plan,
          "expected rank 0 to receive from no rank but 1, got rank 2 in layer 0, round 0, transfer "
          "1");
  // A flow in two rounds.
  c = {.experts = 2, .slots = 4, .from = {0, 1, -1, -1}, .to = {0, 1, 0, 1}};
  c.where.ranks = 2;
  plan = run(c);
  validate(c, plan);
  plan.list[1].round = plan.list[1].commit_round = 1;
  refused(
      c, plan,
      "expected transfers from rank 0 to rank 1 in round 0, got 1 in layer 0, round 1, transfer "
      "1");
  // One staging slot for two transfers.
  c = {.experts = 4, .slots = 4, .from = {0, 1, 2, 3}, .to = {2, 3, 0, 1}};
  c.where.ranks = 2;
  plan = run(c);
  validate(c, plan);
  CHECK(plan.layers[0].staging_slots == 2);
  plan.list[1].staging_slot = 0;
  refused(
      c, plan,
      "expected staging slot 0 of rank 0 to be free, used until round 0, got another transfer in "
      "layer 0, round 0, transfer 1");
  // One staging slot in three rounds, kept too long in the second.
  c = {.experts = 6, .slots = 6, .from = {0, 1, 2, 3, 4, 5}, .to = {3, 4, 5, 0, 1, 2}};
  c.where.ranks = 4;
  c.where.rank_offsets = {0, 3, 4, 5, 6};
  plan = run(c);
  validate(c, plan);
  CHECK(plan.layers[0].rounds == 3);
  CHECK(plan.layers[0].staging_slots == 1);
  CHECK(plan.list[2].commit_round == 1);
  plan.list[2].commit_round = 2;
  refused(
      c, plan,
      "expected staging slot 0 of rank 0 to be free, used until round 2, got another transfer in "
      "layer 0, round 2, transfer 4");
  // An expert is sent to a rank twice, and to a rank that holds it.
  auto const refused_copy = [&](std::string const& where) {
    plan = run(c);
    validate(c, plan);
    transfer& copy = plan.list.back();
    CHECK(copy.kind == transfer_kind::local_copy);
    copy.source_rank = copy.source_slot = 0;
    copy.kind = transfer_kind::same_node;
    refused(c, plan,
            "expected expert 0 to be sent at most once to rank 1, which does not hold it, got a "
            "transfer in layer 0, " +
                where);
  };
  c = {.experts = 1, .slots = 4, .from = {0, -1, -1, -1}, .to = {0, -1, 0, 0}};
  c.where.ranks = 2;
  refused_copy("round 1, transfer 1");
  c.from = {0, -1, 0, -1};
  refused_copy("round 0, transfer 0");
}

PLIMSOLL_TEST_CASE("validate: faults of rules, staging and copies are named", P,
                   PLIMSOLL_POLICIES) {
  check_fault_of_rules(transfers_of<P>, validate_of<P>);
}

using damage = bool (*)(transfer_case const&, transfer_plan&, std::size_t, draws&);

/// Changes of transfer i of a correct list that make it wrong; false if there is none of the kind.
inline std::vector<damage> const& damages() {
  static std::vector<damage> const all = {
      [](transfer_case const& c, transfer_plan& plan, std::size_t i, draws& draw) {
        transfer& t = plan.list[i];
        std::int32_t const slot = draw.among(0, c.slots - 1);
        bool const is_wrong =
            c.before(t.layer, slot) != t.expert && c.after(t.layer, slot) != t.expert;
        t.source_slot = slot;
        return is_wrong;
      },
      [](transfer_case const&, transfer_plan& plan, std::size_t i, draws& draw) {
        plan.list[i].source_rank += draw.any({-1, 1});
        return true;
      },
      [](transfer_case const&, transfer_plan& plan, std::size_t i, draws& draw) {
        plan.list[i].destination_rank += draw.any({-1, 1});
        return true;
      },
      [](transfer_case const& c, transfer_plan& plan, std::size_t i, draws& draw) {
        plan.list[i].expert += draw.among(1, c.experts);
        return true;
      },
      [](transfer_case const&, transfer_plan& plan, std::size_t i, draws&) {
        plan.list.erase(plan.list.begin() + static_cast<std::ptrdiff_t>(i));
        return true;
      },
      [](transfer_case const&, transfer_plan& plan, std::size_t i, draws&) {
        plan.list.push_back(plan.list[i]);
        return true;
      },
      [](transfer_case const&, transfer_plan& plan, std::size_t i, draws& draw) {
        std::size_t const other = static_cast<std::size_t>(draw.bits()) % plan.list.size();
        std::swap(plan.list[i], plan.list[other]);
        return other != i;
      },
      [](transfer_case const&, transfer_plan& plan, std::size_t i, draws&) {
        // Direct instead of by way of a staging slot.
        transfer& t = plan.list[i];
        bool const is_staged = t.staging_slot >= 0;
        t.staging_slot = -1;
        t.commit_round = t.round;
        return is_staged;
      },
      [](transfer_case const&, transfer_plan& plan, std::size_t i, draws&) {
        transfer& t = plan.list[i];
        return t.staging_slot >= 0 && --t.commit_round >= t.round;
      },
      [](transfer_case const&, transfer_plan& plan, std::size_t i, draws&) {
        // A later round, up to which all others stay where they are.
        transfer& t = plan.list[i];
        return is_sent(t) && (t.round = t.commit_round = 1 << 20) > 0;
      },
      [](transfer_case const&, transfer_plan& plan, std::size_t i, draws&) {
        // The staging slot of another transfer of the rank at the same time.
        transfer& t = plan.list[i];
        for (transfer const& other : plan.list) {
          if (t.staging_slot >= 0 && other.staging_slot >= 0 && other.layer == t.layer &&
              other.destination_rank == t.destination_rank &&
              other.staging_slot != t.staging_slot && other.round <= t.commit_round &&
              t.round <= other.commit_round) {
            t.staging_slot = other.staging_slot;
            return true;
          }
        }
        return false;
      },
      [](transfer_case const&, transfer_plan& plan, std::size_t i, draws&) {
        plan.list[i].kind =
            static_cast<transfer_kind>((static_cast<int>(plan.list[i].kind) + 1) % 4);
        return true;
      },
      [](transfer_case const&, transfer_plan& plan, std::size_t i, draws&) {
        index_t& slots = plan.layers[static_cast<std::size_t>(plan.list[i].layer)].staging_slots;
        return slots-- > 0;
      },
      [](transfer_case const&, transfer_plan& plan, std::size_t i, draws&) {
        ++plan.layers[static_cast<std::size_t>(plan.list[i].layer)].staging_slots;
        return true;
      }};
  return all;
}

inline void check_damages(transfers_fn run, validate_fn validate) {
  std::vector<int> tried(damages().size());
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    transfer_case const c = random_transfers(seed, {10, 6, 2});
    transfer_plan good;
    try {
      good = run(c);
    } catch (plimsoll::invalid_input const&) {
      continue;
    }
    draws draw(seed);
    for (std::size_t k = 0; k < damages().size() && !good.list.empty(); ++k) {
      CAPTURE(seed);
      CAPTURE(k);
      transfer_plan plan = good;
      if (damages()[k](c, plan, static_cast<std::size_t>(draw.bits()) % good.list.size(), draw)) {
        ++tried[k];
        CHECK_THROWS_AS(validate(c, plan), plimsoll::invalid_input);
      }
    }
  }
  for (int const n : tried) {
    CHECK(n > 10);
  }
}

PLIMSOLL_TEST_CASE("validate: a damaged list of transfers throws", P, PLIMSOLL_POLICIES) {
  check_damages(transfers_of<P>, validate_of<P>);
}

inline void check_transfer_refusals(transfers_fn run, validate_fn validate) {
  auto const refused = [&](transfer_case const& c, std::string const& message) {
    check_message(refusal_of([&] { run(c); }), "plan_transfers: " + message);
    check_message(refusal_of([&] { validate(c, {}); }), "validate: " + message);
  };
  transfer_case const good{.layers = 2,
                           .experts = 2,
                           .slots = 4,
                           .from = {0, 1, 0, 1, 0, 1, 0, 1},
                           .to = {0, 1, 0, 1, 1, 0, 1, 0},
                           .where = {.ranks = 2}};
  double const infinity = std::numeric_limits<double>::infinity();
  for (auto const& [value, name] : std::vector<std::pair<double, std::string>>{
           {0.0, "0"},
           {-1.0, "-1"},
           {std::numeric_limits<double>::quiet_NaN(), "NaN"},
           {infinity, "inf"}}) {
    transfer_case c = good;
    c.bandwidths.local_copy = value;
    refused(c, "options.bandwidths.local_copy: expected a number above 0, got " + name);
    c = good;
    c.bandwidths.same_node = value;
    refused(c, "options.bandwidths.same_node: expected a number above 0, got " + name);
    c = good;
    c.bandwidths.across_nodes = value;
    refused(c, "options.bandwidths.across_nodes: expected a number above 0, got " + name);
    c = good;
    c.bandwidths.from_host = value;
    refused(c, "options.bandwidths.from_host: expected a number above 0, got " + name);
  }
  transfer_case c = good;
  c.expert_bytes = 0;
  refused(c, "options.expert_bytes: expected 1 to 1152921504606846975 bytes, got 0");
  c.expert_bytes = std::int64_t{1} << 60;  // times 8 slots
  refused(c,
          "options.expert_bytes: expected 1 to 1152921504606846975 bytes, got 1152921504606846976");
  c = good;
  c.where.speeds = {1, 1};
  refused(c,
          "options.on.speeds: expected none, since a transfer takes as long on every rank, got "
          "speeds");
  c = good;
  c.where.nodes = 3;
  refused(c, "options.on.nodes: expected 1 to 2 nodes (at most one per rank), got 3");
  c = good;
  c.from[5] = 2;
  refused(
      c,
      "from.physical_to_logical: expected -1 or an expert of the layer, got 2 in layer 1, slot 1");
  c = good;
  c.to[6] = -2;
  refused(
      c,
      "to.physical_to_logical: expected -1 or an expert of the layer, got -2 in layer 1, slot 2");
  c = good;
  c.to[4] = c.to[6] = 0;
  refused(c,
          "to.physical_to_logical: expected every expert on a live rank, got none "
          "in layer 1, expert 1");
  c = good;
  c.where.active = {1, 0};
  refused(
      c,
      "to.physical_to_logical: expected -1 in slots of dead ranks and of no rank, got 1 in layer "
      "1, slot 2");
  c = good;
  c.where.active = {0, 0};
  refused(c, "on.active: expected at least 1 live rank, got 0");
  c = good;
  c.where.rank_offsets = {0, 2, 4, 0, 3, 2};
  refused(
      c,
      "from.rank_offsets: expected offsets that rise from 0 to at most the number of slots, got "
      "2 in layer 1, rank 1");
  c.where.rank_offsets = {0, 2, 4, 0, 2, 3};
  refused(c,
          "from.physical_to_logical: expected -1 in slots of dead ranks and of no rank, got 1 in "
          "layer 1, slot 3");
}

PLIMSOLL_TEST_CASE("transfers: bad options and values are named", P, PLIMSOLL_POLICIES) {
  check_transfer_refusals(transfers_of<P>, validate_of<P>);
}

}  // namespace plimsoll_test
