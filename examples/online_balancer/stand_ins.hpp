// SPDX-License-Identifier: Apache-2.0
// Replaces parts of an engine: its sizes, the choices of its router, and the memory that holds the
// weights of experts.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

namespace online_balancer {

using plimsoll::index_t;
using plimsoll::seq;
using ints = std::vector<std::int32_t>;
using liveness = std::vector<std::uint8_t>;  ///< `[ranks]`: 0 for a dead rank
using host_placement = plimsoll::placement<plimsoll::seq_policy>;
using host_steps = plimsoll::array<std::int32_t, plimsoll::seq_policy, 3>;

constexpr index_t layers = 2, experts = 32, ranks = 8, slots = 48, top_k = 4;
constexpr index_t rank_tokens = 32, tokens = ranks * rank_tokens, slots_per_rank = slots / ranks;
constexpr index_t steps = 2000, lost_rank = 3, lost_at = 608, back_at = 1204;
constexpr index_t failing_at = 807;  ///< step in which a transfer fails
constexpr index_t window = 48;       ///< steps that a plan is made from
constexpr index_t interval = 100;    ///< steps between questions to the planner

inline plimsoll::rank_set ranks_of(liveness const& active) {
  return {.ranks = ranks, .active = active};
}

/// The router's output in one step: experts and scores, `[layers, tokens, top_k]`.
struct routed_batch {
  ints topk_ids;
  std::vector<float> scores;
};

/// Draws the experts of all tokens. Each of four domains has other busy experts; every 250 steps,
/// traffic changes from one domain to the next in the course of 50 steps. A lost rank has no
/// tokens: its ids are -1, so that shapes stay, as a captured graph needs.
inline routed_batch route(index_t step, liveness const& active) {
  constexpr index_t period = 250, change = 50;
  // The expert at place p is chosen with a probability of about 1 / (p + 1).
  constexpr auto up_to = [] {
    std::array<index_t, experts> sums{};
    index_t sum = 0;
    for (index_t place = 0; place < experts; ++place) {
      sums[static_cast<std::size_t>(place)] = sum += 960 / (place + 1);
    }
    return sums;
  }();
  routed_batch batch;
  for (index_t layer = 0; layer < layers; ++layer) {
    auto const subsequence = static_cast<std::uint64_t>(step * layers + layer);
    for (index_t token = 0; token < tokens; ++token) {
      if (active[static_cast<std::size_t>(token / rank_tokens)] == 0) {
        batch.topk_ids.insert(batch.topk_ids.end(), top_k, -1);
        batch.scores.insert(batch.scores.end(), top_k, 0.0F);
        continue;
      }
      std::uint64_t index = static_cast<std::uint64_t>(token) << 16;
      auto const draw = [&](index_t below) {
        std::uint64_t const bits = plimsoll::random::bits(7, subsequence, index++);
        return static_cast<index_t>(bits % static_cast<std::uint64_t>(below));
      };
      bool const is_next = draw(change) < step % period - (period - change);
      index_t const domain = (step / period + (is_next ? 1 : 0)) % 4;
      ints chosen;
      while (std::size(chosen) < top_k) {
        auto const place = static_cast<index_t>(
            std::upper_bound(up_to.begin(), up_to.end(), draw(up_to.back())) - up_to.begin());
        index_t const expert = (place * (2 * domain + 3) + 11 * domain + 5 * layer) % experts;
        if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) {
          chosen.push_back(static_cast<std::int32_t>(expert));
          batch.scores.push_back(static_cast<float>(draw(1 << 20)));
        }
      }
      batch.topk_ids.insert(batch.topk_ids.end(), chosen.begin(), chosen.end());
    }
  }
  return batch;
}

/// Loads of the first domain, as an engine has recorded them before it serves.
inline host_steps record() {
  ints loads(static_cast<std::size_t>(window * layers * experts));
  for (index_t step = 0; step < window; ++step) {
    ints const ids = route(step, liveness(static_cast<std::size_t>(ranks), 1)).topk_ids;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      index_t const layer = static_cast<index_t>(i) / (tokens * top_k);
      ++loads[static_cast<std::size_t>((step * layers + layer) * experts + ids[i])];
    }
  }
  return {seq, loads, window, layers, experts};
}

/// Memory of all ranks: which expert's weights each slot holds; -1 for none.
class weight_store {
 public:
  explicit weight_store(ints held) : held_(std::move(held)) {}

  [[nodiscard]] std::int32_t at(index_t layer, index_t slot) const {
    return held_[in(layer, slot)];
  }

  /// Loses what a rank holds.
  void lose(index_t rank) {
    for (index_t layer = 0; layer < layers; ++layer) {
      std::fill_n(held_.begin() + layer * slots + rank * slots_per_rank, slots_per_rank, -1);
    }
  }

  /// Lets a transfer fail in the next round that has any.
  void fail_next() { fails_ = true; }

  /// Runs the rounds of one layer, until one fails. The transfers of a round run at the same time:
  /// all are read before one is written.
  /// @return whether all are done
  [[nodiscard]] bool run(index_t layer, plimsoll::transfer_plan const& plan) {
    plimsoll::layer_transfers const& of = plan.layers[static_cast<std::size_t>(layer)];
    ints staging(static_cast<std::size_t>(ranks * of.staging_slots), -1);
    auto const place_of = [&](plimsoll::transfer const& t) -> std::int32_t& {
      auto const staged =
          static_cast<std::size_t>(t.destination_rank * of.staging_slots + t.staging_slot);
      return t.staging_slot < 0 ? held_[in(layer, t.destination_slot)] : staging[staged];
    };
    for (index_t round = 0; round < of.rounds; ++round) {
      ints read;
      for (plimsoll::transfer const& t : plan.list) {
        if (t.layer == layer && t.round == round) {
          bool const from_host = t.kind == plimsoll::transfer_kind::from_host;
          read.push_back(from_host ? t.expert : at(layer, t.source_slot));
        }
      }
      auto weights = read.begin();
      for (plimsoll::transfer const& t : plan.list) {
        if (t.layer == layer && t.round == round) {
          if (*weights != t.expert) {
            throw std::runtime_error("a transfer reads a slot with another expert");
          }
          place_of(t) = *weights++;
          if (weights == read.end() && std::exchange(fails_, false)) {
            place_of(t) = -1;
            return false;
          }
        }
      }
      for (plimsoll::transfer const& t : plan.list) {
        if (t.layer == layer && t.commit_round == round && t.staging_slot >= 0) {
          held_[in(layer, t.destination_slot)] = std::exchange(place_of(t), -1);
        }
      }
    }
    return true;
  }

 private:
  static std::size_t in(index_t layer, index_t slot) {
    return static_cast<std::size_t>(layer * slots + slot);
  }

  ints held_;  // [layers, slots]
  bool fails_ = false;
};

}  // namespace online_balancer
