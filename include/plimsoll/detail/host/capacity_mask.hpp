// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of `capacity_mask`: checks of options and shapes, factors of experts, and the order of
/// experts by rank.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include <plimsoll/capacity_mask_types.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/capacity_mask.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void expect_capacity_options(std::string_view name, capacity_options const& o) {
  expect_between(name, "options.experts", 1, expert_limit, o.experts, "experts");
  expect_between(name, "options.top_k", 1, o.experts, o.top_k, "choices");
  if (o.candidates != 0) {
    expect_between(name, "options.candidates", o.top_k, 0x7fffffff, o.candidates, "columns");
  }
  index_t const width = std::max(o.candidates, o.top_k);
  expect_between(name, "options.max_tokens", 0, 0x7fffffff / width, o.max_tokens,
                 "tokens (below 2^31 pairs)");
  if (!(o.factor >= 0)) {
    fail(name, "options.factor", "at least 0", text(o.factor));
  }
  expect_between(name, "options.min_capacity", 0, 0x7fffffff, o.min_capacity, "tokens");
  expect_between(name, "options.max_capacity", o.min_capacity, 0x7fffffff, o.max_capacity,
                 "tokens");
  expect_between(name, "options.min_tokens", 0, std::numeric_limits<index_t>::max(), o.min_tokens,
                 "tokens");
  expect_between(name, "options.ranks", 0, rank_limit, o.ranks, "ranks");
  if (o.rank_of.data != nullptr && o.ranks == 0) {
    fail(name, "options.ranks", "the number of ranks in options.rank_of", "0");
  }
  expect_between(name, "options.classes", 1, 32768, o.classes, "classes");
  expect_between(name, "options.max_selected", 0, width, o.max_selected, "pairs");
  if (!(o.expert_drop >= 0 && o.expert_drop <= 1)) {
    fail(name, "options.expert_drop", "a share from 0 to 1", text(o.expert_drop));
  }
  if (o.sentinel >= 0 && o.sentinel < o.experts) {
    fail(name, "options.sentinel", "no expert's id", text(o.sentinel));
  }
  if (o.pad == padding_mode::to_capacity && o.ranks > 0) {
    fail(name, "options.pad", "none or to_multiple, as ranks share a capacity", "to_capacity");
  }
  expect_between(name, "options.multiple", 1, 0x7fffffff, o.multiple, "rows");
  expect_between(name, "options.min_rows", 0, 0x7fffffff, o.min_rows, "rows");
}

/// Returns the most rows of all experts of a batch; `rule` gives the largest capacity of an expert.
inline index_t most_rows(capacity_options const& o, capacity_rule const& rule) {
  row_padding const padding{o.pad, o.multiple, o.min_rows};
  if (o.pad == padding_mode::to_capacity) {
    return padding.rows(0, rule.width(0)) * o.experts;
  }
  // Rounding up adds at most multiple - 1 rows to an expert, and none to the least rows and the pairs
  // together, as the least rows are a multiple already.
  index_t const extra = o.min_rows > 0                       ? padding.rows(0, 0)
                        : o.pad == padding_mode::to_multiple ? o.multiple - 1
                                                             : 0;
  return rule.tokens * o.candidates + extra * o.experts;
}

/// Checks the shapes of a batch; `rule` gives the largest capacity of an expert in it.
template <class Ids, class Scores, class KeptId>
void expect_capacity_batch(std::string_view name, capacity_options const& o,
                           capacity_rule const& rule, Ids const& ids, Scores const& scores,
                           capacity_batch const& batch, kept_pairs_of<KeptId> const& kept) {
  index_t const tokens = ids.extent(0);
  auto const expect_matrix = [&](char const* argument, auto const& matrix) {
    if (is_given(name, argument, matrix)) {
      expect_extent(name, argument, tokens, matrix.extent(0), "tokens");
      expect_extent(name, argument, o.candidates, matrix.extent(1), "candidates");
    }
  };
  expect_between(name, "topk_ids", 0, o.max_tokens, tokens, "tokens (options.max_tokens)");
  expect_extent(name, "topk_ids", o.candidates, ids.extent(1), "candidates");
  expect_extent(name, "topk_scores", tokens, scores.extent(0), "tokens");
  expect_extent(name, "topk_scores", o.candidates, scores.extent(1), "candidates");
  if (is_given(name, "batch.priorities", batch.priorities)) {
    expect_extent(name, "batch.priorities", tokens, batch.priorities.extent(0), "tokens");
  }
  expect_matrix("batch.weights", batch.weights);
  expect_matrix("kept.ids", kept.ids);
  expect_matrix("kept.weights", kept.weights);
  expect_matrix("kept.positions", kept.positions);
  expect_elements(name, "kept.counts", kept.counts);
  expect_elements(name, "kept.report", kept.report);
  expect_extent(name, "kept.counts", o.experts, kept.counts.extent(0), "experts");
  expect_extent(name, "kept.report", 1, kept.report.extent(0), "reports");
  if (is_given(name, "kept.offsets", kept.offsets)) {
    expect_extent(name, "kept.offsets", o.experts + 1, kept.offsets.extent(0), "offsets");
    expect_between(name, "kept.offsets", 0, 0x7fffffff, most_rows(o, rule), "rows with padding");
  }
}

/// Reads and checks `options.factors`; empty without them.
template <class Context>
std::vector<double> read_factors(std::string_view name, Context const& context,
                                 capacity_options const& o) {
  if (!is_given(name, "options.factors", o.factors)) {
    return {};
  }
  expect_extent(name, "options.factors", o.experts, o.factors.extent(0), "experts");
  std::vector<double> factors = on_host(context, o.factors);
  for (std::size_t e = 0; e < factors.size(); ++e) {
    if (!(factors[e] >= 0)) {
      fail(name, "options.factors", "at least 0", text(factors[e], " for expert ", e));
    }
  }
  return factors;
}

/// Experts sorted by rank.
struct expert_order {
  std::vector<std::int32_t> places;   ///< `[experts]`: place of each expert in the order
  std::vector<std::int32_t> experts;  ///< `[experts]`: the inverse
  std::vector<std::int32_t> begins;   ///< `[ranks + 1]`: first place of each rank
};

/// Reads and checks `options.rank_of` and sorts experts by rank; empty without it.
template <class Context>
expert_order order_experts(std::string_view name, Context const& context,
                           capacity_options const& o) {
  if (!is_given(name, "options.rank_of", o.rank_of)) {
    return {};
  }
  expect_extent(name, "options.rank_of", o.experts, o.rank_of.extent(0), "experts");
  std::vector<std::int32_t> const ranks = on_host(context, o.rank_of);
  std::vector<std::int32_t> begins(static_cast<std::size_t>(o.ranks) + 1);
  for (std::size_t e = 0; e < ranks.size(); ++e) {
    if (ranks[e] < 0 || ranks[e] >= o.ranks) {
      fail(name, "options.rank_of", text("0 to ", o.ranks - 1, " as rank"),
           text(ranks[e], " for expert ", e));
    }
    ++begins[static_cast<std::size_t>(ranks[e]) + 1];
  }
  std::partial_sum(begins.begin(), begins.end(), begins.begin());
  std::vector<std::int32_t> next = begins;
  std::vector<std::int32_t> places(ranks.size());
  std::vector<std::int32_t> experts(ranks.size());
  for (std::size_t e = 0; e < ranks.size(); ++e) {
    places[e] = next[static_cast<std::size_t>(ranks[e])]++;
    experts[static_cast<std::size_t>(places[e])] = static_cast<std::int32_t>(e);
  }
  return {std::move(places), std::move(experts), std::move(begins)};
}

}}}  // namespace plimsoll::detail
