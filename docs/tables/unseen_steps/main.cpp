// SPDX-License-Identifier: Apache-2.0
// unseen_steps PAGE    prints the balancedness of plans in steps that follow those they were made
// from. The loads are measured, so it needs the files under PLIMSOLL_TRACE_DIR; without it the rows
// are copied from PAGE.
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/select_planner.hpp>

#include "../unseen.hpp"

namespace {

using examples::cut;
using examples::judged;
using examples::workload;
using plimsoll::index_t;

void print(workload const& work, std::string const& folder) {
  auto const recorded = examples::measured_counts(folder + "/" + work.file, work.least_steps);
  for (index_t const ranks : work.ranks) {
    judged packed;
    judged evenly;
    judged flowing;
    judged chosen_evenly;
    judged chosen;
    judged chosen_raised;
    for (auto const& [seen, unseen] : work.cuts(recorded.shape[0])) {
      cut const c = examples::cut_of(recorded, seen, unseen);
      index_t const slots = c.experts + ranks;
      std::vector<std::int64_t> const sums = c.sums();
      packed.add(c, plimsoll::eplb(
                        plimsoll::seq,
                        plimsoll::matrix_ref<std::int64_t const>(sums.data(), c.layers, c.experts),
                        slots, {.on = {.ranks = ranks}}));
      plimsoll::flow_placement_options options{.on = {.ranks = ranks}};
      flowing.add(c, plimsoll::place_by_flow(plimsoll::seq, c.history(), slots, options));
      options.split = plimsoll::split_rule::even;
      evenly.add(c, plimsoll::place_by_flow(plimsoll::seq, c.history(), slots, options));
      plimsoll::select_planner_options select{.on = {.ranks = ranks}};
      chosen.add(c, plimsoll::select_planner(plimsoll::seq, c.history(), slots, select));
      select.flow_exponents = {0.9, 0.8, 0.7, 0.6};
      chosen_raised.add(c, plimsoll::select_planner(plimsoll::seq, c.history(), slots, select));
      select.flow_exponents = {};
      select.split = plimsoll::split_rule::even;
      chosen_evenly.add(c, plimsoll::select_planner(plimsoll::seq, c.history(), slots, select));
    }
    std::cout << "| " << work.name << " | " << ranks << " + " << ranks << " | " << packed.cells()
              << " | " << evenly.cells() << " | " << flowing.cells() << " | "
              << chosen_evenly.even.cell() << " | " << chosen.optimal.cell() << " | "
              << chosen_raised.optimal.cell() << " |" << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_with_page("unseen_steps", argc, argv, [](std::string const& page) {
    std::string const folder = examples::trace_folder("unseen_steps", page);
    std::cout << "| loads | ranks + extra slots | EPLB, even | EPLB, optimal | for even, even | "
                 "for even, optimal | for optimal, even | for optimal, optimal | selected, even | "
                 "selected, optimal | selected with exponents, optimal |\n"
                 "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
    for (workload const& work : examples::workloads()) {
      if (folder.empty()) {
        examples::print_lines(examples::rows_of_page(page, "| " + work.name));
      } else {
        print(work, folder);
      }
    }
  });
}
