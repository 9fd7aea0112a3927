// SPDX-License-Identifier: Apache-2.0
/// @file
/// The launches of the load tensor.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/load_tensor.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/load_tensor.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/load_tensor_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>
#if PLIMSOLL_HAS_CUDA_COMPILER
#include <plimsoll/detail/device/for_each_index.cuh>
#include <plimsoll/detail/device/load_tensor.cuh>
#endif

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

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

/// Memory of `load_window`, which the constructor takes, and its launches. The caller synchronises
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

/// Memory of `load_decay`, which the constructor takes, and its launches. The caller synchronises
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
