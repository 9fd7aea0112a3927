// SPDX-License-Identifier: Apache-2.0
/// @file
/// The judge of plans: histories of steps, of which plans are made from one half and judged on the
/// other, the balance of steps under plans, and means with their standard errors.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/history.hpp>
#include <plimsoll/detail/algorithm/step_balance.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/minmax_lp.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/call/rank_speeds.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// The steps of a history in which layers have load. Others, such as the rows of a `load_window`
/// that is not full yet, are not judged and belong to no half.
class loaded_steps {
 public:
  loaded_steps() = default;
  /// @param loaded `[steps, layers]`: whether the layer has load
  loaded_steps(host_list<std::uint8_t> loaded, index_t layers)
      : layers_(layers), loaded_(std::move(loaded)) {}

  [[nodiscard]] bool has_load(index_t step, index_t layer) const {
    return loaded_[static_cast<std::size_t>(step * layers_ + layer)] != 0;
  }
  /// Returns the number of steps of a part in which each layer has load.
  [[nodiscard]] host_list<std::int64_t> count(history_part const& part) const {
    host_list<std::int64_t> result(static_cast<std::size_t>(layers_), 0, loaded_.get_allocator());
    for (index_t step = part.first; step < part.first + part.count; ++step) {
      for (index_t layer = 0; layer < layers_; ++layer) {
        result[static_cast<std::size_t>(layer)] += has_load(step, layer) ? 1 : 0;
      }
    }
    return result;
  }
  /// Returns the halves of the steps with load; the middle one of an odd number belongs to the
  /// second. With fewer than two such steps both are empty.
  [[nodiscard]] std::array<history_part, 2> halves() const {
    host_list<index_t> busy(loaded_.get_allocator());
    for (std::size_t i = 0; i < loaded_.size(); ++i) {
      index_t const step = static_cast<index_t>(i) / layers_;
      if (loaded_[i] != 0 && (busy.empty() || busy.back() != step)) {
        busy.push_back(step);
      }
    }
    if (busy.size() < 2) {
      return {};
    }
    index_t const middle = busy[busy.size() / 2];
    return {{{busy.front(), middle - busy.front()}, {middle, busy.back() + 1 - middle}}};
  }

 private:
  index_t layers_ = 0;
  host_list<std::uint8_t> loaded_;
};

/// Checks the loads `[steps, layers, experts]`, and finds the steps with load.
template <class Context, class Loads>
loaded_steps read_loaded_steps(std::string_view name, Context const& context, resource_ref lists,
                               Loads const& loads) {
  index_t const layers = loads.extent(1);
  buffer<std::uint8_t, Context> const loaded(context, loads.extent(0) * layers);
  planning_reports(name, context, lists, layers, 1, [&](problem_report* reports) {
    launch(context, layers, history_check_body<Loads>{loads, loaded.data(), reports});
  });
  return {loaded.read(lists), layers};
}

/// Mean of a[i] - b[i], and its standard error; b may be empty.
struct mean_difference {
  double mean = 0;
  double standard_error = 0;

  template <class List>
  mean_difference(List const& a, List const& b) {
    auto const count = static_cast<double>(a.size());
    auto const difference = [&](std::size_t i) { return b.empty() ? a[i] : add(a[i], -b[i]); };
    if (a.empty()) {
      return;
    }
    for (std::size_t i = 0; i < a.size(); ++i) {
      mean = add(mean, difference(i));
    }
    mean = divide(mean, count);
    double squares = 0;
    for (std::size_t i = 0; i < a.size() && a.size() > 1; ++i) {
      double const off = add(difference(i), -mean);
      squares = mul_then_add(off, off, squares);
    }
    standard_error = a.size() > 1 ? square_root(divide(squares, multiply(count, count - 1))) : 0.0;
  }
};

/// Judges plans under one split. With a cost, steps are timed, too.
template <class Context, class Cost = no_cost>
class step_judge {
 public:
  using result = typename step_balance_body<tensor_ref<double const>, Cost>::result;

  /// Lists on the host are in memory of `lists`.
  step_judge(std::string_view name, Context const& context, rank_set const& on, split_rule split,
             resource_ref lists = {}, Cost const& cost = {})
      : name_(name),
        context_(context),
        on_(on),
        split_(split),
        lists_(lists),
        cost_(cost),
        speeds_(read_speeds(name, context, on, lists).speed),
        stored_(context, speeds_) {}

  [[nodiscard]] host_list<double> const& speeds() const { return speeds_; }

  /// Judges every step of `loads`, `[steps, plans, experts]`, under the plan of each row. The loads
  /// have been checked.
  /// @return `[steps, plans]`
  template <class Loads>
  buffer<result, Context> judge(Loads const& loads, placement_ref const& plans) const {
    index_t const rows = loads.extent(1);
    index_t const problems = loads.extent(0) * rows;
    bool const is_optimal = split_ == split_rule::optimal;
    buffer<certificate, Context> const peaks(context_, is_optimal ? problems : 0);
    if (is_optimal) {
      enqueue_step_splits(name_, context_, loads, plans, on_, lists_, peaks.data());
    }
    double total_speed = 0;
    for (double const speed : speeds_) {
      total_speed = add(total_speed, speed);
    }
    index_t const slots = plans.physical_to_logical.extent(1);
    buffer<result, Context> results(context_, problems);
    step_balance_body<Loads, Cost> body{.loads = loads,
                                        .plans = {plans.physical_to_logical,
                                                  plans.replica_count,
                                                  {plans.rank_offsets, slots, plans.ranks},
                                                  stored_.data(),
                                                  total_speed,
                                                  is_optimal ? peaks.data() : nullptr},
                                        .cost = cost_,
                                        .results = results.data()};
    if constexpr (std::same_as<Cost, no_cost>) {
      launch(context_, problems, body);
    } else {
      planning_reports(name_, context_, lists_, rows, loads.extent(0), {{{"cost", "options.cost"}}},
                       [&](problem_report* reports) {
                         body.reports = reports;
                         launch(context_, problems, body);
                       });
    }
    return results;
  }

 private:
  std::string_view name_;
  Context context_;
  rank_set on_;
  split_rule split_;
  resource_ref lists_;
  Cost cost_;
  host_list<double> speeds_;  ///< `[ranks]`; 0 for dead ranks
  buffer<double, Context> stored_;
};

/// Loads `[steps, plans * layers, experts]` of several plans, one after the other.
template <class Loads>
struct loads_of_rows {
  Loads loads;  ///< `[steps, layers, experts]`

  PLIMSOLL_HD auto operator()(index_t step, index_t row, index_t expert) const {
    return loads(step, row % loads.extent(1), expert);
  }
};

/// Balancedness of judged steps, `[rows, steps]`.
struct balancedness_of_steps {
  step_balance const* steps;  ///< `[steps, rows]`
  index_t rows;

  PLIMSOLL_HD double operator()(index_t row, index_t step) const {
    return steps[step * rows + row].balancedness();
  }
};

/// Splits every step optimally under every plan, and averages the balancedness. The caller has
/// checked loads and placement.
template <class Context, class Loads>
void run_optimal_replay(std::string_view name, Context const& context, Loads const& loads,
                        placement_ref const& placement, vector_ref<std::uint8_t const> active,
                        matrix_ref<double> balancedness) {
  index_t const steps = loads.extent(0);
  index_t const rows = placement.physical_to_logical.extent(0);
  step_judge<Context> const judge(name, context, {.ranks = placement.ranks, .active = active},
                                  split_rule::optimal);
  auto const found =
      judge.judge(generate(loads_of_rows<Loads>{loads}, steps, rows, loads.extent(2)), placement);
  auto const of_steps = generate(balancedness_of_steps{found.data(), rows}, rows, steps);
  launch(context, rows,
         step_means_body<std::remove_const_t<decltype(of_steps)>>{of_steps, steps, balancedness});
  synchronize(context);
}

}}}  // namespace plimsoll::detail
