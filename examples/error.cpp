// SPDX-License-Identifier: Apache-2.0
// Prints the messages of calls with a wrong option, a wrong value and a wrong shape, and of a
// prepared object that cannot throw while it works; its faults are described without an exception.
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/metrics.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/lplb.hpp>
#include <vector>

namespace {

// [catch]
/// Plans four slots of each layer; prints why if that fails.
template <class Loads>
void plan(Loads const& loads, plimsoll::index_t ranks) {
  try {
    plimsoll::eplb(plimsoll::seq, loads, 4, {.on = {.ranks = ranks}});
  } catch (plimsoll::invalid_input const& error) {
    std::puts(error.what());
  }
}
// [end]

}  // namespace

int main() {
  // [faults]
  plimsoll::array const loads(plimsoll::seq, std::vector<float>{900, 300, -250}, 1, 3);
  plan(loads, 0);                                        // an option
  plan(loads, 2);                                        // a value
  plan(plimsoll::zeros<float>(plimsoll::seq, 1, 8), 2);  // a shape
  // [end]

  // [check]
  plimsoll::array const good(plimsoll::seq, std::vector<std::int32_t>{900, 300, 250}, 1, 3);
  auto const placement = plimsoll::eplb(plimsoll::seq, good, 4, {.on = {.ranks = 2}});
  plimsoll::lplb split(plimsoll::seq, placement.ref(), {});
  plimsoll::array const bad(plimsoll::seq, std::vector<std::int32_t>{900, 300, -250}, 1, 3);
  split.plan(bad);  // does not throw, and does no harm
  try {
    split.check();
  } catch (plimsoll::invalid_input const& error) {
    std::puts(error.what());
  }
  // [end]

  // [describe]
  int layer = 0;
  for (plimsoll::fault const& refused : plimsoll::read(plimsoll::seq, split.faults())) {
    std::printf("layer %d: %s\n", layer++, plimsoll::describe(refused).c_str());
  }
  // [end]
}
