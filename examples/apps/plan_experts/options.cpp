// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <numeric>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <plimsoll/types.hpp>
#include <plimsoll/version.hpp>

#include "command_line.hpp"
#include "output_file.hpp"

#ifndef PLIMSOLL_EXAMPLES_CUDA
#define PLIMSOLL_EXAMPLES_CUDA 0
#endif

namespace examples {
namespace {

constexpr index_t most_layers = 1 << 20;
constexpr std::int64_t most_bytes = std::int64_t{1} << 40;
constexpr std::int64_t most_model_bytes = std::int64_t{1} << 50;

/// Parses "3:61", "3:" or ":61".
[[nodiscard]] row_range parse_range(std::string const& argument, std::string const& text) {
  auto const fail = [&](std::string const& expected) {
    throw usage_error(argument, expected, "'" + text + "'");
  };
  auto const number = [&](std::string const& digits) {
    index_t value = 0;
    if (!detail::parses(digits, value) || value < 0 || value > most_layers) {
      fail("layers as first:end, the end not included, such as 3:61");
    }
    return value;
  };
  std::size_t const colon = std::min(text.find(':'), text.size());
  if (colon == text.size()) {
    fail("layers as first:end, the end not included, such as 3:61");
  }
  row_range range;
  range.first = colon == 0 ? 0 : number(text.substr(0, colon));
  if (colon + 1 < text.size()) {
    range.last = number(text.substr(colon + 1));
  }
  if (range.last && *range.last <= range.first) {
    fail("an end above the first layer");
  }
  return range;
}

/// Ids from `first` up to, but not including, `last`, `step` apart.
struct id_range : row_range {
  index_t step = 1;
};

/// Parses one part of --layer-ids: a single id, or a range, with a step as in "1:48:2" or without.
[[nodiscard]] id_range parse_ids(std::string const& text) {
  index_t id = 0;
  if (detail::parses(text, id) && id >= 0 && id < most_layers) {
    return {{id, id + 1}};
  }
  std::size_t const second = text.find(':', std::min(text.find(':'), text.size() - 1) + 1);
  if (second == std::string::npos) {
    return {parse_range("--layer-ids", text)};
  }
  index_t step = 0;
  if (!detail::parses(text.substr(second + 1), step) || step < 1 || step >= most_layers) {
    throw usage_error("--layer-ids", "ids as first:end or first:end:step, such as 1:48:2",
                      "'" + text + "'");
  }
  return {parse_range("--layer-ids", text.substr(0, second)), step};
}

void check_policy(options const& o) {
  // A policy that this build lacks is an error; another one is never substituted.
#ifndef _OPENMP
  if (o.policy == "omp") {
    throw usage_error("--policy", "a build with OpenMP for omp", "one without");
  }
#endif
  if (o.policy == "gpu" && PLIMSOLL_EXAMPLES_CUDA == 0) {
    throw usage_error("--policy", "a build with CUDA for gpu", "one without");
  }
}

/// Parses a number or "auto".
[[nodiscard]] index_t parse_replicas(std::string const& text) {
  constexpr index_t most = 65535;
  index_t value = automatic_replicas;
  if (text != "auto" && (!detail::parses(text, value) || value < 0 || value > most)) {
    throw usage_error("--replicas-per-rank",
                      "auto or a whole number from 0 to " + std::to_string(most), "'" + text + "'");
  }
  return value;
}

/// Checks the options that only craft takes, and those that it does not take.
void check_budget(options const& o) {
  if (o.planner != "craft") {
    if (o.replicas_per_rank == automatic_replicas) {
      throw usage_error("--replicas-per-rank",
                        "a whole number, since only --planner craft chooses one", "'auto'");
    }
    if (o.budget_bytes) {
      throw usage_error("--budget-bytes", "--planner craft with it", o.planner);
    }
    return;
  }
  if (o.slots) {
    throw usage_error("--slots",
                      "no value with --planner craft, whose layers have different slots; "
                      "--replicas-per-rank and --budget-bytes limit them",
                      std::to_string(*o.slots));
  }
  if (!o.budget_bytes) {
    return;
  }
  std::string const bytes = std::to_string(*o.budget_bytes);
  if (o.replicas_per_rank) {
    throw usage_error("--budget-bytes", "no value with --replicas-per-rank", bytes);
  }
  if (!o.expert_bytes) {
    throw usage_error("--expert-bytes", "a value, since --budget-bytes is divided by it", "none");
  }
  if (*o.budget_bytes < *o.expert_bytes) {
    throw usage_error("--budget-bytes",
                      "at least the " + std::to_string(*o.expert_bytes) + " bytes of one expert",
                      bytes);
  }
}

void expect_not_given(CLI::App const& app, std::initializer_list<char const*> names,
                      std::string const& with) {
  for (char const* name : names) {
    if (app.count(name) > 0) {
      throw usage_error(name, "no value with " + with,
                        "'" + app.get_option(name)->results().front() + "'");
    }
  }
}

/// Refuses a flag that was given.
[[noreturn]] void expect_not_given_flag(char const* name, std::string const& with) {
  throw usage_error(name, "not to be given with " + with, "it");
}

/// Refuses options of the planner with --planner none. A refinement and a limit on the moves plan,
/// too, and take some of them.
void check_without_planner(CLI::App const& app, options const& o) {
  if (o.plan.empty() && o.previous.empty()) {
    throw usage_error("--plan", "a file with the plan, since --planner is none", "no value");
  }
  bool const plans = o.refinement != "none" || limits_moves(o);
  std::string const with =
      plans ? "--planner none" : "--planner none, which takes the plan as it is";
  expect_not_given(app,
                   {"--replicas-per-rank", "--budget-bytes", "--groups", "--latency",
                    "--trace-length", "--restarts"},
                   with);
  if (o.previous.empty()) {  // of which they may tell the ranks
    expect_not_given(app, {"--slots"}, with);
  }
  if (!plans) {
    expect_not_given(app, {"--apart", "--policy"}, with);
  }
}

/// Checks the options about moves from --previous.
void check_moves(CLI::App const& app, options const& o) {
  if (o.previous.empty()) {
    for (char const* name : {"--max-moves", "--max-bytes", "--rounds", "--bandwidth", "--token-us",
                             "--transfers", "--lost-ranks", "--horizon"}) {
      bool const is_of_verdict = o.verdict && std::string_view(name) == "--token-us";
      if (app.count(name) > 0 && !is_of_verdict) {
        throw usage_error(name, "--previous with it", "none");
      }
    }
    return;
  }
  if (o.planner == "craft") {
    expect_not_given(app, {"--previous"}, "--planner craft, whose layers have slots of their own");
  }
  if (o.planner != "none") {
    expect_not_given(app, {"--plan"}, "--previous, unless --planner is none");
  }
  if (o.planner == "gem") {
    expect_not_given(app, {"--max-moves", "--max-bytes", "--token-us"},
                     "--planner gem, which considers only latency");
  }
  if (o.max_moves) {
    expect_not_given(app, {"--max-bytes"}, "--max-moves");
  }
  if (o.max_bytes && !o.expert_bytes) {
    throw usage_error("--expert-bytes", "a value, since --max-bytes is divided by it", "none");
  }
  if (limits_moves(o) && o.groups > 1 && o.nodes > 1) {
    throw usage_error("--groups", "1 where moves are limited and --nodes is above 1",
                      std::to_string(o.groups));
  }
  if (app.count("--bandwidth") > 0 && o.nodes == 1) {
    throw usage_error("--bandwidth", "--nodes above 1 with it, since it is that across nodes", "1");
  }
}

/// Checks the options about the verdict.
void check_verdict(CLI::App const& app, options const& o) {
  if (!o.verdict) {
    for (char const* name : {"--flat-below", "--horizon"}) {
      if (app.count(name) > 0) {
        throw usage_error(name, "--verdict with it", "none");
      }
    }
    return;
  }
  if (o.planner == "craft") {
    expect_not_given_flag("--verdict", "--planner craft, whose layers have slots of their own");
  }
  if (o.planner == "gem") {
    expect_not_given(app, {"--flat-below"}, "--planner gem, which has latency curves");
  }
  if (!o.lost_ranks.empty()) {
    expect_not_given_flag("--verdict", "--lost-ranks, after which experts must move");
  }
}

/// Checks the options that only gem takes, and those that it does not take.
void check_curves(CLI::App const& app, options const& o) {
  if (o.planner != "gem") {
    for (char const* name : {"--latency", "--trace-length", "--restarts"}) {
      if (app.count(name) > 0) {
        throw usage_error(name, "--planner gem with it", o.planner);
      }
    }
    return;
  }
  if (o.latency.empty()) {
    throw usage_error("--latency", "a file with latency curves, since --planner is gem",
                      "no value");
  }
  std::string const with = "--planner gem, which considers only latency";
  expect_not_given(app, {"--groups", "--refine", "--apart", "--split"}, with);
}

/// Returns whether the planner plans for the steps to come.
[[nodiscard]] bool looks_ahead(options const& o) {
  return o.planner == "flow" || o.planner == "auto";
}

/// Refuses the options of EPLB with planners that do not take them.
void check_ahead(CLI::App const& app, options const& o) {
  if (looks_ahead(o)) {
    expect_not_given(app, {"--groups", "--refine", "--apart"}, "--planner " + o.planner);
  }
}

/// Checks --nodes, --groups and --apart.
void check_nodes(options const& o) {
  bool const apart = o.apart == "node";
  if (o.ranks && o.nodes > *o.ranks) {
    throw usage_error("--nodes",
                      "at most one for each of the " + std::to_string(*o.ranks) + " ranks",
                      std::to_string(o.nodes));
  }
  if (o.nodes == 1 && apart) {
    throw usage_error("--apart", "--nodes above 1 for node", "1");
  }
  if (o.groups > 1 && o.groups % o.nodes != 0) {
    throw usage_error("--groups", "a multiple of the " + std::to_string(o.nodes) + " nodes",
                      std::to_string(o.groups));
  }
  if (o.groups > 1 && o.nodes > 1 && apart) {
    throw usage_error("--apart", "none or rank where --groups keep to nodes", "'node'");
  }
}

/// Refuses empty values, which would otherwise count as not given.
void expect_no_empty_value(CLI::App const& app) {
  for (CLI::Option const* const option : app.get_options()) {
    for (std::string const& value : option->results()) {
      if (value.empty()) {
        throw usage_error(option->get_name(), "a value", "an empty one");
      }
    }
  }
}

/// Refuses an output file that is also an input or another output.
void check_files(options const& o) {
  struct named {
    char const* argument;
    std::string const& file;
  };
  named const files[] = {{"LOADS", o.loads},         {"--evaluate", o.evaluate},
                         {"--sources", o.sources},   {"--plan", o.plan},
                         {"--previous", o.previous}, {"--latency", o.latency},
                         {"--output", o.output},     {"--json", o.json},
                         {"--report", o.report},     {"--transfers", o.transfers}};
  constexpr std::size_t first_output = 6;
  auto const same_file = [](std::string const& a, std::string const& b) {
    std::error_code ignored;
    auto const full = [&](std::string const& name) {
      return std::filesystem::weakly_canonical(
          std::filesystem::absolute(behind_links(name), ignored), ignored);
    };
    return full(a) == full(b);
  };
  for (std::size_t i = first_output; i < std::size(files); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (!files[i].file.empty() && !files[j].file.empty() &&
          same_file(files[i].file, files[j].file)) {
        throw usage_error(files[i].argument, "another file than " + std::string(files[j].argument),
                          "'" + files[i].file + "' for both");
      }
    }
  }
  named const* reader = nullptr;
  for (named const& input : std::span(files).first<first_output>()) {
    if (input.file == "-" && reader != nullptr) {
      throw usage_error(
          input.argument,
          "a file, since " + std::string(reader->argument) + " takes the standard input", "'-'");
    }
    reader = input.file == "-" ? &input : reader;
  }
}

void expect_end(char const* argument, std::string const& file, std::string const& end) {
  if (!file.empty() && std::filesystem::path(file).extension() != end) {
    throw usage_error(argument, "a name that ends in " + end, "'" + file + "'");
  }
}

/// Breaks a description into lines that fit a terminal next to the names of the options.
[[nodiscard]] std::string wrapped(std::string text) {
  constexpr std::size_t width = 68;
  for (std::size_t line = 0; text.size() - line > width;) {
    std::size_t const space = text.rfind(' ', line + width);
    text[space] = '\n';
    line = space + 1;
  }
  return text;
}

}  // namespace

std::string program_version() {
  return "plan_experts " + std::to_string(PLIMSOLL_VERSION_MAJOR) + "." +
         std::to_string(PLIMSOLL_VERSION_MINOR) + "." + std::to_string(PLIMSOLL_VERSION_PATCH);
}

void add_options(CLI::App& app, options& o) {
  auto const add = [&](char const* name, auto& value, std::string const& text) {
    return app.add_option(name, value, wrapped(text));
  };
  auto const count = [](index_t least) { return whole_number(least, plimsoll::rank_limit); };
  app.footer(
      "Examples:\n"
      "  plan_experts loads.npy --ranks 64 --slots 320 --output plan.json\n"
      "  A model with 61 layers, of which the first three are dense; for SGLang:\n"
      "  plan_experts loads.npy --layer-ids 3: --model-layers 61 --ranks 64 --slots 320 \\\n"
      "    --format sglang --output location.json\n"
      "  Replicas only where they pay, in at most 6 GB of each GPU:\n"
      "  plan_experts loads.npy --planner craft --ranks 64 --expert-bytes 44MB --budget-bytes 6GB\n"
      "  GPUs of unequal speed, as measured by profile_ranks:\n"
      "  plan_experts loads.npy --planner gem --ranks 8 --latency curves.json --output plan.json\n"
      "  An engine that splits tokens by load in every step; the planner that lasts longest:\n"
      "  plan_experts steps.npy --planner auto --split optimal --ranks 64 --slots 320\n"
      "  Is a plan from old loads better than the one in use, on new loads?\n"
      "  plan_experts old.npy --layer-ids 3: --plan location.json --ranks 64 --evaluate new.npy\n"
      "  The best plan that 100 moves reach from the one in use, and what to transfer:\n"
      "  plan_experts new.npy --previous plan.json --max-moves 100 --expert-bytes 44MB \\\n"
      "    --output next.json --transfers transfers.json\n"
      "  Is balancing worth it for this load? The exit status says so, too:\n"
      "  plan_experts steps.npy --planner flow --ranks 64 --slots 320 --verdict");
  add("LOADS", o.loads,
      "Token copies of every expert, [layers, experts] or [steps, layers, experts]: a "
      ".npy file, SGLang's JSON (logical_count), a .csv file, or - for the standard "
      "input")
      ->required()
      ->type_name("FILE");

  add("--key", o.key,
      "The JSON key or the CSV column that holds the loads of LOADS and LOADS2; logical_count and "
      "load by default")
      ->type_name("NAME");

  app.add_flag(
      "--slot-loads", o.slot_loads,
      wrapped("LOADS and LOADS2 count the tokens of every slot, not of every expert: [layers, "
              "slots], [steps, layers, slots], or [ranks, slots of a rank] in place of "
              "[slots]. The plan in use (--previous, else --plan) says which expert a slot "
              "holds"));
  app.add_flag(
      "--trust-shape", o.trust_shape,
      wrapped("LOADS and LOADS2 are [layers, experts] or [steps, layers, experts], even if "
              "their numbers look like something else"));

  std::string const planning = "What to plan";
  add("--ranks", o.ranks, "Ranks (GPUs) that share the experts")
      ->check(count(1))
      ->type_name("N")
      ->group(planning);
  add("--slots", o.slots, "Slots of a layer, over all ranks")
      ->check(whole_number(1, 1 << 20))
      ->type_name("P")
      ->group(planning);
  app.add_option_function<std::string>(
         "--replicas-per-rank",
         [&o](std::string const& text) { o.replicas_per_rank = parse_replicas(text); },
         wrapped("The same as --slots experts + R x ranks; with --planner craft, replicas on each "
                 "rank over all layers together, or auto (its default) for as many as pay"))
      ->type_name("R")
      ->group(planning);
  add("--budget-bytes", o.budget_bytes,
      "With --planner craft: memory of each rank for replicas, such as 6GB; needs --expert-bytes")
      ->transform(byte_size(1, most_bytes))
      ->type_name("N")
      ->group(planning);
  add("--layers", o.layers,
      "Rows of LOADS to plan, such as 3: to leave out the first three; all by default")
      ->type_name("A:B")
      ->group(planning);
  add("--layer-ids", o.layer_ids,
      "The model's layer id of every planned row, such as 3:, 1,3,5:7 or 1:48:2; by default the "
      "row's number in LOADS")
      ->type_name("LIST")
      ->group(planning);
  add("--model-layers", o.model_layers,
      "Number of layers of the model; sglang's and trtllm's files list those without a plan, too: "
      "slot i holds expert i mod experts")
      ->check(whole_number(1, most_layers))
      ->type_name("N")
      ->group(planning);

  std::string const how = "How to plan";
  add("--planner", o.planner,
      "eplb; auto for the planner whose plans last longest within LOADS; flow for steps to come; "
      "craft for more replicas in layers where LOADS shows that they pay; gem for ranks of unequal "
      "speed; or none to keep the plan of --plan, or that of --previous, or to refine it")
      ->check(one_of({"eplb", "auto", "flow", "craft", "gem", "none"}))
      ->type_name("NAME")
      ->capture_default_str()
      ->group(how);
  add("--split", o.split,
      "How the engine divides an expert's tokens among its replicas: even, or optimal as by "
      "minmax_lp; auto and flow plan for it, and the summary judges by it")
      ->check(one_of({"even", "optimal"}))
      ->type_name("NAME")
      ->capture_default_str()
      ->group(how);
  add("--latency", o.latency,
      "With --planner gem: the latency curves of the ranks, as profile_ranks writes them")
      ->type_name("CURVES.json")
      ->group(how);
  add("--trace-length", o.trace_length,
      "With --planner gem: number of last steps of LOADS to plan from; by default 16, or all if "
      "there are fewer")
      ->check(whole_number(1, 0x7fffffff))
      ->type_name("N")
      ->group(how);
  add("--restarts", o.restarts, "With --planner gem: searches per layer, from different starts")
      ->check(whole_number(1, 1 << 24))
      ->type_name("N")
      ->capture_default_str()
      ->group(how);
  add("--nodes", o.nodes,
      "Number of nodes (servers); ranks are numbered node by node. Without --groups, --apart node, "
      "--previous and the planners flow and auto they change no plan, but the traffic between them "
      "is "
      "counted")
      ->check(count(1))
      ->type_name("N")
      ->capture_default_str()
      ->group(how);
  add("--groups", o.groups,
      "Groups of experts, each of which stays on one node; a multiple of the nodes")
      ->check(whole_number(1, plimsoll::expert_limit))
      ->type_name("N")
      ->capture_default_str()
      ->group(how);
  add("--refine", o.refinement,
      "Improvement after the planner: none, packing (moves replicas) or joint (and counts)")
      ->check(one_of({"none", "packing", "joint"}))
      ->type_name("NAME")
      ->capture_default_str()
      ->group(how);
  add("--apart", o.apart,
      "No two replicas of an expert on one rank, or on one node; vllm-ascend needs rank")
      ->check(one_of({"none", "rank", "node"}))
      ->type_name("NAME")
      ->capture_default_str()
      ->group(how);
  add("--policy", o.policy, "Where the planner runs: seq, omp or gpu")
      ->check(one_of({"seq", "omp", "gpu"}))
      ->type_name("NAME")
      ->capture_default_str()
      ->group(how);

  std::string const compare = "What to compare";
  add("--plan", o.plan,
      "The plan in use, in any format of --format: 'before' shows it ('after' with --planner "
      "none), and ranks and slots that are not given are taken from it")
      ->type_name("FILE")
      ->group(compare);
  add("--evaluate", o.evaluate, "Other loads to measure the plan on")
      ->type_name("LOADS2")
      ->group(compare);
  add("--sources", o.sources,
      "Where tokens start, to count the traffic between ranks and nodes: the token copies of every "
      "expert by the rank of their token, [ranks, layers, experts]; without it, as many on every "
      "rank")
      ->type_name("FILE")
      ->group(compare);
  add("--expert-bytes", o.expert_bytes,
      "Size of the weights of one expert in one layer, such as 44MB or 42MiB")
      ->transform(byte_size(1, most_bytes))
      ->type_name("N")
      ->group(compare);

  std::string const moves = "How to move from the plan in use";
  add("--previous", o.previous,
      "The plan in use, as --plan, to which the new plan is fitted: as many slots on every rank, "
      "and "
      "as few experts as possible on other ranks. With more --ranks than it has, new ranks begin "
      "empty; with fewer, the last ones are lost. With --planner none, --plan may give the new "
      "plan")
      ->type_name("FILE")
      ->group(moves);
  add("--lost-ranks", o.lost_ranks,
      "Ranks of --previous that are lost with their experts, such as 2,5; the others move up")
      ->type_name("LIST")
      ->group(moves);
  add("--max-moves", o.max_moves, "Best plan within this number of moves, over all layers")
      ->check(whole_number(0, 0x7fffffff))
      ->type_name("N")
      ->group(moves);
  add("--max-bytes", o.max_bytes,
      "Best plan whose moves transfer at most as much, such as 6GB; needs --expert-bytes")
      ->transform(byte_size(0, most_model_bytes))
      ->type_name("N")
      ->group(moves);
  add("--rounds", o.rounds,
      "Rule of a round of transfers: one-peer (a rank exchanges with one other rank) or "
      "send-receive (a rank sends to one rank and receives from one)")
      ->check(one_of({"one-peer", "send-receive"}))
      ->type_name("NAME")
      ->capture_default_str()
      ->group(moves);
  add("--bandwidth", o.bandwidth, "Bandwidth of each rank across nodes, in GB/s")
      ->check(positive_number(1'000'000))
      ->type_name("X")
      ->capture_default_str()
      ->group(moves);
  add("--token-us", o.token_us,
      "Time that a rank takes for each token copy of a layer, in microseconds: an estimate, from "
      "which the steps to the break-even follow")
      ->check(positive_number(1'000'000))
      ->type_name("X")
      ->capture_default_str()
      ->group(moves);

  std::string const worth = "Whether to move";
  app.add_flag(
         "--verdict", o.verdict,
         wrapped("Says whether the new plan is worth it, judged on steps that such plans were "
                 "not made from, and why. Exit status: 0 try it, 3 not now, 4 not enough to "
                 "tell"))
      ->group(worth);
  add("--flat-below", o.flat_below,
      "Token copies of a rank in a layer that take no time of their own, since reading the weights "
      "takes longer; with small batches")
      ->check(number_from_zero(1'000'000'000))
      ->type_name("TOKENS")
      ->group(worth);
  add("--horizon", o.horizon,
      "Steps until the next decision, in which the transfers from --previous must pay")
      ->check(whole_number(1, 0x7fffffff))
      ->type_name("STEPS")
      ->capture_default_str()
      ->group(worth);

  std::string const files = "What to write";
  add("--output", o.output, "The plan")->type_name("FILE")->group(files);
  add("--format", o.format,
      sentence_of(plan_format_names()) +
          "; by default .json is plimsoll, .yaml is trtllm, .npy is npy")
      ->check(one_of(plan_format_names()))
      ->type_name("NAME")
      ->group(files);
  add("--report", o.report, "A page with charts of the loads before and after")
      ->type_name("FILE.html")
      ->group(files);
  add("--json", o.json, "All figures of the report, for programs")
      ->type_name("FILE.json")
      ->group(files);
  add("--transfers", o.transfers, "The transfers from the plan of --previous, in rounds")
      ->type_name("FILE.json")
      ->group(files);
  app.set_version_flag("--version", program_version(), "Prints the version");
}

void check_options(CLI::App const& app, options const& o) {
  expect_no_empty_value(app);
  check_policy(o);
  if (o.planner == "none") {
    check_without_planner(app, o);
  } else if (o.plan.empty() && o.previous.empty() && !o.ranks) {
    throw usage_error("--ranks", "a value", "none");
  } else if ((o.planner == "eplb" || looks_ahead(o)) && o.plan.empty() && o.previous.empty() &&
             !o.slots && !o.replicas_per_rank) {
    throw usage_error("--slots", "a value, or one of --replicas-per-rank", "none");
  }
  check_budget(o);
  check_curves(app, o);
  check_ahead(app, o);
  check_nodes(o);
  check_moves(app, o);
  check_verdict(app, o);
  if (o.slot_loads && o.plan.empty() && o.previous.empty()) {
    throw usage_error("--slot-loads", "--previous or --plan with the plan in use", "none of them");
  }
  static_cast<void>(lost_ranks_of(o));
  static_cast<void>(rows_to_plan(o));
  check_files(o);
  expect_end("--report", o.report, ".html");
  expect_end("--json", o.json, ".json");
  expect_end("--transfers", o.transfers, ".json");
  if (!o.output.empty()) {
    static_cast<void>(output_format(o));
  } else if (!o.format.empty()) {
    throw usage_error("--format", "no value without --output", "'" + o.format + "'");
  }
}

plimsoll::split_rule split_of(options const& o) {
  return o.split == "even" ? plimsoll::split_rule::even : plimsoll::split_rule::optimal;
}

bool limits_moves(options const& o) { return o.max_moves || o.max_bytes; }

row_range rows_to_plan(options const& o) {
  return o.layers.empty() ? row_range{} : parse_range("--layers", o.layers);
}

std::vector<std::int64_t> layer_ids_of(options const& o, index_t planned, index_t rows) {
  std::vector<std::int64_t> ids;
  if (o.layer_ids.empty()) {
    // Only the user knows which layers of the model are dense.
    if (o.model_layers && *o.model_layers != rows) {
      throw usage_error("--layer-ids",
                        "a value, since LOADS has " + std::to_string(rows) +
                            " layers and --model-layers is " + std::to_string(*o.model_layers),
                        "none");
    }
    ids.resize(static_cast<std::size_t>(planned));
    std::iota(ids.begin(), ids.end(), rows_to_plan(o).first);
    return ids;
  }
  for (std::size_t at = 0; at <= o.layer_ids.size();) {
    std::size_t const comma = std::min(o.layer_ids.find(',', at), o.layer_ids.size());
    auto const range = parse_ids(o.layer_ids.substr(at, comma - at));
    index_t const missing = planned - static_cast<index_t>(ids.size());
    index_t const open_end = range.first + missing * range.step;
    for (index_t id = range.first; id < range.last.value_or(open_end); id += range.step) {
      if (!ids.empty() && id <= ids.back()) {
        throw usage_error("--layer-ids", "ids that increase",
                          std::to_string(id) + " after " + std::to_string(ids.back()));
      }
      ids.push_back(id);
    }
    at = comma + 1;
  }
  if (static_cast<index_t>(ids.size()) != planned) {
    throw usage_error("--layer-ids",
                      "one id for each of the " + std::to_string(planned) + " layers to plan",
                      std::to_string(ids.size()));
  }
  if (o.model_layers && *o.model_layers <= ids.back()) {
    throw usage_error("--model-layers",
                      "more than the largest layer id " + std::to_string(ids.back()),
                      std::to_string(*o.model_layers));
  }
  return ids;
}

std::vector<index_t> lost_ranks_of(options const& o) {
  std::vector<index_t> ranks;
  for (std::size_t at = 0; at < o.lost_ranks.size();) {
    std::size_t const comma = std::min(o.lost_ranks.find(',', at), o.lost_ranks.size());
    index_t rank = 0;
    if (!detail::parses(o.lost_ranks.substr(at, comma - at), rank) || rank < 0 ||
        (!ranks.empty() && rank <= ranks.back())) {
      throw usage_error("--lost-ranks", "ranks that increase, such as 2,5",
                        "'" + o.lost_ranks + "'");
    }
    ranks.push_back(rank);
    at = comma + 1;
  }
  return ranks;
}

plan_format output_format(options const& o) {
  auto const by_name = format_of(o.output);
  if (o.format.empty()) {
    if (!by_name) {
      throw usage_error("--output", "a name that ends in .json, .yaml or .npy, or a --format",
                        "'" + o.output + "'");
    }
    return *by_name;
  }
  plan_format const format = *plan_format_named(o.format);
  if (!fits_extension(format, o.output)) {
    throw usage_error("--output",
                      "a name that ends in " + extension_of(format) + " for --format " + o.format,
                      "'" + o.output + "'");
  }
  return format;
}

}  // namespace examples
