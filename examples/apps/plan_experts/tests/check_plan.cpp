// SPDX-License-Identifier: Apache-2.0
// check_plan LOADS.npy PLAN.json RANKS SLOTS|uneven LEAST_MEAN_BALANCEDNESS
// Checks a placement file against its description, and the balancedness by its definition. With
// uneven, layers may have different numbers of slots, and the slots of ranks may differ by at most
// one, in every layer and over all layers. Uses nothing of the library, so that it cannot share an
// error with it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "../npy.hpp"

namespace {

using matrix = std::vector<std::vector<double>>;

void expect(bool good, std::string const& what) {
  if (!good) {
    throw std::runtime_error(what);
  }
}

// [layers][experts], steps summed.
matrix total_loads(std::string const& file) {
  return std::visit(
      [](auto const& array) {
        expect(array.shape.size() == 2 || array.shape.size() == 3, "rank of LOADS");
        auto const experts = static_cast<std::size_t>(array.shape.back());
        auto const layers = static_cast<std::size_t>(array.shape[array.shape.size() - 2]);
        matrix result(layers, std::vector<double>(experts));
        for (std::size_t i = 0; i < array.values.size(); ++i) {
          result[i / experts % layers][i % experts] += static_cast<double>(array.values[i]);
        }
        return result;
      },
      examples::npy::read(file));
}

void expect_nearly_alike(std::vector<std::size_t> const& counts, std::string const& where) {
  auto const [least, most] = std::minmax_element(counts.begin(), counts.end());
  expect(*most <= *least + 1, "ranks whose slots differ by one at most " + where);
}

// Checks one layer and returns its balancedness.
double check_layer(std::vector<double> const& loads, std::vector<int> slots,
                   std::vector<std::size_t> const& offsets, std::vector<int> const& copies,
                   bool uneven) {
  expect(copies.size() == loads.size(), "replica_count has a value for every expert");
  expect(offsets.back() <= slots.size(), "rank_offsets within the slots");
  expect(uneven || offsets.back() == slots.size(), "rank_offsets up to the last slot");
  expect(std::count(slots.begin() + static_cast<std::ptrdiff_t>(offsets.back()), slots.end(), -1) ==
             static_cast<std::ptrdiff_t>(slots.size() - offsets.back()),
         "-1 behind the layer's slots");
  slots.resize(offsets.back());
  std::vector<int> found(loads.size());
  for (int const expert : slots) {
    expect(expert >= 0 && static_cast<std::size_t>(expert) < loads.size(), "expert ids in range");
    ++found[static_cast<std::size_t>(expert)];
  }
  expect(found == copies, "replica_count counts physical_to_logical");
  expect(*std::min_element(found.begin(), found.end()) >= 1, "every expert is present");
  expect(offsets.front() == 0, "rank_offsets from the first slot on");

  double largest = 0;
  for (std::size_t rank = 0; rank + 1 < offsets.size(); ++rank) {
    expect(uneven || offsets[rank] == rank * slots.size() / (offsets.size() - 1),
           "slots shared evenly");
    double load = 0;
    for (std::size_t slot = offsets[rank]; slot < offsets[rank + 1]; ++slot) {
      auto const expert = static_cast<std::size_t>(slots[slot]);
      load += loads[expert] / copies[expert];
    }
    largest = std::max(largest, load);
  }
  double const total = std::accumulate(loads.begin(), loads.end(), 0.0);
  return largest == 0 ? 1 : total / static_cast<double>(offsets.size() - 1) / largest;
}

void check(char const* const* arguments) {
  matrix const loads = total_loads(arguments[1]);
  auto const plan = nlohmann::json::parse(std::ifstream(arguments[2]));
  auto const ranks = std::stoul(arguments[3]);
  bool const uneven = arguments[4] == std::string("uneven");
  std::size_t const slots = uneven ? plan.at("slots").get<std::size_t>() : std::stoul(arguments[4]);
  double const least = std::stod(arguments[5]);

  expect(plan.size() == 10, "ten keys");
  expect(plan.at("format") == "plimsoll" && plan.at("version") == 1, "format and version");
  expect(plan.at("layers") == loads.size(), "layers");
  expect(plan.at("experts") == loads[0].size(), "experts");
  expect(plan.at("ranks") == ranks, "ranks");
  expect(plan.at("slots") == slots, "slots");
  for (char const* key : {"physical_to_logical", "rank_offsets", "replica_count"}) {
    expect(plan.at(key).size() == loads.size(), std::string(key) + " has a row for every layer");
  }
  expect(plan.at("layer_ids").size() == loads.size(), "layer_ids has a value for every layer");
  double sum = 0;
  std::size_t widest = 0;
  std::vector<std::size_t> slots_of_ranks(ranks);
  for (std::size_t layer = 0; layer < loads.size(); ++layer) {
    auto const placed = plan["physical_to_logical"][layer].get<std::vector<int>>();
    auto const offsets = plan["rank_offsets"][layer].get<std::vector<std::size_t>>();
    expect(placed.size() == slots, "physical_to_logical has a value for every slot");
    expect(offsets.size() == ranks + 1, "rank_offsets has a value for every rank, and one more");
    sum += check_layer(loads[layer], placed, offsets,
                       plan["replica_count"][layer].get<std::vector<int>>(), uneven);
    std::vector<std::size_t> of_layer(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      of_layer[rank] = offsets[rank + 1] - offsets[rank];
      slots_of_ranks[rank] += of_layer[rank];
    }
    expect_nearly_alike(of_layer, "in a layer");
    widest = std::max(widest, offsets.back());
  }
  expect(widest == slots, "no slot that no layer has");
  if (uneven) {
    expect_nearly_alike(slots_of_ranks, "over all layers");
  }
  double const mean = sum / static_cast<double>(loads.size());
  std::printf("mean balancedness %.6f\n", mean);
  expect(mean >= least, "mean balancedness of at least " + std::string(arguments[5]));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    return 2;
  }
  try {
    check(argv);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "check_plan: not so: %s\n", e.what());
    return 1;
  }
}
