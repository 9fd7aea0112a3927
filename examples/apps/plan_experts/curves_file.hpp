// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads files of latency curves, as `profile_ranks` writes them: a JSON object.
///
/// | key | value |
/// |---|---|
/// | `tokens` | `[samples]`: increasing whole numbers, at least 2 of them |
/// | `latency_us` | `[ranks][samples]` or `[1][samples]`: at least 0, never falling |
/// | `dense_until` | 0, one of `tokens`, or at least the last: a staircase up to there, linear
///   beyond |
/// | `speeds` | `[ranks]`, optional: the divisor of each rank's latencies |
///
/// Other keys are ignored. A file that breaks these rules is a `file_error`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <plimsoll/latency.hpp>
#include <plimsoll/types.hpp>

namespace examples {

using plimsoll::index_t;

/// Measured latencies of ranks at several numbers of tokens.
struct curve_samples {
  std::vector<std::int64_t> tokens;  ///< [samples]
  std::vector<double> latency_us;    ///< [ranks, samples], or [1, samples] for all
  std::int64_t dense_until = 0;
  std::vector<double> speeds = {};  ///< [ranks], or empty

  [[nodiscard]] plimsoll::latency_curves view() const {
    auto const samples = static_cast<index_t>(tokens.size());
    auto const rows = static_cast<index_t>(latency_us.size()) / samples;
    plimsoll::latency_curves curves{tokens, {latency_us, rows, samples}, dense_until};
    if (!speeds.empty()) {
      curves.speeds = speeds;
    }
    return curves;
  }
};

/// Reads the latency curves of `ranks` ranks.
[[nodiscard]] curve_samples read_curves(std::string const& file, index_t ranks);

/// Parses the bytes of a file of curves; `file` is its name.
[[nodiscard]] curve_samples parse_curves(std::string_view bytes, std::string const& file,
                                         index_t ranks);

}  // namespace examples
