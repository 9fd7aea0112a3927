// SPDX-License-Identifier: Apache-2.0
// split_step: every process is one rank of expert parallelism and plans for itself, on the host.
//
//     mpirun -n 4 split_step
#include <mpi.h>

#include <cstdint>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/views.hpp>

#include "command_line.hpp"
#include "step.hpp"

namespace {

/// Exchanges arrays in host memory by MPI.
class host_backend {
 public:
  using policy_type = plimsoll::seq_policy;
  using counts = plimsoll::array<std::int32_t, policy_type, 2>;

  [[nodiscard]] policy_type const& policy() const { return plimsoll::seq; }
  static void all_reduce(plimsoll::matrix_ref<std::int64_t> sum) {
    auto const size = static_cast<int>(sum.extent(0) * sum.extent(1));
    MPI_Allreduce(MPI_IN_PLACE, sum.data, size, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  }
  static void all_gather(counts const& own, counts& all) {
    auto const size = static_cast<int>(own.size());
    MPI_Allgather(own.data_handle(), size, MPI_INT32_T, all.data_handle(), size, MPI_INT32_T,
                  MPI_COMM_WORLD);
  }
};

}  // namespace

int main(int argc, char** argv) {
  return split_step::run("split_step", argc, argv,
                         [](split_step::options const& o, split_step::process const& self) {
                           host_backend backend;
                           return split_step::run_steps(o, self, backend);
                         });
}
