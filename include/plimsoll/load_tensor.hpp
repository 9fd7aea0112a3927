// SPDX-License-Identifier: Apache-2.0
/// @file
/// Load tensors: counts token copies per expert, sums and averages them over steps, and converts
/// them to loads of ranks.
///
/// Sums of integers are exact. Sums of floating-point loads are in double and in a documented
/// order, so every function here gives the same bits under every policy and number of threads.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <plimsoll/array.hpp>
#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/load_tensor.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/load_tensor.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/load_tensor_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Counts the tokens that each expert gets.
///
/// counts(e) = number of ids equal to e. Id -1 means not routed. `counters` also counts the ids
/// that are not an expert's, so that none is lost silently.
///
/// @param topk_ids `[tokens, k]` int32 or int64, in the policy's memory; k at least 1
/// @param options whether to replace the outputs or add to them
/// @param[out] counts `[experts]` int32 or int64, in tokens, in the policy's memory
/// @param[out] counters one element, in the policy's memory; `read` fetches it
/// @pre with count_mode::add the outputs are initialized, and sums stay in the range of their type
/// @throws invalid_input for shapes
/// @complexity O(tokens k + experts); one pass over the ids
/// @workspace host: 32 bytes per expert and block of tokens, from the policy; device: none
/// @stream does not synchronize
/// @determinism the same bits under every policy
template <execution_policy P, class Ids, class Counts>
void count_tokens(P const& policy, Ids const& topk_ids, count_options const& options,
                  Counts&& counts, scalar_ref<routing_counters> const& counters) {
  detail::checked_call call("count_tokens");
  auto const ids = PLIMSOLL_IDS(call, "count_tokens", topk_ids, "[tokens, k]");
  auto const row = PLIMSOLL_OUTPUT_IDS(call, "count_tokens", counts, "[experts]");
  auto const counted = detail::one_element(call, "counters", counters);
  auto const counting = detail::counting_of(detail::as_tensor(ids),
                                            detail::as_tensor(detail::as_matrix(row)), counted);
  detail::expect_countable(call, options, counting);
  detail::enqueue_count_tokens(detail::resolve(policy), options, counting);
}

/// @overload For several layers at once: topk_ids `[layers, tokens, k]`, counts
/// `[layers, experts]`, counters `[layers]`.
template <execution_policy P, view_of_rank<3> Ids, class Counts, class Counters>
void count_tokens(P const& policy, Ids const& topk_ids, count_options const& options,
                  Counts&& counts, Counters&& counters) {
  detail::checked_call call("count_tokens");
  auto const ids = PLIMSOLL_IDS(call, "count_tokens", topk_ids, "[layers, tokens, k]");
  auto const rows = PLIMSOLL_OUTPUT_IDS(call, "count_tokens", counts, "[layers, experts]");
  auto const counted =
      PLIMSOLL_OUTPUT(routing_counters, unchecked, "count_tokens", counters, "[layers]");
  auto const counting = detail::counting_of(ids, detail::as_tensor(rows, 1), counted);
  detail::expect_countable(call, options, counting);
  detail::enqueue_count_tokens(detail::resolve(policy), options, counting);
}

/// @brief Counts the tokens that each expert gets from each source rank.
///
/// Tokens are ordered by source: source s owns tokens [source_offsets(s), source_offsets(s + 1)).
/// counts(s, e) = number of its ids equal to e.
///
/// @param topk_ids `[tokens, k]` int32 or int64, in the policy's memory; k at least 1
/// @param source_offsets `[sources + 1]` int32 or int64, in the policy's memory
/// @param options whether to replace the outputs or add to them
/// @param[out] counts `[sources, experts]` int32 or int64, in tokens, in the policy's memory
/// @param[out] counters one element, in the policy's memory
/// @pre source_offsets rises from 0 to tokens. Host policies check this. On a device, checking
///   values would mean to wait for them: there an offset below an earlier one acts as the earlier
///   one, and ids of tokens before the first source or after the last count as out of range.
/// @throws invalid_input for shapes, and for host-visible offsets
/// @complexity O(tokens k + sources experts)
/// @workspace host: 32 bytes per expert and block of tokens, from the policy; device: none
/// @stream does not synchronize
/// @determinism the same bits under every policy
template <execution_policy P, class Ids, class Offsets, class Counts>
void count_tokens_by_source(P const& policy, Ids const& topk_ids, Offsets const& source_offsets,
                            count_options const& options, Counts&& counts,
                            scalar_ref<routing_counters> const& counters) {
  detail::checked_call call("count_tokens_by_source");
  auto const ids = PLIMSOLL_IDS(call, "count_tokens_by_source", topk_ids, "[tokens, k]");
  auto const rows =
      PLIMSOLL_OUTPUT_IDS(call, "count_tokens_by_source", counts, "[sources, experts]");
  detail::expect_between(call, "counts", 1, rank_limit, rows.extent(0), "sources");
  auto const offsets =
      PLIMSOLL_IDS(call, "count_tokens_by_source", source_offsets, "[sources + 1]");
  auto const counted = detail::one_element(call, "counters", counters);
  detail::expect_sources<detail::context_of<P>>(call, offsets, ids.extent(0));
  auto const counting =
      detail::counting_of(detail::as_tensor(ids), detail::as_tensor(rows), counted, offsets);
  detail::expect_countable(call, options, counting);
  detail::enqueue_count_tokens(detail::resolve(policy), options, counting);
}

/// @brief Converts tokens per slot, as engines count them, to tokens per expert.
///
/// logical(l, e) = sum of physical_counts(l, s) over slots s that hold e.
///
/// @param physical_counts `[layers, slots]` int32, uint32 or int64, tokens, in the policy's memory
/// @param physical_to_logical `[layers, slots]` int32 or int64, in the policy's memory; -1 in an
///   empty slot
/// @param[out] logical `[layers, experts]` int64 or the type of physical_counts
/// @param[out] counters `[layers]`: tokens scattered, and tokens in slots that hold no expert
/// @pre each sum fits its type
/// @throws invalid_input for shapes
/// @complexity O(layers (slots + experts))
/// @workspace 12 bytes per slot and 8 per expert for each problem in flight, from the policy;
///   on a device only where that exceeds the shared memory of a block
/// @stream does not synchronize
/// @determinism the same bits under every policy
template <execution_policy P, class Counts, class Map, class Logical, class Counters>
void scatter_to_logical(P const& policy, Counts const& physical_counts,
                        Map const& physical_to_logical, Logical&& logical, Counters&& counters) {
  detail::checked_call call("scatter_to_logical");
  auto const in = PLIMSOLL_INPUT_OF("int32, uint32 or int64", call, "scatter_to_logical",
                                    physical_counts, "[layers, slots]", detail::stored_count);
  auto const map = PLIMSOLL_IDS(call, "scatter_to_logical", physical_to_logical, "[layers, slots]");
  auto const out =
      PLIMSOLL_OUTPUT_OF("int64, or the type of physical_counts", call, "scatter_to_logical",
                         logical, "[layers, experts]", detail::scatter_sum_of<Counts>);
  auto const lost =
      PLIMSOLL_OUTPUT(scatter_counters, unchecked, "scatter_to_logical", counters, "[layers]");
  detail::expect_extent(call, "counters", in.extent(0), lost.extent(0), "elements (one per layer)");
  detail::enqueue_scatter(detail::resolve(policy), in, map, out, lost);
}

/// @brief Sums a load tensor over its steps.
///
/// out(l, e) = sum over t of loads(t, l, e); floating-point loads are added in double, in step
/// order.
///
/// @param loads `[steps, layers, experts]`, in the policy's memory; int32, uint32, int64, float,
///   double or generated; any unit
/// @param[out] out `[layers, experts]` int64 for integer loads, double for floating-point ones
/// @pre integer sums fit int64
/// @throws invalid_input for shapes
/// @complexity O(steps layers experts); one pass over the loads
/// @workspace none
/// @stream does not synchronize
/// @determinism the same bits under every policy
template <execution_policy P, class Loads, class Out>
void sum_steps(P const& policy, Loads const& loads, Out&& out) {
  detail::checked_call call("sum_steps");
  auto const in = PLIMSOLL_LOADS(call, "sum_steps", loads, "[steps, layers, experts]");
  auto const to =
      PLIMSOLL_OUTPUT_OF("int64 for integer loads, double for floating-point ones", call,
                         "sum_steps", out, "[layers, experts]", detail::step_sum_of<Loads>);
  detail::enqueue_sum_steps(detail::resolve(policy), in, to);
}

/// @brief Computes the load of every rank under a placement, in every step.
///
/// out(t, l, r) = sum over the slots of r that hold an expert e, in slot order, of
/// loads(t, l, e) / replica_count(l, e): the replicas of an expert share its load evenly. Each
/// quotient and each sum is rounded once, to double.
///
/// @param loads `[steps, layers, experts]`, in the policy's memory; int32, uint32, int64, float,
///   double or generated; any unit
/// @param placement slots, replica counts and ranks of every layer, in the policy's memory
/// @param[out] out `[steps, layers, ranks]` double, in the unit of the loads
/// @pre replica_count counts the slots of every expert, at least 1, and rank_offsets rises from 0
///   to at most slots; a slot that holds no expert of the layer adds nothing
/// @throws invalid_input for shapes
/// @complexity O(steps layers (experts + slots))
/// @workspace 8 bytes per expert and 16 per rank for each problem in flight, from the policy; on a
///   device only where that exceeds the shared memory of a block
/// @stream does not synchronize
/// @determinism the same bits under every policy
template <execution_policy P, view_of_rank<3> Loads, class Out>
void rank_loads(P const& policy, Loads const& loads, placement_ref const& placement, Out&& out) {
  detail::expect_ranks("rank_loads", placement);
  detail::checked_call call("rank_loads", {{"ranks", placement.ranks}});
  auto const in = PLIMSOLL_LOADS(call, "rank_loads", loads, "[steps, layers, experts]");
  auto const to = PLIMSOLL_OUTPUT(double, call, "rank_loads", out, "[steps, layers, ranks]");
  detail::expect_rank_loads(call, placement);
  detail::enqueue_rank_loads(detail::resolve(policy), in, placement, to);
}

/// @overload For one step: loads `[layers, experts]`, out `[layers, ranks]`.
template <execution_policy P, class Loads, class Out>
void rank_loads(P const& policy, Loads const& loads, placement_ref const& placement, Out&& out) {
  auto const in = PLIMSOLL_LOADS(unchecked, "rank_loads", loads, "[layers, experts]");
  auto const to = PLIMSOLL_OUTPUT(double, unchecked, "rank_loads", out, "[layers, ranks]");
  rank_loads(policy, detail::as_tensor(in), placement, detail::as_tensor(to));
}

/// @brief Returns what `rank_loads(policy, loads, placement, out)` writes, as an array
/// `[steps, layers, ranks]` in the policy's memory.
///
/// @workspace keeps 8 bytes per element, from the policy
template <execution_policy P, view_of_rank<3> Loads>
array<double, P, 3> rank_loads(P const& policy, Loads const& loads,
                               placement_ref const& placement) {
  auto const in = PLIMSOLL_LOADS(unchecked, "rank_loads", loads, "[steps, layers, experts]");
  detail::expect_ranks("rank_loads", placement);
  array<double, P, 3> out(policy, in.extent(0), in.extent(1), placement.ranks);
  rank_loads(policy, in, placement, out);
  return out;
}

/// @overload For one step: loads `[layers, experts]`, returns `[layers, ranks]`.
template <execution_policy P, class Loads>
array<double, P, 2> rank_loads(P const& policy, Loads const& loads,
                               placement_ref const& placement) {
  auto const in = PLIMSOLL_LOADS(unchecked, "rank_loads", loads, "[layers, experts]");
  detail::expect_ranks("rank_loads", placement);
  array<double, P, 2> out(policy, in.extent(0), placement.ranks);
  rank_loads(policy, in, placement, out);
  return out;
}

/// @brief Keeps the last `options.window` steps, and their sum.
///
/// This is the ring buffer of steps of vLLM, SGLang and vllm-ascend; integer loads also have a
/// running sum. Only the constructor allocates; after it only `size` synchronizes. The position in
/// the ring is in the policy's memory, so `push`, `sum` and `steps` can be captured in a CUDA graph
/// and replayed.
///
/// @tparam T int32, uint32, int64, float or double
template <load_value T, unqualified_policy P>
class load_window {
 public:
  /// int64 for integer loads, double for floating-point ones.
  using sum_type = std::conditional_t<std::integral<T>, std::int64_t, double>;

  /// Creates an empty window.
  /// @throws invalid_input for layers, experts or a window out of range
  /// @workspace (window * sizeof(T) + 8) bytes per layer and expert, from the policy
  /// @stream synchronizes
  load_window(P const& policy, index_t layers, index_t experts,
              load_window_options const& options = {})
      : pipeline_(detail::resolve(policy), layers, experts, options) {
    detail::synchronize(pipeline_.context());
  }

  /// Adds a step; once the window is full, the new step replaces the oldest one.
  /// @param loads `[layers, experts]` of type T, stored or generated, in the policy's memory
  /// @pre integer sums of a window fit int64
  /// @throws invalid_input for shapes
  /// @complexity O(layers experts), independent of the window
  template <class Loads>
  void push(Loads const& loads) {
    auto call = call_of("load_window::push");
    auto const in = PLIMSOLL_INPUT_OF("the element type of the window", call, "load_window::push",
                                      loads, "[layers, experts]", detail::one_of_also_generated<T>);
    pipeline_.enqueue_push(in);
  }

  /// Writes the sum over the steps in the window, 0 for an empty window. Floating-point loads are
  /// summed anew by each call, in double, from the oldest step to the newest.
  /// @param[out] out `[layers, experts]` int64 for integer loads, double for floating-point ones
  /// @throws invalid_input for shapes
  /// @complexity O(layers experts); times the steps in the window for floating-point loads
  template <class Out>
  void sum(Out&& out) {
    auto call = call_of("load_window::sum");
    auto const to =
        PLIMSOLL_OUTPUT_OF("int64 for integer loads, double for floating-point ones", call,
                           "load_window::sum", out, "[layers, experts]", detail::one_of<sum_type>);
    pipeline_.enqueue_sum(to);
  }

  /// Writes the steps of the window from the oldest to the newest, as planners take them. The rows
  /// after the newest step, of a window that is not full yet, have no load.
  /// @param[out] out `[window, layers, experts]` of type T
  /// @throws invalid_input for shapes
  /// @complexity O(window layers experts)
  template <class Out>
  void steps(Out&& out) {
    auto call = call_of("load_window::steps");
    auto const to = PLIMSOLL_OUTPUT_OF("the element type of the window", call, "load_window::steps",
                                       out, "[window, layers, experts]", detail::one_of<T>);
    pipeline_.enqueue_steps(to);
  }

  /// Returns the number of steps in the window, at most `options.window`.
  /// @stream synchronizes
  [[nodiscard]] index_t size() const { return pipeline_.size(); }

 private:
  [[nodiscard]] detail::checked_call call_of(std::string_view function) const {
    return {function,
            {{"window", pipeline_.window(), "steps (the window)"},
             {"layers", pipeline_.layers()},
             {"experts", pipeline_.experts()}}};
  }

  detail::load_window_pipeline<T, kept_context<P>> pipeline_;
};

/// @brief Maintains an exponentially decaying sum of loads: each step weighs `options.decay` times
/// as much as the step after it.
///
/// This is the rule of TensorRT-LLM's load balancer, which has a decay of 0.9. Every step computes
/// value = value * decay + load in double, rounded after the product and after the sum. A layer
/// that gets a new placement starts again at 0: call `reset`. Only the constructor allocates and
/// synchronizes; all other calls can be captured in a CUDA graph.
template <unqualified_policy P>
class load_decay {
 public:
  /// Creates values of 0.
  /// @throws invalid_input for layers or experts out of range; unless 0 < decay <= 1
  /// @workspace 8 bytes per value, from the policy
  /// @stream synchronizes
  load_decay(P const& policy, index_t layers, index_t experts,
             load_decay_options const& options = {})
      : pipeline_(detail::resolve(policy), layers, experts, options) {
    detail::synchronize(pipeline_.context());
  }

  /// Adds a step: value = value * decay + load.
  /// @param loads `[layers, experts]`, in the policy's memory, as for `sum_steps`
  /// @throws invalid_input for shapes; on a device cuda_error, also for a pending error of earlier
  ///   work: CUB reports and clears it, and enqueues nothing
  /// @stream enqueues one kernel of cub::DeviceFor; does not synchronize
  template <class Loads>
  void push(Loads const& loads) {
    detail::checked_call call("load_decay::push",
                              {{"layers", values().extent(0)}, {"experts", values().extent(1)}});
    auto const in = PLIMSOLL_LOADS(call, "load_decay::push", loads, "[layers, experts]");
    pipeline_.enqueue_update(in);
  }

  /// Current values: `[layers, experts]`, in the policy's memory; valid as long as this object.
  [[nodiscard]] matrix_ref<double const> values() const { return pipeline_.values(); }

  /// Sets all values to 0.
  void reset() { pipeline_.enqueue_reset(); }

  /// Sets the values of one layer to 0, as TensorRT-LLM does when the layer gets a new placement.
  /// @throws invalid_input for a layer out of range
  void reset(index_t layer) {
    detail::expect_between("load_decay::reset", "layer", 0, values().extent(0) - 1, layer,
                           "as the layer");
    pipeline_.enqueue_reset(layer);
  }

 private:
  detail::load_decay_pipeline<kept_context<P>> pipeline_;
};

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll
