// SPDX-License-Identifier: Apache-2.0
#include "evaluation.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/metrics.hpp>
#include <plimsoll/views.hpp>

#include "loads.hpp"

namespace examples {
namespace {

/// What one step after the other is measured with.
struct row_measurer {
  plan const& p;
  std::vector<double> rank_loads =
      std::vector<double>(static_cast<std::size_t>(p.layers * p.ranks));
  std::vector<plimsoll::balance> rows =
      std::vector<plimsoll::balance>(static_cast<std::size_t>(p.layers));

  template <class Load>
  void measure(loads_ref<Load> loads) {
    plimsoll::matrix_ref<double> const per_rank(rank_loads.data(), p.layers, p.ranks);
    plimsoll::rank_loads(plimsoll::seq, loads, p.placement(), per_rank);
    plimsoll::measure(plimsoll::seq, per_rank, rows);
  }
};

/// `rows` are the layers of one step after the other.
[[nodiscard]] balance_statistics statistics(std::vector<plimsoll::balance> const& rows,
                                            plan const& p) {
  auto const summary = plimsoll::summarize(plimsoll::seq, rows);
  std::vector<double> values;
  for (auto const& row : rows) {
    values.push_back(row.balancedness);
  }
  auto const fifth = values.begin() + static_cast<std::ptrdiff_t>((values.size() + 19) / 20 - 1);
  std::nth_element(values.begin(), fifth, values.end());
  return {.mean = summary.mean_of_ratios,
          .ratio_of_sums = summary.ratio_of_sums,
          .worst = summary.worst,
          .worst_layer = p.layer_ids[static_cast<std::size_t>(summary.worst_row % p.layers)],
          .worst_step = summary.worst_row / p.layers,
          .fifth_percentile = *fifth};
}

/// One step after the other: the latencies of all together may be too many.
template <class Load>
[[nodiscard]] latency_statistics measure_latency(npy::array<Load> const& loads, plan const& p,
                                                 plimsoll::latency_curves const& curves) {
  plimsoll::latency_table const table(plimsoll::seq, curves, p.ranks);
  index_t const steps = loads.shape[0];
  std::vector<double> of_step(static_cast<std::size_t>(p.layers * p.ranks));
  std::vector<double> values;  // of the layers of one step after the other
  latency_statistics result{.of_layers = std::vector<double>(static_cast<std::size_t>(p.layers)),
                            .of_ranks = std::vector<double>(of_step.size())};
  for (index_t step = 0; step < steps; ++step) {
    auto const* const of_layers = loads.values.data() + p.layers * p.experts * step;
    plimsoll::rank_latencies(plimsoll::seq,
                             plimsoll::tensor_ref<Load const>(of_layers, 1, p.layers, p.experts),
                             p.placement(), table.cost(),
                             plimsoll::tensor_ref<double>(of_step.data(), 1, p.layers, p.ranks));
    for (std::size_t i = 0; i < of_step.size(); ++i) {
      result.of_ranks[i] += of_step[i];
    }
    for (auto rank = of_step.begin(); rank != of_step.end(); rank += p.ranks) {
      values.push_back(*std::max_element(rank, rank + p.ranks));
      result.of_layers[(values.size() - 1) % result.of_layers.size()] += values.back();
    }
  }
  auto const divide_all = [](std::vector<double>& sums, std::size_t n) {
    for (double& sum : sums) {
      sum /= static_cast<double>(n);
    }
  };
  divide_all(result.of_ranks, static_cast<std::size_t>(steps));
  divide_all(result.of_layers, static_cast<std::size_t>(steps));
  result.mean = std::accumulate(result.of_layers.begin(), result.of_layers.end(), 0.0) /
                static_cast<double>(p.layers);
  auto const worst = std::max_element(values.begin(), values.end());
  result.worst = *worst;
  result.worst_layer = p.layer_ids[static_cast<std::size_t>((worst - values.begin()) % p.layers)];
  result.worst_step = (worst - values.begin()) / p.layers;
  auto const at = values.end() - 1 - static_cast<std::ptrdiff_t>(values.size() / 20);
  std::nth_element(values.begin(), at, values.end());
  result.ninety_fifth_percentile = *at;
  return result;
}

template <class Load>
[[nodiscard]] measured_plan measure_plan(npy::array<Load> const& loads,
                                         std::vector<Load> const& total, plan const& p,
                                         std::optional<plimsoll::latency_curves> const& curves) {
  row_measurer measurer{p};
  measurer.measure(loads_ref<Load>(total.data(), p.layers, p.experts));
  measured_plan result;
  result.rank_loads = measurer.rank_loads;
  for (auto const& row : measurer.rows) {
    result.balancedness.push_back(row.balancedness);
  }
  result.summed = statistics(measurer.rows, p);

  index_t const steps = loads.shape[0];
  if (steps > 1) {
    std::vector<plimsoll::balance> all;
    for (index_t step = 0; step < steps; ++step) {
      Load const* const first = loads.values.data() + step * p.layers * p.experts;
      measurer.measure(loads_ref<Load>(first, p.layers, p.experts));
      all.insert(all.end(), measurer.rows.begin(), measurer.rows.end());
    }
    result.per_step = statistics(all, p);
  }
  if (curves) {
    result.latency = measure_latency(loads, p, *curves);
  }
  return result;
}

}  // namespace

comparison compare(std::string name, npy::any_array const& loads, plan const& before,
                   plan const& after, std::optional<plimsoll::latency_curves> const& curves) {
  return std::visit(
      [&](auto const& array) {
        auto const total = total_loads(array);
        return comparison{.loads = std::move(name),
                          .steps = array.shape[0],
                          .expert_loads = {total.begin(), total.end()},
                          .before = measure_plan(array, total, before, curves),
                          .after = measure_plan(array, total, after, curves)};
      },
      loads);
}

}  // namespace examples
