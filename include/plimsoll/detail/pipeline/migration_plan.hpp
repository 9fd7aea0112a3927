// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of `plan_within`.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/host/migration.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

template <class Context, class Loads>
std::vector<migration_report> run_plan_within(std::string_view name, Context const& context,
                                              Loads const& loads, migration_pair const& pair,
                                              placement_options const& where,
                                              migration_options const& options,
                                              matrix_ref<std::int32_t> const& physical_to_logical,
                                              matrix_ref<std::int32_t> const& replica_count);

}}}  // namespace plimsoll::detail
