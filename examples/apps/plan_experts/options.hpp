// SPDX-License-Identifier: Apache-2.0
/// @file
/// The command line of plan_experts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <plimsoll/migration_types.hpp>
#include <plimsoll/types.hpp>

#include "plan.hpp"
#include "plan_file.hpp"

namespace CLI {
class App;
}

namespace examples {

/// Rows from `first` up to, but not including, `last`; without `last`, up to the end.
struct row_range {
  index_t first = 0;
  std::optional<index_t> last;
};

/// Value of `replicas_per_rank` for --replicas-per-rank auto.
inline constexpr index_t automatic_replicas = -1;

/// Default trace length of gem, if LOADS has as many steps with load.
inline constexpr index_t usual_trace_length = 16;

/// Bytes in the unit of --bandwidth.
inline constexpr double gigabyte = 1e9;

struct options {
  std::string loads;
  std::string key;
  bool slot_loads = false;  ///< LOADS and --evaluate count tokens of slots
  bool trust_shape =
      false;  ///< LOADS and --evaluate are loads even if they look like something else
  std::string evaluate;
  std::string plan;
  std::string planner = "eplb";
  std::string split = "even";
  std::string refinement = "none";
  std::string apart = "none";
  std::string policy = "seq";
  std::optional<index_t> ranks;
  index_t nodes = 1;
  std::string sources;
  index_t groups = 1;
  std::optional<index_t> slots;
  std::optional<index_t> replicas_per_rank;
  std::optional<std::int64_t> budget_bytes;
  std::string latency;
  std::optional<index_t> trace_length;  ///< by default at most `usual_trace_length`
  index_t restarts = 30;
  std::string layers;
  std::string layer_ids;
  std::optional<index_t> model_layers;
  std::optional<std::int64_t> expert_bytes;
  std::string previous;
  std::string lost_ranks;
  std::optional<std::int64_t> max_moves;
  std::optional<std::int64_t> max_bytes;
  std::string rounds = "one-peer";
  double bandwidth = plimsoll::transfer_bandwidths{}.across_nodes / gigabyte;  ///< in GB/s
  double token_us = 0.2;  ///< time of a token copy on a rank
  bool verdict = false;
  double flat_below = 0;        ///< token copies of a rank that take no time of their own
  std::int64_t horizon = 1000;  ///< steps until the next decision
  std::string transfers;
  std::string output;
  std::string format;
  std::string report;
  std::string json;
};

/// Returns the program's name and version, such as "plan_experts 0.4.0".
[[nodiscard]] std::string program_version();

/// Declares the options; each value is checked on its own while the arguments are parsed.
void add_options(CLI::App& app, options& o);

/// Checks the options against each other, before any file is read.
void check_options(CLI::App const& app, options const& o);

/// Returns the split of --split.
[[nodiscard]] plimsoll::split_rule split_of(options const& o);

/// Returns whether --max-moves or --max-bytes limits the moves.
[[nodiscard]] bool limits_moves(options const& o);

/// Returns the rows of LOADS to plan: all, or those of --layers.
[[nodiscard]] row_range rows_to_plan(options const& o);

/// Returns the model's layer id of each of the `planned` rows: from --layer-ids, or the rows'
/// numbers among the `rows` of LOADS.
[[nodiscard]] std::vector<std::int64_t> layer_ids_of(options const& o, index_t planned,
                                                     index_t rows);

/// Returns the ranks of --lost-ranks, rising.
[[nodiscard]] std::vector<index_t> lost_ranks_of(options const& o);

/// Returns the format of --output: that of --format, or that of the file name's extension.
[[nodiscard]] plan_format output_format(options const& o);

}  // namespace examples
