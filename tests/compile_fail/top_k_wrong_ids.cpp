// expect-error: top_k: topk_ids must hold int32 or int64, not float
// errors: 1
// Ids are whole numbers. The message names the argument and the elements that it holds.
#include <plimsoll/top_k.hpp>

#include <cstdint>
#include <vector>

int main() {
  std::vector<float> logits(8), first(2);
  std::vector<float> second(2);
  plimsoll::top_k(plimsoll::seq, plimsoll::matrix_ref<float const>(logits.data(), 2, 4), {.k = 1},
                  plimsoll::matrix_ref<float>(first.data(), 2, 1),
                  plimsoll::matrix_ref<float>(second.data(), 2, 1));
}
