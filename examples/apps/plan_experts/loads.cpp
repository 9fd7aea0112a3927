// SPDX-License-Identifier: Apache-2.0
#include "loads.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <plimsoll/types.hpp>

#include "loads_ref.hpp"
#include "loads_text.hpp"

namespace examples {

namespace {

constexpr std::string_view npy_magic = "\x93NUMPY";

template <class Number>
[[nodiscard]] std::string spell(Number value) {
  if (value != value) {
    return "NaN";
  }
  std::array<char, 32> text{};
  auto const end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

/// Checks every step, since a sum of steps may hide a negative load or overflow, and adds up the
/// steps.
template <class Load>
class value_check {
 public:
  explicit value_check(load_file const& file)
      : file_(file),
        totals_(static_cast<std::size_t>(file.shape()[1])),
        sums_(static_cast<std::size_t>(file.shape()[1] * file.shape()[2])) {}

  void add(index_t step, loads_ref<Load> loads) {
    constexpr auto limit = static_cast<Load>(plimsoll::load_limit);
    bool const has_steps = file_.steps() > 1;
    auto sum = sums_.begin();
    for (index_t layer = 0; layer < loads.extent(0); ++layer) {
      Load& total = totals_[static_cast<std::size_t>(layer)];
      for (index_t expert = 0; expert < loads.extent(1); ++expert, ++sum) {
        Load const load = loads(layer, expert);
        if (!(load >= 0 && load < limit)) {  // true for NaN
          bool const id = std::integral<Load> && load == Load{-1};
          throw file_error(file_.name(), "loads from 0 to below 2^47",
                           spell(load) + " in " +
                               (has_steps ? "step " + std::to_string(step) + ", " : "") + "layer " +
                               std::to_string(layer) +
                               (file_.what() == loads_of::slots ? ", slot " : ", expert ") +
                               std::to_string(expert) +
                               (id ? ", as top-k expert ids mark what is not routed; count how "
                                     "often each expert occurs"
                                   : ""));
        }
        total += load;
        *sum += load;
        if (total >= limit) {
          throw file_error(
              file_.name(),
              std::string("a total below 2^47 per layer") + (has_steps ? " over all steps" : ""),
              "at least " + spell(total) + " in layer " + std::to_string(layer));
        }
      }
    }
  }

  /// Returns the sums `[layers, experts]` of the layers from `first` up to, but not including,
  /// `last`.
  [[nodiscard]] npy::array<Load> sums(index_t first, index_t last) const {
    index_t const experts = file_.experts();
    return {{last - first, experts},
            {sums_.begin() + first * experts, sums_.begin() + last * experts}};
  }

 private:
  load_file const& file_;
  std::vector<Load> totals_;  ///< [layers]
  std::vector<Load> sums_;
};

template <class Load>
[[nodiscard]] bool nearly_equal(Load a, Load b) {
  if constexpr (std::integral<Load>) {
    return a == b;
  } else {
    return std::abs(a - b) <= 1e-6 * std::max(a, b);  // sums of single precision
  }
}

/// Tells whether the totals of rows, or of columns, are equal. Totals of 0 do not count: a layer
/// without experts has no load.
template <class Load>
struct total_comparison {
  Load first = 0;
  index_t count = 0;
  bool equal = true;

  void add(Load total) {
    if (total > 0) {
      first = count == 0 ? total : first;
      equal = equal && nearly_equal(total, first);
      ++count;
    }
  }
};

/// Detects `[experts, layers]` in place of `[layers, experts]`. Every token goes to the same number
/// of experts in every layer, so in measured loads all layers of a step have the same total. If in
/// every step all columns have the same total, but the rows do not, the columns are the layers.
/// Steps in which every row has equal loads prove nothing, since their columns are equal too, and a
/// few rows or columns may be equal by chance.
template <class Load>
class transposition_check {
 public:
  explicit transposition_check(std::array<index_t, 3> const& shape)
      // With more rows than a layer can have experts, sums of columns might overflow.
      : possible_(shape[1] >= least && shape[2] >= least && shape[1] <= plimsoll::expert_limit) {}

  void add(loads_ref<Load> loads) {
    if (!possible_) {
      return;
    }
    index_t const rows = loads.extent(0);
    index_t const columns = loads.extent(1);
    total_comparison<Load> of_rows;
    std::vector<Load> column_totals(static_cast<std::size_t>(columns), Load{0});
    bool rows_are_flat = true;
    for (index_t row = 0; row < rows; ++row) {
      Load total = 0;
      for (index_t column = 0; column < columns; ++column) {
        Load const load = loads(row, column);
        total += load;
        column_totals[static_cast<std::size_t>(column)] += load;
        rows_are_flat = rows_are_flat && nearly_equal(load, loads(row, 0));
      }
      of_rows.add(total);
    }
    total_comparison<Load> of_columns;
    for (Load const total : column_totals) {
      of_columns.add(total);
    }
    possible_ = of_columns.equal;
    seen_ = seen_ || (of_columns.count >= least && !of_rows.equal && !rows_are_flat);
  }

  [[nodiscard]] bool found() const { return possible_ && seen_; }

 private:
  static constexpr index_t least = 4;
  bool possible_;
  bool seen_ = false;
};

/// Detects `[layers, steps]` as the first two dimensions: no total changes along the first, and
/// most totals differ along the second. (A few may differ if layers are of several kinds.)
template <class Load>
class swap_check {
 public:
  explicit swap_check(std::array<index_t, 3> const& shape)
      : possible_(shape[0] >= least && shape[1] >= least),
        along_first_(possible_ ? static_cast<std::size_t>(shape[1]) : 0) {}

  void add(loads_ref<Load> loads) {
    for (index_t second = 0; possible_ && second < loads.extent(0); ++second) {
      Load total = 0;
      for (index_t expert = 0; expert < loads.extent(1); ++expert) {
        total += loads(second, expert);
      }
      auto& of_first = along_first_[static_cast<std::size_t>(second)];
      of_first.add(total);
      possible_ = of_first.equal;
    }
  }

  [[nodiscard]] bool found() const {
    std::vector<Load> totals;
    for (auto const& of_first : along_first_) {
      totals.push_back(of_first.first);
    }
    std::sort(totals.begin(), totals.end());
    auto const distinct = std::unique(totals.begin(), totals.end(), nearly_equal<Load>);
    return possible_ && 2 * (distinct - totals.begin()) > static_cast<index_t>(totals.size());
  }

 private:
  static constexpr index_t least = 4;
  bool possible_;
  std::vector<total_comparison<Load>> along_first_;
};

/// Detects the expert ids of every token, `[tokens, layers, k]`, in place of loads: no row has an
/// expert twice, and the layers of a step have different totals, while those of loads are equal.
/// Rows of zeros tell nothing: buffers of ids begin as zeros, and rows of dense layers and of
/// tokens that were not forwarded are never written.
template <class Load>
class id_check {
 public:
  explicit id_check(std::array<index_t, 3> const& shape)
      : possible_(std::integral<Load> && shape[0] > 1 && shape[1] > 1 && shape[2] <= most_experts &&
                  shape[0] >= (least_rows + shape[1] - 1) / shape[1]) {}

  void add(loads_ref<Load> loads) {
    if (!possible_) {
      return;
    }
    total_comparison<Load> of_layers;
    std::vector<Load> row(static_cast<std::size_t>(loads.extent(1)));
    for (index_t layer = 0; possible_ && layer < loads.extent(0); ++layer) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        row[i] = loads(layer, static_cast<index_t>(i));
      }
      std::sort(row.begin(), row.end());
      if (row.back() == Load{0}) {
        continue;
      }
      ++rows_;
      possible_ = row.back() < Load{most_experts} &&
                  std::adjacent_find(row.begin(), row.end()) == row.end();
      of_layers.add(std::accumulate(row.begin(), row.end(), Load{0}));
    }
    if (of_layers.count > 1) {
      ++steps_;
      unequal_ += of_layers.equal ? 0 : 1;
    }
  }

  [[nodiscard]] bool found() const {
    return possible_ && rows_ >= least_rows && 2 * unequal_ > steps_;
  }

 private:
  static constexpr int most_experts = 1024;  // of a layer, in any model
  static constexpr index_t least_rows = 32;  // a few rows may have distinct loads by chance
  bool possible_;
  index_t rows_ = 0;  ///< that are not all zeros
  index_t steps_ = 0;
  index_t unequal_ = 0;
};

/// Detects loads of slots, `[layers, ranks, slots of a rank]`: all steps have the same total, as
/// layers have, but in no step do all layers, and some layer's total changes.
template <class Load>
class slot_check {
 public:
  explicit slot_check(std::array<index_t, 3> const& shape)
      : possible_(shape[0] > 1 && shape[1] > 1), of_layer_(static_cast<std::size_t>(shape[1])) {}

  void add(loads_ref<Load> loads) {
    total_comparison<Load> of_layers;
    Load of_step = 0;
    for (index_t layer = 0; possible_ && layer < loads.extent(0); ++layer) {
      Load total = 0;
      for (index_t expert = 0; expert < loads.extent(1); ++expert) {
        total += loads(layer, expert);
      }
      of_layers.add(total);
      of_layer_[static_cast<std::size_t>(layer)].add(total);
      of_step += total;
    }
    of_steps_.add(of_step);
    possible_ = possible_ && of_steps_.equal && !(of_step > 0 && of_layers.equal);
  }

  [[nodiscard]] bool found() const {
    return possible_ && of_steps_.count > 1 &&
           std::any_of(of_layer_.begin(), of_layer_.end(),
                       [](auto const& of) { return !of.equal; });
  }

 private:
  bool possible_;
  total_comparison<Load> of_steps_;
  std::vector<total_comparison<Load>> of_layer_;  ///< [layers]: its totals in all steps
};

template <class Load>
[[nodiscard]] bool has_load(loads_ref<Load> loads, index_t layer) {
  for (index_t expert = 0; expert < loads.extent(1); ++expert) {
    if (loads(layer, expert) != 0) {
      return true;
    }
  }
  return false;
}

template <class Load>
[[nodiscard]] load_totals check(load_file const& file, index_t first, index_t last, shape_rule rule,
                                reading_progress const& progress) {
  auto const& shape = file.shape();
  value_check<Load> values(file);
  id_check<Load> ids(shape);
  transposition_check<Load> transposed(shape);
  swap_check<Load> swapped(shape);
  slot_check<Load> of_slots(shape);
  load_totals result;
  result.filled.resize(static_cast<std::size_t>(last - first));
  file.for_each_step<Load>(
      [&](index_t step, auto loads) {
        values.add(step, loads);
        if (rule == shape_rule::looks_right) {
          ids.add(loads);
          transposed.add(loads);
          swapped.add(loads);
          of_slots.add(loads);
        }
        bool empty = true;
        for (index_t layer = first; layer < last; ++layer) {
          if (has_load(loads, layer)) {
            ++result.filled[static_cast<std::size_t>(layer - first)];
            empty = false;
          }
        }
        result.empty_steps += empty ? 1 : 0;
      },
      progress);
  auto const refuse = [&](char const* looks) {
    index_t const all = shape[0] > 1 ? 0 : 1;  // a single step need not be in the file
    throw file_error(file.name(),
                     all == 0 ? "shape (steps, layers, experts)" : "shape (layers, experts)",
                     npy::to_string(std::span(shape).subspan(static_cast<std::size_t>(all))) +
                         looks + "; --trust-shape takes it as it is");
  };
  if (ids.found()) {
    refuse(
        ", whose layers have different totals in a step and whose rows repeat no number: they look "
        "like top-k expert ids (tokens, layers, k); count how often each expert occurs");
  }
  if (transposed.found()) {
    refuse(", whose columns and not rows have equal totals: it looks transposed");
  }
  if (swapped.found()) {
    refuse(", whose layers and not steps have equal totals: steps and layers look swapped");
  }
  if (of_slots.found()) {
    refuse(
        ", whose steps have equal totals and whose layers have not: they look like loads of slots "
        "(layers, ranks, slots of a rank), which --slot-loads reads with the plan in use");
  }
  result.loads = values.sums(first, last);
  return result;
}

constexpr char const* torch_file =
    "a file of PyTorch, which read_recordings.py (docs/loads.md) converts";

enum class form { npy, json, csv, unknown };

/// Returns the form that the file's name implies; unknown for the standard input.
[[nodiscard]] form form_of(std::string const& file) {
  if (file == "-") {
    return form::unknown;
  }
  std::string extension = std::filesystem::path(file).extension().string();
  for (char& c : extension) {
    c = (c >= 'A' && c <= 'Z') ? static_cast<char>(c - 'A' + 'a') : c;
  }
  if (extension == ".npy") {
    return form::npy;
  }
  if (extension == ".json") {
    return form::json;
  }
  if (extension == ".csv") {
    return form::csv;
  }
  constexpr char const* expected = "a .npy, .json or .csv file, or - for the standard input";
  if (extension == ".pt" || extension == ".pth") {
    throw file_error(file, expected, torch_file);
  }
  throw file_error(file, expected,
                   extension.empty() ? "a name without extension" : in_quotes(extension));
}

/// Returns the length of the byte order mark with which some programs begin a text.
[[nodiscard]] std::size_t byte_order_mark(byte_store const& bytes) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  return bytes.text(0, mark.size()) == mark ? mark.size() : 0;
}

/// Returns the form that the bytes have.
[[nodiscard]] form form_in(byte_store const& bytes) {
  if (bytes.text(0, npy_magic.size()) == npy_magic) {
    return form::npy;
  }
  byte_reader text(bytes, byte_order_mark(bytes), {});
  constexpr std::string_view blanks = " \t\r\n";
  while (text.peek() != byte_reader::end &&
         blanks.find(static_cast<char>(text.peek())) != std::string_view::npos) {
    text.next();
  }
  int const first = text.peek();
  return first == byte_reader::end      ? form::unknown
         : first == '{' || first == '[' ? form::json
                                        : form::csv;
}

/// Returns the form of a file, given the form that its name implies; throws if the bytes differ.
[[nodiscard]] form checked_form(form named, byte_store const& bytes) {
  std::string const& file = bytes.name();
  if (bytes.text(0, 4) == "PK\x03\x04") {  // whatever its name
    throw file_error(file, "loads as .npy, JSON or CSV",
                     std::string("an archive, perhaps ") + torch_file);
  }
  if (named == form::npy) {
    return named;
  }
  form const found = form_in(bytes);
  char const* const expected = named == form::json  ? "JSON with loads"
                               : named == form::csv ? "CSV with loads"
                                                    : "loads as .npy, JSON or CSV";
  if (found == form::unknown) {
    throw file_error(file, expected, "an empty file");
  }
  if (found == form::npy && named != form::unknown) {
    throw file_error(file, expected, "a .npy file");
  }
  if (found == form::json && named == form::csv) {
    throw file_error(file, expected, "JSON");
  }
  return named == form::unknown ? found : named;
}

/// Finds the header of a .npy file, whatever its length.
[[nodiscard]] npy::detail::located_header locate_values(byte_store const& bytes) {
  for (std::size_t length = 1 << 12;; length *= 16) {
    if (auto found =
            npy::detail::locate_values(bytes.text(0, length), bytes.size(), bytes.name())) {
      return *std::move(found);
    }
  }
}

}  // namespace

load_file load_file::parse(byte_store bytes, std::string const& key, loads_of what,
                           reading_progress const& progress) {
  std::string const file = bytes.name();
  form const found = checked_form(form_of(file), bytes);
  if (found == form::npy) {
    if (!key.empty()) {
      throw file_error(file, "JSON or CSV, which have keys or columns", "a .npy file with --key");
    }
    auto head = locate_values(bytes);
    load_file result(std::move(bytes));
    result.values_at_ = head.values_at;
    result.fortran_order_ = head.fortran_order;
    result.set_shape(head.shape, what);
    result.type_ = std::move(head.type);
    result.whole_ = result.type_.kind != 'f';
    return result;
  }
  auto numbers = found == form::json
                     ? parse_json_loads(bytes, byte_order_mark(bytes), key, progress)
                     : parse_csv_loads(bytes, byte_order_mark(bytes), key, progress);
  return of_numbers(std::move(numbers), what);
}

load_file load_file::of_numbers(text_numbers numbers, loads_of what) {
  load_file result(std::move(numbers.bytes));
  result.set_shape(numbers.shape, what);
  result.whole_ = !numbers.floats;
  result.floats_from_ = numbers.floats ? numbers.floats_from : 0;
  bool const big = std::endian::native == std::endian::big;
  result.type_ = {"", numbers.floats ? 'f' : 'i', sizeof(double), big};
  return result;
}

load_file load_file::open(std::string const& file, std::string const& key,
                          reading_progress const& progress, loads_of what) {
  static_cast<void>(form_of(file));  // refuse a bad name before minutes of reading
  return parse(byte_store::of(file, progress), key, what, progress);
}

load_file load_file::of_bytes(std::string_view bytes, std::string const& file,
                              std::string const& key, loads_of what) {
  byte_store store(file);
  store.append(bytes);
  return parse(std::move(store), key, what, {});
}

void load_file::set_shape(std::vector<std::int64_t> const& shape, loads_of what) {
  bool const slots = what == loads_of::slots;
  if (shape.size() != 2 && shape.size() != 3 && !(slots && shape.size() == 4)) {
    throw file_error(
        name(),
        slots ? "shape (layers, slots), (steps, layers, slots) or either with (ranks, slots "
                "of a rank) in place of slots"
              : "shape (layers, experts) or (steps, layers, experts)",
        npy::to_string(shape));
  }
  what_ = what;
  shape_ = {shape.size() == 3 ? shape[0] : 1, shape[shape.size() - 2], shape.back()};
  if (shape.size() == 4) {
    expect_c_order();
    shape_ = {shape[0], shape[1], shape[2] * shape[3]};
  }
  select_layers(0, shape_[1]);
}

void load_file::expect_c_order() const {
  if (fortran_order_) {
    throw file_error(
        name(),
        "values in C order (numpy.ascontiguousarray), since ranks and their slots are joined",
        "Fortran order");
  }
}

void load_file::join_ranks(index_t ranks, index_t slots) {
  auto const [layers, columns, of_rank] = shape_;
  if (of_rank == slots || columns != ranks || columns * of_rank != slots) {
    return;
  }
  expect_c_order();
  shape_ = {1, layers, slots};
  select_layers(0, layers);
}

void load_file::select_layers(index_t first, index_t last) {
  if (first < 0 || first >= last || last > shape_[1]) {
    throw std::out_of_range(
        "select_layers: expected 0 <= first < last <= " + std::to_string(shape_[1]) + ", got " +
        std::to_string(first) + " and " + std::to_string(last));
  }
  first_layer_ = first;
  last_layer_ = last;
}

index_t load_file::steps_at_once() const {
  constexpr index_t most_values = index_t{1} << 22;  // 32 MiB
  return std::max<index_t>(1, most_values / (layers() * experts()));
}

template <class Load, class Put>
void load_file::decode(std::uint64_t first, std::uint64_t count, Put&& put) const {
  constexpr std::size_t most_bytes = std::size_t{1} << 18;
  std::string some;
  while (count > 0) {
    std::uint64_t n = std::min<std::uint64_t>(count, most_bytes / type_.size);
    bool const whole = first < floats_from_;
    if (whole) {
      n = std::min(n, floats_from_ - first);
    }
    some.resize(static_cast<std::size_t>(n * type_.size));
    bytes_.read(values_at_ + first * type_.size, some.data(), some.size());
    if (whole) {
      auto type = type_;
      type.kind = 'i';
      npy::detail::decode<std::int64_t>(some, type, name(),
                                        [&](std::int64_t value) { put(static_cast<Load>(value)); });
    } else {
      npy::detail::decode<Load>(some, type_, name(), put);
    }
    first += n;
    count -= n;
  }
}

template <class Load>
void load_file::read(index_t first, index_t count, Load* to) const {
  auto const at = [](index_t i) { return static_cast<std::uint64_t>(i); };
  index_t const steps = shape_[0];
  index_t const all_layers = shape_[1];
  index_t const all_experts = shape_[2];
  if (fortran_order_) {  // steps follow one another
    for (index_t expert = 0; expert < all_experts; ++expert) {
      for (index_t layer = first_layer_; layer < last_layer_; ++layer) {
        Load* place = to + (layer - first_layer_) * all_experts + expert;
        decode<Load>(at(first + steps * (layer + all_layers * expert)), at(count), [&](Load value) {
          *place = value;
          place += layers() * all_experts;
        });
      }
    }
    return;
  }
  auto const put = [&](Load value) { *to++ = value; };
  if (layers() == all_layers) {
    decode<Load>(at(first * all_layers * all_experts), at(count * all_layers * all_experts), put);
    return;
  }
  for (index_t step = first; step < first + count; ++step) {
    decode<Load>(at((step * all_layers + first_layer_) * all_experts), at(layers() * all_experts),
                 put);
  }
}

template void load_file::read(index_t, index_t, std::int64_t*) const;
template void load_file::read(index_t, index_t, double*) const;

index_t load_totals::filled_rows() const {
  return std::accumulate(filled.begin(), filled.end(), index_t{0});
}

load_totals check_loads(load_file& file, index_t first, index_t last, shape_rule rule,
                        reading_progress const& progress) {
  auto totals = file.with_type(
      [&]<class Load>(Load) { return check<Load>(file, first, last, rule, progress); });
  file.select_layers(first, last);
  return totals;
}

npy::any_array filled_steps(load_file const& file, load_totals const& totals) {
  return file.with_type([&]<class Load>(Load) -> npy::any_array {
    index_t const steps = std::max<index_t>(1, file.steps() - totals.empty_steps);
    auto const of_step = static_cast<std::size_t>(file.layers() * file.experts());
    npy::array<Load> result{{steps, file.layers(), file.experts()}, {}};
    result.values.reserve(static_cast<std::size_t>(steps) * of_step);
    file.for_each_step<Load>([&](index_t, auto loads) {
      if (std::any_of(loads.data, loads.data + of_step, [](Load load) { return load != 0; })) {
        result.values.insert(result.values.end(), loads.data, loads.data + of_step);
      }
    });
    result.values.resize(static_cast<std::size_t>(steps) * of_step);
    return result;
  });
}

npy::any_array last_filled_steps(load_file const& file, load_totals const& totals, index_t count) {
  return file.with_type([&]<class Load>(Load) -> npy::any_array {
    index_t const layers = file.layers();
    index_t const experts = file.experts();
    npy::array<Load> result{{count, layers, experts}, {}};
    result.values.resize(static_cast<std::size_t>(count * layers * experts));
    std::vector<index_t> missing;  // [layers]
    for (index_t const filled : totals.filled) {
      missing.push_back(std::min(filled, count));
    }
    index_t to_find = std::accumulate(missing.begin(), missing.end(), index_t{0});
    std::vector<index_t> next(missing.size(), count);  // one past the place of the next step
    std::vector<Load> step_loads(static_cast<std::size_t>(layers * experts));
    loads_ref<Load> const loads(step_loads, layers, experts);
    for (index_t step = file.steps(); to_find > 0; --step) {
      file.read(step - 1, 1, step_loads.data());
      for (index_t layer = 0; layer < layers; ++layer) {
        auto const at = static_cast<std::size_t>(layer);
        if (missing[at] > 0 && has_load(loads, layer)) {
          --missing[at];
          --to_find;
          std::copy_n(step_loads.begin() + layer * experts, experts,
                      result.values.begin() + ((--next[at]) * layers + layer) * experts);
        }
      }
    }
    return result;
  });
}

}  // namespace examples
