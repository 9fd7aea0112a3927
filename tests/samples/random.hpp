// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <plimsoll/random.hpp>

#include "support/sample_run.hpp"

namespace plimsoll_test {

/// Numbers depend on (seed, subsequence, index) only. The words are those of Random123's known
/// answers for zeros.
template <class Run>
void sample_random(Run& run) {
  plimsoll::random::philox_block const block =
      run.call("philox", [] { return plimsoll::random::philox({}, 0, 0); });
  run.expect(block.word[0], 0x6627e8d5u);
  run.expect(block.word[3], 0x9b00dbd8u);
  run.expect(plimsoll::random::bits(0, 0, 0) >> 32, 0xe169c58du);
  run.expect(plimsoll::random::uniform(0, 0, 0) < 1, true);
}
PLIMSOLL_SAMPLE(random);

}  // namespace plimsoll_test
