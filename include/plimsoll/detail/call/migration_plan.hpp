// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `plan_within`: launches that make the plans, and the choice within the budget.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/flow_placement.hpp>
#include <plimsoll/detail/algorithm/migration_plan.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/flow_placement.hpp>
#include <plimsoll/detail/call/ids.hpp>
#include <plimsoll/detail/call/knapsack.hpp>
#include <plimsoll/detail/call/migration.hpp>
#include <plimsoll/detail/call/migration_align.hpp>
#include <plimsoll/detail/call/minmax_lp.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/call/rank_speeds.hpp>
#include <plimsoll/detail/call/refinement.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Budget of `plan_within` in moves.
struct move_budget {
  std::int64_t of_layer;
  std::int64_t in_total;

  explicit move_budget(migration_options const& options)
      : of_layer(std::min(options.max_moves_per_layer,
                          options.max_bytes_per_layer / options.expert_bytes)),
        in_total(std::min(options.max_moves, options.max_bytes / options.expert_bytes)) {
    of_layer = std::min(of_layer, in_total);
  }
};

/// A plan of a layer that can be chosen.
struct plan_option {
  compared_plan plan;
  slot_changes changes;
  double peak;
};

/// Keeps the plans within the budget of a layer of which none with as few moves has a smaller peak,
/// in rising order of moves. The first plan is the one in use; without moves it is the only one.
inline std::vector<plan_option> undominated(std::vector<plan_option> plans,
                                            std::int64_t most_moves) {
  std::stable_sort(plans.begin() + 1, plans.end(), [](plan_option const& a, plan_option const& b) {
    return a.changes.moves < b.changes.moves;
  });
  std::vector<plan_option> kept(1, plans.front());
  for (plan_option const& one : plans) {
    if (most_moves > 0 && one.changes.moves <= most_moves && one.peak < kept.back().peak) {
      if (one.changes.moves == kept.back().changes.moves) {
        kept.pop_back();
      }
      kept.push_back(one);
    }
  }
  return kept;
}

/// Chooses a plan of every layer so that the sum of the peaks is smallest with at most `most_moves`
/// moves. Ties go to fewer moves.
inline std::vector<plan_option> choose_plans(std::vector<std::vector<plan_option>> const& layers,
                                             std::int64_t most_moves) {
  std::int64_t wanted = 0;
  std::size_t widest = 1;
  for (auto const& options : layers) {
    wanted += options.back().changes.moves;
    widest = std::max(widest, options.size());
  }
  std::vector<plan_option> result;
  if (wanted <= most_moves) {
    for (auto const& options : layers) {
      result.push_back(options.back());
    }
    return result;
  }
  auto const rows = static_cast<index_t>(layers.size());
  auto const columns = static_cast<index_t>(widest);
  std::vector<std::int64_t> moves(layers.size() * widest);
  std::vector<double> values(layers.size() * widest);
  std::vector<std::int32_t> counts;
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    for (std::size_t i = 0; i < layers[layer].size(); ++i) {
      moves[layer * widest + i] = layers[layer][i].changes.moves;
      values[layer * widest + i] = -layers[layer][i].peak;
    }
    counts.push_back(static_cast<std::int32_t>(layers[layer].size()));
  }
  std::vector<std::int32_t> chosen(layers.size());
  problem_report report;
  enqueue_knapsack(host_context<inline_executor>{},
                   tensor_ref<std::int64_t const>(moves.data(), 1, rows, columns),
                   tensor_ref<double const>(values.data(), 1, rows, columns),
                   {.capacity = most_moves, .option_count = {counts.data(), 1, rows}},
                   {chosen.data(), 1, rows}, {}, &report);
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    result.push_back(layers[layer][static_cast<std::size_t>(chosen[layer])]);
  }
  return result;
}

/// The steps of `plan_within`.
template <class Context, class Loads>
class migration_planner {
 public:
  migration_planner(std::string_view name, Context const& context, Loads const& loads,
                    migration_pair const& pair, placement_options where,
                    migration_options const& options)
      : name_(name),
        context_(context),
        loads_(loads),
        pair_(pair),
        where_(ranks_of(pair, where)),
        options_(options),
        budget_(options),
        base_(context, cells()),
        refined_(context, cells()),
        fresh_(context, cells()),
        changes_(context, 2 * cells()),
        points_(context, pair.layers() * (pair.slots() + 1)) {
    pair_.where = topology_of(where_, pair.slots());
    pair_.where.ranges = pair.where.ranges;  // those of `to`, so that the check compares them
  }

  std::vector<migration_report> run(matrix_ref<std::int32_t> const& map,
                                    matrix_ref<std::int32_t> const& counts) {
    run_planning(name_, context_, layers(), 1, throw_migration_fault, [&](auto* reports) {
      launch(context_, layers(),
             migration_check_body{pair_, rule_of(where_), rows(base_), reports});
    });
    std::vector<std::vector<plan_option>> plans = follow_paths();
    add_complete(plans, refined_, 1);
    add_complete(plans, fresh_, 2);
    std::vector<double> before;
    std::vector<std::int64_t> compared;
    if (options_.split == split_rule::optimal) {
      split_optimally(plans);
    }
    for (auto& of_layer : plans) {
      before.push_back(of_layer.front().peak);
      compared.push_back(static_cast<std::int64_t>(of_layer.size()));
      of_layer = undominated(std::move(of_layer), budget_.of_layer);
    }
    std::vector<plan_option> const chosen = choose_plans(plans, budget_.in_total);
    write(chosen, map, counts);
    return report(chosen, before, compared, map);
  }

 private:
  [[nodiscard]] index_t layers() const { return pair_.layers(); }
  [[nodiscard]] index_t slots() const { return pair_.slots(); }
  [[nodiscard]] index_t cells() const { return pair_.layers() * pair_.slots(); }
  [[nodiscard]] matrix_ref<std::int32_t> rows(buffer<std::int32_t, Context> const& maps) const {
    return {maps.data(), layers(), slots()};
  }
  [[nodiscard]] static placement_options ranks_of(migration_pair const& pair,
                                                  placement_options where) {
    where.on.ranks = pair.ranks();
    where.rank_offsets = pair.from_offsets;
    return where;
  }

  /// Returns the plans on the path of every layer, the placement in use first.
  std::vector<std::vector<plan_option>> follow_paths() {
    buffer<std::int32_t, Context> const count(context_, layers());
    run_planning(name_, context_, layers(), 1, throw_placement_fault, [&](auto* reports) {
      launch(context_, layers(),
             migration_path_body<Loads>{.loads = loads_,
                                        .where = pair_.where,
                                        .rule = rule_of(where_),
                                        .load_exponent = where_.load_exponent,
                                        .split = options_.split,
                                        .most_moves = budget_.of_layer,
                                        .base = rows(base_),
                                        .changes = changes_.data(),
                                        .points = points_.data(),
                                        .point_count = count.data(),
                                        .reports = reports});
    });
    std::vector<path_point> const points = points_.read();
    std::vector<std::int32_t> const counts = count.read();
    std::vector<std::vector<plan_option>> plans(counts.size());
    for (std::size_t layer = 0; layer < counts.size(); ++layer) {
      for (std::int32_t i = 0; i < counts[layer]; ++i) {
        path_point const& at =
            points[layer * static_cast<std::size_t>(slots() + 1) + static_cast<std::size_t>(i)];
        plans[layer].push_back(
            {{static_cast<std::int32_t>(layer), 0, at.changes}, {at.moves, 0}, at.peak});
      }
    }
    return plans;
  }

  /// Makes and aligns a complete plan of every layer: 1 refines the placement in use, 2 is the new
  /// placement.
  void add_complete(std::vector<std::vector<plan_option>>& plans,
                    buffer<std::int32_t, Context> const& maps, std::int32_t source) {
    migration_pair from_base = pair_;
    from_base.from = rows(base_);
    if (source == 1) {
      copy_rows(context_, matrix_ref<std::int32_t const>(rows(base_)), rows(maps));
      buffer<std::int32_t, Context> const counts(context_, layers() * pair_.experts());
      run_planning(name_, context_, layers(), 1, throw_refinement_fault, [&](auto* reports) {
        enqueue_refine(context_, loads_, where_, {}, rows(maps),
                       {counts.data(), layers(), pair_.experts()}, reports);
      });
      from_base.to = rows(maps);
    }
    // With node lists, a node keeps its experts.
    run_align(
        name_, context_, from_base,
        where_.node_experts.data == nullptr ? relabeling::per_layer : relabeling::within_nodes,
        rows(maps));
    from_base.to = rows(maps);
    std::vector<slot_changes> const changes = run_count_changes(name_, context_, from_base);
    buffer<double, Context> const peaks(context_, layers());
    certify_peaks(rows(maps), peaks);
    std::vector<double> const peak = peaks.read();
    for (std::size_t layer = 0; layer < plans.size(); ++layer) {
      plans[layer].push_back(
          {{static_cast<std::int32_t>(layer), source, 0}, changes[layer], peak[layer]});
    }
  }

  /// Returns certificates of the even split, and writes the peaks as paths have them.
  std::vector<certificate> certify_peaks(matrix_ref<std::int32_t> const& map,
                                         buffer<double, Context> const& peaks) {
    return run_planning(name_, context_, layers(), 1, throw_placement_fault, [&](auto* reports) {
      launch(context_, layers(),
             plan_peak_body<Loads>{.loads = loads_,
                                   .where = pair_.where,
                                   .rule = rule_of(where_),
                                   .load_exponent = where_.load_exponent,
                                   .tolerance = -1,
                                   .map = map,
                                   .peaks = peaks.data(),
                                   .made = nullptr,
                                   .reports = reports});
    });
  }

  void write_maps(std::vector<compared_plan> const& plans, matrix_ref<std::int32_t> const& map,
                  matrix_ref<std::int32_t> const& counts) const {
    buffer<compared_plan, Context> const list(context_, plans);
    launch(context_, map.extent(0),
           migration_map_body{.plans = list.data(),
                              .base = rows(base_),
                              .refined = rows(refined_),
                              .fresh = rows(fresh_),
                              .changes = changes_.data(),
                              .map = map,
                              .counts = counts});
  }

  /// Replaces the peaks by those of the optimal split. All plans are layers of one problem.
  void split_optimally(std::vector<std::vector<plan_option>>& plans) {
    std::vector<compared_plan> list;
    for (auto const& of_layer : plans) {
      for (plan_option const& one : of_layer) {
        list.push_back(one.plan);
      }
    }
    auto const n = static_cast<index_t>(list.size());
    buffer<std::int32_t, Context> const maps(context_, n * slots());
    buffer<std::int32_t, Context> const counts(context_, n * pair_.experts());
    matrix_ref<std::int32_t> const map(maps.data(), n, slots());
    matrix_ref<std::int32_t> const copies(counts.data(), n, pair_.experts());
    write_maps(list, map, copies);
    buffer<std::int32_t, Context> const offsets = offsets_of(list);
    placement_ref const all{
        map, copies, pair_.ranks(),
        offsets.size() == 0 ? matrix_ref<std::int32_t const>{}
                            : matrix_ref<std::int32_t const>(offsets.data(), n, pair_.ranks() + 1)};
    rank_set const on{
        .ranks = pair_.ranks(), .active = where_.on.active, .speeds = where_.on.speeds};
    minmax_lp_pipeline<Context> lp(context_, all, {.on = on, .tolerance = 0}, name_);
    lp.allocate_scratch();
    buffer<compared_plan, Context> const rows_of(context_, list);
    buffer<double, Context> const split(context_, n * slots());
    auto const loads = generate(loads_of_plans<Loads>{loads_, rows_of.data(), where_.load_exponent},
                                n, pair_.experts());
    lp.enqueue_solve(loads, {}, {split.data(), n, slots()}, {});
    std::vector<certificate> const solved = lp.certificates.read();
    expect_all_solved(name_, "loads", solved);
    std::size_t row = 0;
    for (auto& of_layer : plans) {
      for (plan_option& one : of_layer) {
        one.peak = solved[row].value;
        ++row;
      }
    }
  }
  /// Returns the rank offsets of every plan; empty where slots are spread evenly.
  buffer<std::int32_t, Context> offsets_of(std::vector<compared_plan> const& list) const {
    if (where_.rank_offsets.data == nullptr) {
      return {};
    }
    std::vector<std::int32_t> const of_layers = rows_on_host(context_, where_.rank_offsets);
    std::vector<std::int32_t> result;
    for (compared_plan const& one : list) {
      auto const first = of_layers.begin() + one.layer * (pair_.ranks() + 1);
      result.insert(result.end(), first, first + pair_.ranks() + 1);
    }
    return {context_, result};
  }

  void write(std::vector<plan_option> const& chosen, matrix_ref<std::int32_t> const& map,
             matrix_ref<std::int32_t> const& counts) {
    std::vector<compared_plan> list;
    list.reserve(chosen.size());
    for (plan_option const& one : chosen) {
      list.push_back(one.plan);
    }
    write_maps(list, map, counts);
  }

  std::vector<migration_report> report(std::vector<plan_option> const& chosen,
                                       std::vector<double> const& before,
                                       std::vector<std::int64_t> const& compared,
                                       matrix_ref<std::int32_t> const& map) {
    bool const is_even = options_.split == split_rule::even;
    buffer<double, Context> const peaks(context_, layers());
    std::vector<certificate> proven;
    std::vector<double> bounds;
    if (is_even) {
      proven = certify_peaks(map, peaks);
    } else {
      bounds = bounds_of_optimal_splits();
    }
    std::vector<migration_report> result;
    for (std::size_t layer = 0; layer < chosen.size(); ++layer) {
      plan_option const& one = chosen[layer];
      certificate peak;
      if (is_even) {
        peak = proven[layer];
      } else {
        peak.value = one.peak;
        peak.lower_bound = std::min(bounds[layer], one.peak);
        peak.status = peak.lower_bound == peak.value ? certificate_status::optimal
                                                     : certificate_status::feasible;
      }
      peak.work = compared[layer];
      result.push_back({peak, before[layer], one.changes});
    }
    return result;
  }

  std::vector<double> bounds_of_optimal_splits() const {
    rank_set const on{
        .ranks = pair_.ranks(), .active = where_.on.active, .speeds = where_.on.speeds};
    buffer<double, Context> const reach(context_,
                                        speed_sums(read_speeds(name_, context_, on).speed));
    buffer<double, Context> const bounds(context_, layers());
    auto const loads = generate(loads_of_plans<Loads>{loads_, nullptr, where_.load_exponent},
                                index_t{1}, layers(), pair_.experts());
    launch(
        context_, layers(),
        step_bound_body<decltype(loads)>{
            .loads = loads, .where = pair_.where, .reach = reach.data(), .bounds = bounds.data()});
    return bounds.read();
  }

  std::string_view name_;
  Context context_;
  Loads loads_;
  migration_pair pair_;
  placement_options where_;
  migration_options options_;
  move_budget budget_;
  buffer<std::int32_t, Context> base_;     ///< the placement in use, dead ranks empty
  buffer<std::int32_t, Context> refined_;  ///< `refine` from it, aligned
  buffer<std::int32_t, Context> fresh_;    ///< the new placement, aligned
  buffer<path_change, Context> changes_;
  buffer<path_point, Context> points_;
};

template <class Context, class Loads>
std::vector<migration_report> run_plan_within(std::string_view name, Context const& context,
                                              Loads const& loads, migration_pair const& pair,
                                              placement_options const& where,
                                              migration_options const& options,
                                              matrix_ref<std::int32_t> const& physical_to_logical,
                                              matrix_ref<std::int32_t> const& replica_count) {
  return migration_planner<Context, Loads>(name, context, loads, pair, where, options)
      .run(physical_to_logical, replica_count);
}

}}}  // namespace plimsoll::detail
