// SPDX-License-Identifier: Apache-2.0
// Traffic of a plan, by the way of every token copy.
#include "../traffic.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "../evaluation.hpp"
#include "../outcome_table.hpp"
#include "loads_of.hpp"

using namespace examples;

namespace {

std::size_t at(index_t i) { return static_cast<std::size_t>(i); }

index_t node_of(index_t rank, index_t ranks, index_t nodes) {
  index_t node = 0;
  while ((node + 1) * ranks / nodes <= rank) {
    ++node;
  }
  return node;
}

index_t rank_of(plan const& p, index_t layer, index_t slot) {
  index_t rank = 0;
  while (rank < p.ranks && p.placement().rank_offsets(layer, rank + 1) <= slot) {
    ++rank;
  }
  return rank;
}

/// The traffic of copies that go from every rank to every slot, one pair after the other.
plan_traffic by_pairs(plan const& p, std::vector<double> const& slot_loads,
                      token_sources const& from) {
  plan_traffic result;
  for (index_t layer = 0; layer < p.layers; ++layer) {
    for (index_t slot = 0; slot < p.slots; ++slot) {
      index_t const expert = p.physical_to_logical[at(layer * p.slots + slot)];
      if (expert < 0) {
        continue;
      }
      std::vector<double> copies;
      double total = 0;
      for (index_t source = 0; source < p.ranks; ++source) {
        copies.push_back(from.copies.empty()
                             ? 1
                             : from.copies[at((source * p.layers + layer) * p.experts + expert)]);
        total += copies.back();
      }
      double const load = slot_loads[at(layer * p.slots + slot)];
      result.copies += load;
      for (index_t source = 0; source < p.ranks; ++source) {
        double const part =
            load * (total == 0 ? 1.0 / static_cast<double>(p.ranks) : copies[at(source)] / total);
        auto const node = [&](index_t rank) { return node_of(rank, p.ranks, from.nodes); };
        index_t const rank = rank_of(p, layer, slot);
        result.split.ranks += rank == source ? 0 : part;
        result.split.nodes += node(rank) == node(source) ? 0 : part;
        bool on_rank = false;
        bool on_node = false;
        for (index_t other = 0; other < p.slots; ++other) {
          if (p.physical_to_logical[at(layer * p.slots + other)] == expert) {
            on_rank = on_rank || rank_of(p, layer, other) == source;
            on_node = on_node || node(rank_of(p, layer, other)) == node(source);
          }
        }
        result.nearest.ranks += on_rank ? 0 : part;
        result.nearest.nodes += on_node ? 0 : part;
      }
    }
  }
  return result;
}

void check_traffic(plan_traffic const& got, plan_traffic const& expected) {
  CHECK(got.copies == doctest::Approx(expected.copies));
  CHECK(got.split.ranks == doctest::Approx(expected.split.ranks));
  CHECK(got.split.nodes == doctest::Approx(expected.split.nodes));
  CHECK(got.nearest.ranks == doctest::Approx(expected.nearest.ranks));
  CHECK(got.nearest.nodes == doctest::Approx(expected.nearest.nodes));
}

}  // namespace

TEST_CASE("traffic: by every pair of a rank and a slot") {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    index_t const ranks = 1 + static_cast<index_t>(random() % 7);
    index_t const experts = 1 + static_cast<index_t>(random() % 9);
    index_t const slots = experts + ranks + static_cast<index_t>(random() % 9);
    plan p = trivial_plan(2, experts, ranks, slots);
    for (std::size_t i = 0; i < p.physical_to_logical.size(); ++i) {
      if (static_cast<index_t>(i) % slots >= experts) {
        auto const chosen = random() % static_cast<std::uint32_t>(experts + 1);
        p.physical_to_logical[i] = static_cast<std::int32_t>(chosen) - 1;
      }
    }
    std::vector<double> loads;
    for (std::int32_t const expert : p.physical_to_logical) {
      loads.push_back(expert < 0 ? 0.0 : static_cast<double>(random() % 1000));
    }
    token_sources from{.nodes = 1 + static_cast<index_t>(random()) % ranks};
    if (seed % 3 != 0) {
      for (index_t i = 0; i < ranks * 2 * experts; ++i) {
        from.copies.push_back(random() % 4 == 0 ? 0.0 : static_cast<double>(random() % 90));
      }
    }
    auto const got = traffic_of(p, loads, from);
    check_traffic(got, by_pairs(p, loads, from));
    CHECK(got.nearest.ranks <= got.split.ranks + 1e-6);
    CHECK(got.nearest.nodes <= got.split.nodes + 1e-6);
    CHECK((from.nodes > 1 || got.split.nodes == doctest::Approx(0)));
  }
}

TEST_CASE("traffic: of a mean step with load, by either split") {
  // Two ranks of two slots; expert 0 is on both. All its tokens start on rank 0.
  plan p = trivial_plan(1, 3, 2, 4);
  REQUIRE(p.physical_to_logical == std::vector<std::int32_t>{0, 1, 2, 0});
  npy::array<std::int64_t> const loads{{3, 1, 3}, {8, 2, 10, 0, 0, 0, 8, 2, 10}};
  token_sources const from{.nodes = 2, .copies = {5, 1, 0, 0, 1, 0}};
  auto const measured = loads_tests::compare("x.npy", loads, p, p, {}, from).after;
  // Expert 1 starts on both ranks alike; expert 2, whose copies are 0, too.
  CHECK(measured.traffic.copies == doctest::Approx(20));
  CHECK(measured.traffic.split.ranks == doctest::Approx(4 + 1 + 5));
  CHECK(measured.traffic.nearest.ranks == doctest::Approx(1 + 5));
  CHECK(measured.traffic.split.nodes == doctest::Approx(4 + 1 + 5));
  // An optimal split keeps all of expert 0 on rank 0: 10 on either rank.
  CHECK(measured.optimal_traffic.copies == doctest::Approx(20));
  CHECK(measured.optimal_traffic.split.ranks == doctest::Approx(0 + 1 + 5));
}

TEST_CASE("traffic: in the table where it says something") {
  plan const p = trivial_plan(1, 4, 2, 4);
  npy::array<std::int64_t> const loads{{1, 1, 4}, {1, 2, 3, 4}};
  outcome result{
      .planner = "eplb", .refinement = "none", .policy = "seq", .before_name = "trivial"};
  result.before = result.after = p;
  result.comparisons.push_back(loads_tests::compare("x.npy", loads, p, p));
  CHECK(table_of(result).find("token copies") == std::string::npos);
  result.sources = "sources.npy";
  CHECK(table_of(result).find("token copies of a step on x.npy, of 10:\n"
                              "                                     between ranks\n"
                              "to any replica        before            5 (50.0 %)\n") !=
        std::string::npos);
  result.sources.clear();
  result.nodes = 2;
  result.comparisons = {loads_tests::compare("x.npy", loads, p, p, {}, {.nodes = 2})};
  CHECK(table_of(result).find("of 10, as many from every rank:\n"
                              "                                     between ranks         between "
                              "nodes\n"
                              "to any replica        before            5 (50.0 %)            5 "
                              "(50.0 %)\n") != std::string::npos);
}
