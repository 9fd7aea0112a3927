// SPDX-License-Identifier: Apache-2.0
// What profile_ranks does without a GPU: which numbers of tokens to measure, what the times say,
// and the file for plan_experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "options.hpp"

namespace profile_ranks_example {

/// What was changed so that no sample takes less than one of fewer tokens, as a curve must be.
struct corrections {
  std::size_t samples = 0;  ///< how many were raised
  double largest_us = 0;
  std::int64_t largest_at = 0;  ///< tokens of that sample
};

/// The curve of a rank.
struct rank_profile {
  std::string device;              ///< its name
  std::vector<double> latency_us;  ///< [samples]
  corrections raised;
};

struct profile {
  std::vector<std::int64_t> tokens;  ///< [samples]
  std::int64_t dense_until = 0;      ///< steps up to here, lines beyond
  std::vector<rank_profile> ranks;
};

/// Times `launches` of a rank with so many tokens, in microseconds each.
using launch_timer = std::function<std::vector<double>(std::int64_t tokens, std::int64_t launches)>;

/// The tokens of each of the rank's experts, which share `tokens` as evenly as they can.
[[nodiscard]] std::vector<std::int64_t> tokens_of_experts(std::int64_t tokens,
                                                          std::int64_t experts);

/// Of at least one time; of an even number, the lower of the two in the middle.
[[nodiscard]] double median(std::vector<double> times);

/// Raises what is below an earlier sample to that.
corrections make_rising(std::vector<std::int64_t> const& tokens, std::vector<double>& latency_us);

/// The samples to measure, and no rank.
[[nodiscard]] profile plan_profile(options const& o);

/// Measures the samples of `p` and adds a rank. Throws `std::runtime_error` for times that are not
/// numbers above 0.
void measure_rank(profile& p, options const& o, std::string device, launch_timer const& time);

/// A line for every rank.
void print_profile(std::ostream& out, profile const& p);

/// JSON as plan_experts --latency reads it, a key a line.
void write_profile(std::ostream& out, profile const& p, options const& o);

/// A file that has its name only once it is complete; an older one stays until then.
class curves_file {
 public:
  /// Throws `bad_option` where no file can be written, before anything is measured.
  explicit curves_file(std::string name);
  curves_file(curves_file const&) = delete;
  curves_file& operator=(curves_file const&) = delete;
  ~curves_file();

  void write(profile const& p, options const& o);

 private:
  std::string name_;
  std::string unfinished_;
  std::ofstream stream_;
};

}  // namespace profile_ranks_example
