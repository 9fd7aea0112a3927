// SPDX-License-Identifier: Apache-2.0
// Token Drop with the standard library's selection, for comparison: std::nth_element finds the k
// best of every row and the best of every column, as the paper's algorithm does with topk.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace plimsoll_bench::peers {

class token_drop_nth_element {
 public:
  token_drop_nth_element(std::size_t tokens, std::size_t experts, std::size_t k)
      : tokens_(tokens), experts_(experts), k_(k), row_(experts), columns_(experts) {}

  /// Selects the k best experts of every token, in any order.
  void route(float const* scores, std::int32_t* ids, float* weights) {
    for (std::size_t t = 0; t < tokens_; ++t) {
      for (std::size_t e = 0; e < experts_; ++e) {
        row_[e] = {scores[t * experts_ + e], static_cast<std::int32_t>(e)};
      }
      std::nth_element(row_.begin(), row_.begin() + static_cast<std::ptrdiff_t>(k_) - 1, row_.end(),
                       std::greater<>{});
      for (std::size_t j = 0; j < k_; ++j) {
        weights[t * k_ + j] = row_[j].first;
        ids[t * k_ + j] = row_[j].second;
      }
    }
  }

  /// Drops all but the best `capacity` pairs of every column: replaces their ids by -1.
  void mask(std::int32_t* ids, float const* weights, std::size_t capacity) {
    for (auto& column : columns_) {
      column.clear();
    }
    for (std::size_t i = 0; i < tokens_ * k_; ++i) {
      columns_[static_cast<std::size_t>(ids[i])].emplace_back(weights[i],
                                                              static_cast<std::int32_t>(i));
    }
    for (auto& column : columns_) {
      if (column.size() > capacity) {
        std::nth_element(column.begin(), column.begin() + static_cast<std::ptrdiff_t>(capacity),
                         column.end(), std::greater<>{});
        for (std::size_t i = capacity; i < column.size(); ++i) {
          ids[column[i].second] = -1;
        }
      }
    }
  }

 private:
  std::size_t tokens_;
  std::size_t experts_;
  std::size_t k_;
  std::vector<std::pair<float, std::int32_t>> row_;
  std::vector<std::vector<std::pair<float, std::int32_t>>> columns_;
};

}  // namespace plimsoll_bench::peers
