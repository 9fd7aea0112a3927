// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/memory.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

template <class Run>
void sample_memory(Run& run) {
  auto const elements = run.array(reals{3, 5}, 2);
  auto const read =
      run.call("read", [&] { return plimsoll::read(run.policy, run("elements", elements)); });
  run.expect(read, {3, 5});
}
PLIMSOLL_SAMPLE(memory);

}  // namespace plimsoll_test
