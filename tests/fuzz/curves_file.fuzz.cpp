// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes, reading them as latency curves gives some that the library takes, or
// file_error. The first byte of an input is the number of ranks.
#include <plimsoll/execution.hpp>
#include <plimsoll/latency.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "../../examples/apps/plan_experts/curves_file.cpp"
#include "../../examples/apps/plan_experts/file_tree.cpp"

namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void use(examples::curve_samples const& curves, examples::index_t ranks) {
  auto const view = curves.view();
  plimsoll::latency_table const table(plimsoll::seq, view, ranks);
  auto const cost = table.cost();
  for (examples::index_t rank = 0; rank < ranks; ++rank) {
    double least = 0;
    for (std::int64_t const tokens : curves.tokens) {
      double const n = static_cast<double>(tokens);
      double const latency = cost(rank, n);
      require(latency == view(rank, n) && latency >= least);
      least = latency;
    }
    require(cost(rank, 0x1p46) >= 0);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  if (size == 0) {
    return 0;
  }
  examples::index_t const ranks = 1 + (data[0] & 7);
  std::string_view const bytes(reinterpret_cast<char const*>(data) + 1, size - 1);
  try {
    use(examples::parse_curves(bytes, "c.json", ranks), ranks);
  } catch (examples::file_error const& error) {
    // One line, which a terminal can show.
    for (char const c : std::string_view(error.what())) {
      require(c >= ' ' && c <= '~');
    }
  }
  return 0;
}
