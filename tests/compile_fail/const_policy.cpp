// expect-error: unqualified_policy
// A variable such as `seq` is const, so its type is not that of a policy: write seq_policy.
#include <plimsoll/array.hpp>

#include <vector>

int main() {
  plimsoll::array<float, decltype(plimsoll::seq)> loads(plimsoll::seq, std::vector<float>(4));
}
