// SPDX-License-Identifier: Apache-2.0
// Tests of capacity_mask under the policies of a CUDA compiler and in CUDA graphs.
#include "capacity_mask.cases.hpp"

#include "support/captured.cuh"

namespace plimsoll_test {

PLIMSOLL_TEST_CASE("capacity_mask: applying can be captured in a CUDA graph and replayed", P,
                   gpu_resource_kind) {
  // Options that need all kernels.
  mask_case c = large_mask(41, 700, 12, 3, 2);
  c.options.expert_drop = 0.2;
  c.options.max_selected = 2;
  c.options.factor = 0.6;
  c.options.classes = 2;
  c.options.normalize = normalization::to_one;
  c.priorities.assign(at(c.tokens), 0);
  index_t const width = c.width();
  plimsoll::capacity_mask mask(make_policy<P>(), c.options);
  array_in<std::int32_t, P> ids(c.pairs());
  array_in<float, P> scores(c.pairs());
  array_in<std::int32_t, P> priorities(c.tokens);
  array_in<std::int32_t, P> kept_ids(c.pairs());
  array_in<float, P> weights(c.pairs());
  array_in<std::int32_t, P> positions(c.pairs());
  array_in<std::int32_t, P> counts(c.options.experts);
  array_in<std::int32_t, P> offsets(c.options.experts + 1);
  array_in<capacity_report, P> report(1);

  captured const graph([&] {
    mask.apply(ids.view2(c.tokens, width), scores.view2(c.tokens, width),
               {.priorities = priorities.view1()},
               {kept_ids.view2(c.tokens, width), weights.view2(c.tokens, width),
                positions.view2(c.tokens, width), counts.view1(), offsets.view1(), report.view1()});
  });

  for (std::uint64_t turn = 0; turn < 3; ++turn) {
    CAPTURE(turn);
    mask_case const other = large_mask(42 + turn, c.tokens, c.options.experts, 3, 2);
    c.ids = other.ids;
    c.scores = other.scores;
    mask_draws draw(turn);
    for (std::int32_t& priority : c.priorities) {
      priority = draw.among(0, 2);
    }
    ids.assign(ints(c.ids.begin(), c.ids.end()));
    scores.assign(c.scores);
    priorities.assign(c.priorities);
    graph.replay();
    check_same({kept_ids.values(), bits_of(weights.values()), positions.values(), counts.values(),
                offsets.values(), report.values()[0]},
               mask_by_sorting(c));
  }
}

}  // namespace plimsoll_test
