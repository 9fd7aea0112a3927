// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <plimsoll/array.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/checked_call.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/views.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using plimsoll::index_t;
using plimsoll::detail::normalize;
using plimsoll::detail::readable;
using plimsoll::detail::writable;

/// Minimal interface of an mdspan, with its types: std::size_t for dimensions, extents and strides.
template <class T, std::size_t Rank>
struct mdspan_archetype {
  using index_type = std::size_t;
  T* elements;
  std::array<std::size_t, Rank> lengths;
  std::array<std::size_t, Rank> steps;

  static constexpr std::size_t rank() noexcept { return Rank; }
  [[nodiscard]] constexpr T* data_handle() const { return elements; }
  [[nodiscard]] constexpr index_type extent(std::size_t r) const { return lengths[r]; }
  [[nodiscard]] constexpr index_type stride(std::size_t r) const { return steps[r]; }
};

/// A view whose extents and strides are int.
template <class T>
struct int_matrix {
  T* elements;
  int rows, columns;
  static constexpr int rank() { return 2; }
  [[nodiscard]] T* data_handle() const { return elements; }
  [[nodiscard]] int extent(int i) const { return i == 0 ? rows : columns; }
  [[nodiscard]] int stride(int i) const { return i == 0 ? columns : 1; }
};

/// A view whose data handle is not a pointer.
struct proxy_matrix {
  struct handle {
    float operator*() const { return 0; }
  };
  static constexpr int rank() { return 2; }
  [[nodiscard]] handle data_handle() const { return {}; }
  [[nodiscard]] int extent(int) const { return 1; }
  [[nodiscard]] int stride(int) const { return 1; }
};

struct sum_of_indices {
  double operator()(index_t a, index_t b) const { return static_cast<double>(10 * a + b); }
};
using generated_matrix = plimsoll::generated<sum_of_indices, 2>;

// Rank 1: any contiguous range.
static_assert(readable<std::vector<int>&, 1>);
static_assert(readable<std::vector<int> const&, 1>);
static_assert(readable<std::span<int>, 1>);
static_assert(readable<std::span<int const>, 1>);
static_assert(readable<std::span<int, 4>, 1>);
static_assert(readable<std::array<int, 3>&, 1>);
static_assert(readable<int (&)[3], 1>);
static_assert(readable<plimsoll::vector_ref<int>, 1>);
static_assert(readable<mdspan_archetype<int, 1>, 1>);
static_assert(!readable<std::list<int>&, 1>);
static_assert(!readable<std::vector<bool>&, 1>);
static_assert(!readable<int*, 1>);
static_assert(!readable<int, 1>);

// The rank must match.
static_assert(!readable<std::vector<int>&, 2>);
static_assert(!readable<plimsoll::vector_ref<int>, 2>);
static_assert(readable<plimsoll::matrix_ref<int>, 2>);
static_assert(!readable<plimsoll::matrix_ref<int>, 1>);
static_assert(!readable<plimsoll::matrix_ref<int>, 3>);
static_assert(readable<plimsoll::tensor_ref<int>, 3>);
static_assert(readable<mdspan_archetype<int, 2>, 2>);
static_assert(readable<mdspan_archetype<int, 2> const&, 2>);
static_assert(!readable<mdspan_archetype<int, 2>, 3>);
static_assert(readable<int_matrix<int>, 2>);
static_assert(!readable<proxy_matrix, 2>);
static_assert(readable<generated_matrix, 2>);
static_assert(!readable<generated_matrix, 1>);
static_assert(!readable<generated_matrix, 3>);

// Outputs must be mutable and stored.
static_assert(writable<std::vector<int>&, 1>);
static_assert(!writable<std::vector<int> const&, 1>);
static_assert(writable<std::span<int>, 1>);
static_assert(writable<std::span<int> const&, 1>);
static_assert(!writable<std::span<int const>, 1>);
static_assert(writable<plimsoll::matrix_ref<int>, 2>);
static_assert(writable<plimsoll::matrix_ref<int> const&, 2>);
static_assert(!writable<plimsoll::matrix_ref<int const>, 2>);
static_assert(writable<mdspan_archetype<int, 2>, 2>);
static_assert(!writable<mdspan_archetype<int const, 2>, 2>);
static_assert(!writable<generated_matrix, 2>);

// Element types, as calls check them.
using plimsoll::detail::any_count;
using plimsoll::detail::any_load;
using plimsoll::detail::one_of;
using plimsoll::detail::one_of_also_generated;
using any_id = one_of<std::int32_t, std::int64_t>;
template <class M, class Elements, int Rank, bool is_output = false>
inline constexpr bool accepts =
    plimsoll::detail::fault_of_argument<M, Rank, Elements, is_output>() ==
    plimsoll::detail::argument_fault::none;
static_assert(accepts<std::vector<int> const&, one_of_also_generated<int>, 1>);
static_assert(!accepts<std::vector<int> const&, one_of_also_generated<long>, 1>);
static_assert(accepts<generated_matrix, one_of_also_generated<double>, 2>);
static_assert(!accepts<generated_matrix, one_of_also_generated<float>, 2>);
static_assert(accepts<plimsoll::matrix_ref<float const>, one_of_also_generated<float>, 2>);
static_assert(accepts<std::vector<int>&, one_of<int>, 1, true>);
static_assert(!accepts<std::vector<int>&, one_of<unsigned>, 1, true>);
static_assert(!accepts<std::vector<int> const&, one_of<int>, 1, true>);

static_assert(accepts<plimsoll::matrix_ref<std::int32_t>, any_load, 2>);
static_assert(accepts<plimsoll::matrix_ref<std::uint32_t const>, any_load, 2>);
static_assert(accepts<mdspan_archetype<std::int64_t, 2>, any_load, 2>);
static_assert(accepts<plimsoll::matrix_ref<float>, any_load, 2>);
static_assert(accepts<generated_matrix, any_load, 2>);
static_assert(!accepts<plimsoll::matrix_ref<std::int16_t>, any_load, 2>);
static_assert(!accepts<plimsoll::matrix_ref<std::uint64_t>, any_load, 2>);
static_assert(!accepts<plimsoll::matrix_ref<bool>, any_load, 2>);
static_assert(!accepts<plimsoll::tensor_ref<float>, any_load, 2>);
static_assert(accepts<plimsoll::tensor_ref<float>, any_load, 3>);
static_assert(!accepts<plimsoll::matrix_ref<float>, any_load, 3>);
static_assert(accepts<std::vector<double> const&, any_load, 1>);
static_assert(!accepts<std::vector<double> const&, any_load, 2>);
static_assert(accepts<plimsoll::matrix_ref<std::uint32_t>, any_count, 2>);
static_assert(!accepts<generated_matrix, any_count, 2>);  // of double
static_assert(!accepts<plimsoll::matrix_ref<float>, any_count, 2>);

struct parity {
  std::int32_t operator()(index_t i) const { return static_cast<std::int32_t>(i % 2); }
};
static_assert(accepts<plimsoll::generated<parity, 1>, any_count, 1>);
static_assert(!accepts<plimsoll::generated<parity, 1>, any_id, 1>);  // ids are stored
static_assert(accepts<std::vector<std::int64_t> const&, any_id, 1>);
static_assert(accepts<mdspan_archetype<std::int32_t const, 2>, any_id, 2>);
static_assert(!accepts<plimsoll::vector_ref<std::uint32_t>, any_id, 1>);
static_assert(!accepts<std::vector<std::int32_t>, any_id, 2>);
static_assert(accepts<std::vector<std::int64_t>&, any_id, 1, true>);
static_assert(!accepts<std::vector<std::int64_t> const&, any_id, 1, true>);
static_assert(!accepts<plimsoll::matrix_ref<float>, any_id, 2, true>);

// Arguments: a temporary that owns its elements is lost, a temporary view is not.
template <class M, int Rank, class T>
constexpr auto output_fault =
    plimsoll::detail::fault_of_argument<M, Rank, plimsoll::detail::one_of<T>, true>();
template <class M, int Rank, class Elements>
constexpr auto input_fault = plimsoll::detail::fault_of_argument<M, Rank, Elements, false>();
using plimsoll::detail::is_lost;
using fault = plimsoll::detail::argument_fault;

/// A view whose constness does not reach its elements, with `data` instead of `data_handle`.
struct shallow_range {
  int* elements;
  [[nodiscard]] int* data() const { return elements; }
  [[nodiscard]] std::size_t size() const { return 1; }
};
/// A container whose constness does.
struct deep_range {
  int elements[1];
  [[nodiscard]] int* data() { return elements; }
  [[nodiscard]] int const* data() const { return elements; }
  [[nodiscard]] std::size_t size() const { return 1; }
};
using host_matrix = plimsoll::array<int, plimsoll::seq_policy, 2>;

static_assert(is_lost<std::vector<int>>());
static_assert(is_lost<std::array<int, 3>>());
static_assert(is_lost<host_matrix>());
static_assert(is_lost<plimsoll::array<int, plimsoll::seq_policy>>());
static_assert(is_lost<deep_range>());
static_assert(!is_lost<std::vector<int>&>());
static_assert(!is_lost<host_matrix&>());
static_assert(!is_lost<std::span<int>>());
static_assert(!is_lost<std::span<int, 3>>());
static_assert(!is_lost<plimsoll::vector_ref<int>>());
static_assert(!is_lost<plimsoll::matrix_ref<int>>());
static_assert(!is_lost<mdspan_archetype<int, 2>>());
static_assert(!is_lost<int_matrix<int>>());
static_assert(!is_lost<shallow_range>());

static_assert(output_fault<std::vector<int>&, 1, int> == fault::none);
static_assert(output_fault<std::vector<int>, 1, int> == fault::temporary);
static_assert(output_fault<std::array<int, 3>, 1, int> == fault::temporary);
static_assert(output_fault<deep_range, 1, int> == fault::temporary);
static_assert(output_fault<host_matrix, 2, int> == fault::temporary);
static_assert(output_fault<host_matrix&, 2, int> == fault::none);
static_assert(output_fault<host_matrix const&, 2, int> == fault::is_const);
static_assert(output_fault<std::span<int>, 1, int> == fault::none);
static_assert(output_fault<std::span<int> const&, 1, int> == fault::none);
static_assert(output_fault<std::span<int const>, 1, int> == fault::is_const);
static_assert(output_fault<shallow_range, 1, int> == fault::none);
static_assert(output_fault<int_matrix<int>, 2, int> == fault::none);
static_assert(output_fault<std::vector<int> const&, 1, int> == fault::is_const);
static_assert(output_fault<std::vector<int> const, 1, int> == fault::is_const);
static_assert(output_fault<plimsoll::matrix_ref<int>, 1, int> == fault::rank);
static_assert(output_fault<generated_matrix, 2, double> == fault::rank);
static_assert(output_fault<std::list<int>&, 1, int> == fault::rank);
static_assert(output_fault<std::vector<float>&, 1, int> == fault::is_float);

// Inputs may be temporaries and const; only loads and counts may be computed.
static_assert(input_fault<std::vector<float>, 1, plimsoll::detail::any_load> == fault::none);
static_assert(input_fault<host_matrix const&, 2, plimsoll::detail::any_load> == fault::none);
static_assert(input_fault<generated_matrix const&, 2, plimsoll::detail::any_load> == fault::none);
static_assert(input_fault<generated_matrix const&, 2, plimsoll::detail::any_count> ==
              fault::is_double);
static_assert(input_fault<generated_matrix const&, 2, plimsoll::detail::one_of<double>> ==
              fault::rank);
static_assert(
    input_fault<generated_matrix const&, 2, plimsoll::detail::one_of_also_generated<double>> ==
    fault::none);
static_assert(input_fault<std::vector<std::string>&, 1, plimsoll::detail::any_load> ==
              fault::other_element);
static_assert(input_fault<std::vector<std::string>&, 1, plimsoll::detail::any_element> ==
              fault::none);

// Every type that a message names.
template <class T>
constexpr fault refused = input_fault<std::vector<T> const&, 1, plimsoll::detail::one_of<void>>;
static_assert(input_fault<std::array<bool, 1> const&, 1, plimsoll::detail::any_load> ==
              fault::is_bool);
static_assert(refused<std::int8_t> == fault::is_int8 && refused<std::uint8_t> == fault::is_uint8);
static_assert(refused<std::int16_t> == fault::is_int16);
static_assert(refused<std::uint16_t> == fault::is_uint16);
static_assert(refused<std::int32_t> == fault::is_int32);
static_assert(refused<std::uint32_t> == fault::is_uint32);
static_assert(refused<std::int64_t> == fault::is_int64);
static_assert(refused<std::uint64_t> == fault::is_uint64);
static_assert(refused<float> == fault::is_float && refused<double> == fault::is_double);
static_assert(refused<plimsoll::float16> == fault::is_float16);
static_assert(refused<plimsoll::bfloat16> == fault::is_bfloat16);
static_assert(refused<index_t*> == fault::other_element);

// PODs with one layout: pointer, extents, strides.
static_assert(std::is_trivially_copyable_v<plimsoll::tensor_ref<float>>);
static_assert(std::is_standard_layout_v<plimsoll::tensor_ref<float>>);
static_assert(sizeof(plimsoll::tensor_ref<float>) == sizeof(void*) + 6 * sizeof(index_t));
static_assert(std::is_convertible_v<plimsoll::matrix_ref<int>, plimsoll::matrix_ref<int const>>);
static_assert(!std::is_convertible_v<plimsoll::matrix_ref<int const>, plimsoll::matrix_ref<int>>);
static_assert(!std::is_convertible_v<plimsoll::matrix_ref<int>, plimsoll::tensor_ref<int>>);

}  // namespace

TEST_CASE("views: row-major references") {
  std::vector<int> values(24);
  for (int i = 0; i < 24; ++i) {
    values[static_cast<std::size_t>(i)] = i;
  }
  plimsoll::tensor_ref<int> const tensor(values.data(), 2, 3, 4);
  CHECK(tensor.rank() == 3);
  CHECK(tensor.extent(0) == 2);
  CHECK(tensor.extent(1) == 3);
  CHECK(tensor.extent(2) == 4);
  CHECK(tensor.stride(0) == 12);
  CHECK(tensor.stride(1) == 4);
  CHECK(tensor.stride(2) == 1);
  CHECK(tensor(1, 2, 3) == 23);
  CHECK(tensor(0, 2, 1) == 9);
  tensor(1, 0, 0) = -1;
  CHECK(values[12] == -1);

  plimsoll::tensor_ref<int const> const reading = tensor;
  CHECK(reading.data_handle() == values.data());
  CHECK(reading(1, 0, 0) == -1);
  CHECK(reading.stride(0) == 12);

  plimsoll::vector_ref<int> const vector(values.data(), 5);
  CHECK(vector[4] == 4);
  CHECK(vector(3) == 3);
  CHECK(plimsoll::matrix_ref<int>().data_handle() == nullptr);
  CHECK(plimsoll::matrix_ref<int>().extent(1) == 0);
}

TEST_CASE("views: references to ranges") {
  using plimsoll::vector_ref;
  std::vector<int> values{1, 2, 3};
  std::vector<int> const fixed{4, 5};
  int plain[] = {6};
  vector_ref<int> const written = values;
  written[1] = 7;
  CHECK(values == std::vector<int>{1, 7, 3});
  vector_ref<int const> const read = fixed;
  CHECK(read.extent(0) == 2);
  CHECK(read[1] == 5);
  CHECK(vector_ref<int const>(values)[2] == 3);
  CHECK(vector_ref<int>(plain).extent(0) == 1);
  // Conversions that drop const, other element types, and temporaries are refused.
  CHECK_FALSE(std::is_constructible_v<vector_ref<int>, std::vector<int> const&>);
  CHECK_FALSE(std::is_constructible_v<vector_ref<long>, std::vector<int>&>);
  CHECK_FALSE(std::is_constructible_v<vector_ref<int const>, std::list<int>&>);
  CHECK_FALSE(std::is_constructible_v<vector_ref<int>, std::vector<int>>);
  CHECK_FALSE(std::is_constructible_v<plimsoll::matrix_ref<int>, std::vector<int>&>);
}

TEST_CASE("views: references of rank 2 and 3 to ranges") {
  using plimsoll::invalid_input;
  using plimsoll::matrix_ref;
  using plimsoll::tensor_ref;
  std::vector<int> values{0, 1, 2, 3, 4, 5};
  std::vector<int> const fixed = values;
  matrix_ref<int> const written(values, 2, 3);
  CHECK(written.stride(0) == 3);
  written(1, 0) = 7;
  CHECK(values[3] == 7);
  CHECK(matrix_ref<int const>(values, 3, 2)(2, 1) == 5);
  CHECK(tensor_ref<int const>(fixed, 1, 2, 3).stride(1) == 3);
  std::vector<int> none;
  CHECK(matrix_ref<int>(none, 0, 4).extent(1) == 4);
  // Rank and elements are deduced.
  plimsoll::array_ref const matrix(fixed, 3, 2);
  static_assert(std::is_same_v<decltype(matrix), matrix_ref<int const> const>);
  CHECK(matrix(1, 1) == 3);
  static_assert(std::is_same_v<decltype(plimsoll::array_ref(values)), plimsoll::vector_ref<int>>);
  static_assert(
      std::is_same_v<decltype(plimsoll::array_ref(values.data(), 1, 2, 3)), tensor_ref<int>>);
  // Nothing is cut off silently.
  CHECK_THROWS_WITH_AS(matrix_ref<int>(values, 2, 2),
                       "array_ref: elements: expected 4 elements (2 x 2), got 6", invalid_input);
  CHECK_THROWS_WITH_AS(tensor_ref<int>(values, 2, 3, 2),
                       "array_ref: elements: expected 12 elements (2 x 3 x 2), got 6",
                       invalid_input);
  CHECK_THROWS_WITH_AS(matrix_ref<int>(values, -2, -3),
                       "array_ref: extents: expected at least 0 each, got -2", invalid_input);
  using ints = std::vector<int>;
  CHECK_FALSE(std::is_constructible_v<matrix_ref<int>, ints const&, int, int>);
  CHECK_FALSE(std::is_constructible_v<matrix_ref<long>, ints&, int, int>);
  CHECK_FALSE(std::is_constructible_v<matrix_ref<int>, ints, int, int>);
  CHECK_FALSE(std::is_constructible_v<matrix_ref<int>, ints&, int, int, int>);
}

TEST_CASE("views: strides") {
  std::vector<int> values{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  SUBCASE("column-major") {
    mdspan_archetype<int, 2> const columns{values.data(), {3, 4}, {1, 3}};
    auto const view = normalize<2>(columns);
    static_assert(std::is_same_v<decltype(view), plimsoll::matrix_ref<int> const>);
    CHECK(view.extent(0) == 3);
    CHECK(view.extent(1) == 4);
    CHECK(view(0, 1) == 3);
    CHECK(view(2, 3) == 11);
  }
  SUBCASE("every other row and column of 3 x 4") {
    plimsoll::matrix_ref<int> view(values.data(), 2, 2);
    view.strides[0] = 8;
    view.strides[1] = 2;
    auto const same = normalize<2>(view);
    CHECK(same(0, 0) == 0);
    CHECK(same(0, 1) == 2);
    CHECK(same(1, 0) == 8);
    CHECK(same(1, 1) == 10);
    same(1, 1) = -10;
    CHECK(values[10] == -10);
  }
  SUBCASE("backwards") {
    plimsoll::vector_ref<int> view(values.data() + 11, 12);
    view.strides[0] = -1;
    CHECK(normalize<1>(view)[0] == 11);
    CHECK(normalize<1>(view)[11] == 0);
  }
  SUBCASE("one row for all") {
    plimsoll::matrix_ref<int> view(values.data() + 4, 5, 4);
    view.strides[0] = 0;
    plimsoll::matrix_ref<int const> const reading = view;
    CHECK(reading(0, 2) == 6);
    CHECK(reading(4, 2) == 6);
  }
}

TEST_CASE("views: everything normalizes to the same references") {
  std::vector<float> vector{1, 2, 3};
  std::array<float, 3> array{1, 2, 3};
  float plain[3] = {1, 2, 3};
  auto const check = [](auto const& view, float const* data) {
    CHECK(view.data_handle() == data);
    CHECK(view.extent(0) == 3);
    CHECK(view.stride(0) == 1);
    CHECK(view[2] == 3);
  };
  check(normalize<1>(vector), vector.data());
  check(normalize<1>(std::span<float>(vector)), vector.data());
  check(normalize<1>(array), array.data());
  check(normalize<1>(plain), plain);
  check(normalize<1>(plimsoll::vector_ref<float>(plain, 3)), plain);
  check(normalize<1>(mdspan_archetype<float, 1>{plain, {3}, {1}}), plain);
  static_assert(std::is_same_v<decltype(normalize<1>(std::as_const(vector))),
                               plimsoll::vector_ref<float const>>);
  static_assert(std::is_same_v<decltype(normalize<1>(vector)), plimsoll::vector_ref<float>>);

  int_matrix<float> const small{plain, 1, 3};
  auto const matrix = normalize<2>(small);
  static_assert(std::is_same_v<decltype(matrix), plimsoll::matrix_ref<float> const>);
  CHECK(matrix.extent(1) == 3);
  CHECK(matrix(0, 2) == 3);
}

TEST_CASE("views: a reference to one element") {
  using plimsoll::scalar_ref;
  int one = 5;
  scalar_ref<int> const of_object(one);
  *of_object = 6;
  CHECK(one == 6);
  CHECK(of_object.data_handle() == &one);
  std::vector<int> row{7};
  CHECK(*scalar_ref<int>(row) == 7);
  CHECK(*scalar_ref<int>(row.data()) == 7);
  CHECK(*scalar_ref<int>(plimsoll::vector_ref<int>(row)) == 7);
  CHECK(*scalar_ref<int const>(of_object) == 6);
  plimsoll::array<int, plimsoll::seq_policy, 0> owned(plimsoll::seq);
  CHECK(scalar_ref<int>(owned).data_handle() == owned.data_handle());
  CHECK(*owned.view() == 0);
  struct counters {
    int routed;
  } counted{3};
  CHECK(scalar_ref<counters>(counted)->routed == 3);

  using plimsoll::detail::one_element;
  CHECK(one_element("f", "counters", of_object).data == &one);
  CHECK_THROWS_WITH(one_element("f", "counters", scalar_ref<int>{}),
                    "f: counters: expected 1 element, got 0");
  CHECK_THROWS_WITH(one_element("f", "counters", scalar_ref<int>(static_cast<int*>(nullptr))),
                    "f: counters: expected a pointer to its elements, got a null pointer");
  std::vector<int> pair{1, 2};
  CHECK_THROWS_WITH(one_element("f", "counters", scalar_ref<int>(pair)),
                    "f: counters: expected 1 element, got 2");
  std::vector<int> none;
  CHECK_THROWS_WITH(one_element("f", "counters", scalar_ref<int>(none)),
                    "f: counters: expected 1 element, got 0");
}

TEST_CASE("views: generated elements") {
  auto const view = plimsoll::generate([](index_t a, index_t b) { return 10 * a + b; }, 3, 4);
  CHECK(view.rank() == 2);
  CHECK(view.extent(0) == 3);
  CHECK(view.extent(1) == 4);
  CHECK(view(2, 3) == 23);
  static_assert(accepts<decltype(view), one_of_also_generated<index_t>, 2>);
  CHECK(normalize<2>(view)(1, 1) == 11);
  CHECK(plimsoll::generate([](index_t i) { return i * i; }, 5)(4) == 16);
  CHECK(plimsoll::generate([](index_t a, index_t b, index_t c) { return 100 * a + 10 * b + c; }, 2,
                           2, 2)(1, 0, 1) == 101);
}

TEST_CASE("views: shapes of a call") {
  using plimsoll::detail::checked_call;
  constexpr plimsoll::detail::axis_names names("[layers, ranks + 1, slots of a rank]");
  static_assert(names.rank == 3);
  static_assert(names.axes[0].name.text == "layers" && names.axes[0].added == 0);
  static_assert(names.axes[1].name.text == "ranks" && names.axes[1].added == 1);
  static_assert(names.axes[2].name.text == "slots of a rank");

  using matrix = plimsoll::matrix_ref<int>;
  using vector = plimsoll::vector_ref<int>;
  auto const message = [](auto const& expect) -> std::string {
    checked_call call("f", {{"ranks", 4}, {"window", 3, "steps (the window)"}});
    try {
      expect(call);
    } catch (plimsoll::invalid_input const& error) {
      return error.what();
    }
    return "no error";
  };
  int value = 0;
  matrix const two_by_five(&value, 2, 5);
  CHECK(message([&](checked_call& call) {
          call.expect("a", two_by_five, "[layers, ranks + 1]");
          call.expect("b", matrix(&value, 2, 2), "[layers, layers]");
          call.expect("d", vector(&value, 9), "[k + m]");
          call.expect("e", vector(&value, 8), "[k + m]");
          call.expect("f", vector(&value, 8), "[nodes + 1]");  // nodes are not known
          call.know({"k + m", 7, "candidates"});
          call.expect("d", vector(&value, 7), "[k + m]");
          CHECK(!call.expect_given("g", matrix(), "[layers, ranks]"));
          CHECK(call.expect_given("h", matrix(&value, 2, 4), "[layers, ranks]"));
        }) == "no error");
  CHECK(message([&](checked_call& call) {
          call.expect("a", two_by_five, "[layers, experts]");
          call.expect("b", matrix(&value, 2, 4), "[layers, experts]");
        }) == "f: b: expected 5 experts, got 4");
  CHECK(message([&](checked_call& call) { call.expect("a", two_by_five, "[layers, layers]"); }) ==
        "f: a: expected 2 layers, got 5");
  CHECK(message([&](checked_call& call) {
          call.expect("a", matrix(&value, 2, 4), "[layers, ranks + 1]");
        }) == "f: a: expected 5 offsets (ranks + 1), got 4");
  CHECK(message([&](checked_call& call) { call.expect("a", vector(&value, 2), "[window]"); }) ==
        "f: a: expected 3 steps (the window), got 2");
  CHECK(message([&](checked_call& call) { call.expect("a", vector(&value, 2), "[window + 1]"); }) ==
        "f: a: expected 4 steps (the window) (window + 1), got 2");
  CHECK(message([&](checked_call& call) {
          call.know({"k + m", 7, "candidates"});
          call.expect("a", vector(&value, 2), "[k + m]");
        }) == "f: a: expected 7 candidates, got 2");
  CHECK(message([&](checked_call& call) {
          call.expect("ids", two_by_five, "[tokens, k]");
          call.expect("slots", matrix(&value, 2, 4), "[tokens, k]");
        }) == "f: slots: expected 5 ids per token, got 4");
  CHECK(message([&](checked_call& call) {
          call.expect_given("a", matrix(nullptr, 1, 4), "[layers, ranks]");
        }) == "f: a: expected a pointer to its elements, got a null pointer");
}
