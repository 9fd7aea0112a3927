// SPDX-License-Identifier: Apache-2.0
// unequal_ranks PAGE    prints the tables of the latency of steps on ranks of which one is slow,
// with GEM's plans and with others, and of the gap between the search and its lower bound
// Rows of measured loads need the files under PLIMSOLL_TRACE_DIR; without it they are copied from
// PAGE.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/swap_search.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/gem.hpp>

#include "../../../examples/apps/make_loads/popularity.hpp"
#include "../../../examples/apps/plan_experts/plan.hpp"
#include "../traces.hpp"

namespace {

using examples::index_t;
using examples::plan;
using loads_ref = plimsoll::tensor_ref<std::int64_t const>;
using matrix = plimsoll::matrix_ref<std::int32_t>;

constexpr index_t ranks = 8;
constexpr index_t planned_steps = 16;
constexpr index_t unseen_steps = 200;
constexpr index_t last_start = 288;

/// Loads `[steps, layers, experts]`.
struct trace {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> values;

  [[nodiscard]] index_t layers() const { return shape[1]; }
  [[nodiscard]] loads_ref steps(index_t first, index_t count) const {
    return {values.data() + first * shape[1] * shape[2], count, shape[1], shape[2]};
  }
};

/// Ranks that take 20 us plus 3 us for every tile of 64 tokens; one of them takes 12 % longer.
struct machine {
  std::string name;
  std::vector<std::int64_t> tokens;
  std::vector<double> latency;
  std::vector<double> speeds;

  machine(index_t rank_count, index_t slow, std::int64_t most_tokens)
      : name("rank " + std::to_string(slow) + " slow"),
        tokens(plimsoll::sampling_plan(
            {.tile = 64, .dense_until = most_tokens, .max_tokens = most_tokens})),
        speeds(static_cast<std::size_t>(rank_count), 1.0) {
    for (std::size_t tiles = 1; tiles <= tokens.size(); ++tiles) {
      latency.push_back(20.0 + 3.0 * static_cast<double>(tiles));
    }
    speeds[static_cast<std::size_t>(slow)] = 1 / 1.12;
  }

  [[nodiscard]] plimsoll::latency_curves curves() const {
    return {.tokens = {tokens.data(), std::ssize(tokens)},
            .latency = {latency.data(), 1, std::ssize(latency)},
            .dense_until = tokens.back(),
            .speeds = {speeds.data(), std::ssize(speeds)}};
  }
};

plan linear_plan(loads_ref loads) {
  return examples::trivial_plan(loads.extent(1), loads.extent(2), ranks, loads.extent(2));
}

plan by_eplb(loads_ref loads, plimsoll::vector_ref<double const> speeds) {
  plan p(loads.extent(1), loads.extent(2), ranks, loads.extent(2));
  std::vector<std::int64_t> sums(static_cast<std::size_t>(p.layers * p.experts));
  plimsoll::matrix_ref<std::int64_t> const sum(sums.data(), p.layers, p.experts);
  plimsoll::sum_steps(plimsoll::seq, loads, sum);
  plimsoll::eplb(plimsoll::seq, sum, {.on = {.ranks = ranks, .speeds = speeds}},
                 matrix(p.physical_to_logical.data(), p.layers, p.slots),
                 matrix(p.replica_count.data(), p.layers, p.experts));
  return p;
}

plan by_gem(loads_ref loads, machine const& on) {
  plan p(loads.extent(1), loads.extent(2), ranks, loads.extent(2));
  plimsoll::gem(plimsoll::seq, loads, on.curves(), {.on = {.ranks = ranks}},
                matrix(p.physical_to_logical.data(), p.layers, p.slots),
                matrix(p.replica_count.data(), p.layers, p.experts));
  return p;
}

double mean(std::vector<double> const& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Returns the mean latency of the steps of every layer.
std::vector<double> mean_latencies(loads_ref loads, plan const& p, machine const& on) {
  index_t const steps = loads.extent(0);
  plimsoll::latency_table const table(plimsoll::seq, on.curves(), p.ranks);
  std::vector<double> latencies(static_cast<std::size_t>(steps * p.layers));
  plimsoll::step_latencies(plimsoll::seq, loads, p.placement(), table.cost(),
                           plimsoll::matrix_ref<double>(latencies.data(), steps, p.layers));
  std::vector<double> means(static_cast<std::size_t>(p.layers), 0.0);
  for (std::size_t i = 0; i < latencies.size(); ++i) {
    means[i % means.size()] += latencies[i];
  }
  for (double& sum : means) {
    sum /= static_cast<double>(steps);
  }
  return means;
}

std::string text(char const* format, double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}
std::string percent(double part) { return text("%.1f %%", 100 * part); }

/// Results over all layers and starts.
struct outcome {
  std::vector<double> planned;
  std::vector<double> unseen;
};

enum planner : std::uint8_t { linear, eplb, eplb_with_speeds, with_gem, planners };
constexpr char const* names[planners] = {"linear", "EPLB", "EPLB, knows the speeds", "GEM"};

using outcomes = std::array<outcome, planners>;

/// Returns the share of layers and starts for which GEM takes less time than each of `others`.
double part_below(outcomes const& all, std::vector<planner> const& others) {
  std::size_t below = 0;
  std::size_t const count = all[with_gem].unseen.size();
  for (std::size_t i = 0; i < count; ++i) {
    below += static_cast<std::size_t>(std::all_of(others.begin(), others.end(), [&](planner other) {
      return all[with_gem].unseen[i] < all[other].unseen[i];
    }));
  }
  return static_cast<double>(below) / static_cast<double>(count);
}

/// Makes all plans for one machine.
class experiment {
 public:
  experiment(trace const& loads, index_t slow) : loads_(loads), on_(ranks, slow, most_tokens()) {
    for (index_t start = planned_steps; start <= last_start; start += planned_steps) {
      loads_ref const known = loads_.steps(start, planned_steps);
      add(start, linear, linear_plan(known));
      add(start, eplb, by_eplb(known, {}));
      add(start, eplb_with_speeds, by_eplb(known, {on_.speeds.data(), ranks}));
      add(start, with_gem, by_gem(known, on_));
    }
  }

  void print_latencies() const {
    double const linear_unseen = mean(all_[linear].unseen);
    for (std::size_t i = 0; i < all_.size(); ++i) {
      double const unseen = mean(all_[i].unseen);
      std::cout << "| gpt-oss-20b, " << on_.name << " | " << names[i] << " | "
                << text("%.2f", mean(all_[i].planned)) << " | " << text("%.2f", unseen) << " | "
                << percent(1 - unseen / linear_unseen) << " |\n";
    }
  }
  void print_parts() const {
    std::cout << "| GEM, " << on_.name << " | " << all_[with_gem].unseen.size() << " | "
              << percent(part_below(all_, {linear})) << " | " << percent(part_below(all_, {eplb}))
              << " | " << percent(part_below(all_, {linear, eplb})) << " | "
              << percent(part_below(all_, {eplb_with_speeds})) << " |\n";
  }
  /// Plans are measured on the same steps, whatever the length of their traces.
  void print_lengths(std::vector<index_t> const& lengths) const {
    index_t const longest = lengths.back();
    auto const layers = static_cast<std::size_t>(loads_.layers());
    std::vector<std::vector<double>> by_length(lengths.size());
    std::vector<double> by_linear;
    for (index_t until = longest + planned_steps; until <= last_start + planned_steps;
         until += 2 * planned_steps) {
      loads_ref const steps = loads_.steps(until - longest, longest + unseen_steps);
      std::vector<double> means(lengths.size() * layers);
      plimsoll::trace_length_latencies(
          plimsoll::seq, steps, on_.curves(), steps.extent(2), longest, lengths,
          {.on = {.ranks = ranks}},
          plimsoll::matrix_ref<double>(means.data(), std::ssize(lengths), loads_.layers()));
      for (std::size_t i = 0; i < means.size(); ++i) {
        by_length[i / layers].push_back(means[i]);
      }
      auto const linear_means =
          mean_latencies(loads_.steps(until, unseen_steps), linear_plan(steps), on_);
      by_linear.insert(by_linear.end(), linear_means.begin(), linear_means.end());
    }
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      double const latency = mean(by_length[i]);
      std::cout << "| trace of " << lengths[i] << " | " << text("%.2f", latency) << " | "
                << percent(1 - latency / mean(by_linear)) << " |\n";
    }
  }

 private:
  /// Tokens of all experts of a layer in a step.
  [[nodiscard]] std::int64_t most_tokens() const {
    std::int64_t most = 1;
    index_t const experts = loads_.shape[2];
    for (auto row = loads_.values.begin(); row != loads_.values.end(); row += experts) {
      most = std::max(most, std::accumulate(row, row + experts, std::int64_t{0}));
    }
    return most;
  }
  void add(index_t start, planner who, plan const& p) {
    auto const append = [&](std::vector<double>& to, index_t first, index_t count) {
      auto const more = mean_latencies(loads_.steps(first, count), p, on_);
      to.insert(to.end(), more.begin(), more.end());
    };
    outcome& o = all_[static_cast<std::size_t>(who)];
    append(o.planned, start, planned_steps);
    append(o.unseen, start + planned_steps, unseen_steps);
  }

  trace const& loads_;
  machine on_;
  outcomes all_;
};

/// Returns loads with random popularities that drift.
trace random_loads(index_t layers, index_t experts) {
  trace made{{planned_steps, layers, experts}, {}};
  made.values.resize(static_cast<std::size_t>(planned_steps * layers * experts));
  std::vector<std::int32_t> counts(static_cast<std::size_t>(experts));
  for (index_t layer = 0; layer < layers; ++layer) {
    examples::layer_popularity popularity(0, static_cast<std::uint64_t>(layer), counts.size(), 0);
    popularity.walk(0.7);
    for (index_t step = 0; step < planned_steps; ++step) {
      examples::count_tokens(popularity.weights(), 64 * experts, 16 * experts, counts);
      std::copy(counts.begin(), counts.end(),
                made.values.begin() + (step * layers + layer) * experts);
      popularity.walk(0.2);
    }
  }
  return made;
}

/// Results of searches of one kind, divided by the layers' lower bounds.
struct quality {
  double mean;
  double worst;
  double swaps;  ///< swaps of a search
};

template <class Cost>
quality quality_of(loads_ref loads, Cost const& cost, plimsoll::swap_search_options const& how) {
  std::vector<std::int32_t> map(static_cast<std::size_t>(loads.extent(1) * loads.extent(2)));
  auto const layers = plimsoll::swap_search(plimsoll::seq, loads, cost, how,
                                            matrix(map.data(), loads.extent(1), loads.extent(2)));
  quality q{0, 0, 0};
  auto const count = static_cast<double>(layers.size());
  for (plimsoll::certificate const& layer : layers) {
    double const above = layer.value / layer.lower_bound;
    q.mean += above / count;
    q.worst = std::max(q.worst, above);
    q.swaps += static_cast<double>(layer.work);
  }
  q.swaps /= count * static_cast<double>(how.restarts);
  return q;
}

struct shape {
  index_t layers;
  index_t experts;
  index_t ranks;
};
constexpr shape shapes[] = {{32, 16, 4}, {8, 64, 8}, {2, 256, 32}};

void print_quality() {
  std::cout << "\n| experts x ranks | latency | layers | start | one search | 30 searches | "
               "swaps of a search |\n|---|---|---:|---:|---:|---:|---:|\n";
  for (shape const& s : shapes) {
    trace const loads = random_loads(s.layers, s.experts);
    loads_ref const steps = loads.steps(0, planned_steps);
    machine const on(s.ranks, 0, 64 * s.experts);
    auto const print = [&](char const* name, auto const& cost) {
      auto const cell = [](quality const& q) {
        return text("%.4f", q.mean) + text(" (%.4f) | ", q.worst);
      };
      quality const all =
          quality_of(steps, cost, {.on = {.ranks = s.ranks}, .max_perturbations = 0});
      std::cout << "| " << s.experts << " x " << s.ranks << " | " << name << " | " << s.layers
                << " | "
                << cell(quality_of(steps, cost,
                                   {.on = {.ranks = s.ranks}, .restarts = 1, .max_swaps = 0}))
                << cell(quality_of(
                       steps, cost,
                       {.on = {.ranks = s.ranks}, .restarts = 1, .max_perturbations = 0}))
                << cell(all) << text("%.1f", all.swaps) << " |\n";
    };
    print("by tokens", plimsoll::token_cost{on.curves().speeds});
    print("by tiles", plimsoll::latency_table(plimsoll::seq, on.curves(), s.ranks).cost());
  }
}

trace measured(std::string const& file) {
  auto counts =
      examples::measured_counts(file, static_cast<int>(last_start + planned_steps + unseen_steps));
  return {std::move(counts.shape), std::move(counts.values)};
}

void print_rows(std::string const& page) {
  std::string const folder = examples::trace_folder("unequal_ranks", page);
  trace const loads =
      folder.empty() ? trace{} : measured(folder + "/gpt-oss-20b-decode/counts_by_decode_step.npy");
  std::vector<experiment> made;
  if (!folder.empty()) {
    made.emplace_back(loads, 0);
    made.emplace_back(loads, ranks - 1);
  }
  auto const print = [&](char const* head, std::string const& start, auto const& print_rows_of) {
    std::cout << head;
    if (folder.empty()) {
      for (std::string const& row : examples::rows_of_page(page, start)) {
        std::cout << row << "\n";
      }
    }
    std::for_each(made.begin(), made.end(), print_rows_of);
  };
  print(
      "| loads | plan | planned steps | unseen steps | less than linear |\n"
      "|---|---|---:|---:|---:|\n",
      "| gpt-oss-20b, ", [](experiment const& e) { e.print_latencies(); });
  print(
      "\n| plan | layers x starts | below linear | below EPLB | below both | "
      "below EPLB that knows the speeds |\n"
      "|---|---:|---:|---:|---:|---:|\n",
      "| GEM, ", [](experiment const& e) { e.print_parts(); });
  print(
      "\n| planned from | unseen steps | less than linear |\n"
      "|---|---:|---:|\n",
      "| trace of ", [&](experiment const& e) {
        if (&e == &made.front()) {
          e.print_lengths({1, 2, 4, 8, 16, 32, 64});
        }
      });
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_with_page("unequal_ranks", argc, argv, [](std::string const& page) {
    print_rows(page);
    print_quality();
  });
}
