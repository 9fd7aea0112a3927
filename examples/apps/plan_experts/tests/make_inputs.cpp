// SPDX-License-Identifier: Apache-2.0
// make_inputs FOLDER: writes the small load files, valid and invalid, that the tests of
// plan_experts read.
#include <sys/stat.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "../npy.hpp"

namespace {

using shape_t = std::vector<std::int64_t>;

template <class T>
std::string array_file(shape_t const& shape, std::vector<std::type_identity_t<T>> const& values) {
  std::ostringstream out;
  examples::npy::write<T>(out, shape, values);
  return out.str();
}

std::string replaced(std::string text, std::string const& from, std::string const& to) {
  return text.replace(text.find(from), from.size(), to);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    return 2;
  }
  std::filesystem::path const folder = argv[1];
  std::filesystem::create_directories(folder);
  auto const save = [&](char const* name, std::string const& bytes) {
    std::ofstream(folder / name, std::ios::binary) << bytes;
  };

  // Layer 0: expert 1 is hot. Layer 1: uniform. The three steps sum to the two-dimensional file.
  std::vector<std::int64_t> const loads{30, 120, 60, 30, 15, 45, 50, 50, 50, 50, 50, 50};
  std::string const good = array_file<std::int64_t>({2, 6}, loads);
  save("loads.npy", good);
  save("loads.json",
       R"({"logical_count": [[30,120,60,30,15,45], [50,50,50,50,50,50]], "rank": 0})");
  save("loads.csv", "30,120,60,30,15,45\n50,50,50,50,50,50\n");
  save("other.npy", array_file<std::int64_t>({2, 6}, {9, 9, 9, 9, 9, 9, 1, 0, 0, 0, 0, 0}));
  // Loads of layers 1 and 2, after a dense layer.
  save("dense.npy", array_file<std::int64_t>({3, 6}, {0, 0, 0, 0, 0, 0, 30, 120, 60, 30, 15, 45, 50,
                                                      50, 50, 50, 50, 50}));
  std::vector<std::int32_t> steps;
  for (int const parts : {1, 0, 4}) {
    for (std::int64_t const load : loads) {
      steps.push_back(static_cast<std::int32_t>(load * parts / 5));
    }
  }
  save("steps.npy", array_file<std::int32_t>({3, 2, 6}, steps));
  save("floats.npy", array_file<double>({2, 6}, {loads.begin(), loads.end()}));
  save("floats32.npy", array_file<float>({2, 6}, {loads.begin(), loads.end()}));
  save("zeros.npy", array_file<std::int32_t>({1, 4}, {0, 0, 0, 0}));

  save("rank1.npy", array_file<std::int32_t>({4}, {1, 2, 3, 4}));
  save("rank4.npy", array_file<std::int32_t>({1, 1, 2, 2}, {1, 2, 3, 4}));
  save("negative.npy", array_file<std::int64_t>({2, 2}, {1, 2, 3, -4}));
  // Negative in one step, positive in the sum.
  save("negative_step.npy", array_file<std::int32_t>({2, 1, 2}, {9, 9, 9, -4}));
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  save("nan.npy", array_file<double>({2, 2}, {1, 2, nan, 4}));
  save("nan_step.npy", array_file<float>({2, 1, 2}, {1, 2, std::nanf(""), 4}));
  save("infinite.npy", array_file<double>({1, 2}, {1, infinity}));
  save("above_range.npy",
       array_file<std::int64_t>({1, 2}, {std::int64_t{1} << 46, std::int64_t{1} << 46}));
  constexpr std::int64_t quarter = std::int64_t{1} << 45;
  save("total_of_steps.npy",
       array_file<std::int64_t>({2, 2, 2}, {1, 1, quarter, quarter, 1, 1, quarter, quarter}));
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  save("overflow.npy", array_file<std::int64_t>({2, 1, 2}, {largest, 1, largest, 1}));
  save("above_range_float.npy", array_file<double>({1, 2}, {1, 1e30}));

  // Every column has the same total, and the totals of rows differ.
  save("transposed.npy", array_file<std::int32_t>({6, 4}, {1, 2, 3, 4, 9, 8, 7, 6, 5, 5, 5, 5,  //
                                                           2, 1, 4, 3, 3, 2, 0, 0, 0, 2, 1, 2}));
  save("three_layers.npy", array_file<std::int32_t>({3, 6}, std::vector<std::int32_t>(18, 1)));
  save("five_experts.npy", array_file<std::int32_t>({2, 5}, std::vector<std::int32_t>(10, 1)));
  save("plan.json", R"({"physical_to_logical_map": [[0,1,2,3,4,5,0,1], [0,1,2,3,4,5,2,3]]})");
  save("short_plan.json", R"({"physical_to_logical_map": [[0,1,2,3,4,5,0,1]]})");
  save("other_plan.json", R"({"physical_to_logical_map": [[0,1,2,3,4,5,6,7], [0,1,2,3,4,5,6,7]]})");
  save("wide_plan.json", R"({"physical_to_logical_map": [[0,1,2,3,4,5,0,1,2,3,4,5],
                                                         [0,1,2,3,4,5,0,1,2,3,4,5]]})");
  // The last of four ranks has no slots.
  save("dead_plan.json", R"({"format": "plimsoll", "version": 1, "layers": 2, "experts": 6,
    "ranks": 4, "slots": 8, "layer_ids": [0, 1],
    "physical_to_logical": [[0,1,2,3,4,5,0,1], [0,1,2,3,4,5,2,3]],
    "rank_offsets": [[0,2,4,8,8], [0,2,5,8,8]],
    "replica_count": [[2,2,1,1,1,1], [1,1,2,2,1,1]]})");
  // The loads of loads.npy, divided among the slots of plan.json, as [layers, ranks, slots of a
  // rank].
  save("slots.npy", array_file<std::int32_t>({2, 4, 2}, {20, 100, 60, 30, 15, 45, 10, 20,  //
                                                         50, 50, 20, 10, 50, 50, 30, 40}));
  // Every rank's share of loads.npy, as (ranks, layers, experts): all tokens of expert r start on
  // rank r.
  save("sources.npy", array_file<std::int32_t>({4, 2, 6}, {1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1,  //
                                                           0, 1, 0, 0, 1, 1, 0, 1, 0, 0, 1, 1,  //
                                                           0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 1, 1,  //
                                                           0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1}));
  save("negative_sources.npy",
       array_file<std::int32_t>({2, 2, 6}, {1, 1, 1, 1, 1, 1, -1, 1, 1, 1, 1, 1,  //
                                            1, 1, 1, 1, 1, 1, 1,  1, 1, 1, 1, 1}));
  save("slot_steps.npy", array_file<std::int32_t>({1, 2, 8}, {20, 100, 60, 30, 15, 45, 10, 20,  //
                                                              50, 50, 20, 10, 50, 50, 30, 40}));
  save("no_key.json", R"({"counts": [[1,2,3]], "rank": 0})");
  save("loads.txt", "1,2\n");

  // Four ranks, the last of which is slower.
  std::string const alike = "[20, 26, 30, 50]";
  std::string const curves = R"({"device": "none", "tokens": [8, 16, 24, 64], "latency_us": [)" +
                             alike + ", " + alike + ", " + alike +
                             R"(, [25, 32, 40, 62.5]], "dense_until": 24})";
  save("curves.json", curves);
  save("one_curve.json", R"({"tokens": [8, 16, 24, 64], "latency_us": [)" + alike +
                             R"(], "dense_until": 24, "speeds": [1, 1, 1, 0.8]})");
  save("falling_curves.json", replaced(curves, "[25, 32, 40,", "[25, 32, 31.5,"));
  save("ragged_curves.json", replaced(curves, "[25, 32,", "[25,"));
  save("misnamed_curves.json", replaced(curves, "latency_us", "latencyus"));
  save("text_curves.json", "tokens: 1\n");
  save("one_sample.json", R"({"tokens": [64], "latency_us": [[20]], "dense_until": 0})");

  std::filesystem::create_directory(folder / "folder.npy");
  static_cast<void>(::mkfifo((folder / "pipe.json").c_str(), 0600));  // fails if it already exists
  save("loads.pt", "PK");
  save("array.json", good);
  save("empty.json", "");
  save("empty.csv", "");
  save("empty.npy", "");
  save("text.npy", "expert,load\n0,17\n");
  save("truncated.npy", good.substr(0, good.size() - 3));
  save("truncated_header.npy", good.substr(0, 40));
  save("trailing.npy", good + "x");
  save("corrupt.npy", replaced(good, "'shape'", "'shap!'"));
  save("no_experts.npy", replaced(good, "(2, 6)", "(2, 0)"));
  save("complex.npy", replaced(good, "<i8", "<c8"));
  save("huge.npy", replaced(good, "(2, 6), }           ", "(99999999999, 9999)}"));
}
