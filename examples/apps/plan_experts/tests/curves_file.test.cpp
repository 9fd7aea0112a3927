// SPDX-License-Identifier: Apache-2.0
// The reader of latency curves: valid files, and every file that must be refused.
#include "../curves_file.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/latency.hpp>

#include "../input_file.hpp"

using examples::curve_samples;
using examples::file_error;
using examples::index_t;
using examples::parse_curves;
using nlohmann::json;

namespace {

/// A file of curves for two ranks.
json good() {
  return {{"tokens", {64, 128, 256}},
          {"latency_us", {{10, 12.5, 12.5}, {11, 14, 20}}},
          {"dense_until", 128}};
}

std::string refusal(std::string const& text, index_t ranks = 2) {
  try {
    static_cast<void>(parse_curves(text, "c.json", ranks));
  } catch (file_error const& e) {
    CHECK(e.file() == "c.json");
    return e.what();
  }
  return "";
}

/// Returns the message for a file in which `key` has `value`; empty if it is valid.
std::string with(char const* key, json value, index_t ranks = 2) {
  json changed = good();
  changed[key] = std::move(value);
  return refusal(changed.dump(), ranks);
}

std::string without(char const* key) {
  json changed = good();
  changed.erase(key);
  return refusal(changed.dump());
}

}  // namespace

TEST_CASE("curves_file: curves for every rank, for all, and speeds") {
  curve_samples const curves = parse_curves(good().dump(), "c.json", 2);
  CHECK(curves.tokens == std::vector<std::int64_t>{64, 128, 256});
  CHECK(curves.latency_us == std::vector<double>{10, 12.5, 12.5, 11, 14, 20});
  CHECK(curves.dense_until == 128);
  CHECK(curves.speeds.empty());
  auto const view = curves.view();
  CHECK(view(1, 65) == 14);
  CHECK(view(1, 192) == 17);
  CHECK(view(0, 0) == 0);

  json alike = good();
  alike["latency_us"] = {{10, 12.5, 13}};
  CHECK(parse_curves(alike.dump(), "c.json", 7).view()(6, 256) == 13);
  alike["speeds"] = {1, 0.5, 2};
  alike["device"] = "any";
  alike["experts"] = 8;
  curve_samples const fast = parse_curves(alike.dump(), "c.json", 3);
  CHECK(fast.speeds == std::vector<double>{1, 0.5, 2});
  CHECK(fast.view()(1, 64) == 20);
}

TEST_CASE("curves_file: the library accepts all curves that the reader accepts") {
  for (json value : {json{0, 1}, json{0, (std::int64_t{1} << 47) - 1}, json{7, 9}}) {
    json file{{"tokens", value}, {"latency_us", {{0, 0}, {0, 1e240}}}, {"dense_until", 0}};
    for (json const& until : {json(0), value[0], value[1]}) {
      file["dense_until"] = until;
      file["speeds"] = until == json(0) ? json{0x1p-64, 0x1p-48} : json{0x1p48, 0x1p64};
      CAPTURE(file.dump());
      auto const curves = parse_curves(file.dump(), "c.json", 2);
      plimsoll::latency_table const table(plimsoll::seq, curves.view(), 2);
      CHECK(table.cost().ranks() == 2);
    }
  }
  CHECK(with("dense_until", 1000).empty());  // only a staircase
  CHECK(with("dense_until", 256).empty());
}

TEST_CASE("curves_file: files that are not latency curves") {
  CHECK(refusal("") == "c.json: expected JSON, got a mistake at line 1, column 1");
  CHECK(refusal("{\n\"tokens\": [1,}") ==
        "c.json: expected JSON, got a mistake at line 2, column 14");
  CHECK(refusal("[]") == "c.json: expected keys and values, got a list");
  CHECK(refusal("{}") == "c.json: expected the key tokens, got none");
  CHECK(refusal(R"({"tokens": [1, 2], "tokens": [1, 2]})") ==
        "c.json: expected every key once, got another 'tokens'");
  CHECK(refusal(R"({"logical_count": [[1]]})") ==
        "c.json: expected latency curves, got loads or a plan (logical_count)");
  CHECK(refusal(R"({"physical_to_logical": [[1]]})") ==
        "c.json: expected latency curves, got loads or a plan (physical_to_logical)");
  CHECK(refusal(R"({"tokens": [1, 2], "latency_us": [[1, 1e999]], "dense_until": 0})") ==
        "c.json: expected numbers that fit in 64 bits, got one that does not");
  CHECK_THROWS_AS(static_cast<void>(examples::read_curves("no such file", 2)), file_error);
}

TEST_CASE("curves_file: missing and misspelt keys") {
  CHECK(without("tokens") == "c.json: expected the key tokens, got none");
  CHECK(without("latency_us") == "c.json: expected the key latency_us, got none");
  CHECK(without("dense_until") == "c.json: expected the key dense_until, got none");
  json renamed = good();
  renamed.erase("latency_us");
  renamed["latency"] = good()["latency_us"];
  CHECK(refusal(renamed.dump()) ==
        "c.json: expected the key latency_us, got none; is it 'latency'?");
  CHECK(with("speed", {1, 1}) ==
        "c.json: expected the key speeds, where there are some, got 'speed'");
  CHECK(with("seed", 1).empty());
  json both = good();
  both["speeds"] = {1, 1};
  both["speed"] = 3;
  CHECK(refusal(both.dump()).empty());
}

TEST_CASE("curves_file: numbers of tokens") {
  CHECK(with("tokens", 64) == "c.json: expected a list in tokens, got 64");
  CHECK(with("tokens", json::array()) == "c.json: expected at least 2 samples in tokens, got 0");
  CHECK(with("tokens", {64}) == "c.json: expected at least 2 samples in tokens, got 1");
  CHECK(with("tokens", {64, 64.5, 256}) ==
        "c.json: expected whole numbers below 2^63 in tokens, got 64.5 at place 1");
  std::string const rising = "c.json: expected tokens that rise, from 0 to below 2^47, got ";
  CHECK(with("tokens", {64, 64, 256}) == rising + "64 in tokens, sample 1");
  CHECK(with("tokens", {-1, 64, 256}) == rising + "-1 in tokens, sample 0");
  CHECK(with("tokens", {1, 2, std::int64_t{1} << 47}) ==
        rising + "140737488355328 in tokens, sample 2");
}

TEST_CASE("curves_file: latencies") {
  auto const latencies = [&](json value, index_t ranks = 2) {
    return with("latency_us", std::move(value), ranks);
  };
  CHECK(latencies("fast") == "c.json: expected a list in latency_us, got 'fast'");
  CHECK(latencies({1, 2, 3}, 3) == "c.json: expected a list in latency_us[0], got 1");
  std::string const rows = "c.json: expected a row in latency_us for each of the ";
  CHECK(with("device", "x", 3) == rows + "3 ranks, or one for all, got 2");
  CHECK(latencies(json::array()) == rows + "2 ranks, or one for all, got 0");
  CHECK(latencies({{1, 2, 3}, {1, 2}}) == "c.json: expected 3 values in latency_us[1], got 2");
  CHECK(latencies({{1, 2, 3, 4}}) == "c.json: expected 3 values in latency_us[0], got 4");
  CHECK(latencies({{1, 2, 3}, {1, nullptr, 3}}) ==
        "c.json: expected numbers in latency_us[1], got null at place 1");
  CHECK(latencies({{1, "2", 3}, {1, 2, 3}}) ==
        "c.json: expected numbers in latency_us[0], got '2' at place 1");
  std::string const falls =
      "c.json: expected latency_us from 0 to below 2^800 that do not fall from sample to sample, "
      "got ";
  CHECK(latencies({{1, 2, 3}, {1, 2.5, 2.25}}) ==
        falls + "2.25 after 2.5 in rank 1, sample 2 (256 tokens)");
  CHECK(latencies({{-0.5, 2, 3}, {1, 2, 3}}) == falls + "-0.5 in rank 0, sample 0 (64 tokens)");
  CHECK(latencies({{1, 2, 1e300}, {1, 2, 3}}) ==
        falls + "1e+300 after 2.0 in rank 0, sample 2 (256 tokens)");
  CHECK(latencies({{0, 0, 0}, {1, 1, 1}}).empty());
}

TEST_CASE("curves_file: dense_until and speeds") {
  std::string const until =
      "c.json: expected 0, one of tokens, or at least the last of them in dense_until, got ";
  CHECK(with("dense_until", 100) == until + "100");
  CHECK(with("dense_until", 1) == until + "1");
  for (json const& value : {json(-1), json(1.5), json("all"), json(nullptr)}) {
    CHECK(with("dense_until", value).find(" in dense_until, got ") != std::string::npos);
  }
  CHECK(with("speeds", {1}) == "c.json: expected 2 values in speeds, got 1");
  CHECK(with("speeds", 1) == "c.json: expected a list in speeds, got 1");
  CHECK(with("speeds", {1, true}) == "c.json: expected numbers in speeds, got true at place 1");
  CHECK(with("speeds", {1, 0}) == "c.json: expected speeds from 2^-64 to 2^64, got 0.0 in rank 1");
  CHECK(with("speeds", {1e30, 1}) ==
        "c.json: expected speeds from 2^-64 to 2^64, got 1e+30 in rank 0");
}
