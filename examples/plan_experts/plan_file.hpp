// SPDX-License-Identifier: Apache-2.0
/// @file
/// Placements in files: what plan_experts writes for itself and for the engines, and reads back.
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
  plimsoll,     ///< JSON that can say all that a `plan` can
  sglang,       ///< JSON for SGLang's --init-expert-location
  trtllm,       ///< YAML for TensorRT-LLM's moe_config.load_balancer
  vllm_ascend,  ///< JSON for vllm-ascend's eplb_config.expert_map_path
  npy           ///< the slots alone: int32 [layers, slots]
};

/// The names for `--format`, in the order of `plan_format`.
[[nodiscard]] std::vector<std::string> plan_format_names();

[[nodiscard]] std::optional<plan_format> plan_format_named(std::string_view name);

/// How names of such files must end, for messages: ".yaml or .yml".
[[nodiscard]] std::string extension_of(plan_format format);

[[nodiscard]] bool fits_extension(plan_format format, std::string_view file);

/// The first format whose extension `file` has.
[[nodiscard]] std::optional<plan_format> format_of(std::string_view file);

/// An argument that does not fit the plan: a format that cannot express it, or no number of ranks.
class plan_error : public std::runtime_error {
 public:
  plan_error(std::string const& argument, std::string const& expected, std::string const& got)
      : std::runtime_error(argument + ": expected " + expected + ", got " + got) {}
};

/// The first expert that a rank holds twice, "expert 3 twice on rank 1 in layer 4"; empty where
/// there is none. vllm-ascend knows one place of an expert on a rank, and counts the slots of a
/// rank by those: a second copy would be out of reach, and whatever is behind it taken for its
/// neighbour.
[[nodiscard]] std::string first_twin(plan const& p);

/// Writes `p`; throws `plan_error`, before it writes anything, where `format` cannot express it.
/// `model_layers`: all layers of the model, which SGLang wants a row for each of; those without
/// experts get slot i -> i mod experts.
void write_plan(std::ostream& out, plan const& p, plan_format format,
                std::optional<index_t> model_layers = {});

/// What a plan that is read must be for.
struct plan_request {
  index_t experts = 0;
  std::vector<std::int64_t> layer_ids;  ///< increasing, at least one
  /// Needed where the file does not say it; where it does, the two must agree.
  std::optional<index_t> ranks;
  /// All layers of the model, where known: SGLang's file has a row for each.
  std::optional<index_t> model_layers = {};
};

/// Reads a plan in any of the formats, told apart by the name's end and the keys. Layers are found
/// by their id in the model, in vllm-ascend's and .npy files by their order. What is read passes
/// `plimsoll::validate`. Throws `file_error`, and `plan_error` for `ranks`.
[[nodiscard]] plan read_plan(std::string const& file, plan_request const& request);

/// The same for the bytes of a file; `file` is its name.
[[nodiscard]] plan parse_plan(std::string_view bytes, std::string const& file,
                              plan_request const& request);

}  // namespace examples
