// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of `align`, `count_changes` and `changed_layers`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/migration_align.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/migration.hpp>
#include <plimsoll/detail/pipeline/planning.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Memory of the relabelings of all groups of layers.
template <class Context>
class relabeling_memory {
 public:
  relabeling_memory(Context const& context, index_t groups, index_t ranks, index_t nodes)
      : numbers_(context, groups * (ranks * ranks + 2 * nodes * nodes + 1)),
        labels_(context, groups * ranks * (nodes + 1)),
        results_(context, groups),
        groups_(groups),
        ranks_(ranks),
        nodes_(nodes) {}

  [[nodiscard]] relabelings view(index_t layers, index_t slots) const {
    index_t const layers_of_group = groups_ == layers ? 1 : layers;
    std::int64_t* const node_weights = numbers_.data() + groups_ * ranks_ * ranks_;
    std::int64_t* const node_limits = node_weights + groups_ * nodes_ * nodes_;
    return {.layers_of_group = layers_of_group,
            .unit = layers_of_group * slots + 1,
            .weights = {numbers_.data(), groups_, ranks_, ranks_},
            .node_weights = {node_weights, groups_, nodes_, nodes_},
            .node_limits = {node_limits, groups_, nodes_, nodes_},
            .rank_labels = {labels_.data(), groups_, ranks_, nodes_},
            .labels = {labels_.data() + groups_ * ranks_ * nodes_, groups_, ranks_},
            .results = {results_.data(), groups_},
            .scans = {node_limits + groups_ * nodes_ * nodes_, groups_}};
  }
  [[nodiscard]] std::vector<assignment_outcome> read() const { return results_.read(); }

 private:
  buffer<std::int64_t, Context> numbers_;
  buffer<std::int32_t, Context> labels_;
  buffer<assignment_outcome, Context> results_;
  index_t groups_;
  index_t ranks_;
  index_t nodes_;
};

inline std::vector<slot_changes> changes_of(std::vector<certificate> const& counted) {
  std::vector<slot_changes> result;
  for (certificate const& one : counted) {
    result.push_back({static_cast<index_t>(one.value), one.work});
  }
  return result;
}

/// The moves of a group of layers, and the fewest that the bound of its assignment leaves.
inline certificate certify_relabeling(assignment_outcome const& found, std::int64_t unit,
                                      index_t moves) {
  // Slots kept weigh less than one unit in total.
  index_t const least = moves - (found.bound / unit - found.weight / unit);
  return {static_cast<double>(moves), static_cast<double>(least), found.scans,
          found.bound == found.weight ? certificate_status::optimal : certificate_status::feasible};
}

/// Labels and slots of every layer. `aligned` may be the array of the new placement.
template <class Context>
alignment_report run_align(std::string_view name, Context const& context,
                           migration_pair const& pair, relabeling relabel,
                           matrix_ref<std::int32_t> const& aligned) {
  index_t const layers = pair.layers();
  index_t const groups = relabel == relabeling::per_layer    ? layers
                         : relabel == relabeling::all_layers ? minimum{}(layers, index_t{1})
                                                             : 0;
  topology const& where = pair.where;
  relabeling_memory<Context> const memory(context, groups, where.ranks(), where.nodes);
  relabelings const exchange = groups > 0 ? memory.view(layers, pair.slots()) : relabelings{};
  alignment_report result;
  result.layers = changes_of(
      run_planning(name, context, layers, 1, throw_migration_fault, [&](problem_report* reports) {
        launch(context, groups, interchange_body{where, exchange});
        launch(context, layers, overlap_body{pair, exchange, reports});
        if (groups > 0) {
          rank_assignment_body const ranks{where, exchange};
          launch(context, ranks.problems(), ranks);
          launch(context, groups, node_assignment_body{where, exchange});
        }
        launch(context, layers, slot_alignment_body{pair, exchange, aligned, reports});
      }));
  if (groups == 0) {
    for (slot_changes const& layer : result.layers) {
      result.certificates.push_back(certify_relabeling({}, 1, layer.moves));
    }
    return result;
  }
  index_t layer = 0;
  for (assignment_outcome const& found : memory.read()) {
    index_t moves = 0;
    for (index_t i = 0; i < exchange.layers_of_group; ++i) {
      moves += result.layers[static_cast<std::size_t>(layer++)].moves;
    }
    result.certificates.push_back(certify_relabeling(found, exchange.unit, moves));
  }
  return result;
}

template <class Context>
std::vector<slot_changes> run_count_changes(std::string_view name, Context const& context,
                                            migration_pair const& pair) {
  return changes_of(run_planning(
      name, context, pair.layers(), 1, throw_migration_fault, [&](problem_report* reports) {
        launch(context, pair.layers(), overlap_body{pair, {}, reports});
        launch(context, pair.layers(), slot_alignment_body{pair, {}, {}, reports});
      }));
}

template <class Context>
std::vector<index_t> run_changed_layers(std::string_view name, Context const& context,
                                        migration_pair const& pair) {
  std::vector<certificate> const counted = run_planning(
      name, context, pair.layers(), 1, throw_migration_fault, [&](problem_report* reports) {
        launch(context, pair.layers(), changed_slots_body{pair.from, pair.to, reports});
      });
  std::vector<index_t> result;
  for (std::size_t layer = 0; layer < counted.size(); ++layer) {
    if (counted[layer].work > 0) {
      result.push_back(static_cast<index_t>(layer));
    }
  }
  return result;
}

}}}  // namespace plimsoll::detail
