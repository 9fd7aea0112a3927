// SPDX-License-Identifier: Apache-2.0
// Plans placements of experts for an engine whose files are C++17: raw pointers and sizes, and a
// status with a text instead of exceptions. planner.cpp is the one file that is C++20 and includes
// Plimsoll. The folders beside this file replace the planners of three engines by these calls.
//
// Slot s of a layer is on rank s / slots_per_rank. Maps are [ranks, slots_per_rank], row by row;
// -1 is an empty slot. dead_ranks is [ranks], nonzero for a rank that is lost, or null.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace expert_planner {

/// Outcome of a call.
enum class status {
  ok,
  refused,  ///< an argument is wrong, and the text names it; outputs are unspecified
  failed    ///< out of memory, or another failure that the text tells
};

/// Answer of a call. No call throws.
struct answer {
  status code = status::ok;
  std::string text;

  explicit operator bool() const { return code == status::ok; }
};

/// Sizes of a layer.
struct layer_sizes {
  int experts = 0;
  int ranks = 0;
  int slots_per_rank = 0;  ///< at most `experts`
};

/// Gives every expert its number of copies: the next copy goes to the largest load per copy.
/// @param loads [experts]
/// @param[out] replica_count [experts]; their sum is the number of slots of live ranks
answer replicate(layer_sizes sizes, float const* loads, std::uint8_t const* dead_ranks,
                 int* replica_count);

/// Places copies: the heaviest first, on the least loaded rank with a free slot. Ranks and slots
/// are then named so that the fewest experts move from the map in use.
/// @param in_use the map in use, or null
/// @param[out] rank_experts the new map, with -1 on dead ranks
answer place(layer_sizes sizes, float const* loads, std::uint8_t const* dead_ranks,
             int const* replica_count, int const* in_use, int* rank_experts);

/// Lists the slots of every expert one after the other, as kernels read them.
/// @param[out] replica_count [experts]
/// @param[out] first [experts]: where the list of each expert starts
/// @param[out] slots [ranks * slots_per_rank]: the lists, then -1
answer list_slots(layer_sizes sizes, int const* rank_experts, int* replica_count, int* first,
                  int* slots);

/// Lists the slots of every expert in a row of its own.
/// @param width length of a row
/// @param[out] replica_count [experts]
/// @param[out] slots [experts, width]: the slots of each expert, then -1
answer pad_slots(layer_sizes sizes, int const* rank_experts, int width, int* replica_count,
                 int* slots);

/// Budget, history and split of a `planner`.
struct planner_options {
  double max_moves_share = 0.1;  ///< largest share of the slots that get an expert of another rank
  int steps = 2;                 ///< loads that are kept of each layer; 1 follows noise, too
  bool optimal_split = false;    ///< judge plans by the best split instead of the even one
  bool is_fast = false;          ///< compare only plans that single changes lead to
};

/// Plans the layers of a model again and again. The plan that balances the steps kept best within
/// the budget of moves replaces the map in use, unless steps that it was not made from gain
/// nothing. A layer whose map in use lacks an expert, or leaves a slot of a live rank empty, is
/// planned anew without budget. One object serves one thread at a time.
class planner {
 public:
  planner();
  ~planner();
  planner(planner&&) noexcept;
  planner& operator=(planner&&) noexcept;

  /// Allocates what planning needs. All other calls are refused before.
  answer create(layer_sizes sizes, int layers, planner_options options = {});

  /// Adds a step of a layer; the oldest one is forgotten.
  /// @param loads [experts], finite and not negative
  template <class Load>
  answer add_step(int layer, Load const* loads, int experts) {
    return add(layer, loads, experts, [](void const* from, int expert) {
      return static_cast<double>(static_cast<Load const*>(from)[expert]);
    });
  }

  /// Plans one layer.
  /// @param in_use the map in use
  /// @param[out] rank_experts the new map, with -1 on dead ranks
  /// @param[out] replica_count [experts]
  answer plan(int layer, int const* in_use, std::uint8_t const* dead_ranks, int* rank_experts,
              int* replica_count);

  /// Plans all layers within one budget; gains that layers have in common are proven together.
  /// @param in_use [layers, ranks, slots_per_rank]
  /// @param[out] rank_experts like in_use, in other memory, with -1 on dead ranks
  /// @param[out] changed [layers]: 1 if the layer has a new map
  answer plan_all(int const* in_use, std::uint8_t const* dead_ranks, int* rank_experts,
                  std::uint8_t* changed);

 private:
  struct state;

  answer add(int layer, void const* loads, int experts, double (*load_of)(void const*, int));
  [[nodiscard]] state& created() const;

  std::unique_ptr<state> state_;
};

}  // namespace expert_planner
