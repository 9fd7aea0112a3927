// SPDX-License-Identifier: Apache-2.0
/// @file
/// The words of all kinds of faults: what was expected of which argument, and what came. Messages
/// of exceptions and `describe` take them from here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

namespace detail {

/// Words of a kind of fault. In `expected` and `got`, # is the refused value, @ is `where`, & is
/// `also`, % is the layer, as " in layer 3", ! is the layer if each has its own ranks, ~ is the
/// problem, as " in problem 3". The part from a comma to the next is left out if a number in it is
/// negative.
struct fault_words {
  fault_kind kind;
  char const* argument;
  char const* expected;
  char const* got;
};

/// Returns the words of `kind`; those of `none` if it is no kind.
inline fault_words const& words_of(fault_kind kind) {
  using enum fault_kind;
  constexpr char const* map = "physical_to_logical";
  constexpr char const* lists = "replica_slots";
  constexpr char const* load_range = "values from 0 to below 2^47";
  constexpr char const* rising = "offsets that rise from 0 to at most the number of slots";
  constexpr char const* no_usable_rank = "-1 in slots of dead ranks and of no rank";
  static constexpr fault_words all[] = {
      {none, "kind", "a kind of fault", "#"},
      {expert_id, map, "-1 or an expert of the layer", "#%, rank &, slot @"},
      {stray_slot, map, "-1 in slots that belong to no rank", "#%, slot @"},
      {missing_expert, map, "every expert on a live rank", "none%, expert @"},
      {miscounted, "replica_count", "& copies, as in physical_to_logical", "#%, expert @"},
      {shared_rank, map, "at most 1 replica of an expert on a rank", "#%, rank &, expert @"},
      {shared_node, map, "at most 1 replica of an expert on a node", "#%, node &, expert @"},
      {dead_rank, map, "-1 in the slots of a rank that is not active", "#%, rank &, slot @"},
      {replica_offsets, "replica_offsets", rising, "#%, offset @"},
      {replica_gap, lists, "-1 only behind all slots of an expert",
       "slot # behind a -1%, expert @"},
      {replica_slot, lists, "slots from 0 to below the number of slots", "#%, expert @"},
      {replica_twice, lists, "every slot once", "slot # again%, expert @"},
      {replica_elsewhere, lists, "slots that hold the expert", "slot &, which holds #%, expert @"},
      {replica_unlisted, lists, "every slot that holds the expert", "no slot #%, expert @"},
      {replica_width, "logical_to_physical", "at least & columns", "#%, expert @"},
      {rank_gap, "rank_experts", "-1 only behind all experts of a rank",
       "expert # behind a -1%, rank @"},
      {rank_entry, "rank_experts", "-1 or an expert", "#%, rank @"},
      {rank_width, "rank_experts", "at least & columns", "#%, rank @"},
      {rank_total, map, "at least & slots", "#%"},
      {source_rank, "source_ranks", "-1 or a rank below the & of from", "# for rank @"},
      {source_twice, "source_ranks", "every rank of from at most once", "rank @ # times"},
      {rank_room, "rank_offsets", "a slot of rank & for every expert that it holds",
       "none for expert #%, slot @"},
      {load, "loads", load_range, "#%, expert @, step &"},
      {total_load, "loads", "a total below 2^47 per layer", "#%, step &"},
      {floor, "min_copies", "at least 1 for every expert", "#%, expert @"},
      {cap_below_floor, "max_copies", "at least min_copies for every expert", "#%, expert @"},
      {floors, "slots", "at least # on live ranks, for all required copies", "&%, node @"},
      {floors_apart, "replica_anti_affinity",
       "slots for min_copies of every expert under the required rule", "#%, node @"},
      {caps, "max_copies", "a total of at least the slots", "#%, node @"},
      {copies, "replica_count", "1 to 32767 copies of every expert on live ranks", "#%, expert @"},
      {copies_total, "replica_count", "a total of at most the slots", "#%, node @"},
      {layer_slots, "layer_slots", "at least 0 in every layer", "# in layer @"},
      {no_rank, "on.active", "at least 1 live rank", "0!"},
      {no_room_apart, "replica_anti_affinity", "slots for all copies under the required rule",
       "# copies%, expert @"},
      {group_places, "groups", "no more than the nodes' slots hold, #", "more%"},
      {speed, "on.speeds", "values from 2^-64 to 2^64", "#%, rank @"},
      {relative_speed, "on.speeds", "speeds of live ranks from 2^-16 of the fastest to the fastest",
       "# for rank @!, where rank & is the fastest"},
      {node_offsets, "node_offsets", "offsets that rise from 0 to the number of experts",
       "#%, node @"},
      {node_experts, "node_experts", "every expert once", "another list%, expert @"},
      {unusable_slot, map, no_usable_rank, "#%, slot @"},
      {off_node, map, "replicas on the node that lists their expert, node #",
       "another node%, expert @"},
      {rank_offsets, "rank_offsets", rising, "#%, after &, rank @"},
      {other_offsets, "to.rank_offsets", "the slots of from, which end at &", "#%, rank @"},
      {capacity, "options.capacities", "values from 0 to options.capacity, @", "#~"},
      {option_count, "options.option_count", "1 to & options of every class", "#~, class @"},
      {weight, "weights", "at least 0", "#~, class @, option &"},
      {tokens, "loads", "at most 2^31 - 1 tokens", "#%"},
      {share, "split", "values from 0 to the load of the slot's expert, 0 in empty slots",
       "#%, slot @"},
      {shares, "split", "shares that add up to the expert's load, #", "others%, expert @"},
      {value, "values", "numbers below 2^960", "#~, class @, option &"},
      {cost, "cost", "numbers from 0 to below 2^960 that do not fall as tokens rise",
       "#%, rank @, step &"},
      {counts, "counts", "the planned load, & tokens", "#%, expert @"},
      {source, "source", "the source for which plan was called last, @", "#"},
      {home_rank, "home_rank", "ranks from 0 to &", "#, expert @"},
      {empty_rank, "rank_offsets", "at least 1 slot for every live rank", "0, rank @"},
      {unequal_ranks, "options.arithmetic", "exact unless all ranks are live and equally fast",
       "sglang with # of & ranks live"},
      {base_load, "inputs.base_load", load_range, "#%, rank @"},
      {dead_load, "inputs.base_load", "no load on dead ranks", "#%, rank @"},
      {unplaced_load, "loads", "load only on experts with a slot of a live rank", "#%, expert @"},
      {routed_load, "loads", "values from 0 to 2^31 - 1", "# in row &, rank @"},
      {dead_routed_load, "loads", "0 of a rank that is not active", "# in row &, rank @"},
  };
  for (fault_words const& one : all) {
    if (one.kind == kind) {
      return one;
    }
  }
  return all[0];
}

/// Name that a call has for an argument, or for what its name begins with, such as "on.".
struct renamed_argument {
  std::string_view name;
  std::string_view as;
  std::string_view as_of_to = {};  ///< of `fault_side::to`, if that differs
};
/// Names of arguments in the messages of a call. The first that fits is taken.
struct fault_names {
  renamed_argument list[4];
  bool ranks_of_layer = false;  ///< whether each layer has its own ranks

  [[nodiscard]] std::string of(std::string_view argument, fault_side side) const {
    for (renamed_argument const& one : list) {
      if (!one.as.empty() && argument.starts_with(one.name)) {
        bool const is_of_to = side == fault_side::to && !one.as_of_to.empty();
        return text(is_of_to ? one.as_of_to : one.as, argument.substr(one.name.size()));
      }
    }
    return std::string(argument);
  }
};

/// A fault with the number of its problem.
struct numbered_fault {
  fault found;
  index_t layer = -1;  ///< or another number of the problem, or -1

  /// Returns `words` with numbers in their places.
  [[nodiscard]] std::string put_in(std::string_view words, fault_names const& names) const {
    std::string result;
    std::size_t comma = std::string::npos;
    bool is_known = true;
    auto const end_part = [&] {
      if (!is_known && comma != std::string::npos) {
        result.resize(comma);
      }
      comma = result.size();
      is_known = true;
    };
    auto const put = [&](auto number) {
      result += text(number);
      is_known = is_known && number >= 0;
    };
    for (char const c : words) {
      switch (c) {
        case ',':
          end_part();
          result += c;
          break;
        case '#':
          result += text(found.got);
          break;
        case '@':
          put(found.where);
          break;
        case '&':
          put(found.also);
          break;
        case '%':
        case '!':
          result +=
              layer < 0 || (c == '!' && !names.ranks_of_layer) ? "" : text(" in layer ", layer);
          break;
        case '~':
          result += layer < 0 ? "" : text(" in problem ", layer);
          break;
        default:
          result += c;
      }
    }
    end_part();
    return result;
  }
};

/// Returns what a message says about a fault after the name of the function.
inline std::string describe(numbered_fault of, fault_names const& names = {}) {
  fault_words const& words = words_of(of.found.kind);
  if (words.kind != of.found.kind) {
    of.found.got = static_cast<double>(of.found.kind);
  }
  return text(names.of(words.argument, of.found.side), ": expected ",
              of.put_in(words.expected, names), ", got ", of.put_in(words.got, names));
}

}  // namespace detail

inline std::string describe(fault const& refused) {
  return refused ? detail::describe({refused}) : "no fault";
}

}}  // namespace plimsoll
