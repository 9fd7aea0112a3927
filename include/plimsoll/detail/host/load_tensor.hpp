// SPDX-License-Identifier: Apache-2.0
/// @file
/// Counts the ids of tokens on the host. Every block of tokens has its own histograms, which are
/// then added to the output. They are integers, so blocks may be added in any order.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/host/batched.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Histograms of one block of tokens, used in turn: with only one, increments of a popular expert
/// would wait for each other (half the speed at Zipf exponent 2). Bin 0 counts ids of -1, bin 1 + e
/// expert e, the last bin all other ids.
class token_histogram {
 public:
  static constexpr index_t copies = 4;
  static constexpr index_t bins_for(index_t experts) { return experts + 2; }

  /// `bins` holds copies * bins_for(experts) elements.
  token_histogram(std::int64_t* bins, index_t experts) : bins_(bins), size_(bins_for(experts)) {
    std::fill_n(bins_, copies * size_, std::int64_t{0});
  }

  /// Counts the ids of tokens [first, last) of a layer, in memory order.
  template <class Id>
  void count(tensor_ref<Id const> const& ids, index_t layer, index_t first, index_t last) {
    index_t const k = ids.extent(2);
    Id const* const begin = &ids(layer, first, 0);
    if (ids.stride(2) == 1 && ids.stride(1) == k) {
      count(begin, (last - first) * k, 1);
    } else if (ids.stride(1) == 1) {
      for (index_t j = 0; j < k; ++j) {
        count(begin + j * ids.stride(2), last - first, 1);
      }
    } else {
      for (index_t token = first; token < last; ++token) {
        count(&ids(layer, token, 0), k, ids.stride(2));
      }
    }
  }

  /// Returns the count of a bin and sets it to zero.
  std::int64_t take(index_t bin) {
    std::int64_t total = 0;
    for (index_t copy = 0; copy < copies; ++copy) {
      total += bins_[copy * size_ + bin];
      bins_[copy * size_ + bin] = 0;
    }
    return total;
  }

 private:
  template <class Id>
  void count(Id const* ids, index_t n, index_t stride) {
    using bits = std::make_unsigned_t<Id>;
    bits const other = static_cast<bits>(size_ - 1);
    auto const add_to = [=](std::int64_t* bins, Id id) {
      bits const bin = static_cast<bits>(static_cast<bits>(id) + 1);  // -1 wraps to 0
      ++bins[bin < other ? bin : other];
    };
    index_t i = 0;
    for (; i + copies <= n; i += copies) {
      for (index_t copy = 0; copy < copies; ++copy) {
        add_to(bins_ + copy * size_, ids[(i + copy) * stride]);
      }
    }
    for (; i < n; ++i) {
      add_to(bins_, ids[i * stride]);
    }
  }

  std::int64_t* bins_;
  index_t size_;
};

/// Counts the ids of a range of tokens and adds the counts to the outputs.
template <class Counting>
class token_counter {
 public:
  /// `alone`: no other thread adds to the same outputs, so additions need not be atomic.
  token_counter(Counting const& counting, std::int64_t* bins, bool alone)
      : counting_(counting), histogram_(bins, counting.counts.extent(2)), alone_(alone) {}

  /// Counts rows [first, last); row = layer * tokens + token.
  void count(index_t first, index_t last) {
    index_t const tokens = counting_.ids.extent(1);
    while (first < last) {
      index_t const layer = first / tokens;
      index_t const layer_end = std::min(last, (layer + 1) * tokens);
      count_layer(layer, first - layer * tokens, layer_end - layer * tokens);
      first = layer_end;
    }
  }

 private:
  void count_layer(index_t layer, index_t first, index_t last) {
    auto const& offsets = counting_.offsets;
    for (index_t source = 0; source < counting_.counts.extent(1); ++source) {
      bool const all = offsets.data == nullptr;
      index_t const begin = all ? first : std::max<index_t>(first, offsets[source]);
      index_t const end = all ? last : std::min<index_t>(last, offsets[source + 1]);
      if (begin < end) {
        histogram_.count(counting_.ids, layer, begin, end);
        flush(layer, source, (end - begin) * counting_.ids.extent(2));
      }
    }
  }

  void flush(index_t layer, index_t source, index_t ids) {
    index_t const experts = counting_.counts.extent(2);
    for (index_t e = 0; e < experts; ++e) {
      add(counting_.counts(layer, source, e), histogram_.take(1 + e));
    }
    auto& counters = counting_.counters[layer];
    std::int64_t const unrouted = histogram_.take(0);
    std::int64_t const out_of_range = histogram_.take(1 + experts);
    add(counters.routed, ids - unrouted - out_of_range);
    add(counters.unrouted, unrouted);
    add(counters.out_of_range, out_of_range);
  }

  template <class T>
  void add(T& target, std::int64_t value) const {
    if (alone_) {
      target = static_cast<T>(target + value);
    } else if (value != 0) {
      std::atomic_ref<T>(target).fetch_add(static_cast<T>(value), std::memory_order_relaxed);
    }
  }

  Counting const& counting_;
  token_histogram histogram_;
  bool alone_;
};

/// Adds the ids of `counting` to its outputs.
template <class Executor, class Counting>
void enqueue_count(host_context<Executor> const& context, Counting const& counting) {
  constexpr index_t ids_per_unit = 4096;  // below this a block costs more than it saves
  index_t const rows = counting.ids.extent(0) * counting.ids.extent(1);
  index_t const unit = std::max<index_t>(1, ids_per_unit / counting.ids.extent(2));
  index_t const units = (rows + unit - 1) / unit;
  for_blocks(context, units, [&](index_t first, index_t last) {
    buffer<std::int64_t, host_context<Executor>> const bins(
        context, token_histogram::copies * token_histogram::bins_for(counting.counts.extent(2)));
    bool const alone = first == 0 && last == units;
    token_counter<Counting>(counting, bins.data(), alone)
        .count(first * unit, std::min(last * unit, rows));
  });
}

}}}  // namespace plimsoll::detail
