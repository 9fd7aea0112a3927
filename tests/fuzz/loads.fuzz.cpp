// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes, reading them as loads gives an array that its shape describes and whose loads
// can be added up, or file_error.
//
// The first byte of an input says what the rest is: JSON, CSV, or for the reader to find out.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <variant>

#include "../../examples/plan_experts/loads.cpp"
#include "../../examples/plan_experts/loads_csv.cpp"
#include "../../examples/plan_experts/loads_json.cpp"

namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

template <class Load>
void use(examples::npy::array<Load> const& loads) {
  require(loads.shape.size() == 3);
  std::size_t elements = 1;
  for (std::int64_t const extent : loads.shape) {
    require(extent > 0);
    elements *= static_cast<std::size_t>(extent);
  }
  require(loads.values.size() == elements);
  auto const layers = loads.shape[1];
  auto const experts = loads.shape[2];
  auto const totals = examples::total_loads(loads);
  require(totals.size() == static_cast<std::size_t>(layers * experts));
  for (Load const total : totals) {
    require(total >= 0 && total < static_cast<Load>(plimsoll::load_limit));
  }
  // The last layer alone has the last of the sums.
  auto const last = examples::select_layers(loads, layers - 1, layers);
  require(last.shape[0] == loads.shape[0] && last.shape[1] == 1 && last.shape[2] == experts);
  auto const last_totals = examples::total_loads(last);
  require(last_totals.size() == static_cast<std::size_t>(experts));
  require(std::equal(last_totals.begin(), last_totals.end(), totals.end() - experts));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  char const* const names[] = {"loads.json", "loads.csv", "-"};
  if (size == 0) {
    return 0;
  }
  std::string_view const bytes(reinterpret_cast<char const*>(data) + 1, size - 1);
  try {
    std::visit([](auto const& loads) { use(loads); },
               examples::parse_loads(bytes, names[data[0] % 3]));
  } catch (examples::file_error const& error) {
    // One line, which a terminal can show.
    for (char const c : std::string_view(error.what())) {
      require(c >= ' ' && c <= '~');
    }
  }
  return 0;
}
