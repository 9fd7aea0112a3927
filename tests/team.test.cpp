// SPDX-License-Identifier: Apache-2.0
// Tests of team under the host's policies; every team.
#include "team.cases.hpp"

#include "support/run_body.hpp"

namespace {

using namespace team_cases;

every_call<plimsoll::detail::warp> body_for(inputs const& in, results& out) {
  return {in.n,
          0,
          in.numbers.data(),
          in.reals.data(),
          in.keys.data(),
          out.totals.data(),
          out.sums.data(),
          out.mapped.data(),
          out.scanned.data(),
          out.scanned_in_place.data(),
          out.sorted.data(),
          out.sorted_wide.data(),
          out.tops.data()};
}

// [body]
/// Subtracts the least element of each row from its elements, and reverses the row.
struct normalize_rows {
  using device_team = plimsoll::detail::warp;  // or block<128|256|512>
  plimsoll::matrix_ref<std::int32_t const> in;
  plimsoll::matrix_ref<std::int32_t> out;

  [[nodiscard]] PLIMSOLL_HD std::size_t scratch_bytes() const {
    return plimsoll::detail::scratch_bytes_of<std::int32_t>(in.extent(1));
  }

  template <class Team>
  PLIMSOLL_HD void operator()(Team& team, plimsoll::detail::scratch memory,
                              plimsoll::index_t row) const {
    auto const& from = in;
    auto const& to = out;
    plimsoll::index_t const n = in.extent(1);
    std::int32_t* const shifted = memory.take<std::int32_t>(n);
    auto const least = team.min(n, [&](plimsoll::index_t i) { return from(row, i); });
    team.for_each(n, [&](plimsoll::index_t i) { shifted[i] = from(row, i) - least; });
    team.for_each(n, [&](plimsoll::index_t i) { to(row, i) = shifted[n - 1 - i]; });
  }
};
// [end]

// [arrays]
/// Scratch of a search among items that may be sorted first.
struct search_arrays {
  plimsoll::detail::scratch_ref memory;
  plimsoll::index_t items;
  plimsoll::index_t ranks;
  bool is_sorted;

  std::int32_t* taken = memory.take(ranks);  ///< items of each rank
  std::uint64_t* keys = memory.take_if(is_sorted, items);
  double* load = memory.take(ranks);
};
// [end]

/// Arrays that a body keeps.
struct kept_arrays {
  std::int32_t* first;
  double* second;

  static kept_arrays in(scratch& memory, index_t n) {
    return {memory.take<std::int32_t>(n), memory.take<double>(n)};
  }
};

}  // namespace

TEST_CASE("team: a body on every team") {
  // [every_team]
  std::vector<std::int32_t> const in{7, 5, 9, 6, 5,  //
                                     1, 4, 1, 8, 3};
  std::vector<std::int32_t> out(10);
  normalize_rows const body{{in, 2, 5}, {out, 2, 5}};
  plimsoll_test::check_all_teams(body, 2, out);  // problems, and the ranges that the body writes
  CHECK(out == std::vector<std::int32_t>{0, 1, 4, 0, 2,  //
                                         2, 7, 0, 3, 0});
  // [end]
  std::fill(out.begin(), out.end(), 0);
  // [launch]
  plimsoll::detail::launch(plimsoll::detail::resolve(plimsoll::seq), 2, body);
  // [end]
  CHECK(out.front() == 0);
  CHECK(out[6] == 7);
}

TEST_CASE("team: serial_team against the standard library") {
  for (index_t const n : sizes) {
    CAPTURE(n);
    inputs const in = make_inputs(n, 3);
    results out = blank_results(n, 3);
    plimsoll_test::run_body(body_for(in, out), 3, plimsoll_test::serial, 0);
    check_equal(out, expected_results(in));
    plimsoll_test::report_hash("team.every_call_" + std::to_string(n), out.totals, out.sums,
                               out.mapped, out.scanned, out.scanned_in_place, out.sorted,
                               out.sorted_wide, out.tops);
  }
}

TEST_CASE("team: thread_team in all sizes against serial_team") {
  for (index_t const n : sizes) {
    if (n > 65) {
      continue;  // would take thousands of queue operations with two barriers each on 33 threads
    }
    CAPTURE(n);
    inputs const in = make_inputs(n, 2);
    results out = blank_results(n, 2);
    plimsoll_test::check_all_teams(body_for(in, out), 2, out.totals, out.sums, out.mapped,
                                   out.scanned, out.scanned_in_place, out.sorted, out.sorted_wide,
                                   out.tops);
    check_equal(out, expected_results(in));
  }
}

TEST_CASE("team: ranks in bins, serial_team and thread_team against a plain loop") {
  namespace cases = plimsoll_test::match_cases;
  cases::inputs const in = cases::make_inputs();
  cases::results const expected = cases::expected_results(in);
  auto const count = static_cast<index_t>(in.cases.size());
  for (int const size : {plimsoll_test::serial, 1, 2, 3, 7}) {
    CAPTURE(size);
    cases::results out = cases::blank_results(in);
    cases::rank_items<plimsoll::detail::block<128>> const body{in.cases.data(), in.bin.data(),
                                                               out.ranks.data(), out.seen.data()};
    plimsoll_test::run_body(body, count, size, 3);
    CHECK(out.ranks == expected.ranks);
    CHECK(out.seen == expected.seen);
  }
}

TEST_CASE("team: thread_team, 1000 elements") {
  inputs const in = make_inputs(1000, 1);
  for (int const size : {1, 3}) {
    CAPTURE(size);
    results out = blank_results(1000, 1);
    plimsoll_test::run_body(body_for(in, out), 1, size, 5);
    check_equal(out, expected_results(in));
  }
}

TEST_CASE("team: sort of serial_team, any length and any differing bits") {
  plimsoll::detail::serial_team team;
  plimsoll_test::generator random(1);
  // Keys are loads of `bits` bits above ids in rising or random order, or arbitrary numbers.
  enum class ids { rising, shuffled, none };
  auto const keys_of = [&](index_t n, int bits, ids kind) {
    std::vector<std::uint64_t> keys = plimsoll_test::unique_keys(random.bits(), n);
    std::uint64_t const above = random.bits() << 48;
    for (std::size_t i = 0; i < keys.size() && kind != ids::none; ++i) {
      std::uint64_t const load = bits == 0 ? 0 : random.bits() >> (64 - bits);
      keys[i] = above | load << 16 | i;
    }
    if (kind == ids::shuffled) {
      for (std::size_t i = 1; i < keys.size(); ++i) {
        auto const other = random.between(0, static_cast<std::int64_t>(i));
        std::swap(keys[i], keys[static_cast<std::size_t>(other)]);
      }
    }
    return keys;
  };
  std::vector<index_t> lengths = {255, 256, 257, 384, 511, 512, 1000, 1023, 1024, 1025, 3000};
  for (index_t n = 0; n <= 130; ++n) {
    lengths.push_back(n);
  }
  for (index_t const n : lengths) {
    for (ids const kind : {ids::rising, ids::shuffled, ids::none}) {
      for (int const bits : {0, 1, 7, 8, 9, 17, 32, 47}) {
        CAPTURE(n);
        CAPTURE(bits);
        std::vector<std::uint64_t> keys = keys_of(n, bits, kind);
        std::vector<std::uint64_t> expected = keys;
        std::sort(expected.begin(), expected.end());
        team.sort(keys.data(), n, nullptr);
        CHECK(keys == expected);
      }
    }
  }
  // Keys that rise but for a few, from none to more than are merged back.
  for (std::int64_t outliers = 0; outliers < 24; ++outliers) {
    for (index_t const n : {48, 60, 256, 1000}) {
      CAPTURE(outliers);
      CAPTURE(n);
      std::vector<std::uint64_t> expected = keys_of(n, 17, ids::shuffled);
      std::sort(expected.begin(), expected.end());
      std::vector<std::uint64_t> keys = expected;
      for (std::int64_t i = 0; i < outliers; ++i) {
        auto const from = static_cast<std::ptrdiff_t>(random.between(0, n - 1));
        auto const to = static_cast<std::ptrdiff_t>(random.between(0, n - 1));
        std::uint64_t const key = keys[static_cast<std::size_t>(from)];
        keys.erase(keys.begin() + from);
        keys.insert(keys.begin() + to, key);
      }
      team.sort(keys.data(), n, nullptr);
      CHECK(keys == expected);
    }
  }
  // Keys that differ in all 64 bits, which takes the most digits.
  std::vector<std::uint64_t> keys(100);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] = std::uint64_t{1} << (63 - i % 64) | (i < 64 ? 0 : 1);
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  std::vector<std::uint64_t> const expected = keys;
  std::reverse(keys.begin(), keys.end());
  team.sort(keys.data(), static_cast<index_t>(keys.size()), nullptr);
  CHECK(keys == expected);
}

TEST_CASE("team: scratch returns aligned, disjoint arrays of the documented sizes") {
  alignas(16) std::byte memory[256] = {};
  scratch some(memory);
  char* const a = some.take<char>(3);
  uint128* const b = some.take<uint128>(2);
  std::uint16_t* const c = some.take<std::uint16_t>(0);
  double* const d = some.take<double>(5);
  auto const offset = [&](void const* p) { return static_cast<std::byte const*>(p) - memory; };
  CHECK(offset(a) == 0);
  CHECK(offset(b) == 16);
  CHECK(offset(c) == 48);
  CHECK(offset(d) == 48);
  CHECK(offset(some.take<char>(1)) == 96);
  CHECK(scratch_bytes_of<char>(3) + scratch_bytes_of<uint128>(2) +
            scratch_bytes_of<std::uint16_t>(0) + scratch_bytes_of<double>(5) ==
        96);
}

TEST_CASE("team: arrays of scratch are counted by the declarations that take them") {
  alignas(16) std::byte memory[256] = {};
  auto const offset = [&](void const* p) { return static_cast<std::byte const*>(p) - memory; };
  for (bool const is_sorted : {false, true}) {
    scratch some(memory);
    search_arrays const arrays{some, 3, 5, is_sorted};
    CHECK(offset(arrays.taken) == 0);
    CHECK((arrays.keys != nullptr) == is_sorted);
    CHECK((!is_sorted || offset(arrays.keys) == 32));
    CHECK(offset(arrays.load) == (is_sorted ? 64 : 32));
    auto const bytes =
        plimsoll::detail::bytes_taken_by<search_arrays>(index_t{3}, index_t{5}, is_sorted);
    CHECK(bytes == (is_sorted ? 112 : 80));
    CHECK(offset(some.take<char>(1)) == static_cast<std::ptrdiff_t>(bytes));
  }
  scratch some(memory);
  kept_arrays const kept = kept_arrays::in(some, 3);
  CHECK(offset(kept.first) == 0);
  CHECK(offset(kept.second) == 16);
  CHECK(plimsoll::detail::bytes_taken_by<kept_arrays>(index_t{3}) == 48);
}
