// expect-error: place: loads must be a view of rank 2, \[layers, experts\]
// errors: 1
// Loads of one layer are a matrix with one row, not a vector.
#include <plimsoll/placement.hpp>

#include <vector>

int main() {
  std::vector<int> const loads{3, 1};
  plimsoll::array const copies(plimsoll::seq, std::vector<int>{1, 1}, 1, 2);
  plimsoll::place(plimsoll::seq, loads, copies, 2, plimsoll::placement_options{.on = {.ranks = 2}});
}
