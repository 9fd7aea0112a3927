// SPDX-License-Identifier: Apache-2.0
// Prints the costs of every goal and every call of a system on a device, as far as they can be
// counted without one, and compares them with the limits in tests/costs/calls.txt.
#include <plimsoll/execution.hpp>

#include "counting.hpp"
// The inputs must come after the overloads of `launch`.
#include <plimsoll/plimsoll.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#define PLIMSOLL_BENCH_INPUTS_ONLY
#include "../../../bench/inputs.hpp"
#include "../../../bench/split_inputs.hpp"

namespace device_costs { namespace {

using plimsoll::matrix_ref, plimsoll::tensor_ref, plimsoll::vector_ref;
using namespace plimsoll_bench;

/// Limits of a call.
struct call_limits {
  index_t launches = 0;
  index_t transfers = 0;  ///< memsets and copies
  index_t series = 0;     ///< calls and queue steps on the longest problem of each launch, summed
  index_t kibibytes = 0;  ///< of arrays and global scratch
};

/// Limit of steps of one function, except in the bodies that calls.txt names.
constexpr index_t step_limit = 64;

std::map<std::string, call_limits> limits_of;
std::map<std::string, index_t> step_limits;
std::vector<std::string> named;  ///< in the file of limits
struct excess {
  index_t value = 0;
  index_t limit = 0;
};
/// The largest excess of every figure that is above its limit, such as "eplb: launches".
std::map<std::string, excess> excesses;
std::vector<std::string> complaints;

/// A call, or consecutive calls of an engine.
struct measured {
  std::string name;
  std::size_t arguments = 0;  ///< bytes of inputs and outputs
  std::size_t kept = 0;       ///< bytes that a prepared object keeps
  recorder costs = {};

  [[nodiscard]] index_t in_series() const {
    index_t sum = 0;
    for (launch_cost const& launch : costs.launches) {
      sum += launch.in_series();
    }
    return sum;
  }
};

std::vector<measured> all;

template <class... T>
std::size_t bytes_of(std::vector<T> const&... arrays) {
  return (0 + ... + (arrays.size() * sizeof(T)));
}

/// Returns the bytes of global scratch of launches whose scratch does not fit in shared memory.
std::size_t scratch_of(recorder const& costs) {
  std::size_t bytes = 0;
  for (launch_cost const& launch : costs.launches) {
    if (launch.scratch > shared_memory) {
      bytes += static_cast<std::size_t>(launch.problems) * launch.scratch;
    }
  }
  return bytes;
}

template <class T>
matrix_ref<T> rows_of(std::vector<T>& elements, index_t columns) {
  return {elements.data(), std::ssize(elements) / columns, columns};
}
template <class T>
vector_ref<T> row_of(std::vector<T>& elements) {
  return {elements.data(), std::ssize(elements)};
}
template <class T>
vector_ref<T const> row_of(std::vector<T> const& elements) {
  return {elements.data(), std::ssize(elements)};
}

void measure_eplb() {
  constexpr index_t layers = 58;
  constexpr index_t experts = 256;
  constexpr index_t slots = 320;
  std::vector<std::int32_t> const loads = lognormal_loads(layers, experts);
  std::vector<std::int32_t> map(layers * slots);
  std::vector<std::int32_t> counts(layers * experts);
  measured& m = all.emplace_back("eplb");
  m.arguments = bytes_of(loads, map, counts);
  plimsoll::eplb(counting_policy{&m.costs},
                 matrix_ref<std::int32_t const>(loads.data(), layers, experts),
                 {.on = {.ranks = 64}}, rows_of(map, slots), rows_of(counts, experts));
}

void measure_flow_placement() {
  constexpr index_t steps = 16;
  constexpr index_t layers = 58;
  constexpr index_t experts = 256;
  constexpr index_t slots = 320;
  std::vector<std::int32_t> const loads = drifting_loads(steps, layers, experts);
  std::vector<std::int32_t> map(layers * slots);
  std::vector<std::int32_t> counts(layers * experts);
  measured& m = all.emplace_back("flow_placement");
  m.arguments = bytes_of(loads, map, counts);
  plimsoll::place_by_flow(counting_policy{&m.costs},
                          tensor_ref<std::int32_t const>(loads.data(), steps, layers, experts),
                          {.on = {.ranks = 64}}, rows_of(map, slots), rows_of(counts, experts));
}

void measure_migration() {
  constexpr index_t layers = 58;
  constexpr index_t experts = 256;
  constexpr index_t slots = 320;
  std::vector<std::int32_t> const steps = drifting_loads(2, layers, experts);
  std::vector<std::int32_t> maps[2];
  std::vector<std::int32_t> counts[2];
  for (std::size_t i = 0; i < 2; ++i) {
    maps[i].resize(layers * slots);
    counts[i].resize(layers * experts);
    plimsoll::eplb(
        plimsoll::seq,
        matrix_ref<std::int32_t const>(steps.data() + i * layers * experts, layers, experts),
        {.on = {.ranks = 64}}, rows_of(maps[i], slots), rows_of(counts[i], experts));
  }
  plimsoll::placement_ref const from{rows_of(maps[0], slots), rows_of(counts[0], experts), 64};
  plimsoll::placement_ref const to{rows_of(maps[1], slots), rows_of(counts[1], experts), 64};
  measured& m = all.emplace_back("migration");
  m.arguments = bytes_of(maps[0], maps[1]);
  plimsoll::align(counting_policy{&m.costs}, from, to, {}, rows_of(maps[1], slots));
  static_cast<void>(plimsoll::plan_transfers(counting_policy{&m.costs}, from, to));
}

void measure_plan_within() {
  constexpr index_t layers = 58;
  constexpr index_t experts = 256;
  constexpr index_t slots = 320;
  constexpr index_t window = 8;
  std::vector<std::int32_t> const steps = drifting_loads(window + 1, layers, experts);
  auto const plan_of = [&](index_t step) {
    return plimsoll::eplb(
        plimsoll::seq,
        matrix_ref<std::int32_t const>(steps.data() + step * layers * experts, layers, experts),
        slots, {.on = {.ranks = 64}});
  };
  auto const from = plan_of(0);
  auto const to = plan_of(window);
  plimsoll::tensor_ref<std::int32_t const> const loads(steps.data() + layers * experts, window,
                                                       layers, experts);
  for (auto const split : {plimsoll::split_rule::even, plimsoll::split_rule::optimal}) {
    bool const is_even = split == plimsoll::split_rule::even;
    std::vector<std::int32_t> map(layers * slots);
    std::vector<std::int32_t> counts(layers * experts);
    measured& m =
        all.emplace_back(is_even ? "plan_within, even split" : "plan_within, optimal split");
    m.arguments = bytes_of(steps, map, counts);
    plimsoll::plan_within(counting_policy{&m.costs}, loads, from.ref(), to.ref(), {},
                          {.split = split, .max_moves = layers * slots / 10}, rows_of(map, slots),
                          rows_of(counts, experts));
  }
}

void measure_replan_gate() {
  constexpr index_t steps = 16;
  constexpr index_t layers = 58;
  constexpr index_t experts = 256;
  constexpr index_t slots = 320;
  std::vector<std::int32_t> const loads = drifting_loads(steps, layers, experts);
  tensor_ref<std::int32_t const> const history(loads.data(), steps, layers, experts);
  auto const plan_of = [&](index_t first, index_t count) {
    return plimsoll::place_by_flow(plimsoll::seq,
                                   plimsoll::detail::part_of(history, {first, count}), slots,
                                   {.on = {.ranks = 64}});
  };
  auto const in_use = plan_of(0, 1);
  auto const plan = plan_of(0, steps);
  auto const first = plan_of(0, steps / 2);
  auto const second = plan_of(steps / 2, steps / 2);
  measured& m = all.emplace_back("replan_gate");
  m.arguments = bytes_of(loads);
  plimsoll::replan_options<> const options{.cost = {.per_token = 1}, .horizon = 100};
  static_cast<void>(plimsoll::decide_replan(counting_policy{&m.costs}, history, in_use.ref(),
                                            {{plan.ref(), first.ref(), second.ref()}}, options));
}

void measure_select_planner() {
  constexpr index_t steps = 16;
  constexpr index_t layers = 58;
  constexpr index_t experts = 256;
  std::vector<std::int32_t> const loads = drifting_loads(steps, layers, experts);
  measured& m = all.emplace_back("select_planner");
  m.arguments = bytes_of(loads);
  static_cast<void>(
      plimsoll::select_planner(counting_policy{&m.costs},
                               tensor_ref<std::int32_t const>(loads.data(), steps, layers, experts),
                               320, {.on = {.ranks = 64}}));
}

void measure_craft() {
  constexpr index_t steps = 3000;
  constexpr index_t layers = 58;
  constexpr index_t experts = 256;
  constexpr index_t ranks = 64;
  std::vector<std::int32_t> const loads = drifting_loads(steps, layers, experts);
  std::vector<std::int32_t> map(layers * (experts + ranks));
  std::vector<std::int32_t> offsets(layers * (ranks + 1));
  std::vector<std::int32_t> counts(layers * experts);
  measured& m = all.emplace_back("craft");
  m.arguments = bytes_of(loads, map, offsets, counts);
  plimsoll::craft(counting_policy{&m.costs},
                  tensor_ref<std::int32_t const>(loads.data(), steps, layers, experts),
                  {.on = {.ranks = ranks}, .budget = 8 * ranks}, rows_of(map, experts + ranks),
                  rows_of(offsets, ranks + 1), rows_of(counts, experts));
}

void measure_gem(char const* name, index_t layers, index_t experts, index_t ranks) {
  gem_input const in(layers, experts, ranks);
  std::vector<std::int32_t> map(static_cast<std::size_t>(layers * experts));
  std::vector<std::int32_t> counts(map.size());
  measured& m = all.emplace_back(name);
  m.arguments = bytes_of(in.loads, in.tokens, in.latency, in.speeds, map, counts);
  plimsoll::gem(counting_policy{&m.costs},
                tensor_ref<std::int32_t const>(in.loads.data(), gem_input::steps, layers, experts),
                in.curves(), {.on = {.ranks = ranks}}, rows_of(map, experts),
                rows_of(counts, experts));
}

void measure_minmax_lp(char const* name, index_t extra_slots, double tolerance) {
  constexpr index_t layers = 58;
  constexpr index_t experts = drifted_layer::experts;
  index_t const slots = experts + extra_slots;
  std::vector<std::int32_t> map;
  std::vector<std::int32_t> loads;
  for (std::uint64_t seed = 0; seed < layers; ++seed) {
    drifted_layer const layer(extra_slots, seed);
    map.insert(map.end(), layer.map.begin(), layer.map.end());
    loads.insert(loads.end(), layer.now.begin(), layer.now.end());
  }
  std::vector<double> split(map.size());
  measured& m = all.emplace_back(name);
  m.arguments = bytes_of(loads, split);
  plimsoll::minmax_lp lp(counting_policy{&m.costs},
                         {.physical_to_logical = rows_of(map, slots),
                          .replica_count = {nullptr, layers, experts},
                          .ranks = drifted_layer::ranks},
                         {.tolerance = tolerance});
  m.kept = m.costs.allocated;
  m.costs.clear();
  lp.solve(matrix_ref<std::int32_t const>(rows_of(loads, experts)), rows_of(split, slots));
}

/// Uses `repeats` times the tokens of the benchmark.
void measure_lplb(char const* name, index_t repeats) {
  routed_layer in(64);
  std::vector<std::int32_t> ids;
  for (index_t i = 0; i < repeats; ++i) {
    ids.insert(ids.end(), in.ids.begin(), in.ids.end());
  }
  for (std::int32_t& load : in.loads) {
    load *= static_cast<std::int32_t>(repeats);
  }
  std::vector<std::int32_t> slots(ids.size());
  std::vector<plimsoll::dispatch_counters> counters(1);
  measured& m = all.emplace_back(name);
  m.arguments = bytes_of(in.loads, ids, slots, counters);
  plimsoll::placement_ref placement = in.placement();
  placement.replica_count = {nullptr, 1, in.experts};
  plimsoll::lplb planner(counting_policy{&m.costs}, placement,
                         {.max_token_copies = std::ssize(ids)});
  m.kept = m.costs.allocated;
  m.costs.clear();
  planner.plan(in.loads_view());
  planner.dispatch(0, matrix_ref<std::int32_t const>(rows_of(ids, in.k)), rows_of(slots, in.k),
                   row_of(counters));
}

/// Gives new placements to all 58 layers.
void measure_lplb_update() {
  constexpr index_t layers = 58;
  constexpr index_t extra_slots = 64;
  constexpr index_t slots = drifted_layer::experts + extra_slots;
  std::vector<std::int32_t> map;
  for (std::uint64_t seed = 0; seed < layers; ++seed) {
    drifted_layer const layer(extra_slots, seed);
    map.insert(map.end(), layer.map.begin(), layer.map.end());
  }
  measured& m = all.emplace_back("lplb: update");
  m.arguments = bytes_of(map);
  plimsoll::placement_ref const placement{
      .physical_to_logical = rows_of(map, slots),
      .replica_count = {nullptr, layers, drifted_layer::experts},
      .ranks = drifted_layer::ranks};
  plimsoll::lplb planner(counting_policy{&m.costs}, placement, plimsoll::lplb_options{});
  m.kept = m.costs.allocated;
  m.costs.clear();
  planner.update(0, placement);
}

/// Uses `repeats` times the tokens of the benchmark.
void measure_waterline(char const* name, plimsoll::candidate_ranks candidates,
                       plimsoll::fill_method rule, index_t repeats) {
  step_batch const& b = step_batch::one();
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  for (index_t i = 0; i < repeats; ++i) {
    ids.insert(ids.end(), b.ids.begin(), b.ids.end());
    weights.insert(weights.end(), b.weights.begin(), b.weights.end());
  }
  std::vector<std::int64_t> loads = b.loads;
  for (std::int64_t& load : loads) {
    load *= repeats;
  }
  std::vector<std::int32_t> out_ids(ids.size() / b.k * (b.k + 1));
  std::vector<float> out_weights(out_ids.size());
  measured& m = all.emplace_back(name);
  m.arguments = bytes_of(ids, weights, loads, out_ids, out_weights);
  plimsoll::waterline line(counting_policy{&m.costs}, {.on = {.ranks = step_batch::ranks},
                                                       .slots = step_batch::slots,
                                                       .top_k = step_batch::k,
                                                       .max_tokens = repeats * step_batch::tokens,
                                                       .method = rule,
                                                       .candidates = candidates});
  m.kept = m.costs.allocated;
  m.costs.clear();
  line.plan(matrix_ref<std::int64_t const>(rows_of(loads, b.ranks)), b.busiest);
  line.fill(matrix_ref<std::int32_t const>(rows_of(ids, b.k)), b.busiest,
            {.weights = rows_of(weights, b.k)}, rows_of(out_ids, b.k + 1),
            {.weights = rows_of(out_weights, b.k + 1)});
}

void measure_waterfill() {
  step_batch const& b = step_batch::one();
  std::vector<std::int32_t> map(step_batch::slots);
  std::vector<std::int32_t> ids(b.tokens * (b.k + 1));
  recorder costs;
  plimsoll::waterfill ballast(
      counting_policy{&costs},
      {.physical_to_logical = rows_of(map, step_batch::slots),
       .replica_count = {nullptr, 1, step_batch::slots},
       .ranks = step_batch::ranks},
      {.rank = b.busiest, .line = {.top_k = step_batch::k, .max_tokens = step_batch::tokens}});
  std::size_t const kept = costs.allocated;
  costs.clear();
  ballast.count(b.ids_view());
  all.push_back({.name = "waterfill: count",
                 .arguments = bytes_of(b.ids, b.loads),
                 .kept = kept,
                 .costs = costs});
  std::copy(b.loads.begin(), b.loads.end(), ballast.loads().data);
  costs.clear();
  ballast.fill(b.ids_view(), {}, rows_of(ids, b.k + 1));
  all.push_back({.name = "waterfill: fill",
                 .arguments = bytes_of(b.ids, b.loads, ids),
                 .kept = kept,
                 .costs = costs});
}

void measure_token_drop(char const* name, double expert_drop, index_t max_selected) {
  constexpr index_t tokens = 16384;
  constexpr index_t experts = 256;
  constexpr index_t k = 8;
  std::vector<float> const scores = router_logits(tokens, experts);
  std::vector<std::int32_t> ids(tokens * k);
  std::vector<float> weights(tokens * k);
  std::vector<std::int32_t> positions(tokens * k);
  std::vector<std::int32_t> counts(experts);
  std::vector<std::int32_t> offsets(experts + 1);
  std::vector<plimsoll::capacity_report> report(1);
  measured& m = all.emplace_back(name);
  m.arguments = bytes_of(scores, ids, weights, positions, counts, offsets, report);
  plimsoll::token_drop drop(counting_policy{&m.costs}, {.function = plimsoll::score_function::none,
                                                        .route = {.k = k},
                                                        .limit = {.experts = experts,
                                                                  .max_tokens = tokens,
                                                                  .max_selected = max_selected,
                                                                  .expert_drop = expert_drop}});
  m.kept = m.costs.allocated;
  m.costs.clear();
  drop.apply(matrix_ref<float const>(scores.data(), tokens, experts),
             {.ids = rows_of(ids, k),
              .weights = rows_of(weights, k),
              .positions = rows_of(positions, k),
              .counts = row_of(counts),
              .offsets = row_of(offsets),
              .report = row_of(report)});
}

plimsoll::least_loaded_options spill_options(zipf_steps const& in) {
  plimsoll::least_loaded_options options;
  options.experts = in.experts;
  options.on.ranks = in.ranks;
  options.max_token_copies = zipf_steps::tokens * zipf_steps::k;
  return options;
}

/// Returns the costs of the step with the most calls in series, with the most steps alone of all.
void measure_least_loaded() {
  zipf_steps const in(256, 64);
  recorder costs;
  plimsoll::least_loaded<counting_policy> planner(counting_policy{&costs}, spill_options(in));
  measured worst{.name = "least_loaded: plan"};
  worst.kept = costs.allocated;
  worst.arguments = static_cast<std::size_t>(in.experts) * sizeof(std::int32_t);
  for (index_t step = 0; step < zipf_steps::steps; ++step) {
    costs.clear();
    planner.plan(in.loads_of(step));
    measured now = worst;
    now.costs = costs;
    if (step == 0) {
      worst = now;
    }
    for (std::size_t i = 0; i < costs.launches.size(); ++i) {
      launch_cost& one = now.costs.launches[i];
      launch_cost& other = worst.costs.launches[i];
      if (other.steps > one.steps) {
        one.steps = other.steps;
        one.steps_in = other.steps_in;
      }
      other.steps = one.steps;
      other.steps_in = one.steps_in;
    }
    if (now.in_series() > worst.in_series()) {
      worst = now;
    }
  }
  all.push_back(worst);
}

/// Measures the calls of one rank in a step.
void measure_llep() {
  constexpr index_t rank = 5;
  constexpr index_t k = zipf_steps::k;
  zipf_steps const in(256, 64);
  std::vector<std::int32_t> ids = in.ids(0, rank);
  std::vector<std::int32_t> const counts = in.counts(0);
  std::vector<std::int32_t> destinations(ids.size());
  std::vector<std::int32_t> rows(ids.size());
  std::vector<std::int32_t> arranged(2 * ids.size());
  std::vector<plimsoll::spill_segment> groups(static_cast<std::size_t>(in.experts));
  std::vector<plimsoll::spill_counters> counters(1);
  recorder costs;
  plimsoll::llep spills(counting_policy{&costs}, {.rank = rank, .assignment = spill_options(in)});
  std::size_t const kept = costs.allocated;
  auto const measure = [&](char const* name, std::size_t arguments, auto const& call) {
    costs.clear();
    call();
    all.push_back({.name = name, .arguments = arguments, .kept = kept, .costs = costs});
  };
  auto const of_tokens = matrix_ref<std::int32_t const>(rows_of(ids, k));
  measure("llep: count", bytes_of(ids), [&] { spills.count(of_tokens); });
  std::copy(counts.begin(), counts.end(), spills.counts().data);
  measure("llep: plan", bytes_of(counts), [&] { spills.plan(); });
  measure("llep: route", bytes_of(ids, destinations, rows, counters), [&] {
    spills.route(of_tokens, rows_of(destinations, k), rows_of(rows, k), row_of(counters));
  });
  measure("llep: arrange", bytes_of(arranged, groups),
          [&] { spills.arrange(row_of(arranged), row_of(groups)); });
}

/// A body with known costs, to test the counting.
struct toy_body {
  using device_team = plimsoll::detail::warp;

  std::int64_t* out;

  [[nodiscard]] std::size_t scratch_bytes() const {
    return plimsoll::detail::scratch_bytes_of<std::uint64_t>(4);
  }

  template <class Team>
  void operator()(Team& team, plimsoll::detail::scratch memory, index_t problem) const {
    static_assert(!Team::is_serial);
    auto* const keys = memory.take<std::uint64_t>(4);
    team.for_each(4, [=](index_t i) { keys[i] = static_cast<std::uint64_t>(7 - i); });
    for (index_t i = 0; i < problem; ++i) {
      team.single([this] { ++*out; });
    }
    team.store(out, 1);
    auto queue = team.queue(keys, 4);
    queue.replace_top(9);
    queue.pop();
    // 42 iterations of the inner loop, then up to 40; compilers cannot replace the loop by a
    // formula.
    team.single([this] {
      for (index_t row = 0; row < 6; ++row) {
        for (index_t i = 0; i < 7 * *out; ++i) {
          *out = *out * 3 % 2;
        }
      }
    });
    team.sum(41, [this](index_t i) {
      std::int64_t sum = 0;
      for (index_t j = 0; j < i; ++j) {
        sum ^= sum * 5 + out[0] + j;
      }
      return sum;
    });
  }
};

void measure_toy() {
  std::int64_t out = 1;
  measured& m = all.emplace_back("toy");
  plimsoll::detail::buffer<std::int32_t, plimsoll::detail::counting_context> const array(
      plimsoll::detail::resolve(counting_policy{&m.costs}), 12);
  array.zero();
  static_cast<void>(array.read());
  plimsoll::detail::launch(plimsoll::detail::resolve(counting_policy{&m.costs}), 3, toy_body{&out});
  plimsoll::detail::launch(plimsoll::detail::resolve(counting_policy{&m.costs}), 0, toy_body{&out});
}

std::string bytes_text(std::size_t bytes) {
  char text[40];
  if (bytes < 1024) {
    std::snprintf(text, sizeof text, "%zu B", bytes);
  } else if (bytes < std::size_t{1024} * 1024) {
    std::snprintf(text, sizeof text, "%.1f KiB", static_cast<double>(bytes) / 1024);
  } else {
    std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1024 * 1024));
  }
  return text;
}

/// Reads the limits. A row is "call | NAME | LAUNCHES | TRANSFERS | SERIES | KIB" or
/// "alone | BODY | STEPS | REASON".
void read_limits(std::string const& file) {
  std::ifstream in(file);
  std::regex const call(R"(call \| (.*) \| (\d+) \| (\d+) \| (\d+) \| (\d+))");
  std::regex const alone(R"(alone \| (\w+) \| (\d+) \| [a-z].*)");
  std::smatch cell;
  for (std::string line; std::getline(in, line);) {
    auto const number = [&](std::size_t i) { return static_cast<index_t>(std::stoll(cell[i])); };
    if (std::regex_match(line, cell, call)) {
      limits_of[cell[1]] = {number(2), number(3), number(4), number(5)};
    } else if (std::regex_match(line, cell, alone)) {
      step_limits[cell[1]] = number(2);
    } else if (line.starts_with('#')) {
      continue;
    } else {
      throw std::runtime_error(file + ": expected a row of a call or of steps alone, got " + line);
    }
    named.push_back(cell[1]);
  }
  if (named.empty()) {
    throw std::runtime_error(file + ": no limits");
  }
}

/// Formats a value with its limit, such as "9 (over: 4)", and notes one that is above it.
std::string limited(std::string const& of, char const* what, index_t value, index_t limit) {
  bool const over = value > limit;
  if (over) {
    excess& worst = excesses[of + ": " + what];
    worst = {std::max(worst.value, value), limit};
  }
  return std::to_string(value) + (over ? " (over: " : " (of ") + std::to_string(limit) + ")";
}

std::string steps_text(launch_cost const& launch) {
  auto const own = step_limits.find(launch.body);
  index_t const limit = own == step_limits.end() ? step_limit : own->second;
  return launch.steps > std::min(limit, step_limit)
             ? limited(launch.body, "steps alone", launch.steps, limit)
             : std::to_string(launch.steps);
}

void print_calls(std::regex const& wanted) {
  std::cout << "| call | launches | memsets, copies | in series | inputs, outputs | arrays, KiB |\n"
               "|---|---:|---:|---:|---:|---:|\n";
  for (measured const& m : all) {
    if (!std::regex_search(m.name, wanted)) {
      continue;
    }
    if (!limits_of.contains(m.name)) {
      complaints.push_back(m.name + ": no row in the file of limits");
    }
    call_limits const most = limits_of[m.name];
    std::size_t const bytes = m.kept + m.costs.allocated + (m.kept > 0 ? 0 : scratch_of(m.costs));
    std::cout << "| " << m.name << " | "
              << limited(m.name, "launches", std::ssize(m.costs.launches), most.launches) << " | "
              << limited(m.name, "memsets and copies", m.costs.memsets + m.costs.copies,
                         most.transfers)
              << " | " << limited(m.name, "calls in series", m.in_series(), most.series) << " | "
              << bytes_text(m.arguments) << " | "
              << limited(m.name, "KiB of arrays", static_cast<index_t>((bytes + 1023) / 1024),
                         most.kibibytes)
              << " |\n";
  }
  std::set<std::string> counted;
  for (measured const& m : all) {
    counted.insert(m.name);
    for (launch_cost const& launch : m.costs.launches) {
      counted.insert(launch.body);
    }
  }
  for (std::string const& name : named) {
    if (!counted.contains(name)) {
      complaints.push_back(name + ": the file of limits has a row, but nothing counts it");
    }
  }
}

void print_launches(std::regex const& wanted) {
  std::cout << "| call | launch | problems | each by a | calls | queue steps | alone | in a | "
               "scratch |\n"
               "|---|---|---:|---|---:|---:|---:|---|---:|\n";
  for (measured const& m : all) {
    auto const& launches = m.costs.launches;
    for (auto first = launches.begin(); first != launches.end();) {
      launch_cost const& launch = *first;
      auto const next = std::find_if(first, launches.end(),
                                     [&](launch_cost const& other) { return other != launch; });
      std::string const times = next - first > 1 ? std::to_string(next - first) + " x " : "";
      first = next;
      if (!std::regex_search(m.name, wanted) && !std::regex_search(launch.body, wanted)) {
        continue;
      }
      std::cout << "| " << m.name << " | " << times << "`" << launch.body << "` | "
                << launch.problems << " | " << launch.team << " | " << launch.calls << " | "
                << launch.queue_steps << " | " << steps_text(launch) << " | " << launch.steps_in
                << " | " << bytes_text(launch.scratch)
                << (launch.scratch > shared_memory           ? ", global"
                    : launch.scratch > shared_memory_unasked ? ", by opt-in"
                                                             : "")
                << " |\n";
    }
  }
}

void measure_all() {
  using plimsoll::fill_method, plimsoll::candidate_ranks;
  measure_eplb();
  measure_flow_placement();
  measure_migration();
  measure_plan_within();
  measure_replan_gate();
  measure_select_planner();
  measure_craft();
  measure_gem("gem_small", 48, 16, 4);
  measure_gem("gem_large", 58, 256, 32);
  measure_minmax_lp("minmax_lp", 64, 1e-6);
  measure_minmax_lp("minmax_lp_coarse", 64, 1e-3);
  measure_minmax_lp("minmax_lp_dense", 256, 1e-6);
  measure_lplb("lplb: plan, dispatch", 1);
  measure_lplb("lplb, 320 tiles", 5);
  measure_lplb_update();
  measure_waterline("waterline: plan, fill", candidate_ranks::visited, fill_method::surplus, 1);
  measure_waterline("waterline, all ranks", candidate_ranks::all, fill_method::surplus, 1);
  measure_waterline("waterline, 1024 tiles", candidate_ranks::visited, fill_method::surplus, 32);
  measure_waterline("waterline, sampled", candidate_ranks::visited, fill_method::sampled, 1);
  measure_waterfill();
  measure_token_drop("token_drop", 0, 0);
  measure_token_drop("token_drop, expert_drop", 0.1, 0);
  measure_token_drop("token_drop, max_selected", 0, 4);
  measure_least_loaded();
  measure_llep();
}

}  // namespace
}  // namespace device_costs

int main(int argc, char** argv) {
  using namespace device_costs;
  std::vector<std::string> arguments(argv + 1, argv + argc);
  bool const toy = !arguments.empty() && arguments[0] == "--toy";
  arguments.erase(arguments.begin(), arguments.begin() + (toy ? 1 : 0));
  if (arguments.empty() || arguments.size() > 2) {
    std::cerr << "device_costs LIMITS [REGEX]    of calls or bodies that match; exit code 1: above "
                 "a limit\n"
                 "device_costs --toy LIMITS      counts a body whose costs are known\n";
    return 2;
  }
  try {
    read_limits(arguments[0]);
    std::regex const wanted(arguments.size() == 2 ? arguments[1] : "");
    toy ? measure_toy() : measure_all();
    print_calls(wanted);
    std::cout << "\n";
    print_launches(wanted);
  } catch (std::exception const& e) {
    std::cerr << "device_costs: " << e.what() << "\n";
    return 2;
  }
  for (auto const& [figure, worst] : excesses) {
    complaints.push_back(figure + ": " + std::to_string(worst.value) + ", the limit is " +
                         std::to_string(worst.limit));
  }
  for (std::string const& complaint : complaints) {
    std::cerr << "device_costs: " << complaint << "\n";
  }
  return complaints.empty() ? 0 : 1;
}
