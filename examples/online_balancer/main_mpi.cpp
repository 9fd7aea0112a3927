// SPDX-License-Identifier: Apache-2.0
// online_balancer_mpi [METRICS]: the loop in several processes, which share the ranks. Process 0
// prints, and writes metrics to the file METRICS.
//
//     mpirun -n 4 online_balancer_mpi
#include <mpi.h>

#include <cstdio>
#include <exception>
#include <plimsoll/execution.hpp>
#include <stdexcept>

#include "balancer.hpp"
#include "mpi_exchange.hpp"

namespace {

void run(online_balancer::mpi_exchange const& exchange, char const* path) {
  bool const prints = exchange.process() == 0;
  // All processes have the same to print.
  if (!prints && std::freopen("/dev/null", "w", stdout) == nullptr) {
    throw std::runtime_error("/dev/null cannot be opened");
  }
  online_balancer::engine engine(plimsoll::seq, exchange);
  online_balancer::run_steps(
      engine, [&] { engine.enqueue(); }, prints ? path : nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);  // the worker calls no MPI
  online_balancer::mpi_exchange const exchange;
  if (online_balancer::ranks % exchange.processes() != 0) {
    if (exchange.process() == 0) {
      std::fprintf(stderr, "online_balancer_mpi: expected processes that divide %d ranks, got %d\n",
                   static_cast<int>(online_balancer::ranks), exchange.processes());
    }
    MPI_Finalize();
    return 2;
  }
  try {
    if (provided < MPI_THREAD_FUNNELED) {
      throw std::runtime_error("this MPI allows no worker thread");
    }
    run(exchange, argc > 1 ? argv[1] : nullptr);
  } catch (std::exception const& e) {
    // The others may wait for this process, so it ends them, too.
    std::fprintf(stderr, "online_balancer_mpi: process %d: %s\n", exchange.process(), e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
