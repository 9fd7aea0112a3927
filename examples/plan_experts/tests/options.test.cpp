// SPDX-License-Identifier: Apache-2.0
// Checks of options that need no file.
#include "../options.hpp"

#include <doctest/doctest.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

namespace {

using ids = std::vector<std::int64_t>;

/// Returns the message for arguments after the required ones; empty if the program accepts them.
std::string refusal(std::vector<std::string> arguments) {
  CLI::App app("", "plan_experts");
  examples::options o;
  examples::add_options(app, o);
  arguments.insert(arguments.begin(), {"loads.npy", "--ranks", "4", "--slots", "8"});
  std::vector<std::string> const reversed(arguments.rbegin(), arguments.rend());
  try {
    auto copy = reversed;  // CLI11 reads them from the end
    app.parse(copy);
    examples::check_options(app, o);
  } catch (std::exception const& e) {
    return e.what();
  }
  return "";
}

ids layer_ids(std::string const& list, examples::index_t planned) {
  examples::options o;
  o.layer_ids = list;
  return examples::layer_ids_of(o, planned, planned);
}

}  // namespace

TEST_CASE("options: an empty value is refused") {
  CHECK(refusal({"--output", "plan.json"}).empty());
  for (std::string const option :
       {"--output", "--report", "--json", "--plan", "--evaluate", "--key"}) {
    CHECK(refusal({option, ""}) == option + ": expected a value, got an empty one");
  }
}

TEST_CASE("options: ids of layers, with steps") {
  CHECK(layer_ids("1:48:2", 24).size() == 24);
  CHECK(layer_ids("1:6:2", 3) == ids{1, 3, 5});
  CHECK(layer_ids("1:7:2", 3) == ids{1, 3, 5});
  CHECK(layer_ids("1::2", 3) == ids{1, 3, 5});
  CHECK(layer_ids(":5:3", 2) == ids{0, 3});
  CHECK(layer_ids("0,1:4:2,7:", 5) == ids{0, 1, 3, 7, 8});
  for (char const* const list : {"1:6:0", "1:6:-1", "1:6:x", "1:6:", "1:6:2:3"}) {
    CHECK_THROWS_WITH(layer_ids(list, 3),
                      ("--layer-ids: expected ids as first:end or first:end:step, such as 1:48:2, "
                       "got '" +
                       std::string(list) + "'")
                          .c_str());
  }
  CHECK_THROWS_WITH(layer_ids("1:6:2", 4),
                    "--layer-ids: expected one id for each of the 4 layers to plan, got 3");
}
