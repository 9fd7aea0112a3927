// SPDX-License-Identifier: Apache-2.0
// The consumer compiled by nvcc, which also compiles the device part of one call.
#include "../main.cpp"

void measure_on(cudaStream_t stream, plimsoll::matrix_ref<float const> loads,
                plimsoll::vector_ref<plimsoll::balance_stats> out) {
  plimsoll::measure(plimsoll::gpu(stream), loads, out);
}
