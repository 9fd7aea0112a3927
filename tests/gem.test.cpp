// SPDX-License-Identifier: Apache-2.0
// Tests of gem under the host's policies; every team, shapes, temporaries.
#include "gem.cases.hpp"

#include "support/temporaries.hpp"

namespace plimsoll_test {

TEST_CASE("gem: loads in any layout, or generated") {
  gem_case const c = bursty_gem();
  search_case const& s = c.search;
  gem_in<plimsoll::seq_policy> const in(c);
  std::vector<index_t> const lengths{3, 16};
  reals const expected = length_latencies_of<plimsoll::seq_policy>(c, 16, lengths);
  auto const latencies = [&](auto const& loads) {
    // Transposed.
    reals out(4);
    plimsoll::matrix_ref<double> view(out.data(), 2, 2);
    view.strides[0] = 1;
    view.strides[1] = 2;
    plimsoll::trace_length_latencies(plimsoll::seq, loads, in.curves(), s.slots, 16, lengths,
                                     in.options(), view);
    return reals{out[0], out[2], out[1], out[3]};
  };
  std::vector<float> wide(2 * s.loads.size(), -1);
  for (std::size_t i = 0; i < s.loads.size(); ++i) {
    wide[2 * i] = static_cast<float>(s.loads[i]);
  }
  plimsoll::tensor_ref<float const> strided(wide.data(), s.steps, s.layers, s.experts);
  for (auto& stride : strided.strides) {
    stride *= 2;
  }
  CHECK(latencies(strided) == expected);
  CHECK(latencies(plimsoll::generate(
            [&s](index_t t, index_t l, index_t e) { return static_cast<float>(s.load(t, l, e)); },
            s.steps, s.layers, s.experts)) == expected);
}

TEST_CASE("gem: shapes and options are checked") {
  gem_case const c = bursty_gem();
  gem_in<plimsoll::seq_policy> const in(c);
  struct shapes {
    index_t loads[3] = {24, 2, 12};
    index_t map[2] = {2, 14};
    index_t counts[2] = {2, 12};
    index_t out[2] = {1, 2};
  };
  std::vector<float> const loads(c.search.loads.begin(), c.search.loads.end());
  ints map(28);
  ints counts(24);
  reals out(2);
  auto const check = [&](shapes const& s, plimsoll::gem_options const& options,
                         std::string const& expected) {
    check_message(
        refusal_of([&] {
          plimsoll::gem(
              plimsoll::seq,
              plimsoll::tensor_ref<float const>(loads.data(), s.loads[0], s.loads[1], s.loads[2]),
              in.curves(), options,
              plimsoll::matrix_ref<std::int32_t>(map.data(), s.map[0], s.map[1]),
              plimsoll::matrix_ref<std::int32_t>(counts.data(), s.counts[0], s.counts[1]));
        }),
        expected == "no error" ? expected : "gem: " + expected);
  };
  plimsoll::gem_options const plain = in.options();
  check({}, plain, "no error");
  check({.loads = {0, 2, 12}}, plain, "loads: expected 1 to 2147483647 steps, got 0");
  check({.map = {1, 14}}, plain, "physical_to_logical: expected 2 layers, got 1");
  check({.map = {2, 11}}, plain,
        "physical_to_logical: expected 12 to 65535 slots (at least one per expert), got 11");
  check({.counts = {1, 12}}, plain, "replica_count: expected 2 layers, got 1");
  check({.counts = {2, 11}}, plain, "replica_count: expected 12 experts, got 11");
  auto const with = [&](auto change, std::string const& expected) {
    plimsoll::gem_options options = plain;
    change(options);
    check({}, options, expected);
  };
  using options_type = plimsoll::gem_options;
  with([](options_type& o) { o.restarts = 0; },
       "options.restarts: expected 1 to 16777216 restarts, got 0");
  with([](options_type& o) { o.noise = 1; },
       "options.noise: expected a number from 0 to below 1, got 1");
  with([](options_type& o) { o.min_gain = -1; },
       "options.min_gain: expected a number from 0 to 1, got -1");
  with([](options_type& o) { o.quantile = 0; },
       "options.quantile: expected a number above 0, at most 1, got 0");
  ints const offsets{0, 4, 8, 14};
  with(
      [&](options_type& o) {
        o.rank_offsets = {offsets.data(), 1, 4};
      },
      "options.rank_offsets: expected 2 layers, got 1");
  flags const active(3, 1);
  with(
      [&](options_type& o) {
        o.on.active = {active.data(), 3};
      },
      "options.on.active: expected 4 ranks, got 3");

  auto const judge = [&](shapes const& s, std::string const& expected) {
    check_message(refusal_of([&] {
                    plimsoll::trace_length_latencies(
                        plimsoll::seq, plimsoll::tensor_ref<float const>(loads.data(), 24, 2, 12),
                        in.curves(), 14, 16, {4}, plain,
                        plimsoll::matrix_ref<double>(out.data(), s.out[0], s.out[1]));
                  }),
                  expected);
  };
  judge({}, "no error");
  // A refused call writes nothing, even if earlier lengths are valid.
  out.assign(4, -7);
  auto const later = [&](index_t slots, std::vector<index_t> const& lengths,
                         plimsoll::gem_options const& options, std::string const& expected) {
    check_message(refusal_of([&] {
                    plimsoll::trace_length_latencies(
                        plimsoll::seq, plimsoll::tensor_ref<float const>(loads.data(), 24, 2, 12),
                        in.curves(), slots, 16, lengths, options,
                        plimsoll::matrix_ref<double>(out.data(), std::ssize(lengths), 2));
                  }),
                  "trace_length_latencies: " + expected);
    CHECK(out == reals(4, -7));
  };
  later(14, {4, 17}, plain, "lengths: expected 1 to 16 steps, got 17");
  later(14, {4, 0}, plain, "lengths: expected 1 to 16 steps, got 0");
  later(-4, {4, 8}, plain, "slots: expected 12 to 65535 slots (at least one per expert), got -4");
  later(11, {}, plain, "slots: expected 12 to 65535 slots (at least one per expert), got 11");
  plimsoll::gem_options wrong = plain;
  wrong.noise = 1;
  later(14, {}, wrong, "options.noise: expected a number from 0 to below 1, got 1");
  judge({.out = {2, 1}}, "trace_length_latencies: latencies: expected 1 lengths, got 2");
  judge({.out = {1, 1}}, "trace_length_latencies: latencies: expected 2 layers, got 1");
}

TEST_CASE("gem: temporaries come from the policy and go back, also when it throws") {
  gem_case c = bursty_gem();
  c.spare = spare_slot_use::hold_replicas;
  search_case const& s = c.search;
  gem_in<plimsoll::seq_policy> const in(c);
  std::vector<float> const loads(s.loads.begin(), s.loads.end());
  plimsoll::tensor_ref<float const> const view(loads.data(), s.steps, s.layers, s.experts);
  ints map(static_cast<std::size_t>(s.layers * s.slots));
  ints counts(static_cast<std::size_t>(s.layers * s.experts));
  reals out(4);
  auto const check = [](auto const& run) {
    counting_resource counting;
    run(counting);
    CHECK(counting.allocations() > 5);
    check_temporaries(counting.allocations(), run);
  };
  check([&](auto& resource) {
    plimsoll::gem(plimsoll::seq(resource), view, in.curves(), in.options(),
                  plimsoll::matrix_ref<std::int32_t>(map.data(), s.layers, s.slots),
                  plimsoll::matrix_ref<std::int32_t>(counts.data(), s.layers, s.experts));
  });
  check([&](auto& resource) {
    plimsoll::trace_length_latencies(plimsoll::seq(resource), view, in.curves(), s.slots, 10,
                                     {2, 4}, in.options(),
                                     plimsoll::matrix_ref<double>(out.data(), 2, 2));
  });
  check([&](auto& resource) {
    static_cast<void>(
        plimsoll::gem(plimsoll::seq(resource), view, in.curves(), s.slots, in.options()));
  });
}

TEST_CASE("gem: a returned placement: arguments are checked; no layers") {
  gem_case const c = bursty_gem();
  gem_in<plimsoll::seq_policy> const in(c);
  std::vector<float> loads(c.search.loads.begin(), c.search.loads.end());
  auto const made = [&](index_t layers, index_t slots, plimsoll::gem_options const& options) {
    return plimsoll::gem(plimsoll::seq,
                         plimsoll::tensor_ref<float const>(loads.data(), 24, layers, 12),
                         in.curves(), slots, options);
  };
  auto const check = [&](index_t slots, plimsoll::gem_options const& options,
                         std::string const& expected) {
    check_message(refusal_of([&] { static_cast<void>(made(2, slots, options)); }), expected);
  };
  plimsoll::gem_options options = in.options();
  check(14, options, "no error");
  check(11, options, "gem: slots: expected 12 to 65535 slots (at least one per expert), got 11");
  check(-1, options, "gem: slots: expected 12 to 65535 slots (at least one per expert), got -1");
  ints const offsets{0, 4, 8, 11, 14};
  options.rank_offsets = {offsets.data(), 1, 5};
  check(14, options, "gem: options.rank_offsets: expected 2 layers, got 1");
  options.rank_offsets = {};
  options.restarts = 0;
  check(14, options, "gem: options.restarts: expected 1 to 16777216 restarts, got 0");
  auto const none = made(0, 14, in.options());
  CHECK(none.certificates.empty());
  CHECK(none.physical_to_logical.extent(0) == 0);
  CHECK(none.physical_to_logical.extent(1) == 14);
  loads[5] = -1;
  check(14, in.options(),
        "gem: loads: expected values from 0 to below 2^47, got -1 in layer 0, expert 5, step 0");
}

}  // namespace plimsoll_test
