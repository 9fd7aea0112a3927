// SPDX-License-Identifier: Apache-2.0
// make_loads: writes synthetic expert loads, int32 [steps, layers, experts], as a .npy file.
#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "command_line.hpp"
#include "domains.hpp"
#include "npy_file.hpp"
#include "npy_reader.hpp"
#include "popularity.hpp"
#include "workload.hpp"

namespace {

using make_loads::npy_file;
using make_loads::options;

npy_file output_of(options const& o) {
  std::int64_t const shape[] = {o.steps, o.layers, o.experts};
  return npy_file("--output", o.output, shape);
}

void write_drifting(options const& o) {
  make_loads::check(o);
  npy_file file = output_of(o);
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
  file.commit();
}

void write_workload(options const& o) {
  make_loads::check(o);
  npy_file file = output_of(o);
  std::optional<npy_file> by_source;
  if (!o.source_loads.empty()) {
    std::int64_t const shape[] = {o.steps, o.layers, o.ranks, o.experts};
    by_source.emplace("--source-loads", o.source_loads, shape);
    if (by_source->target() == file.target()) {
      throw std::invalid_argument("--source-loads: expected another file than --output, got '" +
                                  o.source_loads + "' for both");
    }
  }
  make_loads::workload_shape const shape{o.experts, o.tokens, o.top_k};
  std::vector<std::int64_t> const offsets =
      make_loads::source_offsets(*o.workload, o.tokens, o.ranks);
  auto const experts = static_cast<std::size_t>(o.experts);
  std::vector<std::int32_t> counts(experts * static_cast<std::size_t>(o.ranks));
  std::vector<std::int32_t> sums(experts);
  for (std::int64_t step = 0; step < o.steps; ++step) {
    for (std::int64_t layer = 0; layer < o.layers; ++layer) {
      make_loads::count_workload(*o.workload, shape, static_cast<std::uint64_t>(o.seed), layer,
                                 step, offsets, counts);
      sums.assign(experts, 0);
      for (std::size_t i = 0; i < counts.size(); ++i) {
        sums[i % experts] += counts[i];
      }
      file.append(sums);
      if (by_source) {
        by_source->append(counts);
      }
    }
  }
  file.commit();
  if (by_source) {
    by_source->commit();
  }
}

/// Sets the shape of the options to that of the recorded loads.
void write_like(options& o) {
  auto const shares =
      make_loads::shares_of(make_loads::read_loads("--like", o.like), "--like: " + o.like);
  o.layers = shares.layers;
  o.experts = shares.experts;
  if (o.top_k > shares.most_top_k) {
    throw std::invalid_argument("--top-k: expected at most " + std::to_string(shares.most_top_k) +
                                ", since one expert of " + o.like +
                                " has so large a share of a layer's load, got " +
                                std::to_string(o.top_k));
  }
  make_loads::check(o);
  npy_file file = output_of(o);
  if (file.target() == std::filesystem::weakly_canonical(std::filesystem::absolute(o.like))) {
    throw std::invalid_argument("--output: expected another file than --like, got '" + o.output +
                                "' for both");
  }
  double const after_one = make_loads::correlation(shares, 1);
  double const after_two = make_loads::correlation(shares, 2);
  make_loads::domain_model const model = make_loads::fit(after_one, after_two, shares.steps);
  make_loads::domain_sequence sequence(shares, model, static_cast<std::uint64_t>(o.seed));
  std::vector<std::uint64_t> weights(static_cast<std::size_t>(o.experts));
  std::vector<std::int32_t> counts(weights.size());
  for (std::int64_t step = 0; step < o.steps; ++step) {
    sequence.advance();
    for (std::int64_t layer = 0; layer < o.layers; ++layer) {
      sequence.weights(layer, weights);
      bool const loaded = shares.has_load(layer);
      counts.assign(counts.size(), 0);
      if (loaded) {
        examples::count_tokens(weights, o.tokens * o.top_k, o.tokens, counts);
      }
      file.append(counts);
    }
  }
  file.commit();
  std::printf("%s: correlation %.3f after one step, %.3f after two: domains of %.1f steps\n",
              o.like.c_str(), after_one, after_two, 1 / (1 - model.stay));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Writes synthetic loads, int32 [steps, layers, experts]: Zipf popularity that "
      "drifts from step to step, a workload of Megatron-LM's imbalance benchmark, or loads like "
      "recorded ones",
      "make_loads");
  return make_loads::run(app, argc, argv, [](options& o) {
    if (o.workload) {
      write_workload(o);
    } else if (!o.like.empty()) {
      write_like(o);
    } else {
      write_drifting(o);
    }
    auto const printable = [](std::int64_t n) { return static_cast<long long>(n); };
    std::printf("%s: steps %lld, layers %lld, experts %lld, token copies per layer and step %lld\n",
                o.output.c_str(), printable(o.steps), printable(o.layers), printable(o.experts),
                printable(o.tokens * o.top_k));
  });
}
