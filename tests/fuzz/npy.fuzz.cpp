// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes, reading them as a .npy file gives an array that its shape describes, or
// npy::error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <variant>

#include "../../examples/apps/plan_experts/npy.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  using namespace examples;
  try {
    auto const read =
        npy::parse(std::string_view(reinterpret_cast<char const*>(data), size), "input");
    std::visit(
        [](auto const& array) {
          std::size_t elements = 1;
          for (std::int64_t const extent : array.shape) {
            elements *= static_cast<std::size_t>(extent);
          }
          if (array.values.size() != elements) {
            std::abort();
          }
        },
        read);
  } catch (npy::error const&) {
  }
  return 0;
}
