// SPDX-License-Identifier: Apache-2.0
// Tests of memory under the host's policies, and others.
#include "memory.cases.hpp"

#include <plimsoll/array.hpp>

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

TEST_CASE("memory: read takes every contiguous range") {
  std::vector<double> const vector{1, 2, 3};
  std::array<float, 2> array{4, 5};
  int plain[] = {6, 7};
  CHECK(plimsoll::read(plimsoll::seq, vector) == vector);
  CHECK(plimsoll::read(plimsoll::seq, std::span(array)) == std::vector<float>{4, 5});
  CHECK(plimsoll::read(plimsoll::seq, plain) == std::vector<int>{6, 7});
}

TEST_CASE("memory: read returns one element of a view of rank 0") {
  plimsoll::array<std::int64_t, plimsoll::seq_policy, 0> one(plimsoll::seq);
  *one.view() = 9;
  CHECK(plimsoll::read(plimsoll::seq, one) == 9);
  CHECK(plimsoll::read(plimsoll::seq, plimsoll::scalar_ref<std::int64_t const>(one)) == 9);
  CHECK(one.to_host() == 9);
  CHECK(plimsoll::zeros<double>(plimsoll::seq).to_host() == 0);
  CHECK_THROWS_WITH(plimsoll::read(plimsoll::seq, plimsoll::scalar_ref<int const>{}),
                    "read: element: expected a pointer to its elements, got a null pointer");
}

TEST_CASE("memory: a buffer frees what it allocates") {
  using context = plimsoll::detail::context_of<plimsoll::seq_policy>;
  using buffer = plimsoll::detail::buffer<char, context>;
  static_assert(!std::is_copy_constructible_v<buffer>);
  plimsoll_test::counting_resource memory;
  {
    context const where = plimsoll::detail::resolve(plimsoll::seq(memory));
    buffer one(where, 10);
    buffer two(where, 20);
    CHECK(memory.live() == 2);
    CHECK(memory.smallest_alignment() == 64);
    CHECK(reinterpret_cast<std::uintptr_t>(one.data()) % 64 == 0);
    two = std::move(one);
    CHECK(two.size() == 10);
    buffer three(std::move(two));
    buffer const none(where, 0);
    CHECK(memory.allocations() == 2);
  }
  CHECK(memory.live() == 0);
  CHECK(memory.mismatches() == 0);

  plimsoll_test::throwing_resource none(0);
  CHECK_THROWS_AS(buffer(plimsoll::detail::resolve(plimsoll::seq(none)), 10), std::bad_alloc);
}
