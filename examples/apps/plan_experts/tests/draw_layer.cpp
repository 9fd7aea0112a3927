// SPDX-License-Identifier: Apache-2.0
// draw_layer RESULT.json PICTURE.svg
// Draws the layer that was worst before, from the file of plan_experts --json: the picture of the
// README.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "../report.hpp"

namespace {

using nlohmann::json;

std::vector<double> joined(json const& rows) {
  std::vector<double> values;
  for (json const& row : rows) {
    values.insert(values.end(), row.begin(), row.end());
  }
  return values;
}

examples::measured_plan measured(json const& side) {
  examples::measured_plan result;
  result.rank_loads = joined(side.at("rank_loads"));
  result.balancedness = side.at("balancedness").get<std::vector<double>>();
  return result;
}

void draw(char const* result, char const* picture) {
  json const file = json::parse(std::ifstream(result));
  json const& loads = file.at("comparisons").at(0);
  examples::outcome o;
  o.after.layers = file.at("layers");
  o.after.experts = file.at("experts");
  o.after.ranks = file.at("after").at("ranks");
  o.after.layer_ids = file.at("layer_ids").get<std::vector<std::int64_t>>();
  o.comparisons.resize(1);
  o.comparisons[0].expert_loads = joined(loads.at("expert_loads"));
  o.comparisons[0].before = measured(loads.at("before"));
  o.comparisons[0].after = measured(loads.at("after"));

  auto const& before = o.comparisons[0].before.balancedness;
  std::ofstream out(picture, std::ios::binary);
  examples::write_layer_picture(out, o,
                                std::min_element(before.begin(), before.end()) - before.begin());
  out.close();
  if (!out) {
    throw std::runtime_error("expected " + std::string(picture) + " to be written, got an error");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    return 2;
  }
  try {
    draw(argv[1], argv[2]);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "draw_layer: %s\n", e.what());
    return 1;
  }
}
