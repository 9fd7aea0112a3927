// SPDX-License-Identifier: Apache-2.0
// Four tokens choose expert 0 first; every expert keeps the two tokens with the highest scores.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/capacity_mask.hpp>
#include <plimsoll/execution.hpp>
#include <vector>

int main() {
  // [example]
  std::vector<std::int32_t> const chosen{0, 1, 0, 2, 0, 1, 0, 2};
  std::vector<float> const router{.6f, .3f, .9f, .1f, .5f, .4f, .7f, .2f};
  plimsoll::array const ids(plimsoll::seq, chosen, 4, 2);  // [tokens, top_k]
  plimsoll::array const scores(plimsoll::seq, router, 4, 2);

  plimsoll::capacity_mask mask(plimsoll::seq,
                               {.experts = 3, .top_k = 2, .max_tokens = 4, .factor = 0.75});

  auto kept_ids = plimsoll::zeros<std::int32_t>(plimsoll::seq, 4, 2);
  auto positions = plimsoll::zeros<std::int32_t>(plimsoll::seq, 4, 2);
  auto counts = plimsoll::zeros<std::int32_t>(plimsoll::seq, 3);
  auto offsets = plimsoll::zeros<std::int32_t>(plimsoll::seq, 4);
  auto report = plimsoll::zeros<plimsoll::capacity_report>(plimsoll::seq);
  mask.apply(ids, scores,
             {.ids = kept_ids.view(),
              .positions = positions.view(),
              .counts = counts.view(),
              .offsets = offsets.view(),
              .report = report.view()});
  // [end]

  auto const expert = kept_ids.to_host();
  auto const position = positions.to_host();
  auto const first_row = offsets.to_host();
  std::printf("capacity %d\n", static_cast<int>(mask.capacity(4)));
  for (std::size_t pair = 0; pair < 8; ++pair) {
    if (expert[pair] < 0) {
      std::printf("token %zu, expert %d: dropped\n", pair / 2, chosen[pair]);
    } else {
      int const row = first_row[static_cast<std::size_t>(expert[pair])] + position[pair];
      std::printf("token %zu, expert %d: row %d\n", pair / 2, expert[pair], row);
    }
  }
  std::printf("dropped %.0f %% of the choices\n", 100 * report.to_host().dropped_fraction);

  // [by_choice]
  std::vector<float> const by_choice{0, -1};  // [top_k]: first choices before second choices
  plimsoll::matrix_ref<float const> order(by_choice.data(), 4, 2);
  order.strides[0] = 0;  // the same row for every token
  auto weights = plimsoll::zeros<float>(plimsoll::seq, 4, 2);
  mask.apply(ids, order, {.weights = scores.view()},
             {.weights = weights.view(), .counts = counts.view(), .report = report.view()});
  // [end]

  std::printf("weights by choice:");
  for (float const weight : weights.to_host()) {
    std::printf(" %.1f", static_cast<double>(weight));
  }
  std::printf("\n");
}
