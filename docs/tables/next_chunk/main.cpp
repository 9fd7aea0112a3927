// SPDX-License-Identifier: Apache-2.0
// next_chunk PAGE    prints how balanced EPLB's plans are, with each refinement, on the loads that
// they were made from and on those that follow
// The loads are measured, so it needs the files under PLIMSOLL_TRACE_DIR; without it the rows are
// copied from PAGE.
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/select_planner.hpp>

#include "../unseen.hpp"

namespace {

using examples::cut;
using examples::judged;
using examples::workload;
using plimsoll::eplb_refinement;
using plimsoll::index_t;

/// Returns a cut whose plans are judged by the sum of the steps that they were made from.
cut on_its_own_loads(cut const& c) {
  cut result = c;
  result.unseen = c.sums();
  return result;
}

void print(workload const& work, std::string const& folder) {
  struct variant {
    char const* name;
    eplb_refinement refine;
    double load_exponent;
    judged own = {};
    judged next = {};
  };
  auto const recorded = examples::measured_counts(folder + "/" + work.file, work.least_steps);
  for (index_t const ranks : work.ranks) {
    variant variants[] = {{"EPLB", eplb_refinement::none, 1.0},
                          {"EPLB + packing", eplb_refinement::packing, 1.0},
                          {"EPLB + joint", eplb_refinement::joint, 1.0},
                          {"EPLB, load^0.85", eplb_refinement::none, 0.85},
                          {"EPLB + joint, load^0.85", eplb_refinement::joint, 0.85}};
    judged own;
    judged even;
    judged optimal;
    for (auto const& [seen, unseen] : work.cuts(recorded.shape[0])) {
      cut const c = examples::cut_of(recorded, seen, unseen);
      cut const same = on_its_own_loads(c);
      index_t const slots = c.experts + ranks;
      for (variant& v : variants) {
        auto const plan = plimsoll::eplb(
            plimsoll::seq,
            plimsoll::matrix_ref<std::int64_t const>(same.unseen.data(), c.layers, c.experts),
            slots, {.on = {.ranks = ranks}, .refine = v.refine, .load_exponent = v.load_exponent});
        v.own.add(same, plan);
        v.next.add(c, plan);
      }
      plimsoll::select_planner_options select{.on = {.ranks = ranks},
                                              .split = plimsoll::split_rule::even};
      auto const chosen = plimsoll::select_planner(plimsoll::seq, c.history(), slots, select);
      own.add(same, chosen);
      even.add(c, chosen);
      select.split = plimsoll::split_rule::optimal;
      optimal.add(c, plimsoll::select_planner(plimsoll::seq, c.history(), slots, select));
    }
    auto const row = [&](char const* name, judged const& a, judged const& b, judged const& d) {
      std::cout << "| " << work.name << " | " << ranks << " + " << ranks << " | " << name << " | "
                << a.even.cell() << " | " << b.even.cell() << " | " << d.optimal.cell() << " |"
                << std::endl;
    };
    for (variant const& v : variants) {
      row(v.name, v.own, v.next, v.next);
    }
    row("selected", own, even, optimal);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_with_page("next_chunk", argc, argv, [](std::string const& page) {
    std::string const folder = examples::trace_folder("next_chunk", page);
    std::cout << "| loads | ranks + extra slots | plan | planned loads, even | next chunk, even | "
                 "next chunk, optimal |\n"
                 "|---|---:|---|---:|---:|---:|\n";
    for (workload work : examples::workloads()) {
      work.name = "unseen steps of " + work.name;
      if (folder.empty()) {
        examples::print_lines(examples::rows_of_page(page, "| " + work.name));
      } else {
        print(work, folder);
      }
    }
  });
}
