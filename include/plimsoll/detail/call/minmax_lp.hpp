// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of a prepared `minmax_lp`: checks shapes and options, builds the graph of experts and
/// ranks, launches `solve`, and names layers that could not be split.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/minmax_lp.hpp>
#include <plimsoll/detail/algorithm/split_graph.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/placement_maps.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/call/rank_speeds.hpp>
#include <plimsoll/detail/call/slots.hpp>
#include <plimsoll/detail/common/slot_lists.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/minmax_lp_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Checks the shapes of the placement and the options that `minmax_lp` takes.
inline void expect_minmax_lp_options(placement_ref const& placement,
                                     minmax_lp_options const& options, std::string_view name) {
  auto const& map = placement.physical_to_logical;
  expect_between(name, "placement.physical_to_logical", 1, 0x7fffffff, map.extent(1), "slots");
  expect_elements(name, "placement.physical_to_logical", map);
  expect_extent(name, "placement.replica_count", map.extent(0), placement.replica_count.extent(0),
                "layers");
  expect_between(name, "placement.replica_count", 1, expert_limit,
                 placement.replica_count.extent(1), "experts");
  expect_between(name, "placement.ranks", 1, rank_limit, placement.ranks, "ranks");
  expect_rank_offsets(name, "placement.rank_offsets", placement.rank_offsets, map.extent(0),
                      placement.ranks);
  expect_between(name, "options.max_slots", 0, 0x7fffffff, options.max_slots, "slots");
  expect_between(name, "options.max_iterations", 1, INT64_MAX, options.max_iterations,
                 "sweeps and paths");
  expect_enumerator(name, "options.objective", split_objective::lexicographic, options.objective);
  if (!(options.tolerance >= 0 && options.tolerance < 1)) {
    fail(name, "options.tolerance", "a number from 0 to below 1", text(options.tolerance));
  }
}

/// Checks the shapes of a placement that takes the place of layers of a prepared one, and of its
/// ranks, if they are given. Returns these.
inline std::optional<rank_set> expect_placement_update(std::string_view name,
                                                       split_graph const& graph, index_t layers,
                                                       index_t first_layer,
                                                       placement_ref const& placement,
                                                       std::optional<rank_set> const& on) {
  auto const& map = placement.physical_to_logical;
  expect_between(name, "first_layer", 0, layers - 1, first_layer, "as layer");
  expect_between(name, "placement.physical_to_logical", 1, layers - first_layer, map.extent(0),
                 "layers from first_layer on");
  expect_between(name, "placement.physical_to_logical", 1, graph.slots, map.extent(1),
                 "slots (those that the object has room for)");
  expect_elements(name, "placement.physical_to_logical", map);
  if (placement.replica_count.extent(1) != 0) {
    expect_extent(name, "placement.replica_count", map.extent(0), placement.replica_count.extent(0),
                  "layers");
    expect_extent(name, "placement.replica_count", graph.experts, placement.replica_count.extent(1),
                  "experts");
  }
  expect_extent(name, "placement.ranks", graph.ranks, placement.ranks, "ranks");
  expect_rank_offsets(name, "placement.rank_offsets", placement.rank_offsets, map.extent(0),
                      graph.ranks);
  return with_ranks_of(name, on, graph.ranks);
}

/// The graph of a placement in the memory of a context, and the results of the last solve.
template <class Context>
struct minmax_lp_pipeline {
  Context context;
  minmax_lp_options options;
  index_t layers;
  split_graph graph{};  ///< in `graph_memory`
  slot_lists lists{};   ///< of every layer, likewise, if they are kept
  buffer<std::byte, Context> graph_memory;
  buffer<problem_report, Context> updates;  ///< `[layers]`: what the last update refused
  buffer<certificate, Context> certificates;
  buffer<fault, Context> faults;      ///< `[layers]`: what the last solve refused
  buffer<std::byte, Context> memory;  ///< scratch of `enqueue_solve` and `enqueue_update`

  /// Reads the placement, and waits until it has. `keeps_lists`: keeps the slots of every expert,
  /// too. `on_host`: memory of lists on the host.
  minmax_lp_pipeline(Context const& on, placement_ref const& placement,
                     minmax_lp_options const& solving, std::string_view name = "minmax_lp",
                     bool keeps_lists = false, resource_ref on_host = {})
      : context(on), options(solving), layers(placement.physical_to_logical.extent(0)) {
    expect_minmax_lp_options(placement, options, name);
    rank_set const ranks = with_ranks_of(name, options.on, placement.ranks);
    index_t const experts = placement.replica_count.extent(1);
    index_t const slots = std::max(options.max_slots, placement.physical_to_logical.extent(1));
    std::size_t bytes = bytes_taken_by<split_graph>(experts, placement.ranks, slots, layers);
    if (keeps_lists) {
      bytes += bytes_taken_by<slot_lists>(experts, slots, layers);
    }
    graph_memory = {context, static_cast<index_t>(bytes)};
    scratch arrays(graph_memory.data());
    graph = split_graph::in(arrays, experts, placement.ranks, slots, layers);
    if (keeps_lists) {
      lists = slot_lists::in(arrays, experts, slots, layers);
    }
    updates = {context, layers};
    launch(context, layers, update_body(0, placement, &ranks));
    expect_sound(name, updates.read(on_host), layers, {{{"on.", "options.on."}}});
  }

  /// Allocates the results of `enqueue_solve`. Calls that solve a history have their own.
  void allocate_results() {
    certificates = {context, std::vector<certificate>(static_cast<std::size_t>(layers))};
    faults = {context, std::vector<fault>(static_cast<std::size_t>(layers))};
  }
  /// Allocates for `enqueue_solve` and `enqueue_update`. A system that runs the bodies in memory of
  /// its own, such as `lplb`, does not call it.
  void allocate_scratch() {
    minmax_lp_body<matrix_ref<double const>> body{};
    body.graph = graph;
    memory = {context, std::max(launch_bytes(context, layers, body), update_bytes())};
  }
  [[nodiscard]] index_t update_bytes() const {
    return launch_bytes(context, layers, update_body(0, {}, nullptr));
  }

  /// Takes new placements of layers from `first_layer` on, whose shapes the caller has checked. A
  /// null `on` leaves the ranks as they are.
  void enqueue_update(index_t first_layer, placement_ref const& placement, rank_set const* on,
                      std::byte* scratch_memory) {
    launch(context, placement.physical_to_logical.extent(0),
           update_body(first_layer, placement, on), scratch_memory);
  }

  /// Waits, and throws for the first layer whose placement the last `update` refused.
  void expect_updated(std::string_view function) const {
    expect_sound(function, updates.read(), layers, {.list = {}, .ranks_of_layer = true});
  }

  /// Waits, and throws for the first slot or rank in which a placement differs from the one that
  /// the graph was made from.
  void expect_current(std::string_view name, placement_ref const& placement) const {
    expect_placement_update(name, graph, layers, 0, placement, {});
    auto const& map = placement.physical_to_logical;
    expect_extent(name, "placement.physical_to_logical", layers, map.extent(0), "layers");
    std::vector<std::int32_t> const offsets = placement.rank_offsets.data != nullptr
                                                  ? rows_on_host(context, placement.rank_offsets)
                                                  : even_begins(layers, map.extent(1), graph.ranks);
    expect_same(name, "placement.rank_offsets", "rank", graph.ranks + 1, offsets, graph.ranks + 1,
                rows_on_host(context, rank_offsets()));
    expect_same(name, "placement.physical_to_logical", "slot", map.extent(1),
                rows_on_host(context, map), graph.slots,
                rows_on_host(context, physical_to_logical()));
  }

  [[nodiscard]] matrix_ref<std::int32_t const> physical_to_logical() const {
    return {graph.map, layers, graph.slots};
  }
  [[nodiscard]] matrix_ref<std::int32_t const> rank_offsets() const {
    return {graph.rank_offsets, layers, graph.ranks + 1};
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
            .split = split,
            .certificates = {certificates.data(), layers},
            .faults = faults.data(),
            .bottleneck = outputs.bottleneck};
  }

  template <class Loads>
  void enqueue_solve(Loads const& loads, minmax_lp_inputs const& inputs,
                     matrix_ref<double> const& split, minmax_lp_outputs const& outputs) {
    launch(context, layers, body_of(loads, inputs, split, outputs), memory.data());
  }

  [[nodiscard]] vector_ref<certificate const> certificates_view() const {
    return {certificates.data(), layers};
  }
  [[nodiscard]] vector_ref<fault const> faults_view() const { return {faults.data(), layers}; }

 private:
  [[nodiscard]] split_graph_body update_body(index_t first_layer, placement_ref const& placement,
                                             rank_set const* on) const {
    index_t const slots = placement.physical_to_logical.extent(1);
    return {.graph = graph,
            .lists = lists,
            .first_layer = first_layer,
            .physical_to_logical = placement.physical_to_logical,
            .ranges = {placement.rank_offsets, slots, graph.ranks},
            .on = input_of(on),
            .reports = updates.data()};
  }

  /// Throws for the first element of `given`, `[layers, columns]`, that differs from that of
  /// `kept`, whose rows are longer.
  void expect_same(std::string_view name, std::string_view argument, std::string_view column,
                   index_t columns, std::vector<std::int32_t> const& given, index_t stride,
                   std::vector<std::int32_t> const& kept) const {
    for (index_t layer = 0; layer < layers; ++layer) {
      for (index_t i = 0; i < columns; ++i) {
        std::int32_t const own = kept[static_cast<std::size_t>(layer * stride + i)];
        std::int32_t const got = given[static_cast<std::size_t>(layer * columns + i)];
        if (own != got) {
          fail(name, argument, text(own, ", as in the placement in use"),
               text(got, " in layer ", layer, ", ", column, " ", i));
        }
      }
    }
  }
};

/// Splits every step of a history `[steps, plans, experts]` optimally under each plan, a row of
/// `plans`. Writes `peaks` and, unless null, `refused`, both `[steps, plans]`.
template <class Context, class Loads>
void enqueue_step_splits(std::string_view name, Context const& context, Loads const& loads,
                         placement_ref const& plans, rank_set const& on, resource_ref lists,
                         certificate* peaks, fault* refused = nullptr) {
  minmax_lp_pipeline<Context> lp(context, plans, {.on = on, .tolerance = 0}, name, false, lists);
  launch(context, loads.extent(0) * loads.extent(1),
         split_steps_body<Loads>{loads, lp.body_of(step_of(loads, 0), {}, {}, {}), peaks, refused});
}

}}}  // namespace plimsoll::detail
