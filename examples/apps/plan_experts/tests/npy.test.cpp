// SPDX-License-Identifier: Apache-2.0
// The .npy reader of the examples: every dtype and layout that it accepts, and every file that it
// must refuse.
#include "../npy.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace npy = examples::npy;

namespace {

using shape_t = std::vector<std::int64_t>;
using integers = std::vector<std::int64_t>;
using doubles = std::vector<double>;

// Bytes given in hexadecimal, blanks ignored: "01 00" is two bytes.
std::string hex(std::string_view text) {
  std::string bytes;
  int high = -1;
  for (char const c : text) {
    if (c == ' ') {
      continue;
    }
    int const digit = c <= '9' ? c - '0' : c - 'a' + 10;
    if (high < 0) {
      high = digit;
    } else {
      bytes += static_cast<char>(high * 16 + digit);
      high = -1;
    }
  }
  return bytes;
}

std::string file_of(std::string const& header, std::string const& data, int major = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(major);
  bytes += '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) {
    bytes += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  }
  return bytes + header + data;
}

std::string array_of(std::string const& descr, std::string const& shape, std::string const& data,
                     bool fortran = false) {
  return file_of("{'descr': '" + descr + "', 'fortran_order': " + (fortran ? "True" : "False") +
                     ", 'shape': " + shape + ", }\n",
                 data);
}

// Reads a file in pieces of `length` bytes; the last may be shorter.
npy::any_array in_pieces(std::string const& bytes, std::size_t length) {
  npy::detail::piecewise_reader reader("f.npy", bytes.size());
  for (std::size_t at = 0; at < bytes.size(); at += length) {
    reader.add(std::string_view(bytes).substr(at, length));
  }
  return reader.finish();
}

constexpr std::size_t one_piece = std::numeric_limits<std::size_t>::max() / 2;

// Returns the values, which must not depend on the size of the pieces.
template <class T>
npy::array<T> values_in(std::string const& bytes) {
  auto const values = std::get<npy::array<T>>(npy::parse(bytes, "f.npy"));
  for (std::size_t const length : {std::size_t{1}, std::size_t{3}, std::size_t{64}}) {
    auto const pieces = std::get<npy::array<T>>(in_pieces(bytes, length));
    CHECK(pieces.shape == values.shape);
    for (std::size_t i = 0; i < values.values.size(); ++i) {
      bool const both_nan =
          values.values[i] != values.values[i] && pieces.values.at(i) != pieces.values.at(i);
      CHECK((both_nan || values.values[i] == pieces.values.at(i)));
    }
  }
  return values;
}

npy::array<std::int64_t> integers_in(std::string const& bytes) {
  return values_in<std::int64_t>(bytes);
}

npy::array<double> doubles_in(std::string const& bytes) { return values_in<double>(bytes); }

// Returns the message for a file that the reader must refuse, read in pieces.
std::string refusal(std::string const& bytes, std::size_t length) {
  try {
    static_cast<void>(in_pieces(bytes, length));
  } catch (npy::error const& e) {
    CHECK(e.file() == "f.npy");
    CHECK(std::string(e.what()) == "f.npy: expected " + e.expected() + ", got " + e.got());
    return "expected " + e.expected() + ", got " + e.got();
  }
  return "accepted";
}

// Returns that message, which must not depend on the size of the pieces.
std::string refusal(std::string const& bytes) {
  std::string const message = refusal(bytes, one_piece);
  for (std::size_t const length : {std::size_t{1}, std::size_t{7}}) {
    CHECK(refusal(bytes, length) == message);
  }
  return message;
}

std::string const six_bytes = hex("01 02 03 04 05 06");

}  // namespace

TEST_CASE("npy: a file that changes while it is read is refused") {
  std::string const bytes = array_of("|i1", "(6,)", six_bytes);
  for (std::size_t const missing : {std::size_t{1}, std::size_t{6}, bytes.size() - 20}) {
    npy::detail::piecewise_reader shrinks("f.npy", bytes.size());
    shrinks.add(std::string_view(bytes).substr(0, bytes.size() - missing));
    CHECK_THROWS_AS(static_cast<void>(shrinks.finish()), npy::error);
  }
  npy::detail::piecewise_reader grows("f.npy", bytes.size());
  grows.add(bytes + "x");
  CHECK_THROWS_WITH_AS(
      static_cast<void>(grows.finish()),
      "f.npy: expected 6 values of 1 bytes for shape (6,), got 7 bytes (trailing bytes)",
      npy::error);
}

TEST_CASE("npy: integers of every width and byte order") {
  CHECK(integers_in(array_of("|b1", "(3,)", hex("00 01 02"))).values == integers{0, 1, 1});
  CHECK(integers_in(array_of("|i1", "(2,)", hex("80 7f"))).values == integers{-128, 127});
  CHECK(integers_in(array_of("<i1", "(1,)", hex("ff"))).values == integers{-1});
  CHECK(integers_in(array_of("|u1", "(2,)", hex("80 ff"))).values == integers{128, 255});
  CHECK(integers_in(array_of("<i2", "(2,)", hex("feff 0102"))).values == integers{-2, 513});
  CHECK(integers_in(array_of(">i2", "(2,)", hex("fffe 0102"))).values == integers{-2, 258});
  CHECK(integers_in(array_of("<u2", "(1,)", hex("feff"))).values == integers{65534});
  CHECK(integers_in(array_of("<i4", "(1,)", hex("00000080"))).values == integers{-2147483648});
  CHECK(integers_in(array_of(">i4", "(1,)", hex("00000102"))).values == integers{258});
  CHECK(integers_in(array_of("<u4", "(1,)", hex("00000080"))).values == integers{2147483648});
  CHECK(integers_in(array_of("<i8", "(1,)", hex("0000000000000080"))).values ==
        integers{std::numeric_limits<std::int64_t>::min()});
  CHECK(integers_in(array_of(">u8", "(1,)", hex("7fffffffffffffff"))).values ==
        integers{std::numeric_limits<std::int64_t>::max()});
}

TEST_CASE("npy: floats of every width and byte order") {
  CHECK(doubles_in(array_of("<f4", "(2,)", hex("0000c03f 000000bf"))).values == doubles{1.5, -0.5});
  CHECK(doubles_in(array_of(">f4", "(1,)", hex("3fc00000"))).values == doubles{1.5});
  CHECK(doubles_in(array_of("<f8", "(1,)", hex("000000000000f83f"))).values == doubles{1.5});
  CHECK(doubles_in(array_of(">f8", "(1,)", hex("3ff8000000000000"))).values == doubles{1.5});
  // Halves: 1.5, -2, the largest, the smallest normal, the smallest subnormal, minus zero.
  auto const halves =
      doubles_in(array_of("<f2", "(6,)", hex("003e 00c0 ff7b 0004 0100 0080"))).values;
  CHECK(halves == doubles{1.5, -2, 65504, std::ldexp(1.0, -14), std::ldexp(1.0, -24), 0});
  CHECK(std::signbit(halves[5]));
  auto const extremes = doubles_in(array_of(">f2", "(3,)", hex("7c00 fc00 7e00"))).values;
  CHECK(extremes[0] == std::numeric_limits<double>::infinity());
  CHECK(extremes[1] == -std::numeric_limits<double>::infinity());
  CHECK(std::isnan(extremes[2]));
  // The reader accepts NaN; the planner decides which loads are valid.
  CHECK(std::isnan(doubles_in(array_of("<f4", "(1,)", hex("0000c07f"))).values[0]));
}

TEST_CASE("npy: C and Fortran order give the same values") {
  // [[1, 2, 3], [4, 5, 6]]
  CHECK(integers_in(array_of("|i1", "(2, 3)", six_bytes)).values == integers{1, 2, 3, 4, 5, 6});
  auto const fortran = integers_in(array_of("|i1", "(2, 3)", hex("01 04 02 05 03 06"), true));
  CHECK(fortran.shape == shape_t{2, 3});
  CHECK(fortran.values == integers{1, 2, 3, 4, 5, 6});

  // Element (i, j, k) of a [2, 3, 4] array is 16 i + 4 j + k.
  std::string bytes;
  for (int k = 0; k < 4; ++k) {
    for (int j = 0; j < 3; ++j) {
      for (int i = 0; i < 2; ++i) {
        bytes += static_cast<char>(16 * i + 4 * j + k);
      }
    }
  }
  auto const cube = integers_in(array_of("|u1", "(2, 3, 4)", bytes, true));
  REQUIRE(cube.values.size() == 24);
  for (std::size_t i = 0; i < 2; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      for (std::size_t k = 0; k < 4; ++k) {
        CHECK(cube.values[(i * 3 + j) * 4 + k] == static_cast<std::int64_t>(16 * i + 4 * j + k));
      }
    }
  }
  CHECK(integers_in(array_of("|i1", "(3,)", hex("01 02 03"), true)).values == integers{1, 2, 3});
}

TEST_CASE("npy: any rank, also none") {
  auto const scalar = integers_in(array_of("|i1", "()", hex("07")));
  CHECK(scalar.shape.empty());
  CHECK(scalar.values == integers{7});
  auto const deep = integers_in(array_of("|i1", "(1, 2, 1, 3, 1)", six_bytes));
  CHECK(deep.shape == shape_t{1, 2, 1, 3, 1});
  CHECK(deep.values == integers{1, 2, 3, 4, 5, 6});
}

TEST_CASE("npy: the header may be any spelling of its dictionary") {
  for (char const* header : {
           "{'descr':'|i1','fortran_order':False,'shape':(2,3)}",
           "{'shape': (2, 3,), 'fortran_order': False, 'descr': '|i1', }\n",
           " {\t\"fortran_order\" : False , \"descr\" : \"|i1\" , \"shape\" : ( 2 , 3 , ) , }   \n",
           "{'descr': '|i1', 'fortran_order': False, 'shape': (2L, 3L), }\n",
       }) {
    CAPTURE(header);
    auto const read = integers_in(file_of(header, six_bytes));
    CHECK(read.shape == shape_t{2, 3});
    CHECK(read.values == integers{1, 2, 3, 4, 5, 6});
  }
}

TEST_CASE("npy: versions 2 and 3 have a four-byte header length") {
  std::string const header = "{'descr': '|i1', 'fortran_order': False, 'shape': (2, 3), }";
  // Longer than version 1 can express.
  std::string const padded = header + std::string(70000, ' ') + "\n";
  for (int const major : {2, 3}) {
    CHECK(integers_in(file_of(header + "\n", six_bytes, major)).shape == shape_t{2, 3});
    CHECK(integers_in(file_of(padded, six_bytes, major)).values == integers{1, 2, 3, 4, 5, 6});
  }
}

TEST_CASE("npy: files that are not .npy files") {
  CHECK(refusal("") == "expected a .npy file, got an empty file");
  char const* const other =
      "expected a .npy file, which starts with \\x93NUMPY, "
      "got a file that does not";
  CHECK(refusal("PK\x03\x04 not an array") == other);
  CHECK(refusal("\x93NUM") == other);
  CHECK(refusal("NUMPY\x01\x00\x00\x00\x00") == other);
  CHECK(refusal(file_of("{}", "", 4)) == "expected .npy version 1.0, 2.0 or 3.0, got 4.0");
  CHECK(refusal(file_of("{}", "", 0)) == "expected .npy version 1.0, 2.0 or 3.0, got 0.0");
  std::string minor = array_of("|i1", "(6,)", six_bytes);
  minor[7] = 1;
  CHECK(refusal(minor) == "expected .npy version 1.0, 2.0 or 3.0, got 1.1");
}

TEST_CASE("npy: every truncation and every trailing byte is refused") {
  std::string const whole = array_of("<i2", "(3,)", six_bytes);
  REQUIRE(refusal(whole) == "accepted");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CAPTURE(length);
    CHECK(refusal(whole.substr(0, length)) != "accepted");
  }
  std::string const wide = file_of("{}", "", 2);
  CHECK(refusal(wide.substr(0, 9)) ==
        "expected the header's length after the version, got the end of the file");
  CHECK(refusal(wide.substr(0, 13)) == "expected a header of 2 bytes, got 1 (truncated file)");
  CHECK(refusal(whole.substr(0, whole.size() - 1)) ==
        "expected 3 values of 2 bytes for shape (3,), got 5 bytes (truncated file)");
  CHECK(refusal(whole.substr(0, whole.size() - 6)) ==
        "expected 3 values of 2 bytes for shape (3,), got 0 bytes (truncated file)");
  CHECK(refusal(whole + "x") ==
        "expected 3 values of 2 bytes for shape (3,), got 7 bytes (trailing bytes)");
  CHECK(refusal(whole + whole) == "expected 3 values of 2 bytes for shape (3,), got " +
                                      std::to_string(6 + whole.size()) + " bytes (trailing bytes)");
}

TEST_CASE("npy: a header length beyond the file allocates no memory") {
  std::string bytes = "\x93NUMPY\x02";
  bytes += '\0';
  bytes += hex("ff ff ff ff");
  CHECK(refusal(bytes + "{}") == "expected a header of 4294967295 bytes, got 2 (truncated file)");
}

TEST_CASE("npy: corrupt headers") {
  auto const corrupt = [](std::string const& header) {
    return refusal(file_of(header, six_bytes));
  };
  CHECK(corrupt("") == "expected '{' at the start of the header, got the end of the header");
  CHECK(corrupt("[1]") == "expected '{' at the start of the header, got '[1]'");
  CHECK(corrupt("{") == "expected a quoted key in the header, got the end of the header");
  CHECK(corrupt("{descr: 1}") == "expected a quoted key in the header, got 'descr: 1}'");
  CHECK(corrupt("{'descr") == "expected a closing quote in the header, got ''descr'");
  CHECK(corrupt("{'descr' '|i1'}") == "expected ':' after a key of the header, got ''|i1'}'");
  CHECK(corrupt("{'descr': 7}") == "expected a quoted dtype in the header, got '7}'");
  CHECK(corrupt("{'descr': '|i1' 'shape': (6,)}") ==
        "expected ',' or '}' after a value of the header, got ''shape': (6,)}'");
  CHECK(corrupt("{'fortran_order': 0}") == "expected True or False for fortran_order, got '0}'");
  CHECK(corrupt("{'shape': [6]}") == "expected '(' at the start of the shape, got '[6]}'");
  CHECK(corrupt("{'shape': (6)}") == "expected ',' after the first extent of the shape, got ')}'");
  CHECK(corrupt("{'shape': (2 3)}") ==
        "expected ',' after the first extent of the shape, got '3)}'");
  CHECK(corrupt("{'shape': (2, 3 4)}") ==
        "expected ',' or ')' after an extent of the shape, "
        "got '4)}'");
  CHECK(corrupt("{'shape': (-6,)}") ==
        "expected a non-negative whole number in the shape, got '-6,)}'");
  CHECK(corrupt("{'shape': (2.0,)}") ==
        "expected ',' after the first extent of the shape, got '.0,)}'");
  CHECK(corrupt("{'shape': (,)}") ==
        "expected a non-negative whole number in the shape, got ',)}'");
  CHECK(corrupt("{'color': 1}") ==
        "expected the header keys descr, fortran_order and shape, got 'color'");
  CHECK(corrupt("{'descr': '|i1', 'descr': '|i1'}") ==
        "expected each header key once, "
        "got 'descr' twice");
  CHECK(corrupt("{'descr': '|i1', 'shape': (6,)}") ==
        "expected the header key 'fortran_order', got a header without it");
  CHECK(corrupt("{'descr': '|i1', 'fortran_order': False}") ==
        "expected the header key 'shape', got a header without it");
  CHECK(corrupt("{}") == "expected the header key 'descr', got a header without it");
  CHECK(corrupt("{'descr': '|i1', 'fortran_order': False, 'shape': (6,)} x") ==
        "expected nothing but spaces after the header's '}', got 'x'");
  CHECK(corrupt(std::string("{'a\0\n': 1}", 10)) ==
        "expected the header keys descr, fortran_order and shape, got 'a?\?'");
}

TEST_CASE("npy: every damaged byte of a header is refused or read, never worse") {
  std::string const whole = array_of("<i2", "(3, 1)", six_bytes);
  for (std::size_t at = 0; at + 6 < whole.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(value);
      static_cast<void>(refusal(damaged));
    }
  }
}

TEST_CASE("npy: unknown dtypes are named") {
  auto const expected = [](std::string const& name) {
    return "expected a dtype of b1, i1, i2, i4, i8, u1, u2, u4, u8, f2, f4 or f8, got '" + name +
           "'";
  };
  for (char const* name : {"<c16", "<f16", "|S5", "<U3", "|O", "<M8[ns]", "i4", "|i4", "<i3", "<b2",
                           "!i4", "", "<f1", "|V2"}) {
    CAPTURE(name);
    CHECK(refusal(array_of(name, "(6,)", six_bytes)) == expected(name));
  }
  CHECK(refusal(file_of("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,)}", "")) ==
        "expected a plain dtype, got a structured dtype");
}

TEST_CASE("npy: shapes that overflow or hold nothing") {
  CHECK(refusal(array_of("<i8", "(4294967296, 4294967296)", "")) ==
        "expected fewer than 2^60 values, got shape (4294967296, 4294967296)");
  CHECK(refusal(array_of("|i1", "(4611686018427387904, 4)", "")) ==
        "expected fewer than 2^60 values, got shape (4611686018427387904, 4)");
  CHECK(refusal(array_of("|i1", "(18446744073709551617,)", six_bytes)) ==
        "expected extents below 2^63, got '18446744073709551617'");
  CHECK(refusal(array_of("<i8", "(1000000000000,)", six_bytes)) ==
        "expected 1000000000000 values of 8 bytes for shape (1000000000000,), "
        "got 6 bytes (truncated file)");
  CHECK(refusal(array_of("|i1", "(0,)", "")) == "expected no empty dimension, got shape (0,)");
  CHECK(refusal(array_of("|i1", "(9223372036854775807, 0, 9223372036854775807)", "")) ==
        "expected no empty dimension, got shape (9223372036854775807, 0, 9223372036854775807)");
}

TEST_CASE("npy: an unsigned value that int64 cannot hold") {
  CHECK(refusal(array_of("<u8", "(1,)", hex("0000000000000080"))) ==
        "expected values below 2^63, got 9223372036854775808");
}

TEST_CASE("npy: files that cannot be read") {
  auto const folder = std::filesystem::temp_directory_path();
  auto const missing = (folder / "plimsoll no such file.npy").string();
  CHECK_THROWS_WITH_AS(
      static_cast<void>(npy::read(missing)),
      (missing + ": expected a readable file, got No such file or directory").c_str(), npy::error);
  CHECK_THROWS_WITH_AS(static_cast<void>(npy::read(folder.string())),
                       (folder.string() + ": expected a readable file, got Is a directory").c_str(),
                       npy::error);
}

TEST_CASE_TEMPLATE("npy: what is written is read", T, std::int32_t, std::int64_t, float, double) {
  std::vector<T> const values{
      T(0), T(-1), T(2), std::numeric_limits<T>::max(), std::numeric_limits<T>::lowest(), T(5)};
  for (shape_t const& shape : {shape_t{2, 3}, shape_t{6}, shape_t{1, 1, 6, 1}}) {
    std::ostringstream out;
    npy::write<T>(out, shape, values);
    std::string const bytes = out.str();
    CHECK((bytes.size() - sizeof(T) * values.size()) % 64 == 0);
    using read_as = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;
    auto const read = std::get<npy::array<read_as>>(npy::parse(bytes, "f.npy"));
    CHECK(read.shape == shape);
    CHECK(read.values == std::vector<read_as>(values.begin(), values.end()));
  }
  std::ostringstream out;
  CHECK_THROWS_WITH_AS(npy::write<T>(out, shape_t{2, 2}, values),
                       "npy::write: values: expected 4 for shape (2, 2), got 6",
                       std::invalid_argument);
}

TEST_CASE("npy: the writer's header is the one that NumPy writes") {
  std::ostringstream out;
  npy::write<std::int32_t>(out, shape_t{2}, std::vector<std::int32_t>{1, -2});
  std::string const text = "{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }";
  std::string const expected = hex("93") + "NUMPY" + hex("01 00 76 00") + text +
                               std::string(117 - text.size(), ' ') + "\n" +
                               hex("01000000 feffffff");
  CHECK(out.str() == expected);
}

TEST_CASE("npy: shapes print as Python prints them") {
  CHECK(npy::to_string(shape_t{}) == "()");
  CHECK(npy::to_string(shape_t{5}) == "(5,)");
  CHECK(npy::to_string(shape_t{2, 3}) == "(2, 3)");
}
