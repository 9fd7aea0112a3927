// SPDX-License-Identifier: Apache-2.0
// Tests of quota under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/quota.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/quota.hpp"
#include "support/split_instances.hpp"

namespace plimsoll_test {

using namespace quota_support;

// ----- whole tokens ------------------------------------------------------------------------------

inline void check_by_hand(quotas_fn quotas_of) {
  // Rounding each expert by largest remainders may give the first rank all eight.
  ints const eight{0, 1, 2, 3, 4, 5, 6, 7};
  auto const even = quotas_of(one_layer({eight, eight}, ints(8, 1), reals(16, 0.5)));
  CHECK(even.reports[0].peak == 4);
  CHECK(even.reports[0].split_peak == 4);
  CHECK(std::accumulate(even.quotas.begin(), even.quotas.begin() + 8, 0) == 4);
  // Whole shares do not change.
  quota_case const whole = one_layer({{0, 1}, {0, 0}}, {10, 40}, {2, 40, 8, 0});
  auto const kept = quotas_of(whole);
  CHECK(kept.quotas == ints{2, 40, 8, 0});
  CHECK(kept.reports[0].moves == 0);
  CHECK(kept.reports[0].peak == 42);
  // Two copies on one rank, and a path of three ranks along which fractions move.
  quota_case const twins = one_layer({{0, 0}, {0}}, {3}, {0.75, 0.75, 1.5});
  auto const two = quotas_of(twins);
  check_quotas(twins, two);
  quota_case const chain = one_layer({{0}, {0, 1}, {1}}, {1, 1}, {0.5, 0.5, 0.5, 0.5});
  auto const three = quotas_of(chain);
  check_quotas(chain, three);
  CHECK(three.reports[0].peak == 1);
  CHECK(three.reports[0].moves == 1);
  report_hash("quota.by_hand", even.quotas, kept.quotas, two.quotas, three.quotas);
}

PLIMSOLL_TEST_CASE("quota: quotas computed by hand", P, PLIMSOLL_POLICIES) {
  check_by_hand(quotas_of<P>);
}

inline void check_shares(quotas_fn quotas_of) {
  ints quotas;
  longs moves;
  auto const check = [&](quota_case const& c) {
    quota_result const got = quotas_of(c);
    check_quotas(c, got);
    quotas.insert(quotas.end(), got.quotas.begin(), got.quotas.end());
    for (quota_report const& report : got.reports) {
      moves.push_back(report.moves);
    }
    return got.reports[0].peak;
  };
  for (int i = 0; i < split_instance_count; i += 17) {
    CAPTURE(i);
    std::int64_t ceiling = 0;
    CHECK(check(optimal_case(i, ceiling)) == ceiling);
  }
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    check(random_shares(seed));
  }
  report_hash("quota.shares", quotas, moves);
}

PLIMSOLL_TEST_CASE("quota: optimal splits, shares of any kind", P, PLIMSOLL_POLICIES) {
  check_shares(quotas_of<P>);
}

inline void check_every_second(ints const& got, ints const& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CHECK(got[2 * i] == expected[i]);
    CHECK(got[2 * i + 1] == -7);
  }
}

PLIMSOLL_TEST_CASE("quota: edge cases and strides", P, PLIMSOLL_POLICIES) {
  quota_case none;
  none.layers = 0;
  CHECK(quotas_of<P>(none).quotas.empty());
  // No load; an expert without a slot and without load; the largest load of a layer.
  CHECK(quotas_of<P>(one_layer({{0}, {0, -1}}, {0, 0}, {0, 0, 0})).quotas == ints{0, 0, 0});
  std::int32_t const most = std::numeric_limits<std::int32_t>::max();
  quota_case const largest = one_layer({{0}, {0}}, {most}, {most / 2.0, most / 2.0});
  check_quotas(largest, quotas_of<P>(largest));

  // Every second column of wider arrays.
  quota_case const c = random_shares(5);
  ints const expected = quotas_of<P>(c).quotas;
  quota_case wide = c;
  wide.slots = 2 * c.slots;
  wide.experts = 2 * c.experts;
  wide.map.assign(2 * c.map.size(), -9);
  wide.loads.assign(2 * c.loads.size(), -5);
  wide.split.assign(2 * c.split.size(), -1);
  for (std::size_t i = 0; i < c.map.size(); ++i) {
    wide.map[2 * i] = c.map[i];
    wide.split[2 * i] = c.split[i];
  }
  for (std::size_t i = 0; i < c.loads.size(); ++i) {
    wide.loads[2 * i] = c.loads[i];
  }
  quota_in<P> const in(wide);
  auto const halved = [](auto view) {
    view.extents[1] /= 2;
    view.strides[1] = 2;
    return view;
  };
  auto placement = in.placement();
  placement.physical_to_logical = halved(placement.physical_to_logical);
  array_in<std::int32_t, P> quotas(wide.layers * wide.slots, -7);
  array_in<quota_report, P> reports(wide.layers);
  plimsoll::round_split(make_policy<P>(), halved(in.loads()), placement, halved(in.split()),
                        halved(quotas.view2(wide.layers, wide.slots)), reports.view1());
  ints const got = quotas.values();
  check_every_second(got, expected);
}

/// Checks that shares may differ from their load by up to 2^-20 of it and a unit for each slot.
inline void check_tolerance(quotas_fn quotas_of) {
  std::string const refused =
      "round_split: split: expected shares that add up to the expert's load, 1073741824, got "
      "others in "
      "layer 0, expert 0";
  constexpr std::int32_t load = 1 << 30;
  constexpr double unit = 0x1p-21;
  for (double const sign : {-1.0, 1.0}) {
    CAPTURE(sign);
    auto const miss = [&](double by) {
      return quotas_of(one_layer({{0}}, {load}, {load + sign * by}));
    };
    for (double const by : {0.0, 1.5, 1024.0, 1024.0 + unit}) {
      CAPTURE(by);
      CHECK(miss(by).error == "");
      CHECK(miss(by).quotas == ints{load});
    }
    CHECK(miss(1024.0 + 2 * unit).error == refused);
    // The larger of two shares absorbs the difference.
    auto const two = [&](double by) {
      return quotas_of(one_layer({{0}, {0}}, {load}, {0, load + sign * by}));
    };
    CHECK(two(1024.0 + 2 * unit).quotas == ints{0, load});
    CHECK(two(1024.0 + 3 * unit).error == refused);
  }
  // The share is rounded to float.
  CHECK(quotas_of(one_layer({{0}}, {1073741889}, {1073741952.0})).quotas == ints{1073741889});
}

PLIMSOLL_TEST_CASE("quota: tolerance of shares", P, PLIMSOLL_POLICIES) {
  check_tolerance(quotas_of<P>);
}

struct refusal {
  quota_case bad;
  std::string message;
};

inline std::vector<refusal> refusals() {
  using limits = std::numeric_limits<std::int32_t>;
  quota_case const good = one_layer({{0, 1}, {0, -1}}, {4, 1}, {1.5, 1, 2.5, 0});
  std::vector<refusal> result;
  // Adds a case with another expert and share in a slot, and its message.
  auto const slot = [&](std::size_t i, std::int32_t expert, double share, std::string message) {
    result.push_back({good, std::move(message)});
    result.back().bad.map[i] = expert;
    result.back().bad.split[i] = share;
  };
  auto const load = [&](std::size_t e, std::int32_t value, std::string message) {
    result.push_back({good, std::move(message)});
    result.back().bad.loads[e] = value;
  };
  auto const offset = [&](std::size_t i, std::int32_t value, std::string message) {
    result.push_back({good, std::move(message)});
    result.back().bad.offsets[i] = value;
  };
  std::string const share =
      "split: expected values from 0 to the load of the slot's expert, 0 in empty slots, got ";
  slot(2, 0, std::numeric_limits<double>::quiet_NaN(), share + "NaN in layer 0, slot 2");
  slot(0, 0, -1, share + "-1 in layer 0, slot 0");
  slot(1, 1, 3, share + "3 in layer 0, slot 1");
  slot(3, -1, 1, share + "1 in layer 0, slot 3");
  // A slot after the last rank has no share, even if it names an expert.
  slot(3, 1, 1, share + "1 in layer 0, slot 3");
  result.back().bad.offsets[2] = 3;
  std::string const shares = "split: expected shares that add up to the expert's load, ";
  slot(0, 0, 1, shares + "4, got others in layer 0, expert 0");
  slot(0, 0, 1.50001, shares + "4, got others in layer 0, expert 0");
  load(1, 2, shares + "2, got others in layer 0, expert 1");
  slot(1, -1, 0, shares + "1, got others in layer 0, expert 1");
  // The sum of these shares would overflow to the load.
  result.push_back({one_layer({ints(4097, 0)}, {limits::max()}, reals(4097, limits::max() + 1.0)),
                    shares + "2147483647, got others in layer 0, expert 0"});
  result.back().bad.split[0] = limits::max();
  load(1, limits::max(), "loads: expected at most 2^31 - 1 tokens, got 2147483651 in layer 0");
  load(0, -4, "loads: expected values from 0 to below 2^47, got -4 in layer 0, expert 0");
  std::string const expert = "physical_to_logical: expected -1 or an expert of the layer, got ";
  slot(2, 2, 2.5, expert + "2 in layer 0, slot 2");
  slot(2, -2, 2.5, expert + "-2 in layer 0, slot 2");
  std::string const offsets =
      "rank_offsets: expected offsets that rise from 0 to at most the number of slots, got ";
  offset(2, 5, offsets + "5 in layer 0, rank 1");
  offset(0, 1, offsets + "2 in layer 0, rank 0");
  return result;
}

inline void check_refusal(refusal const& expected, quota_result const& got) {
  CHECK(got.error == "round_split: " + expected.message);
  CHECK(std::count(got.quotas.begin(), got.quotas.end(), 0) == std::ssize(got.quotas));
}

/// Returns three layers, the middle one invalid.
inline refusal middle_layer() {
  quota_case c = one_layer({{0}, {0}}, {3}, {1.5, 1.5});
  c.layers = 3;
  c.map = {0, 0, 0, 0, 0, 0};
  c.offsets = {0, 1, 2, 0, 1, 2, 0, 1, 2};
  c.loads = {3, 4, 3};
  c.split = {1.5, 1.5, 1.5, 1.5, 1.5, 1.5};
  return {c,
          "split: expected shares that add up to the expert's load, 4, got others in layer 1, "
          "expert 0"};
}

inline void check_middle_layer(refusal const& expected, quota_result const& got) {
  CHECK(got.error == "round_split: " + expected.message);
  CHECK(got.reports[0].peak == 2);
  CHECK(got.reports[1].peak == 0);
  CHECK(got.reports[2].peak == 2);
}

inline void check_refusals(quotas_fn quotas_of) {
  for (refusal const& expected : refusals()) {
    check_refusal(expected, quotas_of(expected.bad));
  }
  refusal const middle = middle_layer();
  check_middle_layer(middle, quotas_of(middle.bad));
}

PLIMSOLL_TEST_CASE("quota: invalid input", P, PLIMSOLL_POLICIES) { check_refusals(quotas_of<P>); }

// ----- quotas of sources -------------------------------------------------------------------------

template <class P>
ints sources_of(source_case const& c) {
  quota_in<P> const in(c.plan);
  array_in<std::int32_t, P> const quotas(c.quotas);
  array_in<std::int32_t, P> const counts(c.counts);
  array_in<std::int32_t, P> out(c.plan.ranks * c.plan.slots, -7);
  plimsoll::divide_quotas(make_policy<P>(), quotas.view1(),
                          counts.view2(c.plan.ranks, c.plan.experts), in.placement(),
                          {.nodes = c.nodes}, out.view2(c.plan.ranks, c.plan.slots));
  return out.values();
}

using sources_fn = ints (*)(source_case const&);

inline void check_kept(sources_fn sources_of) {
  // Ranks 0 and 1 are a node. Rank 0 keeps 3 of its 5 tokens, rank 1 takes one, rank 2 the last.
  source_case by_hand;
  by_hand.plan = one_layer({{0}, {0}, {0}, {}}, {0}, {0, 0, 0});
  by_hand.nodes = 2;
  by_hand.quotas = {3, 2, 4};
  by_hand.counts = {5, 1, 0, 3};
  ints const hand = sources_of(by_hand);
  CHECK(hand == ints{3, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 3});
  // A slot on no rank gets no tokens.
  source_case stray = by_hand;
  stray.plan.offsets = {0, 1, 2, 2, 2};
  CHECK(sources_of(stray) == ints{3, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0});
  ints all;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    for (std::int64_t const excess : {-2, 0, 2}) {
      CAPTURE(seed);
      CAPTURE(excess);
      source_case const c = random_sources(seed, excess);
      ints const got = sources_of(c);
      check_sources(c, got);
      all.insert(all.end(), got.begin(), got.end());
    }
  }
  // The sums of what sources send and of what slots take exceed an int32.
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  source_case large = by_hand;
  large.quotas = {most, most - 1, most};
  large.counts = {most, most, most, most};
  CHECK(sources_of(large) == ints{most, 0, 0, 0, most - 1, 0, 0, 0, most, 0, 0, 0});
  large.counts = {0, most, 0, most};
  CHECK(sources_of(large) == ints{0, 0, 0, 1, most - 1, 0, 0, 0, 0, 0, 0, most});
  // More experts and slots than a block has threads.
  source_case many;
  many.plan = one_layer({{}, {}}, ints(300, 0), {});
  for (std::int32_t i = 0; i < 600; ++i) {
    many.plan.map.push_back(i % 300);
    many.quotas.push_back(i % 7);
    many.counts.push_back(i % 5);
  }
  many.plan.slots = 600;
  many.plan.offsets = {0, 300, 600};
  check_sources(many, sources_of(many));
  report_hash("quota.sources", hand, all);
}

PLIMSOLL_TEST_CASE("quota: sources keep as many tokens as possible", P, PLIMSOLL_POLICIES) {
  check_kept(sources_of<P>);
}

// ----- dispatch ----------------------------------------------------------------------------------

/// Dispatches with ids, map and slots of one type.
template <class P, class Id = std::int32_t>
routed route(routing_case const& c) {
  array_in<Id, P> const ids(std::vector<Id>(c.ids.begin(), c.ids.end()));
  array_in<Id, P> const map(std::vector<Id>(c.map.begin(), c.map.end()));
  array_in<std::int32_t, P> const quotas(c.quotas);
  array_in<Id, P> slots(c.tokens * c.k, -7);
  array_in<dispatch_counters, P> counters(1);
  plimsoll::dispatch(make_policy<P>(), ids.view2(c.tokens, c.k), map.view1(), quotas.view1(),
                     c.options, slots.view2(c.tokens, c.k), counters.view1());
  auto const chosen = slots.values();
  return {ints(chosen.begin(), chosen.end()), counters.values()[0]};
}

using route_fn = routed (*)(routing_case const&);

inline void check_in_order(route_fn route) {
  ints slots;
  longs counts;
  auto const check = [&](routing_case const& c) {
    routed const expected = route_in_order(c);
    routed const got = route(c);
    CHECK(got.slots == expected.slots);
    CHECK(got.counts() == expected.counts());
    slots.insert(slots.end(), got.slots.begin(), got.slots.end());
    longs const more = got.counts();
    counts.insert(counts.end(), more.begin(), more.end());
  };
  check(random_routing(1, 3000, 8));
  check(random_routing(2, 1031, 1));
  check(random_routing(3, 64, 8));  // exactly one tile
  check(random_routing(4, 0, 8));
  for (std::uint64_t seed = 10; seed < 30; ++seed) {
    CAPTURE(seed);
    check(
        random_routing(seed, static_cast<index_t>(17 * seed), static_cast<index_t>(seed % 7 + 1)));
  }
  report_hash("quota.in_order", slots, counts);
}

PLIMSOLL_TEST_CASE("quota: dispatch in order", P, PLIMSOLL_POLICIES) {
  check_in_order(route<P>);
  // Arrays of 64 bits, with numbers that have an expert in their lower 32 bits; every second
  // column, with a gap between tokens.
  routing_case wide = random_routing(7, 300, 4);
  wide.ids[5] = std::int64_t{1} << 32;
  routed const expected = route_in_order(wide);
  routed const got = route<P, std::int64_t>(wide);
  CHECK(got.slots == expected.slots);
  CHECK(got.counts() == expected.counts());
  longs experts(wide.map.begin(), wide.map.end());
  std::replace(experts.begin(), experts.end(), std::int64_t{-1}, std::int64_t{1} << 32);
  CHECK(std::count(experts.begin(), experts.end(), std::int64_t{1} << 32) > 0);
  array_in<std::int64_t, P> const map(experts);
  array_in<std::int32_t, P> const quotas(wide.quotas);
  index_t const row = 2 * wide.k + 3;
  longs spread(at(wide.tokens, row, 0), 0);
  longs spread_slots(spread.size(), -7);
  for (index_t i = 0; i < wide.tokens * wide.k; ++i) {
    std::size_t const to = at(i / wide.k, row, 2 * (i % wide.k));
    spread[to] = wide.ids[static_cast<std::size_t>(i)];
    spread_slots[to] = expected.slots[static_cast<std::size_t>(i)];
  }
  array_in<std::int64_t, P> const ids(spread);
  array_in<std::int64_t, P> out(std::ssize(spread), -7);
  array_in<dispatch_counters, P> counters(1);
  auto const spaced = [row](auto view) {
    view.strides[0] = row;
    view.strides[1] = 2;
    return view;
  };
  plimsoll::dispatch(make_policy<P>(), spaced(ids.view2(wide.tokens, wide.k)), map.view1(),
                     quotas.view1(), wide.options, spaced(out.view2(wide.tokens, wide.k)),
                     counters.view1());
  CHECK(out.values() == spread_slots);
}

inline void check_draws(route_fn route) {
  routing_case c;
  c.tokens = 10000;
  c.k = 2;
  c.ids.assign(20000, 0);
  for (std::size_t i = 1; i < c.ids.size(); i += 2) {
    c.ids[i] = 1;
  }
  c.map = {0, 1, 0, 0, 1, 0, 1};
  c.quotas = {0, 5, 10, 30, 0, 60, 0};
  c.options = {.experts = 2, .method = dispatch_method::sampled, .seed = 7, .subsequence = 3};
  routed const got = route(c);
  longs drawn(c.map.size(), 0);
  for (std::int32_t const slot : got.slots) {
    ++drawn[static_cast<std::size_t>(slot)];
  }
  CHECK(drawn[0] == 0);
  CHECK(drawn[1] == 10000);
  CHECK(drawn[4] == 0);
  CHECK(drawn[6] == 0);
  double distance = 0;
  for (std::size_t const slot : {2u, 3u, 5u}) {
    double const expected = 100.0 * c.quotas[slot];
    distance += (static_cast<double>(drawn[slot]) - expected) *
                (static_cast<double>(drawn[slot]) - expected) / expected;
  }
  CHECK(distance < 13.8);  // chi-squared: exceeded with a probability of 0.001

  // A token draws the same slot wherever the batch is cut.
  auto const part = [&](index_t first, index_t last) {
    routing_case cut = c;
    cut.tokens = last - first;
    cut.ids.assign(c.ids.begin() + 2 * first, c.ids.begin() + 2 * last);
    cut.options.first_token = static_cast<std::uint64_t>(first);
    return route(cut).slots;
  };
  ints joined = part(0, 333);
  ints const rest = part(333, c.tokens);
  joined.insert(joined.end(), rest.begin(), rest.end());
  CHECK(joined == got.slots);

  auto const differing = [&](routing_case const& other) {
    ints const slots = route(other).slots;
    index_t differences = 0;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      differences += slots[i] != got.slots[i];
    }
    return differences;
  };
  routing_case other = c;
  other.options.subsequence = 4;
  CHECK(differing(other) > 4000);
  other = c;
  other.options.seed = 8;
  CHECK(differing(other) > 4000);

  // Experts without a quota use their slots in turn.
  c.quotas[1] = 0;
  ints const turns = route(c).slots;
  CHECK(turns[1] == 1);
  CHECK(turns[3] == 4);
  CHECK(turns[5] == 6);
  CHECK(turns[7] == 1);
  report_hash("quota.sampled", got.slots, turns);
}

PLIMSOLL_TEST_CASE("quota: sampled dispatch", P, PLIMSOLL_POLICIES) { check_draws(route<P>); }

inline void check_own_tokens(quotas_fn quotas_of, sources_fn sources_of, route_fn route) {
  quota_case plan = random_shares(24);
  plan.layers = 1;
  plan.map.resize(static_cast<std::size_t>(plan.slots));
  plan.offsets.resize(static_cast<std::size_t>(plan.ranks) + 1);
  plan.loads.resize(static_cast<std::size_t>(plan.experts));
  plan.split.resize(static_cast<std::size_t>(plan.slots));
  for (std::int32_t& load : plan.loads) {
    load = 150;
  }
  std::vector<std::int32_t> copies(plan.loads.size(), 0);
  auto const housed = [&](index_t slot) {
    return plan.map[static_cast<std::size_t>(slot)] >= 0 && slot < plan.begin(0, plan.ranks);
  };
  for (index_t slot = 0; slot < plan.slots; ++slot) {
    if (housed(slot)) {
      ++copies[static_cast<std::size_t>(plan.map[static_cast<std::size_t>(slot)])];
    }
  }
  for (index_t slot = 0; slot < plan.slots; ++slot) {
    auto const i = static_cast<std::size_t>(slot);
    plan.split[i] = housed(slot) ? 150.0 / copies[static_cast<std::size_t>(plan.map[i])] : 0;
  }
  source_case c{plan, 1, quotas_of(plan).quotas, {}};
  c.counts.assign(static_cast<std::size_t>(plan.ranks * plan.experts), 0);
  std::vector<longs> tokens(static_cast<std::size_t>(plan.ranks));
  generator random(9);
  for (index_t e = 0; e < plan.experts; ++e) {
    for (int i = 0; i < 150; ++i) {
      index_t const source = random.between(0, plan.ranks - 1);
      ++c.counts[at(source, plan.experts, e)];
      tokens[static_cast<std::size_t>(source)].push_back(e);
    }
  }
  ints const shared = sources_of(c);
  ints reached(c.quotas.size(), 0);
  for (index_t source = 0; source < plan.ranks; ++source) {
    routing_case part;
    part.ids = tokens[static_cast<std::size_t>(source)];
    part.tokens = std::ssize(part.ids);
    part.map = plan.map;
    part.quotas.assign(shared.begin() + source * plan.slots,
                       shared.begin() + (source + 1) * plan.slots);
    part.options.experts = plan.experts;
    routed const got = route(part);
    CHECK(got.counters.routed == part.tokens);
    CHECK(got.counters.beyond_quota == 0);
    for (std::size_t i = 0; i < got.slots.size(); ++i) {
      auto const slot = static_cast<std::size_t>(got.slots[i]);
      CHECK(plan.map[slot] == part.ids[i]);
      ++reached[slot];
    }
  }
  CHECK(reached == c.quotas);
}

PLIMSOLL_TEST_CASE("quota: every source dispatches its own tokens", P, PLIMSOLL_POLICIES) {
  check_own_tokens(quotas_of<P>, sources_of<P>, route<P>);
}

inline void check_message(std::string const& got, std::string const& expected) {
  CHECK(got == expected);
}

/// Extents for a call, and its error message.
struct wrong_shape {
  index_t extents[6];
  std::string message;
};

/// Extents: layers and slots of split and quotas, ranks and slots of the placement.
inline std::vector<wrong_shape> quota_shapes() {
  return {
      {{2, 3, 1, 3, 2, 3}, "split: expected 1 layers, got 2"},
      {{1, 4, 1, 3, 2, 3}, "split: expected 3 slots, got 4"},
      {{1, 3, 2, 3, 2, 3}, "quotas: expected 1 layers, got 2"},
      {{1, 3, 1, 2, 2, 3}, "quotas: expected 3 slots, got 2"},
      {{1, 3, 1, 3, 0, 3}, "placement.ranks: expected 1 to 32767 ranks, got 0"},
      {{1, 3, 1, 3, 3, 3}, "placement.rank_offsets: expected 4 offsets (ranks + 1), got 3"},
      {{1, 3, 1, 3, 2, 0}, "placement.physical_to_logical: expected 1 to 2147483647 slots, got 0"},
      {{1, 3, 1, 3, 2, 3}, "reports: expected 1 layers, got 2"}};
}

/// Extents: nodes, slots of quotas, ranks and experts of counts, ranks and slots of the result.
inline std::vector<wrong_shape> source_shapes() {
  return {{{0, 3, 2, 2, 2, 3}, "on.nodes: expected 1 to 2 nodes (at most one per rank), got 0"},
          {{3, 3, 2, 2, 2, 3}, "on.nodes: expected 1 to 2 nodes (at most one per rank), got 3"},
          {{1, 4, 2, 2, 2, 3}, "quotas: expected 3 slots, got 4"},
          {{1, 3, 1, 2, 2, 3}, "counts: expected 2 ranks, got 1"},
          {{1, 3, 2, 0, 2, 3}, "counts: expected 1 to 65535 experts, got 0"},
          {{1, 3, 2, 2, 1, 3}, "source_quotas: expected 2 ranks, got 1"},
          {{1, 3, 2, 2, 2, 2}, "source_quotas: expected 3 slots, got 2"}};
}

/// Extents: tokens and ids per token, slots of the map and of quotas, experts, ids per token of the
/// result.
inline std::vector<wrong_shape> dispatch_shapes() {
  index_t const many = index_t{1} << 30;
  return {{{5, 0, 3, 3, 2, 0}, "topk_ids: expected 1 to 2147483647 ids per token, got 0"},
          {{many, 2, 3, 3, 2, 2},
           "topk_ids: expected 0 to 1073741823 tokens (below 2^31 ids), got 1073741824"},
          {{5, 2, 0, 0, 2, 2}, "physical_to_logical: expected 1 to 2147483647 slots, got 0"},
          {{5, 2, 3, 4, 2, 2}, "quotas: expected 3 slots, got 4"},
          {{5, 2, 3, 3, 0, 2}, "options.experts: expected 1 to 65535 experts, got 0"},
          {{6, 2, 3, 3, 2, 2}, "slots: expected 6 tokens, got 5"},
          {{5, 2, 3, 3, 2, 1}, "slots: expected 2 ids per token, got 1"},
          {{5, 2, 3, 3, 2, 2}, "counters: expected 1 element, got 2"}};
}

PLIMSOLL_TEST_CASE("quota: shapes and options", P, PLIMSOLL_POLICIES) {
  auto const policy = make_policy<P>();
  auto const message = [](auto const& run) -> std::string {
    try {
      run();
    } catch (plimsoll::invalid_input const& error) {
      return error.what();
    }
    return "no error";
  };
  quota_in<P> const in(one_layer({{0, 1}, {0}}, {4, 1}, {2, 1, 2}));
  array_in<std::int32_t, P> out(100);
  array_in<std::int32_t, P> const numbers(100);
  array_in<double, P> const parts(100);
  array_in<quota_report, P> reports(2);
  array_in<dispatch_counters, P> counters(2);
  using places = plimsoll::vector_ref<std::int32_t const>;

  for (auto const& [x, expected] : quota_shapes()) {
    auto placement = in.placement();
    placement.ranks = x[4];
    placement.physical_to_logical.extents[1] = x[5];
    check_message(message([&, &x = x] {
                    plimsoll::round_split(policy, in.loads(), placement, parts.view2(x[0], x[1]),
                                          out.view2(x[2], x[3]), reports.view1());
                  }),
                  "round_split: " + expected);
  }
  for (auto const& [x, expected] : source_shapes()) {
    check_message(message([&, &x = x] {
                    plimsoll::divide_quotas(policy, places(numbers.data(), x[1]),
                                            numbers.view2(x[2], x[3]), in.placement(),
                                            {.nodes = x[0]}, out.view2(x[4], x[5]));
                  }),
                  "divide_quotas: " + expected);
  }
  for (auto const& [x, expected] : dispatch_shapes()) {
    check_message(message([&, &x = x] {
                    plimsoll::dispatch(policy, numbers.view2(x[0], x[1]),
                                       places(numbers.data(), x[2]), places(numbers.data(), x[3]),
                                       {.experts = x[4]}, out.view2(5, x[5]), counters.view1());
                  }),
                  "dispatch: " + expected);
  }
}

}  // namespace plimsoll_test
