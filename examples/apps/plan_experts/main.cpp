// SPDX-License-Identifier: Apache-2.0
// plan_experts: places the experts of every layer of a model on the ranks that serve it.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <filesystem>
#include <limits>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#ifdef _OPENMP
#include <plimsoll/execution/omp.hpp>
#endif
#include <plimsoll/execution.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/systems/craft.hpp>
#include <plimsoll/systems/gem.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

#include "command_line.hpp"
#include "curves_file.hpp"
#include "decision.hpp"
#include "evaluation.hpp"
#include "loads.hpp"
#include "npy.hpp"
#include "options.hpp"
#include "outcome.hpp"
#include "outcome_json.hpp"
#include "outcome_table.hpp"
#include "output_file.hpp"
#include "plan.hpp"
#include "plan_file.hpp"
#include "planner.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "slot_loads.hpp"

#ifndef PLIMSOLL_EXAMPLES_CUDA
#define PLIMSOLL_EXAMPLES_CUDA 0
#endif

namespace {

using namespace examples;

/// Prepends the name of the argument to the message of a `file_error`.
template <class Read>
auto naming(std::string const& argument, Read&& read) {
  try {
    return read();
  } catch (file_error const& e) {
    throw std::runtime_error(argument + ": " + e.what());
  }
}

/// A file of loads in which the rows to plan are selected.
struct measured_loads {
  load_file file;
  load_totals totals;
  index_t rows = 0;  ///< rows of the file, before the selection
};

/// Returns the end of the rows to plan in a file with `layers` layers. Throws if it has fewer rows.
index_t last_row(std::string const& name, row_range const& rows, index_t layers) {
  index_t const last = rows.last.value_or(layers);
  if (rows.first >= last || last > layers) {
    throw usage_error("--layers", "some of the " + std::to_string(layers) + " layers of " + name,
                      std::to_string(rows.first) + ":" +
                          (rows.last ? std::to_string(*rows.last) : std::string()));
  }
  return last;
}

/// Returns the slots of a layer that the options ask for.
std::optional<index_t> asked_slots(options const& o, index_t experts,
                                   std::optional<index_t> ranks) {
  if (o.replicas_per_rank && ranks) {
    return experts + *o.replicas_per_rank * *ranks;
  }
  return o.slots;
}

/// Reads the plan of --previous on its own ranks, which need not be those of --ranks.
plan read_previous(options const& o, plan_request request) {
  auto const lost = static_cast<index_t>(lost_ranks_of(o).size());
  auto const slots = request.experts > 0 ? asked_slots(o, request.experts, o.ranks) : o.slots;
  // A file without its ranks has as many slots on each as the new plan.
  if (slots && o.ranks && *slots >= *o.ranks && *slots % *o.ranks == 0) {
    request.slots_of_rank = *slots / *o.ranks;
  }
  if (o.ranks) {
    request.assumed_ranks = *o.ranks + lost;
  }
  return naming("--previous", [&] { return read_plan(o.previous, request); });
}

plan read_given(options const& o, plan_request request, std::optional<index_t> ranks) {
  request.ranks = ranks;
  return naming("--plan", [&] { return read_plan(o.plan, request); });
}

/// Adds up the slots of every expert in a file of --slot-loads, by the map in use. Returns them and
/// the number of layers of the file, of which those of `rows` were read.
std::pair<load_file, index_t> read_slot_loads(std::string const& name, options const& o,
                                              row_range const& rows,
                                              reading_progress const& watch) {
  auto const map_in_use = [&](plan_request const& request) {
    return o.previous.empty() ? read_given(o, request, o.ranks) : read_previous(o, request);
  };
  load_file slots = load_file::open(name, o.key, watch, loads_of::slots);
  plan const all = map_in_use({});  // also layers that are not planned
  slots.join_ranks(all.ranks, all.slots);
  index_t const layers = slots.layers();
  index_t const last = last_row(name, rows, layers);
  static_cast<void>(check_loads(slots, rows.first, last, shape_rule::trusted, watch));
  plan const planned =
      map_in_use({.experts = all.experts, .layer_ids = layer_ids_of(o, last - rows.first, layers)});
  return {expert_loads(slots, planned, watch), layers};
}

measured_loads read_rows(char const* argument, std::string const& name, options const& o) {
  return naming(argument, [&] {
    progress shown("reading " + name);
    auto const watch = [&](std::uint64_t done, std::uint64_t total) { shown(done, total); };
    shape_rule const rule = o.trust_shape ? shape_rule::trusted : shape_rule::looks_right;
    row_range const rows = rows_to_plan(o);
    if (o.slot_loads) {
      auto [file, layers] = read_slot_loads(name, o, rows, watch);
      load_totals totals = check_loads(file, 0, file.layers(), rule, watch);
      return measured_loads{std::move(file), std::move(totals), layers};
    }
    load_file file = load_file::open(name, o.key, watch);
    index_t const layers = file.layers();
    index_t const last = last_row(name, rows, layers);
    load_totals totals = check_loads(file, rows.first, last, rule, watch);
    return measured_loads{std::move(file), std::move(totals), layers};
  });
}

/// Reads the loads of --evaluate, which must have as many layers and experts as the planned loads.
measured_loads read_other_loads(options const& o, load_file const& planned) {
  auto other = read_rows("--evaluate", o.evaluate, o);
  auto const sizes = [](load_file const& loads) {
    return std::to_string(loads.layers()) + " layers of " + std::to_string(loads.experts()) +
           " experts";
  };
  if (sizes(other.file) != sizes(planned)) {
    throw usage_error("--evaluate", sizes(planned) + ", as LOADS",
                      sizes(other.file) + (o.layers.empty() ? "" : " after --layers " + o.layers));
  }
  return other;
}

/// Calls `make`; if memory is not sufficient, reports how much the loads need, and for what.
template <class Make>
auto within_memory(load_file const& file, index_t steps, std::string const& what, Make&& make) {
  try {
    return make();
  } catch (std::bad_alloc const&) {
    constexpr index_t value_bytes = 8;
    throw usage_error("LOADS",
                      "memory for " + what + " of " + file.name() + ", " +
                          bytes_text(value_bytes * steps * file.layers() * file.experts()) +
                          " and more",
                      "less");
  }
}

/// Ranks and slots of a new plan.
struct slot_layout {
  index_t ranks = 0;
  index_t slots = 0;  ///< of one layer, over all ranks
  /// [layers, ranks + 1], those of --previous; empty: slots are spread evenly
  plimsoll::matrix_ref<std::int32_t const> rank_offsets = {};
};

/// Returns the plan of --previous on the ranks of the new plan, and how these came about.
std::pair<plan, rank_change> on_new_ranks(options const& o, plan const& previous) {
  auto const lost = lost_ranks_of(o);
  if (!lost.empty() && lost.back() >= previous.ranks) {
    throw usage_error("--lost-ranks",
                      "some of the " + std::to_string(previous.ranks) + " ranks of --previous",
                      std::to_string(lost.back()));
  }
  rank_change change{.previous = o.previous, .before = previous.ranks};
  auto& sources = change.source_ranks;
  for (index_t rank = 0; rank < previous.ranks; ++rank) {
    if (!std::binary_search(lost.begin(), lost.end(), rank)) {
      sources.push_back(static_cast<std::int32_t>(rank));
    }
  }
  auto const stay = static_cast<index_t>(sources.size());
  index_t const ranks = o.ranks.value_or(stay);
  if (ranks < (lost.empty() ? 1 : stay) || ranks == 0) {
    throw usage_error(
        o.ranks ? "--ranks" : "--lost-ranks",
        o.ranks ? "at least the " + std::to_string(stay) + " ranks of --previous that are not lost"
                : "a rank of --previous that is not lost",
        o.ranks ? std::to_string(ranks) : "none");
  }
  sources.resize(static_cast<std::size_t>(ranks), -1);
  if (ranks == previous.ranks && lost.empty()) {
    return {previous, change};
  }
  index_t const of_rank = previous.slots / previous.ranks;
  auto const offsets = previous.placement().rank_offsets;
  for (index_t layer = 0; layer < previous.layers; ++layer) {
    for (index_t rank = 0; rank < previous.ranks; ++rank) {
      if (index_t const slots = offsets(layer, rank + 1) - offsets(layer, rank); slots != of_rank) {
        throw usage_error("--previous",
                          "as many slots on every rank, " + std::to_string(of_rank) +
                              ", of a plan that gets other ranks",
                          std::to_string(slots) + " on rank " + std::to_string(rank));
      }
    }
  }
  plan result(previous.layers, previous.experts, ranks, of_rank * ranks);
  result.layer_ids = previous.layer_ids;
  plimsoll::resize_placement(
      plimsoll::seq, previous.placement(), sources, {},
      plimsoll::array_ref(result.physical_to_logical.data(), result.layers, result.slots),
      plimsoll::array_ref(result.replica_count.data(), result.layers, result.experts));
  change.lost_experts = std::count(result.replica_count.begin(), result.replica_count.end(), 0);
  return {std::move(result), std::move(change)};
}

/// Checks the slots that the options ask for against those of --previous.
void expect_slots_of_previous(options const& o, plan const& previous) {
  index_t const slots = asked_slots(o, previous.experts, previous.ranks).value_or(previous.slots);
  if (slots != previous.slots) {
    throw usage_error(o.slots ? "--slots" : "--replicas-per-rank",
                      "the " + std::to_string(previous.slots) +
                          " slots of a layer of --previous on " + std::to_string(previous.ranks) +
                          " ranks",
                      std::to_string(slots));
  }
}

/// Refuses what needs every expert in the plan in use, if ranks took some with them.
void expect_all_experts(options const& o, plan const& previous) {
  auto const& counts = previous.replica_count;
  auto const found = std::find(counts.begin(), counts.end(), 0);
  char const* const argument = o.max_moves                             ? "--max-moves"
                               : o.max_bytes                           ? "--max-bytes"
                               : o.planner == "none" && o.plan.empty() ? "--planner"
                                                                       : nullptr;
  if (found == counts.end() || argument == nullptr) {
    return;
  }
  auto const at = found - counts.begin();
  throw usage_error(
      argument,
      o.max_moves || o.max_bytes
          ? "no value where experts were lost with their ranks, since all of these must move"
          : "one that plans, where experts were lost with their ranks",
      "a loss of expert " + std::to_string(at % previous.experts) + " in layer " +
          std::to_string(previous.layer_ids[static_cast<std::size_t>(at / previous.experts)]));
}

/// Returns the number of slots to plan: the requested one, else that of the plan in use, else (for
/// gem) one per expert.
index_t slots_to_plan(options const& o, index_t experts, index_t ranks,
                      std::optional<plan> const& in_use) {
  std::optional<index_t> slots = o.slots;
  if (o.replicas_per_rank) {
    index_t const sum = experts + *o.replicas_per_rank * ranks;
    if (slots && *slots != sum) {
      throw usage_error("--slots",
                        std::to_string(sum) + ", the " + std::to_string(experts) +
                            " experts and --replicas-per-rank " +
                            std::to_string(*o.replicas_per_rank) + " on " + std::to_string(ranks) +
                            " ranks",
                        std::to_string(*slots));
    }
    slots = sum;
  }
  index_t const count = slots ? *slots : in_use ? in_use->slots : experts;
  auto const expect = [&](bool good, std::string const& expected) {
    if (!good) {
      throw usage_error("--slots", expected, std::to_string(count));
    }
  };
  expect(count >= experts, "at least one for each of the " + std::to_string(experts) + " experts");
  expect(count >= ranks, "at least one for each of the " + std::to_string(ranks) + " ranks");
  index_t const copies = experts + plimsoll::rank_limit - 1;  // replicas of one expert have a limit
  bool const packs = o.planner == "eplb" || o.planner == "craft";
  index_t const most = packs ? copies : std::min(copies, plimsoll::expert_limit);
  expect(count <= most,
         "at most " + std::to_string(most) + " for " + std::to_string(experts) + " experts");
  return count;
}

/// Plans with `policy`.
template <class... Arguments>
auto run_planner([[maybe_unused]] std::string const& policy, Arguments&&... arguments) {
#ifdef _OPENMP
  if (policy == "omp") {
    return plan_with(plimsoll::omp, arguments...);
  }
#endif
#if PLIMSOLL_EXAMPLES_CUDA
  if (policy == "gpu") {
    return plan_on_gpu(arguments...);
  }
#endif
  return plan_with(plimsoll::seq, arguments...);
}

/// Returns ranks, nodes and --apart for a call that takes a placement.
plimsoll::placement_options placement_options_of(options const& o, index_t ranks) {
  auto const apart = o.apart == "node"   ? plimsoll::anti_affinity::node
                     : o.apart == "rank" ? plimsoll::anti_affinity::rank
                                         : plimsoll::anti_affinity::none;
  return {.on = {.ranks = ranks, .nodes = o.nodes},
          .replica_anti_affinity = apart,
          .anti_affinity_strength = plimsoll::strictness::required};
}

plimsoll::eplb_options eplb_options_of(options const& o, index_t experts, index_t ranks) {
  if (experts % o.groups != 0) {
    throw usage_error("--groups", "a divisor of the " + std::to_string(experts) + " experts",
                      std::to_string(o.groups));
  }
  auto const refine = o.refinement == "joint"     ? plimsoll::eplb_refinement::joint
                      : o.refinement == "packing" ? plimsoll::eplb_refinement::packing
                                                  : plimsoll::eplb_refinement::none;
  auto const where = placement_options_of(o, ranks);
  return {.on = where.on,
          .groups = o.groups,
          .refine = refine,
          .replica_anti_affinity = where.replica_anti_affinity,
          .anti_affinity_strength = where.anti_affinity_strength};
}

/// Calls `work` with the loads summed over the steps, `[layers, experts]`.
template <class Work>
auto with_totals(measured_loads const& loads, Work&& work) {
  return std::visit(
      [&]<class Load>(npy::array<Load> const& total) {
        return work(loads_ref<Load>(total.values, loads.file.layers(), loads.file.experts()));
      },
      loads.totals.loads);
}

/// Refines the plan that was read, by the sum of the steps; records the time in `result`.
plan refine_plan(options const& o, measured_loads const& loads, plan const& given,
                 outcome& result) {
  given_plan what{.placement = given.placement(), .where = placement_options_of(o, given.ranks)};
  if (o.refinement == "packing") {
    what.how.max_trials = 0;
  }
  plan made = given;
  auto const time = with_totals(
      loads, [&](auto const& total) { return run_planner(o.policy, total, what, made); });
  result.milliseconds = time.milliseconds;
  result.runs = time.runs;
  return made;
}

/// Plans from the sum of the steps; records time and method in `result`.
plan make_eplb_plan(options const& o, measured_loads const& loads, slot_layout const& on,
                    outcome& result) {
  plan made(loads.file.layers(), loads.file.experts(), on.ranks, on.slots);
  auto how = eplb_options_of(o, made.experts, on.ranks);
  how.rank_offsets = on.rank_offsets;
  auto const time = with_totals(
      loads, [&](auto const& total) { return run_planner(o.policy, total, how, made); });
  result.milliseconds = time.milliseconds;
  result.runs = time.runs;
  result.hierarchical = how.is_hierarchical();
  return made;
}

/// Returns the budget of craft: replicas over all layers.
index_t craft_budget(options const& o, index_t layers, index_t ranks) {
  if (o.budget_bytes) {
    return plimsoll::replica_budget(*o.budget_bytes, o.expert_bytes.value(), ranks);
  }
  index_t const on_each = o.replicas_per_rank.value_or(automatic_replicas);
  if (on_each == automatic_replicas) {
    return plimsoll::automatic_budget;
  }
  if (on_each > layers) {
    throw usage_error(
        "--replicas-per-rank",
        "at most " + std::to_string(layers) + " with --planner craft, one for each layer to plan",
        std::to_string(on_each));
  }
  return on_each * ranks;
}

/// Plans from all steps with load; records time and results in `result`.
plan make_craft_plan(options const& o, measured_loads const& loads, index_t ranks,
                     outcome& result) {
  plan made(loads.file.layers(), loads.file.experts(), ranks, loads.file.experts() + ranks);
  auto const eplb = eplb_options_of(o, made.experts, ranks);
  plimsoll::craft_options const how{.on = {.ranks = ranks, .nodes = eplb.on.nodes},
                                    .budget = craft_budget(o, made.layers, ranks),
                                    .split = split_of(o),
                                    .groups = eplb.groups,
                                    .refine = eplb.refine,
                                    .replica_anti_affinity = eplb.replica_anti_affinity,
                                    .anti_affinity_strength = eplb.anti_affinity_strength};
  plimsoll::craft_plan found;
  index_t const steps = std::max<index_t>(1, loads.file.steps() - loads.totals.empty_steps);
  auto const time =
      within_memory(loads.file, steps, "all steps with load, which --planner craft holds,", [&] {
        return std::visit(
            [&](auto const& array) {
              return run_planner(o.policy, view_of(array), how, made, found);
            },
            filled_steps(loads.file, loads.totals));
      });
  trim(made);
  result.milliseconds = time.milliseconds;
  result.runs = time.runs;
  result.hierarchical = eplb.is_hierarchical();
  bool const automatic = how.budget == plimsoll::automatic_budget;
  result.craft = {.chosen = automatic        ? "automatic"
                            : o.budget_bytes ? "budget_bytes"
                                             : "replicas_per_rank",
                  .budget_bytes = o.budget_bytes,
                  .replicas_per_rank = found.allocation.budget / ranks,
                  .steps = steps,
                  .filled = loads.totals.filled,
                  .estimate = std::move(found.estimate),
                  .allocation = std::move(found.allocation)};
  leave_empty_steps_out(*result.craft);
  return made;
}

/// Plans from all steps with load, with the planner that lasts longest or with flow placement;
/// records time and results in `result`.
plan make_selected_plan(options const& o, measured_loads const& loads, slot_layout const& on,
                        outcome& result) {
  plan made(loads.file.layers(), loads.file.experts(), on.ranks, on.slots);
  plimsoll::select_planner_options how{.on = {.ranks = on.ranks, .nodes = o.nodes},
                                       .rank_offsets = on.rank_offsets,
                                       .split = split_of(o)};
  if (o.planner == "flow") {
    how.candidates = {how.split == plimsoll::split_rule::even ? plimsoll::planner::flow_even
                                                              : plimsoll::planner::flow_optimal};
  } else {
    how.flow_exponents = {0.9, 0.8, 0.7, 0.6};
  }
  selection found;
  index_t const steps = std::max<index_t>(1, loads.file.steps() - loads.totals.empty_steps);
  auto const time = within_memory(
      loads.file, steps, "all steps with load, which --planner " + o.planner + " holds,", [&] {
        return std::visit(
            [&](auto const& array) {
              return run_planner(o.policy, view_of(array), how, made, found);
            },
            filled_steps(loads.file, loads.totals));
      });
  result.milliseconds = time.milliseconds;
  result.runs = time.runs;
  result.selected = std::move(found);
  return made;
}

/// Returns the number of last steps with load from which gem plans.
index_t trace_length_of(options const& o, measured_loads const& loads) {
  if (loads.file.steps() == 1) {
    throw usage_error("LOADS", "several steps, [steps, layers, experts], with --planner gem",
                      "one in " + o.loads);
  }
  index_t const steps = loads.file.steps() - loads.totals.empty_steps;
  if (steps == 0) {
    throw usage_error("LOADS", "steps with load, with --planner gem", "none in " + o.loads);
  }
  index_t const length = o.trace_length.value_or(std::min(usual_trace_length, steps));
  if (length > steps) {
    throw usage_error("--trace-length",
                      "at most the " + std::to_string(steps) + " steps of " + o.loads +
                          (loads.totals.empty_steps > 0 ? " that have load" : ""),
                      std::to_string(length));
  }
  return length;
}

/// Plans from the last steps; records time and results in `result`.
plan make_gem_plan(options const& o, measured_loads const& loads, slot_layout const& on,
                   outcome& result) {
  plan made(loads.file.layers(), loads.file.experts(), on.ranks, on.slots);
  gem_outcome found{.latency = o.latency,
                    .curves = naming("--latency", [&] { return read_curves(o.latency, on.ranks); }),
                    .trace_length = trace_length_of(o, loads),
                    .restarts = o.restarts};
  for (index_t const filled : loads.totals.filled) {
    found.steps.push_back(std::min(filled, found.trace_length));
  }
  plimsoll::gem_options how;
  how.on.ranks = on.ranks;
  how.rank_offsets = on.rank_offsets;
  how.restarts = o.restarts;
  if (on.slots > made.experts) {
    how.spare_slots = plimsoll::spare_slot_use::hold_replicas;
  }
  auto const time =
      within_memory(loads.file, found.trace_length,
                    "the " + std::to_string(found.trace_length) + " last steps", [&] {
                      return std::visit(
                          [&](auto const& trace) {
                            return run_planner(o.policy, view_of(trace), how, found.curves.view(),
                                               made, found.layers);
                          },
                          last_filled_steps(loads.file, loads.totals, found.trace_length));
                    });
  result.milliseconds = time.milliseconds;
  result.runs = time.runs;
  result.gem = std::move(found);
  return made;
}

void check_bytes(plan const& p, std::optional<std::int64_t> expert_bytes) {
  std::int64_t const largest = std::numeric_limits<std::int64_t>::max();
  if (expert_bytes && p.layers * p.slots > largest / *expert_bytes) {
    throw usage_error("--expert-bytes", "weights of a model below 2^63 bytes",
                      std::to_string(*expert_bytes) + " an expert");
  }
}

/// Throws if ranks of two plans have other slots; `other` names the option behind `p`.
void expect_slots_of(plan const& p, plan const& previous, std::string const& other) {
  if (p.slots != previous.slots) {
    throw usage_error(
        "--previous",
        "a plan with " + std::to_string(p.slots) + " slots of a layer, as in " + other,
        std::to_string(previous.slots));
  }
  auto const& offsets = p.rank_offsets;
  auto const at = std::mismatch(offsets.begin(), offsets.end(), previous.rank_offsets.begin());
  if (at.first == offsets.end()) {
    return;
  }
  // The first offset of a layer is 0, so an offset that differs ends a rank.
  auto const end = at.first - offsets.begin();
  auto const slots = [&](plan const& of) {
    auto const offset = of.rank_offsets.begin() + end;
    return std::to_string(*offset - *(offset - 1));
  };
  throw usage_error("--previous",
                    slots(p) + " slots on rank " + std::to_string(end % (p.ranks + 1) - 1) +
                        " in layer " +
                        std::to_string(p.layer_ids[static_cast<std::size_t>(end / (p.ranks + 1))]) +
                        ", as in " + other,
                    slots(previous));
}

/// Replaces `after` by the plan to move to from `previous`, and lists the transfers.
migration_outcome move_from(plan const& previous, options const& o, measured_loads const& loads,
                            outcome const& result, plan& after) {
  plimsoll::rank_set const on{.ranks = previous.ranks, .nodes = o.nodes};
  plan const to = after;
  migration move{.from = previous.placement(),
                 .to = to.placement(),
                 .alignment = {.on = on},
                 .limited = limits_moves(o),
                 .where = placement_options_of(o, previous.ranks),
                 .budget = {.split = split_of(o),
                            .max_moves = o.max_moves.value_or(plimsoll::unlimited),
                            .max_bytes = o.max_bytes.value_or(plimsoll::unlimited),
                            .expert_bytes = o.expert_bytes.value_or(1)},
                 .transfers = {.on = on, .expert_bytes = o.expert_bytes.value_or(1)}};
  move.transfers.rounds = o.rounds == "one-peer" ? plimsoll::round_rule::one_peer
                                                 : plimsoll::round_rule::send_and_receive;
  move.transfers.bandwidths.across_nodes = o.bandwidth * gigabyte;
  if (result.gem) {
    plimsoll::latency_curves const curves = result.gem->curves.view();
    move.alignment.on.speeds = curves.speeds;
    if (curves.latency.extent(0) > 1) {  // every rank has a curve of its own
      move.alignment.relabel = plimsoll::relabeling::none;
    }
  }
  migration_outcome found{.max_moves = o.max_moves,
                          .max_bytes = o.max_bytes,
                          .rounds = o.rounds,
                          .token_us = o.token_us};
  if (!move.limited) {
    with_totals(loads, [&]<class Load>(loads_ref<Load> const& total) {
      steps_ref<Load> const sum(total.data, 1, total.extent(0), total.extent(1));
      run_planner(o.policy, sum, move, after, found);
    });
    return found;
  }
  found.steps = std::max<index_t>(1, loads.file.steps() - loads.totals.empty_steps);
  within_memory(loads.file, found.steps, "all steps with load, which a limit on moves needs,", [&] {
    std::visit(
        [&](auto const& array) { run_planner(o.policy, view_of(array), move, after, found); },
        filled_steps(loads.file, loads.totals));
  });
  return found;
}

/// Keeps the plan in use in layers without load, of which nothing else is known.
void keep_layers_without_load(plan const& in_use, load_totals const& totals, plan& after) {
  if (in_use.slots != after.slots || in_use.rank_offsets != after.rank_offsets) {
    return;
  }
  auto const holds_all = [&](index_t layer) {
    auto const first = in_use.replica_count.begin() + layer * in_use.experts;
    return std::find(first, first + in_use.experts, 0) == first + in_use.experts;
  };
  auto const copy_row = [](auto const& from, auto& to, index_t columns, index_t layer) {
    std::copy_n(from.begin() + layer * columns, columns, to.begin() + layer * columns);
  };
  for (index_t layer = 0; layer < after.layers; ++layer) {
    if (totals.filled[static_cast<std::size_t>(layer)] == 0 && holds_all(layer)) {
      copy_row(in_use.physical_to_logical, after.physical_to_logical, after.slots, layer);
      copy_row(in_use.replica_count, after.replica_count, after.experts, layer);
    }
  }
}

/// Reads where the tokens start, for the ranks and layers of a plan.
token_sources read_sources(options const& o, plan const& p) {
  token_sources result{.nodes = o.nodes};
  if (o.sources.empty()) {
    return result;
  }
  naming("--sources", [&] {
    load_file file = load_file::open(o.sources, o.key);
    index_t const layers = file.layers();
    row_range const rows = rows_to_plan(o);
    index_t const last = last_row(o.sources, rows, layers);
    auto const sizes = [](index_t ranks, index_t of_layers, index_t experts) {
      return "(" + std::to_string(ranks) + ", " + std::to_string(of_layers) + ", " +
             std::to_string(experts) + ")";
    };
    if (file.steps() != p.ranks || last - rows.first != p.layers || file.experts() != p.experts) {
      throw file_error(
          o.sources,
          "the shape " + sizes(p.ranks, p.layers, p.experts) + " of (ranks, layers, experts)",
          sizes(file.steps(), last - rows.first, file.experts()));
    }
    static_cast<void>(check_loads(file, rows.first, last, shape_rule::trusted));
    file.with_type([&]<class Load>(Load) {
      file.for_each_step<Load>([&](index_t, loads_ref<Load> loads) {
        result.copies.insert(result.copies.end(), loads.data,
                             loads.data + loads.extent(0) * loads.extent(1));
      });
    });
  });
  return result;
}

/// Makes both plans, without measuring them.
outcome plan_loads(options const& o, measured_loads const& loads) {
  outcome result{.planner = o.planner,
                 .split = split_of(o),
                 .refinement = o.refinement,
                 .policy = o.policy,
                 .before_name = "trivial",
                 .nodes = o.nodes,
                 .sources = o.sources,
                 .groups = o.groups,
                 .expert_bytes = o.expert_bytes};
  index_t const layers = loads.file.layers();
  index_t const experts = loads.file.experts();
  auto const ids = layer_ids_of(o, layers, loads.rows);
  // Without --layer-ids, LOADS has a row for every layer of the model.
  plan_request const request{.experts = experts,
                             .layer_ids = ids,
                             .model_layers = o.layer_ids.empty() ? loads.rows : o.model_layers};
  std::optional<plan> previous;
  if (!o.previous.empty()) {
    auto [moved, change] = on_new_ranks(o, read_previous(o, request));
    expect_slots_of_previous(o, moved);
    expect_all_experts(o, moved);
    previous = std::move(moved);
    result.ranks = std::move(change);
  }
  std::optional<plan> in_use = previous;
  if (!o.plan.empty()) {
    in_use = read_given(o, request, previous ? previous->ranks : o.ranks);
  }
  index_t const ranks = previous ? previous->ranks : o.ranks ? *o.ranks : in_use.value().ranks;
  // With a limit on the moves, the refinement is not all that decides the plan.
  bool const compares = o.refinement != "none" && !o.evaluate.empty() && !limits_moves(o);
  if (o.planner == "none") {
    if (o.refinement != "none") {
      result.after = refine_plan(o, loads, *in_use, result);
      if (compares) {
        result.unrefined = in_use;
      }
    } else {
      result.after = std::move(*in_use);
      in_use.reset();
    }
  } else {
    auto const on = [&] {
      return slot_layout{
          ranks, slots_to_plan(o, experts, ranks, in_use),
          previous ? previous->placement().rank_offsets : slot_layout{}.rank_offsets};
    };
    result.after = o.planner == "craft" ? make_craft_plan(o, loads, ranks, result)
                   : o.planner == "gem" ? make_gem_plan(o, loads, on(), result)
                   : o.planner == "flow" || o.planner == "auto"
                       ? make_selected_plan(o, loads, on(), result)
                       : make_eplb_plan(o, loads, on(), result);
    result.after.layer_ids = ids;
    if (compares) {
      options plain = o;
      plain.refinement = "none";
      outcome ignored;
      result.unrefined = o.planner == "craft" ? make_craft_plan(plain, loads, ranks, ignored)
                                              : make_eplb_plan(plain, loads, on(), ignored);
      result.unrefined->layer_ids = ids;
    }
  }
  // The plan in use need not keep the rules that the new one was asked to keep.
  if (in_use && o.apart == "none" && o.groups == 1) {
    keep_layers_without_load(*in_use, loads.totals, result.after);
  }
  if (previous) {
    expect_slots_of(result.after, *previous, "--plan");
    check_bytes(*previous, o.expert_bytes);
    result.moves = move_from(*previous, o, loads, result, result.after);
  }
  if (previous && result.ranks.lost_experts == 0) {
    result.before = std::move(*previous);
    result.before_name = o.previous;
  } else if (in_use && !previous) {
    result.before = std::move(*in_use);
    result.before_name = o.plan;
  } else {
    // Of a plan that lost experts none is left. An engine without a plan has the same number of
    // slots in every layer.
    auto const range = slots_of_layers(result.after);
    index_t const slots = range.least == range.most ? range.most : experts;
    if (!o.output.empty() && output_format(o) == plan_format::trtllm && slots % ranks == 0) {
      result.before = tensorrt_llm_plan(layers, experts, ranks, slots);
      result.before_name = "tensorrt-llm";
    } else {
      result.before = trivial_plan(layers, experts, ranks, slots);
    }
    result.before.layer_ids = ids;
  }
  check_bytes(result.before, o.expert_bytes);
  check_bytes(result.after, o.expert_bytes);
  return result;
}

/// Throws if --model-layers would be ignored. It also counts the rows of LOADS, and of a plan to
/// read.
void expect_use_of_model_layers(options const& o) {
  bool const is_read = o.layer_ids.empty() || !o.plan.empty() || !o.previous.empty();
  if (o.model_layers && !is_read && !o.output.empty() && !lists_model_layers(output_format(o))) {
    throw usage_error("--model-layers",
                      "--format sglang or trtllm, whose files have rows for layers without a plan",
                      "another one");
  }
}

/// The output files: opened before the loads are read, renamed after all are written.
class outputs {
 public:
  explicit outputs(options const& o) {
    expect_use_of_model_layers(o);
    plan_ = open("--output", o.output);
    report_ = open("--report", o.report);
    json_ = open("--json", o.json);
    transfers_ = open("--transfers", o.transfers);
  }

  /// Writes all files; they get their names only in `commit`.
  void write(options const& o, outcome const& result) {
    if (plan_ != nullptr) {
      write_plan(plan_->stream(), result.after, output_format(o), o.model_layers);
    }
    if (report_ != nullptr) {
      write_report(report_->stream(), result);
    }
    if (json_ != nullptr) {
      write_outcome(json_->stream(), result);
    }
    if (transfers_ != nullptr) {
      write_transfers(transfers_->stream(), result);
    }
    for (output_file& file : files_) {
      file.close();
    }
  }

  void commit() {
    for (output_file& file : files_) {
      file.commit();
    }
  }

 private:
  output_file* open(char const* argument, std::string const& name) {
    return name.empty() ? nullptr : &files_.emplace_back(argument, name);
  }

  std::deque<output_file> files_;
  output_file* plan_ = nullptr;
  output_file* report_ = nullptr;
  output_file* json_ = nullptr;
  output_file* transfers_ = nullptr;
};

/// Returns the date as "2026-11-22 23:00 UTC"; SOURCE_DATE_EPOCH overrides it, for reproducible
/// output.
std::string today() {
  std::time_t now = std::time(nullptr);
  if (char const* const fixed = std::getenv("SOURCE_DATE_EPOCH")) {
    std::int64_t seconds = 0;
    if (!detail::parses(fixed, seconds)) {
      throw usage_error("SOURCE_DATE_EPOCH", "seconds since 1970", "'" + std::string(fixed) + "'");
    }
    now = static_cast<std::time_t>(seconds);
  }
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts)};
}

/// Judges whether the new plan is worth it: plans on each half of the steps, and judges on the
/// other. A plan that was read is judged on all of them.
decision_outcome decide_on(options const& o, measured_loads const& loads, outcome const& result) {
  if (result.before.slots != result.after.slots ||
      result.before.rank_offsets != result.after.rank_offsets) {
    throw usage_error("--verdict", "a plan in use with as many slots on every rank as the new plan",
                      std::to_string(result.before.slots) + " slots of a layer in " +
                          result.before_name + ", and " + std::to_string(result.after.slots));
  }
  bool const moves = result.moves.has_value();
  decision_request request{
      .how = {.on = {.ranks = result.after.ranks, .nodes = o.nodes},
              .split = result.split,
              .horizon = o.horizon,
              .expert_bytes = o.expert_bytes.value_or(1),
              .rounds = o.rounds == "one-peer" ? plimsoll::round_rule::one_peer
                                               : plimsoll::round_rule::send_and_receive,
              .transfer_share = moves && o.expert_bytes ? 1.0 : 0.0},
      .token_us = o.token_us,
      .flat_below = o.flat_below,
      .counts_moves = moves,
      .knows_bytes = o.expert_bytes.has_value()};
  request.how.bandwidths.across_nodes = o.bandwidth * gigabyte;
  if (result.gem) {
    request.curves = result.gem->curves;
  }
  index_t const steps = std::max<index_t>(1, loads.file.steps() - loads.totals.empty_steps);
  return within_memory(loads.file, steps, "all steps with load, which --verdict holds,", [&] {
    npy::any_array const all = filled_steps(loads.file, loads.totals);
    judged_plans plans{.after = result.after};
    bool const is_read = o.planner == "none" && o.refinement == "none" && !limits_moves(o);
    if (!is_read && steps >= least_steps) {
      options half = o;
      half.trace_length.reset();
      auto const planned = [&](index_t first, index_t last) {
        load_file file = part_of(all, first, last, o.loads);
        load_totals totals = check_loads(file, 0, file.layers(), shape_rule::trusted);
        measured_loads const part{std::move(file), std::move(totals), loads.rows};
        return plan_loads(half, part).after;
      };
      plans.of_halves = {planned(0, steps / 2), planned(steps / 2, steps)};
    }
    return decide(all, result.before, plans, request);
  });
}

int run_program(options const& o, std::string command) {
  outputs files(o);
  auto const loads = read_rows("LOADS", o.loads, o);
  auto const in_memory = [](load_file const& file, auto&& work) {
    return within_memory(file, 1, "a step and the plans", work);
  };
  // Planners that hold more steps in memory report that themselves.
  outcome result = in_memory(loads.file, [&] { return plan_loads(o, loads); });
  result.program = program_version();
  result.date = today();
  result.command = std::move(command);
  result.output = o.output;
  if (!o.output.empty()) {
    result.format = plan_format_names()[static_cast<std::size_t>(output_format(o))];
  }
  auto const sources = read_sources(o, result.after);
  auto const measure = [&](measured_loads const& on) {
    std::optional<plimsoll::latency_curves> curves;
    if (result.gem) {
      curves = result.gem->curves.view();
    }
    progress shown("measuring " + on.file.name());
    auto const watch = [&](std::uint64_t done, std::uint64_t total) { shown(done, total); };
    result.comparisons.push_back(in_memory(on.file, [&] {
      return compare(on.file, on.totals, result.before, result.after, curves, watch, sources);
    }));
  };
  measure(loads);
  if (!o.evaluate.empty()) {
    auto const other = read_other_loads(o, loads.file);
    measure(other);
    if (result.unrefined) {
      plan const& plain = *result.unrefined;
      result.unrefined_mean =
          comparison::served(
              compare(other.file, other.totals, plain, plain, std::nullopt, {}).after, result.split)
              .mean;
    }
  }
  if (o.verdict) {
    result.decision = decide_on(o, loads, result);
  }
  files.write(o, result);
  // A table that cannot be printed is an error, and after an error no file is written.
  if (std::fputs(table_of(result).c_str(), stdout) < 0 || std::fflush(stdout) != 0) {
    throw usage_error("the standard output", "it to be written", "an error");
  }
  files.commit();
  for (std::string const* name : {&o.output, &o.report, &o.json, &o.transfers}) {
    if (!name->empty()) {
      std::printf("wrote %s\n", name->c_str());
    }
  }
  return result.decision ? result.decision->exit_status() : 0;
}

/// Returns the command line, quoted for a shell.
std::string command_line(int argc, char const* const* argv) {
  std::string line = "plan_experts";
  for (std::string_view const argument :
       std::span(argv, static_cast<std::size_t>(argc)).subspan(1)) {
    constexpr char const* plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_";
    line += ' ';
    if (!argument.empty() && argument.find_first_not_of(plain) == std::string_view::npos) {
      line += argument;
      continue;
    }
    line += '\'';
    for (char const c : argument) {
      line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    }
    line += '\'';
  }
  return line;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Places the experts of every layer on ranks so that the ranks' loads are equal",
               "plan_experts");
  options o;
  add_options(app, o);
  return run(app, argc, argv, [&] {
    check_options(app, o);
    return run_program(o, command_line(argc, argv));
  });
}
