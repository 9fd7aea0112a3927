// SPDX-License-Identifier: Apache-2.0
/// @file
/// Planning of `decide_replan`: samples the steps under every plan, and weighs what they gain
/// against what moving costs.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/step_balance.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/latency.hpp>
#include <plimsoll/detail/call/migration.hpp>
#include <plimsoll/detail/call/placement_maps.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/planning/judge.hpp>
#include <plimsoll/detail/planning/transfers.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/latency_types.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/replan_gate_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Samples of one plan, `[steps, layers]`.
using replan_samples = std::vector<timed_step>;

/// Gains of a plan over the one in use, in one layer or in all.
struct replan_gains {
  std::vector<double> seconds = {};  ///< of each step with load
  std::vector<double> points = {};   ///< of balancedness, of each layer of these steps with load
  double possible = 0;               ///< seconds that perfect balance gains in all these steps
  double balancedness = 0;           ///< of the plan in use, added up as `points`

  /// Fills in what is known from the steps. `samples` are the block means of every layer.
  void describe(std::vector<double> const& samples, replan_judgment& judgment) const {
    judgment.gain = mean_difference(points, {}).mean;
    judgment.gain_seconds = mean_difference(seconds, {}).mean;
    judgment.break_even_steps =
        judgment.gain_seconds > 0
            ? __builtin_ceil(divide(judgment.move_seconds, judgment.gain_seconds))
        : judgment.changes == slot_changes{} ? 0
                                             : std::numeric_limits<double>::infinity();
    if (!seconds.empty()) {
      double const layers =
          divide(static_cast<double>(points.size()), static_cast<double>(seconds.size()));
      judgment.standard_error = multiply(layers, mean_difference(samples, {}).standard_error);
    }
  }
};

/// Means of up to 16 blocks of neighboring steps.
inline std::vector<double> block_means(std::vector<double> const& steps) {
  std::size_t const blocks = std::min<std::size_t>(steps.size(), 16);
  std::vector<double> means;
  for (std::size_t block = 0; block < blocks; ++block) {
    auto const block_begin = [&](std::size_t i) {
      return steps.begin() + static_cast<std::ptrdiff_t>(i * steps.size() / blocks);
    };
    means.push_back(
        mean_difference(std::vector<double>(block_begin(block), block_begin(block + 1)), {}).mean);
  }
  return means;
}

/// Answers for a move whose gain, costs and changes are known.
template <class Cost>
replan_answer answer_of(replan_judgment const& judgment, replan_gains const& gains,
                        replan_options<Cost> const& options) {
  if (judgment.changes == slot_changes{}) {
    return replan_answer::keep;
  }
  if (static_cast<index_t>(gains.seconds.size()) < options.least_steps) {
    return replan_answer::insufficient_evidence;
  }
  auto const steps = static_cast<double>(gains.seconds.size());
  auto const pays = [&](double seconds) {
    return multiply(static_cast<double>(options.horizon), seconds) > judgment.move_seconds;
  };
  double const doubt = multiply(options.standard_errors, judgment.standard_error);
  double const balancedness = divide(gains.balancedness, static_cast<double>(gains.points.size()));
  if (balancedness >= options.enough_balancedness || !pays(add(judgment.gain_seconds, doubt)) ||
      !pays(divide(gains.possible, steps))) {
    return replan_answer::keep;
  }
  return judgment.gain_seconds > doubt && pays(judgment.gain_seconds)
             ? replan_answer::move
             : replan_answer::insufficient_evidence;
}

/// A checked gate, which has judged the plan in use.
template <class Context, class Loads, class Cost>
class replan_gate {
 public:
  replan_gate(std::string_view name, Context const& context, Loads const& loads,
              placement_ref const& in_use, replan_options<Cost> const& options)
      : name_(name),
        context_(context),
        loads_(loads),
        in_use_(in_use),
        options_(options),
        judge_(name, context, options.on, options.split, {}, options.cost),
        halves_(halves_of(read_loaded_steps(name, context, {}, loads), loads.extent(0))),
        before_(static_cast<std::size_t>(loads.extent(0) * loads.extent(1))) {
    sample({0, loads.extent(0)}, in_use, "in_use", before_);
  }

  /// Returns the halves of the steps with load. With fewer than two of these, the first step and
  /// the others.
  [[nodiscard]] std::array<history_part, 2> const& halves() const { return halves_; }

  [[nodiscard]] replan_decision decide(std::vector<replan_candidate> const& candidates) const {
    replan_decision result = describe();
    double most = 0;
    for (replan_candidate const& candidate : candidates) {
      std::string const argument = text("candidates[", result.candidates.size(), "]");
      replan_samples const after = unseen_samples(candidate, argument);
      candidate_judgment const judged = judge(after, transfer_layers(candidate.plan, argument));
      double const net = add(multiply(static_cast<double>(options_.horizon), judged.gain_seconds),
                             -judged.move_seconds);
      if (judged.answer == replan_answer::move && (result.chosen < 0 || net > most)) {
        result.chosen = std::ssize(result.candidates);
        most = net;
      }
      if (judged.answer != replan_answer::keep && result.answer != replan_answer::move) {
        result.answer = judged.answer;
      }
      result.candidates.push_back(judged);
    }
    return result;
  }

 private:
  static std::array<history_part, 2> halves_of(loaded_steps const& steps, index_t count) {
    std::array<history_part, 2> const halves = steps.halves();
    return halves[0].count > 0 ? halves : std::array<history_part, 2>{{{0, 1}, {1, count - 1}}};
  }

  /// Samples the steps of a part under a plan, which `argument` names.
  void sample(history_part const& part, placement_ref const& plan, std::string const& argument,
              replan_samples& samples) const {
    index_t const layers = loads_.extent(1);
    expect_like(plan, argument);
    run_planning(name_, context_, layers, 1, {{{"", argument + "."}}},
                 [&](problem_report* reports) {
                   enqueue_validate(context_, plan, {.on = options_.on}, reports);
                 });
    replan_samples const found = judge_.judge(part_of(loads_, part), plan).read();
    std::copy(found.begin(), found.end(), samples.begin() + part.first * layers);
  }

  /// Samples every step with load under a plan of the candidate that was not made from it.
  replan_samples unseen_samples(replan_candidate const& candidate,
                                std::string const& argument) const {
    replan_samples result(before_.size());
    bool const has_first = candidate.of_first_half.physical_to_logical.data != nullptr;
    bool const has_second = candidate.of_second_half.physical_to_logical.data != nullptr;
    if (has_first != has_second) {
      fail(name_, argument + (has_first ? ".of_second_half" : ".of_first_half"),
           "a plan, since there is one of the other half", "none");
    }
    if (has_first) {
      expect_between(name_, "loads", 2, 0x7fffffff, loads_.extent(0),
                     "steps, since there are plans of halves");
      sample(halves_[0], candidate.of_second_half, argument + ".of_second_half", result);
      sample(halves_[1], candidate.of_first_half, argument + ".of_first_half", result);
    } else {
      sample({0, loads_.extent(0)}, candidate.plan, argument + ".plan", result);
    }
    return result;
  }

  std::vector<layer_transfers> transfer_layers(placement_ref const& plan,
                                               std::string const& argument) const {
    transfer_options const how{.on = {.ranks = options_.on.ranks,
                                      .nodes = options_.on.nodes,
                                      .active = options_.on.active},
                               .rounds = options_.rounds,
                               .expert_bytes = options_.expert_bytes,
                               .bandwidths = options_.bandwidths};
    expect_like(plan, argument + ".plan");
    return on_behalf_of(name_, name_, {{"from.", "in_use."}, {"to.", argument + ".plan."}}, [&] {
      return run_transfers(name_, context_, expect_transfers(name_, in_use_, plan, how), how)
          .layers;
    });
  }

  void expect_like(placement_ref const& plan, std::string const& argument) const {
    expect_migrated(name_, argument, plan);
    expect_elements(name_, argument + ".replica_count", plan.replica_count);
    expect_shape(name_, argument, shape_of(in_use_), plan,
                 {"layers, as in in_use", "slots, as in in_use", "experts, as in in_use",
                  "ranks, as in in_use"});
  }

  /// Describes the plan in use.
  [[nodiscard]] replan_decision describe() const {
    replan_decision result;
    replan_gains const all = gains_of(before_).first;
    double seconds = 0;
    for (timed_step const& sample : before_) {
      seconds = add(seconds, sample.has_load() ? sample.seconds : 0.0);
    }
    result.steps = std::ssize(all.seconds);
    if (result.steps > 0) {
      auto const steps = static_cast<double>(result.steps);
      result.balancedness = divide(all.balancedness, static_cast<double>(all.points.size()));
      result.step_seconds = divide(seconds, steps);
      result.possible_seconds = divide(all.possible, steps);
    }
    return result;
  }

  [[nodiscard]] candidate_judgment judge(replan_samples const& after,
                                         std::vector<layer_transfers> const& moves) const {
    auto const [all, of_layers] = gains_of(after);
    candidate_judgment result;
    std::vector<double> samples;
    for (std::size_t layer = 0; layer < moves.size(); ++layer) {
      slot_changes const& changes = moves[layer].changes;
      replan_judgment judgment;
      judgment.changes = changes;
      judgment.move_seconds = add(multiply(moves[layer].seconds, options_.transfer_share),
                                  changes == slot_changes{} ? 0.0 : options_.layer_stall);
      result.changes.moves += changes.moves;
      result.changes.local_copies += changes.local_copies;
      result.move_seconds = add(result.move_seconds, judgment.move_seconds);
      std::vector<double> const means = block_means(of_layers[layer].seconds);
      of_layers[layer].describe(means, judgment);
      judgment.answer = answer_of(judgment, of_layers[layer], options_);
      samples.insert(samples.end(), means.begin(), means.end());
      result.layers.push_back(judgment);
    }
    all.describe(samples, result);
    result.answer = answer_of(result, all, options_);
    return result;
  }

  /// Returns the gains of all layers together, and those of each layer.
  [[nodiscard]] std::pair<replan_gains, std::vector<replan_gains>> gains_of(
      replan_samples const& after) const {
    replan_gains all;
    std::vector<replan_gains> of_layers(static_cast<std::size_t>(loads_.extent(1)));
    for (std::size_t first = 0; first < before_.size(); first += of_layers.size()) {
      double seconds = 0;
      bool has_load = false;
      for (std::size_t layer = 0; layer < of_layers.size(); ++layer) {
        timed_step const& was = before_[first + layer];
        timed_step const& is = after[first + layer];
        if (!was.has_load()) {
          continue;
        }
        has_load = true;
        double const gain = add(was.seconds, -is.seconds);
        seconds = add(seconds, gain);
        of_layers[layer].seconds.push_back(gain);
        for (replan_gains* const gains : {&all, &of_layers[layer]}) {
          gains->points.push_back(add(is.balancedness(), -was.balancedness()));
          gains->possible = add(gains->possible, add(was.seconds, -was.least_seconds));
          gains->balancedness = add(gains->balancedness, was.balancedness());
        }
      }
      if (has_load) {
        all.seconds.push_back(seconds);
      }
    }
    return {std::move(all), std::move(of_layers)};
  }

  std::string_view name_;
  Context context_;
  Loads loads_;  ///< `[steps, layers, experts]`
  placement_ref in_use_;
  replan_options<Cost> options_;
  step_judge<Context, Cost> judge_;
  std::array<history_part, 2> halves_;
  replan_samples before_;  ///< of the plan in use
};

/// Checks all but the candidates, and returns the gate.
template <class Context, class Loads, class Cost>
replan_gate<Context, Loads, Cost> expect_replan_gate(std::string_view name, Context const& context,
                                                     Loads const& loads,
                                                     placement_ref const& in_use,
                                                     replan_options<Cost> options) {
  expect_migrated(name, "in_use", in_use);
  expect_between(name, "loads", 1, 0x7fffffff, loads.extent(0), "steps");
  expect_extent(name, "loads", in_use.physical_to_logical.extent(0), loads.extent(1),
                "layers, as in in_use");
  expect_extent(name, "loads", in_use.replica_count.extent(1), loads.extent(2),
                "experts, as in in_use");
  options.on = with_ranks_of(name, options.on, in_use.ranks);
  expect_enumerator(name, "options.split", split_rule::optimal, options.split);
  expect_enumerator(name, "options.rounds", round_rule::send_and_receive, options.rounds);
  if (options.split == split_rule::even) {
    expect_no_speeds(name, options.on, "copies share evenly on ranks of any speed");
  }
  if constexpr (std::same_as<Cost, moe_cost>) {
    expect_moe_cost(name, "options.cost", options.cost);
    if (options.cost.per_token == 0) {
      fail(name, "options.cost.per_token",
           "a number above 0, since balance is worth nothing without", "0");
    }
  } else {
    on_behalf_of(name, name, {{"cost", "options.cost"}},
                 [&] { expect_cost(name, options.cost, in_use.ranks); });
  }
  if constexpr (std::same_as<Cost, token_cost> || std::same_as<Cost, latency_curves>) {
    expect_cost_speeds(name, "options.cost", on_host(context, options.cost.speeds));
  }
  expect_between(name, "options.horizon", 1, std::int64_t{1} << 53, options.horizon, "steps");
  expect_expert_bytes(name, options.expert_bytes,
                      in_use.physical_to_logical.extent(0) * in_use.physical_to_logical.extent(1));
  expect_number(name, "options.transfer_share", 0, 1, options.transfer_share);
  expect_number(name, "options.layer_stall", 0, std::numeric_limits<double>::max(),
                options.layer_stall);
  expect_between(name, "options.least_steps", 1, 0x7fffffff, options.least_steps, "steps");
  expect_number(name, "options.standard_errors", 0, std::numeric_limits<double>::max(),
                options.standard_errors);
  expect_number(name, "options.enough_balancedness", 0, 1, options.enough_balancedness);
  return {name, context, loads, in_use, options};
}

}}}  // namespace plimsoll::detail
