// SPDX-License-Identifier: Apache-2.0
/// @file
/// Assigns a step's tokens to ranks: overloaded ranks send the excess tokens of an expert, with its
/// weights, to the least loaded ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/call/least_loaded.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/least_loaded_types.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

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
/// The constructor allocates and synchronizes; of the other calls only `check` does, so that the
/// rest can be captured in a CUDA graph. One object works on one step of a layer at a time; it
/// routes the tokens of any rank, or of several in turn.
///
/// @tparam Cost the cost model of `price`; `void`: transfers of weights take no time
template <unqualified_policy P, class Cost = void>
class least_loaded {
 public:
  /// @param options ranks, homes and rules
  /// @param price makes each spill conditional: the receiver with the tokens and the sender without
  ///   them must both finish earlier than the homes would with the whole rest of the expert. Ranks
  ///   transfer weights before they compute
  /// @throws invalid_input for options and prices; for experts without a live home, ranks and
  ///   slots out of range, and speeds, naming the expert, rank or slot
  /// @complexity O(slots + experts + ranks)
  /// @workspace from the policy: 4 (ranks + 1) experts bytes, 4 ranks (experts + 2 homes + 3 ranks)
  ///   for the rows of all ranks, about 100 per expert and slot, 120 per rank, and 4 per expert for
  ///   each 512 of options.max_token_copies; and the scratch of a call if it does not fit in shared
  ///   memory
  /// @stream synchronizes
  least_loaded(P const& policy, least_loaded_options const& options,
               spill_price<Cost> const& price = {})
      : pipeline_(detail::resolve(policy), options, price) {
    detail::synchronize(pipeline_.context());
  }
  PLIMSOLL_EXPECT_ON_OF_OBJECT(least_loaded, (P const& policy), (policy))

  [[nodiscard]] least_loaded_options const& options() const { return pipeline_.options(); }

  /// @brief Takes other homes of experts, as after a new placement. The object and its memory
  /// stay, so that a CUDA graph captured before plans with them when it is replayed.
  /// @param homes in the policy's memory: the enqueued kernel copies them, so that they may change
  ///   after that; at most as many slots as the object has room for
  /// @param on liveness and speeds of the ranks; without it they stay. Its nodes are not read
  /// @throws invalid_input for shapes. Values are checked where they are read: refused ones change
  ///   nothing, and `check` throws
  /// @complexity O(slots + experts + ranks), and a sort of the homes
  /// @stream enqueues one kernel; neither allocates nor synchronizes, so that it can be captured
  /// @determinism the same bits under every policy
  void update(expert_homes const& homes, std::optional<rank_set> const& on = {}) {
    pipeline_.update(homes, on);
  }

  /// @brief Throws unless these homes are the ones in use: those of the last update that was not
  /// refused.
  /// @throws invalid_input naming the first expert whose homes differ
  /// @stream synchronizes
  void expect_current(expert_homes const& homes) const { pipeline_.expect_current(homes); }

  /// @brief Counts a rank's token copies per expert: one row of the matrix that `add_up` takes.
  /// @param topk_ids `[tokens, k]` int32 or int64: experts, or -1; in the policy's memory
  /// @param[out] counts `[experts]` int32: other ids are not counted here; `route` reports them
  /// @throws invalid_input for shapes and more than options.max_token_copies
  /// @complexity O(tokens k + experts tokens k / 512)
  /// @stream enqueues two kernels; neither allocates nor synchronizes
  /// @determinism the same bits under every policy
  template <class Ids, class Counts>
  void count(Ids const& topk_ids, Counts&& counts) {
    auto call = call_of("least_loaded::count");
    auto const ids =
        detail::read_only(PLIMSOLL_IDS(call, "least_loaded::count", topk_ids, "[tokens, k]"));
    vector_ref<std::int32_t> const row =
        PLIMSOLL_OUTPUT(int32, call, "least_loaded::count", counts, "[experts]");
    expect_batch(call, ids);
    pipeline_.enqueue_count(ids, row);
  }

  /// @brief Plans a step.
  /// @param loads `[experts]` int32, uint32 or int64: token copies of all ranks, at least 0 and at
  ///   most 2^31 - 1 in all; in the policy's memory
  /// @throws invalid_input for shapes; `check` throws for values and returned costs
  /// @complexity O(experts log experts + homes + ranks), and O(c log ranks) for c chunks; O(c
  ///   ranks) with limits, prices, nodes, speeds or several homes, and on a GPU where a rank holds
  ///   more than 64 experts; about ten times that if limits raise the capacity
  /// @stream enqueues one kernel; neither allocates nor synchronizes
  /// @determinism the same bits under every policy, and on every rank that has the same loads
  template <class Loads>
  void plan(Loads const& loads) {
    auto call = call_of("least_loaded::plan");
    auto const tokens = PLIMSOLL_COUNTS(call, "least_loaded::plan", loads, "[experts]");
    pipeline_.enqueue_plan(tokens);
  }

  /// @brief Adds up the counts of all ranks, for `plan()` and `exchange`.
  /// @param counts `[ranks, experts]` int32: token copies of every rank for every expert; in the
  ///   policy's memory
  /// @throws invalid_input for shapes; `check` throws for values, after `plan()`
  /// @complexity O(ranks experts)
  /// @stream enqueues one kernel; neither allocates nor synchronizes
  /// @determinism the same bits under every policy
  template <class Counts>
  void add_up(Counts const& counts) {
    auto call = call_of("least_loaded::add_up");
    matrix_ref<std::int32_t const> const of_ranks =
        PLIMSOLL_INPUT(int32, call, "least_loaded::add_up", counts, "[ranks, experts]");
    pipeline_.enqueue_add_up(of_ranks);
  }

  /// @brief Plans a step from the counts that `add_up` added up.
  /// @complexity, stream and determinism as `plan(loads)`
  void plan() { pipeline_.enqueue_plan(loads()); }

  /// @brief Computes how many tokens each rank sends to each other rank, and the rows of all ranks.
  ///
  /// The counts given to `add_up` must add up to the planned loads. A later `plan` ends the
  /// exchange: `route` and `arrange` need an exchange of the last plan.
  ///
  /// @throws nothing; `check` throws for values
  /// @complexity O(ranks (ranks + segments))
  /// @stream enqueues two kernels; neither allocates nor synchronizes
  /// @determinism the same bits under every policy
  void exchange() { pipeline_.enqueue_exchange(); }

  /// @brief Chooses the destination rank of every token copy of a rank, and the copy's row in that
  /// rank's send buffer.
  ///
  /// Rows are ordered by destination rank, then by expert, then by token.
  ///
  /// @param rank the rank whose tokens are routed
  /// @param topk_ids the ids of this object's last `count`, which are those of `rank`
  /// @param[out] destinations `[tokens, k]` int32 or int64: the rank of every copy; -1 for ids that
  ///   are not routed, and for all ids if the last plan was not followed by `exchange`
  /// @param[out] rows `[tokens, k]` int32 or int64: the row of every copy, from 0 to below
  ///   `exchange_reports()[rank].sent`; -1 without a rank
  /// @param[out] counters one element, in the policy's memory: the number of ids by outcome; none
  ///   is lost silently
  /// @throws invalid_input for the rank and shapes
  /// @complexity O(tokens k log(segments of an expert))
  /// @stream enqueues one kernel; neither allocates nor synchronizes
  /// @determinism the same bits under every policy
  template <class Ids, class Destinations, class Rows>
  void route(index_t rank, Ids const& topk_ids, Destinations&& destinations, Rows&& rows,
             scalar_ref<spill_counters> const& counters) {
    auto call = call_of("least_loaded::route");
    expect_rank(call, rank);
    auto const ids =
        detail::read_only(PLIMSOLL_IDS(call, "least_loaded::route", topk_ids, "[tokens, k]"));
    expect_batch(call, ids);
    auto const to = PLIMSOLL_OUTPUT_IDS(call, "least_loaded::route", destinations, "[tokens, k]");
    auto const row = PLIMSOLL_OUTPUT_IDS(call, "least_loaded::route", rows, "[tokens, k]");
    auto const counted = detail::one_element(call, "counters", counters);
    pipeline_.enqueue_route(rank, ids, to, row, counted.data_handle());
  }

  /// @brief Maps each row that a rank receives to its row in the order of computation, and lists
  /// the rows of each expert.
  ///
  /// Rows arrive by source rank, and are computed by expert, then in the order of the expert's
  /// tokens.
  ///
  /// @param rank the rank that receives the rows
  /// @param[out] arranged int32 or int64, at least as many elements as received rows: the computed
  ///   row of each received row; -1 past the last one
  /// @param[out] groups `[experts]` `spill_segment`: the rows that the rank computes for each
  ///   expert, by expert; expert and rank are -1 past the last one, which is number
  ///   `exchange_reports()[rank].groups`
  /// @throws invalid_input for the rank and shapes
  /// @complexity O(ranks experts + received log(groups))
  /// @stream enqueues one kernel; neither allocates nor synchronizes
  /// @determinism the same bits under every policy
  template <class Rows, class Groups>
  void arrange(index_t rank, Rows&& arranged, Groups&& groups) {
    auto call = call_of("least_loaded::arrange");
    expect_rank(call, rank);
    auto const rows =
        PLIMSOLL_OUTPUT_IDS(call, "least_loaded::arrange", arranged, "[received rows]");
    vector_ref<spill_segment> const of_experts =
        PLIMSOLL_OUTPUT(spill_segment, call, "least_loaded::arrange", groups, "[experts]");
    pipeline_.enqueue_arrange(rank, rows, of_experts);
  }

  /// `[experts]`, in the policy's memory: the sums that `add_up` computed.
  [[nodiscard]] vector_ref<std::int64_t const> loads() const { return pipeline_.loads(); }

  /// The plan that `plan` made, in the policy's memory. The arrays of segments and transfers are
  /// allocated for the largest plan: the last offset is the number of valid elements.
  [[nodiscard]] vector_ref<std::int32_t const> offsets() const {
    return {pipeline_.plan().offsets, options().experts + 1};
  }
  [[nodiscard]] vector_ref<spill_segment const> segments() const {
    return {pipeline_.plan().segments, pipeline_.segment_limit()};
  }
  [[nodiscard]] vector_ref<spill_transfer const> transfers() const {
    return {pipeline_.plan().transfers, pipeline_.segment_limit()};
  }
  [[nodiscard]] vector_ref<std::int32_t const> transfer_offsets() const {
    return {pipeline_.plan().transfer_offsets, options().experts + 1};
  }
  [[nodiscard]] spill_plan_ref plan_ref() const {
    return {offsets(), segments(), transfer_offsets(), transfers()};
  }
  /// `[ranks]`: tokens of each rank.
  [[nodiscard]] vector_ref<std::int32_t const> rank_loads() const {
    return {pipeline_.plan().loads, options().on.ranks};
  }
  /// `[ranks]`: modeled bytes of each rank: weights held and received, and tokens.
  [[nodiscard]] vector_ref<std::int64_t const> rank_bytes() const {
    return {pipeline_.plan().bytes_of_rank, options().on.ranks};
  }
  [[nodiscard]] scalar_ref<spill_report const> report() const {
    return scalar_ref<spill_report const>(&pipeline_.plan().outcome->report);
  }

  /// `[ranks, ranks]`, after `exchange`: the tokens that each source (row) sends to each rank.
  [[nodiscard]] matrix_ref<std::int32_t const> send_counts() const {
    return {pipeline_.routes().sends, options().on.ranks, options().on.ranks};
  }
  /// `[ranks, ranks]`, after `exchange`: the tokens that each rank (row) receives from each source.
  [[nodiscard]] matrix_ref<std::int32_t const> receive_counts() const {
    return {pipeline_.routes().receives, options().on.ranks, options().on.ranks};
  }
  /// `[ranks]`, after `exchange`: the tokens sent and received, and the experts computed.
  [[nodiscard]] vector_ref<spill_exchange_report const> exchange_reports() const {
    return {pipeline_.routes().reports, options().on.ranks};
  }

  /// @brief Throws if the last `update` was refused, the last `plan` refused its loads or a
  /// returned cost, or if the counts of its `exchange` do not add up to the planned loads.
  /// @throws invalid_input naming the expert, or the rank of the cost
  /// @stream synchronizes
  void check() const { pipeline_.check(); }

 private:
  /// Returns a call with the axes of the options.
  [[nodiscard]] detail::checked_call call_of(std::string_view function) const {
    return {function, {{"experts", options().experts}, {"ranks", options().on.ranks}}};
  }
  void expect_rank(std::string_view function, index_t rank) const {
    detail::expect_between(function, "rank", 0, options().on.ranks - 1, rank, "as rank");
  }
  template <class Id>
  void expect_batch(std::string_view function, matrix_ref<Id const> const& ids) const {
    detail::expect_between(function, "topk_ids", 1, 0x7fffffff, ids.extent(1), "ids per token");
    detail::expect_between(function, "topk_ids", 0, options().max_token_copies / ids.extent(1),
                           ids.extent(0), "tokens (options.max_token_copies)");
  }

  detail::least_loaded_pipeline<kept_context<P>, Cost> pipeline_;
};

template <execution_policy P>
least_loaded(P const&, least_loaded_options const&) -> least_loaded<P>;
template <execution_policy P, class Cost>
least_loaded(P const&, least_loaded_options const&, spill_price<Cost> const&)
    -> least_loaded<P, Cost>;

/// @brief Checks a plan: segments partition each expert's load, each rank that needs an expert's
/// weights receives them once from a rank that holds them, and the limits hold.
///
/// @param plan in the policy's memory, from `least_loaded` or any other planner
/// @param loads `[experts]` int32, uint32 or int64, in the policy's memory
/// @param options the ranks, homes and limits of the plan
/// @throws invalid_input for shapes and options, and for the first fault of the plan
/// @complexity O(segments + transfers + slots + ranks), on the calling thread
/// @stream synchronizes
template <execution_policy P, class Loads>
void validate(P const& policy, spill_plan_ref const& plan, Loads const& loads,
              least_loaded_options const& options) {
  detail::checked_call call("validate", {{"experts", options.experts}});
  auto const context = detail::resolve(policy);
  detail::expect_least_loaded_options(call, options);
  auto const tokens = PLIMSOLL_INPUT_OF("int32, uint32 or int64", call, "validate", loads,
                                        "[experts]", detail::stored_count);
  call.expect("plan.offsets", plan.offsets, "[experts + 1]");
  call.expect("plan.transfer_offsets", plan.transfer_offsets, "[experts + 1]");
  detail::expect_elements(call, "plan.offsets", plan.offsets);
  detail::expect_elements(call, "plan.segments", plan.segments);
  detail::expect_elements(call, "plan.transfer_offsets", plan.transfer_offsets);
  detail::expect_elements(call, "plan.transfers", plan.transfers);
  detail::validate_spills(context, plan, tokens, options);
}

PLIMSOLL_EXPECT_ON(validate, (spill_plan_ref const& plan, Loads const& loads), (plan, loads))

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll
