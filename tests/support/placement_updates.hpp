// SPDX-License-Identifier: Apache-2.0
// Random placements that prepared objects take one after the other, some of them refused, and what
// every layer holds after each.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generators.hpp"
#include "policies.hpp"
#include "refusal.hpp"

namespace plimsoll_test {

/// The placement of one layer and its ranks, on the host. Without offsets, slots are spread evenly.
struct placed_layer {
  std::vector<std::int32_t> map;
  std::vector<std::int32_t> offsets;
  std::vector<std::uint8_t> active;
  std::vector<double> speeds;
};

/// Arrays in the memory of a policy, and their views: a placement and its ranks.
template <class P>
class placement_arrays {
 public:
  placement_arrays(std::vector<placed_layer> const& rows, index_t experts)
      : layers_(static_cast<index_t>(rows.size())),
        slots_(static_cast<index_t>(rows[0].map.size())),
        ranks_(static_cast<index_t>(rows[0].active.size())),
        experts_(experts),
        map_(joined(rows, &placed_layer::map)),
        offsets_(joined(rows, &placed_layer::offsets)),
        active_(rows[0].active),
        speeds_(rows[0].speeds) {}

  [[nodiscard]] plimsoll::placement_ref placement() const {
    plimsoll::placement_ref result{.physical_to_logical = map_.view2(layers_, slots_),
                                   .replica_count = {nullptr, layers_, experts_},
                                   .ranks = ranks_};
    if (offsets_.size() > 0) {
      result.rank_offsets = offsets_.view2(layers_, ranks_ + 1);
    }
    return result;
  }
  [[nodiscard]] plimsoll::rank_set on() const {
    return {.ranks = ranks_, .active = active_.view1(), .speeds = speeds_.view1()};
  }
  /// Overwrites everything with values that no placement has.
  void spoil() {
    map_.assign(std::vector<std::int32_t>(static_cast<std::size_t>(map_.size()), 0x7ffffff));
    offsets_.assign(std::vector<std::int32_t>(static_cast<std::size_t>(offsets_.size()), -9));
    active_.assign(std::vector<std::uint8_t>(static_cast<std::size_t>(ranks_), 0));
    speeds_.assign(std::vector<double>(static_cast<std::size_t>(ranks_), -1));
  }
  /// Takes other values of the same shapes.
  void assign(std::vector<placed_layer> const& rows) {
    map_.assign(joined(rows, &placed_layer::map));
    offsets_.assign(joined(rows, &placed_layer::offsets));
    active_.assign(rows[0].active);
    speeds_.assign(rows[0].speeds);
  }

 private:
  static std::vector<std::int32_t> joined(std::vector<placed_layer> const& rows,
                                          std::vector<std::int32_t> placed_layer::*list) {
    std::vector<std::int32_t> all;
    for (placed_layer const& row : rows) {
      all.insert(all.end(), (row.*list).begin(), (row.*list).end());
    }
    return all;
  }

  index_t layers_;
  index_t slots_;
  index_t ranks_;
  index_t experts_;
  array_in<std::int32_t, P> map_;
  array_in<std::int32_t, P> offsets_;
  array_in<std::uint8_t, P> active_;
  array_in<double, P> speeds_;
};

/// Draws placements: uneven ranks, empty slots, several copies on a rank, experts without a slot,
/// dead and slow ranks, fewer slots than there is room for.
struct placement_draws {
  index_t layers;
  index_t experts;
  index_t ranks;
  index_t max_slots;
  generator draw;

  explicit placement_draws(std::uint64_t seed)
      : layers(0), experts(0), ranks(0), max_slots(0), draw(seed) {
    layers = draw.between(1, 3);
    experts = draw.between(1, 24);
    ranks = draw.between(1, 9);
    max_slots = draw.between(ranks, experts + 3 * ranks + 2);
  }

  /// Returns placements of `count` layers on the same ranks.
  [[nodiscard]] std::vector<placed_layer> rows(index_t count, index_t slots) {
    std::vector<std::uint8_t> active(static_cast<std::size_t>(ranks), 1);
    std::vector<double> speeds(static_cast<std::size_t>(ranks), 1.5);
    if (draw.between(0, 2) == 0) {
      for (std::size_t r = 1; r < active.size(); ++r) {
        active[r] = draw.between(0, 3) > 0;
      }
    }
    if (draw.between(0, 2) == 0) {
      for (double& speed : speeds) {
        speed = static_cast<double>(draw.between(1, 6)) * 0.5;
      }
    }
    bool const even = draw.between(0, 2) == 0;
    std::vector<placed_layer> result;
    for (index_t i = 0; i < count; ++i) {
      placed_layer one{map(slots), even ? std::vector<std::int32_t>{} : offsets(slots), active,
                       speeds};
      result.push_back(one);
    }
    return result;
  }

 private:
  [[nodiscard]] std::vector<std::int32_t> map(index_t slots) {
    std::vector<std::int32_t> result;
    std::int64_t const first = draw.between(0, experts - 1);
    for (index_t s = 0; s < slots; ++s) {
      std::int64_t const e = s < experts ? (first + s) % experts : draw.between(0, experts - 1);
      result.push_back(draw.between(0, 11) == 0 ? -1 : static_cast<std::int32_t>(e));
    }
    for (std::size_t s = result.size(); s > 1; --s) {
      std::swap(
          result[s - 1],
          result[static_cast<std::size_t>(draw.between(0, static_cast<std::int64_t>(s) - 1))]);
    }
    return result;
  }
  [[nodiscard]] std::vector<std::int32_t> offsets(index_t slots) {
    std::vector<std::int32_t> result{0};
    for (index_t r = 0; r < ranks; ++r) {
      auto const left = slots - result.back();
      result.push_back(result.back() + static_cast<std::int32_t>(draw.between(
                                           0, std::min<index_t>(left, 2 * slots / ranks + 1))));
    }
    return result;
  }
};

/// An object's layers as a sequence of updates leaves them.
template <class P>
class updated_placement {
 public:
  explicit updated_placement(std::uint64_t seed)
      : draws_(seed), now_(draws_.rows(draws_.layers, first_slots())) {}

  [[nodiscard]] index_t layers() const { return draws_.layers; }
  [[nodiscard]] index_t experts() const { return draws_.experts; }
  [[nodiscard]] index_t max_slots() const { return draws_.max_slots; }
  [[nodiscard]] generator& draw() { return draws_.draw; }
  [[nodiscard]] placed_layer const& layer(index_t i) const {
    return now_[static_cast<std::size_t>(i)];
  }
  [[nodiscard]] std::vector<placed_layer> const& all() const { return now_; }
  /// Returns all layers with the same number of slots, and offsets.
  [[nodiscard]] std::vector<placed_layer> whole() const {
    std::vector<placed_layer> result = now_;
    for (placed_layer& one : result) {
      auto const slots = static_cast<index_t>(one.map.size());
      for (index_t r = 0; one.offsets.size() <= static_cast<std::size_t>(draws_.ranks); ++r) {
        one.offsets.push_back(static_cast<std::int32_t>(r * slots / draws_.ranks));
      }
      one.map.resize(static_cast<std::size_t>(draws_.max_slots), -1);
    }
    return result;
  }

  /// Updates an object, mostly with a placement that it takes. `update(first_layer, placement, on)`
  /// updates it; `on` may be null. Returns the first layer whose last update was refused, or -1.
  template <class Update>
  index_t step(Update const& update) {
    generator& draw = draws_.draw;
    index_t const first = draw.between(0, draws_.layers - 1);
    index_t const count = draw.between(1, draws_.layers - first);
    bool const same_ranks = draw.between(0, 1) == 0;
    std::vector<placed_layer> rows =
        draws_.rows(count, draw.between(draws_.ranks, draws_.max_slots));
    index_t const refused = draw.between(0, 2) == 0 ? plant(rows, same_ranks) : count;
    bool const all = refused < 0;  // the ranks are refused
    {
      placement_arrays<P> arrays(rows, draws_.experts);
      plimsoll::rank_set const on = arrays.on();
      update(first, arrays.placement(), same_ranks ? nullptr : &on);
      plimsoll::detail::synchronize(plimsoll::detail::resolve(make_policy<P>()));
      arrays.spoil();  // the object has copied them
    }
    for (index_t i = 0; i < count; ++i) {
      refused_[static_cast<std::size_t>(first + i)] = all || i == refused;
      if (all || i == refused) {
        continue;
      }
      placed_layer& here = now_[static_cast<std::size_t>(first + i)];
      placed_layer const before = here;
      here = rows[static_cast<std::size_t>(i)];
      if (same_ranks) {
        here.active = before.active;
        here.speeds = before.speeds;
      }
    }
    auto const found = std::find(refused_.begin(), refused_.end(), true);
    return found == refused_.end() ? index_t{-1} : found - refused_.begin();
  }

 private:
  [[nodiscard]] index_t first_slots() {
    return draws_.draw.between(draws_.ranks, draws_.max_slots);
  }
  /// Makes a value wrong. Returns its row, or -1 if it is one of the ranks.
  index_t plant(std::vector<placed_layer>& rows, bool same_ranks) {
    generator& draw = draws_.draw;
    std::int64_t const last = static_cast<std::int64_t>(rows.size()) - 1;
    index_t const row = draw.between(0, last);
    placed_layer& bad = rows[static_cast<std::size_t>(row)];
    std::int64_t const kind = draw.between(0, same_ranks ? 1 : 3);
    if (kind == 1 && !bad.offsets.empty()) {
      auto const at = static_cast<std::size_t>(
          draw.between(0, static_cast<std::int64_t>(bad.offsets.size()) - 1));
      bad.offsets[at] =
          draw.between(0, 1) == 0 ? -1 : static_cast<std::int32_t>(bad.map.size() + 1);
      return row;
    }
    if (kind == 2) {
      for (placed_layer& one : rows) {
        one.active.assign(one.active.size(), 0);
      }
      return -1;
    }
    if (kind == 3) {
      rows[0].speeds.back() = draw.between(0, 1) == 0 ? 0.0 : -1.0;
      return -1;
    }
    // Every slot of an even placement belongs to a rank; with offsets, those of a rank may be few.
    bad.offsets.clear();
    for (placed_layer& one : rows) {
      one.offsets.clear();
    }
    bad.map[static_cast<std::size_t>(
        draw.between(0, static_cast<std::int64_t>(bad.map.size()) - 1))] =
        draw.between(0, 1) == 0 ? -2 : static_cast<std::int32_t>(draws_.experts);
    return row;
  }

  placement_draws draws_;
  std::vector<placed_layer> now_;
  std::vector<bool> refused_ = std::vector<bool>(now_.size(), false);
};

/// Checks that an object finds the placement that it holds, and a slot or an offset that differs.
template <class P, class Object>
void check_current(Object const& object, updated_placement<P>& model, std::string const& name) {
  std::vector<placed_layer> rows = model.whole();
  placement_arrays<P> arrays(rows, model.experts());
  CHECK(refusal_of([&] { object.expect_current(arrays.placement()); }) == "no error");
  index_t const layer = model.draw().between(0, model.layers() - 1);
  index_t const slot = model.draw().between(0, model.max_slots() - 1);
  std::int32_t& e = rows[static_cast<std::size_t>(layer)].map[static_cast<std::size_t>(slot)];
  std::int32_t const kept = e;
  e = e < 0 ? 0 : -1;
  arrays.assign(rows);
  check_message(refusal_of([&] { object.expect_current(arrays.placement()); }),
                name + "::expect_current: placement.physical_to_logical: expected " +
                    std::to_string(kept) + ", as in the placement in use, got " +
                    std::to_string(e) + " in layer " + std::to_string(layer) + ", slot " +
                    std::to_string(slot));
  e = kept;
  std::int32_t& end = rows[static_cast<std::size_t>(layer)].offsets.back();
  ++end;
  arrays.assign(rows);
  check_message(refusal_of([&] { object.expect_current(arrays.placement()); }),
                name + "::expect_current: placement.rank_offsets: expected " +
                    std::to_string(end - 1) + ", as in the placement in use, got " +
                    std::to_string(end) + " in layer " + std::to_string(layer) + ", rank " +
                    std::to_string(rows[0].offsets.size() - 1));
}

/// Checks that `check` of an object named the layer that an update refused, if any.
template <class Object>
void check_update(Object const& object, std::string const& name, index_t refused) {
  std::string const message = refusal_of([&] { object.check(); });
  if (refused < 0) {
    CHECK(!message.starts_with(name + "::update"));
    return;
  }
  CAPTURE(message);
  CHECK(message.starts_with(name + "::update: "));
  CHECK(message.find(" in layer " + std::to_string(refused)) != std::string::npos);
}

}  // namespace plimsoll_test
