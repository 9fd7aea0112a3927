// SPDX-License-Identifier: Apache-2.0
#include "profile.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <plimsoll/latency.hpp>

namespace profile_ranks_example {

std::vector<std::int64_t> tokens_of_experts(std::int64_t tokens, std::int64_t experts) {
  std::vector<std::int64_t> result;
  for (std::int64_t e = 0; e < experts; ++e) {
    result.push_back(tokens / experts + (e < tokens % experts ? 1 : 0));
  }
  return result;
}

double median(std::vector<double> times) {
  auto const middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

corrections make_rising(std::vector<std::int64_t> const& tokens, std::vector<double>& latency_us) {
  corrections result;
  for (std::size_t i = 1; i < latency_us.size(); ++i) {
    double const below = latency_us[i - 1] - latency_us[i];
    if (below > 0) {
      latency_us[i] = latency_us[i - 1];
      ++result.samples;
      if (below > result.largest_us) {
        result.largest_us = below;
        result.largest_at = tokens[i];
      }
    }
  }
  return result;
}

profile plan_profile(options const& o) {
  profile p;
  p.tokens = plimsoll::sampling_plan({.tile = o.tile,
                                      .dense_until = o.dense_until,
                                      .sparse_step = o.sparse_step,
                                      .max_tokens = o.max_tokens});
  p.dense_until = (o.dense_until + o.tile - 1) / o.tile * o.tile;
  return p;
}

void measure_rank(profile& p, options const& o, std::string device, launch_timer const& time) {
  rank_profile rank{std::move(device), {}, {}};
  for (std::int64_t const tokens : p.tokens) {
    auto const times = time(tokens, o.launches);
    bool const good = std::all_of(times.begin(), times.end(),
                                  [](double us) { return us > 0 && std::isfinite(us); });
    if (times.empty() || !good) {
      throw std::runtime_error("rank " + std::to_string(p.ranks.size()) + ": expected a time for " +
                               std::to_string(tokens) + " tokens, got none");
    }
    rank.latency_us.push_back(median(times));
  }
  rank.raised = make_rising(p.tokens, rank.latency_us);
  p.ranks.push_back(std::move(rank));
}

void print_profile(std::ostream& out, profile const& p) {
  for (std::size_t i = 0; i < p.ranks.size(); ++i) {
    rank_profile const& rank = p.ranks[i];
    char text[240];
    std::snprintf(text, sizeof text, "%zu samples, %.2f us for %lld tokens to %.2f us for %lld",
                  p.tokens.size(), rank.latency_us.front(),
                  static_cast<long long>(p.tokens.front()), rank.latency_us.back(),
                  static_cast<long long>(p.tokens.back()));
    out << "rank " << i << " (" << rank.device << "): " << text;
    if (rank.raised.samples > 0) {
      std::snprintf(text, sizeof text, "; samples raised: %zu, by at most %.2f us (at %lld tokens)",
                    rank.raised.samples, rank.raised.largest_us,
                    static_cast<long long>(rank.raised.largest_at));
      out << text;
    }
    out << '\n';
  }
}

void write_profile(std::ostream& out, profile const& p, options const& o) {
  using json = nlohmann::ordered_json;
  json devices = json::array();
  json latency = json::array();
  json raised = json::array();
  for (rank_profile const& rank : p.ranks) {
    devices.push_back(rank.device);
    latency.push_back(rank.latency_us);
    raised.push_back(rank.raised.samples);
  }
  json const object = {{"device", devices},
                       {"hidden", o.hidden},
                       {"intermediate", o.intermediate},
                       {"experts", o.experts},
                       {"tile", o.tile},
                       {"launches", o.launches},
                       {"raised", raised},
                       {"dense_until", p.dense_until},
                       {"tokens", p.tokens},
                       {"latency_us", latency}};
  char const* separator = "{\n";
  for (auto const& [key, value] : object.items()) {
    out << separator << json(key) << ": "
        << value.dump(-1, ' ', false, json::error_handler_t::replace);
    separator = ",\n";
  }
  out << "\n}\n";
}

curves_file::curves_file(std::string name)
    : name_(std::move(name)), unfinished_(name_ + ".part"), stream_(unfinished_, std::ios::binary) {
  if (!stream_) {
    throw bad_option("--output: expected a file that can be written, got '" + name_ + "'");
  }
}

curves_file::~curves_file() {
  std::error_code ignored;
  std::filesystem::remove(unfinished_, ignored);
}

void curves_file::write(profile const& p, options const& o) {
  write_profile(stream_, p, o);
  stream_.close();
  std::error_code error;
  if (stream_) {
    std::filesystem::rename(unfinished_, name_, error);
  }
  if (!stream_ || error) {
    throw std::runtime_error("--output: expected '" + name_ + "' to be written, got an error");
  }
}

}  // namespace profile_ranks_example
