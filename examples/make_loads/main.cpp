// SPDX-License-Identifier: Apache-2.0
// make_loads: writes synthetic expert loads, int32 [steps, layers, experts], as a .npy file.
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "../plan_experts/command_line.hpp"
#include "../plan_experts/npy.hpp"
#include "../plan_experts/output_file.hpp"
#include "popularity.hpp"

namespace {

struct options {
  std::int64_t steps = 1;
  std::int64_t layers = 1;
  std::int64_t experts = 1;
  std::int64_t tokens = 4096;
  std::int64_t top_k = 8;
  double skew = 0.6;
  double drift = 0.1;
  std::int64_t seed = 0;
  std::string output;
};

void add_options(CLI::App& app, options& o) {
  constexpr std::int64_t most = 1 << 30;
  auto const add = [&](char const* name, auto& value, CLI::Validator const& check,
                       char const* text) {
    return app.add_option(name, value, text)->check(check)->type_name("");
  };
  add("--steps", o.steps, examples::whole_number(1, most), "Steps (batches)")->required();
  add("--layers", o.layers, examples::whole_number(1, most), "Layers")->required();
  add("--experts", o.experts, examples::whole_number(1, 65535), "Experts per layer")->required();
  add("--tokens", o.tokens, examples::whole_number(1, std::numeric_limits<std::int32_t>::max()),
      "Tokens per step")
      ->capture_default_str();
  add("--top-k", o.top_k, examples::whole_number(1, 65535), "Experts that a token visits")
      ->capture_default_str();
  add("--skew", o.skew, examples::number_up_to(16), "Zipf exponent; 0 is uniform")
      ->capture_default_str();
  add("--drift", o.drift, examples::number_up_to(16),
      "Standard deviation of the logarithm of a popularity's change from step to step")
      ->capture_default_str();
  add("--seed", o.seed, examples::whole_number(0, std::numeric_limits<std::int64_t>::max()),
      "Seed of all random choices")
      ->capture_default_str();
  app.add_option("--output", o.output, "The .npy file to write")->required()->type_name("FILE");
}

void check(options const& o) {
  if (o.top_k > o.experts) {
    throw examples::usage_error("--top-k", "at most --experts (" + std::to_string(o.experts) + ")",
                                std::to_string(o.top_k));
  }
  if (o.tokens * o.top_k >= examples::total_limit) {
    throw examples::usage_error("--tokens", "--tokens x --top-k below 2^40",
                                std::to_string(o.tokens * o.top_k));
  }
  constexpr std::int64_t most_state = std::int64_t{1} << 31;
  if (o.layers * o.experts > most_state) {
    throw examples::usage_error("--layers", "--layers x --experts of at most 2^31",
                                std::to_string(o.layers * o.experts));
  }
}

void write_loads(options const& o, std::ostream& out) {
  auto const experts = static_cast<std::size_t>(o.experts);
  auto const seed = static_cast<std::uint64_t>(o.seed);
  std::vector<examples::layer_popularity> layers;
  for (std::int64_t layer = 0; layer < o.layers; ++layer) {
    layers.emplace_back(seed, static_cast<std::uint64_t>(layer), experts, o.skew);
  }
  std::int64_t const shape[] = {o.steps, o.layers, o.experts};
  examples::npy::write_header<std::int32_t>(out, shape);
  std::vector<std::int32_t> counts(experts);
  for (std::int64_t step = 0; step < o.steps; ++step) {
    for (auto& layer : layers) {
      if (step > 0) {
        layer.walk(o.drift);
      }
      examples::count_tokens(layer.weights(), o.tokens * o.top_k, o.tokens, counts);
      examples::npy::write_values<std::int32_t>(out, counts);
    }
    if (!out) {  // stops early on a full disk, which close reports
      return;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Writes synthetic loads, int32 [steps, layers, experts]: Zipf popularity that "
      "drifts from step to step",
      "make_loads");
  options o;
  add_options(app, o);
  return examples::run(app, argc, argv, [&] {
    check(o);
    examples::output_file file("--output", o.output);
    write_loads(o, file.stream());
    file.close();
    file.commit();
    auto const printable = [](std::int64_t n) { return static_cast<long long>(n); };
    std::printf("%s: steps %lld, layers %lld, experts %lld, token copies per layer and step %lld\n",
                o.output.c_str(), printable(o.steps), printable(o.layers), printable(o.experts),
                printable(o.tokens * o.top_k));
  });
}
