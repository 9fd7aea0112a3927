// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options and exit codes of the program.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "popularity.hpp"
#include "workload.hpp"

namespace make_loads {

struct options {
  std::int64_t steps = 1;
  std::int64_t layers = 1;
  std::int64_t experts = 1;
  std::int64_t tokens = 4096;
  std::int64_t top_k = 8;
  double skew = 0.6;
  double drift = 0.1;
  std::int64_t seed = 0;
  std::optional<make_loads::workload> workload;
  std::string like;
  std::int64_t ranks = 1;
  std::string source_loads;
  std::string output;
};

/// Returns the workload of a number or name, such as w2 or hot-rank.
[[nodiscard]] inline std::optional<workload> workload_of(std::string_view text) {
  for (std::size_t i = 0; i < workload_names.size(); ++i) {
    if (text == workload_names[i].number || text == workload_names[i].text) {
      return static_cast<workload>(i);
    }
  }
  return std::nullopt;
}

/// Accepts numbers from `low` to `high`; `kind` names them in the message.
template <class T>
[[nodiscard]] CLI::Validator number(char const* kind, T low, std::int64_t high) {
  std::string const expected = std::string("expected a ") + kind + " from " +
                               std::to_string(static_cast<std::int64_t>(low)) + " to " +
                               std::to_string(high);
  return CLI::Validator(
      [=](std::string& text) {
        // std::from_chars instead of CLI::Range: no locale, and nan and overflow are errors.
        T value{};
        char const* const last = text.data() + text.size();
        auto const [end, error] = std::from_chars(text.data(), last, value);
        bool const good =
            error == std::errc() && end == last && value >= low && value <= static_cast<T>(high);
        return good ? std::string() : expected + ", got '" + text + "'";
      },
      "");
}

inline void add_options(CLI::App& app, options& o) {
  constexpr std::int64_t most = 1 << 30;
  constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();
  auto const add = [&](char const* name, auto& value, CLI::Validator const& check,
                       char const* text) {
    return app.add_option(name, value, text)->check(check)->type_name("");
  };
  auto const whole = [](std::int64_t low, std::int64_t high) {
    return number("whole number", low, high);
  };
  add("--steps", o.steps, whole(1, most), "Steps (batches)")->required();
  add("--layers", o.layers, whole(1, most), "Layers; not with --like");
  add("--experts", o.experts, whole(1, 65535), "Experts per layer; not with --like");
  add("--tokens", o.tokens, whole(1, std::numeric_limits<std::int32_t>::max()), "Tokens per step")
      ->capture_default_str();
  add("--top-k", o.top_k, whole(1, 65535), "Experts that a token visits")->capture_default_str();
  add("--skew", o.skew, number("number", 0.0, 16), "Zipf exponent; 0 is uniform")
      ->capture_default_str();
  add("--drift", o.drift, number("number", 0.0, 16),
      "Standard deviation of the logarithm of a popularity's change from step to step")
      ->capture_default_str();
  add("--seed", o.seed, whole(0, any), "Seed of all random choices")->capture_default_str();
  std::string names;
  for (workload_name const& name : workload_names) {
    names += (names.empty() ? "" : ", ") + std::string(name.text);
  }
  auto const parse_workload = [&o, names](std::string const& text) {
    o.workload = workload_of(text);
    if (!o.workload) {
      throw CLI::ValidationError("--workload",
                                 "expected w0 to w7, or " + names + ", got '" + text + "'");
    }
  };
  app.add_option_function<std::string>(
         "--workload", parse_workload,
         "A workload of Megatron-LM's imbalance benchmark, w0 to w7 or " + names +
             ", in place of --skew and --drift")
      ->type_name("NAME");
  app.add_option(
         "--like", o.like,
         "A .npy file of recorded loads: draws loads with its shapes, shares and correlation "
         "of steps, in place of --skew and --drift")
      ->type_name("FILE");
  app.add_option("--source-loads", o.source_loads,
                 "With --workload: the .npy file to write for the same loads by source rank, "
                 "[steps, layers, ranks, experts]")
      ->type_name("FILE");
  add("--ranks", o.ranks, whole(1, 65535), "With --source-loads: ranks that the tokens come from");
  app.add_option("--output", o.output, "The .npy file to write")->required()->type_name("FILE");
}

/// Checks which options were given together.
inline void check_combination(CLI::App const& app) {
  auto const refuse = [](std::string const& option, std::string const& expected,
                         std::string const& got) {
    throw std::invalid_argument(option + ": expected " + expected + ", got " + got);
  };
  auto const given = [&](char const* option) { return app.count(option) > 0; };
  auto const excluded = [&](char const* option, std::string const& by) {
    if (given(option)) {
      refuse(option, "no value with " + by, "'" + app.get_option(option)->results().front() + "'");
    }
  };
  for (char const* source : {"--workload", "--like"}) {
    if (given(source)) {
      excluded("--skew", source);
      excluded("--drift", source);
    }
  }
  if (given("--workload")) {
    excluded("--like", "--workload");
  }
  for (char const* extent : {"--layers", "--experts"}) {
    if (given("--like")) {
      excluded(extent, "--like, whose file has them");
    } else if (!given(extent)) {
      refuse(extent, "a value", "none");
    }
  }
  if (given("--source-loads") && !given("--workload")) {
    refuse("--source-loads", "--workload with it", "none");
  }
  for (auto const& [option, other] :
       {std::pair("--source-loads", "--ranks"), std::pair("--ranks", "--source-loads")}) {
    if (given(option) && !given(other)) {
      refuse(option, std::string(other) + " with it", "none");
    }
  }
}

/// Checks what concerns more than one number. With --like, the shape is that of the file.
inline void check(options const& o) {
  auto const refuse = [](char const* option, std::string const& expected, std::int64_t got) {
    throw std::invalid_argument(std::string(option) + ": expected " + expected + ", got " +
                                std::to_string(got));
  };
  if (o.top_k > o.experts) {
    refuse("--top-k", "at most --experts (" + std::to_string(o.experts) + ")", o.top_k);
  }
  if (o.workload == workload::empty_ranks && o.top_k > used_experts_of(o.experts)) {
    refuse("--top-k",
           "at most the " + std::to_string(used_experts_of(o.experts)) +
               " experts that empty-ranks uses",
           o.top_k);
  }
  if (o.tokens * o.top_k >= examples::total_limit) {
    refuse("--tokens", "--tokens x --top-k below 2^40", o.tokens * o.top_k);
  }
  constexpr std::int64_t most_state = std::int64_t{1} << 31;
  if (o.layers * o.experts > most_state) {
    refuse("--layers", "--layers x --experts of at most 2^31", o.layers * o.experts);
  }
}

/// Parses the arguments and runs `body(options)`. Every error gives one line and exit code 2.
template <class Body>
int run(CLI::App& app, int argc, char const* const* argv, Body body) {
  auto const refuse = [&](std::string const& message) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), message.c_str());
    return 2;
  };
  options o;
  try {
    add_options(app, o);
    app.parse(argc, argv);
    check_combination(app);
    body(o);
    return std::fflush(stdout) == 0 ? 0 : refuse("output: expected it to be written, got an error");
  } catch (CLI::RequiredError const& e) {
    std::string const what = e.what();  // "--steps is required"
    return refuse(what.substr(0, what.find(' ')) + ": expected a value, got none");
  } catch (CLI::ParseError const& e) {
    if (e.get_exit_code() == 0) {  // --help
      return app.exit(e);
    }
    return refuse(std::string(e.what()) + " (--help lists the options)");
  } catch (std::bad_alloc const&) {
    return refuse("expected enough memory, got less than the loads need");
  } catch (std::exception const& e) {
    return refuse(e.what());
  }
}

}  // namespace make_loads
