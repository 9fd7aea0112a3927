// SPDX-License-Identifier: Apache-2.0
// Values and properties of SGLang's tests (github.com/sgl-project/sglang, Apache-2.0):
// - test/registered/unit/eplb/test_balanced_packing.py (at 502bd30): packing;
// - .../test_read_mode_stat.py (at 86952b7): the steps of recordings;
// - .../test_compute_logical_to_rank_dispatch_physical_map.py (at 05f70dc): a copy for every rank;
// - .../test_waterfill_eplb.py (at 008b79d): slots of the shared expert;
// - test/registered/eplb/test_lplb_distributed.py (at 125c947): splits of a step.
// Only numbers and properties are theirs. Where a case differs here, its comment says why.
#include <doctest/doctest.h>
#include <plimsoll/array.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/quota.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/systems/lplb.hpp>
#include <plimsoll/systems/waterfill.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <set>
#include <vector>

namespace plimsoll_outside_sglang {

using plimsoll::index_t;
using plimsoll::seq;
using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;
using doubles = std::vector<double>;
using placement = plimsoll::placement<plimsoll::seq_policy>;

/// A placement of one layer with the slots of `map`.
inline placement placed(ints const& map, index_t ranks) {
  index_t const experts = 1 + *std::max_element(map.begin(), map.end());
  plimsoll::array const slots(seq, map, 1, static_cast<index_t>(map.size()));
  auto copies = plimsoll::zeros<std::int32_t>(seq, 1, experts);
  plimsoll::count_replicas(seq, slots, copies);
  return plimsoll::copy_placement(seq, slots, copies, ranks);
}

/// The map of SGLang's trivial placement: experts in order, again and again.
inline ints trivial_map(index_t slots, index_t experts) {
  ints map(static_cast<std::size_t>(slots));
  for (std::size_t slot = 0; slot < map.size(); ++slot) {
    map[slot] = static_cast<std::int32_t>(slot % static_cast<std::size_t>(experts));
  }
  return map;
}

/// `logical_to_all_physical_map`, which SGLang pads with -1.
inline longs padded_map(placement const& plan, index_t width) {
  index_t const slots = plan.physical_to_logical.extent(1);
  index_t const experts = plan.replica_count.extent(1);
  auto offsets = plimsoll::zeros<std::int32_t>(seq, 1, experts + 1);
  auto lists = plimsoll::zeros<std::int32_t>(seq, 1, slots);
  auto padded = plimsoll::zeros<std::int64_t>(seq, 1, experts, width);
  plimsoll::slots_to_replicas(seq, plan.physical_to_logical, offsets, lists);
  plimsoll::replicas_to_padded(seq, {offsets.view(), lists.view()}, padded);
  return padded.to_host();
}

// --- test_balanced_packing.py --------------------------------------------------------------------

TEST_CASE("outside: SGLang: packs have equally many items") {
  struct packing_case {
    char const* name;
    index_t layers, items, packs;
    doubles weights;  ///< [layers, items]; empty: random, as in their tests
    double peak;      ///< weight of the heaviest pack; 0: not asserted
  };
  packing_case const cases[] = {
      {"three layers", 3, 8, 4, {}, 0},
      {"three packs", 2, 6, 3, {}, 0},
      {"four layers", 4, 8, 4, {}, 0},
      {"one item a pack", 2, 6, 6, {}, 0},
      {"many layers", 16, 8, 4, {}, 0},
      {"equal weights", 3, 8, 4, doubles(24, 1), 2},
      {"one layer", 1, 4, 2, {3, 1, 4, 1}, 5},  // they assert no peak here
      {"one heavy item", 1, 4, 2, {9, 1, 1, 1}, 10},
  };
  for (packing_case const& c : cases) {
    CAPTURE(c.name);
    doubles weights = c.weights;
    for (auto i = weights.size(); i < static_cast<std::size_t>(c.layers * c.items); ++i) {
      weights.push_back(plimsoll::random::uniform(1, 0, i));
    }
    plimsoll::array const loads(seq, weights, c.layers, c.items);
    auto const size = static_cast<std::size_t>(c.layers * c.items);
    plimsoll::array const once(seq, ints(size, 1), c.layers, c.items);
    plimsoll::placement_options const where{.on = {.ranks = c.packs, .nodes = c.packs}};
    // Experts are packed on ranks, groups of experts on nodes. Every slot is filled and no expert
    // is missing, so every rank has its number of experts.
    auto const plan = plimsoll::place(seq, loads, once, c.items, where);
    CHECK_NOTHROW(plimsoll::validate(seq, plan.ref()));
    auto members = plimsoll::zeros<std::int32_t>(seq, c.layers, c.items);
    auto offsets = plimsoll::zeros<std::int32_t>(seq, c.layers, c.packs + 1);
    auto const packed =
        plimsoll::place_groups(seq, loads, c.items, c.items, where, members, offsets);
    ints all = members.to_host();
    for (index_t layer = 0; layer < c.layers; ++layer) {
      for (index_t pack = 0; pack <= c.packs; ++pack) {
        CHECK(offsets.view()(layer, pack) == pack * (c.items / c.packs));
      }
      auto const row = all.begin() + layer * c.items;
      std::sort(row, row + c.items);
      for (index_t item = 0; item < c.items; ++item) {
        CHECK(row[item] == item);
      }
      if (c.peak > 0) {
        CHECK(plan.certificates[static_cast<std::size_t>(layer)].value == c.peak);
        CHECK(packed[static_cast<std::size_t>(layer)].value == c.peak);
      }
    }
    auto const again = plimsoll::place(seq, loads, once, c.items, where);
    CHECK(again.physical_to_logical.to_host() == plan.physical_to_logical.to_host());
  }
}

// --- test_read_mode_stat.py ----------------------------------------------------------------------
// Their reader joins the files of a folder. Here examples/apps/read_recordings does that, in
// Python, and has tests of its own; it also leaves out steps without load and orders the rows of a
// ring. These cases are about what it makes, [steps, layers, experts].

TEST_CASE("outside: SGLang: the steps of one recording") {
  ints counts(2 * 3 * 4);
  std::iota(counts.begin(), counts.end(), 0);
  auto sums = plimsoll::zeros<std::int64_t>(seq, 3, 4);
  plimsoll::sum_steps(seq, plimsoll::array(seq, counts, 2, 3, 4), sums);
  CHECK(sums.to_host() == longs{12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34});
}

TEST_CASE("outside: SGLang: the steps of two recordings, one after the other") {
  ints joined(2 * 12, 0);
  joined.insert(joined.end(), 3 * 12, 7);
  auto sums = plimsoll::zeros<std::int64_t>(seq, 3, 4);
  plimsoll::array const steps(seq, joined, 5, 3, 4);
  plimsoll::sum_steps(seq, steps, sums);
  CHECK(sums.to_host() == longs(12, 21));
  // The last two steps are of the second recording.
  plimsoll::load_window<std::int32_t, plimsoll::seq_policy> window(seq, 3, 4, {.window = 2});
  for (index_t step = 0; step < 5; ++step) {
    window.push(plimsoll::matrix_ref<std::int32_t const>(steps.data_handle() + step * 12, 3, 4));
  }
  CHECK(window.size() == 2);
  window.sum(sums);
  CHECK(sums.to_host() == longs(12, 14));
}

TEST_CASE("outside: SGLang: the order of steps, and no step") {
  auto sums = plimsoll::zeros<std::int64_t>(seq, 1, 2);
  plimsoll::load_window<std::int32_t, plimsoll::seq_policy> window(seq, 1, 2, {.window = 1});
  for (std::int32_t const count : {1, 2}) {
    window.push(plimsoll::array(seq, ints(2, count), 1, 2));
    window.sum(sums);
    CHECK(sums.to_host() == longs(2, count));
  }
  plimsoll::sum_steps(seq, plimsoll::array(seq, ints{}, 0, 1, 2), sums);
  CHECK(sums.to_host() == longs{0, 0});
}

// --- test_compute_logical_to_rank_dispatch_physical_map.py ---------------------------------------

/// The slot that each rank uses for each expert, [ranks, experts]: where the first of a rank's
/// tokens goes if all slots get equally many, and a rank has one token for each copy of an expert.
inline ints dispatch_map(placement const& plan, index_t nodes) {
  index_t const ranks = plan.ranks;
  index_t const experts = plan.replica_count.extent(1);
  index_t const slots = plan.physical_to_logical.extent(1);
  ints const map = plan.physical_to_logical.to_host();
  ints const copies = plan.replica_count.to_host();
  ints tokens;  // [ranks, experts]
  for (index_t rank = 0; rank < ranks; ++rank) {
    tokens.insert(tokens.end(), copies.begin(), copies.end());
  }
  ints const quotas(map.size(), static_cast<std::int32_t>(ranks));
  plimsoll::array const counts(seq, tokens, ranks, experts);
  auto of_ranks = plimsoll::zeros<std::int32_t>(seq, ranks, slots);
  plimsoll::divide_quotas(seq, quotas, counts, plan.ref(), {.nodes = nodes}, of_ranks);

  plimsoll::array const ids(seq, trivial_map(experts, experts), experts, 1);
  ints result(tokens.size());
  for (index_t rank = 0; rank < ranks; ++rank) {
    plimsoll::vector_ref<std::int32_t const> const own(of_ranks.data_handle() + rank * slots,
                                                       slots);
    plimsoll::matrix_ref<std::int32_t> const chosen(result.data() + rank * experts, experts, 1);
    std::vector<plimsoll::dispatch_counters> counters(1);
    plimsoll::dispatch(seq, ids, map, own, {.experts = experts}, chosen, counters);
    CHECK(counters[0].routed == experts);
    CHECK(counters[0].beyond_quota == 0);
  }
  for (std::size_t i = 0; i < result.size(); ++i) {  // every expert goes to a slot that holds it
    auto const slot = static_cast<std::size_t>(result[i]);
    REQUIRE(slot < map.size());
    CHECK(map[slot] == static_cast<std::int32_t>(i % static_cast<std::size_t>(experts)));
  }
  return result;
}

TEST_CASE("outside: SGLang: every rank has a slot for each expert, on its own rank first") {
  // Four ranks of two slots; both copies of expert e are on rank e.
  placement const pairs = placed({0, 0, 1, 1, 2, 2, 3, 3}, 4);
  for (index_t const nodes : {1, 2}) {
    CAPTURE(nodes);
    ints const slots = dispatch_map(pairs, nodes);
    CHECK(slots == dispatch_map(pairs, nodes));
    // They assert that ranks differ. SGLang deals out remote copies at random, with a seed; here
    // ranks 0 and 1 fill the first copy of expert 0, and ranks 2 and 3 the second one.
    CHECK(ints{slots[0], slots[4], slots[8], slots[12]} == ints{0, 0, 1, 1});
  }
  // All slots hold one expert. They assert that ids are valid; here every rank keeps its tokens.
  CHECK(dispatch_map(placed(ints(8, 0), 4), 2) == ints{0, 2, 4, 6});
}

TEST_CASE("outside: SGLang: seeds of sampled copies") {
  ints const map{0, 0, 1, 1, 2, 2, 3, 3};
  ints const quotas(8, 1);
  plimsoll::array const ids(seq, ints{0, 1, 2, 3}, 4, 1);
  auto const chosen = [&](std::uint64_t seed) {
    auto slots = plimsoll::zeros<std::int32_t>(seq, 4, 1);
    std::vector<plimsoll::dispatch_counters> counters(1);
    plimsoll::dispatch(seq, ids, map, quotas,
                       {.experts = 4, .method = plimsoll::dispatch_method::sampled, .seed = seed},
                       slots, counters);
    return slots.to_host();
  };
  CHECK(chosen(7) == chosen(7));
  std::set<ints> results;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    results.insert(chosen(seed));
  }
  CHECK(results.size() > 1);
}

TEST_CASE("outside: SGLang: a rank that joins has copies of the first experts") {
  // 64 experts on four ranks, and 16 more slots on a fifth.
  placement const plan = placed(trivial_map(80, 64), 5);
  ints const slots = dispatch_map(plan, 1);
  ints const of_joiner(slots.begin() + 4 * 64, slots.end());
  ints const of_first(slots.begin(), slots.begin() + 64);
  longs const padded = padded_map(plan, 2);
  for (int e = 0; e < 64; ++e) {
    CAPTURE(e);
    auto const i = static_cast<std::size_t>(e);
    CHECK(of_joiner[i] == (e < 16 ? 64 + e : e));
    CHECK(of_first[i] == e);
    // SGLang's map of the fifth rank has its own copies first. Here slots rise, so that all ranks
    // have equal maps; the preference for their own copies is in `source_quotas`.
    CHECK(padded[2 * i] == e);
    CHECK(padded[2 * i + 1] == (e < 16 ? 64 + e : -1));
  }
}

// --- test_waterfill_eplb.py ----------------------------------------------------------------------

TEST_CASE("outside: SGLang: the shared expert has the last slot of each rank") {
  struct shared_case {
    char const* name;
    index_t ranks, slots, rank;
    ints ids, expected;
    longs routed;  ///< token copies that are counted for every rank
  };
  // They pass the shared expert as a fourth id, 256, which they do not record. Here only the routed
  // ids are passed and counted. (A token alone stays on its rank, in both.) Their variant with one
  // shared expert for all ranks has no counterpart here.
  shared_case const cases[] = {
      {"eight ranks of 33 slots",
       8,
       264,
       7,
       {0, 33, 263},
       {0, 34, 270, 271},
       {1, 1, 0, 0, 0, 0, 0, 1}},
      // Of the five experts of a rank, the shared one is the last, which EPLB never moves.
      {"four slots", 1, 4, 0, {3}, {3, 4}, {1}},
  };
  for (shared_case const& c : cases) {
    CAPTURE(c.name);
    index_t const top_k = static_cast<index_t>(c.ids.size());
    placement const plan = placed(trivial_map(c.slots, std::min<index_t>(c.slots, 256)), c.ranks);
    plimsoll::array const topk_ids(seq, c.ids, 1, top_k);
    plimsoll::waterline_options const line{.top_k = top_k, .max_tokens = 1};
    for (plimsoll::waterline_options const& options : {line, plimsoll::literal_waterfill(line)}) {
      plimsoll::waterfill fill(seq, plan.ref(), {.rank = c.rank, .line = options});
      fill.count(topk_ids);
      longs loads = c.routed;
      loads.resize(static_cast<std::size_t>(2 * c.ranks));
      loads[static_cast<std::size_t>(c.ranks + c.rank)] = 1;  // one token, at home
      longs const counted(fill.loads().data, fill.loads().data + 2 * c.ranks);
      CHECK(counted == loads);
      auto ids = plimsoll::zeros<std::int32_t>(seq, 1, top_k + 1);
      fill.fill(topk_ids, {}, ids);
      CHECK_NOTHROW(fill.check());
      CHECK(ids.to_host() == c.expected);
    }
  }
}

// --- test_lplb_distributed.py --------------------------------------------------------------------

/// Two ranks of three slots; expert 0, or 1 after a rebalance, has two copies more, on rank 1.
inline ints map_of(bool rebalanced) {
  return rebalanced ? ints{0, 1, 2, 3, 1, 1} : ints{0, 1, 2, 3, 0, 0};
}

/// The tokens of every expert, summed over the ranks of which rank 0 alone has tokens.
inline ints counts_of(ints const& topk_ids) {
  ints sum(4);
  for (ints const& of_rank : {topk_ids, ints{}}) {
    plimsoll::array const ids(seq, of_rank, static_cast<index_t>(of_rank.size()) / 2, 2);
    std::vector<plimsoll::routing_counters> counters(1);
    plimsoll::count_tokens(seq, ids, {.mode = plimsoll::count_mode::add}, sum, counters);
  }
  return sum;
}

struct step_plan {
  ints quotas;
  doubles split;
  plimsoll::certificate proof;
  std::int64_t peak;
};

inline step_plan planned(placement const& plan, ints const& counts) {
  plimsoll::lplb planner(seq, plan.ref(), {.max_token_copies = 8});
  planner.plan(plimsoll::array(seq, counts, 1, static_cast<index_t>(counts.size())));
  CHECK_NOTHROW(planner.check());
  index_t const slots = plan.physical_to_logical.extent(1);
  return {ints(planner.quotas().data, planner.quotas().data + slots),
          doubles(planner.split().data, planner.split().data + slots), planner.certificates()[0],
          planner.reports()[0].peak};
}

TEST_CASE("outside: SGLang: maps of an expert with three copies") {
  placement const before = placed(map_of(false), 2);
  CHECK(before.replica_count.to_host() == ints{3, 1, 1, 1});
  CHECK(padded_map(before, 3) == longs{0, 4, 5, 1, -1, -1, 2, -1, -1, 3, -1, -1});
  placement const after = placed(map_of(true), 2);
  CHECK(after.replica_count.to_host() == ints{1, 3, 1, 1});
  CHECK(padded_map(after, 3) == longs{0, -1, -1, 1, 4, 5, 2, -1, -1, 3, -1, -1});
}

TEST_CASE("outside: SGLang: splits of a step") {
  // They compare two implementations of the same five interior-point steps, within 0.01 of all
  // tokens, and check that the result is not the fallback, an even split. Here the split is
  // optimal, and its peak is known: in every case both ranks can get the same load.
  struct split_case {
    char const* name;
    bool rebalanced;
    ints counts;
    double peak;
    double first, others;  ///< load of the expert with copies on rank 0 and on rank 1
  };
  split_case const cases[] = {
      {"counts", false, {120, 30, 25, 20}, 97.5, 42.5, 77.5},
      {"a rank without tokens", false, counts_of({0, 1, 0, 2, 3, 0, 0, 1}), 4, 1, 3},
      {"before a rebalance", false, counts_of({0, 1, 0, 1, 0, 1, 2, 3}), 4, 0, 3},
      {"after a rebalance", true, counts_of({0, 1, 0, 1, 0, 1, 2, 3}), 4, 0, 3},
  };
  for (split_case const& c : cases) {
    CAPTURE(c.name);
    placement const plan = placed(map_of(c.rebalanced), 2);
    step_plan const step = planned(plan, c.counts);
    CHECK(step.proof.status == plimsoll::certificate_status::optimal);
    CHECK(step.proof.value == c.peak);
    CHECK(step.split[c.rebalanced ? 1 : 0] == c.first);
    CHECK(step.split[4] + step.split[5] == c.others);
    CHECK(step.peak == static_cast<std::int64_t>(c.peak + 0.5));
    ints sums(4);
    ints const map = map_of(c.rebalanced);
    for (std::size_t slot = 0; slot < map.size(); ++slot) {
      CHECK(step.quotas[slot] >= 0);
      sums[static_cast<std::size_t>(map[slot])] += step.quotas[slot];
    }
    CHECK(sums == c.counts);
    // The other rank makes the same plan.
    step_plan const other = planned(plan, c.counts);
    CHECK(other.quotas == step.quotas);
    CHECK(other.split == step.split);
  }
  CHECK(cases[1].counts == ints{4, 2, 1, 1});
  CHECK(planned(placed(map_of(false), 2), cases[2].counts).quotas !=
        planned(placed(map_of(true), 2), cases[3].counts).quotas);
}

TEST_CASE("outside: SGLang: a step without tokens") {
  // They assert shares of each expert's load, finite and at least 0; here shares are in tokens.
  step_plan const step = planned(placed(map_of(false), 2), counts_of({}));
  CHECK(step.quotas == ints(6, 0));
  CHECK(step.split == doubles(6, 0));
  CHECK(step.proof.status == plimsoll::certificate_status::optimal);
}

TEST_CASE("outside: SGLang: a split for 64 ranks and 64 redundant experts") {
  // Their kernel must launch with this many ranks and copies, the most that they expect. The loads
  // are ours. Experts 0 to 63 have one copy on ranks 0 to 12 and one on ranks 51 to 63. Their 6400
  // tokens and 20 of experts 64 and 255 can be spread evenly over these 26 ranks, 246.9 on each; if
  // each copy gets half, the peak is 250.
  ints counts(256, 10);
  std::fill_n(counts.begin(), 64, 100);
  step_plan const step = planned(placed(trivial_map(320, 256), 64), counts);
  CHECK(step.proof.status == plimsoll::certificate_status::optimal);
  CHECK(step.peak == 247);
  ints of_ranks(64);
  for (std::size_t slot = 0; slot < 320; ++slot) {
    of_ranks[slot / 5] += step.quotas[slot];
  }
  CHECK(*std::max_element(of_ranks.begin(), of_ranks.end()) == 247);
  CHECK(std::accumulate(of_ranks.begin(), of_ranks.end(), 0) == 64 * 100 + 192 * 10);
}

TEST_CASE("outside: SGLang: copies drawn by probability") {
  // Expert e of eight has slots e and 8 + e % 4 in their test, so that experts share slots. That is
  // no placement, and is refused here.
  longs shared;
  for (std::int64_t e = 0; e < 8; ++e) {
    shared.insert(shared.end(), {e, 8 + e % 4, -1});
  }
  auto offsets = plimsoll::zeros<std::int32_t>(seq, 1, 9);
  auto lists = plimsoll::zeros<std::int32_t>(seq, 1, 12);
  CHECK_THROWS_WITH_AS(
      plimsoll::padded_to_replicas(seq, plimsoll::array(seq, shared, 1, 8, 3), offsets, lists),
      "padded_to_replicas: logical_to_physical: expected every slot once, "
      "got slot 8 again in layer 0, expert 4",
      plimsoll::invalid_input);

  // 64 tokens of four ids, with slots 8 to 11 for experts 0 to 3. Copies of expert 0 have no
  // probability: its tokens then go to its slots in turn.
  ints const map = trivial_map(12, 8);
  ints quotas(12, 1000);
  quotas[0] = quotas[8] = 0;
  ints ids(64 * 4);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(plimsoll::random::bits(0, 0, i) % 8);
  }
  auto slots = plimsoll::zeros<std::int32_t>(seq, 64, 4);
  std::vector<plimsoll::dispatch_counters> counters(1);
  plimsoll::dispatch(seq, plimsoll::array(seq, ids, 64, 4), map, quotas,
                     {.experts = 8, .method = plimsoll::dispatch_method::sampled}, slots, counters);
  CHECK(counters[0].routed == 64 * 4);
  CHECK(counters[0].beyond_quota == std::count(ids.begin(), ids.end(), 0));
  ints tokens(12);
  ints const chosen = slots.to_host();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    REQUIRE(chosen[i] >= 0);
    auto const slot = static_cast<std::size_t>(chosen[i]);
    CHECK(map[slot] == ids[i]);
    ++tokens[slot];
  }
  CHECK(*std::min_element(tokens.begin(), tokens.end()) > 0);
  CHECK(tokens[0] - tokens[8] <= 1);
  CHECK(tokens[0] - tokens[8] >= 0);
}

}  // namespace plimsoll_outside_sglang
