// SPDX-License-Identifier: Apache-2.0
#include "traffic.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace examples {
namespace {

/// The shares of one expert's tokens by the ranks on which they start.
class source_shares {
 public:
  source_shares(plan const& p, token_sources const& from)
      : plan_(p), from_(from), of_ranks_(static_cast<std::size_t>(p.ranks)) {
    for (index_t rank = 0; rank < p.ranks; ++rank) {
      node_of_.push_back(((rank + 1) * from.nodes - 1) / p.ranks);  // as the library numbers nodes
    }
  }

  void read(index_t layer, index_t expert) {
    double total = 0;
    for (index_t rank = 0; rank < plan_.ranks; ++rank) {
      auto const at =
          static_cast<std::size_t>((rank * plan_.layers + layer) * plan_.experts + expert);
      double const copies = from_.copies.empty() ? 0 : from_.copies[at];
      of_ranks_[static_cast<std::size_t>(rank)] = copies;
      total += copies;
    }
    if (total == 0) {
      std::fill(of_ranks_.begin(), of_ranks_.end(), 1.0 / static_cast<double>(plan_.ranks));
    } else {
      for (double& share : of_ranks_) {
        share /= total;
      }
    }
    of_nodes_.assign(static_cast<std::size_t>(from_.nodes), 0.0);
    for (index_t rank = 0; rank < plan_.ranks; ++rank) {
      of_nodes_[node_of(rank)] += of_ranks_[static_cast<std::size_t>(rank)];
    }
  }

  [[nodiscard]] std::size_t node_of(index_t rank) const {
    return static_cast<std::size_t>(node_of_[static_cast<std::size_t>(rank)]);
  }
  [[nodiscard]] std::vector<double> const& of_ranks() const { return of_ranks_; }
  [[nodiscard]] std::vector<double> const& of_nodes() const { return of_nodes_; }

 private:
  plan const& plan_;
  token_sources const& from_;
  std::vector<index_t> node_of_;  ///< [ranks]
  std::vector<double> of_ranks_;  ///< [ranks]
  std::vector<double> of_nodes_;  ///< [nodes]
};

/// Returns the sum of the shares of ranks, or nodes, that hold no copy.
[[nodiscard]] double without_copy(std::vector<double> const& shares,
                                  std::vector<char> const& holds) {
  double sum = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    sum += holds[i] == 0 ? shares[i] : 0;
  }
  return sum;
}

}  // namespace

plan_traffic traffic_of(plan const& p, std::vector<double> const& slot_loads,
                        token_sources const& from) {
  struct copy {
    index_t rank;
    double load;
  };
  plan_traffic result;
  source_shares shares(p, from);
  auto const placement = p.placement();
  for (index_t layer = 0; layer < p.layers; ++layer) {
    std::vector<std::vector<copy>> copies(static_cast<std::size_t>(p.experts));
    for (index_t rank = 0; rank < p.ranks; ++rank) {
      for (index_t slot = placement.rank_offsets(layer, rank);
           slot < placement.rank_offsets(layer, rank + 1); ++slot) {
        auto const at = static_cast<std::size_t>(layer * p.slots + slot);
        if (auto const expert = p.physical_to_logical[at]; expert >= 0) {
          copies[static_cast<std::size_t>(expert)].push_back({rank, slot_loads[at]});
        }
      }
    }
    for (index_t expert = 0; expert < p.experts; ++expert) {
      shares.read(layer, expert);
      std::vector<char> on_rank(shares.of_ranks().size());
      std::vector<char> on_node(shares.of_nodes().size());
      double load = 0;
      for (copy const& c : copies[static_cast<std::size_t>(expert)]) {
        auto const rank = static_cast<std::size_t>(c.rank);
        std::size_t const node = shares.node_of(c.rank);
        on_rank[rank] = on_node[node] = 1;
        load += c.load;
        result.split.ranks += c.load * (1 - shares.of_ranks()[rank]);
        result.split.nodes += c.load * (1 - shares.of_nodes()[node]);
      }
      result.copies += load;
      result.nearest.ranks += load * without_copy(shares.of_ranks(), on_rank);
      result.nearest.nodes += load * without_copy(shares.of_nodes(), on_node);
    }
  }
  return result;
}

}  // namespace examples
