// SPDX-License-Identifier: Apache-2.0
// Tests of least_loaded under the host's policies; every team, shapes, temporaries.
#include "least_loaded.cases.hpp"

#include "support/run_body.hpp"
#include "support/temporaries.hpp"

#include <span>

namespace plimsoll_test {

using seq = plimsoll::seq_policy;

/// Plans a step with the price of the case.
spilled plan_on_host(spill_case const& c) {
  return c.price == pricing::tokens  ? plan_at<seq, plimsoll::token_cost>(c)
         : c.price == pricing::tiled ? plan_at<seq, tiled_cost>(c)
                                     : plan_with<seq>(c);
}

/// Draws a random step with a price.
spill_case priced_spill(std::uint64_t seed) {
  spill_case c = random_spill(seed);
  draws draw(seed + 17);
  c.price = draw.any({pricing::moe, pricing::tokens, pricing::tiled});
  for (std::int32_t& pace : c.paces) {
    pace = pace == 8 ? 8 : pace > 3 ? 4 : pace > 1 ? 2 : 1;
  }
  return c;
}

TEST_CASE("least_loaded: many random steps") {
  fnv1a unused;
  tally plain;
  tally any;
  tally priced;
  for (std::uint64_t seed = 1000; seed < 1000 + cases_of(3000); ++seed) {
    CAPTURE(seed);
    for (auto [c, happened] : {std::pair(plain_spill(seed), &plain),
                               {random_spill(seed), &any},
                               {priced_spill(seed), &priced}}) {
      check_spilled(c, plan_on_host(c), *happened, unused);
    }
  }
  // The random steps cover all outcomes.
  for (tally* const one : {&plain, &any, &priced}) {
    CHECK(one->spills > 0);
    CHECK(one->transfers > 0);
    CHECK(one->forced > 0);
    CHECK(one->kept > 0);
    CHECK(one->status[certificate_status::optimal] > 0);
    CHECK(one->status[certificate_status::within_tolerance] > 0);
    CHECK(one->status[certificate_status::feasible] > 0);
  }
  CHECK(any.status[certificate_status::infeasible] > 0);
  CHECK(priced.faster > 0);
  CHECK(priced.slower > 0);
}

TEST_CASE("least_loaded: every token copy arrives once, in many random steps") {
  fnv1a unused;
  for (std::uint64_t seed = 1000; seed < 1000 + cases_of(100); ++seed) {
    CAPTURE(seed);
    spill_case const c = traveling(seed);
    check_traveled(c, travel_with<seq>(c), unused);
  }
}

// ----- the smallest peak -------------------------------------------------------------------------

/// Tries all choices of the ranks that compute each expert, within the limits, and finds the lowest
/// peak.
class every_plan {
 public:
  explicit every_plan(spill_case const& c) : c_(c), levels_(c), sets_(at(c.experts())) {
    for (ints const& of : c.homes()) {
      homes_.push_back(0);
      for (std::int32_t const r : of) {
        homes_.back() |= 1u << r;
      }
    }
    for (index_t r = 0; r < c.ranks(); ++r) {
      live_ |= c.lives(r) ? 1u << r : 0;
    }
    choose(0);
  }
  [[nodiscard]] double peak() const { return levels_.value(best_); }

 private:
  void choose(std::size_t e) {
    if (e == sets_.size()) {
      if (is_within_limits() && holds_all_below(best_ - 1)) {
        std::int64_t low = -1;
        while (best_ - low > 1) {
          std::int64_t const middle = low + (best_ - low) / 2;
          (holds_all_below(middle) ? best_ : low) = middle;
        }
      }
      return;
    }
    for (unsigned set = 0; set <= live_; ++set) {
      if ((set & ~live_) == 0 && (set & homes_[e]) == homes_[e]) {
        sets_[e] = set;
        choose(e + 1);
      }
    }
  }
  [[nodiscard]] bool is_within_limits() const {
    for (index_t r = 0; r < c_.ranks(); ++r) {
      std::int64_t imports = 0;
      for (std::size_t e = 0; e < sets_.size(); ++e) {
        imports += (sets_[e] & ~homes_[e]) >> r & 1;
      }
      if (imports > c_.most_imports()) {
        return false;
      }
    }
    // By Hall's theorem all transfers have senders if every set of experts has enough of them.
    return holds([this](std::size_t e) { return std::popcount(sets_[e] & ~homes_[e]); }, homes_,
                 [this](index_t) { return std::int64_t{c_.options.max_exports}; });
  }
  [[nodiscard]] bool holds_all_below(std::int64_t level) const {
    return holds([this](std::size_t e) { return c_.loads[e]; }, sets_,
                 [this, level](index_t r) { return levels_.room_below(level, r); });
  }
  /// Returns true if the needs of all experts fit on the ranks that each may use (Hall's theorem).
  template <class Need, class Room>
  [[nodiscard]] bool holds(Need need, std::vector<unsigned> const& ranks_of, Room room) const {
    for (unsigned experts = 1; experts < 1u << sets_.size(); ++experts) {
      std::int64_t needed = 0;
      unsigned ranks = 0;
      for (std::size_t e = 0; e < sets_.size(); ++e) {
        if ((experts >> e & 1) != 0 && need(e) > 0) {
          needed += need(e);
          ranks |= ranks_of[e];
        }
      }
      for (index_t r = 0; r < c_.ranks(); ++r) {
        needed -= (ranks >> r & 1) != 0 ? room(r) : 0;
      }
      if (needed > 0) {
        return false;
      }
    }
    return true;
  }

  spill_case const& c_;
  level_rule levels_;
  unsigned live_ = 0;
  std::vector<unsigned> homes_;
  std::vector<unsigned> sets_;
  std::int64_t best_ = c_.total() << 19;
};

TEST_CASE("least_loaded: certificates hold against all possible plans") {
  std::map<certificate_status, int> seen;
  int tight = 0;
  int best_within_limits = 0;
  for (std::uint64_t seed = 0; seed < cases_of(800); ++seed) {
    CAPTURE(seed);
    spill_case const c = random_spill(seed, sizes::tiny);
    plimsoll::certificate const result = plan_on_host(c).report.result;
    double const capacity = plan_on_host(c).report.capacity;
    double const best = every_plan(c).peak();
    REQUIRE(result.lower_bound <= best);
    REQUIRE(result.value >= best);
    if (result.status == certificate_status::optimal) {
      REQUIRE(result.value == best);
    } else if (result.status == certificate_status::infeasible) {
      REQUIRE(best > capacity);
    }
    ++seen[result.status];
    tight += c.is_limited() && result.lower_bound == best;
    best_within_limits += c.is_limited() && result.value == best;
  }
  CHECK(seen.size() == 4);
  CHECK(tight > 0);
  CHECK(best_within_limits > 0);
}

TEST_CASE("least_loaded: alpha 1 is optimal without chunks, limits and prices") {
  int spills = 0;
  for (std::uint64_t seed = 0; seed < cases_of(400); ++seed) {
    CAPTURE(seed);
    spill_case c = random_spill(seed);
    c.percent = 100;
    c.price = pricing::none;
    c.options.round = rounding_mode::up;
    c.options.min_chunk = 1;
    c.options.lambda = 0;
    c.options.max_imports = 65535;
    c.options.max_exports = 0x7fffffff;
    c.options.max_import_bytes = std::numeric_limits<std::int64_t>::max();
    spill_report const report = plan_on_host(c).report;
    REQUIRE((report.spills == 0 || report.result.status == certificate_status::optimal));
    spills += report.spills;
  }
  CHECK(spills > 0);
}

// ----- rules, one by one -------------------------------------------------------------------------

TEST_CASE("least_loaded: capacities are rounded up or down") {
  auto const outcome = [](longs loads, std::int32_t percent, rounding_mode round, ints paces = {}) {
    spill_case c = spill_of(loads, std::ssize(loads));
    c.percent = percent;
    c.options.round = round;
    c.paces = std::move(paces);
    spilled const got = plan_on_host(c);
    return std::pair(got.loads, got.report.capacity);
  };
  longs const ten{10, 0, 0};
  CHECK(outcome(ten, 100, rounding_mode::up) == std::pair(ints{4, 4, 2}, 4.0));
  // One token is left and forced on the least loaded other rank.
  CHECK(outcome(ten, 100, rounding_mode::down) == std::pair(ints{3, 4, 3}, 3.0));
  CHECK(outcome(ten, 120, rounding_mode::down) == std::pair(ints{4, 4, 2}, 4.0));
  CHECK(outcome(ten, 121, rounding_mode::up) == std::pair(ints{5, 5, 0}, 5.0));
  // A capacity is at least 1.
  CHECK(outcome(ten, 1, rounding_mode::down) == std::pair(ints{1, 8, 1}, 1.0));
  CHECK(outcome(ten, 1, rounding_mode::up) == std::pair(ints{1, 8, 1}, 1.0));
  // No capacity exceeds the number of tokens.
  CHECK(outcome(ten, 400, rounding_mode::up) == std::pair(ints{10, 0, 0}, 10.0));
  // The double of 0.29 is slightly less than 0.29, that of 1.1 slightly more: the results are the
  // same as for the exact numbers.
  CHECK(outcome({200, 0}, 29, rounding_mode::down) == std::pair(ints{29, 171}, 29.0));
  CHECK(outcome({100, 0}, 110, rounding_mode::up) == std::pair(ints{55, 45}, 55.0));
  // Capacities are in proportion to speed: speeds 0.5, 1 and 2 compute 10 tokens in 3 units of
  // time.
  CHECK(outcome(ten, 100, rounding_mode::up, {2, 4, 8}) == std::pair(ints{1, 3, 6}, 3.0));
  // At the level of 2 tokens the slowest rank has a capacity of 0; rounded down, a live rank has
  // at least 1.
  CHECK(outcome({1, 1, 0}, 100, rounding_mode::up, {1, 8, 8}) == std::pair(ints{0, 1, 1}, 0.5));
  CHECK(outcome({1, 1, 0}, 100, rounding_mode::down, {1, 8, 8}) == std::pair(ints{1, 1, 0}, 4.0));
}

TEST_CASE("least_loaded: lambda limits the imbalance of ranks or of experts") {
  // Ranks: 12 over a mean of 7; experts: 10 over 3.5.
  auto const spills = [](double lambda, spill_trigger threshold) {
    spill_case c = spill_of({10, 2, 1, 1}, 2);
    c.options.lambda = lambda;
    c.options.trigger = threshold;
    spill_report const report = plan_on_host(c).report;
    CHECK(report.imbalance == (threshold == spill_trigger::rank_imbalance ? 24.0 / 14 : 40.0 / 14));
    return report.spills;
  };
  for (spill_trigger const threshold :
       {spill_trigger::rank_imbalance, spill_trigger::expert_imbalance}) {
    double const imbalance = threshold == spill_trigger::rank_imbalance ? 24.0 / 14 : 40.0 / 14;
    CHECK(spills(0, threshold) == 1);
    CHECK(spills(imbalance, threshold) == 1);
    CHECK(spills(std::nextafter(imbalance, 9.0), threshold) == 0);
    CHECK(spills(std::numeric_limits<double>::infinity(), threshold) == 0);
  }
}

TEST_CASE("least_loaded: chunks") {
  // Returns loads and forced tokens.
  auto const outcome = [](longs loads, std::int32_t percent, std::int64_t min_chunk,
                          small_excess_policy excess) {
    spill_case c = spill_of(std::move(loads), 4, min_chunk);
    c.percent = percent;
    c.options.small_excess = excess;
    spilled const got = plan_on_host(c);
    longs result(got.loads.begin(), got.loads.end());
    result.push_back(got.report.forced);
    return result;
  };
  // Every rank has a capacity of 15, so rank 0 gives 18 tokens away.
  longs const loads{33, 10, 12, 5};
  CHECK(outcome(loads, 100, 1, small_excess_policy::helper) == longs{15, 15, 15, 15, 0});
  CHECK(outcome(loads, 100, 5, small_excess_policy::helper) == longs{15, 15, 15, 15, 0});
  // Rank 3 can take 10 tokens, rank 1 only 5: 8 are forced on rank 1, and 3 of its own then leave.
  CHECK(outcome(loads, 100, 6, small_excess_policy::helper) == longs{15, 15, 15, 15, 8});
  CHECK(outcome(loads, 100, 11, small_excess_policy::helper) == longs{15, 15, 12, 18, 18});
  CHECK(outcome(loads, 100, 18, small_excess_policy::home) == longs{15, 10, 12, 23, 18});
  CHECK(outcome(loads, 100, 19, small_excess_policy::home) == longs{33, 10, 12, 5, 0});
  // Two tokens are left for ranks that can take one each.
  CHECK(outcome({20, 9, 9, 2}, 100, 8, small_excess_policy::helper) == longs{10, 10, 10, 10, 2});
  // A forced rest extends the segment that the rank already has of the expert.
  spill_case c = spill_of({40, 0, 0, 0}, 4);
  c.percent = 50;
  spilled const got = plan_on_host(c);
  CHECK(numbers_in(got.segments) == longs{0, 0, 0, 5, 0, 1, 5, 30, 0, 2, 30, 35, 0, 3, 35, 40});
  CHECK(got.report.transfers == 3);
  CHECK(got.report.forced == 20);
}

TEST_CASE("least_loaded: why the first tokens exceed a capacity") {
  using plimsoll::first_overload;
  using plimsoll::overload_cause;
  auto const first = [](spill_case const& c) { return plan_on_host(c).report.first_forced; };
  // Every rank has a capacity of 15, so rank 0 gives 18 tokens of expert 0 away.
  spill_case c = spill_of({33, 10, 12, 5}, 4);
  CHECK(first(c) == first_overload{});
  // Rank 3 takes 10 of them, and no other rank can take 6 more.
  c.options.min_chunk = 6;
  CHECK(first(c) == first_overload{0, 1, overload_cause::min_chunk});
  c.options.min_chunk = 19;
  c.options.small_excess = small_excess_policy::home;
  CHECK(first(c) == first_overload{0, 0, overload_cause::small_excess});
  // Twenty tokens have room, and twenty more have not.
  spill_case half = spill_of({40, 0, 0, 0}, 4);
  half.percent = 50;
  CHECK(first(half) == first_overload{0, 1, overload_cause::capacity});
  // What the first plan exceeds is reported also if the limits raise the capacity.
  spill_case limited = spill_of({800, 100, 50, 50, 40, 30, 20, 10}, 4);
  limited.options.max_exports = 1;
  CHECK(plan_on_host(limited).report.raised_capacity == 456);
  CHECK(first(limited).cause == overload_cause::max_exports);
  CHECK(first(limited).expert == 0);
  limited.options.max_exports = 0;
  CHECK(first(limited) == first_overload{0, 0, overload_cause::max_exports});
  limited.options.max_exports = 9;
  limited.options.max_imports = 0;
  CHECK(first(limited) == first_overload{0, 0, overload_cause::max_imports});
  // Without spills there is no plan to explain.
  limited.options.lambda = 100;
  CHECK(first(limited) == first_overload{});
}

TEST_CASE("least_loaded: every cause of an overload occurs") {
  fnv1a hash;
  tally happened;
  for (std::uint64_t seed = 0; seed < cases_of(400); ++seed) {
    CAPTURE(seed);
    spill_case const c = random_spill(seed + 9000);
    check_spilled(c, plan_on_host(c), happened, hash);
  }
  CHECK(happened.causes.size() == 7);
}

/// Returns loads, status, overload, forced and kept tokens, and the number of transfers.
inline longs result_of(spill_case const& c) {
  spilled const got = plan_on_host(c);
  spill_report const& r = got.report;
  longs result(got.loads.begin(), got.loads.end());
  result.insert(result.end(), {static_cast<std::int64_t>(r.result.status), r.overload, r.forced,
                               r.kept, r.transfers});
  return result;
}

TEST_CASE("least_loaded: limits, including infeasible ones") {
  constexpr auto infeasible = static_cast<std::int64_t>(certificate_status::infeasible);
  spill_case c = spill_of({800, 100, 50, 50, 40, 30, 20, 10}, 4);
  c.options.expert_bytes = 10;
  spill_case const free = c;
  longs const unlimited{275, 275, 275, 275, 0, 0, 0, 0, 3};
  CHECK(result_of(c) == unlimited);
  // Rank 0 makes two transfers. At level x, ranks 0, 2 and 3 take 3 x - 200 tokens of expert 0; the
  // tokens above it leave rank 2 as its own experts, of 70 tokens.
  c.options.max_exports = 2;
  CHECK(result_of(c) == longs{310, 170, 310, 310, infeasible, 105, 70, 0, 4});
  CHECK(plan_on_host(c).report.result.lower_bound == 300);
  // Ranks 0 and 3 make one transfer each: level 455 is possible, and the search finds it to 1/128.
  c.options.max_exports = 1;
  CHECK(result_of(c) == longs{456, 100, 88, 456, infeasible, 362, 18, 0, 2});
  CHECK(plan_on_host(c).report.result.lower_bound == 450);
  CHECK(plan_on_host(c).report.capacity == 275);
  CHECK(plan_on_host(c).report.raised_capacity == 456);
  // No transfer is possible: the loads at home are the best.
  longs const stuck{900, 100, 70, 30, infeasible, 625, 0, 725, 0};
  c.options.max_exports = 0;
  CHECK(result_of(c) == stuck);
  CHECK(plan_on_host(c).report.result.lower_bound == 900);
  c = free;
  c.options.max_imports = 1;
  CHECK(result_of(c) == unlimited);
  c.options.max_imports = 0;
  CHECK(result_of(c) == stuck);
  c = free;
  c.options.max_import_bytes = 9;
  CHECK(result_of(c) == stuck);
  c.options.max_import_bytes = 10;
  CHECK(result_of(c) == unlimited);
  // Rank 0 may not receive a second expert, although it is below capacity; no other capacity helps.
  spill_case two = spill_of({0, 0, 30, 30, 30, 30}, 3);
  two.home_rank = {0, 0, 1, 1, 2, 2};
  two.options.max_imports = 1;
  constexpr auto feasible = static_cast<std::int64_t>(certificate_status::feasible);
  CHECK(result_of(two) == longs{20, 60, 40, feasible, 20, 20, 0, 2});
  // Only the heaviest expert may leave.
  spill_case many = spill_of({50, 40, 30, 20, 10, 0, 0, 0, 0, 0}, 2);
  many.options.max_exports = 1;
  CHECK(plan_on_host(many).report.result.lower_bound == 100);
  CHECK(result_of(many) == longs{100, 50, infeasible, 25, 0, 80, 1});
}

TEST_CASE("least_loaded: nodes") {
  // Ranks 0 to 2 are one node, 3 to 5 the other; the ranks of the second node are less loaded.
  spill_case c = spill_of({100, 40, 50, 10, 0, 0}, 6, 10);
  c.percent = 180;  // 60
  auto const takers = [&] {
    ints result;
    for (spill_transfer const& t : plan_on_host(c).transfers) {
      result.push_back(t.to);
    }
    return result;
  };
  CHECK(takers() == ints{4});
  c.options.on.nodes = 2;
  CHECK(takers() == ints{1, 2, 4});
  c.options.min_chunk = 11;  // rank 2 cannot take such a chunk
  CHECK(takers() == ints{1, 4});
  // The home on the receiver's node sends; among several, the one with the fewest transfers.
  c = spill_of({120}, 6);
  c.slots = {0, -1, -1, 0, -1, -1};
  c.options.on.nodes = 2;
  CHECK(numbers_in(plan_on_host(c).transfers) ==
        longs{0, 0, 1, 0, 0, 0, 2, 0, 0, 3, 4, 0, 0, 3, 5, 0});
  c.options.on.nodes = 1;
  CHECK(numbers_in(plan_on_host(c).transfers) ==
        longs{0, 0, 1, 0, 0, 3, 2, 0, 0, 0, 4, 0, 0, 3, 5, 0});
}

TEST_CASE("least_loaded: experts with several homes") {
  // Tokens at home are spread evenly, and the first homes take the remainder.
  spill_case c = spill_of({11, 7}, 4);
  c.slots = {0, -1, 0, 1, 1, -1, -1, -1};
  c.options.lambda = 99;
  spilled got = plan_on_host(c);
  CHECK(numbers_in(got.segments) == longs{0, 0, 0, 6, 0, 1, 6, 11, 1, 1, 0, 4, 1, 2, 4, 7});
  CHECK(got.transfers.empty());
  CHECK(got.report.home_peak == 9);
  // With a capacity of 8 the homes are leveled, counting pending experts; with 6 three tokens
  // leave.
  c.options.lambda = 0;
  c.percent = 175;
  got = plan_on_host(c);
  CHECK(got.loads == ints{8, 7, 3, 0});
  CHECK(got.transfers.empty());
  c.percent = 120;
  CHECK(plan_on_host(c).loads == ints{6, 6, 3, 3});
  // Kept tokens are leveled, too.
  c = spill_of({400, 10}, 4);
  c.slots = {0, 0, 1, -1};
  c.options.max_imports = 0;
  got = plan_on_host(c);
  CHECK(got.loads == ints{200, 200, 10, 0});
  CHECK(got.report.kept == 400 - 2 * 103);
}

// ----- prices ------------------------------------------------------------------------------------

/// Transfers take no time compared with a token, or so much that no spill saves time.
TEST_CASE("least_loaded: transfers that take no time, or too much") {
  int same = 0;
  int none = 0;
  for (std::uint64_t seed = 0; seed < cases_of(400); ++seed) {
    CAPTURE(seed);
    spill_case free = random_spill(seed);
    free.price = pricing::none;
    free.paces.clear();
    free.options.expert_bytes = 4096;
    spilled const expected = plan_on_host(free);
    spill_case c = free;
    c.price = pricing::tokens;
    c.within_node = c.between_nodes = 0x1p-200;
    // A rank that can take a chunk ends within the capacity; the only home with the rest does not.
    // With forced tokens or a raised capacity, possibly no receiver ends earlier.
    bool const is_plain = expected.report.forced == 0 && expected.report.kept == 0 &&
                          expected.report.raised_capacity == expected.report.capacity;
    if (c.slots.empty() && is_plain) {
      spilled const got = plan_on_host(c);
      REQUIRE(numbers_in(got.segments) == numbers_in(expected.segments));
      REQUIRE(numbers_in(got.transfers) == numbers_in(expected.transfers));
      same += expected.report.transfers > 0;
    }
    c.within_node = c.between_nodes = 0x1p40;
    spilled const got = plan_on_host(c);
    REQUIRE(got.transfers.empty());
    REQUIRE((!c.slots.empty() || numbers_in(got.segments) == numbers_in(segments_at_home(c))));
    REQUIRE(got.report.forced == 0);
    none += expected.report.transfers > 0;
  }
  CHECK(same > 5);
  CHECK(none > 10);
}

TEST_CASE("least_loaded: a spill must save time") {
  // 40 of 60 tokens are above the capacity of rank 0. It sends the expert twice if the first
  // transfer ends its work before 60 and the second one earlier still.
  auto const times = [](double sending) {
    spill_case c = spill_of({60, 0, 0}, 3);
    c.options.expert_bytes = 4096;
    c.price = pricing::tokens;
    c.within_node = sending;
    spill_report const report = plan_on_host(c).report;
    CHECK(report.home_time == 60);
    CHECK(report.tokens == 60);
    return std::pair(report.transfers, report.time);
  };
  CHECK(times(1) == std::pair(2, 22.0));
  CHECK(times(16) == std::pair(2, 52.0));
  CHECK(times(19) == std::pair(2, 58.0));
  CHECK(times(20) == std::pair(0, 60.0));
  CHECK(times(64) == std::pair(0, 60.0));
}

// ----- loads of all types, and invalid input -----------------------------------------------------

/// Loads that a user computes.
struct computed_loads {
  PLIMSOLL_HD std::int32_t operator()(index_t e) const { return static_cast<std::int32_t>(e * e); }
};

TEST_CASE("least_loaded: loads of any integer type, stored or computed") {
  spill_case c = spill_of({}, 4);
  c.options.experts = 20;
  for (std::int64_t e = 0; e < 20; ++e) {
    c.loads.push_back(e * e);
  }
  spill_in<seq> const in(c);
  auto planner = in.make();
  spilled const expected = in.plan(planner);
  CHECK(expected.report.transfers > 0);
  auto const check = [&](auto const& loads) {
    in.only_plan(planner, longs(20, 0));
    planner.plan(loads);
    CHECK(difference(in.read_plan(planner), expected) == "");
  };
  check(std::vector<std::int32_t>(c.loads.begin(), c.loads.end()));
  check(std::vector<std::uint32_t>(c.loads.begin(), c.loads.end()));
  check(c.loads);
  check(plimsoll::generate(computed_loads{}, 20));
}

/// Returns the error message for changed options of four ranks and eight experts, without
/// "least_loaded: ".
template <class Change>
std::string refused(Change change) {
  least_loaded_options o{.on = {.ranks = 4}, .experts = 8};
  change(o);
  std::string const message =
      refusal_of([&] { plimsoll::least_loaded const planner(plimsoll::seq, o); });
  std::string const begin = "least_loaded: ";
  return message.substr(0, begin.size()) == begin ? message.substr(begin.size()) : message;
}

TEST_CASE("least_loaded: options out of range") {
  using options = least_loaded_options;
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr std::int64_t above = std::int64_t{1} << 31;
  auto const with = [](auto member, auto value) {
    return refused([=](options& o) { o.*member = value; });
  };
  CHECK(refused([](options&) {}) == "no error");
  CHECK(with(&options::experts, 0) == "options.experts: expected 1 to 65535 experts, got 0");
  CHECK(with(&options::experts, 65536) ==
        "options.experts: expected 1 to 65535 experts, got 65536");
  auto const on = [](auto member, auto value) {
    return refused([=](options& o) { o.on.*member = value; });
  };
  using plimsoll::rank_set;
  CHECK(on(&rank_set::ranks, 0) == "options.on.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(on(&rank_set::ranks, 32768) == "options.on.ranks: expected 1 to 32767 ranks, got 32768");
  std::string const nodes = "options.on.nodes: expected 1 to 4 nodes (at most one per rank), got ";
  CHECK(on(&rank_set::nodes, 0) == nodes + "0");
  CHECK(on(&rank_set::nodes, 5) == nodes + "5");
  for (double const wrong : {0.0, -1.0, 32769.0, nan}) {
    CHECK(with(&options::alpha, wrong) ==
          "options.alpha: expected a number above 0, at most 32768, got " +
              plimsoll::detail::text(wrong));
  }
  std::string const chunk = "options.min_chunk: expected 1 to 2147483647 tokens, got ";
  CHECK(with(&options::min_chunk, 0) == chunk + "0");
  CHECK(with(&options::min_chunk, above) == chunk + "2147483648");
  CHECK(with(&options::lambda, -1.0) == "options.lambda: expected a number from 0, got -1");
  CHECK(with(&options::lambda, nan) == "options.lambda: expected a number from 0, got NaN");
  std::string const imports = "options.max_imports: expected 0 to 65535 experts, got ";
  CHECK(with(&options::max_imports, -1) == imports + "-1");
  CHECK(with(&options::max_imports, 65536) == imports + "65536");
  std::string const exports = "options.max_exports: expected 0 to 2147483647 transfers, got ";
  CHECK(with(&options::max_exports, -1) == exports + "-1");
  CHECK(with(&options::max_exports, above) == exports + "2147483648");
  std::string const weights = "options.expert_bytes: expected 0 to 70368744177664 bytes, got ";
  CHECK(with(&options::expert_bytes, -1) == weights + "-1");
  CHECK(with(&options::expert_bytes, 70368744177665) == weights + "70368744177665");
  std::string const tokens = "options.token_bytes: expected 0 to 2147483647 bytes, got ";
  CHECK(with(&options::token_bytes, -1) == tokens + "-1");
  CHECK(with(&options::token_bytes, above) == tokens + "2147483648");
  CHECK(with(&options::max_import_bytes, -1) ==
        "options.max_import_bytes: expected 0 to 9223372036854775807 bytes, got -1");
  CHECK(with(&options::max_import_bytes, 9) ==
        "options.expert_bytes: expected a size above 0 if options.max_import_bytes is set, got 0");
  std::string const ids = "options.max_token_copies: expected 0 to 2147483647 ids, got ";
  CHECK(with(&options::max_token_copies, -1) == ids + "-1");
  CHECK(with(&options::max_token_copies, above) == ids + "2147483648");
}

TEST_CASE("least_loaded: invalid homes and ranks") {
  using options = least_loaded_options;
  auto const with_home_rank = [&](ints const& home_rank,
                                  std::vector<std::uint8_t> const& active = {}) {
    return refused([&](options& o) {
      o.home_rank = home_rank;
      o.on.active = {active.empty() ? nullptr : active.data(), std::ssize(active)};
    });
  };
  CHECK(with_home_rank({0, 0, 1, 1, 2, 2, 3, 3}) == "no error");
  CHECK(with_home_rank({0, 0, 1, 1, 2, 2, 3}) == "options.home_rank: expected 8 experts, got 7");
  CHECK(with_home_rank({0, 0, 1, 4, 2, 2, 3, 3}) ==
        "options.home_rank: expected ranks from 0 to 3, got 4, expert 3");
  CHECK(with_home_rank({0, -1, 1, 4, 2, 2, 3, 3}) ==
        "options.home_rank: expected ranks from 0 to 3, got -1, expert 1");
  CHECK(with_home_rank({0, 0, 1, 1, 2, 2, 3, 3}, {1, 1, 0, 1}) ==
        "options.home_rank: expected every expert on a live rank, got none, expert 4");
  CHECK(with_home_rank({0, 0, 1, 1, 3, 1, 3, 3}, {1, 1, 0, 1}) == "no error");
  CHECK(with_home_rank({0, 0, 1, 1, 2, 2, 3, 3}, {1, 1, 1}) ==
        "options.on.active: expected 4 ranks, got 3");
  CHECK(with_home_rank({0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0}) ==
        "options.on.active: expected at least 1 live rank, got 0");
  CHECK(refused([](options& o) {
          o.on.active = {std::vector<std::uint8_t>{1}.data(), 3};
        }) == "options.on.active: expected 4 ranks, got 3");
  reals speeds{1, 1, 0, 1};
  CHECK(refused([&](options& o) { o.on.speeds = speeds; }) ==
        "options.on.speeds: expected values from 2^-64 to 2^64, got 0, rank 2");
  speeds[2] = 8;
  speeds[3] = 1 << 20;
  speeds[0] = speeds[1] = 1 << 10;
  CHECK(
      refused([&](options& o) { o.on.speeds = speeds; }) ==
      "options.on.speeds: expected speeds of live ranks from 2^-16 of the fastest to the fastest, "
      "got 8 for rank 2, where rank 3 is the fastest");
  speeds[2] = 16;
  CHECK(refused([&](options& o) { o.on.speeds = speeds; }) == "no error");
  speeds.pop_back();
  CHECK(refused([&](options& o) { o.on.speeds = speeds; }) ==
        "options.on.speeds: expected 4 ranks, got 3");

  auto const with_slots = [](ints const& slots, index_t layers = 1, index_t ranks = 4,
                             ints const& offsets = {}, ints const& home_rank = {},
                             std::vector<std::uint8_t> const& active = {}) {
    return refused([&](options& o) {
      o.experts = 3;
      o.residents = {{slots.data(), layers, std::ssize(slots) / layers}, {}, ranks, {}};
      if (!offsets.empty()) {
        o.residents.rank_offsets = {offsets.data(), 1, std::ssize(offsets)};
      }
      o.home_rank = {home_rank.empty() ? nullptr : home_rank.data(), std::ssize(home_rank)};
      o.on.active = {active.empty() ? nullptr : active.data(), std::ssize(active)};
    });
  };
  std::string const map = "options.residents.physical_to_logical: expected ";
  CHECK(with_slots({0, 1, 2, -1}) == "no error");
  CHECK(with_slots({0, 1, 2, -1}, 2) == map + "1 layers, got 2");
  CHECK(with_slots({0, 1, 2, -1}, 1, 3) ==
        "options.residents.ranks: expected 4 ranks (options.on.ranks), got 3");
  CHECK(with_slots({0, 1, 3, -1}) == map + "-1 or an expert of the layer, got 3, rank 2, slot 2");
  CHECK(with_slots({0, 1, 2, -2}) == map + "-1 or an expert of the layer, got -2, rank 3, slot 3");
  std::string const live = map + "every expert on a live rank, got none, expert ";
  CHECK(with_slots({0, 1, 1, -1}) == live + "2");
  CHECK(with_slots({0, 1, 2, 0}, 1, 4, {}, {}, {0, 1, 1, 1}) == "no error");
  CHECK(with_slots({0, 1, 2, 0}, 1, 4, {}, {}, {0, 1, 1, 0}) == live + "0");
  CHECK(with_slots({0, 1, 2}, 1, 4, {0, 3, 3, 3, 3}) == "no error");
  CHECK(with_slots({0, 1, 2}, 1, 4, {0, 3, 3, 2, 3}) ==
        "options.residents.rank_offsets: expected offsets that rise from 0 to at most the number "
        "of slots, got 2, rank 2");
  CHECK(with_slots({0, 1, 2}, 1, 4, {0, 1, 2, 3}) ==
        "options.residents.rank_offsets: expected 5 offsets (ranks + 1), got 4");
  CHECK(with_slots({0, 1, 2, -1}, 1, 4, {}, {0, 1, 2}) ==
        "options.home_rank: expected none if options.residents is given, got both");
}

TEST_CASE("least_loaded: invalid prices") {
  auto const refused_price = [](auto const& price) {
    return refusal_of([&] {
      least_loaded_options const o{.on = {.ranks = 4}, .experts = 8, .expert_bytes = 9};
      plimsoll::least_loaded const planner(plimsoll::seq, o, price);
    });
  };
  plimsoll::moe_cost const cost{1, 1, 1};
  constexpr double inf = std::numeric_limits<double>::infinity();
  CHECK(refused_price(spill_price{cost, 1, 1}) == "no error");
  for (double const wrong : {0.0, -1.0, 0x1p-901, 0x1p960, inf, std::nan("")}) {
    std::string const end = ": expected a number of bytes from 2^-900 to below 2^960, got " +
                            plimsoll::detail::text(wrong);
    CHECK(refused_price(spill_price{cost, wrong, 1}) == "least_loaded: price.within_node" + end);
    CHECK(refused_price(spill_price{cost, 1, wrong}) == "least_loaded: price.between_nodes" + end);
  }
  reals const speeds{1, 1, 1};
  CHECK(refused_price(spill_price{plimsoll::token_cost{speeds}, 1, 1}) ==
        "least_loaded: cost: expected 4 ranks, got 3");
  for (double const wrong : {-1.0, 0x1p960, inf, -inf, std::nan("")}) {
    std::string const end =
        ": expected a number from 0 to below 2^960, got " + plimsoll::detail::text(wrong);
    CHECK(refused_price(spill_price{plimsoll::moe_cost{wrong, 1, 1}, 1, 1}) ==
          "least_loaded: price.cost.launch" + end);
    CHECK(refused_price(spill_price{plimsoll::moe_cost{1, wrong, 1}, 1, 1}) ==
          "least_loaded: price.cost.per_token" + end);
    CHECK(refused_price(spill_price{plimsoll::moe_cost{1, 1, wrong}, 1, 1}) ==
          "least_loaded: price.cost.per_expert" + end);
  }
  for (double const wrong : {0.0, -1.0, inf, -inf, std::nan("")}) {
    reals const some{1, 1, wrong, 1};
    CHECK(refused_price(spill_price{plimsoll::token_cost{some}, 1, 1}) ==
          "least_loaded: price.cost.speeds: expected values from 2^-64 to 2^64, got " +
              plimsoll::detail::text(wrong) + ", rank 2");
  }
}

TEST_CASE("least_loaded: an invalid cost leaves all tokens at home") {
  longs const loads{900, 10, 10, 10};
  least_loaded_options const options{
      .on = {.ranks = 4}, .experts = 4, .min_chunk = 1, .lambda = 0, .expert_bytes = 100};
  // The cost is wrong for ranks in [first, last] and at least `from` tokens.
  auto const outcome = [&](double wrong, double from, index_t first, index_t last) {
    auto const cost = [=](index_t r, double tokens) {
      return r >= first && r <= last && tokens >= from ? wrong : tokens;
    };
    plimsoll::least_loaded planner(plimsoll::seq, options, spill_price{cost, 100, 100});
    planner.plan(loads);
    plimsoll::validate(plimsoll::seq, planner.plan_ref(), loads, options);
    spill_report const report = *planner.report();
    CHECK(planner.rank_loads()[0] == 900);
    CHECK(report.transfers == 0);
    CHECK(report.spills == 0);
    CHECK(report.time == 0);
    CHECK(report.home_time == 0);
    return refusal_of([&] { planner.check(); });
  };
  std::string const expected =
      "least_loaded::plan: price.cost: expected numbers from 0 to below 2^960 that do not fall as "
      "tokens rise, got ";
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (double const wrong : {-1.0, inf, -inf, std::nan("")}) {
    std::string const got = expected + plimsoll::detail::text(wrong) + ", rank ";
    CHECK(outcome(wrong, 0, 0, 3) == got + "0");
    CHECK(outcome(wrong, 0, 2, 3) == got + "2");
    // Only rank 2 as a candidate shows the fault: at home it has 10 tokens.
    CHECK(outcome(wrong, 11, 2, 2) == got + "2");
    // The tokens that stay with the sender in the middle of a plan show the fault.
    CHECK(outcome(wrong, 500, 0, 0) == got + "0");
  }
  CHECK(outcome(0x1p960, 0, 1, 1) == expected + plimsoll::detail::text(0x1p960) + ", rank 1");
}

TEST_CASE("least_loaded: limits raise the capacity with a price, too") {
  // Rank 0 may make two transfers, and every rank may receive one expert: at the capacity of 1088
  // the rest would be kept. Three ranks share 8100 tokens; without a price 79 more are forced on a
  // fourth rank, which would not save time.
  spill_case c = spill_of({8000, 100, 100, 100, 100, 100, 100, 100}, 8);
  c.options.max_imports = 1;
  c.options.max_exports = 2;
  c.options.expert_bytes = 4096;
  spilled const free = plan_on_host(c);
  CHECK(free.report.raised_capacity == 2707);
  CHECK(free.report.result.value == 2707);
  c.price = pricing::tokens;
  c.within_node = c.between_nodes = 0x1p-200;
  spilled const got = plan_on_host(c);
  CHECK(got.report.raised_capacity == 2749);
  CHECK(got.loads == ints{2749, 2749, 2702, 100, 100, 100, 100, 100});
  CHECK(got.report.time == 2749);
  // If sending takes longer than it saves, all tokens stay at home.
  c.within_node = c.between_nodes = 0x1p40;
  spilled const dear = plan_on_host(c);
  CHECK(dear.report.raised_capacity == dear.report.capacity);
  CHECK(dear.report.transfers == 0);
}

TEST_CASE("least_loaded: invalid shapes") {
  plimsoll::least_loaded planner(plimsoll::seq,
                                 {.on = {.ranks = 2}, .experts = 3, .max_token_copies = 6});
  CHECK(planner.options().max_token_copies == 6);
  ints numbers(100, 0);
  longs loads(10, 0);
  std::vector<spill_counters> counters(2);
  plimsoll::vector_ref<spill_counters> const one(counters.data(), 1);
  auto const ids = [&](index_t tokens, index_t k) {
    return plimsoll::matrix_ref<std::int32_t const>(numbers.data(), tokens, k);
  };
  auto const pairs = [&](index_t tokens, index_t k) {
    return plimsoll::matrix_ref<std::int32_t>(numbers.data() + 20, tokens, k);
  };
  auto const row = [&](index_t n) {
    return plimsoll::vector_ref<std::int32_t>(numbers.data() + 40, n);
  };
  auto const counting = [&](index_t tokens, index_t k, index_t experts) {
    return refusal_of([&] { planner.count(ids(tokens, k), row(experts)); });
  };
  std::string const count = "least_loaded::count: ";
  CHECK(counting(3, 2, 3) == "no error");
  CHECK(counting(0, 2, 3) == "no error");
  CHECK(counting(4, 2, 3) ==
        count + "topk_ids: expected 0 to 3 tokens (options.max_token_copies), got 4");
  CHECK(counting(1, 0, 3) == count + "topk_ids: expected 1 to 2147483647 ids per token, got 0");
  CHECK(counting(3, 2, 2) == count + "counts: expected 3 experts, got 2");
  CHECK(refusal_of([&] {
          planner.plan(plimsoll::vector_ref<std::int64_t const>(loads.data(), 4));
        }) == "least_loaded::plan: loads: expected 3 experts, got 4");
  std::string const add_up = "least_loaded::add_up: counts: expected ";
  CHECK(refusal_of([&] { planner.add_up(ids(3, 3)); }) == add_up + "2 ranks, got 3");
  CHECK(refusal_of([&] { planner.add_up(ids(2, 2)); }) == add_up + "3 experts, got 2");
  std::vector<spill_segment> groups(3);
  auto const arranging = [&](index_t rank, index_t experts) {
    return refusal_of([&] {
      planner.arrange(rank, row(3), plimsoll::vector_ref<spill_segment>(groups.data(), experts));
    });
  };
  CHECK(arranging(1, 3) == "no error");
  CHECK(arranging(1, 2) == "least_loaded::arrange: groups: expected 3 experts, got 2");
  auto const routing = [&](index_t tokens, plimsoll::matrix_ref<std::int32_t> const& destinations,
                           plimsoll::matrix_ref<std::int32_t> const& rows, index_t n) {
    return refusal_of([&] {
      planner.route(1, ids(tokens, 2), destinations, rows,
                    plimsoll::vector_ref<spill_counters>(counters.data(), n));
    });
  };
  std::string const route = "least_loaded::route: ";
  for (index_t const rank : {-1, 2}) {
    std::string const end = "rank: expected 0 to 1 as rank, got " + std::to_string(rank);
    CHECK(arranging(rank, 3) == "least_loaded::arrange: " + end);
    CHECK(refusal_of([&] { planner.route(rank, ids(3, 2), pairs(3, 2), pairs(3, 2), one); }) ==
          route + end);
  }
  planner.count(ids(3, 2), row(3));
  planner.plan(plimsoll::vector_ref<std::int64_t const>(loads.data(), 3));
  planner.add_up(ids(2, 3));
  planner.exchange();
  CHECK(routing(3, pairs(3, 2), pairs(3, 2), 1) == "no error");
  CHECK(routing(4, pairs(4, 2), pairs(4, 2), 1) ==
        route + "topk_ids: expected 0 to 3 tokens (options.max_token_copies), got 4");
  CHECK(routing(3, pairs(2, 2), pairs(3, 2), 1) ==
        route + "destinations: expected 3 tokens, got 2");
  CHECK(routing(3, pairs(3, 1), pairs(3, 2), 1) ==
        route + "destinations: expected 2 ids per token, got 1");
  CHECK(routing(3, pairs(3, 2), pairs(4, 2), 1) == route + "rows: expected 3 tokens, got 4");
  CHECK(routing(3, pairs(3, 2), pairs(3, 3), 1) == route + "rows: expected 2 ids per token, got 3");
  CHECK(routing(3, pairs(3, 2), pairs(3, 2), 2) == route + "counters: expected 1 element, got 2");
}

TEST_CASE("least_loaded: arrange writes no more rows than its output has") {
  spill_case c = spill_of({0, 0}, 2);
  c.ids = {{0, 1, 1, 1, 0}, {1, 1, 0}};
  c.options.lambda = 9;
  spill_in<seq> const in(c);
  auto planner = in.make();
  traveled const all = in.travel(planner);
  CHECK(all.arranged[1] == ints{0, 1, 2, 3, 4, -1, -1, -1});
  std::vector<spill_segment> groups(2);
  for (index_t n = 0; n <= 8; ++n) {
    CAPTURE(n);
    ints rows(8, gap_value);
    planner.arrange(1, plimsoll::vector_ref<std::int32_t>(rows.data(), n), groups);
    ints expected = all.arranged[1];
    std::fill(expected.begin() + n, expected.end(), gap_value);
    CHECK(rows == expected);
  }
}

// ----- validate ----------------------------------------------------------------------------------

TEST_CASE("least_loaded: validate refuses every kind of broken plan") {
  // Expert 0 leaves rank 0 for ranks 3, 2 and 1.
  spill_case c = spill_of({80, 10, 5, 5, 4, 3, 2, 1}, 4);
  c.options.expert_bytes = 9;
  spilled const good = plan_on_host(c);
  CHECK(numbers_in(good.segments).size() == 4 * 11);
  CHECK(numbers_in(good.transfers) == longs{0, 0, 3, 9, 0, 0, 2, 9, 0, 0, 1, 9});
  std::vector<std::uint8_t> const active{1, 1, 1, 0};
  auto const refusal = [&](auto change) {
    spilled plan = good;
    least_loaded_options o = c.options;
    longs loads = c.loads;
    change(plan, loads, o);
    std::string const message =
        refusal_of([&] { plimsoll::validate(plimsoll::seq, plan.view(), loads, o); });
    std::string const begin = "validate: ";
    return message.substr(0, begin.size()) == begin ? message.substr(begin.size()) : message;
  };
  using options = least_loaded_options;
  auto const of_plan = [&](auto change) {
    return refusal([=](spilled& plan, longs&, options&) { change(plan); });
  };
  auto const of_options = [&](auto change) {
    return refusal([=](spilled&, longs&, options& o) { change(o); });
  };
  CHECK(of_plan([](spilled&) {}) == "no error");

  // Shapes and options.
  CHECK(refusal([](spilled&, longs& loads, options&) { loads.pop_back(); }) ==
        "loads: expected 8 experts, got 7");
  CHECK(of_plan([](spilled& p) { p.offsets.pop_back(); }) ==
        "plan.offsets: expected 9 offsets (experts + 1), got 8");
  CHECK(of_plan([](spilled& p) { p.transfer_offsets.push_back(3); }) ==
        "plan.transfer_offsets: expected 9 offsets (experts + 1), got 10");
  CHECK(of_options([](options& o) { o.experts = 0; }) ==
        "options.experts: expected 1 to 65535 experts, got 0");
  CHECK(of_options([](options& o) { o.on.ranks = 32768; }) ==
        "options.on.ranks: expected 1 to 32767 ranks, got 32768");
  ints const home_rank{0, 0, 1, 1, 2, 2, 3, 4};
  CHECK(of_options([&](options& o) { o.home_rank = home_rank; }) ==
        "options.home_rank: expected ranks from 0 to 3, got 4, expert 7");
  CHECK(of_options([&](options& o) {
          o.on.active = {active.data(), 3};
        }) == "options.on.active: expected 4 ranks, got 3");

  // Offsets.
  std::string const rise = ": expected offsets that rise from 0 to at most ";
  CHECK(of_plan([](spilled& p) { p.offsets[0] = 1; }) ==
        "plan.offsets" + rise + "11, got 1 for expert 0");
  CHECK(of_plan([](spilled& p) { p.offsets[3] = 4; }) ==
        "plan.offsets" + rise + "11, got 4 for expert 2");
  CHECK(of_plan([](spilled& p) { p.offsets[8] = 12; }) ==
        "plan.offsets" + rise + "11, got 12 for expert 7");
  CHECK(of_plan([](spilled& p) { p.transfer_offsets[0] = -1; }) ==
        "plan.transfer_offsets" + rise + "3, got -1 for expert 0");
  CHECK(of_plan([](spilled& p) { p.transfer_offsets[8] = 2; }) ==
        "plan.transfer_offsets" + rise + "3, got 2 for expert 7");

  // Segments.
  std::string const segments = "plan.segments: expected ";
  auto const with_segment = [&](std::size_t i, spill_segment const& segment) {
    return of_plan([=](spilled& p) { p.segments[i] = segment; });
  };
  REQUIRE(numbers_in({good.segments[1], good.segments[4]}) == longs{0, 3, 18, 43, 1, 0, 0, 10});
  CHECK(with_segment(1, {1, 3, 18, 43}) == segments + "expert 0, got expert 1 in segment 1");
  CHECK(with_segment(1, {0, 4, 18, 43}) == segments + "a live rank, got rank 4 in segment 1");
  CHECK(with_segment(1, {0, -1, 18, 43}) == segments + "a live rank, got rank -1 in segment 1");
  CHECK(with_segment(1, {0, 0, 18, 43}) ==
        segments + "at most 1 segment of an expert on a rank, got rank 0 again in segment 1");
  CHECK(with_segment(1, {0, 3, 17, 43}) ==
        segments + "tokens from 18 on, got [17, 43) in segment 1");
  CHECK(with_segment(1, {0, 3, 19, 43}) ==
        segments + "tokens from 18 on, got [19, 43) in segment 1");
  CHECK(with_segment(1, {0, 3, 18, 18}) ==
        segments + "tokens from 18 on, got [18, 18) in segment 1");
  CHECK(with_segment(4, {1, 0, 0, 9}) == segments + "all 10 tokens once, got 9 of expert 1");
  CHECK(refusal([](spilled&, longs& loads, options&) { loads[7] = 0; }) ==
        segments + "all 0 tokens once, got 1 of expert 7");
  CHECK(of_plan([](spilled& p) {
          for (std::size_t e = 1; e < 9; ++e) {
            p.offsets[e] = 3;
          }
        }) == segments + "all 80 tokens once, got 64 of expert 0");
  ints const alive{0, 0, 1, 1, 2, 2, 2, 2};
  CHECK(of_options([&](options& o) {
          o.on.active = active;
          o.home_rank = alive;
        }) == segments + "a live rank, got rank 3 in segment 1");

  // Transfers.
  std::string const transfers = "plan.transfers: expected ";
  auto const with_transfer = [&](spill_transfer const& transfer) {
    return of_plan([=](spilled& p) { p.transfers[1] = transfer; });
  };
  std::string const once = transfers + "each rank that needs the weights, once, got ";
  CHECK(with_transfer({1, 0, 2, 9}) == transfers + "expert 0, got expert 1 in transfer 1");
  CHECK(with_transfer({0, 1, 2, 9}) ==
        transfers + "a rank that holds the expert, got rank 1 in transfer 1");
  CHECK(with_transfer({0, 0, 3, 9}) == once + "rank 3 in transfer 1");
  CHECK(with_transfer({0, 0, 0, 9}) == once + "rank 0 in transfer 1");
  CHECK(with_transfer({0, 0, 2, 8}) == transfers + "9 bytes, got 8 in transfer 1");
  CHECK(of_plan([](spilled& p) {
          std::fill(p.transfer_offsets.begin() + 1, p.transfer_offsets.end(), 2);
        }) == once + "none of expert 0 to rank 1");

  // Limits.
  CHECK(of_options([](options& o) { o.max_exports = 2; }) ==
        transfers + "at most 2 transfers sent, got 3 for rank 0");
  CHECK(of_options([](options& o) { o.max_imports = 0; }) ==
        transfers + "at most 0 experts received, got 1 for rank 1");
  CHECK(of_options([](options& o) { o.max_import_bytes = 8; }) ==
        transfers + "at most 0 experts received, got 1 for rank 1");
  CHECK(of_options([](options& o) { o.max_import_bytes = 9; }) == "no error");
  // Other homes need other transfers.
  CHECK(of_options([&](options& o) { o.home_rank = alive; }) ==
        once + "none of expert 6 to rank 3");
}

// ----- teams and memory --------------------------------------------------------------------------

/// The bodies that the public calls enqueue for one rank, with access to their arrays.
class spill_steps {
  // These come first, since their return types are deduced.
  template <class Cost>
  auto body_with(plimsoll::detail::spill_pricing<Cost> const& price) {
    using loads = plimsoll::vector_ref<std::int64_t const>;
    least_loaded_options const& o = c_.options;
    plimsoll::detail::rank_levels levels{};
    levels.where = {.ranges = {{}, experts(), ranks()}, .nodes = o.on.nodes};
    plimsoll::detail::spill_homes const& homes = prepared_.homes;
    levels.speeds = homes.speed;
    levels.numbers = homes.ranks;
    plimsoll::detail::least_loaded_rules rules{};
    rules.plain = std::is_void_v<Cost> && !c_.is_limited() && o.on.nodes == 1;
    rules.listed = rules.plain;
    rules.alpha = c_.percent / 100.0;
    rules.lambda = o.lambda;
    rules.by_expert = o.trigger == spill_trigger::expert_imbalance;
    rules.round_up = o.round == rounding_mode::up;
    rules.keep_excess = o.small_excess == small_excess_policy::home;
    rules.limited = c_.is_limited();
    rules.min_chunk = static_cast<std::int32_t>(o.min_chunk);
    rules.max_imports = static_cast<std::int32_t>(c_.most_imports());
    rules.max_exports = static_cast<std::int32_t>(o.max_exports);
    rules.expert_bytes = o.expert_bytes;
    rules.token_bytes = o.token_bytes;
    return plimsoll::detail::least_loaded_body<loads, Cost>{c_.loads, homes, levels,
                                                            rules,    price, plan_};
  }
  /// Returns all outputs of a plan.
  [[nodiscard]] auto written() const {
    auto const copy = [](auto const* first, index_t n) { return std::vector(first, first + n); };
    return std::tuple(copy(plan_.offsets, experts() + 1),
                      numbers_in(copy(plan_.segments, plan_.outcome->report.segments)),
                      copy(plan_.transfer_offsets, experts() + 1), transfers(),
                      copy(plan_.loads, ranks()), copy(plan_.bytes_of_rank, ranks()),
                      numbers_in(plan_.outcome->report), reals_in(plan_.outcome->report));
  }
  template <class Use>
  void with_body(Use use) {
    if (c_.price == pricing::moe) {
      use(body_with(plimsoll::detail::spill_pricing<plimsoll::moe_cost>{c_.cost, c_.within_node,
                                                                        c_.between_nodes}));
    } else {
      use(body_with(plimsoll::detail::spill_pricing<void>{}));
    }
  }

 public:
  spill_steps(spill_case const& c, index_t source)
      : c_(c), source_(source), memory_(bytes(), std::byte{0x5A}) {
    plimsoll::detail::scratch memory(memory_.data());
    plan_ = plan_arrays::in(memory, sizes());
    routes_ = routes::in(memory, sizes());
    routes_.offsets = plan_.offsets;
    routes_.segments = plan_.segments;
    routes_.state = &plan_.outcome->exchange;
  }

  /// Checks that every team makes the expected plan.
  void check_plan(spilled const& expected) {
    with_body([this](auto const& body) {
      check_step(
          body, 1, view(plan_.offsets, experts() + 1), view(plan_.segments, limit()),
          view(plan_.transfer_offsets, experts() + 1), view(plan_.loads, ranks()),
          view(plan_.bytes_of_rank, ranks()), [this] { return transfers(); },
          [this] { return numbers_in(plan_.outcome->report); },
          [this] { return reals_in(plan_.outcome->report); });
    });
    CHECK(numbers_in(std::vector(plan_.segments, plan_.segments + expected.segments.size())) ==
          numbers_in(expected.segments));
    CHECK(transfers() == numbers_in(expected.transfers));
    CHECK(numbers_in(plan_.outcome->report) == numbers_in(expected.report));
    CHECK(reals_in(plan_.outcome->report) == reals_in(expected.report));
  }

  /// Returns the report of the serial plan. Checks that `threads` threads make the same plan: by a
  /// list of visits if the rules allow it and `listed` is true, else without one.
  spill_report check_forms(bool listed, int threads, std::uint64_t seed) {
    with_body([&](auto body) {
      auto const made_by = [&](int team) {
        std::fill(memory_.begin(), memory_.end(), std::byte{0x5A});
        run_body(body, 1, team, seed);
        return written();
      };
      auto const expected = made_by(serial);
      body.rules.listed = body.rules.listed && listed;
      CHECK(made_by(threads) == expected);
    });
    return plan_.outcome->report;
  }

  /// Checks that every team computes the expected outputs of the other calls.
  void check_travel(traveled const& expected) {
    using plimsoll::matrix_ref, plimsoll::vector_ref;
    ints const ids(c_.ids[at(source_)].begin(), c_.ids[at(source_)].end());
    index_t const pairs = std::ssize(ids);
    index_t const columns = experts() + 2;
    ints tiles(at((pairs + 511) / 512 * columns + 1), gap_value);
    ints totals(at(columns), gap_value);
    ints own(at(experts()), gap_value);
    ints destinations(at(pairs), gap_value);
    ints rows(at(pairs), gap_value);
    std::vector<spill_counters> counters(1);
    using tokens_body = plimsoll::detail::spill_tokens_body<std::int32_t>;
    tokens_body tokens{};
    tokens.ids = {ids.data(), pairs / c_.k, c_.k};
    tokens.routes = routes_;
    tokens.tiles = {pairs, columns, tiles.data(), totals.data()};
    tokens.counts = own;
    tokens.rank = source_;
    tokens.destinations = {destinations.data(), pairs / c_.k, c_.k};
    tokens.rows = {rows.data(), pairs / c_.k, c_.k};
    tokens.counters = counters.data();
    for (auto const now : {tokens_body::phase::count, tokens_body::phase::scan}) {
      tokens.now = now;
      check_step(tokens, tokens.problems(), tiles, totals, own);
    }
    CHECK(own == expected.counts[at(source_)]);

    ints counts;
    for (ints const& of_rank : expected.counts) {
      counts.insert(counts.end(), of_rank.begin(), of_rank.end());
    }
    plimsoll::detail::count_sources_body const add_up{
        matrix_ref<std::int32_t const>(counts.data(), ranks(), experts()), routes_};
    check_step(add_up, add_up.problems(), view(routes_.before, (ranks() + 1) * experts()),
               view(routes_.totals, experts()));

    index_t const segments = std::ssize(expected.plan.segments);
    check_step(plimsoll::detail::list_spills_body{routes_}, 1, view(routes_.by_rank, segments),
               view(routes_.rank_begin, ranks() + 1), [&] { return routes_.state->is_done; });
    CHECK(routes_.state->is_done == 1);
    check_step(plimsoll::detail::exchange_body{routes_}, ranks(),
               view(routes_.sends, ranks() * ranks()), view(routes_.receives, ranks() * ranks()),
               view(routes_.sent_row, ranks() * limit()), view(routes_.computed_row, segments),
               [&] { return reports(); });
    CHECK(reports() == numbers_of_all(expected.reports));

    tokens.now = tokens_body::phase::assign;
    check_step(tokens, tokens.problems(), destinations, rows,
               [&] { return numbers_in(counters[0]); });
    CHECK(destinations == expected.destinations[at(source_)]);
    CHECK(rows == expected.rows[at(source_)]);

    ints arranged(expected.arranged[at(source_)].size(), gap_value);
    std::vector<spill_segment> groups(at(experts()));
    check_step(
        plimsoll::detail::arrange_rows_body<std::int32_t>{routes_, source_, arranged, groups},
        ranks(), arranged, [&] { return numbers_in(groups); });
    CHECK(arranged == expected.arranged[at(source_)]);
    groups.resize(expected.groups[at(source_)].size());
    CHECK(numbers_in(groups) == numbers_in(expected.groups[at(source_)]));
  }

 private:
  using plan_arrays = plimsoll::detail::spill_plan_arrays;
  using routes = plimsoll::detail::spill_routes;

  /// Stops at the first difference, since later bodies read the outputs of earlier ones.
  template <class Body, class... Outputs>
  static void check_step(Body const& body, index_t problems, Outputs&&... outputs) {
    REQUIRE(compare_all_teams(body, problems, outputs...) == "");
  }
  template <class T>
  static std::span<T> view(T* first, index_t n) {
    return {first, at(n)};
  }
  static std::vector<longs> numbers_of_all(std::vector<spill_exchange_report> const& reports) {
    std::vector<longs> all;
    for (spill_exchange_report const& of : reports) {
      all.push_back(numbers_in(of));
    }
    return all;
  }
  [[nodiscard]] std::vector<longs> reports() const {
    return numbers_of_all({routes_.reports, routes_.reports + ranks()});
  }

  [[nodiscard]] index_t experts() const { return c_.experts(); }
  [[nodiscard]] index_t ranks() const { return c_.ranks(); }
  [[nodiscard]] index_t limit() const {
    return plan_arrays::segment_limit(experts(), ranks(), prepared_.homes.slots);
  }
  [[nodiscard]] plimsoll::detail::spill_array_sizes sizes() const {
    return {experts(), ranks(), limit()};
  }
  [[nodiscard]] std::size_t bytes() const {
    return plimsoll::detail::bytes_taken_by<plan_arrays>(sizes()) +
           plimsoll::detail::bytes_taken_by<routes>(sizes());
  }
  /// Returns the valid transfers.
  [[nodiscard]] longs transfers() const {
    return numbers_in(
        std::vector(plan_.transfers, plan_.transfers + plan_.transfer_offsets[experts()]));
  }

  spill_case const& c_;
  index_t source_;
  spill_in<plimsoll::seq_policy> placed_{c_};
  plimsoll::detail::prepared_homes<plimsoll::host_context<plimsoll::inline_executor>> prepared_{
      "test", {}, placed_.options()};
  std::vector<std::byte> memory_;
  plan_arrays plan_{};
  routes routes_{};
};

TEST_CASE("least_loaded: the same plan in every team") {
  auto const tried = [](spill_case const& c) {
    spilled const expected = plan_on_host(c);
    spill_steps(c, 0).check_plan(expected);
    return expected.report;
  };
  spill_case const plain = large_spill(7, 30, 6);
  CHECK(tried(plain).transfers > 2);
  // Large chunks force tokens on ranks whose own experts then leave; limits; a price.
  spill_case c = plain;
  c.percent = 90;
  c.options.min_chunk = 400;
  CHECK(tried(c).forced > 0);
  c.options.max_imports = 1;
  c.options.on.nodes = 3;
  spill_report const raised = tried(c);
  CHECK(raised.raised_capacity > raised.capacity);
  c.price = pricing::moe;
  c.options.expert_bytes = 4096;
  c.cost = {10, 2, 5};
  c.within_node = 64;
  c.between_nodes = 256;
  spill_report const priced = tried(c);
  CHECK(priced.transfers > 0);
  CHECK(priced.raised_capacity > priced.capacity);
  int spills = 0;
  for (std::uint64_t seed = 0; seed < cases_of(6); ++seed) {
    CAPTURE(seed);
    spills += tried(random_spill(seed)).spills;
    spills += tried(plain_spill(seed)).spills;
  }
  CHECK(spills > 0);
  // Refused loads, and no loads at all.
  c.loads[3] = -1;
  CHECK_THROWS(plan_on_host(c));
  spilled refused{};
  refused.report.refused = {.kind = plimsoll::fault_kind::load, .where = 3, .got = -1};
  spill_steps(c, 0).check_plan(refused);
  c.loads.assign(30, 0);
  CHECK(tried(c).segments == 0);
}

TEST_CASE("least_loaded: the list of visits of a team gives the plan of one thread") {
  std::int64_t forced = 0;
  std::int64_t kept = 0;
  auto const check = [&](spill_case const& c, std::uint64_t seed) {
    spill_report const report = spill_steps(c, 0).check_forms(true, seed % 8 == 0 ? 3 : 1, seed);
    forced += report.forced > 0 ? 1 : 0;
    kept += report.kept > 0 ? 1 : 0;
    return report;
  };
  std::uint64_t const cases = cases_of(2000);
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    check(plain_spill(seed + 5000), seed);
  }
  // With small chunks, capacities close to the loads and experts of all sizes, tokens are forced on
  // ranks whose own experts have not been visited yet.
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    CAPTURE(seed);
    draws draw(seed);
    index_t const ranks = draw.among(2, 12);
    index_t const experts = draw.among(4, 70);
    spill_case c = large_spill(seed, experts, ranks);
    c.options.min_chunk = draw.any({2, 20, 40, 100, 300, 2000});
    c.options.small_excess = draw.any({small_excess_policy::helper, small_excess_policy::home});
    c.options.round = draw.any({rounding_mode::up, rounding_mode::down});
    c.percent = draw.any({1, 80, 90, 95, 98, 100, 103});
    c.options.lambda = 0;
    check(c, seed);
  }
  CHECK(forced > static_cast<std::int64_t>(cases) / 4);
  CHECK(kept > static_cast<std::int64_t>(cases) / 8);
  // One thread per rank could take long: the plan is made without a list.
  for (std::uint64_t seed = 0; seed < cases_of(200); ++seed) {
    CAPTURE(seed);
    spill_steps(plain_spill(seed), 0).check_forms(false, 2, seed);
  }
  // With limits, nodes, speeds, several homes or prices there is never a list.
  for (std::uint64_t seed = 0; seed < cases_of(400); ++seed) {
    CAPTURE(seed);
    spill_steps(random_spill(seed), 0).check_forms(true, seed % 8 == 0 ? 3 : 1, seed);
  }
}

TEST_CASE("least_loaded: tokens go to the same places in every team") {
  // Source 2 has two tiles, source 1 no token.
  spill_case c = spill_of(longs(30, 0), 4);
  draws draw(2);
  draw_ids(c, draw, 200, 6, 20);
  c.ids[1] = {};
  c.ids[2].resize(at(c.k * (600 / c.k + 1)), 3);
  c.loads.assign(30, 0);
  for (longs const& ids : c.ids) {
    for (std::int64_t const id : ids) {
      id >= 0 && id < 30 ? ++c.loads[at(id)] : 0;
    }
  }
  traveled const expected = travel_with<seq>(c);
  CHECK(expected.plan.report.transfers > 0);
  for (index_t const source : {1, 2}) {
    CAPTURE(source);
    spill_steps steps(c, source);
    steps.check_plan(expected.plan);
    steps.check_travel(expected);
  }
}

TEST_CASE("least_loaded: no rank ends later than the certificate says") {
  // Speeds that are no multiples of the unit, over the whole range.
  for (double const slow : {0x1.0000001p-16, 0x1.66666p-16, 0x1.8p-16, 0.3}) {
    CAPTURE(slow);
    reals const speeds{1, slow};
    for (double const lambda : {0.0, 1e9}) {
      CAPTURE(lambda);
      plimsoll::least_loaded planner(
          plimsoll::seq,
          {.on = {.ranks = 2, .speeds = speeds}, .experts = 2, .min_chunk = 1, .lambda = lambda});
      planner.plan(longs{0, 1 << 30});
      auto const got = planner.report()->result;
      auto const loads = planner.rank_loads();
      double const peak = std::max(loads[0] / speeds[0], loads[1] / speeds[1]);
      CHECK(got.value >= peak);
      CHECK(got.value <= peak * (1 + 1e-6));
      CHECK(got.lower_bound <= got.value);
      if (lambda == 0) {
        // The slow rank takes long for a whole token.
        CHECK(peak <= (1 << 30) / (1 + slow) + 1 / slow);
      }
    }
  }
}

TEST_CASE("least_loaded: calls allocate nothing") {
  spill_case c = traveling(201);
  c.slots.clear();
  c.slot_offsets.clear();
  c.home_rank.clear();
  c.active.clear();
  c.paces.clear();
  fnv1a expected;
  add_to(expected, travel_with<seq>(c));
  auto const run = [&](auto& resource) {
    spill_in<seq> const in(c);
    auto planner = in.make(plimsoll::seq(resource));
    auto const before = resource.allocations();
    fnv1a got;
    add_to(got, in.travel(planner));
    CHECK(got.value() == expected.value());
    CHECK(resource.allocations() == before);
  };
  // The lists of homes, the scratch that makes them, the arrays of all calls, and their scratch.
  check_temporaries(4, run);
  // A host policy reads the arrays of the options without copies.
  c.active.assign(at(c.ranks()), 1);
  c.paces.assign(at(c.ranks()), 8);
  c.home_rank.assign(at(c.experts()), 0);
  add_to(expected = {}, travel_with<seq>(c));
  check_temporaries(4, run);
  c.home_rank.clear();
  for (std::int32_t e = 0; e < c.experts(); ++e) {
    c.slots.push_back(e);
  }
  c.slot_offsets.assign(at(c.ranks() + 1), static_cast<std::int32_t>(c.experts()));
  c.slot_offsets[0] = 0;
  add_to(expected = {}, travel_with<seq>(c));
  check_temporaries(4, run);
}

TEST_CASE("least_loaded: moved objects") {
  spill_case const c = traveling(202);
  spill_in<seq> const in(c);
  auto first = in.make();
  fnv1a expected;
  add_to(expected, in.travel(first));
  auto second = std::move(first);
  fnv1a got;
  add_to(got, in.travel(second));
  CHECK(got.value() == expected.value());
  first = in.make();
  first = std::move(second);
  add_to(got = {}, in.travel(first));
  CHECK(got.value() == expected.value());
}

}  // namespace plimsoll_test
