// SPDX-License-Identifier: Apache-2.0
#include "state.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#ifndef MIXED_COMPILER
#define MIXED_COMPILER of_host
#endif

namespace MIXED_COMPILER {

state make() {
  std::vector<double> const loads{3, 1};
  plimsoll::matrix_ref<double const> const step(loads.data(), 1, 2);
  plimsoll::array recorded(plimsoll::seq, loads, 1, 1, 2);
  auto plan = plimsoll::eplb(plimsoll::seq, step, 3, {.on = {.ranks = 3}});
  auto flow = plimsoll::place_by_flow(plimsoll::seq, recorded, 3, {.on = {.ranks = 3}});
  return {.loads = std::move(recorded), .plan = std::move(plan), .flow = std::move(flow)};
}

bool as_expected(plimsoll::placement<plimsoll::seq_policy> const& plan) {
  return plan.ranks == 3 && plan.certificates.size() == 1 &&
         plan.physical_to_logical.to_host() == std::vector<std::int32_t>{0, 1, 0} &&
         plan.replica_count.to_host() == std::vector<std::int32_t>{2, 1};
}

bool as_expected(state const& given) {
  return given.loads.to_host() == std::vector<double>{3, 1} && as_expected(given.plan) &&
         given.flow.reports.size() == 1;
}

plimsoll::placement<plimsoll::seq_policy> take(state&& given) {
  plimsoll::placement<plimsoll::seq_policy> taken = std::move(given.plan);
  given.loads = {};
  return taken;
}

}  // namespace MIXED_COMPILER
