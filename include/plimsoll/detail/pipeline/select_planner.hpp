// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parts of a history, and their steps with load.
#pragma once

#include <cstdint>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/select_planner.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// The loads of a history from one step on.
template <class Loads>
struct loads_from_step {
  Loads loads;
  index_t first;

  PLIMSOLL_HD auto operator()(index_t step, index_t layer, index_t expert) const {
    return loads(first + step, layer, expert);
  }
};

/// Returns the loads of `count` steps of a history.
template <class T>
tensor_ref<T> part_of(tensor_ref<T> const& loads, index_t first, index_t count) {
  tensor_ref<T> result = loads;
  result.data += first * loads.stride(0);
  result.extents[0] = count;
  return result;
}
template <class F>
auto part_of(generated<F, 3> const& loads, index_t first, index_t count) {
  return generate(loads_from_step<generated<F, 3>>{loads, first}, count, loads.extent(1),
                  loads.extent(2));
}

/// Returns the number of steps in which each layer has load.
template <class Context, class Loads>
std::vector<std::int64_t> loaded_steps(Context const& context, Loads const& loads) {
  buffer<std::int64_t, Context> const loaded(context, loads.extent(1));
  launch(context, loads.extent(1), loaded_steps_body<Loads>{loads, loaded.data()});
  return loaded.read();
}

}}}  // namespace plimsoll::detail
