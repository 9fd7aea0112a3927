// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launch of `replicate`.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/replication.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/pipeline/placement.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/replication_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

template <class Context, class Loads>
void enqueue_replicate(Context const& context, Loads const& loads, index_t slots,
                       replication_options const& options, matrix_ref<std::int32_t> replica_count,
                       problem_report* reports) {
  launch(context, loads.extent(0),
         replication_body<Loads>{.loads = loads,
                                 .slots = slots,
                                 .where = topology_of(options.where, slots),
                                 .rule = rule_of(options.where),
                                 .least = {options.min_copies, options.min_copies_each},
                                 .most = {options.max_copies, options.max_copies_each},
                                 .load_shrink = options.where.load_shrink,
                                 .replica_count = replica_count,
                                 .reports = reports});
}

}}}  // namespace plimsoll::detail
