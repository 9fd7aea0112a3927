// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <plimsoll/types.hpp>

#include "loads_text.hpp"

namespace examples {
namespace {

using detail::float_numbers;
using detail::whole_numbers;
using plimsoll::index_t;

[[nodiscard]] std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r";
  std::size_t const first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

/// Calls `visit(i, field)` for every field of a line.
template <class Visit>
void for_each_field(std::string_view line, Visit&& visit) {
  std::size_t i = 0;
  for (;;) {
    std::size_t const end = line.find(',');
    visit(i++, trimmed(line.substr(0, end)));
    if (end == std::string_view::npos) {
      return;
    }
    line.remove_prefix(end + 1);
  }
}

class csv_reader {
 public:
  csv_reader(std::string_view text, std::string const& file) : rest_(text), file_(file) {}

  [[nodiscard]] npy::any_array read() {
    while (next_line() && line_.empty()) {
    }
    bool names = false;
    for_each_field(line_, [&](std::size_t, std::string_view field) {
      names = names || std::find(known.begin(), known.end(), field) != known.end();
    });
    return names ? read_table() : read_matrices();
  }

 private:
  static constexpr std::array<std::string_view, 4> known = {"step", "layer", "expert", "load"};
  static constexpr std::size_t load_column = 3;

  /// Moves to the next line; false where there is none.
  bool next_line() {
    if (rest_.empty()) {
      return false;
    }
    std::size_t const end = std::min(rest_.find('\n'), rest_.size());
    line_ = trimmed(rest_.substr(0, end));
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    ++line_number_;
    return true;
  }

  [[nodiscard]] std::string in_line() const { return " in line " + std::to_string(line_number_); }

  [[noreturn]] void fail_at_field(std::size_t i, char const* expected,
                                  std::string_view text) const {
    throw file_error(file_, expected,
                     in_quotes(text) + in_line() + ", field " + std::to_string(i + 1));
  }

  void add_number(std::string_view text, std::size_t field, char const* expected = "a number") {
    char const* const end = text.data() + text.size();
    std::int64_t whole = 0;
    auto const as_whole = std::from_chars(text.data(), end, whole);
    if (as_whole.ptr == end && as_whole.ec == std::errc()) {
      numbers_.add(whole);
      return;
    }
    if (as_whole.ptr == end && as_whole.ec == std::errc::result_out_of_range) {
      fail_at_field(field, whole_numbers, text);
    }
    double value = 0;
    auto const as_float = std::from_chars(text.data(), end, value);
    if (as_float.ptr == end && as_float.ec == std::errc::result_out_of_range) {
      fail_at_field(field, float_numbers, text);
    }
    if (as_float.ptr != end || as_float.ec != std::errc() || !std::isfinite(value)) {
      fail_at_field(field, expected, text);
    }
    numbers_.add(value);
  }

  /// Lines of numbers, from the current one on: a line per layer, an empty line between steps.
  [[nodiscard]] npy::any_array read_matrices() {
    std::size_t const first_line = line_number_;
    std::size_t experts = 0;
    index_t steps = 0;
    index_t layers = 0;
    index_t layer = 0;
    auto const end_step = [&] {
      if (steps > 0 && layer != layers) {
        throw file_error(file_, "as many lines as in step 0 (" + std::to_string(layers) + ")",
                         std::to_string(layer) + " in step " + std::to_string(steps) +
                             ", before line " + std::to_string(line_number_));
      }
      layers = layer;
      layer = 0;
      ++steps;
    };
    do {
      if (line_.empty()) {
        if (layer > 0) {
          end_step();
        }
        continue;
      }
      std::size_t fields = 0;
      for_each_field(line_, [&](std::size_t i, std::string_view field) {
        add_number(field, i,
                   line_number_ == first_line
                       ? "numbers with commas between, or the column names layer, expert and load"
                       : "a number");
        fields = i + 1;
      });
      if (line_number_ == first_line) {
        experts = fields;
      }
      if (fields != experts) {
        throw file_error(file_,
                         "as many numbers as in line " + std::to_string(first_line) + " (" +
                             std::to_string(experts) + ")",
                         std::to_string(fields) + in_line());
      }
      ++layer;
    } while (next_line());
    if (layer > 0) {
      ++line_number_;  // the step ends behind the last line
      end_step();
    }
    return numbers_.take({steps, layers, static_cast<std::int64_t>(experts)});
  }

  struct place {
    std::size_t line;
    std::array<index_t, 3> index;  ///< step, layer, expert
  };

  /// The columns in the order of the file, as positions in `known`.
  [[nodiscard]] std::vector<std::size_t> read_names() const {
    constexpr char const* expected =
        "the column names layer, expert, load and perhaps step, each once";
    std::vector<std::size_t> columns;
    for_each_field(line_, [&](std::size_t, std::string_view field) {
      auto const column =
          static_cast<std::size_t>(std::find(known.begin(), known.end(), field) - known.begin());
      if (column == known.size()) {
        throw file_error(file_, expected, in_quotes(field) + in_line());
      }
      if (std::find(columns.begin(), columns.end(), column) != columns.end()) {
        throw file_error(file_, expected, in_quotes(field) + " twice" + in_line());
      }
      columns.push_back(column);
    });
    for (std::size_t column = 1; column < known.size(); ++column) {
      if (std::find(columns.begin(), columns.end(), column) == columns.end()) {
        throw file_error(file_, expected, "no '" + std::string(known[column]) + "'" + in_line());
      }
    }
    return columns;
  }

  [[nodiscard]] index_t read_index(std::string_view text, std::size_t column) const {
    constexpr index_t expert = plimsoll::expert_limit - 1;
    constexpr index_t other = std::numeric_limits<std::int32_t>::max();
    index_t const largest = known[column] == "expert" ? expert : other;
    index_t value = 0;
    char const* const end = text.data() + text.size();
    auto const result = std::from_chars(text.data(), end, value);
    if (result.ptr != end || result.ec != std::errc() || value < 0 || value > largest) {
      throw file_error(file_,
                       "a whole number from 0 to " + std::to_string(largest) + " as " +
                           std::string(known[column]),
                       in_quotes(text) + in_line());
    }
    return value;
  }

  /// Lines of a load each, behind the current one, which names the columns.
  [[nodiscard]] npy::any_array read_table() {
    auto const columns = read_names();
    bool const has_steps = std::find(columns.begin(), columns.end(), 0) != columns.end();
    std::vector<place> places;
    while (next_line()) {
      if (line_.empty()) {
        continue;
      }
      place at{line_number_, {}};
      std::size_t fields = 0;
      for_each_field(line_, [&](std::size_t i, std::string_view field) {
        if (i < columns.size() && columns[i] != load_column) {
          at.index[columns[i]] = read_index(field, columns[i]);
        } else if (i < columns.size()) {
          add_number(field, i);
        }
        fields = i + 1;
      });
      if (fields != columns.size()) {
        throw file_error(file_,
                         "as many fields as column names (" + std::to_string(columns.size()) + ")",
                         std::to_string(fields) + in_line());
      }
      places.push_back(at);
    }
    if (places.empty()) {
      throw file_error(file_, "lines of loads after the column names", "none");
    }
    index_t const steps = extent_without_gaps(places, 0);
    index_t const layers = extent_without_gaps(places, 1);
    index_t experts = 0;
    for (place const& at : places) {
      experts = std::max(experts, at.index[2] + 1);
    }
    // Or a short file could ask for any amount of memory. A file that has a line for every layer of
    // every step passes with 1024 experts.
    constexpr index_t values_per_line = 1024;
    if (layers > values_per_line * static_cast<index_t>(places.size()) / experts / steps) {
      throw file_error(file_, "at least one line for every 1024 loads",
                       std::to_string(places.size()) + " for shape " +
                           npy::to_string(std::array{steps, layers, experts}));
    }
    return numbers_.take({steps, layers, experts}, [&](auto&& values) {
      return arrange(values, places, steps * layers * experts, layers, experts, has_steps);
    });
  }

  /// One more than the largest index, each from 0 on having a line.
  [[nodiscard]] index_t extent_without_gaps(std::vector<place> const& places,
                                            std::size_t column) const {
    index_t largest = 0;
    // One entry more than there can be different indices, so that the search ends.
    std::vector<bool> present(places.size() + 1, false);
    for (place const& at : places) {
      auto const index = static_cast<std::size_t>(at.index[column]);
      largest = std::max(largest, at.index[column]);
      if (index < places.size()) {
        present[index] = true;
      }
    }
    index_t const missing = std::find(present.begin(), present.end(), false) - present.begin();
    if (missing <= largest) {
      std::string const name(known[column]);
      throw file_error(file_, "a line for every " + name + " from 0 to " + std::to_string(largest),
                       "none for " + name + " " + std::to_string(missing));
    }
    return largest + 1;
  }

  template <class Load>
  [[nodiscard]] std::vector<Load> arrange(std::vector<Load> const& values,
                                          std::vector<place> const& places, index_t count,
                                          index_t layers, index_t experts, bool has_steps) const {
    std::vector<Load> result(static_cast<std::size_t>(count), Load{0});
    std::vector<std::size_t> line_of(result.size(), 0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto const [step, layer, expert] = places[i].index;
      auto const at = static_cast<std::size_t>((step * layers + layer) * experts + expert);
      if (line_of[at] != 0) {
        throw file_error(
            file_,
            "one line for " + (has_steps ? "step " + std::to_string(step) + ", " : "") + "layer " +
                std::to_string(layer) + ", expert " + std::to_string(expert),
            "line " + std::to_string(line_of[at]) + " and line " + std::to_string(places[i].line));
      }
      line_of[at] = places[i].line;
      result[at] = values[i];
    }
    return result;
  }

  std::string_view rest_;
  std::string const& file_;
  std::string_view line_;
  std::size_t line_number_ = 0;
  detail::number_list numbers_;
};

}  // namespace

npy::any_array parse_csv_loads(std::string_view text, std::string const& file) {
  return csv_reader(text, file).read();
}

}  // namespace examples
