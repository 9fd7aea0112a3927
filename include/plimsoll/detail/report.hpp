// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reports of bodies, one per problem, and their conversion to certificates or an exception. Bodies
/// cannot throw and may run on a device, so a report contains a fault in addition to the
/// certificate.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Invalid input that a body detects. The comments say what `where`, `also` and `got` of the report
/// hold.
enum class fault : std::int32_t {
  none,
  expert_id,          ///< a slot with neither -1 nor an expert; `where` slot, `also` rank or -1
  stray_slot,         ///< a filled slot that belongs to no rank; `where` slot
  missing_expert,     ///< an expert without a slot
  miscounted,         ///< a replica count that differs from the map; `also` count in the map
  shared_rank,        ///< two replicas of an expert on one rank; `where` expert, `also` rank
  shared_node,        ///< two replicas of an expert on one node; `where` expert, `also` node
  dead_rank,          ///< an expert on a rank that is not active; `where` slot, `also` rank
  replica_offsets,    ///< offsets that do not rise from 0 to at most the slots; `where` index
  replica_gap,        ///< a slot after a -1; `where` expert
  replica_slot,       ///< a slot that does not exist; `where` expert
  replica_twice,      ///< a slot that is listed twice; `where` expert
  replica_elsewhere,  ///< a listed slot that holds another expert; `where` expert, `also` slot
  replica_unlisted,   ///< a slot of the expert that is not listed; `where` expert
  replica_width,      ///< more replicas than a row has columns; `where` expert, `also` replicas
  rank_gap,           ///< an expert after a -1; `where` rank
  rank_entry,         ///< a list element that is neither -1 nor an expert; `where` rank
  rank_width,         ///< more experts than a row has columns; `where` rank, `also` experts
  rank_total,         ///< more experts than slots; `also` experts
  load,               ///< a load that is negative, not a number, or at least 2^47; `also` step
  total_load,         ///< loads of a problem with a total of at least 2^47; `also` step
  floor,              ///< an expert with min_copies below 1
  cap_below_floor,    ///< an expert with max_copies below min_copies
  floors,             ///< min_copies that exceed the slots
  floors_apart,       ///< min_copies that do not fit under a required anti-affinity
  caps,               ///< max_copies that cannot fill the slots
  copies,             ///< an expert with no replica, or with too many
  copies_total,       ///< more replicas than slots
  layer_slots,        ///< a negative number of slots; `where` layer
  no_rank,            ///< all ranks are dead
  no_room_apart,      ///< replicas that do not fit under a required anti-affinity
  group_places,       ///< nodes whose slots cannot hold all groups; `got` groups that fit
  speed,              ///< a speed of a rank that is not positive or out of range
  relative_speed,     ///< a live rank far slower than the fastest, whose speed is `result.value`
  node_offsets,       ///< offsets that do not rise from 0 to the number of experts
  node_experts,       ///< an expert that is not listed exactly once
  unusable_slot,      ///< a filled slot of a dead rank or of no rank; `where` slot
  off_node,           ///< a replica on another node than the one that lists its expert; `got` node
  rank_offsets,       ///< offsets that do not rise from 0 to at most the number of slots
  capacity,           ///< a capacity that is negative or above the largest; `where` the largest
  option_count,       ///< a class with no option, or with too many; `where` class, `also` limit
  weight,             ///< a negative weight; `where` class, `also` option
  tokens,             ///< loads of a layer with more tokens than quotas can hold
  share,              ///< a share that is negative, above the load, or NaN; `where` slot
  shares,             ///< shares that do not add up to the load of the expert; `got` load
  value,              ///< a value that is NaN or out of range; `where` class, `also` option
  cost,   ///< a latency that is negative, falls, or is out of range; `where` rank, `also` step
  counts  ///< token counts of all sources that differ from the planned load; `where` expert
};

/// Outcome of one problem. `where` is the index that the fault names, such as an expert or a rank,
/// or -1; `also` is a second index for faults that need one.
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

/// Throws for a live rank that is far slower than the fastest rank.
[[noreturn]] inline void fail_relative_speed(std::string_view function, std::string_view argument,
                                             double speed, index_t rank, double fastest) {
  fail(function, argument, "speeds of live ranks from 2^-16 of the fastest to the fastest",
       text(speed, " for rank ", rank, ", where the fastest has ", fastest));
}

/// Throws the message of a report. `lists` is the name of the argument with lists of replicas.
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
      fail(function, "split", "values from 0 to the load of the slot's expert, 0 in empty slots",
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
           text("at least ", report.got, " on live ranks, for all required copies"),
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
      fail(function, "options.active", "at least 1 live rank", "0");
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
      fail(function, "physical_to_logical", "-1 in slots of dead ranks and of no rank",
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
      fail(function, "logical_to_physical", text("at least ", also, " columns"), text(got, expert));
    case fault::rank_gap:
      fail(function, "rank_experts", "-1 only behind all experts of a rank",
           text("expert ", report.got, " behind a -1", in_layer, rank));
    case fault::rank_entry:
      fail(function, "rank_experts", "-1 or an expert", text(got, rank));
    case fault::rank_width:
      fail(function, "rank_experts", text("at least ", also, " columns"), text(got, rank));
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

/// Waits for the reports of all steps of a call, each with one report per layer. Throws
/// invalid_input for the first fault, else returns the certificates in order. `lists` as for
/// `fail`.
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

/// Waits for the reports of a call with one step.
template <class Context>
std::vector<certificate> collect(std::string_view function,
                                 buffer<problem_report, Context> const& reports,
                                 std::string_view lists = {}) {
  return collect(function, reports, reports.size(), lists);
}

}}}  // namespace plimsoll::detail
