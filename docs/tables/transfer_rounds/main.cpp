// SPDX-License-Identifier: Apache-2.0
// transfer_rounds PAGE    prints the rounds of transfers from one plan to another, and their lower
// bounds. The loads are measured, so it needs the files under PLIMSOLL_TRACE_DIR; without it the
// rows are copied from PAGE.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include <plimsoll/migration.hpp>

#include "../domain_changes.hpp"

namespace {

using examples::domain_change;
using plimsoll::index_t;
using plimsoll::round_rule;

struct row {
  double layers = 0;
  double rounds = 0;  ///< in which ranks send to each other
  double bound = 0;
  double at_bound = 0;
  double staging = 0;
  index_t most_staging = 0;
  double seconds = 0;

  void add(domain_change const& c, plimsoll::placement_ref const& to, round_rule rule) {
    plimsoll::transfer_options const options{
        .on = {.nodes = c.nodes()}, .rounds = rule, .expert_bytes = 44'000'000};
    auto const plan = plimsoll::plan_transfers(plimsoll::seq, c.from.ref(), to, options);
    plimsoll::validate(plimsoll::seq, c.from.ref(), to, plan, options);
    std::vector<index_t> of_layer(plan.layers.size(), 0);
    for (plimsoll::transfer const& t : plan.list) {
      if (t.kind != plimsoll::transfer_kind::local_copy) {
        index_t& most = of_layer[static_cast<std::size_t>(t.layer)];
        most = std::max(most, index_t{t.round} + 1);
      }
    }
    for (std::size_t layer = 0; layer < of_layer.size(); ++layer) {
      plimsoll::layer_transfers const& one = plan.layers[layer];
      ++layers;
      rounds += static_cast<double>(of_layer[layer]);
      bound += static_cast<double>(one.rounds_bound);
      at_bound += of_layer[layer] == one.rounds_bound ? 1 : 0;
      staging += static_cast<double>(one.staging_slots);
      most_staging = std::max(most_staging, one.staging_slots);
    }
    seconds += plan.seconds;
  }
  void print(index_t ranks, char const* plan, char const* rule) const {
    std::cout << "| " << examples::ranks_cell(ranks) << " | " << plan << " | " << rule << " | "
              << examples::cell(rounds / layers, 2) << " | " << examples::cell(bound / layers, 2)
              << " | " << examples::cell(100 * at_bound / layers, 1) << " | "
              << examples::cell(staging / layers, 1) << " | " << most_staging << " | "
              << examples::cell(1e3 * seconds / layers, 1) << " |" << std::endl;
  }
};

void print(examples::npy::array<std::int64_t> const& recorded, index_t ranks) {
  using plimsoll::seq;
  row aligned[2];
  row within[2];
  constexpr round_rule rules[] = {round_rule::one_peer, round_rule::send_and_receive};
  for (domain_change const& c : examples::domain_changes(recorded, ranks, examples::layer_stride)) {
    auto const all = plimsoll::align(seq, c.from.ref(), c.to.ref());
    std::int64_t moves = 0;
    for (plimsoll::slot_changes const& one : all.alignment.layers) {
      moves += one.moves;
    }
    auto const few = plimsoll::plan_within(seq, c.loads(), c.from.ref(), c.to.ref(), {},
                                           {.max_moves = moves / 10});
    for (int i = 0; i < 2; ++i) {
      aligned[i].add(c, all.ref(), rules[i]);
      within[i].add(c, few.ref(), rules[i]);
    }
  }
  aligned[0].print(ranks, "EPLB, `align`", "`one_peer`");
  aligned[1].print(ranks, "EPLB, `align`", "`send_and_receive`");
  within[0].print(ranks, "`plan_within`, a tenth", "`one_peer`");
  within[1].print(ranks, "`plan_within`, a tenth", "`send_and_receive`");
}

}  // namespace

int main(int argc, char** argv) {
  return examples::make_table(
      "transfer_rounds", argc, argv,
      "| ranks + extra slots | new plan | rule | rounds | lower bound | at the bound, % of layers "
      "| staging slots | most | ms |\n"
      "|---|---|---|---:|---:|---:|---:|---:|---:|\n",
      print);
}
