// SPDX-License-Identifier: Apache-2.0
// Reads plans; plan_file.cpp writes them.
#include <fmt/format.h>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <plimsoll/types.hpp>

#include "file_tree.hpp"
#include "npy.hpp"
#include "plan_file.hpp"
#include "tree_reader.hpp"

namespace examples {
namespace {

using json = nlohmann::json;
using std::to_string;
using row = tree_reader::row;

class plan_reader : tree_reader {
 public:
  plan_reader(std::string const& file, plan_request const& request)
      : tree_reader(file), request_(request) {}

  [[nodiscard]] plan from_json(json const& root) {
    if (root.is_array()) {
      return vllm(root);
    }
    expect_object(root, "");
    if (root.contains("format")) {
      return plimsoll(root);
    }
    if (root.contains("physical_to_logical_map")) {
      return sglang(root);
    }
    if (root.contains("layer_list")) {
      return vllm_ascend(root);
    }
    if (root.contains("logical_count")) {
      fail("a plan", "loads (logical_count), which LOADS takes");
    }
    std::string keys;
    for (auto const& item : root.items()) {
      keys += (keys.empty() ? "" : ", ") + in_quotes(item.key());
      if (keys.size() > 100) {
        keys += ", ...";
        break;
      }
    }
    fail("the key format (plimsoll), physical_to_logical_map (sglang) or layer_list (vllm-ascend)",
         keys.empty() ? "no key" : keys);
  }

  [[nodiscard]] plan from_yaml(json const& root) {
    expect_object(root, "");
    expect_known_keys(root, {"num_slots", "initial_global_assignments", "layer_updates_per_iter"});
    index_t const slots = whole(member(root, "", "num_slots"), "num_slots", 1, slot_limit);
    if (root.contains("layer_updates_per_iter")) {
      whole(root["layer_updates_per_iter"], "layer_updates_per_iter", 0,
            std::numeric_limits<std::int32_t>::max());
    }
    std::string const key = "initial_global_assignments";
    if (!root.contains(key) && request_.experts > 0 && !request_.layer_ids.empty()) {
      return engine_default(slots);  // a file of the online balancer
    }
    json const& assignments = member(root, "", key);
    expect_object(assignments, key);
    row ids;
    for (auto const& item : assignments.items()) {
      auto const id = decimal(item.key());
      if (!id || *id < 0) {
        fail("layers' numbers as keys of " + key, in_quotes(item.key()));
      }
      ids.push_back(*id);
    }
    std::sort(ids.begin(), ids.end());
    request_all_if_none(ids);
    std::vector<row> rows;
    for (std::int64_t const id : request_.layer_ids) {
      if (!assignments.contains(to_string(id))) {
        fail_without(id, ids);
      }
      rows.push_back(values(assignments[to_string(id)], key + "[" + to_string(id) + "]", slots));
    }
    return even_plan(rows, {}, 0);
  }

  /// Returns where TensorRT-LLM begins without assignments.
  [[nodiscard]] plan engine_default(index_t slots) const {
    index_t const ranks = asked_ranks(slots);
    if (slots % ranks != 0 || slots < request_.experts) {
      fail("num_slots of at least " + to_string(request_.experts) + ", a multiple of the " +
               to_string(ranks) + " ranks",
           to_string(slots));
    }
    plan p = tensorrt_llm_plan(static_cast<index_t>(request_.layer_ids.size()), request_.experts,
                               ranks, slots);
    p.layer_ids = request_.layer_ids;
    return p;
  }

  [[nodiscard]] plan from_npy(npy::any_array const& any) {
    auto const* const array = std::get_if<npy::array<std::int64_t>>(&any);
    if (array == nullptr) {
      fail("whole numbers", "floats");
    }
    if (array->shape.size() != 2) {
      fail("shape (layers, slots)", npy::to_string(array->shape));
    }
    request_all_if_none(array->shape[0]);
    expect_layer_count(array->shape[0], one_row);
    std::vector<row> rows;
    for (auto at = array->values.begin(); at != array->values.end(); at += array->shape[1]) {
      rows.emplace_back(at, at + array->shape[1]);
    }
    return even_plan(rows, {}, -1);
  }

 private:
  static constexpr char const* one_row =
      "; a JSON list of its slots, [0, 1, ...], holds for all layers";
  static constexpr index_t layer_limit = 1 << 20;
  static constexpr index_t slot_limit = 1 << 20;  // as --slots

  // Checks against the request.

  /// Reports that the file has no plan of layer `id`; `ids` are the layers of the file.
  [[noreturn]] void fail_without(std::int64_t id, row const& ids) const {
    std::string got = "no layers";
    if (!ids.empty()) {
      auto const [first, last] = std::minmax_element(ids.begin(), ids.end());
      got = to_string(ids.size()) + " layers from " + to_string(*first) + " to " + to_string(*last);
    }
    fail("a plan of layer " + to_string(id), got + "; --layer-ids says which layers the loads are");
  }

  /// Checks the number of layers of a file that does not contain layer ids.
  void expect_layer_count(index_t layers, std::string const& for_one = {}) const {
    std::size_t const planned = request_.layer_ids.size();
    if (layers != static_cast<index_t>(planned)) {
      fail(to_string(planned) + " layers, one for each that is planned",
           to_string(layers) + (layers == 1 ? for_one : ""));
    }
  }

  /// Requests all layers of the file, which has these ids, unless some were requested.
  void request_all_if_none(row const& ids) {
    if (request_.layer_ids.empty()) {
      request_.layer_ids = ids;
    }
  }

  /// Requests all layers of a file that does not contain layer ids, unless some were requested.
  void request_all_if_none(index_t layers) {
    row ids(static_cast<std::size_t>(layers));
    std::iota(ids.begin(), ids.end(), 0);
    request_all_if_none(ids);
  }

  /// Returns the number of ranks of a file that does not contain it.
  [[nodiscard]] index_t asked_ranks(index_t slots) const {
    if (request_.slots_of_rank && slots % *request_.slots_of_rank == 0) {
      return slots / *request_.slots_of_rank;
    }
    if (request_.assumed_ranks && slots % *request_.assumed_ranks == 0) {
      return *request_.assumed_ranks;
    }
    if (request_.slots_of_rank) {
      fail("ranks of " + to_string(*request_.slots_of_rank) + " slots, as in the new plan",
           to_string(slots) + " slots");
    }
    if (request_.assumed_ranks) {
      return *request_.assumed_ranks;  // which is refused
    }
    if (!request_.ranks) {
      throw plan_error(
          "--ranks", "a value, since " + file() + " does not say how many ranks there are", "none");
    }
    return *request_.ranks;
  }

  void expect_ranks(index_t ranks) const {
    if (request_.ranks && ranks != *request_.ranks) {
      fail("a plan for --ranks " + to_string(*request_.ranks), "one for " + to_string(ranks));
    }
  }

  // Plans.

  /// Stores and checks one layer of the plan. `lowest` is -1 if slots may be empty, else 0.
  void fill(plan& p, std::size_t layer, row const& slots, std::int64_t lowest) const {
    std::string const in_layer = " in layer " + to_string(p.layer_ids[layer]);
    auto const experts = static_cast<std::size_t>(p.experts);
    auto* const count = p.replica_count.data() + layer * experts;
    for (std::size_t slot = 0; slot < slots.size(); ++slot) {
      std::int64_t const expert = slots[slot];
      if (expert < lowest || expert >= p.experts) {
        fail("experts from 0 to " + to_string(p.experts - 1) +
                 (lowest < 0 ? ", or -1 in an empty slot" : ""),
             to_string(expert) + in_layer + ", slot " + to_string(slot));
      }
      p.physical_to_logical[layer * slots.size() + slot] = static_cast<std::int32_t>(expert);
      if (expert >= 0) {
        ++count[expert];
      }
    }
    auto const* const missing = std::find(count, count + experts, 0);
    if (missing != count + experts) {
      fail("a slot for each of the " + to_string(experts) + " experts",
           "none for expert " + to_string(missing - count) + in_layer +
               (slots.size() == experts ? "; if the loads are those of slots, add --slot-loads"
                                        : ""));
    }
  }

  /// Makes a plan whose ranks all have the same number of slots.
  /// Without `ranks`, they are those that were requested.
  [[nodiscard]] plan even_plan(std::vector<row> const& rows, std::optional<index_t> file_ranks,
                               std::int64_t lowest) const {
    if (rows.empty()) {
      fail("a plan of at least one layer", "none");
    }
    auto const slots = static_cast<index_t>(rows.front().size());
    for (std::size_t layer = 0; layer < rows.size(); ++layer) {
      if (rows[layer].size() != rows.front().size()) {
        fail("as many slots in every layer, " + to_string(slots),
             to_string(rows[layer].size()) + " in layer " + to_string(request_.layer_ids[layer]));
      }
    }
    if (slots < 1 || slots > slot_limit) {
      fail("from 1 to " + to_string(slot_limit) + " slots in a layer", to_string(slots));
    }
    index_t const ranks = file_ranks ? *file_ranks : asked_ranks(slots);
    if (slots % ranks != 0) {
      throw plan_error("--ranks", "a divisor of the " + to_string(slots) + " slots in " + file(),
                       to_string(ranks));
    }
    plan p(static_cast<index_t>(rows.size()), experts_in(rows), ranks, slots);
    p.layer_ids = request_.layer_ids;
    for (std::size_t layer = 0; layer < rows.size(); ++layer) {
      fill(p, layer, rows[layer], lowest);
    }
    return p;
  }

  /// Returns the number of experts: the requested one, or that of a map in which each has a slot.
  [[nodiscard]] index_t experts_in(std::vector<row> const& rows) const {
    std::int64_t largest = request_.experts - 1;
    for (row const& slots : rows) {
      if (request_.experts == 0 && !slots.empty()) {
        largest = std::max(largest, *std::max_element(slots.begin(), slots.end()));
      }
    }
    if (largest < 0 || largest >= plimsoll::expert_limit) {
      fail("experts from 0 to " + to_string(plimsoll::expert_limit - 1), to_string(largest));
    }
    return largest + 1;
  }

  [[nodiscard]] plan sglang(json const& root) {
    std::string const key = "physical_to_logical_map";
    expect_known_keys(root, {key.c_str()});
    json const& map = list(root[key], key);
    auto const rows_in_file = static_cast<index_t>(map.size());
    if (request_.model_layers && rows_in_file != *request_.model_layers) {
      fail("a plan of all " + to_string(*request_.model_layers) + " layers of the model",
           to_string(rows_in_file) + " rows; --layer-ids says which layers the loads are");
    }
    request_all_if_none(rows_in_file);
    std::vector<row> rows;
    for (std::int64_t const id : request_.layer_ids) {
      if (id >= static_cast<std::int64_t>(map.size())) {
        row ids(map.size());
        std::iota(ids.begin(), ids.end(), 0);
        fail_without(id, ids);
      }
      rows.push_back(values(map[static_cast<std::size_t>(id)], key + "[" + to_string(id) + "]"));
    }
    return even_plan(rows, {}, 0);
  }

  /// One list of slots for every layer, or one for all.
  [[nodiscard]] plan vllm(json const& root) {
    bool const one_for_all = !root.empty() && !root.front().is_array();
    request_all_if_none(one_for_all ? 1 : static_cast<index_t>(root.size()));
    if (one_for_all) {
      return even_plan(std::vector<row>(request_.layer_ids.size(), values(root, "")), {}, 0);
    }
    expect_layer_count(static_cast<index_t>(root.size()), one_row);
    std::vector<row> rows;
    for (json const& slots : root) {
      rows.push_back(values(slots, fmt::format("[{}]", rows.size())));
    }
    return even_plan(rows, {}, 0);
  }

  [[nodiscard]] plan vllm_ascend(json const& root) {
    json const& layers = list(root["layer_list"], "layer_list");
    // As the engine: layers and devices by position, whatever their ids, and no more layers than
    // moe_layer_count.
    auto layer_count = static_cast<index_t>(layers.size());
    if (root.contains("moe_layer_count")) {
      layer_count = whole(root["moe_layer_count"], "moe_layer_count", 0, layer_count);
    }
    request_all_if_none(layer_count);
    expect_layer_count(layer_count);
    index_t ranks = 0;
    std::vector<row> rows;
    for (index_t layer = 0; layer < layer_count; ++layer) {
      std::string const path = "layer_list[" + to_string(layer) + "]";
      json const& entry = layers[static_cast<std::size_t>(layer)];
      json const& list_of = list(member(entry, path, "device_list"), path + ".device_list");
      auto const count = static_cast<index_t>(list_of.size());
      ranks = layer == 0 ? count : ranks;
      if (count != ranks || count < 1 || count > plimsoll::rank_limit) {
        fail(layer == 0 ? "from 1 to " + to_string(plimsoll::rank_limit) + " devices"
                        : to_string(ranks) + " devices, as in layer_list[0]",
             to_string(count) + " in " + path + ".device_list");
      }
      rows.push_back(devices(list_of, path + ".device_list", ranks));
    }
    expect_ranks(ranks);
    plan p = even_plan(rows, ranks, 0);
    std::string const twin = first_twin(p);
    if (!twin.empty()) {
      fail("an expert at most once on a rank", twin);
    }
    return p;
  }

  /// Returns the experts of all devices of a layer, in the order of devices.
  [[nodiscard]] row devices(json const& value, std::string const& path, index_t ranks) const {
    row result;
    std::optional<index_t> share;
    index_t rank = 0;
    for (json const& device : list(value, path, ranks)) {
      std::string const here = path + "[" + to_string(rank) + "]";
      row const own = values(member(device, here, "device_expert"), here + ".device_expert", share);
      share = static_cast<index_t>(own.size());
      result.insert(result.end(), own.begin(), own.end());
      ++rank;
    }
    return result;
  }

  [[nodiscard]] plan plimsoll(json const& root) {
    if (root["format"] != "plimsoll") {
      fail("plimsoll in format", shown(root["format"]));
    }
    whole(member(root, "", "version"), "version", 1, 1);
    expect_known_keys(root, {"format", "version", "layers", "experts", "ranks", "slots",
                             "layer_ids", "physical_to_logical", "rank_offsets", "replica_count"});
    auto const number = [&](char const* key, index_t high) {
      return whole(member(root, "", key), key, 1, high);
    };
    index_t const layers = number("layers", layer_limit);
    index_t const experts = number("experts", plimsoll::expert_limit);
    index_t const ranks = number("ranks", plimsoll::rank_limit);
    index_t const slots = number("slots", slot_limit);
    if (request_.experts != 0 && experts != request_.experts) {
      fail("a plan of " + to_string(request_.experts) + " experts", to_string(experts));
    }
    expect_ranks(ranks);
    row const ids = values(member(root, "", "layer_ids"), "layer_ids", layers);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || (i > 0 && ids[i] <= ids[i - 1])) {
        fail("layer_ids that increase from 0 or more",
             to_string(ids[i]) + " at place " + to_string(i));
      }
    }
    request_all_if_none(ids);
    auto const maps = matrix(root, "physical_to_logical", layers, slots);
    auto const offsets = matrix(root, "rank_offsets", layers, ranks + 1);
    auto const counts = matrix(root, "replica_count", layers, experts);

    plan p(static_cast<index_t>(request_.layer_ids.size()), experts, ranks, slots);
    p.layer_ids = request_.layer_ids;
    p.rank_offsets.clear();
    for (std::size_t layer = 0; layer < p.layer_ids.size(); ++layer) {
      std::int64_t const id = p.layer_ids[layer];
      auto const found = std::lower_bound(ids.begin(), ids.end(), id);
      if (found == ids.end() || *found != id) {
        fail_without(id, ids);
      }
      auto const at = static_cast<std::size_t>(found - ids.begin());
      expect_offsets(offsets[at], slots, id);
      p.rank_offsets.insert(p.rank_offsets.end(), offsets[at].begin(), offsets[at].end());
      expect_none_behind(maps[at], static_cast<std::size_t>(offsets[at].back()), id);
      fill(p, layer, maps[at], -1);
      expect_counts(
          counts[at],
          std::span(p.replica_count).subspan(layer * counts[at].size(), counts[at].size()), id);
    }
    return p;
  }

  void expect_offsets(row const& offsets, index_t slots, std::int64_t id) const {
    for (std::size_t rank = 0; rank < offsets.size(); ++rank) {
      std::int64_t const low = rank == 0 ? 0 : offsets[rank - 1];
      if (offsets[rank] < low || offsets[rank] > (rank == 0 ? 0 : slots)) {
        fail("rank_offsets that rise from 0 to at most " + to_string(slots),
             to_string(offsets[rank]) + " at place " + to_string(rank) + " in layer " +
                 to_string(id));
      }
    }
  }

  void expect_none_behind(row const& slots, std::size_t end, std::int64_t id) const {
    for (std::size_t slot = end; slot < slots.size(); ++slot) {
      if (slots[slot] >= 0) {
        fail("no expert behind the last rank's slots",
             "one in layer " + to_string(id) + ", slot " + to_string(slot));
      }
    }
  }

  void expect_counts(row const& given, std::span<std::int32_t const> counted,
                     std::int64_t id) const {
    for (std::size_t expert = 0; expert < given.size(); ++expert) {
      if (given[expert] != counted[expert]) {
        fail("a replica_count of " + to_string(counted[expert]) + ", as there are slots",
             to_string(given[expert]) + " for expert " + to_string(expert) + " in layer " +
                 to_string(id));
      }
    }
  }

  plan_request request_;
};

}  // namespace

plan parse_plan(std::string_view bytes, std::string const& file, plan_request const& request) {
  plan_reader reader(file, request);
  auto const format = format_of(file);
  if (format == plan_format::plimsoll) {
    return reader.from_json(tree_of_json(bytes, file));
  }
  if (format == plan_format::trtllm) {
    return reader.from_yaml(tree_of_yaml(bytes, file));
  }
  if (format == plan_format::npy) {
    return reader.from_npy(npy::parse(bytes, file));
  }
  if (file.ends_with(".pt")) {
    throw file_error(
        file, "a .json, .yaml, .yml or .npy file",
        "a .pt file, which python3 -c \"import json, torch; json.dump({'physical_to_logical_map': "
        "torch.load('plan.pt', map_location='cpu')['physical_to_logical_map'].tolist()}, "
        "open('plan.json', 'w'))\" "
        "converts");
  }
  throw file_error(file, "a .json, .yaml, .yml or .npy file", "another name");
}

plan read_plan(std::string const& file, plan_request const& request) {
  if (!format_of(file)) {
    return parse_plan({}, file, request);  // reports the bad name without reading the file
  }
  return parse_plan(read_bytes(file), file, request);
}

}  // namespace examples
