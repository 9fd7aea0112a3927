// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `place` and `place_groups`: launches the bodies.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/placement.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

template <class Context, class Loads>
void enqueue_place(Context const& context, Loads const& loads,
                   matrix_ref<std::int32_t const> replica_count, placement_options const& options,
                   matrix_ref<std::int32_t> physical_to_logical, problem_report* reports) {
  launch(context, loads.extent(0),
         placement_body<Loads>{
             loads, replica_count, topology_of(options, physical_to_logical.extent(1)),
             rule_of(options), options.load_exponent, physical_to_logical, reports});
}

template <class Context, class Loads>
void enqueue_place_groups(Context const& context, Loads const& loads, index_t groups, index_t slots,
                          placement_options const& options, matrix_ref<std::int32_t> node_experts,
                          matrix_ref<std::int32_t> node_offsets, problem_report* reports) {
  launch(context, loads.extent(0),
         group_placement_body<Loads>{loads, groups, topology_of(options, slots),
                                     options.load_exponent, node_experts, node_offsets, reports});
}

}}}  // namespace plimsoll::detail
