// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `plan_transfers`: the launch, the list, its bytes and duration.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
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

}}}  // namespace plimsoll::detail
