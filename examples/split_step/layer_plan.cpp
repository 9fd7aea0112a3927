// SPDX-License-Identifier: Apache-2.0
#include "layer_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/views.hpp>
#include <vector>

#include "tokens.hpp"

namespace split_step {

layer_plan::layer_plan(options const& o, int ranks) {
  std::vector<std::int64_t> history(static_cast<std::size_t>(o.experts), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::int64_t> const of_rank = popularity(o, 0, rank);
    for (std::size_t e = 0; e < history.size(); ++e) {
      history[e] += of_rank[e];
    }
  }
  auto const made = plimsoll::eplb(
      plimsoll::seq, plimsoll::array_ref(history, 1, o.experts), o.experts + o.replicas,
      {.on = {.ranks = ranks}, .replica_anti_affinity = plimsoll::anti_affinity::rank});
  map = made.physical_to_logical.to_host();
  copies = made.replica_count.to_host();
}

}  // namespace split_step
