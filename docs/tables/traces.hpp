// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads measured loads, which are not part of the repository. Without these files a program copies
/// the rows that need them from the existing page.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../../examples/apps/plan_experts/npy.hpp"

namespace examples {

/// Returns the folder that PLIMSOLL_TRACE_DIR names. If it names none, returns an empty string and
/// reports that `program` copies the rows from `page`.
[[nodiscard]] inline std::string trace_folder(std::string const& program, std::string const& page) {
  char const* const set = std::getenv("PLIMSOLL_TRACE_DIR");
  if (set != nullptr && std::filesystem::is_directory(set)) {
    return set;
  }
  std::cerr << program
            << ": PLIMSOLL_TRACE_DIR names no folder, so rows of measured loads are those that "
            << page << " has\n";
  return "";
}

/// Returns the rows of the page that begin with `start`.
[[nodiscard]] inline std::vector<std::string> rows_of_page(std::string const& page,
                                                           std::string const& start) {
  std::ifstream file(page);
  if (!file) {
    throw std::runtime_error(page + ": cannot be read");
  }
  std::vector<std::string> rows;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(start)) {
      rows.push_back(line);
    }
  }
  return rows;
}

/// Returns the rows of the table that `program` makes on the page, without its header.
[[nodiscard]] inline std::vector<std::string> rows_of_table(std::string const& page,
                                                            std::string const& program) {
  std::vector<std::string> rows;
  bool is_inside = false;
  for (std::string const& line : rows_of_page(page, "")) {
    if (line.starts_with("<!-- table: ") || line.starts_with("<!-- end of table")) {
      is_inside = line == "<!-- table: docs/tables/" + program + " -->";
    } else if (is_inside) {
      rows.push_back(line);
    }
  }
  rows.erase(rows.begin(), rows.begin() + std::min<std::ptrdiff_t>(std::ssize(rows), 2));
  return rows;
}

inline void print_lines(std::vector<std::string> const& lines) {
  for (std::string const& line : lines) {
    std::cout << line << '\n';
  }
}

/// The main function of a program that gets a page: calls `print(page)`.
template <class Print>
int run_with_page(std::string const& program, int argc, char** argv, Print print) {
  if (argc != 2) {
    std::cerr << "usage: " << program << " PAGE\n";
    return 2;
  }
  try {
    print(std::string(argv[1]));
  } catch (std::exception const& error) {
    std::cerr << program << ": " << error.what() << '\n';
    return 2;
  }
  return 0;
}

/// The main function of a program whose only table is of measured loads: prints its header, then
/// `print(folder)` prints the rows. Without traces the rows are those of the page.
template <class Print>
int make_measured_table(std::string const& program, int argc, char** argv, char const* header,
                        Print print) {
  return run_with_page(program, argc, argv, [&](std::string const& page) {
    std::string const folder = trace_folder(program, page);
    std::cout << header;
    if (folder.empty()) {
      print_lines(rows_of_table(page, program));
    } else {
      print(folder);
    }
  });
}

/// Returns the cells of a row of a table.
[[nodiscard]] inline std::vector<std::string> cells_of_row(std::string const& row) {
  std::vector<std::string> cells;
  std::size_t begin = 2;
  for (std::size_t end = row.find(" | ", begin); end != std::string::npos;
       end = row.find(" | ", begin)) {
    cells.push_back(row.substr(begin, end - begin));
    begin = end + 3;
  }
  cells.push_back(row.substr(begin, row.size() - begin - 2));
  return cells;
}

/// Returns the cells of the rows of the table that `program` makes on the page, without its header.
[[nodiscard]] inline std::vector<std::vector<std::string>> cells_of_table(
    std::string const& page, std::string const& program) {
  std::vector<std::vector<std::string>> result;
  for (std::string const& row : rows_of_table(page, program)) {
    result.push_back(cells_of_row(row));
  }
  return result;
}

/// Reads recorded counts `[parts, layers, experts]` of a file with at least `least` parts.
[[nodiscard]] inline npy::array<std::int64_t> measured_counts(std::string const& file, int least) {
  npy::any_array read = npy::read(file);
  auto* const counts = std::get_if<npy::array<std::int64_t>>(&read);
  if (counts == nullptr || counts->shape.size() != 3 || counts->shape[0] < least) {
    throw std::runtime_error(file + ": expected integers of shape (" + std::to_string(least) +
                             " or more, layers, experts)");
  }
  return std::move(*counts);
}

}  // namespace examples
