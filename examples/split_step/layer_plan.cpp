// SPDX-License-Identifier: Apache-2.0
#include "layer_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/views.hpp>
#include <vector>

#include "tokens.hpp"

namespace split_step {

layer_plan::layer_plan(options const& o, int ranks)
    : map(static_cast<std::size_t>(o.experts + o.replicas)),
      copies(static_cast<std::size_t>(o.experts)) {
  std::vector<std::int64_t> history(copies.size(), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<std::int64_t> const of_rank = popularity(o, 0, rank);
    for (std::size_t e = 0; e < history.size(); ++e) {
      history[e] += of_rank[e];
    }
  }
  plimsoll::eplb(plimsoll::seq, plimsoll::array_ref(history, 1, o.experts),
                 {.on = {.ranks = ranks}, .replica_anti_affinity = plimsoll::anti_affinity::rank},
                 plimsoll::array_ref(map, 1, o.experts + o.replicas),
                 plimsoll::array_ref(copies, 1, o.experts));
}

}  // namespace split_step
