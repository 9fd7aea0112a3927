// SPDX-License-Identifier: Apache-2.0
/// @file
/// Planning of `select_planner`: checks, lists the candidates, judges plans on the half of a
/// history that they were not made from, and chooses.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/migration.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/call/slots.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/planning/judge.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/systems/eplb_types.hpp>
#include <plimsoll/systems/select_planner_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void expect_select_planner(std::string_view name, index_t steps, index_t layers,
                                  index_t experts, index_t slots,
                                  select_planner_options const& options) {
  expect_between(name, "loads", 1, 0x7fffffff, steps, "steps");
  expect_between(name, "loads", 1, expert_limit, experts, "experts");
  expect_between(name, "slots", experts, expert_limit, slots, "slots (at least one per expert)");
  expect_rank_set(name, options.on);
  expect_no_speeds(name, options.on, "balancedness counts tokens");
  expect_rank_offsets(name, "options.rank_offsets", options.rank_offsets, layers, options.on.ranks);
  expect_load_exponent(name, "options", options.load_exponent);
  expect_enumerator(name, "options.split", split_rule::optimal, options.split);
  for (planner const kind : options.candidates) {
    expect_enumerator(name, "options.candidates", planner::eplb_joint, kind);
  }
  for (double const exponent : options.flow_exponents) {
    if (!(exponent > 0 && exponent <= 1)) {
      fail(name, "options.flow_exponents", "values above 0 and at most 1", text(exponent));
    }
  }
  expect_move_price(name, options.move_price);
  if (options.in_use.physical_to_logical.data != nullptr) {
    expect_migrated(name, "options.in_use", options.in_use);
    expect_shape(name, "options.in_use", {layers, slots, experts, options.on.ranks},
                 options.in_use);
  }
}

/// Checks that a candidate's plan is one for the model, ranks and slots asked for; `validate`
/// checks the rest.
template <class Context>
void expect_planned(std::string_view name, Context const& context, placement_ref const& plan,
                    index_t layers, index_t experts, index_t slots,
                    select_planner_options const& options) {
  expect_shape(name, "plan", {layers, slots, experts, options.on.ranks}, plan);
  if (plan.rank_offsets.data == nullptr && options.rank_offsets.data == nullptr) {
    return;
  }
  expect_rank_offsets(name, "plan.rank_offsets", plan.rank_offsets, layers, plan.ranks);
  auto const begins = [&](matrix_ref<std::int32_t const> const& offsets) {
    return offsets.data != nullptr ? rows_on_host(context, offsets)
                                   : even_begins(layers, slots, plan.ranks);
  };
  auto const got = begins(plan.rank_offsets);
  auto const asked = begins(options.rank_offsets);
  auto const differs = std::mismatch(got.begin(), got.end(), asked.begin());
  if (differs.first != got.end()) {
    index_t const offset = differs.first - got.begin();
    fail(name, "plan.rank_offsets", text("those of options, ", *differs.second),
         text(*differs.first, " in layer ", offset / (plan.ranks + 1), ", rank ",
              offset % (plan.ranks + 1)));
  }
}

/// A candidate that the options name.
struct named_planner {
  planner kind;
  double load_exponent = 1;
  bool is_in_use = false;
};

inline bool is_flow(planner kind) {
  return kind == planner::flow_optimal || kind == planner::flow_even;
}

inline std::vector<named_planner> candidates_of(select_planner_options const& options) {
  bool const even = options.split == split_rule::even;
  std::vector<planner> kinds = options.candidates;
  if (kinds.empty()) {
    kinds = {even ? planner::flow_even : planner::flow_optimal,
             even ? planner::flow_optimal : planner::flow_even, planner::eplb, planner::eplb_shrunk,
             planner::eplb_spread};
  }
  std::vector<named_planner> result;
  if (options.in_use.physical_to_logical.data != nullptr) {
    result.push_back({planner::eplb, 1, true});
  }
  for (planner const kind : kinds) {
    result.push_back({kind});
    for (double const exponent : options.flow_exponents) {
      if (kind == (even ? planner::flow_even : planner::flow_optimal)) {
        result.push_back({kind, exponent});
      }
    }
  }
  return result;
}

inline std::string name_of(named_planner const& candidate) {
  constexpr char const* names[] = {"flow_optimal", "flow_even",   "eplb",
                                   "eplb_shrunk",  "eplb_spread", "eplb_joint"};
  std::string const name =
      candidate.is_in_use ? "in_use" : names[static_cast<std::size_t>(candidate.kind)];
  return candidate.load_exponent == 1 ? name : text(name, "^", candidate.load_exponent);
}

inline eplb_options eplb_options_of(planner kind, select_planner_options const& options) {
  bool const shrinks = kind == planner::eplb_shrunk || kind == planner::eplb_joint;
  bool const spreads = kind == planner::eplb_spread;
  return {.on = options.on,
          .rank_offsets = options.rank_offsets,
          .refine = kind == planner::eplb_joint ? eplb_refinement::joint : eplb_refinement::none,
          .load_exponent = shrinks ? options.load_exponent : 1.0,
          .replica_anti_affinity = spreads ? anti_affinity::rank : anti_affinity::none,
          .anti_affinity_strength = spreads ? strictness::required : strictness::preferred};
}

/// Samples of a candidate, one per block of steps, half of the history, and layer that has load in
/// the block and in the other half.
struct judged_candidate {
  planner_report report = {};
  std::vector<double> balancedness = {};
  std::vector<double> net = {};  ///< balancedness less the price of the moves
  std::vector<double> moves = {};
  bool is_dropped = false;  ///< too far behind to be judged on all steps

  [[nodiscard]] bool is_judged() const { return report.error.empty() && !is_dropped; }
};

/// Returns the candidates of the options and, after them, those of the caller.
inline std::vector<judged_candidate> candidates_named(std::vector<named_planner> const& kinds,
                                                      std::vector<std::string> const& more) {
  std::vector<judged_candidate> all(kinds.size() + more.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].report.name = i < kinds.size() ? name_of(kinds[i]) : more[i - kinds.size()];
  }
  return all;
}

/// Adds samples of a block of steps: the mean balancedness of every layer that has load in it and
/// in the steps that the plan was made from. `moves` are those of the plan, or empty.
inline void add_samples(host_list<step_balance> const& steps, host_list<std::int64_t> const& seen,
                        std::vector<index_t> const& moves, double move_price,
                        judged_candidate& to) {
  std::size_t const layers = seen.size();
  for (std::size_t layer = 0; layer < layers; ++layer) {
    double sum = 0;
    double count = 0;
    for (std::size_t i = layer; i < steps.size(); i += layers) {
      if (steps[i].has_load()) {
        sum = add(sum, steps[i].balancedness());
        count += 1;
      }
    }
    if (count > 0 && seen[layer] > 0) {
      to.balancedness.push_back(divide(sum, count));
      to.moves.push_back(moves.empty() ? 0.0 : static_cast<double>(moves[layer]));
      to.net.push_back(add(to.balancedness.back(), -multiply(move_price, to.moves.back())));
    }
  }
  to.report.steps += static_cast<index_t>(steps.size() / layers);
}

/// Returns the candidate with the largest mean of the net balancedness; none: null.
inline judged_candidate const* best_of(std::vector<judged_candidate> const& all) {
  judged_candidate const* best = nullptr;
  double most = 0;
  for (judged_candidate const& candidate : all) {
    double const mean = mean_difference(candidate.net, {}).mean;
    if (candidate.is_judged() && (best == nullptr || mean > most)) {
      best = &candidate;
      most = mean;
    }
  }
  return best;
}

/// Returns by how much a candidate is behind the best in the samples that both have.
inline mean_difference behind(judged_candidate const& best, judged_candidate const& candidate) {
  auto const common = std::min(std::ssize(best.net), std::ssize(candidate.net));
  auto const part = [common](std::vector<double> const& net) {
    return std::vector<double>(net.begin(), net.begin() + common);
  };
  return {part(best.net), part(candidate.net)};
}

/// Drops candidates that are behind the best by more than 4 standard errors.
inline void drop_far_behind(std::vector<judged_candidate>& all) {
  constexpr std::size_t least_samples = 16;
  judged_candidate const* const best = best_of(all);
  for (judged_candidate& candidate : all) {
    if (best != nullptr && candidate.is_judged() && candidate.net.size() >= least_samples) {
      mean_difference const off = behind(*best, candidate);
      // Means that differ by rounding are equal.
      candidate.is_dropped = off.mean > add(multiply(4.0, off.standard_error), 0x1p-40);
    }
  }
}

/// Completes the reports, and returns the first candidate that is within one standard error of the
/// best; none: -1. Candidates that were dropped count if all others failed.
inline index_t choose_candidate(std::vector<judged_candidate>& all) {
  judged_candidate const* best = best_of(all);
  if (best == nullptr) {
    for (judged_candidate& candidate : all) {
      candidate.is_dropped = false;
    }
    best = best_of(all);
  }
  index_t chosen = -1;
  for (std::size_t i = 0; i < all.size(); ++i) {
    judged_candidate& candidate = all[i];
    if (!candidate.report.error.empty()) {
      continue;
    }
    candidate.report.balancedness = mean_difference(candidate.balancedness, {}).mean;
    candidate.report.moves = mean_difference(candidate.moves, {}).mean;
    if (best == nullptr) {
      continue;
    }
    mean_difference const off = behind(*best, candidate);
    candidate.report.standard_error = off.standard_error;
    // If a single layer differs, both are equal but for rounding.
    if (chosen < 0 && !candidate.is_dropped &&
        off.mean <= multiply(off.standard_error, 1 + 0x1p-40)) {
      chosen = static_cast<index_t>(i);
    }
  }
  return chosen;
}

/// Plans with the chosen candidate; if it fails, with the next best, and if none was judged, with
/// the first that does not fail.
template <class Result, class Plan>
Result plan_with_chosen(std::string_view name, std::vector<judged_candidate>& all,
                        Plan const& plan_with) {
  Result result;
  auto const succeeds = [&](std::size_t i) {
    planner_report& report = all[i].report;
    report.error.clear();
    try {
      static_cast<typename Result::base&>(result) = plan_with(i);
      result.chosen = static_cast<index_t>(i);
    } catch (invalid_input const& error) {
      report.error = error.what();
    }
    return report.error.empty();
  };
  index_t chosen = choose_candidate(all);
  bool found = false;
  for (std::size_t i = 0; chosen < 0 && !found && i < all.size(); ++i) {
    found = succeeds(i);
  }
  while (chosen >= 0 && !found) {
    found = succeeds(static_cast<std::size_t>(chosen));
    chosen = found ? chosen : choose_candidate(all);
  }
  if (!found) {
    fail(name, "candidates", "one that can plan these loads", all.front().report.error);
  }
  for (judged_candidate& candidate : all) {
    result.candidates.push_back(std::move(candidate.report));
  }
  return result;
}

/// Number of blocks in which a half of a history is judged.
inline index_t judged_blocks(index_t steps) { return std::clamp<index_t>(steps / 64, 1, 4); }

/// A candidate's plan.
template <class Placement>
struct made_plan {
  Placement plan = {};
  std::vector<index_t> moves = {};  ///< of every layer from the plan in use; empty: none
};

/// Plans with every candidate on each half of the steps with load and judges the plan on the other,
/// block by block. `plan(i, seen)` makes the plan of a candidate from the seen steps of a half.
template <class Placement, class Context, class Loads, class Plan>
void judge_halves(step_judge<Context> const& judge, loaded_steps const& loaded, Loads const& load,
                  double move_price, Plan const& plan, std::vector<judged_candidate>& all) {
  std::array<history_part, 2> const halves = loaded.halves();
  if (halves[0].count == 0) {
    return;
  }
  auto const attempt = [](judged_candidate& candidate, auto const& f) {
    if (candidate.is_judged()) {
      try {
        f();
      } catch (invalid_input const& error) {
        candidate.report.error = error.what();
      }
    }
  };
  std::vector<made_plan<Placement>> plans[2];  // of each half
  for (std::size_t half = 0; half < 2; ++half) {
    plans[half].resize(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      attempt(all[i], [&] { plans[half][i] = plan(i, part_of(load, halves[half])); });
    }
  }
  index_t const blocks = judged_blocks(halves[0].count);
  for (index_t block = 0; block < blocks; ++block) {
    for (std::size_t half = 0; half < 2; ++half) {
      host_list<std::int64_t> const seen = loaded.count(halves[half]);
      auto const [first, count] = halves[1 - half];
      index_t const begin = count * block / blocks;
      auto const part = part_of(load, {first + begin, count * (block + 1) / blocks - begin});
      for (std::size_t i = 0; i < all.size(); ++i) {
        attempt(all[i], [&] {
          auto const& made = plans[half][i];
          add_samples(judge.judge(part, made.plan.ref()).read({}), seen, made.moves, move_price,
                      all[i]);
        });
      }
    }
    if (block + 1 < blocks) {
      drop_far_behind(all);
    }
  }
}

}}}  // namespace plimsoll::detail
