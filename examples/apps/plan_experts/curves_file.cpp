// SPDX-License-Identifier: Apache-2.0
#include "curves_file.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "command_line.hpp"
#include "file_tree.hpp"
#include "input_file.hpp"
#include "tree_reader.hpp"

namespace examples {
namespace {

using json = nlohmann::json;
using std::to_string;

class curves_reader : tree_reader {
 public:
  curves_reader(std::string const& file, index_t ranks) : tree_reader(file), ranks_(ranks) {}

  [[nodiscard]] curve_samples read(json const& root) const {
    expect_object(root, "");
    expect_no_plan(root);
    curve_samples curves;
    curves.tokens = tokens(required(root, "tokens"));
    curves.latency_us = latencies(required(root, "latency_us"), curves.tokens);
    curves.dense_until = dense_until(required(root, "dense_until"), curves.tokens);
    if (root.contains("speeds")) {
      curves.speeds = speeds(root["speeds"]);
    } else if (std::string const meant = misspelt(root, "speeds"); !meant.empty()) {
      fail("the key speeds, where there are some", in_quotes(meant));
    }
    return curves;
  }

 private:
  static constexpr double most_latency = 0x1p800;

  /// Returns the shortest text that parses to the same number.
  [[nodiscard]] static std::string text(double value) { return json(value).dump(); }

  void expect_no_plan(json const& root) const {
    for (char const* const key : {"logical_count", "physical_to_logical"}) {
      if (root.contains(key)) {
        fail("latency curves", "loads or a plan (" + std::string(key) + ")");
      }
    }
  }

  /// Finds a key that differs from `key` by one letter: the optional key would be silently ignored.
  [[nodiscard]] static std::string misspelt(json const& root, std::string const& key) {
    for (auto const& item : root.items()) {
      if (item.key().size() <= key.size() + 1 && detail::edit_distance(item.key(), key) == 1) {
        return item.key();
      }
    }
    return "";
  }

  [[nodiscard]] json const& required(json const& root, std::string const& key) const {
    if (!root.contains(key)) {
      std::vector<std::string> names;
      for (auto const& item : root.items()) {
        if (item.key().size() <= 2 * key.size()) {  // longer names are never similar
          names.push_back(item.key());
        }
      }
      std::string const meant = nearest(key, names);
      fail("the key " + key, meant.empty() ? "none" : "none; is it " + in_quotes(meant) + "?");
    }
    return root[key];
  }

  [[nodiscard]] row tokens(json const& value) const {
    row const result = values(value, "tokens");
    if (result.size() < 2) {
      fail("at least 2 samples in tokens", to_string(result.size()));
    }
    for (std::size_t i = 0; i < result.size(); ++i) {
      if (result[i] < (i == 0 ? 0 : result[i - 1] + 1) || result[i] >= plimsoll::load_limit) {
        fail("tokens that rise, from 0 to below 2^47",
             to_string(result[i]) + " in tokens, sample " + to_string(i));
      }
    }
    return result;
  }

  [[nodiscard]] std::vector<double> latencies(json const& value, row const& tokens) const {
    std::vector<double> result;
    auto const rows = static_cast<index_t>(list(value, "latency_us").size());
    if (rows != 1 && rows != ranks_) {
      fail("a row in latency_us for each of the " + to_string(ranks_) + " ranks, or one for all",
           to_string(rows));
    }
    for (json const& line : value) {
      std::string const rank = to_string(result.size() / tokens.size());
      auto const of_rank =
          numbers(line, "latency_us[" + rank + "]", static_cast<index_t>(tokens.size()));
      for (std::size_t i = 0; i < of_rank.size(); ++i) {
        double const least = i == 0 ? 0 : of_rank[i - 1];
        if (!(of_rank[i] >= least && of_rank[i] < most_latency)) {
          fail("latency_us from 0 to below 2^800 that do not fall from sample to sample",
               text(of_rank[i]) + (i == 0 ? "" : " after " + text(least)) + " in rank " + rank +
                   ", sample " + to_string(i) + " (" + to_string(tokens[i]) + " tokens)");
        }
      }
      result.insert(result.end(), of_rank.begin(), of_rank.end());
    }
    return result;
  }

  [[nodiscard]] std::int64_t dense_until(json const& value, row const& tokens) const {
    std::int64_t const until = whole(value, "dense_until", 0, plimsoll::load_limit - 1);
    if (until != 0 && until < tokens.back() &&
        !std::binary_search(tokens.begin(), tokens.end(), until)) {
      fail("0, one of tokens, or at least the last of them in dense_until", to_string(until));
    }
    return until;
  }

  [[nodiscard]] std::vector<double> speeds(json const& value) const {
    auto const result = numbers(value, "speeds", ranks_);
    for (std::size_t rank = 0; rank < result.size(); ++rank) {
      if (!(result[rank] >= 0x1p-64 && result[rank] <= 0x1p64)) {
        fail("speeds from 2^-64 to 2^64", text(result[rank]) + " in rank " + to_string(rank));
      }
    }
    double const fastest = *std::max_element(result.begin(), result.end());
    for (std::size_t rank = 0; rank < result.size(); ++rank) {
      if (result[rank] < fastest * 0x1p-16) {
        fail("speeds from 2^-16 of the fastest",
             text(result[rank]) + " in rank " + to_string(rank));
      }
    }
    return result;
  }

  index_t ranks_;
};

}  // namespace

curve_samples read_curves(std::string const& file, index_t ranks) {
  return parse_curves(read_bytes(file), file, ranks);
}

curve_samples parse_curves(std::string_view bytes, std::string const& file, index_t ranks) {
  return curves_reader(file, ranks).read(tree_of_json(bytes, file));
}

}  // namespace examples
