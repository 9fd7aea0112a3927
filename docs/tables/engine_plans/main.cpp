// SPDX-License-Identifier: Apache-2.0
// engine_plans PAGE    prints what TensorRT-LLM's balancer copies and how balanced the next chunk
// is, with the engine's planner and with those of examples/engines/cpp
// The loads are measured, so it needs the files under PLIMSOLL_TRACE_DIR; without it the rows are
// copied from PAGE.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <queue>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/replay.hpp>

#include "../../../examples/engines/cpp/tensorrt_llm/placement_planner.hpp"
#include "../domain_changes.hpp"

namespace {

using plimsoll::index_t;
using plimsoll::seq;
using plimsoll::split_rule;
using meta_info = tensorrt_llm::kernels::MoeLoadBalanceMetaInfo;
using placement_info = tensorrt_llm::runtime::MoePlacementCpuInfo;
using loads_of_layer = std::vector<float>;

constexpr int chunks = 80;
constexpr int experts = 256;
constexpr int layer_step = 15;  ///< every 15th of 75 layers

/// The planner of the engine: the next copy to the largest load per copy, then the heaviest copy
/// first to the least loaded rank with a free slot.
void plan_as_engine(meta_info const& of, loads_of_layer const& loads, placement_info& placement) {
  std::vector<int> copies(loads.size(), 1);
  std::priority_queue<std::pair<double, int>> heaviest;
  for (int e = 0; e < of.expertCount; ++e) {
    heaviest.emplace(loads[static_cast<std::size_t>(e)], e);
  }
  for (int free = of.epSize * of.slotCountPerRank - of.expertCount; free > 0; --free) {
    int const expert = heaviest.top().second;
    auto const e = static_cast<std::size_t>(expert);
    heaviest.pop();
    ++copies[e];
    heaviest.emplace(loads[e] / static_cast<double>(copies[e]), expert);
  }
  std::vector<std::pair<double, int>> replicas;
  for (int e = 0; e < of.expertCount; ++e) {
    auto const i = static_cast<std::size_t>(e);
    replicas.insert(replicas.end(), static_cast<std::size_t>(copies[i]),
                    {-(loads[i] / static_cast<double>(copies[i])), e});
  }
  std::sort(replicas.begin(), replicas.end());
  using rank_load = std::pair<double, std::size_t>;
  std::priority_queue<rank_load, std::vector<rank_load>, std::greater<>> lightest;
  for (std::size_t rank = 0; rank < placement.rankExpertIds.size(); ++rank) {
    placement.rankExpertIds[rank].clear();
    lightest.emplace(0.0, rank);
  }
  for (auto const& [negative_load, expert] : replicas) {
    auto const [load, rank] = lightest.top();
    lightest.pop();
    placement.rankExpertIds[rank].push_back(expert);
    if (placement.rankExpertIds[rank].size() < static_cast<std::size_t>(of.slotCountPerRank)) {
      lightest.emplace(load - negative_load, rank);
    }
  }
}

/// A way to fill `rankExpertIds` of a layer. Each has an object of its own per geometry.
struct planner {
  std::string name;
  std::function<void(int layer, loads_of_layer& loads, placement_info& placement)> plan;
};

std::vector<planner> planners(meta_info const& of, int layers) {
  std::vector<planner> all;
  all.push_back({"the engine's", [of](int, loads_of_layer& loads, placement_info& placement) {
                   plan_as_engine(of, loads, placement);
                 }});
  all.push_back({"`doReplication`, `doPlacement`",
                 [of](int, loads_of_layer& loads, placement_info& placement) {
                   tensorrt_llm::runtime::doReplication(of, loads.data(), &placement);
                   tensorrt_llm::runtime::doPlacement(of, loads.data(), &placement);
                 }});
  auto const add = [&](std::string name, expert_planner::planner_options const& options) {
    auto const own = std::make_shared<tensorrt_llm::runtime::PlacementPlanner>(of, layers, options);
    all.push_back(
        {std::move(name), [own](int layer, loads_of_layer& loads, placement_info& placement) {
           expert_planner::answer const answer =
               own->replan(layer, loads.data(), nullptr, &placement);
           if (!answer) {
             throw std::runtime_error(answer.text);
           }
         }});
  };
  add("`replan` within 3 %, one step, even split, fast",
      {.max_moves_share = 0.03, .steps = 1, .is_fast = true});
  add("`replan` within 10 %, one step, even split", {.steps = 1});
  add("`replan` within 10 %, two steps, optimal split", {.steps = 2, .optimal_split = true});
  return all;
}

/// Means over all plans but the first.
struct outcome {
  double copied = 0;          ///< percent of the slots
  double copied_by_rank = 0;  ///< slots of the rank that copies most
  double even = 0;            ///< balancedness of the next chunk under the even split
  double optimal = 0;
};

double balancedness(std::int64_t const* loads, placement_info const& placement, split_rule split) {
  std::vector<std::int32_t> map;
  for (auto const& rank : placement.rankExpertIds) {
    map.insert(map.end(), rank.begin(), rank.end());
  }
  auto const slots = static_cast<index_t>(map.size());
  std::vector<std::int32_t> copies(experts);
  plimsoll::matrix_ref<std::int32_t const> const of(map.data(), 1, slots);
  plimsoll::count_replicas(seq, of, plimsoll::matrix_ref<std::int32_t>(copies.data(), 1, experts));
  auto balance = plimsoll::zeros<double>(seq, 1, 1);
  plimsoll::replay(
      seq, plimsoll::tensor_ref<std::int64_t const>(loads, 1, 1, experts),
      {of, {copies.data(), 1, experts}, static_cast<index_t>(placement.rankExpertIds.size())},
      {.split = split}, balance);
  return balance.to_host()[0];
}

outcome follow(meta_info const& of, examples::npy::array<std::int64_t> const& recorded,
               planner const& by) {
  auto const of_layer = [&](int chunk, index_t layer) {
    return recorded.values.data() + (chunk * recorded.shape[1] + layer) * experts;
  };
  outcome sum;
  int plans = 0;
  for (index_t layer = 0; layer < recorded.shape[1]; layer += layer_step) {
    placement_info placement;
    placement.rankExpertIds.assign(
        static_cast<std::size_t>(of.epSize),
        std::vector<int>(static_cast<std::size_t>(of.slotCountPerRank), -1));
    placement.oldRankExpertIds = placement.rankExpertIds;
    for (int chunk = 0; chunk + 1 < chunks; ++chunk) {
      loads_of_layer loads(of_layer(chunk, layer), of_layer(chunk, layer) + experts);
      by.plan(static_cast<int>(layer / layer_step), loads, placement);
      if (chunk > 0) {
        int copied = 0;
        int most = 0;
        for (std::size_t rank = 0; rank < placement.rankExpertIds.size(); ++rank) {
          int here = 0;
          for (std::size_t slot = 0; slot < placement.rankExpertIds[rank].size(); ++slot) {
            here += placement.rankExpertIds[rank][slot] != placement.oldRankExpertIds[rank][slot]
                        ? 1
                        : 0;
          }
          copied += here;
          most = std::max(most, here);
        }
        sum.copied += 100.0 * copied / (of.epSize * of.slotCountPerRank);
        sum.copied_by_rank += most;
        sum.even += balancedness(of_layer(chunk + 1, layer), placement, split_rule::even);
        sum.optimal += balancedness(of_layer(chunk + 1, layer), placement, split_rule::optimal);
        plans += 1;
      }
      placement.oldRankExpertIds = placement.rankExpertIds;
    }
  }
  return {sum.copied / plans, sum.copied_by_rank / plans, sum.even / plans, sum.optimal / plans};
}

void print(std::string const& folder) {
  auto const recorded =
      examples::measured_counts(folder + "/glm-5.2-ten-domains/counts_by_chunk.npy", chunks);
  int const layers = static_cast<int>((recorded.shape[1] + layer_step - 1) / layer_step);
  for (auto const& [ranks, width] : {std::pair{8, 33}, {32, 9}, {36, 8}, {64, 5}}) {
    meta_info const of{experts, 8, 0, ranks, width};
    for (planner const& one : planners(of, layers)) {
      outcome const found = follow(of, recorded, one);
      std::cout << "| " << ranks << " x " << width << " | " << one.name << " | "
                << examples::cell(found.copied, 1) << " | "
                << examples::cell(found.copied_by_rank, 1) << " | " << examples::cell(found.even, 3)
                << " | " << examples::cell(found.optimal, 3) << " |" << std::endl;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return examples::make_measured_table(
      "engine_plans", argc, argv,
      "| ranks x slots | planner | slots copied, % | most of a rank | balancedness, even split "
      "| optimal split |\n|---|---|---:|---:|---:|---:|\n",
      print);
}
