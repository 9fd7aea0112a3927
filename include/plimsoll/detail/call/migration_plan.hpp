// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `plan_within`: launches that make the plans, and the choice within the budget.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/flow_placement.hpp>
#include <plimsoll/detail/algorithm/migration_plan.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/fixed_load.hpp>
#include <plimsoll/detail/call/flow_placement.hpp>
#include <plimsoll/detail/call/history.hpp>
#include <plimsoll/detail/call/ids.hpp>
#include <plimsoll/detail/call/knapsack.hpp>
#include <plimsoll/detail/call/load_tensor.hpp>
#include <plimsoll/detail/call/migration.hpp>
#include <plimsoll/detail/call/migration_align.hpp>
#include <plimsoll/detail/call/minmax_lp.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/call/rank_speeds.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/exact_math.hpp>
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

/// Bonuses of the `flow_placement` plans that `plan_within` compares. The first is a fresh plan.
inline constexpr double keep_bonuses[] = {0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2};
/// Moves after which a plan of the path is compared, if there are several steps.
inline constexpr std::int64_t path_moves[] = {1, 2, 4, 8, 16, 32};

/// Balancedness and its differences are whole multiples of 2^-40, so that their sums are exact:
/// what a larger budget gains is at least what a smaller one does, to the last bit.
using balance_units = std::int64_t;
inline constexpr double balance_unit = 0x1p-40;

/// A way to make plans: an index of `keep_bonuses`, or, after these, of `path_moves`. The placement
/// in use, the target and single points of a path are no kind.
using plan_kind = std::size_t;
inline constexpr plan_kind bonus_kinds = std::size(keep_bonuses);
inline constexpr plan_kind plan_kinds = bonus_kinds + std::size(path_moves);
inline constexpr plan_kind no_kind = plan_kinds;

/// A plan of a layer that can be chosen.
struct plan_option {
  compared_plan plan;
  plan_kind kind = no_kind;
  slot_changes changes = {};
  balance_units gain = 0;  ///< over the placement in use
  balance_units net = 0;   ///< `gain` less the price of the moves
};

/// Keeps the plans within the budget of a layer of which none with as few moves gains more, in
/// rising order of moves. A move must gain at least `price`. The first plan is the one in use;
/// without moves it is the only one.
inline std::vector<plan_option> undominated(std::vector<plan_option> plans, std::int64_t most_moves,
                                            balance_units price) {
  for (plan_option& one : plans) {
    one.net = one.gain - price * one.changes.moves;
  }
  std::stable_sort(plans.begin() + 1, plans.end(), [](plan_option const& a, plan_option const& b) {
    return a.changes.moves < b.changes.moves;
  });
  std::vector<plan_option> kept(1, plans.front());
  for (plan_option const& one : plans) {
    if (most_moves > 0 && one.changes.moves <= most_moves && one.net > kept.back().net) {
      if (one.changes.moves == kept.back().changes.moves) {
        kept.pop_back();
      }
      kept.push_back(one);
    }
  }
  return kept;
}

/// Chooses a plan of every layer so that the sum of the net gains is largest with at most
/// `most_moves` moves. Ties go to fewer moves.
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
      values[layer * widest + i] = static_cast<double>(layers[layer][i].net);
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

/// Consecutive steps of a history.
struct history_part {
  index_t first;
  index_t count;
};

/// Gains of every kind of plan in the half of the steps that it was not made from. A layer's gain
/// is known from few steps, so half of it is the mean over the layers.
class unseen_gains {
 public:
  explicit unseen_gains(std::size_t layers)
      : of_(plan_kinds, of_kind{std::vector<layer_gain>(layers)}) {}

  void add(plan_kind kind, std::size_t layer, std::size_t half, balance_units gain) {
    of_kind& of = of_[kind];
    of.layers[layer].sum += gain;
    ++of.layers[layer].count;
    of.samples[half].push_back(static_cast<double>(gain));
    of.samples[2].push_back(static_cast<double>(gain));
  }
  /// Returns whether the kind gains more than one standard error of its mean; with `in_both`, in
  /// either half.
  [[nodiscard]] bool is_proven(plan_kind kind, bool in_both = false) const {
    auto const exceeds_error = [](std::vector<double> const& samples) {
      mean_difference const found(samples, {});
      return found.mean > found.standard_error;
    };
    auto const& of = of_[kind].samples;
    return in_both ? exceeds_error(of[0]) && exceeds_error(of[1]) : exceeds_error(of[2]);
  }
  [[nodiscard]] balance_units of(plan_kind kind, std::size_t layer) const {
    layer_gain const& own = of_[kind].layers[layer];
    if (own.count == 0) {
      return 0;
    }
    double const of_layer = divide(static_cast<double>(own.sum), static_cast<double>(own.count));
    double const mean = mean_difference(of_[kind].samples[2], {}).mean;
    return static_cast<balance_units>(std::floor(multiply(0.5, detail::add(of_layer, mean))));
  }

 private:
  struct layer_gain {
    balance_units sum = 0;
    std::int64_t count = 0;
  };
  struct of_kind {
    std::vector<layer_gain> layers;
    std::vector<double> samples[3] = {};  ///< of the first half, the second, and both
  };
  std::vector<of_kind> of_;
};

/// The loads of a history in the memory of a context.
template <class Context>
struct history_loads {
  buffer<double, Context> memory;
  tensor_ref<double const> loads;    ///< `[steps, layers, experts]`
  std::vector<std::uint8_t> loaded;  ///< `[steps, layers]`: whether the layer has load

  [[nodiscard]] index_t steps() const { return loads.extent(0); }
  [[nodiscard]] bool has_load(index_t step, index_t layer) const {
    return loaded[static_cast<std::size_t>(step * loads.extent(1) + layer)] != 0;
  }
  [[nodiscard]] tensor_ref<double const> of(history_part const& part) const {
    return part_of(loads, part.first, part.count);
  }
  /// Returns the first step of the second half of the steps with load; 0 if there are fewer than
  /// two.
  [[nodiscard]] index_t middle() const {
    std::vector<index_t> busy;
    for (index_t step = 0; step < steps(); ++step) {
      bool any = false;
      for (index_t layer = 0; layer < loads.extent(1); ++layer) {
        any = any || has_load(step, layer);
      }
      if (any) {
        busy.push_back(step);
      }
    }
    return busy.size() < 2 ? 0 : busy[busy.size() / 2];
  }
};

/// Reads and checks the loads `[steps, layers, experts]`.
template <class Context, class Loads>
history_loads<Context> read_history(std::string_view name, Context const& context,
                                    Loads const& loads, double load_exponent) {
  index_t const steps = loads.extent(0);
  index_t const layers = loads.extent(1);
  index_t const experts = loads.extent(2);
  history_loads<Context> result{{context, steps * layers * experts}, {}, {}};
  tensor_ref<double> const out(result.memory.data(), steps, layers, experts);
  result.loads = out;
  buffer<std::uint8_t, Context> const loaded(context, steps * layers);
  run_planning(
      name, context, layers, steps, [](refused_value const& of) { throw_load_fault(of); },
      [&](problem_report* reports) {
        launch(context, steps * layers,
               read_history_body<Loads>{loads, load_exponent, out, loaded.data(), reports});
      });
  result.loaded = loaded.read();
  return result;
}

/// The steps of `plan_within`.
template <class Context>
class migration_planner {
 public:
  migration_planner(std::string_view name, Context const& context, migration_pair const& pair,
                    placement_options const& where, migration_options const& options)
      : name_(name),
        context_(context),
        pair_(pair),
        where_(ranks_of(pair, where)),
        options_(options),
        budget_(options),
        base_(context, cells()),
        target_(context, cells()) {
    pair_.where = topology_of(where_, pair.slots());
    pair_.where.ranges = pair.where.ranges;  // those of `to`, so that the check compares them
  }

  template <class Loads>
  std::vector<migration_report> run(Loads const& loads, matrix_ref<std::int32_t> const& map,
                                    matrix_ref<std::int32_t> const& counts) {
    run_planning(name_, context_, layers(), 1, throw_migration_fault, [&](auto* reports) {
      launch(context_, layers(),
             migration_check_body{pair_, rule_of(where_), rows(base_.data()), rows(target_.data()),
                                  reports});
    });
    history_ = read_history(name_, context_, loads, where_.load_exponent);
    speeds_ = read_speeds(name_, context_, ranks()).speed;

    candidates made{*this};
    std::vector<std::vector<plan_option>> options = plans_in_use();
    if (budget_.of_layer > 0) {
      index_t const middle = options_.validate ? history_.middle() : 0;
      if (middle > 0) {
        validate({0, middle}, {middle, history_.steps() - middle}, made, options);
      } else {
        made.make(whole(), true);
        set_gains(made.list, made, whole());
        for (plan_option const& one : made.list) {
          options[static_cast<std::size_t>(one.plan.layer)].push_back(one);
        }
      }
    }
    auto const price = static_cast<balance_units>(divide(options_.move_price, balance_unit));
    std::vector<std::int64_t> compared;
    for (auto& of_layer : options) {
      compared.push_back(std::ssize(of_layer));
      of_layer = undominated(std::move(of_layer), budget_.of_layer, price);
    }
    std::vector<plan_option> const chosen = choose_plans(options, budget_.in_total);
    write_maps(plans_of(chosen), made, pair_.from, map, counts);
    return report(chosen, made, compared);
  }

 private:
  /// The plans made from a part of the history.
  struct candidates {
    migration_planner const& of;
    index_t complete_rows = 0;
    buffer<std::int32_t, Context> complete{of.context_, 0};  ///< `[complete_rows, slots]`
    buffer<path_change, Context> changes{of.context_, 0};    ///< `[layers, 2 * slots]`
    std::vector<plan_option> list = {};

    [[nodiscard]] matrix_ref<std::int32_t> rows(index_t first, index_t count) const {
      return {complete.data() + first * of.slots(), count, of.slots()};
    }

    /// Makes all plans; without the target and the numbers of moves unless `is_final`.
    void make(history_part const& part, bool is_final) {
      auto const kinds = static_cast<index_t>(of.has_flow_plans() ? bonus_kinds : 0);
      complete_rows = (kinds + 1) * of.layers();
      complete = {of.context_, complete_rows * of.slots()};
      of.follow_paths(part, *this);
      of.plan_flows(part, *this, is_final);
      if (is_final) {
        of.align_rows(*this, kinds, of.rows(of.target_.data()), no_kind, true);
      }
    }
  };

  [[nodiscard]] index_t layers() const { return pair_.layers(); }
  [[nodiscard]] index_t slots() const { return pair_.slots(); }
  [[nodiscard]] index_t cells() const { return pair_.layers() * pair_.slots(); }
  [[nodiscard]] matrix_ref<std::int32_t> rows(std::int32_t* maps) const {
    return {maps, layers(), slots()};
  }
  [[nodiscard]] history_part whole() const { return {0, history_.steps()}; }
  [[nodiscard]] rank_set ranks() const {
    return {.ranks = pair_.ranks(), .active = where_.on.active, .speeds = where_.on.speeds};
  }
  [[nodiscard]] static placement_options ranks_of(migration_pair const& pair,
                                                  placement_options where) {
    where.on.ranks = pair.ranks();
    where.rank_offsets = pair.from_offsets;
    return where;
  }
  /// `flow_placement` keeps copies on different ranks, and knows no other constraint.
  [[nodiscard]] bool has_flow_plans() const {
    anti_affinity_rule const rule = rule_of(where_);
    return where_.node_experts.data == nullptr &&
           !(rule.required && rule.apart == anti_affinity::node);
  }
  /// Returns the placement in use of every layer.
  [[nodiscard]] std::vector<compared_plan> unchanged() const {
    std::vector<compared_plan> result(static_cast<std::size_t>(layers()), {0, -1, 0});
    for (std::int32_t layer = 0; layer < layers(); ++layer) {
      result[static_cast<std::size_t>(layer)].layer = layer;
    }
    return result;
  }
  [[nodiscard]] std::vector<std::vector<plan_option>> plans_in_use() const {
    std::vector<std::vector<plan_option>> result;
    for (compared_plan const& one : unchanged()) {
      result.emplace_back(1, plan_option{one});
    }
    return result;
  }
  [[nodiscard]] static std::vector<compared_plan> plans_of(std::vector<plan_option> const& list) {
    std::vector<compared_plan> result;
    result.reserve(list.size());
    for (plan_option const& one : list) {
      result.push_back(one.plan);
    }
    return result;
  }

  // ----- plans -----------------------------------------------------------------------------------

  /// Adds plans of the path of every layer: with one step all, otherwise those after `path_moves`.
  void follow_paths(history_part const& part, candidates& made) const {
    bool const has_all = history_.steps() == 1;
    // All kinds, whatever the budget: what they gain must not depend on it.
    std::int64_t const most = has_all ? budget_.of_layer : *std::rbegin(path_moves);
    buffer<double, Context> const sums(context_, layers() * pair_.experts());
    matrix_ref<double> const sum(sums.data(), layers(), pair_.experts());
    enqueue_sum_steps(context_, history_.of(part), sum);
    made.changes = {context_, 2 * cells()};
    buffer<path_point, Context> const found(context_, layers() * (slots() + 1));
    buffer<std::int32_t, Context> const count(context_, layers());
    run_planning(name_, context_, layers(), 1, throw_placement_fault, [&](auto* reports) {
      launch(context_, layers(),
             migration_path_body<matrix_ref<double const>>{.loads = sum,
                                                           .where = pair_.where,
                                                           .rule = rule_of(where_),
                                                           .load_exponent = 1,
                                                           .split = options_.split,
                                                           .most_moves = most,
                                                           .base = rows(base_.data()),
                                                           .changes = made.changes.data(),
                                                           .points = found.data(),
                                                           .point_count = count.data(),
                                                           .reports = reports});
    });
    std::vector<path_point> const points = found.read();
    std::vector<std::int32_t> const counts = count.read();
    for (std::int32_t layer = 0; layer < layers(); ++layer) {
      auto const first = points.begin() + layer * (slots() + 1);
      auto const end = first + counts[static_cast<std::size_t>(layer)];
      auto const add = [&](path_point const& at, plan_kind kind) {
        made.list.push_back({{layer, -1, at.changes}, kind, {at.moves, 0}});
      };
      if (has_all) {
        std::for_each(first + 1, end, [&](path_point const& at) { add(at, no_kind); });
      }
      for (std::size_t i = 0; i < std::size(path_moves) && !has_all; ++i) {
        auto const next =
            std::find_if(first, end, [&](auto const& at) { return at.moves > path_moves[i]; });
        add(*(next - 1), bonus_kinds + i);
      }
    }
  }

  /// Adds plans of `flow_placement` with every bonus.
  void plan_flows(history_part const& part, candidates& made, bool counts_moves) const {
    if (!has_flow_plans()) {
      return;
    }
    buffer<std::int32_t, Context> const copies(context_, layers() * pair_.experts());
    auto const kinds = static_cast<index_t>(bonus_kinds);
    run_planning(name_, context_, layers(), kinds, throw_flow_fault, [&](auto* reports) {
      for (index_t kind = 0; kind < kinds; ++kind) {
        enqueue_flow_placement(context_, history_.of(part),
                               {.on = where_.on,
                                .rank_offsets = where_.rank_offsets,
                                .split = options_.split,
                                .in_use = rows(base_.data()),
                                .keep_bonus = keep_bonuses[kind]},
                               made.rows(kind * layers(), layers()),
                               {copies.data(), layers(), pair_.experts()},
                               reports + kind * layers());
      }
    });
    for (index_t kind = 0; kind < kinds; ++kind) {
      align_rows(made, kind, made.rows(kind * layers(), layers()), static_cast<plan_kind>(kind),
                 counts_moves);
    }
  }

  /// Aligns complete plans, one of each layer, and adds them as number `at` of the complete plans.
  void align_rows(candidates& made, index_t at, matrix_ref<std::int32_t const> const& plans,
                  plan_kind kind, bool counts_moves) const {
    auto const aligned = made.rows(at * layers(), layers());
    migration_pair pair = pair_;
    pair.from = rows(base_.data());
    pair.to = plans;
    // With node lists, a node keeps its experts.
    run_align(
        name_, context_, pair,
        where_.node_experts.data == nullptr ? relabeling::per_layer : relabeling::within_nodes,
        aligned);
    pair.to = aligned;
    std::vector<slot_changes> changes(static_cast<std::size_t>(layers()));
    if (counts_moves) {
      changes = run_count_changes(name_, context_, pair);
    }
    for (std::int32_t layer = 0; layer < layers(); ++layer) {
      made.list.push_back({{layer, static_cast<std::int32_t>(at * layers()) + layer, 0},
                           kind,
                           changes[static_cast<std::size_t>(layer)]});
    }
  }

  /// Writes maps and counts of plans; those without changes are rows of `kept`.
  void write_maps(std::vector<compared_plan> const& plans, candidates const& made,
                  matrix_ref<std::int32_t const> const& kept, matrix_ref<std::int32_t> const& map,
                  matrix_ref<std::int32_t> const& counts) const {
    buffer<compared_plan, Context> const list(context_, plans);
    launch(context_, map.extent(0),
           migration_map_body{.plans = list.data(),
                              .kept = kept,
                              .base = rows(base_.data()),
                              .complete = made.rows(0, made.complete_rows),
                              .changes = made.changes.data(),
                              .map = map,
                              .counts = counts});
  }

  // ----- balance ---------------------------------------------------------------------------------

  /// Returns mean and peak of the ranks, `[steps, plans]`, in a part of the history.
  std::vector<rank_balance> balance_of(std::vector<compared_plan> const& plans,
                                       candidates const& made, history_part const& part) const {
    auto const n = static_cast<index_t>(plans.size());
    buffer<std::int32_t, Context> const maps(context_, n * slots());
    buffer<std::int32_t, Context> const counts(context_, n * pair_.experts());
    matrix_ref<std::int32_t> const map(maps.data(), n, slots());
    matrix_ref<std::int32_t> const copies(counts.data(), n, pair_.experts());
    write_maps(plans, made, rows(base_.data()), map, copies);
    buffer<compared_plan, Context> const list(context_, plans);
    loads_of_plans const loads{history_.of(part), list.data()};
    bool const is_optimal = options_.split == split_rule::optimal;
    buffer<certificate, Context> const peaks(context_, is_optimal ? part.count * n : 0);
    if (is_optimal) {
      buffer<std::int32_t, Context> const offsets = offsets_of(plans);
      placement_ref const all{map, copies, pair_.ranks(),
                              offsets.size() == 0 ? matrix_ref<std::int32_t const>{}
                                                  : matrix_ref<std::int32_t const>(
                                                        offsets.data(), n, pair_.ranks() + 1)};
      minmax_lp_pipeline<Context> lp(context_, all, {.on = ranks(), .tolerance = 0}, name_);
      launch(context_, part.count * n,
             lp.body_of_steps(generate(loads, part.count, n, pair_.experts()), peaks.data()));
    }
    double speeds = 0;
    for (double const one : speeds_) {
      speeds = add(speeds, one);
    }
    buffer<rank_balance, Context> const balance(context_, part.count * n);
    launch(context_, part.count * n,
           plan_balance_body{.loads = loads,
                             .where = pair_.where,
                             .speeds = speeds,
                             .peaks = is_optimal ? peaks.data() : nullptr,
                             .map = map,
                             .counts = copies,
                             .balance = balance.data()});
    return balance.read();
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

  /// Returns the balancedness of plans, the mean over the steps of a part with load.
  std::vector<balance_units> balancedness_of(std::vector<compared_plan> const& plans,
                                             std::vector<rank_balance> const& balance,
                                             history_part const& part) const {
    std::vector<balance_units> result(plans.size());
    for (std::size_t i = 0; i < plans.size(); ++i) {
      balance_units sum = 0;
      std::int64_t count = 0;
      for (index_t step = 0; step < part.count; ++step) {
        if (history_.has_load(part.first + step, plans[i].layer)) {
          rank_balance const& one = balance[static_cast<std::size_t>(step) * plans.size() + i];
          sum += one.mean < one.peak
                     ? static_cast<balance_units>(divide(divide(one.mean, one.peak), balance_unit))
                     : balance_units{1} << 40;
          ++count;
        }
      }
      result[i] = count == 0 ? balance_units{1} << 40 : sum / count;
    }
    return result;
  }

  /// Sets the gains of plans over those in use in a part of the history.
  void set_gains(std::vector<plan_option>& list, candidates const& made,
                 history_part const& part) const {
    std::vector<compared_plan> plans = unchanged();
    for (plan_option const& one : list) {
      plans.push_back(one.plan);
    }
    std::vector<balance_units> const found =
        balancedness_of(plans, balance_of(plans, made, part), part);
    for (std::size_t i = 0; i < list.size(); ++i) {
      list[i].gain = found[static_cast<std::size_t>(layers()) + i] -
                     found[static_cast<std::size_t>(list[i].plan.layer)];
    }
  }

  // ----- validation ------------------------------------------------------------------------------

  [[nodiscard]] std::vector<bool> loaded_layers(history_part const& part) const {
    std::vector<bool> result(static_cast<std::size_t>(layers()));
    for (index_t layer = 0; layer < layers(); ++layer) {
      for (index_t step = part.first; step < part.first + part.count; ++step) {
        result[static_cast<std::size_t>(layer)] =
            result[static_cast<std::size_t>(layer)] || history_.has_load(step, layer);
      }
    }
    return result;
  }

  /// Adds options whose gains were seen in the half of the history that their kind of plan was not
  /// made from.
  void validate(history_part const& first, history_part const& second, candidates& made,
                std::vector<std::vector<plan_option>>& options) const {
    std::vector<bool> const loaded[] = {loaded_layers(first), loaded_layers(second)};
    unseen_gains gains(static_cast<std::size_t>(layers()));
    for (std::size_t half = 0; half < 2; ++half) {
      candidates seen{*this};
      seen.make(half == 0 ? first : second, false);
      set_gains(seen.list, seen, half == 0 ? second : first);
      for (plan_option const& one : seen.list) {
        auto const layer = static_cast<std::size_t>(one.plan.layer);
        if (loaded[0][layer] && loaded[1][layer]) {
          gains.add(one.kind, layer, half, one.gain);
        }
      }
    }
    plan_kind const freest = has_flow_plans() ? 0 : plan_kinds - 1;
    if (!gains.is_proven(freest, true)) {
      return;
    }
    made.make(whole(), true);
    set_gains(made.list, made, whole());
    std::vector<balance_units> lost(static_cast<std::size_t>(layers()));
    for (plan_option const& one : made.list) {
      if (one.kind == freest) {
        auto const layer = static_cast<std::size_t>(one.plan.layer);
        lost[layer] = std::max<balance_units>(one.gain - gains.of(freest, layer), 0);
      }
    }
    for (plan_option& one : made.list) {
      auto const layer = static_cast<std::size_t>(one.plan.layer);
      if (one.kind == no_kind) {
        one.gain -= lost[layer];
        options[layer].push_back(one);
      } else if (gains.is_proven(one.kind)) {
        one.gain = std::min(one.gain, gains.of(one.kind, layer));
        options[layer].push_back(one);
      }
    }
  }

  // ----- reports ---------------------------------------------------------------------------------

  std::vector<migration_report> report(std::vector<plan_option> const& chosen,
                                       candidates const& made,
                                       std::vector<std::int64_t> const& compared) const {
    std::vector<compared_plan> plans = plans_of(chosen);
    std::vector<compared_plan> const in_use = unchanged();
    plans.insert(plans.end(), in_use.begin(), in_use.end());
    std::vector<rank_balance> const balance = balance_of(plans, made, whole());
    std::vector<balance_units> const balancedness = balancedness_of(plans, balance, whole());
    std::vector<double> const bounds = step_bounds();
    std::vector<migration_report> result;
    for (std::size_t layer = 0; layer < chosen.size(); ++layer) {
      std::size_t const before = chosen.size() + layer;
      plan_option const& one = chosen[layer];
      migration_report& of = result.emplace_back();
      of.balancedness = multiply(static_cast<double>(balancedness[layer]), balance_unit);
      of.balancedness_before = multiply(static_cast<double>(balancedness[before]), balance_unit);
      of.expected_gain = multiply(static_cast<double>(one.gain), balance_unit);
      of.changes = one.changes;
      of.imbalance_before =
          mean_imbalance(balance, 2 * chosen.size(), before, static_cast<index_t>(layer), {}).value;
      of.imbalance =
          mean_imbalance(balance, 2 * chosen.size(), layer, static_cast<index_t>(layer), bounds);
      of.imbalance.work = compared[layer];
    }
    return result;
  }

  /// Returns the certificate of the mean imbalance in the steps with load. Without `bounds` it has
  /// only a value.
  [[nodiscard]] certificate mean_imbalance(std::vector<rank_balance> const& balance,
                                           std::size_t plans, std::size_t plan, index_t layer,
                                           std::vector<double> const& bounds) const {
    double value = 0;
    double least = 0;
    double count = 0;
    for (index_t step = 0; step < history_.steps(); ++step) {
      if (!history_.has_load(step, layer)) {
        continue;
      }
      rank_balance const& one = balance[static_cast<std::size_t>(step) * plans + plan];
      value = sum_towards(true, value, divide(one.peak, one.mean));
      count += 1;
      if (!bounds.empty()) {
        double const bound = bounds[static_cast<std::size_t>(step * layers() + layer)];
        least = sum_towards(false, least, divide(std::min(bound, one.peak), one.mean));
      }
    }
    if (count == 0) {
      return {1, 1, 0, certificate_status::optimal};
    }
    certificate result{divide(value, count), divide(least, count)};
    result.lower_bound = std::min(result.lower_bound, result.value);
    result.status = result.lower_bound == result.value ? certificate_status::optimal
                                                       : certificate_status::feasible;
    return result;
  }

  /// Returns lower bounds on the peaks of all plans, `[steps, layers]`.
  [[nodiscard]] std::vector<double> step_bounds() const {
    buffer<double, Context> const reach(context_, speed_sums(speeds_));
    buffer<double, Context> const bounds(context_, history_.steps() * layers());
    launch(context_, history_.steps() * layers(),
           step_bound_body<tensor_ref<double const>>{.loads = history_.loads,
                                                     .where = pair_.where,
                                                     .reach = reach.data(),
                                                     .bounds = bounds.data()});
    return bounds.read();
  }

  std::string_view name_;
  Context context_;
  migration_pair pair_;
  placement_options where_;
  migration_options options_;
  move_budget budget_;
  buffer<std::int32_t, Context> base_;    ///< the placement in use, dead ranks empty
  buffer<std::int32_t, Context> target_;  ///< the new placement, likewise
  history_loads<Context> history_{};
  std::vector<double> speeds_;  ///< `[ranks]`; 0 for dead ranks
};

template <class Context, class Loads>
std::vector<migration_report> run_plan_within(std::string_view name, Context const& context,
                                              Loads const& loads, migration_pair const& pair,
                                              placement_options const& where,
                                              migration_options const& options,
                                              matrix_ref<std::int32_t> const& physical_to_logical,
                                              matrix_ref<std::int32_t> const& replica_count) {
  return migration_planner<Context>(name, context, pair, where, options)
      .run(loads, physical_to_logical, replica_count);
}

}}}  // namespace plimsoll::detail
