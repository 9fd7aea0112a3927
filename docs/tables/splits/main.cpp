// SPDX-License-Identifier: Apache-2.0
// splits PAGE    prints the tables of the quality of splits over replicas
// Rows of measured loads need the files under PLIMSOLL_TRACE_DIR; without it they are copied from
// PAGE.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <span>
#include <string>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/quota.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/systems/eplb.hpp>

#include "../../../examples/apps/plan_experts/npy.hpp"
#include "../../../examples/apps/plan_experts/plan.hpp"
#include "../../../tests/support/split_instances.hpp"
#include "../traces.hpp"
#include "affine_scaling.hpp"

namespace {

using examples::affine_scaling;
using examples::index_t;
using examples::plan;
using plimsoll_test::split_instance;

std::string text(char const* format, double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

struct mean_and_worst {
  double sum = 0;
  double worst = 0;
  int count = 0;

  void add(double value) {
    sum += value;
    worst = std::max(worst, value);
    ++count;
  }
  [[nodiscard]] double mean() const { return sum / count; }
  [[nodiscard]] std::string cell() const {
    return count == 0 ? "-" : text("%.4f", mean()) + text(" / %.4f", worst);
  }
};

/// Input of one layer.
struct layer_view {
  std::span<std::int32_t const> expert_of;     ///< [slots]
  std::span<std::int32_t const> rank_offsets;  ///< [ranks + 1]
  std::span<std::int64_t const> loads;         ///< [experts]

  /// Returns the peak of the rank loads if each slot carries `load_of(slot)`.
  template <class Load>
  [[nodiscard]] double peak(Load load_of) const {
    double result = 0;
    for (std::size_t r = 0; r + 1 < rank_offsets.size(); ++r) {
      double sum = 0;
      for (std::int32_t slot = rank_offsets[r]; slot < rank_offsets[r + 1]; ++slot) {
        sum += load_of(static_cast<std::size_t>(slot));
      }
      result = std::max(result, sum);
    }
    return result;
  }
  [[nodiscard]] double peak_of_shares(std::vector<double> const& shares) const {
    return peak([&](std::size_t slot) {
      std::int32_t const e = expert_of[slot];
      return e < 0 ? 0.0 : shares[slot] * static_cast<double>(loads[static_cast<std::size_t>(e)]);
    });
  }
  /// Returns the peak if each token draws a slot with the probabilities of the split.
  [[nodiscard]] double drawn_peak(std::span<double const> split, std::uint64_t stream) const {
    std::vector<double> drawn(split.begin(), split.end());
    std::vector<std::vector<std::size_t>> slots(loads.size());
    for (std::size_t slot = 0; slot < split.size(); ++slot) {
      slots[static_cast<std::size_t>(expert_of[slot])].push_back(slot);
    }
    std::uint64_t token = 0;
    for (std::size_t e = 0; e < loads.size(); ++e) {
      if (slots[e].size() == 1) {
        continue;
      }
      for (std::size_t const slot : slots[e]) {
        drawn[slot] = 0;
      }
      for (std::int64_t i = 0; i < loads[e]; ++i) {
        double u = plimsoll::random::uniform(1, stream, token++) * static_cast<double>(loads[e]);
        std::size_t k = 0;
        while (k + 1 < slots[e].size() && u >= split[slots[e][k]]) {
          u -= split[slots[e][k++]];
        }
        ++drawn[slots[e][k]];
      }
    }
    return peak([&](std::size_t slot) { return drawn[slot]; });
  }
  [[nodiscard]] double even_peak() const {
    std::vector<double> copies(loads.size(), 0.0);
    std::vector<double> shares(expert_of.size(), 0.0);
    for (std::int32_t const e : expert_of) {
      copies[static_cast<std::size_t>(std::max(e, 0))] += e >= 0 ? 1 : 0;
    }
    for (std::size_t slot = 0; slot < shares.size(); ++slot) {
      shares[slot] = 1 / copies[static_cast<std::size_t>(std::max(expert_of[slot], 0))];
    }
    return peak_of_shares(shares);
  }
};

plimsoll::certificate solve(split_instance const& in, double tolerance) {
  std::vector<double> split(in.phy2log.size());
  plimsoll::minmax_lp lp(plimsoll::seq, in.placement(), {.tolerance = tolerance});
  lp.solve(plimsoll::matrix_ref<std::int64_t const>(in.loads.data(), 1, in.experts),
           plimsoll::matrix_ref<double>(split.data(), 1, in.slots()));
  return lp.certificates()[0];
}

/// Prints peaks divided by the smallest one, by family of instances.
void print_families() {
  // More instances would take too long.
  constexpr std::size_t most_rows = 400;
  std::cout << "| placements and loads | instances | even split | five steps | accepted | "
               "worst gap | optimal |\n"
               "|---|---:|---:|---:|---:|---:|---:|\n";
  int i = 0;
  for (auto const& family : plimsoll_test::split_families::all) {
    mean_and_worst even;
    mean_and_worst five;
    int accepted = 0;
    double gap = 0;
    int optimal = 0;
    for (int last = i + family.instances; i < last; ++i) {
      split_instance const in = plimsoll_test::make_split_instance(i);
      double const least = solve(in, 0).value;
      plimsoll::certificate const ours = solve(in, 1e-6);
      gap = std::max(gap, ours.gap());
      optimal += ours.value == least ? 1 : 0;
      layer_view const layer{in.phy2log, in.rank_offsets, in.loads};
      even.add(layer.even_peak() / least);
      affine_scaling const steps(in.phy2log, in.rank_offsets, in.loads.size());
      if (steps.rows() <= most_rows) {
        auto const result = steps.solve(in.loads);
        accepted += result.accepted ? 1 : 0;
        five.add(layer.peak_of_shares(result.shares) / least);
      }
    }
    std::cout << "| " << family.name << " | " << family.instances << " | " << even.cell() << " | "
              << five.cell() << " | " << accepted << " of " << five.count << " | "
              << text("%.1e", gap) << " | " << optimal << " |\n";
  }
}

/// Loads `[chunks, layers, experts]`.
using recording = examples::npy::array<std::int64_t>;

/// Plans every even chunk with EPLB and splits the next one; prints peak over mean of the rank
/// loads.
void print_row(recording const& r, index_t ranks) {
  index_t const layers = r.shape[1];
  index_t const experts = r.shape[2];
  auto const loads_of = [&](index_t chunk) {
    return plimsoll::matrix_ref<std::int64_t const>(r.values.data() + chunk * layers * experts,
                                                    layers, experts);
  };
  mean_and_worst even;
  mean_and_worst five;
  mean_and_worst ours;
  mean_and_worst drawn;
  mean_and_worst whole;
  for (index_t chunk = 0; chunk + 1 < r.shape[0]; chunk += 2) {
    plan p(layers, experts, ranks, experts + ranks);
    plimsoll::eplb(
        plimsoll::seq, loads_of(chunk), {.on = {.ranks = ranks}},
        plimsoll::matrix_ref<std::int32_t>(p.physical_to_logical.data(), layers, p.slots),
        plimsoll::matrix_ref<std::int32_t>(p.replica_count.data(), layers, experts));
    auto const loads = loads_of(chunk + 1);
    std::vector<double> split(p.physical_to_logical.size());
    plimsoll::minmax_lp lp(plimsoll::seq, p.placement());
    plimsoll::matrix_ref<double> const parts_of(split.data(), layers, p.slots);
    lp.solve(loads, parts_of);
    std::vector<std::int32_t> quotas(split.size());
    std::vector<plimsoll::quota_report> reports(static_cast<std::size_t>(layers));
    plimsoll::round_split(plimsoll::seq, loads, p.placement(), parts_of,
                          plimsoll::matrix_ref<std::int32_t>(quotas.data(), layers, p.slots),
                          reports);
    plimsoll::check(plimsoll::seq, reports);
    for (index_t l = 0; l < layers; ++l) {
      auto const row = [&](auto const& values, index_t columns) {
        return std::span(values).subspan(static_cast<std::size_t>(l * columns),
                                         static_cast<std::size_t>(columns));
      };
      layer_view const layer{row(p.physical_to_logical, p.slots),
                             row(p.rank_offsets, ranks + 1),
                             {&loads(l, 0), static_cast<std::size_t>(experts)}};
      double total = 0;
      for (std::int64_t const load : layer.loads) {
        total += static_cast<double>(load);
      }
      double const mean = total / static_cast<double>(ranks);
      even.add(layer.even_peak() / mean);
      affine_scaling const steps(layer.expert_of, layer.rank_offsets, layer.loads.size());
      five.add(layer.peak_of_shares(steps.solve(layer.loads).shares) / mean);
      auto const parts = row(split, p.slots);
      double const peak = layer.peak([&](std::size_t slot) { return parts[slot]; });
      ours.add(peak / mean);
      if (l % 8 == 0) {  // sampling takes long
        auto const stream = static_cast<std::uint64_t>(chunk * layers + l);
        drawn.add(layer.drawn_peak(parts, stream) / peak);
      }
      auto const tokens = row(quotas, p.slots);
      whole.add(layer.peak([&](std::size_t slot) { return double(tokens[slot]); }) / mean);
    }
  }
  std::cout << "| GLM-5.2, 80 chunks | " << ranks << " | " << experts + ranks;
  for (mean_and_worst const& column : {even, five, ours, whole}) {
    std::cout << " | " << text("%.4f", column.mean());
  }
  std::cout << " | " << text("+%.2f %%", 100 * (drawn.mean() - 1)) << " |\n";
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_with_page("splits", argc, argv, [](std::string const& page) {
    std::string const traces = examples::trace_folder("splits", page);
    print_families();
    std::cout << "\n| loads | ranks | slots | even split | five steps | `minmax_lp` | its "
                 "`round_split` | "
                 "drawn instead |\n"
                 "|---|---:|---:|---:|---:|---:|---:|---:|\n";
    if (traces.empty()) {
      examples::print_lines(examples::rows_of_page(page, "| GLM-5.2, 80 chunks |"));
      return;
    }
    recording const r =
        examples::measured_counts(traces + "/glm-5.2-ten-domains/counts_by_chunk.npy", 2);
    for (index_t const ranks : {8, 16, 32, 64}) {
      print_row(r, ranks);
    }
  });
}
