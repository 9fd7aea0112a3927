// SPDX-License-Identifier: Apache-2.0
// Tests of the moves from the plan in use that plan_experts prints.
#include <doctest/doctest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include <plimsoll/migration_types.hpp>

#include "../outcome.hpp"
#include "../outcome_json.hpp"
#include "../outcome_table.hpp"

using namespace examples;
using nlohmann::json;
using plimsoll::transfer_kind;

namespace {

/// Two layers of four experts on two ranks. In layer 3 experts 2 and 3 change places (slots 2 and
/// 3); in layer 5 slot 5 gets a copy of expert 0, which its rank has. Two steps of a.npy save ten
/// tokens each, b.npy saves nothing.
outcome moved() {
  outcome result{.planner = "eplb",
                 .refinement = "none",
                 .policy = "seq",
                 .before_name = "old.json",
                 .ranks = {"old.json", 2, {0, 1}, 0}};
  result.program = "plan_experts 0.4.0";
  result.expert_bytes = 1 << 20;
  result.milliseconds = 0.25;
  result.runs = 5;
  result.before = trivial_plan(2, 4, 2, 6);
  result.before.layer_ids = {3, 5};
  result.after = result.before;
  result.after.physical_to_logical = {0, 1, 3, 2, 0, 1, 0, 1, 2, 3, 0, 0};
  result.after.replica_count = {2, 2, 1, 1, 3, 1, 1, 1};
  migration_outcome moves{.token_us = 0.5, .changed_layers = {0, 1}};
  moves.transfers.list = {{.layer = 0,
                           .expert = 3,
                           .source_rank = 1,
                           .source_slot = 3,
                           .destination_rank = 0,
                           .destination_slot = 2,
                           .kind = transfer_kind::same_node,
                           .bytes = 1 << 20},
                          {.layer = 0,
                           .expert = 2,
                           .source_rank = 0,
                           .source_slot = 2,
                           .destination_rank = 1,
                           .destination_slot = 3,
                           .kind = transfer_kind::across_nodes,
                           .bytes = 1 << 20},
                          {.layer = 1,
                           .expert = 0,
                           .source_rank = 1,
                           .source_slot = 4,
                           .destination_rank = 1,
                           .destination_slot = 5,
                           .kind = transfer_kind::local_copy,
                           .bytes = 1 << 20}};
  moves.transfers.layers = {{1, 1, 2, {2, 0}}, {3, 0, 1, {0, 1}}};
  moves.transfers.sent_bytes = moves.transfers.received_bytes = {1 << 20, 1 << 20};
  moves.transfers.seconds = 12e-6;
  result.moves = moves;
  result.comparisons.resize(2);
  comparison& first = result.comparisons[0];
  first.loads = "a.npy";
  first.steps = 3;
  first.empty_steps = 1;
  first.expert_loads.assign(8, 1);
  first.before.balancedness = first.after.balancedness = {1, 1};
  first.before.rank_loads = first.after.rank_loads = {2, 2, 2, 2};
  first.before.summed.peaks = 1000;
  first.before.per_step = balance_statistics{.peaks = 60};
  first.after.per_step = balance_statistics{.peaks = 40};
  result.comparisons[1] = first;
  comparison& second = result.comparisons[1];
  second.loads = "b.npy";
  second.after.per_step->peaks = 60;
  return result;
}

std::string lines_about_moves(outcome const& result) {
  std::string const table = table_of(result);
  auto const at = table.find("\nmoves: ");
  return at == std::string::npos ? "" : table.substr(at + 1, table.find("\n\n", at) - at);
}

json written(outcome const& result) {
  std::ostringstream out;
  write_outcome(out, result);
  return json::parse(out.str());
}

}  // namespace

TEST_CASE("moves: a plan within a limit says what it gains on which steps") {
  outcome result = moved();
  CHECK(lines_about_moves(result).find("gain: ") == std::string::npos);
  CHECK(written(result)["moves"]["gain"].is_null());
  migration_outcome& moves = *result.moves;
  moves.max_moves = 3;
  moves.gain = examples::balance_gain{.before = 0.5, .after = 0.6, .expected = 0.08};
  moves.steps = 4;
  CHECK(
      lines_about_moves(result).find(
          "\ngain: mean balancedness +0.0800 on steps that such plans were not made from, +0.1000 "
          "on all\n") != std::string::npos);
  json const gain = written(result)["moves"]["gain"];
  CHECK(gain == json{{"balancedness_before", 0.5},
                     {"balancedness", 0.6},
                     {"expected", 0.08},
                     {"validated", true}});
  moves.gain->expected = 0;
  CHECK(lines_about_moves(result).find(
            "\ngain: none that holds on steps that such plans were not made from\n") !=
        std::string::npos);
  moves.steps = 1;
  moves.gain->expected = 0.1;
  CHECK(lines_about_moves(result).find("\ngain: mean balancedness +0.1000, on the loads planned "
                                       "from; unseen steps need 2 recorded ones\n") !=
        std::string::npos);
  CHECK(written(result)["moves"]["gain"]["validated"] == false);
}

TEST_CASE("moves: a step saves the tokens of the most loaded ranks") {
  outcome result = moved();
  comparison& c = result.comparisons[0];
  CHECK(saved_us(result, c) == 5);  // (60 - 40) / 2 steps * 0.5 us
  CHECK(break_even_steps(result, c) == 3);
  result.moves->transfers.seconds = 10e-6;
  CHECK(break_even_steps(result, c) == 2);
  result.split = plimsoll::split_rule::optimal;
  c.before.optimal.peaks = 44;
  c.after.optimal.peaks = 40;
  CHECK(saved_us(result, c) == 1);
  CHECK(break_even_steps(result, c) == 10);
  // The rounding of an optimal split saves no time.
  c.before.optimal.peaks = 40.00001;
  CHECK(saved_us(result, c) == 0);
}

TEST_CASE("moves: latencies count more than tokens") {
  outcome result = moved();
  comparison& c = result.comparisons[0];
  c.before.latency = latency_statistics{.of_layers = {10, 12}};
  c.after.latency = latency_statistics{.of_layers = {11, 5}};
  CHECK(saved_us(result, c) == 6);
  CHECK(break_even_steps(result, c) == 2);
}

TEST_CASE("moves: never, at once, or unknown") {
  outcome result = moved();
  double const never = std::numeric_limits<double>::infinity();
  CHECK(break_even_steps(result, result.comparisons[1]) == never);
  result.comparisons[1].after.per_step->peaks = 61;
  CHECK(saved_us(result, result.comparisons[1]) == -0.25);
  CHECK(break_even_steps(result, result.comparisons[1]) == never);
  result.expert_bytes.reset();
  CHECK_FALSE(break_even_steps(result, result.comparisons[0]).has_value());
  result.moves->transfers.list.clear();
  CHECK(break_even_steps(result, result.comparisons[1]) == 0);
}

TEST_CASE("moves: the table") {
  outcome result = moved();
  CHECK(lines_about_moves(result) ==
        "moves: 2 slots, 1 copy within a rank, in 2 of 2 layers\n"
        "transfers: 4 rounds (one-peer), at most 3 a layer, 2.00 MiB in about 12.0 us\n"
        "break-even: after 3 steps, on a.npy, step by step: a step takes about 5.0 us less\n"
        "break-even: never, on b.npy, step by step: a step takes as long as before\n");
  result.comparisons.pop_back();
  result.expert_bytes.reset();
  result.moves->max_moves = 4;
  result.moves->rounds = "send-receive";
  CHECK(
      lines_about_moves(result) ==
      "moves: 2 slots of at most 4, 1 copy within a rank, in 2 of 2 layers\n"
      "transfers: 4 rounds (send-receive), at most 3 a layer\n"
      "break-even: unknown without --expert-bytes, on a.npy, step by step: a step takes about 5.0 "
      "us less\n");
  result.moves->max_moves.reset();
  result.moves->max_bytes = 4 << 20;
  CHECK(lines_about_moves(result).starts_with("moves: 2 slots of at most 4.00 MiB, 1 copy"));
  result.planner = "none";
  result.milliseconds.reset();
  CHECK(table_of(result).ends_with(
      "before: old.json; after: the plan that was read, with these moves\n"));
  result.milliseconds = 1;
  result.refinement = "joint";
  CHECK(table_of(result).ends_with(
      "planned in 1.000 ms (no planner, refined by joint, seq, median of 5)\n"));
  result.moves.reset();
  CHECK(lines_about_moves(result).empty());
}

TEST_CASE("moves: the JSON file of results") {
  outcome result = moved();
  CHECK(written(result).at("moves") == json({{"round_rule", "one-peer"},
                                             {"moves", 2},
                                             {"local_copies", 1},
                                             {"bytes", 2 << 20},
                                             {"rounds", 4},
                                             {"staging_slots", 2},
                                             {"seconds", 12e-6},
                                             {"previous", "old.json"},
                                             {"ranks_before", 2},
                                             {"source_ranks", {0, 1}},
                                             {"lost_experts", 0},
                                             {"max_moves", nullptr},
                                             {"max_bytes", nullptr},
                                             {"gain", nullptr},
                                             {"token_us", 0.5},
                                             {"changed_layers", {3, 5}},
                                             {"moves_of_layers", {2, 0}},
                                             {"local_copies_of_layers", {0, 1}},
                                             {"rounds_of_layers", {1, 3}},
                                             {"saved_us", {5.0, 0.0}},
                                             {"break_even_steps", {3.0, "never"}}}));
  result.expert_bytes.reset();
  result.moves->max_moves = 7;
  auto const moves = written(result).at("moves");
  CHECK(moves.at("bytes").is_null());
  CHECK(moves.at("seconds").is_null());
  CHECK(moves.at("break_even_steps").at(0).is_null());
  CHECK(moves.at("max_moves") == 7);
  result.moves.reset();
  CHECK(written(result).at("moves").is_null());
}

TEST_CASE("moves: the JSON file of transfers") {
  outcome result = moved();
  auto const transfers = [&] {
    std::ostringstream out;
    write_transfers(out, result);
    return json::parse(out.str());
  };
  auto const file = transfers();
  json expected = {{"format", "plimsoll-transfers"},
                   {"version", 1},
                   {"program", "plan_experts 0.4.0"},
                   {"plan_before", "old.json"},
                   {"ranks", 2},
                   {"source_ranks", {0, 1}},
                   {"slots", 6},
                   {"nodes", 1},
                   {"expert_bytes", 1 << 20},
                   {"round_rule", "one-peer"},
                   {"moves", 2},
                   {"local_copies", 1},
                   {"bytes", 2 << 20},
                   {"rounds", 4},
                   {"staging_slots", 2},
                   {"seconds", 12e-6},
                   {"sent_bytes", {1 << 20, 1 << 20}},
                   {"received_bytes", {1 << 20, 1 << 20}},
                   {"layers", file.at("layers")}};
  CHECK(file == expected);
  REQUIRE(file.at("layers").size() == 2);
  auto const& layer = file.at("layers").at(0);
  CHECK(layer.at("layer") == 3);
  CHECK(layer.at("rounds") == 1);
  CHECK(layer.at("staging_slots") == 2);
  REQUIRE(layer.at("transfers").size() == 2);
  CHECK(layer.at("transfers").at(0) == json({{"expert", 3},
                                             {"source_rank", 1},
                                             {"source_slot", 3},
                                             {"destination_rank", 0},
                                             {"destination_slot", 2},
                                             {"round", 0},
                                             {"staging_slot", -1},
                                             {"commit_round", 0},
                                             {"kind", "same_node"},
                                             {"bytes", 1 << 20}}));
  CHECK(layer.at("transfers").at(1).at("kind") == "across_nodes");
  CHECK(file.at("layers").at(1).at("transfers").at(0).at("kind") == "local_copy");
  result.moves->transfers.list[0].kind = transfer_kind::from_host;
  result.expert_bytes.reset();
  auto const without = transfers();
  CHECK(without.at("layers").at(0).at("transfers").at(0).at("kind") == "from_host");
  CHECK(without.at("layers").at(0).at("transfers").at(0).at("bytes").is_null());
  CHECK(without.at("sent_bytes").is_null());
}
