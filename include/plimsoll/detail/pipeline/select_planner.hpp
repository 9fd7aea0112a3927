// SPDX-License-Identifier: Apache-2.0
/// @file
/// The judgement of plans on the half of a history that they were not made from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/select_planner.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/select_planner.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/systems/select_planner_types.hpp>
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

/// Plans with every candidate on each half of a history and judges the plan on the other half.
/// `balancedness_of(i, seen, unseen)` is the balancedness of every layer in unseen steps, under a
/// plan of candidate i from seen steps.
template <class Context, class Loads, class Judge>
void judge_halves(Context const& context, Loads const& load, Judge const& balancedness_of,
                  std::vector<judged_candidate>& all) {
  index_t const steps = load.extent(0);
  index_t const middle = steps / 2;
  auto const first = part_of(load, 0, middle);
  auto const second = part_of(load, middle, steps - middle);
  if (middle == 0) {
    return;
  }
  std::vector<std::int64_t> const loaded[] = {loaded_steps(context, first),
                                              loaded_steps(context, second)};
  for (index_t half = 0; half < 2; ++half) {
    auto const& seen = half == 0 ? first : second;
    auto const& unseen = half == 0 ? second : first;
    for (std::size_t i = 0; i < all.size(); ++i) {
      planner_report& report = all[i].report;
      if (!report.error.empty()) {
        continue;
      }
      try {
        append_loaded(balancedness_of(i, seen, unseen), loaded[half], loaded[1 - half],
                      unseen.extent(0), all[i].balancedness);
      } catch (invalid_input const& error) {
        report.error = error.what();
      }
    }
  }
}

}}}  // namespace plimsoll::detail
