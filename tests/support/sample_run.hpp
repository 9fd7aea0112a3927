// SPDX-License-Identifier: Apache-2.0
// What a sample runs in. A sample is the smallest valid call of each function of a public header,
// with its result checked, and stands in tests/samples/<header>.hpp:
//
//     template <class Run>
//     void sample_sum(Run& run) {
//       auto const loads = run.array(ints{3, 5}, 1, 2);
//       auto const sums = run.array(ints{0}, 1);
//       run.call("sum", [&] { plimsoll::sum(run.policy, run("loads", loads), run("out", sums)); });
//       run.expect(sums, {8});
//     }
//     PLIMSOLL_SAMPLE(sum);
//
// Names are those of the arguments in error messages. `call` makes the call once with its values,
// and before that as often, and in such a way, as the check demands that runs the sample: with a
// null pointer in each view, with ranks that do not exist, with memory that throws, and so on. So
// every check tries every call, and every view of it, without a list. samples.test.cpp has the
// checks; device/all_samples.cu compiles the calls for devices.
#pragma once

#include <plimsoll/config.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#ifndef PLIMSOLL_SAMPLE
/// Registers `sample_<name>`. A program that runs samples defines it before it includes them.
#define PLIMSOLL_SAMPLE(name) static_assert(true)
#endif

namespace plimsoll_test {

using plimsoll::index_t;
using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;
using reals = std::vector<double>;

/// How a call treats memory and waiting.
enum class call_kind {
  free,     ///< free function that may return host memory
  of_step,  ///< free function of every step: takes memory from the policy only
  prepare,  ///< constructor: waits for all that it enqueued
  work,     ///< work call of a prepared object: allocates nothing and does not wait
};

/// How a call reads the ranks of its options.
struct rank_rules {
  bool of_placement = false;        ///< the placement gives the number of ranks
  char const* no_speeds = nullptr;  ///< why speeds are refused
  bool may_be_none = false;         ///< 0 ranks: not known yet
};

/// Name of an argument as messages give it: "loads", or "placement", "replica_count".
struct argument_name {
  char const* of;
  char const* member = nullptr;

  argument_name(char const* name) : of(name) {}
  argument_name(char const* whole, char const* part) : of(whole), member(part) {}
};

/// Array in the policy's memory, between guards.
template <class T, class P, int Rank>
class run_array {
 public:
  template <std::integral... Extents>
  run_array(P const& policy, std::vector<T> const& values, Extents... extents)
      : memory_(plimsoll::detail::resolve(policy), guarded(values)),
        view_(memory_.data() + guards, extents...),
        original_(values) {}

  [[nodiscard]] plimsoll::array_ref<T, Rank> view() const { return view_; }
  [[nodiscard]] std::vector<T> const& original() const { return original_; }
  void assign(std::vector<T> const& values) const { memory_.assign(guarded(values).data()); }
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> const all = memory_.read();
    return {all.begin() + guards, all.end() - guards};
  }
  [[nodiscard]] bool guards_hold() const {
    std::vector<T> const all = memory_.read();
    std::vector<T> const fresh = guarded(original_);
    std::size_t const bytes = guards * sizeof(T);
    return std::memcmp(all.data(), fresh.data(), bytes) == 0 &&
           std::memcmp(all.data() + all.size() - guards, fresh.data(), bytes) == 0;
  }

 private:
  static constexpr std::ptrdiff_t guards = 8;

  static std::vector<T> guarded(std::vector<T> const& values) {
    T guard{};
    std::memset(static_cast<void*>(&guard), 0x5A, sizeof(T));
    std::vector<T> all(guards, guard);
    all.insert(all.end(), values.begin(), values.end());
    all.insert(all.end(), guards, guard);
    return all;
  }

  plimsoll::detail::buffer<T, plimsoll::detail::context_of<P>> memory_;
  plimsoll::array_ref<T, Rank> view_;
  std::vector<T> original_;
};

/// Makes every call once: for programs that only compile samples.
struct plain_calls {
  template <class Call>
  auto make(char const*, call_kind, Call const& call) {
    return call();
  }
  template <class T, int Rank>
  plimsoll::array_ref<T, Rank> changed(argument_name const&,
                                       plimsoll::array_ref<T, Rank> const& view) {
    return view;
  }
  template <class Array>
  void may_stray(Array const&) {}
  plimsoll::rank_set changed(char const*, plimsoll::rank_set const& on, rank_rules const&) {
    return on;
  }
  template <class Enumeration>
  Enumeration changed(char const*, Enumeration value) {
    return value;
  }
  template <class Got, class Expected>
  void compare(Got const&, Expected const&) {}
  void require(bool, char const*) {}
};

/// One run of a sample.
template <class P, class Checks = plain_calls>
class sample_run {
 public:
  explicit sample_run(P const& where, Checks& checks) : policy(where), checks_(checks) {}

  P const policy;

  /// Makes an array in the policy's memory: `run.array(ints{3, 5}, 1, 2)`.
  template <class T, std::integral... Extents>
  run_array<T, P, sizeof...(Extents)> array(std::vector<T> const& values, Extents... extents) {
    return {policy, values, extents...};
  }

  /// Return the view of an argument, or of what an object returns, under the name that messages
  /// give it. Each is asked for inside the call. `in` is for inputs that a call instantiates its
  /// bodies for, `ids` for arrays whose values are indices.
  template <class T, class Q, int Rank>
  plimsoll::array_ref<T, Rank> operator()(argument_name const& name,
                                          run_array<T, Q, Rank> const& array) {
    return checks_.changed(name, array.view());
  }
  template <class T, class Q, int Rank>
  plimsoll::array_ref<T const, Rank> in(argument_name const& name,
                                        run_array<T, Q, Rank> const& array) {
    return (*this)(name, array);
  }
  template <class T, int Rank>
  plimsoll::array_ref<T, Rank> operator()(argument_name const& name,
                                          plimsoll::array_ref<T, Rank> const& view) {
    return checks_.changed(name, view);
  }
  template <class T, class Q, int Rank>
  plimsoll::array_ref<T, Rank> ids(argument_name const& name, run_array<T, Q, Rank> const& array) {
    checks_.may_stray(array);
    return checks_.changed(name, array.view());
  }
  /// Returns the ranks of a call's options, named as in messages: "options.on".
  plimsoll::rank_set ranks(char const* name, index_t count, rank_rules const& rules = {}) {
    return checks_.changed(name, plimsoll::rank_set{.ranks = count}, rules);
  }

  /// Returns an enumerator of a call's options, named as in messages: "options.split".
  template <class Enumeration>
  Enumeration option(char const* name, Enumeration value) {
    return checks_.changed(name, value);
  }

  template <class Call>
  auto call(char const* function, Call const& call) {
    return checks_.make(function, call_kind::free, call);
  }
  template <class Call>
  auto of_step(char const* function, Call const& call) {
    return checks_.make(function, call_kind::of_step, call);
  }
  template <class Call>
  auto prepare(char const* function, Call const& call) {
    return checks_.make(function, call_kind::prepare, call);
  }
  template <class Call>
  auto work(char const* function, Call const& call) {
    return checks_.make(function, call_kind::work, call);
  }

  /// Writes to memory that an object lends, as the caller of a step does.
  template <class T, int Rank>
  void write(plimsoll::array_ref<T, Rank> const& view, std::vector<T> const& values) {
    plimsoll::detail::memory_of<plimsoll::detail::context_of<P>>::from_host(
        plimsoll::detail::resolve(policy), values.data(), view.data, values.size() * sizeof(T));
  }

  /// Check results.
  template <class T, class Q, int Rank>
  void expect(run_array<T, Q, Rank> const& array, std::vector<T> const& values) {
    checks_.require(array.guards_hold(), "writes outside an array");
    checks_.compare(array.values(), values);
  }
  template <class T, int Rank>
  void expect(plimsoll::array_ref<T, Rank> const& view,
              std::vector<std::remove_const_t<T>> const& values) {
    std::vector<std::remove_const_t<T>> copy(values.size());
    plimsoll::detail::memory_of<plimsoll::detail::context_of<P>>::to_host(
        plimsoll::detail::resolve(policy), view.data, copy.data(), values.size() * sizeof(T));
    checks_.compare(copy, values);
  }
  template <class T>
  void expect(T const& got, std::type_identity_t<T> const& expected) {
    checks_.compare(got, expected);
  }

 private:
  Checks& checks_;
};

/// Arrays of a placement whose elements a call reads. The shapes of the others still count.
enum class placement_parts { all, map_and_offsets, map, offsets };

/// Placement of experts 0 and 1 in four slots of two ranks, both on each rank.
template <class Run>
class small_placement {
  Run& run_;

 public:
  explicit small_placement(Run& run)
      : run_(run),
        map(run.array(ints{0, 1, 0, 1}, 1, 4)),
        copies(run.array(ints{2, 2}, 1, 2)),
        offsets(run.array(ints{0, 2, 4}, 1, 3)) {}

  /// Returns the placement as the argument of that name.
  plimsoll::placement_ref operator()(char const* name = "placement",
                                     placement_parts read = placement_parts::all) {
    plimsoll::placement_ref result{.physical_to_logical = map.view(),
                                   .replica_count = copies.view(),
                                   .ranks = 2,
                                   .rank_offsets = offsets.view()};
    if (read != placement_parts::offsets) {
      result.physical_to_logical = run_.ids({name, "physical_to_logical"}, map);
    }
    if (read == placement_parts::all) {
      result.replica_count = run_({name, "replica_count"}, copies);
    }
    if (read != placement_parts::map) {
      result.rank_offsets = run_({name, "rank_offsets"}, offsets);
    }
    return result;
  }

  decltype(std::declval<Run&>().array(ints{}, 1, 4)) map, copies, offsets;
};

}  // namespace plimsoll_test
