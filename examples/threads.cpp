// SPDX-License-Identifier: Apache-2.0
// Plans the next placement in a worker thread while the engine's thread splits steps over the
// replicas of the placement in use.
#include <cstdint>
#include <cstdio>
#include <future>
#include <plimsoll/plimsoll.hpp>
#include <vector>

namespace {

constexpr plimsoll::rank_set ranks{.ranks = 4};
constexpr plimsoll::index_t slots = 12;

// [class]
/// Splits the steps of one layer, by a placement that changes.
class balancer {
 public:
  using placement = plimsoll::placement<plimsoll::seq_policy>;

  explicit balancer(placement const& plan) : planner_(plimsoll::seq, plan.ref(), {}) {}

  /// Splits a step; returns the tokens of the busiest rank.
  std::int64_t split(std::vector<int> const& counts) {
    planner_.plan(plimsoll::array_ref(counts, 1, static_cast<plimsoll::index_t>(counts.size())));
    planner_.check();
    return planner_.reports()[0].peak;
  }
  void take(placement const& plan) { planner_.update(0, plan.ref()); }

 private:
  plimsoll::lplb<plimsoll::seq_policy> planner_;
};
// [end]

/// Eight experts; from step 2 on, another one is the busiest.
std::vector<int> tokens_of(int step) {
  std::vector<int> counts{60, 80, 100, 80, 60, 40, 30, 30};
  counts[step < 2 ? 2 : 6] += 320;
  return counts;
}

}  // namespace

int main() {
  // [loop]
  auto const plan_for = [](std::vector<int> const& counts) {
    return plimsoll::eplb(plimsoll::seq, plimsoll::array_ref(counts, 1, 8), slots, {.on = ranks});
  };
  balancer current(plan_for(tokens_of(0)));
  std::future<balancer::placement> next;
  for (int step = 0; step < 8; ++step) {
    std::vector<int> const counts = tokens_of(step);
    if (step == 2) {  // the loads have changed
      next = std::async(std::launch::async, [=] { return plan_for(counts); });
    }
    if (step == 6) {  // when the plan is ready and its experts' weights are moved
      current.take(next.get());
    }
    std::printf("step %d: peak %lld\n", step, static_cast<long long>(current.split(counts)));
  }
  // [end]
}
