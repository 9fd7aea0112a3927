// SPDX-License-Identifier: Apache-2.0
// Tests of placement_maps under every policy.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/placement_maps.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "support/generators.hpp"
#include "support/hash.hpp"
#include "support/placement_maps.hpp"
#include "support/policies.hpp"

namespace plimsoll_test {

using namespace placement_maps_support;

PLIMSOLL_TEST_CASE("placement_maps: conversions between the forms", P, PLIMSOLL_POLICIES) {
  auto const policy = make_policy<P>();
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    forms const f = random_forms(seed, 40);
    stored<P> const in(f);
    auto const blank = [&](ints const& like) {
      return array_in<std::int32_t, P>(ints(like.size(), -7));
    };

    auto counts = blank(f.counts);
    plimsoll::count_replicas(policy, in.map.view2(f.layers, f.slots),
                             counts.view2(f.layers, f.experts));
    CHECK(counts.values() == f.counts);

    auto offsets = blank(f.replica_offsets);
    auto slots = blank(f.replica_slots);
    plimsoll::slots_to_replicas(policy, in.map.view2(f.layers, f.slots),
                                offsets.view2(f.layers, f.experts + 1),
                                slots.view2(f.layers, f.slots));
    CHECK(offsets.values() == f.replica_offsets);
    CHECK(slots.values() == f.replica_slots);

    // An engine may list an expert's slots in any order.
    map_draws draw(seed + 1000);
    forms shuffled = f;
    for (std::size_t i = 0; i < f.counts.size(); ++i) {
      std::size_t const row = i * static_cast<std::size_t>(f.copies_width);
      draw.shuffle(shuffled.padded, row, row + static_cast<std::size_t>(f.counts[i]));
      std::size_t const layer = i / static_cast<std::size_t>(f.experts);
      std::size_t const begin = layer * static_cast<std::size_t>(f.slots) +
                                static_cast<std::size_t>(f.replica_offsets[i + layer]);
      draw.shuffle(shuffled.replica_slots, begin, begin + static_cast<std::size_t>(f.counts[i]));
    }
    stored<P> const any(shuffled);

    auto map = blank(f.map);
    plimsoll::replicas_to_slots(policy, any.replicas(), map.view2(f.layers, f.slots));
    CHECK(map.values() == f.map);

    auto padded = blank(f.padded);
    plimsoll::replicas_to_padded(policy, any.replicas(),
                                 padded.view3(f.layers, f.experts, f.copies_width));
    CHECK(padded.values() == f.padded);

    auto offsets_again = blank(f.replica_offsets);
    auto slots_again = blank(f.replica_slots);
    plimsoll::padded_to_replicas(policy, any.inverse(),
                                 offsets_again.view2(f.layers, f.experts + 1),
                                 slots_again.view2(f.layers, f.slots));
    CHECK(offsets_again.values() == f.replica_offsets);
    CHECK(slots_again.values() == f.replica_slots);

    auto lists = blank(f.rank_experts);
    plimsoll::slots_to_ranks(policy, in.placement(), lists.view3(f.layers, f.ranks, f.ranks_width));
    CHECK(lists.values() == f.rank_experts);

    auto rows = blank(f.rank_rows);
    plimsoll::slots_to_rank_rows(policy, in.placement(),
                                 rows.view3(f.layers, f.ranks, f.row_width));
    CHECK(rows.values() == f.rank_rows);

    for (index_t const last : {0, 1}) {  // with and without the end of the last list
      ints starts;
      for (std::size_t i = 0; i < f.replica_offsets.size(); ++i) {
        if (static_cast<index_t>(i) % (f.experts + 1) < f.experts + last) {
          starts.push_back(f.replica_offsets[i]);
        }
      }
      auto three_counts = blank(f.counts), three_starts = blank(starts);
      auto three_slots = blank(f.replica_slots);
      plimsoll::slots_to_replicas(
          policy, in.map.view2(f.layers, f.slots), three_counts.view2(f.layers, f.experts),
          three_starts.view2(f.layers, f.experts + last), three_slots.view2(f.layers, f.slots));
      CHECK(three_counts.values() == f.counts);
      CHECK(three_starts.values() == starts);
      CHECK(three_slots.values() == f.replica_slots);
    }

    auto packed_map = blank(f.map);
    auto packed_offsets = blank(f.rank_offsets);
    plimsoll::ranks_to_slots(policy, in.lists(), packed_map.view2(f.layers, f.slots),
                             packed_offsets.view2(f.layers, f.ranks + 1));
    CHECK(packed_map.values() == f.packed().first);
    CHECK(packed_offsets.values() == f.packed().second);

    CHECK_NOTHROW(plimsoll::validate(policy, in.placement()));
    CHECK_NOTHROW(plimsoll::validate(policy, in.placement(), {}));
    CHECK_NOTHROW(plimsoll::validate(policy, in.placement(), any.replicas()));
    CHECK_NOTHROW(plimsoll::validate(policy, in.placement(), any.inverse()));
    if (seed < 4) {
      report_hash("placement_maps.forms" + std::to_string(seed), offsets.values(), slots.values(),
                  padded.values(), lists.values(), packed_map.values(), packed_offsets.values());
    }
  }
}

PLIMSOLL_TEST_CASE("placement_maps: other ranks", P, PLIMSOLL_POLICIES) {
  auto const policy = make_policy<P>();
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    CAPTURE(seed);
    forms const f = random_forms(seed, 40);
    resized const expected(f, seed + 500);
    stored<P> const in(f);
    array_in<std::int32_t, P> const source_ranks(expected.source_ranks);
    array_in<std::int32_t, P> const offsets(expected.rank_offsets);
    auto const where = offsets.view2(f.layers, expected.ranks() + 1);
    array_in<std::int32_t, P> map(ints(expected.map.size(), -7));
    array_in<std::int64_t, P> counts(std::vector<std::int64_t>(expected.counts.size(), -7));
    plimsoll::resize_placement(policy, in.placement(), source_ranks.view1(), where,
                               map.view2(f.layers, expected.slots),
                               counts.view2(f.layers, f.experts));
    CHECK(map.values() == expected.map);
    CHECK(counts.values() ==
          std::vector<std::int64_t>(expected.counts.begin(), expected.counts.end()));
    if (seed < 4) {
      report_hash("placement_maps.resized" + std::to_string(seed), map.values(), counts.values());
    }
  }
}

PLIMSOLL_TEST_CASE("placement_maps: other ranks, returned", P, PLIMSOLL_PREPARED_POLICIES) {
  auto const policy = make_policy<P>();
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    forms const f = random_forms(seed, 40);
    resized const expected(f, seed + 500);
    stored<P> const in(f);
    array_in<std::int32_t, P> const source_ranks(expected.source_ranks);
    array_in<std::int32_t, P> const offsets(expected.rank_offsets);
    auto const where = offsets.view2(f.layers, expected.ranks() + 1);
    auto const made = plimsoll::resize_placement(policy, in.placement(), source_ranks.view1(),
                                                 expected.slots, where);
    CHECK(made.physical_to_logical.to_host() == expected.map);
    CHECK(made.replica_count.to_host() == expected.counts);
    CHECK(made.rank_offsets.to_host() == expected.rank_offsets);
    CHECK(made.ranks == expected.ranks());
  }
  // Four ranks of six slots and two that join; later the second one is lost.
  ints one;
  for (std::int32_t e = 0; e < 24; ++e) {
    one.push_back(e);
  }
  array_in<std::int32_t, P> const map(one), counts(ints(24, 1));
  plimsoll::placement_ref const four{map.view2(1, 24), counts.view2(1, 24), 4, {}};
  array_in<std::int64_t, P> const grown(std::vector<std::int64_t>{0, 1, 2, 3, -1, -1});
  auto const six = plimsoll::resize_placement(policy, four, grown.view1(), 36);
  ints expected = one;
  expected.resize(36, -1);
  CHECK(six.physical_to_logical.to_host() == expected);
  CHECK(six.replica_count.to_host() == ints(24, 1));
  array_in<std::int32_t, P> const shrunk(ints{0, 2, 3, 4, 5});
  auto const five = plimsoll::resize_placement(policy, six.ref(), shrunk.view1(), 30);
  expected.erase(expected.begin() + 6, expected.begin() + 12);
  CHECK(five.physical_to_logical.to_host() == expected);
  ints copies(24, 1);
  std::fill_n(copies.begin() + 6, 6, 0);
  CHECK(five.replica_count.to_host() == copies);
}

inline std::vector<std::int64_t> wide(ints const& values) { return {values.begin(), values.end()}; }

PLIMSOLL_TEST_CASE("placement_maps: int64 arrays, as engines have them", P, PLIMSOLL_POLICIES) {
  auto const policy = make_policy<P>();
  using longs_in = array_in<std::int64_t, P>;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    forms const f = random_forms(seed, 40);
    stored<P> const in(f);
    longs_in const map(wide(f.map)), padded(wide(f.padded)), lists(wide(f.rank_experts));
    auto const p2l = map.view2(f.layers, f.slots);
    auto const inverse = padded.view3(f.layers, f.experts, f.copies_width);
    auto const blank = [](ints const& like) { return longs_in(wide(ints(like.size(), -7))); };

    auto counts = blank(f.counts);
    plimsoll::count_replicas(policy, p2l, counts.view2(f.layers, f.experts));
    CHECK(counts.values() == wide(f.counts));

    auto offsets = blank(f.replica_offsets);
    auto slots = blank(f.replica_slots);
    auto const offsets_out = offsets.view2(f.layers, f.experts + 1);
    auto const slots_out = slots.view2(f.layers, f.slots);
    plimsoll::slots_to_replicas(policy, p2l, offsets_out, slots_out);
    CHECK(offsets.values() == wide(f.replica_offsets));
    CHECK(slots.values() == wide(f.replica_slots));
    offsets.assign(wide(ints(f.replica_offsets.size(), -7)));
    slots.assign(wide(ints(f.replica_slots.size(), -7)));
    plimsoll::padded_to_replicas(policy, inverse, offsets_out, slots_out);
    CHECK(offsets.values() == wide(f.replica_offsets));
    CHECK(slots.values() == wide(f.replica_slots));

    auto map_out = blank(f.map);
    plimsoll::replicas_to_slots(policy, in.replicas(), map_out.view2(f.layers, f.slots));
    CHECK(map_out.values() == wide(f.map));

    auto padded_out = blank(f.padded);
    plimsoll::replicas_to_padded(policy, in.replicas(),
                                 padded_out.view3(f.layers, f.experts, f.copies_width));
    CHECK(padded_out.values() == wide(f.padded));

    auto lists_out = blank(f.rank_experts);
    plimsoll::slots_to_ranks(policy, in.placement(),
                             lists_out.view3(f.layers, f.ranks, f.ranks_width));
    CHECK(lists_out.values() == wide(f.rank_experts));

    // One array may be int64 and the other int32.
    array_in<std::int32_t, P> packed_map(ints(f.map.size(), -7));
    auto packed_offsets = blank(f.rank_offsets);
    plimsoll::ranks_to_slots(policy, lists.view3(f.layers, f.ranks, f.ranks_width),
                             packed_map.view2(f.layers, f.slots),
                             packed_offsets.view2(f.layers, f.ranks + 1));
    CHECK(packed_map.values() == f.packed().first);
    CHECK(packed_offsets.values() == wide(f.packed().second));

    CHECK_NOTHROW(plimsoll::validate(policy, in.placement(), inverse));
  }
}

PLIMSOLL_TEST_CASE("placement_maps: int64 arrays of any layout", P, PLIMSOLL_POLICIES) {
  // Two layers of four slots, column-major; every other element of the output.
  array_in<std::int64_t, P> const map(std::vector<std::int64_t>{0, 1, 1, 1, -1, 0, 0, 1});
  plimsoll::matrix_ref<std::int64_t const> by_slot = map.view2(2, 4);
  by_slot.strides[0] = 1;
  by_slot.strides[1] = 2;
  array_in<std::int64_t, P> counts(8, std::int64_t{-7});
  plimsoll::matrix_ref<std::int64_t> spaced = counts.view2(2, 2);
  spaced.strides[0] = 4;
  spaced.strides[1] = 2;
  plimsoll::count_replicas(make_policy<P>(), by_slot, spaced);
  CHECK(counts.values() == std::vector<std::int64_t>{2, -7, 1, -7, 1, -7, 3, -7});
}

template <class F>
std::string refusal_of(F call) {
  try {
    call();
  } catch (plimsoll::invalid_input const& error) {
    return error.what();
  }
  return "no error";
}

/// Number of kinds of faults among the messages: those that differ in more than numbers.
inline std::size_t kinds_of(std::vector<std::string> const& messages) {
  std::set<std::string> kinds;
  for (std::string const& message : messages) {
    std::string kind;
    for (char const c : message.substr(0, message.find(", got"))) {
      kind += c >= '0' && c <= '9' ? "" : std::string(1, c);
    }
    kinds.insert(kind);
  }
  return kinds.size();
}

PLIMSOLL_TEST_CASE("placement_maps: validate names the first fault", P, PLIMSOLL_POLICIES) {
  auto const policy = make_policy<P>();
  std::vector<std::string> messages;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    map_draws draw(seed + 5000);
    forms f = random_forms(seed, 6);
    if (f.layers == 0) {
      continue;
    }
    rules r;
    r.replica_anti_affinity = static_cast<anti_affinity>(draw.between(0, 2));
    r.nodes = draw.between(1, f.ranks);
    if (draw.once_in(2)) {
      for (index_t rank = 0; rank < f.ranks; ++rank) {
        r.active.push_back(draw.once_in(8) ? 0 : static_cast<std::uint8_t>(draw.between(1, 255)));
      }
    }
    auto const spoil = [&](ints& values, index_t low, index_t high) {
      auto const i =
          static_cast<std::size_t>(draw.between(0, static_cast<index_t>(values.size()) - 1));
      values[i] = static_cast<std::int32_t>(draw.between(low, high));
    };
    bool readable = true;
    for (index_t spoilt = draw.between(0, 2); spoilt > 0; --spoilt) {
      switch (draw.between(0, 4)) {
        case 0:
          spoil(f.map, -2, f.experts);
          readable = false;
          break;
        case 1:
          spoil(f.map, -1, f.experts - 1);
          break;
        case 2:
          spoil(f.map, -1, f.experts - 1);
          if (readable) {
            f.derive(0);  // makes the counts agree again
          }
          break;
        case 3:
          spoil(f.counts, -1, 4);
          break;
        default:
          if (!f.even) {
            spoil(f.rank_offsets, -1, f.slots + 1);
            readable = false;
          }
      }
    }
    stored<P> const in(f);
    array_in<std::uint8_t, P> const active(r.active);
    plimsoll::validation_options options{.on = {.nodes = r.nodes},
                                         .replica_anti_affinity = r.replica_anti_affinity};
    if (!r.active.empty()) {
      options.on.active = active.view1();
    }
    std::string const expected = first_fault(f, r);
    CHECK(refusal_of([&] { plimsoll::validate(policy, in.placement(), options); }) == expected);
    messages.push_back(expected);
  }
  CHECK(kinds_of(messages) == 9);  // no fault and eight faults
  report_hash("placement_maps.faults", messages);
}

PLIMSOLL_TEST_CASE("placement_maps: validate finds every wrong entry of an inverse", P,
                   PLIMSOLL_POLICIES) {
  auto const policy = make_policy<P>();
  std::vector<std::string> messages;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    map_draws draw(seed + 9000);
    forms f = random_forms(seed, 6);
    if (f.layers == 0) {
      continue;
    }
    ints* const arrays[] = {&f.map, &f.replica_offsets, &f.replica_slots, &f.padded};
    index_t const which = draw.between(0, 3);
    ints& values = *arrays[which];
    auto const i =
        static_cast<std::size_t>(draw.between(0, static_cast<index_t>(values.size()) - 1));
    auto const before = values[i];
    values[i] = static_cast<std::int32_t>(draw.between(-2, f.slots));
    bool const in_lists = which != 2 || before != -1;  // nothing is read after the last list
    stored<P> const in(f);
    for (bool const padded : {false, true}) {
      std::string const expected = first_difference(f, padded);
      bool const concerned = which == 0 || padded == (which == 3);
      CHECK((expected != "no error") == (concerned && in_lists && values[i] != before));
      CHECK(refusal_of([&] {
              padded ? plimsoll::validate(policy, in.placement(), in.inverse())
                     : plimsoll::validate(policy, in.placement(), in.replicas());
            }) == expected);
      messages.push_back(expected);
    }
  }
  CHECK(kinds_of(messages) == 12);  // no fault, offsets, map, gap, and four for each of two forms
}

PLIMSOLL_TEST_CASE("placement_maps: conversions refuse bad maps", P, PLIMSOLL_POLICIES) {
  auto const policy = make_policy<P>();
  auto const lists = [&](ints const& offsets, ints const& slots, index_t width, bool pad) {
    array_in<std::int32_t, P> const a(offsets), b(slots);
    array_in<std::int32_t, P> out(2 * 3 * 9);
    plimsoll::replica_lists_ref const replicas{a.view2(2, 4), b.view2(2, 5)};
    return refusal_of([&] {
      pad ? plimsoll::replicas_to_padded(policy, replicas, out.view3(2, 3, width))
          : plimsoll::replicas_to_slots(policy, replicas, out.view2(2, 5));
    });
  };
  ints const slots{0, 1, 2, 3, 4, 4, 3, 2, 1, -1};
  CHECK(lists({0, 2, 3, 5, 0, 1, 2, 4}, slots, 2, false) == "no error");
  CHECK(lists({0, 2, 3, 5, 0, 1, 2, 4}, slots, 2, true) == "no error");
  for (bool const pad : {false, true}) {
    std::string const name = pad ? "replicas_to_padded: " : "replicas_to_slots: ";
    std::string const offsets =
        name +
        "replica_offsets: expected offsets that rise from 0 to at most the number of slots, ";
    CHECK(lists({0, 2, 3, 5, 1, 1, 2, 4}, slots, 2, pad) == offsets + "got 1 in layer 1, offset 0");
    CHECK(lists({0, 2, 3, 5, 0, 2, 1, 4}, slots, 2, pad) == offsets + "got 1 in layer 1, offset 2");
    CHECK(lists({0, 2, 3, 6, 0, 1, 2, 4}, slots, 2, pad) == offsets + "got 6 in layer 0, offset 3");
    std::string const range =
        name + "replica_slots: expected slots from 0 to below the number of slots, ";
    CHECK(lists({0, 2, 3, 5, 0, 1, 2, 5}, slots, 3, pad) == range + "got -1 in layer 1, expert 2");
    CHECK(lists({0, 2, 3, 5, 0, 1, 2, 4}, {0, 5, 2, 3, 4, 4, 3, 2, 1, -1}, 2, pad) ==
          range + "got 5 in layer 0, expert 0");
    CHECK(lists({0, 2, 3, 5, 0, 1, 2, 4}, {0, 1, 2, 3, 4, 4, 3, 4, 4, -1}, 2, pad) ==
          name + "replica_slots: expected every slot once, got slot 4 again in layer 1, expert 2");
  }
  CHECK(lists({0, 1, 3, 5, 0, 1, 1, 4}, slots, 2, true) ==
        "replicas_to_padded: logical_to_physical: expected at least 3 columns, got 2 in layer 1, "
        "expert 2");

  auto const padded = [&](ints const& entries, index_t slot_count) {
    array_in<std::int32_t, P> const in(entries);
    array_in<std::int32_t, P> offsets(2 * 3), out(2 * slot_count);
    return refusal_of([&] {
      plimsoll::padded_to_replicas(policy, in.view3(2, 2, 3), offsets.view2(2, 3),
                                   out.view2(2, slot_count));
    });
  };
  std::string const name = "padded_to_replicas: logical_to_physical: expected ";
  CHECK(padded({0, 3, -1, 1, 2, -1, 0, 1, 2, -1, -1, -1}, 4) == "no error");
  CHECK(padded({0, 3, -1, 1, 2, -1, 0, 1, 2, -1, -1, 3}, 4) ==
        name +
            "-1 only behind all slots of an expert, got slot 3 behind a -1 in layer 1, expert 1");
  CHECK(padded({0, 3, -1, 1, 2, -1, 0, 1, 2, -2, -1, -1}, 4) ==
        name + "slots from 0 to below the number of slots, got -2 in layer 1, expert 1");
  CHECK(padded({0, 3, -1, 1, 2, -1, 0, 1, 2, -1, -1, -1}, 3) ==
        name + "slots from 0 to below the number of slots, got 3 in layer 0, expert 0");
  CHECK(padded({0, 3, -1, 1, 2, -1, 0, 1, 2, 3, 2, -1}, 4) ==
        name + "every slot once, got slot 2 again in layer 1, expert 1");
  CHECK(padded({0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 2, -1}, 1) ==  // more entries than slots
        name + "every slot once, got slot 0 again in layer 0, expert 0");

  auto const counts = [&](ints const& entries) {
    array_in<std::int32_t, P> const in(entries);
    array_in<std::int32_t, P> out(2 * 4), more(2 * 4);
    std::string const counting =
        refusal_of([&] { plimsoll::count_replicas(policy, in.view2(2, 4), out.view2(2, 3)); });
    std::string const listing = refusal_of([&] {
      plimsoll::slots_to_replicas(policy, in.view2(2, 4), out.view2(2, 4), more.view2(2, 4));
    });
    return counting + "\n" + listing;
  };
  CHECK(counts({0, 1, 2, -1, 2, 1, 0, 3}) ==
        "count_replicas: physical_to_logical: expected -1 or an expert of the layer, got 3 in "
        "layer 1, slot 3\n"
        "slots_to_replicas: physical_to_logical: expected -1 or an expert of the layer, got 3 in "
        "layer 1, slot 3");
  CHECK(counts({0, 1, -2, -1, 2, 1, 0, 0}) ==
        "count_replicas: physical_to_logical: expected -1 or an expert of the layer, got -2 in "
        "layer 0, slot 2\n"
        "slots_to_replicas: physical_to_logical: expected -1 or an expert of the layer, got -2 in "
        "layer 0, slot 2");

  auto const to_ranks = [&](ints const& map, ints const& offsets, index_t width) {
    array_in<std::int32_t, P> const in(map), where(offsets);
    array_in<std::int32_t, P> out(2 * 2 * width);
    return refusal_of([&] {
      plimsoll::slots_to_ranks(policy, {in.view2(2, 4), {}, 2, where.view2(2, 3)},
                               out.view3(2, 2, width));
    });
  };
  CHECK(to_ranks({0, 1, 2, 3, 0, -1, 2, -1}, {0, 2, 4, 0, 1, 3}, 2) == "no error");
  CHECK(to_ranks({0, 1, 2, 3, 0, -1, 2, -1}, {0, 2, 4, 0, 4, 3}, 3) ==
        "slots_to_ranks: rank_offsets: expected offsets that rise from 0 to at most the number of "
        "slots, got 3 in layer 1, rank 1");
  CHECK(to_ranks({0, 1, 2, -2, 0, -1, 2, -1}, {0, 2, 4, 0, 1, 3}, 2) ==
        "slots_to_ranks: physical_to_logical: expected -1 or an expert of the layer, got -2 in "
        "layer 0, rank 1, slot 3");
  CHECK(to_ranks({0, 1, 2, 3, 0, -1, 2, 65535}, {0, 2, 4, 0, 1, 3}, 2) ==
        "slots_to_ranks: physical_to_logical: expected -1 or an expert of the layer, got 65535 in "
        "layer 1, slot 3");
  CHECK(to_ranks({0, 1, 2, 3, 0, -1, 2, 65534}, {0, 2, 4, 0, 1, 3}, 2) ==
        "slots_to_ranks: physical_to_logical: expected -1 in slots that belong to no rank, got "
        "65534 in layer 1, slot 3");
  CHECK(to_ranks({0, 1, 2, 3, 0, 5, 2, -1}, {0, 2, 4, 0, 0, 3}, 2) ==
        "slots_to_ranks: rank_experts: expected at least 3 columns, got 2 in layer 1, rank 1");

  CHECK(refusal_of([&] {
          array_in<std::int32_t, P> const in(ints{0, -1, 1, 0}), copies(ints{2, 1});
          array_in<std::int32_t, P> out(3 * 1);
          array_in<std::int32_t, P> const where(ints{0, 2, 4, 4});
          plimsoll::slots_to_rank_rows(policy,
                                       {in.view2(1, 4), copies.view2(1, 2), 3, where.view2(1, 4)},
                                       out.view3(1, 3, 1));
        }) ==
        "slots_to_rank_rows: rank_experts: expected at least 2 columns, got 1 in layer 0, rank 0");

  auto const to_slots = [&](ints const& entries, index_t slot_count) {
    array_in<std::int32_t, P> const in(entries);
    array_in<std::int32_t, P> map(2 * slot_count), offsets(2 * 3);
    return refusal_of([&] {
      plimsoll::ranks_to_slots(policy, in.view3(2, 2, 2), map.view2(2, slot_count),
                               offsets.view2(2, 3));
    });
  };
  CHECK(to_slots({0, 1, 2, -1, 4, -1, -1, -1}, 3) == "no error");
  CHECK(to_slots({0, 1, 2, -1, 4, -1, -1, 3}, 3) ==
        "ranks_to_slots: rank_experts: expected -1 only behind all experts of a rank, got expert 3 "
        "behind a -1 in layer 1, rank 1");
  CHECK(to_slots({0, 1, 2, -1, 4, -1, 65535, -1}, 3) ==
        "ranks_to_slots: rank_experts: expected -1 or an expert, got 65535 in layer 1, rank 1");
  CHECK(to_slots({0, 1, 2, -1, 65534, -2, -1, -1}, 3) ==
        "ranks_to_slots: rank_experts: expected -1 or an expert, got -2 in layer 1, rank 0");
  CHECK(to_slots({0, 1, 2, -1, 4, 5, 6, 7}, 3) ==
        "ranks_to_slots: physical_to_logical: expected at least 4 slots, got 3 in layer 1");

  auto const resize = [&](ints const& map, ints const& before, ints const& ranks,
                          ints const& after) {
    array_in<std::int32_t, P> const in(map), of(before), from(ranks), where(after);
    array_in<std::int32_t, P> out(2 * 5), counts_out(2 * 4);
    index_t const n = static_cast<index_t>(ranks.size());
    return refusal_of([&] {
      plimsoll::resize_placement(
          policy,
          {in.view2(2, 4), plimsoll::matrix_ref<std::int32_t const>(nullptr, 2, 4), 2,
           of.view2(2, 3)},
          from.view1(), where.view2(2, n + 1), out.view2(2, 5), counts_out.view2(2, 4));
    });
  };
  ints const good{0, 1, 2, 3, 0, -1, 2, -1};
  ints const ranges{0, 2, 4, 0, 1, 3};
  CHECK(resize(good, ranges, {1, -1, 0}, {0, 2, 2, 5, 0, 2, 2, 3}) == "no error");
  CHECK(resize(good, {0, 2, 4, 0, 4, 3}, {1}, {0, 5, 0, 5}) ==
        "resize_placement: from.rank_offsets: expected offsets that rise from 0 to at most the "
        "number "
        "of slots, got 3 in layer 1, rank 1");
  CHECK(
      resize({0, 1, 2, 3, 0, 4, 2, -1}, ranges, {1}, {0, 5, 0, 5}) ==
      "resize_placement: from.physical_to_logical: expected -1 or an expert of the layer, got 4 in "
      "layer 1, rank 1, slot 1");
  CHECK(resize({0, 1, 2, 3, 0, 1, 2, 3}, ranges, {1}, {0, 5, 0, 5}) ==
        "resize_placement: from.physical_to_logical: expected -1 in slots that belong to no rank, "
        "got "
        "3 in layer 1, slot 3");
  CHECK(resize(good, ranges, {1, 2}, {0, 2, 5, 0, 2, 5}) ==
        "resize_placement: source_ranks: expected -1 or a rank below the 2 of from, got 2 for rank "
        "1");
  CHECK(
      resize(good, ranges, {-2}, {0, 5, 0, 5}) ==
      "resize_placement: source_ranks: expected -1 or a rank below the 2 of from, got -2 for rank "
      "0");
  CHECK(resize(good, ranges, {1, 0, 1}, {0, 1, 2, 5, 0, 1, 2, 5}) ==
        "resize_placement: source_ranks: expected every rank of from at most once, got rank 1 2 "
        "times");
  CHECK(
      resize(good, ranges, {1, 0}, {0, 2, 5, 0, 6, 5}) ==
      "resize_placement: rank_offsets: expected offsets that rise from 0 to at most the number of "
      "slots, got 6 in layer 1, rank 0");
  CHECK(resize(good, ranges, {1, 0}, {0, 1, 5, 0, 2, 5}) ==
        "resize_placement: rank_offsets: expected a slot of rank 0 for every expert that it holds, "
        "got "
        "none for expert 3 in layer 0, slot 3");
}

PLIMSOLL_TEST_CASE("placement_maps: ids beyond int32 are refused, not cut off", P,
                   PLIMSOLL_POLICIES) {
  auto const policy = make_policy<P>();
  std::int64_t const beyond = std::int64_t{1} << 32;  // its low half is expert 0
  for (std::int64_t const id : {beyond, beyond + 1, -beyond, std::int64_t{INT32_MAX} + 1,
                                std::numeric_limits<std::int64_t>::min()}) {
    CAPTURE(id);
    array_in<std::int64_t, P> const map(std::vector<std::int64_t>{0, 1, id, 1});
    array_in<std::int64_t, P> counts(2);
    CHECK(refusal_of(
              [&] { plimsoll::count_replicas(policy, map.view2(1, 4), counts.view2(1, 2)); }) ==
          "count_replicas: physical_to_logical: expected -1 or an expert of the layer, got "
          "-2147483648 in layer 0, slot 2");
  }
  array_in<std::int64_t, P> const padded(std::vector<std::int64_t>{0, beyond, 1, -1});
  array_in<std::int32_t, P> const map(ints{0, 1}), copies(ints{1, 1});
  CHECK(refusal_of([&] {
          plimsoll::validate(policy,
                             plimsoll::placement_ref{map.view2(1, 2), copies.view2(1, 2), 1, {}},
                             padded.view3(1, 2, 2));
        }) ==
        "validate: logical_to_physical: expected slots from 0 to below the number of slots, got "
        "-2147483648 in layer 0, expert 0");
}

PLIMSOLL_TEST_CASE("placement_maps: edges", P, PLIMSOLL_POLICIES) {
  auto const policy = make_policy<P>();
  SUBCASE("strided views in and out") {
    // Two layers of three slots, the second before the first, with a gap after each element.
    array_in<std::int32_t, P> const in(ints{1, 9, 0, 9, 1, 9, 0, 9, 0, 9, 1, 9});
    plimsoll::matrix_ref<std::int32_t const> map = in.view2(2, 3);
    map.data += 6;
    map.strides[0] = -6;
    map.strides[1] = 2;
    array_in<std::int32_t, P> out(ints(24, -7));
    plimsoll::matrix_ref<std::int32_t> offsets = out.view2(2, 3);
    offsets.strides[0] = 1;
    offsets.strides[1] = 2;
    array_in<std::int32_t, P> more(ints(12, -7));
    plimsoll::matrix_ref<std::int32_t> slots = more.view2(2, 3);
    slots.strides[0] = 6;
    slots.strides[1] = 2;
    plimsoll::slots_to_replicas(policy, map, offsets, slots);
    ints const got = out.values();
    CHECK(ints(got.begin(), got.begin() + 7) == ints{0, 0, 2, 1, 3, 3, -7});
    CHECK(more.values() == ints{0, -7, 1, -7, 2, -7, 1, -7, 0, -7, 2, -7});

    plimsoll::replica_lists_ref const lists{offsets, slots};
    array_in<std::int32_t, P> wide(ints(24, -7));
    plimsoll::tensor_ref<std::int32_t> padded = wide.view3(2, 2, 3);
    for (index_t& stride : padded.strides) {
      stride *= 2;
    }
    plimsoll::replicas_to_padded(policy, lists, padded);
    CHECK(wide.values() == ints{0, -7, 1,  -7, -1, -7, 2, -7, -1, -7, -1, -7,
                                1, -7, -1, -7, -1, -7, 0, -7, 2,  -7, -1, -7});
    array_in<std::int32_t, P> const counts(ints{2, 1, 1, 2});
    plimsoll::placement_ref const placement{map, counts.view2(2, 2), 1, {}};
    CHECK_NOTHROW(plimsoll::validate(policy, placement, lists));
    CHECK_NOTHROW(plimsoll::validate(policy, placement, padded));

    array_in<std::int32_t, P> back(ints(6, -7));
    plimsoll::matrix_ref<std::int32_t> back_map = back.view2(2, 3);
    back_map.strides[0] = 1;
    back_map.strides[1] = 2;
    plimsoll::replicas_to_slots(policy, lists, back_map);
    CHECK(back.values() == ints{0, 1, 0, 0, 1, 1});
  }
  SUBCASE("one expert in one slot") {
    forms f;
    f.layers = f.experts = f.ranks = f.slots = 1;
    f.map = {0};
    f.rank_offsets = {0, 1};
    f.derive(0);
    stored<P> const in(f);
    CHECK_NOTHROW(
        plimsoll::validate(policy, in.placement(), {.replica_anti_affinity = anti_affinity::node}));
  }
  SUBCASE("all slots empty") {
    array_in<std::int32_t, P> const in(ints(4, -1));
    array_in<std::int32_t, P> offsets(3, -7), slots(4, -7), padded(4, -7);
    plimsoll::slots_to_replicas(policy, in.view2(1, 4), offsets.view2(1, 3), slots.view2(1, 4));
    CHECK(offsets.values() == ints(3, 0));
    CHECK(slots.values() == ints(4, -1));
    plimsoll::replicas_to_padded(policy, {offsets.view2(1, 3), slots.view2(1, 4)},
                                 padded.view3(1, 2, 2));
    CHECK(padded.values() == ints(4, -1));
  }
  SUBCASE("all slots of one expert, on more ranks than slots") {
    forms f;
    f.layers = f.experts = 1;
    f.slots = 3;
    f.ranks = 7;
    f.even = true;
    f.map = {0, 0, 0};
    f.rank_offsets = {0, 0, 0, 1, 1, 2, 2, 3};
    f.derive(0);
    stored<P> const in(f);
    CHECK_NOTHROW(
        plimsoll::validate(policy, in.placement(), {.replica_anti_affinity = anti_affinity::rank}));
    CHECK(refusal_of([&] {
            plimsoll::validate(policy, in.placement(),
                               {.on = {.nodes = 2}, .replica_anti_affinity = anti_affinity::node});
          }) ==
          "validate: physical_to_logical: expected at most 1 replica of an expert on a node, got 2 "
          "in layer 0, node 1, expert 0");
  }
}

}  // namespace plimsoll_test
