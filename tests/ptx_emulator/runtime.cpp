// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime of the emulator, in place of libcudart.so.13. A function that is missing here is
// an error of the dynamic linker; an argument that is not supported ends the process.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>

#include "emulator.hpp"

using namespace emu;

namespace emu {

emulator_settings settings;

namespace {
u64 number(char const* name, u64 otherwise) {
  char const* const s = std::getenv(name);
  return s == nullptr || *s == '\0' ? otherwise : std::strtoull(s, nullptr, 0);
}
std::string text(char const* name, char const* otherwise) {
  char const* const s = std::getenv(name);
  return s == nullptr ? otherwise : s;
}
}  // namespace

void read_settings() {
  static bool const once = [] {
    settings.seed = number("PTXEMU_SEED", 0);
    settings.preempt = number("PTXEMU_PREEMPT", 0);
    settings.resident = static_cast<int>(std::max<u64>(1, number("PTXEMU_RESIDENT", 1)));
    settings.race = number("PTXEMU_RACECHECK", 0) != 0;
    settings.init = number("PTXEMU_INITCHECK", 0) != 0;
    settings.lazy = text("PTXEMU_STREAMS", "lazy") != "eager";
    std::string const fresh = text("PTXEMU_FRESH", "pattern");
    settings.fresh = fresh == "zero"     ? emulator_settings::fresh_memory::zero
                     : fresh == "random" ? emulator_settings::fresh_memory::random
                     : fresh == "stale"  ? emulator_settings::fresh_memory::stale
                                         : emulator_settings::fresh_memory::pattern;
    settings.leaks = number("PTXEMU_LEAKCHECK", 0) != 0;
    settings.graphs_elsewhere = text("PTXEMU_GRAPHS", "") == "elsewhere";
    settings.elsewhere = number("PTXEMU_ELSEWHERE", 0) != 0;
    settings.trace = static_cast<int>(number("PTXEMU_TRACE", 0));
    settings.statistics = number("PTXEMU_STATISTICS", 0) != 0;
    settings.costs = static_cast<int>(number("PTXEMU_COSTS", 0));
    settings.max_reports = static_cast<int>(number("PTXEMU_MAX_REPORTS", 20));
    settings.max_instructions = number("PTXEMU_MAX_INSTRUCTIONS", 0);
    settings.devices = static_cast<int>(number("PTXEMU_DEVICES", settings.elsewhere ? 2 : 1));
    u64 const cc = number("PTXEMU_ARCH", 90);
    settings.major = static_cast<int>(cc / 10);
    settings.minor = static_cast<int>(cc % 10);
    settings.sms = static_cast<int>(number("PTXEMU_SMS", cc == 80 ? 108 : 132));
    u64 const kib = cc == 80 || cc == 87                ? 163
                    : cc == 86 || cc == 89 || cc >= 120 ? 99
                    : cc == 75                          ? 64
                    : cc == 70                          ? 96
                                                        : 227;
    settings.shared_optin = static_cast<int>(number("PTXEMU_SHARED_KIB", kib) * 1024);
    settings.cooperative = number("PTXEMU_COOPERATIVE", 1) != 0;
    random_source = random_numbers(settings.seed);
    init_memory();
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace emu

namespace {

std::recursive_mutex mutex;
thread_local cudaError_t last_error = cudaSuccess;
thread_local int current_device = 0;

cudaError_t result(cudaError_t code) {
  if (code != cudaSuccess)
    last_error = code;
  return code;
}

struct fatbin_entry {
  std::unique_lock<std::recursive_mutex> lock{mutex};
  explicit fatbin_entry(char const* name) {
    read_settings();
    fails = must_fail(name);
    if (settings.trace >= 2)
      std::fprintf(stderr, "ptxemu: %s%s\n", name, fails ? " fails" : "");
  }
  bool fails = false;

  /// Whether PTXEMU_FAIL names this call.
  static bool must_fail(char const* name) {
    static std::string const named = text("PTXEMU_FAIL", "");
    if (named.empty())
      return false;
    static std::size_t const at = named.find_first_of(":%");
    static u64 const n =
        at == std::string::npos ? 1 : std::strtoull(named.c_str() + at + 1, nullptr, 10);
    static u64 calls = 0;
    if (named.compare(0, at, name) != 0)
      return false;
    ++calls;
    return at != std::string::npos && named[at] == '%' ? calls % n == 0 : calls == n;
  }
};
#define ENTRY                         \
  fatbin_entry const entry(__func__); \
  if (entry.fails)                    \
  return result(cudaErrorMemoryAllocation)

// ----- modules and kernels -----------------------------------------------------------------------

struct code_image {
  void const* fatbin = nullptr;
  std::unique_ptr<ptx_module> module;
  int target = 0;
};
struct registered_kernel {
  code_image* image = nullptr;
  std::string name;
  ptx_function* function = nullptr;
  std::map<int, int>
      most_dynamic;  ///< set by cudaFuncSetAttribute for a device; else 48 KiB with static memory

  [[nodiscard]] bool is_set() const { return most_dynamic.contains(current_device); }
  [[nodiscard]] int max_dynamic() const { return most_dynamic.at(current_device); }
};
struct host_variable {
  code_image* image;
  std::string name;
  u64 size;
};

// Registered before main: not destroyed, since programs unregister at their exit.
auto& images = *new std::set<code_image*>;
auto& kernels = *new std::map<void const*, registered_kernel*>;
auto& variables = *new std::map<void const*, host_variable>;

void parse(code_image& image) {
  if (image.module != nullptr)
    return;
  auto texts = ptx_of_fatbin(image.fatbin);
  if (texts.empty())
    die("a fat binary without PTX: compile with -gencode arch=compute_90,code=compute_90 "
        "--no-compress");
  std::string& t = texts.back();
  if (auto const at = t.find(".target sm_"); at != std::string::npos)
    image.target = std::atoi(t.c_str() + at + 11);
  image.module = parse_ptx(std::move(t));
  load(*image.module);
}

registered_kernel* kernel_of(void const* f) {
  for (auto const& [host, kernel] : kernels) {
    if (host == f || kernel == f) {
      if (kernel->function == nullptr) {
        parse(*kernel->image);
        auto const at = kernel->image->module->functions.find(kernel->name);
        if (at == kernel->image->module->functions.end())
          die("no kernel %s in the PTX", kernel->name.c_str());
        kernel->function = at->second.get();
      }
      return kernel;
    }
  }
  return nullptr;
}
registered_kernel* find_kernel(void const* f) {
  static auto& known = *new std::unordered_map<void const*, registered_kernel*>;
  auto const at = known.find(f);
  if (at != known.end())
    return at->second;
  registered_kernel* const k = kernel_of(f);
  if (k != nullptr)
    known[f] = k;
  return k;
}

// ----- streams -----------------------------------------------------------------------------------

struct graph_state;
struct stream_state;
/// An operation of a stream. `run` is copied into graphs.
struct stream_operation {
  std::function<void()> run;
};
struct event_state {
  stream_state* stream = nullptr;  ///< null: never recorded
  u64 at = 0;                      ///< number of operations of the stream that it waits for
  graph_state* captured = nullptr;
  unsigned flags = 0;
};
struct stream_state {
  int device = 0;
  bool blocking = true;
  bool is_legacy = false;
  std::deque<stream_operation> queue;
  u64 done = 0, enqueued = 0;
  graph_state* capture = nullptr;
  bool is_origin = false, invalidated = false;
  cudaStreamCaptureMode mode{};
  std::thread::id* capturing_thread = nullptr;
  int priority = 0;
};
struct graph_state {
  std::vector<stream_operation> operations;
  std::vector<stream_state*> streams;
};

auto& streams = *new std::set<stream_state*>;
stream_state& legacy() {
  static stream_state& s = *[] {
    auto* const made = new stream_state;
    made->is_legacy = true;
    streams.insert(made);
    return made;
  }();
  return s;
}
thread_local int own_captures = 0;

stream_state* stream_of(cudaStream_t s) {
  if (s == nullptr || s == cudaStreamLegacy)
    return &legacy();
  if (s == cudaStreamPerThread) {
    static thread_local stream_state* own = [] {
      auto* const made = new stream_state;
      streams.insert(made);
      return made;
    }();
    return own;
  }
  auto* const found = reinterpret_cast<stream_state*>(s);
  if (!streams.contains(found))
    return nullptr;
  return found;
}

void drain(stream_state& s, u64 up_to = ~u64{0}) {
  while (!s.queue.empty() && s.done < up_to) {
    stream_operation op = std::move(s.queue.front());
    s.queue.pop_front();
    ++s.done;
    op.run();
  }
}
void drain_all() {
  for (stream_state* const s : streams)
    drain(*s);
}
void drain_blocking() {
  for (stream_state* const s : streams) {
    if (s->blocking)
      drain(*s);
  }
}

/// Enqueues work, or captures it.
cudaError_t enqueue(cudaStream_t handle, std::function<void()> run) {
  stream_state* const s = stream_of(handle);
  if (s == nullptr)
    return result(cudaErrorInvalidResourceHandle);
  if (s->capture != nullptr) {
    if (s->invalidated)
      return result(cudaErrorStreamCaptureInvalidated);
    s->capture->operations.push_back({std::move(run)});
    return cudaSuccess;
  }
  if (s->is_legacy) {
    for (stream_state* const other : streams) {
      if (other->capture != nullptr && other->blocking)
        return result(cudaErrorStreamCaptureImplicit);
    }
    drain_blocking();
  }
  if (s->blocking && !s->is_legacy)
    drain(legacy());
  s->queue.push_back({std::move(run)});
  ++s->enqueued;
  if (!settings.lazy)
    drain(*s);
  return cudaSuccess;
}

/// Calls that a thread may not make while it captures a stream.
bool is_capturing_here() { return own_captures > 0; }
cudaError_t refuse_in_capture() {
  for (stream_state* const s : streams) {
    if (s->capture != nullptr && s->mode != cudaStreamCaptureModeRelaxed)
      s->invalidated = true;
  }
  return result(cudaErrorStreamCaptureUnsupported);
}
bool is_strict() {
  if (!is_capturing_here())
    return false;
  for (stream_state* const s : streams) {
    if (s->capture != nullptr && s->mode != cudaStreamCaptureModeRelaxed)
      return true;
  }
  return false;
}

// ----- launches ----------------------------------------------------------------------------------

int shared_per_sm() {
  int const kib = settings.shared_optin / 1024;
  return (kib + 1) * 1024;
}
int occupancy(registered_kernel const& k, int threads, std::size_t dynamic) {
  u64 const fixed = static_cast<u64>(static_shared(*k.function));
  u64 const limit = k.is_set() ? fixed + static_cast<u64>(k.max_dynamic()) : 48 * 1024;
  if (threads <= 0 || threads > 1024 || fixed + dynamic > limit ||
      fixed + dynamic > static_cast<u64>(settings.shared_optin))
    return 0;
  if (k.function->max_threads != 0 && threads > k.function->max_threads)
    return 0;
  bool const big = settings.minor == 0;
  int const most_threads = settings.major >= 8 && !big                  ? 1536
                           : settings.major == 7 && settings.minor == 5 ? 1024
                                                                        : 2048;
  int const most_blocks = big ? 32 : 16;
  int const warps = (threads + 31) / 32;
  int const registers = 64;  // unknown without ptxas
  int blocks =
      std::min({most_threads / (32 * warps), most_blocks, 65536 / (registers * 32 * warps)});
  u64 const per_block = fixed + dynamic + 1024;
  blocks = static_cast<int>(
      std::min<u64>(static_cast<u64>(blocks), static_cast<u64>(shared_per_sm()) / per_block));
  return blocks;
}

cudaError_t launch(void const* f, dim3 grid, dim3 block, void** args, std::size_t shared,
                   cudaStream_t stream, bool cooperative) {
  registered_kernel* const k = find_kernel(f);
  if (k == nullptr)
    return result(cudaErrorInvalidDeviceFunction);
  u64 const threads = u64{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64)
    return result(cudaErrorInvalidConfiguration);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535)
    return result(cudaErrorInvalidConfiguration);
  if (k->function->max_threads != 0 && threads > static_cast<u64>(k->function->max_threads))
    return result(cudaErrorInvalidConfiguration);
  u64 const fixed = static_cast<u64>(static_shared(*k->function));
  if (fixed + shared > static_cast<u64>(settings.shared_optin) ||
      (k->is_set() ? shared > static_cast<u64>(k->max_dynamic()) : fixed + shared > 48 * 1024)) {
    if (!(k->is_set() && fixed + shared <= 48 * 1024))
      return result(cudaErrorInvalidValue);
  }
  if (cooperative) {
    if (!settings.cooperative)
      return result(cudaErrorNotSupported);
    u64 const blocks = u64{grid.x} * grid.y * grid.z;
    if (blocks > static_cast<u64>(occupancy(*k, static_cast<int>(threads), shared)) *
                     static_cast<u64>(settings.sms)) {
      return result(cudaErrorCooperativeLaunchTooLarge);
    }
  }
  stream_state* const s = stream_of(stream);
  if (s == nullptr)
    return result(cudaErrorInvalidResourceHandle);
  if (s->device != current_device && !s->is_legacy)
    return result(cudaErrorInvalidResourceHandle);
  launch_request l;
  l.kernel = k->function;
  l.grid = {grid.x, grid.y, grid.z};
  l.block = {block.x, block.y, block.z};
  l.shared = shared;
  l.cooperative = cooperative;
  l.params.resize(k->function->param_bytes + 16);
  for (std::size_t i = 0; i < k->function->params.size(); ++i) {
    ptx_parameter const& p = k->function->params[i];
    std::memcpy(l.params.data() + p.offset, args[i], p.size);
  }
  return enqueue(stream, [l = std::move(l)] { execute(l); });
}

// ----- copies ------------------------------------------------------------------------------------

/// Copies rows; checks the ranges.
void copy_rows(void* to, std::size_t to_pitch, void const* from, std::size_t from_pitch,
               std::size_t bytes, std::size_t rows, char const* call) {
  for (std::size_t r = 0; r < rows; ++r) {
    auto* const d = static_cast<u8*>(to) + r * to_pitch;
    auto const* const s = static_cast<u8 const*>(from) + r * from_pitch;
    host_reads(s, bytes, call);
    host_wrote(d, bytes, call);
    std::memmove(d, s, bytes);
  }
}
bool kind_is_right(void const* to, void const* from, cudaMemcpyKind kind, std::size_t bytes) {
  if (bytes == 0)
    return true;
  bool const to_device = in_arena(to), from_device = in_arena(from);
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return to_device;
    case cudaMemcpyDeviceToHost:
      return from_device;
    case cudaMemcpyDeviceToDevice:
      return to_device && from_device;
    default:
      return true;
  }
}
cudaError_t wrong_kind(char const* call) {
  std::fprintf(stderr, "ptxemu: %s: the addresses are not of the given kind\n", call);
  return result(cudaErrorInvalidValue);
}

}  // namespace

void emu::finish_streams() { drain_all(); }

extern "C" {

// ----- what nvcc's code calls --------------------------------------------------------------------

void** __cudaRegisterFatBinary(void* fatbin) {
  auto* const image = new code_image;
  image->fatbin = fatbin;
  images.insert(image);
  return reinterpret_cast<void**>(image);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void** image, char const* host, char*, char const* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  auto* const k = new registered_kernel;
  k->image = reinterpret_cast<code_image*>(image);
  k->name = name;
  kernels[host] = k;
}
void __cudaRegisterVar(void** image, char* host, char*, char const* name, int, std::size_t size,
                       int, int) {
  variables[host] = {reinterpret_cast<code_image*>(image), name, size};
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, void const* host) {
  auto const at = kernels.find(host);
  if (at == kernels.end())
    return cudaErrorInvalidDeviceFunction;
  *kernel = reinterpret_cast<cudaKernel_t>(at->second);
  return cudaSuccess;
}

struct call_configuration {
  dim3 grid, block;
  std::size_t shared;
  cudaStream_t stream;
};
static thread_local std::vector<call_configuration> configurations;
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared,
                                     struct CUstream_st* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  if (configurations.empty())
    return cudaErrorMissingConfiguration;
  auto const c = configurations.back();
  configurations.pop_back();
  *grid = c.grid;
  *block = c.block;
  *shared = c.shared;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                               std::size_t shared, cudaStream_t stream) {
  ENTRY;
  return launch(reinterpret_cast<void const*>(kernel), grid, block, args, shared, stream, false);
}
cudaError_t cudaLaunchKernel(void const* f, dim3 grid, dim3 block, void** args, std::size_t shared,
                             cudaStream_t stream) {
  ENTRY;
  return launch(f, grid, block, args, shared, stream, false);
}
cudaError_t cudaLaunchCooperativeKernel(void const* f, dim3 grid, dim3 block, void** args,
                                        std::size_t shared, cudaStream_t stream) {
  ENTRY;
  return launch(f, grid, block, args, shared, stream, true);
}
cudaError_t cudaLaunchKernelExC(cudaLaunchConfig_t const* c, void const* f, void** args) {
  ENTRY;
  bool cooperative = false;
  for (unsigned i = 0; i < c->numAttrs; ++i) {
    switch (c->attrs[i].id) {
      case cudaLaunchAttributeCooperative:
        cooperative = c->attrs[i].val.cooperative != 0;
        break;
      case cudaLaunchAttributeProgrammaticStreamSerialization:
      case cudaLaunchAttributePriority:
      case cudaLaunchAttributeIgnore:
        break;
      default:
        die("cudaLaunchKernelExC: attribute %d is not supported", static_cast<int>(c->attrs[i].id));
    }
  }
  return launch(f, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->stream, cooperative);
}

// ----- devices -----------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  ENTRY;
  *count = settings.devices;
  return settings.devices > 0 ? cudaSuccess : result(cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* device) {
  ENTRY;
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  ENTRY;
  if (device < 0 || device >= settings.devices)
    return result(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  ENTRY;
  if (device < 0 || device >= settings.devices)
    return result(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      break;
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
      *value = 1024;
      break;
    case cudaDevAttrMaxBlockDimZ:
      *value = 64;
      break;
    case cudaDevAttrMaxGridDimX:
      *value = 0x7fffffff;
      break;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
      *value = 65535;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 48 * 1024;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = settings.shared_optin;
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = shared_per_sm();
      break;
    case cudaDevAttrReservedSharedMemoryPerBlock:
      *value = 1024;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = settings.sms;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = settings.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = settings.minor;
      break;
    case cudaDevAttrCooperativeLaunch:
      *value = settings.cooperative;
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *value = settings.minor == 0 ? 2048 : 1536;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *value = 65536;
      break;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
      *value = settings.minor == 0 ? 32 : 16;
      break;
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrConcurrentKernels:
      *value = 1;
      break;
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrIntegrated:
      *value = 0;
      break;
    case cudaDevAttrL2CacheSize:
      *value = 50 << 20;
      break;
    default:
      die("cudaDeviceGetAttribute: attribute %d is not supported", static_cast<int>(attribute));
  }
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  ENTRY;
  if (device < 0 || device >= settings.devices)
    return result(cudaErrorInvalidDevice);
  *p = {};
  std::snprintf(p->name, sizeof p->name, "PTX emulator");
  p->totalGlobalMem = std::size_t{64} << 30;
  p->sharedMemPerBlock = 48 * 1024;
  p->sharedMemPerBlockOptin = static_cast<std::size_t>(settings.shared_optin);
  p->sharedMemPerMultiprocessor = static_cast<std::size_t>(shared_per_sm());
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = settings.minor == 0 ? 2048 : 1536;
  p->major = settings.major;
  p->minor = settings.minor;
  p->multiProcessorCount = settings.sms;
  p->cooperativeLaunch = settings.cooperative;
  p->unifiedAddressing = p->managedMemory = p->memoryPoolsSupported = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  ENTRY;
  if (is_strict())
    return refuse_in_capture();
  drain_all();
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = std::size_t{32} << 30;
  *total = std::size_t{64} << 30;
  return cudaSuccess;
}

// ----- errors ------------------------------------------------------------------------------------

cudaError_t cudaGetLastError() {
  cudaError_t const code = last_error;
  last_error = cudaSuccess;
  return code;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
char const* cudaGetErrorName(cudaError_t code) {
  switch (code) {
#define NAME(x) \
  case x:       \
    return #x
    NAME(cudaSuccess);
    NAME(cudaErrorInvalidValue);
    NAME(cudaErrorMemoryAllocation);
    NAME(cudaErrorInvalidConfiguration);
    NAME(cudaErrorInvalidDevice);
    NAME(cudaErrorNoDevice);
    NAME(cudaErrorInvalidResourceHandle);
    NAME(cudaErrorInvalidDeviceFunction);
    NAME(cudaErrorCooperativeLaunchTooLarge);
    NAME(cudaErrorNotSupported);
    NAME(cudaErrorStreamCaptureUnsupported);
    NAME(cudaErrorStreamCaptureInvalidated);
    NAME(cudaErrorStreamCaptureImplicit);
    NAME(cudaErrorNotReady);
    NAME(cudaErrorInvalidTexture);
    NAME(cudaErrorIllegalState);
    NAME(cudaErrorMissingConfiguration);
    NAME(cudaErrorInvalidSymbol);
    NAME(cudaErrorStreamCaptureUnmatched);
#undef NAME
    default:
      return "cudaErrorOther";
  }
}
char const* cudaGetErrorString(cudaError_t code) {
  switch (code) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    default:
      return cudaGetErrorName(code);
  }
}

// ----- memory ------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  ENTRY;
  if (is_strict())
    return refuse_in_capture();
  if (bytes == 0) {
    *p = nullptr;
    return cudaSuccess;
  }
  *p = allocate(bytes, device_allocation::device);
  return *p != nullptr ? cudaSuccess : result(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* p) {
  ENTRY;
  if (p == nullptr)
    return cudaSuccess;
  if (is_strict())
    return refuse_in_capture();
  drain_all();
  return release(p) ? cudaSuccess : result(cudaErrorInvalidValue);
}
cudaError_t cudaMallocManaged(void** p, std::size_t bytes, unsigned) {
  ENTRY;
  *p = allocate(bytes, device_allocation::managed);
  return *p != nullptr ? cudaSuccess : result(cudaErrorMemoryAllocation);
}
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) {
  ENTRY;
  *p = allocate(bytes, device_allocation::pinned);
  return *p != nullptr ? cudaSuccess : result(cudaErrorMemoryAllocation);
}
cudaError_t cudaMallocHost(void** p, std::size_t bytes) { return cudaHostAlloc(p, bytes, 0); }
cudaError_t cudaFreeHost(void* p) { return cudaFree(p); }
cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t stream) {
  ENTRY;
  stream_state* const s = stream_of(stream);
  if (s == nullptr)
    return result(cudaErrorInvalidResourceHandle);
  if (s->capture != nullptr) {
    // A node of the graph: the address is known now, and the memory is there from that node to the
    // one that frees it.
    void* const made = *p = allocate(bytes, device_allocation::graph);
    return enqueue(stream, [made] { set_valid(made, true); });
  }
  *p = allocate(bytes, device_allocation::device);
  return *p != nullptr ? cudaSuccess : result(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  ENTRY;
  if (p == nullptr)
    return cudaSuccess;
  auto const* const found = find_allocation(p);
  if (found == nullptr)
    return result(cudaErrorInvalidValue);
  // A graph can free what it allocated only.
  if (stream_state const* const s = stream_of(stream);
      s != nullptr && s->capture != nullptr && found->second.kind != device_allocation::graph)
    return result(cudaErrorInvalidValue);
  if (found->second.kind == device_allocation::graph)
    return enqueue(stream, [p] { set_valid(p, false); });
  return enqueue(stream, [p] {
    if (!release(p))
      die("cudaFreeAsync: %p is no allocation, or was freed before", p);
  });
}

// The default pool: memory is never kept, so that its attributes have no effect.
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  ENTRY;
  if (device < 0 || device >= settings.devices)
    return result(cudaErrorInvalidDevice);
  static char pools[64];
  *pool = reinterpret_cast<cudaMemPool_t>(pools + device % 64);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return cudaDeviceGetDefaultMemPool(pool, device);
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr attribute, void*) {
  ENTRY;
  if (attribute > cudaMemPoolAttrReleaseThreshold)
    die("cudaMemPoolSetAttribute: attribute %d is not supported", static_cast<int>(attribute));
  return cudaSuccess;
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, std::size_t) { return cudaSuccess; }

cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  ENTRY;
  if (!kind_is_right(to, from, kind, bytes))
    return wrong_kind("cudaMemcpyAsync");
  return enqueue(stream, [=] { copy_rows(to, 0, from, 0, bytes, 1, "cudaMemcpyAsync"); });
}
cudaError_t cudaMemcpy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind) {
  ENTRY;
  if (is_strict())
    return refuse_in_capture();
  if (!kind_is_right(to, from, kind, bytes))
    return wrong_kind("cudaMemcpy");
  cudaError_t const code =
      enqueue(nullptr, [=] { copy_rows(to, 0, from, 0, bytes, 1, "cudaMemcpy"); });
  if (code == cudaSuccess)
    drain(legacy());
  return code;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, void const* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  ENTRY;
  if (width == 0 || height == 0)
    return cudaSuccess;
  if (width > to_pitch || width > from_pitch || to_pitch > 0x7fffffff || from_pitch > 0x7fffffff)
    return result(cudaErrorInvalidPitchValue);
  if (!kind_is_right(to, from, kind, width))
    return wrong_kind("cudaMemcpy2DAsync");
  return enqueue(stream, [=] {
    copy_rows(to, to_pitch, from, from_pitch, width, height, "cudaMemcpy2DAsync");
  });
}
cudaError_t cudaMemcpy2D(void* to, std::size_t to_pitch, void const* from, std::size_t from_pitch,
                         std::size_t width, std::size_t height, cudaMemcpyKind kind) {
  ENTRY;
  if (is_strict())
    return refuse_in_capture();
  cudaError_t const code =
      cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr);
  if (code == cudaSuccess)
    drain(legacy());
  return code;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  ENTRY;
  if (bytes == 0)
    return cudaSuccess;
  if (!in_arena(to))
    return wrong_kind("cudaMemsetAsync");
  return enqueue(stream, [=] {
    host_wrote(to, bytes, "cudaMemsetAsync");
    std::memset(to, value, bytes);
  });
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  ENTRY;
  if (is_strict())
    return refuse_in_capture();
  cudaError_t const code = cudaMemsetAsync(to, value, bytes, nullptr);
  drain(legacy());
  return code;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, void const* p) {
  ENTRY;
  *a = {};
  auto const* const found = in_arena(p) ? find_allocation(p) : nullptr;
  if (found == nullptr) {
    a->type = cudaMemoryTypeUnregistered;
    a->device = cudaInvalidDeviceId;
    return cudaSuccess;
  }
  a->device = 0;
  a->devicePointer = const_cast<void*>(p);
  a->type = found->second.kind == device_allocation::managed  ? cudaMemoryTypeManaged
            : found->second.kind == device_allocation::pinned ? cudaMemoryTypeHost
                                                              : cudaMemoryTypeDevice;
  if (found->second.kind == device_allocation::managed ||
      found->second.kind == device_allocation::pinned)
    a->hostPointer = const_cast<void*>(p);
  return cudaSuccess;
}
static void* address_of_symbol(void const* symbol, u64& size) {
  auto const at = variables.find(symbol);
  if (at == variables.end())
    return nullptr;
  parse(*at->second.image);
  auto const v = at->second.image->module->variables.find(at->second.name);
  if (v == at->second.image->module->variables.end())
    return nullptr;
  size = at->second.size;
  return reinterpret_cast<void*>(v->second.address);
}
cudaError_t cudaGetSymbolAddress(void** p, void const* symbol) {
  ENTRY;
  u64 size = 0;
  *p = address_of_symbol(symbol, size);
  return *p != nullptr ? cudaSuccess : result(cudaErrorInvalidSymbol);
}
cudaError_t cudaMemcpyToSymbol(void const* symbol, void const* from, std::size_t bytes,
                               std::size_t offset, cudaMemcpyKind) {
  ENTRY;
  u64 size = 0;
  auto* const p = static_cast<u8*>(address_of_symbol(symbol, size));
  if (p == nullptr || offset + bytes > size)
    return result(cudaErrorInvalidSymbol);
  return cudaMemcpy(p + offset, from, bytes, cudaMemcpyDefault);
}
cudaError_t cudaMemcpyFromSymbol(void* to, void const* symbol, std::size_t bytes,
                                 std::size_t offset, cudaMemcpyKind) {
  ENTRY;
  u64 size = 0;
  auto* const p = static_cast<u8*>(address_of_symbol(symbol, size));
  if (p == nullptr || offset + bytes > size)
    return result(cudaErrorInvalidSymbol);
  return cudaMemcpy(to, p + offset, bytes, cudaMemcpyDefault);
}

// ----- kernels -----------------------------------------------------------------------------------

cudaError_t cudaFuncSetAttribute(void const* f, cudaFuncAttribute attribute, int value) {
  ENTRY;
  registered_kernel* const k = find_kernel(f);
  if (k == nullptr)
    return result(cudaErrorInvalidDeviceFunction);
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || value + static_shared(*k->function) > settings.shared_optin)
      return result(cudaErrorInvalidValue);
    k->most_dynamic[current_device] = value;
  } else if (attribute != cudaFuncAttributePreferredSharedMemoryCarveout) {
    die("cudaFuncSetAttribute: attribute %d is not supported", static_cast<int>(attribute));
  }
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, void const* f) {
  ENTRY;
  registered_kernel* const k = find_kernel(f);
  if (k == nullptr)
    return result(cudaErrorInvalidDeviceFunction);
  *a = {};
  a->sharedSizeBytes = static_cast<std::size_t>(static_shared(*k->function));
  a->maxThreadsPerBlock = k->function->max_threads != 0 ? k->function->max_threads : 1024;
  a->numRegs = 64;
  a->ptxVersion = k->image->target;
  a->binaryVersion = 10 * settings.major + settings.minor;
  a->maxDynamicSharedSizeBytes =
      k->is_set() ? k->max_dynamic() : 48 * 1024 - static_cast<int>(a->sharedSizeBytes);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, void const* f,
                                                                   int threads, std::size_t shared,
                                                                   unsigned) {
  ENTRY;
  registered_kernel* const k = find_kernel(f);
  if (k == nullptr)
    return result(cudaErrorInvalidDeviceFunction);
  *blocks = occupancy(*k, threads, shared);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void const* f, int threads,
                                                          std::size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, shared, 0);
}

// ----- streams and events ------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  ENTRY;
  auto* const s = new stream_state;
  s->device = current_device;
  s->blocking = (flags & cudaStreamNonBlocking) == 0;
  s->priority = priority;
  streams.insert(s);
  *stream = reinterpret_cast<cudaStream_t>(s);
  if (settings.elsewhere)
    current_device = (current_device + 1) % settings.devices;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  ENTRY;
  stream_state* const s = stream_of(stream);
  if (s == nullptr || s->is_legacy)
    return result(cudaErrorInvalidResourceHandle);
  drain(*s);
  streams.erase(s);  // the object stays: events may refer to it
  return cudaSuccess;
}
cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  ENTRY;
  stream_state* const s = stream_of(stream);
  if (s == nullptr)
    return result(cudaErrorInvalidResourceHandle);
  if (s->capture != nullptr) {  // seen on an H200, driver 580
    s->invalidated = true;
    return result(cudaErrorStreamCaptureUnsupported);
  }
  *device = s->is_legacy ? current_device : s->device;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  ENTRY;
  stream_state* const s = stream_of(stream);
  if (s == nullptr)
    return result(cudaErrorInvalidResourceHandle);
  if (s->capture != nullptr) {
    s->invalidated = true;
    return result(cudaErrorStreamCaptureUnsupported);
  }
  if (s->is_legacy)
    drain_blocking();
  drain(*s);
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  ENTRY;
  auto* const e = new event_state;
  e->flags = flags;
  *event = reinterpret_cast<cudaEvent_t>(e);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete reinterpret_cast<event_state*>(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  ENTRY;
  stream_state* const s = stream_of(stream);
  if (s == nullptr)
    return result(cudaErrorInvalidResourceHandle);
  auto* const e = reinterpret_cast<event_state*>(event);
  e->captured = s->capture;
  e->stream = s;
  e->at = s->enqueued;
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  ENTRY;
  auto* const e = reinterpret_cast<event_state*>(event);
  if (e->captured != nullptr)
    return result(cudaErrorCapturedEvent);
  if (e->stream != nullptr) {
    if (e->stream->is_legacy)
      drain_blocking();
    drain(*e->stream, e->at);
  }
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return cudaEventSynchronize(event); }
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t) {
  *ms = 1;
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  ENTRY;
  stream_state* const s = stream_of(stream);
  if (s == nullptr)
    return result(cudaErrorInvalidResourceHandle);
  auto* const e = reinterpret_cast<event_state*>(event);
  if (e->stream == nullptr)
    return cudaSuccess;
  if (e->captured != nullptr) {
    if (s->capture == nullptr) {
      s->capture = e->captured;
      s->mode = e->stream->mode;
      e->captured->streams.push_back(s);
    } else if (s->capture != e->captured) {
      return result(cudaErrorStreamCaptureMerge);
    }
    return cudaSuccess;
  }
  if (s->capture != nullptr)
    return result(cudaErrorStreamCaptureIsolation);
  stream_state* const other = e->stream;
  u64 const at = e->at;
  return enqueue(stream, [other, at] { drain(*other, at); });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t f, void* data) {
  ENTRY;
  return enqueue(stream, [=] { f(data); });
}

// ----- graphs ------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  ENTRY;
  stream_state* const s = stream_of(stream);
  if (s == nullptr)
    return result(cudaErrorInvalidResourceHandle);
  if (s->is_legacy)
    return result(cudaErrorStreamCaptureUnsupported);
  if (s->capture != nullptr)
    return result(cudaErrorIllegalState);
  s->capture = new graph_state;
  s->capture->streams.push_back(s);
  s->is_origin = true;
  s->mode = mode;
  s->invalidated = false;
  ++own_captures;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  ENTRY;
  stream_state* const s = stream_of(stream);
  if (s == nullptr)
    return result(cudaErrorInvalidResourceHandle);
  if (s->capture == nullptr || !s->is_origin)
    return result(cudaErrorIllegalState);
  graph_state* const g = s->capture;
  bool invalidated = false;
  for (stream_state* const member : g->streams) {
    invalidated |= member->invalidated;
    member->capture = nullptr;
    member->invalidated = member->is_origin = false;
  }
  --own_captures;
  if (invalidated) {
    *graph = nullptr;
    delete g;
    return result(cudaErrorStreamCaptureInvalidated);
  }
  *graph = reinterpret_cast<cudaGraph_t>(g);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  ENTRY;
  stream_state* const s = stream_of(stream);
  if (s == nullptr)
    return result(cudaErrorInvalidResourceHandle);
  *status = s->capture == nullptr ? cudaStreamCaptureStatusNone
            : s->invalidated      ? cudaStreamCaptureStatusInvalidated
                                  : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  ENTRY;
  *exec =
      reinterpret_cast<cudaGraphExec_t>(new graph_state(*reinterpret_cast<graph_state*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(exec, graph, flags);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  ENTRY;
  auto const operations = reinterpret_cast<graph_state*>(exec)->operations;
  if (settings.graphs_elsewhere) {
    for (stream_operation const& op : operations)
      op.run();
    return cudaSuccess;
  }
  return enqueue(stream, [operations] {
    if (settings.costs != 0)
      std::fprintf(stderr, "ptxemu: costs graph\n");
    for (stream_operation const& op : operations)
      op.run();
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<graph_state*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete reinterpret_cast<graph_state*>(exec);
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  if (nodes != nullptr)
    die("cudaGraphGetNodes: nodes are not supported");
  *count = reinterpret_cast<graph_state*>(graph)->operations.size();
  return cudaSuccess;
}

}  // extern "C"
