// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a planning body reports per problem, and how the report becomes certificates or an error.
/// Bodies cannot throw and may run on a device, so faults in values travel with the certificate.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// A value that a body found unusable.
enum class fault : std::int32_t {
  none,
  expert_id,          ///< a slot with neither -1 nor an expert; `where` slot, `also` rank or -1
  stray_slot,         ///< a filled slot that belongs to no rank; `where` slot
  missing_expert,     ///< an expert without a slot
  miscounted,         ///< a replica count that is not the map's; `also` the map's
  shared_rank,        ///< replicas of an expert on one rank; `where` expert, `also` rank
  shared_node,        ///< the same on a node
  dead_rank,          ///< an expert on a rank that is not active; `where` slot, `also` rank
  replica_offsets,    ///< offsets that do not rise from 0 to at most the slots; `where` position
  replica_gap,        ///< a slot behind a -1; `where` expert
  replica_slot,       ///< a slot that does not exist; `where` expert
  replica_twice,      ///< a slot listed again; `where` expert
  replica_elsewhere,  ///< a slot that does not hold the expert; `where` expert, `also` slot
  replica_unlisted,   ///< a slot of the expert that no list has; `where` expert
  replica_width,      ///< more copies than a row holds; `where` expert, `also` copies
  rank_gap,           ///< an expert behind a -1; `where` rank
  rank_entry,         ///< a list with something else than experts; `where` rank
  rank_width,         ///< more experts than a row holds; `where` rank, `also` experts
  rank_total,         ///< more experts than slots; `also` experts
  load,               ///< a load that is negative, not a number, or 2^47 and more; `also` the step
  total_load,         ///< loads of a problem that add up to 2^47 and more; `also` the step
  floor,              ///< an expert's least copies below 1
  cap_below_floor,    ///< an expert's most copies below its least
  floors,             ///< least copies that do not fit the slots
  floors_apart,       ///< least copies that a required rule about sharing leaves without room
  caps,               ///< most copies that do not fill the slots
  copies,             ///< an expert without a copy, or with too many
  copies_total,       ///< more copies than slots
  layer_slots,        ///< a layer with less than no slots; `where` is the layer
  no_rank,            ///< all ranks dead
  no_room_apart,      ///< copies that a required rule about sharing leaves without room
  group_places,       ///< nodes whose slots do not hold all groups; got: how many they hold
  speed,              ///< a rank's speed that is not positive, or absurd
  relative_speed,     ///< a living rank far slower than the fastest, whose speed is the `value`
  node_offsets,       ///< offsets that do not rise from 0 to the number of experts
  node_experts,       ///< an expert that is not listed exactly once
  unusable_slot,      ///< a filled slot of a dead rank or of none; `where` slot
  off_node,           ///< a replica that is not on the node that lists its expert; got: the node
  rank_offsets,       ///< offsets that do not rise from 0 to at most the number of slots
  capacity,           ///< a capacity that is negative or above the largest; `where` the largest
  option_count,       ///< a class without options, or with too many; `where` class, `also` the most
  weight,             ///< a negative weight; `where` class, `also` option
  tokens,             ///< loads of a layer that add up to more tokens than quotas hold
  share,              ///< a share that is negative, above its expert's load, or not a number; slot
  shares,             ///< shares that do not add up to the expert's load; got: the load
  value,              ///< a value that is not a number, or absurd; `where` class, `also` option
  cost,   ///< a latency that is negative, falls, or is absurd; `where` rank, `also` step
  counts  ///< tokens of all sources that are not the load that was planned; `where` expert
};

/// One problem's outcome. `where` is the expert or rank that a fault is about, -1 for none of them;
/// `also` a second index where a fault needs one.
struct problem_report {
  certificate result;
  fault what = fault::none;
  index_t where = -1;
  double got = 0;
  index_t also = -1;
};

/// Throws unless `got` is a number in [low, high].
inline void expect_number(std::string_view function, std::string_view argument, double low,
                          double high, double got) {
  if (!(got >= low && got <= high)) {
    fail(function, argument, text("a number from ", low, " to ", high), text(got));
  }
}

/// Of a living rank that is far slower than the fastest.
[[noreturn]] inline void fail_relative_speed(std::string_view function, std::string_view argument,
                                             double speed, index_t rank, double fastest) {
  fail(function, argument, "speeds of living ranks from 2^-16 of the fastest to the fastest",
       text(speed, " for rank ", rank, ", where the fastest has ", fastest));
}

/// `lists` is the argument that faults in lists of replicas are about.
[[noreturn]] inline void fail(std::string_view function, problem_report const& report,
                              index_t layer, std::string_view lists = {}) {
  std::string const in_layer = text(" in layer ", layer);
  std::string const got = text(report.got, in_layer);
  std::string const expert = text(", expert ", report.where);
  std::string const rank = text(", rank ", report.where);
  std::string const node = report.where < 0 ? "" : text(", node ", report.where);
  std::string const slot = text(", slot ", report.where);
  std::string const also = text(report.also);
  std::string const in_problem = text(" in problem ", layer);
  std::string const step = report.also < 0 ? "" : text(", step ", also);
  std::string const of_class = text(", class ", report.where);
  switch (report.what) {
    case fault::load:
      fail(function, "loads", "values from 0 to below 2^47", text(got, expert, step));
    case fault::total_load:
      fail(function, "loads", "a total below 2^47 per layer", text(got, step));
    case fault::tokens:
      fail(function, "loads", "at most 2^31 - 1 tokens per layer", got);
    case fault::share:
      fail(function, "split", "values from 0 to the load of the slot's expert, 0 where none is",
           text(got, slot));
    case fault::shares:
      fail(function, "split", text("shares that add up to the expert's load, ", report.got),
           text("others", in_layer, expert));
    case fault::floor:
      fail(function, "min_copies", "at least 1 for every expert", text(got, expert));
    case fault::cap_below_floor:
      fail(function, "max_copies", "at least min_copies for every expert", text(got, expert));
    case fault::floors:
      fail(function, "slots",
           text("at least ", report.got, " on living ranks, for all required copies"),
           text(also, in_layer, node));
    case fault::floors_apart:
      fail(function, "replica_anti_affinity",
           "slots for min_copies of every expert under the required rule", text(got, node));
    case fault::caps:
      fail(function, "max_copies", "a total of at least the slots", text(got, node));
    case fault::copies:
      fail(function, "replica_count", "1 to 32767 copies of every expert", text(got, expert));
    case fault::copies_total:
      fail(function, "replica_count", "a total of at most the slots", text(got, node));
    case fault::layer_slots:
      fail(function, "layer_slots", "at least 0 in every layer",
           text(report.got, " in layer ", report.where));
    case fault::no_rank:
      fail(function, "options.active", "at least 1 living rank", "0");
    case fault::no_room_apart:
      fail(function, "replica_anti_affinity", "slots for all copies under the required rule",
           text(report.got, " copies", in_layer, expert));
    case fault::group_places:
      fail(function, "groups", text("no more than the nodes' slots hold, ", report.got),
           text("more", in_layer));
    case fault::speed:
      fail(function, "speeds", "values from 2^-64 to 2^64", text(got, rank));
    case fault::relative_speed:
      fail_relative_speed(function, "speeds", report.got, report.where, report.result.value);
    case fault::node_offsets:
      fail(function, "node_offsets", "offsets that rise from 0 to the number of experts",
           text(got, node));
    case fault::node_experts:
      fail(function, "node_experts", "every expert once", text("another list", in_layer, expert));
    case fault::unusable_slot:
      fail(function, "physical_to_logical", "-1 in slots of dead ranks and of none",
           text(got, slot));
    case fault::off_node:
      fail(function, "physical_to_logical",
           text("replicas on the node that lists their expert, node ", report.got),
           text("another node", in_layer, expert));
    case fault::rank_offsets:
      fail(function, "rank_offsets", "offsets that rise from 0 to at most the number of slots",
           text(got, rank));
    case fault::expert_id:
      fail(function, "physical_to_logical", "-1 or an expert of the layer",
           text(got, report.also < 0 ? "" : text(", rank ", also), slot));
    case fault::stray_slot:
      fail(function, "physical_to_logical", "-1 in slots that belong to no rank", text(got, slot));
    case fault::missing_expert:
      fail(function, "physical_to_logical", "at least 1 slot of every expert", text(got, expert));
    case fault::miscounted:
      fail(function, "replica_count", text(also, " copies, as in physical_to_logical"),
           text(got, expert));
    case fault::shared_rank:
      fail(function, "physical_to_logical", "at most 1 replica of an expert on a rank",
           text(got, ", rank ", also, expert));
    case fault::shared_node:
      fail(function, "physical_to_logical", "at most 1 replica of an expert on a node",
           text(got, ", node ", also, expert));
    case fault::dead_rank:
      fail(function, "physical_to_logical", "-1 in the slots of a rank that is not active",
           text(got, ", rank ", also, slot));
    case fault::replica_offsets:
      fail(function, "replica_offsets", "offsets that rise from 0 to at most the number of slots",
           text(got, ", offset ", report.where));
    case fault::replica_gap:
      fail(function, lists, "-1 only behind all slots of an expert",
           text("slot ", report.got, " behind a -1", in_layer, expert));
    case fault::replica_slot:
      fail(function, lists, "slots from 0 to below the number of slots", text(got, expert));
    case fault::replica_twice:
      fail(function, lists, "every slot once",
           text("slot ", report.got, " again", in_layer, expert));
    case fault::replica_elsewhere:
      fail(function, lists, "slots that hold the expert",
           text("slot ", also, ", which holds ", got, expert));
    case fault::replica_unlisted:
      fail(function, lists, "every slot that holds the expert", text("no slot ", got, expert));
    case fault::replica_width:
      fail(function, "logical_to_physical", text("room for ", also, " copies"), text(got, expert));
    case fault::rank_gap:
      fail(function, "rank_experts", "-1 only behind all experts of a rank",
           text("expert ", report.got, " behind a -1", in_layer, rank));
    case fault::rank_entry:
      fail(function, "rank_experts", "-1 or an expert", text(got, rank));
    case fault::rank_width:
      fail(function, "rank_experts", text("room for ", also, " experts"), text(got, rank));
    case fault::rank_total:
      fail(function, "physical_to_logical", text("at least ", also, " slots"), got);
    case fault::capacity:
      fail(function, "options.capacities",
           text("values from 0 to options.capacity, ", report.where), text(report.got, in_problem));
    case fault::option_count:
      fail(function, "options.option_count", text("1 to ", also, " options of every class"),
           text(report.got, in_problem, of_class));
    case fault::weight:
      fail(function, "weights", "at least 0",
           text(report.got, in_problem, of_class, ", option ", also));
    case fault::value:
      fail(function, "values", "numbers below 2^960",
           text(report.got, in_problem, of_class, ", option ", also));
    case fault::cost:
      fail(function, "cost", "numbers from 0 to below 2^960 that do not fall as tokens rise",
           text(got, rank, step));
    case fault::counts:
      fail(function, "counts", text("the planned load, ", also, " tokens"),
           text(report.got, expert));
    case fault::none:
      break;
  }
  fail(function, "problem", "a known fault", got);
}

/// Waits for the reports of a call's steps: one per layer, step after step. Throws invalid_input
/// for the first fault, else returns the certificates in order. `lists` as for `fail`.
template <class Context>
std::vector<certificate> collect(std::string_view function,
                                 buffer<problem_report, Context> const& reports, index_t layers,
                                 std::string_view lists = {}) {
  std::vector<certificate> certificates;
  certificates.reserve(static_cast<std::size_t>(reports.size()));
  for (problem_report const& report : reports.read()) {
    if (report.what != fault::none) {
      fail(function, report, static_cast<index_t>(certificates.size()) % layers, lists);
    }
    certificates.push_back(report.result);
  }
  return certificates;
}

/// The same for a call of one step.
template <class Context>
std::vector<certificate> collect(std::string_view function,
                                 buffer<problem_report, Context> const& reports,
                                 std::string_view lists = {}) {
  return collect(function, reports, reports.size(), lists);
}

}}}  // namespace plimsoll::detail
