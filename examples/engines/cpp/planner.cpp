// SPDX-License-Identifier: Apache-2.0
// The only file of an engine that needs C++20 and Plimsoll.
#include "planner.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <exception>
#include <optional>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/replication.hpp>
#include <plimsoll/views.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

namespace expert_planner {
namespace {

using plimsoll::index_t;
using plimsoll::seq;
using map_in = plimsoll::matrix_ref<std::int32_t const>;
using map_out = plimsoll::matrix_ref<std::int32_t>;

/// Runs a call of the interface; what it throws becomes a status and a text.
template <class Call>
answer answered(Call call) {
  try {
    call();
    return {};
  } catch (std::invalid_argument const& error) {  // plimsoll::invalid_input is one
    return {status::refused, error.what()};
  } catch (std::exception const& error) {
    return {status::failed, error.what()};
  } catch (...) {
    return {status::failed, "unknown exception"};
  }
}

template <class Value>
void expect(bool holds, std::string const& argument, std::string const& expected, Value got) {
  if (!holds) {
    throw std::invalid_argument(argument + ": expected " + expected + ", got " +
                                std::to_string(got));
  }
}

index_t slots_of(layer_sizes const& sizes) {
  return static_cast<index_t>(sizes.ranks) * sizes.slots_per_rank;
}

void expect_sizes(layer_sizes const& sizes) {
  expect(sizes.experts > 0, "sizes.experts", "at least 1", sizes.experts);
  expect(sizes.ranks > 0, "sizes.ranks", "at least 1", sizes.ranks);
  // More slots than experts would be left empty, and engines know no empty slot of a live rank.
  expect(sizes.slots_per_rank > 0 && sizes.slots_per_rank <= sizes.experts, "sizes.slots_per_rank",
         "1 to the number of experts", sizes.slots_per_rank);
  expect(slots_of(sizes) >= sizes.experts, "sizes",
         "at least " + std::to_string(sizes.experts) + " slots, one per expert", slots_of(sizes));
}

void expect_map(layer_sizes const& sizes, int const* map, char const* argument) {
  for (index_t slot = 0; slot < slots_of(sizes); ++slot) {
    expect(map[slot] >= -1 && map[slot] < sizes.experts, argument,
           "-1 or an expert in slot " + std::to_string(slot), map[slot]);
  }
}

/// Liveness of ranks as Plimsoll takes it: 1 is live.
std::vector<std::uint8_t> liveness(layer_sizes const& sizes, std::uint8_t const* dead_ranks) {
  std::vector<std::uint8_t> active(static_cast<std::size_t>(sizes.ranks), 1);
  for (std::size_t r = 0; dead_ranks != nullptr && r < active.size(); ++r) {
    active[r] = dead_ranks[r] == 0 ? 1 : 0;
  }
  return active;
}

plimsoll::placement_options on_ranks(std::vector<std::uint8_t> const& active) {
  auto const ranks = static_cast<index_t>(active.size());
  return {.on = {.ranks = ranks, .active = {active.data(), ranks}},
          .replica_anti_affinity = plimsoll::anti_affinity::rank};
}

}  // namespace

answer replicate(layer_sizes sizes, float const* loads, std::uint8_t const* dead_ranks,
                 int* replica_count) {
  return answered([&] {
    expect_sizes(sizes);
    auto const active = liveness(sizes, dead_ranks);
    plimsoll::replicate(seq, plimsoll::matrix_ref<float const>(loads, 1, sizes.experts),
                        slots_of(sizes), {.where = on_ranks(active)},
                        map_out(replica_count, 1, sizes.experts));
  });
}

answer place(layer_sizes sizes, float const* loads, std::uint8_t const* dead_ranks,
             int const* replica_count, int const* in_use, int* rank_experts) {
  return answered([&] {
    expect_sizes(sizes);
    auto const active = liveness(sizes, dead_ranks);
    plimsoll::placement_options const where = on_ranks(active);
    if (in_use != nullptr) {
      expect_map(sizes, in_use, "in_use");
    }
    map_in const counts(replica_count, 1, sizes.experts);
    map_out const map(rank_experts, 1, slots_of(sizes));
    plimsoll::place(seq, plimsoll::matrix_ref<float const>(loads, 1, sizes.experts), counts, where,
                    map);
    if (in_use != nullptr) {
      plimsoll::align(seq, {map_in(in_use, 1, slots_of(sizes)), counts, sizes.ranks},
                      {map, counts, sizes.ranks}, {.on = where.on}, map);
    }
  });
}

answer list_slots(layer_sizes sizes, int const* rank_experts, int* replica_count, int* first,
                  int* slots) {
  return answered([&] {
    expect_sizes(sizes);
    expect_map(sizes, rank_experts, "rank_experts");
    plimsoll::slots_to_replicas(
        seq, map_in(rank_experts, 1, slots_of(sizes)), map_out(replica_count, 1, sizes.experts),
        map_out(first, 1, sizes.experts), map_out(slots, 1, slots_of(sizes)));
  });
}

answer pad_slots(layer_sizes sizes, int const* rank_experts, int width, int* replica_count,
                 int* slots) {
  return answered([&] {
    expect_sizes(sizes);
    expect_map(sizes, rank_experts, "rank_experts");
    auto first = plimsoll::zeros<std::int32_t>(seq, 1, sizes.experts + 1);
    auto lists = plimsoll::zeros<std::int32_t>(seq, 1, slots_of(sizes));
    map_out const counts(replica_count, 1, sizes.experts);
    plimsoll::slots_to_replicas(seq, map_in(rank_experts, 1, slots_of(sizes)), counts, first,
                                lists);
    int const most = *std::max_element(replica_count, replica_count + sizes.experts);
    expect(width >= most, "width",
           "at least " + std::to_string(most) + ", the copies of one of the experts", width);
    plimsoll::replicas_to_padded(
        seq, {first.view(), lists.view()},
        plimsoll::tensor_ref<std::int32_t>(slots, 1, sizes.experts, width));
  });
}

struct planner::state {
  layer_sizes sizes;
  planner_options options;
  std::vector<std::uint8_t> active;  ///< [ranks]; the planner reads it anew in each call
  std::vector<double> loads;         ///< [layers, steps, experts], oldest step first
  std::vector<int> steps;            ///< [layers]: steps that were added, at most those kept
  std::vector<std::int32_t> map;     ///< [layers, slots]: the map in use, empty on dead ranks
  std::vector<std::int32_t> counts;  ///< [layers, experts]
  std::optional<plimsoll::layer_planner> planner;

  state(layer_sizes of, int layers, planner_options with) : sizes(of), options(with) {
    expect_sizes(sizes);
    expect(layers > 0, "layers", "at least 1", layers);
    expect(options.steps > 0, "options.steps", "at least 1", options.steps);
    expect(options.max_moves_share >= 0 && options.max_moves_share <= 1, "options.max_moves_share",
           "0 to 1", options.max_moves_share);
    auto const count = static_cast<std::size_t>(layers);
    active = liveness(sizes, nullptr);
    steps.assign(count, 0);
    loads.assign(count * step_size() * static_cast<std::size_t>(options.steps), 0);
    map.resize(count * static_cast<std::size_t>(slots()));
    counts.resize(count * step_size());
    // The object allocates for any placement of these sizes.
    for (index_t slot = 0; slot < slots(); ++slot) {
      map[static_cast<std::size_t>(slot)] = static_cast<std::int32_t>(slot % sizes.experts);
    }
    plimsoll::count_replicas(seq, map_in(map.data(), 1, slots()),
                             map_out(counts.data(), 1, sizes.experts));
    planner.emplace(seq, layer_in_use(0), options.steps, on_ranks(active), limits(1));
  }

  [[nodiscard]] index_t slots() const { return slots_of(sizes); }
  [[nodiscard]] index_t layers() const { return static_cast<index_t>(steps.size()); }
  [[nodiscard]] std::size_t step_size() const { return static_cast<std::size_t>(sizes.experts); }

  [[nodiscard]] plimsoll::migration_options limits(index_t planned_layers) const {
    auto const all = static_cast<double>(planned_layers * slots());
    return {
        .split = options.optimal_split ? plimsoll::split_rule::optimal : plimsoll::split_rule::even,
        .max_moves = static_cast<std::int64_t>(std::floor(options.max_moves_share * all)),
        .candidates = options.is_fast ? plimsoll::migration_candidates::single_changes
                                      : plimsoll::migration_candidates::all};
  }

  /// Keeps the address, from which `planner` reads.
  void set_liveness(std::uint8_t const* dead_ranks) {
    std::vector<std::uint8_t> const now = liveness(sizes, dead_ranks);
    auto const live = std::count(now.begin(), now.end(), 1) * sizes.slots_per_rank;
    expect(live >= sizes.experts, "dead_ranks",
           "at least " + std::to_string(sizes.experts) + " slots of live ranks, one per expert",
           live);
    std::copy(now.begin(), now.end(), active.begin());
  }

  void expect_layer(int layer) const {
    expect(layer >= 0 && layer < layers(), "layer", "a layer of the planner, from 0", layer);
  }

  /// The steps of a layer, [steps, experts].
  [[nodiscard]] plimsoll::matrix_ref<double const> history(index_t layer) const {
    auto const l = static_cast<std::size_t>(layer);
    auto const kept = static_cast<std::size_t>(options.steps);
    std::size_t const first = (l + 1) * kept - static_cast<std::size_t>(steps[l]);
    return {loads.data() + first * step_size(), steps[l], sizes.experts};
  }

  void add(int layer, std::vector<double> const& step) {
    expect_layer(layer);
    expect(step.size() == step_size(), "loads", "as many as the planner has experts", step.size());
    for (double const load : step) {
      expect(load >= 0 && load < 0x1p47, "loads", "numbers from 0 to below 2^47", load);
    }
    auto const kept = static_cast<std::ptrdiff_t>(step_size()) * options.steps;
    auto const oldest = loads.begin() + layer * kept;
    std::copy(oldest + static_cast<std::ptrdiff_t>(step_size()), oldest + kept, oldest);
    std::copy(step.begin(), step.end(), oldest + kept - static_cast<std::ptrdiff_t>(step_size()));
    int& added = steps[static_cast<std::size_t>(layer)];
    added = std::min(added + 1, options.steps);
  }

  [[nodiscard]] plimsoll::placement_ref layer_in_use(index_t layer) const {
    return {map_in(map.data() + layer * slots(), 1, slots()),
            map_in(counts.data() + layer * sizes.experts, 1, sizes.experts), sizes.ranks};
  }

  /// Takes the map in use of a layer. Returns false after planning the layer anew, if an expert or
  /// a live slot was without the other.
  bool take(index_t layer, int const* in_use) {
    int const added = steps[static_cast<std::size_t>(layer)];
    expect(added > 0, "steps of layer " + std::to_string(layer), "at least 1", added);
    map_out const own(map.data() + layer * slots(), 1, slots());
    map_out const own_counts(counts.data() + layer * sizes.experts, 1, sizes.experts);
    std::fill_n(own_counts.data, sizes.experts, 0);
    bool is_complete = true;
    for (index_t slot = 0; slot < slots(); ++slot) {
      bool const is_live = active[static_cast<std::size_t>(slot / sizes.slots_per_rank)] != 0;
      int const expert = is_live ? in_use[slot] : -1;
      expect(expert >= -1 && expert < sizes.experts, "in_use",
             "-1 or an expert in the slots of layer " + std::to_string(layer), expert);
      own(0, slot) = expert;
      is_complete = is_complete && (!is_live || expert >= 0);
      if (expert >= 0) {
        ++own_counts(0, expert);
      }
    }
    for (index_t expert = 0; expert < sizes.experts; ++expert) {
      is_complete = is_complete && own_counts(0, expert) > 0;
    }
    if (!is_complete) {
      auto const steps_of = history(layer);
      std::vector<std::int32_t> const before(own.data, own.data + slots());
      plimsoll::place_by_flow(
          seq,
          plimsoll::tensor_ref<double const>(steps_of.data, steps_of.extent(0), 1, sizes.experts),
          {.on = on_ranks(active).on, .in_use = map_in(before.data(), 1, slots())}, own,
          own_counts);
    }
    return is_complete;
  }
};

planner::planner() = default;
planner::~planner() = default;
planner::planner(planner&&) noexcept = default;
planner& planner::operator=(planner&&) noexcept = default;

planner::state& planner::created() const {
  if (state_ == nullptr) {
    throw std::invalid_argument("planner: expected create() before this call");
  }
  return *state_;
}

answer planner::create(layer_sizes sizes, int layers, planner_options options) {
  return answered([&] { state_ = std::make_unique<state>(sizes, layers, options); });
}

answer planner::add(int layer, void const* loads, int experts,
                    double (*load_of)(void const*, int)) {
  return answered([&] {
    std::vector<double> step;
    for (int e = 0; e < experts; ++e) {
      step.push_back(load_of(loads, e));
    }
    created().add(layer, step);
  });
}

answer planner::plan(int layer, int const* in_use, std::uint8_t const* dead_ranks,
                     int* rank_experts, int* replica_count) {
  return answered([&] {
    state& s = created();
    s.expect_layer(layer);
    s.set_liveness(dead_ranks);
    plimsoll::vector_ref<std::int32_t> const map(rank_experts, s.slots());
    plimsoll::vector_ref<std::int32_t> const counts(replica_count, s.sizes.experts);
    if (s.take(layer, in_use)) {
      s.planner->plan(s.history(layer), s.layer_in_use(layer), map, counts);
    } else {
      std::copy_n(s.layer_in_use(layer).physical_to_logical.data, s.slots(), rank_experts);
      std::copy_n(s.layer_in_use(layer).replica_count.data, s.sizes.experts, replica_count);
    }
  });
}

answer planner::plan_all(int const* in_use, std::uint8_t const* dead_ranks, int* rank_experts,
                         std::uint8_t* changed) {
  return answered([&] {
    state& s = created();
    s.set_liveness(dead_ranks);
    for (index_t layer = 0; layer < s.layers(); ++layer) {
      s.take(layer, in_use + layer * s.slots());
    }
    // Steps that a layer does not have yet are without load, and do not count.
    index_t const kept = s.options.steps;
    plimsoll::tensor_ref<double const> steps(s.loads.data(), kept, s.layers(), s.sizes.experts);
    steps.strides[0] = s.sizes.experts;
    steps.strides[1] = kept * s.sizes.experts;
    plimsoll::placement_ref const from{map_in(s.map.data(), s.layers(), s.slots()),
                                       map_in(s.counts.data(), s.layers(), s.sizes.experts),
                                       s.sizes.ranks};
    auto counts = plimsoll::zeros<std::int32_t>(seq, s.layers(), s.sizes.experts);
    plimsoll::plan_within(seq, steps, from, from, on_ranks(s.active), s.limits(s.layers()),
                          map_out(rank_experts, s.layers(), s.slots()), counts);
    for (index_t layer = 0; layer < s.layers(); ++layer) {
      int const* const row = rank_experts + layer * s.slots();
      changed[layer] = std::equal(row, row + s.slots(), in_use + layer * s.slots()) ? 0 : 1;
    }
  });
}

}  // namespace expert_planner
