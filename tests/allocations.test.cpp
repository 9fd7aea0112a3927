// SPDX-License-Identifier: Apache-2.0
// Work calls of prepared objects allocate nothing at all, also not for the messages of checks that
// pass. Resources count only the allocations of a policy, so this program counts every call of
// operator new.
#include <doctest/doctest.h>
#include <plimsoll/plimsoll.hpp>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory_resource>
#include <new>
#include <vector>

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

namespace {

using plimsoll::matrix_ref;
using plimsoll::seq;
using ints = std::vector<std::int32_t>;
using longs = std::vector<std::int64_t>;

template <class Call>
long news_in(Call call) {
  long const before = news;
  call();
  return news - before;
}

/// Two ranks with experts 0 to 3; the second rank has another replica of expert 0.
struct small_layer {
  ints map{0, 1, -1, 2, 3, 0};
  ints copies{2, 1, 1, 1};
  ints ids{0, 0, 0, 1, 0, 2, 3, 0};  // [8, 1]
  ints slots = ints(8);
  [[nodiscard]] plimsoll::placement_ref placement() const {
    return {.physical_to_logical = {map.data(), 1, 6},
            .replica_count = {copies.data(), 1, 4},
            .ranks = 2};
  }
  [[nodiscard]] matrix_ref<std::int32_t const> topk_ids() const { return {ids.data(), 8, 1}; }
};

}  // namespace

TEST_CASE("allocations: this program counts them") {
  // A vector that nothing else sees may be optimized away.
  longs some;
  CHECK(news_in([&] { some.resize(10); }) == 1);
}

TEST_CASE("allocations: load_window and load_decay") {
  ints const loads{1, 2, 3};
  longs sums(3);
  matrix_ref<std::int32_t const> const step(loads.data(), 1, 3);
  plimsoll::load_window<std::int32_t, plimsoll::seq_policy> window(seq, 1, 3, {.window = 4});
  CHECK(news_in([&] { window.push(step); }) == 0);
  CHECK(news_in([&] { window.sum(matrix_ref<std::int64_t>(sums.data(), 1, 3)); }) == 0);
  ints steps(12);
  CHECK(news_in([&] { window.steps(plimsoll::tensor_ref<std::int32_t>(steps.data(), 4, 1, 3)); }) ==
        0);
  plimsoll::load_decay decay(seq, 1, 3);
  CHECK(news_in([&] { decay.update(step); }) == 0);
  CHECK(news_in([&] { decay.reset(0); }) == 0);
  CHECK(sums == longs{1, 2, 3});
}

TEST_CASE("allocations: minmax_lp and lplb") {
  small_layer const in;
  ints const counts{5, 1, 1, 1};
  matrix_ref<std::int32_t const> const loads(counts.data(), 1, 4);
  std::vector<double> split(6);
  plimsoll::minmax_lp lp(seq, in.placement());
  CHECK(news_in([&] { lp.solve(loads, matrix_ref<double>(split.data(), 1, 6)); }) == 0);
  CHECK(lp.certificates()[0].value == 4);
  plimsoll::lplb planner(seq, in.placement(), {.max_token_copies = 8});
  ints slots(8);
  std::vector<plimsoll::dispatch_counters> counters(1);
  CHECK(news_in([&] { planner.plan(loads); }) == 0);
  CHECK(news_in([&] {
          planner.dispatch(0, in.topk_ids(), matrix_ref<std::int32_t>(slots.data(), 8, 1),
                           counters);
        }) == 0);
  CHECK(counters[0].routed == 8);
}

TEST_CASE("allocations: least_loaded and llep") {
  small_layer const in;
  plimsoll::least_loaded_options const options{
      .on = {.ranks = 2}, .experts = 4, .min_chunk = 1, .lambda = 0, .max_token_copies = 8};
  ints counts(8);
  ints destinations(8);
  ints rows(8);
  std::vector<plimsoll::spill_counters> counters(1);
  std::vector<plimsoll::spill_segment> groups(4);
  auto const pairs = [](ints& values) { return matrix_ref<std::int32_t>(values.data(), 8, 1); };
  plimsoll::least_loaded plain(seq, options);
  plimsoll::least_loaded priced(seq, options,
                                plimsoll::spill_price{plimsoll::moe_cost{1, 1, 1}, 1, 1});
  auto const step = [&](auto& planner) {
    planner.count(in.topk_ids(), plimsoll::vector_ref<std::int32_t>(counts.data(), 4));
    planner.add_up(matrix_ref<std::int32_t const>(counts.data(), 2, 4));
    planner.plan();
    planner.exchange();
    planner.route(0, in.topk_ids(), pairs(destinations), pairs(rows), counters);
    planner.arrange(0, rows, groups);
    planner.arrange(1, rows, groups);
  };
  CHECK(news_in([&] { step(plain); }) == 0);
  CHECK(counters[0].routed == 8);
  CHECK(news_in([&] { step(priced); }) == 0);
  plimsoll::llep engine(seq, {.rank = 0, .assignment = options});
  CHECK(news_in([&] {
          engine.count(in.topk_ids());
          engine.plan();
          engine.route(in.topk_ids(), pairs(destinations), pairs(rows), counters);
          engine.arrange(rows, groups);
        }) == 0);
}

TEST_CASE("allocations: free calls of a step take temporaries from the resource only") {
  small_layer const in;
  std::pmr::monotonic_buffer_resource memory(1 << 20);
  auto const policy = seq(memory);
  ints counts(4);
  ints by_rank(8);
  ints slots(8);
  std::vector<plimsoll::routing_counters> routed(1);
  std::vector<plimsoll::dispatch_counters> dispatched(1);
  std::vector<double> const split{3, 1, 0, 1, 1, 1};
  ints quotas(6);
  ints shares(12);
  std::vector<plimsoll::quota_report> reports(1);
  std::vector<float> const scores(32, 1.0f);
  ints chosen(8);
  std::vector<float> weights(8);
  static_cast<void>(memory.allocate(64));  // the resource's own memory
  CHECK(news_in([&] {
          plimsoll::count_tokens(policy, in.topk_ids(), {}, counts, routed);
          plimsoll::quota(policy, matrix_ref<std::int32_t const>(counts.data(), 1, 4),
                          in.placement(), matrix_ref<double const>(split.data(), 1, 6),
                          matrix_ref<std::int32_t>(quotas.data(), 1, 6), reports);
          plimsoll::source_quotas(policy, quotas,
                                  matrix_ref<std::int32_t const>(by_rank.data(), 2, 4),
                                  in.placement(), 1, matrix_ref<std::int32_t>(shares.data(), 2, 6));
          plimsoll::dispatch(policy, in.topk_ids(), in.map, quotas, {.experts = 4},
                             matrix_ref<std::int32_t>(slots.data(), 8, 1), dispatched);
          plimsoll::top_k(policy, matrix_ref<float const>(scores.data(), 8, 4), {.k = 1},
                          matrix_ref<std::int32_t>(chosen.data(), 8, 1),
                          matrix_ref<float>(weights.data(), 8, 1));
        }) == 0);
  CHECK(counts == ints{5, 1, 1, 1});
  CHECK(dispatched[0].routed == 8);
}

TEST_CASE("allocations: waterline and waterfill") {
  small_layer const in;
  ints out(16);
  longs loads(4);
  matrix_ref<std::int32_t> const rows(out.data(), 8, 2);
  matrix_ref<std::int64_t> const counted(loads.data(), 2, 2);
  plimsoll::waterline line(seq, {.on = {.ranks = 2}, .slots = 6, .top_k = 1, .max_tokens = 8});
  CHECK(news_in([&] {
          line.count(in.topk_ids(), 0, counted);
          line.plan(counted, 0);
          line.fill(in.topk_ids(), 0, {}, rows, {});
        }) == 0);
  CHECK(line.report()[0].rows == 8);
  plimsoll::waterfill filler(seq, in.placement(), {.line = {.top_k = 1, .max_tokens = 8}});
  CHECK(news_in([&] {
          filler.count(in.topk_ids());
          filler.fill(in.topk_ids(), {}, rows);
        }) == 0);
}

TEST_CASE("allocations: capacity_mask and token_drop") {
  small_layer const in;
  std::vector<float> const logits(32, 1.0f);
  ints counts(4);
  ints ids(8);
  std::vector<plimsoll::capacity_report> report(1);
  plimsoll::kept_pairs const kept{.ids = {ids.data(), 8, 1}, .counts = counts, .report = report};
  plimsoll::capacity_options const options{.experts = 4, .top_k = 1, .max_tokens = 8};
  plimsoll::capacity_mask mask(seq, options);
  CHECK(news_in([&] {
          mask.apply(in.topk_ids(), matrix_ref<float const>(logits.data(), 8, 1), kept);
        }) == 0);
  CHECK(report[0].kept > 0);
  plimsoll::token_drop drop(seq, {.route = {.k = 1}, .limit = {.experts = 4, .max_tokens = 8}});
  CHECK(news_in([&] { drop.apply(matrix_ref<float const>(logits.data(), 8, 4), kept); }) == 0);
}
