// SPDX-License-Identifier: Apache-2.0
/// @file
/// Exceptions, and faults that calls report without throwing. Every message names the function, the
/// argument, the expected value and the value that was passed.
#pragma once

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include <plimsoll/config.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Thrown for a shape, an option or a value that the function does not accept.
struct invalid_input : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

/// Thrown if a CUDA call or launch fails; `code()` is its `cudaError_t`.
class cuda_error : public std::runtime_error {
 public:
  cuda_error(int code, std::string const& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// Kind of a refused value. The comments say what the members of `fault` hold; where they do not,
/// `where` is an expert, a rank or a node, and `got` the value.
enum class fault_kind : std::int32_t {
  none,
  expert_id,          ///< a slot with neither -1 nor an expert; `where` slot, `also` rank or -1
  stray_slot,         ///< a filled slot that belongs to no rank; `where` slot
  missing_expert,     ///< an expert that is on no live rank
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
  source_rank,        ///< a rank that the placement does not have; `where` the new rank
  source_twice,       ///< a rank that two new ranks were; `where` that rank
  rank_room,        ///< an expert that the new rank has no slot for; `where` slot, `also` new rank
  load,             ///< a load that is negative, not a number, or at least 2^47; `also` step
  total_load,       ///< loads of a problem with a total of at least 2^47; `also` step
  floor,            ///< an expert with min_copies below 1
  cap_below_floor,  ///< an expert with max_copies below min_copies
  floors,           ///< min_copies that exceed the slots
  floors_apart,     ///< min_copies that do not fit under a required anti-affinity
  caps,             ///< max_copies that cannot fill the slots
  copies,           ///< an expert with no replica, or with too many
  copies_total,     ///< more replicas than slots
  layer_slots,      ///< a negative number of slots; `where` layer
  no_rank,          ///< all ranks are dead
  no_room_apart,    ///< replicas that do not fit under a required anti-affinity
  group_places,     ///< nodes whose slots cannot hold all groups; `got` groups that fit
  speed,            ///< a speed of a rank that is not positive or out of range
  relative_speed,   ///< a live rank far slower than the fastest; `also` the fastest
  node_offsets,     ///< offsets that do not rise from 0 to the number of experts
  node_experts,     ///< an expert that is not listed exactly once
  unusable_slot,    ///< a filled slot of a dead rank or of no rank; `where` slot
  off_node,         ///< a replica on another node than the one that lists its expert; `got` node
  rank_offsets,     ///< offsets that do not rise from 0 to at most the slots; `also` that before
  other_offsets,    ///< offsets of two placements that differ; `where` rank, `also` the other
  capacity,         ///< a capacity that is negative or above the largest; `where` the largest
  option_count,     ///< a class with no option, or with too many; `where` class, `also` limit
  weight,           ///< a negative weight; `where` class, `also` option
  tokens,           ///< loads of a layer with more tokens than quotas can hold
  share,            ///< a share that is negative, above the load, or NaN; `where` slot
  shares,           ///< shares that do not add up to the load of the expert; `got` load
  value,            ///< a value that is NaN or out of range; `where` class, `also` option
  cost,    ///< a latency that is negative, falls, or is out of range; `where` rank, `also` step
  counts,  ///< token counts of all sources that differ from the planned load; `where` expert
  /// A source for which nothing was planned; `where` the planned source or -1, `got` source.
  source,
  home_rank,      ///< a home that is no rank; `where` expert, `also` the last rank
  empty_rank,     ///< a live rank without a slot; `where` rank
  unequal_ranks,  ///< ranks that must be live and equally fast; `got` live ranks, `also` ranks
  base_load,      ///< a base load that is negative, not a number, or at least 2^47; `where` rank
  dead_load,      ///< a base load of a dead rank; `where` rank
  unplaced_load,  ///< load of an expert without a slot of a live rank; `where` expert
  /// A routed load that is no number of tokens; `where` rank, `also` 0 or, of tokens at home, 1.
  routed_load,
  dead_routed_load  ///< a routed load of a dead rank; numbers as of `routed_load`
};

/// The placement that a call with two of them refused.
enum class fault_side : std::int32_t { from, to };

/// A value that a call refused after its checks of shapes and options, while it ran; calls that
/// cannot throw at that time report it.
struct fault {
  fault_kind kind = fault_kind::none;
  fault_side side = fault_side::from;  ///< of a call that takes two placements
  std::int64_t where = -1;             ///< index that the kind names, or -1
  double got = 0;                      ///< the refused value
  std::int64_t also = -1;              ///< second index or number that the kind names, or -1

  /// Returns true if a value was refused.
  PLIMSOLL_HD constexpr explicit operator bool() const { return kind != fault_kind::none; }
};

/// Returns what a message says about a fault after the name of the function, such as
/// "loads: expected values from 0 to below 2^47, got -250, expert 2"; "no fault" for one of kind
/// `none`. A message may add the layer, and the struct that the argument is a member of.
[[nodiscard]] inline std::string describe(fault const& refused);

namespace detail {

/// Concatenates the parts of a message. Floating-point numbers are printed with the fewest digits
/// that identify them, and whole numbers below 10^15 without an exponent.
template <class... Parts>
[[nodiscard]] std::string text(Parts const&... parts) {
  std::string result;
  auto const append = [&result]<class Part>(Part const& part) {
    if constexpr (std::is_convertible_v<Part const&, std::string_view>) {
      result.append(part);
    } else if constexpr (std::is_convertible_v<Part const&, std::string>) {
      result.append(std::string(part));
    } else if constexpr (std::is_floating_point_v<Part>) {
      if (part != part) {
        result.append("NaN");  // to_chars would print its sign, which differs between machines
      } else if (part > -1e15 && part < 1e15 &&
                 static_cast<Part>(static_cast<long long>(part)) == part) {
        result.append(std::to_string(static_cast<long long>(part)));
      } else {
        char digits[64];  // the shortest form of a double has at most 24 characters
        auto const end = std::to_chars(digits, digits + sizeof(digits), part).ptr;
        result.append(digits, end);
      }
    } else {
      result.append(std::to_string(part));
    }
  };
  (append(parts), ...);
  return result;
}

/// Name of an argument or of a member of it, such as "options" + ".on" + ".ranks". It is put
/// together when a message is made, so that a check that finds nothing allocates nothing.
class argument_name {
 public:
  constexpr argument_name(char const* name) : parts_{name} {}
  constexpr argument_name(std::string_view name) : parts_{name} {}
  constexpr argument_name(std::string const& name) : parts_{name} {}

  friend constexpr argument_name operator+(argument_name name, std::string_view member) {
    (name.parts_[1].empty() ? name.parts_[1] : name.parts_[2]) = member;
    return name;
  }
  operator std::string() const {
    return std::string(parts_[0]).append(parts_[1]).append(parts_[2]);
  }

 private:
  std::string_view parts_[3];
};

[[noreturn]] inline void fail(std::string_view function, argument_name const& argument,
                              std::string_view expected, std::string_view got) {
  throw invalid_input(text(function, ": ", argument, ": expected ", expected, ", got ", got));
}

/// An option as a primitive names it, and as its caller does.
struct renamed_option {
  std::string_view from;
  std::string_view to;
};

/// Returns f(). What f refuses in the name of `primitive` is thrown in the name of the `system`
/// that uses it, with options renamed by the first that fits.
template <class F>
decltype(auto) on_behalf_of(std::string_view system, std::string_view primitive,
                            std::initializer_list<renamed_option> options, F const& f) {
  try {
    return f();
  } catch (invalid_input const& refused) {
    std::string_view rest = refused.what();
    std::string message;
    if (rest.starts_with(primitive)) {
      message = system;
      rest.remove_prefix(primitive.size());
    }
    while (!rest.empty()) {
      renamed_option next{rest.substr(0, 1), rest.substr(0, 1)};
      for (renamed_option const& one : options) {
        if (rest.starts_with(one.from)) {
          next = one;
          break;
        }
      }
      message.append(next.to);
      rest.remove_prefix(next.from.size());
    }
    throw invalid_input(message);
  }
}

/// Throws unless `got` is in [low, high]; `what` names the quantity, such as "ranks".
inline void expect_between(std::string_view function, argument_name const& argument, long long low,
                           long long high, long long got, std::string_view what) {
  if (got < low || got > high) {
    fail(function, argument, text(low, " to ", high, " ", what), text(got));
  }
}

/// Throws unless `got` is a number in [low, high].
inline void expect_number(std::string_view function, argument_name const& argument, double low,
                          double high, double got) {
  if (!(got >= low && got <= high)) {
    fail(function, argument, text("a number from ", low, " to ", high), text(got));
  }
}

/// Throws unless `got` is an enumerator of its type, the last of which is `last`.
template <class Enumeration>
void expect_enumerator(std::string_view function, argument_name const& argument, Enumeration last,
                       Enumeration got) {
  expect_between(function, argument, 0, static_cast<long long>(last), static_cast<long long>(got),
                 "(an enumerator)");
}

/// Throws unless `got` equals `expected`; `what` names the quantity, such as "layers".
inline void expect_extent(std::string_view function, argument_name const& argument,
                          long long expected, long long got, std::string_view what) {
  if (got != expected) {
    fail(function, argument, text(expected, " ", what), text(got));
  }
}

}  // namespace detail
}}  // namespace plimsoll

#include <plimsoll/detail/fault_words.hpp>
