// SPDX-License-Identifier: Apache-2.0
// Cases with expected results: `<folder>/<family>/<case>/` contains `.npy` arrays and `scalars.txt`
// with a name and a value per line. A few committed cases always run; PLIMSOLL_GOLDEN_DIR names a
// folder with more cases.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "../../examples/apps/plan_experts/npy.hpp"

namespace plimsoll_test {

/// One case. A missing or unreadable file throws, and so fails the test.
class golden_case {
 public:
  explicit golden_case(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::ifstream file(folder_ / "scalars.txt");
    for (std::string key, value; file >> key >> value;) {
      scalars_[key] = value;
    }
    if (scalars_.empty()) {
      throw std::runtime_error(folder_.string() + ": no scalars.txt, or an empty one");
    }
  }

  [[nodiscard]] std::string name() const { return folder_.filename().string(); }
  [[nodiscard]] std::string text(std::string const& key) const { return scalars_.at(key); }
  [[nodiscard]] long integer(std::string const& key) const { return std::stol(text(key)); }
  [[nodiscard]] double real(std::string const& key) const { return std::stod(text(key)); }

  [[nodiscard]] bool has(std::string const& name) const {
    return std::filesystem::exists(folder_ / (name + ".npy"));
  }
  /// Returns the elements of `<name>.npy` as T, in C order.
  template <class T>
  [[nodiscard]] std::vector<T> array(std::string const& name) const {
    return std::visit(
        [](auto const& read) {
          std::vector<T> values;
          for (auto const value : read.values) {
            values.push_back(static_cast<T>(value));
          }
          return values;
        },
        examples::npy::read((folder_ / (name + ".npy")).string()));
  }

 private:
  std::filesystem::path folder_;
  std::map<std::string, std::string> scalars_;
};

/// Returns all cases of a family: the committed cases, then those of PLIMSOLL_GOLDEN_DIR. A folder
/// that exists but has no case fails the test.
inline std::vector<golden_case> golden_cases(std::string const& family) {
  namespace fs = std::filesystem;
  std::vector<fs::path> roots{fs::path(PLIMSOLL_TESTS_DIR) / "golden"};
  char const* const more = std::getenv("PLIMSOLL_GOLDEN_DIR");
  if (more != nullptr && *more != '\0' && fs::exists(more)) {
    roots.emplace_back(more);
  }
  std::vector<golden_case> cases;
  for (fs::path const& root : roots) {
    std::vector<fs::path> folders;
    for (fs::directory_entry const& entry : fs::directory_iterator(root / family)) {
      folders.push_back(entry.path());
    }
    if (folders.empty()) {
      throw std::runtime_error((root / family).string() + ": no cases");
    }
    std::sort(folders.begin(), folders.end());
    for (fs::path const& folder : folders) {
      cases.emplace_back(folder);
    }
  }
  return cases;
}

}  // namespace plimsoll_test
