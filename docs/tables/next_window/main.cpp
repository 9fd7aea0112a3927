// SPDX-License-Identifier: Apache-2.0
// next_window PAGE    prints how balanced the next window of steps is under plans that are remade
// from every window, with limits on what moves
// The loads are measured, so it needs the files under PLIMSOLL_TRACE_DIR; without it the rows are
// copied from PAGE.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/replay.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/select_planner.hpp>

#include "../domain_changes.hpp"

namespace {

using examples::seq_placement;
using plimsoll::index_t;
using plimsoll::placement_ref;
using plimsoll::seq;
using plimsoll::split_rule;

/// Windows of consecutive steps of a trace. Plans go on from window to window, and start again
/// after every `windows_of_run`.
struct windows {
  std::string name;
  std::string file;
  index_t first_step;
  index_t last_step;
  index_t steps;           ///< of a window
  index_t windows_of_run;  ///< 0: all
  index_t ranks;
};

std::vector<windows> all_windows() {
  std::string const glm = "glm-5.2-ten-domains/counts_by_chunk.npy";
  return {
      {"GLM-5.2, ten domains in order", glm, 0, 79, 2, 0, 32},
      {"DeepSeek-V2-Lite, four tasks", "deepseek-v2-lite-esft/counts_by_256tok.npy", 0, 127, 4, 0,
       32},
      {"gpt-oss-20b, decoding", "gpt-oss-20b-decode/counts_by_decode_step.npy", 0, 495, 16, 0, 8},
      {"GLM-5.2, one domain", glm, 0, 79, 2, 4, 32},
  };
}

using view = plimsoll::tensor_ref<std::int64_t const>;

/// A way to get from the plan in use to one for a window.
struct rule {
  std::string name;
  std::function<seq_placement(view const& window, placement_ref const& in_use)> plan;
};

seq_placement aligned(placement_ref const& in_use, seq_placement const& to) {
  return plimsoll::align(seq, in_use, to.ref());
}
seq_placement flow_of(view const& window, index_t ranks) {
  return plimsoll::place_by_flow(seq, window, window.extent(2) + ranks, {.on = {.ranks = ranks}});
}
plimsoll::array<std::int64_t, plimsoll::seq_policy, 2> sum_of(view const& window) {
  auto sums = plimsoll::zeros<std::int64_t>(seq, window.extent(1), window.extent(2));
  plimsoll::sum_steps(seq, window, sums);
  return sums;
}
seq_placement eplb_of(view const& window, index_t ranks) {
  return plimsoll::eplb(seq, sum_of(window), window.extent(2) + ranks, {.on = {.ranks = ranks}});
}

std::vector<rule> rules(index_t ranks, index_t layers, index_t experts) {
  // The first is the least, and the third what the gains are parts of.
  std::vector<rule> all;
  all.push_back({"never again", nullptr});
  all.push_back({"EPLB, `align`", [=](view const& w, placement_ref const& in_use) {
                   return aligned(in_use, eplb_of(w, ranks));
                 }});
  all.push_back({"`place_by_flow`, `align`", [=](view const& w, placement_ref const& in_use) {
                   return aligned(in_use, flow_of(w, ranks));
                 }});
  all.push_back(
      {"`select_planner`, the plan in use first", [=](view const& w, placement_ref const& in_use) {
         return plimsoll::select_planner(
             seq, w, w.extent(2) + ranks,
             {.on = {.ranks = ranks}, .flow_exponents = {0.9, 0.8, 0.7, 0.6}, .in_use = in_use});
       }});
  for (int const percent : {2, 5, 10, 20}) {
    plimsoll::migration_options const budget{
        .split = split_rule::optimal, .max_moves = layers * (experts + ranks) * percent / 100};
    std::string const within = ", within " + std::to_string(percent) + " %";
    all.push_back({"EPLB, `plan_within` of the sum" + within,
                   [=](view const& w, placement_ref const& in_use) {
                     seq_placement const to = eplb_of(w, ranks);
                     return plimsoll::plan_within(seq, sum_of(w), in_use, to.ref(), {}, budget);
                   }});
    all.push_back({"flow, `plan_within` of the steps" + within,
                   [=](view const& w, placement_ref const& in_use) {
                     seq_placement const to = flow_of(w, ranks);
                     return plimsoll::plan_within(seq, w, in_use, to.ref(), {}, budget);
                   }});
  }
  return all;
}

/// Means of a rule over all windows but the first.
struct outcome {
  double balancedness = 0;
  double moved = 0;  ///< percent of the slots
};

outcome follow(windows const& of, examples::npy::array<std::int64_t> const& recorded,
               rule const& by) {
  index_t const layers = recorded.shape[1];
  index_t const experts = recorded.shape[2];
  index_t const slots = experts + of.ranks;
  auto const window = [&](index_t i) {
    return view(recorded.values.data() + (of.first_step + i * of.steps) * layers * experts,
                of.steps, layers, experts);
  };
  index_t const count = (of.last_step + 1 - of.first_step) / of.steps;
  index_t const run = of.windows_of_run == 0 ? count : of.windows_of_run;
  outcome sum;
  double judged = 0;
  double replanned = 0;
  std::optional<seq_placement> in_use;
  for (index_t i = 0; i + 1 < count; ++i) {
    if (i % run == run - 1) {
      continue;  // the next window is that of another run
    }
    if (i % run == 0) {
      in_use.emplace(flow_of(window(i), of.ranks));
    } else {
      if (by.plan != nullptr) {
        seq_placement next = by.plan(window(i), in_use->ref());
        for (auto const& changed : plimsoll::count_changes(seq, in_use->ref(), next.ref())) {
          sum.moved +=
              100.0 * static_cast<double>(changed.moves) / static_cast<double>(layers * slots);
        }
        in_use.emplace(std::move(next));
      }
      replanned += 1;
    }
    if (i % run > 0) {
      auto balance = plimsoll::zeros<double>(seq, 1, layers);
      plimsoll::replay(seq, window(i + 1), in_use->ref(), {.split = split_rule::optimal}, balance);
      for (double const one : balance.to_host()) {
        sum.balancedness += one / static_cast<double>(layers);
      }
      judged += 1;
    }
  }
  return {sum.balancedness / judged, sum.moved / replanned};
}

void print(windows const& of, std::string const& folder) {
  auto const recorded =
      examples::measured_counts(folder + "/" + of.file, static_cast<int>(of.last_step + 1));
  std::vector<rule> const all = rules(of.ranks, recorded.shape[1], recorded.shape[2]);
  std::vector<outcome> found;
  for (rule const& one : all) {
    found.push_back(follow(of, recorded, one));
  }
  double const never = found[0].balancedness;
  double const most = found[2].balancedness - never;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::cout << "| " << of.name << " | " << examples::ranks_cell(of.ranks) << " | " << all[i].name
              << " | " << examples::cell(found[i].moved, 1) << " | "
              << examples::cell(found[i].balancedness, 4) << " | "
              << (of.windows_of_run == 0
                      ? examples::cell(100 * (found[i].balancedness - never) / most, 1)
                      : "")
              << " |" << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return examples::make_measured_table(
      "next_window", argc, argv,
      "| loads | ranks + extra slots | plan | slots that move, % | balancedness of the next window "
      "| gain, % |\n|---|---:|---|---:|---:|---:|\n",
      [](std::string const& folder) {
        for (windows const& one : all_windows()) {
          print(one, folder);
        }
      });
}
