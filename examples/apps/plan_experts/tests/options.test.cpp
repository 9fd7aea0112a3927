// SPDX-License-Identifier: Apache-2.0
// Checks of options that need no file.
#include "../options.hpp"

#include <doctest/doctest.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace {

using ids = std::vector<std::int64_t>;

/// Returns the message for arguments after the required ones; empty if the program accepts them.
std::string refusal(std::vector<std::string> arguments,
                    std::vector<std::string> const& required = {"--ranks", "4", "--slots", "8"}) {
  CLI::App app("", "plan_experts");
  examples::options o;
  examples::add_options(app, o);
  arguments.insert(arguments.begin(), required.begin(), required.end());
  arguments.insert(arguments.begin(), "loads.npy");
  std::vector<std::string> const reversed(arguments.rbegin(), arguments.rend());
  try {
    auto copy = reversed;  // CLI11 reads them from the end
    app.parse(copy);
    examples::check_options(app, o);
  } catch (std::exception const& e) {
    return e.what();
  }
  return "";
}

ids layer_ids(std::string const& list, examples::index_t planned) {
  examples::options o;
  o.layer_ids = list;
  return examples::layer_ids_of(o, planned, planned);
}

}  // namespace

TEST_CASE("options: an empty value is refused") {
  CHECK(refusal({"--output", "plan.json"}).empty());
  for (std::string const option :
       {"--output", "--report", "--json", "--plan", "--evaluate", "--key", "--previous"}) {
    CHECK(refusal({option, ""}) == option + ": expected a value, got an empty one");
  }
}

TEST_CASE("options: moves need the plan in use") {
  std::vector<std::vector<std::string>> const needing = {
      {"--max-moves", "0"},   {"--max-bytes", "0"}, {"--rounds", "one-peer"},
      {"--bandwidth", "0.5"}, {"--token-us", "1"},  {"--transfers", "t.json"},
      {"--lost-ranks", "1"}};
  for (auto const& option : needing) {
    CHECK(refusal(option) == option[0] + ": expected --previous with it, got none");
  }
  CHECK(refusal({"--previous", "a.json"}).empty());
  CHECK(refusal({"--previous", "a.json", "--max-moves", "0"}).empty());
  CHECK(refusal({"--previous", "a.json", "--max-bytes", "0", "--expert-bytes", "44MB"}).empty());
  CHECK(refusal({"--previous", "a.json", "--transfers", "t.json", "--rounds", "send-receive",
                 "--nodes", "2", "--bandwidth", "25", "--token-us", "0.5"})
            .empty());
}

TEST_CASE("options: moves that contradict each other") {
  auto const moved = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--previous", "a.json"});
    return refusal(std::move(arguments));
  };
  CHECK(moved({"--max-moves", "3", "--max-bytes", "6GB", "--expert-bytes", "1MB"}) ==
        "--max-bytes: expected no value with --max-moves, got '6000000000'");
  CHECK(moved({"--max-bytes", "6GB"}) ==
        "--expert-bytes: expected a value, since --max-bytes is divided by it, got none");
  CHECK(moved({"--plan", "b.json"}) ==
        "--plan: expected no value with --previous, unless --planner is none, got 'b.json'");
  CHECK(moved({"--bandwidth", "25"}) ==
        "--bandwidth: expected --nodes above 1 with it, since it is that across nodes, got 1");
  CHECK(moved({"--max-moves", "3", "--nodes", "2", "--groups", "2"}) ==
        "--groups: expected 1 where moves are limited and --nodes is above 1, got 2");
  CHECK(moved({"--transfers", "t.txt"}) ==
        "--transfers: expected a name that ends in .json, got 't.txt'");
  CHECK(moved({"--transfers", "a.json"}) ==
        "--transfers: expected another file than --previous, got 'a.json' for both");
  CHECK(moved({"--planner", "gem", "--latency", "c.json", "--max-moves", "3"}) ==
        "--max-moves: expected no value with --planner gem, which considers only latency, got '3'");
  CHECK(moved({"--planner", "gem", "--latency", "c.json", "--nodes", "2"}).empty());
}

TEST_CASE("options: sizes are whole numbers of bytes, in the words of the user") {
  auto const size = [](std::string const& text) {
    CLI::App app("", "plan_experts");
    examples::options o;
    examples::add_options(app, o);
    std::vector<std::string> reversed{text, "--expert-bytes", "loads.npy"};
    app.parse(reversed);
    return o.expert_bytes.value_or(-1);
  };
  CHECK(size("44MB") == 44'000'000);
  CHECK(size("42MiB") == 42 << 20);
  CHECK(size("42mib") == 42 << 20);
  CHECK(size("1.5 GB") == 1'500'000'000);
  CHECK(size("0.5KiB") == 512);
  CHECK(size("3M") == 3'000'000);
  CHECK(size("7") == 7);
  CHECK(size("7B") == 7);
  CHECK(size("1TiB") == std::int64_t{1} << 40);
  for (std::string const text : {"-5MB", "1e30", "nan", "6XB", "0.0001kB", "1.5B", "1..5MB", "MB",
                                 "2TiB", "0", "99999999999999999999", "9223372036854775807TB",
                                 "1.5.MB", "5i", "5ib", "5kbb", "5 M B x"}) {
    CAPTURE(text);
    CHECK(refusal({"--expert-bytes", text}) ==
          "--expert-bytes: expected a size from 1 to 1099511627776 bytes, such as 44MB or 42MiB, "
          "got '" +
              text + "'");
  }
}

TEST_CASE("options: lost ranks increase") {
  auto const lost = [](std::string const& list) {
    return refusal({"--previous", "a.json", "--lost-ranks", list});
  };
  CHECK(lost("0,3,12").empty());
  for (std::string const list : {"x", "1,,2", "2,1", "1,1", "-1", "1:2", "1,"}) {
    CAPTURE(list);
    bool const ends = list == "1,";  // as in --layer-ids, a comma may end the list
    CHECK(lost(list) ==
          (ends ? ""
                : "--lost-ranks: expected ranks that increase, such as 2,5, got '" + list + "'"));
  }
}

TEST_CASE("options: loads of slots need the plan in use") {
  CHECK(refusal({"--slot-loads"}) ==
        "--slot-loads: expected --previous or --plan with the plan in use, got none of them");
  CHECK(refusal({"--slot-loads", "--plan", "a.json"}).empty());
  CHECK(refusal({"--slot-loads", "--previous", "a.json"}).empty());
  CHECK(refusal({"--trust-shape"}).empty());
}

TEST_CASE("options: without a planner, a plan is refined, moved to, or kept") {
  auto const given = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--planner", "none"});
    return refusal(std::move(arguments), {"--ranks", "4"});
  };
  CHECK(given({}) ==
        "--plan: expected a file with the plan, since --planner is none, got no value");
  CHECK(given({"--plan", "a.json", "--refine", "joint", "--apart", "rank", "--policy", "seq"})
            .empty());
  CHECK(given({"--previous", "a.json"}).empty());
  CHECK(given({"--previous", "a.json", "--plan", "b.json", "--nodes", "2"}).empty());
  CHECK(given({"--previous", "a.json", "--max-moves", "1", "--apart", "rank"}).empty());
  CHECK(
      given({"--previous", "a.json", "--apart", "rank"}) ==
      "--apart: expected no value with --planner none, which takes the plan as it is, got 'rank'");
  CHECK(given({"--plan", "a.json", "--nodes", "2"}).empty());
  CHECK(given({"--plan", "a.json", "--refine", "joint", "--groups", "2"}) ==
        "--groups: expected no value with --planner none, got '2'");
}

TEST_CASE("options: ids of layers, with steps") {
  CHECK(layer_ids("1:48:2", 24).size() == 24);
  CHECK(layer_ids("1:6:2", 3) == ids{1, 3, 5});
  CHECK(layer_ids("1:7:2", 3) == ids{1, 3, 5});
  CHECK(layer_ids("1::2", 3) == ids{1, 3, 5});
  CHECK(layer_ids(":5:3", 2) == ids{0, 3});
  CHECK(layer_ids("0,1:4:2,7:", 5) == ids{0, 1, 3, 7, 8});
  for (char const* const list : {"1:6:0", "1:6:-1", "1:6:x", "1:6:", "1:6:2:3"}) {
    CHECK_THROWS_WITH(layer_ids(list, 3),
                      ("--layer-ids: expected ids as first:end or first:end:step, such as 1:48:2, "
                       "got '" +
                       std::string(list) + "'")
                          .c_str());
  }
  CHECK_THROWS_WITH(layer_ids("1:6:2", 4),
                    "--layer-ids: expected one id for each of the 4 layers to plan, got 3");
}
