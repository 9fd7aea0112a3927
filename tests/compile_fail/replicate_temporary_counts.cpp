// expect-error: replicate: replica_count is an output, so it must not be a temporary
// errors: 1
// Counts that are written to a temporary array are lost.
#include <plimsoll/replication.hpp>

#include <vector>

int main() {
  plimsoll::array const loads(plimsoll::seq, std::vector<int>{3, 1}, 1, 2);
  plimsoll::replicate(plimsoll::seq, loads, 3, {}, plimsoll::zeros<int>(plimsoll::seq, 1, 2));
}
