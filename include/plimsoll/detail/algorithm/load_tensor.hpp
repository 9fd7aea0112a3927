// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bodies of the load tensor: sums over steps, conversions between slots, experts and ranks, and
/// one step of the window and of the decaying sum. Token ids are counted elsewhere, since that work
/// is parallel over tokens: detail/host/load_tensor.hpp and detail/device/load_tensor.cuh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/ids.hpp>
#include <plimsoll/detail/common/step_tiles.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/load_tensor_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Type of sums: int64 for integer loads, which is exact; double for floating-point loads, which
/// are added in a fixed order.
template <class T>
using load_sum_t = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;

/// Experts of one problem in sums over steps: each has an accumulator in the first-level cache of a
/// core, or a thread of a device.
inline constexpr index_t sum_tile = 128;

PLIMSOLL_HD constexpr index_t tiles_of(index_t experts) {
  return (experts + sum_tile - 1) / sum_tile;
}

/// Returns row (a, b) of a view from element `first` on.
template <class T>
PLIMSOLL_HD vector_ref<T> row_from(tensor_ref<T> const& view, index_t a, index_t b, index_t first) {
  vector_ref<T> row;
  row.data = &view(a, b, first);
  row.extents[0] = view.extent(2) - first;
  row.strides[0] = view.stride(2);
  return row;
}
template <class F>
PLIMSOLL_HD auto row_from(generated<F, 3> const& view, index_t a, index_t b, index_t first) {
  return [view, a, b, first](index_t i) { return view(a, b, first + i); };
}

template <class Row>
inline constexpr bool is_stored = false;
template <class T>
inline constexpr bool is_stored<vector_ref<T>> = true;

/// Number of rows whose elements a thread of a device reads at once: few threads add many steps, so
/// their time is that of memory.
template <class Row>
inline constexpr index_t rows_in_flight = is_stored<Row> ? 32 : 4;

/// Calls put(i, sum over steps of row_at(step)(i)) for i in [0, n), n <= sum_tile; adds in step
/// order.
///
/// A serial team loops over steps outside and experts inside, in memory order. That is 1.5 times
/// (g++ 12, which swaps some such loops by itself) to 5 times (clang++ 14) as fast as the other
/// loop order, in which the threads of a device read adjacent elements. Both add in the same order.
template <class Sum, class Team, class RowAt, class Put>
PLIMSOLL_HD void sum_rows(Team& team, index_t n, index_t steps, RowAt row_at, Put put) {
  // Only a generated value can be a product that a compiler would fuse with the sum. Stored values
  // need no guard against that, so their loop may use vector instructions.
  using row_type = decltype(row_at(index_t{}));
  auto const plus_element = [](Sum sum, auto element) {
    if constexpr (std::is_integral_v<Sum> || is_stored<row_type>) {
      return sum + static_cast<Sum>(element);
    } else {
      return add(sum, static_cast<Sum>(element));
    }
  };
  if constexpr (Team::is_serial) {
    Sum sums[sum_tile] = {};
    for (index_t step = 0; step < steps; ++step) {
      auto const row = row_at(step);
      if constexpr (is_stored<row_type>) {
        if (row.strides[0] == 1) {  // compilers vectorize only this case
          for (index_t i = 0; i < n; ++i) {
            sums[i] = plus_element(sums[i], row.data[i]);
          }
          continue;
        }
      }
      for (index_t i = 0; i < n; ++i) {
        sums[i] = plus_element(sums[i], row(i));
      }
    }
    for (index_t i = 0; i < n; ++i) {
      put(i, sums[i]);
    }
  } else {
    team.for_each(n, [=](index_t i) {
      constexpr index_t at_once = rows_in_flight<row_type>;
      Sum sum = 0;
      index_t step = 0;
      for (; step + at_once <= steps; step += at_once) {
        for (index_t j = 0; j < at_once; ++j) {
          sum = plus_element(sum, row_at(step + j)(i));
        }
      }
      for (; step < steps; ++step) {
        sum = plus_element(sum, row_at(step)(i));
      }
      put(i, sum);
    });
  }
}

/// Body of `sum_steps`. Problem = layer and tile of experts.
template <class Loads, class Sum>
struct sum_steps_body {
  using device_team = block<static_cast<int>(sum_tile)>;
  static constexpr bool is_streaming = true;

  Loads loads;  ///< [steps, layers, experts]
  matrix_ref<Sum> out;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t problem) const {
    index_t const experts = loads.extent(2);
    index_t const layer = problem / tiles_of(experts);
    index_t const first = problem % tiles_of(experts) * sum_tile;
    sum_rows<Sum>(
        team, minimum{}(experts - first, sum_tile), loads.extent(0),
        [this, layer, first](index_t step) { return row_from(loads, step, layer, first); },
        [this, layer, first](index_t i, Sum sum) { out(layer, first + i) = sum; });
  }
};

/// Problems of `rank_loads`. The steps of one problem share the look-up of the ranks' first slots.
using rank_loads_tiles = step_tiles<8>;

/// Scratch of `rank_loads_body`.
struct rank_loads_arrays {
  scratch_ref memory;
  index_t experts;
  index_t ranks;

  double* share = memory.take(experts);  ///< load of one replica
  index_t* begin = memory.take(ranks);   ///< first slot of each rank
  index_t* end = memory.take(ranks);     ///< behind its last slot
};

/// Body of `rank_loads`. Problem = tile of steps and layer.
template <class Loads>
struct rank_loads_body {
  using device_team = warp;
  static constexpr bool is_streaming = true;

  Loads loads;  ///< [steps, layers, experts]
  matrix_ref<std::int32_t const> physical_to_logical;
  matrix_ref<std::int32_t const> replica_count;
  slot_ranges ranges;
  tensor_ref<double> out;

  [[nodiscard]] PLIMSOLL_HD rank_loads_tiles tiles() const {
    return {loads.extent(0), loads.extent(1)};
  }
  [[nodiscard]] PLIMSOLL_HD index_t problems() const { return tiles().problems(); }
  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<rank_loads_arrays>(loads.extent(2), ranges.ranks);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    index_t const experts = loads.extent(2);
    step_tile const tile = tiles().tile(problem);
    index_t const layer = tile.layer;
    rank_loads_arrays const arrays{memory, experts, ranges.ranks};
    double* const share = arrays.share;
    index_t* const begin = arrays.begin;
    index_t* const end = arrays.end;
    team.for_each(ranges.ranks, [=, this](index_t r) {
      // Offsets and ids of a broken placement must not lead out of bounds.
      begin[r] = maximum{}(ranges.begin(layer, r), index_t{0});
      end[r] = minimum{}(ranges.end(layer, r), ranges.slots);
    });
    for (index_t step = tile.first; step < tile.last; ++step) {
      team.for_each(experts, [=, this](index_t e) {
        share[e] = divide(static_cast<double>(loads(step, layer, e)),
                          static_cast<double>(replica_count(layer, e)));
      });
      team.for_each(ranges.ranks, [=, this](index_t r) {
        double load = 0;
        for (index_t slot = begin[r]; slot < end[r]; ++slot) {
          index_t const e = physical_to_logical(layer, slot);
          if (e >= 0 && e < experts) {
            load = add(load, share[e]);
          }
        }
        out(step, layer, r) = load;
      });
    }
  }
};

/// Scratch of `scatter_body`.
struct scatter_arrays {
  scratch_ref memory;
  index_t slots;
  index_t experts;

  std::int64_t* count = memory.take(slots);
  std::int32_t* expert = memory.take(slots);
  std::int64_t* sum = memory.take(experts);
};

/// Body of `scatter_to_logical`. Problem = layer.
template <class Count, class Sum, class Id>
struct scatter_body {
  using device_team = warp;
  static constexpr bool is_streaming = true;

  matrix_ref<Count const> physical_counts;
  matrix_ref<Id const> physical_to_logical;
  matrix_ref<Sum> logical;
  vector_ref<scatter_counters> counters;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<scatter_arrays>(physical_counts.extent(1), logical.extent(1));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t layer) const {
    index_t const slots = physical_counts.extent(1);
    index_t const experts = logical.extent(1);
    scatter_arrays const arrays{memory, slots, experts};
    std::int64_t* const count = arrays.count;
    std::int32_t* const expert = arrays.expert;
    std::int64_t* const sum = arrays.sum;
    team.for_each(slots, [=, this](index_t slot) {
      count[slot] = static_cast<std::int64_t>(physical_counts(layer, slot));
      expert[slot] = convert_id<std::int32_t>(physical_to_logical(layer, slot));
    });
    team.for_each(experts, [=](index_t e) { sum[e] = 0; });
    // Replicas of one expert may be in any slots, so one thread adds, from fast memory.
    team.single([=] {
      for (index_t slot = 0; slot < slots; ++slot) {
        if (expert[slot] >= 0 && expert[slot] < experts) {
          sum[expert[slot]] += count[slot];
        }
      }
    });
    team.for_each(experts, [=, this](index_t e) { logical(layer, e) = static_cast<Sum>(sum[e]); });
    std::int64_t const scattered = team.sum(experts, [=](index_t e) { return sum[e]; });
    std::int64_t const empty = team.sum(
        slots, [=](index_t slot) { return expert[slot] == -1 ? count[slot] : std::int64_t{0}; });
    std::int64_t const all = team.sum(slots, [=](index_t slot) { return count[slot]; });
    team.single([=, this] {
      counters[layer] = scatter_counters{scattered, empty, all - scattered - empty};
    });
  }
};

/// Position of a layer's next step in the ring of a window, and the number of steps in it.
struct window_state {
  index_t next;
  index_t size;
};

/// Body of `load_window::push`. Problem = layer. Every layer has its own state, so that problems
/// need not wait for each other and a push is one launch.
template <class Loads, class T>
struct window_push_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;

  Loads loads;                    ///< [layers, experts]
  tensor_ref<T> ring;             ///< [window, layers, experts]; zero where nothing was pushed yet
  matrix_ref<std::int64_t> sums;  ///< sums of the ring over steps; integers only
  window_state* states;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t layer) const {
    index_t const window = ring.extent(0);
    window_state const state = states[layer];
    auto const row = row_from(ring, state.next, layer, 0);
    team.for_each(ring.extent(2), [=, this](index_t e) {
      T& stored = row(e);
      T const value = loads(layer, e);
      if constexpr (std::is_integral_v<T>) {
        sums(layer, e) += static_cast<std::int64_t>(value) - static_cast<std::int64_t>(stored);
      }
      stored = value;
    });
    team.single([=, this] {
      states[layer] = window_state{state.next + 1 == window ? 0 : state.next + 1,
                                   state.size == window ? window : state.size + 1};
    });
  }
};

/// Body of `load_window::sum` for floating-point loads. Adds from the oldest step to the newest, so
/// that steps that left the window leave no rounding error. Problem = layer and tile of experts.
template <class T>
struct window_sum_body {
  using device_team = block<static_cast<int>(sum_tile)>;
  static constexpr bool is_streaming = true;

  tensor_ref<T> ring;
  window_state const* states;
  matrix_ref<double> out;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t problem) const {
    index_t const experts = ring.extent(2);
    index_t const window = ring.extent(0);
    index_t const layer = problem / tiles_of(experts);
    index_t const first = problem % tiles_of(experts) * sum_tile;
    window_state const state = states[layer];
    index_t const oldest = state.size == window ? state.next : 0;
    sum_rows<double>(
        team, minimum{}(experts - first, sum_tile), state.size,
        [=, this](index_t age) {
          index_t const step = oldest + age;
          return row_from(ring, step < window ? step : step - window, layer, first);
        },
        [this, layer, first](index_t i, double sum) { out(layer, first + i) = sum; });
  }
};

/// Body of `load_window::steps`. Copies the ring from the oldest step to the newest; rows after the
/// newest have no load. Problem = row of the output * layers + layer.
template <class T>
struct window_steps_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;

  tensor_ref<T> ring;
  window_state const* states;
  tensor_ref<T> out;  ///< `[window, layers, experts]`

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t problem) const {
    index_t const window = ring.extent(0);
    index_t const age = problem / ring.extent(1);
    index_t const layer = problem % ring.extent(1);
    window_state const state = states[layer];
    index_t const step = (state.size == window ? state.next : 0) + age;
    // Rows of the ring that were not pushed yet are zero.
    auto const from = row_from(ring, step < window ? step : step - window, layer, 0);
    team.for_each(ring.extent(2), [=, this](index_t e) { out(age, layer, e) = from(e); });
  }
};

/// Body of `load_decay::update`. Problem = layer; on a device, problem = element.
template <class Loads>
struct decay_body {
  Loads loads;  ///< [layers, experts]
  double decay;
  matrix_ref<double> values;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t layer) const {
    team.for_each(values.extent(1), [this, layer](index_t e) { update(layer, e); });
  }

  /// Updates element i of `[layers * experts]`.
  PLIMSOLL_HD void operator()(index_t i) const {
    update(i / values.extent(1), i % values.extent(1));
  }

  PLIMSOLL_HD void update(index_t layer, index_t e) const {
    double& value = values(layer, e);
    value = mul_then_add(value, decay, static_cast<double>(loads(layer, e)));
  }
};

/// Arguments of `count_tokens` and `count_tokens_by_source`.
template <class Id, class Count, class Offset>
struct token_counting {
  tensor_ref<Id const> ids;               ///< [layers, tokens, k]
  vector_ref<Offset const> offsets;       ///< [sources + 1]; null: one source owns all tokens
  tensor_ref<Count> counts;               ///< [layers, sources, experts]
  vector_ref<routing_counters> counters;  ///< [layers]
};

/// Sets the outputs of a count to zero. Problem = layer and source.
template <class Counting>
struct clear_counts_body {
  using device_team = block<128>;
  static constexpr bool is_streaming = true;

  Counting counting;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch, index_t problem) const {
    index_t const layer = problem / counting.counts.extent(1);
    index_t const source = problem % counting.counts.extent(1);
    team.for_each(counting.counts.extent(2),
                  [=, this](index_t e) { counting.counts(layer, source, e) = 0; });
    if (source == 0) {
      team.single([=, this] { counting.counters[layer] = routing_counters{}; });
    }
  }
};

}}}  // namespace plimsoll::detail
