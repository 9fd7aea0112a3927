// SPDX-License-Identifier: Apache-2.0
// CUB's collectives, warp intrinsics, atomics, a cooperative grid, streams, events and graphs.
#include <cooperative_groups.h>
#include <cub/block/block_merge_sort.cuh>
#include <cub/block/block_radix_rank.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/device/device_for.cuh>
#include <cub/warp/warp_merge_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

int wrong = 0;
#define EXPECT(x) ((x) ? void() : (++wrong, void(std::printf("line %d: %s\n", __LINE__, #x))))

template <class T>
struct array {
  T* p = nullptr;
  std::size_t n;
  explicit array(std::vector<T> const& v) : n(v.size()) {
    cudaMalloc(&p, n * sizeof(T));
    cudaMemcpy(p, v.data(), n * sizeof(T), cudaMemcpyHostToDevice);
  }
  std::vector<T> get() const {
    std::vector<T> v(n);
    cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost);
    return v;
  }
  ~array() { cudaFree(p); }
};

template <int Threads>
__global__ void block_collectives(long const* in, long* sums, long* scans, unsigned long* sorted,
                                  int* ranks) {
  using reduce = cub::BlockReduce<long, Threads>;
  using scan = cub::BlockScan<long, Threads, cub::BLOCK_SCAN_WARP_SCANS>;
  using sort = cub::BlockMergeSort<unsigned long, Threads, 2>;
  using rank = cub::BlockRadixRankMatch<Threads, 5, false>;
  __shared__ union {
    typename reduce::TempStorage r;
    typename scan::TempStorage s;
    typename sort::TempStorage m;
    typename rank::TempStorage k;
  } storage;
  int const t = static_cast<int>(threadIdx.x);
  long const v = in[blockIdx.x * Threads + t];
  long const sum = reduce(storage.r).Sum(v);
  if (t == 0)
    sums[blockIdx.x] = sum;
  __syncthreads();
  long below = 0, total = 0;
  scan(storage.s).ExclusiveSum(v, below, total);
  scans[blockIdx.x * Threads + t] = below;
  __syncthreads();
  unsigned long keys[2] = {static_cast<unsigned long>(v) * 7919u % 1009u,
                           static_cast<unsigned long>(v) * 104729u % 1013u};
  sort(storage.m).Sort(keys, [](unsigned long a, unsigned long b) { return a < b; });
  sorted[(blockIdx.x * Threads + t) * 2] = keys[0];
  sorted[(blockIdx.x * Threads + t) * 2 + 1] = keys[1];
  __syncthreads();
  unsigned bins[1] = {static_cast<unsigned>(v) & 31};
  int r[1];
  rank(storage.k).RankKeys(bins, r, cub::BFEDigitExtractor<unsigned>(0, 5));
  ranks[blockIdx.x * Threads + t] = r[0];
}

template <int Threads>
void check_block() {
  constexpr int blocks = 3;
  std::vector<long> in(Threads * blocks);
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<long>(i * 2654435761u % 1000);
  array<long> const a(in);
  array<long> const sums{std::vector<long>(blocks)}, scans{std::vector<long>(in.size())};
  array<unsigned long> const sorted{std::vector<unsigned long>(2 * in.size())};
  array<int> const ranks{std::vector<int>(in.size())};
  block_collectives<Threads><<<blocks, Threads>>>(a.p, sums.p, scans.p, sorted.p, ranks.p);
  auto const s = sums.get(), c = scans.get();
  auto const o = sorted.get();
  auto const k = ranks.get();
  for (int b = 0; b < blocks; ++b) {
    auto const* const v = in.data() + b * Threads;
    EXPECT(s[static_cast<std::size_t>(b)] == std::accumulate(v, v + Threads, 0l));
    std::vector<unsigned long> keys;
    long below = 0;
    std::vector<int> order(Threads);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int x, int y) { return (v[x] & 31) < (v[y] & 31); });
    bool good = true;
    for (int t = 0; t < Threads; ++t) {
      good &= c[static_cast<std::size_t>(b * Threads + t)] == below;
      below += v[t];
      keys.push_back(static_cast<unsigned long>(v[t]) * 7919u % 1009u);
      keys.push_back(static_cast<unsigned long>(v[t]) * 104729u % 1013u);
      good &= k[static_cast<std::size_t>(b * Threads + order[static_cast<std::size_t>(t)])] == t;
    }
    EXPECT(good);
    std::sort(keys.begin(), keys.end());
    EXPECT(std::equal(keys.begin(), keys.end(), o.begin() + b * Threads * 2));
  }
}

__global__ void warp_collectives(int const* in, int* out) {
  using reduce = cub::WarpReduce<int>;
  using scan = cub::WarpScan<int>;
  using sort = cub::WarpMergeSort<int, 4, 32>;
  __shared__ typename sort::TempStorage m;
  typename reduce::TempStorage r;
  typename scan::TempStorage s;
  int const t = static_cast<int>(threadIdx.x);
  int const v = in[t];
  int const total = __shfl_sync(~0u, reduce(r).Reduce(v, cuda::maximum<>{}), 0);
  int below = 0;
  scan(s).ExclusiveSum(v, below);
  int keys[4] = {v, v ^ 5, v * 3 % 17, -v};
  sort(m).Sort(keys, [](int a, int b) { return a < b; });
  int* const o = out + t * 16;
  o[0] = total;
  o[1] = below;
  for (int i = 0; i < 4; ++i)
    o[2 + i] = keys[i];
  o[6] = static_cast<int>(__ballot_sync(~0u, v % 3 == 0));
  o[7] = __any_sync(~0u, v == 1000) * 4 + __all_sync(~0u, v >= 0) * 2;
  o[8] = __shfl_up_sync(~0u, v, 3);
  o[9] = __shfl_down_sync(~0u, v, 5, 16);
  o[10] = __shfl_xor_sync(~0u, v, 9);
  o[11] = static_cast<int>(__match_any_sync(~0u, v % 4));
  o[12] = static_cast<int>(__reduce_add_sync(~0u, v)) + __reduce_min_sync(~0u, v);
  if (t % 2 == 0) {  // half of the warp
    o[13] = __shfl_sync(0x55555555u, v, 6);
    __syncwarp(0x55555555u);
  } else {
    o[13] = __shfl_xor_sync(0xaaaaaaaau, v, 2);
  }
  int all = 0;
  o[14] = static_cast<int>(__match_all_sync(~0u, v, &all)) + all;
  o[15] = 0;
}

void check_warp() {
  std::vector<int> in(32);
  for (int i = 0; i < 32; ++i)
    in[static_cast<std::size_t>(i)] = i * 37 % 41;
  array<int> const a(in), out{std::vector<int>(32 * 16)};
  warp_collectives<<<1, 32>>>(a.p, out.p);
  auto const o = out.get();
  std::vector<int> keys;
  unsigned ballot = 0;
  int below = 0;
  for (int i = 0; i < 32; ++i) {
    int const v = in[static_cast<std::size_t>(i)];
    keys.insert(keys.end(), {v, v ^ 5, v * 3 % 17, -v});
    ballot |= static_cast<unsigned>(v % 3 == 0) << i;
  }
  std::sort(keys.begin(), keys.end());
  for (int i = 0; i < 32; ++i) {
    int const* const r = o.data() + i * 16;
    auto const at = [&](int k) { return in[static_cast<std::size_t>(k)]; };
    EXPECT(r[0] == *std::max_element(in.begin(), in.end()));
    EXPECT(r[1] == below);
    below += at(i);
    for (int k = 0; k < 4; ++k)
      EXPECT(r[2 + k] == keys[static_cast<std::size_t>(4 * i + k)]);
    EXPECT(r[6] == static_cast<int>(ballot));
    EXPECT(r[7] == 2);
    EXPECT(r[8] == at(i < 3 ? i : i - 3));
    EXPECT(r[9] == at(i % 16 + 5 < 16 ? i + 5 : i));
    EXPECT(r[10] == at(i ^ 9));
    unsigned match = 0;
    for (int k = 0; k < 32; ++k)
      match |= static_cast<unsigned>(at(k) % 4 == at(i) % 4) << k;
    EXPECT(r[11] == static_cast<int>(match));
    EXPECT(r[12] ==
           std::accumulate(in.begin(), in.end(), 0) + *std::min_element(in.begin(), in.end()));
    EXPECT(r[13] == (i % 2 == 0 ? at(6) : at(i ^ 2)));
    EXPECT(r[14] == 0);
  }
}

struct totals {
  unsigned long long sum;
  int least, most;
  unsigned ored, wrapped, cas;
  double real;
  float single;
};
__global__ void add_all(totals* t) {
  unsigned const i = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(&t->sum, 1ull * i);
  atomicMin(&t->least, -static_cast<int>(i));
  atomicMax(&t->most, static_cast<int>(i));
  atomicOr(&t->ored, 1u << (i % 32));
  atomicInc(&t->wrapped, 6);
  for (unsigned old = 0;;) {
    unsigned const seen = atomicCAS(&t->cas, old, old + 3);
    if (seen == old)
      break;
    old = seen;
  }
  atomicAdd(&t->real, 0.5);
  atomicAdd(&t->single, 0.25f);
}

__global__ void phases(int* data, int n, int rounds) {
  auto grid = cooperative_groups::this_grid();
  int const i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  for (int round = 0; round < rounds; ++round) {
    int const v = data[(round % 2) * n + (i + 97) % n];
    data[(1 - round % 2) * n + i] = v + 1;
    grid.sync();
  }
}

__global__ void add_one(int* p, int n) {
  int const i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n)
    ++p[i];
}
__global__ void dynamic_shared(int* out, int n) {
  extern __shared__ int words[];
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
    words[i] = i;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x))
    out[i] = words[n - 1 - i];
}
struct square {
  int* p;
  __device__ void operator()(int i) const { p[i] = i * i; }
};

int main() {
  check_block<128>();
  check_block<256>();
  check_block<512>();
  check_warp();
  {
    array<totals> const t{std::vector<totals>(1)};
    add_all<<<7, 96>>>(t.p);
    totals const r = t.get()[0];
    int const n = 7 * 96;
    EXPECT(r.sum == static_cast<unsigned long long>(n) * static_cast<unsigned>(n - 1) / 2);
    EXPECT(r.least == -(n - 1) && r.most == n - 1 && r.ored == ~0u &&
           r.wrapped == static_cast<unsigned>(n % 7) && r.cas == 3u * n);
    EXPECT(r.real == 0.5 * n && r.single == 0.25f * n);
  }
  {
    constexpr int blocks = 20, threads = 64, n = blocks * threads;
    array<int> const data{std::vector<int>(2 * n)};
    int size = n, rounds = 8;
    void* args[] = {const_cast<int**>(&data.p), &size, &rounds};
    EXPECT(cudaLaunchCooperativeKernel(reinterpret_cast<void const*>(&phases), blocks, threads,
                                       args, 0, nullptr) == cudaSuccess);
    auto const r = data.get();
    EXPECT(std::all_of(r.begin(), r.begin() + n, [](int v) { return v == 8; }));
    EXPECT(cudaLaunchCooperativeKernel(reinterpret_cast<void const*>(&phases), 100000, threads,
                                       args, 0, nullptr) == cudaErrorCooperativeLaunchTooLarge);
    EXPECT(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge &&
           cudaGetLastError() == cudaSuccess);
  }
  {
    cudaStream_t one, two;
    cudaEvent_t done;
    cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&two, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    array<int> const data{std::vector<int>(100)};
    add_one<<<1, 128, 0, one>>>(data.p, 100);
    cudaEventRecord(done, one);
    cudaStreamWaitEvent(two, done, 0);
    add_one<<<1, 128, 0, two>>>(data.p, 100);
    std::vector<int> host(100);
    cudaMemcpyAsync(host.data(), data.p, 400, cudaMemcpyDeviceToHost, two);
    cudaStreamSynchronize(two);
    EXPECT(host == std::vector<int>(100, 2));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal);
    cudaMemsetAsync(data.p, 0, 400, one);
    add_one<<<1, 128, 0, one>>>(data.p, 50);
    EXPECT(cudaStreamEndCapture(one, &graph) == cudaSuccess);
    EXPECT(cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess);
    cudaDeviceSynchronize();
    EXPECT(data.get()[0] == 2);
    for (int i = 0; i < 3; ++i)
      cudaGraphLaunch(exec, one);
    cudaDeviceSynchronize();
    EXPECT(data.get()[0] == 1 && data.get()[50] == 0);
    cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal);
    EXPECT(cudaStreamSynchronize(one) == cudaErrorStreamCaptureUnsupported);
    EXPECT(cudaStreamEndCapture(one, &graph) == cudaErrorStreamCaptureInvalidated);
    cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal);
    int device = -1;
    EXPECT(cudaStreamGetDevice(one, &device) == cudaErrorStreamCaptureUnsupported);
    EXPECT(cudaStreamEndCapture(one, &graph) == cudaErrorStreamCaptureInvalidated);
    static_cast<void>(cudaGetLastError());
  }
  {
    constexpr int n = 15000;
    array<int> const out{std::vector<int>(n)};
    dynamic_shared<<<1, 128, n * 4>>>(out.p, n);
    EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
    EXPECT(cudaFuncSetAttribute(dynamic_shared, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                n * 4) == cudaSuccess);
    dynamic_shared<<<1, 128, n * 4>>>(out.p, n);
    EXPECT(cudaGetLastError() == cudaSuccess);
    EXPECT(out.get()[0] == n - 1 && out.get()[n - 1] == 0);
    EXPECT(cudaFuncSetAttribute(dynamic_shared, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                1 << 20) == cudaErrorInvalidValue);
    static_cast<void>(cudaGetLastError());
    EXPECT(cub::DeviceFor::Bulk(n, square{out.p}) == cudaSuccess);
    EXPECT(out.get()[123] == 123 * 123);
  }
  std::printf("collectives: %d wrong\n", wrong);
  return wrong != 0;
}
