// SPDX-License-Identifier: Apache-2.0
#include "decision.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/replan_gate.hpp>

#include "loads_text.hpp"
#include "npy.hpp"

namespace examples {

namespace {

using plimsoll::replan_answer;

/// Latencies in microseconds, as seconds.
struct curve_seconds {
  plimsoll::latency_curves curves;
  double operator()(index_t rank, double tokens) const { return 1e-6 * curves(rank, tokens); }
};

std::string time_text(double seconds) {
  double const us = 1e6 * seconds;
  return std::abs(us) < 1000 ? fmt::format("{:.1f} us", us) : fmt::format("{:.2f} ms", us / 1000);
}
std::string steps_text(double steps) {
  return fmt::format("{:.0f} step{}", steps, steps == 1 ? "" : "s");
}

/// Returns the tokens of a mean rank in a layer of a step.
template <class Load>
double tokens_of_rank(npy::array<Load> const& steps, index_t ranks) {
  auto const sum = std::accumulate(steps.values.begin(), steps.values.end(), 0.0);
  return sum / static_cast<double>(steps.shape[0] * steps.shape[1] * ranks);
}

template <class Cost>
plimsoll::replan_options<Cost> with_cost(plimsoll::replan_options<> const& how, Cost const& cost) {
  return {.on = how.on,
          .split = how.split,
          .cost = cost,
          .horizon = how.horizon,
          .expert_bytes = how.expert_bytes,
          .bandwidths = how.bandwidths,
          .rounds = how.rounds,
          .transfer_share = how.transfer_share,
          .least_steps = least_steps};
}

}  // namespace

decision_outcome decide(npy::any_array const& steps, plan const& before, judged_plans const& plans,
                        decision_request const& request) {
  plimsoll::replan_candidate candidate{.plan = plans.after.placement()};
  if (plans.of_halves) {
    candidate.of_first_half = plans.of_halves->front().placement();
    candidate.of_second_half = plans.of_halves->back().placement();
  }
  return std::visit(
      [&](auto const& array) {
        auto const judge = [&](auto const& cost) {
          return plimsoll::decide_replan(plimsoll::seq, view_of(array), before.placement(),
                                         {candidate}, with_cost(request.how, cost));
        };
        plimsoll::replan_decision const found =
            request.curves ? judge(curve_seconds{request.curves->view()})
                           : judge(plimsoll::moe_cost{.per_token = 1e-6 * request.token_us,
                                                      .flat_below = request.flat_below});
        decision_outcome result{.answer = found.answer,
                                .judged = found.candidates.front(),
                                .steps = found.steps,
                                .step_seconds = found.step_seconds,
                                .possible_seconds = found.possible_seconds,
                                .horizon = request.how.horizon,
                                .rank_tokens = tokens_of_rank(array, before.ranks),
                                .counts_moves = request.counts_moves,
                                .knows_bytes = request.knows_bytes,
                                .flat_below = request.flat_below};
        // A plan is some trouble even if moving costs nothing.
        double const least = least_part * result.step_seconds;
        bool const is_known = found.steps >= least_steps;
        if (is_known &&
            (result.possible_seconds <= least ||
             result.judged.gain_seconds + result.judged.standard_error <= least ||
             (result.answer == replan_answer::move && result.judged.gain_seconds <= least))) {
          result.answer = replan_answer::keep;
        }
        return result;
      },
      steps);
}

std::int64_t decision_outcome::more_steps() const {
  constexpr double most = 1e6;
  auto const have = static_cast<double>(steps);
  double needed = static_cast<double>(least_steps);
  if (steps >= least_steps) {
    // The standard error falls with the square root of the number of steps, until the gain is clear
    // or, where it would not pay, even a larger one would not.
    double const dear = judged.move_seconds / static_cast<double>(horizon);
    double const margin =
        judged.gain_seconds > dear ? judged.gain_seconds : dear - judged.gain_seconds;
    double const ratio = margin > 0 ? judged.standard_error / margin : most;
    needed = std::min(std::ceil(have * ratio * ratio), most);
  }
  return static_cast<std::int64_t>(std::max(1.0, needed - have));
}

std::string decision_outcome::text() const {
  double const saved = judged.gain_seconds;
  std::string const gain = fmt::format(
      "a step {} {} of {} in experts ({:.1f} %, standard error {})", saved < 0 ? "takes" : "saves",
      time_text(std::abs(saved)) + (saved < 0 ? " more" : ""), time_text(step_seconds),
      step_seconds > 0 ? 100 * std::abs(saved) / step_seconds : 0.0,
      time_text(judged.standard_error));
  if (answer == replan_answer::move) {
    return "try it: on steps that such plans were not made from, " + gain +
           (counts_moves && knows_bytes
                ? fmt::format(", and the transfers, {}, pay after {}",
                              time_text(judged.move_seconds), steps_text(judged.break_even_steps))
                : "");
  }
  if (answer == replan_answer::insufficient_evidence) {
    return steps < least_steps
               ? fmt::format("not enough to tell: record {} more step{}, since {} {} load",
                             more_steps(), more_steps() == 1 ? "" : "s", steps,
                             steps == 1 ? "has" : "have")
               : fmt::format("not enough to tell: record {} more step{}, since {}", more_steps(),
                             more_steps() == 1 ? "" : "s", gain);
  }
  if (judged.changes == plimsoll::slot_changes{}) {
    return "not now: the new plan is the one in use";
  }
  if (step_seconds == 0) {
    return "not now: no rank has more tokens than take no time of their own";
  }
  if (possible_seconds <= least_part * step_seconds) {
    return fmt::format(
        "not now: even perfect balance would save only {} of the {} that the "
        "experts take in a step",
        time_text(possible_seconds), time_text(step_seconds));
  }
  if (judged.gain_seconds > least_part * step_seconds) {
    return fmt::format(
        "not now: the transfers, {}, pay only after {}, and the next decision is "
        "after {}",
        time_text(judged.move_seconds), steps_text(judged.break_even_steps),
        steps_text(static_cast<double>(horizon)));
  }
  return "not now: on steps that such plans were not made from, " + gain;
}

std::string decision_outcome::change() const {
  if (answer == replan_answer::insufficient_evidence) {
    return "more steps, of the same traffic";
  }
  if (answer == replan_answer::move) {
    return judged.break_even_steps >= 1 && counts_moves && knows_bytes
               ? fmt::format("decisions every {} or more often",
                             steps_text(judged.break_even_steps))
               : fmt::format(
                     "batches so small that the {:.0f} token copies of a rank in a layer "
                     "take no time of their own (--flat-below)",
                     rank_tokens);
  }
  if (judged.gain_seconds > least_part * step_seconds) {
    return fmt::format("more than {} between decisions (--horizon), or fewer moves (--max-moves)",
                       steps_text(judged.break_even_steps));
  }
  if (flat_below > 0 && rank_tokens <= flat_below) {
    return fmt::format(
        "larger batches: a rank has {:.0f} token copies of a layer, and {:.0f} take "
        "no time of their own",
        rank_tokens, flat_below);
  }
  return "loads that are less equal, or that stay longer as they are";
}

load_file part_of(npy::any_array const& steps, index_t first, index_t last,
                  std::string const& name) {
  return std::visit(
      [&]<class Load>(npy::array<Load> const& array) {
        text_numbers part{byte_store(name),
                          {last - first, array.shape[1], array.shape[2]},
                          std::is_same_v<Load, double>};
        auto const of_step = static_cast<std::size_t>(array.shape[1] * array.shape[2]);
        part.bytes.append({reinterpret_cast<char const*>(array.values.data() +
                                                         static_cast<std::size_t>(first) * of_step),
                           static_cast<std::size_t>(last - first) * of_step * sizeof(Load)});
        return load_file::of_numbers(std::move(part));
      },
      steps);
}

}  // namespace examples
