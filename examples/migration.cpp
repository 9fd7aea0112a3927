// SPDX-License-Identifier: Apache-2.0
// The load of one layer drifts. Moves from the placement in use on four GPUs to a better one with
// at most three experts that change their GPU, and lists the weights that the GPUs send to each
// other.
#include <cstdio>
#include <numeric>
#include <plimsoll/migration.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <vector>

namespace {

constexpr int experts = 12;
constexpr int slots = 16;  // four on each GPU

void print(char const* name, plimsoll::slot_changes const& changes, double peak) {
  std::printf("%-8s  moves %2d, local copies %d, busiest GPU %.0f tokens\n", name,
              static_cast<int>(changes.moves), static_cast<int>(changes.local_copies), peak);
}

}  // namespace

int main() {
  std::vector<int> const yesterday{900, 300, 250, 200, 140, 110, 60, 40, 30, 30, 20, 20};
  std::vector<int> const today{670, 350, 250, 560, 60, 30, 110, 60, 10, 40, 20, 20};
  auto const in_use =
      plimsoll::eplb(plimsoll::seq, plimsoll::array(plimsoll::seq, yesterday, 1, experts), slots,
                     {.on = {.ranks = 4}});
  // [example]
  plimsoll::array const loads(plimsoll::seq, today, 1, experts);  // [layers, experts]
  auto const fresh = plimsoll::eplb(plimsoll::seq, loads, slots, {.on = {.ranks = 4}});
  auto const aligned = plimsoll::align(plimsoll::seq, in_use.ref(), fresh.ref());
  auto const within =
      plimsoll::plan_within(plimsoll::seq, loads, in_use.ref(), fresh.ref(), {}, {.max_moves = 3});
  // [end]
  plimsoll::migration_report const& report = within.reports[0];
  double const mean = std::accumulate(today.begin(), today.end(), 0) / 4.0;  // of a GPU
  print("in use", {}, report.imbalance_before * mean);
  print("fresh", plimsoll::count_changes(plimsoll::seq, in_use.ref(), fresh.ref())[0],
        fresh.certificates[0].value);
  print("aligned", aligned.alignment.layers[0], fresh.certificates[0].value);
  print("within 3", report.changes, report.imbalance.value * mean);

  // [transfers]
  plimsoll::transfer_options const how{.on = {.nodes = 2}, .expert_bytes = 44'000'000};
  auto const plan = plimsoll::plan_transfers(plimsoll::seq, in_use.ref(), within.ref(), how);
  plimsoll::validate(plimsoll::seq, in_use.ref(), within.ref(), plan, how);  // throws for a fault
  for (plimsoll::transfer const& t : plan.list) {
    std::printf("round %d: expert %2d from slot %2d of GPU %d to slot %2d of GPU %d%s\n", t.round,
                t.expert, t.source_slot, t.source_rank, t.destination_slot, t.destination_rank,
                t.staging_slot < 0 ? "" : ", staged");
  }
  // [end]
  std::printf("about %.1f ms\n", 1e3 * plan.seconds);
}
