// SPDX-License-Identifier: Apache-2.0
/// @file
/// The split of LPLB (DeepSeek, SGLang): the result of five steps of primal affine scaling in
/// single precision if it passes an acceptance test, and the even split otherwise.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace examples {

/// Linear program of one layer. Its rows are an equation for every expert with several copies, then
/// one for every rank. Its columns are those copies, a slack for every rank, the peak, and a helper
/// column that makes the vector of ones feasible.
class affine_scaling {
 public:
  /// `[slots]`, -1 for an empty slot, and `[ranks + 1]`.
  affine_scaling(std::span<std::int32_t const> expert_of,
                 std::span<std::int32_t const> rank_offsets, std::size_t experts)
      : expert_of_(expert_of.begin(), expert_of.end()),
        rank_of_(expert_of.size(), 0),
        copies_(experts, 0),
        row_(experts, 0),
        ranks_(rank_offsets.size() - 1) {
    for (std::size_t r = 0; r < ranks_; ++r) {
      for (std::int32_t slot = rank_offsets[r]; slot < rank_offsets[r + 1]; ++slot) {
        rank_of_[at(slot)] = r;
      }
    }
    for (std::int32_t const e : expert_of_) {
      copies_[at(std::max(e, 0))] += e >= 0 ? 1 : 0;
    }
    for (std::size_t e = 0; e < experts; ++e) {
      row_[e] = shared_;
      shared_ += copies_[e] > 1 ? 1 : 0;
    }
    for (std::size_t slot = 0; slot < expert_of_.size(); ++slot) {
      if (is_shared(slot)) {
        columns_.push_back({{row_[expert(slot)], 1.0F}, {shared_ + rank_of_[slot], 1.0F}});
      }
    }
    column peak;
    for (std::size_t r = 0; r < ranks_; ++r) {
      columns_.push_back({{shared_ + r, 1.0F}});
      peak.emplace_back(shared_ + r, -1.0F);
    }
    columns_.push_back(peak);
  }

  [[nodiscard]] std::size_t rows() const { return shared_ + ranks_; }

  struct result {
    bool accepted;
    std::vector<double> shares;  ///< [slots]: the share of its expert's load that a slot gets
  };

  [[nodiscard]] result solve(std::span<std::int64_t const> loads) const {
    std::vector<float> x(columns_.size() + 1, 1.0F);
    result out{take_steps(right_side(loads), x), std::vector<double>(expert_of_.size(), 0.0)};
    std::vector<double> sums(copies_.size(), 0.0);
    auto const for_shared = [&](auto visit) {
      std::size_t copy = 0;
      for (std::size_t slot = 0; slot < expert_of_.size(); ++slot) {
        if (is_shared(slot)) {
          visit(slot, static_cast<double>(x[copy++]));
        }
      }
    };
    for_shared([&](std::size_t slot, double part) { sums[expert(slot)] += part; });
    for (std::size_t slot = 0; slot < expert_of_.size(); ++slot) {
      out.shares[slot] = expert_of_[slot] < 0 ? 0.0 : 1.0 / copies_[expert(slot)];
    }
    for_shared([&](std::size_t slot, double part) {
      if (out.accepted && sums[expert(slot)] > 0) {
        out.shares[slot] = part / sums[expert(slot)];
      }
    });
    return out;
  }

 private:
  using column = std::vector<std::pair<std::size_t, float>>;  ///< increasing rows, and values

  static std::size_t at(std::int32_t i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] std::size_t expert(std::size_t slot) const { return at(expert_of_[slot]); }
  [[nodiscard]] bool is_shared(std::size_t slot) const {
    return expert_of_[slot] >= 0 && copies_[expert(slot)] > 1;
  }

  /// Returns the right-hand side, in fractions of the layer's load.
  [[nodiscard]] std::vector<float> right_side(std::span<std::int64_t const> loads) const {
    std::int64_t total = 0;
    for (std::int64_t const load : loads) {
      total += load;
    }
    auto const part = [&](std::int64_t load) {
      return static_cast<float>(load) / static_cast<float>(std::max<std::int64_t>(total, 1));
    };
    std::vector<float> b(rows(), 0.0F);
    for (std::size_t slot = 0; slot < expert_of_.size(); ++slot) {
      if (is_shared(slot)) {
        b[row_[expert(slot)]] = part(loads[expert(slot)]);
      } else if (expert_of_[slot] >= 0) {
        b[shared_ + rank_of_[slot]] -= part(loads[expert(slot)]);
      }
    }
    return b;
  }

  static std::vector<float> product(std::vector<column> const& a, std::vector<float> const& x,
                                    std::size_t rows) {
    std::vector<float> sum(rows, 0.0F);
    for (std::size_t j = 0; j < a.size(); ++j) {
      for (auto const& [i, value] : a[j]) {
        sum[i] += value * x[j];
      }
    }
    return sum;
  }

  /// Takes the steps and tells whether their result passes the acceptance test.
  [[nodiscard]] bool take_steps(std::vector<float> const& b, std::vector<float>& x) const {
    std::size_t const n = rows();
    std::vector<column> a = columns_;
    std::vector<float> const ones = product(a, x, n);
    column helper;
    for (std::size_t i = 0; i < n; ++i) {
      helper.emplace_back(i, b[i] - ones[i]);
    }
    a.push_back(helper);
    std::vector<float> cost(a.size(), 0.0F);
    cost[a.size() - 2] = 1.0F;
    cost.back() = 1000.0F;

    float largest = 0;
    std::vector<float> d(a.size());
    for (int step = 0; step < 5; ++step) {
      std::vector<float> weighted(a.size());
      std::vector<float> normal(n * n, 0.0F);
      for (std::size_t j = 0; j < a.size(); ++j) {
        float const square = x[j] * x[j];
        weighted[j] = square * cost[j];
        for (auto p = a[j].begin(); p != a[j].end(); ++p) {
          float const left = square * p->second;
          for (auto q = p; q != a[j].end(); ++q) {
            normal[p->first * n + q->first] += left * q->second;
          }
        }
      }
      std::vector<float> dual = product(a, weighted, n);
      solve_normal(normal, dual);
      for (std::size_t j = 0; j < a.size(); ++j) {
        float reduced = cost[j];
        for (auto const& [i, value] : a[j]) {
          reduced -= value * dual[i];
        }
        d[j] = x[j] * reduced;
      }
      largest = *std::max_element(d.begin(), d.end());
      float const length = largest > 1e-9F ? 0.999F / largest : 1.0F;
      for (std::size_t j = 0; j < a.size(); ++j) {
        x[j] *= 1.0F - length * d[j];
      }
    }
    std::vector<float> const reached = product(a, x, n);
    float residual = 0;
    for (std::size_t i = 0; i < n; ++i) {
      residual = std::max(residual, std::fabs(reached[i] - b[i]));
    }
    return largest < 0.1F && x.back() >= 0.0F && x.back() < 1e-4F && residual < 0.05F;
  }

  /// Solves by Cholesky factorization of the upper half, with pivots of at least 1e-12, then by
  /// both triangular systems.
  static void solve_normal(std::vector<float>& m, std::vector<float>& v) {
    std::size_t const n = v.size();
    for (std::size_t k = 0; k < n; ++k) {
      float* const pivot = m.data() + k * n;
      float const root = std::sqrt(std::max(pivot[k], 1e-12F));
      pivot[k] = root;
      for (std::size_t j = k + 1; j < n; ++j) {
        pivot[j] /= root;
      }
      for (std::size_t i = k + 1; i < n; ++i) {
        if (float const factor = pivot[i]; factor != 0.0F) {
          float* const row = m.data() + i * n;
          for (std::size_t j = i; j < n; ++j) {
            row[j] -= factor * pivot[j];
          }
        }
      }
      v[k] /= root;
      for (std::size_t i = k + 1; i < n; ++i) {
        v[i] -= pivot[i] * v[k];
      }
    }
    for (std::size_t k = n; k-- > 0;) {
      for (std::size_t j = k + 1; j < n; ++j) {
        v[k] -= m[k * n + j] * v[j];
      }
      v[k] /= m[k * n + k];
    }
  }

  std::vector<std::int32_t> expert_of_;
  std::vector<std::size_t> rank_of_;  ///< [slots]
  std::vector<int> copies_;           ///< [experts]
  std::vector<std::size_t> row_;      ///< [experts]: row of an expert with several copies
  std::size_t ranks_;
  std::size_t shared_ = 0;
  std::vector<column> columns_;  ///< all columns except the helper
};

}  // namespace examples
