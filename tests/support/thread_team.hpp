// SPDX-License-Identifier: Apache-2.0
// A team of host threads that is as adverse as the contract of teams allows, so that bodies can be
// tested without a GPU. ThreadSanitizer detects every missing barrier and every data race, and
//  - indices are assigned to threads, and run within a thread, in an order that changes with every
//    call;
//  - threads yield at random;
//  - every call is compared over the threads (call site, operation, n), and so is the end of the
//    body: control flow that is not uniform terminates the process, naming both sites;
//  - a function that calls its team, and keys that are not unique, terminate the process;
//  - a watchdog terminates the process if no thread reaches its next call.
// The process terminates with a message on stderr and exit status 86, since a team whose threads
// disagree cannot be unwound.
#pragma once

#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "generators.hpp"

namespace plimsoll_test {

inline constexpr int caught_exit_code = 86;

[[noreturn]] inline void caught(std::string const& message) {
  static std::mutex once;
  once.lock();  // never unlocked: only the first thread that detects an error reports it
  std::fflush(stdout);
  std::fprintf(stderr, "thread_team: %s\n", message.c_str());
  std::fflush(stderr);
  std::_Exit(caught_exit_code);
}

#if defined(__cpp_lib_source_location)
using call_site = std::source_location;
#else
/// Replaces std::source_location for compilers with the older builtins only (clang before 16).
class call_site {
 public:
  static constexpr call_site current(char const* file = __builtin_FILE(),
                                     char const* function = __builtin_FUNCTION(),
                                     unsigned line = __builtin_LINE(),
                                     unsigned column = __builtin_COLUMN()) {
    call_site site;
    site.file_ = file;
    site.function_ = function;
    site.line_ = line;
    site.column_ = column;
    return site;
  }
  [[nodiscard]] constexpr char const* file_name() const { return file_; }
  [[nodiscard]] constexpr char const* function_name() const { return function_; }
  [[nodiscard]] constexpr unsigned line() const { return line_; }
  [[nodiscard]] constexpr unsigned column() const { return column_; }

 private:
  char const* file_ = "";
  char const* function_ = "";
  unsigned line_ = 0;
  unsigned column_ = 0;
};
#endif

/// The call that one thread made of its team.
struct call_record {
  char const* operation = "start of body";
  index_t n = 0;
  std::uint64_t value = 0;  ///< another uniform value: the key of a queue, the address of an output
  call_site site = {};

  [[nodiscard]] bool same_as(call_record const& other) const {
    return std::strcmp(operation, other.operation) == 0 && n == other.n && value == other.value &&
           site.line() == other.site.line() && site.column() == other.site.column() &&
           std::strcmp(site.file_name(), other.site.file_name()) == 0;
  }
  [[nodiscard]] std::string text() const {
    std::string result = operation;
    if (site.line() == 0) {
      return result;
    }
    result += " with n = " + std::to_string(n);
    if (value != 0) {
      char hex[32];
      std::snprintf(hex, sizeof(hex), ", value = %llx", static_cast<unsigned long long>(value));
      result += hex;
    }
    return result + " at " + site.file_name() + ":" + std::to_string(site.line()) + ":" +
           std::to_string(site.column());
  }
};

/// State that the threads of a team share.
class team_state {
 public:
  static constexpr std::size_t slot_bytes = 64;

  struct alignas(64) member {
    std::mutex mutex;  ///< protects the record from the watchdog
    call_record record;
    alignas(16) std::byte slot[slot_bytes];
  };

  team_state(int size, std::uint64_t seed)
      : size_(size),
        seed_(seed),
        barrier_(size),
        members_(std::make_unique<member[]>(static_cast<std::size_t>(size))) {}

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  [[nodiscard]] member& at(int i) { return members_[static_cast<std::size_t>(i)]; }
  [[nodiscard]] std::byte* accumulator(index_t j) { return accumulators_ + 16 * j; }
  void wait() { barrier_.arrive_and_wait(); }

  // Relaxed: for ThreadSanitizer, a stronger order would order the calls of the threads.
  void advance() { progress_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }

 private:
  int size_;
  std::uint64_t seed_;
  std::barrier<> barrier_;
  std::unique_ptr<member[]> members_;
  alignas(16) std::byte accumulators_[32 * 16] = {};
  std::atomic<std::uint64_t> progress_ = 0;
};

/// Terminates the process if no thread of the team makes a call for `limit` seconds.
class watchdog {
 public:
  watchdog(team_state& state, double limit)
      : state_(state), limit_(limit), thread_([this] { watch(); }) {}
  watchdog(watchdog const&) = delete;
  watchdog& operator=(watchdog const&) = delete;
  ~watchdog() {
    {
      std::lock_guard const lock(mutex_);
      done_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  void watch() {
    using clock = std::chrono::steady_clock;
    std::unique_lock lock(mutex_);
    std::uint64_t seen = state_.progress();
    clock::time_point since = clock::now();
    while (!changed_.wait_for(lock, std::chrono::duration<double>(limit_ / 8),
                              [this] { return done_; })) {
      std::uint64_t const now = state_.progress();
      if (now != seen) {
        seen = now;
        since = clock::now();
      } else if (std::chrono::duration<double>(clock::now() - since).count() >= limit_) {
        std::string message =
            "no progress for " + std::to_string(limit_) + " s; the last calls were";
        for (int i = 0; i < state_.size(); ++i) {
          team_state::member& member = state_.at(i);
          std::lock_guard const member_lock(member.mutex);
          message += "\n  thread " + std::to_string(i) + ": " + member.record.text();
        }
        caught(message);
      }
    }
  }

  team_state& state_;
  double limit_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

template <class Key>
class checked_queue;

/// One thread's handle of the team, which is passed to a body.
class thread_team : public plimsoll::detail::team_operations<thread_team> {
  using base = plimsoll::detail::team_operations<thread_team>;

 public:
  static constexpr bool is_serial = false;

  thread_team(team_state& state, int rank)
      : state_(state), rank_(rank), random_(mix(state.seed() ^ mix(static_cast<unsigned>(rank)))) {}
  // Not copyable: a body that captures its team by value would call it from a function.
  thread_team(thread_team const&) = delete;
  thread_team& operator=(thread_team const&) = delete;

  template <class F>
  void for_each(index_t n, F f, call_site site = call_site::current()) {
    enter({"for_each", n, 0, site});
    own_indices(n, [&](index_t i) { guarded([&] { f(i); }); });
    leave();
  }

  template <class F>
  void single(F f, call_site site = call_site::current()) {
    enter({"single", 0, 0, site});
    if (chosen() == rank_) {
      guarded([&] { f(); });
    }
    leave();
  }

  template <class F>
  auto broadcast(F f, call_site site = call_site::current()) {
    using T = std::remove_cvref_t<std::invoke_result_t<F&>>;
    enter({"broadcast", 0, 0, site});
    int const from = chosen();
    if (from == rank_) {
      guarded([&] { put<T>(state_.at(from).slot, f()); });
    }
    leave();
    return load<T>(state_.at(from).slot);
  }

  template <class T>
  void store(T* place, std::type_identity_t<T> value, call_site site = call_site::current()) {
    if (inside_) {
      caught("nested call: a function passed to " + state_.at(rank_).record.text() + " called " +
             call_record{"store", 0, 0, site}.text());
    }
    // The same thread until the next call, so that the last of several stores to an element wins.
    if (chosen() == rank_) {
      *place = value;
    }
  }

  template <class F, class Op, class T>
  T reduce(index_t n, F f, Op op, T identity, call_site site = call_site::current()) {
    static_assert(plimsoll::detail::is_exact<Op, T>, "use sum_ordered for floating sums");
    enter({"reduce", n, 0, site});
    T partial = identity;
    own_indices(n,
                [&](index_t i) { guarded([&] { partial = op(partial, static_cast<T>(f(i))); }); });
    put<T>(state_.at(rank_).slot, partial);
    leave();
    // Op is exact, so the result must not depend on the order of the partial results.
    std::uint64_t const order = call_seed(2);
    T result = identity;
    for (int i = 0; i < state_.size(); ++i) {
      int const from = static_cast<int>((static_cast<std::uint64_t>(i) + order) %
                                        static_cast<std::uint64_t>(state_.size()));
      T const other = load<T>(state_.at(from).slot);
      result = order & (std::uint64_t{1} << 40) ? op(result, other) : op(other, result);
    }
    return result;
  }

  template <class F>
  auto sum_ordered(index_t n, F f, call_site site = call_site::current()) {
    using T = plimsoll::detail::result_at<F>;
    enter({"sum_ordered", n, 0, site});
    own_indices(32, [&](index_t j) {
      T sum = 0;
      for (index_t i = j; i < n; i += 32) {
        guarded([&] { sum = plimsoll::detail::add(sum, f(i)); });
      }
      put<T>(state_.accumulator(j), sum);
    });
    leave();
    T partial[32];
    for (index_t j = 0; j < 32; ++j) {
      partial[j] = load<T>(state_.accumulator(j));
    }
    for (int width = 16; width > 0; width /= 2) {
      for (int j = 0; j < width; ++j) {
        partial[j] = plimsoll::detail::add(partial[j], partial[j + width]);
      }
    }
    return partial[0];
  }

  template <class F, class T>
  T exclusive_scan(index_t n, F f, T* out, call_site site = call_site::current()) {
    static_assert(std::is_integral_v<T>);
    enter({"exclusive_scan", n, address(out), site});
    // Part p has indices [n p / size, n (p + 1) / size).
    int const size = state_.size();
    auto const owner = [&](int part) {
      return static_cast<int>((static_cast<std::uint64_t>(part) + call_seed(1)) %
                              static_cast<std::uint64_t>(size));
    };
    int mine = 0;
    while (owner(mine) != rank_) {
      ++mine;
    }
    index_t const first = n * mine / size;
    index_t const last = n * (mine + 1) / size;
    std::vector<T> values(static_cast<std::size_t>(last - first));
    T sum = 0;
    for (index_t i = first; i < last; ++i) {
      maybe_yield();
      guarded([&] { values[static_cast<std::size_t>(i - first)] = static_cast<T>(f(i)); });
      sum = static_cast<T>(sum + values[static_cast<std::size_t>(i - first)]);
    }
    put<T>(state_.at(rank_).slot, sum);
    state_.wait();
    T before = 0;
    T total = 0;
    for (int part = 0; part < size; ++part) {
      if (part == mine) {
        before = total;
      }
      total = static_cast<T>(total + load<T>(state_.at(owner(part)).slot));
    }
    for (index_t i = first; i < last; ++i) {
      out[i] = before;
      before = static_cast<T>(before + values[static_cast<std::size_t>(i - first)]);
    }
    leave();
    return total;
  }

  // The other calls are the generic ones of every team; this class only adds the call site.

  template <class F>
  auto sum(index_t n, F f, call_site site = call_site::current()) {
    outer const scope(*this, "sum", site);
    return base::sum(n, f);
  }
  template <class F>
  auto min(index_t n, F f, call_site site = call_site::current()) {
    outer const scope(*this, "min", site);
    return base::min(n, f);
  }
  template <class F>
  auto max(index_t n, F f, call_site site = call_site::current()) {
    outer const scope(*this, "max", site);
    return base::max(n, f);
  }
  template <class F>
  bool any(index_t n, F f, call_site site = call_site::current()) {
    outer const scope(*this, "any", site);
    return base::any(n, f);
  }
  template <class F>
  index_t count(index_t n, F f, call_site site = call_site::current()) {
    outer const scope(*this, "count", site);
    return base::count(n, f);
  }
  template <class F>
  auto argmin(index_t n, F key, call_site site = call_site::current()) {
    outer const scope(*this, "argmin", site);
    return base::argmin(n, key);
  }
  template <class F>
  auto argmax(index_t n, F key, call_site site = call_site::current()) {
    outer const scope(*this, "argmax", site);
    return base::argmax(n, key);
  }

  template <class F>
  index_t find(index_t from, index_t n, F f, call_site site = call_site::current()) {
    outer const scope(*this, "find", site);
    return base::find(from, n, f);
  }

  template <class F>
  void histogram(index_t n, F bin_of, std::int32_t* counts, index_t bins,
                 call_site site = call_site::current()) {
    outer const scope(*this, "histogram", site);
    base::histogram(n, bin_of, counts, bins);
  }

  template <class Key>
  void sort(Key* keys, index_t n, std::byte* storage, call_site site = call_site::current()) {
    outer const scope(*this, "sort", site);
    enter({"sort", n, address(keys), site});
    if (chosen() == rank_) {
      expect_unique(keys, n, "sort", site);
      std::sort(keys, keys + n);
      // Every device team may overwrite at least these bytes.
      using plimsoll::detail::warp, plimsoll::detail::sort_bytes;
      std::memset(storage, 0xa5, static_cast<std::size_t>(sort_bytes<warp, Key>(n)));
    }
    leave();
  }

  template <class F>
  void match_ranks(index_t n, F bin_of, index_t bins, std::int32_t* ranks, std::int32_t* counts,
                   std::byte* storage, call_site site = call_site::current()) {
    using plimsoll::detail::warp, plimsoll::detail::block, plimsoll::detail::match_bytes;
    outer const scope(*this, "match_ranks", site);
    auto const checked_bin_of = [=](index_t i) {
      index_t const bin = bin_of(i);
      if (bin < 0 || bin >= bins) {
        caught("no such bin: " + call_record{"match_ranks", n, 0, site}.text());
      }
      return bin;
    };
    if (n > plimsoll::detail::match_tile) {
      caught("more than a tile: " + call_record{"match_ranks", n, 0, site}.text());
    }
    if (bins > plimsoll::detail::most_bins) {
      base::sorted_ranks(n, checked_bin_of, bins, ranks, counts, storage);
      return;
    }
    enter({"match_ranks", n, address(ranks), site});
    own_indices(n, [&](index_t i) {
      guarded([&] { ranks[i] = static_cast<std::int32_t>(checked_bin_of(i)); });
    });
    state_.wait();
    if (chosen() == rank_) {
      std::vector<std::int32_t> seen(static_cast<std::size_t>(bins));
      for (index_t i = 0; i < n; ++i) {
        ranks[i] = seen[static_cast<std::size_t>(ranks[i])]++;
      }
      if (counts != nullptr) {
        std::copy(seen.begin(), seen.end(), counts);
      }
      // Every device team may use that much at least.
      std::memset(storage, 0xa5,
                  static_cast<std::size_t>(
                      std::min(match_bytes<warp>(bins), match_bytes<block<128>>(bins))));
    }
    leave();
  }

  template <class Key>
  checked_queue<Key> queue(Key* keys, index_t n, call_site site = call_site::current()) {
    outer const scope(*this, "queue", site);
    return checked_queue<Key>(*this, keys, n, site);
  }

  /// Marks the end of the body, which counts as a call that all threads must make together.
  void end_of_body() {
    enter({"end of body", 0, 0, call_site{}});
    leave();
  }

 private:
  template <class Key>
  friend class checked_queue;

  /// Reports calls made during its lifetime under its own operation and call site.
  class outer {
   public:
    outer(thread_team& team, char const* operation, call_site site)
        : team_(team), operation_(operation), site_(site), before_(team.outer_) {
      // A call from a function of the body is not a step of the current call, but an error.
      if (before_ == nullptr || team_.inside_) {
        team_.outer_ = this;
      }
    }
    outer(outer const&) = delete;
    outer& operator=(outer const&) = delete;
    ~outer() { team_.outer_ = before_; }
    [[nodiscard]] char const* operation() const { return operation_; }
    [[nodiscard]] call_site site() const { return site_; }

   private:
    thread_team& team_;
    char const* operation_;
    call_site site_;
    outer const* before_;
  };

  template <class T>
  static void put(std::byte* slot, T value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= team_state::slot_bytes);
    std::memcpy(slot, &value, sizeof(T));
  }
  template <class T>
  static T load(std::byte const* slot) {
    alignas(T) std::byte bytes[sizeof(T)];
    std::memcpy(bytes, slot, sizeof(T));
    return *reinterpret_cast<T const*>(bytes);
  }
  static std::uint64_t address(void const* pointer) {
    return static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(pointer));
  }

  template <class Key>
  static void expect_unique(Key const* keys, index_t n, char const* operation, call_site site) {
    std::vector<Key> sorted(keys, keys + n);
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
      caught(std::string("duplicate keys: ") + call_record{operation, n, 0, site}.text());
    }
  }

  void enter(call_record record) {
    team_state::member& self = state_.at(rank_);
    if (outer_ != nullptr) {
      record.operation = outer_->operation();
      record.site = outer_->site();
    }
    if (inside_) {
      caught("nested call: a function passed to " + self.record.text() + " called " +
             record.text());
    }
    {
      std::lock_guard const lock(self.mutex);
      self.record = record;
    }
    ++calls_;
    state_.advance();
    maybe_yield();
    state_.wait();
    for (int i = 0; rank_ == 0 && i < state_.size(); ++i) {
      if (!state_.at(i).record.same_as(record)) {
        caught("different calls in one team:\n  thread 0: " + record.text() + "\n  thread " +
               std::to_string(i) + ": " + state_.at(i).record.text());
      }
    }
  }

  void leave() {
    maybe_yield();
    state_.wait();
  }

  /// Runs a function of the body, which must not call the team.
  template <class F>
  void guarded(F const& f) {
    inside_ = true;
    f();
    inside_ = false;
  }

  /// Returns the same number on all threads, and a different one at every call.
  [[nodiscard]] std::uint64_t call_seed(std::uint64_t purpose) const {
    return mix(mix(state_.seed() + 0x100 * purpose) ^ calls_);
  }
  [[nodiscard]] int chosen() const {
    return static_cast<int>(call_seed(0) % static_cast<std::uint64_t>(state_.size()));
  }

  /// Calls f(i) for this thread's part of [0, n): every k-th index or one range, forwards or
  /// backwards, starting at a random index of the part.
  template <class F>
  void own_indices(index_t n, F f) {
    std::uint64_t const seed = call_seed(1);
    index_t const size = state_.size();
    index_t const part = (rank_ + static_cast<index_t>(seed % 1024)) % size;
    bool const strided = (seed & (1u << 20)) != 0;
    bool const backwards = (seed & (1u << 21)) != 0;
    index_t const first = strided ? part : n * part / size;
    index_t const step = strided ? size : 1;
    index_t const last = strided ? n : n * (part + 1) / size;
    index_t const mine = first < last ? (last - first + step - 1) / step : 0;
    index_t const start = mine > 0 ? static_cast<index_t>((seed >> 24) % 4096) % mine : 0;
    for (index_t k = 0; k < mine; ++k) {
      index_t const place = (start + k) % mine;
      maybe_yield();
      f(first + step * (backwards ? mine - 1 - place : place));
    }
  }

  void maybe_yield() {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;
    if ((random_ >> 60) == 0) {
      std::this_thread::yield();
    }
  }

  team_state& state_;
  int rank_;
  std::uint64_t random_;
  std::uint64_t calls_ = 0;
  bool inside_ = false;
  outer const* outer_ = nullptr;
};

/// The generic queue, with checks of its keys.
template <class Key>
class checked_queue {
 public:
  checked_queue(thread_team& team, Key* keys, index_t n, call_site site)
      : team_(team), keys_(keys), size_(n), heap_(checked(team, keys, n, site), keys, n) {}
  checked_queue(checked_queue const&) = delete;
  checked_queue& operator=(checked_queue const&) = delete;

  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] Key top() const { return heap_.top(); }

  void replace_top(Key key, call_site site = call_site::current()) {
    thread_team::outer const scope(team_, "queue.replace_top", site);
    check("queue.replace_top", key, site);
    heap_.replace_top(key);
  }
  template <class F>
  void update_top(F f, call_site site = call_site::current()) {
    Key const key = team_.broadcast([f, top = top()] { return f(top); }, site);
    if (key == static_cast<Key>(plimsoll::detail::no_key)) {
      pop(site);
    } else {
      replace_top(key, site);
    }
  }
  void pop(call_site site = call_site::current()) {
    thread_team::outer const scope(team_, "queue.pop", site);
    if (size_ == 0) {
      caught("pop of an empty queue: " + call_record{"queue.pop", 0, 0, site}.text());
    }
    heap_.pop();
    --size_;
  }

 private:
  /// Checks the keys before the heap uses their memory.
  static thread_team& checked(thread_team& team, Key* keys, index_t n, call_site site) {
    team.enter({"queue", n, thread_team::address(keys), site});
    if (team.chosen() == team.rank_) {
      thread_team::expect_unique(keys, n, "queue", site);
      for (index_t i = 0; i < n; ++i) {
        expect_usable(keys[i], "queue", n, site);
      }
    }
    team.leave();
    return team;
  }

  void check(char const* operation, Key key, call_site site) {
    std::uint64_t value = 0;
    std::memcpy(&value, &key, std::min(sizeof(value), sizeof(key)));
    team_.enter({operation, size_, value, site});
    if (team_.chosen() == team_.rank_) {
      auto const equal = [key](Key other) { return !(other < key) && !(key < other); };
      if (size_ == 0 || std::any_of(keys_ + 1, keys_ + size_, equal)) {
        caught((size_ == 0 ? "replacement in an empty queue: " : "duplicate keys: ") +
               call_record{operation, size_, value, site}.text());
      }
      expect_usable(key, operation, size_, site);
    }
    team_.leave();
  }

  // Device queues mark free elements by the largest key.
  static void expect_usable(Key key, char const* operation, index_t n, call_site site) {
    if constexpr (std::is_same_v<Key, std::uint64_t>) {
      if (key == std::numeric_limits<Key>::max()) {
        caught("reserved key: " + call_record{operation, n, key, site}.text());
      }
    }
  }

  thread_team& team_;
  Key* keys_;
  index_t size_;
  plimsoll::detail::heap_queue<thread_team, Key> heap_;
};

}  // namespace plimsoll_test
