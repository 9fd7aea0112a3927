// SPDX-License-Identifier: Apache-2.0
// Traces with options of `swap_search`, the result of the search, and a slow search by definition
// that evaluates every swap in integers.
#pragma once

#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/swap_search.hpp>
#include <plimsoll/types.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "generators.hpp"
#include "owned.hpp"
#include "policies.hpp"

namespace plimsoll_test {

using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;
using reals = std::vector<double>;
using flags = std::vector<std::uint8_t>;

/// A latency that is a whole number of units, so that sums of them are exact.
struct stairs {
  static constexpr index_t kinds = 8;

  index_t rank_count = 0;  ///< number of ranks that the cost is for; 0: any
  double tokens_per_load = 1;
  double unit = 1;
  std::int64_t tile = 16;
  double idle[kinds] = {};  ///< element r % kinds is that of rank r
  double of_tile[kinds] = {1, 1, 1, 1, 1, 1, 1, 1};
  double of_token[kinds] = {};

  [[nodiscard]] PLIMSOLL_HD index_t ranks() const { return rank_count; }
  PLIMSOLL_HD double operator()(index_t rank, double load) const {
    double const tokens = load * tokens_per_load;
    auto whole = static_cast<std::int64_t>(tokens);
    whole += static_cast<double>(whole) < tokens ? 1 : 0;
    index_t const r = rank % kinds;
    double const tiles = static_cast<double>((whole + tile - 1) / tile);
    // A callable must not be contracted either: its values decide between equal plans.
    using plimsoll::detail::add;
    using plimsoll::detail::multiply;
    double const sum = add(add(idle[r], multiply(of_tile[r], tiles)),
                           multiply(of_token[r], static_cast<double>(whole)));
    return multiply(unit, sum);
  }
};

/// A trace and options. An empty vector means that the option is not set.
struct search_case {
  index_t steps = 1;
  index_t layers = 1;
  index_t experts = 1;
  index_t slots = 1;
  reals loads = {};  ///< [steps, layers, experts]
  stairs cost = {};
  /// As in the paper, without perturbations.
  plimsoll::swap_search_options options = {.on = {.ranks = 1}, .max_perturbations = 0};
  ints offsets = {};  ///< [layers, ranks + 1]
  flags active = {};  ///< [ranks]
  ints counts = {};   ///< [layers, experts]

  [[nodiscard]] index_t ranks() const { return options.on.ranks; }
  [[nodiscard]] bool lives(index_t r) const {
    return active.empty() || active[static_cast<std::size_t>(r)] != 0;
  }
  [[nodiscard]] index_t offset(index_t layer, index_t r) const {
    return offsets.empty() ? r * slots / ranks()
                           : offsets[static_cast<std::size_t>(layer * (ranks() + 1) + r)];
  }
  /// Returns the slots of a rank that may hold replicas.
  [[nodiscard]] index_t room(index_t layer, index_t r) const {
    return lives(r) ? offset(layer, r + 1) - offset(layer, r) : 0;
  }
  [[nodiscard]] std::int32_t copies(index_t layer, index_t e) const {
    return counts.empty() ? 1 : counts[static_cast<std::size_t>(layer * experts + e)];
  }
  [[nodiscard]] ints all_copies() const {
    return counts.empty() ? ints(static_cast<std::size_t>(layers * experts), 1) : counts;
  }
  [[nodiscard]] double load(index_t step, index_t layer, index_t e) const {
    return loads[static_cast<std::size_t>((step * layers + layer) * experts + e)];
  }
};

struct search_outcome {
  ints map;
  reals scores;  ///< [layers, restarts]
  std::vector<plimsoll::certificate> certificates;

  bool operator==(search_outcome const& other) const {
    return map == other.map && scores == other.scores && same(certificates, other.certificates);
  }
};
using search_fn = search_outcome (*)(search_case const&);

/// Options with their arrays in the memory of a policy.
template <class P>
class search_options_in {
 public:
  explicit search_options_in(search_case const& c)
      : offsets_(c.offsets), active_(c.active), counts_(c.counts), options_(c.options) {
    if (!c.offsets.empty()) {
      options_.rank_offsets = offsets_.view2(c.layers, c.ranks() + 1);
    }
    if (!c.active.empty()) {
      options_.on.active = active_.view1();
    }
    if (!c.counts.empty()) {
      options_.replica_count = counts_.view2(c.layers, c.experts);
    }
  }
  [[nodiscard]] plimsoll::swap_search_options const& operator*() const { return options_; }

 private:
  array_in<std::int32_t, P> offsets_;
  array_in<std::uint8_t, P> active_;
  array_in<std::int32_t, P> counts_;
  plimsoll::swap_search_options options_;
};

template <class P, class Id = std::int32_t, class Loads, class Cost>
search_outcome search_of(search_case const& c, Loads const& loads, Cost const& cost) {
  search_options_in<P> const options(c);
  array_in<Id, P> map(c.layers * c.slots, -7);
  array_in<double, P> scores(c.layers * c.options.restarts, -7.0);
  auto certificates =
      plimsoll::swap_search(make_policy<P>(), loads, cost, *options, map.view2(c.layers, c.slots),
                            scores.view2(c.layers, c.options.restarts));
  return {as_int32(map.values()), scores.values(), std::move(certificates)};
}

template <class P, class T = float, class Id = std::int32_t>
search_outcome searched(search_case const& c) {
  array_in<T, P> const loads(std::vector<T>(c.loads.begin(), c.loads.end()));
  return search_of<P, Id>(c, loads.view3(c.steps, c.layers, c.experts), c.cost);
}

/// Searches one layer by definition. Costs must be whole numbers.
class slow_search {
 public:
  slow_search(search_case const& c, index_t layer) : c_(c), layer_(layer) {
    double total = 0;
    for (index_t t = 0; t < c.steps; ++t) {
      for (index_t e = 0; e < c.experts; ++e) {
        total += c.load(t, layer, e);
      }
    }
    // Loads are scaled so that their total has 47 bits; loads per replica are rounded down.
    shift_ = total > 0 ? 47 - (std::ilogb(total) + 1) : 0;
    for (index_t e = 0; e < c.experts; ++e) {
      for (std::int32_t copy = 0; copy < c.copies(layer, e); ++copy) {
        expert_of_.push_back(e);
        part_.emplace_back();
        for (index_t t = 0; t < c.steps; ++t) {
          part_.back().push_back(
              static_cast<std::int64_t>(std::ldexp(c.load(t, layer, e), shift_)) /
              c.copies(layer, e));
        }
      }
    }
  }

  struct outcome {
    ints map;
    longs scores;
    std::int64_t work = 0;
  };

  [[nodiscard]] outcome search() {
    outcome best;
    for (index_t restart = 0; restart < c_.options.restarts; ++restart) {
      start(restart);
      best.work += refine();
      std::int64_t const now = score();
      if (best.scores.empty() || now < *std::min_element(best.scores.begin(), best.scores.end())) {
        best.map.clear();
        for (index_t const item : item_in_) {
          best.map.push_back(static_cast<std::int32_t>(item < 0 ? -1 : expert(item)));
        }
      }
      best.scores.push_back(now);
    }
    return best;
  }

  /// Returns the lowest score of all placements.
  [[nodiscard]] std::int64_t optimum() {
    item_in_.assign(static_cast<std::size_t>(c_.slots), -1);
    return lowest(0);
  }

  /// Returns the documented lower bound for a fraction `part` of the tokens.
  [[nodiscard]] std::int64_t bound(double part) const {
    longs of_step;
    for (index_t t = 0; t < c_.steps; ++t) {
      std::int64_t heaviest = 0;
      std::int64_t total = 0;
      for (std::size_t item = 0; item < part_.size(); ++item) {
        heaviest = std::max(heaviest, part_[item][static_cast<std::size_t>(t)]);
        total += part_[item][static_cast<std::size_t>(t)];
      }
      std::int64_t time = INT64_MAX;
      for (index_t r = 0; r < c_.ranks(); ++r) {
        time = c_.room(layer_, r) > 0 ? std::min(time, latency(r, heaviest)) : time;
      }
      double const all = std::ldexp(static_cast<double>(total), -shift_);
      auto const enough = [&](std::int64_t limit) {
        std::int64_t sum = 0;
        for (index_t r = 0; r < c_.ranks(); ++r) {
          std::int64_t done = -1;  // whole tokens within the limit
          for (auto more = static_cast<std::int64_t>(all) + 2;
               c_.room(layer_, r) > 0 && more > 1;) {
            std::int64_t const half = (more - done) / 2;
            if (half == 0) {
              break;
            }
            (c_.cost(r, static_cast<double>(done + half)) <= static_cast<double>(limit) ? done
                                                                                        : more) =
                done + half;
          }
          sum += std::max<std::int64_t>(done, 0);
        }
        return static_cast<double>(sum) >= all * part;
      };
      for (index_t r = 0; r < c_.ranks(); ++r) {
        time = std::max(time, c_.room(layer_, r) > 0 ? latency(r, 0) : 0);
      }
      if (!enough(time)) {
        std::int64_t high = 1;
        while (!enough(high)) {
          high *= 2;
        }
        while (high - time > 1) {
          std::int64_t const middle = time + (high - time) / 2;
          (enough(middle) ? high : time) = middle;
        }
        time = high;
      }
      of_step.push_back(time);
    }
    return objective(of_step);
  }

 private:
  [[nodiscard]] index_t expert(index_t item) const {
    return expert_of_[static_cast<std::size_t>(item)];
  }
  [[nodiscard]] std::int64_t latency(index_t r, std::int64_t tokens) const {
    return static_cast<std::int64_t>(c_.cost(r, std::ldexp(static_cast<double>(tokens), -shift_)) /
                                     c_.cost.unit);
  }
  [[nodiscard]] std::int64_t objective(longs of_step) const {
    if (c_.options.objective == plimsoll::latency_objective::quantile) {
      std::sort(of_step.begin(), of_step.end());
      double const within = std::ceil(c_.options.quantile * static_cast<double>(c_.steps));
      return of_step[static_cast<std::size_t>(within) - 1];
    }
    return sum(of_step);
  }
  [[nodiscard]] static std::int64_t sum(longs const& values) {
    std::int64_t result = 0;
    for (std::int64_t const value : values) {
      result += value;
    }
    return result;
  }

  /// Returns the latencies of a rank in all steps.
  [[nodiscard]] longs latencies(index_t r) const {
    longs tokens(static_cast<std::size_t>(c_.steps), 0);
    for (index_t s = 0; s < c_.room(layer_, r); ++s) {
      index_t const item = item_in_[static_cast<std::size_t>(c_.offset(layer_, r) + s)];
      for (std::size_t t = 0; item >= 0 && t < tokens.size(); ++t) {
        tokens[t] += part_[static_cast<std::size_t>(item)][t];
      }
    }
    for (std::int64_t& n : tokens) {
      n = c_.room(layer_, r) > 0 ? latency(r, n) : 0;
    }
    return tokens;
  }
  /// Returns the longest latency of every step, without up to two ranks.
  [[nodiscard]] longs longest(index_t without = -1, index_t nor = -1) const {
    longs result(static_cast<std::size_t>(c_.steps), 0);
    for (index_t r = 0; r < c_.ranks(); ++r) {
      longs const own = latencies(r);
      for (std::size_t t = 0; r != without && r != nor && t < own.size(); ++t) {
        result[t] = std::max(result[t], own[t]);
      }
    }
    return result;
  }
  [[nodiscard]] std::int64_t score() const { return objective(longest()); }

  [[nodiscard]] bool holds(index_t r, index_t e, index_t except = -1) const {
    for (index_t s = c_.offset(layer_, r); s < c_.offset(layer_, r + 1); ++s) {
      index_t const item = item_in_[static_cast<std::size_t>(s)];
      if (s != except && item >= 0 && expert(item) == e) {
        return true;
      }
    }
    return false;
  }
  /// Returns the first free slot of a rank; -1 if there is none.
  [[nodiscard]] index_t free_slot(index_t r) const {
    for (index_t s = 0; s < c_.room(layer_, r); ++s) {
      if (item_in_[static_cast<std::size_t>(c_.offset(layer_, r) + s)] < 0) {
        return c_.offset(layer_, r) + s;
      }
    }
    return -1;
  }

  [[nodiscard]] std::int64_t use(index_t restart, index_t item) const {
    std::int64_t const used = sum(part_[static_cast<std::size_t>(item)]);
    if (restart == 0) {
      return used;
    }
    double const draw =
        plimsoll::random::uniform(c_.options.seed, static_cast<std::uint64_t>(layer_),
                                  static_cast<std::uint64_t>((restart << 32) + item));
    double const factor = plimsoll::detail::mul_then_add(2 * draw - 1, c_.options.noise, 1.0);
    return static_cast<std::int64_t>(static_cast<double>(used) * factor);
  }

  void start(index_t restart) {
    item_in_.assign(static_cast<std::size_t>(c_.slots), -1);
    std::vector<std::pair<std::int64_t, index_t>> order;
    for (index_t item = 0; item < std::ssize(expert_of_); ++item) {
      order.emplace_back(-use(restart, item), item);
    }
    std::sort(order.begin(), order.end());
    for (auto const& [key, item] : order) {
      // Whether the rank holds a replica of the expert, the score, the rank's latency, the rank.
      std::tuple<bool, std::int64_t, std::int64_t, index_t> best{true, INT64_MAX, 0, -1};
      for (index_t r = 0; r < c_.ranks(); ++r) {
        index_t const slot = free_slot(r);
        if (slot >= 0) {
          bool const meets = holds(r, expert(item));
          item_in_[static_cast<std::size_t>(slot)] = item;
          best = std::min(best, {meets, sum(longest()), sum(latencies(r)), r});
          item_in_[static_cast<std::size_t>(slot)] = -1;
        }
      }
      item_in_[static_cast<std::size_t>(free_slot(std::get<3>(best)))] = item;
    }
  }

  struct swap {
    std::int64_t gain = 0;
    index_t slot_a = -1;
    index_t slot_b = -1;
  };
  void exchange(swap const& s) {
    std::swap(item_in_[static_cast<std::size_t>(s.slot_a)],
              item_in_[static_cast<std::size_t>(s.slot_b)]);
  }
  [[nodiscard]] bool brings_together(index_t a, index_t slot_a, index_t b, index_t slot_b) const {
    index_t const from_a = item_in_[static_cast<std::size_t>(slot_a)];
    index_t const from_b = item_in_[static_cast<std::size_t>(slot_b)];
    return (from_a >= 0 && holds(b, expert(from_a), slot_b)) ||
           (from_b >= 0 && holds(a, expert(from_b), slot_a));
  }

  /// Returns the best swap. Ties go to the rank without which the score is lowest, then to the
  /// second rank without which it is lowest, then to the lowest ranks and slots.
  [[nodiscard]] swap best_swap(bool level) {
    bool const is_total = c_.options.objective == plimsoll::latency_objective::total;
    longs const top = longest();
    std::int64_t const before = objective(top);
    flags is_last(static_cast<std::size_t>(c_.ranks()), 0);  // slowest rank of a step that counts
    for (std::size_t t = 0; t < top.size(); ++t) {
      index_t r = 0;
      while (latencies(r)[t] < top[t]) {
        ++r;
      }
      is_last[static_cast<std::size_t>(r)] |= is_total || top[t] >= before;
    }
    std::vector<std::pair<std::int64_t, index_t>> firsts;
    for (index_t a = 0; a < c_.ranks(); ++a) {
      if (is_last[static_cast<std::size_t>(a)] != 0) {
        firsts.emplace_back(is_total ? sum(longest(a)) : 0, a);
      }
    }
    std::sort(firsts.begin(), firsts.end());
    swap best;
    flags is_done(static_cast<std::size_t>(c_.ranks()), 0);
    for (auto const& first : firsts) {
      index_t const a = first.second;
      std::vector<std::pair<std::int64_t, index_t>> seconds;
      for (index_t b = 0; b < c_.ranks(); ++b) {
        if (b != a && is_done[static_cast<std::size_t>(b)] == 0) {
          seconds.emplace_back(is_total ? sum(longest(a, b)) : 0, b);
        }
      }
      std::sort(seconds.begin(), seconds.end());
      for (auto const& second : seconds) {
        index_t const b = second.second;
        longs const of_a = latencies(a);
        longs const of_b = latencies(b);
        for (index_t i = 0; i < c_.room(layer_, a) * c_.room(layer_, b); ++i) {
          swap s{0, c_.offset(layer_, a) + i / c_.room(layer_, b),
                 c_.offset(layer_, b) + i % c_.room(layer_, b)};
          if (brings_together(a, s.slot_a, b, s.slot_b)) {
            continue;
          }
          exchange(s);
          s.gain = before - score();
          if (level && s.gain >= 0) {
            longs const after_a = latencies(a);
            longs const after_b = latencies(b);
            s.gain = 0;
            for (std::size_t t = 0; t < top.size(); ++t) {
              s.gain += std::max(of_a[t], of_b[t]) - std::max(after_a[t], after_b[t]);
            }
          }
          exchange(s);
          if (s.gain > best.gain) {
            best = s;
          }
        }
      }
      is_done[static_cast<std::size_t>(a)] = 1;
    }
    return best;
  }

  /// Returns the number of swaps.
  std::int64_t refine() {
    std::int64_t level = 0;
    for (std::int64_t swaps = 0;; ++swaps) {
      if (swaps == c_.options.max_swaps) {
        return swaps;
      }
      swap best = best_swap(false);
      bool const is_level = best.gain == 0 && level < c_.options.max_plateau_moves;
      level = is_level ? level + 1 : 0;
      if (is_level) {
        best = best_swap(true);
      }
      if (best.gain == 0) {
        return swaps;
      }
      auto const before = static_cast<double>(score());
      exchange(best);
      if (!is_level && static_cast<double>(best.gain) < c_.options.min_gain * before) {
        return swaps + 1;
      }
    }
  }

  [[nodiscard]] std::int64_t lowest(index_t item) {
    if (item == std::ssize(expert_of_)) {
      return score();
    }
    std::int64_t best = INT64_MAX;
    for (index_t r = 0; r < c_.ranks(); ++r) {
      if (index_t const slot = free_slot(r); slot >= 0) {
        item_in_[static_cast<std::size_t>(slot)] = item;
        best = std::min(best, lowest(item + 1));
        item_in_[static_cast<std::size_t>(slot)] = -1;
      }
    }
    return best;
  }

  search_case const& c_;
  index_t layer_;
  int shift_ = 0;
  std::vector<index_t> expert_of_;     ///< expert of every replica
  std::vector<longs> part_;            ///< load of every replica in every step
  std::vector<index_t> item_in_ = {};  ///< replica in every slot, or -1
};

/// A random search with at most `most_ranks` ranks and `most_experts` experts.
inline search_case random_search(std::uint64_t seed, index_t most_ranks, index_t most_experts) {
  generator random(seed);
  auto const often = [&random](int percent) { return random.between(0, 99) < percent; };
  constexpr index_t steps[] = {1, 2, 3, 5, 8, 16, 3, 2};
  search_case c;
  c.steps = steps[seed % 8];
  c.layers = random.between(1, 2);
  c.options.on.ranks = random.between(often(10) ? 1 : 2, most_ranks);
  c.experts = random.between(1, most_experts);
  c.slots = c.experts + (often(50) ? random.between(0, 4) : 0);
  c.cost.tile = std::int64_t{1} << random.between(0, 5);
  bool const has_idle = often(30);
  for (index_t r = 0; r < stairs::kinds; ++r) {
    c.cost.idle[r] = has_idle ? static_cast<double>(random.between(0, 9)) : 0.0;
    c.cost.of_tile[r] = static_cast<double>(random.between(often(50) ? 7 : 2, 9));
    c.cost.of_token[r] = static_cast<double>(often(30) ? random.between(0, 2) : 0);
  }
  // Few different loads cause ties.
  std::int64_t const spread = often(30) ? 3 : 400;
  for (index_t i = 0; i < c.steps * c.layers * c.experts; ++i) {
    std::int64_t const load = random.between(0, spread);
    c.loads.push_back(static_cast<double>(often(10) ? 0 : often(20) ? 3 * load : load));
  }
  if (often(40)) {
    for (index_t layer = 0; layer < c.layers; ++layer) {
      ints row{0};
      for (index_t r = 0; r < c.ranks(); ++r) {
        row.push_back(static_cast<std::int32_t>(random.between(0, c.slots)));
      }
      row.back() = static_cast<std::int32_t>(c.slots);
      std::sort(row.begin(), row.end());
      c.offsets.insert(c.offsets.end(), row.begin(), row.end());
    }
  }
  auto const room = [&] {
    index_t least = c.slots;
    for (index_t layer = 0; layer < c.layers; ++layer) {
      index_t sum = 0;
      for (index_t r = 0; r < c.ranks(); ++r) {
        sum += c.room(layer, r);
      }
      least = std::min(least, sum);
    }
    return least;
  };
  if (often(25)) {
    c.active.assign(static_cast<std::size_t>(c.ranks()), 1);
    c.active[static_cast<std::size_t>(random.between(0, c.ranks() - 1))] = 0;
    if (room() < c.experts) {
      c.active.clear();
    }
  }
  if (often(40)) {
    c.counts.assign(static_cast<std::size_t>(c.layers * c.experts), 1);
    for (index_t layer = 0; layer < c.layers; ++layer) {
      for (index_t extra = random.between(0, room() - c.experts); extra > 0; --extra) {
        ++c.counts[static_cast<std::size_t>(layer * c.experts + random.between(0, c.experts - 1))];
      }
    }
  }
  constexpr double gains[] = {0, 0.001, 0.05};
  constexpr double quantiles[] = {0.5, 0.95, 1, 0.01};
  c.options.min_gain = gains[random.between(0, 2)];
  c.options.restarts = random.between(1, 3);
  c.options.noise = often(50) ? 0.2 : 0.9;
  c.options.seed = seed / 2;
  c.options.max_swaps = often(15) ? random.between(0, 2) : 1000;
  c.options.max_plateau_moves = often(30) ? random.between(1, 3) : 0;
  if (often(30)) {
    c.options.objective = plimsoll::latency_objective::quantile;
    c.options.quantile = quantiles[random.between(0, 3)];
  }
  return c;
}

}  // namespace plimsoll_test
