// SPDX-License-Identifier: Apache-2.0
// The linear program of minmax_lp for the general solver CLP. The model is built and solved once; a
// step changes the right-hand sides and starts from the last basis.
#pragma once

#include <coin/ClpSimplex.hpp>
#include <coin/CoinPackedMatrix.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace plimsoll_bench::peers {

class clp_split {
 public:
  /// The slots of `map` are divided evenly over the ranks.
  clp_split(std::vector<std::int32_t> const& map, std::vector<std::int32_t> const& loads,
            std::size_t ranks)
      : ranks_(static_cast<int>(ranks)), experts_(static_cast<int>(loads.size())) {
    std::vector<std::vector<int>> targets(loads.size());
    for (std::size_t slot = 0; slot < map.size(); ++slot) {
      auto const r = static_cast<int>(slot * ranks / map.size());
      auto& of = targets[static_cast<std::size_t>(map[slot])];
      if (of.empty() || of.back() != r) {
        of.push_back(r);
      }
    }
    // Rows: the load of each expert, then the bound of each rank's load by the peak, column 0.
    std::vector<int> row;
    std::vector<int> column;
    std::vector<double> element;
    int columns = 1;
    auto const add = [&](int at_row, int at_column, double value) {
      row.push_back(at_row);
      column.push_back(at_column);
      element.push_back(value);
    };
    for (int r = 0; r < ranks_; ++r) {
      add(experts_ + r, 0, -1);
    }
    for (int e = 0; e < experts_; ++e) {
      for (int const r : targets[static_cast<std::size_t>(e)]) {
        add(e, columns, 1);
        add(experts_ + r, columns, 1);
        ++columns;
      }
    }
    CoinPackedMatrix const matrix(true, row.data(), column.data(), element.data(),
                                  static_cast<int>(element.size()));
    std::vector<double> const lower(static_cast<std::size_t>(columns), 0.0);
    std::vector<double> cost(static_cast<std::size_t>(columns), 0.0);
    cost[0] = 1;
    std::vector<double> row_lower(static_cast<std::size_t>(experts_ + ranks_), -COIN_DBL_MAX);
    std::vector<double> row_upper(static_cast<std::size_t>(experts_ + ranks_), 0.0);
    model_.setLogLevel(0);
    model_.loadProblem(matrix, lower.data(), nullptr, cost.data(), row_lower.data(),
                       row_upper.data());
    peak(loads);
  }

  double peak(std::vector<std::int32_t> const& loads) {
    for (int e = 0; e < experts_; ++e) {
      double const load = loads[static_cast<std::size_t>(e)];
      model_.setRowBounds(e, load, load);
    }
    model_.dual();
    return model_.objectiveValue();
  }

 private:
  int ranks_;
  int experts_;
  ClpSimplex model_;
};

}  // namespace plimsoll_bench::peers
