// SPDX-License-Identifier: Apache-2.0
#include "byte_store.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

namespace examples {
namespace {

constexpr std::size_t most_in_memory = std::size_t{8} << 20;
constexpr std::size_t block_size = std::size_t{1} << 18;

[[nodiscard]] std::string reason(int code) {
  return code != 0 ? std::generic_category().message(code) : "an error while reading";
}

/// Opens a temporary file that has no name in any folder.
[[nodiscard]] int open_unnamed(std::string const& folder) {
#ifdef O_TMPFILE
  int const file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
  if (file >= 0) {
    return file;
  }
#endif
  std::string name = folder + "/plan_experts.XXXXXX";  // without O_TMPFILE
  int const named = ::mkstemp(name.data());
  if (named >= 0) {
    ::unlink(name.c_str());
  }
  return named;
}

}  // namespace

byte_store byte_store::of(std::string const& file, reading_progress const& progress) {
  byte_store store(file);
  std::error_code ignored;
  if (file != "-" && std::filesystem::is_regular_file(file, ignored)) {
    store.file_ = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    off_t const size = store.file_ < 0 ? -1 : ::lseek(store.file_, 0, SEEK_END);
    if (size < 0) {
      throw file_error(file, "a readable file", reason(errno));
    }
    store.in_file_ = static_cast<std::uint64_t>(size);
    return store;
  }
  read_pieces(file, progress, [&](std::string_view piece) { store.append(piece); });
  return store;
}

byte_store::byte_store(byte_store&& other) noexcept
    : name_(std::move(other.name_)),
      file_(std::exchange(other.file_, -1)),
      in_file_(std::exchange(other.in_file_, 0)),
      tail_(std::move(other.tail_)) {}

byte_store::~byte_store() {
  if (file_ >= 0) {
    ::close(file_);
  }
}

void byte_store::append(std::string_view bytes) {
  tail_.append(bytes);
  if (tail_.size() >= most_in_memory) {
    flush();
  }
}

void byte_store::flush() {
  std::error_code no_folder;
  std::string const folder = std::filesystem::temp_directory_path(no_folder).string();
  auto const fail = [&](int code) {
    throw file_error(name_,
                     "space for a copy of its loads in the temporary folder " + in_quotes(folder) +
                         ", at least " + std::to_string(size()) + " bytes",
                     reason(code));
  };
  if (no_folder) {
    fail(no_folder.value());
  }
  if (file_ < 0) {
    file_ = open_unnamed(folder);
    if (file_ < 0) {
      fail(errno);
    }
  }
  for (std::size_t written = 0; written < tail_.size();) {
    ssize_t const count = ::pwrite(file_, tail_.data() + written, tail_.size() - written,
                                   static_cast<off_t>(in_file_ + written));
    if (count < 0 && errno != EINTR) {
      fail(errno);
    }
    written += count > 0 ? static_cast<std::size_t>(count) : 0;
  }
  in_file_ += tail_.size();
  tail_.clear();
}

void byte_store::read(std::uint64_t at, char* to, std::size_t count) const {
  while (count > 0 && at < in_file_) {
    auto const wanted = static_cast<std::size_t>(std::min<std::uint64_t>(count, in_file_ - at));
    ssize_t const got = ::pread(file_, to, wanted, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      throw file_error(name_, "a readable file",
                       got == 0 ? "fewer bytes than when it was opened" : reason(errno));
    }
    at += static_cast<std::uint64_t>(got);
    to += got;
    count -= static_cast<std::size_t>(got);
  }
  if (count > 0) {
    if (at < in_file_ || at - in_file_ + count > tail_.size()) {
      throw file_error(name_, "a readable file", "the end of the file");
    }
    std::copy_n(tail_.data() + (at - in_file_), count, to);
  }
}

std::string byte_store::text(std::uint64_t at, std::size_t count) const {
  std::string bytes(
      static_cast<std::size_t>(std::min<std::uint64_t>(count, size() - std::min(at, size()))), ' ');
  read(at, bytes.data(), bytes.size());
  return bytes;
}

bool byte_reader::load() {
  block_ = store_.text(loaded_, block_size);
  at_ = 0;
  loaded_ += block_.size();
  if (progress_ && !block_.empty()) {
    progress_(loaded_, store_.size());
  }
  return !block_.empty();
}

bool byte_reader::line(std::string& to) {
  constexpr std::size_t longest = std::size_t{4} << 20;  // 65535 loads of 64 letters
  to.clear();
  if (peek() == end) {
    return false;
  }
  while (peek() != end) {
    auto const found = block_.find('\n', at_);
    to.append(block_, at_, found - at_);
    if (to.size() > longest) {
      throw file_error(store_.name(), "lines of at most 4 MiB", "a longer one");
    }
    at_ = std::min(found, block_.size());
    if (found != std::string::npos) {
      next();
      return true;
    }
  }
  return true;
}

}  // namespace examples
