// SPDX-License-Identifier: Apache-2.0
// Reads a column of a matrix from the policy's memory.
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/memory.hpp>
#include <vector>

namespace {

// [read]
/// Returns the loads of one expert, in all layers.
template <class Policy>
std::vector<float> loads_of(Policy const& policy, plimsoll::index_t expert,
                            plimsoll::matrix_ref<float const> const& loads) {
  plimsoll::vector_ref<float const> column(loads.data + expert * loads.stride(1), loads.extent(0));
  column.strides[0] = loads.stride(0);
  return plimsoll::read(policy, column);
}
// [end]

}  // namespace

int main() {
  std::vector<float> const tokens{900, 300, 250, 200,  // layer 0
                                  140, 110, 60,  40};  // layer 1
  plimsoll::array const loads(plimsoll::seq, tokens, 2, 4);
  for (float const load : loads_of(plimsoll::seq, 1, loads.view())) {
    std::printf("%.0f\n", static_cast<double>(load));
  }
}
