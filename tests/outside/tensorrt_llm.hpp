// SPDX-License-Identifier: Apache-2.0
/// @file
/// Inputs and expected values of moeLoadBalancerTest.cpp in cpp/tests/unit_tests/runtime of
/// TensorRT-LLM (github.com/NVIDIA/TensorRT-LLM at 8cec0a5, Apache-2.0).
#pragma once

#include <cstdint>
#include <vector>

namespace plimsoll_outside_tensorrt_llm {

/// Loads of one layer and the number of copies that each expert gets.
struct count_case {
  char const* name;
  int ranks, slots;
  std::vector<float> loads;
  std::vector<std::int32_t> theirs;
};

inline std::vector<count_case> count_cases() {
  return {
      {"as many slots as experts", 2, 4, {1, 2, 3, 4}, {1, 1, 1, 1}},
      {"proportional to the loads", 4, 8, {1, 4, 2, 1}, {1, 4, 2, 1}},
      {"uneven", 3, 9, {10, 5, 2, 15, 8}, {2, 1, 1, 3, 2}},
      {"one expert with load", 2, 4, {0, 10, 0}, {1, 2, 1}},
      {"no load", 3, 6, {0, 0, 0, 0}, {2, 2, 1, 1}},
  };
}

/// Copies to place, and the largest difference of two rank loads that TensorRT-LLM allows.
struct spread_case {
  char const* name;
  int ranks, slots;
  std::vector<float> loads;
  std::vector<std::int32_t> copies;
  double most;
};

inline std::vector<spread_case> spread_cases() {
  return {
      {"equal loads", 2, 4, {1, 1, 1, 1}, {1, 1, 1, 1}, 0.001},
      {"varied loads", 2, 6, {1, 3, 2, 1}, {1, 2, 2, 1}, 0.01},
      {"three ranks", 3, 9, {10, 5, 2, 15, 8}, {2, 1, 1, 3, 2}, 2},
      {"extreme loads", 2, 4, {1, 100, 10}, {1, 2, 1}, 9},
      {"one copy of each expert", 2, 6, {2, 3, 4, 5, 6, 7}, {1, 1, 1, 1, 1, 1}, 1},
  };
}

}  // namespace plimsoll_outside_tensorrt_llm
