// SPDX-License-Identifier: Apache-2.0
// One public face: the order of arguments, views, names and options are alike in all calls and
// objects. Calls are those that the samples make; declarations are read from the public headers.
// Each rule is also tried on a declaration that breaks it.
#include <doctest/doctest.h>
#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

using strings = std::vector<std::string>;

std::string joined(strings const& parts) {
  std::string all;
  for (std::string const& part : parts) {
    all += part + "\n";
  }
  return all;
}

/// Verbs that names of calls begin with.
std::set<std::string> const verbs{
    "align",   "allocate",  "assign",   "certify",   "check",    "classify",  "copy",   "correlate",
    "count",   "decide",    "dispatch", "divide",    "estimate", "measure",   "place",  "plan",
    "read",    "rebalance", "refine",   "replan",    "replay",   "replicate", "resize", "round",
    "scatter", "select",    "sum",      "summarize", "validate", "draw",      "expand", "zeros"};
/// Names that are no verbs. What the field calls by a noun keeps it, and a call that only evaluates
/// one formula has the name of its value.
std::set<std::string> const nouns{// algorithms and systems
                                  "top_k", "knapsack", "swap_search", "eplb", "gem", "craft",
                                  // values
                                  "knapsack_curve", "rank_loads", "rank_latencies",
                                  "step_latencies", "trace_length_latencies", "changed_layers",
                                  "correlated_pairs"};

/// Calls that compute a value from values, and read no array.
std::set<std::string> const without_policy{"philox", "price_of_move", "replica_budget",
                                           "sampling_plan"};

std::string text_of(std::filesystem::path const& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Returns the text without comments and with one space for each run of white space.
std::string flat(std::string const& text) {
  std::string const code = std::regex_replace(text, std::regex(R"(//[^\n]*)"), "");
  return std::regex_replace(code, std::regex(R"(\s+)"), " ");
}

std::string public_headers() {
  std::string all;
  std::filesystem::path const include = PLIMSOLL_TESTS_DIR "/../include/plimsoll";
  for (char const* folder : {".", "systems"}) {
    std::set<std::filesystem::path> files;
    for (auto const& entry : std::filesystem::directory_iterator(include / folder)) {
      if (entry.path().extension() == ".hpp") {
        files.insert(entry.path());
      }
    }
    for (auto const& file : files) {
      all += text_of(file);
    }
  }
  return all;
}

/// Returns the first group of every match.
strings all_of(std::string const& text, std::regex const& pattern) {
  strings found;
  for (std::sregex_iterator match(text.begin(), text.end(), pattern), end; match != end; ++match) {
    found.push_back((*match)[1]);
  }
  return found;
}

/// Returns the names that the samples call functions, constructors and members by.
std::set<std::string> sampled_calls() {
  std::set<std::string> names;
  for (auto const& entry : std::filesystem::directory_iterator(PLIMSOLL_TESTS_DIR "/samples")) {
    for (std::string const& name :
         all_of(text_of(entry.path()),
                std::regex(R"re(run\.(?:call|of_step|prepare|work)\(\s*"([a-z_0-9:]+)")re"))) {
      names.insert(name);
    }
  }
  return names;
}

/// Returns the body of `class name` or `struct name` in flat text; empty if there is none.
std::string body_of(std::string const& code, std::string const& name) {
  std::smatch found;
  if (!std::regex_search(code, found,
                         std::regex("(?:class|struct) " + name + R"((?: : [^{]*)? \{)"))) {
    return {};
  }
  auto at = static_cast<std::size_t>(found.position() + found.length());
  auto const begin = at;
  for (int depth = 1; depth > 0; ++at) {
    depth += code[at] == '{' ? 1 : code[at] == '}' ? -1 : 0;
  }
  return code.substr(begin, at - begin);
}

/// Returns flat text without the bodies of its classes.
std::string without_classes(std::string code) {
  for (std::string const& name : all_of(code, std::regex(R"( class (\w+)(?: : [^{;]*)? \{)"))) {
    std::string const body = body_of(code, name);
    code.erase(code.find(body), body.size());
  }
  return code;
}

/// Returns the parameters of each function or constructor `name` that is defined in flat text.
strings parameters_of(std::string const& code, std::string const& name) {
  strings found;
  std::regex const begin("[ >&]" + name + R"(\()");
  for (std::sregex_iterator match(code.begin(), code.end(), begin), end; match != end; ++match) {
    auto at = static_cast<std::size_t>(match->position() + match->length());
    auto const first = at;
    for (int depth = 1; depth > 0 && at < code.size(); ++at) {
      depth += code[at] == '(' ? 1 : code[at] == ')' ? -1 : 0;
    }
    std::string const list = code.substr(first, at - first - 1);
    std::string const rest = code.substr(at, 3);
    // A definition, whose parameters have types: `name(P const& policy, ...) {` or `) : member_(`.
    if ((rest.starts_with(" {") || rest.starts_with(" : ")) &&
        list.find("const& ") != std::string::npos) {
      found.push_back(list);
    }
  }
  return found;
}

/// Rules: each returns what breaks it.
strings without_policy_first(std::string const& code, std::string const& name) {
  strings bad;
  for (std::string const& list : parameters_of(code, name)) {
    if (!list.starts_with("P const& policy") && !list.starts_with("seq_policy const& policy")) {
      bad.push_back(name + "(" + list + ")");
    }
  }
  return bad;
}
strings mutable_views_of_const(std::string const& code) {
  return all_of(
      code,
      std::regex(
          R"re(((?:vector|matrix|tensor|scalar|array)_ref<(?:[^<>]*[^<>t]|[^<>]*[^s]t)(?:, \d)?> \w+\([^()]*\) const\b))re"));
}
strings several_updates(std::string const& code, strings const& classes) {
  strings bad;
  for (std::string const& name : classes) {
    std::string const body = body_of(code, name);
    strings const updates = all_of(body, std::regex(R"re(void (update\(.*?\)) \{ )re"));
    if (updates.size() > 1) {
      bad.push_back(name + ": " + std::to_string(updates.size()) + " of update");
    }
    for (std::string const& update : updates) {
      if (!update.ends_with("std::optional<rank_set> const& on = {})")) {
        bad.push_back(name + "::" + update);
      }
    }
  }
  return bad;
}
strings neither_verb_nor_listed(std::set<std::string> const& names) {
  strings bad;
  for (std::string const& name : names) {
    bool const converts = name.find("_to_") != std::string::npos;
    if (!converts && !nouns.contains(name) && !verbs.contains(name.substr(0, name.find('_')))) {
      bad.push_back(name);
    }
  }
  return bad;
}
strings bool_options(std::string const& code) {
  strings bad;
  for (std::string const& name : all_of(code, std::regex(R"(struct (\w+_options)\b)"))) {
    for (std::string const& member :
         all_of(body_of(code, name), std::regex(R"(\bbool (\w+) = )"))) {
      bad.push_back(name + "." + member);
    }
  }
  return bad;
}
strings internal_names(std::string const& code) {
  // In the head of a template, its constraints, and the parameters up to the body.
  std::string const declared =
      std::regex_replace(code, std::regex(R"(\) : \w+_[({][^;]*?\{)"), ") {");
  return all_of(declared, std::regex(R"re((template <[^{};]*\bdetail::[^{};()]*\())re"));
}
strings results_that_are_no_placement(std::string const& code) {
  strings bad;
  for (std::string const& name : all_of(
           code,
           std::regex(R"(template <unqualified_policy P, class Context[^>]*>> struct (\w+) \{)"))) {
    if (name != "placement" && name != "replication") {
      bad.push_back(name);
    }
  }
  return bad;
}

}  // namespace

TEST_CASE("api: the rules hold for all calls and objects") {
  std::string const code = flat(public_headers());
  std::string const outside_of_classes = without_classes(code);
  std::set<std::string> const calls = sampled_calls();
  std::set<std::string> functions;
  strings objects;
  for (std::string const& name : calls) {
    if (name.find(':') != std::string::npos || without_policy.contains(name)) {
      continue;
    }
    bool const is_object = !body_of(code, name).empty();
    (is_object ? void(objects.push_back(name)) : void(functions.insert(name)));
    CAPTURE(name);
    std::string const& where = is_object ? code : outside_of_classes;
    CHECK(!parameters_of(where, name).empty());
    CHECK(joined(without_policy_first(where, name)) == "");
  }
  CHECK(objects.size() >= 10);
  CHECK(functions.size() >= 40);
  CHECK(joined(several_updates(code, objects)) == "");
  CHECK(joined(neither_verb_nor_listed(functions)) == "");
  CHECK(joined(mutable_views_of_const(code)) == "");
  CHECK(joined(bool_options(code)) == "");
  CHECK(joined(internal_names(code)) == "");
  CHECK(joined(results_that_are_no_placement(code)) == "");
}

TEST_CASE("api: each rule finds what breaks it") {
  CHECK(without_policy_first("void f(Loads const& loads, P const& policy) {}", "f").size() == 1);
  CHECK(without_policy_first("void f(P const& policy, Loads const& loads) {}", "f").empty());
  CHECK(mutable_views_of_const("vector_ref<int> report() const {}").size() == 1);
  CHECK(mutable_views_of_const("matrix_ref<std::int64_t> loads() const {}").size() == 1);
  CHECK(mutable_views_of_const("scalar_ref<spill_report> report() const {}").size() == 1);
  CHECK(mutable_views_of_const("vector_ref<int const> report() const {}").empty());
  CHECK(mutable_views_of_const("vector_ref<int> counts() {}").empty());
  std::string const twice =
      "class lp { void update(index_t i, std::optional<rank_set> const& on = {}) { } "
      "void update(int i) { } };";
  CHECK(several_updates(twice, {"lp"}).size() == 2);
  CHECK(several_updates("class lp { void update(rank_set const& on) { } };", {"lp"}).size() == 1);
  CHECK(neither_verb_nor_listed({"quota", "round_split", "slots_to_counts"}) == strings{"quota"});
  CHECK(bool_options("struct a_options { bool literal = false; };") ==
        strings{"a_options.literal"});
  CHECK(bool_options("struct a_report { bool literal = false; };").empty());
  CHECK(
      internal_names("template <class P, detail::stored<3> Ids> void f(P const& policy)").size() ==
      1);
  CHECK(internal_names("template <class P> void f(P const& policy) { detail::g(); }").empty());
  CHECK(results_that_are_no_placement("template <unqualified_policy P, class Context = "
                                      "kept_context<P>> struct plan_of { }; ") ==
        strings{"plan_of"});
}
