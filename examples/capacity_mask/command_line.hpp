// SPDX-License-Identifier: Apache-2.0
// Options and exit codes of both programs.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

namespace capacity_mask_example {

struct options {
  int steps = 2;
  int tokens = 1024;
  int experts = 8;
  int top_k = 2;
  int ranks = 4;
  double gamma = 1;
  std::string level = "expert";
  bool expanded = false;
  bool priority = false;
  int seed = 0;
};

inline void parse(CLI::App& app, int argc, char** argv, options& o) {
  auto const add = [&](char const* name, int& value, int low, int high, char const* text) {
    app.add_option(name, value, text)->check(CLI::Range(low, high))->capture_default_str();
  };
  add("--steps", o.steps, 1, 1000000, "Steps to run");
  add("--tokens", o.tokens, 1, 1 << 20, "Tokens per step");
  add("--experts", o.experts, 1, 256, "Experts of the layer");
  add("--top-k", o.top_k, 1, 256, "Experts that a token chooses");
  add("--ranks", o.ranks, 1, 256, "Ranks that share experts and tokens evenly");
  app.add_option("--gamma", o.gamma, "Capacity factor: most load of an expert or rank, over mean")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--level", o.level, "Unit whose load is limited")
      ->check(CLI::IsMember({"expert", "rank"}))
      ->capture_default_str();
  app.add_flag("--expanded", o.expanded, "Offer tokens all experts of their own rank");
  app.add_flag("--priority", o.priority, "Drop image tokens (every other token) first");
  add("--seed", o.seed, 0, 0x7fffffff, "Seed of all tokens");
  app.parse(argc, argv);
  if (!(o.gamma >= 0)) {
    throw CLI::ValidationError("--gamma", "not a number");
  }
  if (o.top_k > o.experts) {
    throw CLI::ValidationError("--top-k", "more than --experts");
  }
  if (o.ranks > o.experts) {
    throw CLI::ValidationError("--ranks", "more than --experts");
  }
}

/// Parses options and calls `body(options)`, which returns true on success. Returns the exit code:
/// 0 for success, 1 for failure, 2 for an invalid option.
template <class Body>
int run(char const* name, int argc, char** argv, Body body) {
  CLI::App app("Routes tokens to experts of limited capacity", name);
  options o;
  try {
    parse(app, argc, argv, o);
    return body(o) ? 0 : 1;
  } catch (CLI::ParseError const& e) {
    if (e.get_exit_code() == 0) {
      return app.exit(e);
    }
    std::fprintf(stderr, "%s: %s\n", name, e.what());
    return 2;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s: %s\n", name, e.what());
    return 1;
  }
}

}  // namespace capacity_mask_example
