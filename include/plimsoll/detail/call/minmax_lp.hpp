// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of a prepared `minmax_lp`: checks shapes and options, builds the graph of experts and
/// ranks, launches `solve`, and names layers that could not be split.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/minmax_lp.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/placement_options.hpp>
#include <plimsoll/detail/call/rank_set.hpp>
#include <plimsoll/detail/call/rank_speeds.hpp>
#include <plimsoll/detail/call/slots.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/minmax_lp_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// The lists of a `split_graph`, built on the host; its members have the same names.
struct split_graph_arrays {
  using array = std::vector<std::int32_t>;
  rank_speeds ranks = {};
  array layer_replicated = {0};
  array expert = {};
  array target_begin = {0};
  array target_rank = {};
  array target_owner = {};
  array layer_color = {0};
  array color_begin = {0};
  array rank_begin = {0};
  array rank_target = {};
  array home_begin = {0};
  array home = {};
  array layer_absent = {0};
  array absent = {};
  array slot_source = {};
  array slot_copies = {};
  index_t most_replicated = 0;
  index_t most_targets = 0;

  /// Returns all lists in one array.
  [[nodiscard]] array flat() const {
    array all;
    for_each([&](auto, array const& one) { append(all, one); });
    return all;
  }
  /// Returns the graph over copies of the elements of `flat` and of `ranks.speed`.
  [[nodiscard]] split_graph graph(std::int32_t const* numbers, double const* speeds,
                                  index_t experts, index_t slots) const {
    split_graph result{};
    result.experts = experts;
    result.ranks = static_cast<index_t>(ranks.speed.size());
    result.slots = slots;
    result.most_replicated = most_replicated;
    result.most_targets = most_targets;
    result.speed = ranks.units(speeds);
    for_each([&](auto member, array const& one) {
      result.*member = numbers;
      numbers += one.size();
    });
    return result;
  }

  /// Adds a layer. `expert_of` is the expert of every slot, and `begin` the first slot of every
  /// rank.
  void add_layer(std::int32_t const* expert_of, index_t slots, std::int32_t const* begin,
                 index_t experts) {
    slot_map const map{expert_of, slots, begin};
    targets const of_expert = collect_copies(map, experts);
    list_absent_and_homes(of_expert);
    array const target_of = list_targets(color_experts(of_expert), of_expert);
    map_slots(map, of_expert, target_of);
  }

 private:
  /// The slots of one layer.
  struct slot_map {
    std::int32_t const* expert_of;  ///< `[slots]`
    index_t slots;
    std::int32_t const* begin;  ///< `[ranks + 1]`
  };
  /// The copies of an expert on a live rank.
  struct copies {
    std::int32_t rank;
    std::int32_t count;
  };
  /// `[experts]`: the live ranks with copies of each expert, rising.
  using targets = std::vector<std::vector<copies>>;

  static std::size_t at(index_t i) { return static_cast<std::size_t>(i); }
  template <class From>
  static std::int32_t size_of(From const& from) {
    return static_cast<std::int32_t>(from.size());
  }
  static void append(array& to, array const& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  /// Calls visit(rank, slot, expert) for every filled slot of a live rank.
  template <class Visit>
  void for_slots(slot_map const& map, Visit visit) const {
    for (std::int32_t r = 0; r < size_of(ranks.speed); ++r) {
      for (std::int32_t slot = map.begin[r]; slot < map.begin[r + 1]; ++slot) {
        if (map.expert_of[slot] >= 0 && ranks.speed[at(r)] > 0) {
          visit(r, slot, map.expert_of[slot]);
        }
      }
    }
  }

  [[nodiscard]] targets collect_copies(slot_map const& map, index_t experts) const {
    targets of_expert(at(experts));
    for_slots(map, [&](std::int32_t r, std::int32_t, std::int32_t e) {
      std::vector<copies>& of = of_expert[at(e)];
      if (of.empty() || of.back().rank != r) {
        of.push_back({r, 0});
      }
      ++of.back().count;
    });
    return of_expert;
  }

  /// Lists the experts without a target, and the experts with a single target by its rank.
  void list_absent_and_homes(targets const& of_expert) {
    std::vector<array> homes(ranks.speed.size());
    for (std::int32_t e = 0; e < size_of(of_expert); ++e) {
      auto const& of = of_expert[at(e)];
      if (of.empty()) {
        absent.push_back(e);
      } else if (of.size() == 1) {
        homes[at(of.front().rank)].push_back(e);
      }
    }
    layer_absent.push_back(size_of(absent));
    for (array const& of_rank : homes) {
      append(home, of_rank);
      home_begin.push_back(size_of(home));
    }
  }

  /// Greedy coloring: each replicated expert gets the lowest color that no other expert on its
  /// ranks has. Returns the experts of every color.
  [[nodiscard]] std::vector<array> color_experts(targets const& of_expert) const {
    std::vector<array> colors;
    std::vector<std::vector<bool>> seen;  // `[colors, ranks]`
    for (std::int32_t e = 0; e < size_of(of_expert); ++e) {
      auto const& of = of_expert[at(e)];
      if (of.size() < 2) {
        continue;
      }
      std::size_t color = 0;
      while (color < seen.size() && std::any_of(of.begin(), of.end(), [&](copies const& c) {
               return seen[color][at(c.rank)];
             })) {
        ++color;
      }
      if (color == seen.size()) {
        seen.emplace_back(ranks.speed.size(), false);
        colors.emplace_back();
      }
      for (copies const& c : of) {
        seen[color][at(c.rank)] = true;
      }
      colors[color].push_back(e);
    }
    return colors;
  }

  /// Lists the replicated experts and their targets by color, and the targets by rank. Returns
  /// `[experts]`: the first target of every replicated expert, else -1.
  array list_targets(std::vector<array> const& colors, targets const& of_expert) {
    std::int32_t const first_target = size_of(target_rank);
    array target_of(of_expert.size(), -1);
    std::vector<array> of_rank(ranks.speed.size());
    for (array const& color : colors) {
      for (std::int32_t const e : color) {
        target_of[at(e)] = size_of(target_rank);
        for (copies const& c : of_expert[at(e)]) {
          of_rank[at(c.rank)].push_back(size_of(target_rank));
          target_rank.push_back(c.rank);
          target_owner.push_back(size_of(expert));
        }
        expert.push_back(e);
        target_begin.push_back(size_of(target_rank));
      }
      color_begin.push_back(size_of(expert));
    }
    layer_color.push_back(size_of(color_begin) - 1);
    most_replicated = std::max<index_t>(most_replicated, size_of(expert) - layer_replicated.back());
    most_targets = std::max<index_t>(most_targets, size_of(target_rank) - first_target);
    layer_replicated.push_back(size_of(expert));
    for (array const& one : of_rank) {
      append(rank_target, one);
      rank_begin.push_back(size_of(rank_target));
    }
    return target_of;
  }

  /// Writes `slot_source` and `slot_copies`, as `split_graph` describes them. `target_of` is the
  /// result of `list_targets`.
  void map_slots(slot_map const& map, targets const& of_expert, array const& target_of) {
    std::size_t const row = slot_source.size();
    slot_source.resize(row + at(map.slots), -1);
    slot_copies.resize(row + at(map.slots), 1);
    for_slots(map, [&](std::int32_t r, std::int32_t slot, std::int32_t e) {
      auto const& of = of_expert[at(e)];
      auto const c =
          std::find_if(of.begin(), of.end(), [&](copies const& x) { return x.rank == r; });
      slot_source[row + at(slot)] =
          of.size() == 1 ? -2 - e : target_of[at(e)] + static_cast<std::int32_t>(c - of.begin());
      auto const* const begin = map.expert_of + map.begin[r];
      auto const* const here = map.expert_of + slot;
      bool const is_first = std::find(begin, here, e) == here;
      slot_copies[row + at(slot)] = is_first ? c->count : -c->count;
    });
  }

  /// Calls visit(member of `split_graph`, its list) for all lists, in their order in `flat`.
  template <class Visit>
  void for_each(Visit visit) const {
    visit(&split_graph::layer_replicated, layer_replicated);
    visit(&split_graph::expert, expert);
    visit(&split_graph::target_begin, target_begin);
    visit(&split_graph::target_rank, target_rank);
    visit(&split_graph::target_owner, target_owner);
    visit(&split_graph::layer_color, layer_color);
    visit(&split_graph::color_begin, color_begin);
    visit(&split_graph::rank_begin, rank_begin);
    visit(&split_graph::rank_target, rank_target);
    visit(&split_graph::home_begin, home_begin);
    visit(&split_graph::home, home);
    visit(&split_graph::layer_absent, layer_absent);
    visit(&split_graph::absent, absent);
    visit(&split_graph::slot_source, slot_source);
    visit(&split_graph::slot_copies, slot_copies);
  }
};

/// Checks the shapes of the placement and the options that `minmax_lp` takes.
inline void expect_minmax_lp_options(placement_ref const& placement,
                                     minmax_lp_options const& options, std::string_view name) {
  auto const& map = placement.physical_to_logical;
  expect_between(name, "placement.physical_to_logical", 1, 0x7fffffff, map.extent(1), "slots");
  expect_elements(name, "placement.physical_to_logical", map);
  expect_between(name, "placement.replica_count", 1, expert_limit,
                 placement.replica_count.extent(1), "experts");
  expect_between(name, "placement.ranks", 1, rank_limit, placement.ranks, "ranks");
  expect_rank_offsets(name, "placement.rank_offsets", placement.rank_offsets, map.extent(0),
                      placement.ranks);
  expect_between(name, "options.max_iterations", 1, INT64_MAX, options.max_iterations,
                 "sweeps and paths");
  if (!(options.tolerance >= 0 && options.tolerance < 1)) {
    fail(name, "options.tolerance", "a number from 0 to below 1", text(options.tolerance));
  }
}

/// Checks and reads the placement and the ranks that `minmax_lp` takes, for the call `name`.
/// Returns their graph.
template <class Context>
split_graph_arrays read_split_graph(Context const& context, placement_ref const& placement,
                                    minmax_lp_options const& options, std::string_view name) {
  expect_minmax_lp_options(placement, options, name);
  split_graph_arrays arrays;
  arrays.ranks = read_speeds(name, context, with_ranks_of(name, options.on, placement.ranks));
  index_t const experts = placement.replica_count.extent(1);
  host_slots const slots = read_slots(name, context, placement, experts);
  for (index_t layer = 0; layer < placement.physical_to_logical.extent(0); ++layer) {
    arrays.add_layer(slots.experts_of(layer), slots.slots, slots.begins_of(layer), experts);
  }
  return arrays;
}

/// Throws if `minmax_lp` could not split a layer of the loads that `function` took as `argument`.
/// `minmax_lp::certificates` describes the certificate of such a layer.
inline void expect_solved(std::string_view function, std::string_view argument,
                          certificate const& result, index_t layer) {
  if (result.status != certificate_status::infeasible) {
    return;
  }
  bool const is_base = result.work <= -2;
  std::string const whose = is_base            ? text(" for rank ", -2 - result.work)
                            : result.work >= 0 ? text(" for expert ", result.work)
                                               : std::string(" in total");
  bool const is_refused = result.value != result.value;  // NaN
  fail(function, is_base ? "inputs.base_load" : argument,
       is_refused ? "values from 0 to below 2^47, in total below 2^47 per layer"
       : is_base  ? "no load on dead ranks"
                  : "load only on experts with a slot on a live rank",
       text(result.lower_bound, whose, " in layer ", layer));
}

/// Throws for the first layer that `minmax_lp` could not split.
inline void expect_all_solved(std::string_view function, std::string_view argument,
                              std::vector<certificate> const& certificates) {
  index_t layer = 0;
  for (certificate const& result : certificates) {
    expect_solved(function, argument, result, layer);
    ++layer;
  }
}

/// The graph of a placement in the memory of a context, and the results of the last solve.
template <class Context>
struct minmax_lp_pipeline {
  Context context;
  minmax_lp_options options;
  index_t layers;
  double speed_unit = 1;  ///< divides levels: the speed of live ranks if it is equal, else 1
  index_t live_ranks = 0;
  split_graph graph{};
  buffer<std::int32_t, Context> numbers;  ///< the lists of `graph`
  buffer<double, Context> speeds;         ///< of `graph`
  buffer<certificate, Context> certificates;
  buffer<std::byte, Context> memory;  ///< scratch of `enqueue_solve`

  minmax_lp_pipeline(Context const& on, placement_ref const& placement,
                     minmax_lp_options const& solving, std::string_view name = "minmax_lp")
      : context(on), options(solving), layers(placement.physical_to_logical.extent(0)) {
    split_graph_arrays const arrays = read_split_graph(context, placement, options, name);
    speed_unit = arrays.ranks.equal_speeds ? arrays.ranks.fastest : 1;
    live_ranks = arrays.ranks.live();
    numbers = {context, arrays.flat()};
    speeds = {context, arrays.ranks.speed};
    certificates = {context, std::vector<certificate>(static_cast<std::size_t>(layers))};
    graph = arrays.graph(numbers.data(), speeds.data(), placement.replica_count.extent(1),
                         placement.physical_to_logical.extent(1));
  }

  /// Allocates for `enqueue_solve`. A system that runs the body in a launch of its own, such as
  /// `lplb`, does not call it.
  void allocate_scratch() {
    minmax_lp_body<matrix_ref<double const>> body{};
    body.graph = graph;
    memory = {context, launch_bytes(context, layers, body)};
  }

  template <class Loads>
  minmax_lp_body<Loads> body_of(Loads const& loads, minmax_lp_inputs const& inputs,
                                matrix_ref<double> const& split, minmax_lp_outputs const& outputs) {
    return {.graph = graph,
            .loads = loads,
            .base_load = inputs.base_load,
            .tolerance = options.tolerance,
            .max_iterations = options.max_iterations,
            .lexicographic = options.objective == split_objective::lexicographic,
            .speed_unit = speed_unit,
            .split = split,
            .certificates = {certificates.data(), layers},
            .bottleneck = outputs.bottleneck};
  }

  template <class Loads>
  void enqueue_solve(Loads const& loads, minmax_lp_inputs const& inputs,
                     matrix_ref<double> const& split, minmax_lp_outputs const& outputs) {
    launch(context, layers, body_of(loads, inputs, split, outputs), memory.data());
  }

  /// Returns a body that solves all steps of a history `[steps, layers, experts]`, for
  /// `certificates` `[steps, layers]`.
  template <class Loads>
  split_steps_body<Loads> body_of_steps(Loads const& loads, certificate* peaks) {
    return {loads, body_of(step_of(loads, 0), {}, {}, {}), peaks};
  }

  [[nodiscard]] vector_ref<certificate const> certificates_view() const {
    return {certificates.data(), layers};
  }
};

}}}  // namespace plimsoll::detail
