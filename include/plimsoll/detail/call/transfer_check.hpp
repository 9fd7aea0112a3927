// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `validate` for a list of transfers: plays its rounds on the host.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/migration.hpp>
#include <plimsoll/detail/call/migration_transfers.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/host/serial_team.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

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
  using rank_pair = std::pair<index_t, index_t>;

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
    held_.clear();
    for (index_t slot = 0; slot < pair_.slots(); ++slot) {
      std::int32_t const e = pair_.from(layer_, slot);
      bool const is_readable = e >= 0 && pair_.where.is_active(rank_of(slot));
      content_.push_back(is_readable ? e : -1);
      if (is_readable) {
        held_.insert({rank_of(slot), e});
      }
    }
    round_ = 0;
    changes_ = {};
    staging_slots_ = 0;
    sent_.clear();
    round_of_flow_.clear();
    staged_until_.clear();
    commits_.clear();
    filled_.clear();
  }

  void play_round() {
    std::size_t const first = at_;
    peers_.clear();
    reads_.clear();
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
      expect(t.staging_slot >= 0 || !reads_.contains(t.destination_slot),
             text("a staging slot, since the round reads slot ", t.destination_slot), "-1", i);
      ++readable_[static_cast<std::size_t>(t.expert)];
      commits_[t.commit_round].push_back(i);
    }
    for (std::size_t const i : commits_[round_]) {
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
    std::int32_t const wanted = pair_.to(layer_, t.destination_slot);
    expect(wanted >= 0 && wanted != pair_.from(layer_, t.destination_slot) &&
               filled_.insert(t.destination_slot).second,
           "one transfer to each slot that gets another expert", text("slot ", t.destination_slot),
           i);
    expect_equal(text("for slot ", t.destination_slot, " expert"), wanted, t.expert, i);
    expect_equal("bytes of an expert:", expert_bytes_, t.bytes, i);
  }

  void check_source(std::size_t i) {
    static constexpr std::array<std::string_view, 4> kinds = {"local_copy", "same_node",
                                                              "across_nodes", "from_host"};
    transfer const& t = plan_.list[i];
    auto const kind = static_cast<std::size_t>(t.kind);
    expect(kind < kinds.size(), "a kind of transfer", text(static_cast<std::int32_t>(t.kind)), i);
    bool const has_source = copies_[static_cast<std::size_t>(t.expert)] > 0 ||
                            sent_.contains({t.destination_rank, t.expert});
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
      reads_.insert(t.source_slot);
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
    expect(!held_.contains({t.destination_rank, t.expert}) &&
               sent_.insert({t.destination_rank, t.expert}).second,
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
    auto const flow = round_of_flow_.insert({{from, to}, t.round}).first;
    expect_equal(text("transfers from rank ", from, " to rank ", to, " in round"), flow->second,
                 t.round, i);
    // Under a rule for each direction, ranks that receive have numbers of their own.
    bool const is_one_peer = rule_ == round_rule::one_peer;
    for (bool const sends : {true, false}) {
      index_t const rank = sends ? from : to;
      index_t const other = sends ? to : from;
      index_t const known =
          peers_.insert({is_one_peer || sends ? rank : rank + pair_.ranks(), other}).first->second;
      expect(known == other,
             text("rank ", rank,
                  is_one_peer ? " to exchange with"
                  : sends     ? " to send to"
                              : " to receive from",
                  " no rank but ", known),
             text("rank ", other), i);
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
    auto const [last, is_new] =
        staged_until_.insert({{t.destination_rank, t.staging_slot}, t.commit_round});
    expect(is_new || last->second < t.round,
           text("staging slot ", t.staging_slot, " of rank ", t.destination_rank,
                " to be free, used until round ", last->second),
           "another transfer", i);
    last->second = t.commit_round;
    staging_slots_ = std::max<index_t>(staging_slots_, t.staging_slot + 1);
  }

  void finish_layer() const {
    for (index_t slot = 0; slot < pair_.slots(); ++slot) {
      std::int32_t const wanted = pair_.to(layer_, slot);
      std::int32_t const got = content_[static_cast<std::size_t>(slot)];
      bool const is_lost =
          wanted >= 0 && !pair_.where.is_active(rank_of(slot));  // nothing to check
      if (wanted >= 0 && got != wanted && !is_lost) {
        fail(function_, "plan.list", text("a transfer of expert ", wanted, " to slot ", slot),
             text("none in layer ", layer_));
      }
    }
    layer_transfers const& of_layer = plan_.layers[static_cast<std::size_t>(layer_)];
    expect_summary("rounds", round_, of_layer.rounds);
    expect_summary("moves", changes_.moves, of_layer.changes.moves);
    expect_summary("local copies", changes_.local_copies, of_layer.changes.local_copies);
    expect_summary("staging slots", staging_slots_, of_layer.staging_slots);
    expect_summary("rounds at least", largest_degree(), of_layer.rounds_bound);
  }

  [[nodiscard]] index_t largest_degree() const {
    std::set<rank_pair> edges;
    for (auto const& [flow, round] : round_of_flow_) {
      bool const is_one_peer = rule_ == round_rule::one_peer;
      edges.insert({flow.first, flow.second + (is_one_peer ? 0 : pair_.ranks())});
      edges.insert({flow.second + (is_one_peer ? 0 : pair_.ranks()), flow.first});
    }
    std::map<index_t, index_t> degree;
    index_t result = 0;
    for (auto const& [rank, peer] : edges) {
      result = std::max(result, ++degree[rank]);
    }
    return result;
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
  std::vector<std::int32_t> content_;   ///< `[slots]`: what can be read there
  std::vector<std::int32_t> readable_;  ///< `[experts]`: slots and staging slots with the expert
  std::set<rank_pair> held_;            ///< rank and expert in `from`
  std::set<rank_pair> sent_;            ///< rank and expert, of moves so far
  std::set<index_t> filled_;            ///< destination slots so far
  std::map<rank_pair, index_t> round_of_flow_;
  std::map<rank_pair, index_t> staged_until_;  ///< last round of a rank's staging slot
  std::map<index_t, std::vector<std::size_t>> commits_;
  std::map<index_t, index_t> peers_;  ///< in this round
  std::set<index_t> reads_;           ///< slots that this round reads
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
