// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of `transfers`, and the check of its lists.
#pragma once

#include <cstdint>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/host/migration.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

template <class Context>
transfer_plan run_transfers(std::string_view name, Context const& context,
                            migration_pair const& pair, transfer_options const& options);

template <class Context>
void run_validate_transfers(std::string_view name, Context const& context,
                            migration_pair const& pair, transfer_plan const& plan,
                            transfer_options const& options);

}}}  // namespace plimsoll::detail
