// SPDX-License-Identifier: Apache-2.0
// Inputs of the tests of llep, calls under every policy, and what the results must be.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/systems/llep.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "generators.hpp"
#include "hash.hpp"
#include "policies.hpp"
#include "refusal.hpp"

namespace plimsoll_test::llep_support {

using plimsoll::certificate_status;
using plimsoll::least_loaded_options;
using plimsoll::llep_options;
using plimsoll::moe_cost;
using plimsoll::spill_price;
using plimsoll::spill_report;
using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;
using pair_of_longs = std::array<std::int64_t, 2>;
using weights = std::array<std::int64_t, 4>;

/// A step of a group of ranks, on the host.
struct llep_case {
  least_loaded_options options = {};  ///< without arrays
  index_t k = 1;
  ints slots = {};              ///< experts in the slots of all ranks; empty: blocks of experts
  std::vector<ints> ids = {};   ///< the ids of every rank, [tokens, k]
  spill_price<moe_cost> price;  ///< used if its bandwidths are above 0

  [[nodiscard]] bool is_priced() const { return price.within_node > 0; }
  [[nodiscard]] bool is_expert(std::int32_t id) const { return id >= 0 && id < options.experts; }
  [[nodiscard]] bool is_home(index_t e, index_t r) const {
    if (slots.empty()) {
      return r * options.experts / options.on.ranks <= e &&
             e < (r + 1) * options.experts / options.on.ranks;
    }
    auto const first = slots.begin() + r * std::ssize(slots) / options.on.ranks;
    auto const last = slots.begin() + (r + 1) * std::ssize(slots) / options.on.ranks;
    return std::find(first, last, static_cast<std::int32_t>(e)) != last;
  }
  /// Returns the counts [ranks, experts].
  [[nodiscard]] ints counts() const {
    ints result;
    for (ints const& of_rank : ids) {
      for (std::int32_t e = 0; e < options.experts; ++e) {
        result.push_back(static_cast<std::int32_t>(std::count(of_rank.begin(), of_rank.end(), e)));
      }
    }
    return result;
  }
};

/// The outputs that are the same on all ranks.
struct plan_result {
  ints counts;      ///< [ranks, experts]
  ints offsets;     ///< [experts + 1]
  ints segments;    ///< [segments, 4]: expert, rank, begin, end
  longs transfers;  ///< [transfers, 4]: expert, from, to, bytes
  longs loads;      ///< [2, ranks]: tokens, bytes
  std::vector<double> report;

  friend bool operator==(plan_result const&, plan_result const&) = default;
};

/// The outputs of one rank.
struct rank_result {
  plan_result plan;
  spill_report report;
  ints sends;         ///< [ranks]
  ints receives;      ///< [ranks]
  ints destinations;  ///< [tokens, k]
  ints rows;          ///< [tokens, k]
  ints arranged;      ///< [copies of all ranks]
  ints groups;        ///< [groups, 4]: expert, rank, begin, end
  longs counters;
};

/// Returns the first output that differs, or "".
inline std::string difference(rank_result const& a, rank_result const& b) {
  return a.plan.counts != b.plan.counts         ? "counts"
         : a.plan.segments != b.plan.segments   ? "segments"
         : a.plan.transfers != b.plan.transfers ? "transfers"
         : a.plan != b.plan                     ? "plan"
         : a.sends != b.sends                   ? "sends"
         : a.receives != b.receives             ? "receives"
         : a.destinations != b.destinations     ? "destinations"
         : a.rows != b.rows                     ? "rows"
         : a.arranged != b.arranged             ? "arranged"
         : a.groups != b.groups                 ? "groups"
         : a.counters != b.counters             ? "counters"
                                                : "";
}

inline std::vector<double> numbers_in(spill_report const& r) {
  std::vector<double> result{r.result.value, r.result.lower_bound, r.capacity,
                             r.imbalance,    r.home_peak,          r.time,
                             r.home_time,    r.refused.got};
  for (std::int64_t const x :
       {r.result.work, static_cast<std::int64_t>(r.result.status), r.tokens, r.overload, r.forced,
        r.kept, static_cast<std::int64_t>(r.spills), static_cast<std::int64_t>(r.segments),
        static_cast<std::int64_t>(r.transfers), static_cast<std::int64_t>(r.refused.kind),
        r.refused.where}) {
    result.push_back(static_cast<double>(x));
  }
  return result;
}

inline ints numbers_in(std::vector<plimsoll::spill_segment> const& segments, std::int32_t count) {
  ints result;
  for (auto of = segments.begin(); of != segments.begin() + count; ++of) {
    result.insert(result.end(), {of->expert, of->rank, of->begin, of->end});
  }
  return result;
}

/// Replaces the all-gather.
struct copy_row {
  using device_team = plimsoll::detail::block<128>;

  std::int32_t const* from;
  std::int32_t* to;
  index_t size;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const { return 0; }
  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, plimsoll::detail::scratch, index_t) const {
    team.for_each(size, [*this](index_t i) { to[i] = from[i]; });
  }
};

/// A case, copied to the memory of a policy, with one planner for each rank.
template <class P, class Cost = void, class Id = std::int32_t>
class llep_group {
 public:
  llep_group(llep_case const& c, spill_price<Cost> const& price)
      : c_(c),
        price_(price),
        slots_(c.slots),
        ids_(joined(c)),
        destinations_(ids_.size(), -7),
        rows_(ids_.size(), -7),
        counters_(c.options.on.ranks),
        groups_(c.options.on.ranks * c.options.experts),
        arranged_(c.options.on.ranks * ids_.size(), -7) {
    c_.options.max_token_copies = 0;
    for (ints const& of_rank : c.ids) {
      c_.options.max_token_copies =
          std::max<index_t>(c_.options.max_token_copies, std::ssize(of_rank));
      first_.push_back(first_.back() + std::ssize(of_rank));
    }
    if (!c.slots.empty()) {
      c_.options.residents.physical_to_logical = slots_.view2(1, slots_.size());
      c_.options.residents.ranks = c.options.on.ranks;
    }
  }

  /// Replaces the ids by those of another case, which has the same number.
  void assign(llep_case const& c) {
    c_.ids = c.ids;
    ids_.assign(joined(c));
  }
  [[nodiscard]] least_loaded_options const& options() const { return c_.options; }

  using rank_type = plimsoll::llep<policy_of<P>, Cost>;
  [[nodiscard]] std::vector<rank_type> make_ranks() const {
    std::vector<rank_type> made;
    made.reserve(c_.ids.size());
    for (index_t r = 0; r < c_.options.on.ranks; ++r) {
      made.emplace_back(make_policy<P>(), llep_options{r, c_.options}, price_);
    }
    return made;
  }
  /// Copies the counts of rank `source` to its row on another rank.
  static void gather(std::int32_t const* row, index_t source, rank_type& to) {
    auto const counts = to.counts();
    auto const policy = make_policy<P>();
    plimsoll::detail::launch(plimsoll::detail::resolve(policy), 1,
                             copy_row{row, &counts(source, 0), counts.extent(1)});
  }

  void step(std::vector<rank_type>& ranks) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ranks[r].count(ids(r));
    }
    for (std::size_t from = 0; from < ranks.size(); ++from) {
      auto const source = static_cast<index_t>(from);
      for (std::size_t to = 0; to < ranks.size(); ++to) {
        if (to != from) {
          gather(&ranks[from].counts()(source, 0), source, ranks[to]);
        }
      }
    }
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ranks[r].plan();
      ranks[r].route(ids(r), part(destinations_, r), part(rows_, r), counters(r));
      ranks[r].arrange(arranged(r), groups(r));
    }
  }
  [[nodiscard]] std::vector<rank_result> results(std::vector<rank_type>& ranks) {
    for (rank_type const& of : ranks) {
      of.check();
    }
    return written(ranks);
  }
  /// Returns the results of a step after an update that may have been refused.
  [[nodiscard]] std::vector<rank_result> written(std::vector<rank_type>& ranks) {
    auto const policy = make_policy<P>();
    std::vector<rank_result> all;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      rank_type& of = ranks[r];
      all.push_back(result(of.assignment(), r));
      auto const counts = of.counts();
      all.back().plan.counts =
          plimsoll::read(policy, plimsoll::vector_ref<std::int32_t const>(
                                     counts.data, counts.extent(0) * counts.extent(1)));
      all.back().sends = plimsoll::read(policy, of.send_counts());
      all.back().receives = plimsoll::read(policy, of.receive_counts());
    }
    return all;
  }
  /// Computes the results by `least_loaded` alone, from counts of the host.
  [[nodiscard]] std::vector<rank_result> by_hand() {
    auto const policy = make_policy<P>();
    ints const counts = c_.counts();
    index_t const experts = c_.options.experts;
    array_in<std::int32_t, P> const table(counts);
    array_in<std::int32_t, P> row(experts, -7);
    plimsoll::least_loaded<policy_of<P>, Cost> planner(policy, c_.options, price_);
    std::vector<rank_result> all;
    for (std::size_t r = 0; r < c_.ids.size(); ++r) {
      auto const rank = static_cast<index_t>(r);
      planner.count(ids(r), row.view1());
      planner.add_up(table.view2(c_.options.on.ranks, experts));
      planner.plan();
      planner.exchange();
      planner.route(rank, ids(r), part(destinations_, r), part(rows_, r), counters(r));
      planner.arrange(rank, arranged(r), groups(r));
      planner.check();
      plimsoll::validate(policy, planner.plan_ref(), planner.loads(), c_.options);
      all.push_back(result(planner, r));
      all.back().plan.counts = counts;
      auto const sends = planner.send_counts();
      auto const receives = planner.receive_counts();
      all.back().sends = plimsoll::read(policy, plimsoll::detail::row_of(sends, rank));
      all.back().receives = plimsoll::read(policy, plimsoll::detail::row_of(receives, rank));
    }
    return all;
  }

  [[nodiscard]] plimsoll::matrix_ref<Id const> ids(std::size_t r) const {
    return {ids_.data() + first_[r], (first_[r + 1] - first_[r]) / c_.k, c_.k};
  }
  [[nodiscard]] plimsoll::vector_ref<std::int32_t> arranged(std::size_t r) {
    return {arranged_.data() + static_cast<index_t>(r) * ids_.size(), ids_.size()};
  }
  [[nodiscard]] plimsoll::vector_ref<plimsoll::spill_segment> groups(std::size_t r) {
    return {groups_.data() + static_cast<index_t>(r) * c_.options.experts, c_.options.experts};
  }
  [[nodiscard]] auto counters(std::size_t r) {
    return plimsoll::vector_ref<plimsoll::spill_counters>(counters_.data() + r, 1);
  }

 private:
  static std::vector<Id> joined(llep_case const& c) {
    std::vector<Id> all;
    for (ints const& of_rank : c.ids) {
      all.insert(all.end(), of_rank.begin(), of_rank.end());
    }
    return all;
  }
  [[nodiscard]] plimsoll::matrix_ref<std::int32_t> part(array_in<std::int32_t, P>& all,
                                                        std::size_t r) const {
    return {all.data() + first_[r], (first_[r + 1] - first_[r]) / c_.k, c_.k};
  }

  template <class Planner>
  [[nodiscard]] rank_result result(Planner const& planner, std::size_t r) {
    auto const policy = make_policy<P>();
    auto const slice = [&](auto const& all, index_t first, index_t last) {
      ints const values = all.values();
      return ints(values.begin() + first, values.begin() + last);
    };
    rank_result got{};
    got.report = plimsoll::read(policy, planner.report());
    got.plan.report = numbers_in(got.report);
    got.plan.offsets = plimsoll::read(policy, planner.offsets());
    got.plan.segments = numbers_in(plimsoll::read(policy, planner.segments()), got.report.segments);
    auto const transfers = plimsoll::read(policy, planner.transfers());
    for (auto of = transfers.begin(); of != transfers.begin() + got.report.transfers; ++of) {
      got.plan.transfers.insert(got.plan.transfers.end(),
                                {of->expert, of->from, of->to, of->bytes});
    }
    auto const tokens = plimsoll::read(policy, planner.rank_loads());
    auto const bytes = plimsoll::read(policy, planner.rank_bytes());
    got.plan.loads.assign(tokens.begin(), tokens.end());
    got.plan.loads.insert(got.plan.loads.end(), bytes.begin(), bytes.end());
    got.destinations = slice(destinations_, first_[r], first_[r + 1]);
    got.rows = slice(rows_, first_[r], first_[r + 1]);
    auto const begin = static_cast<index_t>(r) * ids_.size();
    got.arranged = slice(arranged_, begin, begin + ids_.size());
    got.groups = numbers_in(plimsoll::read(policy, groups(r)),
                            plimsoll::read(policy, planner.exchange_reports())[r].groups);
    plimsoll::spill_counters const counted = counters_.values()[r];
    got.counters = {counted.routed, counted.unplanned, counted.unrouted, counted.out_of_range};
    return got;
  }

  llep_case c_;
  spill_price<Cost> price_;
  array_in<std::int32_t, P> slots_;
  array_in<Id, P> ids_;
  std::vector<index_t> first_ = {0};
  array_in<std::int32_t, P> destinations_;
  array_in<std::int32_t, P> rows_;
  array_in<plimsoll::spill_counters, P> counters_;
  array_in<plimsoll::spill_segment, P> groups_;
  array_in<std::int32_t, P> arranged_;
};

template <class P, class Cost, class Id>
std::vector<rank_result> step_in(llep_case const& c, spill_price<Cost> const& price) {
  llep_group<P, Cost, Id> group(c, price);
  auto ranks = group.make_ranks();
  group.step(ranks);
  return group.results(ranks);
}

template <class P, class Id = std::int32_t>
std::vector<rank_result> step_of(llep_case const& c) {
  return c.is_priced() ? step_in<P, moe_cost, Id>(c, c.price)
                       : step_in<P, void, Id>(c, spill_price<void>{});
}

template <class P>
std::vector<rank_result> by_hand_of(llep_case const& c) {
  return c.is_priced() ? llep_group<P, moe_cost>(c, c.price).by_hand()
                       : llep_group<P>(c, spill_price<void>{}).by_hand();
}

// The checks of a case are compiled once, for all policies.
using step_fn = std::vector<rank_result> (*)(llep_case const&);

// ----- a layer of small experts ------------------------------------------------------------------

/// Returns a small pseudo-random number, the same for the same arguments.
inline std::int64_t small_number(std::uint64_t what, std::uint64_t a, std::uint64_t b) {
  return static_cast<std::int64_t>(mix(mix(mix(what) ^ a) ^ b) % 19) - 9;
}

inline weights weights_of(index_t e) {
  auto const at = static_cast<std::uint64_t>(e);
  return {small_number(1, at, 0), small_number(1, at, 1), small_number(1, at, 2),
          small_number(1, at, 3)};
}

/// The row of a token copy: its input and the gradient of its output.
struct token_row {
  pair_of_longs input = {};
  pair_of_longs gradient = {};
};

inline token_row row_of(std::size_t rank, std::size_t copy, std::size_t k) {
  std::size_t const token = copy / k;
  auto const gate = static_cast<std::int64_t>(copy % k) + 1;
  return {{small_number(2, rank, token), small_number(3, rank, token)},
          {gate * small_number(4, rank, token), gate * small_number(5, rank, token)}};
}

inline pair_of_longs product(weights const& w, token_row const& row) {
  return {w[0] * row.input[0] + w[1] * row.input[1], w[2] * row.input[0] + w[3] * row.input[1]};
}

inline void add_gradient(weights& of, token_row const& row) {
  for (std::size_t i = 0; i < 4; ++i) {
    of[i] += row.gradient[i / 2] * row.input[i % 2];
  }
}

/// The results of a forward and a backward pass.
struct layer_result {
  std::vector<std::vector<pair_of_longs>> outputs;  ///< [ranks][tokens]
  std::vector<weights> gradients;                   ///< [experts]

  explicit layer_result(llep_case const& c)
      : gradients(static_cast<std::size_t>(c.options.experts), weights{}) {
    for (ints const& ids : c.ids) {
      outputs.emplace_back(ids.size() / static_cast<std::size_t>(c.k), pair_of_longs{});
    }
  }
  void add(std::size_t rank, std::size_t copy, std::size_t k, pair_of_longs const& output) {
    pair_of_longs& sum = outputs[rank][copy / k];
    auto const gate = static_cast<std::int64_t>(copy % k) + 1;
    sum[0] += gate * output[0];
    sum[1] += gate * output[1];
  }
  friend bool operator==(layer_result const&, layer_result const&) = default;
};

/// Computes every token with each of its experts, without ranks.
inline layer_result expected_layer(llep_case const& c) {
  layer_result result(c);
  auto const k = static_cast<std::size_t>(c.k);
  for (std::size_t r = 0; r < c.ids.size(); ++r) {
    for (std::size_t i = 0; i < c.ids[r].size(); ++i) {
      std::int32_t const e = c.ids[r][i];
      if (c.is_expert(e)) {
        token_row const row = row_of(r, i, k);
        result.add(r, i, k, product(weights_of(e), row));
        add_gradient(result.gradients[static_cast<std::size_t>(e)], row);
      }
    }
  }
  return result;
}

/// Computes the same results on ranks, which have their experts' weights and the rows and weights
/// that are sent to them.
inline layer_result moved_layer(llep_case const& c, std::vector<rank_result> const& of) {
  layer_result result(c);
  auto const k = static_cast<std::size_t>(c.k);
  std::size_t const ranks = of.size();
  using held = std::map<std::int64_t, weights>;
  std::vector<held> weight(ranks);
  std::vector<held> gradient(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (index_t e = 0; e < c.options.experts; ++e) {
      if (c.is_home(e, static_cast<index_t>(r))) {
        weight[r][e] = weights_of(e);
      }
    }
  }
  longs const& transfers = of[0].plan.transfers;
  for (std::size_t i = 0; i < transfers.size(); i += 4) {
    auto const to = static_cast<std::size_t>(transfers[i + 2]);
    weight[to][transfers[i]] = weight[static_cast<std::size_t>(transfers[i + 1])].at(transfers[i]);
  }

  // Rows are sent by destination rank and received by source.
  std::vector<std::vector<token_row>> inbox(ranks);
  std::vector<std::vector<pair_of_longs>> outbox(ranks);
  for (std::size_t source = 0; source < ranks; ++source) {
    std::vector<token_row> sent(static_cast<std::size_t>(
        std::accumulate(of[source].sends.begin(), of[source].sends.end(), 0)));
    for (std::size_t i = 0; i < c.ids[source].size(); ++i) {
      CHECK((of[source].rows[i] >= 0) == c.is_expert(c.ids[source][i]));
      if (of[source].rows[i] >= 0) {
        sent.at(static_cast<std::size_t>(of[source].rows[i])) = row_of(source, i, k);
      }
    }
    auto next = sent.begin();
    for (std::size_t r = 0; r < ranks; ++r) {
      CHECK(of[source].sends[r] == of[r].receives[source]);
      inbox[r].insert(inbox[r].end(), next, next + of[source].sends[r]);
      next += of[source].sends[r];
    }
    outbox[source].resize(sent.size());
  }

  std::vector<std::size_t> begin_at(ranks, 0);  // the number of outputs that a source has back
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<token_row> rows(inbox[r].size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows.at(static_cast<std::size_t>(of[r].arranged.at(i))) = inbox[r][i];
    }
    CHECK(std::count(of[r].arranged.begin(), of[r].arranged.end(), -1) ==
          std::ssize(of[r].arranged) - std::ssize(rows));
    std::vector<pair_of_longs> computed(rows.size());
    ints const& groups = of[r].groups;
    for (std::size_t g = 0; g < groups.size(); g += 4) {
      CHECK(groups[g + 1] == static_cast<std::int32_t>(r));
      for (auto i = static_cast<std::size_t>(groups[g + 2]);
           i < static_cast<std::size_t>(groups[g + 3]); ++i) {
        computed.at(i) = product(weight[r].at(groups[g]), rows[i]);
        add_gradient(gradient[r][groups[g]], rows[i]);
      }
    }
    std::size_t next = 0;
    for (std::size_t source = 0; source < ranks; ++source) {
      for (std::int32_t i = 0; i < of[r].receives[source]; ++i) {
        outbox[source].at(begin_at[source]++) =
            computed[static_cast<std::size_t>(of[r].arranged[next++])];
      }
    }
  }
  for (std::size_t source = 0; source < ranks; ++source) {
    for (std::size_t i = 0; i < c.ids[source].size(); ++i) {
      if (of[source].rows[i] >= 0) {
        result.add(source, i, k, outbox[source][static_cast<std::size_t>(of[source].rows[i])]);
      }
    }
  }
  // Gradients of weights go back along the transfers.
  for (std::size_t i = 0; i < transfers.size(); i += 4) {
    auto const from = static_cast<std::size_t>(transfers[i + 1]);
    auto const at = gradient[static_cast<std::size_t>(transfers[i + 2])].find(transfers[i]);
    for (std::size_t j = 0; j < 4; ++j) {
      gradient[from][transfers[i]][j] += at->second[j];
    }
    gradient[static_cast<std::size_t>(transfers[i + 2])].erase(at);
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    for (auto const& [e, sum] : gradient[r]) {
      CHECK(c.is_home(e, static_cast<index_t>(r)));
      for (std::size_t j = 0; j < 4; ++j) {
        result.gradients[static_cast<std::size_t>(e)][j] += sum[j];
      }
    }
  }
  return result;
}

// ----- steps -------------------------------------------------------------------------------------

/// Draws ids, some -1 and a few out of range; expert `hot` is frequent.
inline ints make_ids(generator& random, index_t count, index_t experts, std::int64_t hot) {
  ints result;
  for (index_t i = 0; i < count; ++i) {
    std::int64_t const draw = random.between(0, 19);
    result.push_back(static_cast<std::int32_t>(draw == 0   ? random.between(-2, experts)
                                               : draw == 1 ? -1
                                               : draw < 10 ? hot
                                                           : random.between(0, experts - 1)));
  }
  return result;
}

inline llep_case make_llep_case(std::uint64_t seed) {
  generator random(seed);
  llep_case c;
  least_loaded_options& o = c.options;
  o.on.ranks = random.between(1, 6);
  o.experts = random.between(1, 14);
  o.on.nodes = random.between(1, o.on.ranks);
  c.k = random.between(1, 3);
  if (random.between(0, 1) == 0) {
    // Every expert once, then some of them again.
    index_t const per_rank = (o.experts + o.on.ranks - 1) / o.on.ranks + random.between(0, 2);
    c.slots.assign(static_cast<std::size_t>(o.on.ranks * per_rank), -1);
    for (index_t slot = 0; slot < std::ssize(c.slots); ++slot) {
      index_t const e = slot % per_rank * o.on.ranks + slot / per_rank;
      c.slots[static_cast<std::size_t>(slot)] =
          static_cast<std::int32_t>(e < o.experts ? e : random.between(-1, o.experts - 1));
    }
  }
  o.alpha = random.between(0, 2) == 0 ? 1.25 : 1.0;
  o.round = random.between(0, 2) == 0 ? plimsoll::rounding_mode::down : plimsoll::rounding_mode::up;
  o.small_excess = random.between(0, 2) == 0 ? plimsoll::small_excess_policy::home
                                             : plimsoll::small_excess_policy::helper;
  o.trigger = random.between(0, 2) == 0 ? plimsoll::spill_trigger::expert_imbalance
                                        : plimsoll::spill_trigger::rank_imbalance;
  o.lambda = random.between(0, 2) == 0 ? 1.3 : 0.0;
  o.min_chunk = random.between(1, 12);
  o.max_imports = random.between(0, 3) == 0 ? random.between(0, 2) : o.experts;
  o.expert_bytes = 1000;
  o.token_bytes = 10;
  if (random.between(0, 2) == 0) {
    c.price = {{5, 1, 2}, 200, 50};
  }
  auto const hot = random.between(0, o.experts - 1);
  for (index_t r = 0; r < o.on.ranks; ++r) {
    index_t const tokens = random.between(0, 5) == 0 ? 0 : random.between(1, 60);
    c.ids.push_back(make_ids(random, tokens * c.k, o.experts, hot));
  }
  return c;
}

/// Counts steps by outcome.
struct llep_ways {
  index_t spilled = 0;
  index_t stayed = 0;
  index_t moved = 0;  ///< with transfers, where experts may have several homes
  index_t priced = 0;
  index_t forced = 0;

  [[nodiscard]] longs counts() const { return {spilled, stayed, moved, priced, forced}; }
};

}  // namespace plimsoll_test::llep_support
