// SPDX-License-Identifier: Apache-2.0
/// @file
/// Assigns a step's tokens to ranks: overloaded ranks send the excess tokens of an expert, with its
/// weights, to the least loaded ranks.
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/least_loaded.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/least_loaded.hpp>
#include <plimsoll/detail/host/placement.hpp>
#include <plimsoll/detail/host/rank_speeds.hpp>
#include <plimsoll/detail/host/slots.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// The tokens of an expert that one rank computes: the range [begin, end) of the expert's tokens,
/// ordered by source rank and, within a source rank, by token.
struct spill_segment {
  std::int32_t expert = 0;
  std::int32_t rank = 0;
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

/// The transfer of an expert's weights to a rank that does not hold them.
struct spill_transfer {
  std::int32_t expert = 0;
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::int64_t bytes = 0;
};

/// The imbalance that is compared with `lambda` to decide whether a step spills tokens.
enum class spill_trigger : std::int32_t {
  rank_imbalance,   ///< of rank loads: evenly spread hot experts spill nothing (LLEP's code)
  expert_imbalance  ///< of expert loads (LLEP's paper)
};

/// The destination of an excess of fewer than `min_chunk` tokens.
enum class small_excess_policy : std::int32_t {
  helper,  ///< it goes to the least loaded rank (LLEP's algorithms)
  native   ///< it stays at home, above capacity (LLEP's text)
};

/// The ranks, the experts that they hold, and the rules for spilling. Arrays are in the policy's
/// memory.
struct least_loaded_options {
  index_t experts = 0;  ///< 1 to 65535
  index_t ranks = 0;    ///< 1 to 32767
  /// 1 to ranks; ranks are numbered node by node. Ranks on a node that holds the expert's weights
  /// are preferred as long as one of them can take a chunk.
  index_t nodes = 1;
  /// `[experts]`: the rank that holds each expert. Empty: experts are held in contiguous blocks,
  /// and the block of rank r begins at expert floor(r experts / ranks).
  vector_ref<std::int32_t const> native = {};
  /// The slots of one layer, instead of `native`: an expert may be held by several ranks (its
  /// homes), and none of them needs its weights sent. `residents.ranks` must equal `ranks`;
  /// `residents.replica_count` is not read.
  placement_ref residents = {};
  /// `[ranks]`: 0 for a dead rank. Empty: all ranks are live.
  vector_ref<std::uint8_t const> active = {};
  /// `[ranks]`: the speed of each rank, as in `minmax_lp_options`. Empty: speed 1 for all.
  vector_ref<double const> speeds = {};

  /// Capacity factor: a rank's capacity as a multiple of its even share of all tokens. Ranks spill
  /// tokens above their capacity and accept tokens up to it. Above 0, at most 32768.
  double alpha = 1;
  rounding_mode round =
      rounding_mode::up;  ///< of capacities to whole tokens; `down` to no less than 1
  /// The fewest tokens that are worth a transfer, except the last tokens of an expert; 1 to
  /// 2^31 - 1.
  std::int64_t min_chunk = 1024;
  /// The least imbalance (max / mean) at which tokens are spilled; 0: always.
  double lambda = 1.3;
  spill_trigger trigger = spill_trigger::rank_imbalance;
  small_excess_policy small_excess = small_excess_policy::helper;

  /// The most experts that a rank receives.
  index_t max_imports = expert_limit;
  /// The same limit in bytes; requires expert_bytes.
  std::int64_t max_import_bytes = std::numeric_limits<std::int64_t>::max();
  /// The most transfers from a rank, each of one expert to one rank.
  index_t max_exports = 0x7fffffff;

  std::int64_t expert_bytes = 0;  ///< of an expert's weights, up to 2^46
  std::int64_t token_bytes = 0;   ///< that a rank stores for each of its tokens, up to 2^31 - 1

  /// The most ids (tokens times k) of one call of `count` or `route`.
  index_t max_ids = 0;
};

/// The cost model that decides whether a spill saves time. Times are in the unit of `cost`.
template <class Cost = void>
struct spill_price {
  /// `moe_cost` with constants from 0 to below 2^960, or a callable cost(rank, tokens) -> double
  /// that runs where the policy runs and returns values in that range. The speeds of `token_cost`
  /// and `latency_curves` are from 2^-64 to 2^64.
  Cost cost;
  /// Bytes that a rank sends or receives per unit of time, within its node and between nodes:
  /// 2^-900 to below 2^960.
  double within_node = 0;
  double between_nodes = 0;
};
/// Without a cost model, transfers of weights take no time.
template <>
struct spill_price<void> {};
template <class Cost>
spill_price(Cost, double, double) -> spill_price<Cost>;

/// The outcome of a step. Peaks and capacities are in tokens of a rank of speed 1.
struct spill_report {
  /// The peak, its lower bound, and work: the number of segments of the experts that the plan
  /// divided. Status: infeasible if the limits let no plan keep to the capacity; else optimal if no
  /// plan has a lower peak; else within_tolerance if no rank is above its capacity; else feasible.
  certificate result = {};
  double capacity = 0;
  /// The capacity that the plan was made with: above `capacity` if the limits prevent that one.
  double raised_capacity = 0;
  double imbalance = 0;  ///< max / mean, of ranks or of experts as the options choose
  double home_peak = 0;  ///< with all tokens at home: plain expert parallelism
  double time = 0;       ///< modelled time of the slowest rank; 0 without a price
  double home_time = 0;  ///< the same with all tokens at home
  std::int64_t tokens = 0;
  std::int64_t overload = 0;  ///< tokens above the capacities of their ranks
  std::int64_t forced = 0;    ///< tokens that went to a rank without room for a chunk
  std::int64_t kept = 0;      ///< tokens that stayed at home, above capacity
  /// 1 if the imbalance reaches `lambda` and the plan is not slower by the price than plain expert
  /// parallelism; else 0, and all tokens stay at home.
  std::int32_t spills = 0;
  std::int32_t segments = 0;
  std::int32_t transfers = 0;
  /// None, or why nothing was planned; `expect_planned` turns that into an error. If a cost is not
  /// a valid time, all tokens stay at home and times are 0; if loads are invalid, the plan is
  /// empty.
  fault refused = {};
};

/// The result of `exchange` for its rank.
struct spill_exchange_report {
  std::int32_t sent = 0;      ///< tokens, including those that stay on the rank
  std::int32_t received = 0;  ///< tokens, including those that stay on the rank
  std::int32_t groups = 0;    ///< experts that the rank computes
  /// None, or an expert whose counts do not add up to its planned load, `also`.
  fault refused = {};
};

/// Counts the ids of a batch by outcome; the four counts add up to the number of ids.
struct spill_counters {
  std::int64_t routed = 0;        ///< assigned to a rank
  std::int64_t unplanned = 0;     ///< beyond the planned tokens of their expert; the rank is -1
  std::int64_t unrouted = 0;      ///< the id is -1; the rank is -1
  std::int64_t out_of_range = 0;  ///< the id is any other number; the rank is -1
};

/// A plan from any source. Arrays are in one policy's memory.
struct spill_plan_ref {
  vector_ref<std::int32_t const> offsets = {};           ///< `[experts + 1]` into `segments`
  vector_ref<spill_segment const> segments = {};         ///< by expert, then by first token
  vector_ref<std::int32_t const> transfer_offsets = {};  ///< `[experts + 1]` into `transfers`
  vector_ref<spill_transfer const> transfers = {};       ///< by expert
};

namespace detail {

/// Returns the most experts that a rank may receive, by number and by bytes.
inline index_t import_limit(least_loaded_options const& options) {
  return options.expert_bytes == 0
             ? options.max_imports
             : std::min<index_t>(options.max_imports,
                                 options.max_import_bytes / options.expert_bytes);
}

/// The arrays of `spill_homes`, built on the host.
struct spill_home_lists {
  std::vector<std::int32_t> expert_begin = {0};
  std::vector<std::int32_t> rank;
  std::vector<std::int32_t> rank_begin;
  std::vector<std::int32_t> expert;
  std::vector<std::int32_t> place;

  /// `ranks_of`: the live homes of each expert, in rising order.
  spill_home_lists(std::vector<std::vector<std::int32_t>> const& ranks_of, index_t ranks)
      : rank_begin(static_cast<std::size_t>(ranks) + 1, 0) {
    for (auto const& homes : ranks_of) {
      rank.insert(rank.end(), homes.begin(), homes.end());
      expert_begin.push_back(static_cast<std::int32_t>(rank.size()));
    }
    for (std::int32_t const r : rank) {
      ++rank_begin[static_cast<std::size_t>(r) + 1];
    }
    for (std::size_t r = 1; r < rank_begin.size(); ++r) {
      rank_begin[r] += rank_begin[r - 1];
    }
    expert.resize(rank.size());
    place.resize(rank.size());
    std::vector<std::int32_t> next(rank_begin);
    for (std::size_t e = 0; e < ranks_of.size(); ++e) {
      for (std::size_t i = 0; i < ranks_of[e].size(); ++i) {
        auto const at = static_cast<std::size_t>(next[static_cast<std::size_t>(ranks_of[e][i])]++);
        expert[at] = static_cast<std::int32_t>(e);
        place[at] = static_cast<std::int32_t>(i);
      }
    }
  }
};

/// Reads the homes of all experts. Throws for ranks and slots out of range, and for experts without
/// a live home.
template <class Context>
std::vector<std::vector<std::int32_t>> read_homes(char const* name, Context const& context,
                                                  least_loaded_options const& options,
                                                  std::vector<double> const& speeds) {
  auto const at = [](index_t i) { return static_cast<std::size_t>(i); };
  std::vector<std::vector<std::int32_t>> homes(at(options.experts));
  auto const add_home = [&](index_t e, index_t r) {
    auto& of = homes[at(e)];
    bool const is_new = of.empty() || of.back() != r;  // slots come rank by rank
    if (is_new && speeds[at(r)] > 0) {
      of.push_back(static_cast<std::int32_t>(r));
    }
  };
  auto const& map = options.residents.physical_to_logical;
  bool const has_slots = map.data != nullptr;
  char const* argument = has_slots ? "options.residents" : "options.native";
  if (has_slots && options.native.data != nullptr) {
    fail(name, "options.native", "none if options.residents is given", "both");
  }
  if (has_slots) {
    expect_extent(name, "options.residents.physical_to_logical", 1, map.extent(0), "layers");
    expect_between(name, "options.residents.physical_to_logical", 1, 0x7fffffff, map.extent(1),
                   "slots");
    expect_extent(name, "options.residents.ranks", options.ranks, options.residents.ranks,
                  "ranks (options.ranks)");
    expect_rank_offsets(name, "options.residents.rank_offsets", options.residents.rank_offsets, 1,
                        options.ranks);
    auto const slots = read_slots(name, context, options.residents, options.experts);
    for (index_t r = 0; r < options.ranks; ++r) {
      for (std::int32_t slot = slots.begins[at(r)]; slot < slots.begins[at(r + 1)]; ++slot) {
        if (slots.experts[at(slot)] >= 0) {
          add_home(slots.experts[at(slot)], r);
        }
      }
    }
  } else if (options.native.data != nullptr) {
    expect_extent(name, argument, options.experts, options.native.extent(0), "experts");
    std::vector<std::int32_t> const native = on_host(context, options.native);
    for (std::size_t e = 0; e < native.size(); ++e) {
      if (native[e] < 0 || native[e] >= options.ranks) {
        fail(name, argument, text("ranks from 0 to ", options.ranks - 1),
             text(native[e], " for expert ", e));
      }
      add_home(static_cast<index_t>(e), native[e]);
    }
  } else {
    slot_ranges const blocks{{}, options.experts, options.ranks};
    for (index_t r = 0; r < options.ranks; ++r) {
      for (index_t e = blocks.begin(0, r); e < blocks.end(0, r); ++e) {
        add_home(e, r);
      }
    }
  }
  for (std::size_t e = 0; e < homes.size(); ++e) {
    if (homes[e].empty()) {
      fail(name, argument, "a live rank for every expert", text("none for expert ", e));
    }
  }
  return homes;
}

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Spills the excess tokens of overloaded ranks to the least loaded ranks, and sends the
/// experts' weights with them.
///
/// This is LLEP's assignment (arXiv 2601.17111). Each rank has a capacity of `alpha` times its even
/// share. The plan divides the experts of overloaded ranks, the heaviest expert first. An expert's
/// homes keep as many of its tokens as fit in their capacities beside their experts that have not
/// been divided yet. The rest goes to other ranks in chunks, each to the rank that is the least
/// loaded by then, up to that rank's capacity. Only the last chunk of an expert may have fewer than
/// `min_chunk` tokens. Tokens that fit nowhere go to the least loaded rank, above its capacity.
///
/// Unless chunks, limits or prices prevent it, no rank exceeds its capacity, and with `alpha` 1 the
/// peak is the smallest possible; the certificate says whether it is. If limits on transfers keep a
/// plan from its capacity, the planner searches for a higher capacity that a plan can keep, so that
/// tokens do not pile up on the last ranks allowed. A rank has at most one segment of an expert.
/// Ranks that know the same loads make the same plan, to the bit, so that only counts need to be
/// exchanged: `count`, an all-gather, `add_up`, `plan`, `exchange` and `route`.
///
/// The constructor allocates and synchronises; of the other calls only `expect_planned` and
/// `expect_exchanged` do, so that the rest can be captured in a CUDA graph. One object works on one
/// step of a layer at a time.
///
/// @tparam Cost the cost model of `price`; `void`: transfers of weights take no time
template <execution_policy P, class Cost = void>
class least_loaded {
  static_assert(detail::can_be_kept<P>,
                "Plimsoll: a prepared object outlives this policy; use gpu(stream) or "
                "gpu(stream, resource)");

 public:
  /// @param options ranks, homes and rules
  /// @param price makes each spill conditional: the receiver with the tokens and the sender without
  ///   them must both finish earlier than the homes would with the whole rest of the expert. Ranks
  ///   transfer weights before they compute
  /// @throws invalid_input for options and prices; for experts without a live home, ranks and
  ///   slots out of range, and speeds, naming the expert, rank or slot
  /// @complexity O(slots + experts + ranks)
  /// @workspace from the policy: 4 (ranks + 1) experts bytes, 4 ranks^2, about 70 per expert and
  ///   home, 60 per rank, and 4 per expert for each 512 of options.max_ids; and the scratch of
  ///   `plan` if it does not fit in shared memory
  /// @stream synchronises
  least_loaded(P const& policy, least_loaded_options const& options,
               spill_price<Cost> const& price = {})
      : context_(detail::resolve(policy)), options_(options), pricing_(pricing_of(price)) {
    expect_options();
    read_ranks();
    take_arrays();
  }

  [[nodiscard]] least_loaded_options const& options() const { return options_; }

  /// @brief Counts a rank's token copies per expert: one row of the matrix that `add_up` takes.
  /// @param topk_ids `[tokens, k]` int32 or int64: experts, or -1; in the policy's memory
  /// @param[out] counts `[experts]` int32: other ids are not counted here; `route` reports them
  /// @throws invalid_input for shapes and more than options.max_ids
  /// @complexity O(tokens k + experts tokens k / 512)
  /// @stream enqueues two kernels; neither allocates nor synchronises
  /// @determinism the same bits under every policy
  template <detail::stored<2> Ids, output_of<std::int32_t, 1> Counts>
  void count(Ids const& topk_ids, Counts&& counts) const {
    auto const row = detail::argument<1>("least_loaded::count", "counts", counts);
    detail::expect_extent("least_loaded::count", "counts", options_.experts, row.extent(0),
                          "experts");
    auto body = tokens_body("least_loaded::count",
                            detail::argument<2>("least_loaded::count", "topk_ids", topk_ids));
    body.counts = row;
    body.now = decltype(body)::phase::count;
    run(body.problems(), body);
    body.now = decltype(body)::phase::scan;
    run(body.problems(), body);
  }

  /// @brief Plans a step.
  /// @param loads `[experts]` int32, uint32 or int64: token copies of all ranks, at least 0 and at
  ///   most 2^31 - 1 in all; in the policy's memory
  /// @throws invalid_input for shapes; `expect_planned` throws for values and returned costs
  /// @complexity O(experts log experts + homes + ranks), and O(c log ranks) for c chunks; O(c
  ///   ranks) with limits, prices, nodes, speeds or several homes, and on a GPU where a rank holds
  ///   more than 64 experts; about ten times that if limits raise the capacity
  /// @stream enqueues one kernel; neither allocates nor synchronises
  /// @determinism the same bits under every policy, and on every rank that has the same loads
  template <detail::readable<1> Loads>
  void plan(Loads const& loads) const {
    auto const tokens = detail::argument<1>("least_loaded::plan", "loads", loads);
    static_assert(std::is_integral_v<detail::normalized_value_t<Loads const, 1>>,
                  "Plimsoll: whole tokens come as int32, uint32 or int64");
    detail::expect_extent("least_loaded::plan", "loads", options_.experts, tokens.extent(0),
                          "experts");
    run(1, plan_body(tokens));
  }

  /// @brief Adds up the counts of all ranks, for `plan()` and `exchange`.
  /// @param counts `[ranks, experts]` int32: token copies of every rank for every expert; in the
  ///   policy's memory
  /// @throws invalid_input for shapes; `expect_planned` throws for values
  /// @complexity O(ranks experts)
  /// @stream enqueues one kernel; neither allocates nor synchronises
  /// @determinism the same bits under every policy
  template <view_of<std::int32_t, 2> Counts>
  void add_up(Counts const& counts) const {
    constexpr char const* name = "least_loaded::add_up";
    matrix_ref<std::int32_t const> const of_ranks = detail::argument<2>(name, "counts", counts);
    detail::expect_extent(name, "counts", options_.ranks, of_ranks.extent(0), "ranks");
    detail::expect_extent(name, "counts", options_.experts, of_ranks.extent(1), "experts");
    detail::count_sources_body<spill_segment> const body{of_ranks, routes_};
    run(body.problems(), body);
  }

  /// @brief Plans a step from the counts that `add_up` added up.
  /// @complexity, stream and determinism as `plan(loads)`
  void plan() const { run(1, plan_body(loads())); }

  /// @brief Computes how many tokens each rank sends to each other rank, and prepares `route` and
  /// `arrange` for one rank.
  ///
  /// The counts given to `add_up` must add up to the planned loads.
  ///
  /// @param rank the rank for which `route` and `arrange` work from now on
  /// @throws invalid_input for the rank; `expect_exchanged` throws for values
  /// @complexity O(ranks (ranks + segments))
  /// @stream enqueues two kernels; neither allocates nor synchronises
  /// @determinism the same bits under every policy
  void exchange(index_t rank) const {
    detail::expect_between("least_loaded::exchange", "rank", 0, options_.ranks - 1, rank,
                           "as rank");
    routes_.rank = rank;
    run(1, detail::list_spills_body<spill_segment>{routes_});
    run(options_.ranks,
        detail::exchange_body<spill_segment, spill_exchange_report>{routes_, exchange_report_});
  }

  /// @brief Chooses the destination rank of every token copy of the rank given to `exchange`, and
  /// the copy's row in the send buffer.
  ///
  /// Rows are ordered by destination rank, then by expert, then by token.
  ///
  /// @param topk_ids the ids of this object's last `count`
  /// @param[out] destinations `[tokens, k]` int32: the rank of every copy; -1 for ids that are not
  ///   routed
  /// @param[out] rows `[tokens, k]` int32: the row of every copy, from 0 to below
  ///   `spill_exchange_report::sent`; -1 without a rank
  /// @param[out] counters `[1]`: the number of ids by outcome; none is lost silently
  /// @throws invalid_input for shapes, and if `exchange` has not been called
  /// @complexity O(tokens k log(segments of an expert))
  /// @stream enqueues one kernel; neither allocates nor synchronises
  /// @determinism the same bits under every policy
  template <detail::stored<2> Ids, output_of<std::int32_t, 2> Destinations,
            output_of<std::int32_t, 2> Rows, output_of<spill_counters, 1> Counters>
  void route(Ids const& topk_ids, Destinations&& destinations, Rows&& rows,
             Counters&& counters) const {
    constexpr char const* name = "least_loaded::route";
    expect_rank(name);
    auto body = tokens_body(name, detail::argument<2>(name, "topk_ids", topk_ids));
    body.destinations = detail::argument<2>(name, "destinations", destinations);
    body.rows = detail::argument<2>(name, "rows", rows);
    auto const one = detail::argument<1>(name, "counters", counters);
    expect_pairs(name, "destinations", body.ids, body.destinations);
    expect_pairs(name, "rows", body.ids, body.rows);
    detail::expect_extent(name, "counters", 1, one.extent(0), "counters");
    body.counters = one.data_handle();
    body.now = decltype(body)::phase::assign;
    run(body.problems(), body);
  }

  /// @brief Maps each received row to its row in the order of computation.
  ///
  /// Rows arrive by source rank, and are computed by expert, then in the order of the expert's
  /// tokens.
  ///
  /// @param[out] arranged int32, at least as many elements as received rows: the computed row of
  ///   each received row; -1 past the last one
  /// @throws invalid_input if `exchange` has not been called
  /// @complexity O(ranks experts + received log(groups))
  /// @stream enqueues one kernel; neither allocates nor synchronises
  /// @determinism the same bits under every policy
  template <output_of<std::int32_t, 1> Rows>
  void arrange(Rows&& arranged) const {
    expect_rank("least_loaded::arrange");
    run(options_.ranks,
        arrange_body(detail::argument<1>("least_loaded::arrange", "arranged", arranged)));
  }

  /// `[experts]`, in the policy's memory: the sums that `add_up` computed.
  [[nodiscard]] vector_ref<std::int64_t const> loads() const {
    return {routes_.totals, options_.experts};
  }

  /// The plan that `plan` made, in the policy's memory. The arrays of segments and transfers are
  /// allocated for the largest plan: the last offset is the number of valid elements.
  [[nodiscard]] vector_ref<std::int32_t const> offsets() const {
    return {plan_.offsets, options_.experts + 1};
  }
  [[nodiscard]] vector_ref<spill_segment const> segments() const {
    return {plan_.segments, segments_};
  }
  [[nodiscard]] vector_ref<spill_transfer const> transfers() const {
    return {plan_.transfers, segments_};
  }
  [[nodiscard]] vector_ref<std::int32_t const> transfer_offsets() const {
    return {plan_.transfer_offsets, options_.experts + 1};
  }
  [[nodiscard]] spill_plan_ref plan_ref() const {
    return {offsets(), segments(), transfer_offsets(), transfers()};
  }
  /// `[ranks]`: tokens of each rank.
  [[nodiscard]] vector_ref<std::int32_t const> rank_loads() const {
    return {plan_.loads, options_.ranks};
  }
  /// `[ranks]`: modelled bytes of each rank: weights held and received, and tokens.
  [[nodiscard]] vector_ref<std::int64_t const> rank_bytes() const {
    return {plan_.bytes_of_rank, options_.ranks};
  }
  [[nodiscard]] vector_ref<spill_report const> report() const { return {plan_.report, 1}; }

  /// `[ranks, ranks]`: the tokens that each source (row) sends to each rank, after `exchange`.
  [[nodiscard]] matrix_ref<std::int32_t const> send_counts() const {
    return {routes_.sends, options_.ranks, options_.ranks};
  }
  /// `[ranks]`: the tokens that the rank of `exchange` receives from each source.
  [[nodiscard]] vector_ref<std::int32_t const> receive_counts() const {
    return {routes_.receives, options_.ranks};
  }
  /// `[experts]`: the rows that the rank of `exchange` computes, one segment for each expert; the
  /// first `exchange_report()[0].groups` are valid.
  [[nodiscard]] vector_ref<spill_segment const> groups() const {
    return {routes_.groups, options_.experts};
  }
  [[nodiscard]] vector_ref<spill_exchange_report const> exchange_report() const {
    return {exchange_report_, 1};
  }

  /// @brief Throws if `plan` refused its loads or a returned cost.
  /// @throws invalid_input naming the expert, or the rank of the cost
  /// @stream synchronises once
  void expect_planned(P const& policy) const {
    for (spill_report const& of : read(policy, report())) {
      detail::throw_spill_fault({"least_loaded::plan", {certificate{}, of.refused}});
    }
  }
  /// @brief Throws if the counts of `exchange` do not add up to the planned loads.
  /// @throws invalid_input naming the expert
  /// @stream synchronises once
  void expect_exchanged(P const& policy) const {
    for (spill_exchange_report const& of : read(policy, exchange_report())) {
      detail::throw_spill_fault({"least_loaded::exchange", {certificate{}, of.refused}});
    }
  }

 private:
  static constexpr char const* class_name = "least_loaded";
  using context = detail::context_of<P>;
  using routes = detail::spill_routes<spill_segment>;
  using plan_arrays = detail::spill_plan_arrays<spill_segment, spill_transfer, spill_report>;

  void expect_options() const {
    least_loaded_options const& o = options_;
    using detail::expect_between;
    expect_between(class_name, "options.experts", 1, expert_limit, o.experts, "experts");
    expect_between(class_name, "options.ranks", 1, rank_limit, o.ranks, "ranks");
    expect_between(class_name, "options.nodes", 1, o.ranks, o.nodes,
                   "nodes (at most one per rank)");
    if (!(o.alpha > 0 && o.alpha <= 32768)) {
      detail::fail(class_name, "options.alpha", "a number above 0, at most 32768",
                   detail::text(o.alpha));
    }
    expect_between(class_name, "options.min_chunk", 1, 0x7fffffff, o.min_chunk, "tokens");
    if (!(o.lambda >= 0)) {
      detail::fail(class_name, "options.lambda", "a number from 0", detail::text(o.lambda));
    }
    expect_between(class_name, "options.max_imports", 0, expert_limit, o.max_imports, "experts");
    expect_between(class_name, "options.max_exports", 0, 0x7fffffff, o.max_exports, "transfers");
    expect_between(class_name, "options.expert_bytes", 0, std::int64_t{1} << 46, o.expert_bytes,
                   "bytes");
    expect_between(class_name, "options.token_bytes", 0, 0x7fffffff, o.token_bytes, "bytes");
    expect_between(class_name, "options.max_import_bytes", 0, INT64_MAX, o.max_import_bytes,
                   "bytes");
    if (o.max_import_bytes != INT64_MAX && o.expert_bytes == 0) {
      detail::fail(class_name, "options.expert_bytes",
                   "a size above 0 if options.max_import_bytes is set", "0");
    }
    expect_between(class_name, "options.max_ids", 0, 0x7fffffff, o.max_ids, "ids");
  }

  [[nodiscard]] detail::spill_pricing<Cost> pricing_of(spill_price<Cost> const& price) const {
    if constexpr (std::is_void_v<Cost>) {
      return {};
    } else {
      auto const time = [&](char const* argument, double bandwidth) {
        // Within this range no sum of transfer times overflows.
        if (!(bandwidth >= 0x1p-900 && bandwidth < 0x1p960)) {
          detail::fail(class_name, argument, "a number of bytes from 2^-900 to below 2^960",
                       detail::text(bandwidth));
        }
        return static_cast<double>(options_.expert_bytes) / bandwidth;
      };
      expect_cost(price.cost);
      return {price.cost, time("price.within_node", price.within_node),
              time("price.between_nodes", price.between_nodes)};
    }
  }

  template <class Some>
  void expect_cost(Some const& cost) const {
    if constexpr (std::same_as<Some, moe_cost>) {
      auto const expect_one = [](char const* argument, double value) {
        if (!(value >= 0 && value < 0x1p960)) {
          detail::fail(class_name, argument, "a number from 0 to below 2^960", detail::text(value));
        }
      };
      expect_one("price.cost.launch", cost.launch);
      expect_one("price.cost.per_token", cost.per_token);
      expect_one("price.cost.per_expert", cost.per_expert);
    } else {
      detail::expect_cost(class_name, cost, options_.ranks);
    }
    if constexpr (std::same_as<Some, token_cost> || std::same_as<Some, latency_curves>) {
      // An infinite speed gives a time of 0, a valid number, so that `plan` would not notice it.
      std::vector<double> const speeds = detail::on_host(context_, cost.speeds);
      for (std::size_t r = 0; r < speeds.size(); ++r) {
        if (!(speeds[r] >= 0x1p-64 && speeds[r] <= 0x1p64)) {
          detail::fail(class_name, "price.cost.speeds", "values from 2^-64 to 2^64",
                       detail::text(speeds[r], " for rank ", r));
        }
      }
    }
  }

  void read_ranks() {
    index_t const experts = options_.experts;
    index_t const ranks = options_.ranks;
    auto const speeds =
        detail::read_speeds(class_name, context_, ranks, options_.active, options_.speeds);
    detail::spill_home_lists const lists(
        detail::read_homes(class_name, context_, options_, speeds.speed), ranks);
    std::vector<std::int32_t> numbers;
    for (auto const* list :
         {&lists.expert_begin, &lists.rank, &lists.rank_begin, &lists.expert, &lists.place}) {
      numbers.insert(numbers.end(), list->begin(), list->end());
    }
    numbers_ = {context_, numbers};
    speeds_ = {context_, speeds.speed};
    auto const pairs = static_cast<index_t>(lists.rank.size());
    std::int32_t const* end = numbers_.data();
    auto const next = [&end](index_t size) { return std::exchange(end, end + size); };
    ranks_ = {{.ranges = {{}, experts, ranks}, .nodes = options_.nodes},
              speeds.live(),
              speeds.units(speeds_.data()),
              speeds.fastest};
    for (std::size_t r = 0; r + 1 < lists.rank_begin.size(); ++r) {
      most_held_ = std::max<index_t>(most_held_, lists.rank_begin[r + 1] - lists.rank_begin[r]);
    }
    homes_ = {experts,         pairs,       next(experts + 1), next(pairs),
              next(ranks + 1), next(pairs), next(pairs)};
  }

  void take_arrays() {
    index_t const experts = options_.experts;
    index_t const ranks = options_.ranks;
    segments_ = plan_arrays::segment_limit(experts, ranks, homes_.pairs);
    detail::spill_array_sizes const sizes{experts, ranks, segments_};
    bytes_ = {context_, static_cast<index_t>(detail::bytes_taken_by<plan_arrays>(sizes) +
                                             detail::bytes_taken_by<routes>(sizes) +
                                             detail::scratch_bytes_of<spill_exchange_report>(1) +
                                             detail::bytes_taken_by<detail::tile_counts>(
                                                 options_.max_ids, experts + 2))};
    detail::scratch memory(bytes_.data());
    plan_ = plan_arrays::in(memory, sizes);
    routes_ = routes::in(memory, sizes);
    routes_.offsets = plan_.offsets;
    routes_.segments = plan_.segments;
    exchange_report_ = memory.take<spill_exchange_report>(1);
    tile_memory_ = memory;
    index_t scratch = 0;
    auto const reserve = [&](index_t problems, auto const& body) {
      scratch = std::max(scratch, detail::launch_bytes(context_, problems, body));
    };
    reserve(1, plan_body(vector_ref<std::int64_t const>(nullptr, experts)));
    reserve(ranks, arrange_body({}));
    auto const tokens =
        tokens_body("", matrix_ref<std::int64_t const>(nullptr, options_.max_ids, 1));
    reserve(tokens.problems(), tokens);
    scratch_ = {context_, scratch};
    detail::synchronize(context_);
  }

  [[nodiscard]] detail::spill_rules rules() const {
    least_loaded_options const& o = options_;
    auto const imports = static_cast<std::int32_t>(detail::import_limit(o));
    // A limit of `experts` imports or of `experts * ranks` exports cannot be exceeded.
    bool const limited = imports < o.experts || o.max_exports < o.experts * o.ranks;
    bool const plain = std::is_void_v<Cost> && !limited && o.nodes == 1 && ranks_.speed.even &&
                       homes_.pairs == homes_.experts;
    return {plain,
            plain && most_held_ <= detail::spill_rules::most_listed,
            o.alpha,
            o.lambda,
            o.trigger == spill_trigger::expert_imbalance,
            o.round == rounding_mode::up,
            o.small_excess == small_excess_policy::native,
            limited,
            static_cast<std::int32_t>(o.min_chunk),
            imports,
            static_cast<std::int32_t>(o.max_exports),
            o.expert_bytes,
            o.token_bytes};
  }
  template <class Loads>
  [[nodiscard]] auto plan_body(Loads const& loads) const {
    return detail::spill_body<Loads, Cost, spill_segment, spill_transfer, spill_report>{
        loads, homes_, ranks_, rules(), pricing_, plan_};
  }
  void expect_rank(char const* name) const {
    if (routes_.rank < 0) {
      detail::fail(name, "exchange", "a call before this one", "none");
    }
  }
  [[nodiscard]] auto arrange_body(vector_ref<std::int32_t> rows) const {
    return detail::arrange_rows_body<spill_segment>{routes_, rows};
  }
  template <class Ids>
  [[nodiscard]] auto tokens_body(char const* name, Ids const& topk_ids) const {
    using id = detail::normalized_value_t<Ids const, 2>;
    static_assert(std::is_same_v<id, std::int32_t> || std::is_same_v<id, std::int64_t>,
                  "Plimsoll: topk_ids must be int32 or int64");
    matrix_ref<id const> const ids = detail::normalize<2>(topk_ids);
    detail::expect_between(name, "topk_ids", 1, 0x7fffffff, ids.extent(1), "ids per token");
    detail::expect_between(name, "topk_ids", 0, options_.max_ids / ids.extent(1), ids.extent(0),
                           "tokens (options.max_ids)");
    detail::scratch memory = tile_memory_;
    detail::spill_tokens_body<id, spill_segment, spill_counters> body{};
    body.ids = ids;
    body.routes = routes_;
    body.tiles =
        detail::tile_counts::in(memory, ids.extent(0) * ids.extent(1), options_.experts + 2);
    return body;
  }

  template <class Ids>
  static void expect_pairs(char const* name, char const* argument, Ids const& ids,
                           matrix_ref<std::int32_t> const& out) {
    detail::expect_extent(name, argument, ids.extent(0), out.extent(0), "tokens");
    detail::expect_extent(name, argument, ids.extent(1), out.extent(1), "ids per token");
  }

  template <class Body>
  void run(index_t problems, Body const& body) const {
    detail::launch(context_, problems, body, scratch_.data());
  }

  context context_;
  least_loaded_options options_;
  detail::spill_pricing<Cost> pricing_;
  detail::rank_levels ranks_{};
  detail::spill_homes homes_{};
  index_t segments_ = 0;
  index_t most_held_ = 0;  // the most experts that one rank holds
  plan_arrays plan_{};
  mutable routes routes_{};  // of the rank given to `exchange`; its rank is -1 before
  spill_exchange_report* exchange_report_ = nullptr;
  detail::scratch tile_memory_{nullptr};
  detail::buffer<std::int32_t, context> numbers_;
  detail::buffer<double, context> speeds_;
  detail::buffer<std::byte, context> bytes_;
  detail::buffer<std::byte, context> scratch_;
};

template <execution_policy P>
least_loaded(P const&, least_loaded_options const&) -> least_loaded<P>;
template <execution_policy P, class Cost>
least_loaded(P const&, least_loaded_options const&, spill_price<Cost> const&)
    -> least_loaded<P, Cost>;

}  // namespace PLIMSOLL_DEVICE_ABI

namespace detail {

/// Checks a plan, copied to the host, against its loads and options.
struct spill_check {
  static constexpr char const* name = "validate";

  least_loaded_options const& options;
  std::vector<std::vector<std::int32_t>> homes;
  std::vector<std::int64_t> loads;
  std::vector<double> speeds;
  std::vector<std::int32_t> offsets;
  std::vector<spill_segment> segments;
  std::vector<std::int32_t> transfer_offsets;
  std::vector<spill_transfer> transfers;

  void run() const {
    expect_offsets("plan.offsets", offsets, segments.size());
    expect_offsets("plan.transfer_offsets", transfer_offsets, transfers.size());
    std::vector<std::int64_t> imports(speeds.size(), 0);
    std::vector<std::int64_t> exports(speeds.size(), 0);
    for (std::size_t e = 0; e < homes.size(); ++e) {
      std::vector<std::int32_t> const away = expect_segments(e);
      expect_transfers(e, away, imports, exports);
    }
    index_t const most = import_limit(options);
    for (std::size_t r = 0; r < speeds.size(); ++r) {
      std::string const of_rank = text(" for rank ", r);
      if (imports[r] > most) {
        fail(name, "plan.transfers", text("at most ", most, " experts received"),
             text(imports[r], of_rank));
      }
      if (exports[r] > options.max_exports) {
        fail(name, "plan.transfers", text("at most ", options.max_exports, " transfers sent"),
             text(exports[r], of_rank));
      }
    }
  }

 private:
  void expect_offsets(char const* argument, std::vector<std::int32_t> const& list,
                      std::size_t limit) const {
    for (std::size_t e = 0; e + 1 < list.size(); ++e) {
      bool const begins = e > 0 || list[0] == 0;
      if (!begins || list[e] > list[e + 1] || static_cast<std::size_t>(list[e + 1]) > limit) {
        fail(name, argument, text("offsets that rise from 0 to at most ", limit),
             text(begins ? list[e + 1] : list[0], " for expert ", e));
      }
    }
  }

  /// Returns the ranks that need the expert's weights.
  [[nodiscard]] std::vector<std::int32_t> expect_segments(std::size_t e) const {
    std::vector<std::int32_t> seen;
    std::vector<std::int32_t> away;
    std::int64_t end = 0;
    for (auto i = static_cast<std::size_t>(offsets[e]);
         i < static_cast<std::size_t>(offsets[e + 1]); ++i) {
      spill_segment const& s = segments[i];
      std::string const where = text(" in segment ", i);
      auto const expect = [&](bool holds, std::string const& expected, std::string const& got) {
        if (!holds) {
          fail(name, "plan.segments", expected, got + where);
        }
      };
      expect(s.expert == static_cast<std::int32_t>(e), text("expert ", e),
             text("expert ", s.expert));
      expect(s.rank >= 0 && s.rank < options.ranks && speeds[static_cast<std::size_t>(s.rank)] > 0,
             "a live rank", text("rank ", s.rank));
      expect(std::find(seen.begin(), seen.end(), s.rank) == seen.end(),
             "at most 1 segment of an expert on a rank", text("rank ", s.rank, " again"));
      expect(s.begin == end && s.end > s.begin, text("tokens from ", end, " on"),
             text("[", s.begin, ", ", s.end, ")"));
      end = s.end;
      seen.push_back(s.rank);
      if (std::find(homes[e].begin(), homes[e].end(), s.rank) == homes[e].end()) {
        away.push_back(s.rank);
      }
    }
    if (end != loads[e]) {
      fail(name, "plan.segments", text("all ", loads[e], " tokens once"),
           text(end, " of expert ", e));
    }
    return away;
  }

  void expect_transfers(std::size_t e, std::vector<std::int32_t> away,
                        std::vector<std::int64_t>& imports,
                        std::vector<std::int64_t>& exports) const {
    for (auto i = static_cast<std::size_t>(transfer_offsets[e]);
         i < static_cast<std::size_t>(transfer_offsets[e + 1]); ++i) {
      spill_transfer const& t = transfers[i];
      std::string const where = text(" in transfer ", i);
      auto const expect = [&](bool holds, std::string const& expected, std::string const& got) {
        if (!holds) {
          fail(name, "plan.transfers", expected, got + where);
        }
      };
      expect(t.expert == static_cast<std::int32_t>(e), text("expert ", e),
             text("expert ", t.expert));
      expect(std::find(homes[e].begin(), homes[e].end(), t.from) != homes[e].end(),
             "a rank that holds the expert", text("rank ", t.from));
      auto const to = std::find(away.begin(), away.end(), t.to);
      expect(to != away.end(), "each rank that needs the weights, once", text("rank ", t.to));
      expect(t.bytes == options.expert_bytes, text(options.expert_bytes, " bytes"), text(t.bytes));
      away.erase(to);
      ++imports[static_cast<std::size_t>(t.to)];
      ++exports[static_cast<std::size_t>(t.from)];
    }
    if (!away.empty()) {
      fail(name, "plan.transfers", "each rank that needs the weights, once",
           text("none of expert ", e, " to rank ", away.front()));
    }
  }
};

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Checks a plan: segments partition each expert's load, each rank that needs an expert's
/// weights receives them once from a rank that holds them, and the limits hold.
///
/// @param plan in the policy's memory, from `least_loaded` or any other planner
/// @param loads `[experts]` int32, uint32 or int64, in the policy's memory
/// @param options the ranks, homes and limits of the plan
/// @throws invalid_input for shapes and options, and for the first fault of the plan
/// @complexity O(segments + transfers + slots + ranks), on the calling thread
/// @stream synchronises
template <execution_policy P, detail::readable<1> Loads>
  requires(!detail::is_generated<std::remove_cvref_t<Loads>>)
void validate(P const& policy, spill_plan_ref const& plan, Loads const& loads,
              least_loaded_options const& options) {
  auto const context = detail::resolve(policy);
  detail::expect_between("validate", "options.experts", 1, expert_limit, options.experts,
                         "experts");
  detail::expect_between("validate", "options.ranks", 1, rank_limit, options.ranks, "ranks");
  auto const tokens = detail::argument<1>("validate", "loads", loads);
  detail::expect_extent("validate", "loads", options.experts, tokens.extent(0), "experts");
  detail::expect_extent("validate", "plan.offsets", options.experts + 1, plan.offsets.extent(0),
                        "offsets (experts + 1)");
  detail::expect_extent("validate", "plan.transfer_offsets", options.experts + 1,
                        plan.transfer_offsets.extent(0), "offsets (experts + 1)");
  auto const speeds =
      detail::read_speeds("validate", context, options.ranks, options.active, options.speeds);
  auto const whole = detail::on_host(context, tokens);
  detail::spill_check{options,
                      detail::read_homes("validate", context, options, speeds.speed),
                      {whole.begin(), whole.end()},
                      speeds.speed,
                      detail::on_host(context, plan.offsets),
                      detail::on_host(context, plan.segments),
                      detail::on_host(context, plan.transfer_offsets),
                      detail::on_host(context, plan.transfers)}
      .run();
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll
