// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the example programs share: options that say what they expect, one way to end in an error.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "npy.hpp"

namespace examples {

/// The exit code of every refused input.
inline constexpr int bad_input = 2;

/// An option or a file that the program cannot use.
class usage_error : public std::runtime_error {
 public:
  usage_error(std::string const& argument, std::string const& expected, std::string const& got)
      : std::runtime_error(argument + ": expected " + expected + ", got " + got) {}
};

namespace detail {

// std::from_chars instead of a stream: no locale, no sign games, and overflow is seen.
template <class T>
[[nodiscard]] bool parses(std::string const& text, T& value) {
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace detail

/// Accepts whole numbers from `low` to `high`.
[[nodiscard]] inline CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  std::string const expected =
      "expected a whole number from " + std::to_string(low) + " to " + std::to_string(high);
  return CLI::Validator(
      [=](std::string& text) {
        std::int64_t value = 0;
        bool const good = detail::parses(text, value) && value >= low && value <= high;
        return good ? std::string() : expected + ", got '" + text + "'";
      },
      "");
}

/// Accepts numbers from 0 to `high`.
[[nodiscard]] inline CLI::Validator number_up_to(int high) {
  std::string const expected = "expected a number from 0 to " + std::to_string(high);
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        bool const good = detail::parses(text, value) && value >= 0 && value <= high;
        return good ? std::string() : expected + ", got '" + text + "'";
      },
      "");
}

/// Accepts the words of a list, "seq, omp or gpu".
[[nodiscard]] inline CLI::Validator one_of(std::vector<std::string> const& words) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) {
      list += i + 1 < words.size() ? ", " : " or ";
    }
    list += words[i];
  }
  return CLI::Validator(
      [=](std::string& text) {
        bool const good = std::find(words.begin(), words.end(), text) != words.end();
        return good ? std::string() : "expected " + list + ", got '" + text + "'";
      },
      "");
}

/// Parses the arguments, runs `body` and turns every exception into one line and exit code 2.
template <class Body>
int run(CLI::App& app, int argc, char const* const* argv, Body&& body) {
  std::string const program = app.get_name();
  auto const refuse = [&](std::string const& message) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), message.c_str());
    return bad_input;
  };
  try {
    app.parse(argc, argv);
    body();
    // A table that nobody received is a failure too, for example on a full disk.
    return std::fflush(stdout) == 0 ? 0 : refuse("output: expected it to be written, got an error");
  } catch (CLI::RequiredError const& e) {
    std::string const what = e.what();  // "--ranks is required"
    return refuse(what.substr(0, what.find(' ')) + ": expected a value, got none");
  } catch (CLI::ParseError const& e) {
    if (e.get_exit_code() == 0) {  // --help
      return app.exit(e);
    }
    return refuse(std::string(e.what()) + " (--help lists the options)");
  } catch (npy::error const& e) {
    return refuse("LOADS: " + std::string(e.what()));
  } catch (std::bad_alloc const&) {
    return refuse("expected enough memory, got less than the input needs");
  } catch (std::exception const& e) {
    return refuse(e.what());
  }
}

}  // namespace examples
