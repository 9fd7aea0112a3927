// expect-error: cuda.cuh> needs CUDA's headers
#include <plimsoll/execution/cuda.cuh>
