// SPDX-License-Identifier: Apache-2.0
// Checks that hold for every call, tried on the samples of all public headers. This program counts
// the calls of operator new, so it is no part of another.
#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "support/enumerators.hpp"
#include "support/print.hpp"
#include "support/refusal.hpp"
#include "support/sample_run.hpp"
#include "support/stream_policy.hpp"

namespace {
std::atomic<long> news = 0;
}

// None is inlined: g++ would warn that memory of operator new is passed to free, or the reverse.
PLIMSOLL_NOINLINE void* operator new(std::size_t bytes) {
  ++news;
  if (void* const pointer = std::malloc(bytes)) {
    return pointer;
  }
  throw std::bad_alloc();
}
PLIMSOLL_NOINLINE void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ++news;
  auto const unit = static_cast<std::size_t>(alignment);
  if (void* const pointer = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) {
    return pointer;
  }
  throw std::bad_alloc();
}
// Used by the standard library for its own buffers; AddressSanitizer would replace these itself.
PLIMSOLL_NOINLINE void* operator new(std::size_t bytes, std::nothrow_t const&) noexcept {
  ++news;
  return std::malloc(bytes);
}
PLIMSOLL_NOINLINE void operator delete(void* pointer) noexcept { std::free(pointer); }
PLIMSOLL_NOINLINE void operator delete(void* pointer, std::size_t) noexcept { std::free(pointer); }
PLIMSOLL_NOINLINE void operator delete(void* pointer, std::align_val_t) noexcept {
  std::free(pointer);
}
PLIMSOLL_NOINLINE void operator delete(void* pointer, std::size_t, std::align_val_t) noexcept {
  std::free(pointer);
}

namespace plimsoll_test { namespace {

enum class check { results, null_views, rank_sets, enumerators, memory, failing_memory, stray_ids };

/// Thrown where a valid call of a sample fails.
struct cannot_go_on {};

/// Makes the calls of a sample in the ways that a check demands; the last of them with its values.
class sample_checks {
 public:
  explicit sample_checks(check kind) : kind_(kind) {}

  template <class Call>
  auto make(char const* function, call_kind kind, Call const& call) {
    INFO(std::string(function));
    ++calls_;
    auto made = [&] {
      switch (kind_) {
        case check::null_views:
          return with_null_views(function, call);
        case check::rank_sets:
          return with_rank_sets(function, call);
        case check::enumerators:
          return with_enumerators(function, call);
        case check::memory:
          return with_counters(kind, call);
        case check::failing_memory:
          return with_failing_memory(call);
        case check::stray_ids:
          return with_stray_ids(function, call);
        default:
          return value_in(attempt(call));
      }
    }();
    check_certificates(made);
    if constexpr (!std::is_void_v<decltype(call())>) {
      return made;
    }
  }

  template <class T, int Rank>
  plimsoll::array_ref<T, Rank> changed(argument_name const& name,
                                       plimsoll::array_ref<T, Rank> view) {
    if (kind_ == check::null_views && views_++ == variant_) {
      null_ = name;
      view.data = nullptr;
    }
    return view;
  }

  plimsoll::rank_set changed(char const* name, plimsoll::rank_set on, rank_rules const& rules) {
    static constexpr std::uint8_t flags[64] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    static constexpr double speeds[64] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    index_t const count = on.ranks;
    if (kind_ == check::null_views) {
      on.active = changed({name, "active"}, plimsoll::vector_ref<std::uint8_t const>(flags, count));
      if (rules.no_speeds == nullptr) {
        on.speeds = changed({name, "speeds"}, plimsoll::vector_ref<double const>(speeds, count));
      }
    }
    if (kind_ != check::rank_sets) {
      return on;
    }
    ++rank_sets_;
    std::string const n = std::to_string(count);
    std::string const more = std::to_string(count + 1);
    std::string const of_ranks = ".ranks: expected 1 to 32767 ranks, got ";
    std::string const of_nodes =
        ".nodes: expected 1 to " + n + " nodes (at most one per rank), got ";
    auto const expect = [&](std::string const& text) { expected_ = name + text; };
    switch (variant_) {
      case 0:
        on.ranks = rules.of_placement ? count + 1 : 0;
        expect(rules.of_placement
                   ? ".ranks: expected " + n + " ranks, as in the placement, got " + more
                   : of_ranks + "0");
        rules.may_be_none ? expected_.clear() : void();
        break;
      case 1:
        on.ranks = rules.of_placement ? 0 : 32768;
        rules.of_placement ? expected_.clear() : expect(of_ranks + "32768");
        break;
      case 2:
        on.nodes = 0;
        expect(of_nodes + "0");
        break;
      case 3:
        on.nodes = count + 1;
        expect(of_nodes + more);
        break;
      case 4:
        on.active = {flags, count + 1};
        expect(".active: expected " + n + " ranks, got " + more);
        break;
      case 5:
        on.speeds = {speeds, count + 1};
        expect(".speeds: expected " + n + " ranks, got " + more);
        break;
      case 6:
        on.speeds = {speeds, count};
        expected_.clear();
        if (rules.no_speeds != nullptr) {
          expect(".speeds: expected none, since " + std::string(rules.no_speeds) + ", got speeds");
        }
        break;
      default:
        expected_.clear();
    }
    return on;
  }

  template <class Enumeration>
  Enumeration changed(char const* name, Enumeration value) {
    if (kind_ != check::enumerators || options_++ != variant_ / enumeration_values) {
      return value;
    }
    constexpr int count = enumerators<Enumeration>();
    static_assert(count > 1 && count < enumeration_values - 2);
    int const beyond[] = {-1, std::numeric_limits<int>::max()};
    int const place = variant_ % enumeration_values;
    int const got = place < 2 ? beyond[place] : place - 2;
    expected_.clear();
    if (got < 0 || got >= count) {
      expected_ = std::string(name) + ": expected 0 to " + std::to_string(count - 1) +
                  " (an enumerator), got " + std::to_string(got);
    }
    return static_cast<Enumeration>(got);
  }

  template <class Array>
  void may_stray(Array const& array) {
    if (kind_ != check::stray_ids || arrays_++ != variant_ / strays) {
      return;
    }
    using id = std::remove_cvref_t<decltype(array.values()[0])>;
    auto const before = array.values();
    auto values = before;
    id const stray[strays] = {id{2}, id{4}, id{-2}, std::numeric_limits<id>::max(),
                              std::numeric_limits<id>::min()};
    values[variant_ % 2 == 0 ? 0 : values.size() - 1] = stray[variant_ % strays];
    array.assign(values);
    restore_ = [&array, before] { array.assign(before); };
  }

  template <class Got, class Expected>
  void compare(Got const& got, Expected const& expected) {
    ++results_;
    CHECK(got == expected);
  }
  void require(bool holds, char const* what) {
    CAPTURE(what);
    CHECK(holds);
  }

  /// Return how often the sample calls and compares.
  [[nodiscard]] int calls() const { return calls_; }
  [[nodiscard]] int results() const { return results_; }

 private:
  static constexpr int strays = 5;
  static constexpr int enumeration_values = 16;  // tried of each option

  template <class Call>
  using value_of = std::conditional_t<std::is_void_v<decltype(std::declval<Call const&>()())>,
                                      std::type_identity<std::monostate>,
                                      std::type_identity<decltype(std::declval<Call const&>()())>>;

  /// Returns the result; nothing, and the message, if the call refuses its input.
  template <class Call>
  std::optional<typename value_of<Call>::type> attempt(Call const& call) {
    views_ = arrays_ = rank_sets_ = options_ = 0;
    message_.clear();
    try {
      if constexpr (std::is_void_v<decltype(call())>) {
        call();
        return std::monostate{};
      } else {
        return call();
      }
    } catch (plimsoll::invalid_input const& refused) {
      message_ = refused.what();
    }
    return std::nullopt;
  }

  /// Returns the result of a valid call.
  template <class Value>
  Value value_in(std::optional<Value>&& made) {
    CHECK(message_ == "");
    if (!made) {
      throw cannot_go_on();
    }
    return *std::move(made);
  }

  static std::string full(argument_name const& name) {
    return name.member == nullptr ? name.of : std::string(name.of) + "." + name.member;
  }

  template <class Call>
  auto with_null_views(char const* function, Call const& call) {
    for (variant_ = 0;; ++variant_) {
      auto made = attempt(call);
      if (views_ <= variant_) {
        return value_in(std::move(made));
      }
      CHECK((message_.empty() ? "accepted " + full(null_) : message_) ==
            std::string(function) + ": " + full(null_) +
                ": expected a pointer to its elements, got a null pointer");
    }
  }

  template <class Call>
  auto with_rank_sets(char const* function, Call const& call) {
    for (variant_ = 0;; ++variant_) {
      auto made = attempt(call);
      if (rank_sets_ == 0 || variant_ == 7) {
        return value_in(std::move(made));
      }
      CAPTURE(variant_);
      CHECK(message_ == (expected_.empty() ? "" : std::string(function) + ": " + expected_));
    }
  }

  /// Every value is refused if it is no enumerator, by the same words.
  template <class Call>
  auto with_enumerators(char const* function, Call const& call) {
    for (variant_ = 0;; ++variant_) {
      auto made = attempt(call);
      if (options_ <= variant_ / enumeration_values) {
        return value_in(std::move(made));
      }
      CAPTURE(variant_);
      if (!expected_.empty()) {
        CHECK(message_ == std::string(function) + ": " + expected_);
      } else {
        CHECK(message_.find("enumerator") == std::string::npos);
      }
    }
  }

  template <class Call>
  auto with_counters(call_kind kind, Call const& call) {
    long const live = on_the_stream.live;
    on_the_stream.reset();
    long const before = news;
    auto made = attempt(call);
    long const after = news;
    if (kind == call_kind::of_step || kind == call_kind::work) {
      CHECK(after == before);
    }
    if (kind == call_kind::work) {
      CHECK(on_the_stream.allocations == 0);
      CHECK(on_the_stream.waits == 0);
      CHECK(on_the_stream.enqueued > 0);
    }
    if (kind == call_kind::prepare) {
      CHECK(on_the_stream.waits > 0);
      CHECK(on_the_stream.enqueued == 0);
    }
    if constexpr (std::is_void_v<decltype(call())>) {
      CHECK(on_the_stream.live == live);
    }
    return value_in(std::move(made));
  }

  template <class Call>
  auto with_failing_memory(Call const& call) {
    for (long allowed = 0;; ++allowed) {
      long const live = on_the_stream.live;
      on_the_stream.allowed = allowed;
      try {
        auto made = attempt(call);
        on_the_stream.allowed = -1;
        return value_in(std::move(made));
      } catch (std::bad_alloc const&) {
        on_the_stream.allowed = -1;
        ++thrown_;
      }
      CHECK(on_the_stream.live == live);
    }
  }

  /// Ids that do not exist count as none or are refused; nothing outside the arrays is touched.
  template <class Call>
  auto with_stray_ids(char const* function, Call const& call) {
    for (variant_ = 0;; ++variant_) {
      restore_ = nullptr;
      auto made = attempt(call);
      if (!restore_) {
        return value_in(std::move(made));
      }
      restore_();
      CHECK((message_.empty() || message_.starts_with(std::string(function) + ": ")));
    }
  }

  template <class Made>
  static void check_certificates(Made const& made) {
    if constexpr (std::is_same_v<Made, std::vector<plimsoll::certificate>>) {
      for (plimsoll::certificate const& one : made) {
        CHECK(one.lower_bound <= one.value);
        CHECK(one.work >= 0);
        CHECK((one.status != plimsoll::certificate_status::optimal || one.gap() <= 1e-6));
      }
    } else if constexpr (requires { made.certificates.size(); }) {
      check_certificates(made.certificates);
    }
  }

  check kind_;
  int variant_ = 0;
  int views_ = 0, arrays_ = 0, rank_sets_ = 0, options_ = 0, thrown_ = 0, calls_ = 0, results_ = 0;
  argument_name null_ = "";
  std::string message_;
  std::string expected_;
  std::function<void()> restore_;
};

using checked_run = sample_run<stream_policy, sample_checks>;

struct sample_entry {
  char const* name;
  void (*run)(checked_run&);
};
std::vector<sample_entry>& samples() {
  static std::vector<sample_entry> all;
  return all;
}
bool add_sample(char const* name, void (*run)(checked_run&)) {
  samples().push_back({name, run});
  return true;
}

void run_all(check kind) {
  REQUIRE(!samples().empty());
  for (sample_entry const& sample : samples()) {
    INFO("sample " << std::string(sample.name));
    sample_checks checks(kind);
    checked_run run({}, checks);
    try {
      sample.run(run);
    } catch (cannot_go_on const&) {
      continue;  // the check that failed said why
    }
    CHECK(checks.calls() > 0);
    CHECK(checks.results() > 0);
  }
}

}}  // namespace plimsoll_test

#undef PLIMSOLL_SAMPLE
#define PLIMSOLL_SAMPLE(name)                                     \
  [[maybe_unused]] static bool const plimsoll_has_sample_##name = \
      ::plimsoll_test::add_sample(#name, &::plimsoll_test::sample_##name)
#include "samples/all.hpp"

TEST_CASE("samples: this program counts allocations") {
  // A vector that nothing else sees may be optimized away.
  std::vector<long> some;
  long const before = news;
  some.resize(10);
  CHECK(news - before == 1);
}

TEST_CASE("samples: results") { plimsoll_test::run_all(plimsoll_test::check::results); }

TEST_CASE("samples: views with elements and a null pointer are refused by name") {
  plimsoll_test::run_all(plimsoll_test::check::null_views);
}

TEST_CASE("samples: every call checks ranks by the same rules and words") {
  plimsoll_test::run_all(plimsoll_test::check::rank_sets);
}

TEST_CASE("samples: values that are no enumerator are refused by name") {
  plimsoll_test::run_all(plimsoll_test::check::enumerators);
}

TEST_CASE("samples: work calls neither allocate nor wait, constructors wait") {
  plimsoll_test::run_all(plimsoll_test::check::memory);
}

TEST_CASE("samples: memory that throws leaks nothing") {
  plimsoll_test::run_all(plimsoll_test::check::failing_memory);
}

TEST_CASE("samples: ids that do not exist touch nothing else") {
  plimsoll_test::run_all(plimsoll_test::check::stray_ids);
}
