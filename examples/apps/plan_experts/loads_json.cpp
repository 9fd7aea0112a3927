// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loads_text.hpp"

namespace examples {
namespace {

using detail::float_numbers;
using detail::whole_numbers;

/// Extracts `logical_count` from a JSON text without building a tree of the rest: nlohmann::json
/// calls a function of this class for everything that it parses (SAX).
class json_reader {
 public:
  json_reader(byte_store const& text, std::size_t skipped, std::string const& key)
      : text_(text),
        skipped_(skipped),
        file_(text.name()),
        key_(key.empty() ? "logical_count" : key),
        numbers_(file_) {}

  [[nodiscard]] text_numbers read(reading_progress const& progress) {
    byte_reader bytes(text_, skipped_, progress);
    nlohmann::json::sax_parse(byte_iterator(*this, bytes), byte_iterator(), this);
    if (!found_) {
      fail_without_key();
    }
    return numbers_.take(extents_);
  }

  bool null() { return other("null"); }
  bool boolean(bool) { return other("a boolean"); }
  bool string(std::string const&) { return other("a string"); }
  bool binary(nlohmann::json::binary_t const&) { return other("binary data"); }

  bool number_integer(std::int64_t value) { return number(value); }
  bool number_unsigned(std::uint64_t value) {
    if (reading_ && value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      fail_beyond_int64(std::to_string(value));
    }
    return number(static_cast<std::int64_t>(value));
  }
  bool number_float(double value, std::string const& text) {
    if (reading_ && text.find_first_of(".eE") == std::string::npos) {
      fail_beyond_int64(text);
    }
    return number(value);
  }

  bool start_object(std::size_t) {
    if (depth_ > 0) {
      other("an object");
    }
    ++depth_;
    return true;
  }
  bool end_object() {
    --depth_;
    return true;
  }

  bool key(std::string const& name) {
    if (depth_ > 1) {
      return true;
    }
    if (name == key_) {
      if (found_) {
        throw file_error(file_, "the key " + key_ + " once", "it twice");
      }
      found_ = reading_ = true;
    } else {
      keys_.push_back(name);
    }
    return true;
  }

  bool start_array(std::size_t) {
    if (depth_ == 0) {
      other("an array");
    }
    if (reading_) {
      if (sizes_.size() == 3) {
        throw file_error(file_, "at most three nested arrays", "a fourth" + place());
      }
      if (sizes_.size() == leaf_) {
        throw file_error(file_, "a number, as at earlier positions", "an array" + place());
      }
      sizes_.push_back(0);
    }
    ++depth_;
    return true;
  }
  bool end_array() {
    --depth_;
    if (!reading_) {
      return true;
    }
    std::int64_t const size = sizes_.back();
    sizes_.pop_back();
    std::size_t const level = sizes_.size();
    if (size == 0) {
      throw file_error(file_, "no empty array", "one" + place());
    }
    if (extents_.size() <= level) {
      extents_.resize(level + 1, 0);
    }
    if (extents_[level] != 0 && extents_[level] != size) {
      throw file_error(
          file_, "as many values as in the arrays before (" + std::to_string(extents_[level]) + ")",
          std::to_string(size) + place());
    }
    extents_[level] = size;
    end_value();
    return true;
  }

  bool parse_error(std::size_t position, std::string const& number,
                   nlohmann::json::exception const& error) {
    constexpr int number_overflow = 406;
    if (error.id == number_overflow) {
      fail_at(position, float_numbers, in_quotes(number));
    }
    fail_at(position, "valid JSON",
            position > text_.size() - skipped_
                ? "the end of the file"
                : in_quotes(text_.text(skipped_ + position - 1, 1 << 8)));
  }

 private:
  /// Input iterator that passes the bytes to nlohmann::json.
  class byte_iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = char;
    using difference_type = std::ptrdiff_t;
    using pointer = char const*;
    using reference = char;

    byte_iterator() = default;
    byte_iterator(json_reader const& owner, byte_reader& bytes) : owner_(&owner), bytes_(&bytes) {}

    char operator*() const {
      auto const byte = static_cast<char>(bytes_->peek());
      if (byte == '\0') {  // nlohmann::json would take it for the end
        owner_->fail_at(static_cast<std::size_t>(position_) + 1, "valid JSON", "a NUL byte");
      }
      return byte;
    }
    byte_iterator& operator++() {
      bytes_->next();
      ++position_;
      return *this;
    }
    byte_iterator operator++(int) {
      auto const before = *this;
      ++*this;
      return before;
    }
    /// Tells whether both are at the end; the parser makes no other comparison.
    friend bool operator==(byte_iterator const& a, byte_iterator const& b) {
      return a.at_end() == b.at_end();
    }

   private:
    [[nodiscard]] bool at_end() const {
      return bytes_ == nullptr || bytes_->peek() == byte_reader::end;
    }

    json_reader const* owner_ = nullptr;
    byte_reader* bytes_ = nullptr;
    std::uint64_t position_ = 0;
  };

  template <class Number>
  bool number(Number value) {
    if (depth_ == 0) {
      return other("a number");
    }
    if (reading_) {
      if (leaf_.value_or(sizes_.size()) != sizes_.size()) {
        throw file_error(file_, "an array, as at earlier positions", "a number" + place());
      }
      leaf_ = sizes_.size();
      numbers_.add(value);
      end_value();
    }
    return true;
  }

  /// Handles any value that is not a number, except arrays and the outermost object.
  bool other(std::string const& what) const {
    if (depth_ == 0) {
      throw file_error(file_, "a JSON object with the key " + key_, what);
    }
    if (reading_) {
      throw file_error(file_, "nothing but numbers and arrays", what + place());
    }
    return true;
  }

  /// Reports an error at a position, which counts from 1.
  [[noreturn]] void fail_at(std::size_t position, std::string const& expected,
                            std::string const& got) const {
    std::uint64_t line = 1;
    std::uint64_t column = 1;
    byte_reader before(text_, skipped_, {});
    for (std::size_t i = 1; i < position && before.peek() != byte_reader::end; ++i) {
      bool const ends = before.peek() == '\n';
      line += ends ? 1 : 0;
      column = ends ? 1 : column + 1;
      before.next();
    }
    throw file_error(
        file_, expected,
        got + " in line " + std::to_string(line) + ", column " + std::to_string(column));
  }

  void end_value() {
    if (sizes_.empty()) {
      reading_ = false;
    } else {
      ++sizes_.back();
    }
  }

  /// Returns the position in the loads of the next value, or of the one that just ended.
  [[nodiscard]] std::string place() const {
    std::string text = " in " + key_;
    for (std::int64_t const index : sizes_) {
      text += "[" + std::to_string(index) + "]";
    }
    return text;
  }

  [[noreturn]] void fail_beyond_int64(std::string_view text) const {
    throw file_error(file_, whole_numbers, in_quotes(text) + place());
  }

  [[noreturn]] void fail_without_key() const {
    // Keys of the plans of SGLang, of plan_experts and of vllm-ascend.
    for (char const* const name :
         {"physical_to_logical_map", "physical_to_logical", "moe_layer_count"}) {
      if (std::find(keys_.begin(), keys_.end(), name) != keys_.end()) {
        throw file_error(file_, "loads, as the key " + key_,
                         "a plan (" + std::string(name) + "), which --plan reads");
      }
    }
    constexpr std::size_t most = 5;
    std::string names = keys_.empty() ? "none" : "";
    for (std::size_t i = 0; i < std::min(keys_.size(), most); ++i) {
      names += (i > 0 ? ", " : "") + in_quotes(keys_[i]);
    }
    throw file_error(file_, "the key " + key_, names + (keys_.size() > most ? " and more" : ""));
  }

  byte_store const& text_;
  std::size_t skipped_;
  std::string const& file_;
  std::string key_;
  std::size_t depth_ = 0;              ///< open objects and arrays
  bool found_ = false;                 ///< the key of the loads was found
  bool reading_ = false;               ///< its value is being read
  std::vector<std::int64_t> sizes_;    ///< sizes so far of the open arrays of that value
  std::vector<std::int64_t> extents_;  ///< sizes of the closed arrays, by depth
  std::optional<std::size_t> leaf_;    ///< number of arrays around a number
  detail::number_list numbers_;
  std::vector<std::string> keys_;
};

}  // namespace

text_numbers parse_json_loads(byte_store const& text, std::size_t skipped, std::string const& key,
                              reading_progress const& progress) {
  return json_reader(text, skipped, key).read(progress);
}

}  // namespace examples
