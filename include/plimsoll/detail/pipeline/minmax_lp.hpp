// SPDX-License-Identifier: Apache-2.0
/// @file
/// A placement that is prepared for `minmax_lp`, and the launch of `minmax_lp::solve`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/minmax_lp.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/minmax_lp.hpp>
#include <plimsoll/minmax_lp_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// The graph of a placement in the memory of a context, and the results of the last solve.
template <class Context>
struct minmax_lp_pipeline {
  Context context;
  minmax_lp_options options;
  index_t layers;
  double speed_unit = 1;  ///< divides levels: the speed of live ranks if it is equal, else 1
  index_t live_ranks = 0;
  split_graph graph{};
  buffer<std::int32_t, Context> numbers;  ///< the lists of `graph`
  buffer<double, Context> speeds;         ///< of `graph`
  buffer<certificate, Context> certificates;
  buffer<std::byte, Context> memory;  ///< scratch of `enqueue_solve`

  minmax_lp_pipeline(Context const& on, placement_ref const& placement,
                     minmax_lp_options const& solving, std::string_view name = "minmax_lp")
      : context(on), options(solving), layers(placement.physical_to_logical.extent(0)) {
    split_graph_arrays const arrays = read_split_graph(context, placement, options, name);
    speed_unit = arrays.ranks.even ? arrays.ranks.fastest : 1;
    live_ranks = arrays.ranks.live();
    numbers = {context, arrays.flat()};
    speeds = {context, arrays.ranks.speed};
    certificates = {context, std::vector<certificate>(static_cast<std::size_t>(layers))};
    graph = arrays.graph(numbers.data(), speeds.data(), placement.replica_count.extent(1),
                         placement.physical_to_logical.extent(1));
  }

  /// Allocates for `enqueue_solve`. A system that runs the body in a launch of its own, such as
  /// `lplb`, does not call it.
  void allocate_scratch() {
    minmax_lp_body<matrix_ref<double const>> body{};
    body.graph = graph;
    memory = {context, launch_bytes(context, layers, body)};
  }

  template <class Loads>
  minmax_lp_body<Loads> body_of(Loads const& loads, minmax_lp_inputs const& inputs,
                                matrix_ref<double> const& split, minmax_lp_outputs const& outputs) {
    return {.graph = graph,
            .loads = loads,
            .base_load = inputs.base_load,
            .tolerance = options.tolerance,
            .max_iterations = options.max_iterations,
            .lexicographic = options.objective == split_objective::lexicographic,
            .speed_unit = speed_unit,
            .split = split,
            .certificates = {certificates.data(), layers},
            .bottleneck = outputs.bottleneck};
  }

  template <class Loads>
  void enqueue_solve(Loads const& loads, minmax_lp_inputs const& inputs,
                     matrix_ref<double> const& split, minmax_lp_outputs const& outputs) {
    launch(context, layers, body_of(loads, inputs, split, outputs), memory.data());
  }

  /// Returns a body that solves all steps of a history `[steps, layers, experts]`, for
  /// `certificates` `[steps, layers]`.
  template <class Loads>
  split_steps_body<Loads> body_of_steps(Loads const& loads, certificate* peaks) {
    return {loads, body_of(step_of(loads, 0), {}, {}, {}), peaks};
  }

  [[nodiscard]] vector_ref<certificate const> certificates_view() const {
    return {certificates.data(), layers};
  }
};

}}}  // namespace plimsoll::detail
