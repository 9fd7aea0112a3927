// SPDX-License-Identifier: Apache-2.0
#include <plimsoll/config.hpp>

#include <doctest/doctest.h>
#include <plimsoll/types.hpp>

#include <string>
#include <type_traits>

#define PLIMSOLL_TEST_TEXT_OF(...) #__VA_ARGS__
#define PLIMSOLL_TEST_TEXT(...) PLIMSOLL_TEST_TEXT_OF(__VA_ARGS__)

namespace {

PLIMSOLL_HD constexpr int marked() { return 3; }
static_assert(marked() == 3);

// Names are in the inline namespace of the version, which users need not write.
static_assert(std::is_same_v<plimsoll::certificate, plimsoll::PLIMSOLL_ABI::certificate>);

}  // namespace

TEST_CASE("config: macros of a host compiler") {
  CHECK(PLIMSOLL_HAS_CUDA_COMPILER == 0);
  CHECK(std::string(PLIMSOLL_TEST_TEXT(PLIMSOLL_HD)).empty());
}

TEST_CASE("config: the inline namespace carries major and minor version") {
  std::string const expected = std::string("v") + PLIMSOLL_TEST_TEXT(PLIMSOLL_VERSION_MAJOR) + "_" +
                               PLIMSOLL_TEST_TEXT(PLIMSOLL_VERSION_MINOR);
  CHECK(std::string(PLIMSOLL_TEST_TEXT(PLIMSOLL_ABI)) == expected);
}
