// SPDX-License-Identifier: Apache-2.0
// Reading recorded loads.
#include "../npy_reader.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

using namespace make_loads;

namespace {

std::string file_of(std::string const& descr, std::string const& shape, std::string const& elements,
                    int version = 1, std::string const& fortran = "False") {
  std::string const header =
      "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
  std::string length{static_cast<char>(header.size()), '\0'};
  length.resize(version == 1 ? 2 : 4);
  return "\x93NUMPY" + std::string{static_cast<char>(version), '\0'} + length + header + elements;
}

recorded_loads read(std::string const& bytes) { return npy_reader("a", bytes).loads(); }

std::string const twelve("\x01\0\0\0\xff\x01\0\0\0\0\0\x7f", 12);

}  // namespace

TEST_CASE("npy_reader: loads of 32 and 64 bits") {
  for (int const version : {1, 2, 3}) {
    recorded_loads const loads = read(file_of("<i4", "(1, 1, 3)", twelve, version));
    CHECK(loads.steps == 1);
    CHECK(loads.experts == 3);
    CHECK(loads.values == std::vector<std::int64_t>{1, 511, 0x7f000000});
  }
  std::string const eight("\x02\0\0\0\x01\0\0\0", 8);
  recorded_loads const loads = read(file_of("<i8", "(2, 1, 1)", eight + eight));
  CHECK(loads.steps == 2);
  CHECK(loads.values == std::vector<std::int64_t>(2, (std::int64_t{1} << 32) + 2));
}

TEST_CASE("npy_reader: bad files") {
  auto const refused = [](std::string const& bytes, char const* message) {
    CHECK_THROWS_WITH(read(bytes), message);
  };
  std::string const good = file_of("<i4", "(1, 1, 3)", twelve);
  refused("", "a: expected a .npy file, got an empty file");
  refused("layer_id,expert_id,count\n", "a: expected a .npy file, got another one");
  refused(good.substr(0, 9), "a: expected a .npy file, got another one");
  refused(good.substr(0, 20), "a: expected a header of 63 bytes, got 10 bytes");
  refused(good.substr(0, good.size() - 1),
          "a: expected the elements of the shape (1, 1, 3), got 11 bytes");
  refused(good + "1234", "a: expected the elements of the shape (1, 1, 3), got 16 bytes");
  refused(file_of("<f8", "(1, 1, 3)", twelve + twelve),
          "a: expected integers of 32 or 64 bits, '<i4' or '<i8', got '<f8'");
  refused(file_of("<i4", "(1, 1, 3)", twelve, 1, "True"),
          "a: expected an array in C order, got another order");
  refused(file_of("<i4", "(1, 1, 3)", std::string(12, '\xff')),
          "a: expected loads of at least 0, got -1");
  for (char const* shape : {"()", "(3,)", "(1, 3)", "(1, 1, 1, 3)", "(1, 1, 0)", "(1, -1, 3)",
                            "(1, 1, 99999999999999999999)", "(1,1,3)"}) {
    CAPTURE(shape);
    std::string const message = std::string(
                                    "a: expected an array [steps, layers, experts], got "
                                    "the shape ") +
                                shape;
    refused(file_of("<i4", shape, twelve), message.c_str());
  }
  // 5 times the first extent is 2^65 + 3.
  refused(file_of("<i4", "(7378697629483820647, 5, 1)", twelve),
          "a: expected the elements of the shape (7378697629483820647, 5, 1), got 12 bytes");
  refused("\x93NUMPY" + std::string("\x01\0\x04\0{ }\n", 8),
          "a: expected a header with 'descr': , got none");
}
