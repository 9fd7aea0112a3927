// SPDX-License-Identifier: Apache-2.0
// A policy under which one thread runs the forms of bodies that are meant for many: what a step
// would cost the host without its serial form. A serial form stays where it is more than 1.3 times
// as fast. Include it before the primitives, whose calls of `launch` then find the overloads below.
#pragma once

#include <benchmark/benchmark.h>

#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/host/serial_team.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>

#include <cstddef>
#include <string>

namespace plimsoll_bench {

struct one_of_many : plimsoll::detail::serial_team {
  static constexpr bool is_serial = false;
};

struct team_forms_executor : plimsoll::inline_executor {};

struct team_forms_policy {};
inline constexpr team_forms_policy team_forms{};

/// Registers run(state, policy) for both forms: `name` with the serial one, `name`/team_form with
/// the other; set(benchmark) adds arguments and the unit to both.
template <class Run, class Set>
int register_forms(std::string const& name, Run run, Set set) {
  set(benchmark::RegisterBenchmark(name.c_str(),
                                   [run](benchmark::State& state) { run(state, plimsoll::seq); }));
  set(benchmark::RegisterBenchmark((name + "/team_form").c_str(),
                                   [run](benchmark::State& state) { run(state, team_forms); }));
  return 0;
}

}  // namespace plimsoll_bench

template <>
struct plimsoll::policy_traits<plimsoll_bench::team_forms_policy> {
  static plimsoll::host_context<plimsoll_bench::team_forms_executor> resolve(
      plimsoll_bench::team_forms_policy) {
    return {};
  }
};

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

using team_forms_context = host_context<plimsoll_bench::team_forms_executor>;

template <class Body>
void launch(team_forms_context const&, index_t problems, Body const& body, std::byte* memory) {
  index_t const stride = scratch_stride(body);
  plimsoll_bench::one_of_many team;
  for (index_t problem = 0; problem < problems; ++problem) {
    body(team, scratch(memory + problem * stride), problem);
  }
}

/// All problems have the same scratch, as in a host's launch.
template <class Body>
void launch(team_forms_context const& context, index_t problems, Body const& body) {
  buffer<std::byte, team_forms_context> const memory(context,
                                                     static_cast<index_t>(body.scratch_bytes()));
  plimsoll_bench::one_of_many team;
  for (index_t problem = 0; problem < problems; ++problem) {
    body(team, scratch(memory.data()), problem);
  }
}

}}}  // namespace plimsoll::detail
