// expect-error: count_replicas: physical_to_logical must hold int32 or int64, not float
// errors: 1
// Ids are whole numbers.
#include <plimsoll/placement_maps.hpp>

#include <cstdint>
#include <vector>

int main() {
  std::vector<float> const map{0, 1};
  std::vector<std::int64_t> counts(2);
  plimsoll::count_replicas(plimsoll::seq, plimsoll::matrix_ref<float const>(map, 1, 2),
                           plimsoll::matrix_ref<std::int64_t>(counts, 1, 2));
}
