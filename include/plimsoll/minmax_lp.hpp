// SPDX-License-Identifier: Apache-2.0
/// @file
/// Splits each expert's load over its replicas so that the most loaded rank carries as little as
/// possible.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/minmax_lp.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/placement.hpp>
#include <plimsoll/detail/host/rank_speeds.hpp>
#include <plimsoll/detail/host/slots.hpp>
#include <plimsoll/detail/report.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// The objective of a split.
enum class split_objective : std::int32_t {
  min_peak,      ///< minimises the peak: the load of the most loaded rank
  lexicographic  ///< minimises the peak, then the next highest loads: the most even rank loads
};

/// The ranks, and when solving stops. Arrays are in the policy's memory.
struct minmax_lp_options {
  /// The gap between the peak and its lower bound, relative to the bound, at which a split is good
  /// enough. 0: optimal splits only.
  double tolerance = 1e-6;
  /// The most sweeps and augmenting paths of a layer, at least 1.
  index_t max_iterations = index_t{1} << 20;
  split_objective objective = split_objective::min_peak;
  /// `[ranks]`: 0 for a dead rank, whose slots get no load. Empty: all ranks are live.
  vector_ref<std::uint8_t const> active = {};
  /// `[ranks]`: the speed of each rank, in any unit, from 2^-64 to 2^64; for live ranks at least
  /// 2^-16 of the fastest one's. Empty: speed 1 for all.
  vector_ref<double const> speeds = {};
};

/// Optional arrays of a step, in the policy's memory.
struct minmax_lp_arrays {
  /// `[layers, ranks]`: the load already on each rank, in the unit of the loads. Empty: none.
  matrix_ref<double const> base_load = {};
  /// Output, `[layers, ranks]`: 1 for the bottleneck ranks, else 0. These ranks prove the lower
  /// bound: their load cannot move to any other rank. Empty: not written.
  matrix_ref<std::uint8_t> bottleneck = {};
};

namespace detail {

/// The arrays of a `split_graph`, built on the host.
struct split_graph_arrays {
  using array = std::vector<std::int32_t>;
  rank_speeds ranks = {};
  array layer_shared = {0};
  array expert = {};
  array target_begin = {0};
  array target_rank = {};
  array target_owner = {};
  array layer_colour = {0};
  array colour_begin = {0};
  array rank_begin = {0};
  array rank_target = {};
  array home_begin = {0};
  array home = {};
  array layer_absent = {0};
  array absent = {};
  array slot_source = {};
  array slot_copies = {};
  index_t most_shared = 0;
  index_t most_targets = 0;

  /// Returns all lists in one array.
  [[nodiscard]] array flat() const {
    array all;
    for_each([&](auto, array const& one) { all.insert(all.end(), one.begin(), one.end()); });
    return all;
  }
  /// Returns the graph over copies of the elements of `flat` and of `ranks.speed`.
  [[nodiscard]] split_graph graph(std::int32_t const* numbers, double const* speeds,
                                  index_t experts, index_t slots) const {
    split_graph result{};
    result.experts = experts;
    result.ranks = static_cast<index_t>(ranks.speed.size());
    result.slots = slots;
    result.most_shared = most_shared;
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
    struct copies {
      std::int32_t rank;
      std::int32_t count;
    };
    auto const n = static_cast<std::int32_t>(ranks.speed.size());
    auto const at = [](index_t i) { return static_cast<std::size_t>(i); };
    auto const size_of = [](auto const& from) { return static_cast<std::int32_t>(from.size()); };
    std::vector<std::vector<copies>> targets(at(experts));
    auto const for_slots = [&](auto&& visit) {
      for (std::int32_t r = 0; r < n; ++r) {
        for (std::int32_t slot = begin[r]; slot < begin[r + 1]; ++slot) {
          if (expert_of[slot] >= 0 && ranks.speed[at(r)] > 0) {
            visit(r, slot, targets[at(expert_of[slot])]);
          }
        }
      }
    };
    for_slots([](std::int32_t r, std::int32_t, std::vector<copies>& of) {
      if (of.empty() || of.back().rank != r) {
        of.push_back({r, 0});
      }
      ++of.back().count;
    });

    // Greedy colouring: each expert gets the lowest colour that no other expert on its ranks has.
    std::vector<array> colours;
    std::vector<std::vector<bool>> seen;
    std::vector<array> homes(at(n));
    for (std::int32_t e = 0; e < experts; ++e) {
      auto const& of = targets[at(e)];
      if (of.empty()) {
        absent.push_back(e);
      } else if (of.size() == 1) {
        homes[at(of.front().rank)].push_back(e);
      } else {
        std::size_t colour = 0;
        while (colour < seen.size() && std::any_of(of.begin(), of.end(), [&](copies const& c) {
                 return seen[colour][at(c.rank)];
               })) {
          ++colour;
        }
        if (colour == seen.size()) {
          seen.emplace_back(at(n), false);
          colours.emplace_back();
        }
        for (copies const& c : of) {
          seen[colour][at(c.rank)] = true;
        }
        colours[colour].push_back(e);
      }
    }
    layer_absent.push_back(size_of(absent));

    std::int32_t const first_target = size_of(target_rank);
    std::vector<std::int32_t> target_of(at(experts), -1);
    std::vector<array> of_rank(at(n));
    for (array const& colour : colours) {
      for (std::int32_t const e : colour) {
        target_of[at(e)] = size_of(target_rank);
        for (copies const& c : targets[at(e)]) {
          of_rank[at(c.rank)].push_back(size_of(target_rank));
          target_rank.push_back(c.rank);
          target_owner.push_back(size_of(expert));
        }
        expert.push_back(e);
        target_begin.push_back(size_of(target_rank));
      }
      colour_begin.push_back(size_of(expert));
    }
    layer_colour.push_back(size_of(colour_begin) - 1);
    most_shared = std::max<index_t>(most_shared, size_of(expert) - layer_shared.back());
    most_targets = std::max<index_t>(most_targets, size_of(target_rank) - first_target);
    layer_shared.push_back(size_of(expert));
    for (std::int32_t r = 0; r < n; ++r) {
      rank_target.insert(rank_target.end(), of_rank[at(r)].begin(), of_rank[at(r)].end());
      rank_begin.push_back(size_of(rank_target));
      home.insert(home.end(), homes[at(r)].begin(), homes[at(r)].end());
      home_begin.push_back(size_of(home));
    }

    std::size_t const row = slot_source.size();
    slot_source.resize(row + at(slots), -1);
    slot_copies.resize(row + at(slots), 1);
    for_slots([&](std::int32_t r, std::int32_t slot, std::vector<copies> const& of) {
      auto const c =
          std::find_if(of.begin(), of.end(), [&](copies const& x) { return x.rank == r; });
      std::int32_t const e = expert_of[slot];
      slot_source[row + at(slot)] =
          of.size() == 1 ? -2 - e : target_of[at(e)] + static_cast<std::int32_t>(c - of.begin());
      bool const is_first =
          std::find(expert_of + begin[r], expert_of + slot, e) == expert_of + slot;
      slot_copies[row + at(slot)] = is_first ? c->count : -c->count;
    });
  }

 private:
  template <class Visit>
  void for_each(Visit visit) const {
    visit(&split_graph::layer_shared, layer_shared);
    visit(&split_graph::expert, expert);
    visit(&split_graph::target_begin, target_begin);
    visit(&split_graph::target_rank, target_rank);
    visit(&split_graph::target_owner, target_owner);
    visit(&split_graph::layer_colour, layer_colour);
    visit(&split_graph::colour_begin, colour_begin);
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

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Splits each expert's load over its replicas with the smallest possible peak, and proves
/// that it is the smallest.
///
/// The load of an expert may be split among the ranks that hold a copy, in any proportion. The peak
/// is the largest (base_load + load) / speed of a rank. For any set of ranks, the load that only
/// they can take, divided by the sum of their speeds, is a lower bound for every peak; the largest
/// of these bounds equals the smallest peak (max-flow min-cut). Up to four water-filling sweeps, in
/// which each expert in turn levels its ranks, are often enough. Otherwise Dinic's blocking flows
/// move load from ranks above the bound to ranks below it until peak and bound are equal.
///
/// LPLB (DeepSeek, SGLang) solves the same linear program by five steps of an interior-point method
/// in single precision, for up to about 64 ranks and 64 redundant experts. This solver has no limit
/// on the shape, and its result is optimal.
///
/// The constructor reads the placement, allocates and synchronises; `solve` does not allocate or
/// synchronise, so it can be captured in a CUDA graph. One object solves one step at a time.
///
/// Loads are stored in units of a power of two: a layer's load is less than 2^52 units, so that
/// their sums are exact in double. Splits are optimal among splits in whole units. Integer loads
/// are exact; floating loads and base loads are rounded down to units, so that the peak of a split
/// may exceed the certificate's value by one unit for the base load and one for each expert of a
/// rank. If speeds differ, bounds use speeds rounded up to a multiple of a power of two that is at
/// most 2^-44 of the fastest speed, so that a bound is never too high.
template <execution_policy P>
class minmax_lp {
  static_assert(detail::can_be_kept<P>,
                "Plimsoll: a prepared object outlives this policy; use gpu(stream) or "
                "gpu(stream, resource)");

 public:
  /// @brief Prepares to solve steps of one placement.
  /// @param placement slots and ranks of every layer, in the policy's memory; experts without a
  ///   slot must have no load; of `replica_count` only the shape is read
  /// @param options ranks, and when to stop
  /// @throws invalid_input for shapes and options; for values, naming the layer and the rank or
  ///   slot
  /// @complexity O(slots + experts colours) per layer, on the calling thread, where colours are at
  ///   most the shared experts of a rank and of those it shares experts with
  /// @workspace about 40 bytes per slot and 50 per rank of every layer, from the policy
  /// @stream synchronises
  minmax_lp(P const& policy, placement_ref const& placement, minmax_lp_options const& options = {})
      : minmax_lp(policy, placement, options, without_scratch{}) {
    detail::minmax_lp_body<matrix_ref<double const>> body{};
    body.graph = graph_;
    scratch_ = {context_, detail::launch_bytes(context_, layers_, body)};
    detail::synchronize(context_);
  }

  /// @brief Splits the loads of one step.
  /// @param loads `[layers, experts]`, in the policy's memory; int32, uint32, int64, float, double
  ///   or generated; each at least 0, the total of a layer (with its base load) below 2^47
  /// @param[out] split `[layers, slots]` double: the load of every slot, in the unit of the loads.
  ///   Copies on one rank share evenly, and the first takes the remainder; the slots of an expert
  ///   add up to its load, exactly in units
  /// @param[out] certificates `[layers]`: the peak, rounded up; a lower bound for the peak of every
  ///   split, fractions allowed, rounded down; and work: the number of sweeps and augmenting paths,
  ///   at most `max_iterations`. The status is one of
  ///   - optimal: no rank carries a whole unit more than the bound times its speed (with the
  ///     lexicographic objective, each rank within the bound of its own level);
  ///   - within_tolerance;
  ///   - iteration_limit: the split is complete, but the objective was not reached;
  ///   - infeasible: the split is 0. value is infinity if an expert has load but no slot on a
  ///     live rank, or if a dead rank has a base load, and NaN if a load is refused. lower_bound
  ///     is the offending number, and work its expert, -2 - r for the base load of rank r, or -1
  ///     for the total of the layer. `expect_solved` turns this into an error
  /// @param arrays the load already on each rank, and the output of the bottleneck ranks
  /// @throws invalid_input for shapes
  /// @complexity O(copies) per sweep and O(copies) per augmenting path and layer
  /// @workspace none
  /// @stream enqueues one kernel, does not synchronise
  /// @determinism the same bits under every policy
  template <load_matrix_view Loads, output_of<double, 2> Split,
            output_of<certificate, 1> Certificates>
  void solve(Loads const& loads, Split&& split, Certificates&& certificates,
             minmax_lp_arrays const& arrays = {}) const {
    constexpr char const* name = "minmax_lp::solve";
    auto const load = detail::argument<2>(name, "loads", loads);
    matrix_ref<double> const parts = detail::argument<2>(name, "split", split);
    vector_ref<certificate> const results = detail::argument<1>(name, "certificates", certificates);
    detail::expect_extent(name, "loads", layers_, load.extent(0), "layers");
    detail::expect_extent(name, "loads", graph_.experts, load.extent(1), "experts");
    detail::expect_extent(name, "split", layers_, parts.extent(0), "layers");
    detail::expect_extent(name, "split", graph_.slots, parts.extent(1), "slots");
    detail::expect_extent(name, "certificates", layers_, results.extent(0), "layers");
    expect_ranks(name, "arrays.base_load", arrays.base_load);
    expect_ranks(name, "arrays.bottleneck", arrays.bottleneck);
    detail::launch(context_, layers_, body_of(load, parts, results, arrays), scratch_.data());
  }

 private:
  using context = detail::context_of<P>;

  // lplb rounds splits in the same launch, which has scratch of its own.
  template <execution_policy>
  friend class lplb;

  struct without_scratch {};

  /// For `lplb`: can make bodies, but not `solve`. Leaves it to the caller to synchronise.
  minmax_lp(P const& policy, placement_ref const& placement, minmax_lp_options const& options,
            without_scratch)
      : context_(detail::resolve(policy)),
        options_(options),
        layers_(placement.physical_to_logical.extent(0)) {
    prepare(placement);
  }

  template <class Loads>
  detail::minmax_lp_body<Loads> body_of(Loads const& load, matrix_ref<double> const& parts,
                                        vector_ref<certificate> const& results,
                                        minmax_lp_arrays const& arrays = {}) const {
    return {graph_,
            load,
            arrays.base_load,
            options_.tolerance,
            static_cast<std::int64_t>(options_.max_iterations),
            options_.objective == split_objective::lexicographic,
            speed_unit_,
            parts,
            results,
            arrays.bottleneck};
  }

  template <class Matrix>
  void expect_ranks(char const* name, char const* argument, Matrix const& matrix) const {
    if (matrix.data != nullptr) {
      detail::expect_extent(name, argument, layers_, matrix.extent(0), "layers");
      detail::expect_extent(name, argument, graph_.ranks, matrix.extent(1), "ranks");
    }
  }

  void prepare(placement_ref const& placement) {
    constexpr char const* name = "minmax_lp";
    auto const& map = placement.physical_to_logical;
    index_t const slots = map.extent(1);
    index_t const ranks = placement.ranks;
    index_t const experts = placement.replica_count.extent(1);
    detail::expect_between(name, "placement.physical_to_logical", 1, 0x7fffffff, slots, "slots");
    detail::expect_elements(name, "placement.physical_to_logical", map);
    detail::expect_between(name, "placement.replica_count", 1, expert_limit, experts, "experts");
    detail::expect_between(name, "placement.ranks", 1, rank_limit, ranks, "ranks");
    detail::expect_rank_offsets(name, "placement.rank_offsets", placement.rank_offsets, layers_,
                                ranks);
    detail::expect_between(name, "options.max_iterations", 1, INT64_MAX, options_.max_iterations,
                           "sweeps and paths");
    if (!(options_.tolerance >= 0 && options_.tolerance < 1)) {
      detail::fail(name, "options.tolerance", "a number from 0 to below 1",
                   detail::text(options_.tolerance));
    }
    detail::split_graph_arrays arrays;
    arrays.ranks = detail::read_speeds(name, context_, ranks, options_.active, options_.speeds);
    speed_unit_ = arrays.ranks.even ? arrays.ranks.fastest : 1;

    auto const read = detail::read_slots(name, context_, placement, experts);
    for (index_t layer = 0; layer < layers_; ++layer) {
      arrays.add_layer(read.experts_of(layer), slots, read.begins_of(layer), experts);
    }
    keep(arrays, experts, slots);
  }

  /// Copies all arrays of the graph into one array in the policy's memory.
  void keep(detail::split_graph_arrays const& arrays, index_t experts, index_t slots) {
    numbers_ = {context_, arrays.flat()};
    speeds_ = {context_, arrays.ranks.speed};
    graph_ = arrays.graph(numbers_.data(), speeds_.data(), experts, slots);
  }

  context context_;
  minmax_lp_options options_;
  index_t layers_;
  double speed_unit_ = 1;
  detail::split_graph graph_{};
  detail::buffer<std::int32_t, context> numbers_;
  detail::buffer<double, context> speeds_;
  detail::buffer<std::byte, context> scratch_;
};

template <execution_policy P>
minmax_lp(P const&, placement_ref const&, minmax_lp_options const&) -> minmax_lp<P>;
template <execution_policy P>
minmax_lp(P const&, placement_ref const&) -> minmax_lp<P>;

/// @brief Throws for the first layer that `minmax_lp::solve` could not split.
///
/// @param certificates `[layers]`, in the policy's memory
/// @throws invalid_input naming the refused number, its expert or rank, and the layer
/// @stream synchronises once
template <execution_policy P, view_of<certificate, 1> Certificates>
void expect_solved(P const& policy, Certificates&& certificates) {
  index_t layer = 0;
  for (certificate const& result : read(policy, certificates)) {
    if (result.status == certificate_status::infeasible) {
      bool const refused = result.value != result.value;
      std::string const whose = result.work >= 0 ? detail::text(" for expert ", result.work)
                                : result.work == -1
                                    ? std::string(" in total")
                                    : detail::text(" as base load of rank ", -2 - result.work);
      detail::fail(
          "expect_solved", "loads",
          refused ? "values from 0 to below 2^47, in total below 2^47 per layer"
                  : "load only on experts with a slot on a live rank, and no base load on dead "
                    "ranks",
          detail::text(result.lower_bound, whose, " in layer ", layer));
    }
    ++layer;
  }
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll
