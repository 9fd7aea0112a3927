// SPDX-License-Identifier: Apache-2.0
// Options and exit codes of the program. Only rank 0 prints.
#pragma once

#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

namespace spill_step {

struct options {
  int steps = 4;
  int experts = 32;
  int tokens = 512;
  int top_k = 2;
  int hidden = 16;
  int width = 32;
  int seed = 0;
  int nodes = 1;
  int min_chunk = 16;
  int max_imports = 65535;
  int max_exports = 0x7fffffff;
  double alpha = 1;
  double lambda = 1.3;
  std::string numbers = "integers";
  bool times = false;

  [[nodiscard]] bool exact() const { return numbers == "integers"; }
  /// Returns the number of an expert's weights.
  [[nodiscard]] int expert_size() const { return 2 * hidden * width; }
};

/// The rank of this process, and the number of ranks.
struct process {
  int rank = 0;
  int ranks = 1;
};

inline void parse(CLI::App& app, int argc, char** argv, int ranks, options& o) {
  auto const add = [&](char const* name, auto& value, auto low, auto high, char const* text) {
    app.add_option(name, value, text)->check(CLI::Range(low, high))->capture_default_str();
  };
  int const any = 0x7fffffff;
  add("--steps", o.steps, 1, 1000000, "Steps to run");
  add("--experts", o.experts, 1, 65535, "Experts of the layer");
  add("--tokens", o.tokens, 0, 1 << 24, "The most tokens of a rank in a step");
  add("--top-k", o.top_k, 1, 512, "Experts that a token visits");
  add("--hidden", o.hidden, 1, 16384, "Numbers of a token");
  add("--width", o.width, 1, 16384, "Neurons of an expert");
  add("--seed", o.seed, 0, any, "Seed of all tokens and weights");
  add("--alpha", o.alpha, 1e-3, 32768.0, "A rank's capacity as a multiple of its even share");
  add("--min-chunk", o.min_chunk, 1, any, "The fewest tokens that are worth a transfer");
  add("--lambda", o.lambda, 0.0, 1e9, "The least imbalance at which tokens are spilled");
  add("--max-imports", o.max_imports, 0, 65535, "The most experts that a rank receives");
  add("--max-exports", o.max_exports, 0, any, "The most transfers from a rank");
  add("--nodes", o.nodes, 1, any, "Nodes; ranks of the same node help first");
  app.add_option("--numbers", o.numbers, "Kind of tokens and weights; sums of integers are exact")
      ->check(CLI::IsMember({"integers", "reals"}))
      ->capture_default_str();
  app.add_flag("--times", o.times, "Print the times of the slowest rank");
  app.parse(argc, argv);
  if (std::isnan(o.alpha) || std::isnan(o.lambda)) {
    throw CLI::ValidationError(std::isnan(o.alpha) ? "--alpha" : "--lambda", "not a number");
  }
  if (o.top_k > o.experts) {
    throw CLI::ValidationError("--top-k", "more than --experts");
  }
  if (o.nodes > ranks) {
    throw CLI::ValidationError("--nodes", "more than ranks");
  }
  std::int64_t const tokens = std::int64_t{o.tokens} * ranks;
  if (tokens * o.top_k > any) {
    throw CLI::ValidationError("--tokens", "gives 2^31 ids or more with --top-k and the ranks");
  }
  // A bound for the largest sums of a step (see tokens.hpp): the gradient of a weight over all
  // tokens, and that of a token over all neurons.
  std::int64_t const sums = std::max(tokens, std::int64_t{o.width} * o.top_k) * o.hidden * 2;
  if (o.exact() && sums > 1 << 24) {
    throw CLI::ValidationError("--numbers", "sums of integers may pass 2^24, float's exact ones");
  }
}

/// Runs `body(options, process)`, which returns true on success. Returns the exit code: 0 on
/// success, 1 on failure, 2 for an invalid option.
template <class Body>
int run(char const* name, int argc, char** argv, Body body) {
  MPI_Init(&argc, &argv);
  process self;
  MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &self.ranks);
  int code = 1;
  CLI::App app("Spills the tokens of overloaded ranks, and compares with plain expert parallelism",
               name);
  options o;
  try {
    parse(app, argc, argv, self.ranks, o);
    code = body(o, self) ? 0 : 1;
  } catch (CLI::ParseError const& e) {
    code = e.get_exit_code() == 0 ? 0 : 2;
    if (self.rank == 0 && code == 0) {
      app.exit(e);
    } else if (self.rank == 0) {
      std::fprintf(stderr, "%s: %s\n", name, e.what());
    }
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s: rank %d: %s\n", name, self.rank, e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return code;
}

}  // namespace spill_step
