// SPDX-License-Identifier: Apache-2.0
// Tests of craft under the host's policies; shapes, temporaries.
#include "craft.cases.hpp"

#include "support/resources.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

TEST_CASE("craft: loads of any type give the same plan") {
  using P = plimsoll::seq_policy;
  for (craft_case c : craft_cases()) {
    c.options.budget = 11;
    crafted<P> const expected(c);
    for_each_load_type([&]<class T>(T) {
      crafted<P, T> const got(c);
      CHECK(got.plan.estimate.base == expected.plan.estimate.base);
      CHECK(got.plan.estimate.gain == expected.plan.estimate.gain);
      CHECK(got.map == expected.map);
      CHECK(got.offsets == expected.offsets);
      CHECK(got.counts == expected.counts);
    });
  }
}

/// Reads every second element of an array.
struct every_second {
  double const* loads;
  index_t layers;
  index_t experts;
  double operator()(index_t step, index_t layer, index_t e) const {
    return loads[2 * ((step * layers + layer) * experts + e)];
  }
};

TEST_CASE("craft: strided and generated loads, strided outputs") {
  using P = plimsoll::seq_policy;
  craft_case c = craft_cases()[0];
  c.options.budget = 11;
  crafted<P> const expected(c);
  reals wide;
  for (std::int64_t const load : c.loads) {
    wide.insert(wide.end(), {static_cast<double>(load), -1.0});
  }
  auto const run = [&]<class Id>(auto const& loads, Id) {
    index_t const slots = expected.slots;
    std::vector<Id> map(static_cast<std::size_t>(2 * c.layers * slots), -7);
    std::vector<Id> offsets(static_cast<std::size_t>(c.layers * 7), -7);
    std::vector<Id> counts(static_cast<std::size_t>(c.layers * c.experts), -7);
    plimsoll::matrix_ref<Id> map_out(map.data(), c.layers, slots);
    map_out.strides[0] = 1;
    map_out.strides[1] = 2 * c.layers;
    plimsoll::matrix_ref<Id> offsets_out(offsets.data(), c.layers, 7);
    offsets_out.strides[0] = 1;
    offsets_out.strides[1] = c.layers;
    plimsoll::matrix_ref<Id> counts_out(counts.data(), c.layers, c.experts);
    counts_out.strides[0] = 1;
    counts_out.strides[1] = c.layers;
    auto const plan =
        plimsoll::craft(plimsoll::seq, loads, c.options, map_out, offsets_out, counts_out);
    CHECK(plan.estimate.gain == expected.plan.estimate.gain);
    for (index_t layer = 0; layer < c.layers; ++layer) {
      for (index_t i = 0; i < slots; ++i) {
        CHECK(map_out(layer, i) == expected.map[static_cast<std::size_t>(layer * slots + i)]);
        CHECK(map[static_cast<std::size_t>(2 * c.layers * i + c.layers + layer)] == -7);
      }
      for (index_t i = 0; i < 7; ++i) {
        CHECK(offsets_out(layer, i) == expected.offsets[static_cast<std::size_t>(layer * 7 + i)]);
      }
      for (index_t e = 0; e < c.experts; ++e) {
        CHECK(counts_out(layer, e) ==
              expected.counts[static_cast<std::size_t>(layer * c.experts + e)]);
      }
    }
  };
  plimsoll::tensor_ref<double const> strided(wide.data(), c.steps, c.layers, c.experts);
  strided.strides[0] = 2 * c.layers * c.experts;
  strided.strides[1] = 2 * c.experts;
  strided.strides[2] = 2;
  run(strided, std::int32_t{});
  run(strided, std::int64_t{});
  run(plimsoll::generate(every_second{wide.data(), c.layers, c.experts}, c.steps, c.layers,
                         c.experts),
      std::int32_t{});
}

TEST_CASE("craft: shapes of outputs are checked") {
  longs const loads(48, 1);
  struct shapes {
    index_t map[2] = {2, 12};
    index_t offsets[2] = {2, 5};
    index_t counts[2] = {2, 8};
  };
  ints map(100);
  ints offsets(100);
  ints counts(100);
  auto const refusal = [&](shapes const& s,
                           plimsoll::craft_options const& options = {.on = {.ranks = 4}}) {
    for (ints* const out : {&map, &offsets, &counts}) {
      out->assign(100, -7);
    }
    std::string const message = craft_refusal([&] {
      plimsoll::craft(
          plimsoll::seq, plimsoll::tensor_ref<std::int64_t const>(loads.data(), 3, 2, 8), options,
          plimsoll::matrix_ref<std::int32_t>(map.data(), s.map[0], s.map[1]),
          plimsoll::matrix_ref<std::int32_t>(offsets.data(), s.offsets[0], s.offsets[1]),
          plimsoll::matrix_ref<std::int32_t>(counts.data(), s.counts[0], s.counts[1]));
    });
    // A call that throws for shapes writes nothing.
    for (ints const* const out : {&map, &offsets, &counts}) {
      CHECK((message == "no error") == (*out != ints(100, -7)));
    }
    return message;
  };
  CHECK(refusal({}) == "no error");
  CHECK(refusal({.map = {2, 20}}) == "no error");
  CHECK(refusal({.map = {2, 11}}) ==
        "craft: physical_to_logical: expected 12 to 2147483647 slots (experts and the largest "
        "replica count), got 11");
  CHECK(refusal({.map = {3, 12}}) == "craft: physical_to_logical: expected 2 layers, got 3");
  CHECK(refusal({.offsets = {1, 5}}) == "craft: rank_offsets: expected 2 layers, got 1");
  CHECK(refusal({.offsets = {2, 4}}) ==
        "craft: rank_offsets: expected 5 offsets (ranks + 1), got 4");
  CHECK(refusal({.counts = {1, 8}}) == "craft: replica_count: expected 2 layers, got 1");
  CHECK(refusal({.counts = {2, 9}}) == "craft: replica_count: expected 8 experts, got 9");
  CHECK(refusal({.map = {2, 40000}}) ==
        "craft: physical_to_logical: expected 8 to 32774 slots (at least one per expert), got "
        "40000");
  CHECK(refusal({}, {.on = {.ranks = 4}, .budget = -2}) ==
        "craft: options.budget: expected -1 to 9223372036854775807 replicas (-1: automatic), got "
        "-2");
  CHECK(refusal({}, {.on = {.ranks = 4}, .groups = 3}) ==
        "craft: groups: expected a number that divides 8 experts, got 3");
}

TEST_CASE("craft: a strided mask of live ranks") {
  craft_case c = craft_cases()[0];
  c.options.budget = 11;
  c.active = {1, 0, 1, 1, 0, 1};
  crafted<plimsoll::seq_policy> const expected(c);
  flags wide;
  for (std::uint8_t const lives : c.active) {
    wide.insert(wide.end(), {lives, static_cast<std::uint8_t>(1 - lives)});
  }
  plimsoll::craft_options options = c.options;
  options.on.active = {wide.data(), 6};
  options.on.active.strides[0] = 2;
  ints map(expected.map.size());
  ints offsets(expected.offsets.size());
  ints counts(expected.counts.size());
  plimsoll::craft(
      plimsoll::seq,
      plimsoll::tensor_ref<std::int64_t const>(c.loads.data(), c.steps, c.layers, c.experts),
      options, plimsoll::matrix_ref<std::int32_t>(map.data(), c.layers, expected.slots),
      plimsoll::matrix_ref<std::int32_t>(offsets.data(), c.layers, 7),
      plimsoll::matrix_ref<std::int32_t>(counts.data(), c.layers, c.experts));
  CHECK(map == expected.map);
  CHECK(offsets == expected.offsets);
  CHECK(counts == expected.counts);
}

TEST_CASE("craft: a budget from bytes") {
  using plimsoll::replica_budget;
  CHECK(replica_budget(0, 1, 4) == 0);
  CHECK(replica_budget(99, 100, 4) == 0);
  CHECK(replica_budget(100, 100, 4) == 4);
  CHECK(replica_budget(std::int64_t{80} << 30, 44040192, 32) == 1950 * 32);
  CHECK(replica_budget(std::numeric_limits<std::int64_t>::max() / 32767, 1, 32767) ==
        std::numeric_limits<std::int64_t>::max() / 32767 * 32767);
  auto const refusal = [](std::int64_t bytes, std::int64_t expert, index_t ranks) {
    return craft_refusal([&] { static_cast<void>(replica_budget(bytes, expert, ranks)); });
  };
  CHECK(refusal(-1, 1, 4) ==
        "replica_budget: bytes_per_rank: expected 0 to 2305843009213693951 bytes, got -1");
  CHECK(refusal(2305843009213693952, 1, 4) ==
        "replica_budget: bytes_per_rank: expected 0 to 2305843009213693951 bytes, got "
        "2305843009213693952");
  CHECK(refusal(1, 0, 4) ==
        "replica_budget: expert_bytes: expected 1 to 9223372036854775807 bytes, got 0");
  CHECK(refusal(1, 1, 0) == "replica_budget: ranks: expected 1 to 32767 ranks, got 0");
  CHECK(refusal(1, 1, 32768) == "replica_budget: ranks: expected 1 to 32767 ranks, got 32768");
}

/// Records the most bytes that are allocated at once.
class peak_resource : public counting_resource {
 public:
  [[nodiscard]] std::size_t peak() const { return peak_; }

 protected:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    now_ += bytes;
    peak_ = now_ > peak_ ? now_ : peak_;
    return counting_resource::do_allocate(bytes, alignment);
  }
  void do_deallocate(void* pointer, std::size_t bytes, std::size_t alignment) override {
    now_ -= bytes;
    counting_resource::do_deallocate(pointer, bytes, alignment);
  }

 private:
  std::size_t now_ = 0;
  std::size_t peak_ = 0;
};

TEST_CASE("craft: the loads are not copied") {
  constexpr std::size_t layers = 8;
  constexpr std::size_t experts = 128;
  constexpr std::size_t ranks = 8;
  constexpr std::size_t plans = 5;  // 0, 1, 2, 4, 8 replicas
  constexpr std::size_t rows = plans * layers;
  ints map(layers * (experts + ranks));
  ints offsets(layers * (ranks + 1));
  ints counts(layers * experts);
  auto const peak = [&](index_t steps) {
    longs const wide = uneven_steps(3, steps, layers, experts);
    ints const loads(wide.begin(), wide.end());
    peak_resource memory;
    plimsoll::craft(plimsoll::seq(memory),
                    plimsoll::tensor_ref<std::int32_t const>(loads.data(), steps, layers, experts),
                    {.on = {.ranks = ranks}},
                    plimsoll::matrix_ref<std::int32_t>(map.data(), layers, experts + ranks),
                    plimsoll::matrix_ref<std::int32_t>(offsets.data(), layers, ranks + 1),
                    plimsoll::matrix_ref<std::int32_t>(counts.data(), layers, experts));
    CHECK(memory.live() == 0);
    CHECK(memory.mismatches() == 0);
    return memory.peak();
  };
  // The documented bytes: of the plans (slots, experts, ranks, reports of two steps, offsets of a
  // layer's slots), of the replay (partial sums of means, reports), and scratch of one problem.
  auto const documented = [](std::size_t steps) {
    std::size_t const tiles = (steps + 7) / 8;
    return rows * (4 * (experts + ranks) + 12 * experts + 4 * (ranks + 1) + 8 + 4 + 2 * 64) +
           plans * 64 + tiles * (8 * rows + 64 * layers) + 132 * experts + 32 * (experts + ranks) +
           2304 + plans * (256 + 4 * (ranks + 1)) + 1024;
  };
  CHECK(peak(400) <= documented(400));
  CHECK(10 * peak(400) < 4 * 400 * layers * experts);
  // Eight more steps take the documented bytes.
  CHECK(peak(408) - peak(400) == 8 * rows + 64 * layers);
}

TEST_CASE("craft: temporaries come from the policy and go back, also when it throws") {
  craft_case const c{.steps = 4,
                     .layers = 2,
                     .experts = 4,
                     .loads = uneven_steps(5, 4, 2, 4),
                     .options = {.on = {.ranks = 2}, .budget = 2}};
  ints map(2 * 6);
  ints offsets(2 * 3);
  ints counts(2 * 4);
  auto const run = [&](auto& resource) {
    plimsoll::craft(plimsoll::seq(resource),
                    plimsoll::tensor_ref<std::int64_t const>(c.loads.data(), 4, 2, 4), c.options,
                    plimsoll::matrix_ref<std::int32_t>(map.data(), 2, 6),
                    plimsoll::matrix_ref<std::int32_t>(offsets.data(), 2, 3),
                    plimsoll::matrix_ref<std::int32_t>(counts.data(), 2, 4));
  };
  counting_resource counting;
  run(counting);
  CHECK(counting.allocations() > 10);
  check_temporaries(counting.allocations(), run);

  auto const made = [&](auto& resource) {
    static_cast<void>(plimsoll::craft(
        plimsoll::seq(resource), plimsoll::tensor_ref<std::int64_t const>(c.loads.data(), 4, 2, 4),
        c.options));
  };
  counting_resource arrays_too;
  made(arrays_too);
  CHECK(arrays_too.allocations() == counting.allocations() + 3);
  check_temporaries(arrays_too.allocations(), made);
}

TEST_CASE("craft: a returned placement: arguments are checked; no layers") {
  longs const loads(48, 1);
  auto const made = [&](index_t layers, plimsoll::craft_options const& options) {
    return plimsoll::craft(plimsoll::seq,
                           plimsoll::tensor_ref<std::int64_t const>(loads.data(), 3, layers, 8),
                           options);
  };
  auto const refusal = [&](plimsoll::craft_options const& options) {
    return craft_refusal([&] { static_cast<void>(made(2, options)); });
  };
  CHECK(refusal({.on = {.ranks = 4}}) == "no error");
  CHECK(refusal({.on = {.ranks = 0}}) ==
        "craft: options.on.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(refusal({.on = {.ranks = 4}, .budget = -2}) ==
        "craft: options.budget: expected -1 to 9223372036854775807 replicas (-1: automatic), got "
        "-2");
  CHECK(refusal({.on = {.ranks = 4}, .groups = 3}) ==
        "craft: groups: expected a number that divides 8 experts, got 3");
  auto const none = made(0, {.on = {.ranks = 4}});
  CHECK(none.certificates.empty());
  CHECK(none.physical_to_logical.extent(0) == 0);
  CHECK(none.physical_to_logical.extent(1) == 12);
  CHECK(none.rank_offsets.extent(1) == 5);
  CHECK(none.allocation.replicas.empty());
}

TEST_CASE("craft: a total past 64 bits is refused, not wrapped") {
  auto const load = [](index_t, index_t, index_t) { return (std::int64_t{1} << 47) - 1; };
  std::string message;
  try {
    plimsoll::estimate_gains(plimsoll::seq, plimsoll::generate(load, 1 << 17, 1, 1),
                             {.on = {.ranks = 1}});
  } catch (plimsoll::invalid_input const& error) {
    message = error.what();
  }
  CHECK(message.find("loads: expected") != std::string::npos);
}

}  // namespace plimsoll_test
