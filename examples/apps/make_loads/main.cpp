// SPDX-License-Identifier: Apache-2.0
// make_loads: writes synthetic expert loads, int32 [steps, layers, experts], as a .npy file.
#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "command_line.hpp"
#include "npy_file.hpp"
#include "popularity.hpp"

namespace {

void append_loads(make_loads::options const& o, make_loads::npy_file& file) {
  auto const experts = static_cast<std::size_t>(o.experts);
  auto const seed = static_cast<std::uint64_t>(o.seed);
  std::vector<examples::layer_popularity> layers;
  for (std::int64_t layer = 0; layer < o.layers; ++layer) {
    layers.emplace_back(seed, static_cast<std::uint64_t>(layer), experts, o.skew);
  }
  std::vector<std::int32_t> counts(experts);
  for (std::int64_t step = 0; step < o.steps; ++step) {
    for (auto& layer : layers) {
      if (step > 0) {
        layer.walk(o.drift);
      }
      examples::count_tokens(layer.weights(), o.tokens * o.top_k, o.tokens, counts);
      file.append(counts);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Writes synthetic loads, int32 [steps, layers, experts]: Zipf popularity that "
      "drifts from step to step",
      "make_loads");
  return make_loads::run(app, argc, argv, [](make_loads::options const& o) {
    std::int64_t const shape[] = {o.steps, o.layers, o.experts};
    make_loads::npy_file file(o.output, shape);
    append_loads(o, file);
    file.commit();
    auto const printable = [](std::int64_t n) { return static_cast<long long>(n); };
    std::printf("%s: steps %lld, layers %lld, experts %lld, token copies per layer and step %lld\n",
                o.output.c_str(), printable(o.steps), printable(o.layers), printable(o.experts),
                printable(o.tokens * o.top_k));
  });
}
