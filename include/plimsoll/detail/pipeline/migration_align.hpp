// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of `align`, `count_changes` and `changed_layers`.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/host/migration.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

template <class Context>
alignment_report run_align(std::string_view name, Context const& context,
                           migration_pair const& pair, relabeling relabel,
                           matrix_ref<std::int32_t> const& aligned);

template <class Context>
std::vector<slot_changes> run_count_changes(std::string_view name, Context const& context,
                                            migration_pair const& pair);

template <class Context>
std::vector<index_t> run_changed_layers(std::string_view name, Context const& context,
                                        migration_pair const& pair);

}}}  // namespace plimsoll::detail
