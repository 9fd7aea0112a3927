// SPDX-License-Identifier: Apache-2.0
// Metrics in Prometheus' text format, which the textfile collector of node_exporter reads.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace online_balancer {

/// Metrics of balance that an engine exports. Gauges cover the steps since the last file.
struct metrics {
  struct layer {
    double balancedness = 1;  ///< mean over steps
    int busiest_rank = 0;     ///< in most steps
  };
  std::vector<layer> layers;
  std::array<std::int64_t, 4> decisions{};  ///< keep, move, insufficient evidence, outdated
  std::int64_t moves = 0;                   ///< experts that arrived on a rank
  std::int64_t dropped = 0;                 ///< token copies that the capacity mask dropped
  double planning_seconds = 0;              ///< of the worker, all plans together
};

constexpr std::array answers{"keep", "move", "insufficient_evidence", "outdated"};

/// Writes the file anew. Renaming it last replaces the old one at once, so that no reader sees half
/// a file.
inline void write_metrics(metrics const& of, std::string const& path) {
  std::string const unfinished = path + ".tmp";
  std::ofstream file(unfinished);
  auto const family = [&](char const* name, char const* type, char const* help) {
    file << "# HELP plimsoll_" << name << ' ' << help << "\n# TYPE plimsoll_" << name << ' ' << type
         << '\n';
  };
  auto const sample = [&](std::string const& name, auto value) {
    file << "plimsoll_" << name << ' ' << value << '\n';
  };
  auto const of_layers = [&](std::string const& name, auto member) {
    for (std::size_t l = 0; l < of.layers.size(); ++l) {
      sample(name + "{layer=\"" + std::to_string(l) + "\"}", of.layers[l].*member);
    }
  };
  family("balancedness", "gauge", "Mean load of the live ranks over the largest, mean over steps.");
  of_layers("balancedness", &metrics::layer::balancedness);
  family("busiest_rank", "gauge", "Rank that was the busiest one in most steps.");
  of_layers("busiest_rank", &metrics::layer::busiest_rank);
  family("decisions_total", "counter", "Decisions about a new plan, by answer.");
  for (std::size_t i = 0; i < answers.size(); ++i) {
    sample("decisions_total{answer=\"" + std::string(answers[i]) + "\"}", of.decisions[i]);
  }
  family("moves_total", "counter", "Experts that arrived on a rank which did not hold them.");
  sample("moves_total", of.moves);
  family("dropped_token_copies_total", "counter", "Token copies dropped by the capacity mask.");
  sample("dropped_token_copies_total", of.dropped);
  family("planning_seconds_total", "counter", "Time of the worker that plans.");
  sample("planning_seconds_total", of.planning_seconds);
  file.close();
  if (!file) {
    throw std::runtime_error("cannot write " + unfinished);
  }
  std::filesystem::rename(unfinished, path);
}

}  // namespace online_balancer
