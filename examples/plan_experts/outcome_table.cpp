// SPDX-License-Identifier: Apache-2.0
#include "outcome_table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

namespace examples {
namespace {

/// One line of the table: a plan on one way of looking at the loads.
struct row {
  std::string loads;  // empty under a row that says it
  std::string plan;
  balance_statistics const& statistics;
  std::string place;  // where the worst is
};

[[nodiscard]] std::string place_of(balance_statistics const& s, bool with_step) {
  auto const layer = fmt::format("layer {}", s.worst_layer);
  return with_step ? fmt::format("{}, step {}", layer, s.worst_step) : layer;
}

[[nodiscard]] std::vector<row> rows_of(outcome const& result) {
  std::vector<row> rows;
  auto const add = [&](std::string const& loads, balance_statistics const& before,
                       balance_statistics const& after, bool with_step) {
    rows.push_back({loads, "before", before, place_of(before, with_step)});
    rows.push_back({"", "after", after, place_of(after, with_step)});
  };
  // Folders make lines long; they are told where nothing else tells two files apart.
  auto const base = [](comparison const& c) {
    return std::filesystem::path(c.loads).filename().string();
  };
  bool const twins = result.comparisons.size() > 1 &&
                     base(result.comparisons.front()) == base(result.comparisons.back());
  for (comparison const& c : result.comparisons) {
    std::string const name = twins ? c.loads : base(c);
    if (c.steps == 1) {
      add(name, c.before.summed, c.after.summed, false);
      continue;
    }
    add(fmt::format("{}, sum of {} steps", name, c.steps), c.before.summed, c.after.summed, false);
    add(fmt::format("{}, step by step", name), *c.before.per_step, *c.after.per_step, true);
  }
  return rows;
}

/// "58 layers (3 to 60)", so that ids that are shifted are seen.
[[nodiscard]] std::string layers_of(plan const& p) {
  bool const in_a_row = p.layer_ids.back() - p.layer_ids.front() == p.layers - 1;
  return fmt::format("{} {} ({} to {}{})", p.layers, p.layers == 1 ? "layer" : "layers",
                     p.layer_ids.front(), p.layer_ids.back(), in_a_row ? "" : ", not all");
}

/// "of 5 slots", or what there is to say where ranks or layers differ.
[[nodiscard]] std::string slots_of(plan const& p) {
  auto const [least, most] = slots_of_layers(p);
  if (least != most) {
    return fmt::format("with {} to {} slots a layer", least, most);
  }
  return most % p.ranks == 0 ? fmt::format("of {} slots", most / p.ranks)
                             : fmt::format("with {} slots in all", most);
}

[[nodiscard]] std::string sizes_of(outcome const& result) {
  plan const& p = result.after;
  auto const extra = extra_replicas(p);
  bool const alike = std::all_of(extra.begin(), extra.end(),
                                 [&](std::int64_t count) { return count == extra[0]; });
  return fmt::format("{} of {} experts on {} ranks {}: {}\n", layers_of(p), p.experts, p.ranks,
                     slots_of(p),
                     alike ? fmt::format("{} extra replicas a layer", extra[0])
                           : fmt::format("{} extra replicas in all",
                                         std::accumulate(extra.begin(), extra.end(), index_t{0})));
}

[[nodiscard]] std::string weights_of(outcome const& result) {
  auto const after = bytes_of_fullest_rank(result.after, result.expert_bytes);
  if (!after) {
    return "";
  }
  // What the experts alone would take, spread evenly: no rank can do with less than this.
  auto const experts = result.after.layers * result.after.experts;
  auto const bare = (experts + result.after.ranks - 1) / result.after.ranks * *result.expert_bytes;
  return fmt::format("weights of the fullest rank: {}, of which replicas cost {}\n",
                     bytes_text(*after), bytes_text(*after - bare));
}

/// Says so where a plan is worse than what there was, which figures alone may hide.
[[nodiscard]] std::string losses_of(outcome const& result) {
  std::string text;
  for (comparison const& c : result.comparisons) {
    double const before = (c.before.per_step ? *c.before.per_step : c.before.summed).mean;
    double const after = (c.after.per_step ? *c.after.per_step : c.after.summed).mean;
    if (after < before) {
      text += fmt::format("on {} the plan is worse than before: {:.4f} instead of {:.4f}\n",
                          c.loads, after, before);
    }
  }
  return text;
}

[[nodiscard]] std::string idle_layers_of(outcome const& result) {
  index_t const idle = idle_layers(result);
  return idle == 0 ? "" : fmt::format("layers without load, which count as balanced: {}\n", idle);
}

/// What craft spends on replicas, where, and what for.
[[nodiscard]] std::string craft_of(outcome const& result) {
  if (!result.craft) {
    return "";
  }
  craft_outcome const& c = *result.craft;
  auto const [least, most] = slots_of_ranks(result.after);
  measured_plan const& measured = result.comparisons.front().after;
  std::string layers;
  for (auto const& [replicas, count] : layers_by_replicas(c)) {
    layers += layers.empty()
                  ? fmt::format("{} in {} {}", replicas, count, count == 1 ? "layer" : "layers")
                  : fmt::format(", {} in {}", replicas, count);
  }
  return fmt::format(
      "replicas: {} on each rank over all layers ({}), {} in all, {} used\n"
      "slots of a rank over all layers: {}\n"
      "replicas of a layer: {}\n"
      "mean balancedness{}: {:.4f} without replicas, {:.4f} expected with them, {:.4f} "
      "measured\n\n",
      c.replicas_per_rank, choice_text(c), c.allocation.budget,
      c.allocation.used == c.allocation.budget ? "all" : fmt::format("{}", c.allocation.used),
      least == most ? fmt::format("{}", least) : fmt::format("{} to {}", least, most), layers,
      measured.per_step ? " step by step" : "", c.mean_base(), c.mean_expected(),
      (measured.per_step ? *measured.per_step : measured.summed).mean);
}

[[nodiscard]] std::string planner_of(outcome const& result) {
  std::string const before =
      result.before_name == "trivial"
          ? "slot i holds expert i mod " + std::to_string(result.after.experts)
          : result.before_name;
  if (!result.milliseconds) {
    return fmt::format("before: {}; after: the plan as it was read\n", before);
  }
  std::string how = result.planner;
  if (result.hierarchical && result.nodes > 1) {
    how += fmt::format(", {} groups on {} nodes", result.groups, result.nodes);
  }
  if (result.refinement != "none") {
    how += ", refined by " + result.refinement;
  }
  return fmt::format("before: {}\nplanned in {:.3f} ms ({}, {}, median of {})\n", before,
                     *result.milliseconds, how, result.policy, result.runs);
}

}  // namespace

std::string choice_text(craft_outcome const& c) {
  if (c.chosen == "automatic") {
    return "chosen at the knee";
  }
  std::string const how =
      c.budget_bytes ? "what " + bytes_text(*c.budget_bytes) + " hold" : std::string("as asked");
  return how + (c.allocation.knee == c.replicas_per_rank
                    ? ", which is the knee"
                    : fmt::format("; the knee is at {}", c.allocation.knee));
}

std::string bytes_text(std::int64_t bytes) {
  constexpr char const* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) {
    value /= 1024;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 2, units[unit]);
}

std::string table_of(outcome const& result) {
  std::vector<row> const rows = rows_of(result);
  std::string const title = "balancedness of the ranks";
  std::size_t width = title.size();
  for (row const& r : rows) {
    width = std::max(width, r.loads.size());
  }
  std::string text = sizes_of(result) + "\n";
  text += fmt::format("{:<{}}  {:<6}{:>9}{:>16}{:>9}\n", title, width, "", "mean", "5th percentile",
                      "worst");
  for (row const& r : rows) {
    text +=
        fmt::format("{:<{}}  {:<6}{:>9.4f}{:>16.4f}{:>9.4f}  in {}\n", r.loads, width, r.plan,
                    r.statistics.mean, r.statistics.fifth_percentile, r.statistics.worst, r.place);
  }
  return text + "\n" + craft_of(result) + losses_of(result) + idle_layers_of(result) +
         weights_of(result) + planner_of(result);
}

}  // namespace examples
