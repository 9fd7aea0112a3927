// SPDX-License-Identifier: Apache-2.0
/// @file
/// Latency curves of ranks in files, which `profile_ranks` writes: a JSON object.
///
/// | key | value |
/// |---|---|
/// | `tokens` | `[samples]`: rising whole numbers, at least 2 |
/// | `latency_us` | `[ranks][samples]` or `[1][samples]`: from 0, not falling |
/// | `dense_until` | 0, one of `tokens`, or more: steps up to there, lines beyond |
/// | `speeds` | `[ranks]`, may be left out: what a rank's latencies are divided by |
///
/// Other keys are for people. Whatever breaks this is a `file_error`.
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

/// How long ranks take, measured at some numbers of tokens.
struct curve_samples {
  std::vector<std::int64_t> tokens;  ///< [samples]
  std::vector<double> latency_us;    ///< [ranks, samples], or [1, samples] for all
  std::int64_t dense_until = 0;
  std::vector<double> speeds = {};  ///< [ranks], or empty

  [[nodiscard]] plimsoll::latency_curves view() const {
    auto const samples = static_cast<index_t>(tokens.size());
    auto const rows = static_cast<index_t>(latency_us.size()) / samples;
    plimsoll::latency_curves curves{tokens, {latency_us.data(), rows, samples}, dense_until};
    if (!speeds.empty()) {
      curves.speeds = speeds;
    }
    return curves;
  }
};

/// Reads curves for so many ranks.
[[nodiscard]] curve_samples read_curves(std::string const& file, index_t ranks);

/// The same for the bytes of a file; `file` is its name.
[[nodiscard]] curve_samples parse_curves(std::string_view bytes, std::string const& file,
                                         index_t ranks);

}  // namespace examples
