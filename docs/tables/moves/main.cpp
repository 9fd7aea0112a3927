// SPDX-License-Identifier: Apache-2.0
// moves PAGE    prints how many weights change their rank if a workload changes, under several
// planners. The loads are measured, so it needs the files under PLIMSOLL_TRACE_DIR; without it the
// rows are copied from PAGE.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include <plimsoll/migration.hpp>
#include <plimsoll/refinement.hpp>

#include "../domain_changes.hpp"
#include "../unseen.hpp"

namespace {

using examples::domain_change;
using examples::seq_placement;
using plimsoll::index_t;

/// Bytes of an expert of DeepSeek-V3 in one layer, in FP8.
constexpr double expert_bytes = 44e6;
/// Layers of the model.
constexpr double model_layers = 75;

/// One row: what changes in all layers of all domain changes.
struct row {
  double moves = 0;
  double local_copies = 0;
  double slots = 0;
  examples::judged balance = {};

  template <class Placement>
  void add(domain_change const& c, Placement const& plan) {
    for (auto const& one : plimsoll::count_changes(plimsoll::seq, c.from.ref(), plan.ref())) {
      moves += static_cast<double>(one.moves);
      local_copies += static_cast<double>(one.local_copies);
      slots += static_cast<double>(c.slots());
    }
    balance.add({c.layers, c.experts, {}, c.after}, plan);
  }
  void print(domain_change const& c, std::string const& name) const {
    double const gigabytes = moves / slots * static_cast<double>(c.slots()) /
                             static_cast<double>(c.ranks) * model_layers * expert_bytes / 1e9;
    std::cout << "| " << examples::ranks_cell(c.ranks) << " | " << name << " | "
              << examples::cell(100 * moves / slots, 1) << " | "
              << examples::cell(100 * local_copies / slots, 1) << " | "
              << examples::cell(gigabytes, 1) << " | " << balance.cells() << " |" << std::endl;
  }
};

/// Applies vLLM's `preserve_intragpu_slots`: rank by rank, an expert that stays keeps its old slot,
/// and the others fill the remaining slots in order.
seq_placement preserve_slots(domain_change const& c) {
  auto result = plimsoll::copy_placement(plimsoll::seq, c.to.physical_to_logical,
                                         c.to.replica_count, c.ranks);
  auto const before = c.from.physical_to_logical.view();
  auto const fresh = c.to.physical_to_logical.view();
  auto const map = result.physical_to_logical.view();
  for (index_t layer = 0; layer < c.layers; ++layer) {
    for (index_t rank = 0; rank < c.ranks; ++rank) {
      index_t const first = rank * c.slots() / c.ranks;
      index_t const last = (rank + 1) * c.slots() / c.ranks;
      std::vector<std::int32_t> arriving;
      for (index_t slot = first; slot < last; ++slot) {
        arriving.push_back(fresh(layer, slot));
        map(layer, slot) = -1;
      }
      for (index_t slot = first; slot < last; ++slot) {
        auto const same = std::find(arriving.begin(), arriving.end(), before(layer, slot));
        if (same != arriving.end()) {
          map(layer, slot) = *same;
          arriving.erase(same);
        }
      }
      auto next = arriving.begin();
      for (index_t slot = first; slot < last; ++slot) {
        if (map(layer, slot) < 0) {
          map(layer, slot) = *next++;
        }
      }
    }
  }
  return result;
}

void print(examples::npy::array<std::int64_t> const& recorded, index_t ranks) {
  using plimsoll::relabeling, plimsoll::seq;
  std::vector<domain_change> const all = examples::domain_changes(recorded, ranks, 1);
  row kept, reloaded, fresh, preserved, alike, on_nodes, aligned;
  for (domain_change const& c : all) {
    auto const from = c.from.ref();
    auto const to = c.to.ref();
    kept.add(c, c.from);
    fresh.add(c, c.to);
    preserved.add(c, preserve_slots(c));
    alike.add(c, plimsoll::align(seq, from, to, {.relabel = relabeling::all_layers}));
    on_nodes.add(c, plimsoll::align(seq, from, to, {.on = {.nodes = c.nodes()}}));
    aligned.add(c, plimsoll::align(seq, from, to));
  }
  reloaded = fresh;
  reloaded.moves = reloaded.slots;
  reloaded.local_copies = 0;
  kept.print(all[0], "plan in use");
  reloaded.print(all[0], "EPLB, every slot loaded again");
  fresh.print(all[0], "EPLB, changed slots");
  preserved.print(all[0], "EPLB, `preserve_intragpu_slots`");
  alike.print(all[0], "EPLB, `align`, all layers alike");
  if (all[0].nodes() > 1) {
    on_nodes.print(all[0], "EPLB, `align`, ranks of a node stay together");
  }
  aligned.print(all[0], "EPLB, `align`");

  row refined, refined_aligned, priced, dearer;
  for (domain_change const& c : examples::domain_changes(recorded, ranks, examples::layer_stride)) {
    auto const from = c.from.ref();
    auto const improved = plimsoll::refine(seq, c.loads(), from, {}, {});
    refined.add(c, improved);
    refined_aligned.add(c, plimsoll::align(seq, from, improved.ref()));
    priced.add(c, plimsoll::refine(seq, c.loads(), from, {}, {.move_price = 0.002}));
    dearer.add(c, plimsoll::refine(seq, c.loads(), from, {}, {.move_price = 0.01}));
  }
  refined.print(all[0], "`refine` *");
  refined_aligned.print(all[0], "`refine`, `align` *");
  priced.print(all[0], "`refine`, `move_price` 0.002 *");
  dearer.print(all[0], "`refine`, `move_price` 0.01 *");
}

}  // namespace

int main(int argc, char** argv) {
  return examples::make_table(
      "moves", argc, argv,
      "| ranks + extra slots | new plan | moves, % of slots | local copies, % of slots | GB for "
      "each rank | even | optimal |\n"
      "|---|---|---:|---:|---:|---:|---:|\n",
      print);
}
