// expect-error: OpenMP
// errors: 1
#include <plimsoll/execution/omp.hpp>
