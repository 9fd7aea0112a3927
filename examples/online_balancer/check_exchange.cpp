// SPDX-License-Identifier: Apache-2.0
// Checks, with 4 processes, that all get the same sums, and that each difference between what they
// have planned is found and named in all of them. Only the tests build this.
#include <mpi.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "mpi_exchange.hpp"

namespace {

using online_balancer::hash_of;

void expect(bool holds, char const* what) {
  if (!holds) {
    throw std::runtime_error(what);
  }
}

/// Expects that all processes find that process 2 has something else.
void expect_difference(online_balancer::mpi_exchange const& exchange, char const* what,
                       online_balancer::hash const& of) {
  std::string message;
  try {
    exchange.expect_same(what, of);
  } catch (std::runtime_error const& e) {
    message = e.what();
  }
  expect(message == std::string("process 0 disagrees on the ") + what + " with process 2", what);
}

void run(online_balancer::mpi_exchange const& exchange) {
  auto const process = static_cast<std::int32_t>(exchange.process());
  bool const is_odd = process == 2;

  std::vector<std::int64_t> sum{process, 1};
  exchange.sum(sum.data(), 2);
  expect(sum == std::vector<std::int64_t>{6, 4}, "sum");
  std::vector<std::int32_t> parts(8, -1);
  parts[static_cast<std::size_t>(2 * process)] = process;
  exchange.gather(parts.data(), 8);
  expect(parts == std::vector<std::int32_t>{0, -1, 1, -1, 2, -1, 3, -1}, "gather");
  expect(exchange.all_of(true) && !exchange.all_of(!is_odd), "all_of");

  // Another expert in a slot, or another count.
  for (int differs : {0, 1}) {
    plimsoll::array const map(plimsoll::seq, std::vector{0, 1, is_odd ? differs : 1}, 1, 3);
    plimsoll::array const counts(plimsoll::seq, std::vector{1, is_odd ? 2 + differs : 2}, 1, 2);
    plimsoll::placement_ref const placement{
        .physical_to_logical = map.view(), .replica_count = counts.view(), .ranks = 3};
    expect_difference(exchange, "placement", hash_of(placement));
  }
  // One bit of a gain, of an error, or of a duration.
  for (auto const member :
       {&plimsoll::replan_judgment::gain_seconds, &plimsoll::replan_judgment::standard_error,
        &plimsoll::replan_judgment::move_seconds}) {
    plimsoll::replan_decision decision;
    decision.candidates.emplace_back();
    decision.candidates[0].*member = is_odd ? std::nextafter(1e-3, 1.0) : 1e-3;
    expect_difference(exchange, "decision", hash_of(decision));
  }
  // The order of two transfers.
  plimsoll::transfer_plan plan;
  plan.list.resize(2);
  plan.list[is_odd ? 1 : 0].expert = 1;
  expect_difference(exchange, "transfers", hash_of(plan));
  plan.list.clear();
  exchange.expect_same("transfers", hash_of(plan));
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  online_balancer::mpi_exchange const exchange;
  try {
    expect(exchange.processes() == 4, "expected 4 processes");
    run(exchange);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "check_exchange: process %d: %s\n", exchange.process(), e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
