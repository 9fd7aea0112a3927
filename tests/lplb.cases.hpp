// SPDX-License-Identifier: Apache-2.0
// Tests of lplb under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/systems/lplb.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/lplb.hpp"
#include "support/placement_updates.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"
#include "support/update_sequences.hpp"

namespace plimsoll_test {

using namespace lplb_support;

PLIMSOLL_TEST_CASE("lplb: a step by hand", P, PLIMSOLL_PREPARED_POLICIES) {
  // Rank 0 holds experts 0 and 1, rank 1 experts 0 and 2: with four of the six tokens of expert 0
  // on rank 0, each rank has five.
  auto const policy = make_policy<P>();
  array_in<std::int32_t, P> const map(ints{0, 1, 0, 2});
  array_in<std::int32_t, P> const counts(ints{6, 1, 3});
  plimsoll::placement_ref const placement{map.view2(1, 4), {nullptr, 1, 3}, 2, {}};
  plimsoll::lplb planner(policy, placement, {.max_token_copies = 10});
  planner.plan(counts.view2(1, 3));
  planner.check();
  CHECK(plimsoll::read(policy, plimsoll::vector_ref<std::int32_t const>(planner.quotas().data,
                                                                        4)) == ints{4, 1, 2, 3});
  CHECK(plimsoll::read(policy, planner.reports())[0].peak == 5);
  CHECK(plimsoll::read(policy, planner.certificates())[0].status == certificate_status::optimal);
}

PLIMSOLL_TEST_CASE("lplb: plans as minmax_lp and quota do", P, PLIMSOLL_PREPARED_POLICIES) {
  using c = lplb_case<P>;
  c const in;
  auto const policy = make_policy<P>();
  array_in<std::int32_t, P> const counts(in.counts);
  auto const loads = counts.view2(c::layers, c::experts);
  plimsoll::lplb planner(policy, in.placement, c::options());
  CHECK_NOTHROW(planner.check());
  planner.plan(loads);
  planner.check();

  array_in<double, P> split(c::layers * c::slots, -7.0);
  array_in<std::int32_t, P> quotas(c::layers * c::slots, -7);
  array_in<quota_report, P> reports(c::layers);
  plimsoll::minmax_lp lp(policy, in.placement, {.tolerance = 0});
  lp.solve(loads, split.view2(c::layers, c::slots));
  plimsoll::round_split(policy, loads, in.placement, split.view2(c::layers, c::slots),
                        quotas.view2(c::layers, c::slots), reports.view1());

  auto const row = [&](auto const& matrix) {
    using element = std::remove_reference_t<decltype(*matrix.data)>;
    return plimsoll::read(policy, plimsoll::vector_ref<element>(matrix.data, split.size()));
  };
  ints const got = row(planner.quotas());
  CHECK(row(planner.split()) == split.values());
  CHECK(got == quotas.values());
  auto const proofs = plimsoll::read(policy, planner.certificates());
  auto const expected = plimsoll::read(policy, lp.certificates());
  auto const rounded = plimsoll::read(policy, planner.reports());
  ints peaks;
  for (index_t layer = 0; layer < c::layers; ++layer) {
    CAPTURE(layer);
    auto const at = static_cast<std::size_t>(layer);
    // A planner of one layer.
    plimsoll::lplb single(policy, in.placement.of_layer(layer), c::options());
    single.plan(
        plimsoll::matrix_ref<std::int32_t const>(loads.data + layer * c::experts, 1, c::experts));
    auto const own = single.quotas();
    auto const first = got.begin() + layer * c::slots;
    CHECK(plimsoll::read(policy, plimsoll::vector_ref<std::int32_t const>(own.data, c::slots)) ==
          ints(first, first + c::slots));
    CHECK(proofs[at].status == certificate_status::optimal);
    CHECK(proofs[at].value == expected[at].value);
    // In whole tokens no peak is below the bound, rounded up.
    CHECK(static_cast<double>(rounded[at].peak) == std::ceil(proofs[at].lower_bound));
    std::int64_t peak = 0;
    ints given(static_cast<std::size_t>(c::experts), 0);
    for (index_t r = 0; r < c::ranks; ++r) {
      std::int64_t load = 0;
      for (index_t i = 0; i < c::slots / c::ranks; ++i) {
        auto const slot = static_cast<std::size_t>(layer * c::slots + r * c::slots / c::ranks + i);
        load += got[slot];
        if (in.map_values[slot] >= 0) {
          given[static_cast<std::size_t>(in.map_values[slot])] += got[slot];
        }
      }
      peak = std::max(peak, load);
    }
    CHECK(peak == rounded[at].peak);
    CHECK(given == ints(in.counts.begin() + layer * c::experts,
                        in.counts.begin() + (layer + 1) * c::experts));
    peaks.push_back(static_cast<std::int32_t>(peak));
  }
  report_hash("lplb.plan", split.values(), got, peaks);

  // Layer by layer, in any order.
  plimsoll::lplb by_layer(policy, in.placement, c::options());
  for (index_t layer = c::layers - 1; layer >= 0; --layer) {
    plimsoll::matrix_ref<std::int32_t const> const own(loads.data + layer * c::experts, 1,
                                                       c::experts);
    by_layer.plan(layer, own);
  }
  by_layer.check();
  CHECK(row(by_layer.quotas()) == got);
  CHECK(plimsoll::read(policy, by_layer.certificates())[1].value == proofs[1].value);
  // Others keep their quotas.
  array_in<std::int32_t, P> const none(ints(static_cast<std::size_t>(c::experts), 0));
  by_layer.plan(1, none.view2(1, c::experts));
  ints expected_quotas = got;
  std::fill_n(expected_quotas.begin() + c::slots, c::slots, 0);
  CHECK(row(by_layer.quotas()) == expected_quotas);
  CHECK(refusal_of([&] { by_layer.plan(c::layers, loads); }) ==
        "lplb::plan: first_layer: expected 0 to " + std::to_string(c::layers - 1) +
            " as layer, got " + std::to_string(c::layers));
  CHECK(refusal_of([&] { by_layer.plan(1, loads); }) ==
        "lplb::plan: counts: expected 0 to " + std::to_string(c::layers - 1) +
            " layers from first_layer on, got " + std::to_string(c::layers));
}

PLIMSOLL_TEST_CASE("lplb: ranks that see their own tokens share the quotas", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  auto const policy = make_policy<P>();
  generator random(31);
  for (int round = 0; round < 40; ++round) {
    CAPTURE(round);
    index_t const layers = random.between(1, 3);
    index_t const ranks = random.between(1, 9);
    index_t const nodes = ranks % 3 == 0 ? 3 : ranks % 2 == 0 ? 2 : 1;
    index_t const experts = random.between(1, 12);
    index_t const slots = ranks * ((experts + ranks - 1) / ranks + random.between(0, 3));
    ints maps;
    for (index_t i = 0; i < layers * slots; ++i) {
      index_t const slot = i % slots;
      auto const expert = slot < experts ? slot : random.between(-1, experts - 1);
      maps.push_back(static_cast<std::int32_t>(expert));
    }
    ints values;
    for (index_t i = 0; i < layers * ranks * experts; ++i) {
      values.push_back(static_cast<std::int32_t>(
          random.between(0, 2) == 0 ? 0 : random.between(0, i % 5 == 0 ? 60 : 9)));
    }
    ints sums(static_cast<std::size_t>(layers * experts), 0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto const row = static_cast<std::size_t>(i) / static_cast<std::size_t>(ranks * experts);
      sums[row * static_cast<std::size_t>(experts) + i % static_cast<std::size_t>(experts)] +=
          values[i];
    }
    array_in<std::int32_t, P> const map(maps);
    array_in<std::int32_t, P> const counts(values);
    array_in<std::int32_t, P> const added(sums);
    plimsoll::placement_ref const placement{
        map.view2(layers, slots), {nullptr, layers, experts}, ranks, {}};
    lplb_options const options{.lp = {.on = {.nodes = nodes}, .tolerance = 0},
                               .max_token_copies = 8};
    plimsoll::lplb whole(policy, placement, options);
    plimsoll::lplb own(policy, placement, options);
    whole.plan(added.view2(layers, experts));
    whole.check();
    auto const quotas = plimsoll::read(
        policy, plimsoll::vector_ref<std::int32_t const>(whole.quotas().data, layers * slots));
    array_in<std::int32_t, P> divided(layers * ranks * slots, -7);
    for (index_t layer = 0; layer < layers; ++layer) {
      plimsoll::divide_quotas(
          policy,
          plimsoll::vector_ref<std::int32_t const>(whole.quotas().data + layer * slots, slots),
          plimsoll::matrix_ref<std::int32_t const>(counts.data() + layer * ranks * experts, ranks,
                                                   experts),
          placement.of_layer(layer), {.nodes = nodes},
          plimsoll::matrix_ref<std::int32_t>(divided.data() + layer * ranks * slots, ranks, slots));
    }
    ints const expected = divided.values();
    for (index_t source = 0; source < ranks; ++source) {
      CAPTURE(source);
      if (source % 2 == 0) {
        own.plan(counts.view3(layers, ranks, experts), source);
      } else {
        for (index_t layer = 0; layer < layers; ++layer) {
          own.plan(layer,
                   plimsoll::matrix_ref<std::int32_t const>(counts.data() + layer * ranks * experts,
                                                            ranks, experts),
                   source);
        }
      }
      own.check();
      CHECK(plimsoll::read(policy, plimsoll::vector_ref<std::int32_t const>(
                                       own.quotas().data, layers * slots)) == quotas);
      auto const got = plimsoll::read(
          policy, plimsoll::vector_ref<std::int32_t const>(own.own_quotas().data, layers * slots));
      for (index_t layer = 0; layer < layers; ++layer) {
        auto const row = expected.begin() + (layer * ranks + source) * slots;
        auto const first = got.begin() + layer * slots;
        CHECK(ints(first, first + slots) == ints(row, row + slots));
      }
    }
  }
}

PLIMSOLL_TEST_CASE("lplb: dispatches the tokens of a rank by its own quotas", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  auto const policy = make_policy<P>();
  // Both ranks hold expert 0. Rank 0 has five tokens for it and rank 1 one, so each gets three.
  array_in<std::int32_t, P> const map(ints{0, 0});
  array_in<std::int32_t, P> const counts(ints{5, 1});
  array_in<std::int32_t, P> const ids(ints{0, 0, 0, 0, 0});
  array_in<std::int32_t, P> slots(5, -7);
  array_in<dispatch_counters, P> counters(1);
  plimsoll::lplb planner(policy, {map.view2(1, 2), {nullptr, 1, 1}, 2, {}},
                         {.max_token_copies = 6});
  planner.plan(counts.view3(1, 2, 1), 0);
  planner.dispatch(0, ids.view2(5, 1), slots.view2(5, 1), counters.view1());
  CHECK(slots.values() == ints{0, 0, 0, 1, 1});
  CHECK(numbers_in(counters.values()) == longs{5, 0, 0, 0, 0});
  planner.plan(0, counts.view2(2, 1), 1);
  planner.dispatch(0, ids.view2(1, 1), slots.view2(1, 1), counters.view1());
  CHECK(slots.values()[0] == 1);
  // A plan of another layer by sums changes nothing for this one.
  array_in<std::int32_t, P> const sum(ints{6});
  array_in<std::int32_t, P> const maps(ints{0, 0, 0, 0});
  plimsoll::lplb two(policy, {maps.view2(2, 2), {nullptr, 2, 1}, 2, {}}, {.max_token_copies = 6});
  two.plan(0, counts.view2(2, 1), 1);
  two.plan(1, sum.view2(1, 1));
  slots.assign(ints{-7, -7, -7, -7, -7});
  two.dispatch(0, ids.view2(1, 1), slots.view2(1, 1), counters.view1());
  CHECK(slots.values()[0] == 1);
  // Sums again: all tokens.
  planner.plan(sum.view2(1, 1));
  planner.dispatch(0, ids.view2(5, 1), slots.view2(5, 1), counters.view1());
  CHECK(slots.values() == ints{0, 0, 0, 1, 1});

  auto const refused = [&](ints const& values) {
    array_in<std::int32_t, P> const bad(values);
    planner.plan(bad.view3(1, 2, 1), 0);
    ints const shares = plimsoll::read(
        policy, plimsoll::vector_ref<std::int32_t const>(planner.own_quotas().data, 2));
    CHECK(shares == ints{0, 0});
    return refusal_of([&] { planner.check(); });
  };
  CHECK(refused({7, -3}) ==
        "lplb::plan: counts: expected values from 0 to below 2^47, got -3 in layer 0, expert 0");
  CHECK(refused({0x7fffffff, 1}) ==
        "lplb::plan: counts: expected at most 2^31 - 1 tokens, got 2147483648 in layer 0");
  CHECK(refusal_of([&] { planner.plan(counts.view3(1, 2, 1), 2); }) ==
        "lplb::plan: source: expected 0 to 1 as rank, got 2");
  CHECK(refusal_of([&] { planner.plan(1, counts.view2(2, 1), 0); }) ==
        "lplb::plan: first_layer: expected 0 to 0 as layer, got 1");
  CHECK(refusal_of([&] { planner.plan(counts.view3(1, 1, 2), 0); }) ==
        "lplb::plan: counts: expected 2 ranks, got 1");
  CHECK(refusal_of([&] { planner.plan(counts.view3(2, 1, 1), 0); }) ==
        "lplb::plan: counts: expected 1 layers, got 2");
}

PLIMSOLL_TEST_CASE("lplb: dispatches as the free function does", P, PLIMSOLL_PREPARED_POLICIES) {
  using c = lplb_case<P>;
  c const in;
  auto const policy = make_policy<P>();
  array_in<std::int32_t, P> const counts(in.counts);
  array_in<std::int32_t, P> chosen(c::tokens * c::k, -7);
  array_in<std::int32_t, P> expected(c::tokens * c::k, -7);
  array_in<dispatch_counters, P> counters(1);
  array_in<dispatch_counters, P> expected_counters(1);
  auto out = chosen.view2(c::tokens, c::k);
  for (dispatch_method const rule : {dispatch_method::in_order, dispatch_method::sampled}) {
    CAPTURE(static_cast<int>(rule));
    lplb_options options = c::options();
    options.method = rule;
    options.seed = 5;
    plimsoll::lplb planner(policy, in.placement, options);
    // Without a plan, experts use their slots in turn.
    array_in<std::int32_t, P> const first(in.ids[0]);
    planner.dispatch(0, first.view2(c::tokens, c::k), out, counters.view1());
    CHECK(numbers_in(counters.values())[0] > 0);
    CHECK(numbers_in(counters.values())[1] == numbers_in(counters.values())[0]);
    planner.plan(counts.view2(c::layers, c::experts));
    planner.check();
    ints const quotas = plimsoll::read(policy, plimsoll::vector_ref<std::int32_t const>(
                                                   planner.quotas().data, c::layers * c::slots));
    for (index_t layer = 0; layer < c::layers; ++layer) {
      CAPTURE(layer);
      array_in<std::int32_t, P> const ids(in.ids[static_cast<std::size_t>(layer)]);
      auto const tokens = ids.view2(c::tokens, c::k);
      auto const stream = static_cast<std::uint64_t>(layer);
      planner.dispatch(layer, tokens, {.subsequence = stream, .first_token = 9}, out,
                       counters.view1());
      plimsoll::dispatch(policy, tokens,
                         plimsoll::vector_ref<std::int32_t const>(
                             in.placement.physical_to_logical.data + layer * c::slots, c::slots),
                         plimsoll::vector_ref<std::int32_t const>(
                             planner.quotas().data + layer * c::slots, c::slots),
                         {c::experts, rule, 5, stream, 9}, expected.view2(c::tokens, c::k),
                         expected_counters.view1());
      ints const whole = chosen.values();
      CHECK(whole == expected.values());
      CHECK(numbers_in(counters.values()) == numbers_in(expected_counters.values()));
      CHECK(numbers_in(counters.values())[1] == 0);
      ints const filled = in.tally(layer, whole);
      if (rule == dispatch_method::in_order) {
        CHECK(filled ==
              ints(quotas.begin() + layer * c::slots, quotas.begin() + (layer + 1) * c::slots));
      }
      report_hash("lplb.dispatch" + std::to_string(static_cast<int>(rule)) + std::to_string(layer),
                  whole, numbers_in(counters.values()));
      if (rule == dispatch_method::sampled) {
        // A part of the tokens draws the same slots as in the whole batch.
        planner.dispatch(
            layer, plimsoll::matrix_ref<std::int32_t const>(ids.data() + 100 * c::k, 50, c::k),
            {.subsequence = stream, .first_token = 109},
            plimsoll::matrix_ref<std::int32_t>(chosen.data(), 50, c::k), counters.view1());
        ints part = chosen.values();
        part.resize(50 * c::k);
        CHECK(part == ints(whole.begin() + 100 * c::k, whole.begin() + 150 * c::k));
      } else {
        // Ids and slots of PyTorch's type, without the batch.
        array_in<std::int64_t, P> const wide(longs(in.ids[static_cast<std::size_t>(layer)].begin(),
                                                   in.ids[static_cast<std::size_t>(layer)].end()));
        array_in<std::int64_t, P> places(c::tokens * c::k, -7);
        planner.dispatch(layer, wide.view2(c::tokens, c::k), places.view2(c::tokens, c::k),
                         counters.view1());
        CHECK(places.values() == longs(whole.begin(), whole.end()));
      }
    }
  }
}

PLIMSOLL_TEST_CASE("lplb: invalid input", P, PLIMSOLL_PREPARED_POLICIES) {
  auto const policy = make_policy<P>();
  // Expert 0 is on both ranks, expert 1 on the first; expert 2 has no slot.
  array_in<std::int32_t, P> const map(ints{0, 1, 0, -1});
  plimsoll::placement_ref const placement{map.view2(1, 4), {nullptr, 1, 3}, 2, {}};
  lplb_options options;
  options.max_token_copies = 4;
  auto const refusal = [&](lplb_options const& bad) {
    return refusal_of([&] { plimsoll::lplb const refused(policy, placement, bad); });
  };
  CHECK(refusal_of([&] { static_cast<void>(placement.of_layer(1)); }) ==
        "placement_ref::of_layer: layer: expected 0 to 0 as layer, got 1");
  plimsoll::placement_ref other_layers = placement;
  other_layers.replica_count.extents[0] = 2;
  CHECK(refusal_of([&] { plimsoll::lplb const refused(policy, other_layers, options); }) ==
        "lplb: placement.replica_count: expected 1 layers, got 2");
  CHECK(refusal({.max_token_copies = -1}) ==
        "lplb: options.max_token_copies: expected 0 to 2147483647 ids, got -1");
  CHECK(refusal({.lp = {.tolerance = 2}}) ==
        "lplb: options.lp.tolerance: expected a number from 0 to below 1, got 2");
  CHECK(refusal({.lp = {.on = {.ranks = 3}}}) ==
        "lplb: options.lp.on.ranks: expected 2 ranks, as in the placement, got 3");
  plimsoll::lplb planner(policy, placement, options);
  array_in<std::int32_t, P> counts(ints{5, 2, 0});
  auto const planned = [&](ints const& values) {
    counts.assign(values);
    planner.plan(counts.view2(1, 3));
    return refusal_of([&] { planner.check(); });
  };
  auto const quotas = [&] {
    return plimsoll::read(policy,
                          plimsoll::vector_ref<std::int32_t const>(planner.quotas().data, 4));
  };
  CHECK(planned({5, 2, 0}) == "no error");
  CHECK(plimsoll::read(policy, planner.reports())[0].peak == 4);
  CHECK(quotas()[1] == 2);
  CHECK(quotas()[0] + quotas()[2] == 5);
  CHECK(planned({5, 2, 1}) ==
        "lplb::plan: counts: expected load only on experts with a slot of a live rank, got 1 in "
        "layer 0, expert 2");
  CHECK(quotas() == ints{0, 0, 0, 0});
  CHECK(planned({5, -2, 0}) ==
        "lplb::plan: counts: expected values from 0 to below 2^47, got -2 in layer 0, expert 1");
  CHECK(plimsoll::read(policy, planner.faults())[0].where == 1);
  CHECK(planned({0x7fffffff, 1, 0}) ==
        "lplb::plan: counts: expected at most 2^31 - 1 tokens, got 2147483648 in layer 0");
  CHECK(planned({0x7ffffffe, 1, 0}) == "no error");
  CHECK(!plimsoll::read(policy, planner.faults())[0]);
  CHECK(plimsoll::read(policy, planner.reports())[0].peak == 0x40000000);
  CHECK(planned({0, 0, 0}) == "no error");

  array_in<std::uint8_t, P> const active(std::vector<std::uint8_t>{0, 1});
  options.lp.on.active = active.view1();
  plimsoll::lplb half(policy, placement, options);
  counts.assign({5, 2, 0});
  half.plan(counts.view2(1, 3));
  CHECK(refusal_of([&] { half.check(); }).starts_with("lplb::plan: counts"));

  array_in<std::int32_t, P> const ids(ints{0, 1, 0, 0, -1});
  array_in<std::int32_t, P> slots(5, -7);
  array_in<dispatch_counters, P> counters(2);
  auto const one = plimsoll::vector_ref<dispatch_counters>(counters.data(), 1);
  auto const dispatched = [&](index_t layer, index_t tokens, index_t places, auto const& where) {
    return refusal_of(
        [&] { planner.dispatch(layer, ids.view2(tokens, 1), slots.view2(places, 1), where); });
  };
  CHECK(planned({3, 1, 0}) == "no error");
  CHECK(dispatched(0, 4, 4, one) == "no error");
  CHECK(slots.values() == ints{0, 1, 2, 2, -7});
  CHECK(dispatched(0, 0, 0, one) == "no error");
  CHECK(numbers_in(counters.values())[0] == 0);
  CHECK(dispatched(0, 5, 5, one) ==
        "lplb::dispatch: topk_ids: expected 0 to 4 ids (options.max_token_copies), got 5");
  CHECK(dispatched(1, 4, 4, one) == "lplb::dispatch: layer: expected 0 to 0 as layer, got 1");
  CHECK(dispatched(-1, 4, 4, one) == "lplb::dispatch: layer: expected 0 to 0 as layer, got -1");
  CHECK(dispatched(0, 4, 3, one) == "lplb::dispatch: slots: expected 4 tokens, got 3");
  CHECK(dispatched(0, 4, 4, counters.view1()) ==
        "lplb::dispatch: counters: expected 1 element, got 2");
  CHECK(refusal_of([&] { planner.plan(counts.view2(1, 2)); }) ==
        "lplb::plan: counts: expected 3 experts, got 2");
  CHECK(refusal_of([&] { planner.plan(counts.view2(0, 3)); }) ==
        "lplb::plan: counts: expected 1 layers, got 0");
}

/// What a planner has for one layer, as numbers.
struct planned_layer {
  std::vector<double> split;
  ints quotas;
  ints chosen;
  std::vector<double> numbers;
  bool operator==(planned_layer const&) const = default;
};

/// Takes random placements one after the other and compares each plan with that of new objects, one
/// for each layer. `run_of(step)` returns a function that repeats `step`: itself, or a replay of
/// its CUDA graph.
template <class P, class RunOf>
void check_updates(std::uint64_t seed, RunOf const& run_of) {
  constexpr index_t tokens = 40;
  constexpr index_t k = 2;
  auto const policy = make_policy<P>();
  updated_placement<P> model(seed);
  generator& draw = model.draw();
  index_t const layers = model.layers();
  index_t const experts = model.experts();
  lplb_options options{
      .max_token_copies = tokens * k,
      .method = seed % 2 == 0 ? dispatch_method::in_order : dispatch_method::sampled};
  options.lp.max_slots = model.max_slots();
  array_in<std::int32_t, P> counts(layers * experts);
  array_in<std::int32_t, P> ids(tokens * k);
  array_in<std::int32_t, P> chosen(layers * tokens * k);
  array_in<dispatch_counters, P> counters(layers);
  auto const planner_for = [&](placement_arrays<P> const& arrays) {
    options.lp.on = arrays.on();
    return plimsoll::lplb(policy, arrays.placement(), options);
  };
  auto const dispatch = [&](auto& planner, index_t layer, index_t out) {
    planner.dispatch(
        layer, ids.view2(tokens, k),
        plimsoll::matrix_ref<std::int32_t>(chosen.data() + out * tokens * k, tokens, k),
        plimsoll::vector_ref<dispatch_counters>(counters.data() + out, 1));
  };
  auto const planned = [&](auto& planner, index_t layer, index_t out, index_t slots) {
    planned_layer result;
    auto const row = [&](auto const& matrix) {
      return plimsoll::read(policy, plimsoll::detail::row_of(matrix, layer));
    };
    result.split = row(planner.split());
    result.quotas = row(planner.quotas());
    for (std::size_t s = static_cast<std::size_t>(slots); s < result.split.size(); ++s) {
      CHECK(result.split[s] == 0);
      CHECK(result.quotas[s] == 0);
    }
    result.split.resize(static_cast<std::size_t>(slots));
    result.quotas.resize(static_cast<std::size_t>(slots));
    ints const all = chosen.values();
    result.chosen.assign(all.begin() + out * tokens * k, all.begin() + (out + 1) * tokens * k);
    certificate const proof =
        plimsoll::read(policy, planner.certificates())[static_cast<std::size_t>(layer)];
    quota_report const report =
        plimsoll::read(policy, planner.reports())[static_cast<std::size_t>(layer)];
    result.numbers = {proof.value,
                      proof.lower_bound,
                      static_cast<double>(proof.work),
                      static_cast<double>(proof.status),
                      static_cast<double>(report.peak),
                      report.split_peak,
                      static_cast<double>(report.moves),
                      static_cast<double>(report.refused.kind)};
    dispatch_counters const c = counters.values()[static_cast<std::size_t>(out)];
    for (std::int64_t const n : numbers_in({c})) {
      result.numbers.push_back(static_cast<double>(n));
    }
    return result;
  };

  auto first = std::make_unique<placement_arrays<P>>(model.all(), experts);
  plimsoll::lplb planner = planner_for(*first);
  first.reset();  // the planner has copied it
  auto const run = run_of([&] {
    planner.plan(counts.view2(layers, experts));
    for (index_t layer = 0; layer < layers; ++layer) {
      dispatch(planner, layer, layer);
    }
  });
  for (int turn = 0; turn < 4; ++turn) {
    CAPTURE(turn);
    index_t const refused =
        turn == 0 ? -1
                  : model.step([&](index_t layer, auto const& to, plimsoll::rank_set const* on) {
                      on == nullptr ? planner.update(layer, to) : planner.update(layer, to, *on);
                    });
    check_update(planner, "lplb", refused);
    ints tokens_of;
    for (index_t i = 0; i < layers * experts; ++i) {
      tokens_of.push_back(static_cast<std::int32_t>(draw.between(0, draw.between(0, 60))));
    }
    counts.assign(tokens_of);
    ints id_of;
    for (index_t i = 0; i < tokens * k; ++i) {
      id_of.push_back(static_cast<std::int32_t>(draw.between(-1, experts)));
    }
    ids.assign(id_of);
    run();
    std::vector<planned_layer> got;
    for (index_t layer = 0; layer < layers; ++layer) {
      got.push_back(planned(planner, layer, layer, std::ssize(model.layer(layer).map)));
    }
    for (index_t layer = 0; layer < layers; ++layer) {
      CAPTURE(layer);
      placement_arrays<P> const arrays({model.layer(layer)}, experts);
      options.lp.max_slots = 0;
      plimsoll::lplb fresh = planner_for(arrays);
      fresh.plan(
          plimsoll::matrix_ref<std::int32_t const>(counts.data() + layer * experts, 1, experts));
      dispatch(fresh, 0, layer);
      bool const same = planned(fresh, 0, layer, std::ssize(model.layer(layer).map)) ==
                        got[static_cast<std::size_t>(layer)];
      CHECK(same);
    }
    check_current(planner, model, "lplb");
  }
}

PLIMSOLL_TEST_CASE("lplb: updated objects plan as new ones do", P, PLIMSOLL_PREPARED_POLICIES) {
  for (std::uint64_t seed = 0; seed < update_sequences<P>(); ++seed) {
    CAPTURE(seed);
    check_updates<P>(seed, [](auto const& step) { return step; });
  }
}

}  // namespace plimsoll_test
