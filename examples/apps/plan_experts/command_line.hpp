// SPDX-License-Identifier: Apache-2.0
/// @file
/// Option parsing: validators whose messages say what they expect, and one way to report errors.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <limits>
#include <new>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace examples {

/// Exit code for every refused input.
inline constexpr int bad_input = 2;

/// An option or a file that the program cannot use.
class usage_error : public std::runtime_error {
 public:
  usage_error(std::string const& argument, std::string const& expected, std::string const& got)
      : std::runtime_error(argument + ": expected " + expected + ", got " + got) {}
};

namespace detail {

// std::from_chars instead of a stream: no locale, no leading plus sign, and overflow is an error.
template <class T>
[[nodiscard]] bool parses(std::string const& text, T& value) {
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// Levenshtein distance: how many letters to insert, delete or replace.
[[nodiscard]] inline std::size_t edit_distance(std::string const& a, std::string const& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      std::size_t const replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
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

namespace detail {

/// Converts a size such as 44MB, 1.5GB or 42MiB to bytes; nothing if it is no whole number of them.
[[nodiscard]] inline std::optional<std::int64_t> parse_size(std::string const& text) {
  std::int64_t bytes = 1;  // of the unit
  std::string number;
  std::string name;
  std::size_t places = 0;  // behind the point
  for (char const c : text) {
    bool const is_digit = c >= '0' && c <= '9';
    if (name.empty() && (is_digit || c == '.')) {
      places += places > 0 || c == '.' ? 1 : 0;
      number += is_digit ? std::string(1, c) : "";
    } else if (c != ' ') {
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  std::string_view unit = name;  // k, kb or kib, up to p
  constexpr std::string_view prefixes = "kmgtp";
  if (auto const power = prefixes.find(unit.substr(0, 1));
      !unit.empty() && power < prefixes.size()) {
    for (std::size_t i = 0; i <= power; ++i) {
      bytes *= unit.substr(1) == "ib" ? 1024 : 1000;
    }
    unit.remove_prefix(unit.substr(1) == "ib" ? 2 : 1);
  }
  std::int64_t value = 0;
  if (!(unit.empty() || unit == "b") || std::count(text.begin(), text.end(), '.') > 1 ||
      !parses(number, value) || value > std::numeric_limits<std::int64_t>::max() / bytes) {
    return {};
  }
  value *= bytes;
  for (std::size_t i = 1; i < places; ++i) {
    if (value % 10 != 0) {
      return {};
    }
    value /= 10;
  }
  return value;
}

}  // namespace detail

/// Accepts sizes from `low` to `high` bytes, and replaces them by the number of bytes.
[[nodiscard]] inline CLI::Validator byte_size(std::int64_t low, std::int64_t high) {
  std::string const expected = "expected a size from " + std::to_string(low) + " to " +
                               std::to_string(high) + " bytes, such as 44MB or 42MiB";
  return CLI::Validator(
      [=](std::string& text) {
        auto const value = detail::parse_size(text);
        if (!value || *value < low || *value > high) {
          return expected + ", got '" + text + "'";
        }
        text = std::to_string(*value);
        return std::string();
      },
      "");
}

/// Accepts numbers above 0, up to `high`.
[[nodiscard]] inline CLI::Validator positive_number(std::int64_t high) {
  std::string const expected = "expected a number above 0, at most " + std::to_string(high);
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        bool const good =
            detail::parses(text, value) && value > 0 && value <= static_cast<double>(high);
        return good ? std::string() : expected + ", got '" + text + "'";
      },
      "");
}

/// Accepts numbers from 0 to `high`.
[[nodiscard]] inline CLI::Validator number_from_zero(std::int64_t high) {
  std::string const expected = "expected a number from 0 to " + std::to_string(high);
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        bool const good =
            detail::parses(text, value) && value >= 0 && value <= static_cast<double>(high);
        return good ? std::string() : expected + ", got '" + text + "'";
      },
      "");
}

/// Returns the word of a list most similar to `text`, of several the shortest, to suggest after a
/// typing error; empty if none is similar.
[[nodiscard]] inline std::string nearest(std::string const& text,
                                         std::vector<std::string> const& words) {
  std::string best;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  for (std::string const& word : words) {
    std::size_t const shorter = std::min(text.size(), word.size());
    std::size_t const longer = std::max(text.size(), word.size());
    bool const begins = shorter > 0 && text.substr(0, shorter) == word.substr(0, shorter);
    std::size_t const distance = begins ? 0 : detail::edit_distance(text, word);
    bool const nearer =
        distance < best_distance || (distance == best_distance && word.size() < best.size());
    if (2 * distance <= longer && nearer) {
      best = word;
      best_distance = distance;
    }
  }
  return best;
}

/// Joins words as in a sentence: "seq, omp or gpu".
[[nodiscard]] inline std::string sentence_of(std::vector<std::string> const& words) {
  std::string list;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) {
      list += i + 1 < words.size() ? ", " : " or ";
    }
    list += words[i];
  }
  return list;
}

/// Accepts the words of a list.
[[nodiscard]] inline CLI::Validator one_of(std::vector<std::string> const& words) {
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        if (std::find(words.begin(), words.end(), text) != words.end()) {
          return "";
        }
        std::string const meant = nearest(text, words);
        return "expected " + sentence_of(words) + ", got '" + text + "'" +
               (meant.empty() ? "" : "; did you mean " + meant + "?");
      },
      "");
}

namespace detail {

/// Message for an argument that no option takes.
[[nodiscard]] inline std::string what_is_extra(CLI::App const& app) {
  std::string const extra = app.remaining().front();
  if (!extra.starts_with("-")) {
    return "arguments: expected options, got also '" + extra +
           "' (one file at a time; names with blanks need quotes)";
  }
  std::vector<std::string> names;
  for (CLI::Option const* option : app.get_options()) {
    names.push_back(option->get_name());
  }
  std::string const meant = nearest(extra, names);
  return extra + ": expected an option that --help lists, got another" +
         (meant.empty() ? "" : "; did you mean " + meant + "?");
}

}  // namespace detail

/// Parses the arguments and runs `body`, whose result is the exit status if it has one. Turns every
/// exception into one line and exit code 2.
template <class Body>
int run(CLI::App& app, int argc, char const* const* argv, Body&& body) {
  std::string const program = app.get_name();
  auto const refuse = [&](std::string const& message) {
    std::string line;  // a name may hold line ends
    for (char const c : message) {
      bool const prints = static_cast<unsigned char>(c) >= 32 && c != 127;
      line += prints ? std::string(1, c) : c == '\n' ? "\\n" : "?";
    }
    std::fprintf(stderr, "%s: %s\n", program.c_str(), line.c_str());
    return bad_input;
  };
  try {
    app.parse(argc, argv);
    int status = 0;
    if constexpr (std::same_as<decltype(body()), int>) {
      status = body();
    } else {
      body();
    }
    // Output that could not be written is a failure too, for example on a full disk.
    return std::fflush(stdout) == 0 ? status
                                    : refuse("output: expected it to be written, got an error");
  } catch (CLI::RequiredError const& e) {
    std::string const what = e.what();  // "--ranks is required"
    return refuse(what.substr(0, what.find(' ')) + ": expected a value, got none");
  } catch (CLI::ExtrasError const&) {
    return refuse(detail::what_is_extra(app));
  } catch (CLI::ArgumentMismatch const& e) {
    std::string const what = e.what();  // "--ranks: 1 required INT missing", and worse
    return refuse(what.substr(0, what.find(':')) + ": expected one value, got none or several");
  } catch (CLI::ParseError const& e) {
    if (e.get_exit_code() == 0) {  // --help
      return app.exit(e);
    }
    return refuse(std::string(e.what()) + " (--help lists the options)");
  } catch (std::bad_alloc const&) {
    return refuse("expected enough memory, got less than the input needs");
  } catch (std::exception const& e) {
    return refuse(e.what());
  }
}

}  // namespace examples
