// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options, inputs, outputs and reports of `waterline`, without the functions that use them.
#pragma once

#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Method that assigns rows to ranks. A *row* is the shared expert's work for one token; its *home*
/// is the rank that holds the token.
enum class fill_method : std::int32_t {
  /// Moves only the rows above the level; all others stay at home.
  surplus,
  /// Draws a rank for every row, with probability in proportion to slack (SGLang's Waterfill).
  sampled
};

/// Ranks, other than its home, to which a row may go.
enum class candidate_ranks : std::int32_t {
  visited,  ///< ranks that the token visits for its routed experts: the token is not sent again
  all       ///< any rank
};

/// Ranks whose counts a plan is made from.
enum class counted_ranks : std::int32_t {
  all,  ///< all ranks, which exchange their counts
  own   ///< the source alone: it assumes that every rank has the same, so that none exchange any
};

/// Arithmetic of counts, levels and random draws.
enum class fill_arithmetic : std::int32_t {
  exact,
  /// SGLang's counts, integers and hash; only for sampled rows, and only if all ranks are live and
  /// equally fast.
  sglang
};

/// Options of `waterline`. Arrays are in the policy's memory.
struct waterline_options {
  /// Ranks, their nodes, liveness and speeds; dead ranks get no rows. Surplus rows stay in their
  /// node while it has slack and, with candidate_ranks::visited, while their tokens visit ranks
  /// with that slack.
  rank_set on = {};
  /// Number of slots of routed experts, summed over ranks; top-k ids are slot numbers.
  index_t slots = 0;
  /// `[ranks + 1]`: first slot of each rank, as in `placement_ref`. Empty: slots are spread evenly.
  vector_ref<std::int32_t const> rank_offsets = {};

  /// Ids per token, 1 to 512.
  index_t top_k = 0;
  /// Tokens of the largest batch, below 2^31 / top_k.
  index_t max_tokens = 0;

  /// Rows that move: those above the level, or every row by a random draw.
  fill_method method = fill_method::surplus;
  /// Ranks to which a row may go: those that its token visits anyway, or all.
  candidate_ranks candidates = candidate_ranks::visited;
  /// Ranks whose counts a plan is made from.
  counted_ranks counts = counted_ranks::all;
  /// Fewest rows that a source dispatches; a source with fewer keeps them all at home.
  index_t min_tokens = 64;
  /// Weight of the shared expert's output: 1 over the factor by which an engine scales the output
  /// of all experts.
  float weight = 1;

  /// Factor on the slack of the home rank, for sampled rows; 1 to 16. If no candidate has slack, a
  /// row leaves home only for a rank whose load, times this factor, is below that of its home.
  double local_preference = 1.1;
  /// Factor on the slack of other ranks on the home rank's node, for sampled rows; 1 to 16.
  double node_preference = 1;
  /// Exact, or SGLang's.
  fill_arithmetic arithmetic = fill_arithmetic::exact;
  /// Seed of the random numbers for sampled rows.
  std::uint64_t seed = 0;
};

/// Result for one source's rows. Levels are in tokens of a rank of speed 1.
struct waterline_report {
  /// For the surplus method, the peak if every surplus row is placed; for sampled rows, the mean.
  double level = 0;
  /// The peak if all rows stayed at home.
  double home_peak = 0;
  /// Rows of all sources that are to leave home. With candidate_ranks::visited this includes rows
  /// that leave only so that their rank can take in others.
  std::int64_t surplus = 0;
  std::int64_t rows = 0;      ///< Tokens of the batch with a valid expert; each has one row.
  std::int64_t moved = 0;     ///< Rows that leave home.
  std::int64_t unplaced = 0;  ///< Surplus rows that stay, as no candidate had slack left.
  /// Moved rows that go to a rank which their token does not visit otherwise.
  std::int64_t new_destinations = 0;
  std::int64_t without_expert = 0;  ///< Tokens without a valid expert, which have no row.
  std::int64_t unrouted = 0;        ///< Ids of -1.
  std::int64_t out_of_range = 0;    ///< Other ids that are not a slot of any rank.
  /// None, or the value for which all rows stay at home: a load of `plan`, where `where` is its
  /// rank and `also` its row, or a source of `fill` other than the planned one. `check` throws it.
  fault refused = {};
};

/// Optional inputs of one batch. A null view leaves an input out.
struct waterline_batch {
  /// `[tokens, top_k]`: weights of the routed experts.
  matrix_ref<float const> weights = {};
  /// Subsequence of the random numbers for sampled rows: one per step and layer. A CUDA graph
  /// replays the value of its capture.
  std::uint64_t subsequence = 0;
};

/// Optional outputs of `waterline::fill`; null views are not written.
struct filled_rows {
  /// `[tokens, top_k + 1]`: the batch's weights, then the shared expert's; 0 where the id is -1.
  matrix_ref<float> weights = {};
  /// `[tokens]`: rank of each row; -1 for a token without a row.
  vector_ref<std::int32_t> ranks = {};
};

}}  // namespace plimsoll
