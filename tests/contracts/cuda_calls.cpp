// SPDX-License-Identifier: Apache-2.0
// Tests calls of the CUDA runtime without a GPU: this program links no CUDA library and implements
// its own runtime with two devices. It needs CUDA's headers only. Kernels are compiled for the
// host, so that their launchers can be called, and never run.
#include "../support/emulated_device.hpp"
// CUDA's headers define some of the same macros if nobody has, so they come after.
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
#include <map>
#include <string>
#include <utility>
#include <vector>

// What kernels find on a device.
namespace {
[[maybe_unused]] uint3 threadIdx, blockIdx;
[[maybe_unused]] dim3 blockDim, gridDim;
}  // namespace
namespace cooperative_groups {
struct grid_group {
  using arrival_token = unsigned;
  [[nodiscard]] arrival_token barrier_arrive() const { return 0; }
  void barrier_wait(arrival_token&&) const {}
};
inline grid_group this_grid() { return {}; }
}  // namespace cooperative_groups
namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {
uint4 plimsoll_shared[1];
}}}

#include "launchers_source.hpp"

namespace {

constexpr int kib = 1024;
/// Of each device: shared memory of a block by opt-in.
constexpr int offered[2] = {99 * kib, 227 * kib};
/// What the runtime takes to be a kernel's own.
constexpr int kernels_own = kib;

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
  void const* kernel = nullptr;  ///< kernel of the last launch
  std::int64_t sum = 0;          ///< sum of the arguments of the last launch of `sum_kernel`
  std::byte* scratch = nullptr;  ///< global scratch of the last launch of a body
  bool capturing = false;        ///< a stream is captured, so it cannot be waited for
  /// Dynamic shared memory that a kernel may have on a device.
  std::map<std::pair<void const*, int>, int> allowed;

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
  [[nodiscard]] bool has_shared_memory(void const* for_kernel, std::size_t bytes) const {
    auto const found = allowed.find({for_kernel, current});
    int const limit = found == allowed.end() ? 48 * kib - kernels_own : found->second;
    return static_cast<int>(bytes) <= limit;
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
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cuda.capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cuda.call("cudaStreamIsCapturing");
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  *device = stream == stream_on(1) ? 1 : 0;
  return cuda.call("cudaStreamGetDevice");
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  switch (attribute) {
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = offered[device];
      break;
    case cudaDevAttrCooperativeLaunch:
      *value = 1;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = 10;
      break;
    default:
      FAIL("an attribute that nothing needs");
  }
  return cuda.call("cudaDeviceGetAttribute");
}
cudaError_t cudaFuncSetAttribute(void const* kernel, cudaFuncAttribute attribute, int value) {
  CHECK(attribute == cudaFuncAttributeMaxDynamicSharedMemorySize);
  if (value + kernels_own > offered[cuda.current]) {
    return cuda.last = cudaErrorInvalidValue;
  }
  cuda.allowed[{kernel, cuda.current}] = value;
  return cuda.work("cudaFuncSetAttribute");
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void const* kernel, int,
                                                          std::size_t bytes) {
  *blocks = cuda.has_shared_memory(kernel, bytes) ? 1 : 0;
  return cuda.call("cudaOccupancyMaxActiveBlocksPerMultiprocessor");
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  if (cuda.capturing) {
    return cuda.last = cudaErrorStreamCaptureUnsupported;
  }
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
  cuda.launched = *config;
  cuda.attributes.assign(config->attrs, config->attrs + config->numAttrs);
  cuda.kernel = kernel;
  if (kernel == reinterpret_cast<void const*>(&sum_kernel)) {
    cuda.sum = *static_cast<int*>(args[0]) + *static_cast<std::int64_t*>(args[1]);
  } else {
    int last = 0;
    while (args[last + 1] != nullptr) {
      ++last;
    }
    cuda.scratch = static_cast<plimsoll::detail::scratch_plan*>(args[last])->global;
  }
  if (!cuda.has_shared_memory(kernel, config->dynamicSmemBytes)) {
    return cuda.last = cudaErrorInvalidValue;
  }
  return cuda.work("cudaLaunchKernelExC");
}
}

namespace {

using plimsoll::device_context;
using memory = plimsoll::detail::memory_of<device_context>;

device_context context_on(int device) {
  return plimsoll::detail::with_device({stream_on(device), {}});
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
  // CUDA refuses that call during a capture, and ends the capture.
  cuda.capturing = true;
  CHECK(context_on(0).device == 1);
  CHECK(cuda.count("cudaStreamGetDevice") == 2);
  cuda.capturing = false;

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

namespace {

/// Takes `bytes` of scratch for a problem.
template <class Team>
struct greedy_body {
  using device_team = Team;
  std::size_t bytes;

  [[nodiscard]] std::size_t scratch_bytes() const { return bytes; }
  template <class T>
  void operator()(T&, plimsoll::detail::scratch, plimsoll::index_t) const {}
};

/// The same in two phases.
struct greedy_phases {
  using device_team = plimsoll::detail::block<128>;
  std::size_t bytes;
  bool one_launch = false;
  bool keeps_scratch = false;

  [[nodiscard]] bool fits_one_launch() const { return true; }
  [[nodiscard]] int phases() const { return 2; }
  [[nodiscard]] plimsoll::index_t problems(int) const { return 3; }
  [[nodiscard]] std::size_t scratch_bytes(int) const { return bytes; }
  [[nodiscard]] bool is_over(int) const { return false; }
  template <class T>
  void operator()(T&, plimsoll::detail::scratch, plimsoll::index_t, int) const {}
  template <class T>
  void finish(T&, plimsoll::detail::scratch, plimsoll::index_t, int) const {}
};

using plimsoll::detail::launch_bytes;

}  // namespace

TEST_CASE_TEMPLATE("cuda calls: scratch is in shared memory as far as the device has it", Team,
                   plimsoll::detail::warp, plimsoll::detail::block<256>) {
  for (int const device : {0, 1}) {
    cuda = {};
    device_context const context = context_on(device);
    CHECK(cuda.count("cudaDeviceGetAttribute") == 1);
    std::vector<std::byte> memory(1);
    for (int const bytes : {kib, 47 * kib, 47 * kib + 16, 66 * kib, offered[device] - kernels_own,
                            offered[device] - kernels_own + 16}) {
      CAPTURE(device);
      CAPTURE(bytes);
      greedy_body<Team> const body{static_cast<std::size_t>(bytes)};
      bool const shared = bytes <= offered[device] - kernels_own;
      CHECK(launch_bytes(context, 3, body) == (shared ? 0 : 3 * bytes));

      // Both launches choose alike, whether they find memory or take it.
      for (bool const prepared : {true, false}) {
        cuda.calls.clear();
        cuda.devices.clear();
        cuda.allowed.clear();
        cuda.capturing = true;
        auto const failed = error_of([&] {
          prepared ? plimsoll::detail::launch(context, 3, body, memory.data())
                   : plimsoll::detail::launch(context, 3, body);
        });
        CHECK(failed.second == "no error");
        CHECK(cuda.count("cudaLaunchKernelExC") == 1);
        CHECK((cuda.scratch == nullptr) == shared);
        if (prepared && !shared) {
          CHECK(cuda.scratch == memory.data());
        }
        CHECK(cuda.count("cudaMallocAsync") == (prepared || shared ? 0 : 1));
        if (bytes > kib) {  // four warps do not share a block
          CHECK(static_cast<int>(cuda.launched.dynamicSmemBytes) == (shared ? bytes : 0));
        }
        // Nothing is asked of the runtime that a launch does not need.
        CHECK(cuda.count("cudaFuncSetAttribute") == (shared && bytes > 47 * kib ? 1 : 0));
        CHECK(cuda.count("cudaDeviceGetAttribute") == 0);
        if (shared && bytes > 47 * kib) {
          CHECK(cuda.allowed == std::map<std::pair<void const*, int>, int>{
                                    {{cuda.kernel, device}, offered[device] - kernels_own}});
        }
        CHECK(cuda.devices == std::vector<int>(cuda.devices.size(), device));
        CHECK(cuda.current == 0);
      }
    }
  }
}

TEST_CASE("cuda calls: many warps share blocks while all devices have room for them") {
  cuda = {};
  device_context const context = context_on(1);
  for (plimsoll::index_t const problems :
       {plimsoll::detail::few_problems, plimsoll::detail::few_problems + 1}) {
    for (int const bytes : {11 * kib, 12 * kib}) {
      plimsoll::detail::launch(
          context, problems, greedy_body<plimsoll::detail::warp>{static_cast<std::size_t>(bytes)});
      bool const together = problems > plimsoll::detail::few_problems && bytes == 11 * kib;
      CHECK(cuda.launched.blockDim.x == (together ? 128 : 32));
      CHECK(static_cast<int>(cuda.launched.dynamicSmemBytes) == (together ? 4 : 1) * bytes);
    }
  }
  CHECK(cuda.count("cudaFuncSetAttribute") == 0);
}

TEST_CASE("cuda calls: shared memory that CUDA refuses is an error") {
  cuda = {};
  device_context const context = context_on(1);
  cuda.failing = "cudaFuncSetAttribute";
  auto const error = error_of(
      [&] { plimsoll::detail::launch(context, 1, greedy_body<plimsoll::detail::warp>{60 * kib}); });
  CHECK(error.second == "cudaFuncSetAttribute: some error");
  CHECK(cuda.count("cudaLaunchKernelExC") == 0);
  CHECK(cuda.current == 0);
}

TEST_CASE("cuda calls: a context that was not resolved has the shared memory of every device") {
  cuda = {};
  device_context const context{stream_on(1), {}};
  CHECK(launch_bytes(context, 2, greedy_body<plimsoll::detail::warp>{47 * kib}) == 0);
  CHECK(launch_bytes(context, 2, greedy_body<plimsoll::detail::warp>{48 * kib}) == 2 * 48 * kib);
}

TEST_CASE("cuda calls: phases of a cooperative launch have shared memory by opt-in") {
  for (int const device : {0, 1}) {
    for (int const bytes : {20 * kib, 66 * kib, 120 * kib}) {
      CAPTURE(device);
      CAPTURE(bytes);
      cuda = {};
      device_context const context = context_on(device);
      greedy_phases const body{static_cast<std::size_t>(bytes)};
      bool const shared = bytes < offered[device];
      CHECK(plimsoll::detail::phases_bytes(context, body) == (shared ? 0 : 3 * bytes));
      std::vector<std::byte> memory(1);
      plimsoll::detail::resident_blocks resident;
      cuda.capturing = true;
      plimsoll::detail::launch_phases(context, body, memory.data(), resident);
      // One launch: the device was asked with the limit already raised.
      CHECK(resident.most == 10);
      CHECK(cuda.count("cudaLaunchKernelExC") == 1);
      CHECK(cuda.scratch == (shared ? nullptr : memory.data()));
      CHECK(static_cast<int>(cuda.launched.dynamicSmemBytes) == (shared ? bytes : 0));
      bool const asked = shared && bytes > 47 * kib;
      CHECK(cuda.count("cudaFuncSetAttribute") == (asked ? 2 : 0));
      CHECK(cuda.devices == std::vector<int>(cuda.devices.size(), device));
      CHECK(cuda.current == 0);
    }
  }
}

TEST_CASE("cuda calls: uploads have read their source when they return") {
  cuda = {};
  std::vector<int> source{1, 2, 3};
  plimsoll::detail::buffer<int, device_context> const copy(context_on(1), source);
  source = {7, 7, 7};
  CHECK(copy.read() == std::vector<int>{1, 2, 3});
}
