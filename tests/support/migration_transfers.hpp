// SPDX-License-Identifier: Apache-2.0
// Pairs of placements, calls of transfers and validate under every policy, and what lists must be
// by the definition: loops over all slots.
#pragma once

#include <plimsoll/migration.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "draws.hpp"
#include "hash.hpp"
#include "placement_inputs.hpp"
#include "policies.hpp"

namespace plimsoll_test::migration_transfers_support {

using plimsoll::round_rule;
using plimsoll::transfer;
using plimsoll::transfer_kind;
using plimsoll::transfer_plan;

struct transfer_case {
  index_t layers = 1;
  index_t experts = 1;
  index_t slots = 1;
  ints from = {};  ///< [layers, slots]
  ints to = {};    ///< [layers, slots]
  host_options where = {};
  round_rule rule = round_rule::one_peer;
  std::int64_t expert_bytes = 1;
  plimsoll::transfer_bandwidths bandwidths = {};

  [[nodiscard]] std::int32_t before(index_t layer, std::int64_t slot) const {
    return from[static_cast<std::size_t>(layer * slots + slot)];
  }
  [[nodiscard]] std::int32_t after(index_t layer, std::int64_t slot) const {
    return to[static_cast<std::size_t>(layer * slots + slot)];
  }
};

/// The arguments of a call in the memory of a policy.
template <class P>
class transfer_arguments {
 public:
  explicit transfer_arguments(transfer_case const& c)
      : case_(c),
        from_(c.from),
        to_(c.to),
        counts_(c.layers * c.experts, 1),
        where_(c.where, c.layers) {}
  [[nodiscard]] plimsoll::placement_ref from() const { return placement(from_); }
  [[nodiscard]] plimsoll::placement_ref to() const { return placement(to_); }
  [[nodiscard]] plimsoll::transfer_options options() const {
    return {.on = where_->on,
            .rounds = case_.rule,
            .expert_bytes = case_.expert_bytes,
            .bandwidths = case_.bandwidths};
  }

 private:
  [[nodiscard]] plimsoll::placement_ref placement(array_in<std::int32_t, P> const& map) const {
    return {map.view2(case_.layers, case_.slots), counts_.view2(case_.layers, case_.experts),
            case_.where.ranks, where_->rank_offsets};
  }

  transfer_case const& case_;
  array_in<std::int32_t, P> from_;
  array_in<std::int32_t, P> to_;
  array_in<std::int32_t, P> counts_;  ///< not read
  options_in<P> where_;
};

template <class P>
transfer_plan transfers_of(transfer_case const& c) {
  transfer_arguments<P> const in(c);
  return plimsoll::plan_transfers(make_policy<P>(), in.from(), in.to(), in.options());
}
using transfers_fn = transfer_plan (*)(transfer_case const&);

template <class P>
void validate_of(transfer_case const& c, transfer_plan const& plan) {
  transfer_arguments<P> const in(c);
  plimsoll::validate(make_policy<P>(), in.from(), in.to(), plan, in.options());
}
using validate_fn = void (*)(transfer_case const&, transfer_plan const&);

inline bool is_sent(transfer const& t) {
  return t.kind == transfer_kind::same_node || t.kind == transfer_kind::across_nodes;
}

inline std::vector<transfer> of_layer(transfer_plan const& plan, index_t layer) {
  std::vector<transfer> result;
  std::copy_if(plan.list.begin(), plan.list.end(), std::back_inserter(result),
               [layer](transfer const& t) { return t.layer == layer; });
  return result;
}

inline void add(fnv1a& hash, transfer_plan const& plan) {
  for (transfer const& t : plan.list) {
    hash.add(ints{t.layer, t.expert, t.source_rank, t.source_slot, t.destination_rank,
                  t.destination_slot, t.round, t.staging_slot, t.commit_round,
                  static_cast<std::int32_t>(t.kind)});
    hash.add(t.bytes);
  }
  for (plimsoll::layer_transfers const& one : plan.layers) {
    hash.add(std::vector<index_t>{one.rounds, one.rounds_bound, one.staging_slots,
                                  one.changes.moves, one.changes.local_copies});
  }
  hash.add(plan.sent_bytes);
  hash.add(plan.received_bytes);
  hash.add(plan.seconds);
}

/// Sizes of random cases.
struct transfer_sizes {
  index_t ranks = 6;
  index_t slots_per_rank = 4;
  index_t layers = 3;
};

inline void shuffle(ints& values, draws& draw) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1],
              values[static_cast<std::size_t>(draw.among(0, static_cast<std::int64_t>(i) - 1))]);
  }
}

/// Makes two placements with empty slots, missing experts, several copies on a rank, and of the
/// first also experts on dead ranks. The second is often the first with some other experts.
inline transfer_case random_transfers(std::uint64_t seed, transfer_sizes const& sizes = {}) {
  draws draw(seed);
  transfer_case c{.layers = draw.among(1, sizes.layers)};
  host_options& where = c.where;
  where.ranks = draw.among(1, sizes.ranks);
  where.nodes = draw.one_in(2) ? 1 : draw.among(1, where.ranks);
  c.slots = where.ranks * draw.among(1, sizes.slots_per_rank);
  if (draw.one_in(2)) {
    for (index_t layer = 0; layer < c.layers; ++layer) {
      ints ends{0, static_cast<std::int32_t>(c.slots - draw.among(0, 1))};
      for (index_t r = 1; r < where.ranks; ++r) {
        ends.push_back(draw.among(0, c.slots - 1));
      }
      std::sort(ends.begin(), ends.end());
      where.rank_offsets.insert(where.rank_offsets.end(), ends.begin(), ends.end());
    }
  }
  if (draw.one_in(2)) {
    for (index_t r = 0; r < where.ranks; ++r) {
      where.active.push_back(draw.one_in(5) ? 0 : 1);
    }
    where.active[static_cast<std::size_t>(draw.among(0, where.ranks - 1))] = 1;
  }
  c.rule = draw.any({round_rule::one_peer, round_rule::send_and_receive});
  c.expert_bytes = draw.among(1, 1000);
  index_t fewest = c.slots;
  for (index_t layer = 0; layer < c.layers; ++layer) {
    index_t live = 0;
    oracle::site const site = site_of(where, c.slots, layer, 1);
    for (std::size_t r = 0; r < site.ranks(); ++r) {
      live += site.room(r);
    }
    fewest = std::min(fewest, live);
  }
  c.experts = std::max<index_t>(1, draw.among(1, std::max<index_t>(1, fewest)));
  bool const is_new = draw.one_in(2);
  int const rare = draw.among(2, 6);
  for (index_t layer = 0; layer < c.layers; ++layer) {
    oracle::site const site = site_of(where, c.slots, layer, 1);
    auto const any_expert = [&] { return draw.among(draw.one_in(4) ? -1 : 0, c.experts - 1); };
    ints live;
    ints from(static_cast<std::size_t>(c.slots), -1);
    for (std::size_t r = 0; r < site.ranks(); ++r) {
      for (auto slot = site.offsets[r]; slot < site.offsets[r + 1]; ++slot) {
        from[static_cast<std::size_t>(slot)] = any_expert();
        if (site.room(r) > 0) {
          live.push_back(static_cast<std::int32_t>(slot));
        }
      }
    }
    ints to(from.size(), -1);
    for (std::int32_t const slot : live) {
      auto const at = static_cast<std::size_t>(slot);
      to[at] = is_new || draw.one_in(rare) ? any_expert() : from[at];
    }
    shuffle(live, draw);
    for (std::int32_t e = 0; e < c.experts && e < std::ssize(live); ++e) {
      if (std::find(to.begin(), to.end(), e) == to.end()) {
        // Take a slot whose expert has another one.
        for (std::int32_t const slot : live) {
          std::int32_t const held = to[static_cast<std::size_t>(slot)];
          if (held < 0 || std::count(to.begin(), to.end(), held) > 1) {
            to[static_cast<std::size_t>(slot)] = e;
            break;
          }
        }
      }
    }
    c.from.insert(c.from.end(), from.begin(), from.end());
    c.to.insert(c.to.end(), to.begin(), to.end());
  }
  return c;
}

/// Makes a random permutation of experts, one per slot.
inline transfer_case permuted_experts(std::uint64_t seed, index_t ranks, index_t slots_per_rank) {
  draws draw(seed);
  transfer_case c{.experts = ranks * slots_per_rank, .slots = ranks * slots_per_rank};
  c.where.ranks = ranks;
  for (std::int32_t e = 0; e < c.experts; ++e) {
    c.from.push_back(e);
  }
  c.to = c.from;
  shuffle(c.to, draw);
  return c;
}

/// Transfer to a slot by the definition.
struct wanted_transfer {
  std::int32_t expert;
  transfer_kind kind;
  std::vector<std::int32_t> sources;  ///< slots
  bool is_second_copy;
};

/// One layer of a case by the definition.
class slow_transfers {
 public:
  slow_transfers(transfer_case const& c, index_t layer)
      : c_(c), layer_(layer), site_(site_of(c.where, c.slots, layer, c.experts)) {
    for (std::int64_t slot = 0; slot < c.slots; ++slot) {
      std::int32_t const e = c.after(layer, slot);
      if (e >= 0 && e != c.before(layer, slot)) {
        wanted_.emplace(slot, want(slot, e));
      }
    }
  }

  [[nodiscard]] std::map<std::int64_t, wanted_transfer> const& wanted() const { return wanted_; }
  [[nodiscard]] std::size_t rank_of(std::int64_t slot) const {
    std::size_t r = 0;
    while (slot >= site_.offsets[r + 1]) {
      ++r;
    }
    return r;
  }

  /// Returns the smallest number k such that every arrival has a source and no rank sends more than
  /// k: augmenting paths, k from 0.
  [[nodiscard]] index_t fewest_sends() const {
    std::vector<std::set<std::size_t>> candidates;
    for (auto const& [slot, one] : wanted_) {
      if (one.kind == transfer_kind::same_node || one.kind == transfer_kind::across_nodes) {
        candidates.emplace_back();
        for (std::int32_t const source : one.sources) {
          candidates.back().insert(rank_of(source));
        }
      }
    }
    for (index_t k = 0;; ++k) {
      std::vector<std::vector<std::size_t>> sent(site_.ranks());
      bool fits = true;
      for (std::size_t arrival = 0; arrival < candidates.size() && fits; ++arrival) {
        std::vector<bool> seen(site_.ranks());
        std::function<bool(std::size_t)> const assign = [&](std::size_t i) {
          for (std::size_t const r : candidates[i]) {
            if (seen[r]) {
              continue;
            }
            seen[r] = true;
            if (std::ssize(sent[r]) < k) {
              sent[r].push_back(i);
              return true;
            }
            for (std::size_t& other : sent[r]) {
              if (assign(other)) {
                other = i;
                return true;
              }
            }
          }
          return false;
        };
        fits = assign(arrival);
      }
      if (fits) {
        return k;
      }
    }
  }

 private:
  [[nodiscard]] bool is_live(std::size_t rank) const {
    return c_.where.active.empty() || c_.where.active[rank] != 0;
  }
  [[nodiscard]] wanted_transfer want(std::int64_t slot, std::int32_t e) const {
    std::size_t const rank = rank_of(slot);
    std::vector<std::int32_t> of_kind[4];
    for (std::size_t r = 0; r < site_.ranks(); ++r) {
      transfer_kind const kind = r == rank ? transfer_kind::local_copy
                                 : site_.node_of(r) == site_.node_of(rank)
                                     ? transfer_kind::same_node
                                     : transfer_kind::across_nodes;
      for (auto s = site_.offsets[r]; s < site_.offsets[r + 1]; ++s) {
        if (is_live(r) && c_.before(layer_, s) == e) {
          of_kind[static_cast<int>(kind)].push_back(static_cast<std::int32_t>(s));
          break;  // the lowest slot of a rank
        }
      }
    }
    if (!of_kind[0].empty()) {
      return {e, transfer_kind::local_copy, of_kind[0], false};
    }
    for (auto s = site_.offsets[rank]; s < slot; ++s) {
      if (c_.after(layer_, s) == e) {
        return {e, transfer_kind::local_copy, {static_cast<std::int32_t>(s)}, true};
      }
    }
    for (transfer_kind const kind : {transfer_kind::same_node, transfer_kind::across_nodes}) {
      if (!of_kind[static_cast<int>(kind)].empty()) {
        return {e, kind, of_kind[static_cast<int>(kind)], false};
      }
    }
    return {e, transfer_kind::from_host, {-1}, false};
  }

  transfer_case const& c_;
  index_t layer_;
  oracle::site site_;
  std::map<std::int64_t, wanted_transfer> wanted_;
};

/// Returns the largest number of peers of a rank, or of the ranks it sends to or receives from.
inline index_t largest_degree(std::vector<transfer> const& list, round_rule rule) {
  std::map<std::pair<int, int>, std::set<int>> peers;
  for (transfer const& t : list) {
    if (is_sent(t)) {
      int const receives = rule == round_rule::one_peer ? 0 : 1;
      peers[{0, t.source_rank}].insert(t.destination_rank);
      peers[{receives, t.destination_rank}].insert(t.source_rank);
    }
  }
  index_t result = 0;
  for (auto const& one : peers) {
    result = std::max(result, std::ssize(one.second));
  }
  return result;
}

/// Returns the sum over the rounds of the time of the slowest rank.
inline double slow_seconds(transfer_case const& c, transfer_plan const& plan) {
  std::map<std::pair<int, int>, std::map<int, std::map<int, std::pair<double, double>>>> rounds;
  for (transfer const& t : plan.list) {
    auto& ranks = rounds[{t.layer, t.round}];
    auto const kind = static_cast<int>(t.kind);
    ranks[t.destination_rank][kind].first += static_cast<double>(t.bytes);
    if (is_sent(t)) {
      ranks[t.source_rank][kind].second += static_cast<double>(t.bytes);
    }
  }
  double const speed[] = {c.bandwidths.local_copy, c.bandwidths.same_node,
                          c.bandwidths.across_nodes, c.bandwidths.from_host};
  double sum = 0;
  for (auto const& [number, ranks] : rounds) {
    double slowest = 0;
    for (auto const& [rank, kinds] : ranks) {
      double time = 0;
      for (auto const& [kind, bytes] : kinds) {
        time += std::max(bytes.first, bytes.second) / speed[kind];
      }
      slowest = std::max(slowest, time);
    }
    sum += slowest;
  }
  return sum;
}

}  // namespace plimsoll_test::migration_transfers_support
