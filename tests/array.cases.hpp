// SPDX-License-Identifier: Apache-2.0
// Tests of array under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/array.hpp>
#include <plimsoll/memory.hpp>

#include <cstdint>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "support/owned.hpp"
#include "support/policies.hpp"

namespace plimsoll_test {

using ints = std::vector<std::int32_t>;

inline ints rising(index_t n) {
  ints values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), -2);
  return values;
}

template <class P>
void check_array() {
  auto const policy = make_policy<P>();
  using policy_type = policy_of<P>;

  plimsoll::array tokens(policy, ints{900, 300, 250, 200, 140, 110}, 2, 3);
  static_assert(std::is_same_v<decltype(tokens), plimsoll::array<std::int32_t, policy_type, 2>>);
  CHECK(tokens.to_host() == ints{900, 300, 250, 200, 140, 110});
  CHECK(tokens.size() == 6);
  CHECK(tokens.extent(0) == 2);
  CHECK(tokens.extent(1) == 3);
  CHECK(tokens.stride(0) == 3);
  CHECK(tokens.stride(1) == 1);
  static_assert(std::is_same_v<decltype(tokens.view()), plimsoll::matrix_ref<std::int32_t>>);
  static_assert(std::is_same_v<decltype(std::as_const(tokens).view()),
                               plimsoll::matrix_ref<std::int32_t const>>);
  CHECK(tokens.view().data == tokens.data_handle());
  plimsoll::matrix_ref<std::int32_t> const output = tokens;
  plimsoll::matrix_ref<std::int32_t const> input = tokens;
  CHECK(output.data == tokens.data_handle());
  CHECK(output.extent(1) == 3);
  CHECK(output.stride(0) == 3);
  input = std::as_const(tokens);
  CHECK(input.data == tokens.data_handle());

  ints const values = rising(24);
  plimsoll::array line(policy, values);
  static_assert(decltype(line)::rank() == 1);
  CHECK(line.to_host() == values);
  CHECK(plimsoll::read(policy, line) == values);
  plimsoll::array const cube(policy, values, 2, 3, index_t{4});
  static_assert(std::is_same_v<decltype(cube.view()), plimsoll::tensor_ref<std::int32_t const>>);
  CHECK(cube.to_host() == values);
  CHECK(cube.stride(0) == 12);

  std::int32_t const* const place = tokens.data_handle();
  tokens.assign(rising(6));
  CHECK(tokens.to_host() == rising(6));
  CHECK(tokens.data_handle() == place);
  CHECK_THROWS_WITH_AS(tokens.assign(rising(5)),
                       "array::assign: elements: expected 6 elements (2 x 3), got 5",
                       plimsoll::invalid_input);
  CHECK(tokens.to_host() == rising(6));

  plimsoll::array<double, policy_type, 2> sums(policy, 3, 5);
  CHECK(sums.to_host() == std::vector<double>(15, 0.0));
  CHECK(plimsoll::zeros<std::int64_t>(policy, 2).to_host() == std::vector<std::int64_t>{0, 0});

  plimsoll::array<std::int32_t, policy_type, 2> none;
  CHECK(none.size() == 0);
  CHECK(none.extent(0) == 0);
  CHECK(none.to_host().empty());
  none.assign(ints{});
  plimsoll::array<std::int32_t, policy_type, 2> const flat(policy, 4, 0);
  CHECK(flat.size() == 0);
  CHECK(flat.extent(0) == 4);
  CHECK(flat.to_host().empty());
  CHECK(plimsoll::array(policy, ints{}, 0, 7).extent(1) == 7);
}

/// An array is an argument like a view: written by one call, read by the next.
template <class P>
void check_moves() {
  auto const policy = make_policy<P>();
  plimsoll::array first(policy, rising(6), 2, 3);
  std::int32_t const* const data = first.data_handle();
  auto second = std::move(first);
  static_assert(!std::is_copy_constructible_v<decltype(second)>);
  static_assert(!std::is_copy_assignable_v<decltype(second)>);
  CHECK(second.data_handle() == data);
  CHECK(second.extent(1) == 3);
  CHECK(first.size() == 0);
  CHECK(first.extent(0) == 0);
  CHECK(first.data_handle() == nullptr);
  plimsoll::array third(policy, rising(4), 4, 1);
  third = std::move(second);
  CHECK(third.data_handle() == data);
  CHECK(third.extent(0) == 2);
  CHECK(third.to_host() == rising(6));
}

template <class P>
void check_copied_placement() {
  auto const policy = make_policy<P>();
  std::vector<std::int64_t> const map{0, 1, 1, 2, -1, 0, 1, std::int64_t{1} << 32};
  std::vector<std::int64_t> const copies{1, 2, 1, 1, 1, 0};
  ints const map_as_int32{0, 1, 1, 2, -1, 0, 1, INT32_MIN};
  ints const copies_as_int32{1, 2, 1, 1, 1, 0};
  ints const offsets{0, 1, 4, 0, 2, 4};

  plimsoll::array const wide(policy, map, 2, 4);
  plimsoll::array const wide_copies(policy, copies, 2, 3);
  auto const even = plimsoll::copy_placement(policy, wide, wide_copies, 2);
  CHECK(even.physical_to_logical.to_host() == map_as_int32);
  CHECK(even.replica_count.to_host() == copies_as_int32);
  CHECK(even.rank_offsets.size() == 0);
  CHECK(even.certificates.empty());
  plimsoll::placement_ref const ref = even.ref();
  CHECK(ref.physical_to_logical.data == even.physical_to_logical.data_handle());
  CHECK(ref.physical_to_logical.extent(1) == 4);
  CHECK(ref.replica_count.extent(1) == 3);
  CHECK(ref.ranks == 2);
  CHECK(ref.rank_offsets.extent(0) == 0);
  CHECK(ref.rank_offsets.data == nullptr);
  plimsoll::placement_ref const converted = even;
  CHECK(converted.physical_to_logical.data == ref.physical_to_logical.data);
  CHECK(converted.replica_count.data == ref.replica_count.data);
  CHECK(converted.ranks == 2);

  plimsoll::array const narrow(policy, map_as_int32, 2, 4);
  plimsoll::array const steps(policy, offsets, 2, 3);
  auto const uneven = plimsoll::copy_placement(policy, narrow, wide_copies, 2, steps);
  CHECK(uneven.physical_to_logical.to_host() == map_as_int32);
  CHECK(uneven.ref().rank_offsets.extent(1) == 3);
  CHECK(uneven.rank_offsets.to_host() == offsets);

  // Rows per rank, here of every other rank of an engine's array.
  plimsoll::array const rows(policy, map, 1, 4, 2);
  auto every_other = rows.view();
  every_other.extents[1] = 2;
  every_other.strides[1] = 4;
  plimsoll::array const one_copies(policy, std::vector<std::int64_t>{2, 1, 1}, 1, 3);
  auto const of_rows = plimsoll::copy_placement(policy, every_other, one_copies);
  CHECK(of_rows.physical_to_logical.to_host() == ints{0, 1, -1, 0});
  CHECK(of_rows.replica_count.to_host() == ints{2, 1, 1});
  CHECK(of_rows.ref().physical_to_logical.extent(1) == 4);
  CHECK(of_rows.ranks == 2);
  plimsoll::array const narrow_rows(policy, map_as_int32, 2, 2, 2);
  CHECK(plimsoll::copy_placement(policy, narrow_rows, wide_copies).physical_to_logical.to_host() ==
        map_as_int32);
}

PLIMSOLL_TEST_CASE("array: rank 1 to 3, copied from the host or zero", P,
                   PLIMSOLL_PREPARED_POLICIES) {
  check_array<P>();
}

PLIMSOLL_TEST_CASE("array: moved, not copied", P, PLIMSOLL_PREPARED_POLICIES) { check_moves<P>(); }

PLIMSOLL_TEST_CASE("array: a placement from an engine's maps", P, PLIMSOLL_PREPARED_POLICIES) {
  check_copied_placement<P>();
}

}  // namespace plimsoll_test
