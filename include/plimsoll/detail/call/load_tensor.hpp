// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of the load tensor: checks shapes and launches the bodies.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/load_tensor.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/checked_call.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/load_tensor.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/load_tensor_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>
#if PLIMSOLL_HAS_CUDA_COMPILER
#include <plimsoll/detail/device/for_each_index.cuh>
#include <plimsoll/detail/device/load_tensor.cuh>
#endif

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Kinds of elements that `scatter_to_logical` and `sum_steps` take. A sum of a faulty input may
/// have any type that a sum can have, so that only the input is refused.
template <class Counts>
struct scatter_sum {
  using type = one_of<std::int64_t, std::int32_t, std::uint32_t>;
};
template <class Counts>
  requires(fault_of_argument<Counts const&, 2, stored_count, false>() == argument_fault::none)
struct scatter_sum<Counts> {
  using type = one_of<std::int64_t, normalized_value_t<Counts const, 2>>;
};
template <class Counts>
using scatter_sum_of = typename scatter_sum<Counts>::type;

template <class Loads>
struct step_sum {
  using type = one_of<std::int64_t, double>;
};
template <class Loads>
  requires(fault_of_argument<Loads const&, 3, any_load, false>() == argument_fault::none)
struct step_sum<Loads> {
  using type = one_of<load_sum_t<normalized_value_t<Loads const, 3>>>;
};
template <class Loads>
using step_sum_of = typename step_sum<Loads>::type;

/// Returns the views of a count. Without `offsets` all tokens have one source.
template <class Id, class Count, class Offset = std::int32_t>
token_counting<std::remove_const_t<Id>, Count, std::remove_const_t<Offset>> counting_of(
    tensor_ref<Id> const& ids, tensor_ref<Count> const& counts,
    vector_ref<routing_counters> const& counters, vector_ref<Offset> const& offsets = {}) {
  return {ids, offsets, counts, counters};
}

/// Checks the options and the shapes of a count.
template <class Id, class Count, class Offset>
void expect_countable(std::string_view name, count_options const& options,
                      token_counting<Id, Count, Offset> const& counting) {
  expect_enumerator(name, "options.mode", count_mode::add, options.mode);
  index_t const ids = counting.ids.extent(1) * counting.ids.extent(2);
  expect_between(name, "topk_ids", 1, expert_limit, counting.ids.extent(2), "ids per token");
  expect_between(name, "counts", 1, expert_limit, counting.counts.extent(2), "experts");
  expect_extent(name, "counters", counting.ids.extent(0), counting.counters.extent(0),
                "elements (one per layer)");
  if (ids > std::numeric_limits<Count>::max()) {
    fail(name, "topk_ids", "at most 2147483647 ids per layer for int32 counts", text(ids));
  }
}

/// Checks source offsets in host memory; on a device, the kernel handles any values.
template <class Context, class Offset>
void expect_sources(std::string_view name, vector_ref<Offset> const& offsets, index_t tokens) {
  if constexpr (!std::same_as<Context, device_context>) {
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

inline void expect_ranks(std::string_view name, placement_ref const& placement) {
  expect_between(name, "placement.ranks", 1, rank_limit, placement.ranks, "ranks");
}

/// Checks the shapes of the placement of `rank_loads`.
inline void expect_rank_loads(checked_call& call, placement_ref const& placement) {
  auto const& map = placement.physical_to_logical;
  call.expect("placement.physical_to_logical", map, "[layers, slots]");
  call.expect("placement.replica_count", placement.replica_count, "[layers, experts]");
  expect_elements(call, "placement.physical_to_logical", map);
  expect_elements(call, "placement.replica_count", placement.replica_count);
  expect_rank_offsets(call, "placement.rank_offsets", placement.rank_offsets, map.extent(0),
                      placement.ranks);
}

/// Checks the sizes of a window.
inline void expect_window(index_t layers, index_t experts, load_window_options const& options) {
  constexpr char const* name = "load_window";
  expect_between(name, "options.window", 1, 0x7fffffff, options.window, "steps");
  expect_between(name, "layers", 1, 0x7fffffff, layers, "layers");
  expect_between(name, "experts", 1, expert_limit, experts, "experts");
}

/// Checks the decay and the sizes of a decaying sum.
inline void expect_decay(index_t layers, index_t experts, load_decay_options const& options) {
  constexpr char const* name = "load_decay";
  if (!(options.decay > 0 && options.decay <= 1)) {
    fail(name, "options.decay", "a number above 0 and up to 1", text(options.decay));
  }
  expect_between(name, "layers", 1, 0x7fffffff, layers, "layers");
  expect_between(name, "experts", 1, expert_limit, experts, "experts");
}

template <class Context, class Counting>
void enqueue_count_tokens(Context const& context, count_options const& options,
                          Counting const& counting) {
  if (options.mode == count_mode::overwrite) {
    launch(context, counting.counts.extent(0) * counting.counts.extent(1),
           clear_counts_body<Counting>{counting});
  }
  enqueue_count(context, counting);
}

template <class Context, class Count, class Id, class Sum>
void enqueue_scatter(Context const& context, matrix_ref<Count> const& physical_counts,
                     matrix_ref<Id> const& physical_to_logical, matrix_ref<Sum> const& logical,
                     vector_ref<scatter_counters> const& counters) {
  launch(context, physical_counts.extent(0),
         scatter_body<std::remove_const_t<Count>, Sum, std::remove_const_t<Id>>{
             physical_counts, physical_to_logical, logical, counters});
}

template <class Context, class Loads, class Sum>
void enqueue_sum_steps(Context const& context, Loads const& loads, matrix_ref<Sum> out) {
  launch(context, loads.extent(1) * tiles_of(loads.extent(2)),
         sum_steps_body<Loads, Sum>{loads, out});
}

template <class Context, class Loads>
void enqueue_rank_loads(Context const& context, Loads const& loads, placement_ref const& placement,
                        tensor_ref<double> out) {
  auto const& map = placement.physical_to_logical;
  rank_loads_body<Loads> const body{loads,
                                    map,
                                    placement.replica_count,
                                    {placement.rank_offsets, map.extent(1), placement.ranks},
                                    out};
  launch(context, body.problems(), body);
}

/// Memory of `load_window`, which the constructor takes, and its launches. The caller synchronizes
/// after the constructor.
template <class T, class Context>
class load_window_pipeline {
 public:
  using sum_type = load_sum_t<T>;

  load_window_pipeline(Context const& context, index_t layers, index_t experts,
                       load_window_options const& options)
      : context_(context), window_(options.window), layers_(layers), experts_(experts) {
    expect_window(layers, experts, options);
    ring_ = {context_, window_ * layers * experts};
    sums_ = {context_, std::integral<T> ? layers * experts : 0};
    states_ = {context_, layers};
    ring_.zero();
    sums_.zero();
    states_.zero();
  }

  [[nodiscard]] Context const& context() const { return context_; }
  [[nodiscard]] index_t layers() const { return layers_; }
  [[nodiscard]] index_t experts() const { return experts_; }
  [[nodiscard]] index_t window() const { return window_; }

  template <class Loads>
  void enqueue_push(Loads const& loads) const {
    launch(context_, layers_,
           window_push_body<Loads, T>{
               loads, ring(), {sums_.data(), layers_, experts_}, states_.data()});
  }

  void enqueue_sum(matrix_ref<sum_type> out) const {
    if constexpr (std::integral<T>) {
      copy_rows(context_, matrix_ref<sum_type const>(sums_.data(), layers_, experts_), out);
    } else {
      launch(context_, layers_ * tiles_of(experts_),
             window_sum_body<T>{ring(), states_.data(), out});
    }
  }

  void enqueue_steps(tensor_ref<T> out) const {
    launch(context_, window_ * layers_, window_steps_body<T>{ring(), states_.data(), out});
  }

  /// Waits for the context's work so far and returns the number of steps in the window.
  [[nodiscard]] index_t size() const {
    window_state state;
    memory_of<Context>::to_host(context_, states_.data(), &state, sizeof(state));
    return state.size;
  }

 private:
  [[nodiscard]] tensor_ref<T> ring() const { return {ring_.data(), window_, layers_, experts_}; }

  Context context_;
  index_t window_;
  index_t layers_;
  index_t experts_;
  buffer<T, Context> ring_;
  buffer<std::int64_t, Context> sums_;
  buffer<window_state, Context> states_;
};

/// Memory of `load_decay`, which the constructor takes, and its launches. The caller synchronizes
/// after the constructor.
template <class Context>
class load_decay_pipeline {
 public:
  load_decay_pipeline(Context const& context, index_t layers, index_t experts,
                      load_decay_options const& options)
      : context_(context), decay_(options.decay), layers_(layers), experts_(experts) {
    expect_decay(layers, experts, options);
    values_ = {context_, layers * experts};
    enqueue_reset();
  }

  [[nodiscard]] Context const& context() const { return context_; }
  [[nodiscard]] matrix_ref<double> values() const { return {values_.data(), layers_, experts_}; }

  template <class Loads>
  void enqueue_update(Loads const& loads) const {
    decay_body<Loads> const body{loads, decay_, values()};
    if constexpr (runs_on_device<Context>) {
      for_each_index(context_, layers_ * experts_, body);
    } else {
      launch(context_, layers_, body);
    }
  }

  void enqueue_reset() const { values_.zero(); }
  void enqueue_reset(index_t layer) const {
    memory_of<Context>::zero(context_, values_.data() + layer * experts_,
                             static_cast<std::size_t>(experts_) * sizeof(double));
  }

 private:
  Context context_;
  double decay_;
  index_t layers_;
  index_t experts_;
  buffer<double, Context> values_;
};

}}}  // namespace plimsoll::detail
