// SPDX-License-Identifier: Apache-2.0
// plan_experts: places the experts of every layer of a model on the ranks that serve it.
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#ifdef _OPENMP
#include <plimsoll/execution/omp.hpp>
#endif

#include "command_line.hpp"
#include "npy.hpp"
#include "output_file.hpp"
#include "plan.hpp"
#include "plan_json.hpp"

#ifndef PLIMSOLL_EXAMPLES_CUDA
#define PLIMSOLL_EXAMPLES_CUDA 0
#endif

namespace {

using examples::index_t;
using examples::loads_ref;
using examples::usage_error;

struct options {
  std::string loads;
  std::string planner = "eplb";
  std::string policy = "seq";
  index_t ranks = 0;
  index_t slots = 0;
  std::string output;
};

void add_options(CLI::App& app, options& o) {
  app.add_option("LOADS", o.loads,
                 "Token copies per expert: a .npy file of shape [layers, experts] or "
                 "[steps, layers, experts]; steps are summed")
      ->required()
      ->type_name("FILE");
  app.add_option("--planner", o.planner, "The planner: eplb")
      ->check(examples::one_of({"eplb"}))
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--ranks", o.ranks, "Ranks (GPUs) that share the experts")
      ->required()
      ->check(examples::whole_number(1, plimsoll::rank_limit))
      ->type_name("N");
  app.add_option("--slots", o.slots, "Places for experts on all ranks together")
      ->required()
      ->check(examples::whole_number(1, 1 << 20))
      ->type_name("P");
  app.add_option("--policy", o.policy, "Where to plan: seq, omp or gpu")
      ->check(examples::one_of({"seq", "omp", "gpu"}))
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--output", o.output, "Writes the placement to this JSON file")->type_name("FILE");
}

/// A policy that this build lacks is an error, never another policy in its place.
void check_policy(options const& o) {
#ifndef _OPENMP
  if (o.policy == "omp") {
    throw usage_error("--policy", "a build with OpenMP for omp", "one without");
  }
#endif
  if (o.policy == "gpu" && PLIMSOLL_EXAMPLES_CUDA == 0) {
    throw usage_error("--policy", "a build with CUDA for gpu", "one without");
  }
}

struct sizes {
  index_t steps = 1;
  index_t layers = 0;
  index_t experts = 0;
};

[[nodiscard]] sizes sizes_of(options const& o, std::vector<std::int64_t> const& shape) {
  if (shape.size() == 2) {
    return {1, shape[0], shape[1]};
  }
  if (shape.size() == 3) {
    return {shape[0], shape[1], shape[2]};
  }
  throw examples::npy::error(o.loads, "shape (layers, experts) or (steps, layers, experts)",
                             examples::npy::to_string(shape));
}

void check_sizes(options const& o, sizes const& s) {
  if (o.slots < s.experts) {
    throw usage_error("--slots",
                      "at least one for each of the " + std::to_string(s.experts) + " experts",
                      std::to_string(o.slots));
  }
  index_t const most = s.experts + plimsoll::rank_limit - 1;  // copies of one expert have a limit
  if (o.slots > most) {
    throw usage_error(
        "--slots",
        "at most " + std::to_string(most) + " for " + std::to_string(s.experts) + " experts",
        std::to_string(o.slots));
  }
  if (o.slots < o.ranks) {
    throw usage_error("--slots",
                      "at least one for each of the " + std::to_string(o.ranks) + " ranks",
                      std::to_string(o.slots));
  }
}

/// Several steps are checked one by one: a sum may hide a negative load, or overflow. A single step
/// goes to the planner as it is, and the planner checks it.
template <class Load>
void check_steps(plimsoll::tensor_ref<Load const> loads) {
  constexpr auto limit = static_cast<Load>(plimsoll::load_limit);
  for (index_t layer = 0; layer < loads.extent(1); ++layer) {
    Load total = 0;
    for (index_t step = 0; step < loads.extent(0); ++step) {
      for (index_t expert = 0; expert < loads.extent(2); ++expert) {
        Load const load = loads(step, layer, expert);
        bool const good = load >= 0 && load < limit;  // false for NaN
        total += good ? load : Load{0};
        if (good && total < limit) {
          continue;
        }
        bool const is_number = !std::isnan(static_cast<double>(load));
        throw usage_error("LOADS",
                          good ? "a total below 2^47 per layer" : "loads from 0 to below 2^47",
                          (is_number ? std::to_string(good ? total : load) : "NaN") + " in step " +
                              std::to_string(step) + ", layer " + std::to_string(layer) +
                              ", expert " + std::to_string(expert));
      }
    }
  }
}

/// Loads `[layers, experts]`, steps summed. A rank-2 file is one step.
template <class Load>
[[nodiscard]] std::vector<Load> total_loads(examples::npy::array<Load> const& file,
                                            sizes const& s) {
  plimsoll::tensor_ref<Load const> const steps(file.values.data(), s.steps, s.layers, s.experts);
  if (s.steps > 1) {
    check_steps(steps);
  }
  std::vector<Load> total(static_cast<std::size_t>(s.layers * s.experts));
  plimsoll::sum_steps(plimsoll::seq, steps,
                      plimsoll::matrix_ref<Load>(total.data(), s.layers, s.experts));
  return total;
}

template <class Policy, class Load>
[[nodiscard]] double plan_on_host(Policy const& policy, loads_ref<Load> loads,
                                  examples::plan& result) {
  return examples::median_of_five([&] {
    auto const start = std::chrono::steady_clock::now();
    examples::plan_eplb(policy, loads, result);
    std::chrono::duration<double, std::milli> const time = std::chrono::steady_clock::now() - start;
    return time.count();
  });
}

/// Plans with the policy asked for; returns the milliseconds it took.
template <class Load>
[[nodiscard]] double run_planner([[maybe_unused]] options const& o, loads_ref<Load> loads,
                                 examples::plan& result) {
#ifdef _OPENMP
  if (o.policy == "omp") {
    return plan_on_host(plimsoll::omp, loads, result);
  }
#endif
#if PLIMSOLL_EXAMPLES_CUDA
  if (o.policy == "gpu") {
    return examples::plan_on_gpu(loads, result);
  }
#endif
  return plan_on_host(plimsoll::seq, loads, result);
}

void print_row(char const* name, plimsoll::balance_summary const& row) {
  std::printf("%-8s%20.4f%20.4f%14lld\n", name, row.mean_of_ratios, row.worst,
              static_cast<long long>(row.worst_row));
}

template <class Load>
void print_table(sizes const& s, loads_ref<Load> loads, examples::plan const& result) {
  auto const printable = [](index_t n) { return static_cast<long long>(n); };
  std::printf(
      "steps %lld, layers %lld, experts %lld, ranks %lld, slots %lld (%lld extra replicas)\n",
      printable(s.steps), printable(s.layers), printable(s.experts), printable(result.ranks),
      printable(result.slots), printable(result.slots - s.experts));
  std::printf("%-8s%20s%20s%14s\n", "", "mean balancedness", "worst balancedness", "worst layer");
  auto const trivial = examples::trivial_plan(s.layers, s.experts, result.ranks, result.slots);
  print_row("before", examples::evaluate(loads, trivial));
  print_row("after", examples::evaluate(loads, result));
}

template <class Load>
void plan_loads(options const& o, examples::npy::array<Load> const& file,
                examples::output_file* output) {
  sizes const s = sizes_of(o, file.shape);
  check_sizes(o, s);
  std::vector<Load> const total = total_loads(file, s);
  loads_ref<Load> const loads(total.data(), s.layers, s.experts);
  examples::plan result(s.layers, s.experts, o.ranks, o.slots);
  double const milliseconds = run_planner(o, loads, result);
  if (output != nullptr) {
    examples::write_json(output->stream(), result);
    output->commit();
  }
  print_table(s, loads, result);
  std::printf("planned in %.3f ms (%s, %s, median of 5)\n", milliseconds, o.planner.c_str(),
              o.policy.c_str());
  if (output != nullptr) {
    std::printf("wrote %s\n", o.output.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Places the experts of every layer on ranks so that the ranks' loads are equal",
               "plan_experts");
  options o;
  add_options(app, o);
  return examples::run(app, argc, argv, [&] {
    check_policy(o);
    // Opened first: a place that cannot be written is known before minutes of reading.
    std::optional<examples::output_file> output;
    if (!o.output.empty()) {
      output.emplace(o.output);
    }
    auto const file = examples::npy::read(o.loads);
    std::visit([&](auto const& array) { plan_loads(o, array, output ? &*output : nullptr); }, file);
  });
}
