// SPDX-License-Identifier: Apache-2.0
/// @file
/// Selects the top k of a token's router scores: one warp (or a host thread) per token.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/common/score_order.hpp>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/top_k_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Least sum that weights are divided by; smaller sums count as this, so none is 0.
inline constexpr double least_weight_sum = 1e-20;

/// Listener that ignores the ids of tokens.
struct no_listener {
  PLIMSOLL_HD void operator()(index_t, index_t, std::int32_t) const {}
};

/// Scratch of one token.
struct top_k_arrays {
  scratch_ref memory;
  index_t experts;
  index_t groups;
  index_t k;

  std::uint64_t* best = memory.take(maximum{}(k, few_largest_room));
  std::uint32_t* keys = memory.take(chunks_of(experts) * chunk);    ///< `[chunks * chunk]`
  std::uint64_t* queued = memory.take(chunks_of(experts) * chunk);  ///< keys with their experts
  std::uint32_t* group_keys = memory.take(groups);

  /// Experts per chunk; a host queues the best expert of every chunk.
  static constexpr index_t chunk = 16;

  [[nodiscard]] PLIMSOLL_HD static index_t chunks_of(index_t experts) {
    return (experts + chunk - 1) / chunk;
  }
};

/// Body of `top_k`. `Listener` is called with token, column and id of every pair, in any order, so
/// that later steps need not read the ids again. A problem has more than one token on a host, where
/// scratch memory for every token would be too much.
template <class Score, class Listener = no_listener, class Id = std::int32_t,
          index_t TokensPerProblem = 1>
struct top_k_body {
  using device_team = warp;
  static constexpr bool is_streaming = true;

  matrix_ref<Score const> scores;  ///< `[tokens, experts]`
  top_k_options options;
  matrix_ref<Id> ids;         ///< `[tokens, k + local experts]`
  matrix_ref<float> weights;  ///< the same
  Listener listener = {};

  static constexpr index_t chunk = top_k_arrays::chunk;

  [[nodiscard]] PLIMSOLL_HD index_t experts() const { return scores.extent(1); }

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return bytes_taken_by<top_k_arrays>(experts(), options.groups, options.k);
  }
  [[nodiscard]] index_t problems() const {
    return (scores.extent(0) + TokensPerProblem - 1) / TokensPerProblem;
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    if constexpr (TokensPerProblem == 1) {
      route(team, memory, problem);
    } else {
      index_t const first = problem * TokensPerProblem;
      index_t const last = minimum{}(first + TokensPerProblem, scores.extent(0));
      for (index_t token = first; token < last; ++token) {
        route(team, memory, token);
      }
    }
  }

 private:
  template <class Team>
  PLIMSOLL_HD void route(Team& team, scratch memory, index_t token) const {
    top_k_arrays const arrays{memory, experts(), options.groups, options.k};
    std::uint64_t const* const best = arrays.best;
    softmax_row const row = softmax_of(team, token);
    if (!choose_by_scores(team, token, arrays.best)) {
      fill(team, row, token, arrays.keys);
      if (options.groups > 1) {
        mask_groups(team, arrays.keys, arrays.group_keys);
      }
      choose(team, arrays);
    }
    bool const is_scaled = options.normalize != normalization::none;
    double sum = 1;
    if (is_scaled) {
      sum = team.sum_ordered(options.k,
                             [=, this](index_t j) { return score(row, token, index_in(best[j])); });
      sum = maximum{}(sum, least_weight_sum);
    }
    auto const weight = [=, this](index_t e) {
      double const own = score(row, token, e);
      double const part = is_scaled ? divide(own, sum) : own;
      return one_nan(static_cast<float>(multiply(part, options.scale)));
    };
    team.for_each(options.k, [=, this](index_t j) {
      std::int32_t const e = index_in(best[j]);
      ids(token, j) = e;
      weights(token, j) = weight(e);
      listener(token, j, e);
    });
    team.for_each(ids.extent(1) - options.k, [=, this](index_t i) {
      std::int32_t const e = local_expert(token, i);
      ids(token, options.k + i) = e;
      weights(token, options.k + i) = e >= 0 && e < experts() ? weight(e) : 0.0f;
      listener(token, options.k + i, e);
    });
  }

  /// Highest logit and sum of exponentials of a token's softmax.
  struct softmax_row {
    float highest = 0;
    double sum = 1;
  };

  [[nodiscard]] PLIMSOLL_HD float input(index_t token, index_t e) const {
    return static_cast<float>(scores(token, e));
  }

  /// Returns e^(logit - highest), 0 far below; NaN if the logit is NaN, or highest and infinite.
  [[nodiscard]] PLIMSOLL_HD double exponential(softmax_row const& row, index_t token,
                                               index_t e) const {
    double const below =
        add(static_cast<double>(input(token, e)), -static_cast<double>(row.highest));
    return below < -700 ? 0.0 : exp(below);
  }

  template <class Team>
  PLIMSOLL_HD softmax_row softmax_of(Team& team, index_t token) const {
    softmax_row row;
    if (options.function == score_function::softmax) {
      row.highest = team.max(experts(), [=, this](index_t e) {
        float const x = input(token, e);
        return x == x ? x : lowest<float>;
      });
      row.sum = team.sum_ordered(experts(), [=, this](index_t e) {
        double const x = exponential(row, token, e);
        return x == x ? x : 0.0;
      });
    }
    return row;
  }

  [[nodiscard]] PLIMSOLL_HD double score(softmax_row const& row, index_t token, index_t e) const {
    switch (options.function) {
      case score_function::softmax:
        return divide(exponential(row, token, e), row.sum);
      case score_function::sigmoid:
        return divide(1.0, add(1.0, exp(-static_cast<double>(input(token, e)))));
      default:
        return static_cast<double>(input(token, e));
    }
  }

  /// Writes the keys by which experts are ranked. Logits rank as their scores do, so only a bias
  /// and sums of groups need the scores.
  template <class Team>
  PLIMSOLL_HD void fill(Team& team, softmax_row const& row, index_t token,
                        std::uint32_t* keys) const {
    Score const* const inputs = &scores(token, 0);
    index_t const step = scores.stride(1);
    float const* const bias = options.bias.data;
    if (bias != nullptr || (options.groups > 1 && options.best_of_group > 1)) {
      team.for_each(experts(), [=, this](index_t e) {
        auto const x = static_cast<float>(score(row, token, e));
        keys[e] = key_of(bias != nullptr ? add(x, options.bias[e]) : x);
      });
    } else if (step == 1) {
      team.for_each(experts(), [=](index_t e) { keys[e] = key_of(static_cast<float>(inputs[e])); });
    } else {
      team.for_each(experts(),
                    [=](index_t e) { keys[e] = key_of(static_cast<float>(inputs[e * step])); });
    }
  }

  /// Excludes the experts of all but the best groups.
  template <class Team>
  PLIMSOLL_HD void mask_groups(Team& team, std::uint32_t* keys, std::uint32_t* group_keys) const {
    index_t const size = experts() / options.groups;
    team.for_each(options.groups, [=, this](index_t g) {
      std::uint64_t last = ~std::uint64_t{0};
      float sum = 0;
      for (index_t i = 0; i < options.best_of_group; ++i) {
        std::uint64_t next = 0;
        for (index_t e = g * size; e < (g + 1) * size; ++e) {
          std::uint64_t const packed = with_index(keys[e], e);
          next = packed < last ? maximum{}(next, packed) : next;
        }
        float const x = score_of(static_cast<std::uint32_t>(next >> 32));
        sum = i == 0 ? x : add(sum, x);
        last = next;
      }
      group_keys[g] = key_of(sum);
    });
    team.for_each(experts(), [=, this](index_t e) {
      index_t const own = e / size;
      index_t better = 0;
      for (index_t g = 0; g < options.groups; ++g) {
        better += with_index(group_keys[g], g) > with_index(group_keys[own], own);
      }
      if (better >= options.kept_groups) {
        keys[e] = 0;
      }
    });
  }

  /// Finds the k best experts without keys in scratch if scores alone decide and the team can;
  /// returns whether it did.
  template <class Team>
  PLIMSOLL_HD bool choose_by_scores([[maybe_unused]] Team& team, [[maybe_unused]] index_t token,
                                    [[maybe_unused]] std::uint64_t* best) const {
    if constexpr (requires { Team::most_few_largest; }) {
      if (experts() <= Team::most_few_largest && scores.stride(1) == 1 && options.groups <= 1 &&
          options.bias.data == nullptr) {
        Score const* const inputs = &scores(token, 0);
        return team.few_largest(
            experts(), options.k, [=](index_t e) { return static_cast<float>(inputs[e]); }, best);
      }
    }
    return false;
  }

  /// Finds the k best keys and their experts, in descending order.
  template <class Team>
  PLIMSOLL_HD void choose(Team& team, top_k_arrays const& arrays) const {
    std::uint32_t* const keys = arrays.keys;
    std::uint64_t* const queued = arrays.queued;
    std::uint64_t* const best = arrays.best;
    index_t const n = experts();
    if constexpr (Team::is_serial) {
      // A queue would take several times as long to build.
      index_t const chunks = top_k_arrays::chunks_of(n);
      for (index_t e = n; e < chunks * chunk; ++e) {
        keys[e] = 0;
      }
      for (index_t c = chunks; c % chunk != 0; ++c) {
        queued[c] = 0;
      }
      for (index_t c = 0; c < chunks; ++c) {
        queued[c] = best_of_chunk(keys, c);
      }
      for (index_t j = 0; j < options.k; ++j) {
        std::uint64_t top = 0;
        for (index_t c = 0; c < chunks; c += chunk) {
          top = maximum{}(top, highest_of([=](index_t i) { return queued[c + i]; }));
        }
        best[j] = top;
        index_t const e = index_in(top);
        keys[e] = 0;
        queued[e / chunk] = best_of_chunk(keys, e / chunk);
      }
      return;
    }
    if constexpr (requires { Team::most_few_largest; }) {
      auto const key = [=](index_t e) { return keys[e]; };
      if (n <= Team::most_few_largest && team.few_largest(n, options.k, key, best)) {
        return;
      }
      if (n <= Team::most_largest) {
        team.largest(n, options.k, key, best);
        return;
      }
    }
    if constexpr (!Team::is_serial) {
      // The queue yields the smallest; complements reverse the order, and all are different.
      team.for_each(n, [=](index_t e) { queued[e] = ~with_index(keys[e], e); });
      auto queue = team.queue(queued, n);
      for (index_t j = 0; j < options.k; ++j) {
        std::uint64_t const top = queue.top();
        team.store(best + j, ~top);
        queue.pop();
      }
    }
  }

  /// Returns the largest key of a chunk, with its expert.
  PLIMSOLL_HD static std::uint64_t best_of_chunk(std::uint32_t const* keys, index_t c) {
    index_t const first = c * chunk;
    // The lower index wins. As distances from the last one, indices are constants that are part of
    // an instruction.
    index_t const last = chunk - 1;
    std::uint64_t const best = highest_of([=](index_t i) {
      return std::uint64_t{keys[first + i]} << 32 | static_cast<std::uint64_t>(last - i);
    });
    return best + with_index(0, first + last);
  }

  /// Returns the largest of `chunk` numbers by a tree of comparisons. No branch depends on the
  /// numbers, since processors cannot predict which one is the largest.
  template <class NumberOf>
  PLIMSOLL_HD static std::uint64_t highest_of(NumberOf number_of) {
    std::uint64_t highest[chunk / 2];
    for (index_t i = 0; i < chunk / 2; ++i) {
      highest[i] = maximum{}(number_of(i), number_of(i + chunk / 2));
    }
    for (index_t width = chunk / 4; width > 0; width /= 2) {
      for (index_t i = 0; i < width; ++i) {
        highest[i] = maximum{}(highest[i], highest[i + width]);
      }
    }
    return highest[0];
  }

  /// Returns the i-th id after the choices of a token: -1 for an expert that precedes it in the row
  /// or list, -2 if the token's home has no list.
  [[nodiscard]] PLIMSOLL_HD std::int32_t local_expert(index_t token, index_t i) const {
    std::int32_t const home = options.homes.data != nullptr ? options.homes[token] : 0;
    if (home < 0 || home >= options.local_experts.extent(0)) {
      return -2;
    }
    std::int32_t const e = options.local_experts(home, i);
    bool twice = false;
    for (index_t j = 0; j < options.k; ++j) {
      twice = twice || ids(token, j) == e;
    }
    for (index_t j = 0; j < i; ++j) {
      twice = twice || options.local_experts(home, j) == e;
    }
    return twice ? -1 : e;
  }
};

}}}  // namespace plimsoll::detail
