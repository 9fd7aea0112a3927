// SPDX-License-Identifier: Apache-2.0
/// @file
/// Planning of `plan_transfers`: the launch, the list, its bytes and duration; and `validate` for a
/// list, which plays its rounds on the host.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/migration_transfers.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/migration.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/serial_team.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline bool is_between_ranks(transfer_kind kind) {
  return kind == transfer_kind::same_node || kind == transfer_kind::across_nodes;
}

/// Estimates the duration of rounds, one after another.
class round_clock {
 public:
  round_clock(index_t ranks, transfer_options const& options)
      : expert_bytes_(options.expert_bytes),
        bandwidth_{options.bandwidths.local_copy, options.bandwidths.same_node,
                   options.bandwidths.across_nodes, options.bandwidths.from_host},
        counts_(static_cast<std::size_t>(ranks)) {}

  void add(transfer const& t) {
    auto const kind = static_cast<std::size_t>(t.kind);
    ++counts_[static_cast<std::size_t>(t.destination_rank)].received[kind];
    busy_.push_back(static_cast<std::size_t>(t.destination_rank));
    if (is_between_ranks(t.kind)) {
      ++counts_[static_cast<std::size_t>(t.source_rank)].sent[kind];
      busy_.push_back(static_cast<std::size_t>(t.source_rank));
    }
  }

  /// Ends a round. Returns the time of its slowest rank.
  double end_round() {
    double slowest = 0;
    for (std::size_t const rank : busy_) {
      double time = 0;
      for (std::size_t kind = 0; kind < kinds; ++kind) {
        std::int64_t const most = std::max(counts_[rank].sent[kind], counts_[rank].received[kind]);
        time += static_cast<double>(most * expert_bytes_) / bandwidth_[kind];
      }
      slowest = std::max(slowest, time);
      counts_[rank] = {};
    }
    busy_.clear();
    return slowest;
  }

 private:
  static constexpr std::size_t kinds = 4;
  /// Transfers of one rank in a round, by kind.
  struct counts {
    std::int64_t sent[kinds] = {};
    std::int64_t received[kinds] = {};
  };
  std::int64_t expert_bytes_;
  double bandwidth_[kinds];
  std::vector<counts> counts_;
  std::vector<std::size_t> busy_;
};

/// Adds the bytes that ranks send to each other, or receive from each other or the host.
inline void add_bytes(transfer const& t, std::vector<std::int64_t>& sent,
                      std::vector<std::int64_t>& received) {
  if (is_between_ranks(t.kind)) {
    sent[static_cast<std::size_t>(t.source_rank)] += t.bytes;
  }
  if (t.kind != transfer_kind::local_copy) {
    received[static_cast<std::size_t>(t.destination_rank)] += t.bytes;
  }
}

/// Makes the list from one transfer per slot of every layer, in order of slots; those without a
/// destination are left out.
inline transfer_plan list_transfers(std::vector<transfer> const& of_slots,
                                    std::vector<layer_transfers> layers, migration_pair const& pair,
                                    transfer_options const& options) {
  transfer_plan plan;
  auto const ranks = static_cast<std::size_t>(pair.ranks());
  plan.sent_bytes.assign(ranks, 0);
  plan.received_bytes.assign(ranks, 0);
  plan.layers = std::move(layers);
  index_t total = 0;
  for (layer_transfers const& layer : plan.layers) {
    total += layer.changes.moves + layer.changes.local_copies;
  }
  plan.list.resize(static_cast<std::size_t>(total));
  round_clock clock(pair.ranks(), options);
  std::size_t first = 0;
  std::vector<std::size_t> ends;  // of each round in the list
  for (std::size_t layer = 0; layer < plan.layers.size(); ++layer) {
    auto const row = of_slots.begin() + static_cast<std::ptrdiff_t>(layer) * pair.slots();
    auto const row_end = row + pair.slots();
    ends.assign(static_cast<std::size_t>(plan.layers[layer].rounds), 0);
    for (auto t = row; t != row_end; ++t) {
      if (t->destination_slot >= 0) {
        ++ends[static_cast<std::size_t>(t->round)];
      }
    }
    std::size_t begin = first;
    for (std::size_t& end : ends) {
      begin += std::exchange(end, begin);
    }
    for (auto t = row; t != row_end; ++t) {
      if (t->destination_slot >= 0) {
        plan.list[ends[static_cast<std::size_t>(t->round)]++] = *t;
      }
    }
    for (std::size_t const end : ends) {
      for (; first < end; ++first) {
        clock.add(plan.list[first]);
        add_bytes(plan.list[first], plan.sent_bytes, plan.received_bytes);
      }
      double const slowest = clock.end_round();
      plan.layers[layer].seconds += slowest;
      plan.seconds += slowest;
    }
  }
  return plan;
}

template <class Context>
transfer_plan run_transfers(std::string_view name, Context const& context,
                            migration_pair const& pair, transfer_options const& options) {
  index_t const layers = pair.layers();
  buffer<transfer, Context> const list(context, layers * pair.slots());
  buffer<layer_transfers, Context> const summaries(context, layers);
  run_planning(name, context, layers, 1, migration_names, [&](problem_report* reports) {
    launch(context, layers,
           transfers_body{.pair = pair,
                          .rule = options.rounds,
                          .expert_bytes = options.expert_bytes,
                          .list = {list.data(), layers, pair.slots()},
                          .summaries = summaries.data(),
                          .reports = reports});
  });
  return list_transfers(list.read(), summaries.read(), pair, options);
}

/// Hash map from pairs of numbers to numbers, with linear probing. <map> would cost every program
/// that includes this header.
class hash_map {
 public:
  /// Empties the map and makes room for `pairs` pairs, which fill at most half of the table.
  void reset(std::size_t pairs) { entries_.assign(std::bit_ceil(2 * pairs), {-1, -1}); }

  /// Finds the value of a pair of numbers from 0 to 2^31 - 1. A new pair gets `value`, -1 for none.
  index_t& at(index_t a, index_t b, index_t value = -1) {
    index_t const key = a << 32 | b;
    constexpr std::uint64_t multiplier = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio
    std::uint64_t const mixed = static_cast<std::uint64_t>(key) * multiplier;
    for (std::uint64_t i = (mixed ^ mixed >> 32) * multiplier >> 32;; ++i) {
      auto& entry = entries_[i & (entries_.size() - 1)];
      if (entry.first < 0) {
        entry = {key, value};
      }
      if (entry.first == key) {
        return entry.second;
      }
    }
  }

 private:
  std::vector<std::pair<index_t, index_t>> entries_;  ///< key or -1, and value
};

/// Plays the transfers of one layer after another, and throws for the first fault. The placements
/// are in host memory.
class transfer_check {
 public:
  transfer_check(std::string_view function, migration_pair const& pair, transfer_plan const& plan,
                 transfer_options const& options)
      : function_(function),
        pair_(pair),
        plan_(plan),
        rule_(options.rounds),
        expert_bytes_(options.expert_bytes),
        rank_of_(static_cast<std::size_t>(pair.slots())),
        copies_(static_cast<std::size_t>(pair.experts())),
        new_copies_(copies_.size()) {}

  void run() {
    for (layer_ = 0; layer_ < pair_.layers(); ++layer_) {
      read_layer();
    }
    index_t const ranks = pair_.ranks();
    expect_extent(function_, "plan.layers", pair_.layers(), std::ssize(plan_.layers), "layers");
    expect_extent(function_, "plan.sent_bytes", ranks, std::ssize(plan_.sent_bytes), "ranks");
    expect_extent(function_, "plan.received_bytes", ranks, std::ssize(plan_.received_bytes),
                  "ranks");
    std::vector<std::int64_t> sent(static_cast<std::size_t>(ranks), 0);
    std::vector<std::int64_t> received = sent;
    for (layer_ = 0; layer_ < pair_.layers(); ++layer_) {
      start_layer();
      std::size_t const first = at_;
      while (is_in_layer()) {
        play_round();
      }
      finish_layer();
      for (std::size_t i = first; i < at_; ++i) {
        add_bytes(plan_.list[i], sent, received);
      }
    }
    if (at_ < plan_.list.size()) {
      fail(function_, "plan.list", "layers that rise from 0 to the last of the placements",
           text(plan_.list[at_].layer, ", transfer ", at_));
    }
    expect_bytes("plan.sent_bytes", sent, plan_.sent_bytes);
    expect_bytes("plan.received_bytes", received, plan_.received_bytes);
  }

 private:
  [[noreturn]] void fault(std::string_view expected, std::string_view got, std::size_t i) const {
    fail(function_, "plan.list", expected,
         text(got, " in layer ", layer_, ", round ", plan_.list[i].round, ", transfer ", i));
  }
  void expect(bool holds, std::string_view expected, std::string_view got, std::size_t i) const {
    if (!holds) {
      fault(expected, got, i);
    }
  }
  template <class Got>
  void expect_equal(std::string_view what, std::int64_t expected, Got got, std::size_t i) const {
    expect(got == expected, text(what, " ", expected), text(got), i);
  }
  void expect_summary(std::string_view what, index_t expected, index_t got) const {
    if (got != expected) {
      fail(function_, "plan.layers", text(expected, " ", what), text(got, " in layer ", layer_));
    }
  }
  void expect_bytes(std::string_view argument, std::vector<std::int64_t> const& expected,
                    std::vector<std::int64_t> const& got) const {
    for (std::size_t r = 0; r < got.size(); ++r) {
      if (got[r] != expected[r]) {
        fail(function_, argument, text(expected[r], " bytes"), text(got[r], ", rank ", r));
      }
    }
  }

  [[nodiscard]] bool is_in_layer() const {
    return at_ < plan_.list.size() && plan_.list[at_].layer == layer_;
  }
  [[nodiscard]] index_t rank_of(index_t slot) const {
    return rank_of_[static_cast<std::size_t>(slot)];
  }
  [[nodiscard]] std::int32_t& holds(index_t slot) {
    return content_[static_cast<std::size_t>(slot)];
  }

  /// Checks the placements of a layer, finds the ranks of slots and counts copies.
  void read_layer() {
    serial_team team;
    expect_no_fault(function_,
                    pair_.refuse(team, layer_, rank_of_.data(), copies_.data(), new_copies_.data()),
                    layer_, migration_names);
  }

  void start_layer() {
    read_layer();
    readable_ = copies_;
    content_.clear();
    awaited_.clear();
    for (hash_map* map : {&arrivals_, &flows_, &staged_until_, &reads_, &peers_, &edges_}) {
      map->reset(2 * rank_of_.size());  // a slot has one transfer, which has two ends
    }
    for (index_t slot = 0; slot < pair_.slots(); ++slot) {
      std::int32_t const e = pair_.from(layer_, slot);
      std::int32_t const wanted = pair_.to(layer_, slot);
      bool const is_readable = e >= 0 && pair_.where.is_active(rank_of(slot));
      content_.push_back(is_readable ? e : -1);
      awaited_.push_back(wanted == e ? -1 : wanted);
      if (is_readable) {
        arrivals_.at(rank_of(slot), e) = 0;
      }
    }
    round_ = 0;
    changes_ = {};
    staging_slots_ = 0;
    largest_degree_ = 0;
    commits_.assign(content_.size(), {});
    degrees_.assign(2 * plan_.sent_bytes.size(), 0);
  }

  void play_round() {
    std::size_t const first = at_;
    for (; is_in_layer() && plan_.list[at_].round == round_; ++at_) {
      check_destination(at_, first);
      check_source(at_);
      check_rule(at_);
      check_staging(at_);
    }
    if (at_ == first) {
      fault(text("round ", round_, " next"), text("round ", plan_.list[at_].round), at_);
    }
    for (std::size_t i = first; i < at_; ++i) {
      transfer const& t = plan_.list[i];
      expect(t.staging_slot >= 0 || reads_.at(t.destination_slot, round_) < 0,
             text("a staging slot, since the round reads slot ", t.destination_slot), "-1", i);
      ++readable_[static_cast<std::size_t>(t.expert)];
      if (t.commit_round < pair_.slots()) {  // later ones never come: each fills a slot
        commits_[static_cast<std::size_t>(t.commit_round)].push_back(i);
      }
    }
    for (std::size_t const i : commits_[static_cast<std::size_t>(round_)]) {
      transfer const& t = plan_.list[i];
      std::int32_t const lost = std::exchange(holds(t.destination_slot), t.expert);
      if (lost >= 0 && --readable_[static_cast<std::size_t>(lost)] == 0) {
        fault(text("expert ", lost, " to stay readable"),
              text("slot ", t.destination_slot, ", its last, overwritten after round ", round_), i);
      }
    }
    ++round_;
  }

  void check_destination(std::size_t i, std::size_t first_of_round) {
    transfer const& t = plan_.list[i];
    expect(t.destination_slot >= 0 && t.destination_slot < pair_.slots(),
           text("a destination slot from 0 to ", pair_.slots() - 1), text(t.destination_slot), i);
    expect(i == first_of_round || plan_.list[i - 1].destination_slot < t.destination_slot,
           "destination slots that rise in a round", text(t.destination_slot), i);
    expect_equal(text("for slot ", t.destination_slot, " destination rank"),
                 rank_of(t.destination_slot), t.destination_rank, i);
    std::int32_t const wanted =
        std::exchange(awaited_[static_cast<std::size_t>(t.destination_slot)], -1);
    expect(wanted >= 0, "one transfer to each slot that gets another expert",
           text("slot ", t.destination_slot), i);
    expect_equal(text("for slot ", t.destination_slot, " expert"), wanted, t.expert, i);
    expect_equal("bytes of an expert:", expert_bytes_, t.bytes, i);
  }

  void check_source(std::size_t i) {
    static constexpr std::array<std::string_view, 4> kinds = {"local_copy", "same_node",
                                                              "across_nodes", "from_host"};
    transfer const& t = plan_.list[i];
    auto const kind = static_cast<std::size_t>(t.kind);
    expect(kind < kinds.size(), "a kind of transfer", text(static_cast<std::int32_t>(t.kind)), i);
    index_t& arrival = arrivals_.at(t.destination_rank, t.expert);
    bool const has_source = copies_[static_cast<std::size_t>(t.expert)] > 0 || arrival >= 0;
    transfer_kind expected = transfer_kind::from_host;
    if (!has_source) {
      expect_equal("host memory as source: slot", -1, t.source_slot, i);
      expect_equal("host memory as source: rank", -1, t.source_rank, i);
    } else {
      expect(t.source_slot >= 0 && t.source_slot < pair_.slots() && rank_of(t.source_slot) >= 0 &&
                 pair_.where.is_active(rank_of(t.source_slot)),
             "a source slot of a live rank", text(t.source_slot), i);
      expect_equal(text("for slot ", t.source_slot, " source rank"), rank_of(t.source_slot),
                   t.source_rank, i);
      expect(holds(t.source_slot) == t.expert,
             text("expert ", t.expert, " in source slot ", t.source_slot),
             text("expert ", holds(t.source_slot)), i);
      reads_.at(t.source_slot, round_) = 0;
      bool const is_near =
          pair_.where.node_of(t.source_rank) == pair_.where.node_of(t.destination_rank);
      expected = t.source_rank == t.destination_rank ? transfer_kind::local_copy
                 : is_near                           ? transfer_kind::same_node
                                                     : transfer_kind::across_nodes;
    }
    expect(t.kind == expected, text("kind ", kinds[static_cast<std::size_t>(expected)]),
           kinds[kind], i);
    if (t.kind == transfer_kind::local_copy) {
      ++changes_.local_copies;
      return;
    }
    ++changes_.moves;
    expect(std::exchange(arrival, round_) < 0,
           text("expert ", t.expert, " to be sent at most once to rank ", t.destination_rank,
                ", which does not hold it"),
           "a transfer", i);
  }

  void check_rule(std::size_t i) {
    transfer const& t = plan_.list[i];
    if (!is_between_ranks(t.kind)) {
      return;
    }
    index_t const from = t.source_rank;
    index_t const to = t.destination_rank;
    expect_equal(text("transfers from rank ", from, " to rank ", to, " in round"),
                 flows_.at(from, to, t.round), t.round, i);
    // Under a rule for each direction, ranks that receive have numbers of their own.
    bool const is_one_peer = rule_ == round_rule::one_peer;
    for (bool const sends : {true, false}) {
      index_t const rank = sends ? from : to;
      index_t const other = sends ? to : from;
      index_t const number = is_one_peer || sends ? rank : rank + pair_.ranks();
      index_t const known = peers_.at(number, round_, other);
      expect(known == other,
             text("rank ", rank,
                  is_one_peer ? " to exchange with"
                  : sends     ? " to send to"
                              : " to receive from",
                  " no rank but ", known),
             text("rank ", other), i);
      if (std::exchange(edges_.at(number, other), 0) < 0) {
        index_t const degree = ++degrees_[static_cast<std::size_t>(number)];
        largest_degree_ = std::max(largest_degree_, degree);
      }
    }
  }

  void check_staging(std::size_t i) {
    transfer const& t = plan_.list[i];
    layer_transfers const& of_layer = plan_.layers[static_cast<std::size_t>(layer_)];
    if (t.staging_slot == -1) {
      expect_equal("without a staging slot commit_round", t.round, t.commit_round, i);
      return;
    }
    expect(t.staging_slot >= 0 && t.staging_slot < of_layer.staging_slots,
           text("-1 or a staging slot below ", of_layer.staging_slots), text(t.staging_slot), i);
    expect(t.commit_round >= t.round && t.commit_round < of_layer.rounds,
           text("a commit_round from ", t.round, " to ", of_layer.rounds - 1), text(t.commit_round),
           i);
    index_t& used_until = staged_until_.at(t.destination_rank, t.staging_slot);
    expect(used_until < t.round,
           text("staging slot ", t.staging_slot, " of rank ", t.destination_rank,
                " to be free, used until round ", used_until),
           "another transfer", i);
    used_until = t.commit_round;
    staging_slots_ = std::max(staging_slots_, index_t{t.staging_slot} + 1);
  }

  void finish_layer() {
    for (index_t slot = 0; slot < pair_.slots(); ++slot) {
      std::int32_t const wanted = pair_.to(layer_, slot);
      // Slots of dead ranks stay as they are.
      if (wanted >= 0 && wanted != holds(slot) && pair_.where.is_active(rank_of(slot))) {
        fail(function_, "plan.list", text("a transfer of expert ", wanted, " to slot ", slot),
             text("none in layer ", layer_));
      }
    }
    layer_transfers const& of_layer = plan_.layers[static_cast<std::size_t>(layer_)];
    expect_summary("rounds", round_, of_layer.rounds);
    expect_summary("moves", changes_.moves, of_layer.changes.moves);
    expect_summary("local copies", changes_.local_copies, of_layer.changes.local_copies);
    expect_summary("staging slots", staging_slots_, of_layer.staging_slots);
    expect_summary("rounds at least", largest_degree_, of_layer.rounds_bound);
  }

  std::string_view function_;
  migration_pair const& pair_;
  transfer_plan const& plan_;
  round_rule rule_;
  std::int64_t expert_bytes_;

  std::size_t at_ = 0;  ///< next transfer of the list
  index_t layer_ = 0;
  std::vector<std::int32_t> rank_of_;     ///< `[slots]`
  std::vector<std::int32_t> copies_;      ///< `[experts]` in `from`, on live ranks
  std::vector<std::int32_t> new_copies_;  ///< `[experts]` in `to`

  index_t round_ = 0;
  slot_changes changes_;
  index_t staging_slots_ = 0;           ///< in use so far
  index_t largest_degree_ = 0;          ///< of `degrees_`
  std::vector<std::int32_t> content_;   ///< `[slots]`: what can be read there
  std::vector<std::int32_t> awaited_;   ///< `[slots]`: expert that a transfer must still bring
  std::vector<std::int32_t> readable_;  ///< `[experts]`: slots and staging slots with the expert
  std::vector<index_t> degrees_;        ///< `[2 ranks]`: peers of a rank so far
  std::vector<std::vector<std::size_t>> commits_;  ///< `[slots]`: transfers by commit round
  hash_map arrivals_;      ///< of rank and expert: 0 if `from` holds it, else round of the move
  hash_map flows_;         ///< of source and destination rank: round
  hash_map staged_until_;  ///< of rank and staging slot: last commit round
  hash_map reads_;         ///< of slot and round: 0 if the round reads the slot
  hash_map peers_;         ///< of rank and round: the other rank
  hash_map edges_;         ///< of rank and other rank: 0 if they are peers
};

template <class Context>
void run_validate_transfers(std::string_view name, Context const& context,
                            migration_pair const& pair, transfer_plan const& plan,
                            transfer_options const& options) {
  std::vector<std::int32_t> const from = rows_on_host(context, pair.from);
  std::vector<std::int32_t> const to = rows_on_host(context, pair.to);
  std::vector<std::int32_t> from_offsets;
  std::vector<std::int32_t> offsets;
  std::vector<std::uint8_t> active;
  migration_pair copy = pair;
  copy.from = {from.data(), pair.layers(), pair.slots()};
  copy.to = {to.data(), pair.layers(), pair.slots()};
  if (pair.from_offsets.data != nullptr) {
    from_offsets = rows_on_host(context, pair.from_offsets);
    copy.from_offsets = {from_offsets.data(), pair.layers(), pair.ranks() + 1};
  }
  if (pair.where.ranges.offsets.data != nullptr) {
    offsets = rows_on_host(context, pair.where.ranges.offsets);
    copy.where.ranges.offsets = {offsets.data(), pair.layers(), pair.ranks() + 1};
  }
  if (pair.where.active.data != nullptr) {
    active = on_host(context, pair.where.active);
    copy.where.active = {active.data(), pair.ranks()};
  }
  transfer_check(name, copy, plan, options).run();
}

}}}  // namespace plimsoll::detail
