// SPDX-License-Identifier: Apache-2.0
// next_chunk PAGE    prints how balanced EPLB's plans are, with each refinement, on the loads that
// they were made from and on those that follow
// The loads are measured, so it needs the files under PLIMSOLL_TRACE_DIR; without it the rows are
// copied from PAGE.
#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <utility>
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

std::vector<std::string> rows_of(workload const& work, std::string const& folder) {
  struct variant {
    char const* name;
    eplb_refinement refine;
    double load_exponent;
    judged own = {};
    judged next = {};
  };
  auto const recorded = examples::measured_counts(folder + "/" + work.file, work.least_steps);
  std::vector<std::string> rows;
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
      std::string const on = std::to_string(ranks) + " + " + std::to_string(ranks);
      rows.push_back("| " + work.name + " | " + on + " | " + name + " | " + a.even.cell() + " | " +
                     b.even.cell() + " | " + d.optimal.cell() + " |");
    };
    for (variant const& v : variants) {
      row(v.name, v.own, v.next, v.next);
    }
    row("selected", own, even, optimal);
  }
  return rows;
}

constexpr std::size_t columns = 3;

/// Prints the smallest and the largest difference that plans make, in points, from the cells of the
/// rows: what the page says of them is true whether the rows were computed or copied.
void print_differences(std::vector<std::string> const& rows) {
  // Of the loads and ranks of a row, the columns of each plan, in units of a cell's last digit.
  std::map<std::pair<std::string, std::string>, std::map<std::string, std::array<long, columns>>>
      plans;
  for (std::string const& row : rows) {
    auto const cells = examples::cells_of_row(row);
    auto& values = plans[{cells.at(0), cells.at(1)}][cells.at(2)];
    for (std::size_t i = 0; i < columns; ++i) {
      values[i] = std::lround(1e4 * std::stod(cells.at(3 + i)));
    }
  }
  auto const print = [&](char const* plan, char const* other,
                         std::vector<std::pair<char const*, char const*>> const& pairs) {
    std::cout << "| " << plan << " | " << other << " |";
    for (std::size_t i = 0; i < columns; ++i) {
      long least = LONG_MAX;
      long most = LONG_MIN;
      for (auto const& [where, of] : plans) {
        for (auto const& [ours, theirs] : pairs) {
          long const difference = of.at(ours)[i] - of.at(theirs)[i];
          least = std::min(least, difference);
          most = std::max(most, difference);
        }
      }
      char text[80];
      std::snprintf(text, sizeof text, " %+.2f to %+.2f |", static_cast<double>(least) / 100,
                    static_cast<double>(most) / 100);
      std::cout << text;
    }
    std::cout << '\n';
  };
  std::cout << "\nThe smallest and the largest difference between two plans for the same loads and "
               "ranks, in points (hundredths):\n\n"
               "| plan | compared with | planned loads, even | next chunk, even | next chunk, "
               "optimal |\n"
               "|---|---|---:|---:|---:|\n";
  print("EPLB + packing, EPLB + joint", "EPLB",
        {{"EPLB + packing", "EPLB"}, {"EPLB + joint", "EPLB"}});
  print("with load^0.85", "the same without",
        {{"EPLB, load^0.85", "EPLB"}, {"EPLB + joint, load^0.85", "EPLB + joint"}});
  print("selected", "EPLB", {{"selected", "EPLB"}});
}

}  // namespace

int main(int argc, char** argv) {
  return examples::run_with_page("next_chunk", argc, argv, [](std::string const& page) {
    std::string const folder = examples::trace_folder("next_chunk", page);
    std::cout << "| loads | ranks + extra slots | plan | planned loads, even | next chunk, even | "
                 "next chunk, optimal |\n"
                 "|---|---:|---|---:|---:|---:|\n";
    std::vector<std::string> all;
    for (workload work : examples::workloads()) {
      work.name = "unseen steps of " + work.name;
      auto const rows =
          folder.empty() ? examples::rows_of_page(page, "| " + work.name) : rows_of(work, folder);
      all.insert(all.end(), rows.begin(), rows.end());
    }
    examples::print_lines(all);
    print_differences(all);
  });
}
