// SPDX-License-Identifier: Apache-2.0
// quality PAGE    prints the tables of the balancedness of plans
// Rows of measured loads need the files under PLIMSOLL_TRACE_DIR; without it they are copied from
// PAGE.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/metrics.hpp>
#include <plimsoll/systems/eplb.hpp>

#include "../traces.hpp"
#include "inputs.hpp"

namespace {

using examples::index_t;
using examples::input;
using examples::plan;
using plimsoll::eplb_refinement;

struct candidate {
  char const* name;
  plan made;
  std::vector<plimsoll::certificate> certificates = {};  ///< empty for the trivial plan
};

candidate by_eplb(char const* name, input const& in, index_t ranks, index_t slots,
                  eplb_refinement refine) {
  using matrix = plimsoll::matrix_ref<std::int32_t>;
  candidate result{name, plan(in.layers, in.experts, ranks, slots)};
  plan& p = result.made;
  result.certificates =
      plimsoll::eplb(plimsoll::seq, in.view(), {.on = {.ranks = ranks}, .refine = refine},
                     matrix(p.physical_to_logical.data(), p.layers, p.slots),
                     matrix(p.replica_count.data(), p.layers, p.experts));
  return result;
}

/// Plans in the columns of the tables.
std::vector<candidate> candidates(input const& in, index_t ranks, index_t slots) {
  return {{"trivial", examples::trivial_plan(in.layers, in.experts, ranks, slots)},
          by_eplb("EPLB", in, ranks, slots, eplb_refinement::none),
          by_eplb("EPLB + packing", in, ranks, slots, eplb_refinement::packing),
          by_eplb("EPLB + joint", in, ranks, slots, eplb_refinement::joint)};
}

/// Measures every layer of the finished plan; replicas share their expert's load equally.
std::vector<plimsoll::balance_stats> measured(input const& in, plan const& p) {
  std::vector<double> loads(static_cast<std::size_t>(p.layers * p.ranks));
  plimsoll::matrix_ref<double> const per_rank(loads.data(), p.layers, p.ranks);
  plimsoll::rank_loads(plimsoll::seq, in.view(), p.placement(), per_rank);
  std::vector<plimsoll::balance_stats> rows(static_cast<std::size_t>(p.layers));
  plimsoll::measure(plimsoll::seq, per_rank, rows);
  return rows;
}

std::string number(double value, int decimals) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

void print_hand_made() {
  input const in = examples::hand_made_loads();
  std::cout << "| plan | peak | lower bound | balancedness | copies of the experts |\n"
               "|---|---:|---:|---:|---|\n";
  for (candidate const& c : candidates(in, 8, 16)) {
    plimsoll::balance_stats const layer = measured(in, c.made).at(0);
    std::cout << "| " << c.name << " | " << number(layer.peak, 2) << " | "
              << (c.certificates.empty() ? "-" : number(c.certificates[0].lower_bound, 2)) << " | "
              << number(layer.balancedness, 4) << " |";
    for (std::int32_t const copies : c.made.replica_count) {
      std::cout << " " << copies;
    }
    std::cout << " |\n";
  }
}

struct row {
  char const* name;
  char const* trace;  ///< a file under PLIMSOLL_TRACE_DIR, or null: generated
  index_t ranks;
  index_t slots;
};

constexpr row rows[] = {
    {"log-normal", nullptr, 64, 320},
    {"log-normal", nullptr, 64, 256},
    {"log-normal", nullptr, 32, 288},
    {"GLM-5.2, ten domains", "glm-5.2-ten-domains/counts_by_domain.npy", 64, 320},
    {"GLM-5.2, ten domains", "glm-5.2-ten-domains/counts_by_domain.npy", 32, 288},
    {"gpt-oss-20b, eleven datasets", "gpt-oss-20b-decode/counts_by_dataset.npy", 16, 48},
    {"OLMoE-1B-7B, six domains", "olmoe-1b-7b-domains/counts.npy", 16, 72},
    {"DeepSeek-V2-Lite, four tasks", "deepseek-v2-lite-esft/counts_by_task.npy", 8, 72},
};

/// Returns the first cells, which identify a row.
std::string start_of(row const& r) {
  return "| " + std::string(r.name) + " | " + std::to_string(r.ranks) + " | " +
         std::to_string(r.slots) + " | ";
}

/// Formats "mean (worst)" over the layers.
std::string balancedness(std::vector<plimsoll::balance_stats> const& layers) {
  plimsoll::balance_summary const all = plimsoll::summarize(plimsoll::seq, layers);
  return number(all.mean_of_ratios, 4) + " (" + number(all.worst, 4) + ")";
}

/// Returns the mean balancedness of layers whose peaks would equal the certificates' lower bounds.
double ceiling(input const& in, candidate const& c) {
  std::vector<plimsoll::balance_stats> const layers = measured(in, c.made);
  double sum = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    double const bound = c.certificates[i].lower_bound;
    sum += bound == 0 ? 1 : layers[i].mean / bound;
  }
  return sum / static_cast<double>(layers.size());
}

std::string row_of(row const& r, input const& in) {
  std::string text =
      start_of(r) + std::to_string(in.layers) + " x " + std::to_string(in.experts) + " | ";
  auto const all = candidates(in, r.ranks, r.slots);
  for (candidate const& c : all) {
    text += balancedness(measured(in, c.made)) + " | ";
  }
  // Only the bound of the last plan holds for any replica counts.
  return text + number(ceiling(in, all.back()), 4) + " |";
}

void print_rows(std::string const& page) {
  std::string const traces = examples::trace_folder("quality", page);
  std::cout << "| loads | ranks | slots | layers x experts | trivial | EPLB | EPLB + packing | "
               "EPLB + joint | no plan above |\n"
               "|---|---:|---:|---|---:|---:|---:|---:|---:|\n";
  for (row const& r : rows) {
    if (r.trace == nullptr) {
      std::cout << row_of(r, examples::lognormal_loads(58, 256));
    } else if (traces.empty()) {
      auto const old = examples::rows_of_page(page, start_of(r));
      std::cout << (old.empty() ? start_of(r) + "? | ? | ? | ? | ? | ? |" : old.front());
    } else {
      std::cout << row_of(r, examples::measured_loads(traces + "/" + r.trace));
    }
    std::cout << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_with_page("quality", argc, argv, [](std::string const& page) {
    print_hand_made();
    std::cout << "\n";
    print_rows(page);
  });
}
