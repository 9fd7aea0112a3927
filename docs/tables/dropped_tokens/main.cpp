// SPDX-License-Identifier: Apache-2.0
// dropped_tokens PAGE    prints the tables of recorded choices that a capacity drops, and of the
// resulting balance of experts and ranks
// The tables need the files under PLIMSOLL_TRACE_DIR; without it their rows are copied from PAGE.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <plimsoll/capacity_mask.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/metrics.hpp>

#include "../../../examples/apps/plan_experts/npy.hpp"
#include "../traces.hpp"

namespace {

namespace npy = examples::npy;
using plimsoll::float16;
using plimsoll::index_t;

constexpr index_t batch_tokens = 1024;
constexpr index_t ranks = 8;

struct trace {
  char const* name;
  char const* ids;  ///< a file under PLIMSOLL_TRACE_DIR
  char const* scores;
  index_t experts;
};

constexpr trace traces[] = {
    {"gpt-oss-20b", "gpt-oss-20b-decode/topk_ids_first32k.npy",
     "gpt-oss-20b-decode/topk_scores_first32k.npy", 32},
    {"DeepSeek-V2-Lite", "deepseek-v2-lite-esft/topk_ids.npy",
     "deepseek-v2-lite-esft/topk_weights.npy", 64},
};

/// Returns the half-precision number equal to `value`, which must exist and not be negative.
float16 half_of(double value) {
  int exponent = 0;
  double const fraction = std::frexp(value, &exponent);  // in [1/2, 1), or 0
  float16 const half{static_cast<std::uint16_t>(
      value < 0x1p-14 ? value * 0x1p24 : (exponent + 14) * 1024 + (fraction * 2048 - 1024))};
  if (static_cast<double>(half) != value) {
    throw std::runtime_error("expected scores that are halves, got " + std::to_string(value));
  }
  return half;
}

/// Choices of every token in every layer, and their scores.
class recording {
 public:
  recording(std::string const& folder, trace const& t)
      : ids_(array<std::int64_t>(folder + "/" + t.ids)) {
    auto const scores = array<double>(folder + "/" + t.scores);
    if (scores.shape != ids_.shape || ids_.shape[0] < batch_tokens) {
      throw std::runtime_error(std::string(t.ids) + ": expected the shape of " + t.scores +
                               " and a batch of tokens or more");
    }
    for (double const score : scores.values) {
      scores_.push_back(half_of(score));
    }
  }

  [[nodiscard]] index_t batches() const { return ids_.shape[0] / batch_tokens; }
  [[nodiscard]] index_t layers() const { return ids_.shape[1]; }
  [[nodiscard]] index_t top_k() const { return ids_.shape[2]; }
  [[nodiscard]] plimsoll::matrix_ref<std::int64_t const> ids(index_t batch, index_t layer) const {
    return part(ids_.values, batch, layer);
  }
  [[nodiscard]] plimsoll::matrix_ref<float16 const> scores(index_t batch, index_t layer) const {
    return part(scores_, batch, layer);
  }

 private:
  /// `[tokens, layers, choices]`
  template <class T>
  static npy::array<T> array(std::string const& file) {
    npy::any_array read = npy::read(file);
    auto* const values = std::get_if<npy::array<T>>(&read);
    if (values == nullptr || values->shape.size() != 3) {
      throw std::runtime_error(file + ": expected shape (tokens, layers, choices)");
    }
    return std::move(*values);
  }
  template <class T>
  plimsoll::matrix_ref<T const> part(std::vector<T> const& all, index_t batch,
                                     index_t layer) const {
    index_t const row = layers() * top_k();
    plimsoll::matrix_ref<T const> view(all.data() + batch * batch_tokens * row + layer * top_k(),
                                       batch_tokens, top_k());
    view.strides[0] = row;
    return view;
  }

  npy::array<std::int64_t> ids_;
  std::vector<float16> scores_;
};

std::string text(char const* format, double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}

/// Means over batches and layers, after the drop.
struct outcome {
  double dropped;       ///< share of all choices
  double experts;       ///< peak over mean of the experts' loads
  double ranks;         ///< peak over mean of the ranks' loads
  double busiest_rank;  ///< peak of the ranks' loads over their mean before the drop

  [[nodiscard]] std::string cells() const {
    return text("%.2f %% | ", 100 * dropped) + text("%.3f | ", experts) + text("%.3f | ", ranks) +
           text("%.3f |", busiest_rank);
  }
};

/// Measures the balance of every row of expert loads, where `together` neighbors count as one.
std::vector<plimsoll::balance_stats> measured(std::vector<std::int32_t> const& loads,
                                              index_t columns, index_t together = 1) {
  std::vector<std::int64_t> sums(loads.size() / static_cast<std::size_t>(together));
  for (std::size_t i = 0; i < loads.size(); ++i) {
    sums[i / static_cast<std::size_t>(together)] += loads[i];
  }
  index_t const rows = static_cast<index_t>(loads.size()) / columns;
  std::vector<plimsoll::balance_stats> result(static_cast<std::size_t>(rows));
  plimsoll::measure(plimsoll::seq,
                    plimsoll::matrix_ref<std::int64_t const>(sums.data(), rows, columns / together),
                    result);
  return result;
}

outcome masked(recording const& r, plimsoll::capacity_options options) {
  index_t const experts = options.experts;
  options.top_k = r.top_k();
  options.max_tokens = batch_tokens;
  plimsoll::capacity_mask mask(plimsoll::seq, options);
  std::vector<std::int32_t> loads(static_cast<std::size_t>(r.batches() * r.layers() * experts));
  std::int32_t* next = loads.data();
  std::int64_t kept = 0;
  for (index_t batch = 0; batch < r.batches(); ++batch) {
    for (index_t layer = 0; layer < r.layers(); ++layer, next += experts) {
      plimsoll::capacity_report report;
      mask.apply(r.ids(batch, layer), r.scores(batch, layer),
                 {.counts = {next, experts}, .report = report});
      if (report.choices != batch_tokens * r.top_k()) {
        throw std::runtime_error("expected different experts for every token, got others");
      }
      kept += report.kept_choices;
    }
  }

  auto const rows = static_cast<double>(r.batches() * r.layers());
  auto const choices = static_cast<double>(batch_tokens * r.top_k());
  outcome result{1 - static_cast<double>(kept) / (choices * rows), 0, 0, 0};
  for (plimsoll::balance_stats const& row : measured(loads, experts)) {
    result.experts += row.peak_to_mean() / rows;
  }
  for (plimsoll::balance_stats const& row : measured(loads, experts, experts / ranks)) {
    result.ranks += row.peak_to_mean() / rows;
    result.busiest_rank += row.peak / (choices / ranks) / rows;
  }
  return result;
}

void print_rows(trace const& t, recording const& r) {
  auto const row = [&](std::string const& limit, plimsoll::capacity_options options) {
    options.experts = t.experts;
    std::cout << "| " << t.name << " | " << limit << " | " << masked(r, options).cells() << "\n";
  };
  row("none | -", {.min_tokens = batch_tokens + 1});
  for (index_t const pools : {index_t{0}, ranks}) {
    for (double const factor : {3.0, 2.5, 2.0, 1.5, 1.25, 1.0, 0.75, 0.5}) {
      row((pools == 0 ? "each expert | " : "each rank | ") + text("%g", factor),
          {.factor = factor, .ranks = pools});
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_with_page("dropped_tokens", argc, argv, [](std::string const& page) {
    std::string const folder = examples::trace_folder("dropped_tokens", page);
    for (trace const& t : traces) {
      std::cout << (&t == traces ? "" : "\n")
                << "| model | limit | gamma | dropped | experts | ranks | busiest rank |\n"
                   "|---|---|---:|---:|---:|---:|---:|\n";
      if (folder.empty()) {
        examples::print_lines(examples::rows_of_page(page, "| " + std::string(t.name) + " |"));
      } else {
        print_rows(t, recording(folder, t));
      }
    }
  });
}
