// SPDX-License-Identifier: Apache-2.0
// The parts of profile_ranks that need no GPU: choose numbers of tokens, turn times into curves,
// and write the file for plan_experts.
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

/// Corrections that make a curve rising: no sample may take less time than one with fewer tokens.
struct corrections {
  std::size_t samples = 0;  ///< number of raised samples
  double largest_us = 0;
  std::int64_t largest_at = 0;  ///< tokens of the sample with the largest correction
};

/// The curve of a rank.
struct rank_profile {
  std::string device;              ///< name of the GPU
  std::vector<double> latency_us;  ///< [samples]
  corrections raised;
};

struct profile {
  std::vector<std::int64_t> tokens;  ///< [samples]
  std::int64_t dense_until = 0;      ///< staircase up to here, linear beyond
  std::vector<rank_profile> ranks;
};

/// Callback that times `launches` launches of a rank with `tokens` tokens, in microseconds each.
using launch_timer = std::function<std::vector<double>(std::int64_t tokens, std::int64_t launches)>;

/// Divides `tokens` over the rank's experts as evenly as possible; returns the tokens of each
/// expert.
[[nodiscard]] std::vector<std::int64_t> tokens_of_experts(std::int64_t tokens,
                                                          std::int64_t experts);

/// Returns the median of at least one time; for an even number, the lower of the two in the middle.
[[nodiscard]] double median(std::vector<double> times);

/// Raises each sample that is below an earlier one to that value.
corrections make_rising(std::vector<std::int64_t> const& tokens, std::vector<double>& latency_us);

/// Returns a profile with the samples to measure, and no rank yet.
[[nodiscard]] profile plan_profile(options const& o);

/// Measures the samples of `p` on one more rank. Throws `std::runtime_error` for a time that is not
/// a finite number above 0.
void measure_rank(profile& p, options const& o, std::string device, launch_timer const& time);

/// Prints a line for every rank.
void print_profile(std::ostream& out, profile const& p);

/// Writes JSON as plan_experts --latency reads it, one key per line.
void write_profile(std::ostream& out, profile const& p, options const& o);

/// Output file that gets its name only when it is complete; an older file stays until then.
class curves_file {
 public:
  /// Opens the file before anything is measured. Throws `bad_option` if it cannot be written.
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
