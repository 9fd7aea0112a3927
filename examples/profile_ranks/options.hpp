// SPDX-License-Identifier: Apache-2.0
// What profile_ranks is told, and how it ends.
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
  std::int64_t experts = 1;  ///< of the rank
  std::int64_t tile = 64;
  std::int64_t dense_until = 512;
  std::int64_t sparse_step = 1024;
  std::int64_t max_tokens = 16384;
  std::int64_t launches = 100;
  std::optional<int> device;
  std::string output;
};

/// An option that this machine does not fit.
class bad_option : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// There is nothing to measure on.
class no_gpu : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr int exit_bad_option = 2;
inline constexpr int exit_no_gpu = 77;  ///< what test drivers take for a skipped test

/// Parses the arguments and calls `body`. Returns the exit code: 0, 1 for a failure, 2 for an
/// option that is no good, 77 without a GPU; of these a line on stderr says why.
int run(int argc, char const* const* argv, std::function<void(options const&)> const& body);

}  // namespace profile_ranks_example
