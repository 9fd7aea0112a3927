// SPDX-License-Identifier: Apache-2.0
// Tests of array under the host's policies; shapes.
#include "array.cases.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

#include <plimsoll/detail/argument.hpp>

namespace plimsoll_test {

using plimsoll::array;
using plimsoll::seq;

/// Memory whose bytes are not zero.
struct dirty_resource {
  std::vector<std::int32_t> memory = ints(64, -1);
  void* allocate(std::size_t bytes, std::size_t) {
    REQUIRE(bytes <= memory.size() * sizeof(memory[0]));
    return memory.data();
  }
  void deallocate(void*, std::size_t, std::size_t) {}
};

template <class Placement>
concept refers = requires(Placement&& placement) { std::forward<Placement>(placement).ref(); };

TEST_CASE("array: every contiguous range of the host") {
  int const plain[] = {1, 2, 3, 4};
  array const matrix(seq, plain, 2, 2);
  static_assert(std::is_same_v<decltype(matrix), array<int, plimsoll::seq_policy, 2> const>);
  CHECK(matrix.to_host() == ints{1, 2, 3, 4});
  std::array<float, 2> const pair{4, 5};
  CHECK(array(seq, std::span(pair)).to_host() == std::vector<float>{4, 5});
  ints source{6, 7};
  array const copy(seq, source);
  source = {0, 0};
  CHECK(copy.to_host() == ints{6, 7});
}

TEST_CASE("array: an argument like a view, with const elements if it is const") {
  using type = array<double, plimsoll::seq_policy, 2>;
  using plimsoll::detail::argument_fault;
  using plimsoll::detail::fault_of_argument;
  using doubles = plimsoll::detail::one_of<double>;
  static_assert(plimsoll::output_of<type&, double, 2>);
  static_assert(!plimsoll::output_of<type const&, double, 2>);
  static_assert(plimsoll::view_of<type const&, double, 2>);
  static_assert(!plimsoll::view_of<type const&, double, 1>);
  static_assert(fault_of_argument<type&, 2, doubles, true>() == argument_fault::none);
  static_assert(fault_of_argument<type const&, 2, doubles, true>() == argument_fault::is_const);
  static_assert(fault_of_argument<type, 2, doubles, true>() == argument_fault::temporary);
  static_assert(fault_of_argument<type, 2, doubles, false>() == argument_fault::none);
  CHECK(plimsoll::rank_limit > 0);
}

TEST_CASE("array: memory of the policy's resource") {
  counting_resource memory;
  {
    array<std::int32_t, plimsoll::seq_policy, 2> one(seq(memory), 2, 5);
    array const two(seq(memory), ints{1, 2});
    CHECK(memory.live() == 2);
    CHECK(memory.smallest_alignment() == 64);
    one = array<std::int32_t, plimsoll::seq_policy, 2>(seq(memory), 1, 1);
    CHECK(memory.live() == 2);
    CHECK(one.size() == 1);
  }
  CHECK(memory.live() == 0);
  CHECK(memory.mismatches() == 0);
  dirty_resource dirty;
  CHECK(plimsoll::zeros<std::int32_t>(seq(dirty), 5, 2).to_host() == ints(10, 0));
  throwing_resource none(0);
  CHECK_THROWS_AS(array(seq(none), ints{1, 2}), std::bad_alloc);
}

TEST_CASE("array: refused extents") {
  using matrix = array<double, plimsoll::seq_policy, 2>;
  CHECK_THROWS_WITH_AS(array(seq, ints{1, 2, 3}, 2, 2),
                       "array: elements: expected 4 elements (2 x 2), got 3",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(array(seq, ints{1, 2, 3}, 2),
                       "array: elements: expected 2 elements (2), got 3", plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(array(seq, ints{1, 2}, -1, -2),
                       "array: extents: expected at least 0 each, got -1", plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(array(seq, ints{}, 0, -2),
                       "array: extents: expected at least 0 each, got -2", plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(matrix(seq, 3, -5), "array: extents: expected at least 0 each, got -5",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(matrix(seq, std::int64_t{1} << 32, std::int64_t{1} << 29),
                       "array: extents: expected fewer than 2^63 bytes in all, got more",
                       plimsoll::invalid_input);
  // The product of the first two extents overflows, but there are no elements.
  CHECK(array<double, plimsoll::seq_policy, 3>(seq, std::int64_t{1} << 40, std::int64_t{1} << 40, 0)
            .size() == 0);
}

TEST_CASE("array: copy_placement refuses maps of other shapes") {
  array const map(seq, ints{0, 1, 1, 0}, 2, 2);
  array const counts(seq, ints{1, 1, 1, 1}, 2, 2);
  array const other(seq, ints{1, 1, 1}, 1, 3);
  using plimsoll::copy_placement;
  CHECK_THROWS_WITH_AS(copy_placement(seq, map, other, 2),
                       "copy_placement: replica_count: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(copy_placement(seq, map, counts, 0),
                       "copy_placement: ranks: expected 1 to 32767 ranks, got 0",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(copy_placement(seq, map, counts, 2, other),
                       "copy_placement: rank_offsets: expected 2 layers, got 1",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(copy_placement(seq, map, counts, 3, map),
                       "copy_placement: rank_offsets: expected 4 offsets (ranks + 1), got 2",
                       plimsoll::invalid_input);
  array const rows(seq, ints{0, 1, 1, 0}, 1, 2, 2);
  CHECK_THROWS_WITH_AS(copy_placement(seq, rows, counts),
                       "copy_placement: replica_count: expected 1 layers, got 2",
                       plimsoll::invalid_input);
  CHECK_THROWS_WITH_AS(copy_placement(seq, array(seq, ints{}, 1, 0, 2), other),
                       "copy_placement: rank_experts: expected 1 to 32767 ranks, got 0",
                       plimsoll::invalid_input);
}

TEST_CASE("array: views of a temporary placement are refused") {
  using placement = plimsoll::placement<plimsoll::seq_policy>;
  static_assert(refers<placement&>);
  static_assert(refers<placement const&>);
  static_assert(!refers<placement>);
  static_assert(!refers<placement const>);
  placement const none{};
  CHECK(none.ref().ranks == 0);
}

}  // namespace plimsoll_test
