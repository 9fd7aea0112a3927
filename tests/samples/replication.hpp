// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/replication.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// Four slots for two experts of which the second has five of eight tokens.
template <class Run>
void sample_replication(Run& run) {
  auto const loads = run.array(reals{3, 5}, 1, 2);
  auto const copies = run.array(ints{9, 9}, 1, 2);
  run.call("replicate", [&] {
    return plimsoll::replicate(
        run.policy, run.in("loads", loads), 4,
        {.where = {.on = run.ranks("options.where.on", 2, {.may_be_none = true}),
                   .replica_anti_affinity = run.option("options.where.replica_anti_affinity",
                                                       plimsoll::anti_affinity::none),
                   .anti_affinity_strength = run.option("options.where.anti_affinity_strength",
                                                        plimsoll::strictness::preferred)}},
        run("replica_count", copies));
  });
  run.expect(copies, {2, 2});
  auto const owned = run.call("replicate", [&] {
    return plimsoll::replicate(
        run.policy, run.in("loads", loads), 4,
        {.where = {.replica_anti_affinity = run.option("options.where.replica_anti_affinity",
                                                       plimsoll::anti_affinity::none),
                   .anti_affinity_strength = run.option("options.where.anti_affinity_strength",
                                                        plimsoll::strictness::preferred)}});
  });
  run.expect(owned.replica_count.view(), {2, 2});
}
PLIMSOLL_SAMPLE(replication);

}  // namespace plimsoll_test
