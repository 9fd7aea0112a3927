// SPDX-License-Identifier: Apache-2.0
#include "loads.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

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

/// Checks every step: a sum of steps may hide a negative load, or overflow.
template <class Load>
void check_values(plimsoll::tensor_ref<Load const> loads, std::string const& file) {
  constexpr auto limit = static_cast<Load>(plimsoll::load_limit);
  bool const has_steps = loads.extent(0) > 1;
  std::vector<Load> totals(static_cast<std::size_t>(loads.extent(1)), Load{0});
  for (index_t step = 0; step < loads.extent(0); ++step) {
    for (index_t layer = 0; layer < loads.extent(1); ++layer) {
      Load& total = totals[static_cast<std::size_t>(layer)];
      for (index_t expert = 0; expert < loads.extent(2); ++expert) {
        Load const load = loads(step, layer, expert);
        if (!(load >= 0 && load < limit)) {  // true for NaN
          throw file_error(file, "loads from 0 to below 2^47",
                           spell(load) + " in " +
                               (has_steps ? "step " + std::to_string(step) + ", " : "") + "layer " +
                               std::to_string(layer) + ", expert " + std::to_string(expert));
        }
        total += load;
        if (total >= limit) {
          throw file_error(
              file,
              std::string("a total below 2^47 per layer") + (has_steps ? " over all steps" : ""),
              "at least " + spell(total) + " in layer " + std::to_string(layer));
        }
      }
    }
  }
}

template <class Load>
[[nodiscard]] bool nearly_equal(Load a, Load b) {
  if constexpr (std::integral<Load>) {
    return a == b;
  } else {
    return std::abs(a - b) <= 1e-6 * std::max(a, b);  // sums of single precision
  }
}

/// Whether the totals of rows, or of columns, are equal. Those of 0 do not count: a layer without
/// experts has no loads.
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

/// Every token goes to the same number of experts in every layer, so in measured loads all layers
/// of a step have one total. Where in every step all columns have one total, but the rows do not,
/// the columns are the layers. Rows of equal loads are a reason of their own for equal columns, and
/// few rows or columns may be equal by chance.
template <class Load>
[[nodiscard]] bool looks_transposed(plimsoll::tensor_ref<Load const> loads) {
  index_t const rows = loads.extent(1);
  index_t const columns = loads.extent(2);
  constexpr index_t least = 4;
  // With more rows than there can be experts, sums of columns might overflow.
  if (rows < least || columns < least || rows > plimsoll::expert_limit) {
    return false;
  }
  bool result = false;
  for (index_t step = 0; step < loads.extent(0); ++step) {
    total_comparison<Load> of_rows;
    std::vector<Load> column_totals(static_cast<std::size_t>(columns), Load{0});
    bool rows_are_flat = true;
    for (index_t row = 0; row < rows; ++row) {
      Load total = 0;
      for (index_t column = 0; column < columns; ++column) {
        Load const load = loads(step, row, column);
        total += load;
        column_totals[static_cast<std::size_t>(column)] += load;
        rows_are_flat = rows_are_flat && nearly_equal(load, loads(step, row, 0));
      }
      of_rows.add(total);
    }
    total_comparison<Load> of_columns;
    for (Load const total : column_totals) {
      of_columns.add(total);
    }
    if (!of_columns.equal) {
      return false;
    }
    result = result || (of_columns.count >= least && !of_rows.equal && !rows_are_flat);
  }
  return result;
}

/// Whether the first two dimensions are `[layers, steps]`: along the first no total changes, and
/// along the second most differ. (Few may, where layers are of several kinds.)
template <class Load>
[[nodiscard]] bool looks_swapped(plimsoll::tensor_ref<Load const> loads) {
  constexpr index_t least = 4;
  if (loads.extent(0) < least || loads.extent(1) < least) {
    return false;
  }
  std::vector<Load> totals;
  for (index_t second = 0; second < loads.extent(1); ++second) {
    total_comparison<Load> of_first;
    for (index_t first = 0; first < loads.extent(0); ++first) {
      Load total = 0;
      for (index_t expert = 0; expert < loads.extent(2); ++expert) {
        total += loads(first, second, expert);
      }
      of_first.add(total);
    }
    if (!of_first.equal) {
      return false;
    }
    totals.push_back(of_first.first);
  }
  std::sort(totals.begin(), totals.end());
  auto const distinct = std::unique(totals.begin(), totals.end(), nearly_equal<Load>);
  return 2 * (distinct - totals.begin()) > loads.extent(1);
}

template <class Load>
[[nodiscard]] npy::array<Load> checked(npy::array<Load> loads, std::string const& file) {
  if (loads.shape.size() == 2) {
    loads.shape.insert(loads.shape.begin(), 1);
  }
  if (loads.shape.size() != 3) {
    throw file_error(file, "shape (layers, experts) or (steps, layers, experts)",
                     npy::to_string(loads.shape));
  }
  auto const view = view_of(loads);
  check_values(view, file);
  if (looks_transposed(view)) {
    bool const has_steps = loads.shape[0] > 1;
    auto const shape = std::span(loads.shape).subspan(has_steps ? 0 : 1);
    throw file_error(file, has_steps ? "shape (steps, layers, experts)" : "shape (layers, experts)",
                     npy::to_string(shape) + ", whose columns and not rows have equal totals: " +
                         "it looks transposed");
  }
  if (looks_swapped(view)) {
    throw file_error(file, "shape (steps, layers, experts)",
                     npy::to_string(loads.shape) +
                         ", whose layers and not steps have equal totals: steps and layers look "
                         "swapped");
  }
  return loads;
}

constexpr char const* torch_file =
    "a file of PyTorch; convert it in Python: numpy.save('loads.npy', torch.load(FILE, "
    "weights_only=True)['logical_count'].cpu().numpy())";

enum class form { npy, json, csv, unknown };

/// What the name says about the file; unknown for the standard input.
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

[[nodiscard]] std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  return text.substr(0, mark.size()) == mark ? text.substr(mark.size()) : text;
}

/// What the bytes say.
[[nodiscard]] form form_in(std::string_view bytes) {
  if (bytes.substr(0, npy_magic.size()) == npy_magic) {
    return form::npy;
  }
  std::string_view const text = without_byte_order_mark(bytes);
  std::size_t const first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) {
    return form::unknown;
  }
  return text[first] == '{' || text[first] == '[' ? form::json : form::csv;
}

[[nodiscard]] npy::any_array parse_as(form named, std::string_view bytes, std::string const& file) {
  if (bytes.substr(0, 4) == "PK\x03\x04") {  // whatever it is called
    throw file_error(file, "loads as .npy, JSON or CSV",
                     std::string("an archive, perhaps ") + torch_file);
  }
  if (named == form::npy) {
    return npy::parse(bytes, file);
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
  std::string_view const text = without_byte_order_mark(bytes);
  switch (named == form::unknown ? found : named) {
    case form::npy:
      return npy::parse(bytes, file);
    case form::json:
      return parse_json_loads(text, file);
    default:
      return parse_csv_loads(text, file);
  }
}

[[nodiscard]] npy::any_array checked(npy::any_array loads, std::string const& file) {
  return std::visit([&](auto& array) -> npy::any_array { return checked(std::move(array), file); },
                    loads);
}

/// Whether a regular file begins as .npy files do.
[[nodiscard]] bool begins_as_npy(std::string const& file) {
  std::error_code ignored;
  std::array<char, npy_magic.size()> begin{};
  return std::filesystem::is_regular_file(file, ignored) &&
         std::ifstream(file, std::ios::binary).read(begin.data(), begin.size()) &&
         std::string_view(begin.data(), begin.size()) == npy_magic;
}

}  // namespace

npy::any_array read_loads(std::string const& file, reading_progress const& progress) {
  form const named = form_of(file);  // before minutes of reading
  if (named == form::npy && begins_as_npy(file)) {
    return checked(npy::read(file, progress), file);
  }
  return checked(parse_as(named, read_bytes(file, progress), file), file);
}

npy::any_array parse_loads(std::string_view bytes, std::string const& file) {
  return checked(parse_as(form_of(file), bytes, file), file);
}

template <class Load>
npy::array<Load> select_layers(npy::array<Load> const& loads, index_t first, index_t last) {
  index_t const steps = loads.shape[0];
  index_t const layers = loads.shape[1];
  index_t const experts = loads.shape[2];
  if (first < 0 || first >= last || last > layers) {
    throw std::out_of_range(
        "select_layers: expected 0 <= first < last <= " + std::to_string(layers) + ", got " +
        std::to_string(first) + " and " + std::to_string(last));
  }
  npy::array<Load> result{{steps, last - first, experts}, {}};
  result.values.reserve(static_cast<std::size_t>(steps * (last - first) * experts));
  for (index_t step = 0; step < steps; ++step) {
    auto const rows = loads.values.begin() + step * layers * experts;
    result.values.insert(result.values.end(), rows + first * experts, rows + last * experts);
  }
  return result;
}

template <class Load>
std::vector<Load> total_loads(npy::array<Load> const& loads) {
  index_t const layers = loads.shape[1];
  index_t const experts = loads.shape[2];
  std::vector<Load> result(static_cast<std::size_t>(layers * experts));
  plimsoll::sum_steps(plimsoll::seq, view_of(loads),
                      plimsoll::matrix_ref<Load>(result.data(), layers, experts));
  return result;
}

template npy::array<std::int64_t> select_layers(npy::array<std::int64_t> const&, index_t, index_t);
template npy::array<double> select_layers(npy::array<double> const&, index_t, index_t);
template std::vector<std::int64_t> total_loads(npy::array<std::int64_t> const&);
template std::vector<double> total_loads(npy::array<double> const&);

}  // namespace examples
