// SPDX-License-Identifier: Apache-2.0
// Tests of plan_within under the host's policies; every limit, all plans, every team, shapes,
// temporaries.
#include "migration_plan.cases.hpp"

#include "support/report_values.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

using namespace move_path_support;

namespace {

constexpr auto plan_serially = plan_of<plimsoll::seq_policy>;

/// Calls check(case) for random cases of both splits.
template <class F>
void for_random_plans(std::uint64_t seeds, refinement_support::shape_limits const& limits,
                      F check) {
  for (std::uint64_t seed = 0; seed < cases_of(seeds); ++seed) {
    CAPTURE(seed);
    std::optional<plan_case> c = random_plan(seed, limits);
    for (split_rule const split : both_splits) {
      if (c) {
        c->options.split = split;
        check(*c);
      }
    }
  }
}

}  // namespace

TEST_CASE(
    "plan_within: a larger limit never gives larger peaks, and 0 keeps the placement in use") {
  int improved = 0;
  for_random_plans(120, {.layers = 3, .experts = 6, .ranks = 5, .extra = 6}, [&](plan_case c) {
    plan_case free = c;
    plan_result const best = plan_serially(free);
    check_plan(free, best);
    ints in_use;
    for (index_t layer = 0; layer < c.layers; ++layer) {
      ints const row = layer_costs(c, layer).in_use();
      in_use.insert(in_use.end(), row.begin(), row.end());
    }
    reals sums;
    reals before;
    for (std::int64_t limit = 0; limit <= best.moves(); ++limit) {
      CAPTURE(limit);
      c.options = {.split = c.options.split, .max_moves = limit};
      plan_result const got = plan_serially(c);
      check_plan(c, got);
      sums.push_back(got.sum_of_peaks());
      CHECK(sums.back() <= sums[sums.size() < 2 ? 0 : sums.size() - 2] * (1 + 1e-12));
      c.options = {.split = c.options.split, .max_bytes = 7 * limit + 6, .expert_bytes = 7};
      CHECK((plan_serially(c) == got));
      c.options = {.split = c.options.split, .max_moves_per_layer = limit};
      plan_result const each = plan_serially(c);
      check_plan(c, each);
      reals peaks;
      for (migration_report const& one : each.reports) {
        peaks.push_back(one.peak.value);
      }
      for (std::size_t layer = 0; layer < before.size(); ++layer) {
        CHECK(peaks[layer] <= before[layer] * (1 + 1e-12));
      }
      before = peaks;
      c.options = {
          .split = c.options.split, .max_bytes_per_layer = 7 * limit + 6, .expert_bytes = 7};
      CHECK((plan_serially(c) == each));
      if (limit == 0) {
        for (plan_result const& none : {got, each}) {
          CHECK(none.map == in_use);
          CHECK(none.moves() == 0);
          for (migration_report const& one : none.reports) {
            CHECK(one.peak.value == one.peak_before);
            CHECK(one.changes == plimsoll::slot_changes{0, 0});
          }
        }
      }
    }
    // The limit of all moves is no limit, except that 0 moves leave no local copies either.
    CHECK(
        (best.moves() == 0 || sums.back() == doctest::Approx(best.sum_of_peaks()).epsilon(1e-12)));
    improved += sums.back() < sums.front() * (1 - 1e-9) ? 1 : 0;
  });
  CHECK(improved > static_cast<int>(cases_of(120)) / 2);
}

TEST_CASE("plan_within: without a limit as good as refine and as the new placement") {
  int better = 0;
  for_random_plans(240, {.layers = 3, .experts = 20, .ranks = 7, .extra = 20}, [&](plan_case c) {
    plan_result const got = plan_serially(c);
    scene base = c;
    for (index_t layer = 0; layer < c.layers; ++layer) {
      ints const row = layer_costs(c, layer).in_use();
      std::copy(row.begin(), row.end(), base.map.begin() + layer * c.slots);
    }
    refinement_support::refined<plimsoll::seq_policy> const refined(c.loads, base.map, c.layers,
                                                                    c.where);
    for (index_t layer = 0; layer < c.layers; ++layer) {
      layer_costs const facts(c, layer);
      double const peak = got.reports[static_cast<std::size_t>(layer)].peak.value;
      double const of_refined = facts.peak(refined.map.data() + layer * c.slots, c.options.split);
      double const of_new = facts.peak(c.to.data() + layer * c.slots, c.options.split);
      CHECK(peak <= of_refined * (1 + 1e-12));
      CHECK(peak <= of_new * (1 + 1e-12));
      better += peak < std::min(of_refined, of_new) * (1 - 1e-9) ? 1 : 0;
    }
  });
  CHECK(better > 0);
}

TEST_CASE("plan_within: optimal peaks are those of minmax_lp") {
  plan_case const c = moved_case(split_rule::optimal);
  plan_result const got = plan_serially(c);
  auto const peaks = [&](ints const& map, ints const& counts) {
    plimsoll::minmax_lp lp(plimsoll::seq,
                           placement_ref{{map.data(), c.layers, c.slots},
                                         {counts.data(), c.layers, c.experts},
                                         c.where.ranks,
                                         {}},
                           {.tolerance = 0});
    reals split(map.size());
    lp.solve(plimsoll::matrix_ref<std::int64_t const>(c.loads.data(), c.layers, c.experts),
             plimsoll::matrix_ref<double>(split.data(), c.layers, c.slots));
    reals result;
    for (plimsoll::certificate const& one : plimsoll::read(plimsoll::seq, lp.certificates())) {
      result.push_back(one.value);
    }
    return result;
  };
  reals reported;
  for (migration_report const& one : got.reports) {
    reported.push_back(one.peak.value);
  }
  CHECK(peaks(got.map, got.counts) == reported);
}

TEST_CASE("plan_within: against all plans with as few moves") {
  int improvable[2] = {};
  int best_found[2] = {};
  for_random_plans(300, {.layers = 1, .experts = 4, .ranks = 3, .extra = 2}, [&](plan_case c) {
    layer_costs const facts(c, 0);
    best_plans const best(facts);
    split_rule const split = c.options.split;
    double const before = facts.peak(facts.in_use().data(), split);
    for (std::int64_t limit = 0; limit < std::ssize(best.even); ++limit) {
      CAPTURE(limit);
      c.options.max_moves = limit;
      plimsoll::certificate const peak = plan_serially(c).reports[0].peak;
      double const optimum = limit == 0 ? before : best.within(limit, split);
      CHECK(peak.value >= optimum * (1 - 1e-12));
      CHECK(peak.lower_bound <= best.within(c.slots * c.experts, split) * (1 + 1e-12));
      if (optimum < before * (1 - 1e-9)) {
        ++improvable[split == split_rule::even ? 0 : 1];
        best_found[split == split_rule::even ? 0 : 1] += peak.value <= optimum * (1 + 1e-12);
      }
    }
  });
  MESSAGE("best plans found with the even split: " << best_found[0] << " of " << improvable[0]
                                                   << ", with the optimal split: " << best_found[1]
                                                   << " of " << improvable[1]);
  CHECK(improvable[0] > static_cast<int>(cases_of(300)) / 3);
  CHECK(improvable[1] > static_cast<int>(cases_of(300)) / 3);
  CHECK(best_found[0] >= 0.8 * improvable[0]);
  CHECK(best_found[1] >= 0.8 * improvable[1]);
}

/// Smallest sum of peaks with at most `moves` moves in layers `layer` on; peaks[layer][n] is that
/// of a layer with n moves.
double best_division(std::vector<reals> const& peaks, std::size_t layer, std::int64_t moves) {
  if (layer == peaks.size()) {
    return 0;
  }
  double result = std::numeric_limits<double>::infinity();
  for (std::int64_t n = 0; n <= std::min<std::int64_t>(moves, std::ssize(peaks[layer]) - 1); ++n) {
    result = std::min(result, peaks[layer][static_cast<std::size_t>(n)] +
                                  best_division(peaks, layer + 1, moves - n));
  }
  return result;
}

TEST_CASE("plan_within: a limit is divided among the layers in the best way") {
  int contested = 0;
  for_random_plans(100, {.layers = 3, .experts = 8, .ranks = 4, .extra = 6}, [&](plan_case c) {
    std::vector<reals> peaks;
    std::int64_t most = 0;
    for (index_t layer = 0; layer < c.layers; ++layer) {
      plan_case one = c.only(layer);
      std::int64_t const all = plan_serially(one).moves();
      peaks.emplace_back(static_cast<std::size_t>(all + 1),
                         std::numeric_limits<double>::infinity());
      for (one.options.max_moves = 0; one.options.max_moves <= all + 1; ++one.options.max_moves) {
        plan_result const got = plan_serially(one);
        peaks.back()[static_cast<std::size_t>(got.moves())] = got.sum_of_peaks();
      }
      most += all;
    }
    for (std::int64_t limit = 1; limit <= most; ++limit) {
      CAPTURE(limit);
      c.options.max_moves = limit;
      plan_result const got = plan_serially(c);
      double const best = best_division(peaks, 0, limit);
      CHECK(got.sum_of_peaks() <= best * (1 + 1e-12));
      // A plan with 0 moves and local copies is not among those of one layer if one with 1 is
      // better.
      bool const copies = std::any_of(got.reports.begin(), got.reports.end(),
                                      [](auto const& one) { return one.changes.local_copies > 0; });
      CHECK((copies || got.sum_of_peaks() >= best * (1 - 1e-12)));
      contested += c.layers > 1 && limit < most ? 1 : 0;
    }
  });
  CHECK(contested > static_cast<int>(cases_of(100)));
}

TEST_CASE("plan_within: every step of a path, by the definition") {
  std::size_t steps = 0;
  for_random_plans(200, {.layers = 2, .experts = 10, .ranks = 5, .extra = 10}, [&](plan_case c) {
    for (index_t layer = 0; layer < c.layers; ++layer) {
      for (bool const keeps_counts : {false, true}) {
        path_rule rule{.split = c.options.split,
                       .keeps_counts = keeps_counts,
                       .price = 0,
                       .target = 0,
                       .most_moves = plimsoll::unlimited};
        path const all = follow_path(c, layer, rule);
        steps += check_path(c, layer, rule, all);
        // A limit ends the same path earlier.
        for (rule.most_moves = 0; rule.most_moves < 4; ++rule.most_moves) {
          path const part = follow_path(c, layer, rule);
          check_path(c, layer, rule, part);
          REQUIRE(part.points.size() <= all.points.size());
          for (std::size_t i = 0; i < part.points.size(); ++i) {
            CHECK(part.points[i].moves == all.points[i].moves);
            CHECK(part.points[i].peak == all.points[i].peak);
          }
          for (std::size_t i = 0; i < part.changes.size(); ++i) {
            CHECK(part.changes[i].slot == all.changes[i].slot);
            CHECK(part.changes[i].expert == all.changes[i].expert);
          }
          bool const more = part.points.size() < all.points.size();
          CHECK((!more || all.points[part.points.size()].moves > rule.most_moves));
        }
      }
    }
  });
  CHECK(steps > 2 * cases_of(200));
}

namespace {

/// The bodies of plan_within for a case, one after another, and their arrays.
class plan_bodies {
 public:
  using view = plimsoll::matrix_ref<std::int64_t const>;
  using rows = plimsoll::matrix_ref<std::int32_t>;

  explicit plan_bodies(plan_case const& c)
      : c_(c),
        in_(c, c.loads),
        pair_(plimsoll::detail::expect_plan_within("plan_within", c.layers, c.experts, in_.from(),
                                                   in_.to(), in_.where(), c.options)),
        base_(c.map.size(), -7),
        changes_(2 * c.map.size(), {-7, -7}),
        points_(c.map.size() + static_cast<std::size_t>(c.layers), {-7, -7, -7}),
        point_count_(static_cast<std::size_t>(c.layers), -7),
        peaks_(static_cast<std::size_t>(c.layers), -7.0),
        reports_(static_cast<std::size_t>(c.layers)) {
    plimsoll::placement_options where = in_.where();
    where.on.ranks = c.where.ranks;
    where.rank_offsets = in_.from().rank_offsets;
    pair_.where = plimsoll::detail::topology_of(where, c.slots);
    rule_ = plimsoll::detail::rule_of(where);
  }

  /// Runs all bodies on all teams. Returns the reports of the first.
  std::vector<plimsoll::detail::problem_report> check() {
    auto const reported = [&] { return report_values(reports_); };
    check_all_teams(
        plimsoll::detail::migration_check_body{pair_, rule_, in(base_), reports_.data()}, c_.layers,
        base_, reported);
    auto const checked = reports_;
    for (std::size_t layer = 0; layer < checked.size(); ++layer) {
      if (checked[layer].refused) {
        std::fill_n(base_.begin() + static_cast<std::ptrdiff_t>(layer) * c_.slots, c_.slots, -1);
      }
    }
    view const loads(c_.loads.data(), c_.layers, c_.experts);
    auto const points = [&] {
      reals all;
      for (plimsoll::detail::path_point const& one : points_) {
        all.insert(all.end(),
                   {static_cast<double>(one.changes), static_cast<double>(one.moves), one.peak});
      }
      return all;
    };
    check_all_teams(plimsoll::detail::migration_path_body<view>{.loads = loads,
                                                                .where = pair_.where,
                                                                .rule = rule_,
                                                                .load_exponent = 0.85,
                                                                .split = c_.options.split,
                                                                .most_moves = plimsoll::unlimited,
                                                                .base = in(base_),
                                                                .changes = changes_.data(),
                                                                .points = points_.data(),
                                                                .point_count = point_count_.data(),
                                                                .reports = reports_.data()},
                    c_.layers, changes_, point_count_, points, reported);
    check_maps();
    check_all_teams(plimsoll::detail::plan_peak_body<view>{.loads = loads,
                                                           .where = pair_.where,
                                                           .rule = rule_,
                                                           .load_exponent = 0.85,
                                                           .tolerance = 0.1,
                                                           .map = in(base_),
                                                           .peaks = peaks_.data(),
                                                           .made = nullptr,
                                                           .reports = reports_.data()},
                    c_.layers, peaks_, reported);
    return checked;
  }

 private:
  [[nodiscard]] rows in(ints& map) const { return {map.data(), c_.layers, c_.slots}; }

  /// The maps of all plans of the paths, of the placement in use and of the new one.
  void check_maps() {
    std::vector<plimsoll::detail::compared_plan> plans;
    for (std::int32_t layer = 0; layer < c_.layers; ++layer) {
      plans.push_back({layer, 1, 0});
      plans.push_back({layer, 2, 0});
      for (std::int32_t i = 0; i < point_count_[static_cast<std::size_t>(layer)]; ++i) {
        auto const at = static_cast<std::size_t>(layer * (c_.slots + 1) + i);
        plans.push_back({layer, 0, points_[at].changes});
      }
    }
    auto const n = static_cast<index_t>(plans.size());
    ints to = c_.to;
    std::replace(to.begin(), to.end(), static_cast<std::int32_t>(c_.experts), -1);
    ints map(static_cast<std::size_t>(n * c_.slots), -7);
    ints counts(static_cast<std::size_t>(n * c_.experts), -7);
    check_all_teams(plimsoll::detail::migration_map_body{.plans = plans.data(),
                                                         .base = in(base_),
                                                         .refined = in(base_),
                                                         .fresh = in(to),
                                                         .changes = changes_.data(),
                                                         .map = {map.data(), n, c_.slots},
                                                         .counts = {counts.data(), n, c_.experts}},
                    n, map, counts);
  }

  plan_case const& c_;
  plan_inputs<plimsoll::seq_policy, std::int64_t> in_;
  plimsoll::detail::migration_pair pair_;
  plimsoll::detail::anti_affinity_rule rule_ = {};
  ints base_;
  std::vector<plimsoll::detail::path_change> changes_;
  std::vector<plimsoll::detail::path_point> points_;
  ints point_count_;
  reals peaks_;
  std::vector<plimsoll::detail::problem_report> reports_;
};

}  // namespace

TEST_CASE("plan_within: the same bits in every team") {
  for_random_plans(12, {.layers = 2, .experts = 20, .ranks = 7, .extra = 20},
                   [](plan_case const& c) {
                     for (auto const& one : plan_bodies(c).check()) {
                       CHECK(!one.refused);
                     }
                   });
  for (split_rule const split : both_splits) {
    plan_case c = moved_case(split);
    c.where.speeds = {1, 2, 1, 1, 0.5, 1, 1, 3, 1, 1};
    c.where.nodes = 3;
    plan_bodies(c).check();
    c.map[3] = static_cast<std::int32_t>(c.experts);
    c.to.back() = -1;
    std::replace(c.to.end() - c.slots, c.to.end(), 5, -1);
    auto const reports = plan_bodies(c).check();
    CHECK(reports[0].refused.kind == plimsoll::fault_kind::expert_id);
    CHECK(reports[0].result.value == 0);
    CHECK(!reports[1].refused);
    CHECK(reports[2].refused.kind == plimsoll::fault_kind::missing_expert);
    CHECK(reports[2].result.value == 1);
  }
}

TEST_CASE("plan_within: loads may be a function of the indices") {
  plan_case const c{{1, 2, 4, {.ranks = 2}, {10, 2}, {0, -1, 1, -1}}, {0, 1, 1, 0}};
  plan_inputs<plimsoll::seq_policy, std::int64_t> const in(c, c.loads);
  for (split_rule const split : both_splits) {
    auto const made = plimsoll::plan_within(
        plimsoll::seq, plimsoll::generate([](index_t, index_t e) { return 10 - 8 * e; }, 1, 2),
        in.from(), in.to(), {}, {.split = split, .max_moves = 1});
    CHECK(made.physical_to_logical.to_host() == ints{0, -1, 1, 0});
  }
}

TEST_CASE("plan_within: shapes and options are checked") {
  plan_case const c{{2, 3, 4, {.ranks = 2}, longs(6, 1), {0, 1, 2, -1, 0, 1, 2, -1}},
                    {0, 1, 2, -1, 0, 1, 2, -1}};
  plan_inputs<plimsoll::seq_policy, std::int64_t> const in(c, c.loads);
  ints const offsets{0, 2, 4, 0, 2, 4};
  ints const counts(8, 1);
  ints out(24);
  auto const run = [&](placement_ref const& from, placement_ref const& to,
                       plimsoll::placement_options const& where = {},
                       migration_options const& options = {}) {
    return refusal_of([&] {
      static_cast<void>(plimsoll::plan_within(plimsoll::seq, in.loads(), from, to, where, options));
    });
  };
  auto const limited = [&](migration_options const& options) {
    return run(in.from(), in.to(), {}, options);
  };
  CHECK(run(in.from(), in.to()) == "no error");
  CHECK(run(in.from(), in.to(), {.on = {.ranks = 2}}) == "no error");
  // Loads, outputs, placements.
  auto const written = [&](index_t load_layers, index_t load_experts, index_t layers, index_t slots,
                           index_t count_layers, index_t experts) {
    return refusal_of([&] {
      plimsoll::plan_within(
          plimsoll::seq,
          plimsoll::matrix_ref<std::int64_t const>(c.loads.data(), load_layers, load_experts),
          in.from(), in.to(), {}, {}, plimsoll::matrix_ref<std::int32_t>(out.data(), layers, slots),
          plimsoll::matrix_ref<std::int32_t>(out.data() + 12, count_layers, experts));
    });
  };
  CHECK(written(2, 3, 2, 4, 2, 3) == "no error");
  CHECK(written(1, 3, 2, 4, 2, 3) == "plan_within: loads: expected 2 layers, as in from, got 1");
  CHECK(written(2, 2, 2, 4, 2, 3) == "plan_within: loads: expected 3 experts, as in from, got 2");
  CHECK(written(2, 3, 1, 4, 2, 3) == "plan_within: physical_to_logical: expected 2 layers, got 1");
  CHECK(written(2, 3, 2, 5, 2, 3) == "plan_within: physical_to_logical: expected 4 slots, got 5");
  CHECK(written(2, 3, 2, 4, 1, 3) == "plan_within: replica_count: expected 2 layers, got 1");
  CHECK(written(2, 3, 2, 4, 2, 4) == "plan_within: replica_count: expected 3 experts, got 4");
  placement_ref other = in.to();
  other.physical_to_logical = {c.to.data(), 1, 4};
  other.replica_count = {counts.data(), 1, 3};
  CHECK(run(in.from(), other) ==
        "plan_within: to.physical_to_logical: expected 2 layers, as in from, got 1");
  other = in.to();
  other.physical_to_logical = {c.to.data(), 2, 3};
  CHECK(run(in.from(), other) ==
        "plan_within: to.physical_to_logical: expected 4 slots, as in from, got 3");
  other = in.to();
  other.replica_count = {counts.data(), 2, 2};
  CHECK(run(in.from(), other) ==
        "plan_within: to.replica_count: expected 3 experts, as in from, got 2");
  other = in.to();
  other.ranks = 3;
  CHECK(run(in.from(), other) == "plan_within: to.ranks: expected 2 ranks, as in from, got 3");
  // Offsets that spread slots evenly are no other offsets.
  other = in.to();
  other.rank_offsets = {offsets.data(), 2, 3};
  CHECK(run(in.from(), other) == "no error");
  CHECK(run(other, in.to()) == "no error");
  ints const uneven{0, 2, 4, 0, 1, 4};
  other.rank_offsets = {uneven.data(), 2, 3};
  CHECK(run(in.from(), other) ==
        "plan_within: to.rank_offsets: expected the slots of from, which end at 2, got 1 in layer "
        "1, rank 0");
  // Ranks and constraints.
  CHECK(run(in.from(), in.to(), {.rank_offsets = {offsets.data(), 2, 3}}) ==
        "plan_within: where.rank_offsets: expected none, since those of from apply, got offsets");
  CHECK(run(in.from(), in.to(), {.on = {.ranks = 3}}) ==
        "plan_within: where.on.ranks: expected 2 ranks, as in the placement, got 3");
  CHECK(run(in.from(), in.to(), {.on = {.nodes = 3}}) ==
        "plan_within: where.on.nodes: expected 1 to 2 nodes (at most one per rank), got 3");
  CHECK(run(in.from(), in.to(), {.load_exponent = 0}) ==
        "plan_within: where.load_exponent: expected above 0 and at most 1, got 0");
  // Limits.
  std::string const to_most = ": expected 0 to 9223372036854775807 ";
  CHECK(limited({.max_moves = -1}) == "plan_within: options.max_moves" + to_most + "moves, got -1");
  CHECK(limited({.max_moves_per_layer = -2}) ==
        "plan_within: options.max_moves_per_layer" + to_most + "moves, got -2");
  CHECK(limited({.max_bytes = -3}) == "plan_within: options.max_bytes" + to_most + "bytes, got -3");
  CHECK(limited({.max_bytes_per_layer = -4}) ==
        "plan_within: options.max_bytes_per_layer" + to_most + "bytes, got -4");
  CHECK(limited({.expert_bytes = 0}) ==
        "plan_within: options.expert_bytes: expected 1 to 9223372036854775807 bytes, got 0");
}

TEST_CASE("plan_within: temporaries come from the policy and go back, also when it throws") {
  for (split_rule const split : both_splits) {
    plan_case c = moved_case(split);
    plan_inputs<plimsoll::seq_policy, std::int64_t> const in(c, c.loads);
    ints map(c.map.size());
    ints counts(c.loads.size());
    check_temporaries(split == split_rule::even ? 48 : 60, [&](auto& resource) {
      plimsoll::plan_within(plimsoll::seq(resource), in.loads(), in.from(), in.to(), in.where(),
                            c.options,
                            plimsoll::matrix_ref<std::int32_t>(map.data(), c.layers, c.slots),
                            plimsoll::matrix_ref<std::int32_t>(counts.data(), c.layers, c.experts));
    });
  }
}

}  // namespace plimsoll_test
