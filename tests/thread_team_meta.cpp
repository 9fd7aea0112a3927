// SPDX-License-Identifier: Apache-2.0
// thread_team_meta CASE: runs one wrong body, which thread_team or the emulated device team must
// detect; ctest checks the message and exit status 86. `control` is a body that uses every call
// correctly, `device_control` passes values between lanes correctly.
#include "support/run_body.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace {

using plimsoll::index_t;
using plimsoll::detail::scratch;
using plimsoll::detail::scratch_bytes_of;

struct without_scratch {
  [[nodiscard]] std::size_t scratch_bytes() const { return 0; }
};

/// Gives a wrong body a number that differs between threads.
struct with_tickets : without_scratch {
  std::atomic<int>* next;
  [[nodiscard]] int ticket() const { return next->fetch_add(1); }
};

struct divergent_call : with_tickets {
  template <class Team>
  void operator()(Team& team, scratch, index_t) const {
    if (ticket() == 0) {
      team.for_each(8, [](index_t) {});
    } else {
      team.for_each(8, [](index_t) {});
    }
  }
};

struct divergent_operation : with_tickets {
  template <class Team>
  void operator()(Team& team, scratch, index_t) const {
    // clang-format off
    if (ticket() == 0) { team.single([] {}); } else { team.for_each(0, [](index_t) {}); }
    // clang-format on
  }
};

struct divergent_n : with_tickets {
  template <class Team>
  void operator()(Team& team, scratch, index_t) const {
    team.for_each(8 + ticket() % 2, [](index_t) {});
  }
};

struct divergent_key : with_tickets {
  std::uint64_t* keys;
  template <class Team>
  void operator()(Team& team, scratch, index_t) const {
    auto queue = team.queue(keys, 4);
    queue.replace_top(10 + static_cast<std::uint64_t>(ticket()));
  }
};

struct divergent_scratch : with_tickets {
  [[nodiscard]] std::size_t scratch_bytes() const { return 2 * scratch_bytes_of<int>(8); }
  template <class Team>
  void operator()(Team& team, scratch memory, index_t) const {
    if (ticket() == 0) {
      static_cast<void>(memory.take<int>(1));
    }
    int* const out = memory.take<int>(8);
    team.exclusive_scan(
        8, [](index_t) { return 1; }, out);
  }
};

struct early_exit : with_tickets {
  template <class Team>
  void operator()(Team& team, scratch, index_t) const {
    if (ticket() == 0) {
      return;
    }
    team.single([] {});
  }
};

struct nested_call : without_scratch {
  template <class Team>
  void operator()(Team& team, scratch, index_t) const {
    team.for_each(8, [&](index_t) { team.single([] {}); });
  }
};

struct with_sort_storage {
  [[nodiscard]] static index_t sort_room() {
    return plimsoll::detail::sort_bytes<plimsoll::detail::warp, std::uint64_t>(4);
  }
  [[nodiscard]] std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::byte>(sort_room());
  }
};

struct nested_sort : with_sort_storage {
  std::uint64_t* keys;
  template <class Team>
  void operator()(Team& team, scratch memory, index_t) const {
    std::byte* const storage = memory.take<std::byte>(sort_room());
    team.sum(1, [&](index_t) {
      team.sort(keys, 4, storage);
      return 1;
    });
  }
};

struct duplicate_sort_keys : with_sort_storage {
  std::uint64_t* keys;
  template <class Team>
  void operator()(Team& team, scratch memory, index_t) const {
    std::byte* const storage = memory.take<std::byte>(sort_room());
    team.single([&] { keys[3] = keys[0]; });
    team.sort(keys, 4, storage);
  }
};

struct with_match_storage {
  std::int32_t* ranks;
  [[nodiscard]] static index_t room() {
    return plimsoll::detail::match_bytes<plimsoll::detail::warp>(4);
  }
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_of<std::byte>(room()); }
};

struct bin_out_of_range : with_match_storage {
  template <class Team>
  void operator()(Team& team, scratch memory, index_t) const {
    team.match_ranks(
        5, [](index_t i) { return static_cast<std::int32_t>(i); }, 4, ranks, nullptr,
        memory.take<std::byte>(room()));
  }
};

struct more_than_a_tile : with_match_storage {
  template <class Team>
  void operator()(Team& team, scratch memory, index_t) const {
    team.match_ranks(
        plimsoll::detail::match_tile + 1, [](index_t) { return std::int32_t{0}; }, 4, ranks,
        nullptr, memory.take<std::byte>(room()));
  }
};

struct duplicate_queue_keys : without_scratch {
  std::uint64_t* keys;
  template <class Team>
  void operator()(Team& team, scratch, index_t) const {
    team.single([&] { keys[3] = keys[0]; });
    static_cast<void>(team.queue(keys, 4));
  }
};

struct duplicate_replacement : without_scratch {
  std::uint64_t* keys;
  template <class Team>
  void operator()(Team& team, scratch, index_t) const {
    auto queue = team.queue(keys, 4);
    queue.replace_top(keys[2]);
  }
};

struct reserved_key : without_scratch {
  std::uint64_t* keys;
  template <class Team>
  void operator()(Team& team, scratch, index_t) const {
    auto queue = team.queue(keys, 4);
    queue.replace_top(~std::uint64_t{0});
  }
};

struct infinite_wait : without_scratch {
  template <class Team>
  void operator()(Team& team, scratch, index_t) const {
    std::atomic<int> met = 0;
    // Waits for an index that a team need not run at the same time.
    team.for_each(64, [&](index_t) {
      ++met;
      while (met < 64) {
        std::this_thread::yield();
      }
    });
  }
};

struct scratch_overrun : without_scratch {
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_of<int>(4); }
  template <class Team>
  void operator()(Team& team, scratch memory, index_t) const {
    int* const some = memory.take<int>(5);
    team.for_each(5, [&](index_t i) { some[i] = 1; });
  }
};

// The following bodies terminate, with results that depend on the team.

struct two_writers : without_scratch {
  int* out;
  template <class Team>
  void operator()(Team& team, scratch, index_t) const {
    team.for_each(8, [&](index_t i) { out[i / 2] = static_cast<int>(i); });
  }
};

struct write_outside : without_scratch {
  int* out;
  template <class Team>
  void operator()(Team& team, scratch, index_t) const {
    // A read-modify-write in small steps, whose result is wrong even if threads rarely overlap.
    for (int k = 0; k < 100; ++k) {
      out[0] = out[0] + 1;
    }
    team.single([] {});
  }
};

struct uninitialised_scratch : without_scratch {
  int* out;
  [[nodiscard]] std::size_t scratch_bytes() const { return scratch_bytes_of<int>(1); }
  template <class Team>
  void operator()(Team& team, scratch memory, index_t) const {
    int const* const junk = memory.take<int>(1);
    team.single([&] { out[0] = junk[0]; });
  }
};

struct forgotten_index : without_scratch {
  int* out;
  template <class Team>
  void operator()(Team& team, scratch, index_t) const {
    if (Team::is_serial) {
      team.for_each(8, [&](index_t i) { out[i] = 1; });
    } else {
      team.for_each(7, [&](index_t i) { out[i] = 1; });
    }
  }
};

// All indices write the same value: the result is correct, but ThreadSanitizer reports the race.
struct race_same_value : without_scratch {
  int* out;
  template <class Team>
  void operator()(Team& team, scratch, index_t) const {
    team.for_each(64, [&](index_t) { out[0] = 7; });
  }
};

// The following run on emulated lanes.

struct early_exit_of_lane : early_exit {
  using device_team = plimsoll::detail::warp;
};

struct race_of_lanes : race_same_value {
  using device_team = plimsoll::detail::warp;
};

void lane_without_shuffle() {
  plimsoll_test::emulated::run_block(32, 1, [](int lane) {
    if (lane != 5) {
      static_cast<void>(plimsoll::detail::shuffle_from(lane, 0));
    }
  });
}

void warp_without_barrier() {
  plimsoll_test::emulated::run_block(64, 1, [](int thread) {
    if (thread < 32) {
      __syncthreads();
    }
  });
}

/// Returns how often a lane reads what lane `lane + step` has not written yet.
int early_reads(int step, bool has_barrier) {
  std::vector<int> written(32);
  std::vector<int> early(32);
  plimsoll_test::emulated::run_block(32, 1, [&](int lane) {
    auto const own = static_cast<std::size_t>(lane);
    for (int k = 1; k <= 8; ++k) {
      written[own] = k;
      if (has_barrier) {
        __syncwarp();
      }
      early[own] += written[(own + static_cast<std::size_t>(step)) % 32] != k ? 1 : 0;
      __syncwarp();
    }
  });
  return std::accumulate(early.begin(), early.end(), 0);
}

/// Whether warp `reader` of a block, after some barriers of its own, can run before the other one
/// begins.
bool can_run_ahead(int reader) {
  bool is_early = false;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    std::atomic<int> written = 0;
    std::atomic<int> read = 0;
    plimsoll_test::emulated::run_block(64, seed, [&](int thread) {
      if (thread / 32 != reader) {
        written.store(1, std::memory_order_relaxed);
      }
      for (int k = 0; k < 4; ++k) {
        __syncwarp();
      }
      if (thread / 32 == reader) {
        read.store(written.load(std::memory_order_relaxed), std::memory_order_relaxed);
      }
    });
    is_early = is_early || read == 0;
  }
  return is_early;
}

/// Lane 0 writes, and a shuffle tells the others so; only a barrier lets them read.
void write_and_shuffle(bool has_barrier) {
  int written = 0;
  plimsoll_test::emulated::run_block(32, 1, [&](int lane) {
    if (lane == 0) {
      written = 7;
    }
    if (has_barrier) {
      __syncwarp();
    }
    int const told = plimsoll::detail::shuffle_from(lane + 7, 0);
    if (written != told) {
      plimsoll_test::caught("a shuffle lets a lane go on too early");
    }
  });
}

struct control : with_sort_storage {
  std::uint64_t* keys;
  std::int64_t* out;
  [[nodiscard]] std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int64_t>(100) + with_sort_storage::scratch_bytes();
  }
  template <class Team>
  void operator()(Team& team, scratch memory, index_t problem) const {
    std::int64_t* const some = memory.take<std::int64_t>(100);
    std::byte* const storage = memory.take<std::byte>(sort_room());
    team.for_each(100, [&](index_t i) { some[i] = (i * 37 + problem) % 101; });
    std::int64_t const sum = team.sum(100, [&](index_t i) { return some[i]; });
    std::int64_t const total = team.exclusive_scan(
        100, [&](index_t i) { return some[i]; }, some);
    double const ordered =
        team.sum_ordered(100, [&](index_t i) { return 1.0 / double(some[i] + 1); });
    auto const best = team.argmax(100, [&](index_t i) { return some[i] % 10; });
    int const seen = team.broadcast([&] { return static_cast<int>(some[7]); });
    std::uint64_t* const mine = keys + 4 * problem;
    team.sort(mine, 4, storage);
    auto queue = team.queue(mine, 4);
    std::uint64_t popped = queue.top();
    queue.replace_top(popped + 1000);
    while (!queue.empty()) {
      popped = popped * 31 + queue.top();
      queue.pop();
    }
    team.single([&] {
      std::int64_t bits = 0;
      std::memcpy(&bits, &ordered, sizeof(bits));
      out[problem] =
          sum ^ (total << 1) ^ bits ^ (best.index << 2) ^ seen ^ static_cast<std::int64_t>(popped);
    });
    if (team.any(100, [&](index_t i) { return some[i] < 0; }) ||
        team.count(100, [&](index_t i) { return some[i] >= 0; }) != 100) {
      team.single([&] { out[problem] = -1; });
    }
  }
};

std::atomic<int> tickets = 0;
std::vector<int> numbers(64, -1);
std::vector<std::uint64_t> keys{5, 3, 9, 7, 6, 2, 8, 4};

template <class Body>
Body ticketed() {
  Body body{};
  body.next = &tickets;
  return body;
}
template <class Body>
Body keyed() {
  Body body{};
  body.keys = keys.data();
  return body;
}
template <class Body>
Body writing() {
  Body body{};
  body.out = numbers.data();
  return body;
}

template <class Body>
void run_on_threads(Body const& body, double limit = plimsoll_test::watchdog_seconds) {
  plimsoll_test::run_body(body, 1, 4, 1, limit);
}

template <class Body>
void compare(Body const& body) {
  std::string const difference = plimsoll_test::compare_all_teams(body, 1, numbers);
  if (!difference.empty()) {
    plimsoll_test::caught(difference);
  }
}

int run(std::string const& name) {
  if (name == "divergent_call") {
    run_on_threads(ticketed<divergent_call>());
  } else if (name == "divergent_operation") {
    run_on_threads(ticketed<divergent_operation>());
  } else if (name == "divergent_n") {
    run_on_threads(ticketed<divergent_n>());
  } else if (name == "divergent_key") {
    divergent_key body = keyed<divergent_key>();
    body.next = &tickets;
    run_on_threads(body);
  } else if (name == "divergent_scratch") {
    run_on_threads(ticketed<divergent_scratch>());
  } else if (name == "early_exit") {
    run_on_threads(ticketed<early_exit>());
  } else if (name == "nested_call") {
    run_on_threads(nested_call{});
  } else if (name == "nested_sort") {
    run_on_threads(keyed<nested_sort>());
  } else if (name == "duplicate_sort_keys") {
    run_on_threads(keyed<duplicate_sort_keys>());
  } else if (name == "bin_out_of_range") {
    run_on_threads(bin_out_of_range{{numbers.data()}});
  } else if (name == "more_than_a_tile") {
    run_on_threads(more_than_a_tile{{numbers.data()}});
  } else if (name == "duplicate_queue_keys") {
    run_on_threads(keyed<duplicate_queue_keys>());
  } else if (name == "duplicate_replacement") {
    run_on_threads(keyed<duplicate_replacement>());
  } else if (name == "reserved_key") {
    run_on_threads(keyed<reserved_key>());
  } else if (name == "infinite_wait") {
    run_on_threads(infinite_wait{}, 0.5);
  } else if (name == "scratch_overrun") {
    run_on_threads(scratch_overrun{});
  } else if (name == "scratch_overrun_serial") {
    plimsoll_test::run_body(scratch_overrun{}, 1, plimsoll_test::serial, 1);
  } else if (name == "two_writers") {
    compare(writing<two_writers>());
  } else if (name == "write_outside") {
    compare(writing<write_outside>());
  } else if (name == "uninitialised_scratch") {
    compare(writing<uninitialised_scratch>());
  } else if (name == "forgotten_index") {
    compare(writing<forgotten_index>());
  } else if (name == "race_same_value") {
    run_on_threads(writing<race_same_value>());
  } else if (name == "device_early_exit") {
    plimsoll_test::run_body(ticketed<early_exit_of_lane>(), 1, plimsoll_test::device, 1);
  } else if (name == "device_without_shuffle") {
    lane_without_shuffle();
  } else if (name == "device_without_block_barrier") {
    warp_without_barrier();
  } else if (name == "device_early_reads") {
    if (early_reads(1, false) > 0 && early_reads(31, false) > 0 && can_run_ahead(0) &&
        can_run_ahead(1)) {
      plimsoll_test::caught("lanes read too early");
    }
  } else if (name == "device_race_same_value") {
    plimsoll_test::run_body(writing<race_of_lanes>(), 1, plimsoll_test::device, 1);
  } else if (name == "device_shuffle_for_barrier") {
    write_and_shuffle(false);
  } else if (name == "device_control") {
    write_and_shuffle(true);
    if (early_reads(1, true) + early_reads(31, true) > 0) {
      plimsoll_test::caught("a barrier lets a lane go on too early");
    }
  } else if (name == "control") {
    std::vector<std::int64_t> out(2);
    std::string const difference =
        plimsoll_test::compare_all_teams(control{{}, keys.data(), out.data()}, 2, keys, out);
    if (!difference.empty()) {
      plimsoll_test::caught(difference);
    }
  } else {
    std::fprintf(stderr, "no case named %s\n", name.c_str());
    return 2;
  }
  std::puts("nothing was caught");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: thread_team_meta CASE\n", stderr);
    return 2;
  }
  return run(argv[1]);
}
