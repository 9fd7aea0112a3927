// expect-error: eplb: members of rank_set must be written as \{\.on = \{\.ranks = \.\.\.\}\}
// errors: 19
// without: candidate|no matching|deduction
// Members of `on` outside of it: one message for each call, without a list of candidates.
#include <plimsoll/plimsoll.hpp>

#include <vector>

namespace p = plimsoll;

int main() {
  p::array const loads(p::seq, std::vector{3, 1}, 1, 2);
  p::array const steps(p::seq, std::vector{3, 1}, 1, 1, 2);
  p::array copies(p::seq, std::vector{1, 1}, 1, 2), map(p::seq, std::vector{0, 1}, 1, 2);
  p::array offsets(p::seq, std::vector{0, 1, 2}, 1, 3);
  p::array out(p::seq, std::vector<double>(2), 1, 2), scores(p::seq, std::vector<double>(1), 1, 1);
  p::latency_curves const curves{};
  p::eplb(p::seq, loads, 2, {.ranks = 2});
  p::eplb(p::seq, loads, {.ranks = 2}, map, copies);
  p::place(p::seq, loads, copies, 2, {.ranks = 2});
  p::place(p::seq, loads, copies, {.ranks = 2}, map);
  p::place_groups(p::seq, loads, 1, 2, {.ranks = 2}, map, copies);
  p::gem(p::seq, steps, curves, 2, {.ranks = 2});
  p::gem(p::seq, steps, curves, {.ranks = 2}, map, copies);
  p::trace_length_latencies(p::seq, steps, curves, 2, 1, {1}, {.ranks = 2}, out);
  p::craft(p::seq, steps, {.ranks = 2});
  p::craft(p::seq, steps, {.ranks = 2}, map, offsets, copies);
  p::estimate_gains(p::seq, steps, {.ranks = 2});
  p::allocate_replicas(p::seq, p::gain_estimate{}, {.ranks = 2});
  p::swap_search(p::seq, steps, curves, 2, {.ranks = 2});
  p::swap_search(p::seq, steps, curves, {.ranks = 2}, map);
  p::swap_search(p::seq, steps, curves, {.ranks = 2}, map, scores);
  p::place_by_flow(p::seq, steps, 2, {.ranks = 2});
  p::place_by_flow(p::seq, steps, {.ranks = 2}, map, copies);
  p::assign_slots(p::seq, std::vector{2}, {.ranks = 2}, offsets);
  p::select_planner(p::seq, steps, 2, {.ranks = 2, .nodes = 1});
}
