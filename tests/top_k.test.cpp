// SPDX-License-Identifier: Apache-2.0
// Tests of top_k under the host's policies; every team, temporaries.
#include "top_k.cases.hpp"

#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

template <class T>
inline constexpr bool can_be_scores =
    plimsoll::detail::fault_of_argument<plimsoll::matrix_ref<T const>, 2,
                                        plimsoll::detail::any_score, false>() ==
    plimsoll::detail::argument_fault::none;
static_assert(can_be_scores<float> && can_be_scores<float16> && can_be_scores<bfloat16>);
static_assert(!can_be_scores<double> && !can_be_scores<std::int32_t> &&
              !can_be_scores<std::uint16_t>);

TEST_CASE("top_k: the same bits in every team") {
  auto const check = []<index_t TokensPerProblem = 1>(top_k_case const& c) {
    top_k_options how = c.how;
    if (!c.bias.empty()) {
      how.bias = {c.bias.data(), c.experts};
    }
    if (c.lists > 0) {
      how.local_experts = {c.local.data(), c.lists, c.added()};
    }
    ints ids(at(c.tokens, c.width(), 0), -7);
    floats weights(ids.size(), -7);
    using body_type = plimsoll::detail::top_k_body<float, plimsoll::detail::no_listener,
                                                   std::int32_t, TokensPerProblem>;
    body_type const body{{c.scores.data(), c.tokens, c.experts},
                         how,
                         {ids.data(), c.tokens, c.width()},
                         {weights.data(), c.tokens, c.width()}};
    check_all_teams(body, body.problems(), ids, weights);
    check_top_k(c, {ids, weights});
  };
  // Ties, NaN and -inf, with all experts chosen and with few.
  top_k_case c{.tokens = 2, .experts = 40, .how = {.k = 40, .function = score_function::softmax}};
  generator random(3);
  for (index_t i = 0; i < c.tokens * c.experts; ++i) {
    auto const what = static_cast<float>(random.between(0, 11));
    c.scores.push_back(what == 0 ? not_a_number : what == 1 ? -infinity : what / 4);
  }
  check(c);
  c.how = {.k = 5, .function = score_function::sigmoid, .groups = 8, .kept_groups = 3};
  c.how.normalize = normalization::to_one;
  c.bias.assign(40, 0.125f);
  c.bias[7] = -infinity;
  c.lists = 1;
  c.local = {4, 0, 99, 0, -1, 33};
  check(c);
  c.bias.clear();
  c.how.best_of_group = 1;
  check.operator()<64>(c);
}

TEST_CASE("top_k: releases its temporary memory") {
  floats const scores(12, 1);
  ints ids(4);
  floats weights(4);
  check_temporaries(1, [&](auto& resource) {
    plimsoll::top_k(plimsoll::seq(resource), plimsoll::matrix_ref<float const>(scores.data(), 2, 6),
                    {.k = 2}, plimsoll::matrix_ref<std::int32_t>(ids.data(), 2, 2),
                    plimsoll::matrix_ref<float>(weights.data(), 2, 2));
  });
}

}  // namespace plimsoll_test
