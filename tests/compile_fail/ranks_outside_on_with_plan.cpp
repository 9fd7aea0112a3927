// expect-error: minmax_lp: members of rank_set must be written as \{\.on = \{\.ranks = \.\.\.\}\}
// errors: 18
// without: candidate|no matching|deduction
// The same for calls that read a placement or a plan, and for a `rank_set`.
#include <plimsoll/plimsoll.hpp>

#include <vector>

namespace p = plimsoll;

int main() {
  p::array const loads(p::seq, std::vector{3, 1}, 1, 2);
  p::array const steps(p::seq, std::vector{3, 1}, 1, 1, 2);
  p::array copies(p::seq, std::vector{1, 1}, 1, 2), map(p::seq, std::vector{0, 1}, 1, 2);
  p::array out(p::seq, std::vector<double>(1), 1, 1);
  auto const plan = p::eplb(p::seq, loads, 2, {.on = {.ranks = 2}});
  p::certify(p::seq, steps, plan, {.ranks = 2});
  p::refine(p::seq, loads, plan, {.ranks = 2}, {});
  p::refine(p::seq, loads, {.ranks = 2}, {}, map, copies);
  p::replay(p::seq, steps, plan, {.ranks = 2}, out);
  p::count_changes(p::seq, plan, plan, {.ranks = 2});
  p::align(p::seq, plan, plan, {.ranks = 2});
  p::align(p::seq, plan, plan, {.ranks = 2}, map);
  p::plan_within(p::seq, loads, plan, plan, {.ranks = 2});
  p::plan_within(p::seq, steps, plan, plan, {.ranks = 2}, {.max_moves = 1});
  p::plan_within(p::seq, loads, plan, plan, {.ranks = 2}, {}, map, copies);
  p::plan_transfers(p::seq, plan, plan, {.ranks = 2});
  p::validate(p::seq, plan, {.ranks = 2});
  p::validate(p::seq, plan, plan, p::transfer_plan{}, {.ranks = 2});
  p::validate(p::seq, p::spill_plan_ref{}, std::vector{3, 1}, {.ranks = 2});
  p::layer_planner(p::seq, plan, 1, {.ranks = 2});
  p::minmax_lp(p::seq, plan, {.ranks = 2});
  p::waterline(p::seq, p::rank_set{.ranks = 2});
  p::least_loaded(p::seq, {.ranks = 2});
}
