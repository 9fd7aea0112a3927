// SPDX-License-Identifier: Apache-2.0
// A policy that runs device launches on the host: bodies use their device forms, problems run from
// the last to the first, and launches are counted. Include this file before the headers of
// primitives, which look up `launch` at their definition.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/execution.hpp>

#include <cstddef>

#include "run_body.hpp"

namespace plimsoll_test {

struct device_forms_context : plimsoll::host_context<plimsoll::inline_executor> {
  static inline int launches = 0;
};
struct device_forms {};

template <class Body>
struct backwards {
  Body body;
  index_t problems;

  [[nodiscard]] std::size_t scratch_bytes() const { return body.scratch_bytes(); }
  template <class Team>
  void operator()(Team& team, plimsoll::detail::scratch memory, index_t problem) const {
    body(team, memory, problems - 1 - problem);
  }
};

}  // namespace plimsoll_test

template <>
struct plimsoll::policy_traits<plimsoll_test::device_forms> {
  static plimsoll_test::device_forms_context resolve(plimsoll_test::device_forms) { return {}; }
};

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

template <>
inline constexpr bool runs_on_device<plimsoll_test::device_forms_context> = true;

template <>
struct memory_of<plimsoll_test::device_forms_context> : memory_of<host_context<inline_executor>> {};

template <class Body>
[[nodiscard]] index_t launch_bytes(plimsoll_test::device_forms_context const&, index_t,
                                   Body const&) {
  return 0;
}

template <class Body>
void launch(plimsoll_test::device_forms_context const&, index_t problems, Body const& body,
            std::byte*) {
  if (problems > 0) {
    ++plimsoll_test::device_forms_context::launches;
    plimsoll_test::run_body(plimsoll_test::backwards<Body>{body, problems}, problems, 1, 1);
  }
}

}}}  // namespace plimsoll::detail
