// SPDX-License-Identifier: Apache-2.0
// replicas PAGE    prints the table of the part of EPLB's gain that CRAFT keeps with fewer replicas
// Rows of measured loads need the files under PLIMSOLL_TRACE_DIR; without it they are copied from
// PAGE.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/replay.hpp>
#include <plimsoll/systems/craft.hpp>
#include <plimsoll/systems/eplb.hpp>

#include "../../../examples/apps/make_loads/popularity.hpp"
#include "../../../examples/apps/plan_experts/plan.hpp"
#include "../traces.hpp"

namespace {

using examples::index_t;
using examples::plan;
using plimsoll::eplb_refinement;
using loads_ref = plimsoll::tensor_ref<std::int64_t const>;

/// Recorded loads `[steps, layers, experts]`: plans are made from even steps, and measured on odd
/// ones.
struct recording {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> values;
  index_t ranks;

  [[nodiscard]] index_t layers() const { return shape[1]; }
  [[nodiscard]] index_t experts() const { return shape[2]; }
  [[nodiscard]] loads_ref half(index_t first) const {
    index_t const step = layers() * experts();
    loads_ref view(values.data() + first * step, (shape[0] - first + 1) / 2, layers(), experts());
    view.strides[0] = 2 * step;
    return view;
  }
};

/// Returns the loads summed over the steps.
struct summed {
  std::vector<std::int64_t> values;

  explicit summed(loads_ref loads)
      : values(static_cast<std::size_t>(loads.extent(1) * loads.extent(2))) {
    plimsoll::sum_steps(
        plimsoll::seq, loads,
        plimsoll::matrix_ref<std::int64_t>(values.data(), loads.extent(1), loads.extent(2)));
  }
};

/// Returns loads of layers with increasing skew, whose popularities drift: the first layer is
/// nearly uniform, and in the last one expert has most of the load.
recording rising_skew() {
  constexpr index_t steps = 40;
  constexpr index_t layers = 24;
  constexpr index_t experts = 128;
  constexpr std::int64_t tokens = 8192;
  constexpr std::int64_t top_k = 8;
  recording made{"rising skew", {steps, layers, experts}, {}, 32};
  made.values.resize(static_cast<std::size_t>(steps * layers * experts));
  std::vector<std::int32_t> counts(experts);
  for (index_t layer = 0; layer < layers; ++layer) {
    examples::layer_popularity popularity(0, static_cast<std::uint64_t>(layer), counts.size(),
                                          1.2 * static_cast<double>(layer) / (layers - 1));
    for (index_t step = 0; step < steps; ++step) {
      examples::count_tokens(popularity.weights(), tokens * top_k, tokens, counts);
      std::copy(counts.begin(), counts.end(),
                made.values.begin() + (step * layers + layer) * experts);
      popularity.walk(0.1);
    }
  }
  return made;
}

recording measured(std::string const& file) {
  auto counts = examples::measured_counts(file, 2);
  return {"GLM-5.2, 80 chunks", std::move(counts.shape), std::move(counts.values), 64};
}

plan by_eplb(recording const& r, index_t slots, eplb_refinement refine) {
  using matrix = plimsoll::matrix_ref<std::int32_t>;
  plan p(r.layers(), r.experts(), r.ranks, slots);
  plimsoll::eplb(plimsoll::seq,
                 plimsoll::matrix_ref<std::int64_t const>(summed(r.half(0)).values.data(), p.layers,
                                                          p.experts),
                 {.on = {.ranks = p.ranks}, .refine = refine},
                 matrix(p.physical_to_logical.data(), p.layers, p.slots),
                 matrix(p.replica_count.data(), p.layers, p.experts));
  return p;
}

/// Throws if a plan breaks a guarantee of CRAFT.
void expect_even(plan const& p) {
  auto const placement = p.placement();
  std::vector<std::int64_t> totals(static_cast<std::size_t>(p.ranks));
  auto const differ = [](std::vector<std::int64_t> const& slots) {
    auto const [least, most] = std::minmax_element(slots.begin(), slots.end());
    return *most - *least > 1;
  };
  for (index_t layer = 0; layer < p.layers; ++layer) {
    std::vector<std::int64_t> of_layer;
    for (index_t rank = 0; rank < p.ranks; ++rank) {
      of_layer.push_back(placement.rank_offsets(layer, rank + 1) -
                         placement.rank_offsets(layer, rank));
      totals[static_cast<std::size_t>(rank)] += of_layer.back();
    }
    if (differ(of_layer)) {
      throw std::logic_error("ranks' slots in a layer differ by more than one");
    }
  }
  if (differ(totals)) {
    throw std::logic_error("ranks' slots over all layers differ by more than one");
  }
}

/// Makes a plan; empty `counts` mean 1, 2, 4, ... and the number of ranks.
plan by_craft(recording const& r, index_t budget, std::vector<std::int32_t> counts,
              eplb_refinement refine, index_t& used_budget) {
  using matrix = plimsoll::matrix_ref<std::int32_t>;
  plan p(r.layers(), r.experts(), r.ranks, r.experts() + r.ranks);
  auto const made = plimsoll::craft(plimsoll::seq, r.half(0),
                                    {.on = {.ranks = p.ranks},
                                     .budget = budget,
                                     .replica_counts = std::move(counts),
                                     .refine = refine},
                                    matrix(p.physical_to_logical.data(), p.layers, p.slots),
                                    matrix(p.rank_offsets.data(), p.layers, p.ranks + 1),
                                    matrix(p.replica_count.data(), p.layers, p.experts));
  expect_even(p);
  used_budget = made.allocation.budget;
  return p;
}

/// Mean balancedness over the layers, on the steps that were not used for planning.
struct judged {
  double steps;  ///< mean over the single steps
  double sum;    ///< of the sum of the steps
};

judged judge(recording const& r, plan const& p) {
  auto const mean = [&](loads_ref loads) {
    std::vector<double> balancedness(static_cast<std::size_t>(p.layers));
    plimsoll::replay(plimsoll::seq, loads, p.placement(), {},
                     plimsoll::matrix_ref<double>(balancedness.data(), 1, p.layers));
    return std::accumulate(balancedness.begin(), balancedness.end(), 0.0) /
           static_cast<double>(p.layers);
  };
  summed const total(r.half(1));
  return {mean(r.half(1)), mean(loads_ref(total.values.data(), 1, p.layers, p.experts))};
}

/// Formats the cells "replicas | per layer".
std::string replicas_of(plan const& p) {
  std::vector<std::int64_t> per_layer;
  for (auto row = p.replica_count.begin(); row != p.replica_count.end(); row += p.experts) {
    per_layer.push_back(std::accumulate(row, row + p.experts, -p.experts));
  }
  auto const [least, most] = std::minmax_element(per_layer.begin(), per_layer.end());
  std::string const range = std::to_string(*least);
  return std::to_string(std::accumulate(per_layer.begin(), per_layer.end(), std::int64_t{0})) +
         " | " + (*least == *most ? range : range + " to " + std::to_string(*most));
}

std::string text(char const* format, double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

/// Prints a row for every plan, without and with refinement of the placement. The part of EPLB's
/// gain that the plan keeps follows each number.
void print_rows(recording const& r) {
  judged const none = judge(r, by_eplb(r, r.experts(), eplb_refinement::none));
  judged const eplb = judge(r, by_eplb(r, r.experts() + r.ranks, eplb_refinement::none));
  auto const cells = [&](plan const& p) {
    judged const j = judge(r, p);
    auto const cell = [](double value, double least, double most) {
      return text("%.4f", value) + text(" (%.0f %%)", 100 * (value - least) / (most - least));
    };
    return cell(j.steps, none.steps, eplb.steps) + " | " + cell(j.sum, none.sum, eplb.sum) + " |";
  };
  auto const print = [&](std::string const& name,
                         std::function<plan(eplb_refinement)> const& make) {
    plan const plain = make(eplb_refinement::none);
    std::cout << "| " << r.name << " | " << name << " | " << replicas_of(plain) << " | "
              << cells(plain) << " " << cells(make(eplb_refinement::packing)) << "\n";
  };
  index_t budget = 0;
  auto const craft = [&](index_t replicas, std::vector<std::int32_t> const& counts) {
    return [&, replicas, counts](eplb_refinement refine) {
      return by_craft(r, replicas, counts, refine, budget);
    };
  };
  print("EPLB, no replicas", [&](eplb_refinement how) { return by_eplb(r, r.experts(), how); });
  for (index_t per_rank = 1; per_rank <= 64; per_rank *= 2) {
    print("CRAFT, R = " + std::to_string(per_rank), craft(per_rank * r.ranks, {}));
  }
  std::vector<std::int32_t> any(static_cast<std::size_t>(r.ranks));
  std::iota(any.begin(), any.end(), 1);
  print("CRAFT, R = 8, any count", craft(8 * r.ranks, any));
  by_craft(r, plimsoll::automatic_budget, {}, eplb_refinement::none, budget);
  print("CRAFT, automatic: R = " + std::to_string(budget / r.ranks),
        craft(plimsoll::automatic_budget, {}));
  print("EPLB, " + std::to_string(r.ranks) + " in each layer",
        [&](eplb_refinement how) { return by_eplb(r, r.experts() + r.ranks, how); });
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_with_page("replicas", argc, argv, [](std::string const& page) {
    std::string const traces = examples::trace_folder("replicas", page);
    std::cout << "| loads | plan | replicas | of a layer | steps | sum | steps, packing | "
                 "sum, packing |\n"
                 "|---|---|---:|---:|---:|---:|---:|---:|\n";
    print_rows(rising_skew());
    if (traces.empty()) {
      examples::print_lines(examples::rows_of_page(page, "| GLM-5.2, 80 chunks |"));
    } else {
      print_rows(measured(traces + "/glm-5.2-ten-domains/counts_by_chunk.npy"));
    }
  });
}
