// SPDX-License-Identifier: Apache-2.0
// split_step_nccl: like split_step, but counts, plans and slots stay on a device. Every process of
// a node uses its own device, and NCCL exchanges the counts on the stream of all kernels.
//
//     mpirun -n 4 split_step_nccl
#include <cuda_runtime_api.h>
#include <mpi.h>
#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/views.hpp>
#include <stdexcept>
#include <string>

#include "command_line.hpp"
#include "step.hpp"

namespace {

void check(cudaError_t code, char const* call) {
  if (code != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code));
  }
}
void check(ncclResult_t code, char const* call) {
  if (code != ncclSuccess) {
    throw std::runtime_error(std::string(call) + ": " + ncclGetErrorString(code));
  }
}

/// Returns the device of this process: the processes of a node use its devices in turn.
int device_of_process() {
  MPI_Comm node = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int rank = 0;
  MPI_Comm_rank(node, &rank);
  MPI_Comm_free(&node);
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  return rank % devices;
}

/// Exchanges arrays in device memory by NCCL.
class nccl_backend {
 public:
  using policy_type = plimsoll::gpu_policy;
  using counts = plimsoll::array<std::int32_t, policy_type, 2>;

  explicit nccl_backend(split_step::process const& self) {
    check(cudaSetDevice(device_of_process()), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    policy_ = plimsoll::gpu(stream_);
    ncclUniqueId id;
    if (self.rank == 0) {
      check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    }
    MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
    check(ncclCommInitRank(&communicator_, self.ranks, id, self.rank), "ncclCommInitRank");
  }
  nccl_backend(nccl_backend const&) = delete;
  nccl_backend& operator=(nccl_backend const&) = delete;
  ~nccl_backend() {
    static_cast<void>(ncclCommDestroy(communicator_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }

  [[nodiscard]] policy_type const& policy() const { return policy_; }
  void all_reduce(plimsoll::matrix_ref<std::int64_t> sum) const {
    check(
        ncclAllReduce(sum.data, sum.data, size_of(sum), ncclInt64, ncclSum, communicator_, stream_),
        "ncclAllReduce");
  }
  void all_gather(counts const& own, counts& all) const {
    check(ncclAllGather(own.data_handle(), all.data_handle(), size_of(own), ncclInt32,
                        communicator_, stream_),
          "ncclAllGather");
  }

 private:
  static std::size_t size_of(auto const& matrix) {
    return static_cast<std::size_t>(matrix.extent(0) * matrix.extent(1));
  }

  cudaStream_t stream_ = nullptr;
  ncclComm_t communicator_ = nullptr;
  policy_type policy_ = plimsoll::gpu(nullptr);
};

}  // namespace

int main(int argc, char** argv) {
  return split_step::run("split_step_nccl", argc, argv,
                         [](split_step::options const& o, split_step::process const& self) {
                           nccl_backend backend(self);
                           return split_step::run_steps(o, self, backend);
                         });
}
