// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `plan_within`: launches that make the plans, and the choice within the budget.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/flow_placement.hpp>
#include <plimsoll/detail/algorithm/history.hpp>
#include <plimsoll/detail/algorithm/migration_plan.hpp>
#include <plimsoll/detail/buffer.hpp>
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
#include <plimsoll/detail/call/slots.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/host/kept_memory.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/execution.hpp>
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

/// Bonuses of the `place_by_flow` plans that `plan_within` compares. The first is a fresh plan.
inline constexpr bonus_list keep_bonuses{7, {0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2}};
/// Moves after which a plan of the path is compared, if there are several steps.
inline constexpr std::int64_t path_moves[] = {1, 2, 4, 8, 16, 32};

/// Balancedness and its differences are whole multiples of 2^-40, so that their sums are exact:
/// what a larger budget gains is at least what a smaller one does, to the last bit.
using balance_units = std::int64_t;
inline constexpr double balance_unit = 0x1p-40;

/// A way to make plans: an index of `keep_bonuses`, or, after these, of `path_moves`. The placement
/// in use, the target and single points of a path are no kind.
using plan_kind = std::size_t;
inline constexpr plan_kind bonus_kinds = keep_bonuses.count;
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
inline host_list<plan_option> undominated(host_list<plan_option> plans, std::int64_t most_moves,
                                          balance_units price) {
  for (plan_option& option : plans) {
    option.net = option.gain - price * option.changes.moves;
  }
  // Plans of one layer are few, and std::stable_sort allocates.
  for (std::size_t i = 2; i < plans.size(); ++i) {
    for (std::size_t j = i; j > 1 && plans[j].changes.moves < plans[j - 1].changes.moves; --j) {
      std::swap(plans[j], plans[j - 1]);
    }
  }
  host_list<plan_option> kept(plans.get_allocator());
  kept.reserve(plans.size());  // whatever they gain, so that all loads take the same memory
  kept.push_back(plans.front());
  for (plan_option const& option : plans) {
    if (most_moves > 0 && option.changes.moves <= most_moves && option.net > kept.back().net) {
      if (option.changes.moves == kept.back().changes.moves) {
        kept.pop_back();
      }
      kept.push_back(option);
    }
  }
  return kept;
}

/// Plans of every layer, the one in use first.
using layer_options = host_list<host_list<plan_option>>;

/// Chooses a plan of every layer so that the sum of the net gains is largest with at most
/// `most_moves` moves. Ties go to fewer moves.
inline host_list<plan_option> choose_plans(layer_options const& layers, std::int64_t most_moves) {
  std::int64_t wanted = 0;
  std::size_t widest = 1;
  for (auto const& options : layers) {
    wanted += options.back().changes.moves;
    widest = std::max(widest, options.size());
  }
  host_list<plan_option> result(layers.get_allocator());
  result.reserve(layers.size());
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
  unseen_gains(std::size_t layers, resource_ref lists)
      : of_(plan_kinds, of_kind{host_list<layer_gain>(layers, lists), samples_in(lists)}, lists) {}

  void add(plan_kind kind, std::size_t layer, std::size_t half, balance_units gain) {
    of_kind& gains = of_[kind];
    gains.layers[layer].sum += gain;
    ++gains.layers[layer].count;
    gains.samples[half].push_back(static_cast<double>(gain));
    gains.samples[2].push_back(static_cast<double>(gain));
  }
  /// Returns whether the kind gains more than one standard error of its mean; with `in_both`, in
  /// either half.
  [[nodiscard]] bool is_proven(plan_kind kind, bool in_both = false) const {
    auto const exceeds_error = [](host_list<double> const& samples) {
      mean_difference const found(samples, {});
      return found.mean > found.standard_error;
    };
    auto const& samples = of_[kind].samples;
    return in_both ? exceeds_error(samples[0]) && exceeds_error(samples[1])
                   : exceeds_error(samples[2]);
  }
  [[nodiscard]] balance_units gain_of(plan_kind kind, std::size_t layer) const {
    layer_gain const& own = of_[kind].layers[layer];
    if (own.count == 0) {
      return 0;
    }
    double const of_layer = divide(static_cast<double>(own.sum), static_cast<double>(own.count));
    double const mean = mean_difference(of_[kind].samples[2], {}).mean;
    return static_cast<balance_units>(__builtin_floor(multiply(0.5, detail::add(of_layer, mean))));
  }

 private:
  /// Samples of the first half, the second, and both.
  using sample_lists = host_list<host_list<double>>;
  struct layer_gain {
    balance_units sum = 0;
    std::int64_t count = 0;
  };
  struct of_kind {
    host_list<layer_gain> layers;
    sample_lists samples;
  };

  static sample_lists samples_in(resource_ref lists) {
    return sample_lists(3, host_list<double>(lists), lists);
  }
  host_list<of_kind> of_;
};

/// The loads of a history in the memory of a context.
template <class Context>
struct history_loads {
  buffer<double, Context> memory;
  tensor_ref<double const> loads;  ///< `[steps, layers, experts]`
  host_list<std::uint8_t> loaded;  ///< `[steps, layers]`: whether the layer has load

  [[nodiscard]] index_t steps() const { return loads.extent(0); }
  [[nodiscard]] bool has_load(index_t step, index_t layer) const {
    return loaded[static_cast<std::size_t>(step * loads.extent(1) + layer)] != 0;
  }
  [[nodiscard]] tensor_ref<double const> loads_in(history_part const& part) const {
    return part_of(loads, part.first, part.count);
  }
  /// Returns the first step of the second half of the steps with load; 0 if there are fewer than
  /// two.
  [[nodiscard]] index_t middle() const {
    host_list<index_t> busy(loaded.get_allocator());
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
                                    resource_ref lists, Loads const& loads, double load_exponent) {
  index_t const steps = loads.extent(0);
  index_t const layers = loads.extent(1);
  index_t const experts = loads.extent(2);
  history_loads<Context> result{{context, steps * layers * experts}, {}, {}};
  tensor_ref<double> const out(result.memory.data(), steps, layers, experts);
  result.loads = out;
  buffer<std::uint8_t, Context> const loaded(context, steps * layers);
  planning_reports(name, context, lists, layers, 1, [&](problem_report* reports) {
    launch(context, layers, history_check_body<Loads>{loads, loaded.data(), reports});
  });
  launch(context, steps * layers, read_history_body<Loads>{loads, load_exponent, out});
  result.loaded = loaded.read(lists);
  return result;
}

/// Differences between a call of `plan_within` and one of `layer_planner`.
struct planner_mode {
  bool has_target = true;     ///< `pair.to` is a candidate
  bool is_rehearsal = false;  ///< all kinds of plans count as proven, so that no step is left out
};

/// The steps of `plan_within`.
template <class Context>
class migration_planner {
 public:
  /// Lists on the host are in memory of `lists`.
  migration_planner(std::string_view name, Context const& context, resource_ref lists,
                    migration_pair const& pair, placement_options const& where,
                    migration_options const& options, planner_mode const& mode = {})
      : name_(name),
        context_(context),
        lists_(lists),
        pair_(pair),
        where_(ranks_of(pair, where)),
        options_(options),
        budget_(options),
        follows_paths_(options.candidates != migration_candidates::one_bonus),
        has_target_(mode.has_target && options.candidates == migration_candidates::all),
        is_rehearsal_(mode.is_rehearsal),
        base_(context, cells()),
        target_(context, cells()) {
    pair_.where = topology_of(where_, pair.slots());
    pair_.where.ranges = pair.where.ranges;  // those of `to`, so that the check compares them
    if (!follows_paths_) {
      bonuses_ = {1, {options.keep_bonus}};
    }
    if (options.candidates == migration_candidates::single_changes || !has_flow_plans()) {
      bonuses_.count = 0;
    }
  }

  template <class Loads>
  host_list<migration_report> run(Loads const& loads, matrix_ref<std::int32_t> const& map,
                                  matrix_ref<std::int32_t> const& counts) {
    planning_reports(name_, context_, lists_, layers(), 1, migration_names,
                     [&](problem_report* reports) {
                       launch(context_, layers(),
                              migration_check_body{pair_, rule_of(where_), rows(base_.data()),
                                                   rows(target_.data()), reports});
                     });
    history_ = read_history(name_, context_, lists_, loads, where_.load_exponent);
    speeds_ = read_speeds(name_, context_, ranks(), lists_).speed;

    candidates made{*this};
    layer_options options = plans_in_use();
    if (budget_.of_layer > 0) {
      index_t const middle = options_.judge_on == judged_steps::unseen ? history_.middle() : 0;
      if (middle > 0) {
        validate({0, middle}, {middle, history_.steps() - middle}, made, options);
      } else {
        made.make(whole(), true);
        set_gains(made.list, made, whole());
        for (plan_option const& option : made.list) {
          options[static_cast<std::size_t>(option.plan.layer)].push_back(option);
        }
      }
    }
    auto const price = static_cast<balance_units>(divide(options_.move_price, balance_unit));
    host_list<std::int64_t> compared(lists_);
    compared.reserve(options.size());
    for (auto& of_layer : options) {
      compared.push_back(std::ssize(of_layer));
      of_layer = undominated(std::move(of_layer), budget_.of_layer, price);
    }
    host_list<plan_option> const chosen = choose_plans(options, budget_.in_total);
    write_maps(plans_of(chosen), made, pair_.from, map, counts);
    return report(chosen, made, compared);
  }

 private:
  using plan_list = host_list<compared_plan>;

  /// The plans made from a part of the history.
  struct candidates {
    migration_planner const& planner;
    index_t complete_rows = 0;
    buffer<std::int32_t, Context> complete{planner.context_, 0};  ///< `[complete_rows, slots]`
    buffer<path_change, Context> changes{planner.context_, 0};    ///< `[layers, 2 * slots]`
    host_list<plan_option> list{planner.lists_};

    [[nodiscard]] matrix_ref<std::int32_t> rows(index_t first, index_t count) const {
      return {complete.data() + first * planner.slots(), count, planner.slots()};
    }

    /// Makes all plans; the target only if `is_final`.
    void make(history_part const& part, bool is_final) {
      index_t const flows = planner.bonuses_.count;
      bool const has_target = is_final && planner.has_target_;
      complete_rows = (flows + (has_target ? 1 : 0)) * planner.layers();
      complete = {planner.context_, complete_rows * planner.slots()};
      if (planner.follows_paths_) {
        planner.follow_paths(part, *this);
      }
      if (flows > 0) {
        planner.plan_flows(part, *this);
      }
      if (has_target) {
        copy_rows<Context, std::int32_t>(planner.context_, planner.rows(planner.target_.data()),
                                         rows(flows * planner.layers(), planner.layers()));
      }
      planner.align_plans(*this);
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
  /// `place_by_flow` keeps copies on different ranks, and knows no other constraint.
  [[nodiscard]] bool has_flow_plans() const {
    anti_affinity_rule const rule = rule_of(where_);
    return where_.node_experts.data == nullptr &&
           !(rule.required && rule.apart == anti_affinity::node);
  }
  /// Returns the placement in use of every layer.
  [[nodiscard]] plan_list unchanged() const {
    plan_list result(static_cast<std::size_t>(layers()), {0, -1, 0}, lists_);
    for (std::int32_t layer = 0; layer < layers(); ++layer) {
      result[static_cast<std::size_t>(layer)].layer = layer;
    }
    return result;
  }
  [[nodiscard]] layer_options plans_in_use() const {
    layer_options result(static_cast<std::size_t>(layers()), host_list<plan_option>(lists_),
                         lists_);
    for (compared_plan const& plan : unchanged()) {
      result[static_cast<std::size_t>(plan.layer)].push_back({plan});
    }
    return result;
  }
  [[nodiscard]] plan_list plans_of(host_list<plan_option> const& list) const {
    plan_list result(lists_);
    result.reserve(list.size());
    for (plan_option const& option : list) {
      result.push_back(option.plan);
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
    enqueue_sum_steps(context_, history_.loads_in(part), sum);
    made.changes = {context_, 2 * cells()};
    buffer<path_point, Context> const found(context_, layers() * (slots() + 1));
    buffer<std::int32_t, Context> const count(context_, layers());
    planning_reports(name_, context_, lists_, layers(), 1, [&](auto* reports) {
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
    host_list<path_point> const points = found.read(lists_);
    host_list<std::int32_t> const counts = count.read(lists_);
    for (std::int32_t layer = 0; layer < layers(); ++layer) {
      auto const first = points.begin() + layer * (slots() + 1);
      auto const end = first + counts[static_cast<std::size_t>(layer)];
      auto const add = [&](path_point const& point, plan_kind kind) {
        made.list.push_back({{layer, -1, point.changes}, kind, {point.moves, 0}});
      };
      if (has_all) {
        std::for_each(first + 1, end, [&](path_point const& point) { add(point, no_kind); });
      }
      for (std::size_t i = 0; i < std::size(path_moves) && !has_all; ++i) {
        auto const next = std::find_if(
            first, end, [&](auto const& point) { return point.moves > path_moves[i]; });
        add(*(next - 1), bonus_kinds + i);
      }
    }
  }

  /// Makes plans of `place_by_flow` with every bonus.
  void plan_flows(history_part const& part, candidates const& made) const {
    index_t const plans = bonuses_.count * layers();
    buffer<std::int32_t, Context> const copies(context_, plans * pair_.experts());
    planning_reports<flow_outcome>(
        name_, context_, lists_, layers(), bonuses_.count, flow_names, [&](auto* outcomes) {
          enqueue_flow_placements(context_, history_.loads_in(part),
                                  {.on = where_.on,
                                   .rank_offsets = where_.rank_offsets,
                                   .split = options_.split,
                                   .in_use = rows(base_.data())},
                                  bonuses_, made.rows(0, plans),
                                  {copies.data(), plans, pair_.experts()}, outcomes);
        });
  }

  /// Aligns the complete plans, a plan of every layer after the other, and lists them.
  void align_plans(candidates& made) const {
    index_t const plans = layers() == 0 ? 0 : made.complete_rows / layers();
    if (plans == 0) {
      return;
    }
    // The overlaps of all ranks of many layers at once would take much memory.
    index_t const together = pair_.ranks() * pair_.ranks() * layers();
    index_t const batch = std::clamp<index_t>((index_t{1} << 22) / together, 1, plans);
    buffer<std::int32_t, Context> const bases(context_, batch * cells());
    buffer<std::int32_t, Context> const offsets(
        context_, where_.rank_offsets.data == nullptr ? 0 : batch * layers() * (pair_.ranks() + 1));
    repeat<std::int32_t>(rows(base_.data()), bases.data(), batch);
    repeat<std::int32_t>(where_.rank_offsets, offsets.data(), batch);
    for (index_t first = 0; first < plans; first += batch) {
      index_t const count = std::min(batch, plans - first) * layers();
      matrix_ref<std::int32_t> const aligned = made.rows(first * layers(), count);
      migration_pair pair = pair_;
      pair.from = {bases.data(), count, slots()};
      pair.to = aligned;
      pair.from_offsets = {};
      if (offsets.size() > 0) {
        pair.from_offsets = {offsets.data(), count, pair_.ranks() + 1};
      }
      pair.where.ranges.offsets = pair.from_offsets;  // those of `to` are the same
      // With node lists, a node keeps its experts.
      alignment<Context> const all(
          context_, pair,
          where_.node_experts.data == nullptr ? relabeling::per_layer : relabeling::within_nodes);
      auto const outcomes = planning_reports<alignment_outcome>(
          name_, context_, lists_, layers(), count / layers(), migration_names,
          [&](alignment_outcome* of_rows) { all.enqueue(aligned, of_rows); });
      for (index_t i = 0; i < count; ++i) {
        index_t const row = first * layers() + i;
        auto const kind = static_cast<plan_kind>(row / layers());
        made.list.push_back(
            {{static_cast<std::int32_t>(row % layers()), static_cast<std::int32_t>(row), 0},
             row / layers() < bonuses_.count ? kind : no_kind,
             outcomes[static_cast<std::size_t>(i)].changes});
      }
    }
  }

  /// Copies a matrix several times, one copy after the other.
  template <class T>
  void repeat(matrix_ref<T const> const& given, T* to, index_t times) const {
    for (index_t i = 0; i < times && given.data != nullptr; ++i) {
      copy_rows<Context, T>(
          context_, given,
          {to + i * given.extent(0) * given.extent(1), given.extent(0), given.extent(1)});
    }
  }

  /// Writes maps and counts of plans; those without changes are rows of `kept`.
  void write_maps(plan_list const& plans, candidates const& made,
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
  host_list<rank_balance> balance_of(plan_list const& plans, candidates const& made,
                                     history_part const& part) const {
    auto const n = static_cast<index_t>(plans.size());
    buffer<std::int32_t, Context> const maps(context_, n * slots());
    buffer<std::int32_t, Context> const counts(context_, n * pair_.experts());
    matrix_ref<std::int32_t> const map(maps.data(), n, slots());
    matrix_ref<std::int32_t> const copies(counts.data(), n, pair_.experts());
    write_maps(plans, made, rows(base_.data()), map, copies);
    buffer<compared_plan, Context> const list(context_, plans);
    loads_of_plans const loads{history_.loads_in(part), list.data()};
    bool const is_optimal = options_.split == split_rule::optimal;
    buffer<certificate, Context> const peaks(context_, is_optimal ? part.count * n : 0);
    if (is_optimal) {
      buffer<std::int32_t, Context> const offsets = offsets_of(plans);
      placement_ref const all{map, copies, pair_.ranks(),
                              offsets.size() == 0 ? matrix_ref<std::int32_t const>{}
                                                  : matrix_ref<std::int32_t const>(
                                                        offsets.data(), n, pair_.ranks() + 1)};
      minmax_lp_pipeline<Context> lp(context_, all, {.on = ranks(), .tolerance = 0}, name_, false,
                                     lists_);
      launch(context_, part.count * n,
             lp.body_of_steps(generate(loads, part.count, n, pair_.experts()), peaks.data()));
    }
    double speeds = 0;
    for (double const speed : speeds_) {
      speeds = add(speeds, speed);
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
    return balance.read(lists_);
  }

  /// Returns the rank offsets of every plan; empty where slots are spread evenly.
  buffer<std::int32_t, Context> offsets_of(plan_list const& list) const {
    if (where_.rank_offsets.data == nullptr) {
      return {};
    }
    index_t const width = pair_.ranks() + 1;
    host_list<std::int32_t> of_layers(static_cast<std::size_t>(layers() * width), lists_);
    rows_to_host(context_, where_.rank_offsets, of_layers.data());
    host_list<std::int32_t> result(lists_);
    result.reserve(list.size() * static_cast<std::size_t>(width));
    for (compared_plan const& plan : list) {
      auto const first = of_layers.begin() + plan.layer * width;
      result.insert(result.end(), first, first + width);
    }
    return {context_, result};
  }

  /// Returns the balancedness of plans, the mean over the steps of a part with load.
  host_list<balance_units> balancedness_of(plan_list const& plans,
                                           host_list<rank_balance> const& balance,
                                           history_part const& part) const {
    host_list<balance_units> result(plans.size(), lists_);
    for (std::size_t i = 0; i < plans.size(); ++i) {
      balance_units sum = 0;
      std::int64_t count = 0;
      for (index_t step = 0; step < part.count; ++step) {
        if (history_.has_load(part.first + step, plans[i].layer)) {
          rank_balance const& step_balance =
              balance[static_cast<std::size_t>(step) * plans.size() + i];
          sum += step_balance.mean < step_balance.peak
                     ? static_cast<balance_units>(
                           divide(divide(step_balance.mean, step_balance.peak), balance_unit))
                     : balance_units{1} << 40;
          ++count;
        }
      }
      result[i] = count == 0 ? balance_units{1} << 40 : sum / count;
    }
    return result;
  }

  /// Sets the gains of plans over those in use in a part of the history.
  void set_gains(host_list<plan_option>& list, candidates const& made,
                 history_part const& part) const {
    plan_list plans = unchanged();
    plan_list const others = plans_of(list);
    plans.insert(plans.end(), others.begin(), others.end());
    host_list<balance_units> const found =
        balancedness_of(plans, balance_of(plans, made, part), part);
    for (std::size_t i = 0; i < list.size(); ++i) {
      list[i].gain = found[static_cast<std::size_t>(layers()) + i] -
                     found[static_cast<std::size_t>(list[i].plan.layer)];
    }
  }

  // ----- validation ------------------------------------------------------------------------------

  [[nodiscard]] host_list<bool> loaded_layers(history_part const& part) const {
    host_list<bool> result(static_cast<std::size_t>(layers()), lists_);
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
                layer_options& options) const {
    host_list<bool> const loaded[] = {loaded_layers(first), loaded_layers(second)};
    unseen_gains gains(static_cast<std::size_t>(layers()), lists_);
    for (std::size_t half = 0; half < 2; ++half) {
      candidates seen{*this};
      seen.make(half == 0 ? first : second, false);
      set_gains(seen.list, seen, half == 0 ? second : first);
      for (plan_option const& option : seen.list) {
        auto const layer = static_cast<std::size_t>(option.plan.layer);
        if (loaded[0][layer] && loaded[1][layer]) {
          gains.add(option.kind, layer, half, option.gain);
        }
      }
    }
    plan_kind const freest = bonuses_.count > 0 ? 0 : plan_kinds - 1;
    if (!is_rehearsal_ && !gains.is_proven(freest, true)) {
      return;
    }
    made.make(whole(), true);
    set_gains(made.list, made, whole());
    host_list<balance_units> lost(static_cast<std::size_t>(layers()), lists_);
    for (plan_option const& option : made.list) {
      if (option.kind == freest) {
        auto const layer = static_cast<std::size_t>(option.plan.layer);
        lost[layer] = std::max<balance_units>(option.gain - gains.gain_of(freest, layer), 0);
      }
    }
    for (plan_option& option : made.list) {
      auto const layer = static_cast<std::size_t>(option.plan.layer);
      if (option.kind == no_kind) {
        option.gain -= lost[layer];
        options[layer].push_back(option);
      } else if (is_rehearsal_ || gains.is_proven(option.kind)) {
        option.gain = std::min(option.gain, gains.gain_of(option.kind, layer));
        options[layer].push_back(option);
      }
    }
  }

  // ----- reports ---------------------------------------------------------------------------------

  host_list<migration_report> report(host_list<plan_option> const& chosen, candidates const& made,
                                     host_list<std::int64_t> const& compared) const {
    plan_list plans = plans_of(chosen);
    plan_list const in_use = unchanged();
    plans.insert(plans.end(), in_use.begin(), in_use.end());
    host_list<rank_balance> const balance = balance_of(plans, made, whole());
    host_list<balance_units> const balancedness = balancedness_of(plans, balance, whole());
    host_list<double> const bounds = step_bounds();
    host_list<migration_report> result(lists_);
    result.reserve(chosen.size());
    for (std::size_t layer = 0; layer < chosen.size(); ++layer) {
      std::size_t const before = chosen.size() + layer;
      plan_option const& option = chosen[layer];
      migration_report& layer_report = result.emplace_back();
      layer_report.balancedness = multiply(static_cast<double>(balancedness[layer]), balance_unit);
      layer_report.balancedness_before =
          multiply(static_cast<double>(balancedness[before]), balance_unit);
      layer_report.expected_gain = multiply(static_cast<double>(option.gain), balance_unit);
      layer_report.changes = option.changes;
      layer_report.imbalance_before =
          mean_imbalance(balance, 2 * chosen.size(), before, static_cast<index_t>(layer), {}).value;
      layer_report.imbalance =
          mean_imbalance(balance, 2 * chosen.size(), layer, static_cast<index_t>(layer), bounds);
      layer_report.imbalance.work = compared[layer];
    }
    return result;
  }

  /// Returns the certificate of the mean imbalance in the steps with load. Without `bounds` it has
  /// only a value.
  [[nodiscard]] certificate mean_imbalance(host_list<rank_balance> const& balance,
                                           std::size_t plans, std::size_t plan, index_t layer,
                                           host_list<double> const& bounds) const {
    double value = 0;
    double least = 0;
    double count = 0;
    for (index_t step = 0; step < history_.steps(); ++step) {
      if (!history_.has_load(step, layer)) {
        continue;
      }
      rank_balance const& step_balance = balance[static_cast<std::size_t>(step) * plans + plan];
      value = sum_towards(true, value, divide(step_balance.peak, step_balance.mean));
      count += 1;
      if (!bounds.empty()) {
        double const bound = bounds[static_cast<std::size_t>(step * layers() + layer)];
        least = sum_towards(false, least,
                            divide(std::min(bound, step_balance.peak), step_balance.mean));
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
  [[nodiscard]] host_list<double> step_bounds() const {
    buffer<double, Context> const reach(context_, speed_sums(speeds_));
    buffer<double, Context> const bounds(context_, history_.steps() * layers());
    launch(context_, history_.steps() * layers(),
           step_bound_body<tensor_ref<double const>>{.loads = history_.loads,
                                                     .where = pair_.where,
                                                     .reach = reach.data(),
                                                     .bounds = bounds.data()});
    return bounds.read(lists_);
  }

  std::string_view name_;
  Context context_;
  resource_ref lists_;
  migration_pair pair_;
  placement_options where_;
  migration_options options_;
  move_budget budget_;
  bool follows_paths_;
  bool has_target_;
  bool is_rehearsal_;
  bonus_list bonuses_ = keep_bonuses;     ///< of the plans of `place_by_flow`
  buffer<std::int32_t, Context> base_;    ///< the placement in use, dead ranks empty
  buffer<std::int32_t, Context> target_;  ///< the new placement, likewise
  history_loads<Context> history_{};
  host_list<double> speeds_;  ///< `[ranks]`; 0 for dead ranks
};

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
      : where_(where),
        options_(options),
        memory_(memory),
        steps_(steps),
        experts_(layer.replica_count.extent(1)),
        slots_(layer.physical_to_logical.extent(1)),
        ranks_(layer.ranks) {
    expect_between(name, "steps", 1, 0x7fffffff, steps, "steps");
    expect_extent(name, "layer.physical_to_logical", 1, layer.physical_to_logical.extent(0),
                  "layer");
    expect_migrated(name, "layer", layer);
    expect_plan_within(name, 1, experts_, layer, layer, where, options);
    // Every array that a call can need: those of offsets and of copies for int64 outputs, too.
    std::vector<std::int32_t> begins;
    placement_ref with_offsets = layer;
    if (layer.rank_offsets.data == nullptr) {
      begins = even_begins(1, slots_, ranks_);
      with_offsets.rank_offsets = {begins.data(), 1, ranks_ + 1};
    }
    std::vector<std::int64_t> map(static_cast<std::size_t>(slots_));
    std::vector<std::int64_t> counts(static_cast<std::size_t>(experts_));
    auto const loads = generate(equal_loads{}, steps, 1, experts_);
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
    expect_extent(name, "from.physical_to_logical", 1, from.physical_to_logical.extent(0), "layer");
    expect_extent(name, "from.physical_to_logical", slots_, from.physical_to_logical.extent(1),
                  "slots, as in the object");
    expect_extent(name, "from.replica_count", experts_, from.replica_count.extent(1),
                  "experts, as in the object");
    expect_extent(name, "from.ranks", ranks_, from.ranks, "ranks, as in the object");
    expect_extent(name, "physical_to_logical", slots_, physical_to_logical.extent(0), "slots");
    expect_extent(name, "replica_count", experts_, replica_count.extent(0), "experts");
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
  index_t experts_;
  index_t slots_;
  index_t ranks_;
};

template <class Context, class Loads>
std::vector<migration_report> run_plan_within(std::string_view name, Context const& context,
                                              Loads const& loads, migration_pair const& pair,
                                              placement_options const& where,
                                              migration_options const& options,
                                              matrix_ref<std::int32_t> const& physical_to_logical,
                                              matrix_ref<std::int32_t> const& replica_count) {
  auto const reports = migration_planner<Context>(name, context, {}, pair, where, options)
                           .run(loads, physical_to_logical, replica_count);
  return {reports.begin(), reports.end()};
}

}}}  // namespace plimsoll::detail
