// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes, reading them as loads gives an array that its shape describes and whose loads
// can be added up, or file_error. Loads of slots keep their sum as loads of experts.
//
// The first byte of an input, modulo 6, says what the rest is: JSON, CSV, or for the reader to find
// out; from 3 on, loads of slots.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <variant>
#include <vector>

#include "../../examples/apps/plan_experts/byte_store.cpp"
#include "../../examples/apps/plan_experts/loads.cpp"
#include "../../examples/apps/plan_experts/loads_csv.cpp"
#include "../../examples/apps/plan_experts/loads_json.cpp"
#include "../../examples/apps/plan_experts/slot_loads.cpp"

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

/// Adds up slots by a plan on two ranks that fits the file, if there is one.
void use_slots(examples::load_file& file) {
  auto const sum_of = [](examples::load_file const& of) {
    double sum = 0;
    of.with_type([&]<class Load>(Load) {
      of.for_each_step<Load>([&](examples::index_t, plimsoll::matrix_ref<Load const> loads) {
        for (examples::index_t i = 0; i < loads.extent(0) * loads.extent(1); ++i) {
          sum += static_cast<double>(loads.data[i]);
        }
      });
    });
    return sum;
  };
  file.join_ranks(2, 2 * file.experts());
  auto const layers = file.layers();
  auto const slots = file.experts();
  if (layers * slots > 1 << 16) {
    return;
  }
  static_cast<void>(examples::check_loads(file, 0, layers, examples::shape_rule::trusted));
  auto const experts = std::max<examples::index_t>(1, slots / 2);
  auto in_use = examples::trivial_plan(layers, experts, 1, slots);
  if (slots > experts) {
    in_use.physical_to_logical.back() = -1;
  }
  auto const added = examples::expert_loads(file, in_use);
  require(added.steps() == file.steps() && added.layers() == layers && added.experts() == experts);
  double const sum = sum_of(file);
  require(sum_of(added) >= sum * (1 - 1e-9) && sum_of(added) <= sum * (1 + 1e-9));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  char const* const names[] = {"loads.json", "loads.csv", "-"};
  if (size == 0) {
    return 0;
  }
  std::string_view const bytes(reinterpret_cast<char const*>(data) + 1, size - 1);
  try {
    bool const slots = data[0] % 6 >= 3;
    auto file = examples::load_file::of_bytes(
        bytes, names[data[0] % 3], {},
        slots ? examples::loads_of::slots : examples::loads_of::experts);
    slots ? use_slots(file) : use(file);
  } catch (examples::file_error const& error) {
    // One line, which a terminal can show.
    for (char const c : std::string_view(error.what())) {
      require(c >= ' ' && c <= '~');
    }
  }
  return 0;
}
