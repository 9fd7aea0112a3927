// SPDX-License-Identifier: Apache-2.0
// Three engines plan by one file of C++20, planner.cpp; this file and all others are C++17.
#include <cstdio>
#include <exception>

#include "rtp_llm/drive.hpp"
#include "tensorrt_llm/drive.hpp"
#include "xllm/drive.hpp"

int main() {
  try {
    tensorrt_llm::drive();
    xllm::drive();
    rtp_llm::drive();
  } catch (std::exception const& error) {
    std::fprintf(stderr, "cpp_engines: %s\n", error.what());
    return 1;
  }
}
