// SPDX-License-Identifier: Apache-2.0
// Checks every token copy of a step against the weights that slots really hold.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <stdexcept>

#include "layer.hpp"
#include "stand_ins.hpp"

namespace online_balancer {

inline void expect(bool holds, char const* what) {
  if (!holds) {
    throw std::runtime_error(what);
  }
}

/// Token copies of one layer in one step, and the balance of the live ranks.
struct layer_balance {
  double mean = 0;           ///< token copies of a live rank
  double balancedness = 1;   ///< mean over peak
  double with_shared = 1;    ///< the same with the rows of the shared expert
  std::size_t busiest = 0;   ///< rank
  std::int64_t copies = 0;   ///< that the router chose
  std::int64_t dropped = 0;  ///< by the mask
};

/// Throws unless every copy that the mask has not dropped goes to a slot of a live rank that holds
/// the weights of its expert.
/// @param l layer
/// @param topk_ids `[tokens, top_k]`: the router's output for this layer
/// @return of the tokens of all processes; each process checks its own
template <class Policy, class Exchange>
layer_balance check_layer(index_t l, std::int32_t const* topk_ids,
                          layer<Policy, Exchange> const& of, weight_store const& weights,
                          liveness const& active, Exchange const& exchange) {
  of.check();
  ints const kept = of.kept.to_host();
  ints const chosen = of.chosen.to_host();
  ints const filled = of.filled.to_host();
  std::array<std::int64_t, ranks> routed{};
  std::array<std::int64_t, ranks> all{};
  layer_balance result;
  auto const first = static_cast<std::size_t>(exchange.first_rank() * rank_tokens);
  auto const end = static_cast<std::size_t>(exchange.end_rank() * rank_tokens);
  for (std::size_t token = first; token < end; ++token) {
    bool is_kept = false;
    for (std::size_t j = 0; j < top_k; ++j) {
      std::size_t const i = token * top_k + j;
      std::int32_t const slot = chosen[i];
      result.copies += topk_ids[i] >= 0 ? 1 : 0;
      if (kept[i] < 0) {
        result.dropped += topk_ids[i] >= 0 ? 1 : 0;
        expect(slot == -1, "a dropped token copy has a slot");
        continue;
      }
      is_kept = true;
      expect(slot >= 0 && kept[i] == topk_ids[i], "a token copy is lost");
      expect(weights.at(l, slot) == topk_ids[i], "a token copy goes to another expert");
      auto const rank = static_cast<std::size_t>(slot / slots_per_rank);
      expect(active[rank] != 0, "a token copy goes to a dead rank");
      expect(filled[i + token] == slot + static_cast<std::int32_t>(rank), "Waterfill moves a copy");
      ++routed[rank];
    }
    // Waterfill gives a row to every token of which the mask has left a copy.
    std::int32_t const shared = filled[token * (top_k + 1) + top_k];
    expect((shared >= 0) == is_kept, "a row of the shared expert is lost");
    if (is_kept) {
      auto const rank = static_cast<std::size_t>(shared / (slots_per_rank + 1));
      expect(active[rank] != 0, "a row of the shared expert goes to a dead rank");
      ++all[rank];
    }
  }
  exchange.sum(routed.data(), ranks);
  exchange.sum(all.data(), ranks);
  exchange.sum(&result.copies, 1);
  exchange.sum(&result.dropped, 1);
  auto const report = of.masked.to_host()[0];
  expect(result.dropped == report.routed - report.kept, "copies are missing that no mask dropped");

  auto const live = static_cast<double>(std::count(active.begin(), active.end(), 1));
  auto const mean = [live](auto const& loads) {
    return static_cast<double>(std::accumulate(loads.begin(), loads.end(), std::int64_t{0})) / live;
  };
  auto const peak = std::max_element(routed.begin(), routed.end());
  result.mean = mean(routed);
  result.balancedness = result.mean / static_cast<double>(*peak);
  result.busiest = static_cast<std::size_t>(peak - routed.begin());
  std::transform(all.begin(), all.end(), routed.begin(), all.begin(), std::plus<>());
  result.with_shared = mean(all) / static_cast<double>(*std::max_element(all.begin(), all.end()));
  return result;
}

}  // namespace online_balancer
