// SPDX-License-Identifier: Apache-2.0
// The figures that plan_experts prints, against their definitions.
#include "../evaluation.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "../outcome_json.hpp"
#include "../outcome_table.hpp"
#include "../ranked_values.hpp"
#include "loads_of.hpp"

using namespace examples;
using loads_tests::compare;

namespace {

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Makes a plan with every slot filled, every expert present, and ranks of unequal size.
plan uneven_plan() {
  plan p(2, 4, 3, 7);
  p.layer_ids = {3, 5};
  p.rank_offsets = {0, 1, 4, 7, 0, 3, 5, 6};
  p.physical_to_logical = {0, 1, 2, 0, 3, 0, 1, 3, 2, -1, 1, 0, 0, -1};
  p.replica_count = {3, 2, 1, 1, 2, 1, 1, 1};
  return p;
}

npy::array<std::int64_t> random_loads(std::int64_t steps, std::int64_t layers, std::int64_t experts,
                                      std::uint32_t seed) {
  std::mt19937 random(seed);
  npy::array<std::int64_t> loads{{steps, layers, experts}, {}};
  for (std::int64_t i = 0; i < steps * layers * experts; ++i) {
    loads.values.push_back(random() % 1000);
  }
  return loads;
}

/// Returns the rank loads of one layer, [ranks], by their definition.
std::vector<double> rank_loads(std::int64_t const* loads, plan const& p, std::int64_t layer) {
  std::vector<double> result;
  for (std::int64_t rank = 0; rank < p.ranks; ++rank) {
    double sum = 0;
    auto const offset = index(layer * (p.ranks + 1) + rank);
    for (auto slot = p.rank_offsets[offset]; slot < p.rank_offsets[offset + 1]; ++slot) {
      auto const expert = p.physical_to_logical[index(layer * p.slots + slot)];
      if (expert >= 0) {
        sum +=
            static_cast<double>(loads[expert]) / p.replica_count[index(layer * p.experts + expert)];
      }
    }
    result.push_back(sum);
  }
  return result;
}

/// Balancedness of rows, and of their sums, by the definition.
struct measured_rows {
  std::vector<double> balancedness;
  double means = 0;
  double peaks = 0;

  void add(std::vector<double> const& loads) {
    double const sum = std::accumulate(loads.begin(), loads.end(), 0.0);
    double const mean = sum / static_cast<double>(loads.size());
    double const peak = *std::max_element(loads.begin(), loads.end());
    balancedness.push_back(peak == 0 ? 1 : mean / peak);
    means += mean;
    peaks += peak;
  }
};

void check_statistics(balance_statistics const& s, measured_rows const& rows, plan const& p) {
  CHECK(s.ratio_of_sums == doctest::Approx(rows.means / rows.peaks));
  CHECK(s.peaks == doctest::Approx(rows.peaks));
  std::vector<double> values = rows.balancedness;
  double const sum = std::accumulate(values.begin(), values.end(), 0.0);
  CHECK(s.mean == doctest::Approx(sum / static_cast<double>(values.size())));
  auto const worst = std::min_element(values.begin(), values.end());
  CHECK(s.worst == doctest::Approx(*worst));
  // The first of those that are equally bad, but for the rounding of an optimal split.
  auto const is_worst = [&](double value) { return value <= *worst + 1e-12; };
  auto row = std::find_if(values.begin(), values.end(), is_worst) - values.begin();
  while (row + 1 < std::ssize(values) && is_worst(values[index(row + 1)]) &&
         (s.worst_layer != p.layer_ids[index(row % p.layers)] || s.worst_step != row / p.layers)) {
    ++row;
  }
  CHECK(s.worst_layer == p.layer_ids[index(row % p.layers)]);
  CHECK(s.worst_step == row / p.layers);
  std::sort(values.begin(), values.end());
  // At least a twentieth of the values are at or below it, and no smaller value has this property.
  auto const below = std::count_if(values.begin(), values.end(), [&](double value) {
    return value < s.fifth_percentile - 1e-12;
  });
  auto const reached = std::count_if(values.begin(), values.end(), [&](double value) {
    return value <= s.fifth_percentile + 1e-12;
  });
  CHECK(20 * below < static_cast<std::ptrdiff_t>(values.size()));
  CHECK(20 * reached >= static_cast<std::ptrdiff_t>(values.size()));
}

/// Returns the peak of an optimal split of a layer: for some set of ranks, the load of the experts
/// that only they hold, divided by their number (max-flow min-cut).
double optimal_peak(std::int64_t const* loads, plan const& p, std::int64_t layer) {
  std::vector<unsigned> holders(index(p.experts), 0);
  for (std::int64_t rank = 0; rank < p.ranks; ++rank) {
    auto const placement = p.placement();
    for (auto slot = placement.rank_offsets(layer, rank);
         slot < placement.rank_offsets(layer, rank + 1); ++slot) {
      std::int32_t const expert = placement.physical_to_logical(layer, slot);
      if (expert >= 0) {
        holders[index(expert)] |= 1u << rank;
      }
    }
  }
  double peak = 0;
  for (unsigned set = 1; set < 1u << p.ranks; ++set) {
    double confined = 0;
    for (std::int64_t expert = 0; expert < p.experts; ++expert) {
      confined += (holders[index(expert)] & ~set) == 0 ? static_cast<double>(loads[expert]) : 0.0;
    }
    peak = std::max(peak, confined / std::popcount(set));
  }
  return peak;
}

void check_measured(measured_plan const& m, npy::array<std::int64_t> const& loads, plan const& p) {
  auto const steps = loads.shape[0];
  std::vector<std::int64_t> total(index(p.layers * p.experts));
  measured_rows of_steps;
  measured_rows of_layers;
  measured_rows optimal;
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::int64_t layer = 0; layer < p.layers; ++layer) {
      auto const* row = loads.values.data() + (step * p.layers + layer) * p.experts;
      of_steps.add(rank_loads(row, p, layer));
      double const mean =
          static_cast<double>(std::accumulate(row, row + p.experts, std::int64_t{0})) /
          static_cast<double>(p.ranks);
      double const peak = optimal_peak(row, p, layer);
      optimal.balancedness.push_back(peak == 0 ? 1 : mean / peak);
      optimal.means += mean;
      optimal.peaks += peak;
      for (std::int64_t expert = 0; expert < p.experts; ++expert) {
        total[index(layer * p.experts + expert)] += row[expert];
      }
    }
  }
  for (std::int64_t layer = 0; layer < p.layers; ++layer) {
    auto const expected = rank_loads(total.data() + layer * p.experts, p, layer);
    of_layers.add(expected);
    CHECK(m.balancedness[index(layer)] == doctest::Approx(of_layers.balancedness.back()));
    for (std::int64_t rank = 0; rank < p.ranks; ++rank) {
      CHECK(m.rank_loads[index(layer * p.ranks + rank)] == doctest::Approx(expected[index(rank)]));
    }
  }
  check_statistics(m.summed, of_layers, p);
  check_statistics(m.optimal, optimal, p);
  CHECK(m.per_step.has_value() == (steps > 1));
  if (m.per_step) {
    check_statistics(*m.per_step, of_steps, p);
  }
}

/// Curves of three ranks: a staircase up to 600 tokens, linear beyond; the second rank takes twice
/// as long.
curve_samples uneven_curves() {
  return {{200, 400, 600, 1000}, {10, 15, 25, 45}, 600, {1, 0.5, 1}};
}

double latency_of(std::int64_t rank, double load) {
  double const tokens = std::ceil(load - 1e-6);  // thirds do not add up
  double const alone = tokens == 0     ? 0
                       : tokens <= 200 ? 10
                       : tokens <= 400 ? 15
                       : tokens <= 600 ? 25
                                       : 25 + (tokens - 600) / 400 * 20;
  return rank == 1 ? 2 * alone : alone;
}

void check_latency(latency_statistics const& s, npy::array<std::int64_t> const& loads,
                   plan const& p) {
  auto const steps = loads.shape[0];
  std::vector<double> values;
  std::vector<double> of_layers(index(p.layers));
  std::vector<double> of_ranks(index(p.layers * p.ranks));
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::int64_t layer = 0; layer < p.layers; ++layer) {
      auto const* row = loads.values.data() + (step * p.layers + layer) * p.experts;
      auto const carried = rank_loads(row, p, layer);
      double last = 0;
      for (std::int64_t rank = 0; rank < p.ranks; ++rank) {
        double const latency = latency_of(rank, carried[index(rank)]);
        of_ranks[index(layer * p.ranks + rank)] += latency / static_cast<double>(steps);
        last = std::max(last, latency);
      }
      values.push_back(last);
      of_layers[index(layer)] += last / static_cast<double>(steps);
    }
  }
  REQUIRE(s.of_layers.size() == of_layers.size());
  REQUIRE(s.of_ranks.size() == of_ranks.size());
  for (std::size_t i = 0; i < of_layers.size(); ++i) {
    CHECK(s.of_layers[i] == doctest::Approx(of_layers[i]));
  }
  for (std::size_t i = 0; i < of_ranks.size(); ++i) {
    CHECK(s.of_ranks[i] == doctest::Approx(of_ranks[i]));
  }
  double const sum = std::accumulate(values.begin(), values.end(), 0.0);
  CHECK(s.mean == doctest::Approx(sum / static_cast<double>(values.size())));
  auto const worst = std::max_element(values.begin(), values.end()) - values.begin();
  CHECK(s.worst == doctest::Approx(values[index(worst)]));
  CHECK(s.worst_layer == p.layer_ids[index(worst % p.layers)]);
  CHECK(s.worst_step == worst / p.layers);
  std::sort(values.begin(), values.end());
  std::size_t at = 0;  // the smallest value that nineteen of twenty do not exceed
  while (20 * (at + 1) < 19 * values.size()) {
    ++at;
  }
  CHECK(s.ninety_fifth_percentile == doctest::Approx(values[at]));
}

outcome small_outcome() {
  outcome result{
      .planner = "eplb", .refinement = "none", .policy = "seq", .before_name = "trivial"};
  result.expert_bytes = 1 << 20;
  result.milliseconds = 0.25;
  result.runs = 5;
  result.before = trivial_plan(2, 4, 2, 6);
  result.after = trivial_plan(2, 4, 2, 6);
  npy::array<std::int64_t> const loads{{2, 2, 4}, {8, 2, 2, 4, 0, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 0}};
  result.comparisons.push_back(compare("a.npy", loads, result.before, result.after));
  npy::array<double> const other{{1, 2, 4}, {1, 1, 1, 1, 0.5, 0, 0, 0}};
  result.comparisons.push_back(compare("b.npy", other, result.before, result.after));
  return result;
}

/// Makes results for two layers on two ranks; the second layer has replicas.
craft_outcome small_craft() {
  return {.chosen = "automatic",
          .replicas_per_rank = 1,
          .steps = 2,
          .filled = {2, 2},
          .estimate = {{1, 2}, {0.5, 0.25}, {0.125, 0.0625, 0.25, 0.5}},
          .allocation = {{0, 2}, {0, 0.5}, {0, 0.5, 0.625}, 1, 2, 2}};
}

/// Makes results for two layers and four steps.
gem_outcome small_gem() {
  gem_outcome result{.latency = "c.json", .curves = {}, .trace_length = 4, .restarts = 30};
  result.steps = {4, 4};
  result.layers.resize(2);
  result.layers[0].value = 40;
  result.layers[0].lower_bound = 32;
  result.layers[0].work = 7;
  result.layers[1].value = result.layers[1].lower_bound = 50;
  result.layers[1].work = 9;
  return result;
}

}  // namespace

TEST_CASE("evaluation: rank loads and statistics by their definitions") {
  for (std::int64_t const steps : {1, 2, 13}) {
    CAPTURE(steps);
    plan const p = uneven_plan();
    auto const loads = random_loads(steps, 2, 4, static_cast<std::uint32_t>(steps));
    plan const trivial = trivial_plan(2, 4, 3, 7);
    auto const compared = compare("x.npy", loads, trivial, p);
    CHECK(compared.loads == "x.npy");
    CHECK(compared.steps == steps);
    check_measured(compared.before, loads, trivial);
    check_measured(compared.after, loads, p);
  }
  auto const twenty = random_loads(2, 20, 8, 1);
  plan const q = trivial_plan(20, 8, 4, 12);
  check_measured(compare("x.npy", twenty, q, q).after, twenty, q);
  auto const many = random_loads(3, 45, 8, 1);
  plan const p = trivial_plan(45, 8, 4, 12);
  check_measured(compare("x.npy", many, p, p).after, many, p);
}

TEST_CASE("evaluation: a layer without load is left out") {
  npy::array<double> const loads{{1, 2, 4}, {0, 0, 0, 0, 1, 2, 3, 4}};
  plan const p = trivial_plan(2, 4, 2, 4);
  auto const m = compare("x.npy", loads, p, p).after;
  CHECK(m.balancedness[0] == 1);
  CHECK(m.balancedness[1] == doctest::Approx(5.0 / 7));
  CHECK(m.summed.worst_layer == 1);
  CHECK(m.summed.fifth_percentile == m.balancedness[1]);
  CHECK(m.summed.mean == m.balancedness[1]);
}

namespace {

/// Returns `loads` as a recorder's ring buffer of `size` steps holds them: unfilled steps are zero,
/// and the last `turned` steps come first.
npy::array<std::int64_t> ring_of(npy::array<std::int64_t> const& loads, std::int64_t size,
                                 std::int64_t turned) {
  auto const of_step = loads.shape[1] * loads.shape[2];
  npy::array<std::int64_t> ring{{size, loads.shape[1], loads.shape[2]},
                                std::vector<std::int64_t>(index(size * of_step), 0)};
  for (std::int64_t step = 0; step < loads.shape[0]; ++step) {
    std::copy_n(loads.values.begin() + step * of_step, of_step,
                ring.values.begin() + (step + turned) % size * of_step);
  }
  return ring;
}

}  // namespace

TEST_CASE("evaluation: a recorder's ring buffer has the figures of its filled steps") {
  plan const p = uneven_plan();
  plan const trivial = trivial_plan(2, 4, 3, 7);
  curve_samples const curves = uneven_curves();
  auto const loads = random_loads(13, 2, 4, 5);
  auto const alone = compare("x.npy", loads, trivial, p, curves.view());
  struct {
    std::int64_t size;
    std::int64_t turned;
  } const rings[] = {{1000, 0}, {13, 5}, {40, 33}};
  for (auto const& shape : rings) {
    std::int64_t const size = shape.size;
    std::int64_t const turned = shape.turned;
    CAPTURE(size);
    auto const ring = compare("x.npy", ring_of(loads, size, turned), trivial, p, curves.view());
    CHECK(ring.steps == size);
    CHECK(ring.empty_steps == size - 13);
    CHECK(ring.filled_steps() == 13);
    for (auto const side : {&comparison::before, &comparison::after}) {
      measured_plan const& got = ring.*side;
      measured_plan const& expected = alone.*side;
      CHECK(got.summed.mean == expected.summed.mean);
      CHECK(got.per_step->mean == doctest::Approx(expected.per_step->mean).epsilon(1e-14));
      CHECK(got.per_step->ratio_of_sums ==
            doctest::Approx(expected.per_step->ratio_of_sums).epsilon(1e-14));
      CHECK(got.per_step->fifth_percentile == expected.per_step->fifth_percentile);
      CHECK(got.per_step->worst == expected.per_step->worst);
      CHECK(got.per_step->worst_layer == expected.per_step->worst_layer);
      CHECK(got.per_step->worst_step == (expected.per_step->worst_step + turned) % size);
      CHECK(got.latency->mean == doctest::Approx(expected.latency->mean).epsilon(1e-14));
      CHECK(got.latency->ninety_fifth_percentile == expected.latency->ninety_fifth_percentile);
      for (std::size_t i = 0; i < expected.latency->of_ranks.size(); ++i) {
        CHECK(got.latency->of_ranks[i] ==
              doctest::Approx(expected.latency->of_ranks[i]).epsilon(1e-14));
      }
    }
  }
}

TEST_CASE("evaluation: a layer without load in some steps is measured in the others") {
  // The second layer has load only in the second step.
  npy::array<std::int64_t> const loads{{2, 2, 4}, {8, 2, 2, 4, 0, 0, 0, 0, 0, 2, 2, 0, 9, 1, 1, 1}};
  plan const p = trivial_plan(2, 4, 2, 4);
  auto const m = compare("x.npy", loads, p, p).after;
  CHECK(m.per_step->mean == doctest::Approx((0.8 + 1 + 0.6) / 3));
  CHECK(m.per_step->worst_step == 1);
  CHECK(m.per_step->worst_layer == 1);
}

TEST_CASE("evaluation: the k-th value, in memory and in a file") {
  for (std::size_t const count : {1U, 2U, 1000U, 1200000U}) {  // 8 MiB hold 1048576
    CAPTURE(count);
    ranked_values values("x");
    std::vector<double> expected;
    std::mt19937 random(3);
    for (std::size_t i = 0; i < count; ++i) {
      expected.push_back(static_cast<double>(random() % 5000) / 7);
      values.add(expected.back());
    }
    std::sort(expected.begin(), expected.end());
    REQUIRE(values.count() == count);
    for (std::size_t const rank : {std::size_t{0}, count / 20, count / 2, count - 1}) {
      CHECK(values.at(rank) == expected[rank]);
    }
  }
}

TEST_CASE("evaluation: latencies by their definition") {
  curve_samples const curves = uneven_curves();
  plan const p = uneven_plan();
  for (std::int64_t const steps : {1, 2, 9, 10, 13, 20, 31}) {
    CAPTURE(steps);
    auto const loads = random_loads(steps, 2, 4, static_cast<std::uint32_t>(steps));
    plan const trivial = trivial_plan(2, 4, 3, 7);
    auto const compared = compare("x.npy", loads, trivial, p, curves.view());
    REQUIRE(compared.before.latency.has_value());
    REQUIRE(compared.after.latency.has_value());
    check_latency(*compared.before.latency, loads, trivial);
    check_latency(*compared.after.latency, loads, p);
    check_measured(compared.after, loads, p);
    CHECK_FALSE(compare("x.npy", loads, trivial, p).after.latency.has_value());
  }
  // A curve for every rank.
  curve_samples const rows{
      {200, 400, 600, 1000}, {10, 15, 25, 45, 20, 30, 50, 90, 10, 15, 25, 45}, 600};
  auto const loads = random_loads(5, 2, 4, 1);
  check_latency(compare("x.npy", loads, p, p, rows.view()).after.latency.value(), loads, p);
}

TEST_CASE("evaluation: latencies are 0 without load") {
  npy::array<std::int64_t> const loads{{2, 2, 4}, std::vector<std::int64_t>(16, 0)};
  plan const p = uneven_plan();
  auto const latency = compare("x.npy", loads, p, p, uneven_curves().view()).after.latency.value();
  check_latency(latency, loads, p);
  CHECK(latency.mean == 0);
  CHECK(latency.worst == 0);
}

TEST_CASE("outcome: the table") {
  // Slots 0 1 2 | 3 0 1. Layer 0 of a.npy has 7 and 9 in step 0, 3 and 1 in step 1, so 10 and 10 in
  // the sum. Its layer 1 is idle.
  CHECK(table_of(small_outcome()) ==
        R"(2 layers (0 to 1) of 4 experts on 2 ranks of 3 slots: 2 extra replicas a layer

balancedness of the ranks                      mean  5th percentile    worst
a.npy, sum of 2 steps               before   1.0000          1.0000   1.0000  in layer 0
                                    after    1.0000          1.0000   1.0000  in layer 0
a.npy, step by step                 before   0.7778          0.6667   0.6667  in layer 0, step 1
                                    after    0.7778          0.6667   0.6667  in layer 0, step 1
a.npy, step by step, optimal split  before   1.0000          1.0000   1.0000  in layer 0, step 0
                                    after    1.0000          1.0000   1.0000  in layer 0, step 0
b.npy                               before   1.0000          1.0000   1.0000  in layer 0
                                    after    1.0000          1.0000   1.0000  in layer 0
b.npy, optimal split                before   1.0000          1.0000   1.0000  in layer 0
                                    after    1.0000          1.0000   1.0000  in layer 0

layers without load, left out: 1
weights of the fullest rank: 6.00 MiB, of which replicas cost 2.00 MiB
before: slot i holds expert i mod 4
planned in 0.250 ms (eplb, seq, median of 5)
)");
}

TEST_CASE("outcome: the table of a plan that was read, or refined on nodes") {
  outcome result = small_outcome();
  result.comparisons.pop_back();
  result.comparisons[0].steps = 1;
  result.expert_bytes.reset();
  result.comparisons[0].expert_loads.assign(8, 1);
  result.before = result.after = uneven_plan();
  result.before_name = "old.json";
  auto const last_lines = [&] {
    std::string const table = table_of(result);
    return table.substr(0, table.find('\n')) + table.substr(table.rfind("\n\n") + 1);
  };
  result.hierarchical = true;
  result.groups = 4;
  result.nodes = 2;
  result.refinement = "joint";
  CHECK(last_lines() ==
        "2 layers (3 to 5, not all) of 4 experts on 3 ranks with 6 to 7 slots a layer: 4 extra "
        "replicas in all\n"
        "before: old.json\n"
        "planned in 0.250 ms (eplb, 4 groups on 2 nodes, refined by joint, seq, "
        "median of 5)\n");
  result.milliseconds.reset();
  result.before_name = "trivial";
  CHECK(last_lines() ==
        "2 layers (3 to 5, not all) of 4 experts on 3 ranks with 6 to 7 slots a layer: 4 extra "
        "replicas in all\n"
        "before: slot i holds expert i mod 4; after: the plan as it was read\n");
}

TEST_CASE("outcome: the table describes the replicas of craft") {
  outcome result = small_outcome();
  result.planner = "craft";
  result.craft = small_craft();
  auto const lines = [&] {
    std::string const table = table_of(result);
    auto const first = table.find("replicas: ");
    return table.substr(first, table.find("\n\n", first) + 1 - first);
  };
  CHECK(lines() ==
        "replicas: 1 on each rank over all layers (chosen at the knee), 2 in all, all used\n"
        "slots of a rank over all layers: 6\n"
        "replicas of a layer: 0 in 1 layer, 2 in 1\n"
        "planned from 2 steps, all held in memory: 128 B\n"
        "mean balancedness step by step: 0.3750 without replicas, 0.6250 expected with them, "
        "0.7778 measured\n");
  result.craft->chosen = "budget_bytes";
  result.craft->budget_bytes = 3 << 19;
  result.craft->replicas_per_rank = 2;
  result.craft->allocation.budget = 4;
  result.after = uneven_plan();  // ranks of 4, 5 and 4 slots
  result.comparisons.resize(1);
  result.comparisons[0].before.per_step.reset();
  result.comparisons[0].after.per_step.reset();
  result.comparisons[0].steps = 1;
  CHECK(lines() ==
        "replicas: 2 on each rank over all layers (as many as 1.50 MiB hold; the knee is at 1), "
        "4 in all, 2 used\n"
        "slots of a rank over all layers: 4 to 5\n"
        "replicas of a layer: 0 in 1 layer, 2 in 1\n"
        "planned from 2 steps, all held in memory: 128 B\n"
        "mean balancedness: 0.3750 without replicas, 0.6250 expected with them, 1.0000 measured\n");
  CHECK(choice_text(
            {.chosen = "replicas_per_rank", .replicas_per_rank = 3, .allocation = {.knee = 3}}) ==
        "as asked, which is the knee");
  CHECK(choice_text(
            {.chosen = "replicas_per_rank", .replicas_per_rank = 3, .allocation = {.knee = 4}}) ==
        "as asked; the knee is at 4");
}

TEST_CASE("outcome: craft's figures leave out steps in which a layer has no load") {
  // The library counts them as balanced: the second layer has 0.5 in the one step with load.
  craft_outcome c = small_craft();
  c.steps = 4;
  c.filled = {4, 1};
  c.estimate.base = {0.5, (0.5 + 3) / 4};
  c.estimate.gain = {0.125, 0.0625, 0.0625, 0.125};
  c.allocation.gain = {0, 0.125};
  leave_empty_steps_out(c);
  CHECK(c.estimate.base == std::vector<double>{0.5, 0.5});
  CHECK(c.estimate.gain == std::vector<double>{0.125, 0.0625, 0.25, 0.5});
  CHECK(c.allocation.gain == std::vector<double>{0, 0.5});
  CHECK(c.mean_base() == 0.5);
  CHECK(c.mean_expected() == 0.6);
  CHECK(c.mean_with(0.125) == 0.6);  // the sum of the layers' gains over all four steps
}

TEST_CASE("outcome: the table shows latencies and the trace of gem") {
  outcome result = small_outcome();
  result.planner = "gem";
  result.gem = small_gem();
  result.comparisons[0].before.latency = latency_statistics{.mean = 40.123,
                                                            .worst = 60,
                                                            .worst_layer = 1,
                                                            .worst_step = 1,
                                                            .ninety_fifth_percentile = 50};
  result.comparisons[0].after.latency = latency_statistics{.mean = 30.456, .worst = 35};
  result.comparisons[1].before.latency = latency_statistics{.mean = 10};
  result.comparisons[1].after.latency = latency_statistics{.mean = 11, .worst_layer = 1};
  // A lower balancedness is not reported as worse if gem planned by latency.
  result.comparisons[0].after.per_step->mean = 0.5;
  std::string const table = table_of(result);
  CHECK(table.substr(table.find("latency of")) ==
        R"(latency of a layer in a step, us               mean 95th percentile    worst
a.npy                               before    40.12           50.00    60.00  in layer 1, step 1
                                    after     30.46            0.00    35.00  in layer 0, step 0
b.npy                               before    10.00            0.00     0.00  in layer 0
                                    after     11.00            0.00     0.00  in layer 1

planned from the last 4 of 2 steps, 30 searches a layer: mean latency 11.25 us, lower bound 10.25 us

on b.npy the plan is slower than before: 11.00 instead of 10.00 us
layers without load, left out: 1
weights of the fullest rank: 6.00 MiB, of which replicas cost 2.00 MiB
before: slot i holds expert i mod 4
planned in 0.250 ms (gem, seq, median of 5)
)");
}

TEST_CASE("outcome: the table reports a plan that is worse than the one before") {
  outcome result = small_outcome();
  auto& other = result.comparisons[1];
  other.after.summed.mean = other.before.summed.mean - 0.25;
  CHECK(table_of(result).find(
            "\non b.npy the plan is worse than before: 0.7500 instead of 1.0000\n") !=
        std::string::npos);
  // Steps are served one by one, so their figures decide, not those of the sum.
  auto& first = result.comparisons[0];
  first.after.summed.mean = 0;
  CHECK(table_of(result).find("on a.npy") == std::string::npos);
  first.after.per_step->mean = 0.5;
  CHECK(table_of(result).find(
            "\non a.npy the plan is worse than before: 0.5000 instead of 0.7778\n") !=
        std::string::npos);
}

TEST_CASE("outcome: the JSON file has all measurements") {
  outcome const result = small_outcome();
  std::ostringstream out;
  write_outcome(out, result);
  auto const json = nlohmann::json::parse(out.str());
  CHECK(json.at("format") == "plimsoll-result");
  CHECK(json.at("version") == 1);
  CHECK(json.at("planner") == "eplb");
  CHECK(json.at("split") == "even");
  CHECK(json.at("selected").is_null());
  CHECK(json.at("planning_milliseconds") == 0.25);
  CHECK(json.at("layer_ids") == nlohmann::json({0, 1}));
  CHECK(json.at("expert_bytes") == 1 << 20);
  CHECK(json.at("after").at("bytes_of_fullest_rank") == 6 << 20);
  CHECK(json.at("after").at("extra_replicas") == nlohmann::json({2, 2}));
  CHECK(json.at("after").at("replica_count") == nlohmann::json({{2, 2, 1, 1}, {2, 2, 1, 1}}));
  auto const& first = json.at("comparisons").at(0);
  CHECK(first.at("loads") == "a.npy");
  CHECK(first.at("steps") == 2);
  CHECK(first.at("expert_loads") == nlohmann::json({{8.0, 4.0, 4.0, 4.0}, {0.0, 0.0, 0.0, 0.0}}));
  for (std::size_t i = 0; i < 2; ++i) {
    auto const& measured = result.comparisons[i].after;
    auto const& written = json.at("comparisons").at(i).at("after");
    CHECK(written.at("balancedness") == measured.balancedness);
    CHECK(written.at("rank_loads").at(0).at(1) == measured.rank_loads[1]);
    CHECK(written.at("rank_loads").at(1).at(0) == measured.rank_loads[2]);
    CHECK(written.at("summed").at("mean") == measured.summed.mean);
    CHECK(written.at("summed").at("fifth_percentile") == measured.summed.fifth_percentile);
    CHECK(written.at("summed").at("ratio_of_sums") == measured.summed.ratio_of_sums);
    CHECK(written.at("summed").at("worst_step").is_null());
    CHECK(written.at("optimal_split").at("mean") == measured.optimal.mean);
    CHECK(written.at("optimal_split").at("worst") == measured.optimal.worst);
    CHECK(written.at("optimal_split").at("worst_step").is_null() == (i == 1));
    CHECK(written.at("per_step").is_null() == !measured.per_step.has_value());
    if (measured.per_step) {
      CHECK(written.at("per_step").at("worst_step") == measured.per_step->worst_step);
    }
  }
}

TEST_CASE("outcome: the JSON file has all results of craft") {
  outcome result = small_outcome();
  auto const json = [&] {
    std::ostringstream out;
    write_outcome(out, result);
    return nlohmann::json::parse(out.str()).at("craft");
  };
  CHECK(json().is_null());
  result.craft = small_craft();
  CHECK(json() == nlohmann::json({{"chosen", "automatic"},
                                  {"budget_bytes", nullptr},
                                  {"replicas_per_rank", 1},
                                  {"steps", 2},
                                  {"knee", 1},
                                  {"budget", 2},
                                  {"used", 2},
                                  {"mean_base", 0.375},
                                  {"mean_expected", 0.625},
                                  {"replicas", {0, 2}},
                                  {"expected_gain", {0.0, 0.5}},
                                  {"curve", {0.0, 0.5, 0.625}},
                                  {"replica_counts", {1, 2}},
                                  {"base", {0.5, 0.25}},
                                  {"gain", {{0.125, 0.0625}, {0.25, 0.5}}}}));
  result.craft->budget_bytes = 6'000'000'000;
  CHECK(json().at("budget_bytes") == 6'000'000'000);
}

TEST_CASE("outcome: candidates of auto") {
  outcome result = small_outcome();
  result.planner = "auto";
  result.split = plimsoll::split_rule::optimal;
  result.selected = selection{{{"flow_optimal", 0.75, 0.125, ""},
                               {"eplb", 0.8125, 0, ""},
                               {"eplb_spread", 0, 0, "no room"},
                               {"flow_even", 0, 0, ""}},
                              1};
  std::ostringstream out;
  write_outcome(out, result);
  auto const json = nlohmann::json::parse(out.str());
  CHECK(json.at("split") == "optimal");
  CHECK(json.at("selected").at("chosen") == "eplb");
  auto const& candidates = json.at("selected").at("candidates");
  CHECK(candidates.size() == 4);
  CHECK(candidates.at(0) == nlohmann::json({{"name", "flow_optimal"},
                                            {"balancedness", 0.75},
                                            {"standard_error", 0.125},
                                            {"error", nullptr}}));
  CHECK(candidates.at(2).at("error") == "no room");
  CHECK(candidates.at(2).at("balancedness").is_null());
  CHECK(candidates.at(3).at("balancedness").is_null());
  std::string const table = table_of(result);
  CHECK(table.find("planner chosen: eplb\n"
                   "mean balancedness of steps that a plan had not seen, optimal split:\n"
                   "  flow_optimal  0.7500\n"
                   "  eplb          0.8125\n"
                   "  eplb_spread   no room\n"
                   "  flow_even     not judged\n") != std::string::npos);
  // The verdict and losses count the split in use.
  result.comparisons[1].after.optimal.mean = 0.875;
  result.comparisons[1].before.optimal.mean = 0.5;
  CHECK(verdict_of(result).find("rises from 0.5000 to 0.8750 on b.npy, split optimally") !=
        std::string::npos);
  result.comparisons[1].before.optimal.mean = 0.9375;
  CHECK(table_of(result).find("on b.npy the plan is worse than before: 0.8750 instead of 0.9375") !=
        std::string::npos);
  result.planner = "flow";
  CHECK(table_of(result).find("a plan had not seen, optimal split: 0.7500\n") != std::string::npos);
}

TEST_CASE("outcome: a refinement without effect on other loads") {
  outcome result = small_outcome();
  result.refinement = "joint";
  result.comparisons[1].after.summed.mean = 0.75;
  CHECK(warnings_of(result).empty());
  result.unrefined_mean = 0.7495;
  REQUIRE(warnings_of(result).size() == 1);
  CHECK(warnings_of(result)[0] ==
        "--refine joint changes nothing unseen: mean balancedness on b.npy is 0.7500, and 0.7495 "
        "without it");
  result.unrefined_mean = 0.74;
  CHECK(warnings_of(result).empty());
}

TEST_CASE("outcome: the JSON file has all results of gem") {
  outcome result = small_outcome();
  auto const json = [&] {
    std::ostringstream out;
    write_outcome(out, result);
    return nlohmann::json::parse(out.str());
  };
  CHECK(json().at("gem").is_null());
  CHECK(json().at("comparisons").at(1).at("after").at("latency_us").is_null());
  result.gem = small_gem();
  result.comparisons[1].after.latency = latency_statistics{
      .mean = 11,
      .worst = 12,
      .worst_layer = 1,
      .worst_step = 3,
      .ninety_fifth_percentile = 11.5,
      .of_layers = {10, 12},
      .of_ranks = {10, 5, 6, 12},
  };
  CHECK(json().at("gem") == nlohmann::json({{"latency", "c.json"},
                                            {"trace_length", 4},
                                            {"restarts", 30},
                                            {"mean_us", 11.25},
                                            {"mean_bound_us", 10.25},
                                            {"latency_us", {10.0, 12.5}},
                                            {"lower_bound_us", {8.0, 12.5}},
                                            {"swaps", {7, 9}}}));
  CHECK(json().at("comparisons").at(1).at("after").at("latency_us") ==
        nlohmann::json({{"mean", 11.0},
                        {"ninety_fifth_percentile", 11.5},
                        {"worst", 12.0},
                        {"worst_layer", 1},
                        {"worst_step", 3},
                        {"of_layers", {10.0, 12.0}},
                        {"of_ranks", {{10.0, 5.0}, {6.0, 12.0}}}}));
}

TEST_CASE("outcome: the JSON file is valid although a file name is not UTF-8") {
  outcome result = small_outcome();
  result.comparisons[0].loads = "caf\xe9.npy";
  std::ostringstream out;
  write_outcome(out, result);
  CHECK(nlohmann::json::accept(out.str()));
}
