// SPDX-License-Identifier: Apache-2.0
// CRAFT's algorithms against ours. Cases `a_*` hold slots as algorithm 3 divides them; `b_*` what
// replicas are worth (algorithm 1), how they are divided (algorithm 2, solved as an integer
// program), and a plan.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/slot_assignment.hpp>
#include <plimsoll/systems/craft.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "support/golden.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/replay_case.hpp"
#include "support/slot_oracle.hpp"

namespace plimsoll_test {

/// Recorded steps of a case, and what it says of them.
template <class P>
struct benefit_case {
  golden_case const& golden;
  index_t steps = golden.integer("params.batches");
  index_t layers = golden.integer("params.layers");
  index_t experts = golden.integer("params.experts");
  index_t ranks = golden.integer("params.gpus");
  std::vector<std::int32_t> counts = golden.array<std::int32_t>("replica_counts");
  std::vector<std::int64_t> loads = golden.array<std::int64_t>("W");
  std::vector<double> base = golden.array<double>("base");
  std::vector<double> gain = turned(golden.array<double>("T"));
  array_in<double, P> in{golden.array<double>("W")};

  /// `[counts, layers]` to `[layers, counts]`.
  [[nodiscard]] std::vector<double> turned(std::vector<double> const& values) const {
    std::vector<double> result;
    for (index_t layer = 0; layer < layers; ++layer) {
      for (std::size_t k = 0; k < counts.size(); ++k) {
        result.push_back(values[k * static_cast<std::size_t>(layers) + at(layer)]);
      }
    }
    return result;
  }
  static std::size_t at(index_t i) { return static_cast<std::size_t>(i); }
  static bool near(double a, double b) { return std::abs(a - b) <= 1e-9; }

  /// Balancedness under plans `[rows, copies]` of experts and their ranks, -1 where there is none.
  [[nodiscard]] std::vector<double> replayed(std::vector<std::int32_t> const& expert,
                                             std::vector<std::int32_t> const& rank,
                                             index_t rows) const {
    replay_case c{.steps = steps,
                  .layers = layers,
                  .experts = experts,
                  .slots = static_cast<index_t>(expert.size()) / rows,
                  .ranks = ranks,
                  .plans = rows / layers,
                  .loads = loads};
    c.counts.resize(at(rows * experts), 0);
    for (index_t row = 0; row < rows; ++row) {
      c.offsets.push_back(0);
      for (index_t r = 0; r < ranks; ++r) {
        for (index_t i = row * c.slots; i < (row + 1) * c.slots; ++i) {
          if (rank[at(i)] == r) {
            c.map.push_back(expert[at(i)]);
            ++c.counts[at(row * experts + expert[at(i)])];
          }
        }
        c.offsets.push_back(static_cast<std::int32_t>(std::ssize(c.map) - row * c.slots));
      }
      c.map.resize(at((row + 1) * c.slots), -1);
    }
    return replay_in<P>(c).replay(in.view3(steps, layers, experts));
  }

  /// Checks that every layer's slots are divided as in `expected`, `[layers, ranks]`.
  void check_slots(std::vector<std::int32_t> const& offsets,
                   std::vector<std::int32_t> const& replicas,
                   std::vector<std::int64_t> const& expected) const {
    std::vector<std::int32_t> layer_slots = replicas;
    for (std::int32_t& slots : layer_slots) {
      slots += static_cast<std::int32_t>(experts);
    }
    auto const slots = oracle::from_offsets(offsets, layer_slots, at(ranks));
    std::vector<std::int64_t> all;
    for (auto const& row : slots) {
      all.insert(all.end(), row.begin(), row.end());
    }
    CHECK(all == expected);
  }
};

/// Those whose names begin with the letter.
inline std::vector<golden_case> cases_of(char letter) {
  std::vector<golden_case> result = golden_cases("craft");
  std::erase_if(result, [=](golden_case const& one) { return one.name()[0] != letter; });
  CHECK(result.size() >= 2);
  return result;
}

TEST_SUITE("golden.craft") {
  PLIMSOLL_TEST_CASE("golden: craft, slots", P, PLIMSOLL_POLICIES) {
    for (golden_case const& golden : cases_of('a')) {
      std::string const name = golden.name();
      CAPTURE(name);
      index_t const layers = golden.integer("params.layers");
      index_t const ranks = golden.integer("params.gpus");
      auto const layer_slots = golden.array<std::int32_t>("R");
      array_in<std::int32_t, P> const in(layer_slots);
      array_in<std::int32_t, P> interleaved(layers * (ranks + 1));
      array_in<std::int32_t, P> endpoints(layers * (ranks + 1));
      plimsoll::assign_slots(make_policy<P>(), in.view1(), {.on = {.ranks = ranks}},
                             interleaved.view2(layers, ranks + 1));
      plimsoll::assign_slots(
          make_policy<P>(), in.view1(),
          {.on = {.ranks = ranks}, .remainder = plimsoll::remainder_spread::endpoints},
          endpoints.view2(layers, ranks + 1));
      auto const n = static_cast<std::size_t>(ranks);
      for (auto const* offsets : {&interleaved, &endpoints}) {
        oracle::check_even(oracle::from_offsets(offsets->values(), layer_slots, n),
                           std::vector<std::uint8_t>(n, 1));
      }
      // The matrix was made by the rule of the endpoints.
      std::vector<std::int32_t> slots;
      for (auto const& row : oracle::from_offsets(endpoints.values(), layer_slots, n)) {
        slots.insert(slots.end(), row.begin(), row.end());
      }
      CHECK(slots == golden.array<std::int32_t>("A"));
      report_hash("golden.craft." + name, interleaved.values(), endpoints.values());
    }
  }

  PLIMSOLL_TEST_CASE("golden: craft, what replicas are worth", P, PLIMSOLL_POLICIES) {
    for (golden_case const& golden : cases_of('b')) {
      std::string const name = golden.name();
      CAPTURE(name);
      benefit_case<P> const c{golden};
      auto const width = std::ssize(c.counts);
      // The case's own placements, every one.
      auto const replayed =
          c.replayed(golden.array<std::int32_t>("placed_expert"),
                     golden.array<std::int32_t>("placed_gpu"), (width + 1) * c.layers);
      // Ours, which by the rule of the endpoints have the same slots.
      auto const estimate =
          plimsoll::estimate_gains(make_policy<P>(), c.in.view3(c.steps, c.layers, c.experts),
                                   {.on = {.ranks = c.ranks},
                                    .replica_counts = c.counts,
                                    .remainder = plimsoll::remainder_spread::endpoints});
      for (index_t layer = 0; layer < c.layers; ++layer) {
        CAPTURE(layer);
        double const base = c.base[c.at(layer)];
        CHECK(c.near(replayed[c.at(layer)], base));
        CHECK(c.near(estimate.base[c.at(layer)], base));
        for (index_t k = 0; k < width; ++k) {
          CAPTURE(k);
          double const gain = c.gain[c.at(layer * width + k)];
          CHECK(c.near(replayed[c.at((k + 1) * c.layers + layer)] - replayed[c.at(layer)], gain));
          CHECK(c.near(estimate.gain[c.at(layer * width + k)], gain));
        }
      }
      report_hash("golden.craft." + name + ".gain", estimate.base, estimate.gain, replayed);
    }
  }

  PLIMSOLL_TEST_CASE("golden: craft, who gets replicas", P, PLIMSOLL_POLICIES) {
    for (golden_case const& golden : cases_of('b')) {
      std::string const name = golden.name();
      CAPTURE(name);
      benefit_case<P> const c{golden};
      plimsoll::gain_estimate const estimate{c.counts, c.base, c.gain};
      auto const budgets = golden.array<std::int64_t>("budgets");
      auto const value_of = [&](plimsoll::replica_allocation const& got, bool by_gain) {
        double sum = 0;
        for (std::size_t layer = 0; layer < got.gain.size(); ++layer) {
          sum += by_gain ? got.gain[layer] : got.replicas[layer] * got.gain[layer];
        }
        return sum;
      };
      std::vector<std::int32_t> chosen;
      std::vector<double> curve;
      for (bool const by_gain : {true, false}) {
        std::string const kind = by_gain ? "T" : "rT";
        CAPTURE(kind);
        auto const x = golden.array<std::int32_t>("x_" + kind);
        auto const value = golden.array<double>("value_" + kind);
        auto const exact = golden.array<double>("value_exact_" + kind);
        auto const gap = golden.array<double>("second_gap_" + kind);
        for (std::size_t q = 0; q < budgets.size(); ++q) {
          CAPTURE(budgets[q]);
          plimsoll::craft_options how{.on = {.ranks = c.ranks}, .budget = budgets[q]};
          how.objective = by_gain ? plimsoll::craft_objective::gain
                                  : plimsoll::craft_objective::replicas_times_gain;
          auto const got = plimsoll::allocate_replicas(make_policy<P>(), estimate, how);
          CHECK(c.near(value_of(got, by_gain), value[q]));
          CHECK(got.used <= budgets[q]);
          auto const row = x.begin() + static_cast<std::ptrdiff_t>(q) * c.layers;
          if (gap[q] > 1e-9) {
            CHECK(got.replicas == std::vector<std::int32_t>(row, row + c.layers));
          }
          chosen.insert(chosen.end(), got.replicas.begin(), got.replicas.end());
          curve = got.curve;

          how.fill = plimsoll::knapsack_fill::exactly;
          auto const full = plimsoll::allocate_replicas(make_policy<P>(), estimate, how);
          CHECK(c.near(value_of(full, by_gain), exact[q]));
          CHECK(full.used == budgets[q]);
        }
      }
      // Element R of the curve: R replicas on each rank; the case begins at 1.
      auto const expected = golden.array<double>("factor_curve");
      REQUIRE(curve.size() > expected.size());
      for (std::size_t r = 0; r < expected.size(); ++r) {
        CHECK(c.near(curve[r + 1], expected[r]));
      }
      report_hash("golden.craft." + name + ".allocation", chosen, curve);
    }
  }

  PLIMSOLL_TEST_CASE("golden: craft, plans", P, PLIMSOLL_POLICIES) {
    for (golden_case const& golden : cases_of('b')) {
      std::string const name = golden.name();
      CAPTURE(name);
      benefit_case<P> const c{golden};
      // The case's own plan.
      auto const expected = golden.array<double>("final_balancedness");
      auto const replayed = c.replayed(golden.array<std::int32_t>("final_expert"),
                                       golden.array<std::int32_t>("final_gpu"), c.layers);
      for (std::size_t layer = 0; layer < expected.size(); ++layer) {
        CHECK(c.near(replayed[layer], expected[layer]));
      }

      auto const at = c.at(golden.integer("params.final_budget_index"));
      index_t const budget = golden.array<std::int64_t>("budgets")[at];
      index_t const slots = c.experts + c.counts.back();
      array_in<std::int32_t, P> map(c.layers * slots);
      array_in<std::int32_t, P> offsets(c.layers * (c.ranks + 1));
      array_in<std::int32_t, P> copies(c.layers * c.experts);
      auto const loads = c.in.view3(c.steps, c.layers, c.experts);
      auto const plan =
          plimsoll::craft(make_policy<P>(), loads,
                          {.on = {.ranks = c.ranks},
                           .budget = budget,
                           .replica_counts = c.counts,
                           .remainder = plimsoll::remainder_spread::endpoints},
                          map.view2(c.layers, slots), offsets.view2(c.layers, c.ranks + 1),
                          copies.view2(c.layers, c.experts));
      auto const x = golden.array<std::int32_t>("x_T");
      auto const row = x.begin() + static_cast<std::ptrdiff_t>(at) * c.layers;
      CHECK(c.near(std::accumulate(plan.allocation.gain.begin(), plan.allocation.gain.end(), 0.0),
                   golden.array<double>("value_T")[at]));
      CHECK(golden.array<double>("second_gap_T")[at] > 1e-9);
      CHECK(plan.allocation.replicas == std::vector<std::int32_t>(row, row + c.layers));
      c.check_slots(offsets.values(), plan.allocation.replicas,
                    golden.array<std::int64_t>("A_final"));
      array_in<double, P> balancedness(c.layers);
      plimsoll::replay(
          make_policy<P>(), loads,
          plimsoll::placement_ref{map.view2(c.layers, slots), copies.view2(c.layers, c.experts),
                                  c.ranks, offsets.view2(c.layers, c.ranks + 1)},
          {}, balancedness.view2(1, c.layers));
      auto const ours = balancedness.values();
      for (std::size_t layer = 0; layer < expected.size(); ++layer) {
        CHECK(c.near(ours[layer], expected[layer]));
      }
      report_hash("golden.craft." + name + ".plan", map.values(), offsets.values(), copies.values(),
                  ours);
    }
  }
}

}  // namespace plimsoll_test
