// SPDX-License-Identifier: Apache-2.0
#include "evaluation.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/metrics.hpp>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/views.hpp>

#include "ranked_values.hpp"

namespace examples {
namespace {

/// Computes the rank loads of one step at a time, and their balance.
struct row_measurer {
  plan const& p;
  plimsoll::array<double, plimsoll::seq_policy, 2> rank_loads{plimsoll::seq, p.layers, p.ranks};
  std::vector<plimsoll::balance_stats> rows =
      std::vector<plimsoll::balance_stats>(static_cast<std::size_t>(p.layers));

  template <class Load>
  void measure(loads_ref<Load> loads) {
    plimsoll::rank_loads(plimsoll::seq, loads, p.placement(), rank_loads);
    plimsoll::measure(plimsoll::seq, rank_loads, rows);
  }
};

/// Accumulates the balancedness of layers over any number of steps; skips layers without load.
class balance_sums {
 public:
  balance_sums(plan const& p, std::string const& name) : plan_(p), values_(name) {
    result_.worst_layer = p.layer_ids.front();
  }

  void add(index_t step, std::vector<plimsoll::balance_stats> const& layers) {
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      plimsoll::balance_stats const& row = layers[layer];
      if (row.peak == 0) {
        continue;
      }
      if (values_.count() == 0 || row.balancedness < result_.worst) {
        result_.worst = row.balancedness;
        result_.worst_layer = plan_.layer_ids[layer];
        result_.worst_step = step;
      }
      ratios_ += row.balancedness;
      means_ += row.mean;
      peaks_ += row.peak;
      values_.add(row.balancedness);
    }
  }

  /// Returns the statistics; all are 1 if there was no load.
  [[nodiscard]] balance_statistics take() {
    if (std::uint64_t const count = values_.count(); count > 0) {
      result_.mean = ratios_ / static_cast<double>(count);
      result_.ratio_of_sums = means_ / peaks_;
      result_.peaks = peaks_;
      result_.fifth_percentile = values_.at((count + 19) / 20 - 1);
    }
    return result_;
  }

 private:
  plan const& plan_;
  ranked_values values_;
  balance_statistics result_;
  double ratios_ = 0;
  double means_ = 0;
  double peaks_ = 0;
};

/// Accumulates the balancedness of steps that are split optimally; skips layers without load.
class optimal_sums {
 public:
  optimal_sums(plan const& p, std::string const& name)
      : split_(plimsoll::seq, p.placement(), {.tolerance = 1e-6}),
        shares_(plimsoll::seq, p.layers, p.slots),
        slot_loads_(static_cast<std::size_t>(p.layers * p.slots)),
        sums_(p, name) {}

  /// Adds a step. `layers` has the mean loads; layers with a `peak` of 0 have no load.
  template <class Load>
  void add(index_t step, loads_ref<Load> loads, std::vector<plimsoll::balance_stats> layers) {
    split_.solve(loads, shares_);
    for (std::size_t i = 0; i < slot_loads_.size(); ++i) {
      slot_loads_[i] += shares_.data_handle()[i];
    }
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      plimsoll::balance_stats& row = layers[layer];
      if (row.peak > 0) {
        row.peak = split_.certificates()[static_cast<index_t>(layer)].value;
        row.balancedness = row.mean / row.peak;
      }
    }
    sums_.add(step, layers);
  }
  [[nodiscard]] balance_statistics take() { return sums_.take(); }
  /// Returns the loads of slots, summed over the steps: `[layers, slots]`.
  [[nodiscard]] std::vector<double> const& slot_loads() const { return slot_loads_; }

 private:
  plimsoll::minmax_lp<plimsoll::seq_policy> split_;
  plimsoll::array<double, plimsoll::seq_policy, 2> shares_;  ///< [layers, slots]
  std::vector<double> slot_loads_;
  balance_sums sums_;
};

/// Accumulates the latencies of layers over any number of steps; skips layers without load.
class latency_sums {
 public:
  latency_sums(plan const& p, std::string const& name, plimsoll::latency_curves const& curves)
      : plan_(p),
        table_(plimsoll::seq, curves, p.ranks),
        of_step_(plimsoll::seq, 1, p.layers, p.ranks),
        values_(name) {
    result_.worst_layer = p.layer_ids.front();
    result_.of_layers.resize(static_cast<std::size_t>(p.layers));
    result_.of_ranks.resize(static_cast<std::size_t>(p.layers * p.ranks));
  }

  /// Adds a step; layers with a `peak` of 0 have no load.
  template <class Load>
  void add(index_t step, loads_ref<Load> loads,
           std::vector<plimsoll::balance_stats> const& layers) {
    plan const& p = plan_;
    plimsoll::array_ref const one_step(loads.data, 1, p.layers, p.experts);
    plimsoll::rank_latencies(plimsoll::seq, one_step, p.placement(), table_.cost(), of_step_);
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
      if (layers[layer].peak == 0) {
        continue;
      }
      auto const ranks = static_cast<std::size_t>(p.ranks);
      double const* const of_ranks = of_step_.data_handle() + layer * ranks;
      double const last = *std::max_element(of_ranks, of_ranks + ranks);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        result_.of_ranks[layer * ranks + rank] += of_ranks[rank];
      }
      result_.of_layers[layer] += last;
      result_.mean += last;
      if (values_.count() == 0 || last > result_.worst) {
        result_.worst = last;
        result_.worst_layer = p.layer_ids[layer];
        result_.worst_step = step;
      }
      values_.add(last);
    }
  }

  /// Returns the statistics; `filled` is the number of steps with load of every layer.
  [[nodiscard]] latency_statistics take(std::vector<index_t> const& filled) {
    auto const ranks = static_cast<std::size_t>(plan_.ranks);
    for (std::size_t layer = 0; layer < filled.size(); ++layer) {
      auto const steps = static_cast<double>(std::max<index_t>(1, filled[layer]));
      result_.of_layers[layer] /= steps;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        result_.of_ranks[layer * ranks + rank] /= steps;
      }
    }
    if (std::uint64_t const count = values_.count(); count > 0) {
      result_.mean /= static_cast<double>(count);
      result_.ninety_fifth_percentile = values_.at(count - 1 - count / 20);
    }
    return std::move(result_);
  }

 private:
  plan const& plan_;
  plimsoll::latency_table<plimsoll::seq_policy> const table_;
  plimsoll::array<double, plimsoll::seq_policy, 3> of_step_;  ///< [1, layers, ranks]
  ranked_values values_;
  latency_statistics result_;
};

/// Returns the loads of slots, `[layers, slots]`, if replicas of an expert share its load equally.
template <class Load>
[[nodiscard]] std::vector<double> even_slot_loads(plan const& p, npy::array<Load> const& total) {
  std::vector<double> loads(static_cast<std::size_t>(p.layers * p.slots));
  for (std::size_t i = 0; i < loads.size(); ++i) {
    if (auto const expert = p.physical_to_logical[i]; expert >= 0) {
      auto const at = i / static_cast<std::size_t>(p.slots) * static_cast<std::size_t>(p.experts) +
                      static_cast<std::size_t>(expert);
      loads[i] = static_cast<double>(total.values[at]) / p.replica_count[at];
    }
  }
  return loads;
}

/// Returns the traffic of a mean step, from loads of slots that are summed over `steps`.
[[nodiscard]] plan_traffic mean_traffic(plan const& p, std::vector<double> slot_loads,
                                        index_t steps, token_sources const& sources) {
  for (double& load : slot_loads) {
    load /= static_cast<double>(steps);
  }
  return traffic_of(p, slot_loads, sources);
}

/// Measures one of the two plans.
class plan_measurer {
 public:
  plan_measurer(plan const& p, std::string const& name,
                std::optional<plimsoll::latency_curves> const& curves)
      : name_(name), rows_{p}, per_step_(p, name), optimal_(p, name) {
    if (curves) {
      latency_.emplace(p, name, *curves);
    }
  }

  template <class Load>
  void add(index_t step, loads_ref<Load> loads) {
    rows_.measure(loads);
    per_step_.add(step, rows_.rows);
    optimal_.add(step, loads, rows_.rows);
    if (latency_) {
      latency_->add(step, loads, rows_.rows);
    }
  }

  template <class Load>
  [[nodiscard]] measured_plan take(npy::array<Load> const& total, load_totals const& totals,
                                   index_t steps, token_sources const& sources) {
    rows_.measure(plimsoll::array_ref(total.values, total.shape[0], total.shape[1]));
    balance_sums summed(rows_.p, name_);
    summed.add(0, rows_.rows);
    measured_plan result;
    result.rank_loads = rows_.rank_loads.to_host();
    result.summed = summed.take();
    for (auto const& row : rows_.rows) {
      result.balancedness.push_back(row.balancedness);
    }
    if (steps > 1) {
      result.per_step = per_step_.take();
    }
    result.optimal = optimal_.take();
    index_t const filled_steps = std::max<index_t>(1, steps - totals.empty_steps);
    result.traffic = mean_traffic(rows_.p, even_slot_loads(rows_.p, total), filled_steps, sources);
    result.optimal_traffic = mean_traffic(rows_.p, optimal_.slot_loads(), filled_steps, sources);
    if (latency_) {
      result.latency = latency_->take(totals.filled);
    }
    return result;
  }

 private:
  std::string const& name_;
  row_measurer rows_;
  balance_sums per_step_;
  optimal_sums optimal_;
  std::optional<latency_sums> latency_;
};

}  // namespace

comparison compare(load_file const& file, load_totals const& totals, plan const& before,
                   plan const& after, std::optional<plimsoll::latency_curves> const& curves,
                   reading_progress const& progress, token_sources const& sources) {
  return file.with_type([&]<class Load>(Load) {
    plan_measurer first(before, file.name(), curves);
    plan_measurer second(after, file.name(), curves);
    file.for_each_step<Load>(
        [&](index_t step, loads_ref<Load> loads) {
          auto const* const end = loads.data + loads.extent(0) * loads.extent(1);
          if (std::any_of(loads.data, end, [](Load load) { return load != 0; })) {
            first.add(step, loads);
            second.add(step, loads);
          }
        },
        progress);
    auto const& total = std::get<npy::array<Load>>(totals.loads);
    return comparison{.loads = file.name(),
                      .steps = file.steps(),
                      .empty_steps = totals.empty_steps,
                      .expert_loads = {total.values.begin(), total.values.end()},
                      .before = first.take(total, totals, file.steps(), sources),
                      .after = second.take(total, totals, file.steps(), sources)};
  });
}

}  // namespace examples
