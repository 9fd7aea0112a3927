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
#include <stdexcept>
#include <string>
#include <utility>
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
__global__ void fill(__nv_bfloat16* values, std::size_t size, float scale) {
  std::size_t const stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += stride) {
    auto bits = static_cast<std::uint32_t>(i) * 2654435761U;
    bits = (bits ^ (bits >> 15)) * 2246822519U;
    bits ^= bits >> 13;
    values[i] = __float2bfloat16(scale * (static_cast<float>(bits >> 8) * 0x1p-23F - 1));
  }
}

class device_array {
 public:
  explicit device_array(std::size_t bytes) : bytes_(bytes) {
    check(cudaMalloc(&data_, bytes_), "cudaMalloc");
  }
  device_array(device_array&& other) noexcept
      : bytes_(other.bytes_), data_(std::exchange(other.data_, nullptr)) {}
  device_array(device_array const&) = delete;
  device_array& operator=(device_array const&) = delete;
  ~device_array() { static_cast<void>(cudaFree(data_)); }

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

/// Returns an array of `rows` times `columns` bfloat16 values.
device_array filled(std::int64_t rows, std::int64_t columns, double scale, cudaStream_t stream) {
  std::size_t const size = static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  device_array result(size * sizeof(__nv_bfloat16));
  fill<<<1024, 256, 0, stream>>>(static_cast<__nv_bfloat16*>(result.data()), size,
                                 static_cast<float>(scale));
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

  /// Computes y = x w^T, all row-major: x is [tokens, inputs] with rows `row_of_x` apart, w is
  /// [outputs, inputs].
  void project(void const* x, std::int64_t row_of_x, device_array const& w, void* y,
               std::int64_t tokens, std::int64_t inputs, std::int64_t outputs) const {
    float const one = 1;
    float const zero = 0;
    auto const n = [](std::int64_t size) { return static_cast<int>(size); };
    check(cublasGemmEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, n(outputs), n(tokens), n(inputs), &one,
                       w.data(), CUDA_R_16BF, n(inputs), x, CUDA_R_16BF, n(row_of_x), &zero, y,
                       CUDA_R_16BF, n(outputs), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
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
        cold_(2 * cache_bytes()) {
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
      check(cudaMemsetAsync(cold_.data(), 0, cold_.bytes(), stream_.get()), "cudaMemsetAsync");
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
  void launch(std::vector<std::int64_t> const& share) const {
    std::int64_t first = 0;
    for (std::size_t e = 0; e < share.size(); ++e) {
      if (share[e] > 0) {
        auto* const between = row(between_, first, 2 * o_.intermediate);
        cublas_.project(row(x_, first, o_.hidden), o_.hidden, gate_and_up_[e], between, share[e],
                        o_.hidden, 2 * o_.intermediate);
        cublas_.project(between, 2 * o_.intermediate, down_[e], row(y_, first, o_.hidden), share[e],
                        o_.intermediate, o_.hidden);
        first += share[e];
      }
    }
  }

  [[nodiscard]] static void* row(device_array const& array, std::int64_t i, std::int64_t columns) {
    return static_cast<__nv_bfloat16*>(array.data()) + i * columns;
  }

  [[nodiscard]] static std::size_t cache_bytes() {
    int device = 0;
    int bytes = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
    return static_cast<std::size_t>(bytes) + 1;
  }

  example::options o_;
  stream stream_;
  cublas cublas_{stream_.get()};
  device_array x_;
  device_array between_;
  device_array y_;
  device_array cold_;
  std::vector<device_array> gate_and_up_;
  std::vector<device_array> down_;
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
