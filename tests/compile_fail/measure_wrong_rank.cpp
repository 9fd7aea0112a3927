// expect-error: measure: loads must be a view of rank 2, \[rows, columns\]
// errors: 1
// A vector has one dimension; rows and columns cannot be guessed.
#include <plimsoll/metrics.hpp>

#include <vector>

int main() {
  std::vector<float> const loads{3, 1, 2, 2};
  std::vector<plimsoll::balance_stats> balance(2);
  plimsoll::measure(plimsoll::seq, loads, balance);
}
