// SPDX-License-Identifier: Apache-2.0
// Tests of placement_maps under the host's policies; every team, shapes, temporaries.
#include "placement_maps.cases.hpp"

#include <plimsoll/latency.hpp>
#include <plimsoll/least_loaded.hpp>

#include "support/report_values.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

using plimsoll::detail::map_body;
using plimsoll::detail::padded_source;
using plimsoll::detail::problem_report;
using plimsoll::detail::replica_source;
using plimsoll::detail::slot_source;

// Members may be omitted without a warning from -Wextra, and `{}` means the options of `validate`.
static_assert(plimsoll::placement_ref{.ranks = 2}.replica_count.data == nullptr);
static_assert(plimsoll::replica_lists_ref{.replica_slots = {}}.replica_offsets.data == nullptr);
static_assert(plimsoll::spill_plan_ref{.transfers = {}}.offsets.data == nullptr);
static_assert(plimsoll::latency_curves{.dense_until = 1}.latency.data == nullptr);

template <class Body, class... Outputs>
void check_teams(Body body, index_t layers, Outputs&... outputs) {
  std::vector<problem_report> reports(static_cast<std::size_t>(layers));
  body.reports = reports.data();
  check_all_teams(body, layers, outputs..., [&] { return report_values(reports); });
}

TEST_CASE("placement_maps: the same bits in every team") {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    CAPTURE(seed);
    map_draws draw(seed);
    forms f = random_forms(seed + 20, 70);
    f.layers = std::max<index_t>(f.layers, 1);
    f = f.map.empty() ? random_forms(3, 70) : f;
    REQUIRE(f.layers > 0);
    auto const spoil = [&](ints& values) {
      auto const i =
          static_cast<std::size_t>(draw.between(0, static_cast<index_t>(values.size()) - 1));
      values[i] = static_cast<std::int32_t>(draw.between(-2, f.slots));
    };
    for (bool const spoilt : {false, true}) {
      if (spoilt) {
        spoil(f.map), spoil(f.replica_offsets), spoil(f.padded), spoil(f.rank_experts);
      }
      stored<plimsoll::seq_policy> const in(f);
      auto const map = in.map.view2(f.layers, f.slots);
      ints counts(f.counts.size(), -7), offsets(f.replica_offsets.size(), -7);
      ints slots(f.map.size(), -7), padded(f.padded.size(), -7), lists(f.rank_experts.size(), -7);
      ints rank_offsets(f.rank_offsets.size(), -7);
      using matrix = plimsoll::matrix_ref<std::int32_t>;
      using tensor = plimsoll::tensor_ref<std::int32_t>;
      matrix const counts_out(counts.data(), f.layers, f.experts);
      matrix const offsets_out(offsets.data(), f.layers, f.experts + 1);
      matrix const slots_out(slots.data(), f.layers, f.slots);
      tensor const padded_out(padded.data(), f.layers, f.experts, f.copies_width);
      check_teams(map_body<slot_source>{{map, f.experts},
                                        f.experts,
                                        {.replica_count = counts_out,
                                         .replica_offsets = offsets_out,
                                         .replica_slots = slots_out}},
                  f.layers, counts, offsets, slots);
      replica_source const replicas{in.replicas().replica_offsets, in.replicas().replica_slots,
                                    f.experts};
      check_teams(
          map_body<replica_source>{replicas, f.experts, {.logical_to_physical = padded_out}},
          f.layers, padded);
      check_teams(map_body<replica_source>{replicas, f.experts, {.physical_to_logical = slots_out}},
                  f.layers, slots);
      check_teams(map_body<replica_source>{replicas, f.experts, {.expected = map}}, f.layers);
      check_teams(
          map_body<padded_source>{{in.inverse(), f.slots},
                                  f.experts,
                                  {.replica_offsets = offsets_out, .replica_slots = slots_out}},
          f.layers, offsets, slots);
      plimsoll::detail::ranked_source const ranked{{map, f.experts},
                                                   {in.placement().rank_offsets, f.slots, f.ranks}};
      tensor const lists_out(lists.data(), f.layers, f.ranks, f.ranks_width);
      for (bool const keeps_empty : {false, true}) {  // with empty slots a list may be too long
        check_teams(plimsoll::detail::slots_to_ranks_body{ranked, lists_out, keeps_empty}, f.layers,
                    lists);
      }
      check_teams(
          plimsoll::detail::ranks_to_slots_body{in.lists(), slots_out,
                                                matrix(rank_offsets.data(), f.layers, f.ranks + 1)},
          f.layers, slots, rank_offsets);
      resized const other(f, seed + 500);
      ints resized_map(other.map.size(), -7), resized_counts(other.counts.size(), -7);
      check_teams(
          plimsoll::detail::resize_placement_body{
              ranked,
              {other.source_ranks.data(), other.ranks()},
              {{other.rank_offsets.data(), f.layers, other.ranks() + 1},
               other.slots,
               other.ranks()},
              matrix(resized_map.data(), f.layers, other.slots),
              matrix(resized_counts.data(), f.layers, f.experts)},
          f.layers, resized_map, resized_counts);
      for (index_t const groups : {index_t{0}, f.ranks, index_t{1}}) {
        check_teams(plimsoll::detail::validation_body{ranked,
                                                      in.counts.view2(f.layers, f.experts),
                                                      {},
                                                      groups,
                                                      plimsoll::fault_kind::shared_rank},
                    f.layers);
      }
      std::vector<std::uint8_t> active(static_cast<std::size_t>(f.ranks), 1);
      active[active.size() / 2] = 0;
      check_teams(plimsoll::detail::validation_body{ranked, in.counts.view2(f.layers, f.experts),
                                                    plimsoll::vector_ref<std::uint8_t const>(
                                                        active.data(), f.ranks),
                                                    0, plimsoll::fault_kind::none},
                  f.layers);
    }
  }
}

TEST_CASE("placement_maps: shapes and options are checked") {
  ints values(60);
  using matrix = plimsoll::matrix_ref<std::int32_t>;
  auto const m = [&](index_t rows, index_t columns) {
    return matrix(values.data(), rows, columns);
  };
  auto const t = [&](index_t a, index_t b, index_t c) {
    return plimsoll::tensor_ref<std::int32_t>(values.data(), a, b, c);
  };
  auto const& seq = plimsoll::seq;
  CHECK(refusal_of([&] { plimsoll::count_replicas(seq, m(2, 0), m(2, 3)); }) ==
        "count_replicas: physical_to_logical: expected 1 to 2147483647 slots, got 0");
  CHECK(refusal_of([&] { plimsoll::count_replicas(seq, m(2, 4), m(1, 3)); }) ==
        "count_replicas: replica_count: expected 2 layers, got 1");
  CHECK(refusal_of([&] { plimsoll::count_replicas(seq, m(2, 4), m(2, 0)); }) ==
        "count_replicas: replica_count: expected 1 to 65535 experts, got 0");
  CHECK(refusal_of([&] { plimsoll::slots_to_replicas(seq, m(2, 4), m(1, 4), m(2, 4)); }) ==
        "slots_to_replicas: replica_offsets: expected 2 layers, got 1");
  CHECK(refusal_of([&] { plimsoll::slots_to_replicas(seq, m(2, 4), m(2, 1), m(2, 4)); }) ==
        "slots_to_replicas: replica_offsets: expected 2 to 65536 offsets (experts + 1), got 1");
  CHECK(refusal_of([&] { plimsoll::slots_to_replicas(seq, m(2, 4), m(2, 4), m(2, 5)); }) ==
        "slots_to_replicas: replica_slots: expected 4 slots, got 5");
  CHECK(refusal_of([&] { plimsoll::slots_to_replicas(seq, m(2, 4), m(2, 4), m(3, 4)); }) ==
        "slots_to_replicas: replica_slots: expected 2 layers, got 3");
  CHECK(refusal_of([&] {
          plimsoll::replicas_to_slots(seq, {m(2, 4), m(1, 4)}, m(2, 4));
        }) == "replicas_to_slots: replicas.replica_slots: expected 2 layers, got 1");
  CHECK(refusal_of([&] {
          plimsoll::replicas_to_slots(seq, {m(2, 1), m(2, 4)}, m(2, 4));
        }) ==
        "replicas_to_slots: replicas.replica_offsets: expected 2 to 65536 offsets (experts + 1), "
        "got 1");
  CHECK(refusal_of([&] {
          plimsoll::replicas_to_slots(seq, {m(2, 4), m(2, 4)}, m(2, 3));
        }) == "replicas_to_slots: physical_to_logical: expected 4 slots, got 3");
  CHECK(refusal_of([&] {
          plimsoll::replicas_to_slots(seq, {m(2, 4), m(2, 4)}, m(1, 4));
        }) == "replicas_to_slots: physical_to_logical: expected 2 layers, got 1");
  CHECK(refusal_of([&] {
          plimsoll::replicas_to_padded(seq, {m(2, 4), m(2, 4)}, t(1, 3, 2));
        }) == "replicas_to_padded: logical_to_physical: expected 2 layers, got 1");
  CHECK(refusal_of([&] {
          plimsoll::replicas_to_padded(seq, {m(2, 4), m(2, 4)}, t(2, 4, 2));
        }) == "replicas_to_padded: logical_to_physical: expected 3 experts, got 4");
  CHECK(refusal_of([&] {
          plimsoll::replicas_to_padded(seq, {m(2, 4), m(2, 4)}, t(2, 3, 0));
        }) ==
        "replicas_to_padded: logical_to_physical: expected 1 to 2147483647 as the width, got 0");
  CHECK(refusal_of([&] { plimsoll::padded_to_replicas(seq, t(2, 0, 2), m(2, 1), m(2, 4)); }) ==
        "padded_to_replicas: logical_to_physical: expected 1 to 65535 experts, got 0");
  CHECK(refusal_of([&] { plimsoll::padded_to_replicas(seq, t(2, 3, 2), m(1, 4), m(2, 4)); }) ==
        "padded_to_replicas: replica_offsets: expected 2 layers, got 1");
  CHECK(refusal_of([&] { plimsoll::padded_to_replicas(seq, t(2, 3, 2), m(2, 3), m(2, 4)); }) ==
        "padded_to_replicas: replica_offsets: expected 4 offsets (experts + 1), got 3");
  CHECK(refusal_of([&] { plimsoll::padded_to_replicas(seq, t(2, 3, 2), m(2, 4), m(1, 4)); }) ==
        "padded_to_replicas: replica_slots: expected 2 layers, got 1");

  plimsoll::placement_ref const placement{m(2, 4), m(2, 3), 2, {}};
  auto const with = [&](auto change) {
    plimsoll::placement_ref changed = placement;
    change(changed);
    return changed;
  };
  CHECK(refusal_of([&] { plimsoll::slots_to_ranks(seq, placement, t(1, 2, 2)); }) ==
        "slots_to_ranks: rank_experts: expected 2 layers, got 1");
  CHECK(refusal_of([&] { plimsoll::slots_to_ranks(seq, placement, t(2, 3, 2)); }) ==
        "slots_to_ranks: rank_experts: expected 2 ranks, got 3");
  CHECK(refusal_of([&] { plimsoll::slots_to_ranks(seq, placement, t(2, 2, 0)); }) ==
        "slots_to_ranks: rank_experts: expected 1 to 2147483647 as the width, got 0");
  CHECK(refusal_of([&] { plimsoll::ranks_to_slots(seq, t(2, 0, 2), m(2, 4), m(2, 1)); }) ==
        "ranks_to_slots: rank_experts: expected 1 to 32767 ranks, got 0");
  CHECK(refusal_of([&] { plimsoll::ranks_to_slots(seq, t(2, 2, 2), m(1, 4), m(2, 3)); }) ==
        "ranks_to_slots: physical_to_logical: expected 2 layers, got 1");
  CHECK(refusal_of([&] { plimsoll::ranks_to_slots(seq, t(2, 2, 2), m(2, 4), m(1, 3)); }) ==
        "ranks_to_slots: rank_offsets: expected 2 layers, got 1");
  CHECK(refusal_of([&] { plimsoll::ranks_to_slots(seq, t(2, 2, 2), m(2, 4), m(2, 2)); }) ==
        "ranks_to_slots: rank_offsets: expected 3 offsets (ranks + 1), got 2");

  ints ranks{0, 1, -1};
  plimsoll::vector_ref<std::int32_t const> const sources(ranks.data(), 3);
  auto const resize = [&](plimsoll::placement_ref const& from,
                          plimsoll::vector_ref<std::int32_t const> const& source_ranks,
                          matrix const& offsets, matrix const& map, matrix const& counts) {
    return refusal_of(
        [&] { plimsoll::resize_placement(seq, from, source_ranks, offsets, map, counts); });
  };
  CHECK(resize(placement, sources, {}, m(2, 6), m(2, 3)) == "no error");
  CHECK(resize(with([](auto& p) { p.ranks = 0; }), sources, {}, m(2, 6), m(2, 3)) ==
        "resize_placement: from.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(resize(with([&](auto& p) { p.replica_count = m(2, 0); }), sources, {}, m(2, 6), m(2, 3)) ==
        "resize_placement: from.replica_count: expected 1 to 65535 experts, got 0");
  CHECK(resize(placement, {ranks.data(), 0}, {}, m(2, 6), m(2, 3)) ==
        "resize_placement: source_ranks: expected 1 to 32767 ranks, got 0");
  CHECK(resize(placement, sources, m(2, 3), m(2, 6), m(2, 3)) ==
        "resize_placement: rank_offsets: expected 4 offsets (ranks + 1), got 3");
  CHECK(resize(placement, sources, {}, m(1, 6), m(2, 3)) ==
        "resize_placement: physical_to_logical: expected 2 layers, got 1");
  CHECK(resize(placement, sources, {}, m(2, 0), m(2, 3)) ==
        "resize_placement: physical_to_logical: expected 1 to 2147483647 slots, got 0");
  CHECK(resize(placement, sources, {}, m(2, 6), m(2, 4)) ==
        "resize_placement: replica_count: expected 3 experts, got 4");
  CHECK(refusal_of([&] { plimsoll::resize_placement(seq, placement, sources, 0); }) ==
        "resize_placement: slots: expected 1 to 2147483647 slots, got 0");

  CHECK(refusal_of([&] { plimsoll::validate(seq, with([](auto& p) { p.ranks = 0; })); }) ==
        "validate: placement.ranks: expected 1 to 32767 ranks, got 0");
  CHECK(refusal_of([&] {
          plimsoll::validate(seq, with([&](auto& p) { p.physical_to_logical = m(2, 0); }));
        }) == "validate: placement.physical_to_logical: expected 1 to 2147483647 slots, got 0");
  CHECK(refusal_of([&] {
          plimsoll::validate(seq, with([&](auto& p) { p.replica_count = m(1, 3); }));
        }) == "validate: placement.replica_count: expected 2 layers, got 1");
  CHECK(refusal_of([&] {
          plimsoll::validate(seq, with([&](auto& p) { p.replica_count = m(2, 0); }));
        }) == "validate: placement.replica_count: expected 1 to 65535 experts, got 0");
  CHECK(refusal_of([&] {
          plimsoll::validate(seq, with([&](auto& p) { p.rank_offsets = m(2, 2); }));
        }) == "validate: placement.rank_offsets: expected 3 offsets (ranks + 1), got 2");
  CHECK(refusal_of([&] { plimsoll::validate(seq, placement, {.on = {.nodes = 3}}); }) ==
        "validate: options.on.nodes: expected 1 to 2 nodes (at most one per rank), got 3");
  std::vector<std::uint8_t> const active(3, 1);
  CHECK(refusal_of([&] {
          plimsoll::validate(
              seq, placement,
              {.on = {.active = plimsoll::vector_ref<std::uint8_t const>(active.data(), 3)}});
        }) == "validate: options.on.active: expected 2 ranks, got 3");
  CHECK(refusal_of([&] {
          plimsoll::validate(seq, placement, plimsoll::replica_lists_ref{m(1, 4), m(1, 4)});
        }) == "validate: replica_slots: expected 2 layers, got 1");
  CHECK(refusal_of([&] {
          plimsoll::validate(seq, placement, plimsoll::replica_lists_ref{m(2, 5), m(2, 4)});
        }) == "validate: placement.replica_count: expected 4 experts, got 3");
  CHECK(refusal_of([&] {
          plimsoll::validate(seq, placement, plimsoll::replica_lists_ref{m(2, 4), m(2, 5)});
        }) == "validate: replicas.replica_slots: expected 4 slots, got 5");
  CHECK(refusal_of([&] { plimsoll::validate(seq, placement, t(1, 3, 2)); }) ==
        "validate: logical_to_physical: expected 2 layers, got 1");
  CHECK(refusal_of([&] { plimsoll::validate(seq, placement, t(2, 2, 2)); }) ==
        "validate: placement.replica_count: expected 2 experts, got 3");
}

TEST_CASE("placement_maps: temporaries come from the policy and go back, also when it throws") {
  forms const f = random_forms(1, 20);
  REQUIRE(f.layers > 0);
  stored<plimsoll::seq_policy> const in(f);
  check_temporaries(2, [&](auto& resource) {  // reports and one scratch area
    plimsoll::validate(plimsoll::seq(resource), in.placement());
  });
  check_temporaries(2, [&](auto& resource) {
    plimsoll::validate(plimsoll::seq(resource), in.placement(), in.inverse());
  });
}

}  // namespace plimsoll_test
