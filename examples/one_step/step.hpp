// SPDX-License-Identifier: Apache-2.0
// A step of one MoE layer: drop, count into the ring, split over replicas, place the shared expert.
#pragma once

#include <cstdint>
#include <plimsoll/array.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/lplb.hpp>
#include <plimsoll/systems/token_drop.hpp>
#include <plimsoll/systems/waterfill.hpp>
#include <plimsoll/views.hpp>
#include <vector>

#include "stand_ins.hpp"

namespace one_step {

// [run]
/// Prepares a layer and runs its steps. On a GPU, `record` captures the step in a CUDA graph and
/// returns a function that replays it; on the host, it returns the step. Returns whether all steps
/// were right.
template <class Policy, class Record>
bool run(Policy const& policy, Record record) {
  // Once: a placement from recorded loads, and all memory that steps will use.
  auto const placement =
      plimsoll::eplb(policy, recorded_loads(policy), slots, {.on = {.ranks = ranks}});
  plimsoll::token_drop drop(policy, {.route = {.k = top_k},
                                     .limit = {.experts = experts,
                                               .max_tokens = tokens,
                                               .factor = 2}});  // twice the mean, rounded up
  plimsoll::load_window<std::int32_t, Policy> ring(policy, 1, experts, {.window = 100});
  plimsoll::lplb split(policy, placement, {.max_token_copies = tokens * top_k});
  std::vector<plimsoll::waterfill<Policy>> shared;  // an engine's process has that of its own rank
  for (index_t rank = 0; rank < ranks; ++rank) {
    shared.emplace_back(
        policy, placement,
        plimsoll::waterfill_options{
            .rank = rank, .line = {.top_k = top_k, .max_tokens = rank_tokens, .min_tokens = 0}});
  }
  auto logits = plimsoll::zeros<float>(policy, tokens, experts);  // the router writes them
  auto weights = plimsoll::zeros<float>(policy, tokens, top_k);
  auto kept = plimsoll::zeros<std::int32_t>(policy, tokens, top_k);    // experts, -1 if dropped
  auto chosen = plimsoll::zeros<std::int32_t>(policy, tokens, top_k);  // slots
  auto filled = plimsoll::zeros<std::int32_t>(policy, tokens, top_k + 1);
  auto routed = plimsoll::zeros<std::int32_t>(policy, 1, experts);   // counts before the mask
  auto staying = plimsoll::zeros<std::int32_t>(policy, 1, experts);  // counts after the mask
  auto gathered = plimsoll::zeros<std::int64_t>(policy, ranks, 2, ranks);
  auto report = plimsoll::zeros<plimsoll::capacity_report>(policy);
  auto ids_counted = plimsoll::zeros<plimsoll::routing_counters>(policy);
  auto ids_dispatched = plimsoll::zeros<plimsoll::dispatch_counters>(policy);

  auto const step = record([&] {
    drop.apply(logits,
               {.ids = kept, .weights = weights, .counts = row_of(staying), .report = report});
    // The ring gets the counts before the mask: a planner must see what the router asks for.
    plimsoll::count_tokens(policy, drop.routed_ids(tokens), {}, row_of(routed), ids_counted);
    ring.push(routed);
    // The split gets the counts after the mask: only these token copies are computed.
    split.plan(staying);
    split.dispatch(0, kept, chosen, ids_dispatched);  // layer 0
    for (index_t rank = 0; rank < ranks; ++rank) {
      shared[rank].count(rows(chosen, rank));
    }
    all_reduce(policy, gathered, shared);  // in an engine: ncclAllReduce of the own loads()
    for (index_t rank = 0; rank < ranks; ++rank) {
      shared[rank].fill(rows(chosen, rank), {}, rows(filled, rank));
    }
  });

  bool right = true;
  for (int i = 0; i < steps; ++i) {
    logits.assign(router_output(i));
    step();
    split.check();  // waits; now and then is enough
    right = is_right(i, placement, kept, chosen, filled) && right;
  }
  return right && has_all_steps(policy, ring);
}
// [end]

}  // namespace one_step
