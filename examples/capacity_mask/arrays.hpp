// SPDX-License-Identifier: Apache-2.0
// The arrays of a step, and inputs in place of a model's, the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <plimsoll/random.hpp>
#include <vector>

#include "command_line.hpp"
#include "layer.hpp"

namespace capacity_mask_example {

/// Arrays of a step in memory of `Allocator`, which the host can read and write.
template <template <class> class Allocator>
class step_arrays {
 public:
  explicit step_arrays(options const& o) : o_(o) {
    for (int rank = 0; rank < o.ranks; ++rank) {
      // Plimsoll's default: experts are spread over ranks evenly and in order.
      int const begin = rank * o.experts / o.ranks;
      int const end = (rank + 1) * o.experts / o.ranks;
      for (int i = 0; i < most_experts(o); ++i) {
        local_experts_.push_back(begin + i < end ? begin + i : -1);
      }
    }
    for (int token = 0; token < o.tokens; ++token) {
      ranks_.push_back(static_cast<std::int32_t>(token * std::int64_t{o.ranks} / o.tokens));
      priorities_.push_back(token % 2);  // images: 0
    }
  }

  [[nodiscard]] std::int32_t const* local_experts() const { return local_experts_.data(); }

  void fill(int step) {
    auto const draw = [&](int stream, std::size_t index) {
      return plimsoll::random::uniform(static_cast<std::uint64_t>(o_.seed),
                                       static_cast<std::uint64_t>(stream), index);
    };
    for (std::size_t i = 0; i < logits_.size(); ++i) {
      // Some experts are popular with all tokens, some only in this step.
      std::size_t const expert = i % static_cast<std::size_t>(o_.experts);
      double const popularity = draw(0, expert) + draw(3 * step, expert) / 2;
      logits_[i] = static_cast<float>(popularity + 2 * draw(3 * step + 1, i));
    }
    for (std::size_t i = 0; i < x_.size(); ++i) {
      x_[i] = static_cast<float>(draw(3 * step + 2, i) - 0.5);
    }
  }

  [[nodiscard]] step_ref view() {
    index_t const n = o_.tokens;
    index_t const w = width(o_);
    return {.logits = {logits_.data(), n, o_.experts},
            .x = {x_.data(), n, hidden},
            .batch = {.homes = {o_.expanded ? ranks_.data() : nullptr, n},
                      .priorities = {o_.priority ? priorities_.data() : nullptr, n}},
            .kept = {.ids = {ids_.data(), n, w},
                     .weights = {weights_.data(), n, w},
                     .positions = {positions_.data(), n, w},
                     .counts = {counts_.data(), o_.experts},
                     .offsets = {offsets_.data(), o_.experts + 1},
                     .report = {report_.data(), 1}},
            .rows = {rows_.data(), n * w, hidden},
            .y = {y_.data(), n, hidden}};
  }

 private:
  template <class T>
  using array = std::vector<T, Allocator<T>>;

  options o_;
  std::size_t tokens_ = static_cast<std::size_t>(o_.tokens);
  std::size_t experts_ = static_cast<std::size_t>(o_.experts);
  std::size_t pairs_ = tokens_ * static_cast<std::size_t>(width(o_));
  array<std::int32_t> local_experts_, ranks_, priorities_;
  array<float> logits_ = array<float>(tokens_ * experts_);
  array<float> x_ = array<float>(tokens_ * hidden);
  array<std::int32_t> ids_ = array<std::int32_t>(pairs_);
  array<float> weights_ = array<float>(pairs_);
  array<std::int32_t> positions_ = array<std::int32_t>(pairs_);
  array<std::int32_t> counts_ = array<std::int32_t>(experts_);
  array<std::int32_t> offsets_ = array<std::int32_t>(experts_ + 1);
  array<plimsoll::capacity_report> report_ = array<plimsoll::capacity_report>(1);
  array<float> rows_ = array<float>(pairs_ * hidden);
  array<float> y_ = array<float>(tokens_ * hidden);
};

}  // namespace capacity_mask_example
