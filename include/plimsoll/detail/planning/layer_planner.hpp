// SPDX-License-Identifier: Apache-2.0
/// @file
/// Planning of `layer_planner`: `plan_within` of one layer, in memory that the object keeps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/call/ids.hpp>
#include <plimsoll/detail/call/migration.hpp>
#include <plimsoll/detail/call/slots.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/host/kept_memory.hpp>
#include <plimsoll/detail/planning/plan_within.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Returns the loads of one layer, `[steps, experts]`, as those of a model of one layer.
template <class T>
tensor_ref<T> as_layer(matrix_ref<T> const& loads) {
  return as_tensor(loads, 1);
}
template <class F>
struct loads_of_layer {
  F loads;

  PLIMSOLL_HD auto operator()(index_t step, index_t, index_t expert) const {
    return loads(step, expert);
  }
};
template <class F>
auto as_layer(generated<F, 2> const& loads) {
  return generate(loads_of_layer<F>{loads.function}, loads.extent(0), 1, loads.extent(1));
}

/// Loads `[steps, layers, experts]` of a rehearsal.
struct equal_loads {
  PLIMSOLL_HD double operator()(index_t, index_t, index_t) const { return 1; }
};

/// Memory, shape and options of a `layer_planner`. A template, so that only programs that use one
/// compile the rehearsal, which instantiates all of `plan_within`.
template <class Executor = inline_executor>
class kept_layer_planner {
 public:
  kept_layer_planner(std::string_view name, placement_ref const& layer, index_t steps,
                     placement_options const& where, migration_options const& options,
                     resource_ref memory)
      : where_(where), options_(options), memory_(memory), steps_(steps), shape_(shape_of(layer)) {
    expect_between(name, "steps", 1, 0x7fffffff, steps, "steps");
    expect_extent(name, "layer.physical_to_logical", 1, layer.physical_to_logical.extent(0),
                  "layer");
    expect_migrated(name, "layer", layer);
    expect_plan_within(name, 1, shape_.experts, layer, layer, where, options);
    // Every array that a call can need: those of offsets and of copies for int64 outputs, too.
    std::vector<std::int32_t> begins;
    placement_ref with_offsets = layer;
    if (layer.rank_offsets.data == nullptr) {
      begins = even_begins(1, shape_.slots, layer.ranks);
      with_offsets.rank_offsets = {begins.data(), 1, layer.ranks + 1};
    }
    std::vector<std::int64_t> map(static_cast<std::size_t>(shape_.slots));
    std::vector<std::int64_t> counts(static_cast<std::size_t>(shape_.experts));
    auto const loads = generate(equal_loads{}, steps, 1, shape_.experts);
    on_behalf_of(name, name, {{"from.", "layer."}, {"to.", "layer."}}, [&] {
      for (placement_ref const& placement : {layer, with_offsets}) {
        run(name, loads, placement, placement, vector_ref<std::int64_t>(map),
            vector_ref<std::int64_t>(counts), {.has_target = true, .is_rehearsal = true});
      }
    });
    memory_.make_room();
  }

  /// Plans a layer. `to` may be null.
  template <class Loads, class Id, class Count>
  migration_report plan(std::string_view name, Loads const& loads, placement_ref const& from,
                        placement_ref const* to, vector_ref<Id> const& physical_to_logical,
                        vector_ref<Count> const& replica_count) {
    expect_between(name, "loads", 1, steps_, loads.extent(0), "steps (of the object)");
    expect_shape(name, "from", shape_, from,
                 {"layer", "slots, as in the object", "experts, as in the object",
                  "ranks, as in the object"});
    expect_extent(name, "physical_to_logical", shape_.slots, physical_to_logical.extent(0),
                  "slots");
    expect_extent(name, "replica_count", shape_.experts, replica_count.extent(0), "experts");
    planner_mode const mode{.has_target = to != nullptr, .is_rehearsal = false};
    if (to != nullptr) {
      return run(name, as_layer(loads), from, *to, physical_to_logical, replica_count, mode);
    }
    // Without a target, the plan in use takes its place.
    return on_behalf_of(name, name, {{"to.", "from."}}, [&] {
      return run(name, as_layer(loads), from, from, physical_to_logical, replica_count, mode);
    });
  }

 private:
  template <class Loads, class Id, class Count>
  migration_report run(std::string_view name, Loads const& loads, placement_ref const& from,
                       placement_ref const& to, vector_ref<Id> const& physical_to_logical,
                       vector_ref<Count> const& replica_count, planner_mode const& mode) {
    migration_pair const pair =
        expect_plan_within(name, 1, loads.extent(2), from, to, where_, options_);
    resource_ref const memory(memory_);
    host_context<Executor> const context{{}, memory};
    int32_ids const map(context, physical_to_logical);
    int32_ids const counts(context, replica_count);
    migration_planner planner(name, context, memory, pair, where_, options_, mode);
    migration_report const report =
        planner.run(loads, as_matrix(map.view()), as_matrix(counts.view())).front();
    map.store();
    counts.store();
    return report;
  }

  placement_options where_;
  migration_options options_;
  kept_memory memory_;
  index_t steps_;
  placement_shape shape_;
};

}}}  // namespace plimsoll::detail
