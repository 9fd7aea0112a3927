// SPDX-License-Identifier: Apache-2.0
// The host parts of profile_ranks, with a timer that returns a staircase, and the file that
// plan_experts reads.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "../../plan_experts/curves_file.hpp"
#include "../options.hpp"
#include "../profile.hpp"

using namespace profile_ranks_example;
using sizes = std::vector<std::int64_t>;
using doubles = std::vector<double>;

namespace {

options small_options() {
  options o;
  o.hidden = 128;
  o.intermediate = 256;
  o.experts = 3;
  o.tile = 32;
  o.dense_until = 100;
  o.sparse_step = 64;
  o.max_tokens = 250;
  o.launches = 5;
  return o;
}

/// Returns a timer of 20 us plus `step` for every tile of 32 tokens, with an outlier on each side
/// of the median.
launch_timer staircase(double step) {
  return [=](std::int64_t tokens, std::int64_t launches) {
    doubles times(static_cast<std::size_t>(launches),
                  20 + step * static_cast<double>((tokens + 31) / 32));
    times.front() = 1e6;
    times.back() = 0.5;
    return times;
  };
}

/// Parses arguments; returns the options and the exit code.
std::pair<options, int> told(std::vector<char const*> arguments) {
  arguments.insert(arguments.begin(), "profile_ranks");
  std::pair<options, int> result;
  result.second = run(static_cast<int>(arguments.size()), arguments.data(),
                      [&](options const& o) { result.first = o; });
  return result;
}

}  // namespace

TEST_CASE("profile_ranks: options") {
  auto const [few, good] = told({"--hidden", "64", "--intermediate", "32", "--output", "c.json"});
  CHECK(good == 0);
  CHECK(few.hidden == 64);
  CHECK(few.intermediate == 32);
  CHECK(few.output == "c.json");
  CHECK(few.launches == 100);
  CHECK_FALSE(few.device.has_value());
  auto const [all, too] =
      told({"--hidden",     "7168",  "--intermediate", "2048", "--experts",     "4",
            "--tile",       "128",   "--dense-until",  "1024", "--sparse-step", "512",
            "--max-tokens", "4096",  "--launches",     "9",    "--device",      "1",
            "--output",     "c.json"});
  CHECK(too == 0);
  CHECK(all.experts == 4);
  CHECK(all.tile == 128);
  CHECK(all.dense_until == 1024);
  CHECK(all.sparse_step == 512);
  CHECK(all.max_tokens == 4096);
  CHECK(all.launches == 9);
  CHECK(all.device == 1);

  std::vector<char const*> const complete{"--hidden", "64",       "--intermediate",
                                          "32",       "--output", "c.json"};
  CHECK(told({"--help"}).second == 0);
  CHECK(told({"--hidden", "64", "--output", "c.json"}).second == 2);
  CHECK(told({"--hidden", "64", "--intermediate", "32"}).second == 2);
  for (auto const& [option, value] : {std::pair{"--tile", "0"},
                                      {"--launches", "0"},
                                      {"--launches", "few"},
                                      {"--experts", "-1"},
                                      {"--dense-until", "-1"},
                                      {"--sparse-step", "0"},
                                      {"--max-tokens", "9999999"},
                                      {"--device", "-1"},
                                      {"--hidden", "64"},
                                      {"--tiles", "3"}}) {
    auto arguments = complete;
    arguments.insert(arguments.end(), {option, value});
    CHECK(told(arguments).second == 2);
  }
}

TEST_CASE("profile_ranks: exit codes") {
  std::vector<char const*> const arguments{"profile_ranks", "--hidden", "1", "--intermediate", "1",
                                           "--output",      "c.json"};
  auto const code = [&](auto const& error) {
    return run(static_cast<int>(arguments.size()), arguments.data(),
               [&](options const&) { throw error; });
  };
  CHECK(code(no_gpu("no GPU: none")) == 77);
  CHECK(code(bad_option("--device: expected one of the 2 GPUs, from 0, got 2")) == 2);
  CHECK(code(std::runtime_error("cudaMalloc: out of memory")) == 1);
}

TEST_CASE("profile_ranks: experts share the tokens evenly") {
  CHECK(tokens_of_experts(64, 1) == sizes{64});
  CHECK(tokens_of_experts(64, 3) == sizes{22, 21, 21});
  CHECK(tokens_of_experts(2, 4) == sizes{1, 1, 0, 0});
  for (std::int64_t const tokens : {1, 7, 100}) {
    auto const share = tokens_of_experts(tokens, 6);
    CHECK(std::accumulate(share.begin(), share.end(), std::int64_t{0}) == tokens);
    CHECK(share.front() <= share.back() + 1);
  }
}

TEST_CASE("profile_ranks: medians") {
  CHECK(median({3}) == 3);
  CHECK(median({9, 1, 2}) == 2);
  CHECK(median({4, 1, 3, 2}) == 2);
}

TEST_CASE("profile_ranks: latencies that fall are raised, and counted") {
  sizes const tokens{1, 2, 3, 4, 5, 6};
  doubles latency{10, 9, 9.5, 12, 8, 13};
  corrections const raised = make_rising(tokens, latency);
  CHECK(latency == doubles{10, 10, 10, 12, 12, 13});
  CHECK(raised.samples == 3);
  CHECK(raised.largest_us == 4);
  CHECK(raised.largest_at == 5);
  corrections const none = make_rising(tokens, latency);
  CHECK(none.samples == 0);
  CHECK(none.largest_us == 0);
}

TEST_CASE("profile_ranks: every sample is measured, rank by rank") {
  options const o = small_options();
  profile p = plan_profile(o);
  CHECK(p.tokens == sizes{32, 64, 96, 128, 192, 256});
  CHECK(p.dense_until == 128);
  sizes asked;
  measure_rank(p, o, "fast", [&](std::int64_t tokens, std::int64_t launches) {
    asked.push_back(tokens);
    CHECK(launches == 5);
    return staircase(3)(tokens, launches);
  });
  CHECK(asked == p.tokens);
  measure_rank(p, o, "odd", [](std::int64_t tokens, std::int64_t) {
    return doubles{tokens == 192 ? 20.0 : tokens == 256 ? 30.25 : 31.5};
  });
  REQUIRE(p.ranks.size() == 2);
  CHECK(p.ranks[0].latency_us == doubles{23, 26, 29, 32, 38, 44});
  CHECK(p.ranks[1].latency_us == doubles{31.5, 31.5, 31.5, 31.5, 31.5, 31.5});
  std::ostringstream out;
  print_profile(out, p);
  CHECK(out.str() ==
        "rank 0 (fast): 6 samples, 23.00 us for 32 tokens to 44.00 us for 256\n"
        "rank 1 (odd): 6 samples, 31.50 us for 32 tokens to 31.50 us for 256; samples raised: 2, "
        "by at most 11.50 us (at 192 tokens)\n");
  for (double const bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity()}) {
    CHECK_THROWS_WITH(measure_rank(p, o, "",
                                   [=](std::int64_t, std::int64_t) {
                                     return doubles{1, bad};
                                   }),
                      "rank 2: expected a time for 32 tokens, got none");
  }
  CHECK_THROWS(measure_rank(p, o, "", [](std::int64_t, std::int64_t) { return doubles{}; }));
  CHECK(p.ranks.size() == 2);
}

TEST_CASE("profile_ranks: plan_experts reads the written file") {
  for (auto const& [dense_until, max_tokens] :
       {std::pair{100, 250}, {0, 250}, {100, 64}, {100, 1}, {0, 1}, {1000, 250}}) {
    options o = small_options();
    o.dense_until = dense_until;
    o.max_tokens = max_tokens;
    CAPTURE(o.dense_until);
    CAPTURE(o.max_tokens);
    profile p = plan_profile(o);
    measure_rank(p, o, "a \"GPU\" caf\xe9", staircase(3));
    measure_rank(p, o, "another", staircase(3.3));
    std::ostringstream out;
    write_profile(out, p, o);
    auto const read = examples::parse_curves(out.str(), "curves.json", 2);
    CHECK(read.tokens == p.tokens);
    CHECK(read.dense_until == p.dense_until);
    CHECK(read.speeds.empty());
    doubles both = p.ranks[0].latency_us;
    both.insert(both.end(), p.ranks[1].latency_us.begin(), p.ranks[1].latency_us.end());
    CHECK(read.latency_us == both);
    // The curve equals the staircase at every number of tokens.
    auto const curves = read.view();
    for (std::int64_t n = 1; n <= std::min(p.dense_until, p.tokens.back()); ++n) {
      CHECK(curves(0, static_cast<double>(n)) == 20 + 3 * std::ceil(static_cast<double>(n) / 32));
    }
    p.ranks.pop_back();
    out.str("");
    write_profile(out, p, o);
    CHECK(examples::parse_curves(out.str(), "curves.json", 64).latency_us.size() ==
          p.tokens.size());
    auto const json = nlohmann::json::parse(out.str());
    CHECK(json.at("hidden") == 128);
    CHECK(json.at("intermediate") == 256);
    CHECK(json.at("experts") == 3);
    CHECK(json.at("tile") == 32);
    CHECK(json.at("launches") == 5);
    CHECK(json.at("raised") == sizes{0});
    CHECK(json.at("device").size() == 1);
  }
}

TEST_CASE("profile_ranks: the file appears only when it is complete") {
  auto const folder = std::filesystem::temp_directory_path() / "plimsoll_profile_ranks_test";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  auto const name = folder / "curves.json";
  auto const files = [&] { return std::distance(std::filesystem::directory_iterator(folder), {}); };
  options const o = small_options();
  profile p = plan_profile(o);
  measure_rank(p, o, "x", staircase(1));
  { curves_file const unused(name.string()); }
  CHECK(files() == 0);
  std::ofstream(name) << "old";
  {
    curves_file file(name.string());
    std::string word;
    std::ifstream(name) >> word;
    CHECK(word == "old");
    file.write(p, o);
  }
  CHECK(files() == 1);
  CHECK(examples::read_curves(name.string(), 9).tokens == p.tokens);
  CHECK_THROWS_AS(curves_file((folder / "no" / "c.json").string()), bad_option);
  std::filesystem::remove_all(folder);
}
