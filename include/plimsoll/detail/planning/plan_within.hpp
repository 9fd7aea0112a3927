// SPDX-License-Identifier: Apache-2.0
/// @file
/// Planning of `plan_within`: plans of several kinds, what they gain, and the choice within the
/// budget.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/flow_placement.hpp>
#include <plimsoll/detail/algorithm/migration_plan.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/flow_placement.hpp>
#include <plimsoll/detail/call/knapsack.hpp>
#include <plimsoll/detail/call/load_tensor.hpp>
#include <plimsoll/detail/call/migration.hpp>
#include <plimsoll/detail/call/migration_align.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/common/migration_pair.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/planning/judge.hpp>
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
inline constexpr balance_units balanced = balance_units{1} << 40;

/// A way to make plans: an index of `keep_bonuses`, or, after these, of `path_moves`. The placement
/// in use, the target and single points of a path are no kind.
using plan_kind = std::size_t;
inline constexpr plan_kind bonus_kinds = keep_bonuses.count;
inline constexpr plan_kind plan_kinds = bonus_kinds + std::size(path_moves);
inline constexpr plan_kind no_kind = plan_kinds;

/// A plan of a layer that can be chosen.
struct plan_option {
  index_t layer;
  index_t row;  ///< among all plans that are compared
  plan_kind kind;
  slot_changes changes;
  balance_units balancedness = 0;  ///< mean over the steps with load
  balance_units gain = 0;          ///< over the placement in use
  balance_units net = 0;           ///< `gain` less the price of the moves
};

/// Plans of every layer, the one in use first.
using layer_options = host_list<host_list<plan_option>>;

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
    auto const exceeds_error = [&](std::size_t half) {
      mean_difference const found(of_[kind].samples[half], {});
      return found.mean > found.standard_error;
    };
    return in_both ? exceeds_error(0) && exceeds_error(1) : exceeds_error(2);
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
  struct layer_gain {
    balance_units sum = 0;
    std::int64_t count = 0;
  };
  struct of_kind {
    host_list<layer_gain> layers;
    host_list<host_list<double>> samples;  ///< of the first half, the second, and both
  };

  static host_list<host_list<double>> samples_in(resource_ref lists) {
    return {3, host_list<double>(lists), lists};
  }
  host_list<of_kind> of_;
};

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
    read_history(loads);
    judge_.emplace(name_, context_, ranks(), options_.split, lists_);

    history_part const whole{0, loads_.extent(0)};
    auto const halves = options_.judge_on == judged_steps::unseen ? loaded_.halves()
                                                                  : std::array<history_part, 2>{};
    bool const may_move = budget_.of_layer > 0;
    bool const is_validated = may_move && halves[0].count > 0;
    unseen_gains gains(static_cast<std::size_t>(layers()), lists_);
    if (is_validated) {
      judge_halves(halves, gains);
    }
    bool const moves = may_move && (!is_validated || is_proven(gains, freest(), true));
    plan_set made = moves ? plans_from(whole, has_target_) : plans_from(std::nullopt);
    judge(made, whole);
    if (is_validated && moves) {
      weigh(gains, made.options);
    }

    layer_options options(static_cast<std::size_t>(layers()), host_list<plan_option>(lists_),
                          lists_);
    for (plan_option const& option : made.options) {
      options[static_cast<std::size_t>(option.layer)].push_back(option);
    }
    auto const price = static_cast<balance_units>(divide(options_.move_price, balance_unit));
    host_list<std::int64_t> compared(lists_);
    compared.reserve(options.size());
    for (auto& of_layer : options) {
      compared.push_back(std::ssize(of_layer));
      of_layer = undominated(std::move(of_layer), budget_.of_layer, price);
    }
    host_list<plan_option> const chosen = choose_plans(options, budget_.in_total);
    write_chosen(chosen, made, map, counts);
    return report(chosen, made, compared);
  }

 private:
  /// Plans that are compared, those in use first: one for each layer.
  struct plan_set {
    explicit plan_set(resource_ref lists) : compared(lists), options(lists), balance(lists) {}

    void add(compared_plan const& plan, plan_kind kind, slot_changes const& slots_changed) {
      options.push_back({plan.layer, std::ssize(options), kind, slots_changed});
      compared.push_back(plan);
    }
    [[nodiscard]] index_t size() const { return std::ssize(compared); }

    host_list<compared_plan> compared;
    host_list<plan_option> options;
    buffer<std::int32_t, Context> complete = {};  ///< `[plans that are no changes, slots]`
    buffer<path_change, Context> changes = {};    ///< `[layers, 2 * slots]`
    buffer<compared_plan, Context> list = {};     ///< `compared`, where the bodies read it
    buffer<std::int32_t, Context> maps = {};      ///< `[plans, slots]`
    buffer<std::int32_t, Context> counts = {};    ///< `[plans, experts]`
    host_list<step_balance> balance;              ///< `[steps, plans]`, of the steps judged on
  };

  [[nodiscard]] index_t layers() const { return pair_.layers(); }
  [[nodiscard]] index_t slots() const { return pair_.slots(); }
  [[nodiscard]] index_t cells() const { return pair_.layers() * pair_.slots(); }
  [[nodiscard]] matrix_ref<std::int32_t> rows(std::int32_t* maps) const {
    return {maps, layers(), slots()};
  }
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
  [[nodiscard]] matrix_ref<std::int32_t> complete_rows(plan_set const& made, index_t first,
                                                       index_t count) const {
    return {made.complete.data() + first * slots(), count, slots()};
  }

  /// Reads and checks the loads `[steps, layers, experts]`.
  template <class Loads>
  void read_history(Loads const& loads) {
    index_t const steps = loads.extent(0);
    history_ = {context_, steps * layers() * pair_.experts()};
    tensor_ref<double> const out(history_.data(), steps, layers(), pair_.experts());
    loads_ = out;
    loaded_ = read_loaded_steps(name_, context_, lists_, loads);
    launch(context_, steps * layers(), read_history_body<Loads>{loads, where_.load_exponent, out});
  }

  // ----- plans -----------------------------------------------------------------------------------

  /// Returns the plans in use and, if there is a part of the history, all that are made from it.
  plan_set plans_from(std::optional<history_part> const& part, bool has_target = false) const {
    plan_set result(lists_);
    for (std::int32_t layer = 0; layer < layers(); ++layer) {
      result.add({layer, -1, 0}, no_kind, {});
    }
    index_t const flows = part ? bonuses_.count : 0;
    result.complete = {context_, (flows + (has_target ? 1 : 0)) * cells()};
    if (part && follows_paths_) {
      follow_paths(*part, result);
    }
    if (flows > 0) {
      plan_flows(*part, result);
    }
    if (has_target) {
      copy_rows<Context, std::int32_t>(context_, rows(target_.data()),
                                       complete_rows(result, flows * layers(), layers()));
    }
    align_plans(result);
    write_maps(result);
    return result;
  }

  /// Adds plans of the path of every layer: with one step all, otherwise those after `path_moves`.
  void follow_paths(history_part const& part, plan_set& made) const {
    bool const has_all = loads_.extent(0) == 1;
    // All kinds, whatever the budget: what they gain must not depend on it.
    std::int64_t const most = has_all ? budget_.of_layer : *std::rbegin(path_moves);
    buffer<double, Context> const sums(context_, layers() * pair_.experts());
    matrix_ref<double> const sum(sums.data(), layers(), pair_.experts());
    enqueue_sum_steps(context_, part_of(loads_, part), sum);
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
        made.add({layer, -1, point.changes}, kind, {point.moves, 0});
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
  void plan_flows(history_part const& part, plan_set const& made) const {
    index_t const plans = bonuses_.count * layers();
    buffer<std::int32_t, Context> const copies(context_, plans * pair_.experts());
    planning_reports<flow_outcome>(
        name_, context_, lists_, layers(), bonuses_.count, flow_names, [&](auto* outcomes) {
          enqueue_flow_placements(context_, part_of(loads_, part),
                                  {.on = where_.on,
                                   .rank_offsets = where_.rank_offsets,
                                   .split = options_.split,
                                   .in_use = rows(base_.data())},
                                  bonuses_, complete_rows(made, 0, plans),
                                  {copies.data(), plans, pair_.experts()}, outcomes);
        });
  }

  /// Aligns the complete plans, a plan of every layer after the other, and lists them.
  void align_plans(plan_set& made) const {
    index_t const plans = cells() == 0 ? 0 : made.complete.size() / cells();
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
      matrix_ref<std::int32_t> const aligned = complete_rows(made, first * layers(), count);
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
        made.add({static_cast<std::int32_t>(row % layers()), static_cast<std::int32_t>(row), 0},
                 row / layers() < bonuses_.count ? kind : no_kind,
                 outcomes[static_cast<std::size_t>(i)].changes);
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

  /// Writes the maps and counts of all plans.
  void write_maps(plan_set& made) const {
    index_t const n = made.size();
    made.list = {context_, made.compared};
    made.maps = {context_, n * slots()};
    made.counts = {context_, n * pair_.experts()};
    launch(context_, n,
           migration_map_body{.plans = made.list.data(),
                              .kept = rows(base_.data()),
                              .base = rows(base_.data()),
                              .complete = complete_rows(made, 0, made.complete.size() / slots()),
                              .changes = made.changes.data(),
                              .map = {made.maps.data(), n, slots()},
                              .counts = {made.counts.data(), n, pair_.experts()}});
  }
  /// Writes maps and counts of the plans chosen. What does not change keeps what dead ranks hold.
  void write_chosen(host_list<plan_option> const& chosen, plan_set const& made,
                    matrix_ref<std::int32_t> const& map,
                    matrix_ref<std::int32_t> const& counts) const {
    host_list<compared_plan> plans(lists_);
    plans.reserve(chosen.size());
    for (plan_option const& option : chosen) {
      bool const is_in_use = option.row < layers();
      plans.push_back({static_cast<std::int32_t>(option.layer),
                       is_in_use ? -1 : static_cast<std::int32_t>(option.row), 0});
    }
    buffer<compared_plan, Context> const list(context_, plans);
    launch(context_, layers(),
           migration_map_body{.plans = list.data(),
                              .kept = pair_.from,
                              .base = rows(base_.data()),
                              .complete = {made.maps.data(), made.size(), slots()},
                              .changes = nullptr,
                              .map = map,
                              .counts = counts});
  }

  // ----- balance ---------------------------------------------------------------------------------

  /// Judges plans on a part of the history: sets their balance and their gains over those in use.
  void judge(plan_set& made, history_part const& part) const {
    index_t const n = made.size();
    buffer<std::int32_t, Context> const offsets = offsets_of(made.compared);
    placement_ref const plans{
        {made.maps.data(), n, slots()},
        {made.counts.data(), n, pair_.experts()},
        pair_.ranks(),
        offsets.size() == 0 ? matrix_ref<std::int32_t const>{}
                            : matrix_ref<std::int32_t const>(offsets.data(), n, pair_.ranks() + 1)};
    loads_of_plans const loads{part_of(loads_, part), made.list.data()};
    made.balance =
        judge_->judge(generate(loads, part.count, n, pair_.experts()), plans).read(lists_);
    for (plan_option& option : made.options) {
      balance_units sum = 0;
      std::int64_t count = 0;
      for (index_t step = 0; step < part.count; ++step) {
        if (loaded_.has_load(part.first + step, option.layer)) {
          step_balance const& found = made.balance[static_cast<std::size_t>(step * n + option.row)];
          sum += static_cast<balance_units>(divide(found.balancedness(), balance_unit));
          ++count;
        }
      }
      option.balancedness = count == 0 ? balanced : sum / count;
      option.gain =
          option.balancedness - made.options[static_cast<std::size_t>(option.layer)].balancedness;
    }
  }

  /// Returns the rank offsets of every plan; empty where slots are spread evenly.
  buffer<std::int32_t, Context> offsets_of(host_list<compared_plan> const& list) const {
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

  // ----- validation ------------------------------------------------------------------------------

  /// Kind of the plans that keep least of those in use.
  [[nodiscard]] plan_kind freest() const { return bonuses_.count > 0 ? 0 : plan_kinds - 1; }
  /// Returns whether a kind of plan gains on unseen steps.
  [[nodiscard]] bool is_proven(unseen_gains const& gains, plan_kind kind, bool in_both) const {
    return is_rehearsal_ || gains.is_proven(kind, in_both);
  }

  /// Makes plans from each half and judges them on the other.
  void judge_halves(std::array<history_part, 2> const& halves, unseen_gains& gains) const {
    host_list<std::int64_t> const busy[] = {loaded_.count(halves[0]), loaded_.count(halves[1])};
    for (std::size_t half = 0; half < 2; ++half) {
      plan_set seen = plans_from(halves[half]);
      judge(seen, halves[1 - half]);
      for (auto option = seen.options.begin() + layers(); option != seen.options.end(); ++option) {
        auto const layer = static_cast<std::size_t>(option->layer);
        if (busy[0][layer] > 0 && busy[1][layer] > 0) {
          gains.add(option->kind, layer, half, option->gain);
        }
      }
    }
  }

  /// Sets the gains to those expected on unseen steps, and removes plans of kinds that have none.
  void weigh(unseen_gains const& gains, host_list<plan_option>& options) const {
    auto const others = options.begin() + layers();
    host_list<balance_units> lost(static_cast<std::size_t>(layers()), lists_);
    for (auto option = others; option != options.end(); ++option) {
      if (option->kind == freest()) {
        auto const layer = static_cast<std::size_t>(option->layer);
        lost[layer] = std::max<balance_units>(option->gain - gains.gain_of(freest(), layer), 0);
      }
    }
    auto end = others;
    for (auto option = others; option != options.end(); ++option) {
      auto const layer = static_cast<std::size_t>(option->layer);
      if (option->kind == no_kind) {
        option->gain -= lost[layer];
      } else if (is_proven(gains, option->kind, false)) {
        option->gain = std::min(option->gain, gains.gain_of(option->kind, layer));
      } else {
        continue;
      }
      *end++ = *option;
    }
    options.erase(end, options.end());
  }

  // ----- choice ----------------------------------------------------------------------------------

  /// Keeps the plans within the budget of a layer of which none with as few moves gains more, in
  /// rising order of moves. A move must gain at least `price`. The first plan is the one in use;
  /// without moves it is the only one.
  static host_list<plan_option> undominated(host_list<plan_option> plans, std::int64_t most_moves,
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

  /// Chooses a plan of every layer so that the sum of the net gains is largest with at most
  /// `most_moves` moves. Ties go to fewer moves.
  static host_list<plan_option> choose_plans(layer_options const& layers, std::int64_t most_moves) {
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

  // ----- reports ---------------------------------------------------------------------------------

  host_list<migration_report> report(host_list<plan_option> const& chosen, plan_set const& made,
                                     host_list<std::int64_t> const& compared) const {
    host_list<double> const bounds = peak_bounds(context_, loads_, pair_.where, judge_->speeds());
    host_list<migration_report> result(lists_);
    result.reserve(chosen.size());
    for (std::size_t layer = 0; layer < chosen.size(); ++layer) {
      plan_option const& option = chosen[layer];
      plan_option const& in_use = made.options[layer];
      migration_report& layer_report = result.emplace_back();
      layer_report.balancedness = multiply(static_cast<double>(option.balancedness), balance_unit);
      layer_report.balancedness_before =
          multiply(static_cast<double>(in_use.balancedness), balance_unit);
      layer_report.expected_gain = multiply(static_cast<double>(option.gain), balance_unit);
      layer_report.changes = option.changes;
      layer_report.imbalance_before = mean_imbalance(made, in_use, bounds).value;
      layer_report.imbalance = mean_imbalance(made, option, bounds);
      layer_report.imbalance.work = compared[layer];
    }
    return result;
  }

  /// Returns the certificate of the mean imbalance in the steps with load.
  [[nodiscard]] certificate mean_imbalance(plan_set const& made, plan_option const& plan,
                                           host_list<double> const& bounds) const {
    double value = 0;
    double least = 0;
    double count = 0;
    for (index_t step = 0; step < loads_.extent(0); ++step) {
      if (!loaded_.has_load(step, plan.layer)) {
        continue;
      }
      step_balance const& found =
          made.balance[static_cast<std::size_t>(step * made.size() + plan.row)];
      double const bound = bounds[static_cast<std::size_t>(step * layers() + plan.layer)];
      value = sum_towards(true, value, divide(found.peak, found.mean));
      least = sum_towards(false, least, divide(std::min(bound, found.peak), found.mean));
      count += 1;
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
  buffer<double, Context> history_;
  tensor_ref<double const> loads_ = {};  ///< `[steps, layers, experts]`, in `history_`
  loaded_steps loaded_;
  std::optional<step_judge<Context>> judge_;
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
