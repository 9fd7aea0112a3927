// SPDX-License-Identifier: Apache-2.0
// Policy that runs every body on the host in the form that a device runs, and counts the operations
// of a device: launches, copies, team calls in series, work of a single thread.
// Include this header before the primitives, so that their calls of `launch` find the overloads
// below.
#pragma once

#include <cxxabi.h>
#include <plimsoll/detail/common/score_order.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/sort.hpp>
#include <plimsoll/detail/phases.hpp>
#include <plimsoll/detail/team.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "steps.hpp"

namespace device_costs {

using plimsoll::index_t;

/// Cost of a launch. Calls and queue steps are those of the problem with the largest sum.
struct launch_cost {
  std::string body;
  std::string team;
  index_t problems = 0;
  index_t calls = 0;
  index_t queue_steps = 0;
  index_t steps = 1;  ///< largest number of steps of one function
  std::string steps_in = "-";
  std::size_t scratch = 0;  ///< bytes per problem

  [[nodiscard]] index_t in_series() const { return calls + queue_steps; }
  bool operator==(launch_cost const&) const = default;

  /// Adds the next phase of the same launch.
  void append(launch_cost const& next) {
    problems = std::max(problems, next.problems);
    calls += next.calls;
    queue_steps += next.queue_steps;
    if (next.steps > steps) {
      steps = next.steps;
      steps_in = next.steps_in;
    }
    scratch = std::max(scratch, next.scratch);
  }
};

/// Records the cost of all work since the last `clear`.
struct recorder {
  std::vector<launch_cost> launches;
  index_t copies = 0;  ///< within the device, and to and from the host
  index_t memsets = 0;
  std::size_t allocated = 0;  ///< bytes of all allocations

  void clear() { *this = {}; }
};

/// Shared memory for a block's scratch on every device from sm_80 on. sm_86, sm_89 and sm_120 offer
/// least, 99 KiB by opt-in; 1 KiB of it is the kernel's (detail/device/launch.cuh).
inline constexpr std::size_t shared_memory = 98 * 1024;
/// Shared memory of a block without opting in to more.
inline constexpr std::size_t shared_memory_unasked = 47 * 1024;

/// Returns the short name of a type: "minmax_lp_body" for plimsoll::...::minmax_lp_body<...>.
inline std::string name_of(std::type_info const& type) {
  char* const text = abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr);
  std::string name = text == nullptr ? type.name() : text;
  std::free(text);
  name.resize(std::min(name.find('<'), name.size()));
  return name.substr(name.rfind(':') + 1);
}

/// Runs on the calling thread. A loop that is not a body counts as a kernel of its own.
struct counting_executor {
  recorder* costs = nullptr;

  template <class F>
  void for_blocks(index_t n, F&& f) const {
    if (n > 0) {
      costs->launches.push_back({.body = "(own kernel)", .team = "-", .problems = n});
      f(index_t{0}, n);
    }
  }
};

/// Team of one thread that counts. It is not serial, so bodies take the form for devices.
class counting_team : public plimsoll::detail::team_operations<counting_team> {
 public:
  static constexpr bool is_serial = false;

  explicit counting_team(launch_cost& cost) : cost_(cost) {}

  template <class F>
  void for_each(index_t n, F f) {
    ++cost_.calls;
    for (index_t i = 0; i < n; ++i) {
      alone("for_each", [&] { f(i); });
    }
  }

  template <class F>
  void single(F f) {
    ++cost_.calls;
    alone("single", f);
  }

  template <class F>
  auto broadcast(F f) {
    ++cost_.calls;
    return alone("broadcast", f);
  }

  template <class T>
  void store(T* place, std::type_identity_t<T> value) {
    *place = value;
  }

  template <class F, class Op, class T>
  T reduce(index_t n, F f, Op op, T identity) {
    ++cost_.calls;
    T result = identity;
    for (index_t i = 0; i < n; ++i) {
      result = op(result, alone("reduce", [&] { return static_cast<T>(f(i)); }));
    }
    return result;
  }

  template <class F>
  auto sum_ordered(index_t n, F f) {
    ++cost_.calls;
    plimsoll::detail::result_at<F> partial[32] = {};
    for (index_t i = 0; i < n; ++i) {
      partial[i % 32] =
          plimsoll::detail::add(partial[i % 32], alone("sum_ordered", [&] { return f(i); }));
    }
    for (int width = 16; width > 0; width /= 2) {
      for (int j = 0; j < width; ++j) {
        partial[j] = plimsoll::detail::add(partial[j], partial[j + width]);
      }
    }
    return partial[0];
  }

  template <class F, class T>
  T exclusive_scan(index_t n, F f, T* out) {
    ++cost_.calls;
    T total = 0;
    for (index_t i = 0; i < n; ++i) {
      T const value = alone("exclusive_scan", [&] { return static_cast<T>(f(i)); });
      out[i] = total;
      total = static_cast<T>(total + value);
    }
    return total;
  }

  template <class Key>
  void sort(Key* keys, index_t n, std::byte*) {
    ++cost_.calls;
    plimsoll::detail::sort_keys(keys, n);
  }

  template <class F>
  void match_ranks(index_t n, F bin_of, index_t bins, std::int32_t* ranks, std::int32_t* counts,
                   std::byte* storage) {
    if (bins > plimsoll::detail::most_bins) {
      sorted_ranks(n, bin_of, bins, ranks, counts, storage);
      return;
    }
    ++cost_.calls;
    std::vector<std::int32_t> seen(static_cast<std::size_t>(bins));
    for (index_t i = 0; i < n; ++i) {
      ranks[i] = seen[static_cast<std::size_t>(alone("match_ranks", [&] { return bin_of(i); }))]++;
    }
    if (counts != nullptr) {
      std::copy(seen.begin(), seen.end(), counts);
    }
  }

  template <class Key>
  auto queue(Key* keys, index_t n) {
    ++cost_.calls;
    return counted_queue<Key>(*this, keys, n);
  }

  /// As a warp has them: a reduction for each key that `largest` writes or `few_largest` removes.
  static constexpr index_t most_largest = 256;
  static constexpr index_t most_few_largest = 512;
  template <class F>
  void largest(index_t n, index_t k, F value_at, std::uint64_t* out) {
    ++cost_.calls;
    cost_.queue_steps += k;
    std::vector<std::uint64_t> keys;
    for (index_t i = 0; i < n; ++i) {
      keys.push_back(plimsoll::detail::with_index(
          plimsoll::detail::key_of(alone("largest", [&] { return value_at(i); })), i));
    }
    std::partial_sort_copy(keys.begin(), keys.end(), out, out + k, std::greater<>{});
  }
  template <class F>
  bool few_largest(index_t n, index_t k, F value_at, std::uint64_t* out) {
    if (k > (n <= 256 ? 8 : 16)) {
      return false;
    }
    std::array<std::uint32_t, 32> columns{};
    for (index_t i = 0; i < n; ++i) {
      std::uint32_t& column = columns[static_cast<std::size_t>(i % 32)];
      column = std::max(column, plimsoll::detail::key_of(value_at(i)));
    }
    std::sort(columns.begin(), columns.end(), std::greater<>{});
    auto const different = std::unique(columns.begin(), columns.end()) - columns.begin();
    std::uint32_t const threshold = k <= different ? columns[static_cast<std::size_t>(k - 1)] : 0;
    cost_.queue_steps += k <= 8 ? 8 : 16;
    std::vector<std::uint64_t> reached;
    for (index_t i = 0; i < n; ++i) {
      if (std::uint32_t const key = plimsoll::detail::key_of(value_at(i)); key >= threshold) {
        reached.push_back(plimsoll::detail::with_index(key, i));
      }
    }
    if (threshold <= plimsoll::detail::nan_key || reached.size() > 32) {
      return false;
    }
    ++cost_.calls;
    std::partial_sort_copy(reached.begin(), reached.end(), out, out + k, std::greater<>{});
    return true;
  }

 private:
  /// Serial heap, which returns the keys in the same order as the queue of a device.
  template <class Key>
  class counted_queue {
   public:
    counted_queue(counting_team& team, Key* keys, index_t n)
        : team_(team), cost_(team.cost_), heap_(one_, keys, n) {}
    [[nodiscard]] bool empty() const { return heap_.empty(); }
    [[nodiscard]] Key top() const { return heap_.top(); }
    void replace_top(Key key) {
      ++cost_.queue_steps;
      heap_.replace_top(key);
    }
    template <class F>
    void update_top(F f) {
      ++cost_.queue_steps;
      heap_.update_top([&](Key top) { return team_.alone("update_top", [&] { return f(top); }); });
    }
    void pop() {
      ++cost_.queue_steps;
      heap_.pop();
    }

   private:
    struct uncounted {
      template <class F>
      void single(F f) {
        f();
      }
      template <class F>
      auto broadcast(F f) {
        return f();
      }
    };
    counting_team& team_;
    launch_cost& cost_;
    uncounted one_;
    plimsoll::detail::heap_queue<uncounted, Key> heap_;
  };

  template <class F>
  auto alone(char const* call, F const& f) {
    struct count {
      counting_team& team;
      char const* call;
      count(counting_team& t, char const* c) : team(t), call(c) { start_counting(); }
      ~count() {
        if (index_t const steps = stop_counting(); steps > team.cost_.steps) {
          team.cost_.steps = steps;
          team.cost_.steps_in = call;
        }
      }
    } const counted(*this, call);
    return f();
  }

  launch_cost& cost_;
};

}  // namespace device_costs

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

using counting_context = host_context<device_costs::counting_executor>;

template <>
inline constexpr bool runs_on_device<counting_context> = true;

template <>
struct memory_of<counting_context> : memory_of<host_context<inline_executor>> {
  using context = counting_context;
  using base = memory_of<host_context<inline_executor>>;

  static void* allocate(context const& where, std::size_t bytes, std::size_t alignment) {
    where.executor.costs->allocated += bytes;
    return base::allocate({}, bytes, alignment);
  }
  static void deallocate(context const&, void* pointer, std::size_t bytes, std::size_t alignment) {
    base::deallocate({}, pointer, bytes, alignment);
  }
  static void from_host(context const& where, void const* source, void* destination,
                        std::size_t bytes) {
    ++where.executor.costs->copies;
    base::from_host({}, source, destination, bytes);
  }
  static void to_host(context const& where, void const* source, void* destination,
                      std::size_t bytes) {
    ++where.executor.costs->copies;
    base::to_host({}, source, destination, bytes);
  }
  static void rows_to_host(context const& where, void const* source, std::size_t pitch,
                           void* destination, std::size_t bytes, std::size_t rows) {
    ++where.executor.costs->copies;
    base::rows_to_host({}, source, pitch, destination, bytes, rows);
  }
  static void copy_rows(context const& where, void const* source, std::size_t source_pitch,
                        void* destination, std::size_t pitch, std::size_t bytes, std::size_t rows) {
    ++where.executor.costs->copies;
    for (std::size_t row = 0; row < rows; ++row) {
      std::memcpy(static_cast<std::byte*>(destination) + row * pitch,
                  static_cast<std::byte const*>(source) + row * source_pitch, bytes);
    }
  }
  static void synchronize(context const&) {}
  static void zero(context const& where, void* destination, std::size_t bytes) {
    ++where.executor.costs->memsets;
    base::zero({}, destination, bytes);
  }
};

inline std::string team_name(warp) { return "warp"; }
template <int Threads>
std::string team_name(block<Threads>) {
  return "block of " + std::to_string(Threads);
}

/// As on a device, needs no global scratch if the scratch of a problem fits in shared memory.
template <class Body>
[[nodiscard]] index_t launch_bytes(counting_context const&, index_t problems, Body const& body) {
  index_t const stride = scratch_stride(body);
  return static_cast<std::size_t>(stride) <= device_costs::shared_memory ? 0 : problems * stride;
}

template <class Body>
void launch(counting_context const& context, index_t problems, Body const& body) {
  if (problems <= 0) {
    return;
  }
  device_costs::launch_cost worst{.body = device_costs::name_of(typeid(Body)),
                                  .team = team_name(typename Body::device_team{}),
                                  .problems = problems,
                                  .scratch = static_cast<std::size_t>(scratch_stride(body))};
  std::vector<std::byte> memory(worst.scratch + 64);
  auto const base = reinterpret_cast<std::uintptr_t>(memory.data());
  std::byte* const aligned = memory.data() + (64 - base % 64) % 64;
  for (index_t problem = 0; problem < problems; ++problem) {
    device_costs::launch_cost cost;
    device_costs::counting_team team(cost);
    body(team, scratch(aligned), problem);
    if (cost.in_series() > worst.in_series()) {
      worst.calls = cost.calls;
      worst.queue_steps = cost.queue_steps;
    }
    if (cost.steps > worst.steps) {
      worst.steps = cost.steps;
      worst.steps_in = cost.steps_in;
    }
  }
  context.executor.costs->launches.push_back(worst);
}
template <class Body>
void launch(counting_context const& context, index_t problems, Body const& body, std::byte*) {
  launch(context, problems, body);
}

/// Counts all phases as one cooperative launch if the body allows it. It allows it only for few
/// blocks, which are resident together on every device.
template <class Body>
void launch_phases(counting_context const& context, Body const& body, std::byte* memory,
                   resident_blocks&) {
  Body phased = body;
  phased.one_launch = body.phases() > 1 && body.fits_one_launch();
  std::vector<device_costs::launch_cost>& launches = context.executor.costs->launches;
  std::size_t const before = launches.size();
  for (int phase = 0; phase < phased.phases(); ++phase) {
    launch(context, phased.problems(phase), one_phase<Body>{phased, phase}, memory);
    if (phased.one_launch && phased.is_over(phase)) {
      break;
    }
  }
  for (std::size_t i = before; i < launches.size(); ++i) {
    launches[i].body = device_costs::name_of(typeid(Body));
  }
  if (phased.one_launch) {
    device_costs::launch_cost all = launches[before];
    all.team += ", cooperative";
    for (std::size_t i = before + 1; i < launches.size(); ++i) {
      all.append(launches[i]);
    }
    launches.resize(before);
    launches.push_back(all);
  }
}

}}}  // namespace plimsoll::detail

namespace device_costs {

/// Execution policy that counts. `costs` receives the costs and must outlive objects prepared with
/// the policy.
struct counting_policy {
  recorder* costs;
};

}  // namespace device_costs

template <>
struct plimsoll::policy_traits<device_costs::counting_policy> {
  static plimsoll::host_context<device_costs::counting_executor> resolve(
      device_costs::counting_policy const& policy) {
    return {device_costs::counting_executor{policy.costs}, {}};
  }
};
