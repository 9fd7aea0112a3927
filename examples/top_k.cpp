// SPDX-License-Identifier: Apache-2.0
// A router chooses two of four experts for each of three tokens, then adds the experts of its rank.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/top_k.hpp>
#include <vector>

static void print(std::vector<std::int32_t> const& ids, std::vector<float> const& weights) {
  std::size_t const width = ids.size() / 3;
  for (std::size_t token = 0; token < 3; ++token) {
    std::printf("token %zu:", token);
    for (std::size_t i = token * width; i < (token + 1) * width; ++i) {
      std::printf("  %2d (%.3f)", ids[i], static_cast<double>(weights[i]));
    }
    std::printf("\n");
  }
}

int main() {
  // [example]
  std::vector<float> const logits{2, 0, 1, -1,   // token 0
                                  3, 1, 2, 0,    // token 1
                                  0, 0, 4, -2};  // token 2

  plimsoll::array const scores(plimsoll::seq, logits, 3, 4);  // [tokens, experts]
  auto ids = plimsoll::zeros<std::int32_t>(plimsoll::seq, 3, 2);
  auto weights = plimsoll::zeros<float>(plimsoll::seq, 3, 2);
  plimsoll::top_k(plimsoll::seq, scores,
                  {.k = 2,
                   .function = plimsoll::score_function::softmax,
                   .normalize = plimsoll::normalization::to_one},
                  ids, weights);
  // [end]
  print(ids.to_host(), weights.to_host());

  std::printf("with the experts of each token's rank\n");
  // [local_experts]
  // Experts 0 and 1 are on rank 0, experts 2 and 3 on rank 1, as is token 0.
  plimsoll::array const local(plimsoll::seq, std::vector<std::int32_t>{0, 1, 2, 3}, 2, 2);
  plimsoll::array const homes(plimsoll::seq, std::vector<std::int32_t>{1, 0, 0});
  auto all_ids = plimsoll::zeros<std::int32_t>(plimsoll::seq, 3, 4);
  auto all_weights = plimsoll::zeros<float>(plimsoll::seq, 3, 4);
  plimsoll::top_k(plimsoll::seq, scores,
                  {.k = 2,
                   .function = plimsoll::score_function::softmax,
                   .normalize = plimsoll::normalization::to_one,
                   .local_experts = local.view(),
                   .homes = homes.view()},
                  all_ids, all_weights);
  // [end]
  print(all_ids.to_host(), all_weights.to_host());
}
