// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options, inputs, outputs and report of `capacity_mask`.
#pragma once

#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Order of a token's pairs: those of its k choices, and of its local experts.
enum class candidate_order : std::int32_t {
  topk_first,  ///< top-k pairs outrank expanded candidates
  together     ///< both compete by their keys, as in the paper's algorithm 2
};

/// Options of `capacity_mask`: the capacity, and the policy by which pairs are dropped. A *pair* is
/// a token and one of its experts.
struct capacity_options {
  /// Experts of the layer, 1 to 65535.
  index_t experts = 0;
  /// Experts that each token chooses: the first columns of a batch.
  index_t top_k = 0;
  /// Columns of a batch. Those after the first top_k hold *expanded candidates*, which are offered
  /// to a token in addition to its choices (Expanded Drop). 0: top_k columns.
  index_t candidates = 0;
  /// Tokens of the largest batch.
  index_t max_tokens = 0;

  /// Capacity factor, at least 0. The capacity of an expert is factor * tokens * top_k / experts,
  /// rounded, then at least min_capacity, at most max_capacity, and at most the batch's tokens.
  double factor = 1;
  /// `[experts]`: one factor per expert in place of `factor`; in the policy's memory, read by the
  /// constructor.
  vector_ref<double const> factors = {};
  /// Direction in which the capacity is rounded.
  rounding_mode round = rounding_mode::up;
  /// Lower bound of the rounded capacity, at least 0.
  index_t min_capacity = 1;
  /// Upper bound of the rounded capacity.
  index_t max_capacity = 0x7fffffff;
  /// Batches with fewer tokens are not limited, and Expert Drop skips no expert in them: in a batch
  /// of a few tokens, all of them easily choose the same expert.
  index_t min_tokens = 0;

  /// Number of ranks, if the experts of a rank share their capacities: together they keep as many
  /// pairs as the sum of these. 0: every expert has its own capacity.
  index_t ranks = 0;
  /// `[experts]`: rank of each expert, in the policy's memory, read by the constructor. Empty:
  /// experts are spread over ranks evenly and in order.
  vector_ref<std::int32_t const> rank_of = {};

  /// Key by which an expert above its capacity selects the pairs that it keeps.
  drop_policy drop_by = drop_policy::score;
  /// Seed of the random numbers for drop_policy::random.
  std::uint64_t seed = 0;
  /// Number of token priorities, 1 to 32768. Pairs of a higher priority outrank all pairs of a
  /// lower one.
  index_t classes = 1;
  /// Ranks top-k pairs above expanded candidates, or lets both compete on equal terms.
  candidate_order order = candidate_order::topk_first;
  /// Most pairs that a token keeps, the best by score. 0: no limit.
  index_t max_selected = 0;
  /// Share of the experts that get no token at all (Expert Drop), 0 to 1; their number is rounded
  /// down. Experts that the fewest tokens chose are skipped, of equal ones the higher id.
  double expert_drop = 0;

  /// Sum to which the kept weights of a token are scaled.
  normalization normalize = normalization::none;
  /// Id written for a dropped pair; must not be an expert's id.
  std::int32_t sentinel = -1;
  /// Padding of the rows per expert that `offsets` counts.
  padding_mode pad = padding_mode::none;
  /// Multiple to which padding_mode::to_multiple rounds up.
  index_t multiple = 1;
  /// Least rows of an expert before they are rounded up: with 1 an expert without tokens gets one
  /// multiple, as grouped matrix products of torchtitan need.
  index_t min_rows = 0;
};

/// Optional inputs of one batch.
struct capacity_batch {
  /// `[tokens]`: priority of each token, 0 to classes - 1; pairs of higher ones are kept first.
  /// Empty: 0 for all. To drop image tokens first, give text tokens 1.
  vector_ref<std::int32_t const> priorities = {};
  /// `[tokens, candidates]`: weights to write for the kept pairs. Empty: their scores.
  matrix_ref<float const> weights = {};
  /// Subsequence of the random numbers for drop_policy::random: one per step and layer.
  std::uint64_t subsequence = 0;
  /// Number of the batch's first token, for drop_policy::random.
  std::uint64_t first_token = 0;
};

/// Counts of one batch: routed - kept pairs were dropped; routed, unrouted, out_of_range and
/// duplicates add up to the number of ids.
struct capacity_report {
  std::int64_t routed = 0;        ///< Pairs of a token and an expert.
  std::int64_t kept = 0;          ///< Routed pairs that are kept; the others were dropped.
  std::int64_t choices = 0;       ///< Routed top-k pairs, without expanded candidates.
  std::int64_t kept_choices = 0;  ///< Top-k pairs that are kept.
  std::int64_t unrouted = 0;      ///< Ids of -1.
  std::int64_t out_of_range = 0;  ///< Other ids that are not an expert's.
  std::int64_t duplicates = 0;    ///< Repeated ids in a token's row; the first one counts.
  /// Routed pairs with a score of NaN, which ranks last; counted when keeping by score.
  std::int64_t not_numbers = 0;
  /// Routed pairs of tokens with an invalid priority, which counts as 0.
  std::int64_t unknown_class = 0;
  /// Rows of all experts in `offsets`, padding included; 0 without `offsets`.
  std::int64_t rows = 0;
  /// Dropped top-k pairs over top-k pairs: (choices - kept_choices) / choices.
  double dropped_fraction = 0;
  /// The paper's equation 11: top-k pairs of each expert (or rank) above its capacity before
  /// rounding and other limits, summed, over `choices`.
  double overflow_fraction = 0;
};

/// Outputs of `capacity_mask`, in the policy's memory; `Id` is int32 or int64. Only counts and
/// report are required.
template <class Id>
struct kept_pairs_of {
  static_assert(std::is_same_v<Id, std::int32_t> || std::is_same_v<Id, std::int64_t>,
                "Plimsoll: ids of kept_pairs_of must be int32 or int64");

  /// `[tokens, candidates]`: ids of kept pairs in their columns, else the sentinel. May be the
  /// batch's own array.
  matrix_ref<Id> ids = {};
  /// `[tokens, candidates]`: weights of kept pairs, else 0. May be the batch's own array.
  matrix_ref<float> weights = {};
  /// `[tokens, candidates]`: number of each kept pair within its expert, from 0: top-k pairs in
  /// token order, then expanded candidates in token order; -1 elsewhere.
  matrix_ref<std::int32_t> positions = {};
  /// `[experts]`: kept pairs of each expert.
  vector_ref<std::int32_t> counts = {};
  /// `[experts + 1]`: first row of each expert in a buffer of all kept pairs, padded as options.pad
  /// says; the row of a pair is its expert's offset plus its position.
  vector_ref<std::int32_t> offsets = {};
  /// Counts of the batch.
  scalar_ref<capacity_report> report = {};
};

using kept_pairs = kept_pairs_of<std::int32_t>;

}}  // namespace plimsoll
