// SPDX-License-Identifier: Apache-2.0
// Views with elements and a null pointer are refused before anything is read or written.
#include <doctest/doctest.h>
#include <plimsoll/plimsoll.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "support/refusal.hpp"

namespace plimsoll_test { namespace {

using plimsoll::matrix_ref;
using plimsoll::seq;
using plimsoll::tensor_ref;
using plimsoll::vector_ref;
using ints = std::vector<std::int32_t>;

constexpr char const* none = ": expected a pointer to its elements, got a null pointer";

struct plan {
  ints map{0, 1, 0, 1};
  ints copies{2, 2};
  ints loads{3, 5};
  std::vector<double> out = std::vector<double>(4);

  matrix_ref<std::int32_t> map_view{map.data(), 1, 4};
  matrix_ref<std::int32_t> copies_view{copies.data(), 1, 2};
  matrix_ref<std::int32_t> loads_view{loads.data(), 1, 2};
  matrix_ref<std::int32_t> no_loads{nullptr, 1, 2};
  matrix_ref<std::int32_t> no_map{nullptr, 1, 4};
};

TEST_CASE("null_views: inputs") {
  plan p;
  std::vector<plimsoll::balance_stats> balance(1);
  CHECK(refusal_of([&] { plimsoll::measure(seq, p.no_loads, balance); }) ==
        std::string("measure: loads") + none);
  CHECK(refusal_of([&] {
          plimsoll::eplb(seq, p.no_loads, {.on = {.ranks = 2}}, p.map_view, p.copies_view);
        }) == std::string("eplb: loads") + none);
  CHECK(refusal_of([&] { plimsoll::replicate(seq, p.no_loads, 4, {}, p.copies_view); }) ==
        std::string("replicate: loads") + none);
  std::vector<plimsoll::routing_counters> counters(1);
  CHECK(refusal_of([&] {
          plimsoll::count_tokens(seq, matrix_ref<std::int32_t>(nullptr, 3, 2), {}, p.loads,
                                 counters);
        }) == std::string("count_tokens: topk_ids") + none);
  CHECK(refusal_of([&] {
          plimsoll::top_k(seq, matrix_ref<float>(nullptr, 1, 2), {.k = 1},
                          matrix_ref<std::int32_t>(p.map.data(), 1, 1), matrix_ref<float>());
        }) == std::string("top_k: scores") + none);
  CHECK(refusal_of([&] { plimsoll::read(seq, vector_ref<double>(nullptr, 2)); }) ==
        std::string("read: elements") + none);
}

TEST_CASE("null_views: outputs") {
  plan p;
  CHECK(refusal_of([&] {
          plimsoll::eplb(seq, p.loads_view, {.on = {.ranks = 2}}, p.no_map, p.copies_view);
        }) == std::string("eplb: physical_to_logical") + none);
  CHECK(refusal_of([&] {
          plimsoll::measure(seq, p.loads_view, vector_ref<plimsoll::balance_stats>(nullptr, 1));
        }) == std::string("measure: out") + none);
  plimsoll::minmax_lp const lp(seq, {p.map_view, p.copies_view, 2});
  CHECK(refusal_of([&] {
          lp.solve(p.loads_view, matrix_ref<double>(nullptr, 1, 4),
                   std::vector<plimsoll::certificate>(1));
        }) == std::string("minmax_lp::solve: split") + none);
}

TEST_CASE("null_views: placements") {
  plan p;
  matrix_ref<double> const out(p.out.data(), 1, 2);
  CHECK(refusal_of([&] {
          plimsoll::rank_loads(seq, p.loads_view, {p.no_map, p.copies_view, 2}, out);
        }) == std::string("rank_loads: placement.physical_to_logical") + none);
  CHECK(refusal_of([&] {
          plimsoll::rank_loads(seq, p.loads_view, {p.map_view, p.no_loads, 2}, out);
        }) == std::string("rank_loads: placement.replica_count") + none);
  CHECK(refusal_of([&] {
          plimsoll::validate(seq, {p.no_map, p.copies_view, 2});
        }) == std::string("validate: placement.physical_to_logical") + none);
  CHECK(refusal_of([&] {
          plimsoll::validate(seq, {p.map_view, p.no_loads, 2});
        }) == std::string("validate: placement.replica_count") + none);
  CHECK(refusal_of([&] {
          plimsoll::minmax_lp const lp(seq, {p.no_map, p.copies_view, 2});
        }) == std::string("minmax_lp: placement.physical_to_logical") + none);
}

TEST_CASE("null_views: views without elements may have a null pointer") {
  std::vector<plimsoll::balance_stats> balance;
  CHECK_NOTHROW(plimsoll::measure(seq, matrix_ref<std::int32_t>(nullptr, 0, 2), balance));
  CHECK(plimsoll::read(seq, vector_ref<double>()).empty());
}

}  // namespace
}  // namespace plimsoll_test
