// SPDX-License-Identifier: Apache-2.0
// Includes version.hpp only: the version must be available before anything else is included.
#include <plimsoll/version.hpp>

#if !defined(PLIMSOLL_VERSION_MAJOR) || !defined(PLIMSOLL_VERSION_MINOR) || \
    !defined(PLIMSOLL_VERSION_PATCH)
#error "three numbers"
#endif
#if PLIMSOLL_VERSION_MAJOR * 1000000 + PLIMSOLL_VERSION_MINOR * 1000 + PLIMSOLL_VERSION_PATCH <= 0
#error "the preprocessor can compare them"
#endif

#include <doctest/doctest.h>

#include <string>

#define PLIMSOLL_TEST_TEXT_OF(...) #__VA_ARGS__
#define PLIMSOLL_TEST_TEXT(...) PLIMSOLL_TEST_TEXT_OF(__VA_ARGS__)

TEST_CASE("version: plain decimal numbers, which CMake and the recipes read as text") {
  for (std::string const& number : {std::string(PLIMSOLL_TEST_TEXT(PLIMSOLL_VERSION_MAJOR)),
                                    std::string(PLIMSOLL_TEST_TEXT(PLIMSOLL_VERSION_MINOR)),
                                    std::string(PLIMSOLL_TEST_TEXT(PLIMSOLL_VERSION_PATCH))}) {
    CAPTURE(number);
    CHECK(!number.empty());
    CHECK(number.find_first_not_of("0123456789") == std::string::npos);
    CHECK((number.size() == 1 || number[0] != '0'));
  }
}
