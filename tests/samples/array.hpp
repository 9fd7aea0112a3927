// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/array.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// Copies an engine's maps.
template <class Run>
void sample_array(Run& run) {
  auto const map = run.array(ints{0, 1, 0, 1}, 1, 4);
  auto const copies = run.array(ints{2, 2}, 1, 2);
  auto const offsets = run.array(ints{0, 2, 4}, 1, 3);
  auto const placement = run.call("copy_placement", [&] {
    return plimsoll::copy_placement(run.policy, run.ids("physical_to_logical", map),
                                    run("replica_count", copies), 2, run("rank_offsets", offsets));
  });
  run.expect(placement.physical_to_logical.view(), {0, 1, 0, 1});
  run.expect(placement.rank_offsets.view(), {0, 2, 4});
  auto const rows = run.array(ints{0, 1, 0, 1}, 1, 2, 2);
  auto const of_rows = run.call("copy_placement", [&] {
    return plimsoll::copy_placement(run.policy, run.ids("rank_experts", rows),
                                    run("replica_count", copies));
  });
  run.expect(of_rows.physical_to_logical.view(), {0, 1, 0, 1});
  auto zeros = run.call("zeros", [&] { return plimsoll::zeros<double>(run.policy, 2, 1); });
  run.expect(zeros.view(), {0, 0});
  run.call("array::assign", [&] { zeros.assign(reals{3, 5}); });
  run.expect(zeros.view(), {3, 5});
}
PLIMSOLL_SAMPLE(array);

}  // namespace plimsoll_test
