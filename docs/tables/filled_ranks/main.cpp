// SPDX-License-Identifier: Apache-2.0
// filled_ranks    prints the tables of the balance of ranks with the shared expert's rows, and of
// the number of rows that move
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/systems/waterfill.hpp>
#include <plimsoll/waterline.hpp>

#include "../../../examples/apps/make_loads/popularity.hpp"

namespace {

using plimsoll::index_t;
using counts = std::vector<std::int64_t>;  ///< `[ranks]`

constexpr index_t experts = 256;
constexpr index_t top_k = 8;
constexpr index_t most_tokens = 1024;
constexpr index_t most_ranks_of_sglang = 31;  // bits of its kernel's mask of candidates

std::string text(char const* format, double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}
std::string share(std::int64_t part, std::int64_t whole) {
  return text(" %.1f %% |", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

enum class unlike { nothing, tokens, speed };

struct setting {
  double skew;  ///< standard deviation of the logarithm of experts' popularity
  index_t ranks;
  unlike what = unlike::nothing;

  [[nodiscard]] index_t tokens_of(index_t rank) const {
    return what == unlike::tokens && rank % 2 == 1 ? most_tokens / 4 : most_tokens;
  }
  [[nodiscard]] std::int64_t half_speeds_of(index_t rank) const {
    return what == unlike::speed && rank == 0 ? 1 : 2;
  }
  [[nodiscard]] std::uint64_t draws() const {
    return static_cast<std::uint64_t>(std::clamp(256 / ranks, index_t{2}, index_t{16}));
  }
};

/// Choices of every rank, and the result of an all-reduce of their counts.
class batch {
 public:
  batch(setting const& s, std::uint64_t draw)
      : of_rank_(static_cast<std::size_t>(s.ranks)),
        loads_(static_cast<std::size_t>(2 * s.ranks), 0) {
    examples::layer_popularity popularity(0, draw, experts, 0);
    popularity.walk(s.skew);
    deal(popularity.weights());
    plimsoll::waterline line(
        plimsoll::seq,
        {.on = {.ranks = s.ranks}, .slots = experts, .top_k = top_k, .max_tokens = most_tokens});
    counts own(loads_.size());
    for (index_t rank = 0; rank < s.ranks; ++rank) {
      auto const at = static_cast<std::uint64_t>(rank);
      of_rank_[at] = choose(s.tokens_of(rank), draw << 32 | at);
      line.count(ids(rank), rank, plimsoll::matrix_ref<std::int64_t>(own.data(), 2, s.ranks));
      for (std::size_t i = 0; i < own.size(); ++i) {
        loads_[i] += own[i];
      }
    }
  }

  [[nodiscard]] plimsoll::matrix_ref<std::int32_t const> ids(index_t rank) const {
    auto const& chosen = of_rank_[static_cast<std::size_t>(rank)];
    return {chosen.data(), static_cast<index_t>(chosen.size()) / top_k, top_k};
  }
  [[nodiscard]] plimsoll::matrix_ref<std::int64_t const> loads() const {
    return {loads_.data(), 2, static_cast<index_t>(of_rank_.size())};
  }

 private:
  /// Fills the deck, from which experts are drawn, in proportion to popularity.
  void deal(std::vector<std::uint64_t> const& popularity) {
    constexpr std::int64_t cards = 1 << 16;
    std::vector<std::int32_t> copies(experts);
    examples::count_tokens(popularity, cards, cards, copies);
    for (std::int32_t e = 0; e < experts; ++e) {
      deck_.insert(deck_.end(), static_cast<std::size_t>(copies[static_cast<std::size_t>(e)]), e);
    }
  }
  /// Draws experts for every token; experts that the token already has are drawn again.
  [[nodiscard]] std::vector<std::int32_t> choose(index_t tokens, std::uint64_t stream) const {
    std::vector<std::int32_t> chosen;
    chosen.reserve(static_cast<std::size_t>(tokens * top_k));
    std::uint64_t word = 0;
    for (std::uint64_t drawn = 0; std::ssize(chosen) < tokens * top_k; ++drawn) {
      word = drawn % 4 == 0 ? plimsoll::random::bits(1, stream, drawn / 4) : word >> 16;
      std::int32_t const e = deck_[word & 0xffff];
      auto const first_of_token = chosen.end() - std::ssize(chosen) % top_k;
      if (std::find(first_of_token, chosen.end(), e) == chosen.end()) {
        chosen.push_back(e);
      }
    }
    return chosen;
  }

  std::vector<std::int32_t> deck_;
  std::vector<std::vector<std::int32_t>> of_rank_;
  counts loads_;
};

/// Averages the time of the ranks over draws: the peak divided by the mean of perfectly divided
/// work.
class peaks {
 public:
  explicit peaks(setting const& s) : s_(s) {}

  void add(counts const& loads) {
    double time = 0;
    for (index_t r = 0; r < s_.ranks; ++r) {
      time = std::max(time, 2.0 * static_cast<double>(loads[static_cast<std::size_t>(r)]) /
                                static_cast<double>(s_.half_speeds_of(r)));
    }
    add(time, loads);
  }
  /// Adds the lowest possible peak; no rank can have less than its routed load.
  void add_least(counts const& routed, counts const& at_home) {
    std::int64_t total = 0;
    for (std::int64_t const load : at_home) {
      total += load;
    }
    auto const fits = [&](std::int64_t time) {
      std::int64_t room = 0;
      for (index_t r = 0; r < s_.ranks; ++r) {
        std::int64_t const of_rank = time * s_.half_speeds_of(r) / 2;
        if (of_rank < routed[static_cast<std::size_t>(r)]) {
          return false;
        }
        room += of_rank;
      }
      return room >= total;
    };
    std::int64_t time = total / s_.ranks;
    while (!fits(time)) {
      ++time;
    }
    add(static_cast<double>(time), at_home);
  }
  [[nodiscard]] std::string cell() const {
    return text(" %.4f |", sum_ / static_cast<double>(s_.draws()));
  }

 private:
  void add(double time, counts const& loads) {
    double total = 0;
    double speed = 0;
    for (index_t r = 0; r < s_.ranks; ++r) {
      total += static_cast<double>(loads[static_cast<std::size_t>(r)]);
      speed += 0.5 * static_cast<double>(s_.half_speeds_of(r));
    }
    sum_ += time / (total / speed);
  }

  setting s_;
  double sum_ = 0;
};

/// Results of a method over all batches.
struct outcome {
  peaks peak;
  std::int64_t rows = 0;
  std::int64_t moved = 0;
  std::int64_t new_destinations = 0;
  std::int64_t surplus = 0;
  std::int64_t unplaced = 0;
};

struct rule {
  plimsoll::fill_method method;
  plimsoll::candidate_ranks candidates;
};
constexpr rule rules[] = {{plimsoll::fill_method::surplus, plimsoll::candidate_ranks::visited},
                          {plimsoll::fill_method::surplus, plimsoll::candidate_ranks::all},
                          {plimsoll::fill_method::sampled, plimsoll::candidate_ranks::visited},
                          {plimsoll::fill_method::sampled, plimsoll::candidate_ranks::all}};

/// Runs all methods on the batches of one setting.
class experiment {
 public:
  explicit experiment(setting const& s)
      : s_(s), home_(s), least_(s), by_rule_(std::size(rules), {peaks(s)}), sglang_{peaks(s)} {
    for (std::uint64_t draw = 0; draw < s_.draws(); ++draw) {
      batch const b(s_, draw);
      counts routed;
      counts at_home;
      for (index_t r = 0; r < s_.ranks; ++r) {
        routed.push_back(b.loads()(0, r));
        at_home.push_back(b.loads()(0, r) + b.loads()(1, r));
      }
      home_.add(at_home);
      least_.add_least(routed, at_home);
      for (std::size_t i = 0; i < by_rule_.size(); ++i) {
        fill({.method = rules[i].method, .candidates = rules[i].candidates}, b, routed, draw,
             by_rule_[i]);
      }
      if (sglang_can()) {
        fill(plimsoll::literal_waterfill({}), b, routed, draw, sglang_);
      }
    }
  }

  void print_peaks() const {
    std::cout << home_.cell() << least_.cell();
    for (outcome const& o : by_rule_) {
      std::cout << o.peak.cell();
    }
    std::cout << (sglang_can() ? sglang_.peak.cell() : " - |");
  }
  void print_moves() const {
    for (outcome const& o : by_rule_) {
      std::cout << share(o.moved, o.rows);
    }
    for (std::size_t i = 0; i < by_rule_.size(); ++i) {
      if (rules[i].candidates == plimsoll::candidate_ranks::all) {
        std::cout << share(by_rule_[i].new_destinations, by_rule_[i].rows);
      }
    }
    std::cout << share(by_rule_[0].unplaced, by_rule_[0].surplus);
  }

 private:
  [[nodiscard]] bool sglang_can() const {
    return s_.ranks <= most_ranks_of_sglang && s_.what != unlike::speed;
  }

  /// Places the rows of all ranks; `loads` are the routed loads.
  void fill(plimsoll::waterline_options options, batch const& b, counts loads, std::uint64_t draw,
            outcome& o) const {
    std::vector<double> speeds;
    for (index_t r = 0; r < s_.ranks; ++r) {
      speeds.push_back(0.5 * static_cast<double>(s_.half_speeds_of(r)));
    }
    options.on.ranks = s_.ranks;
    options.slots = experts;
    options.on.speeds = {speeds.data(), s_.ranks};
    options.top_k = top_k;
    options.max_tokens = most_tokens;
    plimsoll::waterline line(plimsoll::seq, options);
    std::vector<std::int32_t> row_ranks(most_tokens);
    for (index_t source = 0; source < s_.ranks; ++source) {
      line.plan(b.loads(), source);
      index_t const tokens = b.ids(source).extent(0);
      line.fill(b.ids(source), source, {.subsequence = draw}, plimsoll::matrix_ref<std::int32_t>{},
                {.ranks = {row_ranks.data(), tokens}});
      line.check();
      plimsoll::waterline_report const report = *line.report();
      o.rows += report.rows;
      o.moved += report.moved;
      o.new_destinations += report.new_destinations;
      o.unplaced += report.unplaced;
      o.surplus += source == 0 ? report.surplus : 0;  // the report counts all sources
      for (index_t i = 0; i < tokens; ++i) {
        ++loads[static_cast<std::size_t>(row_ranks[static_cast<std::size_t>(i)])];
      }
    }
    o.peak.add(loads);
  }

  setting s_;
  peaks home_;
  peaks least_;
  std::vector<outcome> by_rule_;
  outcome sglang_;
};

constexpr char const* peaks_head =
    "all at home | least | surplus, visited | surplus, all | sampled, visited | sampled, all | "
    "SGLang |\n";

void print_even_ranks() {
  std::vector<setting> settings;
  for (double const skew : {0.25, 0.5, 1.0}) {
    for (index_t const ranks : {8, 16, 32, 64, 128, 256}) {
      settings.push_back({skew, ranks});
    }
  }
  std::vector<experiment> const made(settings.begin(), settings.end());
  auto const print_rows = [&](auto print) {
    for (std::size_t i = 0; i < made.size(); ++i) {
      std::cout << "| " << text("%.2f | ", settings[i].skew) << settings[i].ranks << " |";
      (made[i].*print)();
      std::cout << "\n";
    }
  };
  std::cout << "| skew | ranks | " << peaks_head
            << "|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  print_rows(&experiment::print_peaks);
  std::cout
      << "\n| skew | ranks | moved: surplus, visited | surplus, all | sampled, visited | "
         "sampled, all | new destinations: surplus, all | sampled, all | surplus that stays |\n"
         "|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  print_rows(&experiment::print_moves);
}

void print_unlike_ranks() {
  std::cout << "\n| ranks that differ | ranks | " << peaks_head
            << "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (unlike const what : {unlike::tokens, unlike::speed}) {
    for (index_t const ranks : {16, 64}) {
      std::cout << (what == unlike::tokens ? "| every other has 256 tokens | "
                                           : "| the first has half the speed | ")
                << ranks << " |";
      experiment({0.25, ranks, what}).print_peaks();
      std::cout << "\n";
    }
  }
}

}  // namespace

// Receives its page like all table programs, but does not need it.
int main() {
  try {
    print_even_ranks();
    print_unlike_ranks();
  } catch (std::exception const& e) {
    std::cerr << "filled_ranks: " << e.what() << "\n";
    return 2;
  }
}
