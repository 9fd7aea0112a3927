// SPDX-License-Identifier: Apache-2.0
// Plan files: every format byte for byte and key by key, the plans that it cannot express, and
// every file that must be refused.
#include "../plan_file.hpp"

#include <doctest/doctest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/placement_maps.hpp>

#include "../npy.hpp"

using examples::file_error;
using examples::index_t;
using examples::parse_plan;
using examples::plan;
using examples::plan_error;
using examples::plan_format;
using examples::plan_request;
using examples::write_plan;
using nlohmann::json;

namespace {

using ints = std::vector<std::int32_t>;
using ids = std::vector<std::int64_t>;

constexpr std::array all_formats = {plan_format::plimsoll,    plan_format::sglang,
                                    plan_format::trtllm,      plan_format::vllm,
                                    plan_format::vllm_ascend, plan_format::npy};

// Makes a plan; rank offsets are given for every layer, or are those of an even split.
plan plan_of(ids layer_ids, index_t experts, index_t ranks, std::vector<ints> const& rows,
             std::vector<ints> const& offsets = {}) {
  plan p(static_cast<index_t>(rows.size()), experts, ranks,
         static_cast<index_t>(rows.front().size()));
  p.layer_ids = std::move(layer_ids);
  p.physical_to_logical.clear();
  for (std::size_t layer = 0; layer < rows.size(); ++layer) {
    for (std::int32_t const expert : rows[layer]) {
      p.physical_to_logical.push_back(expert);
      if (expert >= 0) {
        ++p.replica_count[layer * static_cast<std::size_t>(experts) +
                          static_cast<std::size_t>(expert)];
      }
    }
  }
  if (!offsets.empty()) {
    p.rank_offsets.clear();
    for (ints const& row : offsets) {
      p.rank_offsets.insert(p.rank_offsets.end(), row.begin(), row.end());
    }
  }
  plimsoll::validate(plimsoll::seq, p.placement());
  return p;
}

// A plan of two layers, the second and the fourth of the model.
plan small_plan() { return plan_of({1, 3}, 3, 2, {{1, 0, 2, 1}, {2, 1, 1, 0}}); }

// A plan with shuffled experts. No rank holds an expert twice if it has at most as many slots as
// there are experts.
plan large_plan(ids layer_ids, index_t experts, index_t ranks, index_t slots) {
  std::mt19937 random(7);
  ints order(static_cast<std::size_t>(experts));
  std::iota(order.begin(), order.end(), 0);
  std::vector<ints> rows(layer_ids.size());
  for (ints& row : rows) {
    std::shuffle(order.begin(), order.end(), random);
    for (std::size_t slot = 0; slot < static_cast<std::size_t>(slots); ++slot) {
      row.push_back(order[slot % order.size()]);
    }
  }
  return plan_of(std::move(layer_ids), experts, ranks, rows);
}

// A plan with three slots on rank 0 and two on rank 1; the other layer has an unused end and an
// empty slot.
plan uneven_plan() {
  return plan_of({0, 5}, 3, 2, {{0, 1, 2, 1, 0}, {0, -1, 1, 2, -1}}, {{0, 3, 5}, {0, 2, 4}});
}

std::string text_of(plan const& p, plan_format format, std::optional<index_t> model_layers = {}) {
  std::ostringstream out;
  write_plan(out, p, format, model_layers);
  return out.str();
}

plan_request request_of(plan const& p) { return {p.experts, p.layer_ids, p.ranks}; }

std::string file_name(plan_format format) {
  std::string const extension = examples::extension_of(format);
  return "plan" + extension.substr(0, extension.find(' '));
}

// Returns a text with one change.
std::string changed(std::string text, std::string_view from, std::string_view to) {
  std::size_t const at = text.find(from);
  REQUIRE_MESSAGE(at != std::string::npos, "no '" << std::string(from) << "' in " << text);
  return text.replace(at, from.size(), to);
}

std::string const plimsoll_text = R"({
"format": "plimsoll",
"version": 1,
"layers": 2,
"experts": 3,
"ranks": 2,
"slots": 4,
"layer_ids": [1,3],
"physical_to_logical": [
[1,0,2,1],
[2,1,1,0]
],
"rank_offsets": [
[0,2,4],
[0,2,4]
],
"replica_count": [
[1,2,1],
[1,2,1]
]
}
)";

std::string const sglang_text = R"({"physical_to_logical_map": [
[0,1,2,0],
[1,0,2,1],
[0,1,2,0],
[2,1,1,0],
[0,1,2,0]
]}
)";

std::string const trtllm_text = R"(num_slots: 4
initial_global_assignments:
  1: [1, 0, 2, 1]
  3: [2, 1, 1, 0]
layer_updates_per_iter: 0
)";

std::string const vllm_text = R"([
[1,0,2,1],
[2,1,1,0]
]
)";

std::string const vllm_ascend_text = R"({"moe_layer_count": 2, "layer_list": [
{"layer_id": 0, "device_count": 2, "device_list": [
{"device_id": 0, "device_expert": [1,0]},
{"device_id": 1, "device_expert": [2,1]}]},
{"layer_id": 1, "device_count": 2, "device_list": [
{"device_id": 0, "device_expert": [2,1]},
{"device_id": 1, "device_expert": [1,0]}]}
]}
)";

// Reads `bytes` as a plan like small_plan().
void refuse(std::string const& file, std::string const& bytes, std::string const& message) {
  CAPTURE(bytes.substr(0, 300));
  plan_request const request{3, {1, 3}, 2};
  CHECK_THROWS_WITH_AS(static_cast<void>(parse_plan(bytes, file, request)),
                       (file + ": " + message).c_str(), file_error);
}

void refuse_request(std::string const& file, std::string const& bytes, plan_request const& request,
                    std::string const& message) {
  CHECK_THROWS_WITH(static_cast<void>(parse_plan(bytes, file, request)), message.c_str());
}

std::string npy_of(std::vector<std::int64_t> const& shape,
                   std::vector<std::int64_t> const& values) {
  std::ostringstream out;
  examples::npy::write<std::int64_t>(out, shape, values);
  return out.str();
}

}  // namespace

TEST_CASE("plan_file: names and extensions") {
  std::vector<std::string> const names = {"plimsoll", "sglang",      "trtllm",
                                          "vllm",     "vllm-ascend", "npy"};
  CHECK(examples::plan_format_names() == names);
  for (std::size_t i = 0; i < names.size(); ++i) {
    CHECK(examples::plan_format_named(names[i]) == all_formats[i]);
  }
  CHECK(!examples::plan_format_named("vllm_ascend"));
  CHECK(!examples::plan_format_named(""));

  CHECK(examples::format_of("a/plan.json") == plan_format::plimsoll);
  CHECK(examples::format_of("plan.yaml") == plan_format::trtllm);
  CHECK(examples::format_of("plan.yml") == plan_format::trtllm);
  CHECK(examples::format_of("plan.npy") == plan_format::npy);
  for (char const* const other : {"plan", "plan.pt", "plan.json.gz", "-", "", "json"}) {
    CHECK(!examples::format_of(other));
  }
  CHECK(examples::fits_extension(plan_format::sglang, "plan.json"));
  CHECK(examples::fits_extension(plan_format::vllm_ascend, "plan.json"));
  CHECK(examples::fits_extension(plan_format::trtllm, "plan.yml"));
  CHECK(!examples::fits_extension(plan_format::trtllm, "plan.json"));
  CHECK(!examples::fits_extension(plan_format::npy, "plan"));
  CHECK(examples::extension_of(plan_format::trtllm) == ".yaml or .yml");
  CHECK(examples::extension_of(plan_format::sglang) == ".json");
}

TEST_CASE("plan_file: every format, byte for byte") {
  plan const p = small_plan();
  CHECK(text_of(p, plan_format::plimsoll) == plimsoll_text);
  CHECK(text_of(p, plan_format::sglang, 5) == sglang_text);
  CHECK(text_of(p, plan_format::trtllm) == trtllm_text);
  CHECK(text_of(p, plan_format::vllm) == vllm_text);
  CHECK(text_of(p, plan_format::vllm_ascend) == vllm_ascend_text);
  std::ostringstream npy;
  examples::npy::write<std::int32_t>(npy, std::vector<std::int64_t>{2, 4}, p.physical_to_logical);
  CHECK(text_of(p, plan_format::npy) == npy.str());
  CHECK(text_of(uneven_plan(), plan_format::plimsoll) == R"({
"format": "plimsoll",
"version": 1,
"layers": 2,
"experts": 3,
"ranks": 2,
"slots": 5,
"layer_ids": [0,5],
"physical_to_logical": [
[0,1,2,1,0],
[0,-1,1,2,-1]
],
"rank_offsets": [
[0,3,5],
[0,2,4]
],
"replica_count": [
[2,2,1],
[1,1,1]
]
}
)");
}

TEST_CASE("plan_file: what is written is read again") {
  std::vector<plan> const plans = {
      small_plan(), plan_of({0}, 1, 1, {{0}}), large_plan({0, 1, 2, 3}, 8, 8, 16),
      large_plan({3, 4, 5, 9, 60}, 64, 8, 72), large_plan({2}, 1024, 32, 1056)};
  for (plan const& p : plans) {
    for (plan_format const format : all_formats) {
      for (index_t const more : {1, 4}) {
        CAPTURE(examples::plan_format_names()[static_cast<std::size_t>(format)]);
        CAPTURE(p.layers);
        CAPTURE(more);
        std::string const text = text_of(p, format, p.layer_ids.back() + more);
        CHECK(parse_plan(text, file_name(format), request_of(p)) == p);
      }
    }
  }
  // Without --model-layers where the model has no other layers.
  plan const p = large_plan({0, 1, 2}, 8, 4, 12);
  CHECK(parse_plan(text_of(p, plan_format::sglang), "plan.json", request_of(p)) == p);

  plan const uneven = uneven_plan();
  CHECK(parse_plan(text_of(uneven, plan_format::plimsoll), "plan.json", request_of(uneven)) ==
        uneven);
  plan const hole = plan_of({4}, 2, 2, {{0, -1, 1, 0}});
  CHECK(parse_plan(text_of(hole, plan_format::npy), "plan.npy", request_of(hole)) == hole);
  CHECK(parse_plan(text_of(hole, plan_format::plimsoll), "plan.json", request_of(hole)) == hole);
}

TEST_CASE("plan: slots that no layer has are removed") {
  plan p =
      plan_of({0, 5}, 3, 2, {{0, 1, 2, 1, -1, -1}, {0, 1, 2, -1, -1, -1}}, {{0, 3, 4}, {0, 1, 3}});
  CHECK(examples::slots_of_layers(p).least == 3);
  CHECK(examples::slots_of_layers(p).most == 4);
  CHECK(examples::slots_of_ranks(p).least == 3);
  CHECK(examples::slots_of_ranks(p).most == 4);
  plan const trimmed = plan_of({0, 5}, 3, 2, {{0, 1, 2, 1}, {0, 1, 2, -1}}, {{0, 3, 4}, {0, 1, 3}});
  examples::trim(p);
  CHECK(p == trimmed);
  examples::trim(p);
  CHECK(p == trimmed);
}

TEST_CASE("plan_file: --ranks is required only if the file does not contain the number of ranks") {
  plan const p = small_plan();
  plan_request request = request_of(p);
  request.ranks.reset();
  CHECK(parse_plan(plimsoll_text, "plan.json", request) == p);
  CHECK(parse_plan(vllm_ascend_text, "plan.json", request) == p);
  std::string const rest = " does not say how many ranks there are, got none";
  refuse_request("a.json", sglang_text, request, "--ranks: expected a value, since a.json" + rest);
  refuse_request("a.yaml", trtllm_text, request, "--ranks: expected a value, since a.yaml" + rest);
  refuse_request("a.json", vllm_text, request, "--ranks: expected a value, since a.json" + rest);
  refuse_request("a.npy", text_of(p, plan_format::npy), request,
                 "--ranks: expected a value, since a.npy" + rest);

  request.ranks = 4;
  CHECK(parse_plan(trtllm_text, "a.yaml", request).rank_offsets ==
        ints{0, 1, 2, 3, 4, 0, 1, 2, 3, 4});
  refuse_request("a.json", plimsoll_text, request,
                 "a.json: expected a plan for --ranks 4, got one for 2");
  refuse_request("a.json", vllm_ascend_text, request,
                 "a.json: expected a plan for --ranks 4, got one for 2");
  request.ranks = 3;
  refuse_request("a.yaml", trtllm_text, request,
                 "--ranks: expected a divisor of the 4 slots in a.yaml, got 3");
}

TEST_CASE("plan_file: layers are found by their ids") {
  plan const p = large_plan({2, 3, 5, 7}, 8, 4, 12);
  plan const some = [&] {
    plan result(2, 8, 4, 12);
    result.layer_ids = {3, 7};
    for (std::size_t layer : {1U, 3U}) {
      std::copy_n(p.physical_to_logical.begin() + static_cast<std::ptrdiff_t>(12 * layer), 12,
                  result.physical_to_logical.begin() + (layer == 1 ? 0 : 12));
      std::copy_n(p.replica_count.begin() + static_cast<std::ptrdiff_t>(8 * layer), 8,
                  result.replica_count.begin() + (layer == 1 ? 0 : 8));
    }
    return result;
  }();
  for (plan_format const format :
       {plan_format::plimsoll, plan_format::sglang, plan_format::trtllm}) {
    std::string const text = text_of(p, format, 8);
    CHECK(parse_plan(text, file_name(format), {8, {3, 7}, 4}) == some);
    std::string const got = format == plan_format::sglang   ? "8 layers from 0 to 7"
                            : format == plan_format::trtllm ? "6 layers from 2 to 7"
                                                            : "4 layers from 2 to 7";
    refuse_request(file_name(format), text, {8, {3, 8}, 4},
                   file_name(format) + ": expected a plan of layer 8, got " + got +
                       "; --layer-ids says which layers the loads are");
  }
  // If the number of layers of the model is known, another number of rows means shifted ids.
  std::string const rows = text_of(p, plan_format::sglang, 8);
  CHECK(parse_plan(rows, "a.json", {8, {3, 7}, 4, 8}) == some);
  refuse_request(
      "a.json", rows, {8, {3, 7}, 4, 9},
      "a.json: expected a plan of all 9 layers of the model, got 8 rows; --layer-ids says "
      "which layers the loads are");
  for (plan_format const format : {plan_format::vllm, plan_format::vllm_ascend, plan_format::npy}) {
    refuse_request(file_name(format), text_of(p, format), {8, {3, 7}, 4},
                   file_name(format) + ": expected 2 layers, one for each that is planned, got 4");
    plan other = p;
    other.layer_ids = {0, 1, 2, 60};
    CHECK(parse_plan(text_of(p, format), file_name(format), request_of(other)) == other);
  }
}

// Requirements of SGLang: one key; a row of equal length for every layer of the model, each with
// all experts; rank r's experts are the r-th block of a row.
TEST_CASE("plan_file: SGLang's keys, read without the reader") {
  plan const p = large_plan({3, 4, 6}, 16, 4, 24);
  json const root = json::parse(text_of(p, plan_format::sglang, 9));
  CHECK(root.size() == 1);
  json const& map = root.at("physical_to_logical_map");
  REQUIRE(map.size() == 9);
  for (std::size_t id = 0; id < 9; ++id) {
    REQUIRE(map[id].size() == 24);
    auto const found = std::find(p.layer_ids.begin(), p.layer_ids.end(), id);
    auto const layer = static_cast<std::size_t>(found - p.layer_ids.begin());
    for (std::size_t rank = 0; rank < 4; ++rank) {
      for (std::size_t local = 0; local < 6; ++local) {
        std::size_t const slot = 6 * rank + local;
        REQUIRE(map[id][slot].is_number_integer());
        CHECK(map[id][slot] == (found == p.layer_ids.end()
                                    ? static_cast<std::int32_t>(slot % 16)
                                    : p.physical_to_logical[24 * layer + slot]));
      }
    }
  }
}

// Requirements of TensorRT-LLM: no other keys, integers as layers, num_slots values in each, and
// only ids of experts.
TEST_CASE("plan_file: TensorRT-LLM's keys, read without the reader") {
  plan const p = large_plan({3, 4, 60}, 16, 4, 24);
  YAML::Node const root = YAML::Load(text_of(p, plan_format::trtllm));
  REQUIRE(root.IsMap());
  CHECK(root.size() == 3);
  CHECK(root["num_slots"].as<int>() == 24);
  CHECK(root["layer_updates_per_iter"].as<int>() == 0);
  YAML::Node const assignments = root["initial_global_assignments"];
  REQUIRE(assignments.IsMap());
  std::map<int, ints> rows;
  for (auto const& item : assignments) {
    CHECK(item.first.Tag() == "?");  // a plain scalar, which a YAML reader reads as a number
    rows[item.first.as<int>()] = item.second.as<ints>();
  }
  REQUIRE(rows.size() == 3);
  for (std::size_t layer = 0; layer < 3; ++layer) {
    ints const& row = rows.at(static_cast<int>(p.layer_ids[layer]));
    CHECK(std::equal(row.begin(), row.end(),
                     p.physical_to_logical.begin() + static_cast<std::ptrdiff_t>(24 * layer)));
    CHECK(row.size() == 24);
  }
}

// Requirements of vllm-ascend: layers and devices by their position, equally many experts on every
// device of a layer, and none twice on a device.
TEST_CASE("plan_file: vllm-ascend's keys, read without the reader") {
  plan const p = large_plan({3, 4, 60}, 16, 4, 24);
  json const root = json::parse(text_of(p, plan_format::vllm_ascend));
  CHECK(root.size() == 2);
  CHECK(root.at("moe_layer_count") == 3);
  REQUIRE(root.at("layer_list").size() == 3);
  for (std::size_t layer = 0; layer < 3; ++layer) {
    json const& entry = root["layer_list"][layer];
    CHECK(entry.size() == 3);
    CHECK(entry.at("layer_id") == layer);
    CHECK(entry.at("device_count") == 4);
    REQUIRE(entry.at("device_list").size() == 4);
    for (std::size_t rank = 0; rank < 4; ++rank) {
      json const& device = entry["device_list"][rank];
      CHECK(device.size() == 2);
      CHECK(device.at("device_id") == rank);
      auto const own = device.at("device_expert").get<ints>();
      CHECK(own.size() == 6);
      CHECK(std::equal(
          own.begin(), own.end(),
          p.physical_to_logical.begin() + static_cast<std::ptrdiff_t>(24 * layer + 6 * rank)));
    }
  }
}

TEST_CASE("plan_file: plans that a format cannot express") {
  auto const refuses = [](plan const& p, plan_format format, std::optional<index_t> model_layers,
                          std::string const& message) {
    std::ostringstream out;
    CHECK_THROWS_WITH_AS(write_plan(out, p, format, model_layers), message.c_str(), plan_error);
    CHECK(out.str().empty());
  };
  plan const odd = plan_of({2}, 3, 2, {{0, 1, 2, 0, 1}});
  plan const lopsided = plan_of({2, 3}, 3, 2, {{0, 1, 2, 0}, {0, 1, 2, 0}}, {{0, 2, 4}, {0, 3, 4}});
  plan const short_end = plan_of({7}, 2, 2, {{0, 1, -1, -1}}, {{0, 1, 2}});
  plan const layers_differ =
      plan_of({4, 6}, 3, 2, {{0, 1, 2, 0, 1}, {0, 1, 2, -1, -1}}, {{0, 3, 5}, {0, 2, 3}});
  plan const hole = plan_of({2, 3}, 2, 2, {{0, 1, 1, 0}, {0, 1, -1, 0}});
  for (std::string const name : {"sglang", "trtllm", "vllm", "vllm-ascend", "npy"}) {
    plan_format const format = *examples::plan_format_named(name);
    std::string const expected = "--format " + name + ": expected ";
    refuses(odd, format, 10, expected + "slots that the 2 ranks share evenly, got 5");
    refuses(lopsided, format, 10, expected + "2 slots on every rank, got 3 on rank 0 in layer 3");
    refuses(layers_differ, format, 10,
            expected + "3 slots on every rank, got 2 on rank 1 in layer 4");
    refuses(short_end, format, 10, expected + "2 slots on every rank, got 1 on rank 0 in layer 7");
    if (name != "npy") {
      refuses(hole, format, 10, expected + "no empty slot, got one on rank 1 in layer 3");
    }
  }
  refuses(
      small_plan(), plan_format::sglang, {},
      "--model-layers: expected a value, since --format sglang has a row for every layer of the "
      "model and layer 0 is not planned, got none");
  refuses(
      plan_of({0, 2}, 1, 1, {{0}, {0}}), plan_format::sglang, {},
      "--model-layers: expected a value, since --format sglang has a row for every layer of the "
      "model and layer 1 is not planned, got none");
  for (plan_format const format : all_formats) {
    refuses(small_plan(), format, 3,
            "--model-layers: expected more than the largest layer id 3, got 3");
  }
  refuses(large_plan({0}, 1025, 5, 1025), plan_format::trtllm, {},
          "--format trtllm: expected at most 1024 experts, got 1025");
  refuses(large_plan({0}, 512, 2, 32770), plan_format::trtllm, {},
          "--format trtllm: expected at most 32768 slots, got 32770");
  CHECK_NOTHROW(static_cast<void>(text_of(large_plan({0}, 512, 2, 32768), plan_format::trtllm)));
  refuses(plan_of({3, 4}, 3, 2, {{0, 1, 2, 0}, {0, 1, 2, 2}}), plan_format::vllm_ascend, {},
          "--format vllm-ascend: expected an expert at most once on a rank, "
          "got expert 2 twice on rank 1 in layer 4; --apart rank plans without that");
  // Other formats allow it; it only wastes a slot.
  CHECK_NOTHROW(
      static_cast<void>(text_of(plan_of({0}, 3, 2, {{0, 1, 2, 2}}), plan_format::trtllm)));
}

TEST_CASE("plan_file: names of files that are not plans") {
  refuse("plan", "", "expected a .json, .yaml, .yml or .npy file, got another name");
  refuse("-", "", "expected a .json, .yaml, .yml or .npy file, got another name");
  refuse("plan.pt", "",
         "expected a .json, .yaml, .yml or .npy file, got a .pt file, which python3 -c \"import "
         "json, torch; json.dump({'physical_to_logical_map': "
         "torch.load('plan.pt', map_location='cpu')['physical_to_logical_map'].tolist()}, "
         "open('plan.json', 'w'))\" "
         "converts");
  CHECK_THROWS_WITH_AS(static_cast<void>(examples::read_plan("no/plan.txt", {3, {1, 3}, 2})),
                       "no/plan.txt: expected a .json, .yaml, .yml or .npy file, got another name",
                       file_error);
  CHECK_THROWS_WITH_AS(static_cast<void>(examples::read_plan("no/plan.json", {3, {1, 3}, 2})),
                       "no/plan.json: expected a readable file, got No such file or directory",
                       file_error);
}

TEST_CASE("plan_file: reads from a file") {
  auto const path = std::filesystem::temp_directory_path() / "plimsoll_plan_file_test.yml";
  std::ofstream(path) << trtllm_text;
  CHECK(examples::read_plan(path.string(), request_of(small_plan())) == small_plan());
  std::filesystem::remove(path);
}

TEST_CASE("plan_file: JSON that is not a plan") {
  std::string const file = "a.json";
  refuse(file, "", "expected JSON, got a mistake at line 1, column 1");
  refuse(file, "{\n\"format\": plimsoll}", "expected JSON, got a mistake at line 2, column 11");
  refuse(file, plimsoll_text + "1", "expected JSON, got a mistake at line 22, column 1");
  refuse(file, "[\xff]", "expected JSON, got a mistake at line 1, column 2");
  refuse(file, std::string(1000000, '['), "expected JSON, got a mistake at line 1, column 1000001");
  refuse(file, std::string(1000000, '[') + std::string(1000000, ']'),
         "expected 2 layers, one for each that is planned, got 1; a JSON list of its slots, [0, 1, "
         "...], holds for all "
         "layers");
  refuse(file, "3", "expected keys and values, got 3");
  refuse(file, R"({"a": 1e999})", "expected numbers that fit in 64 bits, got one that does not");
  refuse(file, R"({"format": 1, "format": 2})", "expected every key once, got another 'format'");
  refuse(file, changed(vllm_ascend_text, R"("device_id": 1)", R"("device_id": 1, "device_id": 1)"),
         "expected every key once, got another 'device_id'");
  std::string const keys =
      "expected the key format (plimsoll), physical_to_logical_map (sglang) or layer_list "
      "(vllm-ascend), got ";
  refuse(file, "{}", keys + "no key");
  refuse(file, R"({"b": 1, "a\n": 2})", keys + "'a?', 'b'");
  std::string many = R"({"a": 0)";
  for (int i = 0; i < 60; ++i) {
    many += ", \"k" + std::to_string(100 + i) + "\": 0";
  }
  refuse(file, many + "}",
         keys +
             "'a', 'k100', 'k101', 'k102', 'k103', 'k104', 'k105', 'k106', 'k107', 'k108', "
             "'k109', 'k110', 'k111', 'k112', ...");
  refuse(file, R"({"logical_count": [[1]]})",
         "expected a plan, got loads (logical_count), which LOADS takes");
}

TEST_CASE("plan_file: Plimsoll's files that are wrong") {
  auto const refuses = [](std::string_view from, std::string_view to, std::string const& message) {
    refuse("a.json", changed(plimsoll_text, from, to), message);
  };
  refuses("\"plimsoll\"", "\"other\"", "expected plimsoll in format, got 'other'");
  refuses("\"version\": 1", "\"version\": 2", "expected 1 in version, got 2");
  refuses("\"version\": 1", "\"version\": 1.0", "expected 1 in version, got 1.0");
  refuses("\"version\": 1,", "", "expected the key version, got none");
  refuses("\"layers\": 2,", "\"layers\": 2, \"note\": 1,",
          "expected no other keys than format, version, layers, experts, ranks, slots, layer_ids, "
          "physical_to_logical, rank_offsets, replica_count, got 'note'");
  for (std::string const key : {"layers", "experts", "ranks", "slots"}) {
    std::size_t const at = plimsoll_text.find("\"" + key + "\"");
    std::string const line = plimsoll_text.substr(at, plimsoll_text.find('\n', at) - at);
    refuses(line, "", "expected the key " + key + ", got none");
    std::string const most = key == "experts" ? "65535" : key == "ranks" ? "32767" : "1048576";
    for (std::string const value : {"0", "-1", "1.5", "\"2\"", "null", "true", "1048577",
                                    "18446744073709551615", "99999999999999999999"}) {
      std::string const shown = value == "\"2\"" ? "'2'" : value[0] == '9' ? "1e+20" : value;
      refuses(line, "\"" + key + "\": " + value + ",",
              "expected a whole number from 1 to " + most + " in " + key + ", got " + shown);
    }
  }
  refuses("\"experts\": 3", "\"experts\": 4", "expected a plan of 3 experts, got 4");
  refuses("\"ranks\": 2", "\"ranks\": 3", "expected a plan for --ranks 2, got one for 3");
  refuses("\"layers\": 2", "\"layers\": 3", "expected 3 values in layer_ids, got 2");
  refuses("[1,3]", "[1]", "expected 2 values in layer_ids, got 1");
  refuses("[1,3]", "7", "expected a list in layer_ids, got 7");
  refuses("[1,3]", "[1,\"3\"]",
          "expected whole numbers below 2^63 in layer_ids, got '3' at place 1");
  refuses("[1,3]", "[3,1]", "expected layer_ids that increase from 0 or more, got 1 at place 1");
  refuses("[1,3]", "[1,1]", "expected layer_ids that increase from 0 or more, got 1 at place 1");
  refuses("[1,3]", "[-1,3]", "expected layer_ids that increase from 0 or more, got -1 at place 0");
  refuses("[1,3]", "[1,4]",
          "expected a plan of layer 3, got 2 layers from 1 to 4; --layer-ids says which layers the "
          "loads are");
  refuses("\"layer_ids\": [1,3],", "", "expected the key layer_ids, got none");

  refuses("[1,0,2,1]", "[1,0,2]", "expected 4 values in physical_to_logical[0], got 3");
  refuses("[1,0,2,1],", "", "expected 2 values in physical_to_logical, got 1");
  refuses("[1,0,2,1]", "{}", "expected a list in physical_to_logical[0], got an object");
  refuses("[1,0,2,1]", "[1,0,2,1.0]",
          "expected whole numbers below 2^63 in physical_to_logical[0], got 1.0 at place 3");
  refuses("[1,0,2,1]", "[1,0,2,18446744073709551615]",
          "expected whole numbers below 2^63 in physical_to_logical[0], got 18446744073709551615 "
          "at place 3");
  refuses("[2,1,1,0]", "[2,1,[],0]",
          "expected whole numbers below 2^63 in physical_to_logical[1], got a list at place 2");
  refuses("[1,0,2,1]", "[1,0,2,3]",
          "expected experts from 0 to 2, or -1 in an empty slot, got 3 in layer 1, slot 3");
  refuses("[2,1,1,0]", "[-2,1,1,0]",
          "expected experts from 0 to 2, or -1 in an empty slot, got -2 in layer 3, slot 0");
  refuses(
      "[2,1,1,0]", "[4294967296,1,1,0]",
      "expected experts from 0 to 2, or -1 in an empty slot, got 4294967296 in layer 3, slot 0");
  refuses("[2,1,1,0]", "[1,1,1,0]",
          "expected a slot for each of the 3 experts, got none for expert 2 in layer 3");

  std::string const rise = "expected rank_offsets that rise from 0 to at most 4, got ";
  refuses("[0,2,4]", "[0,4]", "expected 3 values in rank_offsets[0], got 2");
  refuses("[0,2,4]", "[1,2,4]", rise + "1 at place 0 in layer 1");
  refuses("[0,2,4]", "[-1,2,4]", rise + "-1 at place 0 in layer 1");
  refuses("[0,2,4]", "[0,5,4]", rise + "5 at place 1 in layer 1");
  refuses("[0,2,4]", "[0,3,2]", rise + "2 at place 2 in layer 1");
  refuses("[0,2,4]", "[0,2,5]", rise + "5 at place 2 in layer 1");
  refuses("[0,2,4]", "[0,1,3]",
          "expected no expert behind the last rank's slots, got one in layer 1, slot 3");
  refuses("[1,2,1]", "[1,2,2]",
          "expected a replica_count of 1, as there are slots, got 2 for expert 2 in layer 1");
  refuses("[1,2,1]", "[1,2]", "expected 3 values in replica_count[0], got 2");
  // The replica counts must be right only in the requested layers.
  CHECK(parse_plan(changed(plimsoll_text, "[1,2,1]", "[1,2,2]"), "a.json", {3, {3}, {}}).layers ==
        1);
}

TEST_CASE("plan_file: SGLang's files that are wrong") {
  auto const refuses = [](std::string const& bytes, std::string const& message) {
    refuse("a.json", bytes, message);
  };
  refuses(changed(sglang_text, "]}", "], \"logical_count\": []}"),
          "expected no other keys than physical_to_logical_map, got 'logical_count'");
  refuses(R"({"physical_to_logical_map": 1})", "expected a list in physical_to_logical_map, got 1");
  refuses(R"({"physical_to_logical_map": []})",
          "expected a plan of layer 1, got no layers; --layer-ids says which layers the loads are");
  refuses(R"({"physical_to_logical_map": [[0,1,2,0],[0,1,2,0]]})",
          "expected a plan of layer 3, got 2 layers from 0 to 1; --layer-ids says which layers the "
          "loads are");
  refuses(changed(sglang_text, "[1,0,2,1]", "[1,0,2,-1]"),
          "expected experts from 0 to 2, got -1 in layer 1, slot 3");
  refuses(changed(sglang_text, "[1,0,2,1]", "[1,0,2,3]"),
          "expected experts from 0 to 2, got 3 in layer 1, slot 3");
  refuses(changed(sglang_text, "[1,0,2,1]", "[1,0,1,1]"),
          "expected a slot for each of the 3 experts, got none for expert 2 in layer 1");
  refuses(changed(sglang_text, "[2,1,1,0]", "[2,1,1,0,0]"),
          "expected as many slots in every layer, 4, got 5 in layer 3");
  refuses(changed(sglang_text, "[1,0,2,1]", "[1,0,2.5,1]"),
          "expected whole numbers below 2^63 in physical_to_logical_map[1], got 2.5 at place 2");
  refuses(changed(sglang_text, "[1,0,2,1]", "0"),
          "expected a list in physical_to_logical_map[1], got 0");
  refuses(R"({"physical_to_logical_map": [[],[],[],[]]})",
          "expected from 1 to 1048576 slots in a layer, got 0");
}

TEST_CASE("plan_file: TensorRT-LLM's files that are wrong") {
  auto const refuses = [](std::string_view from, std::string_view to, std::string const& message) {
    refuse("a.yaml", changed(trtllm_text, from, to), message);
  };
  refuses(trtllm_text, "", "expected keys and values, got null");
  refuses(trtllm_text, "a: [", "expected YAML, got a mistake at line 1, column 1");
  refuses(trtllm_text, "- 1\n- 2\n", "expected keys and values, got a list");
  refuses("num_slots: 4\n", "", "expected the key num_slots, got none");
  refuses("num_slots: 4", "num_slots: 5",
          "expected 5 values in initial_global_assignments[1], got 4");
  for (std::string const value : {"0", "-4", "4.0", "0x4", "04", "+4", "4_0", "'4'", "!!int 4", "~",
                                  "[4]", "99999999999999999999"}) {
    std::string const shown = value == "0" || value == "-4"          ? value
                              : value == "~"                         ? "null"
                              : value == "[4]"                       ? "a list"
                              : value == "'4'" || value == "!!int 4" ? "'4'"
                                                                     : "'" + value + "'";
    refuses("num_slots: 4", "num_slots: " + value,
            "expected a whole number from 1 to 1048576 in num_slots, got " + shown);
  }
  refuses("num_slots: 4", "num_slots: 4\nep_size: 2",
          "expected no other keys than num_slots, initial_global_assignments, "
          "layer_updates_per_iter, got 'ep_size'");
  refuses("num_slots: 4", "num_slots: 4\nnum_slots: 4",
          "expected every key once, got another 'num_slots' in line 2");
  refuses("iter: 0", "iter: -1",
          "expected a whole number from 0 to 2147483647 in layer_updates_per_iter, got -1");
  refuses("  3: [", "  1: [", "expected every key once, got another '1' in line 4");
  refuses("  3: [", "  2: [",
          "expected a plan of layer 3, got 2 layers from 1 to 2; --layer-ids says which layers the "
          "loads are");
  for (std::string const key : {"0x3", "three", "-3", "3.0", "03"}) {
    refuses("  3: [", "  " + key + ": [",
            "expected layers' numbers as keys of initial_global_assignments, got '" + key + "'");
  }
  refuses("  3: [", "  ~: [", "expected a key, got none in line 4");
  refuses("  3: [", "  [3]: [", "expected a key, got a list or a map in line 4");
  refuses("[1, 0, 2, 1]", "[1, 0, 2, -1]",
          "expected experts from 0 to 2, got -1 in layer 1, slot 3");
  refuses("[1, 0, 2, 1]", "[1, 0, 2, 3]", "expected experts from 0 to 2, got 3 in layer 1, slot 3");
  refuses(
      "[1, 0, 2, 1]", "[1, 0, 2, 010]",
      "expected whole numbers below 2^63 in initial_global_assignments[1], got '010' at place 3");
  refuses(
      "[1, 0, 2, 1]", "[1, 0, , 1]",
      "expected whole numbers below 2^63 in initial_global_assignments[1], got null at place 2");
  refuses("[1, 0, 2, 1]", "[1, 0, 2, 1", "expected YAML, got a mistake at line 4, column 4");
  refuses("[1, 0, 2, 1]", "[1, 0, 0, 1]",
          "expected a slot for each of the 3 experts, got none for expert 2 in layer 1");
  refuses("[1, 0, 2, 1]", "", "expected a list in initial_global_assignments[1], got null");
  std::string const anchors = "expected no anchors or aliases, got one in line ";
  refuses("[1, 0", "&a [1, 0", anchors + "3");
  refuses("[1, 0", "[&a 1, 0", anchors + "3");
  refuses("num_slots: 4", "num_slots: &a 4", anchors + "1");
  refuses("layer_updates_per_iter: 0", "---\na: 1\n",
          "expected one document, got another in line 5");
  // Other layers are not checked, and layer_updates_per_iter is optional.
  CHECK(parse_plan(
            changed(changed(trtllm_text, "layer_updates_per_iter: 0\n", ""), "[1, 0, 2, 1]", "[]"),
            "a.yaml", {3, {3}, 2})
            .layer_ids == ids{3});
  CHECK(parse_plan(changed(changed(trtllm_text, "  3: [", "  '3':\n  - "), ", 1, 1, 0]",
                           "\n  - 1\n  - 1\n  - 0"),
                   "a.yaml", {3, {1, 3}, 2}) == small_plan());
}

TEST_CASE("plan_file: YAML with anchors, aliases or deep nesting") {
  std::string const levels = "expected at most 8 levels, got more in line ";
  std::string flow;
  std::string maps;
  std::string block;
  for (int i = 0; i < 100000; ++i) {
    flow += "[\n";
    maps += "{a:\n";
    block += "- ";
  }
  refuse("a.yaml", flow + std::string(100000, ']'), levels + "9");
  refuse("a.yaml", maps + std::string(100000, '}'), levels + "9");
  refuse("a.yaml", block + "1", levels + "1");
  // Brackets that are not closed are read as a key.
  refuse("a.yaml", flow, "expected a key, got a list or a map in line 1");
  refuse("a.yaml", std::string(1000000, '['), "expected a key, got a list or a map in line 1");
  std::string laughs = "a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (char name = 'b'; name < 'z'; ++name) {
    char const before = static_cast<char>(name - 1);
    laughs += std::string(1, name) + ": &" + name + " [";
    for (int i = 0; i < 8; ++i) {
      laughs += std::string("*") + before + ", ";
    }
    laughs += "]\n";
  }
  refuse("a.yaml", laughs, "expected no anchors or aliases, got one in line 1");
}

TEST_CASE("plan_file: vLLM's files with one list for all layers") {
  plan const p = plan_of({1, 3}, 3, 2, {{1, 0, 2, 1}, {1, 0, 2, 1}});
  CHECK(parse_plan("[1, 0, 2, 1]", "a.json", request_of(p)) == p);
  CHECK(parse_plan(text_of(p, plan_format::vllm), "a.json", request_of(p)) == p);
}

TEST_CASE("plan_file: vLLM's files that are wrong") {
  refuse("a.json", "[]", "expected 2 layers, one for each that is planned, got 0");
  refuse("a.json", "[[1, 0, 2, 1]]",
         "expected 2 layers, one for each that is planned, got 1; a JSON list of its slots, [0, 1, "
         "...], holds for all "
         "layers");
  refuse("a.json", "[1, 0, [2], 1]", "expected whole numbers below 2^63, got a list at place 2");
  refuse("a.json", "[[1, 0, 2, 1], 2]", "expected a list in [1], got 2");
  refuse("a.json", changed(vllm_text, "[2,1,1,0]", "[2,1,1.5,0]"),
         "expected whole numbers below 2^63 in [1], got 1.5 at place 2");
  refuse("a.json", changed(vllm_text, "[2,1,1,0]", "[2,1,0]"),
         "expected as many slots in every layer, 4, got 3 in layer 3");
  refuse("a.json", changed(vllm_text, "[2,1,1,0]", "[2,1,1,1]"),
         "expected a slot for each of the 3 experts, got none for expert 0 in layer 3");
  refuse("a.json", "[1, 0, 2, -1]", "expected experts from 0 to 2, got -1 in layer 1, slot 3");
}

TEST_CASE("plan_file: vllm-ascend's files that are wrong") {
  auto const refuses = [](std::string_view from, std::string_view to, std::string const& message) {
    refuse("a.json", changed(vllm_ascend_text, from, to), message);
  };
  refuses("\"moe_layer_count\": 2", "\"moe_layer_count\": 1",
          "expected 2 layers, one for each that is planned, got 1");
  refuses("\"moe_layer_count\": 2", "\"moe_layer_count\": 3",
          "expected a whole number from 0 to 2 in moe_layer_count, got 3");
  refuse("a.json", R"({"moe_layer_count": 0, "layer_list": []})",
         "expected 2 layers, one for each that is planned, got 0");
  refuse("a.json", R"({"moe_layer_count": 0, "layer_list": {}})",
         "expected a list in layer_list, got an object");
  refuse("a.json", R"({"moe_layer_count": 2, "layer_list": [1, 2]})",
         "expected keys and values in layer_list[0], got 1");
  refuses(
      "{\"device_id\": 0, \"device_expert\": [1,0]},\n{\"device_id\": 1, \"device_expert\": [2,1]}",
      "", "expected from 1 to 32767 devices, got 0 in layer_list[0].device_list");
  refuses("{\"device_id\": 0, \"device_expert\": [1,0]},\n", "",
          "expected 1 devices, as in layer_list[0], got 2 in layer_list[1].device_list");
  refuses("\"device_expert\": [2,1]", "\"device_expert\": [2]",
          "expected 2 values in layer_list[0].device_list[1].device_expert, got 1");
  refuses("\"device_expert\": [2,1]", "\"device_expert\": [2,\"1\"]",
          "expected whole numbers below 2^63 in layer_list[0].device_list[1].device_expert, got "
          "'1' at place 1");
  refuses("\"device_expert\": [2,1]", "\"device_expert\": [2,-1]",
          "expected experts from 0 to 2, got -1 in layer 1, slot 3");
  refuses("\"device_expert\": [2,1]", "\"device_expert\": [2,2]",
          "expected an expert at most once on a rank, got expert 2 twice on rank 1 in layer 1");
  refuses("\"device_expert\": [2,1]", "\"device_expert\": [1,0]",
          "expected a slot for each of the 3 experts, got none for expert 2 in layer 1");
  refuses("\"device_expert\": [1,0]},\n{\"device_id\": 1, \"device_expert\": [2,1]}",
          "\"device_expert\": [1,0,2]},\n{\"device_id\": 1, \"device_expert\": [2,1,0]}",
          "expected as many slots in every layer, 6, got 4 in layer 3");
  // The engine counts layers and devices, so that their ids and counts may be any, or absent.
  for (auto const& change : std::initializer_list<std::pair<char const*, char const*>>{
           {"\"moe_layer_count\": 2, ", ""},
           {"\"layer_id\": 0, ", ""},
           {"\"layer_id\": 1", "\"layer_id\": 60"},
           {"\"device_count\": 2", "\"device_count\": 8"},
           {"\"device_id\": 1", "\"device_id\": 0"}}) {
    CAPTURE(change.first);
    CHECK(parse_plan(changed(vllm_ascend_text, change.first, change.second), "a.json",
                     {3, {1, 3}, 2}) == small_plan());
  }
  // Keys that the engine ignores are not an error.
  CHECK(parse_plan(changed(vllm_ascend_text, "{\"layer_id\": 0", "{\"note\": [], \"layer_id\": 0"),
                   "a.json", {3, {1, 3}, 2}) == small_plan());
}

TEST_CASE("plan_file: TensorRT-LLM's file without assignments is where the engine begins") {
  std::string const text = "num_slots: 9\nlayer_updates_per_iter: 2\n";
  plan const p = parse_plan(text, "a.yaml", {7, {3, 5}, 3});
  CHECK(p.layer_ids == ids{3, 5});
  std::vector<std::int32_t> const row{0, 1, 2, 2, 3, 4, 4, 5, 6};
  for (std::size_t slot = 0; slot < 18; ++slot) {
    CHECK(p.physical_to_logical[slot] == row[slot % 9]);
  }
  CHECK(p.replica_count == std::vector<std::int32_t>{1, 1, 2, 1, 2, 1, 1, 1, 1, 2, 1, 2, 1, 1});
  auto const message = [&](index_t experts, index_t ranks) -> std::string {
    try {
      static_cast<void>(parse_plan(text, "a.yaml", {experts, {3}, ranks}));
    } catch (std::exception const& e) {
      return e.what();
    }
    return "accepted";
  };
  CHECK(message(9, 3) == "accepted");
  CHECK(message(10, 3) ==
        "a.yaml: expected num_slots of at least 10, a multiple of the 3 ranks, got 9");
  CHECK(message(7, 2) ==
        "a.yaml: expected num_slots of at least 7, a multiple of the 2 ranks, got 9");
}

TEST_CASE("plan_file: .npy files") {
  std::string const file = "a.npy";
  refuse(file, "text",
         "expected a .npy file, which starts with \\x93NUMPY, got a file that does not");
  std::ostringstream floats;
  examples::npy::write<double>(floats, std::vector<std::int64_t>{2, 4}, std::vector<double>(8, 1));
  refuse(file, floats.str(), "expected whole numbers, got floats");
  refuse(file, npy_of({8}, ids(8)), "expected shape (layers, slots), got (8,)");
  refuse(file, npy_of({1, 2, 4}, ids(8)), "expected shape (layers, slots), got (1, 2, 4)");
  refuse(file, npy_of({4, 2}, ids(8)), "expected 2 layers, one for each that is planned, got 4");
  refuse(file, npy_of({2, 4}, {1, 0, 2, 1, 2, 1, 1, 3}),
         "expected experts from 0 to 2, or -1 in an empty slot, got 3 in layer 3, slot 3");
  refuse(file, npy_of({2, 4}, {1, 0, 2, -2, 2, 1, 1, 0}),
         "expected experts from 0 to 2, or -1 in an empty slot, got -2 in layer 1, slot 3");
  refuse(file, npy_of({2, 4}, {1, 0, 2, 1, 2, 1, 1, -1}),
         "expected a slot for each of the 3 experts, got none for expert 0 in layer 3");
  refuse(file, npy_of({2, 1048578}, ids(2 * 1048578)),
         "expected from 1 to 1048576 slots in a layer, got 1048578");
  // Any integer type is accepted.
  CHECK(parse_plan(npy_of({2, 4}, {1, 0, 2, 1, 2, 1, 1, 0}), file, {3, {1, 3}, 2}) == small_plan());
}
