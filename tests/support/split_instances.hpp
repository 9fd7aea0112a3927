// SPDX-License-Identifier: Apache-2.0
// A thousand placements of several families, each with the loads of a step. Each instance depends
// on its number only.
#pragma once

#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/types.hpp>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "generators.hpp"

namespace plimsoll_test {

/// One layer. Every expert has a slot.
struct split_instance {
  char const* family = "";
  index_t experts = 0;
  index_t ranks = 0;
  std::vector<std::int32_t> phy2log = {};       ///< [slots]: an expert, or -1
  std::vector<std::int32_t> rank_offsets = {};  ///< [ranks + 1]
  std::vector<std::int64_t> loads = {};         ///< [experts]

  [[nodiscard]] index_t slots() const { return static_cast<index_t>(phy2log.size()); }
  [[nodiscard]] plimsoll::placement_ref placement() const {
    return {.physical_to_logical = {phy2log.data(), 1, slots()},
            .replica_count = {nullptr, 1, experts},
            .ranks = ranks,
            .rank_offsets = {rank_offsets.data(), 1, ranks + 1}};
  }
};

namespace split_families {

using ranks_list = std::vector<std::vector<std::int32_t>>;  ///< the experts on each rank

inline split_instance listed(ranks_list const& on_rank, std::vector<std::int64_t> loads) {
  split_instance made;
  made.experts = static_cast<index_t>(loads.size());
  made.ranks = static_cast<index_t>(on_rank.size());
  made.loads = std::move(loads);
  made.rank_offsets = {0};
  for (auto const& experts : on_rank) {
    made.phy2log.insert(made.phy2log.end(), experts.begin(), experts.end());
    made.rank_offsets.push_back(static_cast<std::int32_t>(made.slots()));
  }
  return made;
}

inline std::size_t below(generator& random, std::size_t count) {
  return static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(count) - 1));
}

/// Puts at most `ranks` replicas of an expert on different ranks of `first` to `first + ranks - 1`.
inline void spread(generator& random, ranks_list& on_rank, std::size_t first, std::size_t ranks,
                   std::size_t copies, std::size_t expert) {
  std::size_t at = below(random, ranks);
  for (std::size_t i = 0; i < copies; ++i) {
    on_rank[first + at].push_back(static_cast<std::int32_t>(expert));
    at = (at + 1 + below(random, ranks / copies)) % ranks;
  }
}

/// EPLB's plan for popularities exp(width * z), z nearly normal, that have drifted since.
inline split_instance planned(generator& random, index_t experts, index_t ranks, index_t extra,
                              double width, double drift) {
  auto const factor = [&](double times) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) {
      sum += random.unit();
    }
    return plimsoll::detail::exp(times * sum);
  };
  split_instance made;
  made.experts = experts;
  made.ranks = ranks;
  std::vector<std::int64_t> history;
  for (index_t e = 0; e < experts; ++e) {
    double const popularity = 4096 * factor(width);
    made.loads.push_back(static_cast<std::int64_t>(popularity));
    history.push_back(static_cast<std::int64_t>(popularity * factor(drift)));
  }
  index_t const slots = experts + extra;
  made.phy2log.resize(static_cast<std::size_t>(slots));
  for (index_t r = 0; r <= ranks; ++r) {
    made.rank_offsets.push_back(static_cast<std::int32_t>(r * slots / ranks));
  }
  std::vector<std::int32_t> counts(history.size());
  plimsoll::eplb(
      plimsoll::seq, plimsoll::matrix_ref<std::int64_t const>(history.data(), 1, experts),
      {.on = {.ranks = ranks}}, plimsoll::matrix_ref<std::int32_t>(made.phy2log.data(), 1, slots),
      plimsoll::matrix_ref<std::int32_t>(counts.data(), 1, experts));
  return made;
}

/// A chain: rank r shares an expert with rank r + 1. Every other chain is loaded at one end, so
/// that load must move along the whole chain.
inline split_instance chain(generator& random, int number) {
  auto const ranks = static_cast<std::size_t>(2 + number * number * 510 / (79 * 79));
  ranks_list on_rank(ranks);
  std::vector<std::int64_t> loads;
  for (std::size_t e = 0; e + 1 < ranks; ++e) {
    on_rank[e].push_back(static_cast<std::int32_t>(e));
    on_rank[e + 1].push_back(static_cast<std::int32_t>(e));
    loads.push_back(number % 2 == 0 ? random.between(0, 1000)
                                    : 16 * static_cast<std::int64_t>(ranks - e));
  }
  return listed(on_rank, loads);
}

/// Many experts of which only one has load. A rank may hold several of its replicas.
inline split_instance one_hot(generator& random, int) {
  auto const ranks = 2 + below(random, 63);
  ranks_list on_rank(ranks);
  std::vector<std::int64_t> loads(2 * ranks, 0);
  for (std::size_t e = 0; e < loads.size(); ++e) {
    on_rank[e / 2].push_back(static_cast<std::int32_t>(e));
  }
  std::size_t const hot = below(random, loads.size());
  loads[hot] = random.between(1, 1 << 20);
  for (std::size_t more = 1 + below(random, ranks); more > 0; --more) {
    on_rank[below(random, ranks)].push_back(static_cast<std::int32_t>(hot));
  }
  return listed(on_rank, loads);
}

/// Groups of ranks that have no expert in common, with different loads.
inline split_instance components(generator& random, int) {
  ranks_list on_rank;
  std::vector<std::int64_t> loads;
  for (std::size_t groups = 2 + below(random, 7); groups > 0; --groups) {
    std::size_t const first = on_rank.size();
    std::size_t const ranks = 2 + below(random, 7);
    std::int64_t const scale = random.between(1, 1000);
    on_rank.resize(first + ranks);
    for (std::size_t experts = ranks + below(random, 2 * ranks); experts > 0; --experts) {
      spread(random, on_rank, first, ranks, 1 + below(random, ranks < 4 ? ranks : 4), loads.size());
      loads.push_back(scale * random.between(0, 100));
    }
  }
  return listed(on_rank, loads);
}

/// Experts of equal load with 2 to 8 replicas each.
inline split_instance ties(generator& random, int) {
  ranks_list on_rank(8 + below(random, 41));
  std::size_t const experts = 8 + below(random, 89);
  std::vector<std::int64_t> const loads(experts, random.between(1, 5000));
  for (std::size_t e = 0; e < loads.size(); ++e) {
    spread(random, on_rank, 0, on_rank.size(), 2 + below(random, 7), e);
  }
  return listed(on_rank, loads);
}

/// Replicas on any ranks, also two on one rank, and empty slots.
inline split_instance uneven(generator& random, int) {
  ranks_list on_rank(2 + below(random, 39));
  index_t const experts = random.between(4, 160);
  std::vector<std::int64_t> const loads = random_loads<std::int64_t>(random.bits(), experts);
  for (std::size_t e = 0; e < loads.size(); ++e) {
    for (std::size_t copies = 1 + below(random, 4); copies > 0; --copies) {
      on_rank[below(random, on_rank.size())].push_back(static_cast<std::int32_t>(e));
    }
  }
  on_rank[below(random, on_rank.size())].push_back(-1);
  return listed(on_rank, loads);
}

struct family {
  char const* name;
  int instances;
  split_instance (*make)(generator& random, int number);
};

template <int Experts, int Extra, int Ranks, int TenWidths, int TenDrifts>
split_instance eplb(generator& random, int) {
  return planned(random, Experts, Ranks, Extra, TenWidths / 10.0, TenDrifts / 10.0);
}

inline constexpr family all[] = {
    {"EPLB, 64 + 8 slots, 8 ranks, 1.0, 0.5", 80, eplb<64, 8, 8, 10, 5>},
    {"EPLB, 256 + 32 slots, 8 ranks, 0.3, 0.3", 80, eplb<256, 32, 8, 3, 3>},
    {"EPLB, 256 + 32 slots, 8 ranks, 1.5, 1.0", 80, eplb<256, 32, 8, 15, 10>},
    {"EPLB, 256 + 32 slots, 16 ranks, 1.0, 0.5", 80, eplb<256, 32, 16, 10, 5>},
    {"EPLB, 256 + 32 slots, 16 ranks, 1.5, 1.0", 80, eplb<256, 32, 16, 15, 10>},
    {"EPLB, 256 + 32 slots, 32 ranks, 1.0, 0.5", 80, eplb<256, 32, 32, 10, 5>},
    {"EPLB, 256 + 64 slots, 64 ranks, 0.3, 0.3", 80, eplb<256, 64, 64, 3, 3>},
    {"EPLB, 256 + 256 slots, 64 ranks, 1.0, 0.5", 100, eplb<256, 256, 64, 10, 5>},
    {"chain of 2 to 512 ranks", 80, chain},
    {"all load on one expert", 60, one_hot},
    {"groups of ranks apart", 60, components},
    {"equal loads, 2 to 8 copies", 70, ties},
    {"any counts, uneven slots", 70, uneven},
};

}  // namespace split_families

inline constexpr int split_instance_count = 1000;

inline split_instance make_split_instance(int i) {
  generator random(static_cast<std::uint64_t>(i));
  int number = i;
  for (split_families::family const& family : split_families::all) {
    if (number < family.instances) {
      split_instance made = family.make(random, number);
      made.family = family.name;
      return made;
    }
    number -= family.instances;
  }
  throw std::out_of_range("make_split_instance");
}

}  // namespace plimsoll_test
