// SPDX-License-Identifier: Apache-2.0
// Masks of Token Drop and Expanded Drop as the paper's algorithms 1 and 2 make them.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/capacity_mask.hpp>
#include <plimsoll/systems/token_drop.hpp>
#include <plimsoll/top_k.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "support/generators.hpp"
#include "support/golden.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"

namespace plimsoll_test {

/// One batch, and what one column of the case does with it.
struct capacity_run {
  index_t tokens;
  index_t experts;
  index_t top_k;
  index_t added;  ///< local experts of a home
  std::vector<float> const& logits;
  std::vector<std::int32_t> const& local;  ///< [homes, added]
  std::int32_t home = -1;                  ///< whose local experts are offered; -1: none
  plimsoll::capacity_options limit = {};

  [[nodiscard]] index_t width() const { return top_k + (home >= 0 ? added : 0); }
};

struct capacity_outcome {
  index_t capacity;
  std::vector<std::int32_t> routed;
  std::vector<std::int32_t> kept;
  std::vector<float> weights;
  std::vector<std::int32_t> counts;
  plimsoll::capacity_report report;
};

/// From logits by `token_drop`, or by `top_k` and `capacity_mask`.
template <class P>
capacity_outcome outcome_of(capacity_run const& run, bool in_one) {
  auto const policy = make_policy<P>();
  array_in<float, P> const logits(run.logits);
  array_in<std::int32_t, P> const local(run.local);
  array_in<std::int32_t, P> const homes(run.tokens, run.home);
  array_in<std::int32_t, P> ids(run.tokens * run.width());
  array_in<float, P> weights(run.tokens * run.width());
  array_in<std::int32_t, P> counts(run.experts);
  array_in<plimsoll::capacity_report, P> report(1);
  auto const ids_view = ids.view2(run.tokens, run.width());
  auto const weights_view = weights.view2(run.tokens, run.width());
  plimsoll::kept_pairs kept;
  kept.ids = ids_view;
  kept.weights = weights_view;
  kept.counts = counts.view1();
  kept.report = report.view1();
  plimsoll::top_k_options route{.k = run.top_k, .function = plimsoll::score_function::softmax};
  if (run.home >= 0) {
    route.local_experts = local.view2(std::ssize(run.local) / run.added, run.added);
  }
  capacity_outcome result;
  auto const read = [&](auto& mask, std::vector<std::int32_t> routed) {
    result = {mask.capacity(run.tokens), std::move(routed), ids.values(),
              weights.values(),          counts.values(),   report.values()[0]};
  };
  if (in_one) {
    plimsoll::token_drop drop(policy, {.route = route, .limit = run.limit});
    drop.apply(logits.view2(run.tokens, run.experts), {.homes = homes.view1()}, kept);
    plimsoll::vector_ref<std::int32_t const> const routed(drop.routed_ids(run.tokens).data,
                                                          ids.size());
    read(drop, plimsoll::read(policy, routed));
  } else {
    plimsoll::capacity_options limit = run.limit;
    limit.top_k = run.top_k;
    limit.candidates = run.width();
    plimsoll::capacity_mask mask(policy, limit);
    route.homes = homes.view1();
    plimsoll::top_k(policy, logits.view2(run.tokens, run.experts), route, ids_view, weights_view);
    std::vector<std::int32_t> const routed = ids.values();
    mask.apply(ids_view, weights_view, kept);
    read(mask, routed);
  }
  return result;
}

// What a case checks is compiled once, for all policies.
inline void check_capacity(golden_case const& golden,
                           capacity_outcome (*outcome_of)(capacity_run const&, bool)) {
  using counts_list = std::vector<std::int64_t>;
  std::string const name = golden.name();
  CAPTURE(name);
  auto const logits = golden.array<float>("logits");
  auto const local = golden.array<std::int32_t>("local_ids");
  auto const chosen = golden.array<std::int32_t>("topk_ids");
  auto const load = golden.array<std::int64_t>("expert_load");
  auto const gammas = golden.array<double>("gammas");
  auto const capacities = golden.array<std::int64_t>("capacity");
  auto const offsets = golden.array<std::int64_t>("kept_offsets");
  auto const kept_count = golden.array<std::int64_t>("kept_count");
  auto const stored = golden.array<std::int32_t>("kept_stored");
  auto const over_exact = golden.array<double>("dropped_fraction_eq11");
  auto const over_whole = golden.array<double>("dropped_fraction_int_cap");
  capacity_run run{golden.integer("params.tokens"),
                   golden.integer("params.experts"),
                   golden.integer("params.top_k"),
                   golden.integer("params.local_count"),
                   logits,
                   local};
  auto const homes = static_cast<std::int32_t>(golden.integer("params.num_homes"));

  struct column {
    std::string name;
    plimsoll::drop_policy keep;
    bool by_rank;
    std::int32_t home;
  };
  std::vector<column> columns;
  for (std::int32_t first : {-1, 0}) {
    for (auto const& [rule, keep] : {std::pair("score", plimsoll::drop_policy::score),
                                     std::pair("order", plimsoll::drop_policy::order),
                                     std::pair("reverse", plimsoll::drop_policy::reverse_order),
                                     std::pair("device", plimsoll::drop_policy::score)}) {
      for (std::int32_t home = first; home < (first < 0 ? 0 : homes); ++home) {
        columns.push_back({(home < 0 ? "td_" : "ed_") + std::string(rule) +
                               (home < 0 ? "" : "_h" + std::to_string(home)),
                           keep, rule == std::string("device"), home});
      }
    }
  }
  REQUIRE(kept_count.size() == gammas.size() * columns.size());

  constexpr std::size_t stride = 4 / cases_of(4);  // of the factors, each with some column
  fnv1a hash;
  for (std::size_t at = 0; at < columns.size(); ++at) {
    column const& now = columns[at];
    CAPTURE(now.name);
    // Of some large masks there is only their size.
    bool any_stored = false;
    for (std::size_t i = 0; i < gammas.size(); ++i) {
      any_stored = any_stored || stored[i * columns.size() + at] != 0;
    }
    std::vector<std::int32_t> masks;
    if (any_stored) {
      masks = golden.array<std::int32_t>("kept_" + now.name);
    }
    run.home = now.home;
    for (std::size_t i = at % stride; i < gammas.size(); i += stride) {
      CAPTURE(gammas[i]);
      run.limit = plimsoll::literal_token_drop(
          {.experts = run.experts, .max_tokens = run.tokens, .factor = gammas[i]});
      run.limit.drop_by = now.keep;
      run.limit.ranks = now.by_rank ? golden.integer("params.devices") : 0;
      auto const mask_begin = masks.begin() + offsets[at * (gammas.size() + 1) + i];
      auto const mask_end = masks.begin() + offsets[at * (gammas.size() + 1) + i + 1];
      for (bool const in_one : {true, false}) {
        CAPTURE(in_one);
        capacity_outcome const got = outcome_of(run, in_one);
        // More than there are tokens is as much as all.
        CHECK(got.capacity == std::min<std::int64_t>(capacities[i], run.tokens));

        std::vector<std::int32_t> choices;
        counts_list choices_of(load.size(), 0);
        std::vector<std::int32_t> mask;
        std::vector<std::int32_t> counts(load.size(), 0);
        std::int64_t sentinels = 0;
        for (std::size_t pair = 0; pair < got.kept.size(); ++pair) {
          auto const width = static_cast<std::size_t>(run.width());
          if (pair % width < static_cast<std::size_t>(run.top_k)) {
            choices.push_back(got.routed[pair]);
            ++choices_of.at(static_cast<std::size_t>(got.routed[pair]));
          }
          if (std::int32_t const e = got.kept[pair]; e != -1) {
            ++counts.at(static_cast<std::size_t>(e));
            mask.push_back(static_cast<std::int32_t>(pair / width) *
                               static_cast<std::int32_t>(run.experts) +
                           e);
          } else {
            sentinels += got.weights[pair] == 0;
          }
        }
        std::sort(mask.begin(), mask.end());
        CHECK(choices == chosen);
        CHECK(choices_of == load);
        std::int64_t const expected = kept_count[i * columns.size() + at];
        CHECK(std::ssize(mask) == expected);
        CHECK(sentinels == std::ssize(got.kept) - expected);
        if (stored[i * columns.size() + at] != 0) {
          CHECK(mask == std::vector<std::int32_t>(mask_begin, mask_end));
        }
        CHECK(got.counts == counts);
        CHECK(got.report.kept == expected);
        CHECK(got.report.choices == run.tokens * run.top_k);
        if (now.home < 0 && !now.by_rank) {
          CHECK(std::fabs(got.report.overflow_fraction - over_exact[i]) <= 1e-12);
          CHECK(std::fabs(got.report.dropped_fraction - over_whole[i]) <= 1e-12);
        }
        hash.add(got.kept);
        hash.add(got.weights);
        hash.add(got.counts);
        hash.add(got.report.dropped_fraction);
        hash.add(got.report.overflow_fraction);
      }
    }
  }
  report_hash_value("golden.capacity." + name, hash.value());
}

TEST_SUITE("golden.capacity") {
  PLIMSOLL_TEST_CASE("golden: capacity", P, PLIMSOLL_PREPARED_POLICIES) {
    for (golden_case const& golden : golden_cases("capacity")) {
      check_capacity(golden, outcome_of<P>);
    }
  }
}

}  // namespace plimsoll_test
