// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads and writes NumPy's `.npy` files: one array of booleans, integers or floats.
///
/// Reads format versions 1, 2 and 3, little and big endian, C and Fortran order, any rank.
/// `read` always returns the values in C order, booleans and integers as `std::int64_t` and floats
/// as `double`, or throws `npy::error`. It compares the length that the header gives with the size
/// of the file before it allocates memory.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "input_file.hpp"

namespace examples::npy {

/// A file that cannot be read as an array.
using error = file_error;

/// Values in C order (the last index varies fastest).
template <class T>
struct array {
  std::vector<std::int64_t> shape;
  std::vector<T> values;
};

using any_array = std::variant<array<std::int64_t>, array<double>>;

/// Writes a shape as Python does: `()`, `(5,)`, `(2, 3)`.
[[nodiscard]] inline std::string to_string(std::span<std::int64_t const> shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) {
      text += ", ";
    }
    text += std::to_string(shape[i]);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

namespace detail {

struct dtype {
  std::string name;  // as in the file, such as '<i4'
  char kind = 'i';   // b, i, u or f
  std::size_t size = 1;
  bool big_endian = false;
};

struct header {
  dtype type;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
};

[[nodiscard]] inline dtype parse_dtype(std::string_view text, std::string const& file) {
  constexpr std::string_view known[] = {"b1", "i1", "i2", "i4", "i8", "u1",
                                        "u2", "u4", "u8", "f2", "f4", "f8"};
  constexpr std::string_view orders = "<>=|";
  if (text.size() == 3 && orders.find(text[0]) != std::string_view::npos) {
    for (std::string_view const name : known) {
      auto const size = static_cast<std::size_t>(name[1] - '0');
      // '|' means that the byte order does not matter, which holds only for single bytes.
      if (text.substr(1) != name || (text[0] == '|' && size > 1)) {
        continue;
      }
      bool const native_big = std::endian::native == std::endian::big;
      bool const big = text[0] == '>' || (text[0] == '=' && native_big);
      return {std::string(text), name[0], size, big};
    }
  }
  throw error(file, "a dtype of b1, i1, i2, i4, i8, u1, u2, u4, u8, f2, f4 or f8", in_quotes(text));
}

/// Reads the header's Python dictionary:
/// `{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }`, keys in any order.
class header_parser {
 public:
  header_parser(std::string_view text, std::string const& file) : text_(text), file_(file) {}

  [[nodiscard]] header parse() {
    expect('{', "'{' at the start of the header");
    while (!accept('}')) {
      entry();
      if (!accept(',')) {
        expect('}', "',' or '}' after a value of the header");
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) {
      fail("nothing but spaces after the header's '}'");
    }
    require(seen_descr_, "descr");
    require(seen_order_, "fortran_order");
    require(seen_shape_, "shape");
    return result_;
  }

 private:
  void entry() {
    std::string_view const key = string("a quoted key in the header");
    expect(':', "':' after a key of the header");
    if (key == "descr") {
      once(seen_descr_, key);
      skip_space();
      if (peek() == '[') {
        throw error(file_, "a plain dtype", "a structured dtype");
      }
      result_.type = parse_dtype(string("a quoted dtype in the header"), file_);
    } else if (key == "fortran_order") {
      once(seen_order_, key);
      result_.fortran_order = boolean();
    } else if (key == "shape") {
      once(seen_shape_, key);
      tuple();
    } else {
      throw error(file_, "the header keys descr, fortran_order and shape", in_quotes(key));
    }
  }

  void once(bool& seen, std::string_view key) const {
    if (seen) {
      throw error(file_, "each header key once", in_quotes(key) + " twice");
    }
    seen = true;
  }

  void require(bool seen, std::string const& key) const {
    if (!seen) {
      throw error(file_, "the header key '" + key + "'", "a header without it");
    }
  }

  bool boolean() {
    skip_space();
    for (std::string_view const word : {"True", "False"}) {
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return word == "True";
      }
    }
    fail("True or False for fortran_order");
  }

  void tuple() {
    expect('(', "'(' at the start of the shape");
    while (!accept(')')) {
      result_.shape.push_back(extent());
      if (!accept(',')) {
        // Python reads (5) as the number 5: a tuple of one needs its comma.
        if (result_.shape.size() == 1) {
          fail("',' after the first extent of the shape");
        }
        expect(')', "',' or ')' after an extent of the shape");
        break;
      }
    }
  }

  std::int64_t extent() {
    skip_space();
    std::size_t const start = at_;
    std::int64_t value = 0;
    constexpr std::int64_t limit = std::numeric_limits<std::int64_t>::max();
    bool overflow = false;
    for (; peek() >= '0' && peek() <= '9'; ++at_) {
      std::int64_t const digit = peek() - '0';
      overflow = overflow || value > (limit - digit) / 10;
      if (!overflow) {
        value = value * 10 + digit;
      }
    }
    if (at_ == start) {
      fail("a non-negative whole number in the shape");
    }
    if (overflow) {
      throw error(file_, "extents below 2^63", in_quotes(text_.substr(start, at_ - start)));
    }
    if (peek() == 'L') {  // Python 2 wrote its long integers as 5L
      ++at_;
    }
    return value;
  }

  std::string_view string(std::string const& expected) {
    skip_space();
    char const quote = peek();
    if (quote != '\'' && quote != '"') {
      fail(expected);
    }
    std::size_t const start = at_ + 1;
    std::size_t const end = text_.find(quote, start);
    if (end == std::string_view::npos) {
      fail("a closing quote in the header");
    }
    at_ = end + 1;
    return text_.substr(start, end - start);
  }

  void skip_space() {
    while (peek() == ' ' || (peek() >= '\t' && peek() <= '\r')) {
      ++at_;
    }
  }

  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool accept(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) {
      return false;
    }
    ++at_;
    return true;
  }

  void expect(char c, std::string const& expected) {
    if (!accept(c)) {
      fail(expected);
    }
  }

  [[noreturn]] void fail(std::string const& expected) const {
    std::string_view const rest = text_.substr(at_);
    throw error(file_, expected, rest.empty() ? "the end of the header" : in_quotes(rest));
  }

  std::string_view text_;
  std::string const& file_;
  std::size_t at_ = 0;
  header result_;
  bool seen_descr_ = false;
  bool seen_order_ = false;
  bool seen_shape_ = false;
};

[[nodiscard]] inline std::uint64_t unsigned_at(char const* bytes, std::size_t size, bool big) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) {
    auto const byte = static_cast<unsigned char>(bytes[big ? i : size - 1 - i]);
    value = (value << 8) | byte;
  }
  return value;
}

/// Converts the bits of an IEEE half; exact, since a double represents every half.
[[nodiscard]] inline double half_to_double(std::uint64_t bits) {
  int const exponent = static_cast<int>((bits >> 10) & 0x1f);
  auto const fraction = static_cast<double>(bits & 0x3ff);
  double magnitude = 0;
  if (exponent == 0x1f) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(fraction, -24);
  } else {
    magnitude = std::ldexp(fraction + 1024, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

[[nodiscard]] inline double to_double(std::uint64_t bits, dtype const& type) {
  if (type.size == 2) {
    return half_to_double(bits);
  }
  if (type.size == 4) {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  return std::bit_cast<double>(bits);
}

[[nodiscard]] inline std::int64_t to_integer(std::uint64_t bits, dtype const& type,
                                             std::string const& file) {
  if (type.kind == 'b') {
    return bits != 0 ? 1 : 0;
  }
  if (type.kind == 'u') {
    if (bits > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      throw error(file, "values below 2^63", std::to_string(bits));
    }
    return static_cast<std::int64_t>(bits);
  }
  // Moves the sign bit to the top and back down, which copies it into the bits between.
  auto const shift = static_cast<int>(64 - 8 * type.size);
  return static_cast<std::int64_t>(bits << shift) >> shift;
}

/// Returns the number of elements; throws for an empty dimension or too many elements for memory.
[[nodiscard]] inline std::size_t element_count(header const& head, std::string const& file) {
  for (std::int64_t const extent : head.shape) {
    if (extent == 0) {
      throw error(file, "no empty dimension", "shape " + to_string(head.shape));
    }
  }
  // In units of 8 bytes, the size of an element once it is read.
  constexpr std::uint64_t limit = std::numeric_limits<std::ptrdiff_t>::max() / 8;
  std::uint64_t count = 1;
  for (std::int64_t const extent : head.shape) {
    auto const factor = static_cast<std::uint64_t>(extent);
    if (factor > limit / count) {
      throw error(file, "fewer than 2^60 values", "shape " + to_string(head.shape));
    }
    count *= factor;
  }
  return static_cast<std::size_t>(count);
}

/// A header, and the position of the values after it.
struct located_header : header {
  std::size_t count = 0;      ///< number of values
  std::size_t values_at = 0;  ///< offset of the first value in the file
};

/// Returns the error for a file that has `size` bytes of values.
[[nodiscard]] inline error wrong_size(located_header const& head, std::uint64_t size,
                                      std::string const& file) {
  return {file,
          std::to_string(head.count) + " values of " + std::to_string(head.type.size) +
              " bytes for shape " + to_string(head.shape),
          std::to_string(size) + (size / head.type.size < head.count ? " bytes (truncated file)"
                                                                     : " bytes (trailing bytes)")};
}

/// Parses the header of a file of `size` bytes that begins with `bytes`; returns nothing if `bytes`
/// ends before the header does. Throws `error` if the size does not match the header.
[[nodiscard]] inline std::optional<located_header> locate_values(std::string_view bytes,
                                                                 std::uint64_t size,
                                                                 std::string const& file) {
  constexpr std::string_view magic = "\x93NUMPY";
  constexpr std::size_t prefix = 8;  // the magic, the major and the minor version
  bool const last = bytes.size() >= size;
  if (bytes.empty() && last) {
    throw error(file, "a .npy file", "an empty file");
  }
  if (bytes.size() < prefix && !last) {
    return {};
  }
  if (bytes.size() < prefix || bytes.substr(0, magic.size()) != magic) {
    throw error(file, "a .npy file, which starts with \\x93NUMPY", "a file that does not");
  }
  int const major = static_cast<unsigned char>(bytes[6]);
  int const minor = static_cast<unsigned char>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0) {
    throw error(file, ".npy version 1.0, 2.0 or 3.0",
                std::to_string(major) + "." + std::to_string(minor));
  }
  std::size_t const length_size = major == 1 ? 2 : 4;
  if (bytes.size() < prefix + length_size) {
    if (!last) {
      return {};
    }
    throw error(file, "the header's length after the version", "the end of the file");
  }
  std::uint64_t const length = unsigned_at(bytes.data() + prefix, length_size, false);
  std::string_view const rest = bytes.substr(prefix + length_size);
  if (rest.size() < length) {
    if (!last) {
      return {};
    }
    throw error(file, "a header of " + std::to_string(length) + " bytes",
                std::to_string(rest.size()) + " (truncated file)");
  }
  auto const head_size = static_cast<std::size_t>(length);
  located_header found{header_parser(rest.substr(0, head_size), file).parse()};
  found.values_at = prefix + length_size + head_size;
  found.count = element_count(found, file);
  std::uint64_t const values = size - found.values_at;
  // Divided instead of multiplied: count * size may exceed 64 bits, size / size may not.
  if (values / found.type.size != found.count || values % found.type.size != 0) {
    throw wrong_size(found, values, file);
  }
  return found;
}

/// Decodes values of a type one by one and calls `put` with `std::int64_t`, or with `double` for
/// floats.
template <class T, class Put>
void decode(std::string_view bytes, dtype const& type, std::string const& file, Put&& put) {
  for (std::size_t at = 0; at + type.size <= bytes.size(); at += type.size) {
    std::uint64_t const bits = unsigned_at(bytes.data() + at, type.size, type.big_endian);
    if constexpr (std::is_same_v<T, double>) {
      put(to_double(bits, type));
    } else {
      put(to_integer(bits, type, file));
    }
  }
}

/// Iterates over the elements in the order of the file and returns their places in C order.
class element_order {
 public:
  explicit element_order(header const& head)
      : shape_(head.shape), stride_(shape_.size(), 1), index_(shape_.size(), 0) {
    in_order_ = !head.fortran_order || shape_.size() < 2;
    for (std::size_t d = shape_.size(); d > 1; --d) {
      stride_[d - 2] = stride_[d - 1] * static_cast<std::size_t>(shape_[d - 1]);
    }
  }

  [[nodiscard]] std::size_t next() {
    std::size_t const place = place_;
    if (in_order_) {
      ++place_;
      return place;
    }
    for (std::size_t d = 0; d < shape_.size(); ++d) {  // the first index varies fastest
      place_ += stride_[d];
      if (++index_[d] < shape_[d]) {
        break;
      }
      place_ -= stride_[d] * static_cast<std::size_t>(shape_[d]);
      index_[d] = 0;
    }
    return place;
  }

 private:
  std::vector<std::int64_t> shape_;
  std::vector<std::size_t> stride_;
  std::vector<std::int64_t> index_;
  std::size_t place_ = 0;
  bool in_order_ = true;
};

/// Reads a file of `size` bytes in pieces. Values are decoded as they arrive, so that it holds
/// little more than the values in memory.
class piecewise_reader {
 public:
  piecewise_reader(std::string file, std::uint64_t size) : file_(std::move(file)), size_(size) {}

  void add(std::string_view piece) {
    if (waiting_.empty()) {
      waiting_ = piece.substr(take(piece));
    } else {
      waiting_ += piece;
      waiting_.erase(0, take(waiting_));
    }
  }

  [[nodiscard]] any_array finish() {
    size_ = taken_ + waiting_.size();  // a file may change while it is read
    if (!order_) {
      static_cast<void>(take(waiting_));  // throws, since no more bytes follow
    }
    if (decoded_ < head_.count || !waiting_.empty()) {
      throw wrong_size(head_, size_ - head_.values_at, file_);
    }
    return std::move(result_);
  }

 private:
  /// Reads as much of `bytes` as possible and returns the number of bytes read.
  [[nodiscard]] std::size_t take(std::string_view bytes) {
    std::size_t const of_header = order_ ? 0 : take_header(bytes);
    std::size_t const used = of_header + (order_ ? take_values(bytes.substr(of_header)) : 0);
    taken_ += used;
    return used;
  }

  /// Reads the header and returns its size; returns 0 if `bytes` ends before the header does.
  [[nodiscard]] std::size_t take_header(std::string_view bytes) {
    auto found = locate_values(bytes, size_, file_);
    if (!found) {
      return 0;
    }
    head_ = std::move(*found);
    order_.emplace(head_);
    if (head_.type.kind == 'f') {
      result_ = array<double>{head_.shape, std::vector<double>(head_.count)};
    } else {
      result_ = array<std::int64_t>{head_.shape, std::vector<std::int64_t>(head_.count)};
    }
    return head_.values_at;
  }

  [[nodiscard]] std::size_t take_values(std::string_view bytes) {
    std::size_t const size = head_.type.size;
    std::size_t const values = std::min(bytes.size() / size, head_.count - decoded_);
    std::visit(
        [&]<class T>(array<T>& to) {
          decode<T>(bytes.substr(0, values * size), head_.type, file_,
                    [&](T value) { to.values[order_->next()] = value; });
        },
        result_);
    decoded_ += values;
    return values * size;
  }

  std::string file_;
  std::uint64_t size_;
  std::string waiting_;  ///< beginning of an incomplete header or value
  std::uint64_t taken_ = 0;
  located_header head_;
  std::optional<element_order> order_;  ///< set once the header is read
  any_array result_;
  std::size_t decoded_ = 0;
};

}  // namespace detail

/// Reads the array in the bytes of a `.npy` file; `file` is the name for messages.
[[nodiscard]] inline any_array parse(std::string_view bytes, std::string const& file) {
  detail::piecewise_reader reader(file, bytes.size());
  reader.add(bytes);
  return reader.finish();
}

/// Reads a `.npy` file; holds little more than the values in memory.
[[nodiscard]] inline any_array read(std::string const& file,
                                    reading_progress const& progress = {}) {
  std::error_code no_size;
  auto const size = std::filesystem::file_size(file, no_size);
  if (no_size) {  // not a regular file
    return parse(read_bytes(file, progress), file);
  }
  detail::piecewise_reader reader(file, size);
  read_pieces(file, progress, [&](std::string_view piece) { reader.add(piece); });
  return reader.finish();
}

/// Element types that can be written.
template <class T>
concept writable = std::is_same_v<T, std::int32_t> || std::is_same_v<T, std::int64_t> ||
                   std::is_same_v<T, float> || std::is_same_v<T, double>;

/// Writes the header: version 1, C order, padded so that the values start at a multiple of 64
/// bytes.
template <writable T>
void write_header(std::ostream& out, std::span<std::int64_t const> shape) {
  std::string text = "{'descr': '<";
  text += std::is_floating_point_v<T> ? 'f' : 'i';
  text += std::to_string(sizeof(T)) + "', 'fortran_order': False, 'shape': " + to_string(shape);
  text += ", }";
  constexpr std::size_t prefix = 10;
  constexpr std::size_t alignment = 64;
  std::size_t const used = prefix + text.size() + 1;
  text.append((alignment - used % alignment) % alignment, ' ');
  text += '\n';
  if (text.size() > 0xffff) {
    throw std::length_error("npy::write_header: the shape is too long");
  }
  out.write("\x93NUMPY\x01\x00", 8);
  out.put(static_cast<char>(text.size() & 0xff));
  out.put(static_cast<char>(text.size() >> 8));
  out << text;
}

/// Appends values, little-endian on any machine.
template <writable T>
void write_values(std::ostream& out, std::span<T const> values) {
  using bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  for (T const value : values) {
    std::array<char, sizeof(T)> bytes{};
    auto rest = std::bit_cast<bits>(value);
    for (char& byte : bytes) {
      byte = static_cast<char>(rest & 0xff);
      rest >>= 8;
    }
    out.write(bytes.data(), bytes.size());
  }
}

/// Writes a whole array; `values` is in C order. Throws `std::invalid_argument` if the number of
/// values is not the product of the shape.
template <writable T>
void write(std::ostream& out, std::span<std::int64_t const> shape, std::span<T const> values) {
  std::size_t count = 1;
  for (std::int64_t const extent : shape) {
    count *= static_cast<std::size_t>(extent);
  }
  if (count != values.size()) {
    throw std::invalid_argument("npy::write: values: expected " + std::to_string(count) +
                                " for shape " + to_string(shape) + ", got " +
                                std::to_string(values.size()));
  }
  write_header<T>(out, shape);
  write_values(out, values);
}

}  // namespace examples::npy
