// SPDX-License-Identifier: Apache-2.0
// Options and exit codes of both programs. Only rank 0 prints.
#pragma once

#include <mpi.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>

namespace split_step {

struct options {
  int steps = 4;
  int experts = 64;
  int replicas = 8;
  int tokens = 1024;
  int top_k = 4;
  int seed = 0;
};

/// The rank of this process, and the number of ranks.
struct process {
  int rank = 0;
  int ranks = 1;
};

inline void parse(CLI::App& app, int argc, char** argv, int ranks, options& o) {
  auto const add = [&](char const* name, int& value, int low, int high, char const* text) {
    app.add_option(name, value, text)->check(CLI::Range(low, high))->capture_default_str();
  };
  add("--steps", o.steps, 1, 1000000, "Steps to run");
  add("--experts", o.experts, 1, 4096, "Experts of the layer");
  add("--replicas", o.replicas, 0, 4096, "Slots in addition to one for each expert");
  add("--tokens", o.tokens, 1, 1 << 24, "The most tokens of a rank in a step");
  add("--top-k", o.top_k, 1, 512, "Experts that a token visits");
  add("--seed", o.seed, 0, 0x7fffffff, "Seed of all tokens");
  app.parse(argc, argv);
  if (o.top_k > o.experts) {
    throw CLI::ValidationError("--top-k", "more than --experts");
  }
  if (std::int64_t{o.tokens} * (o.top_k + 1) * ranks > 0x7fffffff) {
    throw CLI::ValidationError("--tokens", "gives 2^31 ids or more with --top-k and the ranks");
  }
}

/// Runs `body(options, process)` of a program, which returns true on success. Returns the exit
/// code: 0 on success, 1 on failure, 2 for an invalid option.
template <class Body>
int run(char const* name, int argc, char** argv, Body body) {
  MPI_Init(&argc, &argv);
  process self;
  MPI_Comm_rank(MPI_COMM_WORLD, &self.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &self.ranks);
  int code = 1;
  CLI::App app("Splits steps of tokens over replicas and fills ranks with the shared expert's rows",
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

}  // namespace split_step
