// SPDX-License-Identifier: Apache-2.0
#include <plimsoll/load_tensor.hpp>

#include <cstddef>
#include <cstring>

#include "architectures.hpp"

namespace architectures::PLIMSOLL_TEST_ARCHITECTURE {

using policy = plimsoll::gpu_policy;
using steps = plimsoll::tensor_ref<std::int32_t const>;
using sums = plimsoll::matrix_ref<std::int64_t>;
using window = plimsoll::load_window<std::int32_t, policy>;

std::vector<std::uintptr_t> addresses() {
  auto const at = [](auto pointer) {
    std::uintptr_t result = 0;  // a pointer to a member begins with the function's address
    std::memcpy(&result, &pointer, sizeof(result));
    return result;
  };
  using push = void (window::*)(plimsoll::matrix_ref<std::int32_t const> const&);
  using body = plimsoll::detail::sum_steps_body<steps, std::int64_t>;
  using launch =
      void (*)(plimsoll::device_context const&, plimsoll::index_t, body const&, std::byte*);
  return {at(&plimsoll::sum_steps<policy, steps, sums>), at(static_cast<push>(&window::push)),
          at(&window::size), at(static_cast<launch>(&plimsoll::detail::launch<body>)),
          at(&plimsoll::detail::resolve<policy>)};
}

void sum_steps(policy const& where, steps in, sums out) { plimsoll::sum_steps(where, in, out); }

}  // namespace architectures::PLIMSOLL_TEST_ARCHITECTURE
