// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads result files: those that `performance import` writes for hosts and script/gpu-check for
/// GPUs.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace examples {

using json = nlohmann::ordered_json;

/// Times in microseconds.
struct measurement {
  double median = 0;
  double p99 = 0;
};

struct result {
  std::string file;
  bool gpu = false;
  std::string device;
  std::string date;
  std::string details;                       ///< further notes for the reader, in Markdown
  std::string tests_passed;                  ///< of a GPU: test programs, as "3 of 4"
  std::map<std::string, measurement> goals;  ///< by name, without "goal/"
};

inline double in_microseconds(double time, std::string const& unit) {
  static std::map<std::string, double> const factors = {
      {"ns", 1e-3}, {"us", 1.0}, {"ms", 1e3}, {"s", 1e6}};
  auto const factor = factors.find(unit);
  if (factor == factors.end()) {
    throw std::runtime_error("expected a time in ns, us, ms or s, got " + unit);
  }
  return time * factor->second;
}

/// Removes the run parameters that Google Benchmark appends, as in
/// "goal/eplb/vs:loops/iterations:1/repeats:200/real_time".
inline std::string benchmark_name(std::string name) {
  auto const drop_last_part = [&] {
    std::string_view const last = std::string_view(name).substr(name.rfind('/') + 1);
    if (last != "real_time" && last != "manual_time" && !last.starts_with("iterations:") &&
        !last.starts_with("repeats:")) {
      return false;
    }
    name.resize(name.rfind('/'));
    return true;
  };
  while (name.find('/') != std::string::npos && drop_last_part()) {
  }
  return name;
}

/// Converts the goals in Google Benchmark's JSON to our `benchmarks` array.
inline json goals_of(json const& raw) {
  json goals = json::array();
  for (json const& run : raw.at("benchmarks")) {
    std::string const name = benchmark_name(run.at("run_name").get<std::string>());
    if (!name.starts_with("goal/")) {
      continue;
    }
    if (run.value("error_occurred", false)) {
      throw std::runtime_error(name + ": " + run.at("error_message").get<std::string>());
    }
    std::string const aggregate = run.value("aggregate_name", "");
    if (aggregate != "median" && aggregate != "p99") {
      continue;
    }
    auto at = std::find_if(goals.begin(), goals.end(),
                           [&](json const& known) { return known.at("name") == name; });
    if (at == goals.end()) {
      goals.push_back({{"name", name},
                       {"median", nullptr},
                       {"p99", nullptr},
                       {"unit", "us"},
                       {"repetitions", run.at("repetitions")}});
      at = goals.end() - 1;
    }
    double const time = in_microseconds(run.at("real_time").get<double>(), run.at("time_unit"));
    (*at)[aggregate] = std::round(time * 1000) / 1000;
  }
  return goals;
}

inline std::map<std::string, measurement> measurements(json const& benchmarks) {
  std::map<std::string, measurement> goals;
  for (json const& b : benchmarks) {
    std::string const name = b.at("name").get<std::string>();
    if (!name.starts_with("goal/")) {
      continue;
    }
    auto const time = [&](char const* key) {
      if (!b.at(key).is_number()) {
        throw std::runtime_error(name + ": expected a number for " + key);
      }
      return in_microseconds(b.at(key).get<double>(), b.at("unit"));
    };
    goals[name.substr(name.find('/') + 1)] = {time("median"), time("p99")};
  }
  return goals;
}

/// Counts the steps of script/gpu-check of these kinds that ended with `status`, as "3 of 4".
inline std::string share(json const& steps, std::set<std::string> const& kinds,
                         std::string_view status) {
  int total = 0;
  int good = 0;
  for (json const& step : steps) {
    if (kinds.contains(step.at("kind").get<std::string>())) {
      ++total;
      good += step.at("status") == status ? 1 : 0;
    }
  }
  return std::to_string(good) + " of " + std::to_string(total);
}

/// Describes the runs of compute-sanitizer. "Clean" alone would hide how many had no time to run.
inline std::string sanitizer_text(json const& steps) {
  std::set<std::string> const tools = {"memcheck", "racecheck", "synccheck"};
  std::string const not_run = "not run: ";
  std::map<std::string, int> reasons;
  int skipped = 0;
  int failed = 0;
  for (json const& step : steps) {
    std::string const status = step.at("status").get<std::string>();
    if (!tools.contains(step.at("kind").get<std::string>())) {
      continue;
    }
    if (status.starts_with(not_run)) {
      ++skipped;
      ++reasons[status.substr(not_run.size(), status.find('\n') - not_run.size())];
    }
    failed += status.starts_with("failed") ? 1 : 0;
  }
  std::string text = "compute-sanitizer runs clean " + share(steps, tools, "clean");
  if (failed > 0) {
    text += ", failed " + std::to_string(failed);
  }
  if (skipped > 0) {
    text += ", not run " + std::to_string(skipped) + " (";
    for (char const* separator = ""; auto const& [reason, count] : reasons) {
      text += separator + reason + " " + std::to_string(count);
      separator = ", ";
    }
    text += ")";
  }
  return text;
}

inline void read_gpu_check(json const& file, result& r) {
  r.gpu = true;
  r.device = file.at("gpu").get<std::string>();
  json const& steps = file.at("steps");
  r.details = "driver " + file.at("driver").get<std::string>();
  r.tests_passed = share(steps, {"test"}, "passed");
  r.details += ", test programs passed " + r.tests_passed + ", " + sanitizer_text(steps);
  if (!file.at("finished").get<bool>()) {
    r.details += ", the check did not finish";
  }
  // One output of Google Benchmark for each process; failures are among the steps.
  for (json const& raw : file.at("benchmarks")) {
    if (!raw.at("benchmarks").empty() && !raw.at("benchmarks")[0].value("error_occurred", false)) {
      r.goals.merge(measurements(goals_of(raw)));
    }
  }
}

inline void read_host(json const& file, result& r) {
  json const& device = file.at("device");
  r.device = device.at("name").get<std::string>();
  auto const text = [&](char const* key) { return device.at(key).get<std::string>(); };
  r.details = device.at("cores").dump() + " cores, " + text("compiler") + ", `" + text("flags") +
              "`, load average at the start " +
              json(std::round(device.at("load_average").get<double>() * 10) / 10).dump();
  r.goals = measurements(file.at("benchmarks"));
}

inline json parse_file(std::filesystem::path const& path) {
  std::ifstream in(path);
  if (!in) {
    throw std::runtime_error("cannot be read");
  }
  return json::parse(in);
}

/// Returns the newest result of every device in a folder, hosts first.
inline std::vector<result> newest_results(std::filesystem::path const& folder) {
  std::map<std::pair<bool, std::string>, result> newest;
  for (auto const& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") {
      continue;
    }
    result r;
    r.file = entry.path().filename().string();
    try {
      json const file = parse_file(entry.path());
      r.date = file.at("date").get<std::string>();
      file.contains("gpu") ? read_gpu_check(file, r) : read_host(file, r);
      r.details += ", version " + file.at("version").get<std::string>();
      if (file.at("commit").get<std::string>().ends_with("-dirty")) {
        r.details += " and uncommitted changes";
      }
    } catch (std::exception const& e) {
      throw std::runtime_error(r.file + ": " + e.what());
    }
    auto const [at, is_new] = newest.try_emplace({r.gpu, r.device}, r);
    if (!is_new && std::pair(at->second.date, at->second.file) < std::pair(r.date, r.file)) {
      at->second = r;
    }
  }
  std::vector<result> results;
  for (auto& [key, r] : newest) {
    results.push_back(std::move(r));
  }
  return results;
}

}  // namespace examples
