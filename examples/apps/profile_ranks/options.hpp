// SPDX-License-Identifier: Apache-2.0
// The options and exit codes of profile_ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>

namespace profile_ranks_example {

struct options {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t experts = 1;  ///< experts per rank
  std::int64_t tile = 64;
  std::int64_t dense_until = 512;
  std::int64_t sparse_step = 1024;
  std::int64_t max_tokens = 16384;
  std::int64_t launches = 100;
  std::optional<int> device;
  std::string output;
};

/// Error for an option that does not fit this machine.
class bad_option : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Error for a machine without a GPU.
class no_gpu : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr int exit_bad_option = 2;
inline constexpr int exit_no_gpu = 77;  ///< test drivers take it for a skipped test

/// Parses the arguments and calls `body`. Returns the exit code: 0 for success, 1 for a failure, 2
/// for an invalid option, 77 without a GPU. For each failure it prints one line on stderr.
int run(int argc, char const* const* argv, std::function<void(options const&)> const& body);

}  // namespace profile_ranks_example
