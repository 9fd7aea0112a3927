// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

namespace profile_ranks_example {
namespace {

void parse(CLI::App& app, int argc, char const* const* argv, options& o) {
  auto const add = [&](char const* name, std::int64_t& value, std::int64_t low, std::int64_t high,
                       char const* text) {
    return app.add_option(name, value, text)
        ->check(CLI::Range(low, high))
        ->type_name("N")
        ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  };
  constexpr std::int64_t most = 1 << 20;
  add("--hidden", o.hidden, 1, most, "Hidden size of the model (features of a token)")->required();
  add("--intermediate", o.intermediate, 1, most, "Intermediate size of an expert")->required();
  add("--experts", o.experts, 1, 4096, "Experts per rank; they share its tokens evenly")
      ->capture_default_str();
  add("--tile", o.tile, 1, most, "Tokens per tile of the kernels")->capture_default_str();
  add("--dense-until", o.dense_until, 0, most, "Tokens up to which every tile is measured")
      ->capture_default_str();
  add("--sparse-step", o.sparse_step, 1, most, "Tokens between measurements beyond --dense-until")
      ->capture_default_str();
  add("--max-tokens", o.max_tokens, 1, most, "Largest number of tokens of a rank in a step")
      ->capture_default_str();
  add("--launches", o.launches, 1, 100000, "Timed launches per measurement; the median counts")
      ->capture_default_str();
  app.add_option("--device", o.device, "Measure only this GPU, for all ranks")
      ->check(CLI::Range(0, 1023))
      ->type_name("N");
  app.add_option("--output", o.output, "The file to write")->required()->type_name("CURVES.json");
  app.parse(argc, argv);
}

}  // namespace

int run(int argc, char const* const* argv, std::function<void(options const&)> const& body) {
  CLI::App app("Measures the latency of a layer's experts on every GPU", "profile_ranks");
  auto const say = [](char const* what, int code) {
    std::fprintf(stderr, "profile_ranks: %s\n", what);
    return code;
  };
  try {
    options o;
    parse(app, argc, argv, o);
    body(o);
    return 0;
  } catch (CLI::ParseError const& e) {
    return e.get_exit_code() == 0 ? app.exit(e) : say(e.what(), exit_bad_option);
  } catch (bad_option const& e) {
    return say(e.what(), exit_bad_option);
  } catch (no_gpu const& e) {
    return say(e.what(), exit_no_gpu);
  } catch (std::exception const& e) {
    return say(e.what(), 1);
  }
}

}  // namespace profile_ranks_example
