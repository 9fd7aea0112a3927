// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>
#include <plimsoll/types.hpp>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace {

static_assert(std::is_same_v<plimsoll::index_t, std::int64_t>);

static_assert(plimsoll::load_value<std::int32_t>);
static_assert(plimsoll::load_value<std::uint32_t>);
static_assert(plimsoll::load_value<std::int64_t>);
static_assert(plimsoll::load_value<float>);
static_assert(plimsoll::load_value<double>);
static_assert(!plimsoll::load_value<std::int16_t>);
static_assert(!plimsoll::load_value<std::int8_t>);
static_assert(!plimsoll::load_value<std::uint64_t>);
static_assert(!plimsoll::load_value<bool>);
static_assert(!plimsoll::load_value<char>);
static_assert(!plimsoll::load_value<long double>);
static_assert(!plimsoll::load_value<float*>);
static_assert(!plimsoll::load_value<std::byte>);

// The documented range, on which packed sort keys rely: 47 + 16 bits are a positive int64.
static_assert(plimsoll::load_limit == 140737488355328);
static_assert(plimsoll::rank_limit == 32767);
static_assert(plimsoll::expert_limit == 65535);

// Devices write certificates to their memory, so the layout is fixed.
static_assert(std::is_trivially_copyable_v<plimsoll::certificate>);
static_assert(std::is_standard_layout_v<plimsoll::certificate>);
static_assert(sizeof(plimsoll::certificate) == 32);
static_assert(offsetof(plimsoll::certificate, lower_bound) == 8);
static_assert(offsetof(plimsoll::certificate, work) == 16);
static_assert(offsetof(plimsoll::certificate, status) == 24);
static_assert(static_cast<int>(plimsoll::certificate_status::optimal) == 0);
static_assert(static_cast<int>(plimsoll::certificate_status::within_tolerance) == 1);
static_assert(static_cast<int>(plimsoll::certificate_status::feasible) == 2);
static_assert(static_cast<int>(plimsoll::certificate_status::iteration_limit) == 3);
static_assert(static_cast<int>(plimsoll::certificate_status::infeasible) == 4);

static_assert(plimsoll::certificate{3, 2, 0}.gap() == 0.5);

// Views of CUDA's types are accepted as views of these types.
static_assert(sizeof(plimsoll::float16) == 2 && alignof(plimsoll::float16) == 2);
static_assert(sizeof(plimsoll::bfloat16) == 2 && alignof(plimsoll::bfloat16) == 2);
static_assert(float{plimsoll::float16{0xc500}} == -5.0f);
static_assert(float{plimsoll::bfloat16{0xc0a0}} == -5.0f);

/// Returns the first 16-bit pattern for which `holds` is false; 65536 if there is none.
template <class F>
std::uint32_t first_wrong(F holds) {
  std::uint32_t bits = 0;
  while (bits < 65536 && holds(static_cast<std::uint16_t>(bits))) {
    ++bits;
  }
  return bits;
}

}  // namespace

TEST_CASE("types: gap of a certificate") {
  CHECK(plimsoll::certificate{}.gap() == 0);
  CHECK(plimsoll::certificate{0, 0, 5}.gap() == 0);
  CHECK(plimsoll::certificate{7, 7, 0}.gap() == 0);
  CHECK(plimsoll::certificate{10, 8, 0}.gap() == 0.25);
  double const infinity = std::numeric_limits<double>::infinity();
  CHECK(plimsoll::certificate{1, 0, 0}.gap() == infinity);
  CHECK(plimsoll::certificate{infinity, infinity, 0}.gap() == 0);
  CHECK(plimsoll::certificate{}.status == plimsoll::certificate_status::feasible);
}

TEST_CASE("types: every float16 converts to the float of its fields") {
  CHECK(first_wrong([](std::uint16_t bits) {
          float const got = plimsoll::float16{bits};
          int const exponent = bits >> 10 & 31;
          int const fraction = bits & 1023;
          if (exponent == 31 && fraction != 0) {
            return std::isnan(got) && std::signbit(got) == (bits >= 32768);
          }
          float size = std::numeric_limits<float>::infinity();
          if (exponent == 0) {
            size = std::ldexp(static_cast<float>(fraction), -24);
          } else if (exponent < 31) {
            size = std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
          }
          float const expected = bits < 32768 ? size : -size;
          return std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(expected);
        }) == 65536);
}

TEST_CASE("types: every bfloat16 converts to the float of which it is the upper half") {
  CHECK(first_wrong([](std::uint16_t bits) {
          float const got = plimsoll::bfloat16{bits};
          return std::bit_cast<std::uint32_t>(got) == std::uint32_t{bits} << 16;
        }) == 65536);
}
