// SPDX-License-Identifier: Apache-2.0
// check_loads LOADS.npy STEPS LAYERS EXPERTS TOKENS TOP_K: checks the guarantees of make_loads.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "../npy.hpp"

namespace {

void expect(bool good, char const* what) {
  if (!good) {
    throw std::runtime_error(what);
  }
}

void check(char const* const* arguments) {
  auto const file = examples::npy::read(arguments[1]);
  expect(std::holds_alternative<examples::npy::array<std::int64_t>>(file), "integers");
  auto const& loads = std::get<examples::npy::array<std::int64_t>>(file);
  std::vector<std::int64_t> const shape{std::stoll(arguments[2]), std::stoll(arguments[3]),
                                        std::stoll(arguments[4])};
  std::int64_t const tokens = std::stoll(arguments[5]);
  std::int64_t const copies = tokens * std::stoll(arguments[6]);
  expect(loads.shape == shape, "the shape");
  auto const experts = static_cast<std::size_t>(shape[2]);
  for (std::size_t row = 0; row < loads.values.size(); row += experts) {
    std::int64_t sum = 0;
    for (std::size_t e = row; e < row + experts; ++e) {
      expect(loads.values[e] >= 0, "no negative load");
      expect(loads.values[e] <= tokens, "no expert above the number of tokens");
      sum += loads.values[e];
    }
    expect(sum == copies, "every layer and step sums to tokens x top-k");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    return 2;
  }
  try {
    check(argv);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "check_loads: not so: %s\n", e.what());
    return 1;
  }
}
