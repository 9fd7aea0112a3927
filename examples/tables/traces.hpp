// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measured loads, which are not part of the repository: rows made from them stay in the page as
/// they are where the files are not at hand.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../plan_experts/npy.hpp"

namespace examples {

/// The folder that PLIMSOLL_TRACE_DIR names; empty, with a message that `program` takes such rows
/// from `page`, where it names none.
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

/// The rows of the page that start so.
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

/// Recorded counts `[parts, layers, experts]` of a file, at least `least` parts of them.
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
