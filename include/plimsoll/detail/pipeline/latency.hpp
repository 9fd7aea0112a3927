// SPDX-License-Identifier: Apache-2.0
/// @file
/// The memory of `latency_table`, and the launches of `rank_latencies` and `step_latencies`.
#pragma once

#include <cstdint>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/latency.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/common/latency_cost.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/latency.hpp>
#include <plimsoll/detail/pipeline/placement_maps.hpp>
#include <plimsoll/detail/pipeline/planning.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/latency_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Latency curves in the memory of a context, checked and cut into pieces. With `active`, which
/// the caller has checked, only the speeds of live ranks are compared.
template <class Context>
class latency_pieces {
 public:
  latency_pieces(std::string_view function, Context const& context, latency_curves const& curves,
                 index_t ranks, vector_ref<std::uint8_t const> active = {}) {
    expect_between(function, "ranks", 1, rank_limit, ranks, "ranks");
    host_curves const read(function, context, curves, ranks, active);
    latency_piece_lists const lists(read.view, ranks);
    ends_ = {context, lists.ends};
    pieces_ = {context, lists.pieces};
    first_ = {context, lists.first};
    lookup_.ranks_ = ranks;
    lookup_.pieces_ = ends_.size();
    lookup_.ends_ = ends_.data();
    lookup_.piece_ = pieces_.data();
    lookup_.first_ = first_.data();
    lookup_.buckets_ = first_.size() - 1;
    lookup_.shift_ = lists.shift;
  }
  [[nodiscard]] latency_lookup lookup() const { return lookup_; }

 private:
  buffer<double, Context> ends_;
  buffer<latency_piece, Context> pieces_;
  buffer<std::int32_t, Context> first_;
  latency_lookup lookup_;
};

/// Returns the number of reports of `enqueue_latencies`, per layer.
inline index_t latency_reports(index_t steps) { return 1 + latency_tiles{steps, 1}.count(); }

/// Validates the placement and replays the steps. `reports` has one element per layer for the
/// placement, then one per problem of the replay.
template <class Context, class Loads, class Cost>
void enqueue_latencies(Context const& context, Loads const& loads, placement_ref const& placement,
                       Cost const& cost, latency_outputs const& out, problem_report* reports) {
  auto const& map = placement.physical_to_logical;
  enqueue_validate(context, placement, {}, reports);
  latencies_body<Loads, Cost> const body{
      .loads = loads,
      .physical_to_logical = map,
      .replica_count = placement.replica_count,
      .ranges = {placement.rank_offsets, map.extent(1), placement.ranks},
      .cost = cost,
      .out = out,
      .reports = reports + loads.extent(1)};
  launch(context, body.problems(), body);
}

/// Checks the arguments of a replay apart from its outputs, and runs it.
template <class Context, class Loads, class Cost>
void run_latencies(std::string_view name, Context const& context, Loads const& loads,
                   placement_ref const& placement, Cost const& cost, latency_outputs const& out) {
  expect_replayable(name, loads, placement, cost);
  run_planning(name, context, loads.extent(1), latency_reports(loads.extent(0)),
               throw_latency_fault, [&](problem_report* reports) {
                 enqueue_latencies(context, loads, placement, cost, out, reports);
               });
}

}}}  // namespace plimsoll::detail
