// SPDX-License-Identifier: Apache-2.0
// Replication and greedy placement in a slow and obvious way, in the fixed point that the library
// documents: argmin loops over plain vectors, and exhaustive search for optima. One layer at a
// time, with integer loads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace plimsoll_test::oracle {

using vector = std::vector<std::int64_t>;

/// Places that two replicas of one expert should not share.
enum class apart { nowhere, rank, node };

/// Slots, ranks and constraints of one layer. An empty vector means that the option is not set.
struct site {
  vector offsets;  ///< [ranks + 1]
  std::size_t nodes = 1;
  std::vector<std::uint8_t> active = {};
  std::vector<double> speeds = {};
  apart rule = apart::nowhere;
  bool required = false;
  std::vector<vector> lists = {};  ///< experts of every node

  [[nodiscard]] std::size_t ranks() const { return offsets.size() - 1; }
  [[nodiscard]] std::int64_t room(std::size_t rank) const {
    return active.empty() || active[rank] != 0 ? offsets[rank + 1] - offsets[rank] : 0;
  }
  [[nodiscard]] std::size_t node_of(std::size_t rank) const {
    std::size_t node = 0;
    while ((node + 1) * ranks() / nodes <= rank) {
      ++node;
    }
    return node;
  }
  [[nodiscard]] double cost(std::size_t rank, std::int64_t load) const {
    return speeds.empty() ? static_cast<double>(load) : static_cast<double>(load) / speeds[rank];
  }
};

/// Experts that are confined to certain ranks.
struct part {
  vector experts;
  std::vector<std::size_t> ranks;

  [[nodiscard]] std::int64_t room(site const& where) const {
    std::int64_t total = 0;
    for (std::size_t const r : ranks) {
      total += where.room(r);
    }
    return total;
  }
};

inline std::vector<part> parts_of(site const& where, std::size_t experts) {
  std::vector<part> parts(where.lists.empty() ? 1 : where.nodes);
  for (std::size_t r = 0; r < where.ranks(); ++r) {
    parts[where.lists.empty() ? 0 : where.node_of(r)].ranks.push_back(r);
  }
  for (std::size_t n = 0; n < where.lists.size(); ++n) {
    parts[n].experts = where.lists[n];
  }
  if (where.lists.empty()) {
    parts[0].experts.resize(experts);
    std::iota(parts[0].experts.begin(), parts[0].experts.end(), 0);
  }
  return parts;
}

/// Slots of every rank or node, whichever two replicas of an expert should not share.
inline vector rooms_apart(part const& here, site const& where) {
  vector rooms(where.rule == apart::node ? where.nodes : where.ranks(), 0);
  for (std::size_t const r : here.ranks) {
    rooms[where.rule == apart::node ? where.node_of(r) : r] += where.room(r);
  }
  return rooms;
}

/// Returns whether all replicas fit if no two of an expert share a room (a rank or node). Tries all
/// assignments, up to the order of the rooms.
inline bool fits_apart(vector const& copies, vector const& rooms) {
  std::set<vector> states;
  states.insert(rooms);
  for (std::int64_t const count : copies) {
    std::set<vector> next;
    for (vector const& state : states) {
      for (unsigned chosen = 0; chosen < 1u << state.size(); ++chosen) {
        vector after = state;
        std::int64_t taken = 0;
        bool fits = true;
        for (std::size_t d = 0; d < state.size(); ++d) {
          if ((chosen >> d & 1u) != 0) {
            ++taken;
            fits = fits && after[d]-- > 0;
          }
        }
        if (fits && taken == count) {
          std::sort(after.begin(), after.end());
          next.insert(after);
        }
      }
    }
    states = std::move(next);
  }
  return !states.empty();
}

inline vector copies_in(part const& here, vector const& copies) {
  vector result;
  for (std::int64_t const e : here.experts) {
    result.push_back(copies[static_cast<std::size_t>(e)]);
  }
  return result;
}

/// Returns whether all replicas fit in slots, under the anti-affinity if it is required.
inline bool fits(vector const& copies, site const& where) {
  for (part const& here : parts_of(where, copies.size())) {
    vector const mine = copies_in(here, copies);
    bool const room = where.required ? fits_apart(mine, rooms_apart(here, where))
                                     : std::accumulate(mine.begin(), mine.end(), std::int64_t{0}) <=
                                           here.room(where);
    if (!room) {
      return false;
    }
  }
  return true;
}

/// Returns the loads times the power of two that brings their total just below 2^47.
inline vector fixed(vector const& loads) {
  std::int64_t const total = std::accumulate(loads.begin(), loads.end(), std::int64_t{0});
  vector result = loads;
  for (std::int64_t scale = 1; total > 0 && total * scale * 2 < (std::int64_t{1} << 47);
       scale *= 2) {
    for (std::int64_t& load : result) {
      load *= 2;
    }
  }
  return result;
}

/// Returns the loads to plan with, in fixed point: experts of a layer without load are alike.
inline vector planned(vector const& loads) {
  bool const none = std::all_of(loads.begin(), loads.end(), [](std::int64_t x) { return x == 0; });
  return none ? vector(loads.size(), std::int64_t{1} << 30) : fixed(loads);
}

/// Returns what slot i holds if that is expert i mod experts, up to the end of the last rank;
/// nothing if a constraint forbids it.
inline std::optional<vector> numbered(std::size_t experts, site const& where, std::size_t slots) {
  auto const last = static_cast<std::size_t>(where.offsets.back());
  std::int64_t most = 0;
  bool dead = !where.lists.empty();
  vector rooms(where.rule == apart::node ? where.nodes : where.ranks(), 0);
  for (std::size_t r = 0; r < where.ranks(); ++r) {
    rooms[where.rule == apart::node ? where.node_of(r) : r] += where.room(r);
    most = std::max(most, *std::max_element(rooms.begin(), rooms.end()));
    dead = dead || where.room(r) != where.offsets[r + 1] - where.offsets[r];
  }
  if (dead || (where.rule != apart::nowhere && most > static_cast<std::int64_t>(experts))) {
    return std::nullopt;
  }
  vector map(slots, -1);
  for (std::size_t i = 0; i < last; ++i) {
    map[i] = static_cast<std::int64_t>(i % experts);
  }
  return map;
}

inline vector weights(vector const& loads, vector const& copies) {
  vector result = fixed(loads);
  for (std::size_t e = 0; e < loads.size(); ++e) {
    result[e] /= copies[e];
  }
  return result;
}

inline vector replicate(vector const& loads, std::int64_t slots, vector copies,
                        vector const& most) {
  vector const load = planned(loads);
  std::int64_t left = slots - std::accumulate(copies.begin(), copies.end(), std::int64_t{0});
  for (; left > 0; --left) {
    std::size_t best = load.size();
    for (std::size_t e = 0; e < load.size(); ++e) {
      if (copies[e] < most[e] &&
          (best == load.size() || load[e] / copies[e] > load[best] / copies[best])) {
        best = e;
      }
    }
    ++copies[best];
  }
  return copies;
}

/// Gives one more replica to the heaviest expert that may have one, as long as there is one; of
/// equally heavy experts, to the first in the node's list.
inline vector replicate(vector const& loads, vector copies, vector const& most, site const& where) {
  vector const load = planned(loads);
  for (;;) {
    std::size_t best = load.size();
    for (part const& here : parts_of(where, load.size())) {
      for (std::int64_t const expert : here.experts) {
        auto const e = static_cast<std::size_t>(expert);
        ++copies[e];
        bool const may = copies[e] <= most[e] && fits(copies, where);
        --copies[e];
        if (may && (best == load.size() || load[e] / copies[e] > load[best] / copies[best])) {
          best = e;
        }
      }
    }
    if (best == load.size()) {
      return copies;
    }
    ++copies[best];
  }
}

/// Returns the experts in the order in which their replicas are made: the first replica of each,
/// then always one of the expert with the largest load per replica so far.
inline vector order_of_making(part const& here, vector const& load, vector const& copies) {
  vector order = here.experts;
  vector made(load.size(), 1);
  vector const wanted = copies_in(here, copies);
  auto const total = std::accumulate(wanted.begin(), wanted.end(), std::int64_t{0});
  while (static_cast<std::int64_t>(order.size()) < total) {
    std::int64_t best = -1;
    std::int64_t heaviest = -1;
    for (std::int64_t const e : here.experts) {
      auto const at = static_cast<std::size_t>(e);
      if (made[at] < copies[at] && load[at] / made[at] > heaviest) {
        best = e;
        heaviest = load[at] / made[at];
      }
    }
    order.push_back(best);
    ++made[static_cast<std::size_t>(best)];
  }
  return order;
}

/// Returns the experts in the order in which their replicas are placed: by descending weight, then
/// by position. With `rounds`, all first replicas of experts with equal weight come before their
/// second replicas, and so on.
inline vector order_of_placing(part const& here, vector const& weight, vector const& copies,
                               bool rounds) {
  struct replica {
    std::int64_t expert, weight, position, copy;
  };
  std::vector<replica> replicas;
  std::int64_t position = 0;
  for (std::int64_t const e : here.experts) {
    auto const at = static_cast<std::size_t>(e);
    for (std::int64_t copy = 0; copy < copies[at]; ++copy) {
      replicas.push_back({e, weight[at], position, copy});
    }
    ++position;
  }
  std::stable_sort(replicas.begin(), replicas.end(), [&](replica const& a, replica const& b) {
    if (a.weight != b.weight) {
      return a.weight > b.weight;
    }
    return rounds && a.copy != b.copy ? a.copy < b.copy : a.position < b.position;
  });
  vector order;
  for (replica const& r : replicas) {
    order.push_back(r.expert);
  }
  return order;
}

/// Returns the expert of each of `slots` slots, or nothing if a replica finds no slot, or none that
/// a required anti-affinity allows (another placement may still exist).
inline std::optional<vector> place(vector const& loads, vector const& copies, site const& where,
                                   std::size_t slots) {
  if (std::all_of(loads.begin(), loads.end(), [](std::int64_t x) { return x == 0; })) {
    auto const map = numbered(loads.size(), where, slots);
    vector held_by(loads.size(), 0);
    for (std::int64_t const e : map.value_or(vector{})) {
      held_by[static_cast<std::size_t>(std::max(e, std::int64_t{0}))] += e >= 0 ? 1 : 0;
    }
    if (map && held_by == copies) {
      return map;
    }
  }
  vector const weight = weights(planned(loads), copies);
  vector result(slots, -1);
  vector carried(where.ranks(), 0);
  std::vector<vector> held(where.ranks());
  bool const plain = where.speeds.empty() && where.rule == apart::nowhere;
  // How much a replica would violate the anti-affinity on a rank.
  auto const meets = [&](std::size_t rank, std::int64_t e) {
    int worst = 0;
    for (std::size_t r = 0; r < where.ranks(); ++r) {
      if (std::count(held[r].begin(), held[r].end(), e) > 0) {
        int const here = r == rank && where.rule != apart::nowhere                              ? 2
                         : where.rule == apart::node && where.node_of(r) == where.node_of(rank) ? 1
                                                                                                : 0;
        worst = std::max(worst, here);
      }
    }
    return worst;
  };
  for (part const& here : parts_of(where, loads.size())) {
    vector const mine = copies_in(here, copies);
    bool const filled =
        std::accumulate(mine.begin(), mine.end(), std::int64_t{0}) == here.room(where);
    bool const single = std::all_of(here.ranks.begin(), here.ranks.end(),
                                    [&](std::size_t r) { return where.room(r) <= 1; });
    bool const in_order = plain && filled && single;
    vector const order = in_order ? order_of_making(here, planned(loads), copies)
                                  : order_of_placing(here, weight, copies, plain);
    for (std::int64_t const e : order) {
      std::size_t best = where.ranks();
      std::pair<int, double> lowest;
      for (std::size_t const r : here.ranks) {
        if (static_cast<std::int64_t>(held[r].size()) == where.room(r)) {
          continue;
        }
        double const cost = where.cost(r, carried[r] + weight[static_cast<std::size_t>(e)]);
        std::pair<int, double> const now{meets(r, e), in_order ? 0.0 : cost};
        if (best == where.ranks() || now < lowest) {
          best = r;
          lowest = now;
        }
      }
      if (best == where.ranks() || (where.required && lowest.first > 0)) {
        return std::nullopt;
      }
      result[static_cast<std::size_t>(where.offsets[best]) + held[best].size()] = e;
      held[best].push_back(e);
      carried[best] += weight[static_cast<std::size_t>(e)];
    }
  }
  return result;
}

/// As above, on equal live ranks with slots from 0 to `offsets[ranks]`.
inline vector place(vector const& loads, vector const& copies, vector const& offsets) {
  return *place(loads, copies, site{offsets}, static_cast<std::size_t>(offsets.back()));
}

/// Returns the lowest peak of all placements, in fixed point over speed; infinite if there is none.
inline double lowest_peak(vector const& loads, vector const& copies, site const& where) {
  struct search {
    site const& where;
    vector weight;
    std::vector<std::int64_t> replicas = {};               // experts
    std::vector<std::vector<std::size_t> const*> ranks{};  // of every replica
    vector carried = {};
    vector room = {};
    std::vector<std::size_t> chosen = {};
    double best = std::numeric_limits<double>::infinity();

    // The replicas of an expert are equal, so only ascending ranks need to be tried.
    void place(std::size_t i, double peak) {
      if (i == replicas.size()) {
        best = peak;
        return;
      }
      std::int64_t const e = replicas[i];
      for (std::size_t const r : *ranks[i]) {
        bool may = room[r] > 0;
        for (std::size_t j = i; j-- > 0 && replicas[j] == e;) {
          bool const rank = r == chosen[j];
          bool const node = where.node_of(r) == where.node_of(chosen[j]);
          may = may && r >= chosen[j] &&
                !(where.required && where.rule != apart::nowhere &&
                  (rank || (where.rule == apart::node && node)));
        }
        double const cost = where.cost(r, carried[r] + weight[static_cast<std::size_t>(e)]);
        if (may && std::max(peak, cost) < best) {
          carried[r] += weight[static_cast<std::size_t>(e)];
          --room[r];
          chosen[i] = r;
          place(i + 1, std::max(peak, cost));
          ++room[r];
          carried[r] -= weight[static_cast<std::size_t>(e)];
        }
      }
    }
  };
  search all{where, weights(loads, copies)};
  auto const parts = parts_of(where, loads.size());
  for (part const& here : parts) {
    for (std::int64_t const e : here.experts) {
      for (std::int64_t copy = 0; copy < copies[static_cast<std::size_t>(e)]; ++copy) {
        all.replicas.push_back(e);
        all.ranks.push_back(&here.ranks);
      }
    }
  }
  for (std::size_t r = 0; r < where.ranks(); ++r) {
    all.carried.push_back(0);
    all.room.push_back(where.room(r));
  }
  all.chosen.resize(all.replicas.size());
  all.place(0, 0);
  return all.best;
}

/// Returns the slots of every node.
inline vector slots_of_nodes(site const& where) {
  vector slots(where.nodes, 0);
  for (std::size_t r = 0; r < where.ranks(); ++r) {
    slots[where.node_of(r)] += where.room(r);
  }
  return slots;
}

/// Returns how many groups of `size` experts every node may hold: its share by slots, rounded up,
/// but no more than fit; if these shares do not suffice, as many as fit. Nothing if not all groups
/// fit.
inline std::optional<vector> places_of_groups(std::int64_t groups, std::int64_t size,
                                              site const& where) {
  vector const slots = slots_of_nodes(where);
  auto const sum = [](vector const& v) {
    return std::accumulate(v.begin(), v.end(), std::int64_t{0});
  };
  vector share;
  vector fit;
  for (std::int64_t const mine : slots) {
    fit.push_back(mine / size);
    share.push_back(0);
    while (share.back() < fit.back() && share.back() * sum(slots) < groups * mine) {
      ++share.back();
    }
  }
  vector const places = sum(share) >= groups ? share : fit;
  return sum(places) < groups ? std::nullopt : std::optional(places);
}

inline vector loads_of_groups(vector const& load, std::size_t groups) {
  vector sums(groups, 0);
  for (std::size_t e = 0; e < load.size(); ++e) {
    sums[e / (load.size() / groups)] += load[e];
  }
  return sums;
}

/// Returns the sum of the speeds of each node's live ranks; without speeds, their number.
inline std::vector<double> speeds_of_nodes(site const& where) {
  std::vector<double> speeds(where.nodes, 0);
  for (std::size_t r = 0; r < where.ranks(); ++r) {
    if (where.room(r) > 0) {
      speeds[where.node_of(r)] += where.speeds.empty() ? 1 : where.speeds[r];
    }
  }
  return speeds;
}

/// Returns the experts of every node, group by group; nothing if the groups do not fit.
inline std::optional<std::vector<vector>> place_groups(vector const& loads, std::size_t groups,
                                                       site const& where) {
  std::size_t const size = loads.size() / groups;
  auto places =
      places_of_groups(static_cast<std::int64_t>(groups), static_cast<std::int64_t>(size), where);
  if (!places) {
    return std::nullopt;
  }
  vector const weight = loads_of_groups(planned(loads), groups);
  std::vector<double> const speeds = speeds_of_nodes(where);
  std::set<double> kinds;
  std::int64_t total = 0;
  std::int64_t most = 0;
  for (std::size_t n = 0; n < where.nodes; ++n) {
    if ((*places)[n] > 0) {
      kinds.insert(speeds[n]);
    }
    total += (*places)[n];
    most = std::max(most, (*places)[n]);
  }
  // If every node in use holds one group, and all are equally fast, groups stay in order, as in
  // EPLB.
  bool const in_order =
      kinds.size() == 1 && most == 1 && total == static_cast<std::int64_t>(groups);
  std::vector<std::size_t> order(groups);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!in_order) {
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return weight[a] > weight[b]; });
  }
  std::vector<vector> held(where.nodes);
  vector carried(where.nodes, 0);
  for (std::size_t const g : order) {
    std::size_t best = where.nodes;
    double lowest = 0;
    for (std::size_t n = 0; n < where.nodes; ++n) {
      auto const load = static_cast<double>(carried[n] + weight[g]);
      double const cost = in_order ? 0 : kinds.size() == 1 ? load : load / speeds[n];
      if ((*places)[n] > 0 && (best == where.nodes || cost < lowest)) {
        best = n;
        lowest = cost;
      }
    }
    --(*places)[best];
    carried[best] += weight[g];
    for (std::size_t e = g * size; e < (g + 1) * size; ++e) {
      held[best].push_back(static_cast<std::int64_t>(e));
    }
  }
  return held;
}

}  // namespace plimsoll_test::oracle
