// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads and writes plans in the formats of plan_experts and of engines.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "input_file.hpp"
#include "plan.hpp"

namespace examples {

enum class plan_format {
  plimsoll,     ///< JSON that can express every `plan`
  sglang,       ///< JSON for SGLang's --init-expert-location
  trtllm,       ///< YAML for TensorRT-LLM's moe_config.load_balancer
  vllm,         ///< JSON for vLLM's eplb_config.initial_expert_map_path
  vllm_ascend,  ///< JSON for vllm-ascend's eplb_config.expert_map_path
  npy           ///< only the slots: int32 [layers, slots]
};

/// Returns the names for `--format`, in the order of `plan_format`.
[[nodiscard]] std::vector<std::string> plan_format_names();

[[nodiscard]] std::optional<plan_format> plan_format_named(std::string_view name);

/// Returns the file name extensions of a format, for messages: ".yaml or .yml".
[[nodiscard]] std::string extension_of(plan_format format);

[[nodiscard]] bool fits_extension(plan_format format, std::string_view file);

/// Returns the first format whose extension `file` has.
[[nodiscard]] std::optional<plan_format> format_of(std::string_view file);

/// Error for an argument that does not fit the plan: a format that cannot express it, or a missing
/// or wrong number of ranks.
class plan_error : public std::runtime_error {
 public:
  plan_error(std::string const& argument, std::string const& expected, std::string const& got)
      : std::runtime_error(argument + ": expected " + expected + ", got " + got) {}
};

/// Describes the first expert that a rank holds twice, as "expert 3 twice on rank 1 in layer 4";
/// empty if there is none. vllm-ascend stores one place of an expert per rank and counts the slots
/// of a rank by these places: it would never use the second copy, and would confuse the slots after
/// it.
[[nodiscard]] std::string first_twin(plan const& p);

/// Returns whether files of a format have rows for layers without a plan, up to `--model-layers`.
[[nodiscard]] bool lists_model_layers(plan_format format);

/// Writes `p`. Throws `plan_error`, before it writes anything, if `format` cannot express the plan.
/// `model_layers` is the number of layers of the model: SGLang's file has a row for each,
/// TensorRT-LLM's for each from the first planned one on, and in rows without a plan slot i holds
/// expert i mod experts. The other formats have no such rows.
void write_plan(std::ostream& out, plan const& p, plan_format format,
                std::optional<index_t> model_layers = {});

/// Dimensions that a plan must have when it is read.
struct plan_request {
  index_t experts = 0;                       ///< 0: as many as the plan has
  std::vector<std::int64_t> layer_ids = {};  ///< increasing; none: all layers of the file
  /// Required if the file does not contain the number of ranks; otherwise the two must agree.
  std::optional<index_t> ranks = {};
  /// Number of layers of the model, if known: SGLang's file has a row for each.
  std::optional<index_t> model_layers = {};
  /// Gives the ranks of a file that does not contain their number, in place of `ranks`: the slots
  /// of each, or, if these are not known or do not divide the slots of the file, their number.
  std::optional<index_t> slots_of_rank = {};
  std::optional<index_t> assumed_ranks = {};
};

/// Reads a plan in any of the formats, recognized by the extension and the keys. Layers are matched
/// by their id in the model, and in the files of vLLM, of vllm-ascend and in .npy files by their
/// order. The resulting plan passes `plimsoll::validate`. Throws `file_error`, and `plan_error` for
/// `ranks`.
[[nodiscard]] plan read_plan(std::string const& file, plan_request const& request);

/// Parses the bytes of a plan file; `file` is its name.
[[nodiscard]] plan parse_plan(std::string_view bytes, std::string const& file,
                              plan_request const& request);

}  // namespace examples
