// SPDX-License-Identifier: Apache-2.0
#include "minmax_lp.cases.hpp"

#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

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
    split_case const& c = cases[i];
    plimsoll::detail::split_graph_arrays arrays;
    for (index_t r = 0; r < c.ranks; ++r) {
      arrays.ranks.speed.push_back(c.quarters.empty() ? c.lives(r)
                                                      : static_cast<double>(c.speed(r)));
      arrays.ranks.fastest = std::max(arrays.ranks.fastest, arrays.ranks.speed.back());
    }
    arrays.ranks.even = c.quarters.empty();
    for (index_t layer = 0; layer < c.layers; ++layer) {
      arrays.add_layer(c.map.data() + layer * c.slots, c.slots,
                       c.offsets.data() + layer * (c.ranks + 1), c.experts);
    }
    ints const numbers = arrays.flat();
    reals const& speeds = arrays.ranks.speed;
    reals const base(c.base.begin(), c.base.end());
    for (bool const lexicographic : {false, true}) {
      reals split(static_cast<std::size_t>(c.layers * c.slots), -7);
      std::vector<certificate> certificates(static_cast<std::size_t>(c.layers));
      flags tight(static_cast<std::size_t>(c.layers * c.ranks), 7);
      using loads = plimsoll::matrix_ref<std::int64_t const>;
      plimsoll::detail::minmax_lp_body<loads> body{};
      body.graph = arrays.graph(numbers.data(), speeds.data(), c.experts, c.slots);
      body.loads = loads(c.loads.data(), c.layers, c.experts);
      if (!c.base.empty()) {
        body.base = plimsoll::matrix_ref<double const>(base.data(), c.layers, c.ranks);
      }
      body.tolerance = 1e-6;
      body.work_limit = 1 << 20;
      body.lexicographic = lexicographic;
      body.speed_unit = 1;
      body.split = plimsoll::matrix_ref<double>(split.data(), c.layers, c.slots);
      body.certificates = plimsoll::vector_ref<certificate>(certificates.data(), c.layers);
      body.tight = plimsoll::matrix_ref<std::uint8_t>(tight.data(), c.layers, c.ranks);
      check_all_teams(body, c.layers, split, tight, [&] {
        reals values;
        for (certificate const& result : certificates) {
          bool const number = result.value == result.value;  // NaN equals nothing
          values.push_back(number ? result.value : -1);
          values.push_back(number ? result.lower_bound : -1);
          values.push_back(static_cast<double>(result.work));
          values.push_back(static_cast<double>(result.status));
        }
        return values;
      });
    }
  }
}

TEST_CASE("minmax_lp: certificates that lie apart") {
  std::vector<certificate> certificates(4);
  certificates[1].status = certificate_status::infeasible;
  plimsoll::vector_ref<certificate> every_second(certificates.data(), 2);
  every_second.strides[0] = 2;
  CHECK_NOTHROW(plimsoll::expect_solved(plimsoll::seq, every_second));
  certificates[2].status = certificate_status::infeasible;
  CHECK_THROWS_WITH_AS(plimsoll::expect_solved(plimsoll::seq, every_second),
                       doctest::Contains("in layer 1"), plimsoll::invalid_input);
}

TEST_CASE("minmax_lp: solving allocates nothing") {
  split_case const c = spread(2, 16, 64, 64, 1000);
  split_in<plimsoll::seq_policy> const in(c);
  reals split(static_cast<std::size_t>(c.slots));
  std::vector<certificate> certificates(1);
  auto const run = [&](auto& resource) {
    plimsoll::minmax_lp const lp(plimsoll::seq(resource), in.placement());
    auto const before = resource.live();
    lp.solve(in.loads(), plimsoll::matrix_ref<double>(split.data(), 1, c.slots), certificates);
    CHECK(resource.live() == before);
  };
  // The slots and offsets on their way to the host, the graph and its speeds, and room for solving.
  check_temporaries(5, run);
}

}  // namespace plimsoll_test
