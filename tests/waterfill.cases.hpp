// SPDX-License-Identifier: Apache-2.0
// Tests of waterfill under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/systems/lplb.hpp>
#include <plimsoll/systems/waterfill.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/policies.hpp"
#include "support/refusal.hpp"
#include "support/update_sequences.hpp"
#include "support/updated_slots.hpp"
#include "support/waterfill.hpp"

namespace plimsoll_test {

using namespace waterfill_support;

PLIMSOLL_TEST_CASE("waterfill: a busy rank sends rows away, by hand", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  // Two ranks of two slots. The other rank's eight choices are two for its own slots and six for
  // ours, and its four rows of the shared expert stay with it: 5 + 4 and 11 + 4 rows, level 12.
  fill_case c{.ranks = 2, .slots = 4, .ids = {3, 0, 3, 2, 1, 3, 0, 2}, .others = {2, 6, 4, 0}};
  c.options = {.rank = 1, .line = {.top_k = 2, .max_tokens = 4, .min_tokens = 0}};
  fill_result const got = fill_of<P>(c);
  CHECK(got.loads == longs{5, 11, 4, 4});
  CHECK(got.report.level == 12);
  CHECK(got.report.moved == 3);
  // Three rows leave, those of the tokens that visit rank 0 anyway. A rank's last id is the shared
  // expert: 2 on rank 0, 5 on rank 1.
  CHECK(got.ranks == ints{0, 1, 0, 0});
  CHECK(got.ids == ints{4, 0, 2, 4, 3, 5, 1, 4, 2, 0, 3, 2});
}

// ----- SGLang's procedure ------------------------------------------------------------------------

inline void check_literal(fill_fn fill_of) {
  fnv1a all;
  ways seen;
  auto const check = [&](fill_case const& c) {
    CAPTURE(c.ranks);
    sglang_output const expected = sglang_step(c, seen);
    fill_result const got = fill_of(c);
    CHECK(got.ids == expected.ids);
    CHECK(got.weights == expected.weights);
    all.add(got.ids);
  };
  for (std::uint64_t seed = 0; seed < cases_of(400); ++seed) {
    CAPTURE(seed);
    check(make_literal_case(seed, 1, 31));
  }
  for (std::int64_t const way : seen.counts()) {
    CHECK(way > static_cast<std::int64_t>(cases_of(20)));
  }
  // A rank at the level but none above it: all ranks are candidates.
  fill_case level = make_literal_case(0, 2, 2);
  level.slots = 2;
  level.options.rank = 0;
  level.options.line.top_k = 1;
  level.options.line.counts = plimsoll::counted_ranks::all;
  level.ids.assign(64, 0);
  level.others = {0, 0, 0, 64};
  check(level);
  // More ranks than SGLang's mask has bits.
  for (std::uint64_t seed = 0; seed < cases_of(20); ++seed) {
    CAPTURE(seed);
    check(make_literal_case(1000 + seed, 32, 200));
  }
  report_hash("waterfill.literal", all.value());
}

PLIMSOLL_TEST_CASE("waterfill: SGLang's choices, id for id", P, PLIMSOLL_PREPARED_POLICIES) {
  check_literal(fill_of<P>);
}

// ----- placements --------------------------------------------------------------------------------

inline std::int64_t highest_of(longs const& loads) {
  return *std::max_element(loads.begin(), loads.end());
}

inline std::int64_t mean_of(longs const& loads) {
  auto const ranks = static_cast<std::int64_t>(loads.size());
  return (std::accumulate(loads.begin(), loads.end(), std::int64_t{0}) + ranks - 1) / ranks;
}

/// Returns a case of three layers with different slots per rank; the last has a slot of no rank.
inline fill_case make_placed_case() {
  fill_case c;
  c.layers = 3;
  c.ranks = 5;
  c.slots = 23;
  c.offsets = {0, 4, 9, 14, 18, 23, 0, 1, 2, 12, 21, 23, 0, 9, 14, 16, 21, 22};
  c.options.line.top_k = 3;
  c.options.line.max_tokens = 700;
  c.options.line.min_tokens = 0;
  c.options.line.seed = 3;
  c.stream = 4;
  return c;
}

inline void check_placed(fill_fn fill_of, fill_fn by_hand_of) {
  fill_case c = make_placed_case();
  generator random(1);
  std::vector<ints> ids;
  for (index_t const tokens : {700, 90, 0, 40, 530}) {
    ids.push_back(make_ids(random, tokens, c.k(), c.slots));
  }
  fnv1a all;
  std::vector<ints> ranks_of_layers;
  for (bool const even : {false, true}) {
    c.offsets = even ? ints{} : make_placed_case().offsets;
    for (c.options.layer = 0; c.options.layer < c.layers; ++c.options.layer) {
      for (auto const& [rule, candidates] :
           {std::pair(fill_method::surplus, candidate_ranks::all),
            std::pair(fill_method::surplus, candidate_ranks::visited),
            std::pair(fill_method::sampled, candidate_ranks::visited)}) {
        CAPTURE(even);
        CAPTURE(c.options.layer);
        c.options.line.method = rule;
        c.options.line.candidates = candidates;
        CAPTURE(static_cast<int>(c.options.line.method));
        auto const got = step_of(fill_of, c, ids);
        auto const expected = step_of(by_hand_of, c, ids);
        for (std::size_t r = 0; r < got.size(); ++r) {
          CHECK(difference(got[r], expected[r]) == "");
          CHECK(got[r].loads == got[0].loads);
          all.add(got[r].ids);
        }
        auto const [loads, routed] = loads_after(c, ids, got);
        CHECK(longs(got[0].loads.begin(), got[0].loads.begin() + c.ranks) == routed);
        if (rule == fill_method::surplus) {
          std::int64_t const lowest = std::max(mean_of(loads), highest_of(routed));
          CHECK(got[0].report.level == static_cast<double>(lowest));
          if (candidates == candidate_ranks::all) {
            CHECK(highest_of(loads) == lowest);
            ranks_of_layers.push_back(got[0].ranks);
          }
        }
      }
    }
  }
  // Offsets are those of the layer; without them all layers are equal.
  CHECK(ranks_of_layers[0] != ranks_of_layers[1]);
  CHECK(ranks_of_layers[1] != ranks_of_layers[2]);
  CHECK(ranks_of_layers[3] == ranks_of_layers[5]);
  report_hash("waterfill.placed", all.value());
}

PLIMSOLL_TEST_CASE("waterfill: the same as waterline for a layer's ranks", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  check_placed(fill_of<P>, by_hand_of<P>);
}

// ----- after LPLB --------------------------------------------------------------------------------

using split_fn = split_result (*)(split_case const&);

inline void check_after_lplb(split_fn split_of, fill_fn fill_of) {
  split_case c{24, 6, 3, {}, {}};
  for (std::int32_t r = 0; r < 6; ++r) {
    c.map.insert(c.map.end(),
                 {4 * r, 4 * r + 1, 4 * r + 2, 4 * r + 3, (4 * r + 5) % 24, (4 * r + 10) % 24});
  }
  fnv1a all;
  ints higher_of{0, 0};
  for (std::uint64_t seed = 0; seed < cases_of(24); ++seed) {
    CAPTURE(seed);
    generator random(seed);
    // Tokens are ordered by rank. The popular expert may have a second replica.
    std::vector<index_t> tokens;
    for (index_t r = 0; r < c.ranks; ++r) {
      tokens.push_back(random.between(0, 3) == 0 ? 0 : random.between(1, 400));
    }
    auto const liked = random.between(0, 23);
    auto const much = random.between(0, 9);
    auto const count = std::accumulate(tokens.begin(), tokens.end(), index_t{0}) * c.k;
    c.ids.clear();
    for (index_t i = 0; i < count; ++i) {
      c.ids.push_back(
          static_cast<std::int32_t>(random.between(0, 9) < much ? liked : random.between(-1, 23)));
    }
    split_result const split = split_of(c);

    fill_case fill;
    fill.ranks = c.ranks;
    fill.slots = std::ssize(c.map);
    fill.options.line.top_k = c.k;
    fill.options.line.max_tokens = 400;
    fill.options.line.candidates = candidate_ranks::all;
    fill.options.line.min_tokens = 0;
    std::vector<ints> slots;
    auto next = split.slots.begin();
    for (index_t const n : tokens) {
      slots.emplace_back(next, next + n * c.k);
      next += n * c.k;
    }
    auto const results = step_of(fill_of, fill, slots);
    auto const [loads, routed] = loads_after(fill, slots, results);
    // No split of routed tokens has a lower peak, and no peak is below the mean.
    CHECK(highest_of(routed) == split.peak);
    CHECK(highest_of(loads) == std::max(mean_of(loads), split.peak));
    ++higher_of[mean_of(loads) > split.peak ? 1 : 0];
    for (fill_result const& one : results) {
      CHECK(one.report.unplaced == 0);
      all.add(one.ids);
    }
  }
  CHECK(higher_of[0] > 0);
  CHECK(higher_of[1] > 0);
  report_hash("waterfill.after_lplb", all.value());
}

PLIMSOLL_TEST_CASE("waterfill: after lplb, the lowest possible peak", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  check_after_lplb(split_of<P>, fill_of<P>);
}

// ----- bad input ---------------------------------------------------------------------------------

inline fill_case make_small_case() {
  fill_case c = make_placed_case();
  c.options.line.max_tokens = 4;
  c.ids = {0, 5, 9, -1, 22, 3, -1, -1, -1, 7, 7, -5};
  return c;
}

struct refused_fill {
  fill_case c;
  std::string message;
};

inline std::vector<refused_fill> refusals() {
  std::vector<refused_fill> all;
  auto const next = [&](std::string message) -> fill_case& {
    all.push_back({make_small_case(), std::move(message)});
    return all.back().c;
  };
  next("waterfill: options.layer: expected 0 to 2 as layer, got 3").options.layer = 3;
  next("waterfill: options.layer: expected 0 to 2 as layer, got -1").options.layer = -1;
  next("waterfill: options.rank: expected 0 to 4 as rank, got 5").options.rank = 5;
  next("waterfill: options.rank: expected 0 to 4 as rank, got -1").options.rank = -1;
  next("waterfill: options.line.on.ranks: expected 5 ranks, as in the placement, got 4")
      .options.line.on.ranks = 4;
  next("waterfill: options.line.slots: expected none, as the placement's applies, got another")
      .options.line.slots = 5;
  next("waterfill: options.line.on.nodes: expected 1 to 5 nodes (at most one per rank), got 6")
      .options.line.on.nodes = 6;
  // Offsets of another layer are not read.
  fill_case& falling = next(
      "waterfill: placement.rank_offsets: expected offsets that rise from 0 to at most the number "
      "of "
      "slots, got 11, after 12, rank 3");
  falling.offsets[10] = 11;
  falling.options.layer = 1;
  next("no error").offsets[10] = 11;
  fill_case& same = next("no error");
  same.options.line.on.ranks = 5;
  same.options.line.slots = 23;
  fill_case& poured = next(
      "waterfill: options.line.arithmetic: expected exact unless fill_method::sampled is set, got "
      "sglang");
  poured.options.line = plimsoll::literal_waterfill(poured.options.line);
  poured.options.line.method = fill_method::surplus;
  next("waterfill::fill: loads: expected values from 0 to 2^31 - 1, got -3 in row 1, rank 2")
      .others = {0, 0, 0, 0, 0, 0, 0, -3, 0, 0};
  next("waterfill::fill: loads: expected at most 2^31 - 1 tokens, got 2147483652").others = {
      0, 0x7ffffffa, 0, 0, 0, 0, 0, 0, 0, 0};
  return all;
}

PLIMSOLL_TEST_CASE("waterfill: refuses invalid input", P, PLIMSOLL_PREPARED_POLICIES) {
  auto const policy = make_policy<P>();
  for (refused_fill const& bad : refusals()) {
    fill_in<P> in(bad.c);
    check_message(refusal_of([&] {
                    plimsoll::waterfill fill(policy, in.placement(), bad.c.options);
                    in.step(fill);
                    fill.check();
                  }),
                  bad.message);
  }
  fill_case const c = make_small_case();
  fill_in<P> in(c);
  plimsoll::placement_ref const placement = in.placement();
  auto const made = [&](plimsoll::placement_ref const& of, waterfill_options const& options) {
    return refusal_of([&] { plimsoll::waterfill fill(policy, of, options); });
  };
  waterfill_options twice = c.options;
  twice.line.rank_offsets = {placement.rank_offsets.data, c.ranks + 1};
  check_message(
      made(placement, twice),
      "waterfill: options.line.rank_offsets: expected none, as the placement's applies, got "
      "another");
  plimsoll::placement_ref other = placement;
  other.rank_offsets.extents[0] = 2;
  check_message(made(other, c.options),
                "waterfill: placement.rank_offsets: expected 3 layers, got 2");
  other.rank_offsets = {placement.rank_offsets.data, 3, 5};
  check_message(made(other, c.options),
                "waterfill: placement.rank_offsets: expected 6 offsets (ranks + 1), got 5");
  other = {};
  check_message(made(other, c.options),
                "waterfill: options.layer: expected 0 to -1 as layer, got 0");
  array_in<std::uint8_t, P> const active(std::vector<std::uint8_t>{1, 0, 1, 1, 1});
  waterfill_options literal = c.options;
  literal.line = plimsoll::literal_waterfill(literal.line);
  literal.line.on.active = active.view1();
  check_message(made(placement, literal),
                "waterfill: options.line.arithmetic: expected exact unless all ranks are live and "
                "equally fast, got sglang with 4 of 5 ranks live");

  plimsoll::waterfill fill(policy, placement, c.options);
  array_in<std::int32_t, P> ids(40);
  auto const count = [&](index_t tokens, index_t columns) {
    return refusal_of([&] { fill.count(ids.view2(tokens, columns)); });
  };
  check_message(count(5, 3),
                "waterfill::count: topk_ids: expected 0 to 4 tokens (options.max_tokens), got 5");
  check_message(count(4, 2), "waterfill::count: topk_ids: expected 3 ids per token, got 2");
  check_message(count(4, 3), "no error");
  array_in<std::int32_t, P> out(40);
  array_in<float, P> weights(40);
  auto const filled = [&](index_t tokens, index_t columns, plimsoll::filled_rows const& rows) {
    return refusal_of([&] { fill.fill(ids.view2(4, 3), {}, out.view2(tokens, columns), rows); });
  };
  check_message(filled(4, 4, {}), "no error");
  // A refused call keeps the last plan and does not read new loads.
  array_in<std::int64_t, P> const none(std::vector<std::int64_t>(10, 0));
  double const level = plimsoll::read(policy, fill.report()).level;
  CHECK(level > 0);
  plimsoll::detail::launch(
      plimsoll::detail::resolve(policy), 2,
      plimsoll::detail::copy_rows_body<std::int64_t>{none.view2(2, 5), fill.loads()});
  check_message(filled(3, 4, {}), "waterfill::fill: ids: expected 4 tokens, got 3");
  CHECK(plimsoll::read(policy, fill.report()).level == level);
  check_message(filled(4, 3, {}), "waterfill::fill: ids: expected 4 columns, got 3");
  check_message(
      filled(4, 4, {weights.view2(4, 4), {}}),
      "waterfill::fill: batch.weights: expected weights, as rows.weights is set, got none");
  check_message(filled(4, 4, {{}, {ids.data(), 3}}),
                "waterfill::fill: rows.ranks: expected 4 tokens, got 3");
}

// ----- updates -----------------------------------------------------------------------------------

/// Takes other slots and ranks, some of them refused, and compares each step with that of a new
/// object. `run_of(step)` returns a function that repeats `step`: itself, or a replay of its CUDA
/// graph. Returns the rows that moved in steps with dead ranks.
template <class P, class RunOf>
std::int64_t check_updates(std::uint64_t seed, RunOf const& run_of) {
  constexpr index_t tokens = 60;
  generator draw(seed);
  fill_case c;
  c.ranks = draw.between(1, 6);
  c.slots = draw.between(2 * c.ranks, 5 * c.ranks);
  c.stream = seed;
  c.options.rank = draw.between(0, c.ranks - 1);
  c.options.line = {.top_k = 3,
                    .max_tokens = tokens,
                    .method = seed % 3 == 0 ? fill_method::sampled : fill_method::surplus,
                    .candidates = seed % 2 == 0 ? candidate_ranks::all : candidate_ranks::visited,
                    .min_tokens = 1};
  updated_slots<P> model(draw, c.ranks, c.slots, c.options.rank);
  auto const next_batch = [&] {
    c.ids = model.ids(tokens * c.k());
    c.others.clear();
    for (index_t i = 0; i < 2 * c.ranks; ++i) {
      c.others.push_back(model.lives(i % c.ranks) ? draw.between(0, 90) : 0);
    }
  };
  next_batch();
  fill_in<P> in(c);
  auto const fill_for = [&](slot_arrays<P> const& of) {
    plimsoll::placement_ref placement = in.placement();
    if (of.rank_offsets().data != nullptr) {
      placement.rank_offsets = {of.rank_offsets().data, 1, c.ranks + 1};
    }
    waterfill_options options = c.options;
    options.line.on = of.on();
    return plimsoll::waterfill(make_policy<P>(), placement, options);
  };
  auto fill = fill_for(model.in_use());  // copies the arrays, which are freed here
  auto const run = run_of([&] { in.step(fill); });
  std::int64_t moved = 0;
  for (int turn = 0; turn < 4; ++turn) {
    CAPTURE(turn);
    if (turn > 0) {
      model.step(fill, "waterfill");
    }
    next_batch();
    in.assign(c);
    run();
    fill_result const got = in.result(fill);
    auto fresh = fill_for(model.in_use());
    in.step(fresh);
    fill_result const expected = in.result(fresh);
    CHECK(difference(got, expected) == "");
    moved += model.all_live() ? 0 : expected.report.moved;
    model.check_current(fill, "waterfill");
  }
  return moved;
}

PLIMSOLL_TEST_CASE("waterfill: updated objects fill as new ones do", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  std::int64_t moved = 0;
  for (std::uint64_t seed = 0; seed < update_sequences<P>(); ++seed) {
    CAPTURE(seed);
    moved += check_updates<P>(seed, [](auto const& step) { return step; });
  }
  CHECK((moved > 0 || array_in<int, P>::on_device));
}

PLIMSOLL_TEST_CASE("waterfill: refused updates", P, PLIMSOLL_PREPARED_POLICIES) {
  fill_case c;
  c.ranks = 2;
  c.slots = 4;
  c.options.line = {.top_k = 1, .max_tokens = 4};
  fill_in<P> const in(c);
  array_in<std::int32_t, P> const offsets(ints{0, 2, 2, 4});
  plimsoll::waterfill fill(make_policy<P>(), in.placement(), c.options);
  auto const refusal = [&](index_t count, plimsoll::rank_set const& on = {}) {
    return refusal_of([&] {
      fill.update({offsets.data(), count}, on);
      fill.check();
    });
  };
  check_message(refusal(2),
                "waterfill::update: rank_offsets: expected 3 offsets (ranks + 1), got 2");
  check_message(refusal(3, {.ranks = 3}),
                "waterfill::update: on.ranks: expected 2 ranks, as in the placement, got 3");
  check_message(
      refusal(3),
      "waterfill::update: rank_offsets: expected at least 1 slot for every live rank, got "
      "0, rank 1");
  array_in<std::uint8_t, P> const active(std::vector<std::uint8_t>{1, 0});
  check_message(refusal(3, {.active = active.view1()}), "no error");
}

}  // namespace plimsoll_test
