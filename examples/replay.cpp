// SPDX-License-Identifier: Apache-2.0
// Compares two plans step by step. On the summed loads both have a balancedness of 0.75.
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/replay.hpp>

int main() {
  // [example]
  int const tokens[] = {6, 2, 4,   // step 0
                        2, 6, 4};  // step 1

  plimsoll::array const loads(plimsoll::seq, tokens, 2, 1, 3);  // [steps, layers, experts]
  // Rank 0 has two slots, rank 1 one. Plan 0 keeps 0 and 1 together, plan 1 experts 0 and 2.
  int const slots[] = {0, 1, 2, 0, 2, 1};
  int const copies[] = {1, 1, 1, 1, 1, 1};
  int const offsets[] = {0, 2, 3, 0, 2, 3};
  auto const plans = plimsoll::copy_placement(plimsoll::seq, plimsoll::array_ref(slots, 2, 3),
                                              plimsoll::array_ref(copies, 2, 3), 2,
                                              plimsoll::array_ref(offsets, 2, 3));
  auto balancedness = plimsoll::zeros<double>(plimsoll::seq, 2, 1);  // [plans, layers]
  plimsoll::replay(plimsoll::seq, loads, plans.ref(), {}, balancedness);
  for (int plan = 0; plan < 2; ++plan) {
    std::printf("plan %d: %.2f\n", plan, balancedness.view()(plan, 0));
  }
  // [end]
}
