// SPDX-License-Identifier: Apache-2.0
// performance table FOLDER           prints the table of goals, from the result files in FOLDER
// performance summary FOLDER         prints the README's sentence about the goals on a GPU
// performance import RAW --commit C  prints a host's result file, from Google Benchmark's JSON
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <optional>
#include <plimsoll/version.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "goals.hpp"
#include "results.hpp"

namespace {

using examples::goal;
using examples::json;
using examples::measurement;
using examples::result;

/// Formats a time with at least three digits, in a suitable unit.
std::string time_text(double microseconds) {
  struct unit {
    double size;
    char const* name;
  };
  unit const u = microseconds < 1e3   ? unit{1, "µs"}
                 : microseconds < 1e6 ? unit{1e3, "ms"}
                                      : unit{1e6, "s"};
  double const value = microseconds / u.size;
  char text[40];
  std::snprintf(text, sizeof text, "%.*f %s", value < 10 ? 2 : value < 100 ? 1 : 0, value, u.name);
  return text;
}

std::string ratio_text(double ratio) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*f", ratio < 1 ? 2 : ratio < 10 ? 1 : 0, ratio);
  return text;
}

std::optional<examples::limit> limit_on(goal const& g, result const& r) {
  if (!r.gpu) {
    return g.host_limit;
  }
  return r.device.find("H200") != std::string::npos ? g.h200_limit : std::nullopt;
}

std::string limit_text(std::optional<examples::limit> const& limit) {
  if (!limit) {
    return "-";
  }
  return limit->times_alternative == nullptr
             ? time_text(limit->value)
             : ratio_text(limit->value) + " x `" + limit->times_alternative + "`";
}

/// Returns "yes" if the median is within the limit, else "no". Returns "-" without a limit, or if
/// the result of a GPU lacks the alternative, which ran in its own process.
std::string_view met_text(goal const& g, result const& r, measurement const& times) {
  auto const limit = limit_on(g, r);
  if (!limit) {
    return "-";
  }
  double most = limit->value;
  if (limit->times_alternative != nullptr) {
    std::string const name = std::string(g.name) + "/vs:" + limit->times_alternative;
    auto const other = r.goals.find(name);
    if (other == r.goals.end()) {
      if (r.gpu) {
        return "-";
      }
      throw std::runtime_error(r.file + ": goal/" + g.name + ": without goal/" + name);
    }
    most *= other->second.median;
  }
  return times.median <= most ? "yes" : "no";
}

/// Formats ratios such as "2.1 x as fast as `loops`"; both medians are of one run, so that the
/// speed of the machine cancels.
std::string alternatives_text(std::string const& name, result const& r) {
  std::string text;
  std::string const prefix = name + "/vs:";
  for (auto const& [other, times] : r.goals) {
    if (other.starts_with(prefix)) {
      text += (text.empty() ? "" : ", ") + ratio_text(times.median / r.goals.at(name).median) +
              " x as fast as `" + other.substr(prefix.size()) + "`";
    }
  }
  return text.empty() ? "-" : text;
}

void print_row(goal const& g, result const& r, measurement const& times) {
  char const* const mark = r.gpu ? "" : " *";
  std::cout << "| `" << g.name << "` | " << r.device << " | " << alternatives_text(g.name, r)
            << " | " << limit_text(limit_on(g, r)) << " | " << met_text(g, r, times) << " | "
            << time_text(times.median) << mark << " | " << time_text(times.p99) << mark << " |\n";
}

void print_unmeasured(goal const& g, char const* device,
                      std::optional<examples::limit> const& limit) {
  if (limit) {
    std::cout << "| `" << g.name << "` | " << device << " | - | " << limit_text(limit)
              << " | not measured | - | - |\n";
  }
}

/// Refuses a goal without a limit, which is missing in goals.hpp.
void check_names(result const& r) {
  for (auto const& [name, times] : r.goals) {
    std::string const base = name.substr(0, name.find("/vs:"));
    if (std::none_of(std::begin(examples::all_goals), std::end(examples::all_goals),
                     [&](goal const& g) { return g.name == base; })) {
      throw std::runtime_error(r.file + ": goal/" + name + ": not among the goals of goals.hpp");
    }
    if (!r.gpu && !r.goals.contains(base)) {
      throw std::runtime_error(r.file + ": goal/" + name + ": without goal/" + base);
    }
  }
}

void print_table(std::string const& folder) {
  auto const results = examples::newest_results(folder);
  std::for_each(results.begin(), results.end(), check_names);

  std::cout << "| goal | device | beside the alternatives | limit | met | median | p99 |\n"
               "|---|---|---|---:|---|---:|---:|\n";
  for (goal const& g : examples::all_goals) {
    bool host = false;
    bool h200 = false;
    for (result const& r : results) {
      if (auto const times = r.goals.find(g.name); times != r.goals.end()) {
        print_row(g, r, times->second);
        (r.gpu ? h200 : host) |= limit_on(g, r).has_value();
      }
    }
    if (!host) {
      print_unmeasured(g, "host", g.host_limit);
    }
    if (!h200) {
      print_unmeasured(g, "NVIDIA H200", g.h200_limit);
    }
  }

  std::cout << "\nGoals:\n\n";
  for (goal const& g : examples::all_goals) {
    std::cout << "- `" << g.name << "`: " << g.what << "\n";
  }
  std::cout << "\nDevices:\n\n";
  for (result const& r : results) {
    std::cout << "- " << r.device << ": " << r.details << ", " << r.date << " (`" << r.file
              << "`)\n";
  }
}

/// Prints how many goals a GPU meets. A goal that was not measured counts as missed.
void print_summary(std::string const& folder) {
  auto const results = examples::newest_results(folder);
  for (result const& r : results) {
    int goals = 0;
    int met = 0;
    for (goal const& g : examples::all_goals) {
      if (r.gpu && limit_on(g, r)) {
        auto const times = r.goals.find(g.name);
        ++goals;
        met += times != r.goals.end() && met_text(g, r, times->second) == "yes" ? 1 : 0;
      }
    }
    if (goals > 0) {
      std::cout << "On an " << r.device << ", " << r.tests_passed
                << " test programs passed with the same bits as on the host, and " << met << " of "
                << goals << " goals of\n[performance](docs/performance.md) are met.\n";
    }
  }
}

/// Returns the name of the processor in /proc/cpuinfo.
std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) {
      return line.substr(line.find(':') + 2);
    }
  }
  throw std::runtime_error("/proc/cpuinfo names no processor; give --cpu");
}

/// Returns the compiler of this program, which is also that of the benchmarks.
char const* compiler() {
#if defined(__clang__)
  return "clang++ " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

/// Returns the version of the library, which is also that of the benchmarks.
std::string version() {
  std::string text = std::to_string(PLIMSOLL_VERSION_MAJOR);
  for (int const part : {PLIMSOLL_VERSION_MINOR, PLIMSOLL_VERSION_PATCH}) {
    text += "." + std::to_string(part);
  }
  return text;
}

/// Refuses medians that include waiting: a busy machine interrupts long runs more often than short
/// ones, which distorts even ratios.
void check_idle(json const& raw) {
  for (json const& run : raw.at("benchmarks")) {
    double const ratio = run.value("real_time", 0.0) / run.value("cpu_time", 1.0);
    if (run.value("aggregate_name", "") == "median" && ratio > 1.1) {
      throw std::runtime_error(examples::benchmark_name(run.at("run_name").get<std::string>()) +
                               ": the median run took " + ratio_text(ratio) +
                               " times its processor time: the machine is not idle");
    }
  }
}

void import_result(std::string const& file, std::string const& commit, std::string const& cpu) {
  json const raw = examples::parse_file(file);
  check_idle(raw);
  json const goals = examples::goals_of(raw);
  if (goals.empty()) {
    throw std::runtime_error("expected benchmarks goal/..., got none");
  }
  json const& context = raw.at("context");
  json const device = {{"name", cpu.empty() ? processor() : cpu},
                       {"cores", context.at("num_cpus")},
                       {"compiler", compiler()},
                       {"flags", PLIMSOLL_BENCH_FLAGS},
                       {"load_average", context.at("load_avg").at(0)}};
  json const imported = {{"version", version()},
                         {"commit", commit},
                         {"date", context.at("date").get<std::string>().substr(0, 10)},
                         {"device", device},
                         {"benchmarks", goals}};
  std::cout << imported.dump(2) << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The performance table of the documentation");
  app.require_subcommand(1);
  std::string path;
  std::string commit;
  std::string cpu;
  auto* const table = app.add_subcommand("table", "Prints the table in Markdown");
  table->add_option("FOLDER", path, "The result files")->required();
  auto* const summary = app.add_subcommand("summary", "Prints the README's sentence on goals");
  summary->add_option("FOLDER", path, "The result files")->required();
  auto* const import = app.add_subcommand("import", "Prints a host's result file");
  import->add_option("RAW", path, "The JSON of plimsoll_bench")->required();
  import->add_option("--commit", commit, "What was measured")->required();
  import->add_option("--cpu", cpu, "The processor; by default what Linux calls it");
  CLI11_PARSE(app, argc, argv);
  try {
    *table ? print_table(path) : *summary ? print_summary(path) : import_result(path, commit, cpu);
  } catch (std::exception const& e) {
    std::cerr << "performance: " << path << ": " << e.what() << "\n";
    return 2;
  }
}
