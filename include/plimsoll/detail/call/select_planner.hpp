// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `select_planner`: checks, lists the candidates, judges plans on the half of a history
/// that they were not made from, and chooses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/select_planner.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/history.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/call/slots.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/exact_math.hpp>
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
  for (planner const one : options.candidates) {
    expect_between(name, "options.candidates", 0, static_cast<index_t>(planner::eplb_joint),
                   static_cast<index_t>(one), "as a planner");
  }
}

/// Checks that a candidate's plan is one for the model, ranks and slots asked for; `validate`
/// checks the rest.
template <class Context>
void expect_planned(std::string_view name, Context const& context, placement_ref const& plan,
                    index_t layers, index_t experts, index_t slots,
                    select_planner_options const& options) {
  expect_extent(name, "plan", layers, plan.physical_to_logical.extent(0), "layers");
  expect_extent(name, "plan", slots, plan.physical_to_logical.extent(1), "slots");
  expect_extent(name, "plan", experts, plan.replica_count.extent(1), "experts");
  expect_extent(name, "plan", options.on.ranks, plan.ranks, "ranks");
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
    index_t const at = differs.first - got.begin();
    fail(name, "plan.rank_offsets", text("those of options, ", *differs.second),
         text(*differs.first, " in layer ", at / (plan.ranks + 1), ", rank ",
              at % (plan.ranks + 1)));
  }
}

inline std::vector<planner> candidates_of(select_planner_options const& options) {
  if (!options.candidates.empty()) {
    return options.candidates;
  }
  bool const even = options.split == split_rule::even;
  return {even ? planner::flow_even : planner::flow_optimal,
          even ? planner::flow_optimal : planner::flow_even, planner::eplb, planner::eplb_shrunk,
          planner::eplb_spread};
}

inline std::string name_of(planner one) {
  constexpr char const* names[] = {"flow_optimal", "flow_even",   "eplb",
                                   "eplb_shrunk",  "eplb_spread", "eplb_joint"};
  return names[static_cast<std::size_t>(one)];
}

inline bool is_flow(planner one) {
  return one == planner::flow_optimal || one == planner::flow_even;
}

inline eplb_options eplb_options_of(planner one, select_planner_options const& options) {
  bool const shrinks = one == planner::eplb_shrunk || one == planner::eplb_joint;
  bool const spreads = one == planner::eplb_spread;
  return {.on = options.on,
          .rank_offsets = options.rank_offsets,
          .refine = one == planner::eplb_joint ? eplb_refinement::joint : eplb_refinement::none,
          .load_exponent = shrinks ? options.load_exponent : 1.0,
          .replica_anti_affinity = spreads ? anti_affinity::rank : anti_affinity::none,
          .anti_affinity_strength = spreads ? strictness::required : strictness::preferred};
}

/// Balancedness of a candidate in every layer and half of the history.
struct judged_candidate {
  planner_report report = {};
  /// `[halves, layers]`, without layers that have no load in one of them.
  std::vector<double> balancedness = {};
};

/// Returns the candidates of the options and, after them, those of the caller.
inline std::vector<judged_candidate> candidates_named(std::vector<planner> const& kinds,
                                                      std::vector<std::string> const& more) {
  std::vector<judged_candidate> all(kinds.size() + more.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].report.name = i < kinds.size() ? name_of(kinds[i]) : more[i - kinds.size()];
  }
  return all;
}

/// Appends the mean over the steps with load to the balancedness of a candidate: `replay` counts
/// the other steps as 1. `seen` and `loaded` count the steps in which each layer has load in the
/// half of the plan and in the other one.
inline void append_loaded(std::vector<double> const& mean, std::vector<std::int64_t> const& seen,
                          std::vector<std::int64_t> const& loaded, index_t steps,
                          std::vector<double>& balancedness) {
  for (std::size_t layer = 0; layer < mean.size(); ++layer) {
    auto const idle = static_cast<double>(steps - loaded[layer]);
    if (loaded[layer] > 0 && seen[layer] > 0) {
      double const sum = add(multiply(mean[layer], static_cast<double>(steps)), -idle);
      balancedness.push_back(divide(sum, static_cast<double>(loaded[layer])));
    }
  }
}

/// Completes the reports, and returns the first candidate that is within one standard error of the
/// best; none: -1.
inline index_t choose_candidate(std::vector<judged_candidate>& all) {
  judged_candidate const* best = nullptr;
  for (judged_candidate& one : all) {
    if (one.report.error.empty()) {
      one.report.balancedness = mean_difference(one.balancedness, {}).mean;
      best = best == nullptr || one.report.balancedness > best->report.balancedness ? &one : best;
    }
  }
  index_t chosen = -1;
  for (std::size_t i = 0; i < all.size(); ++i) {
    judged_candidate& one = all[i];
    if (one.report.error.empty()) {
      mean_difference const behind(best->balancedness, one.balancedness);
      one.report.standard_error = behind.standard_error;
      // If a single layer differs, both are equal but for rounding.
      if (chosen < 0 && behind.mean <= multiply(behind.standard_error, 1 + 0x1p-40)) {
        chosen = static_cast<index_t>(i);
      }
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
  for (judged_candidate& one : all) {
    result.candidates.push_back(std::move(one.report));
  }
  return result;
}

/// Returns the number of steps in which each layer has load.
template <class Context, class Loads>
std::vector<std::int64_t> loaded_steps(Context const& context, Loads const& loads) {
  buffer<std::int64_t, Context> const loaded(context, loads.extent(1));
  launch(context, loads.extent(1), loaded_steps_body<Loads>{loads, loaded.data()});
  return loaded.read();
}

/// Plans with every candidate on each half of a history and judges the plan on the other half.
/// `balancedness_of(i, seen, unseen)` is the balancedness of every layer in unseen steps, under a
/// plan of candidate i from seen steps.
template <class Context, class Loads, class Judge>
void judge_halves(Context const& context, Loads const& load, Judge const& balancedness_of,
                  std::vector<judged_candidate>& all) {
  index_t const steps = load.extent(0);
  index_t const middle = steps / 2;
  auto const first = part_of(load, 0, middle);
  auto const second = part_of(load, middle, steps - middle);
  if (middle == 0) {
    return;
  }
  std::vector<std::int64_t> const loaded[] = {loaded_steps(context, first),
                                              loaded_steps(context, second)};
  for (index_t half = 0; half < 2; ++half) {
    auto const& seen = half == 0 ? first : second;
    auto const& unseen = half == 0 ? second : first;
    for (std::size_t i = 0; i < all.size(); ++i) {
      planner_report& report = all[i].report;
      if (!report.error.empty()) {
        continue;
      }
      try {
        append_loaded(balancedness_of(i, seen, unseen), loaded[half], loaded[1 - half],
                      unseen.extent(0), all[i].balancedness);
      } catch (invalid_input const& error) {
        report.error = error.what();
      }
    }
  }
}

}}}  // namespace plimsoll::detail
