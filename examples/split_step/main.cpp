// SPDX-License-Identifier: Apache-2.0
// split_step: every process is one rank of expert parallelism and plans for itself, on the host.
//
//     mpirun -n 4 split_step
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <plimsoll/execution.hpp>
#include <plimsoll/views.hpp>
#include <vector>

#include "command_line.hpp"
#include "step.hpp"

namespace {

/// Arrays in host memory, exchanged by MPI.
class host_backend {
 public:
  using policy_type = plimsoll::seq_policy;
  template <class T>
  using array = std::vector<T>;

  [[nodiscard]] policy_type const& policy() const { return plimsoll::seq; }
  [[nodiscard]] static std::vector<std::int32_t> upload(std::vector<std::int32_t> values) {
    return values;
  }
  template <class T = std::int32_t>
  [[nodiscard]] static std::vector<T> zeros(int size) {
    return std::vector<T>(static_cast<std::size_t>(size));
  }
  static void all_reduce(array<std::int32_t> const& own, array<std::int32_t>& sum) {
    MPI_Allreduce(own.data(), sum.data(), static_cast<int>(own.size()), MPI_INT32_T, MPI_SUM,
                  MPI_COMM_WORLD);
  }
  static void all_reduce(plimsoll::matrix_ref<std::int64_t> sum) {
    auto const size = static_cast<int>(sum.extent(0) * sum.extent(1));
    MPI_Allreduce(MPI_IN_PLACE, sum.data, size, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  }
  static void all_gather(array<std::int32_t> const& own, array<std::int32_t>& all) {
    auto const size = static_cast<int>(own.size());
    MPI_Allgather(own.data(), size, MPI_INT32_T, all.data(), size, MPI_INT32_T, MPI_COMM_WORLD);
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
