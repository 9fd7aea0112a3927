// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of conversions between the forms of a placement, and of `validate`. A conversion
/// waits for its reports and throws.
#pragma once

#include <cstdint>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/placement_maps.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/placement_maps.hpp>
#include <plimsoll/detail/pipeline/planning.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_maps_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Runs `body` on every layer and throws for the first layer with a fault. `lists` is the name of
/// the argument with the replicas of every expert.
template <class Context, class Body>
void run_map(std::string_view function, Context const& context, index_t layers, Body body,
             std::string_view lists = {}) {
  run_planning(
      function, context, layers, 1,
      [lists](refused_value const& of) { throw_map_fault(of, lists); },
      [&](problem_report* reports) {
        body.reports = reports;
        launch(context, layers, body);
      });
}

/// Converts `source` to the forms in `out`, or compares it with the slot map in `out`. Throws for
/// the first layer with a fault.
template <class Context, class Source>
void convert_map(std::string_view function, Context const& context, index_t layers, index_t experts,
                 Source const& source, map_outputs const& out, std::string_view lists = {}) {
  run_map(function, context, layers, map_body<Source>{source, experts, out}, lists);
}

/// Converts a slot map to lists per rank. Throws as `convert_map`.
template <class Context>
void convert_to_ranks(std::string_view function, Context const& context,
                      ranked_source const& source, tensor_ref<std::int32_t> const& rank_experts) {
  run_map(function, context, rank_experts.extent(0), slots_to_ranks_body{source, rank_experts});
}

/// Converts lists per rank to a slot map. Throws as `convert_map`.
template <class Context>
void convert_from_ranks(std::string_view function, Context const& context,
                        tensor_ref<std::int32_t const> const& rank_experts,
                        matrix_ref<std::int32_t> const& physical_to_logical,
                        matrix_ref<std::int32_t> const& rank_offsets) {
  run_map(function, context, rank_experts.extent(0),
          ranks_to_slots_body{rank_experts, physical_to_logical, rank_offsets});
}

/// Enqueues `validate`, one report per layer.
template <class Context>
void enqueue_validate(Context const& context, placement_ref const& placement,
                      validation_options const& options, problem_report* reports) {
  auto const& counts = placement.replica_count;
  bool const on_nodes = options.replica_anti_affinity == anti_affinity::node;
  index_t const groups = options.replica_anti_affinity == anti_affinity::none ? 0
                         : on_nodes                                           ? options.on.nodes
                                                                              : placement.ranks;
  launch(context, placement.physical_to_logical.extent(0),
         validation_body{ranked_source_of(placement, counts.extent(1)), counts, options.on.active,
                         groups, on_nodes ? fault_kind::shared_node : fault_kind::shared_rank,
                         reports});
}

}}}  // namespace plimsoll::detail
