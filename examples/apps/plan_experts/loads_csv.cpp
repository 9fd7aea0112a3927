// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include <plimsoll/types.hpp>

#include "loads_text.hpp"
#include "npy.hpp"

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

/// Calls `visit(i, field)` for every field of a line; quotes around a field are removed.
template <class Visit>
void for_each_field(std::string_view line, Visit&& visit) {
  std::size_t i = 0;
  for (;;) {
    line = trimmed(line);
    std::size_t end = line.find(',');
    std::string_view field = trimmed(line.substr(0, end));
    if (line.starts_with('"')) {
      std::size_t const close = line.find('"', 1);
      std::size_t const next = close == std::string_view::npos ? close : line.find(',', close);
      if (close != std::string_view::npos &&
          trimmed(line.substr(close + 1, next - close - 1)).empty()) {
        field = trimmed(line.substr(1, close - 1));
        end = next;
      }
    }
    visit(i++, field);
    if (end == std::string_view::npos) {
      return;
    }
    line.remove_prefix(end + 1);
  }
}

/// Tells whether a column of that name numbers the lines, as some programs write before a table.
[[nodiscard]] bool is_index_name(std::string_view name) {
  return name.empty() || name == "index" || name == "Unnamed: 0";
}

class csv_reader {
 public:
  csv_reader(byte_store const& text, std::size_t skipped, std::string const& key,
             reading_progress const& progress)
      : text_(text, skipped, progress),
        file_(text.name()),
        key_(key),
        known_{"step", "layer", "expert", key.empty() ? "load" : key},
        others_{"", "layer_id", "expert_id", key.empty() ? "count" : ""},
        numbers_(file_) {}

  [[nodiscard]] text_numbers read() {
    while (next_line() && line_.empty()) {
    }
    bool const indexed = begins_with_index();
    bool names = false;
    for_each_field(line_, [&](std::size_t, std::string_view field) {
      names = names || column_of(field) != no_column;
    });
    if (names && !indexed) {
      return read_table();
    }
    if (!key_.empty()) {
      throw file_error(file_, "a line of column names with " + in_quotes(key_) + ", as --key says",
                       "other fields" + in_line());
    }
    return read_matrices(indexed);
  }

 private:
  static constexpr std::size_t load_column = 3;
  static constexpr std::size_t no_column = 4;

  /// Returns the position in `known_` of a column's name, or of SGLang's name for it.
  [[nodiscard]] std::size_t column_of(std::string_view name) const {
    for (std::size_t column = 0; column < known_.size(); ++column) {
      if (name == known_[column] || (!name.empty() && name == others_[column])) {
        return column;
      }
    }
    return no_column;
  }

  /// Moves to the next line; returns false if there is none.
  bool next_line() {
    if (!text_.line(bytes_)) {
      return false;
    }
    line_ = trimmed(bytes_);
    ++line_number_;
    return true;
  }

  /// Tells whether the current line names the experts after an empty name or that of the layers.
  /// The first field of every other line is then not a load.
  [[nodiscard]] bool begins_with_index() const {
    bool unnamed = false;
    bool of_layers = false;
    bool in_order = true;
    bool numbers = true;
    bool known = false;
    std::size_t fields = 0;
    for_each_field(line_, [&](std::size_t i, std::string_view field) {
      fields = i + 1;
      if (i == 0) {
        unnamed = is_index_name(field);
        of_layers = column_of(field) == 1;
        return;
      }
      std::size_t value = 0;
      auto const* const end = field.data() + field.size();
      bool const number = std::from_chars(field.data(), end, value).ptr == end && !field.empty();
      numbers = numbers && number;
      in_order = in_order && number && value + 1 == i;
      known = known || column_of(field) != no_column;
    });
    if (fields < 2 || known || !(unnamed || (of_layers && numbers))) {
      return false;
    }
    bool const names = !numbers;  // whatever the experts are called
    if (!names && !in_order) {
      throw file_error(file_, "the experts 0, 1, 2, ... in order as column names",
                       in_quotes(line_) + in_line());
    }
    return true;
  }

  [[nodiscard]] std::string in_line() const { return " in line " + std::to_string(line_number_); }

  [[noreturn]] void fail_at_field(std::size_t i, char const* expected,
                                  std::string_view text) const {
    throw file_error(file_, expected,
                     in_quotes(text) + in_line() + ", field " + std::to_string(i + 1));
  }

  /// A number in the file.
  struct field_value {
    std::optional<std::int64_t> whole;
    double real = 0;  ///< if it is not an integer
  };

  [[nodiscard]] field_value read_number(std::string_view text, std::size_t field,
                                        char const* expected) const {
    char const* const end = text.data() + text.size();
    std::int64_t whole = 0;
    auto const as_whole = std::from_chars(text.data(), end, whole);
    if (as_whole.ptr == end && as_whole.ec == std::errc()) {
      return {whole};
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
    return {{}, value};
  }

  /// Reads lines of numbers from the current one on: a line per layer, an empty line between steps.
  [[nodiscard]] text_numbers read_matrices(bool indexed) {
    auto const refuse_names_alone = [&] {
      throw file_error(file_, "lines of loads after the column names", "none");
    };
    if (indexed && !next_line()) {
      refuse_names_alone();
    }
    std::size_t first_line = 0;  // the first line with loads
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
      first_line = first_line == 0 ? line_number_ : first_line;
      std::size_t fields = 0;
      for_each_field(line_, [&](std::size_t i, std::string_view field) {
        if (indexed && i == 0) {
          return;
        }
        auto const value = read_number(
            field, i,
            line_number_ == first_line
                ? "numbers with commas between, or the column names layer, expert and load"
                : "a number");
        value.whole ? numbers_.add(*value.whole) : numbers_.add(value.real);
        ++fields;
      });
      if (fields == 0) {
        throw file_error(file_, "loads after the number of the line", "none" + in_line());
      }
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
      ++line_number_;  // the step ends after the last line
      end_step();
    }
    if (steps == 0) {
      refuse_names_alone();
    }
    return numbers_.take({steps, layers, static_cast<std::int64_t>(experts)});
  }

  /// A line of a table.
  struct record {
    std::uint64_t line = 0;
    std::array<std::int32_t, 3> index{};  ///< step, layer, expert
    std::int64_t whole = 0;
    double number = 0;
  };

  /// Returns the columns in the order of the file, as positions in `known_`; `no_column` for
  /// ignored columns.
  [[nodiscard]] std::vector<std::size_t> read_names() const {
    std::string const expected =
        "the column names layer, expert, " + known_[load_column] + " and perhaps step, each once";
    std::vector<std::size_t> columns;
    for_each_field(line_, [&](std::size_t i, std::string_view field) {
      std::size_t const column = column_of(field);
      // With --key, other columns are ignored.
      bool const other = column == no_column && (!key_.empty() || (i == 0 && is_index_name(field)));
      if (column == no_column && !other) {
        throw file_error(file_, expected, in_quotes(field) + in_line());
      }
      if (!other && std::find(columns.begin(), columns.end(), column) != columns.end()) {
        throw file_error(file_, expected, in_quotes(field) + " twice" + in_line());
      }
      columns.push_back(column);
    });
    for (std::size_t column = 1; column < known_.size(); ++column) {
      if (std::find(columns.begin(), columns.end(), column) == columns.end()) {
        throw file_error(file_, expected, "no " + in_quotes(known_[column]) + in_line());
      }
    }
    return columns;
  }

  [[nodiscard]] std::int32_t read_index(std::string_view text, std::size_t column) const {
    constexpr std::int32_t expert = plimsoll::expert_limit - 1;
    constexpr std::int32_t other = std::numeric_limits<std::int32_t>::max();
    std::int32_t const largest = known_[column] == "expert" ? expert : other;
    std::int32_t value = 0;
    char const* const end = text.data() + text.size();
    auto const result = std::from_chars(text.data(), end, value);
    if (result.ptr != end || result.ec != std::errc() || value < 0 || value > largest) {
      throw file_error(
          file_, "a whole number from 0 to " + std::to_string(largest) + " as " + known_[column],
          in_quotes(text) + in_line());
    }
    return value;
  }

  /// Reads a table with one load per line; the current line names the columns.
  [[nodiscard]] text_numbers read_table() {
    auto const columns = read_names();
    bool const has_steps = std::find(columns.begin(), columns.end(), 0) != columns.end();
    byte_store records(file_);
    std::array<std::int32_t, 3> largest{};
    bool floats = false;
    bool steps_in_order = true;
    while (next_line()) {
      if (line_.empty()) {
        continue;
      }
      record at{.line = line_number_};
      std::size_t fields = 0;
      for_each_field(line_, [&](std::size_t i, std::string_view field) {
        fields = i + 1;
        if (i >= columns.size() || columns[i] == no_column) {
          return;
        }
        if (columns[i] != load_column) {
          at.index[columns[i]] = read_index(field, columns[i]);
        } else if (auto const value = read_number(field, i, "a number"); value.whole) {
          at.whole = *value.whole;
          at.number = static_cast<double>(at.whole);
        } else {
          at.number = value.real;
          floats = true;
        }
      });
      if (fields != columns.size()) {
        throw file_error(file_,
                         "as many fields as column names (" + std::to_string(columns.size()) + ")",
                         std::to_string(fields) + in_line());
      }
      steps_in_order = steps_in_order && at.index[0] >= largest[0];
      for (std::size_t i = 0; i < largest.size(); ++i) {
        largest[i] = std::max(largest[i], at.index[i]);
      }
      detail::append(records, at);
    }
    if (records.size() == 0) {
      throw file_error(file_, "lines of loads after the column names", "none");
    }
    expect_no_gap(records, largest[0]);
    std::array<index_t, 3> const shape{index_t{largest[0]} + 1, index_t{largest[1]} + 1,
                                       index_t{largest[2]} + 1};
    // Without this limit a short file could demand any amount of memory. A file with only one line
    // for every layer of every step passes with up to 1024 experts.
    constexpr index_t values_per_line = 1024;
    auto const lines = static_cast<index_t>(records.size() / sizeof(record));
    if (shape[1] > values_per_line * lines / shape[2] / shape[0]) {
      throw file_error(file_, "at least one line for every 1024 loads",
                       std::to_string(lines) + " for shape " + npy::to_string(shape));
    }
    return floats ? arrange<double>(records, shape, has_steps, steps_in_order)
                  : arrange<std::int64_t>(records, shape, has_steps, steps_in_order);
  }

  /// Calls `visit(record, number)` for the records from `first` on, until it returns false.
  template <class Visit>
  static void for_each_record(byte_store const& records, std::uint64_t first, Visit&& visit) {
    constexpr std::uint64_t at_once = 4096;
    std::uint64_t const count = records.size() / sizeof(record);
    std::vector<record> some;
    for (; first < count; first += some.size()) {
      some.resize(static_cast<std::size_t>(std::min(at_once, count - first)));
      records.read(first * sizeof(record), reinterpret_cast<char*>(some.data()),
                   some.size() * sizeof(record));
      for (std::size_t i = 0; i < some.size(); ++i) {
        if (!visit(some[i], first + i)) {
          return;
        }
      }
    }
  }

  /// Checks that every step from 0 to the largest has a line. A layer without a line is dense.
  void expect_no_gap(byte_store const& records, std::int32_t largest) const {
    // One entry more than there can be different steps, so that a gap is always found.
    auto const most = static_cast<std::size_t>(std::min<std::uint64_t>(
        records.size() / sizeof(record) + 1, static_cast<std::uint64_t>(largest) + 1));
    std::vector<bool> present(most, false);
    for_each_record(records, 0, [&](record const& at, std::uint64_t) {
      auto const step = static_cast<std::size_t>(at.index[0]);
      if (step < present.size()) {
        present[step] = true;
      }
      return true;
    });
    auto const missing = std::find(present.begin(), present.end(), false);
    if (missing != present.end()) {
      throw file_error(file_, "a line for every step from 0 to " + std::to_string(largest),
                       "none for step " + std::to_string(missing - present.begin()));
    }
  }

  /// Puts the loads in order, a few steps at a time. If lines are not in the order of the steps,
  /// each of these passes reads all lines.
  template <class Load>
  [[nodiscard]] text_numbers arrange(byte_store const& records, std::array<index_t, 3> const& shape,
                                     bool has_steps, bool steps_in_order) const {
    constexpr index_t most_loads = index_t{1} << 22;  // 64 MiB with their lines
    index_t const steps = shape[0];
    index_t const layers = shape[1];
    index_t const experts = shape[2];
    index_t const steps_at_once = std::clamp<index_t>(most_loads / (layers * experts), 1, steps);
    text_numbers result{byte_store(file_), {steps, layers, experts}, std::is_same_v<Load, double>};
    std::uint64_t next_record = 0;
    for (index_t first = 0; first < steps; first += steps_at_once) {
      index_t const end = std::min(steps, first + steps_at_once);
      auto const count = static_cast<std::size_t>((end - first) * layers * experts);
      std::vector<Load> loads(count);
      std::vector<std::uint64_t> line_of(count);
      for_each_record(
          records, steps_in_order ? next_record : 0, [&](record const& at, std::uint64_t i) {
            index_t const step = at.index[0];
            index_t const layer = at.index[1];
            index_t const expert = at.index[2];
            if (step >= end) {
              next_record = i;
              return !steps_in_order;
            }
            if (step < first) {
              return true;
            }
            auto const place =
                static_cast<std::size_t>(((step - first) * layers + layer) * experts + expert);
            if (line_of[place] != 0) {
              throw file_error(
                  file_,
                  "one line for " + (has_steps ? "step " + std::to_string(step) + ", " : "") +
                      "layer " + std::to_string(layer) + ", expert " + std::to_string(expert),
                  "line " + std::to_string(line_of[place]) + " and line " +
                      std::to_string(at.line));
            }
            line_of[place] = at.line;
            if constexpr (std::is_same_v<Load, double>) {
              loads[place] = at.number;
            } else {
              loads[place] = at.whole;
            }
            return true;
          });
      result.bytes.append({reinterpret_cast<char const*>(loads.data()), count * sizeof(Load)});
    }
    return result;
  }

  byte_reader text_;
  std::string const& file_;
  std::string const& key_;
  std::array<std::string, 4> known_;
  std::array<std::string, 4> others_;  ///< other names of the columns; empty: none
  std::string bytes_;
  std::string_view line_;
  std::size_t line_number_ = 0;
  detail::number_list numbers_;
};

}  // namespace

text_numbers parse_csv_loads(byte_store const& text, std::size_t skipped, std::string const& key,
                             reading_progress const& progress) {
  return csv_reader(text, skipped, key, progress).read();
}

}  // namespace examples
