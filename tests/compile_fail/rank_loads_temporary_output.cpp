// expect-error: rank_loads: out is an output, so it must not be a temporary
// errors: 1
// The array would be freed before anybody reads it.
#include <plimsoll/load_tensor.hpp>

#include <cstdint>
#include <vector>

int main() {
  std::vector<std::int32_t> const loads{3, 1}, map{0, 1}, copies{1, 1};
  using matrix = plimsoll::matrix_ref<std::int32_t const>;
  plimsoll::rank_loads(plimsoll::seq, matrix(loads, 1, 2),
                       {matrix(map, 1, 2), matrix(copies, 1, 2), 2},
                       plimsoll::zeros<double>(plimsoll::seq, 1, 2));
}
