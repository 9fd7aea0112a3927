// SPDX-License-Identifier: Apache-2.0
// Output of both programs; an engine needs none of this.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/execution.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/metrics.hpp>
#include <plimsoll/views.hpp>
#include <vector>

#include "arrays.hpp"
#include "command_line.hpp"
#include "layer.hpp"

namespace capacity_mask_example {

using ids_ref = plimsoll::matrix_ref<std::int32_t const>;

/// Prints the tokens of every expert, and the imbalance of experts and of ranks.
inline void print_loads(char const* title, options const& o, ids_ref ids) {
  std::vector<std::int64_t> experts(static_cast<std::size_t>(o.experts));
  std::vector<std::int64_t> ranks(static_cast<std::size_t>(o.ranks));
  for (index_t i = 0; i < ids.extent(0) * ids.extent(1); ++i) {
    if (std::int32_t const e = ids(i / ids.extent(1), i % ids.extent(1)); e >= 0) {
      ++experts[static_cast<std::size_t>(e)];
      ++ranks[static_cast<std::size_t>(((e + 1) * o.ranks - 1) / o.experts)];
    }
  }
  auto const imbalance = [](std::vector<std::int64_t> const& loads) {
    auto const of_layer =
        plimsoll::measure(plimsoll::seq, plimsoll::array_ref(loads, 1, loads.size()));
    return of_layer.view()[0].imbalance;
  };
  std::printf("%-14s %8.3f %7.3f  ", title, imbalance(experts), imbalance(ranks));
  for (std::int64_t const load : experts) {
    std::printf(" %5lld", static_cast<long long>(load));
  }
  std::printf("\n");
}

/// Returns the per cent of choices that image tokens (0) or text tokens (1) lost.
inline double lost(step_ref const& step, options const& o, index_t kind) {
  double choices = 0;
  double gone = 0;
  for (index_t token = kind; token < o.tokens; token += 2) {
    for (index_t j = 0; j < o.top_k; ++j) {
      ++choices;
      gone += step.kept.ids(token, j) < 0 ? 1 : 0;
    }
  }
  return choices == 0 ? 0 : 100 * gone / choices;
}

/// Tells whether every token has the outputs of the experts that kept it, computed without rows.
inline bool is_right(step_ref const& step) {
  bool right = true;
  for (index_t token = 0; token < step.x.extent(0); ++token) {
    for (index_t h = 0; h < hidden; ++h) {
      double y = step.x(token, h);
      for (index_t j = 0; j < step.kept.ids.extent(1); ++j) {
        if (std::int32_t const e = step.kept.ids(token, j); e >= 0) {
          y += double{step.kept.weights(token, j)} * expert_function(e, step.x(token, h));
        }
      }
      right = right && std::abs(y - step.y(token, h)) <= 1e-5 * (1 + std::abs(y));
    }
  }
  return right;
}

inline void print_title(options const& o, index_t capacity) {
  std::printf("%d tokens, each to %d of %d experts, on %d ranks; limit: %lld%s\n\n", o.tokens,
              o.top_k, o.experts, o.ranks, static_cast<long long>(capacity),
              o.level == "rank" ? " times its experts for every rank" : " for every expert");
  std::printf("                   peak / mean    tokens of expert\n");
  std::printf("                experts   ranks  ");
  for (int e = 0; e < o.experts; ++e) {
    std::printf(" %5d", e);
  }
  std::printf("\n");
}

/// Prints a finished step on the host; returns whether outputs are right. `routed`: choices,
/// [tokens, top_k].
inline bool print_step(int number, step_ref const& step, options const& o, ids_ref routed) {
  char title[32];
  std::snprintf(title, sizeof title, "step %d before", number);
  print_loads(title, o, routed);
  print_loads("       after", o, step.kept.ids);
  bool const right = is_right(step);
  plimsoll::capacity_report const& report = *step.kept.report;
  std::printf("       dropped %.1f %% of the choices", 100 * report.dropped_fraction);
  if (o.priority) {
    std::printf(", %.1f %% of images' and %.1f %% of text's", lost(step, o, 0), lost(step, o, 1));
  }
  if (o.expanded) {
    std::printf(", took up %lld others", static_cast<long long>(report.kept - report.kept_choices));
  }
  std::printf("; outputs are %s\n", right ? "right" : "WRONG");
  return right;
}

/// Runs and prints all steps; `work()` runs or enqueues one. Returns whether all outputs are right.
template <class Policy, class Work>
bool run_steps(options const& o, Policy const& policy, plimsoll::token_drop<Policy>& drop,
               step_arrays<Policy>& arrays, Work work) {
  print_title(o, drop.capacity(o.tokens));
  step_arrays<plimsoll::seq_policy> printed(plimsoll::seq, o);
  bool good = true;
  for (int number = 1; number <= o.steps; ++number) {
    arrays.fill(number);
    work();
    printed.copy(arrays);
    plimsoll::array_ref const routed(drop.routed_ids(o.tokens).data, o.tokens * drop.width());
    auto const ids = plimsoll::read(policy, routed);
    plimsoll::array_ref choices(ids, o.tokens, drop.width());
    choices.extents[1] = o.top_k;  // without expanded candidates
    good = print_step(number, printed.view(), o, choices) && good;
  }
  return good;
}

}  // namespace capacity_mask_example
