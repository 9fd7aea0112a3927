// SPDX-License-Identifier: Apache-2.0
// Tests of plan_within under the host's policies; every limit, all plans, every team, shapes,
// temporaries.
#include "migration_plan.cases.hpp"

#include <cmath>

#include "support/report_values.hpp"
#include "support/resources.hpp"
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

TEST_CASE("plan_within: a larger limit never gains less, and 0 keeps the placement in use") {
  int improved = 0;
  for_random_plans(120, {.layers = 3, .experts = 6, .ranks = 5, .extra = 6}, [&](plan_case c) {
    plan_case free = c;
    plan_result const best = plan_serially(free);
    check_plan(free, best);
    reals sums;
    reals before;
    for (std::int64_t limit = 0; limit <= best.moves(); ++limit) {
      CAPTURE(limit);
      c.options = {.split = c.options.split, .max_moves = limit};
      plan_result const got = plan_serially(c);
      check_plan(c, got);
      sums.push_back(got.sum_of_gains());
      CHECK(sums.back() >= sums[sums.size() < 2 ? 0 : sums.size() - 2]);
      c.options = {.split = c.options.split, .max_bytes = 7 * limit + 6, .expert_bytes = 7};
      CHECK((plan_serially(c) == got));
      c.options = {.split = c.options.split, .max_moves_per_layer = limit};
      plan_result const each = plan_serially(c);
      check_plan(c, each);
      reals gains;
      for (migration_report const& one : each.reports) {
        gains.push_back(one.expected_gain);
      }
      for (std::size_t layer = 0; layer < before.size(); ++layer) {
        CHECK(gains[layer] >= before[layer]);
      }
      before = gains;
      c.options = {
          .split = c.options.split, .max_bytes_per_layer = 7 * limit + 6, .expert_bytes = 7};
      CHECK((plan_serially(c) == each));
      if (limit == 0) {
        for (plan_result const& none : {got, each}) {
          CHECK(none.map == c.map);
          CHECK(none.moves() == 0);
          for (migration_report const& one : none.reports) {
            CHECK(one.imbalance.value == one.imbalance_before);
            CHECK(one.balancedness == one.balancedness_before);
            CHECK(one.changes == plimsoll::slot_changes{0, 0});
          }
        }
      }
    }
    // The limit of all moves is no limit, except that 0 moves leave no local copies either.
    CHECK((best.moves() == 0 || sums.back() == best.sum_of_gains()));
    improved += sums.back() > 1e-9 ? 1 : 0;
  });
  CHECK(improved > static_cast<int>(cases_of(120)) / 2);
}

TEST_CASE("plan_within: without a limit as good as the new placement") {
  int better = 0;
  for_random_plans(240, {.layers = 3, .experts = 20, .ranks = 7, .extra = 20}, [&](plan_case c) {
    plan_result const got = plan_serially(c);
    for (index_t layer = 0; layer < c.layers; ++layer) {
      layer_costs const facts(c, layer);
      double const of_new = facts.peak(c.to.data() + layer * c.slots, c.options.split);
      double const reached = got.reports[static_cast<std::size_t>(layer)].balancedness * of_new;
      double const mean = facts.mean_of_live_ranks();
      CHECK(reached >= mean * (1 - 1e-11));
      better += reached > mean * (1 + 1e-9) ? 1 : 0;
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
  reals const expected = peaks(got.map, got.counts);
  for (index_t layer = 0; layer < c.layers; ++layer) {
    double const mean = layer_costs(c, layer).mean_of_live_ranks();
    auto const i = static_cast<std::size_t>(layer);
    CHECK(got.reports[i].imbalance.value == expected[i] / mean);
  }
}

TEST_CASE("plan_within: against all plans with as few moves") {
  int improvable[2] = {};
  int best_found[2] = {};
  for_random_plans(300, {.layers = 1, .experts = 4, .ranks = 3, .extra = 2}, [&](plan_case c) {
    layer_costs const facts(c, 0);
    best_plans const best(facts);
    split_rule const split = c.options.split;
    double const before = facts.peak(facts.in_use().data(), split);
    double const mean = facts.mean_of_live_ranks();
    for (std::int64_t limit = 0; limit < std::ssize(best.even); ++limit) {
      CAPTURE(limit);
      c.options.max_moves = limit;
      plimsoll::certificate const found = plan_serially(c).reports[0].imbalance;
      double const peak = found.value * mean;
      double const optimum = limit == 0 ? before : best.within(limit, split);
      CHECK((mean == 0 || peak >= optimum * (1 - 1e-12)));
      CHECK(found.lower_bound * mean <= best.within(c.slots * c.experts, split) * (1 + 1e-12));
      if (optimum < before * (1 - 1e-9)) {
        ++improvable[split == split_rule::even ? 0 : 1];
        best_found[split == split_rule::even ? 0 : 1] += peak <= optimum * (1 + 1e-12);
      }
    }
  });
  MESSAGE("best plans found with the even split: " << best_found[0] << " of " << improvable[0]
                                                   << ", with the optimal split: " << best_found[1]
                                                   << " of " << improvable[1]);
  CHECK(improvable[0] > static_cast<int>(cases_of(300)) / 3);
  CHECK(improvable[1] > static_cast<int>(cases_of(300)) / 3);
  CHECK(best_found[0] >= 0.7 * improvable[0]);
  CHECK(best_found[1] >= 0.8 * improvable[1]);
}

/// Largest sum of gains with at most `moves` moves in layers `layer` on; gains[layer][n] is that of
/// a layer with n moves.
double best_division(std::vector<reals> const& gains, std::size_t layer, std::int64_t moves) {
  if (layer == gains.size()) {
    return 0;
  }
  double result = 0;
  for (std::int64_t n = 0; n <= std::min<std::int64_t>(moves, std::ssize(gains[layer]) - 1); ++n) {
    result = std::max(result, gains[layer][static_cast<std::size_t>(n)] +
                                  best_division(gains, layer + 1, moves - n));
  }
  return result;
}

TEST_CASE("plan_within: a limit is divided among the layers in the best way") {
  int contested = 0;
  for_random_plans(100, {.layers = 3, .experts = 8, .ranks = 4, .extra = 6}, [&](plan_case c) {
    std::vector<reals> gains;
    std::int64_t most = 0;
    for (index_t layer = 0; layer < c.layers; ++layer) {
      plan_case one = c.only(layer);
      std::int64_t const all = plan_serially(one).moves();
      gains.emplace_back(static_cast<std::size_t>(all + 1), 0.0);
      for (one.options.max_moves = 0; one.options.max_moves <= all + 1; ++one.options.max_moves) {
        plan_result const got = plan_serially(one);
        gains.back()[static_cast<std::size_t>(got.moves())] = got.sum_of_gains();
      }
      most += all;
    }
    for (std::int64_t limit = 1; limit <= most; ++limit) {
      CAPTURE(limit);
      c.options.max_moves = limit;
      plan_result const got = plan_serially(c);
      double const best = best_division(gains, 0, limit);
      CHECK(got.sum_of_gains() >= best);
      // A plan with 0 moves and local copies is not among those of one layer if one with 1 is
      // better.
      bool const copies = std::any_of(got.reports.begin(), got.reports.end(),
                                      [](auto const& one) { return one.changes.local_copies > 0; });
      CHECK((copies || got.sum_of_gains() == best));
      contested += c.layers > 1 && limit < most ? 1 : 0;
    }
  });
  CHECK(contested > static_cast<int>(cases_of(100)));
}

TEST_CASE("plan_within: several steps, by the definition") {
  int moved = 0;
  int kept = 0;
  int ties = 0;
  for (std::uint64_t seed = 0; seed < cases_of(150); ++seed) {
    CAPTURE(seed);
    std::optional<plan_case> c = random_plan(seed, {.layers = 3, .experts = 8, .ranks = 5});
    if (!c) {
      continue;
    }
    draws draw(seed + 99);
    index_t const steps = draw.among(1, 5);
    add_steps(*c, steps, seed, draw.one_in(4));
    c->options.judge_on =
        !draw.one_in(4) ? plimsoll::judged_steps::unseen : plimsoll::judged_steps::all;
    c->options.move_price = draw.any({0.0, 0.0, 0.001, 0.03});
    c->options.max_moves = draw.any<std::int64_t>({1, 2, 5, 9, plimsoll::unlimited});
    c->options.max_moves_per_layer = draw.any<std::int64_t>({1, 3, 6, plimsoll::unlimited});
    slow_plan_within const slow(*c);
    if (slow.is_tie()) {
      ++ties;
      continue;
    }
    plan_result const got = plan_serially(*c);
    double const price = c->options.move_price;
    double const net = got.sum_of_gains() - price * static_cast<double>(got.moves());
    CHECK(std::abs(net - slow.best_gain()) < 1e-9);
    for (index_t layer = 0; layer < c->layers; ++layer) {
      CAPTURE(layer);
      migration_report const& one = got.reports[static_cast<std::size_t>(layer)];
      CHECK(one.expected_gain >= 0);
      CHECK(slow.has(layer, one.changes.moves,
                     one.expected_gain - price * static_cast<double>(one.changes.moves)));
    }
    CHECK(got.moves() <= c->options.max_moves);
    moved += got.moves() > 0 ? 1 : 0;
    kept += got.moves() == 0 ? 1 : 0;
  }
  CHECK(moved > static_cast<int>(cases_of(150)) / 4);
  CHECK(kept > static_cast<int>(cases_of(150)) / 10);
  CHECK(ties < static_cast<int>(cases_of(150)) / 10 + 1);
}

TEST_CASE("plan_within: over steps, budgets are kept, and a larger one never gains less") {
  for_random_plans(300, {.layers = 4, .experts = 8, .ranks = 5, .extra = 6}, [&](plan_case c) {
    add_steps(c, 4, static_cast<std::uint64_t>(c.slots * 7 + c.experts), false);
    double before = 0;
    for (std::int64_t const limit : {0, 1, 2, 3, 5, 8, 13, 1000}) {
      CAPTURE(limit);
      c.options.max_moves = limit;
      plan_result const got = plan_serially(c);
      CHECK(got.moves() <= limit);
      CHECK(got.sum_of_gains() >= before);
      before = got.sum_of_gains();
      for (index_t layer = 0; layer < c.layers; ++layer) {
        CHECK(layer_costs(c, layer).allows(got.map.data() + layer * c.slots));
      }
      CHECK((limit > 0 || got.map == c.map));
    }
  });
}

TEST_CASE("plan_within: noise alone moves nothing") {
  index_t const layers = 40;
  index_t const experts = 32;
  index_t const ranks = 8;
  for (std::uint64_t seed = 0; seed < cases_of(6); ++seed) {
    CAPTURE(seed);
    plan_case c{{layers, experts, experts + ranks, {.ranks = ranks}, {}, {}}, {}};
    c.steps = 8;
    for (index_t i = 0; i < c.steps * layers * experts; ++i) {
      double const u = plimsoll::random::uniform(seed, 5, static_cast<std::uint64_t>(i));
      c.loads.push_back(50 + static_cast<std::int64_t>(100 * u));
    }
    plimsoll::tensor_ref<std::int64_t const> const history(c.loads.data(), c.steps, layers,
                                                           experts);
    longs const flat(static_cast<std::size_t>(layers * experts), 100);
    for (split_rule const split : both_splits) {
      auto const plan = [&](auto const& loads) {
        return plimsoll::place_by_flow(plimsoll::seq, loads, c.slots,
                                       {.on = {.ranks = ranks}, .split = split})
            .physical_to_logical.to_host();
      };
      c.map = plan(plimsoll::tensor_ref<std::int64_t const>(flat.data(), 1, layers, experts));
      c.to = plan(history);
      c.options = {.split = split};
      CHECK(plan_serially(c).moves() == 0);
      c.options.judge_on = plimsoll::judged_steps::all;
      CHECK(plan_serially(c).moves() > 0);
    }
  }
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
        target_(c.map.size(), -7),
        changes_(2 * c.map.size(), {-7, -7}),
        points_(c.map.size() + static_cast<std::size_t>(c.layers), {-7, -7, -7}),
        point_count_(static_cast<std::size_t>(c.layers), -7),
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
    check_all_teams(plimsoll::detail::migration_check_body{pair_, rule_, in(base_), in(target_),
                                                           reports_.data()},
                    c_.layers, base_, target_, reported);
    auto const checked = reports_;
    for (std::size_t layer = 0; layer < checked.size(); ++layer) {
      if (checked[layer].refused) {
        std::fill_n(base_.begin() + static_cast<std::ptrdiff_t>(layer) * c_.slots, c_.slots, -1);
        std::fill_n(target_.begin() + static_cast<std::ptrdiff_t>(layer) * c_.slots, c_.slots, -1);
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
    auto const made = reports_;
    check_all_teams(plimsoll::detail::plan_peak_body<view>{.loads = loads,
                                                           .where = pair_.where,
                                                           .rule = rule_,
                                                           .load_exponent = 0.85,
                                                           .tolerance = 0.1,
                                                           .map = in(base_),
                                                           .made = made.data(),
                                                           .reports = reports_.data()},
                    c_.layers, reported);
    return checked;
  }

 private:
  [[nodiscard]] rows in(ints& map) const { return {map.data(), c_.layers, c_.slots}; }

  /// The loads of a history, and maps and balance of all plans of the paths, of the placement in
  /// use and of the new one.
  void check_maps() {
    std::vector<plimsoll::detail::compared_plan> plans;
    for (std::int32_t layer = 0; layer < c_.layers; ++layer) {
      plans.push_back({layer, layer, 0});
      for (std::int32_t i = 0; i < point_count_[static_cast<std::size_t>(layer)]; ++i) {
        auto const at = static_cast<std::size_t>(layer * (c_.slots + 1) + i);
        plans.push_back({layer, -1, points_[at].changes});
      }
    }
    auto const n = static_cast<index_t>(plans.size());
    ints map(static_cast<std::size_t>(n * c_.slots), -7);
    ints counts(static_cast<std::size_t>(n * c_.experts), -7);
    check_all_teams(plimsoll::detail::migration_map_body{.plans = plans.data(),
                                                         .kept = in(target_),
                                                         .base = in(base_),
                                                         .complete = in(target_),
                                                         .changes = changes_.data(),
                                                         .map = {map.data(), n, c_.slots},
                                                         .counts = {counts.data(), n, c_.experts}},
                    n, map, counts);
    index_t const steps = 2;
    longs recorded(c_.loads);
    recorded.insert(recorded.end(), c_.loads.rbegin(), c_.loads.rend());
    reals loads(recorded.size(), -7.0);
    using tensor = plimsoll::tensor_ref<std::int64_t const>;
    check_all_teams(
        plimsoll::detail::read_history_body<tensor>{
            tensor(recorded.data(), steps, c_.layers, c_.experts), 0.85,
            plimsoll::tensor_ref<double>(loads.data(), steps, c_.layers, c_.experts)},
        steps * c_.layers, loads);
    plimsoll::detail::loads_of_plans const of_plans{
        plimsoll::tensor_ref<double const>(loads.data(), steps, c_.layers, c_.experts),
        plans.data()};
    auto const of_rows = plimsoll::generate(of_plans, steps, n, c_.experts);
    reals const speed(static_cast<std::size_t>(pair_.ranks()), 0.5);
    reals balance(static_cast<std::size_t>(2 * steps * n), -7.0);
    check_all_teams(
        plimsoll::detail::step_balance_body<std::remove_const_t<decltype(of_rows)>,
                                            plimsoll::detail::no_cost>{
            .loads = of_rows,
            .plans = {.physical_to_logical = {map.data(), n, c_.slots},
                      .replica_count = {counts.data(), n, c_.experts},
                      .ranges = {{}, c_.slots, pair_.ranks()},
                      .speed = speed.data(),
                      .total_speed = 3.5,
                      .peaks = nullptr},
            .cost = {},
            .results = reinterpret_cast<plimsoll::detail::step_balance*>(balance.data())},
        steps * n, balance);
  }

  plan_case const& c_;
  plan_inputs<plimsoll::seq_policy, std::int64_t> in_;
  plimsoll::detail::migration_pair pair_;
  plimsoll::detail::anti_affinity_rule rule_ = {};
  ints base_;
  ints target_;
  std::vector<plimsoll::detail::path_change> changes_;
  std::vector<plimsoll::detail::path_point> points_;
  ints point_count_;
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
    CHECK(reports[0].refused.side == plimsoll::fault_side::from);
    CHECK(!reports[1].refused);
    CHECK(reports[2].refused.kind == plimsoll::fault_kind::missing_expert);
    CHECK(reports[2].refused.side == plimsoll::fault_side::to);
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
  CHECK(limited({.move_price = -0.5}) ==
        "plan_within: options.move_price: expected 0 to 1, got -0.5");
  CHECK(limited({.move_price = std::numeric_limits<double>::quiet_NaN()}) ==
        "plan_within: options.move_price: expected 0 to 1, got NaN");
  CHECK(limited({.candidates = static_cast<plimsoll::migration_candidates>(3)}) ==
        "plan_within: options.candidates: expected 0 to 2 (an enumerator), got 3");
  CHECK(limited({.keep_bonus = -1}) ==
        "plan_within: options.keep_bonus: expected 0 to 2^60, got -1");
}

TEST_CASE("plan_within: one bonus, by the definition") {
  int moved = 0;
  int kept = 0;
  for (std::uint64_t seed = 0; seed < cases_of(480); ++seed) {
    CAPTURE(seed);
    std::optional<plan_case> c = random_plan(seed, {.layers = 1, .experts = 9, .ranks = 6});
    if (!c || !c->where.node_experts.empty() || !c->where.active.empty() ||
        c->where.replica_anti_affinity == anti_affinity::node) {
      continue;
    }
    draws draw(seed + 5);
    index_t const steps = draw.among(1, 5);
    add_steps(*c, steps, seed, true);
    c->where.load_exponent = draw.any({1.0, 0.8});
    c->options.candidates = plimsoll::migration_candidates::one_bonus;
    c->options.keep_bonus = draw.any({0.0, 0.2, 0.8, 2.0});
    c->options.judge_on = plimsoll::judged_steps::all;
    c->options.max_moves = draw.any<std::int64_t>({1, 3, plimsoll::unlimited});
    plan_inputs<plimsoll::seq_policy, std::int64_t> const in(*c, c->loads);
    plimsoll::rank_set on = in.where().on;
    on.ranks = c->where.ranks;
    auto const flow = plimsoll::place_by_flow(plimsoll::seq, in.steps(steps), c->slots,
                                              {.on = on,
                                               .rank_offsets = in.from().rank_offsets,
                                               .split = c->options.split,
                                               .in_use = in.from().physical_to_logical,
                                               .keep_bonus = c->options.keep_bonus,
                                               .load_exponent = c->where.load_exponent});
    auto const changes = plimsoll::count_changes(plimsoll::seq, in.from(), flow.ref());
    plan_result const got = plan_serially(*c);
    migration_report const& one = got.reports.front();
    bool const has_moved = got.map != c->map;
    CHECK((!has_moved || got.map == flow.physical_to_logical.to_host()));
    CHECK((!has_moved || one.balancedness > one.balancedness_before));
    CHECK(got.moves() <= c->options.max_moves);
    // Where it fits, it is not left out if it gains.
    bool const fits = changes[0].moves <= c->options.max_moves;
    c->options.candidates = plimsoll::migration_candidates::all;
    c->options.max_moves = 0;
    c->map = flow.physical_to_logical.to_host();
    double const balancedness = plan_serially(*c).reports.front().balancedness_before;
    CHECK((has_moved || !fits || balancedness <= one.balancedness_before));
    CHECK(one.imbalance.work == 2);
    moved += has_moved ? 1 : 0;
    kept += has_moved ? 0 : 1;
  }
  CHECK(moved > static_cast<int>(cases_of(480)) / 60);
  CHECK(kept > static_cast<int>(cases_of(480)) / 60);
}

TEST_CASE("plan_within: single changes are those of all plans, without the others") {
  int moved = 0;
  int alike = 0;
  int fewer = 0;
  for_random_plans(240, {.layers = 3, .experts = 9, .ranks = 5, .extra = 6}, [&](plan_case c) {
    draws draw(static_cast<std::uint64_t>(c.slots * 31 + c.experts));
    c.options.max_moves = draw.any<std::int64_t>({1, 2, 4, plimsoll::unlimited});
    plan_result const all = plan_serially(c);
    c.options.candidates = plimsoll::migration_candidates::single_changes;
    plan_result const got = plan_serially(c);
    check_plan(c, got);
    CHECK(got.moves() <= c.options.max_moves);
    CHECK(got.sum_of_gains() <= all.sum_of_gains());
    // The target is none of them.
    plan_case other = c;
    other.to = other.map;
    CHECK((plan_serially(other) == got));
    // Where `flow_placement` knows no plan, there are no others.
    bool const has_flows = c.where.node_experts.empty() &&
                           !(c.where.replica_anti_affinity == anti_affinity::node &&
                             c.where.anti_affinity_strength == plimsoll::strictness::required);
    other.options.candidates = plimsoll::migration_candidates::all;
    if (!has_flows) {
      CHECK(plan_serially(other).map == got.map);
      ++alike;
    }
    moved += got.moves() > 0 ? 1 : 0;
    fewer += got.sum_of_gains() < all.sum_of_gains() ? 1 : 0;
  });
  CHECK(moved > 0);
  CHECK(alike > 0);
  CHECK(fewer > 0);
}

TEST_CASE("layer_planner: the same bits as plan_within, call after call") {
  int moved = 0;
  for (std::uint64_t seed = 0; seed < cases_of(160); ++seed) {
    CAPTURE(seed);
    std::optional<plan_case> c = random_plan(seed, {.layers = 1, .experts = 9, .ranks = 4});
    if (!c) {
      continue;
    }
    draws draw(seed + 17);
    index_t const most = draw.among(1, 6);
    c->options.judge_on =
        draw.one_in(2) ? plimsoll::judged_steps::unseen : plimsoll::judged_steps::all;
    c->options.max_moves = draw.any<std::int64_t>({2, 5, plimsoll::unlimited});
    bool const knows_nodes =
        !c->where.node_experts.empty() || c->where.replica_anti_affinity == anti_affinity::node;
    c->options.candidates = draw.any({plimsoll::migration_candidates::all,
                                      plimsoll::migration_candidates::single_changes,
                                      knows_nodes ? plimsoll::migration_candidates::all
                                                  : plimsoll::migration_candidates::one_bonus});
    longs const mean = c->loads;
    plan_inputs<plimsoll::seq_policy, std::int64_t> const given(*c, c->loads);
    counting_resource counting;
    plimsoll::layer_planner planner(plimsoll::seq(counting), given.from(), most, given.where(),
                                    c->options);
    std::size_t const allocations = counting.allocations();
    for (std::uint64_t call = 0; call < 3; ++call) {
      CAPTURE(call);
      c->loads = mean;
      index_t const steps = most > 1 ? draw.among(2, static_cast<int>(most)) : 1;
      add_steps(*c, steps, seed + call, draw.one_in(2));
      plan_inputs<plimsoll::seq_policy, std::int64_t> const in(*c, c->loads);
      plan_result const expected = plan_serially(*c);
      std::vector<std::int64_t> map(static_cast<std::size_t>(c->slots), -7);
      ints counts(static_cast<std::size_t>(c->experts), -7);
      plimsoll::matrix_ref<std::int64_t const> const loads(c->loads.data(), steps, c->experts);
      migration_report const got = planner.plan(loads, in.from(), in.to(), map, counts);
      CHECK(ints(map.begin(), map.end()) == expected.map);
      CHECK(counts == expected.counts);
      CHECK(got.changes == expected.reports.front().changes);
      CHECK(got.expected_gain == expected.reports.front().expected_gain);
      CHECK(got.imbalance.value == expected.reports.front().imbalance.value);
      moved += got.changes.moves > 0 ? 1 : 0;
      if (most > 1) {
        CHECK(counting.allocations() == allocations);
      }
      // Without a new placement, which is no better than what `plan_within` may choose.
      migration_report const alone =
          planner.plan(plimsoll::generate([&](index_t step, index_t e) { return loads(step, e); },
                                          steps, c->experts),
                       in.from(), map, counts);
      CHECK(alone.imbalance.work <= got.imbalance.work);
    }
    // A moved object plans on with its memory.
    plimsoll::layer_planner other = std::move(planner);
    ints map(static_cast<std::size_t>(c->slots));
    ints counts(static_cast<std::size_t>(c->experts));
    CHECK_NOTHROW(
        other.plan(plimsoll::matrix_ref<std::int64_t const>(c->loads.data(), 1, c->experts),
                   given.from(), map, counts));
    CHECK(counting.live() == 1);
  }
  CHECK(moved > static_cast<int>(cases_of(160)) / 20);
}

TEST_CASE("price_of_move: what steps save pays for what a move loses") {
  // 24 MiB at 50 GB/s are half a millisecond; a layer takes 0.2 ms in each of 100 steps.
  plimsoll::move_cost const cost{
      .expert_bytes = 25165824, .seconds_per_byte = 2e-11, .layer_seconds = 2e-4, .steps = 100};
  CHECK(plimsoll::price_of_move(cost) == doctest::Approx(0.02517).epsilon(1e-3));
  auto const with = [&](auto change) {
    plimsoll::move_cost other = cost;
    change(other);
    return other;
  };
  CHECK(plimsoll::price_of_move(with([](auto& c) { c.steps = 1; })) == 1);
  auto const refused = [&](auto change) {
    return refusal_of([&] { static_cast<void>(plimsoll::price_of_move(with(change))); });
  };
  CHECK(refused([](auto& c) { c.expert_bytes = 0; }) ==
        "price_of_move: of.expert_bytes: expected a number above 0, got 0");
  CHECK(refused([](auto& c) { c.seconds_per_byte = -1; }) ==
        "price_of_move: of.seconds_per_byte: expected a number above 0, got -1");
  CHECK(refused([](auto& c) { c.layer_seconds = std::numeric_limits<double>::quiet_NaN(); }) ==
        "price_of_move: of.layer_seconds: expected a number above 0, got NaN");
  CHECK(refused([](auto& c) { c.steps = 0; }) ==
        "price_of_move: of.steps: expected a number above 0, got 0");
}

TEST_CASE("layer_planner: shapes are checked") {
  plan_case const c = moved_case(split_rule::even).only(0);
  plan_inputs<plimsoll::seq_policy, std::int64_t> const in(c, c.loads);
  plimsoll::layer_planner planner(plimsoll::seq, in.from(), 2);
  ints map(static_cast<std::size_t>(c.slots));
  ints counts(static_cast<std::size_t>(c.experts));
  longs const three(static_cast<std::size_t>(3 * c.experts), 1);
  auto const refused = [&](index_t steps, index_t experts, index_t slots,
                           placement_ref const& from) {
    map.resize(static_cast<std::size_t>(slots));
    return refusal_of([&] {
      planner.plan(plimsoll::matrix_ref<std::int64_t const>(three.data(), steps, experts), from,
                   map, counts);
    });
  };
  std::string const name = "layer_planner::plan: ";
  std::string const slots = std::to_string(c.slots);
  std::string const experts = std::to_string(c.experts);
  CHECK(refused(2, c.experts, c.slots, in.from()) == "no error");
  CHECK(refused(3, c.experts, c.slots, in.from()) ==
        name + "loads: expected 1 to 2 steps (of the object), got 3");
  CHECK(refused(1, c.experts - 1, c.slots, in.from()) == name + "loads: expected " + experts +
                                                             " experts, as in from, got " +
                                                             std::to_string(c.experts - 1));
  CHECK(refused(1, c.experts, c.slots + 1, in.from()) == name + "physical_to_logical: expected " +
                                                             slots + " slots, got " +
                                                             std::to_string(c.slots + 1));
  placement_ref other = in.from();
  other.physical_to_logical.extents[1] -= 1;
  CHECK(refused(1, c.experts, c.slots, other) == name + "from.physical_to_logical: expected " +
                                                     slots + " slots, as in the object, got " +
                                                     std::to_string(c.slots - 1));
  other = in.from();
  other.ranks += 1;
  CHECK(refused(1, c.experts, c.slots, other) ==
        name + "from.ranks: expected " + std::to_string(c.where.ranks) +
            " ranks, as in the object, got " + std::to_string(c.where.ranks + 1));
  // A map that lacks an expert is named as the argument that it is, although no `to` was given.
  ints lacking = c.map;
  std::replace(lacking.begin(), lacking.end(), 0, 1);
  other = in.from();
  other.physical_to_logical = {lacking.data(), 1, c.slots};
  std::string const lacks =
      "physical_to_logical: expected every expert on a live rank, got none in "
      "layer 0, expert 0";
  CHECK(refused(1, c.experts, c.slots, other) == name + "from." + lacks);
  CHECK(refusal_of([&] { plimsoll::layer_planner(plimsoll::seq, other, 2); }) ==
        "layer_planner: layer." + lacks);
  CHECK(refusal_of([&] { plimsoll::layer_planner(plimsoll::seq, in.from(), 0); }) ==
        "layer_planner: steps: expected 1 to 2147483647 steps, got 0");
  plan_case const two = moved_case(split_rule::even);
  plan_inputs<plimsoll::seq_policy, std::int64_t> const both(two, two.loads);
  CHECK(refusal_of([&] { plimsoll::layer_planner(plimsoll::seq, both.from(), 1); }) ==
        "layer_planner: layer.physical_to_logical: expected 1 layer, got " +
            std::to_string(two.layers));
}

TEST_CASE("plan_within: temporaries come from the policy and go back, also when it throws") {
  for (split_rule const split : both_splits) {
    plan_case c = moved_case(split);
    plan_inputs<plimsoll::seq_policy, std::int64_t> const in(c, c.loads);
    ints map(c.map.size());
    ints counts(c.loads.size());
    check_temporaries(split == split_rule::even ? 39 : 44, [&](auto& resource) {
      plimsoll::plan_within(plimsoll::seq(resource), in.loads(), in.from(), in.to(), in.where(),
                            c.options,
                            plimsoll::matrix_ref<std::int32_t>(map.data(), c.layers, c.slots),
                            plimsoll::matrix_ref<std::int32_t>(counts.data(), c.layers, c.experts));
    });
  }
}

}  // namespace plimsoll_test
