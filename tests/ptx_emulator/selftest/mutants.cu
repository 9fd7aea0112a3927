// SPDX-License-Identifier: Apache-2.0
// Wrong kernels, one per argument: the emulator must report each. `good` must pass.
#include <cstdio>
#include <cstring>
#include <vector>

__global__ void reverse(int* p, bool waits) {
  __shared__ int s[128];
  s[threadIdx.x] = p[threadIdx.x];
  if (waits)
    __syncthreads();
  p[threadIdx.x] = s[127 - threadIdx.x];
}
__global__ void reverse_warp(int* p, bool waits) {
  __shared__ int s[128];
  s[threadIdx.x] = p[threadIdx.x];
  if (waits)
    __syncwarp();
  p[threadIdx.x] = s[threadIdx.x ^ 31];
}
__global__ void shuffle_is_no_barrier(int* p) {
  __shared__ int s[32];
  s[threadIdx.x] = p[threadIdx.x];
  int const v = __shfl_xor_sync(~0u, p[threadIdx.x], 1);
  p[threadIdx.x] = s[threadIdx.x ^ 31] + v;
}
__global__ void write_at(int* p, int i) { p[i] = 1; }
__global__ void read_at(int const* p, int i, int* out) { *out = p[i]; }
__global__ void write_shared(int* p, int i) {
  __shared__ int s[32];
  s[i] = 1;
  __syncthreads();
  *p = s[0];
}
__global__ void read_shared(int* p, int i) {
  __shared__ int s[32];
  if (i < 0)
    s[0] = 1;
  __syncthreads();
  *p = s[i < 0 ? -i : i];
}
__global__ void misaligned(char* p) { *reinterpret_cast<int*>(p + 1) = 1; }
__global__ void half_of_a_warp_waits(int* p) {
  if (threadIdx.x % 2 == 0) {
    __syncwarp();
    p[0] = 1;
    __syncthreads();
  } else {
    __syncthreads();
    __syncwarp();
  }
}
__global__ void wrong_mask(int* p) {
  if (threadIdx.x < 16)
    p[threadIdx.x] = __shfl_sync(~0u, p[threadIdx.x], 0);
}
__global__ void blocks_write_one(int* p) { *p = static_cast<int>(blockIdx.x); }
__global__ void blocks_add(int* p) { *p += 1; }
__global__ void traps() { asm volatile("trap;"); }
__global__ void count(int* p) { atomicAdd(p, 1); }

int main(int, char** argv) {
  auto const is = [&](char const* name) { return std::strcmp(argv[1], name) == 0; };
  int *p = nullptr, *q = nullptr;
  cudaMalloc(&p, 512);
  cudaMalloc(&q, 512);
  cudaMemset(p, 0, 512);
  if (is("good")) {
    reverse<<<1, 128>>>(p, true);
    reverse_warp<<<1, 128>>>(p, true);
    count<<<5, 64>>>(p);
    write_at<<<1, 1>>>(p, 127);
    write_shared<<<1, 1>>>(p, 0);
  } else if (is("missing_syncthreads")) {
    reverse<<<1, 128>>>(p, false);
  } else if (is("missing_syncwarp")) {
    reverse_warp<<<1, 128>>>(p, false);
  } else if (is("shuffle_is_no_barrier")) {
    shuffle_is_no_barrier<<<1, 32>>>(p);
  } else if (is("write_past_the_end")) {
    write_at<<<1, 1>>>(p, 128);
  } else if (is("write_before")) {
    write_at<<<1, 1>>>(p, -1);
  } else if (is("read_past_the_end")) {
    read_at<<<1, 1>>>(p, 1000, q);
  } else if (is("read_never_written")) {
    read_at<<<1, 1>>>(q, 3, p);
  } else if (is("use_after_free")) {
    cudaFree(p);
    write_at<<<1, 1>>>(p, 0);
  } else if (is("null")) {
    write_at<<<1, 1>>>(nullptr, 0);
  } else if (is("shared_past_the_end")) {
    write_shared<<<1, 1>>>(p, 32);
  } else if (is("shared_never_written")) {
    read_shared<<<1, 1>>>(p, 5);
  } else if (is("misaligned")) {
    misaligned<<<1, 1>>>(reinterpret_cast<char*>(p));
  } else if (is("deadlock")) {
    half_of_a_warp_waits<<<1, 64>>>(p);
  } else if (is("wrong_mask")) {
    wrong_mask<<<1, 32>>>(p);
  } else if (is("blocks_write_one")) {
    blocks_write_one<<<4, 1>>>(p);
  } else if (is("blocks_add")) {
    blocks_add<<<4, 1>>>(p);
  } else if (is("trap")) {
    traps<<<1, 1>>>();
  } else if (is("missing_stream_sync")) {
    cudaStream_t s;
    cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
    count<<<1, 64, 0, s>>>(p);
    int n = 0;
    cudaMemcpy(&n, p, 4, cudaMemcpyDeviceToHost);
    if (n != 64) {
      std::printf("the copy was too early\n");
      return 86;
    }
  } else {
    std::printf("no mutant %s\n", argv[1]);
    return 1;
  }
  return cudaDeviceSynchronize();
}
