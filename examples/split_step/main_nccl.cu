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
#include <plimsoll/execution.hpp>
#include <plimsoll/views.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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

/// Device memory; freed with the array.
template <class T>
class device_array {
 public:
  explicit device_array(std::size_t size) : size_(size) {
    check(cudaMalloc(&data_, size * sizeof(T)), "cudaMalloc");
  }
  device_array(device_array&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  device_array& operator=(device_array&&) = delete;
  ~device_array() { static_cast<void>(cudaFree(data_)); }

  [[nodiscard]] T* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

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

class nccl_backend {
 public:
  using policy_type = plimsoll::gpu_policy;
  template <class T>
  using array = device_array<T>;

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

  [[nodiscard]] array<std::int32_t> upload(std::vector<std::int32_t> const& values) const {
    array<std::int32_t> result(values.size());
    check(cudaMemcpyAsync(result.data(), values.data(), values.size() * sizeof(std::int32_t),
                          cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");  // `values` may end
    return result;
  }
  template <class T = std::int32_t>
  [[nodiscard]] array<T> zeros(int size) const {
    array<T> result(static_cast<std::size_t>(size));
    check(cudaMemsetAsync(result.data(), 0, result.size() * sizeof(T), stream_), "cudaMemsetAsync");
    return result;
  }
  void all_reduce(array<std::int32_t> const& own, array<std::int32_t>& sum) const {
    check(ncclAllReduce(own.data(), sum.data(), own.size(), ncclInt32, ncclSum, communicator_,
                        stream_),
          "ncclAllReduce");
  }
  void all_reduce(plimsoll::matrix_ref<std::int64_t> sum) const {
    auto const size = static_cast<std::size_t>(sum.extent(0) * sum.extent(1));
    check(ncclAllReduce(sum.data, sum.data, size, ncclInt64, ncclSum, communicator_, stream_),
          "ncclAllReduce");
  }
  void all_gather(array<std::int32_t> const& own, array<std::int32_t>& all) const {
    check(ncclAllGather(own.data(), all.data(), own.size(), ncclInt32, communicator_, stream_),
          "ncclAllGather");
  }

 private:
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
