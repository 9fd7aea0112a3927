// SPDX-License-Identifier: Apache-2.0
// Tests of memory under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/memory.hpp>

#include <cstdint>
#include <numeric>
#include <vector>

#include "support/policies.hpp"

PLIMSOLL_TEST_CASE("memory: read copies from the policy's memory", P, PLIMSOLL_POLICIES) {
  using namespace plimsoll_test;
  auto const policy = make_policy<P>();
  std::vector<std::int32_t> values(1000);
  std::iota(values.begin(), values.end(), -7);
  array_in<std::int32_t, P> mutable_elements(values);
  array_in<std::int32_t, P> const elements(values);
  CHECK(plimsoll::read(policy, mutable_elements.view1()) == values);
  CHECK(plimsoll::read(policy, elements.view1()) == values);
  CHECK(plimsoll::read(policy, plimsoll::vector_ref<std::int32_t const>(elements.data() + 5, 3)) ==
        std::vector<std::int32_t>{-2, -1, 0});
  CHECK(plimsoll::read(policy, plimsoll::vector_ref<float const>()).empty());
  array_in<double, P> const none(0);
  CHECK(plimsoll::read(policy, none.view1()).empty());
}

PLIMSOLL_TEST_CASE("memory: read takes any stride", P, PLIMSOLL_POLICIES) {
  using namespace plimsoll_test;
  auto const policy = make_policy<P>();
  std::vector<std::int32_t> values(10);
  std::iota(values.begin(), values.end(), 0);
  array_in<std::int32_t, P> const elements(values);
  auto const read_from = [&](index_t first, index_t n, index_t stride) {
    plimsoll::vector_ref<std::int32_t const> view(elements.data() + first, n);
    view.strides[0] = stride;
    return plimsoll::read(policy, view);
  };
  using ints = std::vector<std::int32_t>;
  CHECK(read_from(0, 5, 2) == ints{0, 2, 4, 6, 8});
  CHECK(read_from(1, 3, 4) == ints{1, 5, 9});
  CHECK(read_from(9, 4, -3) == ints{9, 6, 3, 0});
  CHECK(read_from(3, 2, -1) == ints{3, 2});
  CHECK(read_from(4, 3, 0) == ints{4, 4, 4});
  CHECK(read_from(7, 1, -100) == ints{7});
  CHECK(read_from(0, 0, 2).empty());
}

PLIMSOLL_TEST_CASE("memory: buffers", P, PLIMSOLL_POLICIES) {
  using namespace plimsoll_test;
  using context = plimsoll::detail::context_of<policy_of<P>>;
  using buffer = plimsoll::detail::buffer<std::int32_t, context>;
  auto const policy = make_policy<P>();
  context const where = plimsoll::detail::resolve(policy);
  buffer first(where, 100);
  CHECK(first.size() == 100);
  CHECK(first.bytes() == 400);
  first.zero();
  CHECK(first.read() == std::vector<std::int32_t>(100, 0));
  std::vector<std::int32_t> const values(100, 0);

  std::int32_t const* const data = first.data();
  buffer second(std::move(first));
  CHECK(second.data() == data);
  CHECK(first.data() == nullptr);
  CHECK(first.size() == 0);
  buffer third;
  CHECK(third.data() == nullptr);
  third = std::move(second);
  CHECK(third.data() == data);
  CHECK(third.read() == values);
  buffer const empty(where, 0);
  CHECK(empty.data() == nullptr);
  empty.zero();
  CHECK(empty.read().empty());
}
