// SPDX-License-Identifier: Apache-2.0
#include "plan_file.hpp"

#include <yaml-cpp/emitter.h>
#include <yaml-cpp/stlemitter.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "npy.hpp"

namespace examples {
namespace {

using std::to_string;

struct format_facts {
  plan_format format;
  std::string_view name;
  std::string_view extension;
  std::string_view other_extension;
};

constexpr std::array formats = {
    format_facts{plan_format::plimsoll, "plimsoll", ".json", {}},
    format_facts{plan_format::sglang, "sglang", ".json", {}},
    format_facts{plan_format::trtllm, "trtllm", ".yaml", ".yml"},
    format_facts{plan_format::vllm, "vllm", ".json", {}},
    format_facts{plan_format::vllm_ascend, "vllm-ascend", ".json", {}},
    format_facts{plan_format::npy, "npy", ".npy", {}},
};

[[nodiscard]] format_facts const& facts_of(plan_format format) {
  return formats[static_cast<std::size_t>(format)];
}

[[nodiscard]] std::span<std::int32_t const> row_of(std::vector<std::int32_t> const& matrix,
                                                   index_t columns, index_t index) {
  return std::span(matrix).subspan(static_cast<std::size_t>(index * columns),
                                   static_cast<std::size_t>(columns));
}

[[nodiscard]] std::int64_t id_of(plan const& p, index_t layer) {
  return p.layer_ids[static_cast<std::size_t>(layer)];
}

/// Returns the slots of one rank.
[[nodiscard]] std::span<std::int32_t const> slots_of(plan const& p, index_t layer, index_t rank) {
  auto const offsets = row_of(p.rank_offsets, p.ranks + 1, layer);
  auto const first = static_cast<std::size_t>(offsets[static_cast<std::size_t>(rank)]);
  auto const last = static_cast<std::size_t>(offsets[static_cast<std::size_t>(rank) + 1]);
  return row_of(p.physical_to_logical, p.slots, layer).subspan(first, last - first);
}

/// Calls `visit(layer, rank)` for every rank of every layer.
template <class Visit>
void for_each_rank(plan const& p, Visit&& visit) {
  for (index_t layer = 0; layer < p.layers; ++layer) {
    for (index_t rank = 0; rank < p.ranks; ++rank) {
      visit(layer, rank);
    }
  }
}

[[nodiscard]] std::string place(plan const& p, index_t layer, index_t rank) {
  return " on rank " + to_string(rank) + " in layer " + to_string(id_of(p, layer));
}

void expect_even_slots(plan const& p, std::string const& argument) {
  auto const [least, most] = slots_of_layers(p);
  if (least == most && most % p.ranks != 0) {
    throw plan_error(argument, "slots that the " + to_string(p.ranks) + " ranks share evenly",
                     to_string(most));
  }
  auto const share = static_cast<std::size_t>((p.slots + p.ranks - 1) / p.ranks);
  for_each_rank(p, [&](index_t layer, index_t rank) {
    std::size_t const own = slots_of(p, layer, rank).size();
    if (own != share) {
      throw plan_error(argument, to_string(share) + " slots on every rank",
                       to_string(own) + place(p, layer, rank));
    }
  });
}

void expect_no_empty_slot(plan const& p, std::string const& argument) {
  for_each_rank(p, [&](index_t layer, index_t rank) {
    auto const slots = slots_of(p, layer, rank);
    if (std::find(slots.begin(), slots.end(), -1) != slots.end()) {
      throw plan_error(argument, "no empty slot", "one" + place(p, layer, rank));
    }
  });
}

void expect_at_most(std::string const& argument, index_t limit, index_t count, char const* what) {
  if (count > limit) {
    throw plan_error(argument, "at most " + to_string(limit) + " " + what, to_string(count));
  }
}

/// Throws if a file of `format` cannot express `p`.
void expect_expressible(plan const& p, plan_format format, std::optional<index_t> model_layers) {
  std::string const argument = "--format " + std::string(facts_of(format).name);
  if (model_layers && p.layer_ids.back() >= *model_layers) {
    throw plan_error("--model-layers",
                     "more than the largest layer id " + to_string(p.layer_ids.back()),
                     to_string(*model_layers));
  }
  if (format == plan_format::plimsoll) {
    return;
  }
  expect_even_slots(p, argument);
  if (format != plan_format::npy) {
    expect_no_empty_slot(p, argument);
  }
  if (format == plan_format::sglang && !model_layers) {
    for (index_t layer = 0; layer < p.layers; ++layer) {
      if (id_of(p, layer) != layer) {
        throw plan_error("--model-layers",
                         "a value, since " + argument +
                             " has a row for every layer of the model and layer " +
                             to_string(layer) + " is not planned",
                         "none");
      }
    }
  }
  if (format == plan_format::trtllm) {
    // Array sizes of the routing kernels of TensorRT-LLM, whose slot ids are int16.
    expect_at_most(argument, 1024, p.experts, "experts");
    expect_at_most(argument, 32768, p.slots, "slots");
  }
  if (format == plan_format::vllm_ascend) {
    std::string const twin = first_twin(p);
    if (!twin.empty()) {
      throw plan_error(argument, "an expert at most once on a rank",
                       twin + "; --apart rank plans without that");
    }
  }
}

template <class T>
void write_list(std::ostream& out, std::span<T const> values) {
  char separator = '[';
  for (T const value : values) {
    out << separator << value;
    separator = ',';
  }
  out << ']';
}

/// Writes one row per line, so that a person can find a layer and compare two plans.
void write_rows(std::ostream& out, std::vector<std::int32_t> const& values, index_t columns) {
  out << '[';
  for (std::size_t at = 0; at < values.size(); at += static_cast<std::size_t>(columns)) {
    out << (at == 0 ? "\n" : ",\n");
    write_list(out, std::span(values).subspan(at, static_cast<std::size_t>(columns)));
  }
  out << "\n]";
}

void write_matrix(std::ostream& out, char const* key, std::vector<std::int32_t> const& values,
                  index_t columns) {
  out << ",\n\"" << key << "\": ";
  write_rows(out, values, columns);
}

void write_plimsoll(std::ostream& out, plan const& p) {
  out << "{\n\"format\": \"plimsoll\",\n\"version\": 1";
  out << ",\n\"layers\": " << p.layers << ",\n\"experts\": " << p.experts;
  out << ",\n\"ranks\": " << p.ranks << ",\n\"slots\": " << p.slots << ",\n\"layer_ids\": ";
  write_list(out, std::span(p.layer_ids));
  write_matrix(out, "physical_to_logical", p.physical_to_logical, p.slots);
  write_matrix(out, "rank_offsets", p.rank_offsets, p.ranks + 1);
  write_matrix(out, "replica_count", p.replica_count, p.experts);
  out << "\n}\n";
}

void write_sglang(std::ostream& out, plan const& p, index_t model_layers) {
  auto const trivial = trivial_plan(1, p.experts, p.ranks, p.slots).physical_to_logical;
  out << "{\"physical_to_logical_map\": [";
  index_t next = 0;
  for (index_t layer = 0; layer < model_layers; ++layer) {
    bool const planned = next < p.layers && id_of(p, next) == layer;
    out << (layer == 0 ? "\n" : ",\n");
    write_list(out, planned ? row_of(p.physical_to_logical, p.slots, next) : std::span(trivial));
    next += planned ? 1 : 0;
  }
  out << "\n]}\n";
}

/// Writes the planned layers and, up to `model_layers`, those after the first of them that have no
/// plan: the engine fails at a layer with experts that has no row.
void write_trtllm(std::ostream& out, plan const& p, index_t model_layers) {
  auto const trivial = trivial_plan(1, p.experts, p.ranks, p.slots).physical_to_logical;
  YAML::Emitter yaml(out);
  yaml << YAML::BeginMap << YAML::Key << "num_slots" << YAML::Value << p.slots;
  yaml << YAML::Key << "initial_global_assignments" << YAML::Value << YAML::BeginMap;
  index_t next = 0;
  for (index_t layer = id_of(p, 0); next < p.layers || layer < model_layers; ++layer) {
    bool const planned = next < p.layers && id_of(p, next) == layer;
    if (planned || layer < model_layers) {
      auto const slots =
          planned ? row_of(p.physical_to_logical, p.slots, next) : std::span(trivial);
      yaml << YAML::Key << layer << YAML::Value << YAML::Flow
           << std::vector<std::int32_t>(slots.begin(), slots.end());
    }
    next += static_cast<index_t>(planned);
  }
  // 0: the engine keeps this placement and does not move experts while it serves.
  yaml << YAML::EndMap << YAML::Key << "layer_updates_per_iter" << YAML::Value << 0;
  yaml << YAML::EndMap << YAML::Newline;
}

/// Rows are the layers with experts, in their order.
void write_vllm(std::ostream& out, plan const& p) {
  write_rows(out, p.physical_to_logical, p.slots);
  out << '\n';
}

void write_vllm_ascend(std::ostream& out, plan const& p) {
  out << "{\"moe_layer_count\": " << p.layers << ", \"layer_list\": [";
  // Numbers count only layers with experts: the engine matches layers by their order.
  for_each_rank(p, [&](index_t layer, index_t rank) {
    if (rank == 0) {
      out << (layer == 0 ? "\n" : ",\n") << "{\"layer_id\": " << layer
          << ", \"device_count\": " << p.ranks << ", \"device_list\": [";
    }
    out << (rank == 0 ? "\n" : ",\n") << "{\"device_id\": " << rank << ", \"device_expert\": ";
    write_list(out, slots_of(p, layer, rank));
    out << (rank + 1 == p.ranks ? "}]}" : "}");
  });
  out << "\n]}\n";
}

}  // namespace

bool lists_model_layers(plan_format format) {
  return format == plan_format::sglang || format == plan_format::trtllm;
}

std::vector<std::string> plan_format_names() {
  std::vector<std::string> names;
  for (format_facts const& facts : formats) {
    names.emplace_back(facts.name);
  }
  return names;
}

std::optional<plan_format> plan_format_named(std::string_view name) {
  for (format_facts const& facts : formats) {
    if (facts.name == name) {
      return facts.format;
    }
  }
  return {};
}

std::string extension_of(plan_format format) {
  format_facts const& facts = facts_of(format);
  std::string result(facts.extension);
  if (!facts.other_extension.empty()) {
    result += " or " + std::string(facts.other_extension);
  }
  return result;
}

bool fits_extension(plan_format format, std::string_view file) {
  format_facts const& facts = facts_of(format);
  return file.ends_with(facts.extension) ||
         (!facts.other_extension.empty() && file.ends_with(facts.other_extension));
}

std::optional<plan_format> format_of(std::string_view file) {
  for (format_facts const& facts : formats) {
    if (fits_extension(facts.format, file)) {
      return facts.format;
    }
  }
  return {};
}

std::string first_twin(plan const& p) {
  std::string found;
  std::vector<index_t> last_seen(static_cast<std::size_t>(p.experts), -1);
  for_each_rank(p, [&](index_t layer, index_t rank) {
    index_t const here = layer * p.ranks + rank;
    for (std::int32_t const expert : slots_of(p, layer, rank)) {
      if (expert >= 0 && found.empty() &&
          std::exchange(last_seen[static_cast<std::size_t>(expert)], here) == here) {
        found = "expert " + to_string(expert) + " twice" + place(p, layer, rank);
      }
    }
  });
  return found;
}

void write_plan(std::ostream& out, plan const& p, plan_format format,
                std::optional<index_t> model_layers) {
  expect_expressible(p, format, model_layers);
  switch (format) {
    case plan_format::plimsoll:
      return write_plimsoll(out, p);
    case plan_format::sglang:
      return write_sglang(out, p, model_layers.value_or(p.layers));
    case plan_format::trtllm:
      return write_trtllm(out, p, model_layers.value_or(0));
    case plan_format::vllm:
      return write_vllm(out, p);
    case plan_format::vllm_ascend:
      return write_vllm_ascend(out, p);
    case plan_format::npy:
      return npy::write<std::int32_t>(out, std::array{p.layers, p.slots}, p.physical_to_logical);
  }
}

}  // namespace examples
