// SPDX-License-Identifier: Apache-2.0
// Values and properties of DeepSpeed's tests (github.com/deepspeedai/DeepSpeed, Apache-2.0):
// tests/unit/v1/moe/test_moe.py at edaa722 (earlier tests/unit/moe/test_moe.py), class TestTopkGate
// and the tests of capacities after it: the pairs that a gate keeps and their rows, the weights of
// kept pairs, and the width of its buffers. Gates here are `top_k` with softmax and
// `capacity_mask`. Only numbers and properties are theirs. Where a case differs here, its comment
// says why.
#include <doctest/doctest.h>
#include <plimsoll/array.hpp>
#include <plimsoll/capacity_mask.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/top_k.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace plimsoll_outside_deepspeed {

using plimsoll::drop_policy;
using plimsoll::index_t;
using plimsoll::seq;
using floats = std::vector<float>;

/// The order in which an expert takes its pairs: by score (DeepSpeed's `probs`), by token
/// (`position`), or all first choices before any second one, as DeepSpeed's gate for two choices.
enum class rank_by { score, token, choice };

/// The outputs of a gate.
struct gated {
  index_t capacity = 0;
  index_t rows = 0;  ///< of all experts, each padded to its capacity
  index_t kept = 0;  ///< pairs
  /// Kept pairs, "expert:row" with the row in the expert's buffer, by token and expert. Each token
  /// ends with a bar.
  std::string pairs;
  floats weights;  ///< [tokens, experts], 0 where a pair is not kept
};

inline gated gate(floats const& logits, index_t experts, plimsoll::capacity_options options,
                  rank_by order) {
  index_t const tokens = static_cast<index_t>(logits.size()) / experts;
  index_t const k = options.top_k;
  auto ids = plimsoll::zeros<std::int32_t>(seq, tokens, k);
  auto weights = plimsoll::zeros<float>(seq, tokens, k);
  auto keys = plimsoll::zeros<float>(seq, tokens, k);
  plimsoll::top_k(seq, plimsoll::array(seq, logits, tokens, experts),
                  {.k = k, .function = plimsoll::score_function::softmax}, ids, weights);
  // Keys that fall from column to column put first choices before second ones.
  for (index_t t = 0; t < tokens; ++t) {
    for (index_t j = 0; j < k; ++j) {
      keys.view()(t, j) = order == rank_by::choice ? static_cast<float>(-j) : weights.view()(t, j);
    }
  }
  options.experts = experts;
  options.max_tokens = tokens;
  options.drop_by = order == rank_by::token ? drop_policy::order : drop_policy::score;
  options.normalize = plimsoll::normalization::to_one;
  options.pad = plimsoll::padding_mode::to_capacity;
  plimsoll::capacity_mask mask(seq, options);
  auto rows = plimsoll::zeros<std::int32_t>(seq, tokens, k);
  auto counts = plimsoll::zeros<std::int32_t>(seq, experts);
  auto offsets = plimsoll::zeros<std::int32_t>(seq, experts + 1);
  auto report = plimsoll::zeros<plimsoll::capacity_report>(seq, 1);
  mask.apply(ids, keys, {.weights = weights.view()},
             plimsoll::kept_pairs{.ids = ids.view(),
                                  .weights = weights.view(),
                                  .positions = rows.view(),
                                  .counts = counts.view(),
                                  .offsets = offsets.view(),
                                  .report = report.view()});

  gated result{.capacity = mask.capacity(tokens),
               .rows = offsets.to_host().back(),
               .kept = report.view()[0].kept,
               .pairs = {},
               .weights = floats(logits.size())};
  for (index_t t = 0; t < tokens; ++t) {
    std::map<std::int32_t, std::int32_t> row_of;  // of the token's experts
    for (index_t j = 0; j < k; ++j) {
      std::int32_t const expert = ids.view()(t, j);
      if (expert >= 0) {
        row_of[expert] = rows.view()(t, j);
        result.weights[static_cast<std::size_t>(t * experts + expert)] = weights.view()(t, j);
      }
    }
    for (auto const& [expert, row] : row_of) {
      result.pairs += std::to_string(expert) + ':' + std::to_string(row) + ' ';
    }
    result.pairs += "| ";
  }
  return result;
}

inline floats scaled(floats logits, float factor) {
  for (float& logit : logits) {
    logit *= factor;
  }
  return logits;
}

TEST_CASE("outside: DeepSpeed: truth tables of the top-k gate") {
  floats const four{0.11f, 0.2f, 0.1f, 0.3f, 0.3f, 0.4f,  0.11f, 0.1f,
                    0.11f, 0.1f, 0.6f, 0.5f, 0.1f, 0.11f, 0.7f,  0.8f};
  floats const six{0.5858f, 0.4801f, 0.6269f, 0.5397f, 0.9722f, 0.7034f, 0.5445f, 0.6332f,
                   0.4519f, 0.6308f, 0.0519f, 0.6450f, 0.4874f, 0.8110f, 0.7467f, 0.8474f,
                   0.0277f, 0.3068f, 0.8570f, 0.6714f, 0.5310f, 0.3274f, 0.4836f, 0.9892f};
  floats const falling{0.95f, 0.85f, 0.90f, 0.80f, 0.70f, 0.65f, 0.75f, 0.60f,
                       0.50f, 0.55f, 0.45f, 0.40f, 0.35f, 0.30f, 0.25f, 0.20f};
  struct truth {
    floats const& logits;
    index_t experts, top_k;
    rank_by order;
    index_t min_tokens;  ///< above the four tokens: nothing is dropped
    index_t width;       ///< of an expert's buffer
    std::string pairs;
  };
  truth const truths[] = {
      {four, 4, 2, rank_by::score, 0, 2, "1:0 | 0:0 1:1 | 2:0 3:0 | 2:1 3:1 | "},
      {four, 4, 2, rank_by::token, 0, 2, "1:0 3:0 | 0:0 1:1 | 2:0 3:1 | 2:1 | "},
      {six, 6, 3, rank_by::score, 0, 2, "2:0 4:0 | 1:0 3:0 5:0 | 1:1 2:1 3:1 | 0:0 5:1 | "},
      {six, 6, 3, rank_by::token, 0, 2, "2:0 4:0 5:0 | 1:0 3:0 5:1 | 1:1 2:1 3:1 | 0:0 | "},
      // Without drops DeepSpeed's width is the largest number of pairs of an expert; here it is the
      // number of tokens. Both are four in this case.
      {falling, 4, 2, rank_by::score, 5, 4, "0:0 2:0 | 0:1 2:1 | 0:2 1:0 | 0:3 1:1 | "},
  };
  for (truth const& c : truths) {
    for (float const factor : {1.0f, 2.0f}) {  // rank + 1 in their test on two ranks
      CAPTURE(factor);
      gated const got =
          gate(scaled(c.logits, factor), c.experts,
               {.top_k = c.top_k, .min_capacity = 1, .min_tokens = c.min_tokens}, c.order);
      CHECK(got.pairs == c.pairs);
      CHECK(got.capacity == c.width);
      CHECK(got.rows == c.experts * c.width);
    }
  }
}

TEST_CASE("outside: DeepSpeed: rows and weights of kept pairs") {
  // DeepSpeed compares its list of routes to its dense tensor [tokens, experts, capacity]. Here the
  // kept pairs follow from the definition of its gates by hand, and the weights are the softmax of
  // the logits, divided by its sum over the pairs that the token keeps.
  struct routing_case {
    floats logits;
    index_t experts, top_k;
    rank_by order;
    std::string pairs;
  };
  routing_case const cases[] = {
      // Two first choices fill expert 1 before token 3 comes; two second choices fill expert 2
      // before token 2 comes.
      {{0.1f, 0.9f, 0.2f, 0.8f, 0.1f, 0.3f, 0.4f, 0.6f, 0.5f, 0.7f, 0.2f, 0.1f},
       3,
       2,
       rank_by::choice,
       "1:0 2:0 | 0:0 2:1 | 1:1 | 0:1 | "},
      // Every expert keeps the two tokens with the largest scores.
      {{0.1f, 0.9f, 0.2f, 0.3f, 0.8f, 0.1f, 0.3f, 0.2f,  //
        0.4f, 0.6f, 0.5f, 0.7f, 0.7f, 0.2f, 0.1f, 0.8f},
       4,
       3,
       rank_by::score,
       "1:0 | 0:0 2:0 | 1:1 2:1 3:0 | 0:1 3:1 | "},
  };
  for (routing_case const& c : cases) {
    CAPTURE(c.top_k);
    gated const got =
        gate(c.logits, c.experts, {.top_k = c.top_k, .factor = 0.5, .min_capacity = 0}, c.order);
    CHECK(got.capacity == 2);
    CHECK(got.pairs == c.pairs);
    auto const experts = static_cast<std::size_t>(c.experts);
    for (std::size_t first = 0; first < c.logits.size(); first += experts) {
      CAPTURE(first);
      double sum = 0;
      for (std::size_t i = first; i < first + experts; ++i) {
        sum += got.weights[i] == 0 ? 0 : std::exp(double{c.logits[i]});
      }
      for (std::size_t i = first; i < first + experts; ++i) {
        double const weight = got.weights[i] == 0 ? 0 : std::exp(double{c.logits[i]}) / sum;
        // The tolerances of torch.testing.assert_close.
        CHECK(std::abs(double{got.weights[i]} - weight) <= 1e-5 + 1.3e-6 * weight);
      }
    }
  }
}

TEST_CASE("outside: DeepSpeed: capacities above the tokens") {
  // DeepSpeed keeps the configured capacity as the width of its buffers. So does to_capacity,
  // though a capacity itself is at most the number of tokens.
  struct wide_case {
    index_t tokens, experts, top_k;
    double factor;
    index_t min_capacity;
    rank_by order;
    index_t width;  ///< DeepSpeed's
  };
  wide_case const cases[] = {
      {8, 2, 2, 2, 0, rank_by::score, 16},
      {8, 2, 1, 4, 0, rank_by::score, 16},
      {4, 2, 1, 1, 8, rank_by::token, 8},
      {3, 4, 1, 8, 0, rank_by::score, 6},
  };
  for (wide_case const& c : cases) {
    CAPTURE(c.width);
    floats logits;
    for (index_t i = 0; i < c.tokens * c.experts; ++i) {
      logits.push_back(static_cast<float>(i * 37 % 11));  // theirs are random
    }
    gated const got =
        gate(logits, c.experts,
             {.top_k = c.top_k, .factor = c.factor, .min_capacity = c.min_capacity}, c.order);
    CHECK(got.kept == c.tokens * c.top_k);
    CHECK(got.capacity == std::min(c.width, c.tokens));
    CHECK(got.rows == c.experts * c.width);
  }
}

}  // namespace plimsoll_outside_deepspeed
