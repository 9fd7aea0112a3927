// expect-error: gpu policy.*CUDA compiler
// errors: 1
#include <plimsoll/execution/cuda.cuh>
#include <plimsoll/load_tensor.hpp>

#include <cstdint>

// A host file holds and passes the policy; a call is the one error.
static_assert(plimsoll::unqualified_policy<cuda::stream_ref>);
plimsoll::gpu_policy gpu_of(cuda::stream_ref stream) { return plimsoll::gpu(stream); }

void sum_in_host_file(cuda::stream_ref stream) {
  plimsoll::sum_steps(stream, plimsoll::tensor_ref<std::int32_t const>(),
                      plimsoll::matrix_ref<std::int64_t>());
}
