// SPDX-License-Identifier: Apache-2.0
// spilled_loads PAGE    prints the tables of the effect of spilling: for LLEP's settings, under
// limits, for small batches, and for measured loads
// Rows of measured loads need the files under PLIMSOLL_TRACE_DIR; without it they are copied from
// PAGE.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/least_loaded.hpp>
#include <plimsoll/types.hpp>

#include "../../../examples/apps/plan_experts/npy.hpp"
#include "../traces.hpp"

namespace {

namespace npy = examples::npy;
using plimsoll::index_t;
using plimsoll::spill_report;
using loads = std::vector<std::int64_t>;  ///< `[experts]`

constexpr index_t ranks_of_node = 8;

std::string text(char const* format, double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

struct model {
  char const* name;
  index_t experts;
  index_t top_k;
  index_t hidden;
  index_t width;   ///< width of an expert
  index_t tokens;  ///< tokens of every rank

  /// Returns the bytes of the three matrices of a gated expert, in bf16.
  [[nodiscard]] std::int64_t expert_bytes() const { return 3 * hidden * width * 2; }
  /// Returns the bytes per token in LLEP's memory model: its input row, and a row of the expert's
  /// width.
  [[nodiscard]] std::int64_t token_bytes() const { return (hidden + width) * 2; }
};

constexpr model gpt_oss = {"gpt-oss-120b", 128, 4, 2880, 2880, 32768};
constexpr model deepseek = {"DeepSeek-V3", 256, 8, 7168, 2048, 16384};
constexpr model kimi = {"Kimi-K2", 384, 8, 7168, 2048, 16384};

/// A share of the tokens goes only to the hot experts, all others to the rest.
struct concentration {
  std::int64_t percent = 0;
  index_t hot = 0;
  index_t distance = 1;  ///< distance between hot experts

  [[nodiscard]] std::string name() const {
    return percent == 0 ? "balanced"
                        : std::to_string(percent) + " % into " + std::to_string(hot) +
                              (distance > 1 ? " far apart" : "");
  }
};

constexpr index_t hot_counts[] = {16, 4, 1};
constexpr std::int64_t percents[] = {30, 50, 80, 95};

/// Adds choices round robin over `experts` experts; each token begins one expert after the previous
/// token.
void go_round(index_t tokens, index_t top_k, std::int64_t* first, index_t experts) {
  for (index_t k = 0; k < top_k && tokens > 0; ++k) {
    for (index_t e = 0; e < experts; ++e) {
      index_t const turn = (e + experts - k % experts) % experts;
      first[e] += tokens / experts + (turn < tokens % experts ? 1 : 0);
    }
  }
}

/// Makes the tokens of all ranks as LLEP's tests do.
loads routed(model const& m, concentration const& c, index_t ranks) {
  loads result(static_cast<std::size_t>(m.experts), 0);
  index_t const hot_tokens = m.tokens * c.percent / 100;
  go_round(ranks * hot_tokens, m.top_k, result.data(), c.hot);
  go_round(ranks * (m.tokens - hot_tokens), m.top_k, result.data() + c.hot, m.experts - c.hot);
  for (auto i = static_cast<std::size_t>(c.hot); i-- > 0;) {
    std::swap(result[i], result[i * static_cast<std::size_t>(c.distance)]);
  }
  return result;
}

/// Data-sheet bandwidths of H200s, and two thirds of the peak of their tensor cores; times in us.
plimsoll::spill_price<plimsoll::moe_cost> price_of(model const& m) {
  constexpr double flops = 600e6;
  constexpr double memory = 4.8e6;
  return {.cost = {.launch = 20,
                   .per_token = 6.0 * static_cast<double>(m.hidden * m.width) / flops,
                   .per_expert = static_cast<double>(m.expert_bytes()) / memory},
          .within_node = 450e3,
          .between_nodes = 50e3};
}

double ratio(double over, double under) { return over / under; }
double ratio(std::int64_t over, std::int64_t under) {
  return static_cast<double>(over) / static_cast<double>(under);
}

/// Results of a plan.
struct outcome {
  spill_report report;
  double mean = 0;                ///< mean load of a rank
  std::int64_t bytes = 0;         ///< bytes on the fullest rank
  std::int64_t most_from = 0;     ///< most transfers from one rank
  std::int64_t most_into = 0;     ///< most experts sent to one rank
  std::int64_t across_nodes = 0;  ///< transfers between nodes
  double time = 0;                ///< modeled time of the slowest rank

  [[nodiscard]] double peak() const { return report.result.value; }
  /// Computes the results of a plan; without one, all tokens stay at home.
  [[nodiscard]] std::string status() const {
    if (report.spills == 0) {
      return "-";
    }
    switch (report.result.status) {
      case plimsoll::certificate_status::optimal:
        return "optimal";
      case plimsoll::certificate_status::within_tolerance:
        return "within capacity";
      case plimsoll::certificate_status::infeasible:
        return "infeasible";
      default:
        return "feasible";
    }
  }
};

/// Plans steps of a model whose experts are on the ranks in blocks, and checks every plan.
template <class Cost = void>
class planner {
 public:
  planner(model const& m, plimsoll::least_loaded_options options,
          plimsoll::spill_price<Cost> const& price = {})
      : model_(m), ranks_(options.on.ranks), plan_(plimsoll::seq, with_model(m, options), price) {}

  [[nodiscard]] outcome operator()(loads const& of_step) {
    plan_.plan(of_step);
    plan_.check();
    plimsoll::validate(plimsoll::seq, plan_.plan_ref(), of_step, plan_.options());
    spill_report const report = *plan_.report();
    bool const is_excused = report.spills == 0 || report.forced > 0 || report.kept > 0 ||
                            report.raised_capacity > report.capacity;
    if (report.overload > 0 && !is_excused) {
      throw std::runtime_error("a rank is above its capacity, and no token had to go there");
    }
    auto const ranks = static_cast<std::size_t>(ranks_);
    std::vector<std::int64_t> from(ranks, 0);
    std::vector<std::int64_t> into(ranks, 0);
    std::vector<std::int64_t> experts(ranks, 0);
    std::vector<double> sending(ranks, 0);
    outcome o;
    o.report = report;
    o.mean = ratio(report.tokens, ranks_);
    auto const price = price_of(model_);
    for (std::int32_t i = 0; i < report.transfers; ++i) {
      plimsoll::spill_transfer const& t = plan_.transfers()[i];
      bool const is_across = t.from / ranks_of_node != t.to / ranks_of_node;
      o.across_nodes += is_across;
      ++from[static_cast<std::size_t>(t.from)];
      ++into[static_cast<std::size_t>(t.to)];
      for (std::int32_t const r : {t.from, t.to}) {
        sending[static_cast<std::size_t>(r)] +=
            static_cast<double>(t.bytes) / (is_across ? price.between_nodes : price.within_node);
      }
    }
    for (std::int32_t i = 0; i < report.segments; ++i) {
      ++experts[static_cast<std::size_t>(plan_.segments()[i].rank)];
    }
    for (std::size_t r = 0; r < ranks; ++r) {
      auto const rank = static_cast<index_t>(r);
      double const computing = price.cost(plan_.rank_loads()[rank], experts[r]);
      o.time = std::max(o.time, computing + sending[r]);
      o.bytes = std::max(o.bytes, plan_.rank_bytes()[rank]);
    }
    o.most_from = *std::max_element(from.begin(), from.end());
    o.most_into = *std::max_element(into.begin(), into.end());
    return o;
  }

 private:
  static plimsoll::least_loaded_options with_model(model const& m,
                                                   plimsoll::least_loaded_options options) {
    options.experts = m.experts;
    options.expert_bytes = m.expert_bytes();
    options.token_bytes = m.token_bytes();
    return options;
  }

  model model_;
  index_t ranks_;
  plimsoll::least_loaded<plimsoll::seq_policy, Cost> plan_;
};

/// A step planned with the defaults, which are those of LLEP's experiments, and with all tokens at
/// home.
struct comparison {
  outcome plain;
  outcome spilled;

  comparison(model const& m, concentration const& c, index_t ranks) {
    loads const of_step = routed(m, c, ranks);
    plain = planner(m, {.on = {.ranks = ranks}, .lambda = 1e9})(of_step);
    spilled = planner(m, {.on = {.ranks = ranks}})(of_step);
  }

  [[nodiscard]] double saved_time() const { return ratio(plain.time, spilled.time); }
  [[nodiscard]] double saved_memory() const { return ratio(plain.bytes, spilled.bytes); }
};

std::string gibibytes(std::int64_t bytes) {
  return text("%.2f", static_cast<double>(bytes) / 0x1p30);
}

/// Prints LLEP's settings on its machine, and below them the figures of its paper.
void print_settings() {
  constexpr index_t ranks = 8;
  std::cout << "| model | tokens | plain, peak / mean | spilled, peak / capacity | status | "
               "transfers | from one | into one | GiB, plain | spilled | memory | time |\n"
               "|---|---|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|\n";
  double least_balanced = 1e9;
  double most_balanced = 0;
  double most_time = 0;
  double most_tokens = 0;
  double most_memory = 0;
  for (model const& m : {gpt_oss, deepseek, kimi}) {
    std::vector<concentration> all = {{}};
    for (index_t const hot : hot_counts) {
      for (std::int64_t const percent : percents) {
        all.push_back({percent, hot});
      }
    }
    for (concentration const& c : all) {
      comparison const of(m, c, ranks);
      outcome const& o = of.spilled;
      std::cout << "| " << m.name << " | " << c.name() << " | "
                << text("%.2f | ", ratio(of.plain.peak(), o.mean))
                << text("%.4f | ", ratio(o.peak(), o.report.capacity)) << o.status() << " | "
                << o.report.transfers << " | " << o.most_from << " | " << o.most_into << " | "
                << gibibytes(of.plain.bytes) << " | " << gibibytes(o.bytes) << " | "
                << text("%.2f | ", of.saved_memory()) << text("%.2f |\n", of.saved_time());
      if (c.percent == 0) {
        least_balanced = std::min(least_balanced, of.saved_time());
        most_balanced = std::max(most_balanced, of.saved_time());
      }
      most_time = std::max(most_time, of.saved_time());
      most_tokens = std::max(most_tokens, ratio(of.plain.peak(), o.peak()));
      most_memory = std::max(most_memory, of.saved_memory());
    }
  }
  std::cout << "\n| plain over spilled, 8 ranks | LLEP's paper, measured | here, by the model |\n"
               "|---|---:|---:|\n"
               "| time of a balanced layer | 0.92 to 1.07 | "
            << text("%.2f to ", least_balanced) << text("%.2f |\n", most_balanced)
            << "| time of a layer, at most | 6.1 | " << text("%.2f |\n", most_time)
            << "| tokens of the fullest rank, at most | - | " << text("%.2f |\n", most_tokens)
            << "| memory of the fullest rank, at most | 5 | " << text("%.2f |\n", most_memory);
}

/// The smallest and the largest of several numbers.
class range {
 public:
  void add(std::int64_t value) {
    least_ = std::min(least_, value);
    most_ = std::max(most_, value);
  }
  [[nodiscard]] std::string cell() const {
    std::string const most = std::to_string(most_) + " |";
    return least_ < most_ ? std::to_string(least_) + " to " + most : most;
  }

 private:
  std::int64_t least_ = INT64_MAX;
  std::int64_t most_ = 0;
};

void print_more_ranks() {
  std::cout << "\n| model | ranks | hot experts | plain, peak / mean: 30 % | 50 % | 80 % | 95 % | "
               "spilled, peak / capacity | optimal | transfers | from one | into one | "
               "GiB at 95 %, plain | spilled |\n"
               "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (index_t const ranks : {32, 64}) {
    for (model const& m : {gpt_oss, deepseek, kimi}) {
      for (index_t const hot : hot_counts) {
        std::cout << "| " << m.name << " | " << ranks << " | " << hot << " |";
        double peak = 0;
        std::int64_t optimal = 0;
        range transfers;
        range from;
        range into;
        std::string memory;
        for (std::int64_t const percent : percents) {
          comparison const of(m, {percent, hot}, ranks);
          outcome const& o = of.spilled;
          std::cout << text(" %.2f |", ratio(of.plain.peak(), o.mean));
          peak = std::max(peak, ratio(o.peak(), o.report.capacity));
          optimal += o.report.result.status == plimsoll::certificate_status::optimal;
          transfers.add(o.report.transfers);
          from.add(o.most_from);
          into.add(o.most_into);
          memory = gibibytes(of.plain.bytes) + " | " + gibibytes(o.bytes) + " |";
        }
        std::cout << text(" %.4f | ", peak) << optimal << " of " << std::size(percents) << " | "
                  << transfers.cell() << " " << from.cell() << " " << into.cell() << " " << memory
                  << "\n";
      }
    }
  }
}

/// Prints the effect of rules that LLEP does not have, on four nodes.
void print_rules() {
  constexpr index_t ranks = 32;
  constexpr index_t nodes = ranks / ranks_of_node;
  model const& m = deepseek;
  std::cout << "\n| tokens | rules | peak / capacity | status | transfers | across nodes | "
               "from one | into one | GiB | time |\n"
               "|---|---|---:|---|---:|---:|---:|---:|---:|---:|\n";
  for (concentration const& c :
       {concentration{30, 16}, concentration{50, 4, m.experts / 4}, concentration{95, 1}}) {
    loads const of_step = routed(m, c, ranks);
    outcome const plain = planner(m, {.on = {.ranks = ranks}, .lambda = 1e9})(of_step);
    auto const print = [&](char const* rules, outcome const& o) {
      std::cout << "| " << c.name() << " | " << rules << " | "
                << text("%.4f | ", ratio(o.peak(), o.report.capacity)) << o.status() << " | "
                << o.report.transfers << " | " << o.across_nodes << " | " << o.most_from << " | "
                << o.most_into << " | " << gibibytes(o.bytes) << " | "
                << text("%.2f |\n", ratio(plain.time, o.time));
    };
    print("plain", plain);
    print("LLEP's", planner(m, {.on = {.ranks = ranks}})(of_step));
    print("nodes", planner(m, {.on = {.ranks = ranks, .nodes = nodes}})(of_step));
    print("16 from, 1 into a rank",
          planner(m, {.on = {.ranks = ranks}, .max_imports = 1, .max_exports = 16})(of_step));
    print("4 from, 2 into a rank",
          planner(m, {.on = {.ranks = ranks}, .max_imports = 2, .max_exports = 4})(of_step));
    outcome const priced =
        planner(m, {.on = {.ranks = ranks, .nodes = nodes}}, price_of(m))(of_step);
    if (text("%.9g", priced.time) != text("%.9g", priced.report.time)) {
      throw std::runtime_error("expected the time that the plan reports");
    }
    print("nodes, price", priced);
  }
}

/// Prints the batch size from which a spill is worth its transfer.
void print_batches() {
  constexpr index_t ranks = 8;
  std::cout << "\n| tokens of a rank | chunks of 1024: peak / mean | transfers | time | "
               "of 1: peak / mean | transfers | time | "
               "price, of 1: peak / mean | transfers | time |\n"
               "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  model m = deepseek;
  for (m.tokens = 64; m.tokens <= 65536; m.tokens *= 4) {
    loads const of_step = routed(m, {80, 4}, ranks);
    outcome const plain = planner(m, {.on = {.ranks = ranks}, .lambda = 1e9})(of_step);
    std::cout << "| " << m.tokens << " |";
    auto const print = [&](outcome const& o) {
      std::cout << text(" %.2f | ", ratio(o.peak(), o.mean)) << o.report.transfers
                << text(" | %.2f |", ratio(plain.time, o.time));
    };
    print(planner(m, {.on = {.ranks = ranks}})(of_step));
    print(planner(m, {.on = {.ranks = ranks}, .min_chunk = 1})(of_step));
    print(planner(m, {.on = {.ranks = ranks}, .min_chunk = 1}, price_of(m))(of_step));
    std::cout << "\n";
  }
}

/// Mean and worst over all steps and layers.
class mean_and_worst {
 public:
  void add(double value) {
    sum_ += value;
    worst_ = std::max(worst_, value);
    ++count_;
  }
  [[nodiscard]] std::string cell(char const* format) const {
    return text(format, sum_ / static_cast<double>(std::max(count_, std::int64_t{1}))) + " / " +
           text(format, worst_) + " |";
  }

 private:
  double sum_ = 0;
  double worst_ = 0;
  std::int64_t count_ = 0;
};

/// Plans every fourth recorded step.
void print_measured(npy::array<std::int64_t> const& counts, index_t ranks, std::int64_t chunk) {
  index_t const experts = counts.shape[2];
  model m = deepseek;  // bytes and times are not printed
  m.experts = experts;
  planner spill(m, {.on = {.ranks = ranks}, .min_chunk = chunk});
  planner near_home(m,
                    {.on = {.ranks = ranks, .nodes = (ranks + ranks_of_node - 1) / ranks_of_node},
                     .min_chunk = chunk});
  mean_and_worst home;
  mean_and_worst peak;
  mean_and_worst transfers;
  mean_and_worst from;
  mean_and_worst into;
  std::int64_t steps = 0;
  std::int64_t spilled = 0;
  std::int64_t optimal = 0;
  std::int64_t across = 0;
  std::int64_t across_of_nodes = 0;
  for (std::int64_t step = 0; step < counts.shape[0]; step += 4) {
    for (std::int64_t layer = 0; layer < counts.shape[1]; ++layer, ++steps) {
      auto const row = counts.values.begin() + (step * counts.shape[1] + layer) * experts;
      loads const of_step(row, row + experts);
      outcome const o = spill(of_step);
      home.add(ratio(o.report.home_peak, o.mean));
      peak.add(ratio(o.peak(), o.mean));
      if (o.report.spills != 0) {
        ++spilled;
        optimal += o.report.result.status == plimsoll::certificate_status::optimal;
        transfers.add(o.report.transfers);
        from.add(static_cast<double>(o.most_from));
        into.add(static_cast<double>(o.most_into));
        across += o.across_nodes;
        across_of_nodes += near_home(of_step).across_nodes;
      }
    }
  }
  auto const of_spilled = [&](char const* format, std::int64_t part) {
    return text(format, ratio(part, std::max(spilled, std::int64_t{1})));
  };
  std::cout << "| GLM-5.2, 20 chunks | " << ranks << " | " << chunk << " | " << home.cell("%.3f")
            << " " << text("%.1f %% | ", 100 * ratio(spilled, steps)) << peak.cell("%.3f") << " "
            << of_spilled("%.1f %% | ", 100 * optimal) << transfers.cell("%.1f") << " "
            << from.cell("%.1f") << " " << into.cell("%.1f") << of_spilled(" %.1f", across)
            << of_spilled(" | %.1f |\n", across_of_nodes);
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_with_page("spilled_loads", argc, argv, [](std::string const& page) {
    std::string const traces = examples::trace_folder("spilled_loads", page);
    print_settings();
    print_more_ranks();
    print_rules();
    print_batches();
    std::cout << "\n| loads | ranks | chunk | plain, peak / mean | spill | all, peak / mean | "
                 "optimal | transfers | from one | into one | across nodes | with nodes |\n"
                 "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
    if (traces.empty()) {
      examples::print_lines(examples::rows_of_page(page, "| GLM-5.2, 20 chunks |"));
      return;
    }
    auto const counts =
        examples::measured_counts(traces + "/glm-5.2-ten-domains/counts_by_chunk.npy", 1);
    for (index_t const ranks : {8, 16, 32, 64}) {
      for (std::int64_t const chunk : {1024, 128}) {
        print_measured(counts, ranks, chunk);
      }
    }
  });
}
