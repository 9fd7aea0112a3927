// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of `transfers`, and the check of its lists.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/migration_transfers.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/migration.hpp>
#include <plimsoll/detail/host/migration_transfers.hpp>
#include <plimsoll/detail/host/transfer_check.hpp>
#include <plimsoll/detail/pipeline/planning.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

template <class Context>
transfer_plan run_transfers(std::string_view name, Context const& context,
                            migration_pair const& pair, transfer_options const& options) {
  index_t const layers = pair.layers();
  buffer<transfer, Context> const list(context, layers * pair.slots());
  buffer<layer_transfers, Context> const summaries(context, layers);
  run_planning(name, context, layers, 1, throw_migration_fault, [&](problem_report* reports) {
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
