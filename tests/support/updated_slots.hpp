// SPDX-License-Identifier: Apache-2.0
// Random slots of ranks that prepared objects take one after the other, some of them refused, and
// the ones that are in use after each.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/views.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "generators.hpp"
#include "policies.hpp"
#include "refusal.hpp"

namespace plimsoll_test {

/// The slots, liveness and speeds of ranks.
struct slots_of_ranks {
  std::vector<std::int32_t> offsets;  ///< [ranks + 1] or empty
  std::vector<std::uint8_t> active;
  std::vector<double> speeds;
};

/// Slots of ranks in the memory of a policy, and their views.
template <class P>
class slot_arrays {
 public:
  explicit slot_arrays(slots_of_ranks const& of)
      : offsets_(of.offsets), active_(of.active), speeds_(of.speeds) {}

  [[nodiscard]] plimsoll::vector_ref<std::int32_t const> rank_offsets() const {
    return offsets_.size() == 0 ? plimsoll::vector_ref<std::int32_t const>{} : offsets_.view1();
  }
  [[nodiscard]] plimsoll::rank_set on() const {
    return {.ranks = active_.size(), .active = active_.view1(), .speeds = speeds_.view1()};
  }

 private:
  array_in<std::int32_t, P> offsets_;
  array_in<std::uint8_t, P> active_;
  array_in<double, P> speeds_;
};

/// The slots of ranks as a sequence of updates leaves them. Rank `live` always lives.
template <class P>
class updated_slots {
 public:
  updated_slots(generator& draw, index_t ranks, index_t slots, index_t live)
      : draw_(draw), ranks_(ranks), slots_(slots), live_(live), now_(drawn()) {}

  /// Returns a copy of the slots in use, in the memory of the policy.
  [[nodiscard]] slot_arrays<P> in_use() const { return slot_arrays<P>(now_); }
  [[nodiscard]] bool lives(index_t r) const {
    return now_.active[static_cast<std::size_t>(r)] != 0;
  }
  [[nodiscard]] bool all_live() const {
    return std::find(now_.active.begin(), now_.active.end(), 0) == now_.active.end();
  }

  /// Draws ids: slots of live ranks, those of the first ranks more often, and some -1.
  [[nodiscard]] std::vector<std::int32_t> ids(index_t count) {
    std::vector<std::int32_t> result;
    for (index_t i = 0; i < count; ++i) {
      index_t const last = draw_.between(0, 1) == 0 ? slots_ - 1 : slots_ / 2;
      auto const id = static_cast<std::int32_t>(draw_.between(-1, last));
      result.push_back(id >= 0 && is_dead(id) ? -1 : id);
    }
    return result;
  }

  /// Updates an object with slots that it takes or, in a third of the calls, refuses, and checks
  /// that `check` says which. The arrays are freed before this returns.
  template <class Object>
  void step(Object& object, std::string const& name) {
    slots_of_ranks next = drawn();
    bool const same_ranks = draw_.between(0, 1) == 0;
    bool const refused = draw_.between(0, 2) == 0 && plant(next, same_ranks);
    {
      slot_arrays<P> const given(next);
      same_ranks ? object.update(given.rank_offsets())
                 : object.update(given.rank_offsets(), given.on());
      std::string const message = refusal_of([&] { object.check(); });  // waits
      CAPTURE(message);
      CHECK(message.starts_with(name + "::update: ") == refused);
    }
    if (refused) {
      return;
    }
    if (same_ranks) {
      next.active = now_.active;
      next.speeds = now_.speeds;
    }
    now_ = next;
  }

  /// Checks that an object finds the slots that it uses, and an offset that differs.
  template <class Object>
  void check_current(Object const& object, std::string const& name) {
    CHECK(refusal_of([&] { object.expect_current(in_use().rank_offsets()); }) == "no error");
    slots_of_ranks other = now_;
    if (other.offsets.empty()) {
      return;
    }
    auto const at = static_cast<std::size_t>(draw_.between(0, ranks_));
    std::int32_t const got = ++other.offsets[at];
    slot_arrays<P> const given(other);
    check_message(refusal_of([&] { object.expect_current(given.rank_offsets()); }),
                  name + "::expect_current: rank_offsets: expected " + std::to_string(got - 1) +
                      ", as in the slots in use, got " + std::to_string(got) + " at " +
                      std::to_string(at));
  }

 private:
  /// Draws ranks, each with a slot.
  [[nodiscard]] slots_of_ranks drawn() {
    slots_of_ranks result{{0}, {}, {}};
    bool const unequal = draw_.between(0, 2) == 0;
    for (index_t r = 0; r < ranks_; ++r) {
      result.active.push_back(r == live_ || draw_.between(0, 3) > 0);
      result.speeds.push_back(unequal ? static_cast<double>(draw_.between(1, 6)) * 0.5 : 1.5);
      index_t const left = slots_ - result.offsets.back() - (ranks_ - r);
      result.offsets.push_back(
          result.offsets.back() + 1 +
          static_cast<std::int32_t>(draw_.between(0, std::min<index_t>(left, 4))));
    }
    if (draw_.between(0, 3) == 0) {
      result.offsets.clear();
    }
    return result;
  }
  /// Makes a value wrong. Returns whether there is one to make wrong.
  bool plant(slots_of_ranks& next, bool same_ranks) {
    switch (draw_.between(0, same_ranks ? 1 : 3)) {
      case 0:
        next.offsets.assign(static_cast<std::size_t>(ranks_) + 1, 0);  // `live_` has no slot
        return true;
      case 1:
        if (!next.offsets.empty()) {
          next.offsets.back() = static_cast<std::int32_t>(slots_) + 1;
        }
        return !next.offsets.empty();
      case 2:
        next.active.assign(next.active.size(), 0);
        return true;
      default:
        next.speeds[static_cast<std::size_t>(live_)] = -1;
        return true;
    }
  }
  [[nodiscard]] bool is_dead(std::int32_t slot) const {
    for (index_t r = 0; r < ranks_; ++r) {
      auto const i = static_cast<std::size_t>(r);
      index_t const first = now_.offsets.empty() ? r * slots_ / ranks_ : now_.offsets[i];
      index_t const last = now_.offsets.empty() ? (r + 1) * slots_ / ranks_ : now_.offsets[i + 1];
      if (slot >= first && slot < last) {
        return !lives(r);
      }
    }
    return false;  // a slot of no rank, which objects count
  }

  generator& draw_;
  index_t ranks_;
  index_t slots_;
  index_t live_;
  slots_of_ranks now_;
};

}  // namespace plimsoll_test
