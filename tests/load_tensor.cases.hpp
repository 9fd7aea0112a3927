// SPDX-License-Identifier: Apache-2.0
// Tests of load_tensor under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/random.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/hash.hpp"
#include "support/load_tensor.hpp"
#include "support/policies.hpp"
#include "support/resources.hpp"

namespace plimsoll_test {

using namespace load_tensor_support;

// ----- counting ----------------------------------------------------------------------------------

PLIMSOLL_TEST_CASE("load_tensor: tokens per expert", P, PLIMSOLL_POLICIES) {
  struct shape {
    index_t tokens, k, experts;
  };
  for (shape const s : {shape{0, 8, 4}, shape{1, 1, 1}, shape{7, 1, 5}, shape{2000, 8, 256},
                        shape{5000, 3, 257}, shape{600, 2, 20000}, shape{9000, 4, 1}}) {
    CAPTURE(s.tokens);
    CAPTURE(s.experts);
    auto const check = [&]<class Id, class Count>(Id, Count) {
      auto const ids = random_ids<Id>(s.tokens * s.k, s.experts, 1);
      count_result const expected = count_plainly(ids, 1, s.experts);
      count_result const got = counted<P, Count>(ids, s.k, s.experts);
      CHECK(got.counts == expected.counts);
      CHECK(got.counters == expected.counters);
      count_result const added = counted<P, Count>(ids, s.k, s.experts, count_mode::add);
      CHECK(added.counters == std::vector<std::int64_t>{expected.counters[0] + 7,
                                                        expected.counters[1] + 8,
                                                        expected.counters[2] + 9});
      for (std::size_t e = 0; e < added.counts.size(); ++e) {
        CHECK(added.counts[e] == expected.counts[e] + 5);
      }
      if constexpr (sizeof(Id) == 4) {
        report_hash("load_tensor.count_tokens." + std::to_string(s.tokens) + "x" +
                        std::to_string(s.experts),
                    got.counts, got.counters);
      }
    };
    check(std::int32_t{}, std::int64_t{});
    check(std::int64_t{}, std::int32_t{});
#if !defined(__CUDACC__)
    check(std::int32_t{}, std::int32_t{});
    check(std::int64_t{}, std::int64_t{});
#endif
  }
}

PLIMSOLL_TEST_CASE("load_tensor: nothing routed, all on one expert", P, PLIMSOLL_POLICIES) {
  constexpr index_t experts = 9;
  std::vector<std::int64_t> zero(experts, 0);
  count_result const none =
      counted<P, std::int64_t>(std::vector<std::int32_t>(3000, -1), 3, experts);
  CHECK(none.counts == zero);
  CHECK(none.counters == std::vector<std::int64_t>{0, 3000, 0});
  count_result const one =
      counted<P, std::int64_t>(std::vector<std::int32_t>(30000, 8), 3, experts);
  zero[8] = 30000;
  CHECK(one.counts == zero);
  CHECK(one.counters == std::vector<std::int64_t>{30000, 0, 0});
}

PLIMSOLL_TEST_CASE("load_tensor: tokens per expert in several layers", P, PLIMSOLL_POLICIES) {
  constexpr index_t layers = 3;
  constexpr index_t tokens = 1500;
  constexpr index_t k = 4;
  constexpr index_t experts = 40;
  auto const ids = random_ids<std::int32_t>(layers * tokens * k, experts, 2);
  array_in<std::int32_t, P> const in(ids);
  array_in<std::int64_t, P> counts(layers * experts, std::int64_t{-1});
  array_in<routing_counters, P> counters(layers);
  plimsoll::count_tokens(make_policy<P>(), in.view3(layers, tokens, k), {},
                         counts.view2(layers, experts), counters.view1());
  count_result const expected = count_plainly(ids, layers, experts);
  CHECK(counts.values() == expected.counts);
  CHECK(members(counters.values()) == expected.counters);
  CHECK(plimsoll::read(make_policy<P>(), counters.view1())[2].routed == expected.counters[6]);
  report_hash("load_tensor.count_tokens.layers", counts.values(), members(counters.values()));

  plimsoll::count_tokens(make_policy<P>(), in.view3(0, tokens, k), {}, counts.view2(0, experts),
                         array_in<routing_counters, P>(0).view1());
  CHECK(counts.values() == expected.counts);
}

PLIMSOLL_TEST_CASE("load_tensor: ids and counts in any layout", P, PLIMSOLL_POLICIES) {
  constexpr index_t tokens = 700;
  constexpr index_t k = 6;
  constexpr index_t experts = 11;
  auto const ids = random_ids<std::int32_t>(tokens * k, experts, 3);
  count_result const expected = count_plainly(ids, 1, experts);
  struct layout {
    char const* name;
    index_t token_stride, k_stride;
  };
  for (layout const l :
       {layout{"column-major", 1, tokens}, layout{"padded rows", k + 3, 1},
        layout{"every other element", 2 * k, 2}, layout{"padded columns", 2, 2 * tokens}}) {
    CAPTURE(l.name);
    std::vector<std::int32_t> memory(
        static_cast<std::size_t>((tokens - 1) * l.token_stride + (k - 1) * l.k_stride + 1), 10);
    for (index_t t = 0; t < tokens; ++t) {
      for (index_t j = 0; j < k; ++j) {
        memory[static_cast<std::size_t>(t * l.token_stride + j * l.k_stride)] =
            ids[static_cast<std::size_t>(t * k + j)];
      }
    }
    array_in<std::int32_t, P> const in(memory);
    plimsoll::matrix_ref<std::int32_t const> view = in.view2(tokens, k);
    view.strides[0] = l.token_stride;
    view.strides[1] = l.k_stride;
    array_in<std::int64_t, P> counts(3 * experts, std::int64_t{-7});
    plimsoll::vector_ref<std::int64_t> every_third(counts.data(), experts);
    every_third.strides[0] = 3;
    array_in<routing_counters, P> counters(1);
    plimsoll::count_tokens(make_policy<P>(), view, {}, every_third, counters.view1());
    auto const got = counts.values();
    for (std::size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i] == (i % 3 == 0 ? expected.counts[i / 3] : -7));
    }
    CHECK(members(counters.values()) == expected.counters);
  }
}

PLIMSOLL_TEST_CASE("load_tensor: tokens per source and expert", P, PLIMSOLL_POLICIES) {
  constexpr index_t tokens = 4000;
  constexpr index_t k = 3;
  constexpr index_t experts = 33;
  auto const ids = random_ids<std::int32_t>(tokens * k, experts, 4);
  array_in<std::int32_t, P> const in(ids);
  auto const check = [&]<class Offset>(std::vector<Offset> const& offsets, bool tail) {
    auto const sources = static_cast<index_t>(offsets.size()) - 1;
    count_result expected{std::vector<std::int64_t>(static_cast<std::size_t>(sources * experts)),
                          std::vector<std::int64_t>(3)};
    for (index_t s = 0; s < sources; ++s) {
      auto const at = static_cast<std::size_t>(s);
      count_plainly(ids.data() + offsets[at] * k, (offsets[at + 1] - offsets[at]) * k, experts,
                    expected.counts.data() + s * experts, expected.counters.data());
    }
    if (tail) {
      expected.counters[2] += (tokens - (offsets.back() - offsets.front())) * k;
    }
    array_in<Offset, P> const from(offsets);
    array_in<std::int64_t, P> counts(sources * experts, std::int64_t{3});
    array_in<routing_counters, P> counters(1);
    plimsoll::count_tokens_by_source(make_policy<P>(), in.view2(tokens, k), from.view1(), {},
                                     counts.view2(sources, experts), counters.view1());
    CHECK(counts.values() == expected.counts);
    CHECK(members(counters.values()) == expected.counters);
    if (!tail) {  // which no host policy takes, so that nothing could be compared
      report_hash("load_tensor.count_tokens_by_source." + std::to_string(sources), counts.values(),
                  members(counters.values()));
    }
  };
  check(std::vector<std::int32_t>{0, tokens}, false);
  check(std::vector<std::int32_t>{0, 0, 1, 1, 1500, 1501, 3999, tokens, tokens}, false);
  check(std::vector<std::int64_t>{0, 0, 0, tokens}, false);
  if constexpr (is_device_kind<P>) {
    check(std::vector<std::int32_t>{10, 500, 3000}, true);
    // Falling or invalid offsets: every id is still counted once.
    array_in<std::int32_t, P> const wild(std::vector<std::int32_t>{-5, 900, 200, 99999, 7});
    array_in<std::int64_t, P> counts(4 * experts);
    array_in<routing_counters, P> counters(1);
    plimsoll::count_tokens_by_source(make_policy<P>(), in.view2(tokens, k), wild.view1(), {},
                                     counts.view2(4, experts), counters.view1());
    CHECK(members(counters.values()) == count_plainly(ids, 1, experts).counters);
  }
}

// ----- slots, steps, ranks -----------------------------------------------------------------------

PLIMSOLL_TEST_CASE("load_tensor: tokens per slot to tokens per expert", P, PLIMSOLL_POLICIES) {
  constexpr index_t layers = 4;
  constexpr index_t experts = 20;
  for (index_t const slots : {0, 1, 33, 200}) {
    CAPTURE(slots);
    auto const map = random_ids<std::int32_t>(layers * slots, experts, 5);
    std::vector<std::int32_t> physical;
    for (std::size_t i = 0; i < map.size(); ++i) {
      physical.push_back(static_cast<std::int32_t>(i * i % 1009));
    }
    std::vector<std::int64_t> expected(layers * experts);
    std::vector<std::int64_t> where(layers * 3);
    for (std::size_t i = 0; i < map.size(); ++i) {
      std::size_t const layer = i / static_cast<std::size_t>(slots);
      bool const valid = map[i] >= 0 && map[i] < experts;
      if (valid) {
        expected[layer * experts + static_cast<std::size_t>(map[i])] += physical[i];
      }
      where[layer * 3 + (valid ? 0u : map[i] == -1 ? 1u : 2u)] += physical[i];
    }
    array_in<std::int32_t, P> const in(physical);
    array_in<std::int32_t, P> const expert(map);
    array_in<scatter_counters, P> counters(layers);
    auto const check = [&]<class Sum>(Sum) {
      array_in<Sum, P> out(layers * experts, Sum{-1});
      plimsoll::scatter_to_logical(make_policy<P>(), in.view2(layers, slots),
                                   expert.view2(layers, slots), out.view2(layers, experts),
                                   counters.view1());
      CHECK(wide(out.values()) == expected);
    };
    check(std::int64_t{});
    check(std::int32_t{});
    array_in<std::int64_t, P> const wide_expert(wide(map));
    array_in<std::int64_t, P> out(layers * experts, std::int64_t{-1});
    plimsoll::scatter_to_logical(make_policy<P>(), in.view2(layers, slots),
                                 wide_expert.view2(layers, slots), out.view2(layers, experts),
                                 counters.view1());
    CHECK(out.values() == expected);
    std::vector<std::int64_t> got;
    for (scatter_counters const& c : counters.values()) {
      got.insert(got.end(), {c.scattered, c.empty_slots, c.out_of_range});
    }
    CHECK(got == where);
    report_hash("load_tensor.scatter_to_logical." + std::to_string(slots), expected, got);
  }
}

PLIMSOLL_TEST_CASE("load_tensor: tokens of slots whose id is beyond int32", P, PLIMSOLL_POLICIES) {
  std::int64_t const beyond = std::int64_t{1} << 32;  // its low half is expert 0
  array_in<std::int64_t, P> const map(std::vector<std::int64_t>{beyond, 1, beyond - 1, -1});
  array_in<std::int32_t, P> const tokens(std::vector<std::int32_t>{1, 20, 300, 4000});
  array_in<std::int64_t, P> out(2);
  array_in<scatter_counters, P> counters(1);
  plimsoll::scatter_to_logical(make_policy<P>(), tokens.view2(1, 4), map.view2(1, 4),
                               out.view2(1, 2), counters.view1());
  CHECK(out.values() == std::vector<std::int64_t>{0, 20});
  scatter_counters const got = counters.values()[0];
  CHECK(got.scattered == 20);
  CHECK(got.empty_slots == 4000);
  CHECK(got.out_of_range == 301);
}

/// Draws loads; for a floating-point T their sum depends on the order of additions.
template <class T>
std::vector<T> rough_loads(index_t n, std::uint64_t seed) {
  std::vector<T> loads;
  for (index_t i = 0; i < n; ++i) {
    std::uint64_t const bits = plimsoll::random::bits(seed, 1, static_cast<std::uint64_t>(i));
    if constexpr (std::is_integral_v<T>) {
      loads.push_back(static_cast<T>(bits >> (65 - 8 * sizeof(T) + sizeof(T))));
    } else {
      double const value = static_cast<double>(bits >> 40) + 0.3;
      loads.push_back(static_cast<T>(bits % 4 == 0 ? value * 1e12 : value * 1e-3));
    }
  }
  return loads;
}

PLIMSOLL_TEST_CASE("load_tensor: sum over steps", P, PLIMSOLL_POLICIES) {
  constexpr index_t layers = 3;
  auto const check = [&]<class T>(T, index_t steps, index_t experts) {
    using sum = plimsoll::detail::load_sum_t<T>;
    auto const loads = rough_loads<T>(steps * layers * experts, 6);
    std::vector<sum> expected(static_cast<std::size_t>(layers * experts));
    for (std::size_t i = 0; i < loads.size(); ++i) {
      expected[i % expected.size()] += static_cast<sum>(loads[i]);
    }
    array_in<T, P> const in(loads);
    array_in<sum, P> out(layers * experts, sum{-1});
    plimsoll::sum_steps(make_policy<P>(), in.view3(steps, layers, experts),
                        out.view2(layers, experts));
    CHECK(out.values() == expected);
    report_hash("load_tensor.sum_steps." + std::string(std::is_integral_v<T> ? "integer" : "real") +
                    std::to_string(sizeof(T)) + "." + std::to_string(steps) + "." +
                    std::to_string(experts),
                expected);

    // The same numbers stored as [layers, experts, steps], into a transposed output.
    std::vector<T> turned(loads.size());
    for (index_t t = 0; t < steps; ++t) {
      for (index_t i = 0; i < layers * experts; ++i) {
        turned[static_cast<std::size_t>(i * steps + t)] =
            loads[static_cast<std::size_t>(t * layers * experts + i)];
      }
    }
    array_in<T, P> const strided(turned);
    plimsoll::tensor_ref<T const> view = strided.view3(steps, layers, experts);
    view.strides[0] = 1;
    view.strides[1] = experts * steps;
    view.strides[2] = steps;
    plimsoll::matrix_ref<sum> transposed = out.view2(layers, experts);
    transposed.strides[0] = 1;
    transposed.strides[1] = layers;
    plimsoll::sum_steps(make_policy<P>(), view, transposed);
    auto const got = out.values();
    for (index_t i = 0; i < layers * experts; ++i) {
      CHECK(got[static_cast<std::size_t>(i % experts * layers + i / experts)] ==
            expected[static_cast<std::size_t>(i)]);
    }
  };
  for (index_t const experts : {1, 31, 255, 256, 257}) {
    for (index_t const steps : {0, 1, 50}) {
      CAPTURE(experts);
      CAPTURE(steps);
      check(std::int32_t{}, steps, experts);
      check(float{}, steps, experts);
#if !defined(__CUDACC__)
      check(std::uint32_t{}, steps, experts);
      check(std::int64_t{}, steps, experts);
      check(double{}, steps, experts);
#endif
    }
  }
}

/// A placement in which slot s of layer l holds expert (s * 7 + l) % experts or is empty.
struct test_placement {
  index_t layers, experts, slots;
  std::vector<std::int32_t> map = {};
  std::vector<std::int32_t> copies = {};

  test_placement(index_t layer_count, index_t expert_count, index_t slot_count)
      : layers(layer_count), experts(expert_count), slots(slot_count) {
    copies.resize(static_cast<std::size_t>(layers * experts));
    for (index_t layer = 0; layer < layers; ++layer) {
      for (index_t s = 0; s < slots; ++s) {
        bool const empty = s >= experts && (s + layer) % 5 == 0;
        index_t const e = (s * 7 + layer) % experts;
        map.push_back(empty ? -1 : static_cast<std::int32_t>(e));
        if (!empty) {
          ++copies[static_cast<std::size_t>(layer * experts + e)];
        }
      }
    }
  }
};

PLIMSOLL_TEST_CASE("load_tensor: loads of ranks", P, PLIMSOLL_POLICIES) {
  constexpr index_t layers = 3;
  constexpr index_t steps = 9;  // more than one problem of the body
  test_placement const placement(layers, 12, 31);
  array_in<std::int32_t, P> const map(placement.map);
  array_in<std::int32_t, P> const copies(placement.copies);
  auto const check = [&]<class T>(T, index_t ranks, std::vector<std::int32_t> const& offsets) {
    CAPTURE(ranks);
    auto const loads = rough_loads<T>(steps * layers * placement.experts, 7);
    std::vector<double> expected;
    for (index_t t = 0; t < steps; ++t) {
      for (index_t l = 0; l < layers; ++l) {
        for (index_t r = 0; r < ranks; ++r) {
          auto const at = static_cast<std::size_t>(l * (ranks + 1) + r);
          index_t const begin = offsets.empty() ? r * placement.slots / ranks : offsets[at];
          index_t const end = offsets.empty() ? (r + 1) * placement.slots / ranks : offsets[at + 1];
          double sum = 0;
          for (index_t s = begin; s < end; ++s) {
            index_t const e = placement.map[static_cast<std::size_t>(l * placement.slots + s)];
            if (e >= 0) {
              auto const load = static_cast<double>(
                  loads[static_cast<std::size_t>((t * layers + l) * placement.experts + e)]);
              sum += load / placement.copies[static_cast<std::size_t>(l * placement.experts + e)];
            }
          }
          expected.push_back(sum);
        }
      }
    }
    array_in<T, P> const in(loads);
    array_in<std::int32_t, P> const starts(offsets);
    array_in<double, P> out(steps * layers * ranks, -1.0);
    plimsoll::placement_ref const where{map.view2(layers, placement.slots),
                                        copies.view2(layers, placement.experts), ranks,
                                        offsets.empty() ? plimsoll::matrix_ref<std::int32_t const>{}
                                                        : starts.view2(layers, ranks + 1)};
    plimsoll::rank_loads(make_policy<P>(), in.view3(steps, layers, placement.experts), where,
                         out.view3(steps, layers, ranks));
    CHECK(out.values() == expected);
    if constexpr (can_be_kept<P>) {
      auto const policy = make_policy<P>();
      plimsoll::array<double, policy_of<P>, 3> const all =
          plimsoll::rank_loads(policy, in.view3(steps, layers, placement.experts), where);
      CHECK(all.to_host() == expected);
      CHECK(all.extent(2) == ranks);
      plimsoll::array<double, policy_of<P>, 2> const first =
          plimsoll::rank_loads(policy, in.view2(layers, placement.experts), where);
      CHECK(first.to_host() ==
            std::vector<double>(expected.begin(), expected.begin() + layers * ranks));
    }
    report_hash("load_tensor.rank_loads." +
                    std::string(std::is_integral_v<T> ? "integer" : "real") +
                    std::to_string(sizeof(T)) + "." + std::to_string(ranks) +
                    (offsets.empty() ? "" : ".offsets"),
                expected);

    array_in<double, P> last(layers * ranks, -1.0);
    plimsoll::rank_loads(
        make_policy<P>(),
        plimsoll::matrix_ref<T const>(in.data() + (steps - 1) * layers * placement.experts, layers,
                                      placement.experts),
        where, last.view2(layers, ranks));
    CHECK(last.values() == std::vector<double>(expected.end() - layers * ranks, expected.end()));
  };
  std::vector<std::int32_t> const uneven{0, 31, 31, 31, 0, 1, 20, 31, 0, 0, 0, 31};
  for (index_t const ranks : {1, 4, 31, 40}) {
    check(std::int32_t{}, ranks, {});
    check(float{}, ranks, {});
#if !defined(__CUDACC__)
    check(std::int64_t{}, ranks, {});
    check(double{}, ranks, {});
#endif
  }
  check(std::int32_t{}, 3, uneven);
  check(float{}, 3, uneven);
}

PLIMSOLL_TEST_CASE("load_tensor: rank_loads stays in bounds for an invalid placement", P,
                   PLIMSOLL_POLICIES) {
  array_in<std::int32_t, P> const map(std::vector<std::int32_t>{1, 99, -7, 0});
  array_in<std::int32_t, P> const copies(std::vector<std::int32_t>{1, 2});
  array_in<std::int32_t, P> const offsets(std::vector<std::int32_t>{-50, 3, 1000});
  array_in<float, P> const loads(std::vector<float>{3, 8});
  array_in<double, P> out(2);
  plimsoll::rank_loads(
      make_policy<P>(), loads.view2(1, 2),
      plimsoll::placement_ref{map.view2(1, 4), copies.view2(1, 2), 2, offsets.view2(1, 3)},
      out.view2(1, 2));
  CHECK(out.values() == std::vector<double>{4, 3});
}

// ----- prepared objects --------------------------------------------------------------------------

PLIMSOLL_TEST_CASE("load_tensor: rows of any layout are copied and read", P, PLIMSOLL_POLICIES) {
  struct layout {
    index_t rows, columns, first, row_stride, column_stride;
    std::size_t pitch;  // in bytes; 0 where CUDA cannot copy such rows
  };
  auto const policy = make_policy<P>();
  auto const context = plimsoll::detail::resolve(policy);
  std::vector<std::int32_t> numbers(60);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<std::int32_t>(i + 1);
  }
  array_in<std::int32_t, P> const source(numbers);
  for (layout const in : {layout{5, 7, 0, 7, 1, 28},
                          {5, 7, 3, 11, 1, 44},
                          {5, 7, 0, 1, 5, 0},
                          {5, 7, 40, -10, 1, 0},
                          {5, 7, 0, 6, 1, 0},
                          {5, 7, 2, 0, 1, 0},
                          {5, 4, 0, 12, 3, 0},
                          {1, 7, 4, 0, 1, 28},
                          {1, 7, 4, 3, 2, 0},
                          {5, 1, 4, 3, 9, 12},
                          {5, 1, 8, -2, 1, 0},
                          {1, 1, 8, -2, -2, 4},
                          {0, 7, 0, 7, 1, 0},
                          {5, 0, 0, 3, 1, 0}}) {
    CAPTURE(in.first);
    CAPTURE(in.row_stride);
    CAPTURE(in.column_stride);
    plimsoll::matrix_ref<std::int32_t const> from(source.data() + in.first, in.rows, in.columns);
    from.strides[0] = in.row_stride;
    from.strides[1] = in.column_stride;
    CHECK(plimsoll::detail::row_pitch(from) == in.pitch);
    std::vector<std::int32_t> expected;
    for (index_t row = 0; row < in.rows; ++row) {
      for (index_t column = 0; column < in.columns; ++column) {
        expected.push_back(numbers[static_cast<std::size_t>(in.first + row * in.row_stride +
                                                            column * in.column_stride)]);
      }
    }
    CHECK(plimsoll::detail::rows_on_host(context, from) == expected);
    // Rows of the output are packed, padded, or stored as columns.
    for (bool const turned : {false, true}) {
      for (index_t const padding : {0, 2}) {
        CAPTURE(turned);
        CAPTURE(padding);
        index_t const stride = (turned ? in.rows : in.columns) + padding;
        array_in<std::int32_t, P> copy(60, -1);
        plimsoll::matrix_ref<std::int32_t> to(copy.data(), in.rows, in.columns);
        to.strides[0] = turned ? 1 : stride;
        to.strides[1] = turned ? stride : 1;
        plimsoll::detail::copy_rows(context, from, to);
        std::vector<std::int32_t> whole(60, -1);
        for (index_t i = 0; i < in.rows * in.columns; ++i) {
          index_t const at = i / in.columns * to.strides[0] + i % in.columns * to.strides[1];
          whole[static_cast<std::size_t>(at)] = expected[static_cast<std::size_t>(i)];
        }
        CHECK(copy.values() == whole);
      }
    }
  }
  // Rows farther apart than CUDA can copy.
  plimsoll::matrix_ref<std::int32_t const> far(source.data(), 2, 7);
  far.strides[0] = 0x1fffffff;
  CHECK(plimsoll::detail::row_pitch(far) == 0x7ffffffc);
  far.strides[0] = 0x20000000;
  CHECK(plimsoll::detail::row_pitch(far) == 0);
}

template <class T, class P>
void check_window(index_t window) {
  using sum = plimsoll::detail::load_sum_t<T>;
  constexpr index_t layers = 2;
  constexpr index_t experts = 260;
  constexpr std::size_t step_size = layers * experts;
  CAPTURE(window);
  plimsoll::load_window<T, policy_of<P>> object(make_policy<P>(), layers, experts,
                                                {.window = window});
  array_in<sum, P> out(layers * experts, sum{-1});
  object.sum(out.view2(layers, experts));
  CHECK(out.values() == std::vector<sum>(step_size));
  array_in<T, P> steps(window * layers * experts, T(77));
  object.steps(steps.view3(window, layers, experts));
  CHECK(steps.values() == std::vector<T>(static_cast<std::size_t>(window) * step_size));
  CHECK(object.size() == 0);
  std::vector<std::vector<T>> pushed;
  for (index_t step = 0; step < 3 * window + 2; ++step) {
    pushed.push_back(rough_loads<T>(layers * experts, 100 + static_cast<std::uint64_t>(step)));
    array_in<T, P> const in(pushed.back());
    object.push(in.view2(layers, experts));
    object.sum(out.view2(layers, experts));
    std::size_t const from = pushed.size() > static_cast<std::size_t>(window)
                                 ? pushed.size() - static_cast<std::size_t>(window)
                                 : 0;
    std::vector<sum> expected(step_size);
    for (std::size_t t = from; t < pushed.size(); ++t) {
      for (std::size_t i = 0; i < step_size; ++i) {
        expected[i] += static_cast<sum>(pushed[t][i]);
      }
    }
    CHECK(out.values() == expected);
    CHECK(object.size() == static_cast<index_t>(pushed.size() - from));
    std::vector<T> kept;
    for (std::size_t t = from; t < pushed.size(); ++t) {
      kept.insert(kept.end(), pushed[t].begin(), pushed[t].end());
    }
    kept.resize(static_cast<std::size_t>(window) * step_size);  // rows not filled yet
    object.steps(steps.view3(window, layers, experts));
    CHECK(steps.values() == kept);
  }
  report_hash("load_tensor.window." + std::string(std::is_integral_v<T> ? "integer" : "real") +
                  std::to_string(sizeof(T)) + "." + std::to_string(window),
              out.values(), steps.values());
}

PLIMSOLL_TEST_CASE("load_tensor: the window holds the last steps", P, PLIMSOLL_PREPARED_POLICIES) {
  for (index_t const window : {1, 2, 7}) {
    check_window<std::int32_t, P>(window);
    check_window<float, P>(window);
#if !defined(__CUDACC__)
    check_window<std::uint32_t, P>(window);
    check_window<std::int64_t, P>(window);
    check_window<double, P>(window);
#endif
  }
}

PLIMSOLL_TEST_CASE("load_tensor: decay", P, PLIMSOLL_PREPARED_POLICIES) {
  constexpr index_t layers = 3;
  constexpr index_t experts = 150;
  for (double const decay : {0.9, 1.0, 1e-3}) {
    CAPTURE(decay);
    plimsoll::load_decay<policy_of<P>> object(make_policy<P>(), layers, experts, {.decay = decay});
    std::vector<double> expected(layers * experts);
    auto const values = [&] {
      return plimsoll::read(make_policy<P>(), plimsoll::vector_ref<double const>(
                                                  object.values().data, layers * experts));
    };
    CHECK(values() == expected);
    for (std::uint64_t step = 0; step < 20; ++step) {
      auto const loads = rough_loads<float>(layers * experts, 200 + step);
      array_in<float, P> const in(loads);
      object.push(in.view2(layers, experts));
      for (std::size_t i = 0; i < expected.size(); ++i) {
        double const volatile product = expected[i] * decay;  // no fused multiply-add
        expected[i] = product + static_cast<double>(loads[i]);
      }
      if (step == 12) {
        object.reset(1);
        std::fill_n(expected.begin() + experts, experts, 0.0);
      }
      CHECK(values() == expected);
    }
    report_hash("load_tensor.decay." + std::to_string(decay), values());
    object.reset();
    CHECK(values() == std::vector<double>(layers * experts));
  }
}

}  // namespace plimsoll_test
