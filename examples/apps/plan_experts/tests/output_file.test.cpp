// SPDX-License-Identifier: Apache-2.0
// Output files appear complete or not at all, however the program ends.
#include "../output_file.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace {

namespace fs = std::filesystem;

/// A temporary folder, which the destructor removes.
struct folder {
  fs::path path =
      fs::temp_directory_path() / ("plimsoll output_file." + std::to_string(::getpid()));

  folder() { fs::create_directory(path); }
  folder(folder const&) = delete;
  folder& operator=(folder const&) = delete;
  ~folder() { fs::remove_all(path); }

  [[nodiscard]] std::string operator/(char const* name) const { return (path / name).string(); }
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(path), fs::directory_iterator());
  }
};

std::string text_of(std::string const& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write(std::string const& name, char const* text) {
  examples::output_file file("--output", name);
  file.stream() << text;
  file.close();
  file.commit();
}

}  // namespace

TEST_CASE("output_file: without commit the old file stays") {
  folder const here;
  write(here / "a", "old");
  {
    examples::output_file file("--output", here / "a");
    file.stream() << "new";
    file.close();
    CHECK(here.files() == 2);
  }
  CHECK(text_of(here / "a") == "old");
  CHECK(here.files() == 1);
}

TEST_CASE("output_file: links are followed, also to a file that does not exist yet") {
  folder const here;
  fs::create_directory(here.path / "in");
  fs::create_symlink("in/real", here.path / "link");
  fs::create_symlink(here.path / "link", here.path / "in" / "again");
  write(here / "in/again", "first");
  CHECK(text_of(here / "in/real") == "first");
  write(here / "link", "second");
  CHECK(text_of(here / "in/real") == "second");
  CHECK(fs::is_symlink(here.path / "link"));
  CHECK(fs::is_symlink(here.path / "in" / "again"));
  CHECK_FALSE(fs::is_symlink(here.path / "in" / "real"));
  fs::create_symlink("circle", here.path / "circle");
  CHECK_THROWS_WITH(write(here / "circle", ""),
                    ("--output: expected a file that can be written, got '" + (here / "circle") +
                     "': Too many levels of symbolic links")
                        .c_str());
}

TEST_CASE("output_file: a signal leaves nothing behind") {
  for (int const signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    CAPTURE(signal);
    folder const here;
    ::pid_t const child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::signal(signal, SIG_DFL);  // doctest has a handler of its own
      examples::output_file const a("--output", here / "a");
      examples::output_file const b("--report", here / "b");
      if (here.files() != 2) {
        ::_exit(1);
      }
      ::raise(signal);
      ::_exit(2);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == signal);
    CHECK(here.files() == 0);
  }
}
