// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes, reading them as loads gives an array that its shape describes and whose loads
// can be added up, or file_error.
//
// The first byte of an input says what the rest is: JSON, CSV, or for the reader to find out.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <variant>
#include <vector>

#include "../../examples/plan_experts/byte_store.cpp"
#include "../../examples/plan_experts/loads.cpp"
#include "../../examples/plan_experts/loads_csv.cpp"
#include "../../examples/plan_experts/loads_json.cpp"

namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void use(examples::load_file& file) {
  auto const totals_of = [](examples::load_totals const& totals) {
    return std::visit(
        [](auto const& sums) {
          return std::vector<double>(sums.values.begin(), sums.values.end());
        },
        totals.loads);
  };
  for (examples::index_t const extent : file.shape()) {
    require(extent > 0);
  }
  auto const layers = file.layers();
  auto const experts = file.experts();
  auto const totals = totals_of(examples::check_loads(file));
  require(totals.size() == static_cast<std::size_t>(layers * experts));
  for (double const total : totals) {
    require(total >= 0 && total < static_cast<double>(plimsoll::load_limit));
  }
  // The last layer alone has the last of the sums.
  file.select_layers(layers - 1, layers);
  std::vector<double> last(static_cast<std::size_t>(experts));
  file.with_type([&]<class Load>(Load) {
    file.for_each_step<Load>([&](examples::index_t, plimsoll::matrix_ref<Load const> loads) {
      require(loads.extent(0) == 1 && loads.extent(1) == experts);
      for (examples::index_t e = 0; e < experts; ++e) {
        last[static_cast<std::size_t>(e)] += static_cast<double>(loads(0, e));
      }
    });
  });
  require(std::equal(last.begin(), last.end(), totals.end() - experts));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  char const* const names[] = {"loads.json", "loads.csv", "-"};
  if (size == 0) {
    return 0;
  }
  std::string_view const bytes(reinterpret_cast<char const*>(data) + 1, size - 1);
  try {
    auto file = examples::load_file::of_bytes(bytes, names[data[0] % 3]);
    use(file);
  } catch (examples::file_error const& error) {
    // One line, which a terminal can show.
    for (char const c : std::string_view(error.what())) {
      require(c >= ' ' && c <= '~');
    }
  }
  return 0;
}
