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
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/load_tensor.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/placement.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

#include <plimsoll/detail/host/load_tensor.hpp>
#if PLIMSOLL_HAS_CUDA_COMPILER
#include <plimsoll/detail/device/for_each_index.cuh>
#include <plimsoll/detail/device/load_tensor.cuh>
#endif

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Treatment of the values that the outputs hold before a call.
enum class count_mode : std::int32_t {
  overwrite,  ///< replaces them
  add         ///< adds to them
};

/// Options of `count_tokens` and `count_tokens_by_source`.
struct count_options {
  count_mode mode = count_mode::overwrite;
};

/// Counts of one layer's ids by validity; the three add up to the number of ids.
struct routing_counters {
  std::int64_t routed = 0;        ///< ids in [0, experts), counted for an expert
  std::int64_t unrouted = 0;      ///< ids of -1
  std::int64_t out_of_range = 0;  ///< all other ids, and ids of tokens outside every source range
};

/// Counts of one layer's tokens by slot contents; the three add up to the sum over all slots.
struct scatter_counters {
  std::int64_t scattered = 0;     ///< tokens counted for an expert
  std::int64_t empty_slots = 0;   ///< tokens in slots that hold -1
  std::int64_t out_of_range = 0;  ///< tokens in slots that hold another id outside [0, experts)
};

namespace detail {

/// Inserts a dimension of extent 1 into a view, before its dimension `dimension`.
template <class T>
constexpr array_ref<T, 3> as_tensor(array_ref<T, 2> const& view, int dimension = 0) {
  array_ref<T, 3> result;
  result.data = view.data;
  result.extents[dimension] = 1;
  for (int i = 0; i < 2; ++i) {
    int const to = i < dimension ? i : i + 1;
    result.extents[to] = view.extents[i];
    result.strides[to] = view.strides[i];
  }
  return result;
}
template <class F>
struct one_step {
  F function;
  PLIMSOLL_HD constexpr auto operator()(index_t, index_t i, index_t j) const {
    return function(i, j);
  }
};
template <class F>
constexpr auto as_tensor(generated<F, 2> const& view) {
  return generate(one_step<F>{view.function}, 1, view.extent(0), view.extent(1));
}

template <class T>
inline constexpr bool is_token_integer =
    std::same_as<T, std::int32_t> || std::same_as<T, std::int64_t>;

inline namespace PLIMSOLL_DEVICE_ABI {

template <class P, class Id, class Offset, class Count>
void count(std::string_view name, P const& policy, count_options const& options,
           token_counting<Id, Count, Offset, routing_counters> const& counting) {
  static_assert(is_token_integer<Id>, "Plimsoll: topk_ids must be int32 or int64");
  static_assert(is_token_integer<Count>, "Plimsoll: counts must be int32 or int64");
  index_t const ids = counting.ids.extent(1) * counting.ids.extent(2);
  expect_between(name, "topk_ids", 1, expert_limit, counting.ids.extent(2), "ids per token");
  expect_between(name, "counts", 1, expert_limit, counting.counts.extent(2), "experts");
  expect_extent(name, "counters", counting.ids.extent(0), counting.counters.extent(0),
                "elements (one per layer)");
  if (ids > std::numeric_limits<Count>::max()) {
    fail(name, "topk_ids", "at most 2147483647 ids per layer for int32 counts", text(ids));
  }
  auto const context = resolve(policy);
  if (options.mode == count_mode::overwrite) {
    launch(context, counting.counts.extent(0) * counting.counts.extent(1),
           clear_counts_body<std::remove_cvref_t<decltype(counting)>>{counting});
  }
  enqueue_count(context, counting);
}

/// Checks source offsets in host memory; on a device, the kernel handles any values.
template <class P, class Offset>
void expect_sources(std::string_view name, P const& policy, vector_ref<Offset const> offsets,
                    index_t tokens) {
  using context = std::remove_cvref_t<decltype(policy_traits<P>::resolve(policy))>;
  if constexpr (!std::same_as<context, device_context>) {
    index_t const sources = offsets.extent(0) - 1;
    for (index_t source = 0; source < sources; ++source) {
      if (offsets[source] > offsets[source + 1]) {
        fail(name, "source_offsets",
             text("rising offsets, ", offsets[source], " or more at ", source + 1),
             text(offsets[source + 1]));
      }
    }
    if (offsets[0] != 0 || offsets[sources] != tokens) {
      fail(name, "source_offsets", text("offsets from 0 to ", tokens, " (tokens)"),
           text(offsets[0], " to ", offsets[sources]));
    }
  }
}

template <class Context, class Body>
void enqueue_decay(Context const& context, Body const& body) {
  if constexpr (runs_on_device<Context>) {
    for_each_index(context, body.values.extent(0) * body.values.extent(1), body);
  } else {
    launch(context, body.values.extent(0), body);
  }
}

template <class P, class Loads>
void rank_loads(P const& policy, Loads const& loads, placement_ref const& placement,
                tensor_ref<double> const& out) {
  constexpr char const* name = "rank_loads";
  auto const& map = placement.physical_to_logical;
  index_t const layers = loads.extent(1);
  expect_between(name, "placement.ranks", 1, rank_limit, placement.ranks, "ranks");
  expect_extent(name, "placement.physical_to_logical", layers, map.extent(0), "layers");
  expect_extent(name, "placement.replica_count", layers, placement.replica_count.extent(0),
                "layers");
  expect_extent(name, "placement.replica_count", loads.extent(2), placement.replica_count.extent(1),
                "experts");
  expect_elements(name, "placement.physical_to_logical", map);
  expect_elements(name, "placement.replica_count", placement.replica_count);
  expect_rank_offsets(name, "placement.rank_offsets", placement.rank_offsets, layers,
                      placement.ranks);
  expect_extent(name, "out", loads.extent(0), out.extent(0), "steps");
  expect_extent(name, "out", layers, out.extent(1), "layers");
  expect_extent(name, "out", placement.ranks, out.extent(2), "ranks");
  rank_loads_body<Loads> const body{loads,
                                    map,
                                    placement.replica_count,
                                    {placement.rank_offsets, map.extent(1), placement.ranks},
                                    out};
  launch(resolve(policy), body.problems(), body);
}

}  // namespace PLIMSOLL_DEVICE_ABI

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Counts the tokens that each expert gets.
///
/// counts(e) = number of ids equal to e. Id -1 means not routed. `counters` also counts the ids
/// that are not an expert's, so that none is lost silently.
///
/// @param topk_ids `[tokens, k]` int32 or int64, in the policy's memory; k at least 1
/// @param options whether to replace the outputs or add to them
/// @param[out] counts `[experts]` int32 or int64, in tokens, in the policy's memory
/// @param[out] counters `[1]`, in the policy's memory; `read(policy, counters)` fetches it
/// @pre with count_mode::add the outputs are initialised, and sums stay in the range of their type
/// @throws invalid_input for shapes
/// @complexity O(tokens k + experts); one pass over the ids
/// @workspace host: 32 bytes per expert and block of tokens, from the policy; device: none
/// @stream does not synchronise
/// @determinism the same bits under every policy
template <execution_policy P, detail::stored<2> Ids, detail::writable<1> Counts,
          output_of<routing_counters, 1> Counters>
void count_tokens(P const& policy, Ids const& topk_ids, count_options const& options,
                  Counts&& counts, Counters&& counters) {
  using id = detail::normalized_value_t<Ids, 2>;
  using count = detail::normalized_value_t<Counts, 1>;
  vector_ref<count> const row = detail::argument<1>("count_tokens", "counts", counts);
  matrix_ref<count> rows(row.data, 1, row.extent(0));
  rows.strides[1] = row.stride(0);
  detail::count(
      "count_tokens", policy, options,
      detail::token_counting<id, count, std::int32_t, routing_counters>{
          detail::as_tensor<id const>(detail::argument<2>("count_tokens", "topk_ids", topk_ids)),
          {},
          detail::as_tensor(rows),
          detail::argument<1>("count_tokens", "counters", counters)});
}

/// @overload For several layers at once: topk_ids `[layers, tokens, k]`, counts
/// `[layers, experts]`, counters `[layers]`.
template <execution_policy P, detail::stored<3> Ids, detail::stored<2> Counts,
          output_of<routing_counters, 1> Counters>
  requires detail::writable<Counts, 2>
void count_tokens(P const& policy, Ids const& topk_ids, count_options const& options,
                  Counts&& counts, Counters&& counters) {
  using id = detail::normalized_value_t<Ids, 3>;
  using count = detail::normalized_value_t<Counts, 2>;
  matrix_ref<count> const rows = detail::argument<2>("count_tokens", "counts", counts);
  tensor_ref<id const> const ids = detail::argument<3>("count_tokens", "topk_ids", topk_ids);
  detail::expect_extent("count_tokens", "counts", ids.extent(0), rows.extent(0), "layers");
  detail::count("count_tokens", policy, options,
                detail::token_counting<id, count, std::int32_t, routing_counters>{
                    ids,
                    {},
                    detail::as_tensor(rows, 1),
                    detail::argument<1>("count_tokens", "counters", counters)});
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
/// @param[out] counters `[1]`, in the policy's memory
/// @pre source_offsets rises from 0 to tokens. Host policies check this. On a device, checking
///   values would mean to wait for them: there an offset below an earlier one acts as the earlier
///   one, and ids of tokens before the first source or after the last count as out of range.
/// @throws invalid_input for shapes, and for host-visible offsets
/// @complexity O(tokens k + sources experts)
/// @workspace host: 32 bytes per expert and block of tokens, from the policy; device: none
/// @stream does not synchronise
/// @determinism the same bits under every policy
template <execution_policy P, detail::stored<2> Ids, detail::readable<1> Offsets,
          detail::stored<2> Counts, output_of<routing_counters, 1> Counters>
  requires detail::writable<Counts, 2>
void count_tokens_by_source(P const& policy, Ids const& topk_ids, Offsets const& source_offsets,
                            count_options const& options, Counts&& counts, Counters&& counters) {
  constexpr char const* name = "count_tokens_by_source";
  using id = detail::normalized_value_t<Ids, 2>;
  using offset = detail::normalized_value_t<Offsets const, 1>;
  using count = detail::normalized_value_t<Counts, 2>;
  static_assert(detail::is_token_integer<offset>,
                "Plimsoll: source_offsets must be int32 or int64");
  matrix_ref<id const> const ids = detail::argument<2>(name, "topk_ids", topk_ids);
  vector_ref<offset const> const offsets =
      detail::argument<1>(name, "source_offsets", source_offsets);
  matrix_ref<count> const rows = detail::argument<2>(name, "counts", counts);
  detail::expect_between(name, "counts", 1, rank_limit, rows.extent(0), "sources");
  detail::expect_extent(name, "source_offsets", rows.extent(0) + 1, offsets.extent(0),
                        "offsets (sources + 1)");
  detail::expect_sources(name, policy, offsets, ids.extent(0));
  detail::count(name, policy, options,
                detail::token_counting<id, count, offset, routing_counters>{
                    detail::as_tensor(ids), offsets, detail::as_tensor(rows),
                    detail::argument<1>(name, "counters", counters)});
}

/// @brief Converts tokens per slot, as engines count them, to tokens per expert.
///
/// logical(l, e) = sum of physical_counts(l, s) over slots s that hold e.
///
/// @param physical_counts `[layers, slots]` int32, uint32 or int64, tokens, in the policy's memory
/// @param physical_to_logical `[layers, slots]` int32, in the policy's memory; -1 in an empty slot
/// @param[out] logical `[layers, experts]` int64 or the type of physical_counts
/// @param[out] counters `[layers]`: tokens scattered, and tokens in slots that hold no expert
/// @pre each sum fits its type
/// @throws invalid_input for shapes
/// @complexity O(layers (slots + experts))
/// @workspace 12 bytes per slot and 8 per expert for each problem in flight, from the policy;
///   on a device only where that exceeds the shared memory of a block
/// @stream does not synchronise
/// @determinism the same bits under every policy
template <execution_policy P, detail::stored<2> Counts, view_of<std::int32_t, 2> Map,
          detail::stored<2> Logical, output_of<scatter_counters, 1> Counters>
  requires detail::writable<Logical, 2>
void scatter_to_logical(P const& policy, Counts const& physical_counts,
                        Map const& physical_to_logical, Logical&& logical, Counters&& counters) {
  constexpr char const* name = "scatter_to_logical";
  using count = detail::normalized_value_t<Counts, 2>;
  using sum = detail::normalized_value_t<Logical, 2>;
  static_assert(load_value<count> && std::integral<count>,
                "Plimsoll: physical_counts must be int32, uint32 or int64");
  static_assert(std::same_as<sum, std::int64_t> || std::same_as<sum, count>,
                "Plimsoll: logical must be int64 or of the type of physical_counts");
  matrix_ref<count const> const in = detail::argument<2>(name, "physical_counts", physical_counts);
  matrix_ref<std::int32_t const> const map =
      detail::argument<2>(name, "physical_to_logical", physical_to_logical);
  matrix_ref<sum> const out = detail::argument<2>(name, "logical", logical);
  vector_ref<scatter_counters> const lost = detail::argument<1>(name, "counters", counters);
  detail::expect_extent(name, "physical_to_logical", in.extent(0), map.extent(0), "layers");
  detail::expect_extent(name, "physical_to_logical", in.extent(1), map.extent(1), "slots");
  detail::expect_extent(name, "logical", in.extent(0), out.extent(0), "layers");
  detail::expect_extent(name, "counters", in.extent(0), lost.extent(0), "elements (one per layer)");
  detail::launch(detail::resolve(policy), in.extent(0),
                 detail::scatter_body<count, sum, scatter_counters>{in, map, out, lost});
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
/// @stream does not synchronise
/// @determinism the same bits under every policy
template <execution_policy P, load_tensor_view Loads, detail::stored<2> Out>
  requires detail::writable<Out, 2>
void sum_steps(P const& policy, Loads const& loads, Out&& out) {
  using sum = detail::load_sum_t<detail::normalized_value_t<Loads, 3>>;
  static_assert(
      std::same_as<detail::normalized_value_t<Out, 2>, sum>,
      "Plimsoll: the sum over steps is int64 for integer loads, double for floating ones");
  auto const in = detail::argument<3>("sum_steps", "loads", loads);
  matrix_ref<sum> const to = detail::argument<2>("sum_steps", "out", out);
  detail::expect_extent("sum_steps", "out", in.extent(1), to.extent(0), "layers");
  detail::expect_extent("sum_steps", "out", in.extent(2), to.extent(1), "experts");
  detail::launch(detail::resolve(policy), in.extent(1) * detail::tiles_of(in.extent(2)),
                 detail::sum_steps_body<std::remove_const_t<decltype(in)>, sum>{in, to});
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
/// @stream does not synchronise
/// @determinism the same bits under every policy
template <execution_policy P, load_tensor_view Loads, output_of<double, 3> Out>
void rank_loads(P const& policy, Loads const& loads, placement_ref const& placement, Out&& out) {
  detail::rank_loads(policy, detail::argument<3>("rank_loads", "loads", loads), placement,
                     detail::argument<3>("rank_loads", "out", out));
}

/// @overload For one step: loads `[layers, experts]`, out `[layers, ranks]`.
template <execution_policy P, load_matrix_view Loads, output_of<double, 2> Out>
void rank_loads(P const& policy, Loads const& loads, placement_ref const& placement, Out&& out) {
  detail::rank_loads(policy, detail::as_tensor(detail::argument<2>("rank_loads", "loads", loads)),
                     placement, detail::as_tensor(detail::argument<2>("rank_loads", "out", out)));
}

/// @brief Maintains the sum of the last `window` steps.
///
/// This is the ring buffer of steps of vLLM, SGLang and vllm-ascend; integer loads also have a
/// running sum. Only the constructor allocates; after it only `size` synchronises. The position in
/// the ring is in the policy's memory, so `push` and `sum` can be captured in a CUDA graph and
/// replayed.
///
/// @tparam T int32, uint32, int64, float or double
template <load_value T, execution_policy P>
class load_window {
  static_assert(detail::can_be_kept<P>,
                "Plimsoll: a prepared object outlives this policy; use gpu(stream) or "
                "gpu(stream, resource)");

 public:
  using sum_type = detail::load_sum_t<T>;

  /// Creates an empty window.
  /// @throws invalid_input for a window, layers or experts out of range
  /// @workspace (window * sizeof(T) + 8) bytes per layer and expert, from the policy
  /// @stream synchronises
  load_window(P const& policy, index_t window, index_t layers, index_t experts)
      : context_(detail::resolve(policy)),
        window_(checked(window, "window", 0x7fffffff, "steps")),
        layers_(checked(layers, "layers", 0x7fffffff, "layers")),
        experts_(checked(experts, "experts", expert_limit, "experts")),
        ring_(context_, window * layers * experts),
        sums_(context_, std::integral<T> ? layers * experts : 0),
        states_(context_, layers) {
    ring_.zero();
    sums_.zero();
    states_.zero();
    detail::synchronize(context_);
  }

  /// Adds a step; once the window is full, the new step replaces the oldest one.
  /// @param loads `[layers, experts]` of type T, stored or generated, in the policy's memory
  /// @pre integer sums of a window fit int64
  /// @throws invalid_input for shapes
  /// @complexity O(layers experts), independent of the window
  template <view_of<T, 2> Loads>
  void push(Loads const& loads) {
    auto const in = detail::argument<2>("load_window::push", "loads", loads);
    expect_shape("load_window::push", "loads", in);
    detail::launch(context_, layers_,
                   detail::window_push_body<std::remove_const_t<decltype(in)>, T>{
                       in, ring(), {sums_.data(), layers_, experts_}, states_.data()});
  }

  /// Writes the sum over the steps in the window, 0 for an empty window. Floating-point loads are
  /// summed anew by each call, in double, from the oldest step to the newest.
  /// @param[out] out `[layers, experts]` int64 for integer loads, double for floating-point ones
  /// @throws invalid_input for shapes
  /// @complexity O(layers experts); times the steps in the window for floating-point loads
  template <output_of<sum_type, 2> Out>
  void sum(Out&& out) const {
    matrix_ref<sum_type> const to = detail::argument<2>("load_window::sum", "out", out);
    expect_shape("load_window::sum", "out", to);
    if constexpr (std::integral<T>) {
      detail::copy_rows(context_, matrix_ref<sum_type const>(sums_.data(), layers_, experts_), to);
    } else {
      detail::launch(context_, layers_ * detail::tiles_of(experts_),
                     detail::window_sum_body<T>{ring(), states_.data(), to});
    }
  }

  /// Returns the number of steps in the window, at most `window`.
  /// @stream synchronises
  [[nodiscard]] index_t size() const {
    detail::window_state state;
    detail::memory_of<context>::to_host(context_, states_.data(), &state, sizeof(state));
    return state.size;
  }

 private:
  using context = detail::context_of<P>;

  static index_t checked(index_t got, char const* argument, index_t high, char const* what) {
    detail::expect_between("load_window", argument, 1, high, got, what);
    return got;
  }
  template <class View>
  void expect_shape(char const* name, char const* argument, View const& view) const {
    detail::expect_extent(name, argument, layers_, view.extent(0), "layers");
    detail::expect_extent(name, argument, experts_, view.extent(1), "experts");
  }
  tensor_ref<T> ring() const { return {ring_.data(), window_, layers_, experts_}; }

  context context_;
  index_t window_;
  index_t layers_;
  index_t experts_;
  detail::buffer<T, context> ring_;
  detail::buffer<std::int64_t, context> sums_;
  detail::buffer<detail::window_state, context> states_;
};

/// @brief Maintains an exponentially decaying sum of loads: each step weighs `decay` times as much
/// as the step after it.
///
/// This is the rule of TensorRT-LLM's load balancer, which has a decay of 0.9. Every step computes
/// value = value * decay + load in double, rounded after the product and after the sum. A layer
/// that gets a new placement starts again at 0: call `reset`. Only the constructor allocates and
/// synchronises; all other calls can be captured in a CUDA graph.
template <execution_policy P>
class load_decay {
  static_assert(detail::can_be_kept<P>,
                "Plimsoll: a prepared object outlives this policy; use gpu(stream) or "
                "gpu(stream, resource)");

 public:
  /// Creates values of 0.
  /// @throws invalid_input unless 0 < decay <= 1; for layers or experts out of range
  /// @workspace 8 bytes per value, from the policy
  /// @stream synchronises
  load_decay(P const& policy, double decay, index_t layers, index_t experts)
      : context_(detail::resolve(policy)), decay_(decay), layers_(layers), experts_(experts) {
    constexpr char const* name = "load_decay";
    if (!(decay > 0 && decay <= 1)) {
      detail::fail(name, "decay", "a number above 0 and up to 1", detail::text(decay));
    }
    detail::expect_between(name, "layers", 1, 0x7fffffff, layers, "layers");
    detail::expect_between(name, "experts", 1, expert_limit, experts, "experts");
    values_ = buffer(context_, layers * experts);
    reset();
    detail::synchronize(context_);
  }

  /// Adds a step: value = value * decay + load.
  /// @param loads `[layers, experts]`, in the policy's memory, as for `sum_steps`
  /// @throws invalid_input for shapes; on a device cuda_error, also for a pending error of earlier
  ///   work: CUB reports and clears it, and enqueues nothing
  /// @stream enqueues one kernel of cub::DeviceFor; does not synchronise
  template <load_matrix_view Loads>
  void update(Loads const& loads) {
    auto const in = detail::argument<2>("load_decay::update", "loads", loads);
    detail::expect_extent("load_decay::update", "loads", layers_, in.extent(0), "layers");
    detail::expect_extent("load_decay::update", "loads", experts_, in.extent(1), "experts");
    detail::enqueue_decay(context_, detail::decay_body<std::remove_const_t<decltype(in)>>{
                                        in, decay_, {values_.data(), layers_, experts_}});
  }

  /// Current values: `[layers, experts]`, in the policy's memory; valid as long as this object.
  [[nodiscard]] matrix_ref<double const> values() const {
    return {values_.data(), layers_, experts_};
  }

  /// Sets all values to 0.
  void reset() { values_.zero(); }

  /// Sets the values of one layer to 0, as TensorRT-LLM does when the layer gets a new placement.
  /// @throws invalid_input for a layer out of range
  void reset(index_t layer) {
    detail::expect_between("load_decay::reset", "layer", 0, layers_ - 1, layer, "as the layer");
    detail::memory_of<context>::zero(context_, values_.data() + layer * experts_,
                                     static_cast<std::size_t>(experts_) * sizeof(double));
  }

 private:
  using context = detail::context_of<P>;
  using buffer = detail::buffer<double, context>;

  context context_;
  double decay_;
  index_t layers_;
  index_t experts_;
  buffer values_;
};

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll
