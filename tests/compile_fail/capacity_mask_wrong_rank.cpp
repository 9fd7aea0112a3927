// expect-error: capacity_mask::apply: topk_ids must be a view of rank 2, \[tokens, candidates\]
// errors: 1
// A vector has one dimension; a batch of ids has two.
#include <plimsoll/capacity_mask.hpp>

#include <cstdint>
#include <vector>

int main() {
  std::vector<std::int32_t> const topk_ids(8);
  std::vector<std::int32_t> counts(4);
  std::vector<float> const scores(8);
  std::vector<plimsoll::capacity_report> report(1);
  plimsoll::capacity_mask mask(plimsoll::seq, {.experts = 4, .top_k = 1, .max_tokens = 8});
  mask.apply(topk_ids, plimsoll::matrix_ref<float const>(scores.data(), 8, 1),
             {.counts = counts, .report = report});
}
