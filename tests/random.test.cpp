// SPDX-License-Identifier: Apache-2.0
// Tests of random under the host's policies, and others.
#include "random.cases.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

using plimsoll::random::philox_block;

namespace {

std::vector<std::uint32_t> words(philox_block const& block) {
  return {block.word[0], block.word[1], block.word[2], block.word[3]};
}

// Random numbers can be computed at compile time.
static_assert(plimsoll::random::bits(0, 0, 0) == 0xe169c58d6627e8d5u);
static_assert(plimsoll::random::uniform(1, 2, 3) < 1.0);

}  // namespace

TEST_CASE("random: known answers of Philox4x32-10") {
  // From the reference implementation (Random123, kat_vectors).
  std::uint32_t const ones = ~0u;
  CHECK(words(plimsoll::random::philox({{0, 0, 0, 0}}, 0, 0)) ==
        std::vector<std::uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(words(plimsoll::random::philox({{ones, ones, ones, ones}}, ones, ones)) ==
        std::vector<std::uint32_t>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(words(plimsoll::random::philox({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
                                       0xa4093822, 0x299f31d0)) ==
        std::vector<std::uint32_t>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random: every bit of seed, subsequence and index matters") {
  // The counter is the index, then the subsequence, low word first; the key is the seed.
  CHECK(plimsoll::random::bits(0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88) ==
        0x94fdccebd16cfe09u);
  std::set<std::uint64_t> seen;
  for (int bit = 0; bit < 64; ++bit) {
    std::uint64_t const one = std::uint64_t{1} << bit;
    seen.insert(plimsoll::random::bits(one, 0, 0));
    seen.insert(plimsoll::random::bits(0, one, 0));
    seen.insert(plimsoll::random::bits(0, 0, one));
  }
  seen.insert(plimsoll::random::bits(0, 0, 0));
  CHECK(seen.size() == 3 * 64 + 1);
}

TEST_CASE("random: uniform is the upper 53 bits") {
  double sum = 0;
  double lowest = 1;
  double highest = 0;
  int const count = 100000;
  for (int i = 0; i < count; ++i) {
    auto const index = static_cast<std::uint64_t>(i);
    double const value = plimsoll::random::uniform(11, 5, index);
    if (value * 0x1p53 != static_cast<double>(plimsoll::random::bits(11, 5, index) >> 11)) {
      FAIL("value " << i);
    }
    sum += value;
    lowest = std::min(lowest, value);
    highest = std::max(highest, value);
  }
  CHECK(lowest >= 0);
  CHECK(highest < 1);
  CHECK(lowest < 1e-3);
  CHECK(highest > 1 - 1e-3);
  // The mean of 100000 numbers has a standard deviation of 0.0009; the limit is more than five.
  CHECK(std::abs(sum / count - 0.5) < 0.005);
}
