// SPDX-License-Identifier: Apache-2.0
// plan_within over several steps by its definition: plans from public calls, balancedness from all
// subsets of ranks, and the best choice within a budget by trying all.
#pragma once

#include <plimsoll/flow_placement.hpp>
#include <plimsoll/migration.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "draws.hpp"
#include "migration_plan.hpp"
#include "move_path.hpp"

namespace plimsoll_test::migration_plan_support {

/// Gives a case several steps: the loads of the case, each step with its own noise, a change in the
/// middle, and steps without load.
inline void add_steps(plan_case& c, index_t steps, std::uint64_t seed, bool changes) {
  draws draw(seed);
  longs const mean = c.loads;
  longs const later = skewed_loads(c.layers, c.experts, seed + 321);
  c.steps = steps;
  c.loads.clear();
  c.where.load_exponent = 1;
  for (index_t step = 0; step < steps; ++step) {
    bool const is_idle = draw.one_in(6);
    for (index_t layer = 0; layer < c.layers; ++layer) {
      bool const none = is_idle || draw.one_in(8);
      for (index_t e = 0; e < c.experts; ++e) {
        auto const at = static_cast<std::size_t>(layer * c.experts + e);
        std::int64_t const usual = changes && 2 * step >= steps ? later[at] : mean[at];
        c.loads.push_back(none ? 0 : usual * draw.among(5, 15) / 10);
      }
    }
  }
}

/// What plan_within may choose in one layer; the gain is that less the price of the moves.
struct slow_option {
  std::int64_t moves = 0;
  double gain = 0;
};

class slow_plan_within {
 public:
  explicit slow_plan_within(plan_case const& c)
      : c_(c), in_(c, c.loads), options_(static_cast<std::size_t>(c.layers), {slow_option{}}) {
    for (index_t layer = 0; layer < c.layers; ++layer) {
      ints const row = costs(0, layer).in_use();
      live_.insert(live_.end(), row.begin(), row.end());
    }
    index_t const middle =
        (c.options.judge_on == plimsoll::judged_steps::unseen) ? first_of_second_half() : 0;
    if (limit_of_layer() > 0 && middle > 0) {
      validate(middle);
    } else if (limit_of_layer() > 0) {
      for (candidate const& one : made_from(0, c.steps)) {
        add(one, gain(one, 0, c.steps));
      }
      add_target([](index_t, double gain) { return gain; });
    }
  }

  /// True if a kind of plans gains as much as its standard error up to rounding.
  [[nodiscard]] bool is_tie() const { return is_tie_; }
  /// The largest sum of gains with the budget.
  [[nodiscard]] double best_gain() const { return best_from(0, c_.options.max_moves); }
  /// Returns whether a layer has an option with these moves and this gain.
  [[nodiscard]] bool has(index_t layer, std::int64_t moves, double gain) const {
    auto const& all = options_[static_cast<std::size_t>(layer)];
    return std::any_of(all.begin(), all.end(), [&](slow_option const& one) {
      return one.moves == moves && std::abs(one.gain - gain) < 1e-9;
    });
  }

 private:
  static constexpr double bonuses[] = {0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2};
  static constexpr std::size_t path_kinds = 7;  ///< from this kind on
  static constexpr std::size_t kinds = 13;
  static constexpr std::int64_t path_lengths[] = {1, 2, 4, 8, 16, 32};

  struct candidate {
    std::size_t kind;  ///< a bonus, then a number of moves
    index_t layer;
    ints map;
  };

  [[nodiscard]] std::int64_t limit_of_layer() const {
    return std::min(c_.options.max_moves_per_layer, c_.options.max_moves);
  }
  [[nodiscard]] longs loads_of(index_t step, index_t layer) const {
    return row_of(c_.loads, step * c_.layers + layer, c_.experts);
  }
  [[nodiscard]] bool has_load(index_t step, index_t layer) const {
    longs const loads = loads_of(step, layer);
    return std::accumulate(loads.begin(), loads.end(), std::int64_t{0}) > 0;
  }
  /// The costs of the scene with the loads of one step in every layer.
  [[nodiscard]] layer_costs costs(index_t step, index_t layer) const {
    scene one = c_;
    one.loads = {c_.loads.begin() + step * c_.layers * c_.experts,
                 c_.loads.begin() + (step + 1) * c_.layers * c_.experts};
    return {one, layer};
  }
  [[nodiscard]] index_t first_of_second_half() const {
    std::vector<index_t> busy;
    for (index_t step = 0; step < c_.steps; ++step) {
      bool any = false;
      for (index_t layer = 0; layer < c_.layers; ++layer) {
        any = any || has_load(step, layer);
      }
      if (any) {
        busy.push_back(step);
      }
    }
    return busy.size() < 2 ? 0 : busy[busy.size() / 2];
  }

  /// Mean balancedness in the steps with load of [first, last); none without load.
  [[nodiscard]] std::optional<double> balancedness(ints const& map, index_t layer, index_t first,
                                                   index_t last) const {
    double sum = 0;
    int count = 0;
    for (index_t step = first; step < last; ++step) {
      if (has_load(step, layer)) {
        layer_costs const facts = costs(step, layer);
        sum += facts.mean_of_live_ranks() / facts.peak(map.data(), c_.options.split);
        ++count;
      }
    }
    return count == 0 ? std::nullopt : std::optional<double>(sum / count);
  }
  [[nodiscard]] ints live_row(index_t layer) const {
    return {live_.begin() + layer * c_.slots, live_.begin() + (layer + 1) * c_.slots};
  }
  [[nodiscard]] double gain(candidate const& one, index_t first, index_t last) const {
    auto const now = balancedness(live_row(one.layer), one.layer, first, last);
    return now ? *balancedness(one.map, one.layer, first, last) - *now : 0.0;
  }

  /// Plans of all kinds from steps [first, last); with one step of the case all points of the path.
  [[nodiscard]] std::vector<candidate> made_from(index_t first, index_t last) const {
    std::vector<candidate> all;
    bool const apart = c_.where.replica_anti_affinity == anti_affinity::node &&
                       c_.where.anti_affinity_strength == strictness::required;
    for (std::size_t kind = 0; c_.where.node_experts.empty() && !apart && kind < path_kinds;
         ++kind) {
      auto const plan = plimsoll::place_by_flow(
          plimsoll::seq,
          plimsoll::tensor_ref<std::int64_t const>(c_.loads.data() + first * c_.layers * c_.experts,
                                                   last - first, c_.layers, c_.experts),
          c_.slots,
          {.on = with_ranks(),
           .rank_offsets = in_.from().rank_offsets,
           .split = c_.options.split,
           .in_use = {live_.data(), c_.layers, c_.slots},
           .keep_bonus = bonuses[kind]});
      ints const map = plan.physical_to_logical.to_host();
      for (index_t layer = 0; layer < c_.layers; ++layer) {
        all.push_back(
            {kind, layer, {map.begin() + layer * c_.slots, map.begin() + (layer + 1) * c_.slots}});
      }
    }
    scene sums = c_;
    sums.loads.assign(static_cast<std::size_t>(c_.layers * c_.experts), 0);
    for (index_t step = first; step < last; ++step) {
      for (std::size_t i = 0; i < sums.loads.size(); ++i) {
        sums.loads[i] += c_.loads[static_cast<std::size_t>(step) * sums.loads.size() + i];
      }
    }
    for (index_t layer = 0; layer < c_.layers; ++layer) {
      auto const way = move_path_support::follow_path(sums, layer,
                                                      {.split = c_.options.split,
                                                       .keeps_counts = false,
                                                       .price = 0,
                                                       .target = 0,
                                                       .most_moves = plimsoll::unlimited});
      auto const at = [&](plimsoll::detail::path_point const& point, std::size_t kind) {
        ints map = live_row(layer);
        for (std::int32_t i = 0; i < point.changes; ++i) {
          auto const& change = way.changes[static_cast<std::size_t>(i)];
          map[static_cast<std::size_t>(change.slot)] = change.expert;
        }
        all.push_back({kind, layer, std::move(map)});
      };
      for (auto const& point : way.points) {
        if (c_.steps == 1) {
          at(point, path_kinds);
        }
      }
      for (std::size_t i = 0; i < std::size(path_lengths) && c_.steps > 1; ++i) {
        auto last_within = way.points.front();
        for (auto const& point : way.points) {
          last_within = point.moves <= path_lengths[i] ? point : last_within;
        }
        at(last_within, path_kinds + i);
      }
    }
    return all;
  }
  [[nodiscard]] plimsoll::rank_set with_ranks() const {
    plimsoll::rank_set on = in_.where().on;
    on.ranks = c_.where.ranks;
    return on;
  }

  void add(candidate const& one, double gain) {
    std::int64_t const moves = costs(0, one.layer).moves_to(one.map.data());
    if (moves <= limit_of_layer()) {
      double const net = gain - c_.options.move_price * static_cast<double>(moves);
      options_[static_cast<std::size_t>(one.layer)].push_back({moves, net});
    }
  }
  /// Adds the new placement with the gain that `value` makes of its gain on all steps.
  template <class Value>
  void add_target(Value value) {
    placement_ref from = in_.from();
    from.physical_to_logical = {live_.data(), c_.layers, c_.slots};
    plimsoll::alignment_options how{.on = with_ranks()};
    if (!c_.where.node_experts.empty()) {
      how.relabel = plimsoll::relabeling::within_nodes;
    }
    auto const aligned = plimsoll::align(plimsoll::seq, from, in_.to(), how);
    ints const map = aligned.physical_to_logical.to_host();
    for (index_t layer = 0; layer < c_.layers; ++layer) {
      candidate const one{
          0, layer, {map.begin() + layer * c_.slots, map.begin() + (layer + 1) * c_.slots}};
      add(one, value(layer, gain(one, 0, c_.steps)));
    }
  }

  void validate(index_t middle) {
    std::vector<reals> of_kind(kinds);
    std::vector<reals> of_half[2] = {of_kind, of_kind};
    std::vector<std::vector<reals>> of_layer(kinds, std::vector<reals>(options_.size()));
    for (int half = 0; half < 2; ++half) {
      index_t const begin = half == 0 ? middle : 0;
      index_t const end = half == 0 ? c_.steps : middle;
      auto const seen = half == 0 ? made_from(0, middle) : made_from(middle, c_.steps);
      for (candidate const& one : seen) {
        ints const now = live_row(one.layer);
        if (balancedness(now, one.layer, 0, middle) &&
            balancedness(now, one.layer, middle, c_.steps)) {
          double const g = gain(one, begin, end);
          of_kind[one.kind].push_back(g);
          of_half[half][one.kind].push_back(g);
          of_layer[one.kind][static_cast<std::size_t>(one.layer)].push_back(g);
        }
      }
    }
    auto const mean = [](reals const& all) {
      return all.empty()
                 ? 0.0
                 : std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
    };
    auto const is_proven = [&](reals const& all) {
      double squares = 0;
      for (double const one : all) {
        squares += (one - mean(all)) * (one - mean(all));
      }
      auto const n = static_cast<double>(all.size());
      double const error = all.size() < 2 ? 0.0 : std::sqrt(squares / (n * (n - 1)));
      bool const is_nothing =
          std::all_of(all.begin(), all.end(), [](double one) { return std::abs(one) < 1e-11; });
      is_tie_ = is_tie_ || (!is_nothing && std::abs(mean(all) - error) < 1e-9);
      return !is_nothing && mean(all) > error;
    };
    auto const value = [&](std::size_t kind, index_t layer) {
      reals const& own = of_layer[kind][static_cast<std::size_t>(layer)];
      return own.empty() ? 0.0 : (mean(own) + mean(of_kind[kind])) / 2;
    };
    std::size_t const freest = of_kind[0].empty() ? kinds - 1 : 0;
    bool const first = is_proven(of_half[0][freest]);
    if (!is_proven(of_half[1][freest]) || !first) {
      return;
    }
    reals lost(options_.size(), 0.0);
    for (candidate const& one : made_from(0, c_.steps)) {
      if (one.kind == freest) {
        lost[static_cast<std::size_t>(one.layer)] =
            std::max(0.0, gain(one, 0, c_.steps) - value(freest, one.layer));
      }
      if (is_proven(of_kind[one.kind])) {
        add(one, std::min(value(one.kind, one.layer), gain(one, 0, c_.steps)));
      }
    }
    add_target(
        [&](index_t layer, double gain) { return gain - lost[static_cast<std::size_t>(layer)]; });
  }

  [[nodiscard]] double best_from(std::size_t layer, std::int64_t moves) const {
    if (layer == options_.size()) {
      return 0;
    }
    double best = 0;
    for (slow_option const& one : options_[layer]) {
      if (one.moves <= moves) {
        best = std::max(best, one.gain + best_from(layer + 1, moves - one.moves));
      }
    }
    return best;
  }

  plan_case const& c_;
  plan_inputs<plimsoll::seq_policy, std::int64_t> in_;
  ints live_ = {};
  std::vector<std::vector<slow_option>> options_;
  bool is_tie_ = false;
};

}  // namespace plimsoll_test::migration_plan_support
