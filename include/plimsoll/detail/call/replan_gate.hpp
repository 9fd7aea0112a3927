// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `decide_replan`: checks, samples the steps under every plan, and weighs what they gain
/// against what moving costs.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/replan_gate.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/history.hpp>
#include <plimsoll/detail/call/latency.hpp>
#include <plimsoll/detail/call/migration.hpp>
#include <plimsoll/detail/call/migration_transfers.hpp>
#include <plimsoll/detail/call/minmax_lp.hpp>
#include <plimsoll/detail/call/placement_maps.hpp>
#include <plimsoll/detail/call/planning.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/call/rank_speeds.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/exact_math.hpp>
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
using replan_samples = std::vector<replan_sample>;

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

/// A checked gate.
template <class Context, class Cost>
class replan_judge {
 public:
  replan_judge(std::string_view name, Context const& context, rank_set const& on,
               replan_options<Cost> const& options)
      : name_(name), context_(context), options_(options) {
    options_.on = on;
    rank_speeds const speeds = read_speeds(name, context, on);
    for (double const speed : speeds.speed) {
      total_speed_ = add(total_speed_, speed);
    }
    speed_ = {context, speeds.speed};
  }

  /// Samples the plan in use.
  template <class Loads>
  replan_samples judge_in_use(Loads const& loads, placement_ref const& in_use) const {
    return samples_of(loads, in_use, in_use, "in_use");
  }
  /// `before` are the samples of the plan in use.
  template <class Loads>
  replan_decision decide(Loads const& loads, placement_ref const& in_use,
                         replan_samples const& before,
                         std::vector<replan_candidate> const& candidates) const {
    replan_decision result = describe(before, loads.extent(1));
    index_t const half = half_of(before, loads.extent(1));
    double most = 0;
    for (replan_candidate const& candidate : candidates) {
      std::string const argument = text("candidates[", result.candidates.size(), "]");
      replan_samples const after = unseen_samples(loads, half, in_use, candidate, argument);
      candidate_judgment const judged =
          judge(before, after, transfer_layers(in_use, candidate.plan, argument));
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

  /// Returns the first step of the second half of the steps with load, such as the rows of a
  /// `load_window` that is not full yet.
  [[nodiscard]] static index_t half_of(replan_samples const& samples, index_t layers) {
    std::vector<index_t> filled;
    for (index_t step = 0; step < std::ssize(samples) / std::max<index_t>(layers, 1); ++step) {
      auto const first = samples.begin() + step * layers;
      if (std::any_of(first, first + layers, [](auto const& sample) { return sample.load > 0; })) {
        filled.push_back(step);
      }
    }
    return filled.size() < 2 ? 1 : filled[filled.size() / 2];
  }

 private:
  /// Samples the steps under a plan. `argument` names it.
  template <class Loads>
  replan_samples samples_of(Loads const& loads, placement_ref const& in_use,
                            placement_ref const& plan, std::string const& argument) const {
    index_t const steps = loads.extent(0);
    index_t const layers = loads.extent(1);
    expect_like(in_use, plan, argument);
    run_planning(name_, context_, layers, 1, {{{"", argument + "."}}},
                 [&](problem_report* reports) {
                   enqueue_validate(context_, plan, {.on = options_.on}, reports);
                 });
    buffer<replan_sample, Context> const samples(context_, steps * layers);
    bool const is_optimal = options_.split == split_rule::optimal;
    buffer<certificate, Context> const peaks(context_, is_optimal ? steps * layers : 0);
    if (is_optimal) {
      minmax_lp_pipeline<Context> lp(context_, plan, {.on = options_.on, .tolerance = 0}, name_);
      launch(context_, steps * layers, lp.body_of_steps(loads, peaks.data()));
      fill(loads, plan, peaks.data(), samples.data());
    } else {
      fill(loads, plan, nullptr, samples.data());
    }
    return samples.read();
  }
  template <class Loads>
  void fill(Loads const& loads, placement_ref const& plan, certificate const* peaks,
            replan_sample* samples) const {
    auto const& map = plan.physical_to_logical;
    index_t const problems = loads.extent(0) * loads.extent(1);
    run_planning(name_, context_, loads.extent(1), loads.extent(0), {{{"cost", "options.cost"}}},
                 [&](problem_report* reports) {
                   launch(context_, problems,
                          replan_gate_body<Loads, Cost>{
                              .loads = loads,
                              .physical_to_logical = map,
                              .replica_count = plan.replica_count,
                              .ranges = {plan.rank_offsets, map.extent(1), plan.ranks},
                              .speed = speed_.data(),
                              .total_speed = total_speed_,
                              .peaks = peaks,
                              .cost = options_.cost,
                              .samples = samples,
                              .reports = reports});
                 });
  }

  /// Samples every step under a plan of the candidate that was not made from it.
  template <class Loads>
  replan_samples unseen_samples(Loads const& loads, index_t half, placement_ref const& in_use,
                                replan_candidate const& candidate,
                                std::string const& argument) const {
    index_t const steps = loads.extent(0);
    bool const has_first = candidate.of_first_half.physical_to_logical.data != nullptr;
    bool const has_second = candidate.of_second_half.physical_to_logical.data != nullptr;
    if (!has_first && !has_second) {
      return samples_of(loads, in_use, candidate.plan, argument + ".plan");
    }
    if (!has_first || !has_second) {
      fail(name_, argument + (has_first ? ".of_second_half" : ".of_first_half"),
           "a plan, since there is one of the other half", "none");
    }
    expect_between(name_, "loads", 2, 0x7fffffff, steps, "steps, since there are plans of halves");
    replan_samples result = samples_of(part_of(loads, 0, half), in_use, candidate.of_second_half,
                                       argument + ".of_second_half");
    replan_samples const second = samples_of(part_of(loads, half, steps - half), in_use,
                                             candidate.of_first_half, argument + ".of_first_half");
    result.insert(result.end(), second.begin(), second.end());
    return result;
  }

  std::vector<layer_transfers> transfer_layers(placement_ref const& in_use,
                                               placement_ref const& plan,
                                               std::string const& argument) const {
    transfer_options const how{.on = {.ranks = options_.on.ranks,
                                      .nodes = options_.on.nodes,
                                      .active = options_.on.active},
                               .rounds = options_.rounds,
                               .expert_bytes = options_.expert_bytes,
                               .bandwidths = options_.bandwidths};
    expect_like(in_use, plan, argument + ".plan");
    return on_behalf_of(name_, name_, {{"from.", "in_use."}, {"to.", argument + ".plan."}}, [&] {
      return run_transfers(name_, context_, expect_transfers(name_, in_use, plan, how), how).layers;
    });
  }

  void expect_like(placement_ref const& in_use, placement_ref const& plan,
                   std::string const& argument) const {
    auto const& map = in_use.physical_to_logical;
    expect_migrated(name_, argument, plan);
    expect_elements(name_, argument + ".replica_count", plan.replica_count);
    expect_extent(name_, argument + ".physical_to_logical", map.extent(0),
                  plan.physical_to_logical.extent(0), "layers, as in in_use");
    expect_extent(name_, argument + ".physical_to_logical", map.extent(1),
                  plan.physical_to_logical.extent(1), "slots, as in in_use");
    expect_extent(name_, argument + ".replica_count", in_use.replica_count.extent(1),
                  plan.replica_count.extent(1), "experts, as in in_use");
    expect_extent(name_, argument + ".ranks", in_use.ranks, plan.ranks, "ranks, as in in_use");
  }

  [[nodiscard]] static replan_decision describe(replan_samples const& before, index_t layers) {
    replan_decision result;
    replan_gains const all = gains_of(before, before, layers).first;
    double seconds = 0;
    for (replan_sample const& sample : before) {
      seconds = add(seconds, sample.load > 0 ? sample.seconds : 0.0);
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

  [[nodiscard]] candidate_judgment judge(replan_samples const& before, replan_samples const& after,
                                         std::vector<layer_transfers> const& moves) const {
    auto const [all, of_layers] = gains_of(before, after, std::ssize(moves));
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
  [[nodiscard]] static std::pair<replan_gains, std::vector<replan_gains>> gains_of(
      replan_samples const& before, replan_samples const& after, index_t layers) {
    replan_gains all;
    std::vector<replan_gains> of_layers(static_cast<std::size_t>(layers));
    for (std::size_t first = 0; first < before.size(); first += of_layers.size()) {
      double seconds = 0;
      bool has_load = false;
      for (std::size_t layer = 0; layer < of_layers.size(); ++layer) {
        replan_sample const& was = before[first + layer];
        replan_sample const& is = after[first + layer];
        if (!(was.load > 0)) {
          continue;
        }
        has_load = true;
        double const gain = add(was.seconds, -is.seconds);
        seconds = add(seconds, gain);
        of_layers[layer].seconds.push_back(gain);
        for (replan_gains* const gains : {&all, &of_layers[layer]}) {
          gains->points.push_back(add(is.balancedness, -was.balancedness));
          gains->possible = add(gains->possible, add(was.seconds, -was.least_seconds));
          gains->balancedness = add(gains->balancedness, was.balancedness);
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
  replan_options<Cost> options_;
  double total_speed_ = 0;
  buffer<double, Context> speed_;
};

/// Checks all but the candidates, and returns the gate.
template <class Context, class Loads, class Cost>
replan_judge<Context, Cost> expect_replan_gate(std::string_view name, Context const& context,
                                               Loads const& loads, placement_ref const& in_use,
                                               replan_options<Cost> const& options) {
  expect_migrated(name, "in_use", in_use);
  expect_between(name, "loads", 1, 0x7fffffff, loads.extent(0), "steps");
  expect_extent(name, "loads", in_use.physical_to_logical.extent(0), loads.extent(1),
                "layers, as in in_use");
  expect_extent(name, "loads", in_use.replica_count.extent(1), loads.extent(2),
                "experts, as in in_use");
  rank_set const on = with_ranks_of(name, options.on, in_use.ranks);
  expect_enumerator(name, "options.split", split_rule::optimal, options.split);
  expect_enumerator(name, "options.rounds", round_rule::send_and_receive, options.rounds);
  if (options.split == split_rule::even) {
    expect_no_speeds(name, on, "copies share evenly on ranks of any speed");
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
  return {name, context, on, options};
}

}}}  // namespace plimsoll::detail
