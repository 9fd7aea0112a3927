// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/slot_assignment.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

template <class Run>
void sample_slot_assignment(Run& run) {
  auto const slots = run.array(ints{4}, 1);
  auto const offsets = run.array(ints{9, 9, 9}, 1, 3);
  run.call("assign_slots", [&] {
    plimsoll::assign_slots(
        run.policy, run("layer_slots", slots),
        {.on = run.ranks("options.on", 2, {false, "slots are divided by number"}),
         .remainder = run.option("options.remainder", plimsoll::remainder_spread::interleaved)},
        run("rank_offsets", offsets));
  });
  run.expect(offsets, {0, 2, 4});
}
PLIMSOLL_SAMPLE(slot_assignment);

}  // namespace plimsoll_test
