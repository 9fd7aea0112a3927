// SPDX-License-Identifier: Apache-2.0
// profile_ranks: measures the time of the GEMMs of a rank's experts for several numbers of tokens,
// on every GPU of this machine, for plan_experts --planner gem --latency.
//
//     profile_ranks --hidden 7168 --intermediate 2048 --experts 4 --output curves.json
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "options.hpp"
#include "profile.hpp"

namespace {

namespace example = profile_ranks_example;

void check(cudaError_t code, char const* call) {
  if (code != cudaSuccess) {
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code));
  }
}

void check(cublasStatus_t code, char const* call) {
  if (code != CUBLAS_STATUS_SUCCESS) {
    throw std::runtime_error(std::string(call) + ": " + cublasGetStatusString(code));
  }
}

/// Fills with irregular values from -scale to scale; products of zeros would take less power and
/// time.
__global__ void fill(__nv_bfloat16* values, std::int64_t size, float scale) {
  std::int64_t const stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size;
       i += stride) {
    auto bits = static_cast<std::uint32_t>(i) * 2654435761U;
    bits = (bits ^ (bits >> 15)) * 2246822519U;
    bits ^= bits >> 13;
    values[i] = __float2bfloat16(scale * (static_cast<float>(bits >> 8) * 0x1p-23F - 1));
  }
}

/// Row-major matrix in the memory of a device.
using matrix = plimsoll::array<__nv_bfloat16, plimsoll::gpu_policy, 2>;

/// Returns a matrix of irregular values.
matrix filled(std::int64_t rows, std::int64_t columns, double scale, cudaStream_t stream) {
  matrix result(plimsoll::gpu(stream), rows, columns);
  fill<<<1024, 256, 0, stream>>>(result.data_handle(), result.size(), static_cast<float>(scale));
  check(cudaGetLastError(), "fill");
  return result;
}

class event {
 public:
  event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  event(event const&) = delete;
  event& operator=(event const&) = delete;
  ~event() { static_cast<void>(cudaEventDestroy(event_)); }

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  [[nodiscard]] double microseconds_since(event const& start) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, start.event_, event_), "cudaEventElapsedTime");
    return 1000.0 * milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

class stream {
 public:
  stream() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  stream(stream const&) = delete;
  stream& operator=(stream const&) = delete;
  ~stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class cublas {
 public:
  explicit cublas(cudaStream_t stream) {
    check(cublasCreate(&handle_), "cublasCreate");
    check(cublasSetStream(handle_, stream), "cublasSetStream");
  }
  cublas(cublas const&) = delete;
  cublas& operator=(cublas const&) = delete;
  ~cublas() { static_cast<void>(cublasDestroy(handle_)); }

  /// Computes y = x w^T for `tokens` rows from `first` on. Of the columns of x, the first
  /// w.extent(1) count.
  void project(matrix const& x, matrix const& w, matrix& y, std::int64_t first,
               std::int64_t tokens) const {
    float const one = 1;
    float const zero = 0;
    auto const n = [](std::int64_t size) { return static_cast<int>(size); };
    check(cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, n(w.extent(0)), n(tokens), n(w.extent(1)),
                       &one, w.data_handle(), CUDA_R_16BF, n(w.extent(1)),
                       x.data_handle() + first * x.extent(1), CUDA_R_16BF, n(x.extent(1)), &zero,
                       y.data_handle() + first * y.extent(1), CUDA_R_16BF, n(y.extent(1)),
                       CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
          "cublasGemmEx");
  }

 private:
  cublasHandle_t handle_ = nullptr;
};

/// The experts of a rank, on the current device.
class rank_experts {
 public:
  rank_experts(example::options const& o, std::int64_t most_tokens)
      : o_(o),
        x_(filled(most_tokens, o.hidden, 1, stream_.get())),
        between_(filled(most_tokens, 2 * o.intermediate, 1, stream_.get())),
        y_(filled(most_tokens, o.hidden, 1, stream_.get())),
        cold_(plimsoll::gpu(stream_.get()), 2 * cache_bytes()) {
    // With these scales the sums of products stay near 1.
    double const scale = std::sqrt(3.0 / static_cast<double>(o.hidden));
    double const scale_down = std::sqrt(3.0 / static_cast<double>(o.intermediate));
    for (std::int64_t e = 0; e < o.experts; ++e) {
      gate_and_up_.push_back(filled(2 * o.intermediate, o.hidden, scale, stream_.get()));
      down_.push_back(filled(o.hidden, o.intermediate, scale_down, stream_.get()));
    }
    check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
  }

  /// Returns the microseconds of each launch, after some warm-up launches.
  [[nodiscard]] std::vector<double> time(std::int64_t tokens, std::int64_t launches) {
    constexpr std::int64_t warm_up = 10;
    auto const share = example::tokens_of_experts(tokens, o_.experts);
    std::vector<event> begin(static_cast<std::size_t>(launches));
    std::vector<event> end(begin.size());
    for (std::int64_t i = -warm_up; i < launches; ++i) {
      // Clears the L2 cache, as other layers do in service, so that weights come from memory. This
      // also keeps the GPU busy until the whole launch is in its queue.
      check(cudaMemsetAsync(cold_.data_handle(), 0, static_cast<std::size_t>(cold_.size()),
                            stream_.get()),
            "cudaMemsetAsync");
      if (i >= 0) {
        begin[static_cast<std::size_t>(i)].record(stream_.get());
      }
      launch(share);
      if (i >= 0) {
        end[static_cast<std::size_t>(i)].record(stream_.get());
      }
    }
    check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    std::vector<double> times;
    for (std::size_t i = 0; i < begin.size(); ++i) {
      times.push_back(end[i].microseconds_since(begin[i]));
    }
    return times;
  }

 private:
  /// Runs the GEMMs of every expert. There is no activation, so the down projection reads only one
  /// half of the first product.
  void launch(std::vector<std::int64_t> const& share) {
    std::int64_t first = 0;
    for (std::size_t e = 0; e < share.size(); ++e) {
      if (share[e] > 0) {
        cublas_.project(x_, gate_and_up_[e], between_, first, share[e]);
        cublas_.project(between_, down_[e], y_, first, share[e]);
        first += share[e];
      }
    }
  }

  [[nodiscard]] static std::int64_t cache_bytes() {
    int device = 0;
    int bytes = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
    return std::int64_t{bytes} + 1;
  }

  example::options o_;
  stream stream_;
  cublas cublas_{stream_.get()};
  matrix x_;
  matrix between_;
  matrix y_;
  plimsoll::array<std::byte, plimsoll::gpu_policy> cold_;
  std::vector<matrix> gate_and_up_;
  std::vector<matrix> down_;
};

/// The devices to measure, one for every rank.
std::vector<int> devices_of(example::options const& o) {
  int count = 0;
  cudaError_t const code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    throw example::no_gpu(std::string("no GPU: ") +
                          (code != cudaSuccess ? cudaGetErrorString(code) : "none is visible"));
  }
  if (o.device && *o.device >= count) {
    throw example::bad_option("--device: expected one of the " + std::to_string(count) +
                              " GPUs, from 0, got " + std::to_string(*o.device));
  }
  std::vector<int> devices;
  for (int device = 0; device < count; ++device) {
    if (!o.device || *o.device == device) {
      devices.push_back(device);
    }
  }
  return devices;
}

void measure(example::options const& o) {
  auto const devices = devices_of(o);
  example::curves_file file(o.output);
  example::profile result = example::plan_profile(o);
  for (int const device : devices) {
    check(cudaSetDevice(device), "cudaSetDevice");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    rank_experts experts(o, result.tokens.back());
    example::measure_rank(
        result, o, properties.name,
        [&](std::int64_t tokens, std::int64_t launches) { return experts.time(tokens, launches); });
  }
  example::print_profile(std::cout, result);
  file.write(result, o);
  std::cout << "wrote " << o.output << '\n';
}

}  // namespace

int main(int argc, char** argv) { return example::run(argc, argv, measure); }
