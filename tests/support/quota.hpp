// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of quota, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/quota.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "generators.hpp"
#include "hash.hpp"
#include "policies.hpp"
#include "split_instances.hpp"

namespace plimsoll_test::quota_support {

using plimsoll::dispatch_counters;
using plimsoll::dispatch_method;
using plimsoll::dispatch_options;
using plimsoll::quota_report;
using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;
using reals = std::vector<double>;

inline std::size_t at(index_t row, index_t columns, index_t column) {
  return static_cast<std::size_t>(row * columns + column);
}

// ----- whole tokens ------------------------------------------------------------------------------

struct quota_case {
  index_t layers = 1;
  index_t experts = 1;
  index_t ranks = 1;
  index_t slots = 1;
  ints map = {};      ///< [layers, slots]
  ints offsets = {};  ///< [layers, ranks + 1] or empty
  ints loads = {};    ///< [layers, experts]
  reals split = {};   ///< [layers, slots]

  [[nodiscard]] index_t begin(index_t layer, index_t rank) const {
    return offsets.empty() ? rank * slots / ranks : offsets[at(layer, ranks + 1, rank)];
  }
};

struct quota_result {
  ints quotas;
  std::vector<quota_report> reports;
  std::string error;  ///< of `check`
};

/// A case, copied to the memory of a policy.
template <class P>
class quota_in {
 public:
  explicit quota_in(quota_case const& c)
      : c_(c), map_(c.map), offsets_(c.offsets), loads_(c.loads), split_(c.split) {}

  [[nodiscard]] plimsoll::placement_ref placement() const {
    plimsoll::placement_ref result;
    result.physical_to_logical = map_.view2(c_.layers, c_.slots);
    result.ranks = c_.ranks;
    if (!c_.offsets.empty()) {
      result.rank_offsets = offsets_.view2(c_.layers, c_.ranks + 1);
    }
    return result;
  }
  [[nodiscard]] plimsoll::matrix_ref<std::int32_t const> loads() const {
    return loads_.view2(c_.layers, c_.experts);
  }
  [[nodiscard]] plimsoll::matrix_ref<double const> split() const {
    return split_.view2(c_.layers, c_.slots);
  }
  [[nodiscard]] quota_result run() const {
    array_in<std::int32_t, P> quotas(c_.layers * c_.slots, -7);
    array_in<quota_report, P> reports(c_.layers);
    plimsoll::round_split(make_policy<P>(), loads(), placement(), split(),
                          quotas.view2(c_.layers, c_.slots), reports.view1());
    quota_result result{quotas.values(), reports.values(), ""};
    try {
      plimsoll::check(make_policy<P>(), reports.view1());
    } catch (plimsoll::invalid_input const& error) {
      result.error = error.what();
    }
    return result;
  }

 private:
  quota_case c_;
  array_in<std::int32_t, P> map_;
  array_in<std::int32_t, P> offsets_;
  array_in<std::int32_t, P> loads_;
  array_in<double, P> split_;
};

template <class P>
quota_result quotas_of(quota_case const& c) {
  return quota_in<P>(c).run();
}

// The checks of a case are compiled once, for all policies.
using quotas_fn = quota_result (*)(quota_case const&);

/// Checks all guarantees of `quota`, in the same units: less than 2^52 of them in a layer. The
/// first largest share of an expert absorbs the difference between its shares and its load.
inline void check_quotas(quota_case const& c, quota_result const& got) {
  CHECK(got.error == "");
  for (index_t layer = 0; layer < c.layers; ++layer) {
    CAPTURE(layer);
    std::int64_t total = 0;
    for (index_t e = 0; e < c.experts; ++e) {
      total += c.loads[at(layer, c.experts, e)];
    }
    int bits = 52;
    for (; total > 0; total /= 2) {
      --bits;
    }
    longs units;
    for (index_t slot = 0; slot < c.slots; ++slot) {
      units.push_back(static_cast<std::int64_t>(
          std::floor(std::ldexp(c.split[at(layer, c.slots, slot)], bits))));
    }
    bool exact = true;
    bool any_fraction = false;
    for (std::int32_t e = 0; e < c.experts; ++e) {
      std::int64_t missing = std::int64_t{c.loads[at(layer, c.experts, e)]} << bits;
      std::int64_t whole = missing >> bits;
      std::size_t largest = units.size();
      for (std::size_t slot = 0; slot < units.size(); ++slot) {
        if (c.map[at(layer, c.slots, static_cast<index_t>(slot))] == e) {
          missing -= units[slot];
          whole -= got.quotas[at(layer, c.slots, static_cast<index_t>(slot))];
          largest = largest == units.size() || units[slot] > units[largest] ? slot : largest;
        }
      }
      exact = exact && whole == 0;
      if (largest < units.size()) {
        units[largest] += missing;
      }
    }
    CHECK(exact);
    std::int64_t const one = std::int64_t{1} << bits;
    auto const is_near = [&](std::int64_t quota, std::int64_t share) {
      return quota >= share / one && quota <= (share + one - 1) / one;
    };
    bool near_share = true;
    bool near_load = true;
    std::int64_t peak = 0;
    std::int64_t peak_units = 0;
    for (std::size_t slot = 0; slot < units.size(); ++slot) {
      near_share = near_share &&
                   is_near(got.quotas[at(layer, c.slots, static_cast<index_t>(slot))], units[slot]);
      any_fraction = any_fraction || units[slot] % one != 0;
    }
    for (index_t r = 0; r < c.ranks; ++r) {
      std::int64_t whole = 0;
      std::int64_t load = 0;
      for (index_t slot = c.begin(layer, r); slot < c.begin(layer, r + 1); ++slot) {
        whole += got.quotas[at(layer, c.slots, slot)];
        load += units[static_cast<std::size_t>(slot)];
      }
      near_load = near_load && is_near(whole, load);
      peak = std::max(peak, whole);
      peak_units = std::max(peak_units, load);
    }
    CHECK(near_share);
    CHECK(near_load);
    quota_report const& report = got.reports[static_cast<std::size_t>(layer)];
    CHECK(report.peak == peak);
    CHECK(report.split_peak == std::ldexp(static_cast<double>(peak_units), -bits));
    CHECK((report.moves > 0) == any_fraction);
  }
}

/// Returns an instance with its optimal split; `ceiling` is the smallest peak in whole tokens, from
/// the ranks that prove the smallest peak.
inline quota_case optimal_case(int number, std::int64_t& ceiling) {
  split_instance const in = make_split_instance(number);
  quota_case c;
  c.experts = in.experts;
  c.ranks = in.ranks;
  c.slots = in.slots();
  c.map = in.phy2log;
  c.offsets = in.rank_offsets;
  c.loads.assign(in.loads.begin(), in.loads.end());
  c.split.resize(in.phy2log.size());
  std::vector<std::uint8_t> bottleneck(static_cast<std::size_t>(in.ranks));
  plimsoll::minmax_lp lp(plimsoll::seq, in.placement(), {.tolerance = 0});
  lp.solve(plimsoll::matrix_ref<std::int64_t const>(in.loads.data(), 1, in.experts), {},
           plimsoll::matrix_ref<double>(c.split.data(), 1, c.slots),
           {.bottleneck = plimsoll::matrix_ref<std::uint8_t>(bottleneck.data(), 1, in.ranks)});
  REQUIRE(lp.certificates()[0].status == plimsoll::certificate_status::optimal);
  // The load that only bottleneck ranks can take.
  std::vector<bool> confined(in.loads.size(), true);
  std::int64_t count = 0;
  for (std::size_t r = 0; r < bottleneck.size(); ++r) {
    count += bottleneck[r];
    for (std::int32_t slot = c.offsets[r]; slot < c.offsets[r + 1]; ++slot) {
      if (std::int32_t const e = c.map[static_cast<std::size_t>(slot)];
          e >= 0 && bottleneck[r] == 0) {
        confined[static_cast<std::size_t>(e)] = false;
      }
    }
  }
  std::int64_t load = 0;
  for (std::size_t e = 0; e < in.loads.size(); ++e) {
    load += confined[e] ? in.loads[e] : 0;
  }
  ceiling = count == 0 ? 0 : (load + count - 1) / count;
  return c;
}

/// Returns a case of one layer; `of_rank[r]` are the experts on rank r.
inline quota_case one_layer(std::vector<ints> const& of_rank, ints const& loads,
                            reals const& split) {
  quota_case c;
  c.ranks = static_cast<index_t>(of_rank.size());
  c.experts = static_cast<index_t>(loads.size());
  c.loads = loads;
  c.split = split;
  c.offsets = {0};
  for (ints const& list : of_rank) {
    c.map.insert(c.map.end(), list.begin(), list.end());
    c.offsets.push_back(static_cast<std::int32_t>(c.map.size()));
  }
  c.slots = static_cast<index_t>(c.map.size());
  return c;
}

/// Draws splits with any shares, which add up in double precision. They have copies of an expert on
/// one rank, empty slots, experts without load, ranks without slots, and slots after the last rank,
/// some of which name an expert.
inline quota_case random_shares(std::uint64_t seed) {
  generator random(seed);
  auto const among = [&](std::int64_t low, std::int64_t high) {
    return static_cast<std::int32_t>(random.between(low, high));
  };
  quota_case c;
  c.layers = among(1, 3);
  c.ranks = among(1, 9);
  c.experts = among(1, 12);
  c.slots = c.experts * 4 + c.ranks + among(0, 3);
  std::int32_t const most = among(0, 2) == 0 ? 100000000 : 12;
  for (index_t layer = 0; layer < c.layers; ++layer) {
    std::vector<ints> of_rank(static_cast<std::size_t>(c.ranks));
    for (std::int32_t e = 0; e < c.experts; ++e) {
      for (std::int32_t copies = among(1, 4); copies > 0; --copies) {
        of_rank[static_cast<std::size_t>(among(0, static_cast<std::int32_t>(c.ranks) - 1))]
            .push_back(e);
      }
      c.loads.push_back(among(0, 5) == 0 ? 0 : among(0, most));
    }
    ints map;
    c.offsets.push_back(0);
    for (ints const& list : of_rank) {
      map.insert(map.end(), list.begin(), list.end());
      if (among(0, 4) == 0) {
        map.push_back(-1);
      }
      c.offsets.push_back(static_cast<std::int32_t>(map.size()));
    }
    std::size_t const used = map.size();
    map.resize(static_cast<std::size_t>(c.slots), among(0, 1) - 1);
    reals weight;
    reals sum(static_cast<std::size_t>(c.experts), 0);
    for (std::size_t slot = 0; slot < map.size(); ++slot) {
      bool const used_slot = map[slot] >= 0 && slot < used;
      weight.push_back(!used_slot || among(0, 5) == 0 ? 0 : random.unit());
      if (used_slot) {
        sum[static_cast<std::size_t>(map[slot])] += weight.back();
      }
    }
    for (std::size_t slot = 0; slot < map.size(); ++slot) {
      bool const used_slot = map[slot] >= 0 && slot < used;
      double const all = used_slot ? sum[static_cast<std::size_t>(map[slot])] : 0;
      double const load = used_slot ? c.loads[at(layer, c.experts, map[slot])] : 0;
      // If no copy has a weight, the first takes the whole load.
      bool const first = std::find(map.begin(), map.end(), map[slot]) - map.begin() ==
                         static_cast<std::ptrdiff_t>(slot);
      c.split.push_back(all > 0 ? load * (weight[slot] / all) : first ? load : 0);
    }
    c.map.insert(c.map.end(), map.begin(), map.end());
  }
  return c;
}

// ----- quotas of sources -------------------------------------------------------------------------

struct source_case {
  quota_case plan;  ///< one layer; the split is not used
  index_t nodes = 1;
  ints quotas = {};  ///< [slots]
  ints counts = {};  ///< [ranks, experts]
};

/// Draws quotas and counts that agree if `excess` is 0, and nearly agree else.
inline source_case random_sources(std::uint64_t seed, std::int64_t excess) {
  source_case c;
  c.plan = random_shares(seed);
  c.plan.layers = 1;
  c.plan.map.resize(static_cast<std::size_t>(c.plan.slots));
  c.plan.offsets.resize(static_cast<std::size_t>(c.plan.ranks) + 1);
  generator random(seed + 5000);
  c.nodes = random.between(1, c.plan.ranks);
  c.counts.assign(static_cast<std::size_t>(c.plan.ranks * c.plan.experts), 0);
  for (std::size_t slot = 0; slot < c.plan.map.size(); ++slot) {
    std::int32_t const e = c.plan.map[slot];
    bool const used = e >= 0 && static_cast<index_t>(slot) < c.plan.begin(0, c.plan.ranks);
    c.quotas.push_back(used ? static_cast<std::int32_t>(random.between(0, 9)) : 0);
    for (std::int64_t i = c.quotas.back() + (used ? excess : 0); i > 0; --i) {
      ++c.counts[at(random.between(0, c.plan.ranks - 1), c.plan.experts, e)];
    }
  }
  return c;
}

/// Checks for every expert that as many tokens get a quota as counts and quotas allow, that as many
/// of these as possible stay on their rank, and as many of the others as possible on their node.
inline void check_sources(source_case const& c, ints const& got) {
  index_t const ranks = c.plan.ranks;
  index_t const slots = c.plan.slots;
  std::vector<index_t> rank(static_cast<std::size_t>(slots), -1);
  std::vector<index_t> node(static_cast<std::size_t>(ranks));
  for (index_t r = 0; r < ranks; ++r) {
    for (index_t slot = c.plan.begin(0, r); slot < c.plan.begin(0, r + 1); ++slot) {
      rank[static_cast<std::size_t>(slot)] = r;
    }
    while (!(r < (node[static_cast<std::size_t>(r)] + 1) * ranks / c.nodes)) {
      ++node[static_cast<std::size_t>(r)];
    }
  }
  for (index_t slot = 0; slot < slots; ++slot) {
    std::int64_t given = 0;
    for (index_t r = 0; r < ranks; ++r) {
      CHECK(got[at(r, slots, slot)] >= 0);
      given += got[at(r, slots, slot)];
    }
    CHECK(given <= c.quotas[static_cast<std::size_t>(slot)]);
  }
  for (index_t e = 0; e < c.plan.experts; ++e) {
    CAPTURE(e);
    auto const per_rank = static_cast<std::size_t>(ranks);
    longs room(per_rank, 0);       // quotas on each rank
    longs sent(per_rank, 0);       // tokens of each rank with a quota
    longs node_room(per_rank, 0);  // quotas on each node that its ranks cannot fill themselves
    longs node_left(per_rank, 0);
    std::int64_t kept = 0;
    std::int64_t on_node = 0;
    std::int64_t all_room = 0;
    std::int64_t all_sent = 0;
    std::int64_t all_counts = 0;
    for (index_t slot = 0; slot < slots; ++slot) {
      index_t const to = rank[static_cast<std::size_t>(slot)];
      if (to < 0 || c.plan.map[static_cast<std::size_t>(slot)] != e) {
        continue;
      }
      room[static_cast<std::size_t>(to)] += c.quotas[static_cast<std::size_t>(slot)];
      for (index_t r = 0; r < ranks; ++r) {
        std::int64_t const moved = got[at(r, slots, slot)];
        sent[static_cast<std::size_t>(r)] += moved;
        kept += r == to ? moved : 0;
        bool const near = node[static_cast<std::size_t>(r)] == node[static_cast<std::size_t>(to)];
        on_node += near && r != to ? moved : 0;
      }
    }
    std::int64_t most_kept = 0;
    for (std::size_t r = 0; r < per_rank; ++r) {
      std::int64_t const count = c.counts[at(static_cast<index_t>(r), c.plan.experts, e)];
      CHECK(sent[r] <= count);
      std::int64_t const own = std::min(count, room[r]);
      most_kept += own;
      node_room[static_cast<std::size_t>(node[r])] += room[r] - own;
      node_left[static_cast<std::size_t>(node[r])] += count - own;
      all_room += room[r];
      all_sent += sent[r];
      all_counts += count;
    }
    std::int64_t most_on_node = 0;
    for (std::size_t n = 0; n < per_rank; ++n) {
      most_on_node += std::min(node_room[n], node_left[n]);
    }
    CHECK(kept == most_kept);
    CHECK(on_node == most_on_node);
    CHECK(all_sent == std::min(all_room, all_counts));
  }
}

// ----- dispatch ----------------------------------------------------------------------------------

struct routing_case {
  index_t tokens = 0;
  index_t k = 1;
  longs ids = {};  ///< [tokens, k]
  ints map = {};   ///< [slots]
  ints quotas = {};
  dispatch_options options = {};
};

struct routed {
  ints slots;
  dispatch_counters counters;

  [[nodiscard]] longs counts() const {
    return {counters.routed, counters.beyond_quota, counters.without_slot, counters.unrouted,
            counters.out_of_range};
  }
};

/// Dispatches in order, token by token, counting the tokens of every expert.
inline routed route_in_order(routing_case const& c) {
  routed result{ints(c.ids.size(), -1), {}};
  std::vector<std::int64_t> seen(static_cast<std::size_t>(c.options.experts), 0);
  for (std::size_t i = 0; i < c.ids.size(); ++i) {
    std::int64_t const id = c.ids[i];
    if (id < 0 || id >= c.options.experts) {
      ++(id == -1 ? result.counters.unrouted : result.counters.out_of_range);
      continue;
    }
    std::int64_t position = seen[static_cast<std::size_t>(id)]++;
    ints slots;
    for (std::size_t slot = 0; slot < c.map.size(); ++slot) {
      if (c.map[slot] == id) {
        slots.push_back(static_cast<std::int32_t>(slot));
      }
    }
    if (slots.empty()) {
      ++result.counters.without_slot;
      continue;
    }
    ++result.counters.routed;
    for (std::int32_t const slot : slots) {
      std::int64_t const quota = c.quotas[static_cast<std::size_t>(slot)];
      if (position >= 0 && position < quota) {
        result.slots[i] = slot;
      }
      position -= quota;
    }
    if (position >= 0) {
      ++result.counters.beyond_quota;
      result.slots[i] = slots[static_cast<std::size_t>(position) % slots.size()];
    }
  }
  return result;
}

/// Draws ids of experts with and without slots, -1, and numbers out of range.
inline routing_case random_routing(std::uint64_t seed, index_t tokens, index_t k) {
  generator random(seed);
  routing_case c;
  c.tokens = tokens;
  c.k = k;
  c.options.experts = random.between(1, 60);
  std::int64_t const housed = random.between(0, c.options.experts - 1);
  for (index_t slot = random.between(1, 120); slot > 0; --slot) {
    c.map.push_back(static_cast<std::int32_t>(random.between(-1, housed)));
    c.quotas.push_back(
        static_cast<std::int32_t>(random.between(0, 2) * random.between(0, tokens * k / 40)));
  }
  for (index_t i = 0; i < tokens * k; ++i) {
    std::int64_t const id = random.between(0, c.options.experts - 1) * random.between(0, 1);
    std::int64_t const odd = random.between(0, 40);
    c.ids.push_back(odd == 0 ? -1 : odd == 1 ? c.options.experts : odd == 2 ? -2 : id);
  }
  return c;
}

}  // namespace plimsoll_test::quota_support
