// SPDX-License-Identifier: Apache-2.0
// The reader of measured loads: every form that it accepts, and every file that it must refuse.
#include "../loads.hpp"
#include "../slot_loads.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loads_of.hpp"

namespace npy = examples::npy;

namespace {

using shape_t = std::vector<std::int64_t>;
using integers = std::vector<std::int64_t>;
using doubles = std::vector<double>;
using examples::index_t;

npy::any_array parse_loads(std::string_view bytes, std::string const& file,
                           std::string const& key = {}) {
  auto read = examples::load_file::of_bytes(bytes, file, key);
  static_cast<void>(examples::check_loads(read));
  return loads_tests::array_of(read);
}

npy::any_array read_loads(std::string const& file,
                          examples::reading_progress const& progress = {}) {
  auto read = examples::load_file::open(file, {}, progress);
  static_cast<void>(examples::check_loads(read));
  return loads_tests::array_of(read);
}

template <class T>
npy::array<T> loads_in(std::string_view bytes, std::string const& file,
                       std::string const& key = {}) {
  auto const loads = parse_loads(bytes, file, key);
  REQUIRE(std::holds_alternative<npy::array<T>>(loads));
  return std::get<npy::array<T>>(loads);
}

// Returns the message of the reader for a file that it must refuse.
std::string refusal(std::string_view bytes, std::string const& file, std::string const& key = {}) {
  try {
    static_cast<void>(parse_loads(bytes, file, key));
  } catch (examples::file_error const& e) {
    CHECK(e.file() == file);
    return "expected " + e.expected() + ", got " + e.got();
  }
  return "accepted";
}
std::string json_refusal(std::string_view text) { return refusal(text, "f.json"); }
std::string csv_refusal(std::string_view text) { return refusal(text, "f.csv"); }

template <class T>
std::string npy_file(shape_t const& shape, std::vector<T> const& values) {
  std::ostringstream out;
  npy::write<T>(out, shape, values);
  return out.str();
}

template <class T>
std::string npy_refusal(shape_t const& shape, std::vector<T> const& values) {
  return refusal(npy_file<T>(shape, values), "f.npy");
}

std::string counts(std::string const& arrays) { return "{\"logical_count\": " + arrays + "}"; }

std::string counts_refusal(std::string const& arrays) { return json_refusal(counts(arrays)); }

std::string const byte_order_mark = "\xef\xbb\xbf";

}  // namespace

TEST_CASE("loads: .npy files of two and of three dimensions") {
  auto const matrix =
      loads_in<std::int64_t>(npy_file<std::int32_t>({2, 3}, {1, 2, 3, 4, 5, 6}), "f.npy");
  CHECK(matrix.shape == shape_t{1, 2, 3});
  CHECK(matrix.values == integers{1, 2, 3, 4, 5, 6});
  auto const steps = loads_in<double>(npy_file<float>({2, 1, 2}, {1, 0.5F, 3, 4}), "f.npy");
  CHECK(steps.shape == shape_t{2, 1, 2});
  CHECK(steps.values == doubles{1, 0.5, 3, 4});
}

TEST_CASE("loads: .json files") {
  auto const matrix = loads_in<std::int64_t>(counts("[[1, 2, 3], [4, 5, 6]]"), "f.json");
  CHECK(matrix.shape == shape_t{1, 2, 3});
  CHECK(matrix.values == integers{1, 2, 3, 4, 5, 6});
  auto const steps = loads_in<std::int64_t>(counts("[[[1, 2]], [[3, 4]], [[5, 6]]]"), "f.json");
  CHECK(steps.shape == shape_t{3, 1, 2});
  CHECK(steps.values == integers{1, 2, 3, 4, 5, 6});
  CHECK(loads_in<std::int64_t>(counts("[[0]]"), "f.json").shape == shape_t{1, 1, 1});
  // Integers with more bits than the fraction of a float are read exactly.
  CHECK(loads_in<std::int64_t>(counts("[[70368744177665]]"), "f.json").values ==
        integers{70368744177665});
}

TEST_CASE("loads: one number with a fraction or an exponent makes all numbers floats") {
  CHECK(loads_in<double>(counts("[[1, 2.5], [3, 4]]"), "f.json").values == doubles{1, 2.5, 3, 4});
  CHECK(loads_in<double>(counts("[[1, 2], [3, 4e1]]"), "f.json").values == doubles{1, 2, 3, 40});
  CHECK(loads_in<double>("1,2\n3,4.5\n", "f.csv").values == doubles{1, 2, 3, 4.5});
  CHECK(loads_in<double>("1e2,2\n3,4\n", "f.csv").values == doubles{100, 2, 3, 4});
  CHECK(loads_in<double>("layer,expert,load\n0,1,7\n0,0,.5\n", "f.csv").values == doubles{0.5, 7});
}

TEST_CASE("loads: other keys of a .json file are ignored") {
  // As SGLang's recorder writes it, in Python's form of JSON.
  auto const loads = loads_in<std::int64_t>(
      "{\"rank\": 0, \"records\": [{\"logical_count\": [[9]], \"pass\": [true, null, -1.5]}],\n"
      " \"logical_count\": [[1, 2]], \"average_utilization_rate_over_window\": null,\n"
      " \"physical_to_logical_map\": [[0, 1]], \"large\": 99999999999999999999}\n",
      "f.json");
  CHECK(loads.shape == shape_t{1, 1, 2});
  CHECK(loads.values == integers{1, 2});
}

TEST_CASE("loads: .csv files of a line per layer") {
  auto const matrix = loads_in<std::int64_t>("1,2,3\n4,5,6\n", "f.csv");
  CHECK(matrix.shape == shape_t{1, 2, 3});
  CHECK(matrix.values == integers{1, 2, 3, 4, 5, 6});
  auto const steps = loads_in<std::int64_t>("1,2\n3,4\n\n5,6\n7,8\n", "f.csv");
  CHECK(steps.shape == shape_t{2, 2, 2});
  CHECK(steps.values == integers{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(loads_in<std::int64_t>("7", "f.csv").shape == shape_t{1, 1, 1});
}

TEST_CASE("loads: spaces and line ends of a .csv file may vary") {
  for (std::string const& text : {
           std::string("1,2\n3,4\n\n5,6\n7,8"),
           std::string("1,2\r\n3,4\r\n\r\n5,6\r\n7,8\r\n"),
           std::string("\n\n 1 ,\t2\n3,4 \n \n\t\n\n5,6\n7,8\n\n \n"),
           byte_order_mark + "1,2\n3,4\n\n5,6\n7,8\n",
       }) {
    CAPTURE(text);
    auto const loads = loads_in<std::int64_t>(text, "f.csv");
    CHECK(loads.shape == shape_t{2, 2, 2});
    CHECK(loads.values == integers{1, 2, 3, 4, 5, 6, 7, 8});
  }
}

TEST_CASE("loads: .csv files of a line per load") {
  // The loads without a line are 0, also all of expert 1.
  auto const matrix = loads_in<std::int64_t>("layer,expert,load\n1,2,6\n0,0,5\n1,0,1\n", "f.csv");
  CHECK(matrix.shape == shape_t{1, 2, 3});
  CHECK(matrix.values == integers{5, 0, 0, 1, 0, 6});
  // Layer 1 of step 0 has no line, but both have lines elsewhere.
  auto const steps = loads_in<std::int64_t>(
      byte_order_mark + "\r\n load, step ,expert,layer\r\n5,0,0,0\r\n\r\n6,1,1,0\r\n7,1,0,1\r\n",
      "f.csv");
  CHECK(steps.shape == shape_t{2, 2, 2});
  CHECK(steps.values == integers{5, 0, 0, 0, 0, 6, 7, 0});
  CHECK(loads_in<std::int64_t>("expert,layer,load\n0,0,0", "f.csv").shape == shape_t{1, 1, 1});
}

TEST_CASE("loads: the form of the standard input is recognized by its first bytes") {
  CHECK(loads_in<std::int64_t>(npy_file<std::int32_t>({1, 2}, {1, 2}), "-").values ==
        integers{1, 2});
  CHECK(loads_in<std::int64_t>(" \n" + counts("[[1, 2]]"), "-").values == integers{1, 2});
  CHECK(loads_in<std::int64_t>(byte_order_mark + counts("[[1, 2]]"), "-").values == integers{1, 2});
  CHECK(loads_in<std::int64_t>("1,2", "-").values == integers{1, 2});
  CHECK(loads_in<std::int64_t>("layer,expert,load\n0,1,2", "-").values == integers{0, 2});
  CHECK(refusal("", "-") == "expected loads as .npy, JSON or CSV, got an empty file");
  CHECK(refusal("[[1, 2]]", "-") ==
        "expected a JSON object with the key logical_count, got an array");
}

TEST_CASE("loads: other extensions") {
  std::string const expected =
      "expected a .npy, .json or .csv file, or - for the standard input, got ";
  CHECK(refusal("1", "f.txt") == expected + "'.txt'");
  CHECK(refusal("1", "f.npz") == expected + "'.npz'");
  CHECK(refusal("1", "a.csv/f") == expected + "a name without extension");
  for (char const* const name : {"f.pt", "f.pth", "f.PT"}) {
    CHECK(refusal("1", name) ==
          expected + "a file of PyTorch, which read_recordings.py (docs/loads.md) converts");
  }
  CHECK(loads_in<std::int64_t>("1,2", "a.b/F.CSV").values == integers{1, 2});
  // The name alone is enough, so that no file is read for nothing.
  CHECK_THROWS_WITH_AS(static_cast<void>(read_loads("no such file.txt")),
                       ("no such file.txt: " + expected + "'.txt'").c_str(), examples::file_error);
}

TEST_CASE("loads: bytes that contradict the extension, and empty files") {
  std::string const array = npy_file<std::int32_t>({1, 2}, {1, 2});
  CHECK(json_refusal(array) == "expected JSON with loads, got a .npy file");
  CHECK(csv_refusal(array) == "expected CSV with loads, got a .npy file");
  CHECK(csv_refusal(counts("[[1]]")) == "expected CSV with loads, got JSON");
  CHECK(csv_refusal(byte_order_mark + "\n [1]") == "expected CSV with loads, got JSON");
  CHECK(json_refusal("1,2\n") == "expected a JSON object with the key logical_count, got a number");
  CHECK(json_refusal("layer,expert,load\n0,0,1\n") ==
        "expected valid JSON, got 'layer,expert,load?0,0,1?' in line 1, column 1");
  CHECK(refusal("1,2\n", "f.npy") ==
        "expected a .npy file, which starts with \\x93NUMPY, got a file that does not");
  for (std::string const& text : {std::string(), std::string(" \r\n\t\n"), byte_order_mark}) {
    CHECK(json_refusal(text) == "expected JSON with loads, got an empty file");
    CHECK(csv_refusal(text) == "expected CSV with loads, got an empty file");
  }
  CHECK(refusal("", "f.npy") == "expected a .npy file, got an empty file");
}

TEST_CASE("loads: text that is not JSON") {
  CHECK(counts_refusal("[[1, 2],\n [3 4]]") ==
        "expected valid JSON, got '4]]}' in line 2, column 5");
  CHECK(counts_refusal("[[1]") == "expected valid JSON, got '}' in line 1, column 23");
  CHECK(counts_refusal("[[1, NaN]]") == "expected valid JSON, got 'NaN]]}' in line 1, column 24");
  CHECK(counts_refusal("[[1]]} x") == "expected valid JSON, got 'x}' in line 1, column 26");
  CHECK(json_refusal("{\"logical_count\": [[1, 2") ==
        "expected valid JSON, got the end of the file in line 1, column 25");
  CHECK(json_refusal("{\"logical_count\":\n\n") ==
        "expected valid JSON, got the end of the file in line 3, column 1");
  CHECK(json_refusal("{\"a\nb\": 1}") == "expected valid JSON, got '?b\": 1}' in line 1, column 4");
  CHECK(json_refusal(byte_order_mark + "{\xff}") ==
        "expected valid JSON, got '?}' in line 1, column 2");
  // The JSON library takes a NUL byte for the end of the text.
  CHECK(json_refusal(counts("[[1]]") + std::string(1, '\0') + "more") ==
        "expected valid JSON, got a NUL byte in line 1, column 25");
}

TEST_CASE("loads: JSON that is not an object with logical_count") {
  char const* const expected = "expected a JSON object with the key logical_count, got ";
  CHECK(json_refusal("[[1, 2]]") == std::string(expected) + "an array");
  CHECK(json_refusal("1") == std::string(expected) + "a number");
  CHECK(json_refusal("-1.5") == std::string(expected) + "a number");
  CHECK(json_refusal("\"logical_count\"") == std::string(expected) + "a string");
  CHECK(json_refusal("null") == std::string(expected) + "null");
  CHECK(json_refusal("true") == std::string(expected) + "a boolean");
  CHECK(json_refusal("{}") == "expected the key logical_count, got none");
  CHECK(json_refusal("{\"loads\": {\"logical_count\": [[1]]}}") ==
        "expected the key logical_count, got 'loads'");
  CHECK(json_refusal("{\"a\": 1, \"b\": 2, \"c\": 3, \"d\": 4, \"e\\n\": 5}") ==
        "expected the key logical_count, got 'a', 'b', 'c', 'd', 'e?'");
  CHECK(json_refusal("{\"a\": 1, \"b\": 2, \"c\": 3, \"d\": 4, \"e\": 5, \"f\": 6}") ==
        "expected the key logical_count, got 'a', 'b', 'c', 'd', 'e' and more");
  for (std::string const plan :
       {"physical_to_logical_map", "physical_to_logical", "moe_layer_count"}) {
    CHECK(json_refusal("{\"version\": 1, \"" + plan + "\": [[0, 1]]}") ==
          "expected loads, as the key logical_count, got a plan (" + plan +
              "), which --plan reads");
  }
  CHECK(json_refusal("{\"logical_count\": [[1]], \"logical_count\": [[2]]}") ==
        "expected the key logical_count once, got it twice");
}

TEST_CASE("loads: JSON arrays without two or three regular dimensions") {
  std::string const shape = "expected shape (layers, experts) or (steps, layers, experts), got ";
  CHECK(counts_refusal("5") == shape + "()");
  CHECK(counts_refusal("[5, 6]") == shape + "(2,)");
  CHECK(counts_refusal("[[[[5]]]]") ==
        "expected at most three nested arrays, got a fourth in logical_count[0][0][0]");
  CHECK(counts_refusal("[]") == "expected no empty array, got one in logical_count");
  CHECK(counts_refusal("[[1], []]") == "expected no empty array, got one in logical_count[1]");
  CHECK(counts_refusal("[[[]]]") == "expected no empty array, got one in logical_count[0][0]");
  CHECK(counts_refusal("[[1, 2], [3, 4], [5]]") ==
        "expected as many values as in the arrays before (2), got 1 in logical_count[2]");
  CHECK(counts_refusal("[[[1], [2]], [[3]]]") ==
        "expected as many values as in the arrays before (2), got 1 in logical_count[1]");
  CHECK(counts_refusal("[[[1], [2]], [[3, 4], [5]]]") ==
        "expected as many values as in the arrays before (1), got 2 in logical_count[1][0]");
  CHECK(counts_refusal("[[1, 2], [3, [4]]]") ==
        "expected a number, as at earlier positions, got an array in logical_count[1][1]");
  CHECK(counts_refusal("[[1, 2], 3]") ==
        "expected an array, as at earlier positions, got a number in logical_count[1]");
}

TEST_CASE("loads: JSON values that are not numbers, or too large") {
  std::string const expected = "expected nothing but numbers and arrays, got ";
  CHECK(counts_refusal("[[1, \"2\"]]") == expected + "a string in logical_count[0][1]");
  CHECK(counts_refusal("[[1, null]]") == expected + "null in logical_count[0][1]");
  CHECK(counts_refusal("[[1], [true]]") == expected + "a boolean in logical_count[1][0]");
  CHECK(counts_refusal("[[1], {\"a\": 1}]") == expected + "an object in logical_count[1]");
  CHECK(counts_refusal("null") == expected + "null in logical_count");
  CHECK(counts_refusal("[[1, 9223372036854775808]]") ==
        "expected whole numbers below 2^63, got '9223372036854775808' in logical_count[0][1]");
  CHECK(counts_refusal("[[1, 99999999999999999999]]") ==
        "expected whole numbers below 2^63, got '99999999999999999999' in logical_count[0][1]");
  CHECK(counts_refusal("[[1e999]]") ==
        "expected numbers in the range of a double, got '1e999' in line 1, column 25");
}

TEST_CASE("loads: lines of a .csv file that are not a matrix") {
  std::string const first =
      "expected numbers with commas between, or the column names layer, expert and load, got ";
  CHECK(csv_refusal("1;2;3\n") == first + "'1;2;3' in line 1, field 1");
  CHECK(csv_refusal("\n1,,2\n") == first + "'' in line 2, field 2");
  CHECK(csv_refusal("a,b\n1,2\n") == first + "'a' in line 1, field 1");
  CHECK(csv_refusal("Layer,Expert,Load\n0,0,1\n") == first + "'Layer' in line 1, field 1");
  CHECK(csv_refusal("1,+2\n") == first + "'+2' in line 1, field 2");
  for (char const* const word : {"x", "", "nan", "inf", "0x10", "1 2", "-", "1e", "1_000"}) {
    CHECK(csv_refusal("1,2\n3," + std::string(word) + "\n") ==
          "expected a number, got '" + std::string(word) + "' in line 2, field 2");
  }
  CHECK(csv_refusal("1,2,\n") == first + "'' in line 1, field 3");
  CHECK(csv_refusal(std::string("1,2\n3,\0\n", 8)) ==
        "expected a number, got '?' in line 2, field 2");
  CHECK(csv_refusal("1,9223372036854775808\n") ==
        "expected whole numbers below 2^63, got '9223372036854775808' in line 1, field 2");
  CHECK(csv_refusal("1,1e999\n") ==
        "expected numbers in the range of a double, got '1e999' in line 1, field 2");
  CHECK(csv_refusal("\n1,2\n3\n") == "expected as many numbers as in line 2 (2), got 1 in line 3");
  CHECK(csv_refusal("1,2\n\n3,4,5\n") ==
        "expected as many numbers as in line 1 (2), got 3 in line 3");
  CHECK(csv_refusal("1\n2\n\n\n3\n\n5\n6\n") ==
        "expected as many lines as in step 0 (2), got 1 in step 1, before line 6");
  CHECK(csv_refusal("1\n2\n\n3\n4\n\n5\n6\n7\n") ==
        "expected as many lines as in step 0 (2), got 3 in step 2, before line 10");
}

TEST_CASE("loads: lines of a .csv file that are not a table") {
  std::string const names =
      "expected the column names layer, expert, load and perhaps step, each once, got ";
  CHECK(csv_refusal("layer,expert\n0,0\n") == names + "no 'load' in line 1");
  CHECK(csv_refusal("layer,load\n0,0\n") == names + "no 'expert' in line 1");
  CHECK(csv_refusal("\nstep,expert,load\n0,0,1\n") == names + "no 'layer' in line 2");
  CHECK(csv_refusal("layer,expert,load,rank\n0,0,1,0\n") == names + "'rank' in line 1");
  CHECK(csv_refusal("layer,expert,load,load\n0,0,1,0\n") == names + "'load' twice in line 1");
  CHECK(csv_refusal("layer,expert,load,\n0,0,1,0\n") == names + "'' in line 1");
  CHECK(csv_refusal("layer,expert,load\n\n") ==
        "expected lines of loads after the column names, got none");
  auto const table = [](std::string const& lines) {
    return csv_refusal("layer,expert,load\n" + lines);
  };
  CHECK(table("0,1\n") == "expected as many fields as column names (3), got 2 in line 2");
  CHECK(table("0,1,2,3\n") == "expected as many fields as column names (3), got 4 in line 2");
  CHECK(table("0,1,x\n") == "expected a number, got 'x' in line 2, field 3");
  CHECK(table("0,1,\n") == "expected a number, got '' in line 2, field 3");
  for (char const* const word : {"-1", "2147483648", "99999999999999999999", "0.0", "", "x"}) {
    CHECK(table("0,0,1\n" + std::string(word) + ",0,1\n") ==
          "expected a whole number from 0 to 2147483647 as layer, got '" + std::string(word) +
              "' in line 3");
  }
  CHECK(table("0,65535,1\n") ==
        "expected a whole number from 0 to 65534 as expert, got '65535' in line 2");
  CHECK(csv_refusal("layer,expert,load,step\n0,0,1,-1\n") ==
        "expected a whole number from 0 to 2147483647 as step, got '-1' in line 2");
  CHECK(table("0,0,1\n0,1,2\n0,0,3\n") ==
        "expected one line for layer 0, expert 0, got line 2 and line 4");
  CHECK(csv_refusal("layer,expert,load,step\n0,0,1,0\n\n0,0,1,0\n") ==
        "expected one line for step 0, layer 0, expert 0, got line 2 and line 4");
  // As in a model whose first three layers are dense.
  npy::array<std::int64_t> const dense{{1, 5, 2}, {0, 0, 0, 0, 0, 0, 1, 0, 0, 2}};
  for (char const* const columns :
       {"layer,expert,load\n", "layer_id,expert_id,count\n", "layer,expert_id,load\n"}) {
    auto const got = loads_in<std::int64_t>(columns + std::string("3,0,1\n4,1,2\n"), "f.csv");
    CHECK(got.shape == dense.shape);
    CHECK(got.values == dense.values);
  }
  CHECK(csv_refusal("layer,expert,count,load\n3,0,1,1\n") ==
        "expected the column names layer, expert, load and perhaps step, each once, got 'load' "
        "twice in line 1");
  CHECK(csv_refusal("layer,expert,load,step\n0,0,1,0\n0,0,1,2\n") ==
        "expected a line for every step from 0 to 2, got none for step 1");
}

TEST_CASE("loads: a short file cannot demand much memory") {
  auto const table = [](std::string const& lines) {
    return csv_refusal("step,layer,expert,load\n" + lines);
  };
  CHECK(table("0,2147483647,0,1\n") ==
        "expected at least one line for every 1024 loads, got 1 for shape (1, 2147483648, 1)");
  CHECK(table("2147483647,0,0,1\n") ==
        "expected a line for every step from 0 to 2147483647, got none for step 0");
  CHECK(table("0,0,1023,1\n") == "accepted");
  CHECK(table("0,0,1024,1\n") ==
        "expected at least one line for every 1024 loads, got 1 for shape (1, 1, 1025)");
  // Every step and every layer has a line, but few have both.
  std::string lines;
  for (int i = 0; i < 5000; ++i) {
    lines += "0," + std::to_string(i) + ",0,1\n" + std::to_string(i + 1) + ",0,0,1\n";
  }
  CHECK(table(lines) ==
        "expected at least one line for every 1024 loads, got 10000 for shape (5001, 5000, 1)");
}

TEST_CASE("loads: shapes of .npy files") {
  std::string const shape = "expected shape (layers, experts) or (steps, layers, experts), got ";
  CHECK(npy_refusal<std::int32_t>({4}, {1, 2, 3, 4}) == shape + "(4,)");
  CHECK(npy_refusal<std::int32_t>({1, 1, 2, 2}, {1, 2, 3, 4}) == shape + "(1, 1, 2, 2)");
  CHECK(npy_refusal<std::int32_t>({}, {1}) == shape + "()");
  CHECK(npy_refusal<std::int32_t>({2, 0}, {}) == "expected no empty dimension, got shape (2, 0)");
}

TEST_CASE("loads: every value of every step is checked") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr std::int64_t limit = std::int64_t{1} << 47;
  std::string const range = "expected loads from 0 to below 2^47, got ";
  CHECK(npy_refusal<std::int64_t>({2, 2}, {1, 2, 3, -4}) == range + "-4 in layer 1, expert 1");
  // Negative in one step, positive in the sum.
  CHECK(npy_refusal<std::int32_t>({2, 1, 2}, {9, 9, 9, -4}) ==
        range + "-4 in step 1, layer 0, expert 1");
  CHECK(npy_refusal<double>({2, 2}, {1, 2, nan, 4}) == range + "NaN in layer 1, expert 0");
  CHECK(npy_refusal<double>({2, 1, 2}, {1, 2, -nan, 4}) ==
        range + "NaN in step 1, layer 0, expert 0");
  CHECK(npy_refusal<double>({1, 2}, {1, infinity}) == range + "inf in layer 0, expert 1");
  CHECK(npy_refusal<double>({1, 2}, {1, -infinity}) == range + "-inf in layer 0, expert 1");
  CHECK(npy_refusal<double>({1, 2}, {1, 1e30}) == range + "1e+30 in layer 0, expert 1");
  CHECK(npy_refusal<double>({1, 2}, {1, -0.5}) == range + "-0.5 in layer 0, expert 1");
  CHECK(npy_refusal<std::int64_t>({1, 1}, {limit}) ==
        range + "140737488355328 in layer 0, expert 0");
  CHECK(npy_refusal<double>({1, 1}, {static_cast<double>(limit)}) ==
        range + "140737488355328 in layer 0, expert 0");
  CHECK(npy_refusal<std::int64_t>({1, 1}, {limit - 1}) == "accepted");
  CHECK(npy_refusal<std::int64_t>({1, 1}, {std::numeric_limits<std::int64_t>::min()}) ==
        range + "-9223372036854775808 in layer 0, expert 0");
  CHECK(counts_refusal("[[[1, 2]], [[3, -4]]]") == range + "-4 in step 1, layer 0, expert 1");
  CHECK(csv_refusal("1,2\n3,-4\n") == range + "-4 in layer 1, expert 1");
}

TEST_CASE("loads: the total of a layer is checked, over all steps") {
  constexpr std::int64_t half = std::int64_t{1} << 46;
  constexpr std::int64_t quarter = std::int64_t{1} << 45;
  CHECK(npy_refusal<std::int64_t>({2, 2}, {1, 1, half, half}) ==
        "expected a total below 2^47 per layer, got at least 140737488355328 in layer 1");
  CHECK(npy_refusal<std::int64_t>({2, 2}, {half, half - 1, half, half - 1}) == "accepted");
  CHECK(npy_refusal<std::int64_t>({2, 2, 2}, {1, 1, quarter, quarter, 1, 1, quarter, quarter}) ==
        "expected a total below 2^47 per layer over all steps, got at least 140737488355328 in "
        "layer 1");
  constexpr auto floating = static_cast<double>(half);
  CHECK(npy_refusal<double>({1, 3}, {floating, floating, 1}) ==
        "expected a total below 2^47 per layer, got at least 140737488355328 in layer 0");
}

TEST_CASE("loads: arrays that look transposed are refused") {
  // Four experts, five layers of ten tokens.
  std::vector<std::int64_t> const transposed{4, 1, 7, 9, 2,  //
                                             3, 4, 0, 1, 2,  //
                                             2, 3, 3, 0, 3,  //
                                             1, 2, 0, 0, 3};
  std::string const message =
      "expected shape (layers, experts), got (4, 5), whose columns and not rows have equal totals: "
      "it looks transposed; --trust-shape takes it as it is";
  CHECK(npy_refusal<std::int64_t>({4, 5}, transposed) == message);
  CHECK(npy_refusal<std::int64_t>({1, 4, 5}, transposed) == message);
  CHECK(npy_refusal<double>({4, 5}, doubles(transposed.begin(), transposed.end())) == message);
  CHECK(csv_refusal("4,1,7,9\n3,4,0,1\n2,3,3,0\n1,2,0,0\n") ==
        "expected shape (layers, experts), got (4, 4), whose columns and not rows have equal "
        "totals: it looks transposed; --trust-shape takes it as it is");

  // The first layer is a dense one.
  CHECK(npy_refusal<std::int64_t>({4, 5}, {0, 4, 1, 7, 9,  //
                                           0, 3, 4, 0, 1,  //
                                           0, 2, 3, 3, 0,  //
                                           0, 1, 2, 0, 0}) == message);

  // Averages: equal but for rounding.
  std::vector<float> averages;
  for (std::int64_t const load : transposed) {
    averages.push_back(static_cast<float>(load) / 3);
  }
  CHECK(npy_refusal<float>({4, 5}, averages) == message);

  // Several steps, the first without tokens.
  integers steps(20, 0);
  steps.insert(steps.end(), transposed.begin(), transposed.end());
  CHECK(npy_refusal<std::int64_t>({2, 4, 5}, steps) ==
        "expected shape (steps, layers, experts), got (2, 4, 5), whose columns and not rows have "
        "equal totals: it looks transposed; --trust-shape takes it as it is");
}

TEST_CASE("loads: arrays that only resemble a transposed one are accepted") {
  // The right way round.
  CHECK(npy_refusal<std::int64_t>({5, 4}, {4, 3, 2, 1,  //
                                           1, 4, 3, 2,  //
                                           7, 0, 3, 0,  //
                                           9, 1, 0, 0,  //
                                           2, 2, 3, 3}) == "accepted");
  // No tokens at all; equal loads; equal loads within every layer.
  CHECK(npy_refusal<std::int64_t>({4, 4}, integers(16, 0)) == "accepted");
  CHECK(npy_refusal<std::int64_t>({4, 4}, integers(16, 7)) == "accepted");
  CHECK(npy_refusal<std::int64_t>({4, 4}, {1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 0, 0, 0, 0}) ==
        "accepted");
  CHECK(npy_refusal<double>({4, 4}, {.1, .1, .1, .1, .7, .7, .7, .7, 3, 3, 3, 3, 0, 0, 0, 0}) ==
        "accepted");
  // Rows and columns all with the same total.
  CHECK(npy_refusal<std::int64_t>({4, 4}, {1, 2, 3, 4, 2, 3, 4, 1, 3, 4, 1, 2, 4, 1, 2, 3}) ==
        "accepted");
  // The same, after a dense layer.
  CHECK(npy_refusal<std::int64_t>({5, 4}, {0, 0, 0, 0,  //
                                           1, 2, 3, 4,  //
                                           2, 3, 4, 1,  //
                                           3, 4, 1, 2,  //
                                           4, 1, 2, 3}) == "accepted");
  // Too few rows or columns to tell it from chance.
  CHECK(npy_refusal<std::int64_t>({3, 4}, {4, 1, 7, 9, 3, 4, 0, 1, 3, 5, 3, 0}) == "accepted");
  CHECK(npy_refusal<std::int64_t>({4, 3}, {4, 1, 7, 3, 4, 0, 2, 3, 3, 1, 2, 0}) == "accepted");
  CHECK(npy_refusal<std::int64_t>({4, 4}, {0, 4, 1, 7, 0, 3, 4, 0, 0, 2, 3, 3, 0, 1, 2, 0}) ==
        "accepted");
  // One column is off by one token.
  CHECK(npy_refusal<std::int64_t>({4, 4}, {4, 1, 7, 9, 3, 4, 0, 1, 2, 3, 3, 0, 1, 1, 0, 0}) ==
        "accepted");
  // Only one of two steps has columns with the same total.
  integers steps{4, 1, 7, 9, 3, 4, 0, 1, 2, 3, 3, 0, 1, 2, 0, 0};
  steps.insert(steps.end(), {4, 3, 2, 1, 1, 4, 3, 2, 7, 0, 3, 0, 9, 1, 0, 0});
  CHECK(npy_refusal<std::int64_t>({2, 4, 4}, steps) == "accepted");
}

TEST_CASE_TEMPLATE("loads: layers are selected in every step, and steps added up", T, std::int64_t,
                   double) {
  // Load (s, l, e) of a [2, 3, 2] array is 6 s + 2 l + e.
  npy::array<T> const loads{{2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}};
  struct {
    index_t first;
    index_t last;
    std::vector<T> expected;
    std::vector<T> sums;
  } const selections[] = {{1, 2, {2, 3, 8, 9}, {10, 12}},
                          {1, 3, {2, 3, 4, 5, 8, 9, 10, 11}, {10, 12, 14, 16}},
                          {0, 3, loads.values, {6, 8, 10, 12, 14, 16}}};
  for (auto const& [first, last, expected, sums] : selections) {
    auto file = loads_tests::file_of("x.npy", loads);
    auto const totals = examples::check_loads(file, first, last);
    auto const selected = std::get<npy::array<T>>(loads_tests::array_of(file));
    CHECK(selected.shape == shape_t{2, last - first, 2});
    CHECK(selected.values == expected);
    auto const got = std::get<npy::array<T>>(totals.loads);
    CHECK(got.shape == shape_t{last - first, 2});
    CHECK(got.values == sums);
  }
  auto file = loads_tests::file_of("x.npy", loads);
  for (auto const& [first, end] : {std::pair{-1, 2}, {0, 4}, {2, 2}, {2, 1}, {3, 4}}) {
    CHECK_THROWS_WITH_AS(file.select_layers(first, end),
                         ("select_layers: expected 0 <= first < last <= 3, got " +
                          std::to_string(first) + " and " + std::to_string(end))
                             .c_str(),
                         std::out_of_range);
  }
}

TEST_CASE("loads: every form of file gives the same steps, a few at a time") {
  // More than is read at once, and more than stays in memory.
  constexpr index_t steps = 350;
  constexpr index_t layers = 12;
  constexpr index_t experts = 1024;
  npy::array<std::int64_t> loads{{steps, layers, experts}, {}};
  std::uint32_t state = 7;
  for (index_t i = 0; i < steps * layers * experts; ++i) {
    state = state * 1664525U + 1013904223U;
    loads.values.push_back(state >> 28U);
  }
  auto const same = [&](examples::load_file const& file) {
    index_t next = 0;
    bool equal = true;
    file.for_each_step<std::int64_t>([&](index_t step, auto const& found) {
      equal = equal && step == next++ &&
              std::equal(found.data, found.data + layers * experts,
                         loads.values.begin() + step * layers * experts);
    });
    return equal && next == steps;
  };
  CHECK(same(loads_tests::file_of("a.npy", loads)));
  std::string text;
  for (index_t row = 0; row < steps * layers; ++row) {
    text += row > 0 && row % layers == 0 ? "\n" : "";
    for (index_t e = 0; e < experts; ++e) {
      text += (e > 0 ? "," : "") +
              std::to_string(loads.values[static_cast<std::size_t>(row * experts + e)]);
    }
    text += '\n';
  }
  CHECK(same(examples::load_file::of_bytes(text, "a.csv")));
  // Fortran order: the same bytes with the dimensions reversed.
  npy::array<std::int64_t> turned{{experts, layers, steps}, loads.values};
  for (index_t i = 0; i < steps * layers * experts; ++i) {
    index_t const step = i / (layers * experts);
    index_t const layer = i / experts % layers;
    turned.values[static_cast<std::size_t>((i % experts * layers + layer) * steps + step)] =
        loads.values[static_cast<std::size_t>(i)];
  }
  std::ostringstream out;
  npy::write<std::int64_t>(out, turned.shape, turned.values);
  std::string bytes = out.str();
  bytes.replace(bytes.find("False"), 5, "True ");
  bytes.replace(bytes.find("(1024, 12, 350)"), 15, "(350, 12, 1024)");
  CHECK(same(examples::load_file::of_bytes(bytes, "a.npy")));
}

TEST_CASE("loads: lines of a table in any order of the steps, some steps at a time") {
  constexpr int steps = 9;  // with 600 layers of 1024 experts, six steps at a time
  std::string text = "load,step,layer,expert\n";
  for (int layer = 0; layer < 600; ++layer) {
    for (int step = 0; step < steps; ++step) {
      text += std::to_string(1 + layer % 3 + step) + "," + std::to_string(step) + "," +
              std::to_string(layer) + ",1023\n";
    }
  }
  auto const loads = loads_in<std::int64_t>(text, "a.csv");
  REQUIRE(loads.shape == shape_t{steps, 600, 1024});
  for (std::size_t row = 0; row < steps * 600; ++row) {
    CHECK(loads.values[row * 1024 + 1023] ==
          static_cast<std::int64_t>(1 + row % 600 % 3 + row / 600));
  }
}

TEST_CASE("loads: steps without load are found, and left out") {
  // The second layer has load only in the last step, the third in none.
  npy::array<std::int64_t> const loads{
      {4, 3, 2}, {0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 4, 5, 6, 0, 0}};
  auto file = loads_tests::file_of("x.npy", loads);
  auto const totals = examples::check_loads(file);
  CHECK(totals.empty_steps == 2);
  CHECK(totals.filled == std::vector<index_t>{2, 1, 0});
  auto const filled = std::get<npy::array<std::int64_t>>(examples::filled_steps(file, totals));
  CHECK(filled.shape == shape_t{2, 3, 2});
  CHECK(filled.values == integers{1, 2, 0, 0, 0, 0, 3, 4, 5, 6, 0, 0});
  auto const last =
      std::get<npy::array<std::int64_t>>(examples::last_filled_steps(file, totals, 2));
  CHECK(last.shape == shape_t{2, 3, 2});
  CHECK(last.values == integers{1, 2, 0, 0, 0, 0, 3, 4, 5, 6, 0, 0});
  auto const one = std::get<npy::array<std::int64_t>>(examples::last_filled_steps(file, totals, 1));
  CHECK(one.values == integers{3, 4, 5, 6, 0, 0});
  auto without = loads_tests::file_of("x.npy", npy::array<std::int64_t>{{2, 1, 2}, {0, 0, 0, 0}});
  auto const none = examples::check_loads(without);
  CHECK(none.empty_steps == 2);
  CHECK(std::get<npy::array<std::int64_t>>(examples::filled_steps(without, none)).values ==
        integers{0, 0});
}

TEST_CASE("loads: top-k expert ids are refused") {
  // [tokens, layers, k]: k different experts of 64.
  auto const ids = [](index_t tokens, index_t layers, index_t k) {
    std::vector<std::int64_t> values;
    for (index_t row = 0; row < tokens * layers; ++row) {
      for (index_t i = 0; i < k; ++i) {
        values.push_back((row * row * 7 + i * 11) % 64);
      }
    }
    return values;
  };
  CHECK(npy_refusal<std::int64_t>({16, 26, 6}, ids(16, 26, 6)) ==
        "expected shape (steps, layers, experts), got (16, 26, 6), whose layers have "
        "different totals in a step and whose rows repeat no number: they look like top-k expert "
        "ids (tokens, layers, k); count how often each expert occurs; --trust-shape takes it as it "
        "is");
  // Rows of a buffer of zeros that were never written: two dense layers, and ten of the tokens.
  auto unwritten = ids(32, 26, 6);
  for (std::size_t i = 0; i < unwritten.size(); ++i) {
    bool const dense = i / 6 % 26 < 2;
    bool const not_forwarded = i / 6 / 26 >= 22;
    unwritten[i] = dense || not_forwarded ? 0 : unwritten[i];
  }
  CHECK(npy_refusal<std::int64_t>({32, 26, 6}, unwritten).find("top-k expert ids") !=
        std::string::npos);
  CHECK(npy_refusal<std::int64_t>({32, 26, 6}, std::vector<std::int64_t>(32 * 26 * 6)) ==
        "accepted");
  auto padded = ids(16, 26, 6);
  padded[3] = -1;
  CHECK(npy_refusal<std::int64_t>({16, 26, 6}, padded) ==
        "expected loads from 0 to below 2^47, got -1 in step 0, layer 0, expert 3, as top-k expert "
        "ids mark what is not routed; count how often each expert occurs");
  // Loads with equal totals in every layer, and no repeated number in a row.
  std::vector<std::int64_t> loads;
  for (std::int64_t row = 0; row < 16 * 26; ++row) {
    std::int64_t const shift = row % 5;
    loads.insert(loads.end(), {10 + shift, 40 - shift, 90, 200 + shift, 300 - shift, 500});
  }
  CHECK(npy_refusal<std::int64_t>({16, 26, 6}, loads) == "accepted");
  // Layers with different totals, but with loads that are too large for expert ids.
  for (std::size_t i = 5; i < loads.size(); i += 6) {
    loads[i] = 5000 + static_cast<std::int64_t>(i % 7);
  }
  CHECK(npy_refusal<std::int64_t>({16, 26, 6}, loads) == "accepted");
}

TEST_CASE("loads: CSV as other programs write it: an index column, quotes") {
  integers const expected{1, 2, 3, 4};
  for (char const* const text :
       {",0,1\n0,1,2\n1,3,4\n", "\"\",\"0\",\"1\"\n\"0\",\"1\",\"2\"\n\"1\",\"3\",\"4\"\n",
        ",hot,cold\nfirst,1,2\nsecond,3,4\n", "layer,0,1\n0,1,2\n1,3,4\n",
        "Unnamed: 0,0,1\n0,1,2\n1,3,4", "\"1\",2\n3,\" 4 \"\n",
        ",layer,expert,load\n0,0,0,1\n1,0,1,2\n2,1,0,3\n3,1,1,4\n",
        "index,\"layer\",\"expert\",\"load\"\n0,\"0\",\"0\",\"1\"\n1,0,1,2\n2,1,0,3\n3,1,1,4\n"}) {
    CAPTURE(text);
    auto const loads = loads_in<std::int64_t>(text, "f.csv");
    CHECK(loads.shape == shape_t{1, 2, 2});
    CHECK(loads.values == expected);
  }
  CHECK(csv_refusal(",1,0\n0,1,2\n") ==
        "expected the experts 0, 1, 2, ... in order as column names, got ',1,0' in line 1");
  CHECK(csv_refusal(",0,1\n") == "expected lines of loads after the column names, got none");
  CHECK(csv_refusal("\"1,2\",3\n").find("got '1,2' in line 1, field 1") != std::string::npos);
  CHECK(csv_refusal("\"1,2\n").find("got '\"1' in line 1, field 1") != std::string::npos);
}

TEST_CASE("loads: a key or column by another name") {
  integers const expected{1, 2, 3, 4};
  CHECK(loads_in<std::int64_t>(R"({"logical_count": [[9]], "counts": [[1, 2], [3, 4]]})", "f.json",
                               "counts")
            .values == expected);
  CHECK(loads_in<std::int64_t>(
            "layer,expert,load,decode,ms\n0,0,9,1,x\n0,1,9,2,\n1,0,9,3,\n1,1,9,4,\n", "f.csv",
            "decode")
            .values == expected);
  CHECK(refusal(R"({"logical_count": [[9]]})", "f.json", "counts") ==
        "expected the key counts, got 'logical_count'");
  CHECK(refusal("layer,expert,load\n0,0,9\n", "f.csv", "decode") ==
        "expected the column names layer, expert, decode and perhaps step, each once, got no "
        "'decode' in line 1");
  CHECK(refusal("1,2\n", "f.csv", "decode") ==
        "expected a line of column names with 'decode', as --key says, got other fields in line 1");
  CHECK(refusal(npy_file<std::int64_t>({1, 1}, {1}), "f.npy", "decode") ==
        "expected JSON or CSV, which have keys or columns, got a .npy file with --key");
}

TEST_CASE("loads: files and the standard input are read") {
  auto const file = (std::filesystem::temp_directory_path() / "plimsoll loads.test.csv").string();
  std::ofstream(file, std::ios::binary) << "1,2\n3,4\n";
  std::uint64_t done = 0;
  std::uint64_t total = 0;
  auto const loads = read_loads(file, [&](std::uint64_t now, std::uint64_t all) {
    done = now;
    total = all;
  });
  std::filesystem::remove(file);
  CHECK(std::get<npy::array<std::int64_t>>(loads).values == integers{1, 2, 3, 4});
  CHECK(done == 8);
  CHECK(total == 8);
  CHECK_THROWS_WITH_AS(static_cast<void>(read_loads(file)),
                       (file + ": expected a readable file, got No such file or directory").c_str(),
                       examples::file_error);

  std::istringstream input(counts("[[5, 6]]"));
  auto* const before = std::cin.rdbuf(input.rdbuf());
  auto const from_input = read_loads("-");
  std::cin.rdbuf(before);
  CHECK(std::get<npy::array<std::int64_t>>(from_input).values == integers{5, 6});
}

TEST_CASE("loads: every cut of a file is refused or read, never worse") {
  for (std::string const& text :
       {counts("[[1, 2.5], [3, 4]]"), std::string("1,2\n3,4\n\n5,6\n7,8\n"),
        std::string("step,layer,expert,load\n0,0,0,1\n0,1,1,2\n")}) {
    for (std::size_t length = 0; length <= text.size(); ++length) {
      for (char const* const file : {"f.json", "f.csv", "-"}) {
        static_cast<void>(refusal(text.substr(0, length), file));
      }
    }
  }
}

TEST_CASE("loads: steps and layers that look swapped are refused") {
  // [4 layers, 5 steps, 2 experts]: every layer has the totals 3, 5, 7, 9, 11 in the five steps.
  std::vector<std::int64_t> swapped;
  for (std::int64_t layer = 0; layer < 4; ++layer) {
    for (std::int64_t step = 0; step < 5; ++step) {
      swapped.push_back(layer % 3);
      swapped.push_back(2 * step + 3 - layer % 3);
    }
  }
  CHECK(npy_refusal<std::int64_t>({4, 5, 2}, swapped) ==
        "expected shape (steps, layers, experts), got (4, 5, 2), whose layers and not steps have "
        "equal totals: steps and layers look swapped; --trust-shape takes it as it is");
  // The same as [steps, layers, experts] of four layers, in the right order.
  std::vector<std::int64_t> right;
  for (std::size_t step = 0; step < 5; ++step) {
    for (std::size_t layer = 0; layer < 4; ++layer) {
      right.push_back(swapped[(layer * 5 + step) * 2]);
      right.push_back(swapped[(layer * 5 + step) * 2 + 1]);
    }
  }
  CHECK(npy_refusal<std::int64_t>({5, 4, 2}, right) == "accepted");
  // Steps of equal size, in which one layer has another total than the rest.
  std::vector<std::int64_t> kinds;
  for (std::int64_t i = 0; i < 5 * 4; ++i) {
    kinds.push_back(i % 3);
    kinds.push_back((i % 4 == 3 ? 9 : 5) - i % 3);
  }
  CHECK(npy_refusal<std::int64_t>({5, 4, 2}, kinds) == "accepted");
}

TEST_CASE("loads: loads of slots are refused, and read as such") {
  // [3 layers, 2 ranks, 3 slots of a rank]: 12 tokens in every layer.
  integers const slots{1, 2, 4, 5, 0, 0, 3, 3, 3, 1, 1, 1, 2, 0, 0, 0, 8, 2};
  std::string const message =
      "expected shape (steps, layers, experts), got (3, 2, 3), whose steps have equal totals and "
      "whose "
      "layers have not: they look like loads of slots (layers, ranks, slots of a rank), which "
      "--slot-loads reads with the plan in use; --trust-shape takes it as it is";
  CHECK(npy_refusal<std::int64_t>({3, 2, 3}, slots) == message);
  CHECK(npy_refusal<double>({3, 2, 3}, doubles(slots.begin(), slots.end())) == message);
  // A layer without load says nothing.
  integers dense(6, 0);
  dense.insert(dense.end(), slots.begin(), slots.end());
  CHECK(npy_refusal<std::int64_t>({4, 2, 3}, dense).find("look like loads of slots") !=
        std::string::npos);
  // One layer is no proof, and neither is one whose ranks have equal totals, nor layers of two
  // kinds that have the same totals in all steps.
  CHECK(npy_refusal<std::int64_t>({1, 2, 3}, {slots.begin(), slots.begin() + 6}) == "accepted");
  CHECK(npy_refusal<std::int64_t>({2, 2, 3}, {1, 2, 4, 5, 0, 0, 2, 2, 2, 1, 1, 4}) == "accepted");
  CHECK(npy_refusal<std::int64_t>({2, 2, 3}, {1, 2, 4, 5, 0, 0, 3, 3, 1, 1, 3, 1}) == "accepted");
  // Other totals.
  integers other = slots;
  ++other.back();
  CHECK(npy_refusal<std::int64_t>({3, 2, 3}, other) == "accepted");

  auto const file = [&](shape_t const& shape) {
    return loads_tests::file_of<std::int64_t>("slots.npy", {shape, slots});
  };
  auto trusted = file({3, 2, 3});
  CHECK_NOTHROW(
      static_cast<void>(examples::check_loads(trusted, 0, 2, examples::shape_rule::trusted)));
}

TEST_CASE("loads: those of slots are added up by the map in use") {
  integers const slots{1, 2, 4, 5, 0, 0, 3, 3, 3, 1, 1, 1};
  examples::plan in_use(2, 3, 2, 6);
  in_use.physical_to_logical = {0, 1, 2, 0, -1, 2, 2, 1, 0, 0, 0, 1};
  auto const save = [](shape_t const& shape, auto const& values, std::string const& name) {
    std::ofstream out(name, std::ios::binary);
    npy::write<typename std::decay_t<decltype(values)>::value_type>(out, shape, values);
  };
  auto const added = [&](shape_t const& shape, auto const& values) {
    save(shape, values, "slot_loads_test.npy");
    auto file = examples::load_file::open("slot_loads_test.npy", {}, {}, examples::loads_of::slots);
    file.join_ranks(in_use.ranks, in_use.slots);
    return loads_tests::array_of(examples::expert_loads(file, in_use));
  };
  using whole = npy::array<std::int64_t>;
  integers const expected{6, 2, 4, 5, 4, 3};
  for (shape_t const& shape : {shape_t{2, 6}, {1, 2, 6}, {2, 2, 3}, {1, 2, 2, 3}}) {
    auto const got = std::get<whole>(added(shape, slots));
    CHECK(got.shape == shape_t{1, 2, 3});
    CHECK(got.values == expected);
  }
  integers twice = slots;
  twice.insert(twice.end(), slots.begin(), slots.end());
  for (shape_t const& shape : {shape_t{2, 2, 6}, {2, 2, 2, 3}}) {
    CHECK(std::get<whole>(added(shape, twice)).shape == shape_t{2, 2, 3});
  }
  doubles halves;
  for (auto const load : slots) {
    halves.push_back(static_cast<double>(load) / 2);
  }
  CHECK(std::get<npy::array<double>>(added({2, 6}, halves)).values ==
        doubles{3, 1, 2, 2.5, 2, 1.5});

  auto const refused = [&](shape_t const& shape, auto const& values) -> std::string {
    try {
      static_cast<void>(added(shape, values));
    } catch (examples::file_error const& e) {
      return "expected " + e.expected() + ", got " + e.got();
    }
    return "accepted";
  };
  integers in_empty = slots;
  in_empty[4] = 1;
  CHECK(
      refused({2, 6}, in_empty) ==
      "expected no tokens in slots that are empty in the plan in use, got some in step 0, layer 0, "
      "slot 4");
  CHECK(refused({3, 4}, slots) ==
        "expected loads of the 6 slots of a layer of the plan in use, on 2 ranks, got (1, 3, 4) as "
        "(steps, layers, slots)");
  CHECK(refused({12}, slots) ==
        "expected shape (layers, slots), (steps, layers, slots) or either with (ranks, slots of a "
        "rank) in place of slots, got (12,)");
  in_empty[4] = -1;
  save({2, 6}, in_empty, "slot_loads_test.npy");
  auto file = examples::load_file::open("slot_loads_test.npy", {}, {}, examples::loads_of::slots);
  CHECK_THROWS_WITH(
      static_cast<void>(examples::check_loads(file, 0, 2, examples::shape_rule::trusted)),
      doctest::Contains("layer 0, slot 4"));
  std::filesystem::remove("slot_loads_test.npy");
}

TEST_CASE("loads: an archive of PyTorch or NumPy under another name") {
  for (char const* file : {"a.npy", "a.json", "a.csv", "-"}) {
    CHECK(refusal(std::string("PK\x03\x04") + "rest", file)
              .starts_with("expected loads as .npy, JSON or CSV, got an archive, perhaps a file of "
                           "PyTorch, which read_recordings.py "));
  }
}
