// SPDX-License-Identifier: Apache-2.0
/// @file
/// Host half of `waterline`: checks of options and shapes, tables of slots, and messages about
/// refused loads.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/rank_set.hpp>
#include <plimsoll/detail/host/rank_speeds.hpp>
#include <plimsoll/detail/host/slots.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>
#include <plimsoll/waterline_types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline void expect_waterline_options(std::string_view function, waterline_options const& options) {
  expect_rank_set(function, options.on);
  expect_between(function, "options.slots", 1, 0x7fffffff - options.on.ranks, options.slots,
                 "slots");
  expect_between(function, "options.top_k", 1, 512, options.top_k, "ids per token");
  expect_between(function, "options.max_tokens", 0, 0x7fffffff / options.top_k, options.max_tokens,
                 "tokens (below 2^31 ids)");
  expect_between(function, "options.min_tokens", 0, 0x7fffffff, options.min_tokens, "tokens");
  auto const expect_preference = [=](char const* argument, double preference) {
    if (!(preference >= 1 && preference <= 16)) {
      fail(function, argument, "a number from 1 to 16", text(preference));
    }
  };
  expect_preference("options.local_preference", options.local_preference);
  expect_preference("options.node_preference", options.node_preference);
  if (!std::isfinite(options.weight)) {
    fail(function, "options.weight", "a finite number", text(options.weight));
  }
  if (options.literal && options.method != fill_method::sampled) {
    fail(function, "options.literal", "false unless fill_method::sampled is set", "true");
  }
}

/// Speeds of the ranks of a `waterline`, and tables of its slots.
struct waterline_tables {
  rank_speeds speeds;
  std::vector<std::int32_t> rank_of;      ///< `[slots]`: -1 for a slot of no rank
  std::vector<std::int32_t> shared_slot;  ///< `[ranks]`: the shared expert's slot on each rank
};

/// Reads and checks the speeds and offsets of options that `expect_waterline_options` has accepted.
template <class Context>
waterline_tables read_waterline_tables(std::string_view function, Context const& context,
                                       waterline_options const& options) {
  index_t const ranks = options.on.ranks;
  waterline_tables result{read_speeds(function, context, options.on), {}, {}};
  rank_speeds const& speeds = result.speeds;
  index_t const live = speeds.live();
  if (options.literal && !(speeds.even && live == ranks)) {
    fail(function, "options.literal", "false unless all ranks are live and equal",
         live < ranks ? "true with a dead rank" : "true with unequal speeds");
  }
  bool const given = is_given(function, "options.rank_offsets", options.rank_offsets);
  if (given) {
    expect_extent(function, "options.rank_offsets", ranks + 1, options.rank_offsets.extent(0),
                  "offsets (ranks + 1)");
  }
  std::vector<std::int32_t> const begins =
      given ? on_host(context, options.rank_offsets) : even_begins(1, options.slots, ranks);
  result.rank_of.assign(static_cast<std::size_t>(options.slots), -1);
  for (index_t r = 0; r < ranks; ++r) {
    auto const at = static_cast<std::size_t>(r);
    std::int32_t const begin = begins[at];
    std::int32_t const end = begins[at + 1];
    std::string const of_rank = text(" for rank ", r);
    if (!is_slot_range(begins.data(), r, options.slots)) {
      fail(function, "options.rank_offsets",
           "offsets that rise from 0 to at most the number of slots",
           text(begin, " and ", end, of_rank));
    }
    if (begin == end && speeds.speed[at] > 0) {
      fail(function, given ? "options.rank_offsets" : "options.slots",
           "at least 1 slot for every live rank", text("0", of_rank));
    }
    std::fill(result.rank_of.begin() + begin, result.rank_of.begin() + end,
              static_cast<std::int32_t>(r));
    result.shared_slot.push_back(end + static_cast<std::int32_t>(r));
  }
  return result;
}

template <class Ids>
void expect_waterline_ids(std::string_view function, waterline_options const& options,
                          Ids const& topk_ids) {
  expect_between(function, "topk_ids", 0, options.max_tokens, topk_ids.extent(0),
                 "tokens (options.max_tokens)");
  expect_extent(function, "topk_ids", options.top_k, topk_ids.extent(1), "ids per token");
}

inline void expect_waterline_source(std::string_view function, waterline_options const& options,
                                    index_t source) {
  expect_between(function, "source", 0, options.on.ranks - 1, source, "as rank");
}

/// Checks the shape of the loads and the source to which `count` or `plan` applies.
inline void expect_waterline_loads(std::string_view function, waterline_options const& options,
                                   matrix_ref<std::int64_t const> const& loads, index_t source) {
  expect_extent(function, "loads", 2, loads.extent(0), "rows (routed load, tokens at home)");
  expect_extent(function, "loads", options.on.ranks, loads.extent(1), "ranks");
  expect_waterline_source(function, options, source);
}

/// Checks the shapes of the inputs and outputs of `fill`.
template <class Id, class OutId>
void expect_waterline_rows(std::string_view function, waterline_options const& options,
                           matrix_ref<Id const> const& topk_ids, waterline_batch const& batch,
                           matrix_ref<OutId> const& ids, filled_rows const& rows) {
  index_t const tokens = topk_ids.extent(0);
  auto const expect_matrix = [=](char const* argument, auto const& matrix, index_t columns) {
    if (is_given(function, argument, matrix)) {
      expect_extent(function, argument, tokens, matrix.extent(0), "tokens");
      expect_extent(function, argument, columns, matrix.extent(1), "columns");
    }
  };
  expect_waterline_ids(function, options, topk_ids);
  expect_matrix("batch.weights", batch.weights, options.top_k);
  expect_matrix("ids", ids, options.top_k + 1);
  expect_matrix("rows.weights", rows.weights, options.top_k + 1);
  if (rows.weights.data != nullptr && batch.weights.data == nullptr && tokens > 0) {
    fail(function, "batch.weights", "weights, as rows.weights is set", "none");
  }
  if (is_given(function, "rows.ranks", rows.ranks)) {
    expect_extent(function, "rows.ranks", tokens, rows.ranks.extent(0), "tokens");
  }
}

/// Throws for a report of refused loads or of a source without a plan; `function` takes the loads.
inline void throw_waterline_fault(std::string_view function, waterline_report const& report) {
  fault const& found = report.refused;
  if (!found) {
    return;
  }
  if (found.kind == fault_kind::source) {
    fail("waterline::fill", "source",
         found.where < 0 ? "a source for which plan was called"
                         : text(found.where, ", for which plan was last called"),
         text(found.got));
  }
  if (found.kind == fault_kind::tokens) {
    fail(function, "loads", "at most 2^31 - 1 tokens in all", text(found.got));
  }
  fail(function, "loads",
       found.kind == fault_kind::load ? "values from 0 to 2^31 - 1"
                                      : "0 of a rank that is not active",
       text(found.got, " in row ", found.also, ", rank ", found.where));
}

}}}  // namespace plimsoll::detail
