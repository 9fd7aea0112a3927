// SPDX-License-Identifier: Apache-2.0
// move_budgets PAGE    prints how much of the gain of a new plan plan_within keeps with fewer
// moves, and fails if a larger budget is ever worse
// The loads are measured, so it needs the files under PLIMSOLL_TRACE_DIR; without it the rows are
// copied from PAGE.
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include <plimsoll/migration.hpp>
#include <plimsoll/minmax_lp.hpp>

#include "../domain_changes.hpp"

namespace {

using examples::domain_change;
using plimsoll::index_t;
using plimsoll::migration_report;
using plimsoll::split_rule;

constexpr std::int64_t percents[] = {0, 5, 10, 20, 30, 50, 100};

/// Peaks and moves of all layers of all domain changes under one budget.
struct row {
  double moves = 0;
  double balancedness = 0;
  double peaks = 0;  ///< in mean loads of a rank
};

/// Returns the smallest peaks of the new plan under a split.
std::vector<double> peaks_of(domain_change const& c, split_rule split) {
  std::vector<double> peaks;
  if (split == split_rule::even) {
    for (plimsoll::certificate const& one : c.to.certificates) {
      peaks.push_back(one.value);
    }
    return peaks;
  }
  plimsoll::minmax_lp lp(plimsoll::seq, c.to.ref(), {.tolerance = 0});
  auto parts = plimsoll::zeros<double>(plimsoll::seq, c.layers, c.slots());
  lp.solve(c.loads(), parts);
  for (index_t layer = 0; layer < c.layers; ++layer) {
    peaks.push_back(lp.certificates()[layer].value);
  }
  return peaks;
}

/// Fails if a layer is worse with a larger budget, or has more moves than its budget.
void check_layers(domain_change const& c, split_rule split,
                  std::vector<std::int64_t> const& moves) {
  std::vector<migration_report> last;
  for (std::int64_t const budget : moves) {
    auto const plan = plimsoll::plan_within(plimsoll::seq, c.loads(), c.from.ref(), c.to.ref(), {},
                                            {.split = split, .max_moves_per_layer = budget});
    for (std::size_t layer = 0; layer < plan.reports.size(); ++layer) {
      migration_report const& now = plan.reports[layer];
      if (now.changes.moves > budget || now.peak.value > now.peak_before ||
          (!last.empty() && now.peak.value > last[layer].peak.value)) {
        throw std::runtime_error("layer " + std::to_string(layer) + ": " + std::to_string(budget) +
                                 " moves are worse than fewer");
      }
    }
    last = plan.reports;
  }
}

void print(examples::npy::array<std::int64_t> const& recorded, index_t ranks) {
  auto const all = examples::domain_changes(recorded, ranks, examples::layer_stride);
  for (split_rule const split : {split_rule::even, split_rule::optimal}) {
    row rows[std::size(percents)];
    double fresh = 0;
    double layers = 0;
    for (domain_change const& c : all) {
      auto const aligned = plimsoll::align(plimsoll::seq, c.from.ref(), c.to.ref());
      std::int64_t needed = 0;
      for (plimsoll::slot_changes const& one : aligned.alignment.layers) {
        needed += one.moves;
      }
      std::vector<double> means;
      for (index_t layer = 0; layer < c.layers; ++layer) {
        std::int64_t sum = 0;
        for (index_t e = 0; e < c.experts; ++e) {
          sum += c.loads()(layer, e);
        }
        means.push_back(static_cast<double>(sum) / static_cast<double>(ranks));
      }
      std::vector<double> const fresh_peaks = peaks_of(c, split);
      for (std::size_t layer = 0; layer < means.size(); ++layer) {
        fresh += fresh_peaks[layer] / means[layer];
      }
      layers += static_cast<double>(c.layers);
      std::vector<std::int64_t> of_layer;
      double last = 0;
      for (std::size_t i = 0; i < std::size(percents); ++i) {
        auto const plan =
            plimsoll::plan_within(plimsoll::seq, c.loads(), c.from.ref(), c.to.ref(), {},
                                  {.split = split, .max_moves = needed * percents[i] / 100});
        of_layer.push_back(needed * percents[i] / 100 / c.layers);
        double peaks = 0;
        for (std::size_t layer = 0; layer < means.size(); ++layer) {
          migration_report const& now = plan.reports[layer];
          rows[i].moves += static_cast<double>(now.changes.moves);
          rows[i].balancedness += means[layer] / now.peak.value;
          rows[i].peaks += now.peak.value / means[layer];
          peaks += now.peak.value;
        }
        if (i > 0 && peaks > last) {
          throw std::runtime_error("a larger budget for all layers is worse");
        }
        last = peaks;
      }
      check_layers(c, split, of_layer);
    }
    for (std::size_t i = 0; i < std::size(percents); ++i) {
      double const slots = layers * static_cast<double>(all[0].slots());
      std::cout << "| " << examples::ranks_cell(ranks) << " | "
                << (split == split_rule::even ? "even" : "optimal") << " | " << percents[i] << " | "
                << examples::cell(rows[i].moves / layers, 1) << " | "
                << examples::cell(100 * rows[i].moves / slots, 1) << " | "
                << examples::cell(rows[i].balancedness / layers, 4) << " | "
                << examples::cell(100 * (rows[0].peaks - rows[i].peaks) / (rows[0].peaks - fresh),
                                  1)
                << " |" << std::endl;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return examples::make_table(
      "move_budgets", argc, argv,
      "| ranks + extra slots | split | budget, % | moves of a layer | % of slots | balancedness | "
      "gain, % |\n"
      "|---|---|---:|---:|---:|---:|---:|\n",
      print);
}
