// SPDX-License-Identifier: Apache-2.0
/// @file
/// Dispatch from a policy to the host or device launcher. A public function resolves its policy
/// once and then calls `launch(context, problems, body)`.
#pragma once

#include <concepts>
#include <cstddef>
#include <utility>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/host/batched.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/types.hpp>
#if PLIMSOLL_HAS_CUDA_COMPILER
#include <plimsoll/detail/device/batched.cuh>
#include <plimsoll/detail/device/cooperative.cuh>
#endif

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

inline namespace PLIMSOLL_DEVICE_ABI {

/// Returns the context of `policy`, with its device. A device policy in a host translation unit
/// fails a static_assert here; a host context is returned then, so that no other error follows.
template <class P>
auto resolve(P const& policy) {
  using context = decltype(policy_traits<P>::resolve(policy));
  constexpr bool usable = PLIMSOLL_HAS_CUDA_COMPILER || !std::same_as<context, device_context>;
  static_assert(usable,
                "Plimsoll: a gpu policy was used in a translation unit that is not compiled by a "
                "CUDA compiler; move the call to a .cu file");
  if constexpr (usable) {
    if constexpr (std::same_as<context, device_context>) {
      return with_device(policy_traits<P>::resolve(policy));
    } else {
      return policy_traits<P>::resolve(policy);
    }
  } else {
    return host_context<inline_executor>{};
  }
}

}  // namespace PLIMSOLL_DEVICE_ABI

template <class P>
using context_of = decltype(resolve(std::declval<P const&>()));

/// Context of a policy that an object keeps. A policy whose context is valid during the call only
/// fails the static_assert.
template <class P>
struct context_to_keep {
  static_assert(
      !requires { requires policy_traits<P>::transient; },
      "Plimsoll: a prepared object or an array outlives this policy; use gpu(stream) or "
      "gpu(stream, resource)");
  using type = context_of<P>;
};

template <class Context>
inline constexpr bool runs_on_device = std::same_as<Context, device_context>;

/// Context whose launches take their scratch from memory that is allocated already.
template <class Context>
struct prepared_context {
  Context const& inner;
  std::byte* memory;
};

template <class Context>
inline constexpr bool runs_on_device<prepared_context<Context>> = runs_on_device<Context>;

template <class Context, class Body>
void launch(prepared_context<Context> const& context, index_t problems, Body const& body) {
  launch(context.inner, problems, body, context.memory);
}

}}}  // namespace plimsoll::detail
