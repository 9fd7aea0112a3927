// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options and results of `align`, `plan_within`, `plan_transfers` and `changed_layers`.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Slots of one layer that change from one placement to another.
struct slot_changes {
  /// Moves: experts that arrive on a rank which did not hold them.
  index_t moves = 0;
  /// Other slots that get another expert: the rank holds it already, or has it from a move.
  index_t local_copies = 0;

  friend bool operator==(slot_changes const&, slot_changes const&) = default;
};

/// Ranks whose labels `align` exchanges.
enum class relabeling : std::int32_t {
  none,          ///< no rank changes its label; only slots within a rank are exchanged
  within_nodes,  ///< every layer has its own exchange, and the ranks of a node stay on it
  per_layer,     ///< every layer has its own exchange
  all_layers     ///< one exchange for all layers
};

/// Options of `align`. Arrays are in the policy's memory.
struct alignment_options {
  /// Ranks: nodes, liveness and speeds. `on.ranks` is that of the placements or 0.
  rank_set on = {};
  /// Exchange of labels: `none`, `within_nodes`, `per_layer`, or `all_layers`. Experts that must
  /// stay on a node, as with node lists of `place_groups`, need `within_nodes`.
  relabeling relabel = relabeling::per_layer;
};

/// Result of `align`.
struct alignment_report {
  /// Per relabeling, thus one per layer or one for all layers: value = moves, lower_bound = the
  /// fewest moves that any exchange of labels allowed leaves, proven by the dual variables of the
  /// assignment; optimal if no other exchange leaves fewer moves, or as many and fewer local
  /// copies; work = ranks and nodes scanned by the search, at least one per rank. Without
  /// relabeling one per layer: no other exchange is allowed, and the work is 0.
  std::vector<certificate> certificates;
  /// Per layer: what still changes.
  std::vector<slot_changes> layers;
};

/// Limit that is not a limit.
inline constexpr std::int64_t unlimited = std::numeric_limits<std::int64_t>::max();

/// Plans that `plan_within` compares with the placement in use.
enum class migration_candidates : std::int32_t {
  all,  ///< plans of `place_by_flow` with seven bonuses, single changes, and the new placement
  one_bonus,      ///< the plan of `place_by_flow` with `keep_bonus`
  single_changes  ///< plans that single changes lead to: fast within a small budget
};

/// Steps on which `plan_within` judges plans.
enum class judged_steps : std::int32_t {
  /// With at least two steps with load: plans that are alike are made from one half of the steps
  /// and judged on the other, and nothing moves that does not gain there.
  unseen,
  all  ///< the steps that the plans were made from
};

/// Options of `plan_within`.
struct migration_options {
  /// Split of an expert's tokens among its copies, under which plans are judged: `even`, or
  /// `optimal` as by `minmax_lp`.
  split_rule split = split_rule::even;
  /// Largest number of moves of all layers together, at least 0.
  std::int64_t max_moves = unlimited;
  /// Largest number of moves of each layer, at least 0.
  std::int64_t max_moves_per_layer = unlimited;
  /// Largest number of bytes that moves of all layers transfer, at least 0.
  std::int64_t max_bytes = unlimited;
  /// Largest number of bytes that moves of each layer transfer, at least 0.
  std::int64_t max_bytes_per_layer = unlimited;
  /// Bytes of the weights of one expert in one layer, at least 1.
  std::int64_t expert_bytes = 1;
  /// Least gain in mean balancedness that each move of a layer must bring, from 0 to 1.
  double move_price = 0;
  /// Steps on which plans are judged.
  judged_steps judge_on = judged_steps::unseen;
  /// Plans to compare. `one_bonus` takes a tenth of the time of `all`, knows no node lists and no
  /// required anti-affinity of nodes, and moves nothing in a layer whose plan exceeds the budget.
  /// `single_changes` compares neither plans of `place_by_flow` nor `to`: it takes a third of the
  /// time within a budget of a few moves.
  migration_candidates candidates = migration_candidates::all;
  /// With `one_bonus`: preference for the placement in use, as in `place_by_flow`.
  double keep_bonus = 0.8;
};

/// Times that tell what a move must gain, for `price_of_move`; all above 0.
struct move_cost {
  /// Bytes of the weights of one expert in one layer.
  std::int64_t expert_bytes = 1;
  /// Seconds that serving loses for each byte that moves: the inverse of the bandwidth if steps
  /// wait for the transfer, less if transfers run beside them.
  double seconds_per_byte = 0;
  /// Seconds that the experts of one layer take in one step.
  double layer_seconds = 0;
  /// Steps until the next decision.
  std::int64_t steps = 0;
};

/// Plan of one layer within a budget. Means are over the steps in which the layer has load;
/// without load it counts as balanced.
struct migration_report {
  /// value = mean imbalance of the plan, the peak of the ranks' loads over their mean (loads over
  /// speeds) under the split; lower_bound = mean of the bounds of each step for all plans with
  /// these slots, whatever they move; status optimal if both are equal, else feasible; work =
  /// plans compared.
  certificate imbalance = {};
  /// Mean imbalance of the placement in use.
  double imbalance_before = 0;
  /// Mean balancedness of the plan, rounded down to a multiple of 2^-40.
  double balancedness = 0;
  /// Mean balancedness of the placement in use, likewise.
  double balancedness_before = 0;
  /// Gain in mean balancedness for which the plan was chosen: on steps that such plans were not
  /// made from, or, without validation, on the loads given.
  double expected_gain = 0;
  /// Slots that change from the placement in use.
  slot_changes changes = {};
};

/// Path that the weights of an expert take.
enum class transfer_kind : std::int32_t {
  local_copy,    ///< from a slot of the same rank
  same_node,     ///< from another rank of the node
  across_nodes,  ///< from a rank of another node
  from_host      ///< from host memory or a checkpoint: no live rank holds the expert
};

/// Rule that every round of transfers keeps. Transfers from one rank to the same other rank are
/// always in one round.
enum class round_rule : std::int32_t {
  one_peer,         ///< a rank exchanges weights with at most one other rank, in both directions
  send_and_receive  ///< a rank sends to at most one rank, and receives from at most one rank
};

/// Transfer of one expert's weights to one slot.
struct transfer {
  std::int32_t layer = 0;   ///< Layer: a row of the placements.
  std::int32_t expert = 0;  ///< Expert whose weights are sent.
  /// Rank that sends; -1 for host memory.
  std::int32_t source_rank = -1;
  /// Slot that is read; -1 for host memory.
  std::int32_t source_slot = -1;
  std::int32_t destination_rank = 0;  ///< Rank that receives.
  std::int32_t destination_slot = 0;  ///< Slot that holds the expert in the new placement.
  /// Round of the layer, from 0.
  std::int32_t round = 0;
  /// Staging slot of the destination rank that receives the weights, since later rounds or this
  /// one still read the destination slot; -1: none.
  std::int32_t staging_slot = -1;
  /// Last round that reads the destination slot: the weights move from the staging slot to the
  /// destination slot at the end of this round. Equal to `round` without a staging slot.
  std::int32_t commit_round = 0;
  transfer_kind kind = transfer_kind::local_copy;  ///< Path of the weights.
  std::int64_t bytes = 0;                          ///< Bytes of the expert, `expert_bytes`.

  friend bool operator==(transfer const&, transfer const&) = default;
};

/// Speed of the paths of transfers, in bytes per second and rank, above 0. The defaults are those
/// of an H100 with NVLink 4, one 400 Gb/s network adapter per GPU, and PCIe 5.
struct transfer_bandwidths {
  double local_copy = 1.5e12;  ///< From slot to slot of a rank.
  double same_node = 450e9;    ///< Between ranks of a node.
  double across_nodes = 50e9;  ///< Between ranks of different nodes.
  double from_host = 50e9;     ///< From host memory to a rank.
};

/// Options of `plan_transfers`. Arrays are in the policy's memory.
struct transfer_options {
  /// Ranks: nodes and liveness. `on.ranks` is that of the placements or 0; speeds are refused.
  rank_set on = {};
  /// Rule of the rounds: `one_peer`, as vLLM's, or `send_and_receive`.
  round_rule rounds = round_rule::one_peer;
  /// Bytes of the weights of one expert in one layer, at least 1.
  std::int64_t expert_bytes = 1;
  /// Speeds from which the duration is estimated.
  transfer_bandwidths bandwidths = {};
};

/// Transfers of one layer.
struct layer_transfers {
  /// Number of rounds, with those of local copies and transfers from the host alone.
  index_t rounds = 0;
  /// Lower bound on the rounds of transfers between ranks: the most peers of a rank, or, under
  /// `send_and_receive`, the most that a rank sends to or receives from.
  index_t rounds_bound = 0;
  /// Most staging slots that a rank needs at one time.
  index_t staging_slots = 0;
  /// Slots of the layer that change.
  slot_changes changes = {};
  /// Estimated duration of its rounds, one after another.
  double seconds = 0;
};

/// Transfers from one placement to another, in host memory.
struct transfer_plan {
  /// By layer, then by round, then by destination slot.
  std::vector<transfer> list;
  /// `[layers]`
  std::vector<layer_transfers> layers;
  /// `[ranks]`: bytes that each rank sends to other ranks.
  std::vector<std::int64_t> sent_bytes;
  /// `[ranks]`: bytes that each rank receives from other ranks and from host memory.
  std::vector<std::int64_t> received_bytes;
  /// Estimated duration if layers follow one another. A round takes as long as its slowest rank; a
  /// rank sends and receives at the same time; its transfers of different kinds follow one another.
  double seconds = 0;
};

}}  // namespace plimsoll
