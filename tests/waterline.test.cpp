// SPDX-License-Identifier: Apache-2.0
// Tests of waterline under the host's policies; every team, shapes, temporaries.
#include "waterline.cases.hpp"

#include "support/run_body.hpp"
#include "support/temporaries.hpp"

#include <array>
#include <barrier>
#include <cstddef>
#include <span>
#include <thread>

namespace plimsoll_test {

using host_line = line_in<plimsoll::seq_policy>;

outcome pour_on_host(line_case const& c) { return host_line(c).run(); }

TEST_CASE("waterline: many random steps") {
  fnv1a unused;
  tally visited;
  tally all;
  for (std::uint64_t seed = 1000; seed < 1000 + cases_of(2000); ++seed) {
    CAPTURE(seed);
    line_case const c =
        random_line(seed, seed % 5 == 0 ? fill_method::sampled : fill_method::surplus);
    check_outcome(c, pour_on_host(c), c.options.candidates == candidate_ranks::all ? all : visited,
                  unused);
  }
  // Every kind of event occurred.
  CHECK(visited.moved > 0);
  CHECK(visited.unplaced > 0);
  CHECK(visited.relieved > 0);
  CHECK(visited.raised > 0);
  CHECK(all.moved > 0);
  CHECK(all.raised > 0);
}

TEST_CASE("waterline: 256 ranks") {
  fnv1a unused;
  tally happened;
  for (candidate_ranks const candidates : {candidate_ranks::visited, candidate_ranks::all}) {
    line_case c = large_line(3, 256, 32, 8, 30, 4);
    c.options.candidates = candidates;
    check_outcome(c, pour_on_host(c), happened, unused);
    c.options.method = fill_method::sampled;
    check_outcome(c, pour_on_host(c), happened, unused);
  }
}

/// Draws loads of all ranks, [2, ranks], some of them high.
inline longs drawn_loads(draws& draw, index_t ranks, std::int64_t routed, std::int64_t rows) {
  longs loads(at(2 * ranks));
  for (index_t r = 0; r < ranks; ++r) {
    loads[at(r)] = draw.one_in(3) ? draw.among(0, 3 * routed) : draw.among(0, routed);
    loads[at(ranks + r)] = draw.among(0, rows);
  }
  return loads;
}

/// Returns a case with one slot on every rank and the numbers of tokens given by `loads`.
inline line_case plain_line(longs const& loads, index_t nodes, index_t k) {
  line_case c;
  index_t const n = std::ssize(loads) / 2;
  c.options = {.on = {.ranks = n, .nodes = nodes}, .slots = n, .top_k = k, .min_tokens = 0};
  for (index_t r = 0; r < n; ++r) {
    c.ids.emplace_back(at(loads[at(n + r)] * k));
    c.options.max_tokens = std::max(c.options.max_tokens, loads[at(n + r)]);
  }
  return c;
}

/// All rows visit the same single rank: together they take no more than its slack, and each source
/// takes slack in proportion to its surplus. If that rank has no slack, its load does not exceed
/// the peak, even though none of its own rows leaves.
TEST_CASE("waterline: each unit of slack is assigned once, in proportion to surplus") {
  index_t contested = 0;
  std::int64_t relieved = 0;
  for (std::uint64_t seed = 0; seed < cases_of(200); ++seed) {
    CAPTURE(seed);
    draws draw(seed);
    index_t const n = draw.among(2, 9);
    longs const loads = drawn_loads(draw, n, draw.any({50, 300}), 200);
    line_case c = plain_line(loads, draw.any<index_t>({1, 1, 2, n}), 1);
    c.options.candidates = seed % 2 == 0 ? candidate_ranks::all : candidate_ranks::visited;
    std::int64_t peak = 0;
    for (index_t r = 0; r < n; ++r) {
      peak = std::max(peak, loads[at(r)] + loads[at(n + r)]);
    }
    for (index_t to = 0; to < n; ++to) {
      for (longs& ids : c.ids) {
        ids.assign(ids.size(), to);
      }
      host_line const in(c);
      auto line = in.make();
      std::int64_t taken = 0;
      std::int64_t sources = 0;
      std::int64_t slack = 0;
      for (index_t source = 0; source < n; ++source) {
        poured const got = in.pour(line, loads, source);
        std::int64_t const here =
            source == to ? 0 : std::count(got.ranks.begin(), got.ranks.end(), to);
        std::int64_t const mine = got.report.moved + got.report.unplaced;
        slack = got.slack[at(to)];
        taken += here;
        sources += slack > 0 && mine > 0;
        if (slack > 0 && mine > 0 && c.options.candidates == candidate_ranks::all &&
            c.options.on.nodes == 1) {
          auto const all = static_cast<double>(got.report.surplus);
          double const share =
              std::min(static_cast<double>(slack), all) * static_cast<double>(mine) / all;
          CHECK(std::fabs(static_cast<double>(here) - share) <= 3);
        }
      }
      CHECK(taken <= (slack > 0 ? slack : peak - loads[at(to)] - loads[at(n + to)]));
      contested += sources > 1;
      relieved += slack > 0 ? 0 : taken;
    }
  }
  CHECK(contested > 20);
  CHECK(relieved > 20);
}

TEST_CASE("waterline: ranks without slack help, but not above the peak") {
  // The level is 100, so all rows of rank 0 must leave; they visit rank 1 alone. That rank has a
  // load of 105 and would move rows of its own instead, but they visit no other rank.
  longs const loads{100, 60, 50, 50, 10, 45, 0, 0};
  line_case c = plain_line(loads, 1, 1);
  c.ids[0].assign(10, 1);
  c.ids[1].assign(45, 1);
  host_line const in(c);
  auto line = in.make();
  poured const first = in.pour(line, loads, 0);
  CHECK(first.report.level == 100);
  CHECK(first.report.home_peak == 110);
  CHECK(first.report.moved == 5);
  CHECK(first.report.surplus == 20);  // 10 and 5 above the level, and 5 of relief
  CHECK(in.pour(line, loads, 1).report.unplaced == 10);
}

TEST_CASE("waterline: surplus stays in its node as far as it can") {
  index_t inside = 0;
  index_t outside = 0;
  for (std::uint64_t seed = 0; seed < cases_of(200); ++seed) {
    CAPTURE(seed);
    draws draw(seed);
    longs loads = drawn_loads(draw, 8, 500, 900);
    for (index_t r = 0; r < 4 && seed % 2 == 0; ++r) {
      loads[at(r)] += 1000;  // a node with little slack
    }
    line_case c = plain_line(loads, 2, 3);
    c.options.candidates = candidate_ranks::all;
    for (longs& ids : c.ids) {
      for (std::int64_t& id : ids) {
        id = draw.among(0, 7);
      }
    }
    host_line const in(c);
    auto line = in.make();
    for (index_t node = 0; node < 2; ++node) {
      std::int64_t left = 0;
      std::int64_t surplus = 0;
      std::int64_t slack = 0;
      for (index_t source = 4 * node; source < 4 * node + 4; ++source) {
        poured const got = in.pour(line, loads, source);
        surplus += got.report.moved;
        slack += got.slack[at(source)];
        left += std::count_if(got.ranks.begin(), got.ranks.end(),
                              [=](std::int32_t r) { return r / 4 != node; });
      }
      CHECK(left == std::max(surplus - slack, std::int64_t{0}));
      inside += left == 0 && surplus > 0;
      outside += left > 0;
    }
  }
  CHECK(inside > 10);
  CHECK(outside > 10);
}

TEST_CASE("waterline: the largest number of tokens") {
  constexpr std::int64_t most = 0x7fffffff;
  for (ints const& paces : {ints{}, ints{8, 7, 5, 3}, ints{1, 8, 1, 1}}) {
    CAPTURE(paces);
    line_case c = four_ranks({0, 1, 2, 3, 0, 1, 2, 3});
    c.paces = paces;
    c.options.candidates = candidate_ranks::all;
    host_line const in(c);
    auto line = in.make();
    for (longs const& loads : {longs{0, 0, 0, 0, most, 0, 0, 0}, longs{0, 0, 0, most, 0, 0, 0, 0},
                               longs{9, 1, 0, most / 2, most / 2 - 10, 1, 0, 0}}) {
      CAPTURE(loads);
      poured const got = in.pour(line, loads, 0);
      std::int64_t const time = lowest_time(c, most, longs(loads.begin(), loads.begin() + 4));
      longs slack;
      for (index_t r = 0; r < 4; ++r) {
        slack.push_back(
            std::max(room_below(c, time, r) - loads[at(r)] - loads[at(4 + r)], std::int64_t{0}));
      }
      CHECK(got.slack == slack);
      CHECK(got.ranks.size() == 8);
    }
  }
}

TEST_CASE("waterline: rows of small batches stay at home, and other ranks plan for it") {
  // Loads with rows at home are 140, 139 and 0; rank 1 has one row too few to move any.
  line_case c = plain_line({100, 100, 0, 40, 39, 0}, 1, 1);
  c.options.candidates = candidate_ranks::all;
  c.options.min_tokens = 40;
  host_line const in(c);
  auto line = in.make();
  longs const loads{100, 100, 0, 40, 39, 0};
  poured const large = in.pour(line, loads, 0);
  CHECK(large.report.level == 139);
  CHECK(large.report.moved == 1);
  CHECK(large.slack == longs{0, 0, 139});
  poured const small = in.pour(line, loads, 1);
  CHECK(small.ranks == ints(39, 1));
  CHECK(numbers_in(small.report) == longs{1, 39, 0, 0, 0, 0, 0, 0, 0, -1, -1});
  // With a lower minimum its rows may leave, and the level falls.
  c.options.min_tokens = 39;
  host_line const free(c);
  auto other = free.make();
  CHECK(free.pour(other, loads, 0).report.level == 100);
  CHECK(free.pour(other, loads, 0).report.moved == 40);
  CHECK(free.pour(other, loads, 1).report.moved == 39);
}

/// If only the source's counts are known, all ranks are assumed to have the same.
TEST_CASE("waterline: plans from the source's counts alone") {
  for (std::uint64_t seed = 0; seed < cases_of(100); ++seed) {
    CAPTURE(seed);
    line_case c = random_line(seed, seed % 3 == 0 ? fill_method::sampled : fill_method::surplus);
    c.options.arithmetic = plimsoll::fill_arithmetic::exact;
    c.options.counts = plimsoll::counted_ranks::own;
    host_line const in(c);
    auto line = in.make();
    line_case others = c;
    others.options.counts = plimsoll::counted_ranks::all;
    host_line const knowing(others);
    auto knowing_line = knowing.make();
    std::int64_t live = 0;
    for (index_t r = 0; r < c.ranks(); ++r) {
      live += c.lives(r);
    }
    for (index_t source = 0; source < c.ranks(); ++source) {
      longs const own = in.count(line, source);
      longs loads = own;
      for (index_t r = 0; r < c.ranks(); ++r) {
        loads[at(r)] *= live;
        loads[at(c.ranks() + r)] = c.lives(r) ? own[at(c.ranks() + source)] : 0;
      }
      CHECK(difference(in.pour(line, own, source), knowing.pour(knowing_line, loads, source)) ==
            "");
    }
  }
}

/// Returns a case in which tokens choose eight of 256 experts, whose popularity is log-normal.
inline line_case popular_line(std::uint64_t seed, index_t ranks, double sigma) {
  constexpr index_t experts = 256;
  constexpr index_t tokens = 512;
  constexpr double places = 8192;
  draws draw(seed);
  reals popularity;
  for (index_t e = 0; e < experts; ++e) {
    double normal = -6;
    for (int i = 0; i < 12; ++i) {
      normal += draw.unit();
    }
    popularity.push_back(std::exp(sigma * normal));
  }
  double const all = std::accumulate(popularity.begin(), popularity.end(), 0.0);
  longs experts_at;
  for (index_t e = 0; e < experts; ++e) {
    experts_at.insert(experts_at.end(),
                      1 + at(static_cast<index_t>(places * popularity[at(e)] / all)), e);
  }
  line_case c;
  c.options = {.on = {.ranks = ranks}, .slots = experts, .top_k = 8, .max_tokens = tokens};
  c.ids.resize(at(ranks));
  longs token_of(at(experts), -1);  // last token that chose each expert
  for (index_t token = 0; token < ranks * tokens; ++token) {
    for (int chosen = 0; chosen < 8;) {
      std::int64_t const e = experts_at[draw.bits() % experts_at.size()];
      if (token_of[at(e)] != token) {
        token_of[at(e)] = token;
        c.ids[at(token / tokens)].push_back(e);
        ++chosen;
      }
    }
  }
  return c;
}

TEST_CASE("waterline: the surplus method moves fewer rows than sampling, for no higher peak") {
  for (index_t const ranks : {8, 16}) {
    for (double const sigma : {0.5, 1.0}) {
      CAPTURE(ranks);
      CAPTURE(sigma);
      std::array<double, 2> peak{};
      std::array<std::int64_t, 2> moved{};
      for (std::uint64_t seed = 0; seed < cases_of(cases_of(100)); ++seed) {
        line_case c = popular_line(seed, ranks, sigma);
        for (std::size_t sampled = 0; sampled < 2; ++sampled) {
          c.options.method = sampled != 0 ? fill_method::sampled : fill_method::surplus;
          outcome const got = pour_on_host(c);
          longs const loads = totals(c, got).final;
          peak[sampled] += static_cast<double>(*std::max_element(loads.begin(), loads.end())) /
                           std::accumulate(loads.begin(), loads.end(), 0.0);
          for (poured const& one : got.of) {
            moved[sampled] += one.report.moved;
          }
        }
      }
      CHECK(peak[0] <= peak[1] * (1 + 1e-12));  // sums of rounded shares
      CHECK(2 * moved[0] <= moved[1]);
    }
  }
}

// ----- sampled rows ------------------------------------------------------------------------------

/// Returns the distance of a source's draws from the expectation by slack and preferences, in
/// squared standard deviations, summed over ranks. `drawn`: draws of each rank in `steps` steps.
inline double distance(line_case const& c, index_t source, longs const& slack, longs const& drawn,
                       std::int64_t steps, double local, double node) {
  index_t const n = c.ranks();
  auto const node_of = [&](index_t r) { return ((r + 1) * c.options.on.nodes - 1) / n; };
  reals mean(at(n), 0);
  reals variance(at(n), 0);
  for (index_t t = 0; t < c.tokens(source); ++t) {
    std::vector<bool> is_candidate(at(n), c.options.candidates == candidate_ranks::all);
    is_candidate[at(source)] = true;
    for (index_t j = 0; j < c.options.top_k; ++j) {
      is_candidate[at(c.ids[at(source)][at(t * c.options.top_k + j)])] = true;
    }
    reals weights(at(n), 0);
    for (index_t r = 0; r < n; ++r) {
      double const preference = r == source ? local : node_of(r) == node_of(source) ? node : 1;
      weights[at(r)] = is_candidate[at(r)] ? preference * static_cast<double>(slack[at(r)]) : 0;
    }
    double const sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (std::size_t r = 0; r < weights.size(); ++r) {
      double const share = weights[r] / sum;
      mean[r] += share * static_cast<double>(steps);
      variance[r] += share * (1 - share) * static_cast<double>(steps);
    }
  }
  double result = 0;
  for (std::size_t r = 0; r < mean.size(); ++r) {
    double const off = static_cast<double>(drawn[r]) - mean[r];
    result += variance[r] > 0 ? off * off / variance[r] : off * off;
  }
  return result;
}

inline void check_draws(index_t ranks, index_t nodes, candidate_ranks candidates, double local,
                        double node) {
  CAPTURE(ranks);
  constexpr std::int64_t tokens = 2000;
  constexpr std::int64_t steps = 100;
  draws draw(static_cast<std::uint64_t>(ranks));
  index_t const source = ranks / 2;
  longs loads = drawn_loads(draw, ranks, 3000, 900);
  loads[at(source)] = 1000;  // home has slack
  line_case c = plain_line(loads, nodes, 4);
  c.options.max_tokens = tokens;
  c.options.method = fill_method::sampled;
  c.options.candidates = candidates;
  c.options.local_preference = local;
  c.options.node_preference = node;
  c.ids[at(source)].resize(4 * tokens);
  for (std::int64_t& id : c.ids[at(source)]) {
    id = draw.among(0, ranks - 1);
  }
  longs drawn(at(ranks), 0);
  longs slack;
  for (std::int64_t step = 0; step < steps; ++step) {
    c.stream = static_cast<std::uint64_t>(step);
    host_line const in(c);
    poured const got = in.pour(loads, source);
    slack = got.slack;
    for (std::int32_t const r : got.ranks) {
      ++drawn[at(r)];
    }
  }
  auto const off = [&](double home, double near) {
    return distance(c, source, slack, drawn, steps, home, near);
  };
  // One degree of freedom per rank, plus four standard deviations.
  auto const n = static_cast<double>(ranks);
  double const bound = n + 4 * std::sqrt(2 * n);
  CHECK(off(local, node) < bound);
  CHECK((local == 1 || off(1, node) > 2 * bound));
  CHECK((node == 1 || off(local, 1) > 2 * bound));
}

TEST_CASE("waterline: rows are drawn in proportion to slack") {
  check_draws(8, 1, candidate_ranks::visited, 1.1, 1);
  check_draws(8, 2, candidate_ranks::all, 1.1, 1.4);
  check_draws(40, 5, candidate_ranks::visited, 1.5, 1.25);
  check_draws(100, 10, candidate_ranks::visited, 1, 2);
  check_draws(100, 10, candidate_ranks::all, 4, 1.5);
}

TEST_CASE("waterline: draws differ between steps, seeds and sources") {
  line_case c = plain_line({0, 0, 0, 0, 64, 64, 64, 64}, 1, 1);
  c.options.method = fill_method::sampled;
  c.options.candidates = candidate_ranks::all;
  c.options.local_preference = 1;  // all sources draw with the same weights
  auto const ranks = [](line_case const& of, index_t source) {
    return pour_on_host(of).of[at(source)].ranks;
  };
  ints const first = ranks(c, 1);
  CHECK(ranks(c, 1) == first);
  CHECK(ranks(c, 2) != first);
  line_case other = c;
  other.stream = 1;
  CHECK(ranks(other, 1) != first);
  other = c;
  other.options.seed = 1;
  CHECK(ranks(other, 1) != first);
}

TEST_CASE("waterline: literal rows may go to any rank if no rank is above the level") {
  // Ranks 0 and 1 have loads of 4 and 2, own rows included; two more tokens make the level 4.
  line_case c;
  c.options = {
      .on = {.ranks = 2}, .slots = 2, .top_k = 2, .max_tokens = 2, .method = fill_method::sampled};
  c.options.min_tokens = 0;
  c.options.arithmetic = plimsoll::fill_arithmetic::sglang;
  c.ids = {{0, 0, 1, 1}, {}};
  CHECK(pour_on_host(c).of[0].ranks == ints{1, 1});
  // With one more row on rank 0, tokens that visit rank 0 alone stay.
  c.options.max_tokens = 3;
  c.ids[0].insert(c.ids[0].end(), {0, -1});
  CHECK(pour_on_host(c).of[0].ranks == ints{0, 1, 0});
}

TEST_CASE("waterline: without slack, rows go to a rank that is clearly lighter") {
  // Tokens of rank 0 visit ranks 1 and 2; ranks 3 and 4 have no load, so the others are above the
  // level.
  auto const goes_to = [](longs const& routed, double preference, ints const& paces = {}) {
    line_case c = plain_line({0, 0, 0, 0, 0, 1, 0, 0, 0, 0}, 1, 2);
    c.ids[0] = {1, 2};
    c.paces = paces;
    c.options.method = fill_method::sampled;
    c.options.local_preference = preference;
    host_line const in(c);
    longs loads = routed;
    loads.insert(loads.end(), {0, 0, 0, 0, 0});
    return in.pour(loads, 0).ranks[0];
  };
  CHECK(goes_to({100, 200, 200, 0, 0}, 1.1) == 0);
  CHECK(goes_to({110, 100, 110, 0, 0}, 1.1) == 0);  // not less
  CHECK(goes_to({111, 100, 111, 0, 0}, 1.1) == 1);
  CHECK(goes_to({111, 111, 100, 0, 0}, 1.1) == 2);
  CHECK(goes_to({200, 100, 100, 0, 0}, 1.1) == 1);  // the lower of the two
  CHECK(goes_to({200, 100, 95, 0, 0}, 1.1) == 1);   // 95 is not clearly less than 100
  CHECK(goes_to({200, 100, 90, 0, 0}, 1.1) == 2);
  CHECK(goes_to({200, 100, 90, 0, 0}, 2) == 2);
  CHECK(goes_to({180, 100, 95, 0, 0}, 2) == 0);
  CHECK(goes_to({80, 100, 95, 0, 0}, 1) == 0);
  // Times are compared, not loads.
  CHECK(goes_to({100, 160, 100, 0, 0}, 1.1, {4, 8, 4, 4, 4}) == 1);
  // A visited rank without load is not a candidate if it is dead.
  line_case dead = four_ranks({1});
  dead.active = {1, 0, 1, 1};
  dead.options.method = fill_method::sampled;
  host_line const in(dead);
  CHECK(in.pour({90, 0, 0, 0, 1, 0, 0, 0}, 0).ranks[0] == 0);
}

// ----- optional outputs, refused inputs ----------------------------------------------------------

TEST_CASE("waterline: fill writes only the outputs that are given") {
  line_case c = four_ranks({0, 0, 0, 0, 1, 1, 2, 3});
  poured const expected = pour_on_host(c).of[0];
  host_line const in(c);
  auto line = in.make();
  longs const loads{4, 2, 1, 1, 8, 0, 0, 0};
  plimsoll::matrix_ref<std::int64_t const> const counts(loads.data(), 2, 4);
  ints const ids(c.ids[0].begin(), c.ids[0].end());
  plimsoll::matrix_ref<std::int32_t const> const topk_ids(ids.data(), 8, 1);
  plimsoll::matrix_ref<std::int32_t> const no_ids;
  ints ranks(8, gap_value);
  line.plan(counts, 0);
  line.fill(topk_ids, 0, {}, no_ids, {.ranks = ranks});
  CHECK(ranks == expected.ranks);
  CHECK(numbers_in(*line.report()) == numbers_in(expected.report));
  line.plan(counts, 0);
  line.fill(topk_ids, 0, {}, no_ids, {});
  CHECK(numbers_in(*line.report()) == numbers_in(expected.report));
  ints filled(16, gap_value);
  line.plan(counts, 0);
  line.fill(topk_ids, 0, {}, plimsoll::matrix_ref<std::int32_t>(filled.data(), 8, 2), {});
  CHECK(longs(filled.begin(), filled.end()) == expected.ids);
  // No tokens.
  line.plan(counts, 1);
  line.fill(plimsoll::matrix_ref<std::int32_t const>(nullptr, 0, 1), 1, {}, no_ids, {});
  CHECK(numbers_in(*line.report()) == longs{8, 0, 0, 0, 0, 0, 0, 0, 0, -1, -1});
  // Fewer tokens than were counted: the given ones are placed.
  line.plan(counts, 0);
  line.fill(plimsoll::matrix_ref<std::int32_t const>(ids.data() + 4, 4, 1), 0, {}, no_ids, {});
  CHECK(numbers_in(*line.report()) == longs{8, 4, 4, 4, 0, 0, 0, 0, 0, -1, -1});
  CHECK(line.options().slots == 4);
}

TEST_CASE("waterline: refuses invalid options") {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  auto const refused = [](auto change) {
    waterline_options o{.on = {.ranks = 4}, .slots = 8, .top_k = 2, .max_tokens = 16};
    change(o);
    std::string const message = refusal_of([&] { plimsoll::waterline line(plimsoll::seq, o); });
    std::string const begin = "waterline: options.";
    return message.substr(0, begin.size()) == begin ? message.substr(begin.size()) : message;
  };
  using options = waterline_options;
  CHECK(refused([](options& o) { o.on.ranks = 0; }) ==
        "on.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(refused([](options& o) { o.on.ranks = 32768; }) ==
        "on.ranks: expected 1 to 32767 ranks, got 32768");
  CHECK(refused([](options& o) { o.slots = 0; }) == "slots: expected 1 to 2147483643 slots, got 0");
  CHECK(refused([](options& o) { o.slots = 2147483644; }) ==
        "slots: expected 1 to 2147483643 slots, got 2147483644");
  CHECK(refused([](options& o) { o.slots = 3; }) ==
        "slots: expected at least 1 slot for every live rank, got 0, rank 0");
  CHECK(refused([](options& o) { o.on.nodes = 0; }) ==
        "on.nodes: expected 1 to 4 nodes (at most one per rank), got 0");
  CHECK(refused([](options& o) { o.on.nodes = 5; }) ==
        "on.nodes: expected 1 to 4 nodes (at most one per rank), got 5");
  CHECK(refused([](options& o) { o.top_k = 0; }) ==
        "top_k: expected 1 to 512 ids per token, got 0");
  CHECK(refused([](options& o) { o.top_k = 513; }) ==
        "top_k: expected 1 to 512 ids per token, got 513");
  CHECK(refused([](options& o) { o.max_tokens = -1; }) ==
        "max_tokens: expected 0 to 1073741823 tokens (below 2^31 ids), got -1");
  CHECK(refused([](options& o) { o.max_tokens = 1 << 30; }) ==
        "max_tokens: expected 0 to 1073741823 tokens (below 2^31 ids), got 1073741824");
  CHECK(refused([](options& o) { o.min_tokens = -1; }) ==
        "min_tokens: expected 0 to 2147483647 tokens, got -1");
  CHECK(refused([](options& o) { o.min_tokens = index_t{1} << 31; }) ==
        "min_tokens: expected 0 to 2147483647 tokens, got 2147483648");
  for (double const wrong : {0.0, 0.99, -1.0, 16.5, nan}) {
    std::string const message =
        "preference: expected a number from 1 to 16, got " + plimsoll::detail::text(wrong);
    CHECK(refused([=](options& o) { o.local_preference = wrong; }) == "local_" + message);
    CHECK(refused([=](options& o) { o.node_preference = wrong; }) == "node_" + message);
  }
  CHECK(refused([](options& o) { o.weight = std::numeric_limits<float>::infinity(); }) ==
        "weight: expected a finite number, got inf");
  CHECK(refused([](options& o) { o.weight = std::nanf(""); }) ==
        "weight: expected a finite number, got NaN");
  CHECK(refused([](options& o) { o.arithmetic = plimsoll::fill_arithmetic::sglang; }) ==
        "arithmetic: expected exact unless fill_method::sampled is set, got sglang");

  // Arrays.
  auto const with_offsets = [&](ints const& offsets) {
    return refused([&](options& o) { o.rank_offsets = {offsets.data(), std::ssize(offsets)}; });
  };
  std::string const rising =
      "rank_offsets: expected offsets that rise from 0 to at most the number of slots, got ";
  CHECK(with_offsets({0, 2, 4, 6, 8}) == "no error");
  CHECK(with_offsets({0, 2, 4, 6}) == "rank_offsets: expected 5 offsets (ranks + 1), got 4");
  CHECK(with_offsets({1, 2, 4, 6, 8}) == rising + "2, after 1, rank 0");
  CHECK(with_offsets({0, 2, 1, 6, 8}) == rising + "1, after 2, rank 1");
  CHECK(with_offsets({0, 2, 4, 6, 9}) == rising + "9, after 6, rank 3");
  CHECK(with_offsets({0, 2, 4, 4, 8}) ==
        "rank_offsets: expected at least 1 slot for every live rank, got 0, rank 2");
  std::vector<std::uint8_t> active{1, 1, 0, 1};
  reals speeds{1, 1, 2, 1};
  ints const offsets{0, 2, 4, 4, 8};
  auto const with_arrays = [&](fill_method rule, bool literal, bool are_active, bool are_fast) {
    return refused([&](options& o) {
      o.method = rule;
      o.arithmetic = literal ? plimsoll::fill_arithmetic::sglang : plimsoll::fill_arithmetic::exact;
      o.rank_offsets = offsets;
      if (are_active) {
        o.on.active = active;
      }
      if (are_fast) {
        o.on.speeds = speeds;
      }
    });
  };
  CHECK(with_arrays(fill_method::surplus, false, true, true) == "no error");
  CHECK(with_arrays(fill_method::sampled, true, true, false) ==
        "arithmetic: expected exact unless all ranks are live and equally fast, got sglang with 3 "
        "of 4 "
        "ranks live");
  CHECK(with_arrays(fill_method::sampled, true, false, true) ==
        "arithmetic: expected exact unless all ranks are live and equally fast, got sglang with 4 "
        "of 4 "
        "ranks live");
  speeds[1] = nan;
  CHECK(with_arrays(fill_method::surplus, false, true, true) ==
        "on.speeds: expected values from 2^-64 to 2^64, got NaN, rank 1");
  auto const given = speeds;
  speeds = {1 << 20, 1 << 10, 16, 16};
  CHECK(with_arrays(fill_method::surplus, false, true, true) == "no error");
  speeds[3] = 8;
  CHECK(with_arrays(fill_method::surplus, false, true, true) ==
        "on.speeds: expected speeds of live ranks from 2^-16 of the fastest to the fastest, got 8 "
        "for rank 3, where rank 0 is the fastest");
  speeds = given;
  speeds.push_back(1);
  CHECK(with_arrays(fill_method::surplus, false, true, true) ==
        "on.speeds: expected 4 ranks, got 5");
  active.assign(4, 0);
  CHECK(with_arrays(fill_method::surplus, false, true, false) ==
        "on.active: expected at least 1 live rank, got 0");
  active.pop_back();
  CHECK(with_arrays(fill_method::surplus, false, true, false) ==
        "on.active: expected 4 ranks, got 3");
}

TEST_CASE("waterline: refuses invalid shapes") {
  plimsoll::waterline line(plimsoll::seq,
                           {.on = {.ranks = 3}, .slots = 3, .top_k = 2, .max_tokens = 5});
  ints numbers(100, 0);
  floats values(100, 0);
  longs loads(100, 0);
  auto const counting = [&](index_t tokens, index_t k, index_t source, index_t rows,
                            index_t ranks) {
    return refusal_of([&] {
      line.count(plimsoll::matrix_ref<std::int32_t const>(numbers.data(), tokens, k), source,
                 plimsoll::matrix_ref<std::int64_t>(loads.data(), rows, ranks));
    });
  };
  CHECK(counting(5, 2, 2, 2, 3) == "no error");
  CHECK(counting(6, 2, 0, 2, 3) ==
        "waterline::count: topk_ids: expected 0 to 5 tokens (options.max_tokens), got 6");
  CHECK(counting(5, 1, 0, 2, 3) == "waterline::count: topk_ids: expected 2 ids per token, got 1");
  CHECK(counting(5, 2, 3, 2, 3) == "waterline::count: source: expected 0 to 2 as rank, got 3");
  CHECK(counting(5, 2, -1, 2, 3) == "waterline::count: source: expected 0 to 2 as rank, got -1");
  CHECK(counting(5, 2, 0, 1, 3) ==
        "waterline::count: loads: expected 2 rows (routed load, tokens at home), got 1");
  CHECK(counting(5, 2, 0, 2, 4) == "waterline::count: loads: expected 3 ranks, got 4");
  auto const planning = [&](index_t source, index_t rows, index_t ranks) {
    return refusal_of([&] {
      line.plan(plimsoll::matrix_ref<std::int64_t const>(loads.data(), rows, ranks), source);
    });
  };
  CHECK(planning(2, 2, 3) == "no error");
  CHECK(planning(3, 2, 3) == "waterline::plan: source: expected 0 to 2 as rank, got 3");
  CHECK(planning(0, 3, 3) ==
        "waterline::plan: loads: expected 2 rows (routed load, tokens at home), got 3");
  CHECK(planning(0, 2, 2) == "waterline::plan: loads: expected 3 ranks, got 2");

  struct shapes {
    index_t tokens = 5;
    index_t k = 2;
    index_t weights[2] = {5, 2};
    index_t ids[2] = {5, 3};
    index_t out_weights[2] = {5, 3};
    index_t ranks = 5;
    bool weighed = true;
    index_t source = 2;
  };
  auto const weights_of = [&](index_t const(&shape)[2]) {
    return plimsoll::matrix_ref<float const>(values.data(), shape[0], shape[1]);
  };
  auto const filling = [&](auto change) {
    shapes x;
    change(x);
    return refusal_of([&] {
      line.fill(
          plimsoll::matrix_ref<std::int32_t const>(numbers.data(), x.tokens, x.k), x.source,
          {.weights = x.weighed ? weights_of(x.weights) : plimsoll::matrix_ref<float const>{}},
          plimsoll::matrix_ref<std::int32_t>(numbers.data() + 20, x.ids[0], x.ids[1]),
          {.weights = {values.data() + 20, x.out_weights[0], x.out_weights[1]},
           .ranks = {numbers.data() + 50, x.ranks}});
    });
  };
  std::string const fill = "waterline::fill: ";
  CHECK(filling([](shapes&) {}) == "no error");
  CHECK(filling([](shapes& x) { x.tokens = 6; }) ==
        fill + "topk_ids: expected 0 to 5 tokens (options.max_tokens), got 6");
  CHECK(filling([](shapes& x) { x.k = 3; }) == fill + "topk_ids: expected 2 ids per token, got 3");
  CHECK(filling([](shapes& x) { x.weights[0] = 4; }) ==
        fill + "batch.weights: expected 5 tokens, got 4");
  CHECK(filling([](shapes& x) { x.weights[1] = 3; }) ==
        fill + "batch.weights: expected 2 columns, got 3");
  CHECK(filling([](shapes& x) { x.ids[0] = 4; }) == fill + "ids: expected 5 tokens, got 4");
  CHECK(filling([](shapes& x) { x.ids[1] = 2; }) == fill + "ids: expected 3 columns, got 2");
  CHECK(filling([](shapes& x) { x.out_weights[0] = 4; }) ==
        fill + "rows.weights: expected 5 tokens, got 4");
  CHECK(filling([](shapes& x) { x.out_weights[1] = 2; }) ==
        fill + "rows.weights: expected 3 columns, got 2");
  CHECK(filling([](shapes& x) { x.ranks = 4; }) == fill + "rows.ranks: expected 5 tokens, got 4");
  CHECK(filling([](shapes& x) { x.weighed = false; }) ==
        fill + "batch.weights: expected weights, as rows.weights is set, got none");
  CHECK(filling([](shapes& x) { x.source = 3; }) ==
        fill + "source: expected 0 to 2 as rank, got 3");
  CHECK(filling([](shapes& x) { x.source = -1; }) ==
        fill + "source: expected 0 to 2 as rank, got -1");
}

// ----- teams and memory --------------------------------------------------------------------------

/// All steps of one source's batch, as the public calls enqueue them, with access to their arrays.
class line_steps {
 public:
  line_steps(line_case const& c, longs loads, index_t source)
      : c_(c), loads_(std::move(loads)), source_(source) {
    for (index_t r = 0; r < ranks_; ++r) {
      shared_.push_back(static_cast<std::int32_t>(c.begin(r + 1) + r));
      speed_.push_back(static_cast<double>(c.pace(r)) / (c.paces.empty() ? 1 : 4));
    }
    for (index_t i = 0; i < tokens_ * c.options.top_k; ++i) {
      weights_.push_back(weight_of(i));
    }
  }

  /// Checks every step in every team, and the outputs.
  void check(poured const& expected) {
    using namespace plimsoll::detail;
    waterline_options const& o = c_.options;
    rank_levels ranks{};
    ranks.where = {.ranges = {{}, o.slots, ranks_}, .nodes = o.on.nodes};
    rank_numbers const numbers{
        c_.paces.empty() ? 1 : 0x1p43, c_.paces.empty() ? 1.0 : 2.0,
        std::count_if(speed_.begin(), speed_.end(), [](auto x) { return x > 0; }),
        c_.paces.empty()};
    ranks.speeds = speed_.data();
    ranks.numbers = &numbers;
    waterline_rules rules{};
    rules.sampled = o.method == fill_method::sampled;
    rules.literal = o.arithmetic == plimsoll::fill_arithmetic::sglang;
    rules.local_counts_only = o.counts == plimsoll::counted_ranks::own;
    rules.any_rank = o.candidates == candidate_ranks::all;
    rules.min_tokens = o.min_tokens;
    rules.top_k = o.top_k;
    rules.local_preference = rules.node_preference = 65536;
    rules.margin = 1;
    waterline_rows<std::int32_t> const rows{
        {ids_.data(), tokens_, o.top_k}, owners_.data(), o.slots};
    waterline_memory const memory{state_.data(),  slack_.data(), load_.data(), weight_.data(),
                                  before_.data(), room_.data(),  more_.data()};
    plimsoll::vector_ref<waterline_report> const report(report_.data(), 1);

    longs counts(at(2 * ranks_), gap_value);
    waterline_count_body<std::int32_t> count{};
    count.rows = rows;
    count.loads = {counts.data(), 2, ranks_};
    count.source = source_;
    count.every_token = o.arithmetic == plimsoll::fill_arithmetic::sglang;
    count.clearing = true;
    check_step(count, count.problems(), counts);
    CHECK(counts == longs(counts.size(), 0));
    count.clearing = false;
    check_step(count, count.problems(), counts);
    CHECK(counts == counted(c_, source_, owners_));

    waterline_plan_body const plan{ranks,   rules,  {loads_.data(), 2, ranks_},
                                   source_, memory, report};
    auto const told = [&] { return levels_and_numbers(report_[0]); };
    check_step(plan, 1, state_, slack_, load_, weight_, before_, room_, more_, told);

    waterline_fill_body<std::int32_t> fill{};
    fill.ranks = ranks;
    fill.rules = rules;
    fill.memory = memory;
    fill.source = source_;
    fill.tiles = {tokens_, ranks_ + 1, tiles_.data(), totals_.data()};
    fill.odd_counts = odd_tiles_.data();
    fill.proposal = proposal_.data();
    fill.rows = rows;
    fill.shared_slot = shared_.data();
    fill.shared_weight = o.weight;
    fill.weights = {weights_.data(), tokens_, o.top_k};
    fill.out_ids = {out_ids_.data(), tokens_, o.top_k + 1};
    fill.out_weights = {out_weights_.data(), tokens_, o.top_k + 1};
    fill.out_ranks = {out_ranks_.data(), tokens_};
    fill.report = report;
    fill.seed = o.seed;
    fill.subsequence = c_.stream;
    fill.rounds = rules.sampled ? 0 : fill.most_rounds;
    // Steps add to the report, so its bytes are restored before each run.
    auto bytes = std::as_writable_bytes(std::span(report_));
    line_steps const planned = *this;
    for (bool const one_launch : {false, true}) {
      CAPTURE(one_launch);
      fill.one_launch = one_launch;
      for (int phase = 0; phase < fill.phases(); ++phase) {
        check_step(one_phase<decltype(fill)>{fill, phase}, fill.problems(phase), out_ids_,
                   out_weights_, out_ranks_, proposal_, tiles_, odd_tiles_, totals_, state_, room_,
                   bytes);
      }
      check_filled(expected);
      restore(planned);
    }
    fill.keeps_scratch = true;
    fill_at_once(fill);
    fill.keeps_scratch = false;
    check_filled(expected);
    // A source without a plan: its rows stay at home in every team, in the first phase.
    restore(planned);
    fill.source = (source_ + 1) % ranks_;
    check_step(one_phase<decltype(fill)>{fill, 0}, fill.problems(0), out_ids_, out_weights_,
               out_ranks_, proposal_, state_, bytes);
    CHECK(fill.is_over(0));
    CHECK(report_[0].moved == 0);
    // A fault of the plan stays.
    CHECK(report_[0].refused.kind ==
          (expected.report.refused ? expected.report.refused.kind : plimsoll::fault_kind::source));
  }

 private:
  void check_filled(poured const& expected) const {
    CHECK(difference({longs(out_ids_.begin(), out_ids_.end()), out_weights_, out_ranks_, report_[0],
                      slack_},
                     expected) == "");
  }
  /// Restores the state before `fill`.
  void restore(line_steps const& planned) {
    auto const copy = [](auto const& from, auto& to) {
      std::copy(from.begin(), from.end(), to.begin());
    };
    copy(planned.state_, state_);
    copy(planned.room_, room_);
    copy(planned.report_, report_);
    copy(planned.out_ids_, out_ids_);
    copy(planned.out_weights_, out_weights_);
    copy(planned.out_ranks_, out_ranks_);
  }
  /// Runs all tiles at once, one thread each, as a cooperative launch does.
  template <class Body>
  static void fill_at_once(Body const& body) {
    auto const tiles = static_cast<std::ptrdiff_t>(body.problems(0));
    std::barrier<> grid(tiles);
    std::vector<std::thread> blocks;
    for (std::ptrdiff_t tile = 0; tile < tiles; ++tile) {
      blocks.emplace_back([&, tile] {
        std::vector<std::byte> memory(body.scratch_bytes(0));
        plimsoll::detail::serial_team team;
        for (int phase = 0;; ++phase) {
          body(team, plimsoll::detail::scratch(memory.data()), tile, phase);
          bool const is_last = phase + 1 == body.phases() || body.is_over(phase);
          body.finish(team, plimsoll::detail::scratch(memory.data()), tile, phase);
          if (is_last) {
            return;
          }
          grid.arrive_and_wait();
        }
      });
    }
    for (std::thread& block : blocks) {
      block.join();
    }
  }

  /// Stops at the first wrong step, since later ones would be wrong too.
  template <class Body, class... Outputs>
  static void check_step(Body const& body, index_t problems, Outputs&&... outputs) {
    REQUIRE(compare_all_teams(body, problems, outputs...) == "");
  }
  static reals levels_and_numbers(waterline_report const& r) {
    reals result{r.level, r.home_peak, r.refused.got};
    for (std::int64_t const number : numbers_in(r)) {
      result.push_back(static_cast<double>(number));
    }
    return result;
  }

  line_case c_;
  longs loads_;
  index_t source_;
  index_t const ranks_ = c_.ranks();
  index_t const tokens_ = c_.tokens(source_);
  std::size_t const pairs_ = at(tokens_ * (c_.options.top_k + 1));
  ints ids_ = ints(c_.ids[at(source_)].begin(), c_.ids[at(source_)].end());
  ints owners_ = c_.owners();
  ints shared_;
  std::vector<double> speed_;
  floats weights_;
  std::vector<plimsoll::detail::waterline_state> state_ =
      std::vector<plimsoll::detail::waterline_state>(1);
  longs slack_ = longs(at(ranks_), gap_value);
  longs load_ = slack_;
  longs weight_ = slack_;
  longs before_ = slack_;
  ints room_ = ints(at(3 * ranks_), gap_value);
  ints more_ = ints(at(ranks_), gap_value);
  std::vector<waterline_report> report_ = std::vector<waterline_report>(1);
  ints tiles_ = ints(at((tokens_ + 255) / 256 * (ranks_ + 1) + 1), gap_value);
  ints odd_tiles_ = tiles_;
  ints totals_ = ints(at(ranks_ + 1), gap_value);
  ints proposal_ = ints(at(tokens_), gap_value);
  ints out_ids_ = ints(pairs_, gap_value);
  floats out_weights_ = floats(pairs_, gap_value);
  ints out_ranks_ = ints(at(tokens_), gap_value);
};

TEST_CASE("waterline: the same bits in every team") {
  // Rank 1 has nearly all load, and most of its rows must leave, as far as they can.
  auto const tried = [](index_t tokens, auto change, longs loads = {}) {
    draws draw(5);
    line_case c;
    c.options = {.on = {.ranks = 5, .nodes = 2}, .slots = 7, .top_k = 2, .local_preference = 1};
    c.offsets = {0, 2, 3, 4, 5, 6};
    c.ids.resize(5);
    for (index_t i = 0; i < 2 * tokens; ++i) {
      c.ids[1].push_back(draw.one_in(9) ? draw.among(-1, 6) : draw.any({2, 2, 2, 2, 2, 3, 5}));
      c.ids[3].push_back(draw.among(0, 5));
    }
    c.options.max_tokens = tokens;
    change(c);
    if (loads.empty()) {
      ints const owners = c.owners();
      loads = counted(c, 1, owners);
      loads = (c.options.counts == plimsoll::counted_ranks::own)
                  ? loads
                  : sum_of({loads, counted(c, 3, owners)});
    }
    host_line const in(c);
    poured const expected = in.pour(loads, 1);
    line_steps(c, loads, 1).check(expected);
    return expected.report;
  };
  // Two tiles.
  CHECK(tried(530, [](line_case&) {}).unplaced > 0);
  CHECK(tried(530, [](line_case& c) {
          c.options.candidates = candidate_ranks::all;
          c.paces = {1, 3, 8, 2, 5};
        }).new_destinations > 0);
  auto const with_rule = [&](candidate_ranks candidates, bool literal, bool local_counts_only) {
    return tried(90, [=](line_case& c) {
      c.options.method = fill_method::sampled;
      c.options.candidates = candidates;
      c.options.arithmetic =
          literal ? plimsoll::fill_arithmetic::sglang : plimsoll::fill_arithmetic::exact;
      c.options.counts =
          local_counts_only ? plimsoll::counted_ranks::own : plimsoll::counted_ranks::all;
    });
  };
  CHECK(with_rule(candidate_ranks::visited, false, false).moved > 0);
  CHECK(with_rule(candidate_ranks::all, false, false).new_destinations > 0);
  CHECK(with_rule(candidate_ranks::visited, true, false).moved > 0);
  CHECK(with_rule(candidate_ranks::visited, true, true).moved > 0);
  CHECK(tried(90, [](line_case& c) { c.options.counts = plimsoll::counted_ranks::own; }).moved > 0);
  // Ranks 0 and 3, at the level, take in rows; a dead rank; refused loads; no tokens.
  CHECK(tried(90, [](line_case&) {}, {90, 160, 0, 90, 50, 70, 90, 9, 70, 8}).surplus > 90);
  CHECK(tried(90,
              [](line_case& c) {
                c.active = {1, 1, 0, 1, 1};
              },
              {0, 160, 0, 0, 0, 0, 90, 0, 0, 0})
            .moved > 0);
  CHECK(tried(90, [](line_case&) {}, {0, 900, -1, 0, 0, 0, 90, 0, 0, 0}).refused.where == 2);
  CHECK(tried(0, [](line_case&) {}).rows == 0);
}

/// Finds positions in `room`, [count, ranks], and writes how many units of each rank come before.
struct find_places {
  using device_team = plimsoll::detail::block<128>;

  ints const& room;
  longs const& units;
  index_t ranks;
  std::int32_t* given;  ///< [count, ranks]

  [[nodiscard]] index_t count() const { return std::ssize(units); }
  [[nodiscard]] plimsoll::detail::position_searches searches() const { return {count()}; }
  [[nodiscard]] std::size_t scratch_bytes() const {
    return searches().scratch_bytes() +
           plimsoll::detail::scratch_bytes_of<plimsoll::detail::round_robin_position>(count());
  }
  template <class Team>
  void operator()(Team& team, plimsoll::detail::scratch arrays, index_t) const {
    using namespace plimsoll::detail;
    auto* const place = arrays.take<round_robin_position>(count());
    searches().find(
        team, arrays,
        [this](index_t i) {
          auto const* const of = room.data() + i * ranks;
          return position_search::start(of, 0, ranks, units[at(i)],
                                        std::accumulate(of, of + ranks, std::int64_t{0}));
        },
        place);
    team.for_each(count() * ranks, [=, this](index_t i) {
      given[i] = place[i / ranks].units_before(room[at(i)], i % ranks);
    });
  }
};

TEST_CASE("waterline: every team finds the same positions") {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    draws draw(seed);
    index_t const ranks = draw.any<index_t>({1, 2, 7, 40});
    index_t const count = draw.any<index_t>({1, 3, 8, 50});
    ints room;
    longs units;
    for (index_t i = 0; i < count; ++i) {
      std::int64_t const most = draw.any<std::int64_t>({0, 3, 500, 0x7fffffff});
      bool const even = draw.one_in(3);  // the units of all ranks come at the same times
      std::int64_t all = 0;
      for (index_t r = 0; r < ranks; ++r) {
        room.push_back(static_cast<std::int32_t>(even ? most : draw.among(0, most)));
        all += room.back();
      }
      std::int64_t const part = draw.among(0, 999) * all / 1000;
      units.push_back(draw.any<std::int64_t>(
          {0, all, part, all - std::min<std::int64_t>(all, draw.among(0, 99))}));
    }
    ints given(room.size(), gap_value);
    check_all_teams(find_places{room, units, ranks, given.data()}, 1, given);
    for (index_t i = 0; i < count; ++i) {
      auto const begin = given.begin() + i * ranks;
      CHECK(std::accumulate(begin, begin + ranks, std::int64_t{0}) == units[at(i)]);
    }
  }
}

/// Numbers the items of every column, tile by tile.
struct number_items {
  using device_team = plimsoll::detail::block<128>;

  plimsoll::detail::tile_counts tiles;
  ints const& column;
  std::int32_t* number;  ///< `[items]`

  [[nodiscard]] std::size_t scratch_bytes() const { return tiles.scratch_bytes<device_team>(); }
  template <class Team>
  void operator()(Team& team, plimsoll::detail::scratch arrays, index_t tile) const {
    tiles.visit<device_team>(
        team, arrays, tile, [this](index_t i) { return column[at(i)]; },
        [this](index_t i, std::int32_t, std::int32_t earlier) { number[i] = earlier; });
  }
};

TEST_CASE("waterline: tiles number items for any number of columns") {
  constexpr index_t items = 2 * 512 + 77;
  for (index_t const columns : {1, 17, 258, 700, 5000}) {
    CAPTURE(columns);
    draws draw(static_cast<std::uint64_t>(columns));
    ints column;
    for (index_t i = 0; i < items; ++i) {
      column.push_back(static_cast<std::int32_t>(
          draw.among(0, draw.one_in(2) ? columns - 1 : std::min<index_t>(columns, 4) - 1)));
    }
    ints counts(at(3 * columns), 0);  // counts of earlier tiles
    ints expected;
    ints seen(at(columns), 0);
    for (index_t i = 0; i < items; ++i) {
      if (i % 512 == 0) {
        for (index_t c = 0; c < columns; ++c) {
          counts[at(3 * c + i / 512)] = seen[at(c)];
        }
      }
      expected.push_back(seen[at(column[at(i)])]++);
    }
    ints number(at(items), gap_value);
    check_all_teams(
        number_items{{items, columns, counts.data(), seen.data()}, column, number.data()}, 3,
        number);
    CHECK(number == expected);
  }
}

TEST_CASE("waterline: fill is one launch while tiles read few counts of other tiles") {
  auto const fits = [](index_t tokens, index_t ranks) {
    plimsoll::detail::waterline_fill_body<std::int32_t> fill{};
    fill.tiles = {tokens, ranks + 1, nullptr, nullptr};
    return fill.fits_one_launch();
  };
  CHECK(fits(0, 16));
  CHECK(fits(16384, 16));
  CHECK(fits(32768, 255));
  CHECK(!fits(32769, 255));
  CHECK(!fits(1, 32768));
  // Scratch is reserved for the largest batch; a smaller one may add up counts in its tiles.
  plimsoll::detail::tile_counts tiles{600, 2500, nullptr, nullptr};
  auto const reserved = tiles.scratch_bytes<plimsoll::detail::block<128>>();
  tiles.by_tile = true;
  CHECK(tiles.scratch_bytes<plimsoll::detail::block<128>>() == reserved);
}

TEST_CASE("waterline: calls allocate nothing") {
  line_case c = large_line(31, 6, 2, 3, 600, 3);
  c.options.candidates = candidate_ranks::all;
  c.options.min_tokens = 64;
  host_line const in(c);
  outcome const expected = in.run();
  auto const run = [&](auto& resource) {
    plimsoll::waterline line(plimsoll::seq(resource), in.options());
    auto const before = resource.allocations();
    line.update(in.options().rank_offsets, in.options().on);
    CHECK(difference(in.run(line), expected) == "");
    CHECK(resource.allocations() == before);
  };
  // The tables of slots and ranks; state between plan and fill, and scratch memory.
  check_temporaries(3, run);
  c.offsets = {0, 1, 2, 3, 4, 5, 18};
  c.active.assign(6, 1);
  c.paces.assign(6, 8);
  host_line const given(c);
  check_temporaries(3, [&](auto& resource) {
    plimsoll::waterline line(plimsoll::seq(resource), given.options());
  });
}

}  // namespace plimsoll_test
