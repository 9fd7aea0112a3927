// SPDX-License-Identifier: Apache-2.0
#include "file_tree.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "input_file.hpp"

namespace examples {
namespace {

using json = nlohmann::json;
using std::to_string;

/// Builds the tree from the parser's events, so that anchors (a small file can expand to a huge
/// tree), duplicate keys and deep nesting are refused in time.
class yaml_tree : public YAML::EventHandler {
 public:
  explicit yaml_tree(std::string const& file) : file_(file) {}

  [[nodiscard]] json take() { return std::move(root_); }

  void OnDocumentStart(YAML::Mark const& mark) override {
    if (std::exchange(has_document_, true)) {
      fail("one document", "another", mark);
    }
  }
  void OnDocumentEnd() override {}
  void OnNull(YAML::Mark const& mark, YAML::anchor_t anchor) override {
    if (in_key_position()) {
      fail("a key", "none", mark);
    }
    expect_no_anchor(mark, anchor);
    add(nullptr);
  }
  void OnAlias(YAML::Mark const& mark, YAML::anchor_t anchor) override {
    expect_no_anchor(mark, anchor);
  }
  void OnScalar(YAML::Mark const& mark, std::string const& tag, YAML::anchor_t anchor,
                std::string const& text) override {
    expect_no_anchor(mark, anchor);
    if (in_key_position()) {
      open_.back().key = text;
      if (open_.back().value.contains(text)) {
        fail("every key once", "another " + in_quotes(text), mark);
      }
      return;
    }
    auto const number = decimal(text);
    bool const plain = tag == "?";
    if (plain && number) {
      add(*number);
    } else {
      add(text);
    }
  }
  void OnSequenceStart(YAML::Mark const& mark, std::string const&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(mark, anchor, json::array());
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(YAML::Mark const& mark, std::string const&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(mark, anchor, json::object());
  }
  void OnMapEnd() override { end(); }

 private:
  struct level {
    json value;
    std::optional<std::string> key;  // a key that waits for its value
  };

  [[noreturn]] void fail(std::string const& expected, std::string const& got,
                         YAML::Mark const& mark) const {
    throw file_error(file_, expected, got + " in line " + to_string(mark.line + 1));
  }

  void expect_no_anchor(YAML::Mark const& mark, YAML::anchor_t anchor) const {
    if (anchor != YAML::NullAnchor) {
      fail("no anchors or aliases", "one", mark);
    }
  }

  [[nodiscard]] bool in_key_position() const {
    return !open_.empty() && open_.back().value.is_object() && !open_.back().key;
  }

  void begin(YAML::Mark const& mark, YAML::anchor_t anchor, json value) {
    constexpr std::size_t deepest = 8;
    expect_no_anchor(mark, anchor);
    if (in_key_position()) {
      fail("a key", "a list or a map", mark);
    }
    if (open_.size() == deepest) {
      fail("at most " + to_string(deepest) + " levels", "more", mark);
    }
    open_.push_back({std::move(value), {}});
  }

  void end() {
    json value = std::move(open_.back().value);
    open_.pop_back();
    add(std::move(value));
  }

  void add(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (level& parent = open_.back(); parent.key) {
      parent.value[*std::exchange(parent.key, {})] = std::move(value);
    } else {
      parent.value.push_back(std::move(value));
    }
  }

  std::string const& file_;
  bool has_document_ = false;
  json root_;
  std::vector<level> open_;
};

}  // namespace

std::optional<std::int64_t> decimal(std::string const& text) {
  std::int64_t number = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  bool const canonical = error == std::errc() && to_string(number) == text;
  return canonical ? std::optional(number) : std::nullopt;
}

json tree_of_json(std::string_view bytes, std::string const& file) {
  std::vector<std::set<std::string>> keys;  // keys of each open object
  auto const check_keys = [&](int, json::parse_event_t event, json& key) {
    if (event == json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == json::parse_event_t::key) {
      auto const& name = key.get_ref<std::string const&>();
      if (!keys.back().insert(name).second) {
        throw file_error(file, "every key once", "another " + in_quotes(name));
      }
    }
    return true;
  };
  try {
    return json::parse(bytes, check_keys);
  } catch (json::parse_error const& e) {
    throw file_error(file, "JSON",
                     "a mistake at " + position_in(bytes, e.byte > 0 ? e.byte - 1 : 0));
  } catch (json::out_of_range const&) {
    throw file_error(file, "numbers that fit in 64 bits", "one that does not");
  }
}

json tree_of_yaml(std::string_view bytes, std::string const& file) {
  std::istringstream stream{std::string(bytes)};
  yaml_tree tree(file);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(tree)) {
    }
  } catch (YAML::Exception const& e) {
    throw file_error(file, "YAML",
                     "a mistake at line " + to_string(e.mark.line + 1) + ", column " +
                         to_string(e.mark.column + 1));
  }
  return tree.take();
}

std::string shown(json const& value) {
  if (value.is_string()) {
    return in_quotes(value.get_ref<std::string const&>());
  }
  return value.is_array() ? "a list" : value.is_object() ? "an object" : value.dump();
}

}  // namespace examples
