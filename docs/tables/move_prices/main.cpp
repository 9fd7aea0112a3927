// SPDX-License-Identifier: Apache-2.0
// move_prices PAGE    prints the moves and the balancedness of refine at several prices of a move
// The loads are measured, so it needs the files under PLIMSOLL_TRACE_DIR; without it the rows are
// copied from PAGE.
#include <cstdint>
#include <iostream>

#include <plimsoll/migration.hpp>
#include <plimsoll/refinement.hpp>

#include "../domain_changes.hpp"
#include "../unseen.hpp"

namespace {

using examples::domain_change;
using plimsoll::index_t;

void print(examples::npy::array<std::int64_t> const& recorded, index_t ranks) {
  auto const all = examples::domain_changes(recorded, ranks, examples::layer_stride);
  for (double const price : {0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05}) {
    double moves = 0;
    double layers = 0;
    examples::judged balance;
    for (domain_change const& c : all) {
      auto const plan =
          plimsoll::refine(plimsoll::seq, c.loads(), c.from.ref(), {}, {.move_price = price});
      for (auto const& one : plimsoll::count_changes(plimsoll::seq, c.from.ref(), plan.ref())) {
        moves += static_cast<double>(one.moves);
        ++layers;
      }
      balance.add({c.layers, c.experts, {}, c.after}, plan);
    }
    double const of_slots = moves / layers / static_cast<double>(all[0].slots());
    std::cout << "| " << examples::ranks_cell(ranks) << " | " << price << " | "
              << examples::cell(moves / layers, 1) << " | " << examples::cell(100 * of_slots, 1)
              << " | " << balance.cells() << " |" << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return examples::make_table(
      "move_prices", argc, argv,
      "| ranks + extra slots | `move_price` | moves of a layer | % of slots "
      "| balancedness, even | optimal |\n"
      "|---|---:|---:|---:|---:|---:|\n",
      print);
}
