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
#include <plimsoll/detail/call/migration.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Number of int64 elements, and of labels, that the relabelings of each group of layers take.
inline index_t relabeling_numbers(topology const& where) {
  return where.ranks() * where.ranks() + 2 * where.nodes * where.nodes + 1;
}
inline index_t relabeling_labels(topology const& where) {
  return where.ranks() * (where.nodes + 1);
}

/// Lays out the relabelings of `groups` groups of layers: one per layer, or one of all layers.
inline relabelings relabelings_in(migration_pair const& pair, index_t groups, bool stay_on_nodes,
                                  std::int64_t* numbers, std::int32_t* labels,
                                  assignment_outcome* results) {
  index_t const layers_of_group = pair.layers() / groups;
  index_t const ranks = pair.ranks();
  index_t const nodes = pair.where.nodes;
  std::int64_t* const node_weights = numbers + groups * ranks * ranks;
  std::int64_t* const node_limits = node_weights + groups * nodes * nodes;
  return {.layers_of_group = layers_of_group,
          .stay_on_nodes = stay_on_nodes,
          .unit = layers_of_group * pair.slots() + 1,
          .weights = {numbers, groups, ranks, ranks},
          .node_weights = {node_weights, groups, nodes, nodes},
          .node_limits = {node_limits, groups, nodes, nodes},
          .rank_labels = {labels, groups, ranks, nodes},
          .labels = {labels + groups * ranks * nodes, groups, ranks},
          .results = {results, groups},
          .scans = {node_limits + groups * nodes * nodes, groups}};
}

/// The moves of a group of layers, and the fewest that the bound of its assignment leaves.
inline certificate certify_relabeling(assignment_outcome const& found, std::int64_t unit,
                                      index_t moves) {
  // Slots kept weigh less than one unit in total.
  index_t const least = moves - (found.bound / unit - found.weight / unit);
  return {static_cast<double>(moves), static_cast<double>(least), found.scans,
          found.bound == found.weight ? certificate_status::optimal : certificate_status::feasible};
}

/// Alignment of all layers of a pair.
template <class Context>
struct alignment {
  Context const& context;
  migration_pair pair;
  index_t groups;  ///< of layers with the same exchange of labels; 0: none exchanges them
  buffer<std::int64_t, Context> numbers;
  buffer<std::int32_t, Context> labels;
  buffer<assignment_outcome, Context> results;  ///< `[groups]`
  relabelings exchange{};

  alignment(Context const& on, migration_pair const& placements, relabeling relabel)
      : context(on),
        pair(placements),
        groups(relabel == relabeling::none         ? 0
               : relabel == relabeling::all_layers ? minimum{}(placements.layers(), index_t{1})
                                                   : placements.layers()),
        numbers(on, groups * relabeling_numbers(placements.where)),
        labels(on, groups * relabeling_labels(placements.where)),
        results(on, groups) {
    if (groups > 0) {
      exchange = relabelings_in(pair, groups, relabel == relabeling::within_nodes, numbers.data(),
                                labels.data(), results.data());
    }
  }

  /// Labels and slots of every layer, with one outcome per layer. `aligned` may be the array of the
  /// new placement.
  void enqueue(matrix_ref<std::int32_t> const& aligned, alignment_outcome* outcomes) const {
    if (groups > 0) {
      launch(context, groups, interchange_body{pair.where, exchange});
    }
    launch(context, pair.layers(), overlap_body{pair, exchange, outcomes});
    if (groups > 0) {
      rank_assignment_body const ranks{pair.where, exchange};
      launch(context, ranks.problems(), ranks);
      launch(context, groups, node_assignment_body{pair.where, exchange});
    }
    launch(context, pair.layers(), slot_alignment_body{pair, exchange, aligned, outcomes});
  }
};

/// Returns what every layer changes; `enqueue(outcomes)` counts it. Throws the first fault.
template <class Context, class Enqueue>
std::vector<slot_changes> run_counting(std::string_view name, Context const& context,
                                       index_t layers, Enqueue const& enqueue) {
  std::vector<slot_changes> result;
  for (alignment_outcome const& layer : planning_reports<alignment_outcome>(
           name, context, {}, layers, 1, migration_names, enqueue)) {
    result.push_back(layer.changes);
  }
  return result;
}

/// Aligns all layers, and reports.
template <class Context>
alignment_report run_align(std::string_view name, Context const& context,
                           migration_pair const& pair, relabeling relabel,
                           matrix_ref<std::int32_t> const& aligned) {
  alignment<Context> const all(context, pair, relabel);
  alignment_report result;
  result.layers = run_counting(name, context, pair.layers(), [&](alignment_outcome* outcomes) {
    all.enqueue(aligned, outcomes);
  });
  if (all.groups == 0) {
    for (slot_changes const& layer : result.layers) {
      result.certificates.push_back(certify_relabeling({}, 1, layer.moves));
    }
    return result;
  }
  auto layer = result.layers.begin();
  for (assignment_outcome const& found : all.results.read()) {
    index_t moves = 0;
    for (index_t i = 0; i < all.exchange.layers_of_group; ++i) {
      moves += (layer++)->moves;
    }
    result.certificates.push_back(certify_relabeling(found, all.exchange.unit, moves));
  }
  return result;
}

template <class Context>
std::vector<slot_changes> run_count_changes(std::string_view name, Context const& context,
                                            migration_pair const& pair) {
  return run_counting(name, context, pair.layers(), [&](alignment_outcome* outcomes) {
    launch(context, pair.layers(), overlap_body{pair, {}, outcomes});
    launch(context, pair.layers(), slot_alignment_body{pair, {}, {}, outcomes});
  });
}

template <class Context>
std::vector<index_t> run_changed_layers(Context const& context, migration_pair const& pair) {
  buffer<index_t, Context> const counts(context, pair.layers());
  launch(context, pair.layers(), changed_slots_body{pair.from, pair.to, counts.data()});
  std::vector<index_t> result;
  index_t layer = 0;
  for (index_t const changed : counts.read()) {
    if (changed > 0) {
      result.push_back(layer);
    }
    ++layer;
  }
  return result;
}

}}}  // namespace plimsoll::detail
