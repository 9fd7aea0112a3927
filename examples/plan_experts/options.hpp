// SPDX-License-Identifier: Apache-2.0
/// @file
/// The command line of plan_experts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan.hpp"
#include "plan_file.hpp"

namespace CLI {
class App;
}

namespace examples {

/// Rows from `first` up to, not including, `last`; the end where it is not said.
struct row_range {
  index_t first = 0;
  std::optional<index_t> last;
};

/// What --replicas-per-rank auto stands for.
inline constexpr index_t automatic_replicas = -1;

/// Steps from which gem plans, where there are so many.
inline constexpr index_t usual_trace_length = 16;

struct options {
  std::string loads;
  std::string key;
  std::string evaluate;
  std::string plan;
  std::string planner = "eplb";
  std::string refinement = "none";
  std::string apart = "none";
  std::string policy = "seq";
  std::optional<index_t> ranks;
  index_t nodes = 1;
  index_t groups = 1;
  std::optional<index_t> slots;
  std::optional<index_t> replicas_per_rank;
  std::optional<std::int64_t> budget_bytes;
  std::string latency;
  std::optional<index_t> trace_length;  ///< at most `usual_trace_length` where not given
  index_t restarts = 30;
  std::string layers;
  std::string layer_ids;
  std::optional<index_t> model_layers;
  std::optional<std::int64_t> expert_bytes;
  std::string output;
  std::string format;
  std::string report;
  std::string json;
};

/// "plan_experts 0.1.0".
[[nodiscard]] std::string program_version();

/// Declares the options; each checks its own form while the arguments are parsed.
void add_options(CLI::App& app, options& o);

/// Checks what one option says against the others, before any file is read.
void check_options(CLI::App const& app, options const& o);

/// The rows of LOADS to plan: all, or those of --layers.
[[nodiscard]] row_range rows_to_plan(options const& o);

/// The model's layer of each of the `planned` rows: --layer-ids, or the rows' places among the
/// `rows` of LOADS.
[[nodiscard]] std::vector<std::int64_t> layer_ids_of(options const& o, index_t planned,
                                                     index_t rows);

/// The format of --output: --format, or what the name's end says.
[[nodiscard]] plan_format output_format(options const& o);

}  // namespace examples
