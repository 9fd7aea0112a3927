// SPDX-License-Identifier: Apache-2.0
// Tests calls of the CUDA runtime without a GPU: this program links no CUDA library and implements
// its own runtime with two devices. It needs CUDA's headers only.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/device/launch.cuh>
#include <plimsoll/detail/device/memory.cuh>
#include <plimsoll/detail/device/runtime.cuh>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace {

/// Streams of the two devices.
int stream_tags[2];
cudaStream_t stream_on(int device) { return reinterpret_cast<cudaStream_t>(&stream_tags[device]); }
void sum_kernel(int, std::int64_t) {}  // used as a kernel, and never called

struct runtime {
  int current = 0;
  cudaError_t last = cudaSuccess;
  std::string failing;  ///< name of the call that fails, with `code`
  cudaError_t code = cudaErrorInvalidValue;
  std::vector<std::string> calls;
  std::vector<int> devices;  ///< current device at each call that enqueues work
  std::vector<std::function<void()>> pending;
  cudaLaunchConfig_t launched = {};
  std::vector<cudaLaunchAttribute> attributes;
  std::int64_t sum = 0;  ///< sum of the arguments of the last launch

  cudaError_t call(char const* name) {
    calls.emplace_back(name);
    if (failing != name) {
      return cudaSuccess;
    }
    return last = code;
  }
  cudaError_t work(char const* name) {
    devices.push_back(current);
    return call(name);
  }
  [[nodiscard]] long count(char const* name) const {
    long n = 0;
    for (auto const& made : calls) {
      n += made == name ? 1 : 0;
    }
    return n;
  }
};
runtime cuda;

}  // namespace

extern "C" {
cudaError_t cudaGetLastError() {
  cuda.calls.emplace_back("cudaGetLastError");
  return std::exchange(cuda.last, cudaSuccess);
}
char const* cudaGetErrorString(cudaError_t) { return "some error"; }
cudaError_t cudaGetDevice(int* device) {
  *device = cuda.current;
  return cuda.call("cudaGetDevice");
}
cudaError_t cudaSetDevice(int device) {
  cudaError_t const code = cuda.call("cudaSetDevice");
  cuda.current = code == cudaSuccess ? device : cuda.current;
  return code;
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  *device = stream == stream_on(1) ? 1 : 0;
  return cuda.call("cudaStreamGetDevice");
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  for (auto const& copy : std::exchange(cuda.pending, {})) {
    copy();
  }
  return cuda.work("cudaStreamSynchronize");
}
cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t) {
  *pointer = std::malloc(bytes);
  return cuda.work("cudaMallocAsync");
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) {
  std::free(pointer);
  return cuda.work("cudaFreeAsync");
}
// Copies are delayed as long as CUDA's contract allows.
cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  cuda.pending.emplace_back([=] { std::memcpy(to, from, bytes); });
  return cuda.work("cudaMemcpyAsync");
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t, void const* from, std::size_t pitch,
                              std::size_t bytes, std::size_t rows, cudaMemcpyKind, cudaStream_t) {
  cuda.pending.emplace_back([=] {
    for (std::size_t row = 0; row < rows; ++row) {
      std::memcpy(static_cast<char*>(to) + row * bytes,
                  static_cast<char const*>(from) + row * pitch, bytes);
    }
  });
  return cuda.work("cudaMemcpy2DAsync");
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  std::memset(to, value, bytes);
  return cuda.work("cudaMemsetAsync");
}
cudaError_t cudaLaunchKernelExC(cudaLaunchConfig_t const* config, void const* kernel, void** args) {
  CHECK(kernel == reinterpret_cast<void const*>(&sum_kernel));
  cuda.launched = *config;
  cuda.attributes.assign(config->attrs, config->attrs + config->numAttrs);
  cuda.sum = *static_cast<int*>(args[0]) + *static_cast<std::int64_t*>(args[1]);
  return cuda.work("cudaLaunchKernelExC");
}
}

namespace {

using plimsoll::device_context;
using memory = plimsoll::detail::memory_of<device_context>;

device_context context_on(int device) {
  return {stream_on(device), {}, plimsoll::detail::device_of(stream_on(device))};
}
void launch(device_context const& context,
            plimsoll::detail::launch_config const& config = {3, 64}) {
  plimsoll::detail::launch_kernel(context, config, sum_kernel, 4, 5);
}

/// Returns the code and the message of the error that `call` throws.
template <class Call>
std::pair<int, std::string> error_of(Call call) {
  try {
    call();
  } catch (plimsoll::cuda_error const& error) {
    return {error.code(), error.what()};
  }
  return {0, "no error"};
}

}  // namespace

TEST_CASE("cuda calls: a launch passes grid, stream, attributes and arguments") {
  cuda = {};
  launch(context_on(0), {.blocks = 7, .threads = 96, .shared_bytes = 100});
  CHECK(cuda.launched.gridDim.x == 7);
  CHECK(cuda.launched.blockDim.x == 96);
  CHECK(cuda.launched.dynamicSmemBytes == 100);
  CHECK(cuda.launched.stream == stream_on(0));
  CHECK(cuda.attributes.empty());
  CHECK(cuda.sum == 9);

  launch(context_on(0), {.blocks = 1, .threads = 32, .cooperative = true});
  REQUIRE(cuda.attributes.size() == 1);
  CHECK(cuda.attributes[0].id == cudaLaunchAttributeCooperative);
  CHECK(cuda.attributes[0].val.cooperative == 1);

  launch(context_on(0), {.blocks = 1, .threads = 32, .cooperative = true, .programmatic = true});
  REQUIRE(cuda.attributes.size() == 2);
  CHECK(cuda.attributes[1].id == cudaLaunchAttributeProgrammaticStreamSerialization);
  CHECK(cuda.attributes[1].val.programmaticStreamSerializationAllowed == 1);
}

TEST_CASE("cuda calls: an error of other code is neither reported nor cleared") {
  cuda = {};
  device_context const context = context_on(0);
  cuda.last = cudaErrorInvalidTexture;
  launch(context);
  {
    plimsoll::detail::buffer<int, device_context> const some(context, std::vector<int>{1, 2});
    some.zero();
    CHECK(some.read() == std::vector<int>{0, 0});
  }
  CHECK(cuda.count("cudaGetLastError") == 0);
  CHECK(cuda.last == cudaErrorInvalidTexture);
}

TEST_CASE("cuda calls: a launch that fails is reported, and its error cleared once") {
  cuda = {};
  device_context const context = context_on(1);
  cuda.failing = "cudaLaunchKernelExC";
  cuda.code = cudaErrorInvalidConfiguration;
  auto const [code, message] = error_of([&] { launch(context); });
  CHECK(code == cudaErrorInvalidConfiguration);
  CHECK(message == "kernel launch: some error (this launch, or earlier work on the device)");
  CHECK(cuda.count("cudaGetLastError") == 1);
  CHECK(cuda.last == cudaSuccess);
  CHECK(cuda.current == 0);  // the caller's device is restored
}

TEST_CASE("cuda calls: the device of a context is that of its stream") {
  cuda = {};
  CHECK(context_on(1).device == 1);
  CHECK(context_on(0).device == 0);
  CHECK(cuda.count("cudaGetDevice") == 0);
  cuda.current = 1;
  for (cudaStream_t const stream : {cudaStream_t{}, cudaStreamLegacy, cudaStreamPerThread}) {
    CHECK(plimsoll::detail::device_of(stream) == 1);
  }
  CHECK(cuda.count("cudaStreamGetDevice") == 2);

  cuda.failing = "cudaStreamGetDevice";
  auto const error = error_of([] { static_cast<void>(context_on(1)); });
  CHECK(error.second == "cudaStreamGetDevice: some error");
}

TEST_CASE("cuda calls: work runs on the context's device, which is set only if it differs") {
  cuda = {};
  device_context const here = context_on(0);
  device_context const there = context_on(1);
  launch(here);
  CHECK(cuda.count("cudaGetDevice") == 1);
  CHECK(cuda.count("cudaSetDevice") == 0);
  launch(there);
  CHECK(cuda.count("cudaGetDevice") == 2);
  CHECK(cuda.count("cudaSetDevice") == 2);
  CHECK(cuda.devices == std::vector<int>{0, 1});
  CHECK(cuda.current == 0);

  cuda = {};
  {
    plimsoll::detail::buffer<int, device_context> const some(there, std::vector<int>{1, 2});
    some.zero();
    static_cast<void>(some.read());
    int rows[2] = {};
    memory::rows_to_host(there, some.data(), sizeof(int), rows, sizeof(int), 2);
    memory::synchronize(there);
  }
  CHECK(cuda.count("cudaFreeAsync") == 1);
  CHECK(cuda.devices == std::vector<int>(cuda.devices.size(), 1));
  CHECK(cuda.current == 0);

  // A context that was not resolved does not change the device.
  cuda = {};
  launch({stream_on(1), {}});
  CHECK(cuda.count("cudaGetDevice") == 0);
}

TEST_CASE("cuda calls: a resource is called on the context's device") {
  cuda = {};
  struct resource {
    int device = -1;
    void* allocate(plimsoll::stream_t, std::size_t bytes, std::size_t) {
      device = cuda.current;
      return std::malloc(bytes);
    }
    void deallocate(plimsoll::stream_t, void* pointer, std::size_t, std::size_t) {
      device += 10 * cuda.current;
      std::free(pointer);
    }
  } given;
  device_context there = context_on(1);
  there.memory = plimsoll::resource_ref(given);
  { plimsoll::detail::buffer<int, device_context> const some(there, 5); }
  CHECK(given.device == 11);
  CHECK(cuda.current == 0);
}

TEST_CASE("cuda calls: a device that cannot be set is an error, except in destructors") {
  cuda = {};
  device_context const there = context_on(1);
  {
    plimsoll::detail::buffer<int, device_context> const some(there, 5);
    cuda.failing = "cudaSetDevice";
    auto const launched = error_of([&] { launch(there); });
    CHECK(launched.second == "cudaSetDevice: some error");
    CHECK(cuda.count("cudaLaunchKernelExC") == 0);
    CHECK(error_of([&] { some.zero(); }).second == "cudaSetDevice: some error");
  }
  CHECK(cuda.count("cudaFreeAsync") == 1);
  CHECK(cuda.current == 0);
}

TEST_CASE("cuda calls: uploads have read their source when they return") {
  cuda = {};
  std::vector<int> source{1, 2, 3};
  plimsoll::detail::buffer<int, device_context> const copy(context_on(1), source);
  source = {7, 7, 7};
  CHECK(copy.read() == std::vector<int>{1, 2, 3});
}
