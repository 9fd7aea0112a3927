// SPDX-License-Identifier: Apache-2.0
// Messages of the programs for mistyped words and numbers.
#include "../command_line.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "../progress.hpp"

namespace {

using words = std::vector<std::string>;

std::string refusal(CLI::Validator const& check, std::string text) { return check(text); }

}  // namespace

TEST_CASE("command_line: the nearest word") {
  words const formats{"plimsoll", "sglang", "trtllm", "vllm-ascend", "npy"};
  CHECK(examples::nearest("sgl", formats) == "sglang");
  CHECK(examples::nearest("SGLang", words{"sglang"}) == "sglang");
  CHECK(examples::nearest("slgang", formats) == "sglang");
  CHECK(examples::nearest("tensorrt-llm", formats) == "trtllm");
  CHECK(examples::nearest("vllm", formats) == "vllm-ascend");
  CHECK(examples::nearest("vllm_ascend", formats) == "vllm-ascend");
  CHECK(examples::nearest("numpy", formats) == "npy");
  CHECK(examples::nearest("plimsol", formats) == "plimsoll");
  CHECK(examples::nearest("yaml", formats).empty());
  CHECK(examples::nearest("", formats).empty());
  CHECK(examples::nearest("x", {}).empty());
  CHECK(examples::nearest("--slot", words{"--ranks", "--slots"}) == "--slots");
}

TEST_CASE("command_line: words") {
  CHECK(examples::sentence_of({"eplb"}) == "eplb");
  CHECK(examples::sentence_of({"eplb", "none"}) == "eplb or none");
  auto const planner = examples::one_of({"eplb", "craft", "none"});
  CHECK(refusal(planner, "eplb").empty());
  CHECK(refusal(planner, "eblp") == "expected eplb, craft or none, got 'eblp'; did you mean eplb?");
  CHECK(refusal(planner, "xxxxxxx") == "expected eplb, craft or none, got 'xxxxxxx'");
}

TEST_CASE("command_line: numbers") {
  auto const ranks = examples::whole_number(1, 8);
  for (char const* good : {"1", "8"}) {
    CHECK(refusal(ranks, good).empty());
  }
  for (char const* bad :
       {"0", "9", "-1", "+1", " 1", "1 ", "1.0", "1e0", "0x1", "", "nan", "18446744073709551617"}) {
    CHECK(refusal(ranks, bad) ==
          "expected a whole number from 1 to 8, got '" + std::string(bad) + "'");
  }
}

TEST_CASE("command_line: positive numbers") {
  auto const speed = examples::positive_number(100);
  for (char const* good : {"0.2", "1e-300", "100", "1e2"}) {
    CHECK(refusal(speed, good).empty());
  }
  for (char const* bad : {"0", "-0.2", "100.1", "nan", "inf", "1e999", "", "1x", " 1", "+1"}) {
    CHECK(refusal(speed, bad) ==
          "expected a number above 0, at most 100, got '" + std::string(bad) + "'");
  }
}

TEST_CASE("progress: at most five times a second, and not at once") {
  using namespace std::chrono_literals;
  examples::throttle::clock::time_point const start{};
  examples::throttle throttle(start);
  int shown = 0;
  for (auto time = 0ms; time <= 2s; time += 1ms) {
    shown += throttle.passes(start + time);
  }
  CHECK(shown == 10);
  examples::throttle rare(start);
  CHECK_FALSE(rare.passes(start));
  CHECK_FALSE(rare.passes(start + 199ms));
  CHECK(rare.passes(start + 10s));
  CHECK_FALSE(rare.passes(start + 10s + 199ms));
  CHECK(rare.passes(start + 10s + 200ms));
}
