// SPDX-License-Identifier: Apache-2.0
/// @file
/// Plans of `least_loaded`, their options and reports, without the functions that make them.
#pragma once

#include <cstdint>
#include <limits>

#include <plimsoll/config.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// The tokens of an expert that one rank computes: the range [begin, end) of the expert's tokens,
/// ordered by source rank and, within a source rank, by token. In the output of `arrange`: of the
/// rows that the rank computes.
struct spill_segment {
  std::int32_t expert = 0;  ///< Expert whose tokens these are.
  std::int32_t rank = 0;    ///< Rank that computes them.
  std::int32_t begin = 0;   ///< First token, or row, of the range.
  std::int32_t end = 0;     ///< One past the last.
};

/// The transfer of an expert's weights to a rank that does not hold them.
struct spill_transfer {
  std::int32_t expert = 0;  ///< Expert whose weights are sent.
  std::int32_t from = 0;    ///< Rank that holds the weights.
  std::int32_t to = 0;      ///< Rank that needs them.
  std::int64_t bytes = 0;   ///< Bytes of the weights: `expert_bytes` of the options.
};

/// The imbalance that is compared with `lambda` to decide whether a step spills tokens.
enum class spill_trigger : std::int32_t {
  rank_imbalance,   ///< of rank loads: evenly spread hot experts spill nothing (LLEP's code)
  expert_imbalance  ///< of expert loads (LLEP's paper)
};

/// The destination of an excess of fewer than `min_chunk` tokens.
enum class small_excess_policy : std::int32_t {
  helper,  ///< it goes to the least loaded rank (LLEP's algorithms)
  home     ///< it stays at home, above capacity (LLEP's text)
};

/// Homes of the experts of a layer, of which at most one member is given. Empty: experts are held
/// in contiguous blocks, and the block of rank r begins at expert floor(r experts / ranks).
struct expert_homes {
  /// The slots of one layer: an expert may be held by several ranks. `replica_count` is not read.
  placement_ref residents = {};
  /// `[experts]`: the rank that holds each expert.
  vector_ref<std::int32_t const> home_rank = {};
};

/// The ranks, the experts that they hold, and the rules for spilling. Arrays are in the policy's
/// memory.
struct least_loaded_options {
  /// The ranks. Dead ranks get no tokens, and capacities are in proportion to speed. Ranks on a
  /// node that holds the expert's weights are preferred as long as one of them can take a chunk.
  rank_set on = {};
  /// Experts of the layer, 1 to 65535.
  index_t experts = 0;
  /// `[experts]`: the rank that holds each expert. Empty: experts are held in contiguous blocks,
  /// and the block of rank r begins at expert floor(r experts / ranks).
  vector_ref<std::int32_t const> home_rank = {};
  /// The slots of one layer, instead of `home_rank`: an expert may be held by several ranks (its
  /// homes), and none of them needs its weights sent. `residents.ranks` must equal `on.ranks`;
  /// `residents.replica_count` is not read.
  placement_ref residents = {};
  /// Room for the residents of later updates: the most slots. 0: as many as there are residents, or
  /// experts.
  index_t max_slots = 0;

  /// Capacity factor: a rank's capacity as a multiple of its even share of all tokens. Ranks spill
  /// tokens above their capacity and accept tokens up to it. Above 0, at most 32768.
  double alpha = 1;
  /// Rounds capacities to whole tokens; `down` rounds to no less than 1.
  rounding_mode round = rounding_mode::up;
  /// The fewest tokens that are worth a transfer, except the last tokens of an expert; 1 to
  /// 2^31 - 1.
  std::int64_t min_chunk = 1024;
  /// The least imbalance (max / mean) at which tokens are spilled; 0: always.
  double lambda = 1.3;
  /// Compares the imbalance of rank loads, or that of expert loads, with `lambda`.
  spill_trigger trigger = spill_trigger::rank_imbalance;
  /// Sends an excess of fewer than `min_chunk` tokens to the least loaded rank, or keeps it at
  /// home.
  small_excess_policy small_excess = small_excess_policy::helper;

  /// The most experts that a rank receives.
  index_t max_imports = expert_limit;
  /// The most bytes of experts that a rank receives; requires `expert_bytes`.
  std::int64_t max_import_bytes = std::numeric_limits<std::int64_t>::max();
  /// The most transfers from a rank, each of one expert to one rank.
  index_t max_exports = 0x7fffffff;

  /// Bytes of an expert's weights, up to 2^46.
  std::int64_t expert_bytes = 0;
  /// Bytes that a rank stores for each of its tokens, up to 2^31 - 1.
  std::int64_t token_bytes = 0;

  /// The most token copies (tokens times k) of one call of `count` or `route`.
  index_t max_token_copies = 0;
};

/// The cost model that decides whether a spill saves time. Times are in the unit of `cost`.
template <class Cost = void>
struct spill_price {
  /// The time of a rank's tokens: `moe_cost` with constants from 0 to below 2^960, or a callable
  /// cost(rank, tokens) -> double that runs where the policy runs and returns values in that range.
  /// The speeds of `token_cost` and `latency_curves` are from 2^-64 to 2^64.
  Cost cost;
  /// Bytes that a rank sends or receives per unit of time within its node, 2^-900 to below 2^960.
  double within_node = 0;
  /// Bytes that a rank sends or receives per unit of time between nodes, in the same range.
  double between_nodes = 0;
};
/// Without a cost model, transfers of weights take no time.
template <>
struct spill_price<void> {};
template <class Cost>
spill_price(Cost, double, double) -> spill_price<Cost>;

/// Cause of tokens above the capacity of a rank.
enum class overload_cause : std::int32_t {
  none,         ///< they do not
  capacity,     ///< no other rank had room
  min_chunk,    ///< other ranks had room for less than a chunk
  max_exports,  ///< no home was allowed one more transfer
  max_imports,  ///< no rank with room for a chunk was allowed one more expert
  price,        ///< no transfer to a rank with room for a chunk saved time
  small_excess  ///< they were fewer than a chunk, which `small_excess_policy::home` keeps
};

/// The first tokens that a plan puts on a rank above its capacity.
struct first_overload {
  std::int32_t expert = -1;  ///< The expert; -1: there are none.
  std::int32_t rank = -1;    ///< The rank: the least loaded one, or the expert's first home.
  overload_cause cause = overload_cause::none;

  friend bool operator==(first_overload const&, first_overload const&) = default;
};

/// The outcome of a step. Peaks and capacities are in tokens of a rank of speed 1.
struct spill_report {
  /// The peak, its lower bound, and work: the number of segments of the experts that the plan
  /// divided. Status: infeasible if the limits let no plan keep to the capacity; else optimal if no
  /// plan has a lower peak; else within_tolerance if no rank is above its capacity; else feasible.
  certificate result = {};
  /// The capacity of a rank by `alpha`.
  double capacity = 0;
  /// The capacity that the plan was made with: above `capacity` if the limits prevent that one.
  double raised_capacity = 0;
  double imbalance = 0;       ///< Max / mean, of ranks or of experts as the options choose.
  double home_peak = 0;       ///< The peak with all tokens at home: plain expert parallelism.
  double time = 0;            ///< Modeled time of the slowest rank; 0 without a price.
  double home_time = 0;       ///< Modeled time of the slowest rank with all tokens at home.
  std::int64_t tokens = 0;    ///< Token copies of the step.
  std::int64_t overload = 0;  ///< Tokens above the capacities of their ranks.
  std::int64_t forced = 0;    ///< Tokens that went to a rank without room for a chunk.
  std::int64_t kept = 0;      ///< Tokens that stayed at home, above capacity.
  /// The first tokens above `capacity`, forced or kept, in the order of the plan; if the limits
  /// raised the capacity, those for which it was raised. None without spills.
  first_overload first_forced = {};
  /// 1 if the imbalance reaches `lambda` and the plan is not slower by the price than plain expert
  /// parallelism; else 0, and all tokens stay at home.
  std::int32_t spills = 0;
  std::int32_t segments = 0;   ///< Segments of the plan.
  std::int32_t transfers = 0;  ///< Transfers of the plan.
  /// None, or why nothing was planned; `check` turns that into an error. If a cost is not
  /// a valid time, all tokens stay at home and times are 0; if loads are invalid, the plan is
  /// empty.
  fault refused = {};
};

/// The result of `exchange` for one rank.
struct spill_exchange_report {
  std::int32_t sent = 0;      ///< Tokens that the rank sends, including those that stay on it.
  std::int32_t received = 0;  ///< Tokens that the rank receives, including those that stay on it.
  std::int32_t groups = 0;    ///< Experts that the rank computes.
  /// None, or an expert whose counts do not add up to its planned load, `also`.
  fault refused = {};
};

/// Counts the ids of a batch by outcome; the four counts add up to the number of ids.
struct spill_counters {
  std::int64_t routed = 0;     ///< Ids assigned to a rank.
  std::int64_t unplanned = 0;  ///< Ids beyond the planned tokens of their expert; they get rank -1.
  std::int64_t unrouted = 0;   ///< Ids of -1; they get rank -1.
  std::int64_t out_of_range = 0;  ///< All other ids; they get rank -1.
};

/// A plan from any source. Arrays are in one policy's memory.
struct spill_plan_ref {
  /// `[experts + 1]`: the first segment of each expert.
  vector_ref<std::int32_t const> offsets = {};
  /// Segments, sorted by expert, then by first token.
  vector_ref<spill_segment const> segments = {};
  /// `[experts + 1]`: the first transfer of each expert.
  vector_ref<std::int32_t const> transfer_offsets = {};
  /// Transfers, sorted by expert.
  vector_ref<spill_transfer const> transfers = {};
};

}}  // namespace plimsoll
