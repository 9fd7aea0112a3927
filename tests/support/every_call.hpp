// SPDX-License-Identifier: Apache-2.0
// A body that makes every call of a team, and its expected results by the standard library.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/detail/exact_math.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "generators.hpp"
#include "print.hpp"

namespace plimsoll_test::every_call_cases {

using plimsoll::detail::scratch;
using plimsoll::detail::scratch_bytes_of;

__extension__ typedef unsigned __int128 uint128;

/// Reduces a value to few different values, so that ties are common.
PLIMSOLL_HD inline std::int64_t tied(std::int64_t value) { return value % 5; }
/// Returns a 128-bit key for a 64-bit key; the order of keys changes.
PLIMSOLL_HD inline uint128 widen(std::uint64_t key) {
  return (static_cast<uint128>(key & 0x1f) << 100) | (static_cast<uint128>(key) << 3);
}
/// Returns the key that replaces the top of a queue at step `step`, or 0 for a pop. New keys are
/// unique, and some are smaller than the key that they replace.
PLIMSOLL_HD inline std::uint64_t replacement(std::uint64_t top, index_t step, index_t n) {
  std::uint64_t const random = mix(top ^ static_cast<std::uint64_t>(step));
  if (step >= 2 * n || random % 3 == 0) {
    return 0;
  }
  return ((random >> 2) & ~std::uint64_t{0xfffff}) | static_cast<std::uint64_t>(n + step);
}

struct pair_of_words {
  std::int64_t first;
  std::int64_t second;
};

inline constexpr index_t totals_count = 25;
inline constexpr index_t sums_count = 4;
inline constexpr index_t bins_count = 7;

/// Returns the bin of a non-negative number; -1 (no bin) for multiples of four.
PLIMSOLL_HD inline std::int32_t bin_of(std::int64_t value) {
  return value % 4 == 0 ? -1 : static_cast<std::int32_t>(value % bins_count);
}

/// Body that makes every call. Row p of every array belongs to problem p.
template <class DeviceTeam>
struct every_call {
  using device_team = DeviceTeam;

  index_t n;
  std::size_t more_scratch;
  std::int64_t const* numbers;
  double const* reals;
  std::uint64_t const* keys;

  std::int64_t* totals;  ///< integers that calls returned
  double* sums;          ///< floating-point numbers that calls returned
  std::int64_t* mapped;
  std::int64_t* scanned;
  std::int32_t* scanned_in_place;
  std::uint64_t* sorted;
  std::uint64_t* sorted_wide;  ///< high and low words
  std::uint64_t* tops;

  [[nodiscard]] std::size_t scratch_bytes() const {
    return scratch_bytes_of<std::int64_t>(totals_count) + scratch_bytes_of<double>(sums_count) +
           scratch_bytes_of<std::uint64_t>(n) + scratch_bytes_of<uint128>(n) +
           scratch_bytes_of<std::int32_t>(bins_count) + scratch_bytes_of<std::byte>(sort_room()) +
           more_scratch;
  }

  [[nodiscard]] PLIMSOLL_HD index_t sort_room() const {
    return plimsoll::detail::sort_bytes<DeviceTeam, uint128>(n);
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, scratch memory, index_t problem) const {
    using namespace plimsoll::detail;
    index_t const count = n;
    std::int64_t const* const x = numbers + problem * n;
    double const* const r = reals + problem * n;
    std::uint64_t const* const k = keys + problem * n;
    std::int64_t* const found = memory.take<std::int64_t>(totals_count);
    double* const floats = memory.take<double>(sums_count);
    std::uint64_t* const narrow = memory.take<std::uint64_t>(n);
    uint128* const wide = memory.take<uint128>(n);
    std::int32_t* const bins = memory.take<std::int32_t>(bins_count);
    std::byte* const storage = memory.take<std::byte>(sort_room());

    std::int64_t* const doubled = mapped + problem * n;
    // Memory that the function of a call writes can be read after the call, by the body and by any
    // thread in the next call. A call may overwrite memory that the body read before it.
    std::int64_t seen = 0;
    if (n > 0) {
      index_t const middle = n / 2;
      team.single([=] { doubled[middle] = 1; });
      seen = 3 * seen + doubled[middle];
      seen += team.broadcast([=] { return doubled[middle] = 2; });
      seen = 3 * seen + doubled[middle];
      seen += team.sum(n, [=](index_t i) { return doubled[i] = i; });
      seen = 3 * seen + doubled[middle] + doubled[0];
      seen += static_cast<std::int64_t>(team.sum_ordered(n, [=](index_t i) {
        doubled[i] = 2 * i;
        return static_cast<double>(i);
      }));
      seen = 3 * seen + doubled[middle] + doubled[n - 1];
      seen += team.exclusive_scan(
          n, [](index_t) { return 1; }, doubled);
      seen = 3 * seen + doubled[middle] + doubled[n - 1];
      seen += team.argmin(n, [=](index_t i) { return doubled[i] = -i; }).key;
      seen = 3 * seen + doubled[middle] + doubled[n - 1];
      // Any thread sees a store in the next call; the last of two stores to an element wins.
      team.store(found, -1);
      team.store(found, 5);
      seen += team.sum(n, [=](index_t) { return found[0] - 5; });
    }
    team.for_each(n, [=](index_t i) { doubled[i] = 2 * x[i] + i; });
    seen = n > 0 ? 3 * seen + doubled[n / 2] : seen;
    // Reads elements that other threads wrote in the previous call.
    std::int64_t const neighbors =
        team.sum(n, [=](index_t i) { return doubled[(i + 1) % count] - doubled[i]; });

    std::int64_t const sum = team.sum(n, [=](index_t i) { return x[i]; });
    auto const least = team.min(n, [=](index_t i) { return x[i]; });
    auto const most = team.max(n, [=](index_t i) { return x[i]; });
    auto const narrow_sum = team.sum(n, [=](index_t i) { return static_cast<std::int32_t>(x[i]); });
    bool const any = team.any(n, [=](index_t i) { return x[i] == 7; });
    bool const none = team.any(n, [=](index_t) { return false; });
    index_t const hits = team.count(n, [=](index_t i) { return x[i] % 3 == 0; });
    index_t const place = team.find(n / 3, n, [=](index_t i) { return x[i] == 7; });
    index_t const nowhere = team.find(0, n, [=](index_t i) { return x[i] < 0; });
    std::uint64_t const bits = team.reduce(
        n, [=](index_t i) { return k[i]; }, bit_or{}, std::uint64_t{0});
    auto const lowest = team.argmin(n, [=](index_t i) { return tied(x[i]); });
    auto const highest = team.argmax(n, [=](index_t i) { return tied(x[i]); });
    auto const lowest_real = team.argmin(n, [=](index_t i) { return r[i]; });
    auto const highest_key = team.argmax(n, [=](index_t i) { return k[i]; });
    pair_of_words const shared = team.broadcast([=] {
      return pair_of_words{count > 0 ? x[count - 1] : -1, problem};
    });
    double const ordered = team.sum_ordered(n, [=](index_t i) { return r[i]; });
    float const ordered_float =
        team.sum_ordered(n, [=](index_t i) { return static_cast<float>(x[i]) * 1.125f; });
    double const least_real = team.min(n, [=](index_t i) { return r[i]; });

    std::int64_t* const offsets = scanned + problem * n;
    std::int64_t const total = team.exclusive_scan(
        n, [=](index_t i) { return x[i]; }, offsets);
    std::int32_t* const in_place = scanned_in_place + problem * n;
    team.for_each(n, [=](index_t i) { in_place[i] = static_cast<std::int32_t>(x[i] % 100); });
    std::int32_t const total_in_place = team.exclusive_scan(
        n, [=](index_t i) { return in_place[i]; }, in_place);

    team.histogram(
        n, [=](index_t i) { return bin_of(x[i]); }, bins, bins_count);
    std::int64_t counted = 0;
    for (index_t b = 0; b < bins_count; ++b) {
      counted = 256 * counted + bins[b];
    }

    team.for_each(n, [=](index_t i) {
      narrow[i] = k[i];
      wide[i] = widen(k[i]);
    });
    team.sort(narrow, n, storage);
    team.sort(wide, n, storage);
    std::uint64_t* const in_order = sorted + problem * n;
    std::uint64_t* const wide_in_order = sorted_wide + 2 * problem * n;
    team.for_each(n, [=](index_t i) {
      in_order[i] = narrow[i];
      wide_in_order[2 * i] = static_cast<std::uint64_t>(wide[i] >> 64);
      wide_in_order[2 * i + 1] = static_cast<std::uint64_t>(wide[i]);
    });

    // The queue starts from unsorted keys.
    team.for_each(n, [=](index_t i) { narrow[i] = k[i]; });
    std::uint64_t* const top = tops + 3 * problem * n;
    index_t step = 0;
    auto queue = team.queue(narrow, n);
    while (!queue.empty()) {
      std::uint64_t const now = queue.top();
      team.single([=] { top[step] = now; });
      std::uint64_t const next = replacement(now, step, n);
      if (step % 2 == 0) {
        std::uint64_t* const updated = top + step;
        queue.update_top([=](std::uint64_t key) {
          *updated = key;
          return next == 0 ? plimsoll::detail::no_key : next;
        });
      } else if (next == 0) {
        queue.pop();
      } else {
        queue.replace_top(next);
      }
      ++step;
    }

    team.single([=] {
      std::int64_t const all[totals_count] = {neighbors,
                                              sum,
                                              least,
                                              most,
                                              narrow_sum,
                                              any,
                                              none,
                                              hits,
                                              place,
                                              nowhere,
                                              static_cast<std::int64_t>(bits),
                                              lowest.key,
                                              lowest.index,
                                              highest.key,
                                              highest.index,
                                              lowest_real.index,
                                              highest_key.index,
                                              shared.first,
                                              shared.second,
                                              total,
                                              total_in_place,
                                              step,
                                              static_cast<std::int64_t>(highest_key.key),
                                              seen,
                                              counted};
      for (index_t i = 0; i < totals_count; ++i) {
        found[i] = all[i];
      }
      floats[0] = ordered;
      floats[1] = static_cast<double>(ordered_float);
      floats[2] = least_real;
      floats[3] = lowest_real.key;
    });
    std::int64_t* const totals_here = totals + problem * totals_count;
    double* const sums_here = sums + problem * sums_count;
    team.for_each(totals_count, [=](index_t i) { totals_here[i] = found[i]; });
    team.for_each(sums_count, [=](index_t i) { sums_here[i] = floats[i]; });
  }
};

struct inputs {
  index_t n;
  index_t problems;
  std::vector<std::int64_t> numbers;
  std::vector<double> reals;
  std::vector<std::uint64_t> keys;
};

inline inputs make_inputs(index_t n, index_t problems) {
  inputs result{n, problems, {}, {}, {}};
  for (index_t problem = 0; problem < problems; ++problem) {
    auto const seed = static_cast<std::uint64_t>(1000 * n + problem);
    auto const numbers = random_integers(seed, n, 0, 500);
    auto const reals = random_reals(seed, n);
    auto const keys = unique_keys(seed, n);
    result.numbers.insert(result.numbers.end(), numbers.begin(), numbers.end());
    result.reals.insert(result.reals.end(), reals.begin(), reals.end());
    result.keys.insert(result.keys.end(), keys.begin(), keys.end());
  }
  return result;
}

struct results {
  std::vector<std::int64_t> totals;
  std::vector<double> sums;
  std::vector<std::int64_t> mapped;
  std::vector<std::int64_t> scanned;
  std::vector<std::int32_t> scanned_in_place;
  std::vector<std::uint64_t> sorted;
  std::vector<std::uint64_t> sorted_wide;
  std::vector<std::uint64_t> tops;
};

/// Outputs, filled with values that differ from the results.
inline results blank_results(index_t n, index_t problems) {
  auto const of = [problems](index_t each) { return static_cast<std::size_t>(problems * each); };
  results result;
  result.totals.assign(of(totals_count), -77);
  result.sums.assign(of(sums_count), -77.0);
  result.mapped.assign(of(n), -77);
  result.scanned.assign(of(n), -77);
  result.scanned_in_place.assign(of(n), -77);
  result.sorted.assign(of(n), 77);
  result.sorted_wide.assign(of(2 * n), 77);
  result.tops.assign(of(3 * n), 77);
  return result;
}

/// `sum_ordered` by definition: accumulator j adds f(j), f(j + 32), ..., then 16, 8, 4, 2, 1.
template <class T>
T ordered_sum_of(std::vector<T> const& values) {
  std::vector<T> lanes(32, T{0});
  for (std::size_t j = 0; j < 32; ++j) {
    for (std::size_t i = j; i < values.size(); i += 32) {
      lanes[j] = lanes[j] + values[i];
    }
  }
  for (std::size_t width = 16; width > 0; width /= 2) {
    for (std::size_t j = 0; j < width; ++j) {
      lanes[j] = lanes[j] + lanes[j + width];
    }
  }
  return lanes[0];
}

/// Expected results of `every_call`, by algorithms of the standard library.
inline results expected_results(inputs const& in) {
  results out = blank_results(in.n, in.problems);
  for (index_t problem = 0; problem < in.problems; ++problem) {
    index_t const n = in.n;
    auto const slice = [&](auto const& all) {
      auto const first = all.begin() + static_cast<std::ptrdiff_t>(problem * n);
      return std::vector(first, first + static_cast<std::ptrdiff_t>(n));
    };
    std::vector<std::int64_t> const x = slice(in.numbers);
    std::vector<double> const r = slice(in.reals);
    std::vector<std::uint64_t> const k = slice(in.keys);
    auto const at = [](index_t i) { return static_cast<std::size_t>(i); };
    auto const position = [](auto const& range, auto found) {
      return range.empty() ? index_t{-1} : static_cast<index_t>(found - range.begin());
    };

    std::int64_t sum = 0;
    std::int32_t sum_in_place = 0;
    std::uint64_t bits = 0;
    std::vector<std::int64_t> ties;
    std::vector<float> floats;
    for (index_t i = 0; i < n; ++i) {
      out.mapped[at(problem * n + i)] = 2 * x[at(i)] + i;
      out.scanned[at(problem * n + i)] = sum;
      out.scanned_in_place[at(problem * n + i)] = sum_in_place;
      sum += x[at(i)];
      sum_in_place += static_cast<std::int32_t>(x[at(i)] % 100);
      bits |= k[at(i)];
      ties.push_back(x[at(i)] % 5);
      floats.push_back(static_cast<float>(x[at(i)]) * 1.125f);
    }
    index_t const lowest = position(ties, std::min_element(ties.begin(), ties.end()));
    index_t const highest = position(ties, std::max_element(ties.begin(), ties.end()));
    index_t const lowest_real = position(r, std::min_element(r.begin(), r.end()));
    index_t const highest_key = position(k, std::max_element(k.begin(), k.end()));

    std::vector<std::uint64_t> narrow = k;
    std::sort(narrow.begin(), narrow.end());
    std::copy(narrow.begin(), narrow.end(),
              out.sorted.begin() + static_cast<std::ptrdiff_t>(problem * n));
    std::vector<uint128> wide;
    std::transform(k.begin(), k.end(), std::back_inserter(wide), widen);
    std::sort(wide.begin(), wide.end());
    for (index_t i = 0; i < n; ++i) {
      out.sorted_wide[at(2 * (problem * n + i))] = static_cast<std::uint64_t>(wide[at(i)] >> 64);
      out.sorted_wide[at(2 * (problem * n + i) + 1)] = static_cast<std::uint64_t>(wide[at(i)]);
    }

    std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> queue(
        std::greater<>{}, k);
    index_t steps = 0;
    while (!queue.empty()) {
      std::uint64_t const now = queue.top();
      out.tops[at(3 * problem * n + steps)] = now;
      queue.pop();
      if (std::uint64_t const next = replacement(now, steps, n); next != 0) {
        queue.push(next);
      }
      ++steps;
    }

    std::int64_t seen = 0;
    if (n > 0) {
      index_t const middle = n / 2;
      seen = 1;                   // single
      seen = 3 * (seen + 2) + 2;  // broadcast
      seen = 3 * (seen + n * (n - 1) / 2) + middle;
      seen = 3 * (seen + n * (n - 1) / 2) + 2 * middle + 2 * (n - 1);
      seen = 3 * (seen + n) + middle + (n - 1);  // exclusive_scan
      seen = 3 * (seen - (n - 1)) - middle - (n - 1);
      seen = 3 * seen + out.mapped[at(problem * n + middle)];
    }

    std::int64_t counted = 0;
    for (std::int32_t bin = 0; bin < bins_count; ++bin) {
      counted = 256 * counted + std::count_if(x.begin(), x.end(),
                                              [bin](std::int64_t v) { return bin_of(v) == bin; });
    }

    using limits = std::numeric_limits<std::int64_t>;
    std::vector<std::int64_t> const totals = {
        0,
        sum,
        n == 0 ? limits::max() : *std::min_element(x.begin(), x.end()),
        n == 0 ? limits::lowest() : *std::max_element(x.begin(), x.end()),
        sum,
        std::count(x.begin(), x.end(), 7) > 0,
        0,
        std::count_if(x.begin(), x.end(), [](std::int64_t v) { return v % 3 == 0; }),
        std::find(x.begin() + static_cast<std::ptrdiff_t>(n / 3), x.end(), 7) - x.begin(),
        n,
        static_cast<std::int64_t>(bits),
        n == 0 ? 0 : ties[at(lowest)],
        lowest,
        n == 0 ? 0 : ties[at(highest)],
        highest,
        lowest_real,
        highest_key,
        n == 0 ? -1 : x.back(),
        problem,
        sum,
        sum_in_place,
        steps,
        n == 0 ? 0 : static_cast<std::int64_t>(k[at(highest_key)]),
        seen,
        counted};
    REQUIRE(static_cast<index_t>(totals.size()) == totals_count);
    std::copy(totals.begin(), totals.end(),
              out.totals.begin() + static_cast<std::ptrdiff_t>(problem * totals_count));
    std::size_t const s = at(problem * sums_count);
    out.sums[s] = ordered_sum_of(r);
    out.sums[s + 1] = static_cast<double>(ordered_sum_of(floats));
    out.sums[s + 2] = n == 0 ? std::numeric_limits<double>::max() : r[at(lowest_real)];
    out.sums[s + 3] = n == 0 ? 0 : r[at(lowest_real)];
  }
  return out;
}

inline void check_equal(results const& got, results const& expected) {
  CHECK(got.totals == expected.totals);
  CHECK(got.sums == expected.sums);
  CHECK(got.mapped == expected.mapped);
  CHECK(got.scanned == expected.scanned);
  CHECK(got.scanned_in_place == expected.scanned_in_place);
  CHECK(got.sorted == expected.sorted);
  CHECK(got.sorted_wide == expected.sorted_wide);
  CHECK(got.tops == expected.tops);
}

}  // namespace plimsoll_test::every_call_cases
