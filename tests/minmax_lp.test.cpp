// SPDX-License-Identifier: Apache-2.0
// The cases of every policy on the host, and tests of the body on every team.
#include "minmax_lp.cases.hpp"

#include "support/placed_split.hpp"
#include "support/run_body.hpp"
#include "support/split_instances.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

namespace {

/// The body of `solve` for a case, with its inputs and outputs.
class split_body {
 public:
  explicit split_body(split_case const& c, std::int64_t max_iterations = 1 << 20)
      : c_(c), base_(c.base.begin(), c.base.end()) {
    body.graph = prepared_.graph;
    body.loads = {c_.loads.data(), c.layers, c.experts};
    if (!c.base.empty()) {
      body.base_load = {base_.data(), c.layers, c.ranks};
    }
    body.tolerance = 1e-6;
    body.max_iterations = max_iterations;
    body.split = {split.data(), c.layers, c.slots};
    body.certificates = {certificates.data(), c.layers};
    body.faults = faults.data();
    body.bottleneck = {bottleneck.data(), c.layers, c.ranks};
  }
  split_body(split_body const&) = delete;
  split_body& operator=(split_body const&) = delete;

  [[nodiscard]] reals certificate_values() const {
    reals values;
    for (std::size_t i = 0; i < certificates.size(); ++i) {
      certificate const& result = certificates[i];
      plimsoll::fault const& found = faults[i];
      values.insert(values.end(),
                    {result.value, result.lower_bound, static_cast<double>(result.work),
                     static_cast<double>(result.status), static_cast<double>(found.kind),
                     static_cast<double>(found.where), found.got});
    }
    return values;
  }
  void check_all_teams() {
    plimsoll_test::check_all_teams(body, c_.layers, split, bottleneck,
                                   [&] { return certificate_values(); });
  }
  /// Compares the form for one thread with the one for a team, on a team of one thread. Returns the
  /// work of the first layer.
  std::int64_t check_both_forms() {
    run_body(body, c_.layers, serial, 0);
    reals const serial_split = split;
    flags const serial_bottleneck = bottleneck;
    reals const serial_values = certificate_values();
    run_body(body, c_.layers, 1, 1);  // a team of one thread
    CHECK(split == serial_split);
    CHECK(bottleneck == serial_bottleneck);
    CHECK(certificate_values() == serial_values);
    return certificates[0].work;
  }

 private:
  split_case c_;
  reals base_;
  placed_split placed_{c_};
  plimsoll::detail::minmax_lp_pipeline<plimsoll::host_context<plimsoll::inline_executor>> prepared_{
      {}, placed_.placement(), {.on = placed_.on()}};

 public:
  reals split = reals(static_cast<std::size_t>(c_.layers * c_.slots), -7);
  std::vector<certificate> certificates{static_cast<std::size_t>(c_.layers)};
  std::vector<plimsoll::fault> faults{static_cast<std::size_t>(c_.layers)};
  flags bottleneck = flags(static_cast<std::size_t>(c_.layers * c_.ranks), 7);
  plimsoll::detail::minmax_lp_body<plimsoll::matrix_ref<std::int64_t const>> body{};
};

split_case case_of(split_instance const& in) {
  split_case c;
  c.experts = in.experts;
  c.ranks = in.ranks;
  c.slots = in.slots();
  c.map = in.phy2log;
  c.offsets = in.rank_offsets;
  c.loads = in.loads;
  return c;
}

/// Returns EPLB's placement of 256 experts with 256 redundant ones on 64 ranks, and drifted loads.
split_case dense_split() { return case_of(make_split_instance(560)); }

/// Returns a chain of ranks along all of which load has to move.
split_case long_chain(index_t ranks) {
  longs falling;
  for (index_t e = 0; e + 1 < ranks; ++e) {
    falling.push_back(16 * (ranks - e));
  }
  return chain(ranks, 0, falling);
}

}  // namespace

TEST_CASE("minmax_lp: the same bits in every team") {
  std::vector<split_case> cases;
  for (std::uint64_t const seed : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u}) {
    cases.push_back(random_split(seed));
  }
  cases.push_back(spread(1, 40, 60, 60, 1000));
  cases.push_back(one_layer({{0}, {0}}, {4, 1}));  // an expert without a slot
  cases.push_back(one_layer({{0}, {0}}, {-4}));
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    for (bool const lexicographic : {false, true}) {
      split_body run(cases[i]);
      run.body.lexicographic = lexicographic;
      run.check_all_teams();
    }
  }
  split_body(dense_split()).check_all_teams();
  split_body(long_chain(12)).check_all_teams();
}

TEST_CASE("minmax_lp: the same graph in every team") {
  std::vector<split_case> cases;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    cases.push_back(random_split(seed));
  }
  ints all;  // more colors than the bits of a word
  for (std::int32_t e = 0; e < 70; ++e) {
    all.push_back(e);
  }
  cases.push_back(one_layer({all, {0, 0, 1}, all}, longs(70, 1)));
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    split_case const& c = cases[i];
    using plimsoll::detail::slot_lists;
    using plimsoll::detail::split_graph;
    placed_split const placed(c);
    std::vector<std::byte> memory(
        plimsoll::detail::bytes_taken_by<split_graph>(c.experts, c.ranks, c.slots, c.layers));
    std::vector<std::byte> list_memory(
        plimsoll::detail::bytes_taken_by<slot_lists>(c.experts, c.slots, c.layers));
    plimsoll::detail::scratch arrays(memory.data());
    plimsoll::detail::scratch lists(list_memory.data());
    std::vector<plimsoll::detail::split_layer> numbers(static_cast<std::size_t>(c.layers));
    std::vector<plimsoll::detail::problem_report> reports(numbers.size());
    plimsoll::placement_ref const placement = placed.placement();
    plimsoll::detail::split_graph_body body{
        .graph = split_graph::in(arrays, c.experts, c.ranks, c.slots, c.layers),
        .lists = slot_lists::in(lists, c.experts, c.slots, c.layers),
        .first_layer = 0,
        .physical_to_logical = placement.physical_to_logical,
        .ranges = {placement.rank_offsets, c.slots, c.ranks},
        .on = {false, placed.on().active, placed.on().speeds},
        .reports = reports.data()};
    body.graph.layers = numbers.data();
    auto const number_of_layers = [&] {
      reals values;
      for (plimsoll::detail::split_layer const& one : numbers) {
        values.insert(values.end(),
                      {one.ranks.per_unit, one.ranks.fastest, static_cast<double>(one.ranks.live),
                       static_cast<double>(one.ranks.equal_speeds),
                       static_cast<double>(one.replicated), static_cast<double>(one.colors)});
      }
      return values;
    };
    plimsoll_test::check_all_teams(body, c.layers, memory, list_memory, number_of_layers);
    body.lists = {};  // as scratch
    plimsoll_test::check_all_teams(body, c.layers, memory, number_of_layers);
    if (i + 1 == cases.size()) {
      CHECK(numbers[0].colors == 70);
    }
  }
}

TEST_CASE("minmax_lp: all steps of a history get the certificates of each, in every team") {
  using history = plimsoll::tensor_ref<std::int64_t const>;
  constexpr index_t steps = 3;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    split_case const c = random_split(seed);
    auto const size = static_cast<index_t>(c.loads.size());
    longs loads;
    for (index_t i = 0; i < steps * size; ++i) {
      loads.push_back(c.loads[static_cast<std::size_t>((i + i / size) % size)]);
    }
    reals of_each;
    for (index_t step = 0; step < steps; ++step) {
      split_body one(c);
      one.body.loads.data = loads.data() + step * size;
      run_body(one.body, c.layers, serial, 0);
      reals const values = one.certificate_values();
      of_each.insert(of_each.end(), values.begin(), values.end());
    }
    split_body all(c);
    all.body.split = {};
    all.body.bottleneck = {};
    all.certificates.resize(static_cast<std::size_t>(steps * c.layers));
    all.faults.resize(all.certificates.size());
    history const view(loads.data(), steps, c.layers, c.experts);
    plimsoll::detail::split_steps_body<history> const body{view, all.body, all.certificates.data(),
                                                           all.faults.data()};
    plimsoll_test::check_all_teams(body, steps * c.layers,
                                   [&] { return all.certificate_values(); });
    CHECK(all.certificate_values() == of_each);
    CHECK(all.split == reals(all.split.size(), -7));
  }
}

TEST_CASE("minmax_lp: one thread and a team find the same paths") {
  std::vector<split_case> cases;
  for (std::uint64_t seed = 12; seed < 72; ++seed) {
    cases.push_back(random_split(seed));
  }
  for (int i = 0; i < split_instance_count; i += 9) {
    split_case c = case_of(make_split_instance(i));
    if (c.ranks > 100) {
      continue;  // a team takes too long on a long chain of ranks
    }
    cases.push_back(c);
    // The same case with different speeds, a dead rank and base loads.
    for (index_t r = 0; r < c.ranks; ++r) {
      c.quarters.push_back(static_cast<std::int32_t>(1 + (5 * r + i) % 7));
      c.base.push_back(r == i % c.ranks ? 0 : (37 * r + i) % 100);
      c.active.push_back(r != i % c.ranks);
    }
    cases.push_back(c);
    // No load.
    c.loads.assign(c.loads.size(), 0);
    cases.push_back(c);
  }
  for (std::size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    for (bool const lexicographic : {false, true}) {
      for (double const tolerance : {0.0, 1e-3}) {
        split_body run(cases[i]);
        run.body.lexicographic = lexicographic;
        run.body.tolerance = tolerance;
        run.check_both_forms();
      }
    }
  }
}

TEST_CASE("minmax_lp: one thread and a team stop at the same path") {
  for (split_case const& c : {dense_split(), long_chain(40), random_split(31)}) {
    for (bool const lexicographic : {false, true}) {
      std::int64_t work = 0;
      for (std::int64_t limit = 1; work == limit - 1; ++limit) {
        CAPTURE(limit);
        split_body run(c, limit);
        run.body.lexicographic = lexicographic;
        work = run.check_both_forms();
      }
    }
  }
}

TEST_CASE("minmax_lp: updating and solving allocate nothing") {
  split_case const c = spread(2, 16, 64, 64, 1000);
  split_in<plimsoll::seq_policy> const in(c);
  reals split(static_cast<std::size_t>(c.slots));
  auto const run = [&](auto& resource) {
    plimsoll::minmax_lp lp(plimsoll::seq(resource), in.placement());
    auto const before = resource.allocations();
    lp.update(0, in.placement());
    lp.solve(in.loads(), plimsoll::matrix_ref<double>(split.data(), 1, c.slots));
    CHECK(resource.allocations() == before);
  };
  // The graph, the reports of updates, certificates, faults, and scratch of the constructor and of
  // calls.
  check_temporaries(6, run);
}

}  // namespace plimsoll_test
