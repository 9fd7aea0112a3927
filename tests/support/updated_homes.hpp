// SPDX-License-Identifier: Apache-2.0
// Random homes of experts that planners take one after the other, some of them refused, and the
// ones that are in use after each.
#pragma once

#include <doctest/doctest.h>
#include <plimsoll/least_loaded_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/views.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "generators.hpp"
#include "policies.hpp"
#include "refusal.hpp"

namespace plimsoll_test {

/// The homes of experts and their ranks: slots with offsets, or a rank for each expert.
struct homes_of_experts {
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> offsets;
  std::vector<std::int32_t> home_rank;
  std::vector<std::uint8_t> active;
  std::vector<double> speeds;

  [[nodiscard]] bool lives(std::int64_t r) const {
    return active[static_cast<std::size_t>(r)] != 0;
  }
  /// Returns the rank of a slot.
  [[nodiscard]] std::int64_t rank_of(std::size_t slot) const {
    return std::upper_bound(offsets.begin(), offsets.end(), static_cast<std::int32_t>(slot)) -
           offsets.begin() - 1;
  }
  /// Returns the number of homes of every expert on live ranks.
  [[nodiscard]] std::vector<index_t> live_homes(index_t experts) const {
    std::vector<index_t> result(static_cast<std::size_t>(experts), 0);
    for (std::size_t e = 0; e < home_rank.size(); ++e) {
      result[e] += lives(home_rank[e]);
    }
    for (std::size_t s = 0; s < slots.size(); ++s) {
      if (slots[s] >= 0) {
        result[static_cast<std::size_t>(slots[s])] += lives(rank_of(s));
      }
    }
    return result;
  }
  [[nodiscard]] bool is_valid(index_t experts) const {
    std::vector<index_t> const homes = live_homes(experts);
    return std::find(homes.begin(), homes.end(), 0) == homes.end();
  }
};

/// Homes of experts in the memory of a policy, and their views.
template <class P>
class home_arrays {
 public:
  explicit home_arrays(homes_of_experts const& of)
      : slots_(of.slots),
        offsets_(of.offsets),
        home_rank_(of.home_rank),
        active_(of.active),
        speeds_(of.speeds) {}

  [[nodiscard]] bool has_residents() const { return slots_.size() > 0; }
  [[nodiscard]] plimsoll::placement_ref residents() const {
    return {.physical_to_logical = slots_.view2(1, slots_.size()),
            .ranks = active_.size(),
            .rank_offsets = offsets_.view2(1, offsets_.size())};
  }
  [[nodiscard]] plimsoll::vector_ref<std::int32_t const> home_rank() const {
    return home_rank_.view1();
  }
  [[nodiscard]] plimsoll::rank_set on() const {
    return {.ranks = active_.size(), .active = active_.view1(), .speeds = speeds_.view1()};
  }
  /// Sets homes and ranks of options.
  void give(plimsoll::least_loaded_options& options) const {
    options.on = on();
    options.residents = has_residents() ? residents() : plimsoll::placement_ref{};
    options.home_rank = has_residents() ? plimsoll::vector_ref<std::int32_t const>{} : home_rank();
  }
  /// Updates a planner; with `same_ranks` its ranks stay.
  template <class Planner>
  void update(Planner& planner, bool same_ranks) const {
    same_ranks ? planner.update(homes()) : planner.update(homes(), on());
  }
  [[nodiscard]] plimsoll::expert_homes homes() const {
    if (has_residents()) {
      return {.residents = residents()};
    }
    return {.home_rank = home_rank()};
  }

 private:
  array_in<std::int32_t, P> slots_;
  array_in<std::int32_t, P> offsets_;
  array_in<std::int32_t, P> home_rank_;
  array_in<std::uint8_t, P> active_;
  array_in<double, P> speeds_;
};

/// The homes of experts as a sequence of updates leaves them.
template <class P>
class updated_homes {
 public:
  updated_homes(generator& draw, index_t experts, index_t ranks, index_t max_slots)
      : draw_(draw), experts_(experts), ranks_(ranks), max_slots_(max_slots) {
    do {
      now_ = drawn(nullptr);
    } while (!now_.is_valid(experts));
  }

  /// Returns a copy of the homes in use, in the memory of the policy.
  [[nodiscard]] home_arrays<P> in_use() const { return home_arrays<P>(now_); }
  [[nodiscard]] bool all_live() const {
    return std::find(now_.active.begin(), now_.active.end(), 0) == now_.active.end();
  }

  /// Updates planners with homes, some of which they refuse, and checks that `check` says which.
  /// The arrays are freed before this returns. Returns whether the homes were refused.
  template <class Planners>
  bool step(Planners& planners, std::string const& name) {
    bool const same_ranks = draw_.between(0, 1) == 0;
    homes_of_experts next = drawn(same_ranks ? &now_ : nullptr);
    bool refused = !next.is_valid(experts_);
    homes_of_experts wrong = next;
    if (draw_.between(0, 5) == 0) {
      (wrong.slots.empty() ? wrong.home_rank : wrong.slots).front() = 99;
      refused = true;
    } else if (!same_ranks && draw_.between(0, 9) == 0) {
      wrong.speeds.front() = -1;
      refused = true;
    }
    {
      home_arrays<P> const given(wrong);
      for (auto& planner : planners) {
        given.update(planner, same_ranks);
      }
      for (auto& planner : planners) {
        std::string const message = refusal_of([&] { planner.check(); });  // waits
        CAPTURE(message);
        CHECK(message.starts_with(name + "::update: ") == refused);
      }
    }
    now_ = refused ? now_ : next;
    return refused;
  }

  /// Checks that a planner finds the homes that it uses, and a home that differs.
  template <class Planner>
  void check_current(Planner const& planner, std::string const& name) {
    auto const message_for = [&](homes_of_experts const& of) {
      home_arrays<P> const given(of);
      return refusal_of([&] { planner.expect_current(given.homes()); });
    };
    CHECK(message_for(now_) == "no error");
    if (ranks_ == 1 || now_.home_rank.empty()) {
      return;
    }
    homes_of_experts other = now_;
    std::int32_t& home = other.home_rank[static_cast<std::size_t>(draw_.between(0, experts_ - 1))];
    home = static_cast<std::int32_t>((home + 1) % ranks_);
    std::string const message = message_for(other);
    CAPTURE(message);
    CHECK(message.starts_with(name + "::expect_current: "));
  }

 private:
  /// Draws homes, on the ranks of `same` or on others.
  [[nodiscard]] homes_of_experts drawn(homes_of_experts const* same) {
    homes_of_experts result;
    bool const unequal = draw_.between(0, 2) == 0;
    for (index_t r = 0; r < ranks_; ++r) {
      result.active.push_back(r == 0 || draw_.between(0, 3) > 0);
      result.speeds.push_back(unequal ? static_cast<double>(draw_.between(1, 4)) * 0.5 : 1.0);
    }
    if (same != nullptr) {
      result.active = same->active;
      result.speeds = same->speeds;
    }
    bool const mends = draw_.between(0, 5) > 0;
    if (draw_.between(0, 2) == 0) {
      for (index_t e = 0; e < experts_; ++e) {
        std::int64_t const r = draw_.between(0, ranks_ - 1);
        result.home_rank.push_back(static_cast<std::int32_t>(mends && !result.lives(r) ? 0 : r));
      }
      return result;
    }
    index_t const slots = draw_.between(experts_, max_slots_);
    for (index_t s = 0; s < slots; ++s) {
      result.slots.push_back(
          static_cast<std::int32_t>(s < experts_ ? s : draw_.between(-1, experts_ - 1)));
    }
    for (std::size_t s = result.slots.size(); s > 1; --s) {
      auto const other = draw_.between(0, static_cast<std::int64_t>(s) - 1);
      std::swap(result.slots[s - 1], result.slots[static_cast<std::size_t>(other)]);
    }
    result.offsets.push_back(0);
    for (index_t r = 0; r < ranks_; ++r) {
      auto const left = static_cast<std::int32_t>(slots) - result.offsets.back();
      result.offsets.push_back(r + 1 == ranks_
                                   ? static_cast<std::int32_t>(slots)
                                   : result.offsets.back() +
                                         static_cast<std::int32_t>(draw_.between(0, left)));
    }
    if (mends) {
      mend(result);
    }
    return result;
  }
  /// Swaps experts without a live home into slots of live ranks that others can do without.
  void mend(homes_of_experts& of) const {
    for (std::int32_t& dead : of.slots) {
      std::vector<index_t> const homes = of.live_homes(experts_);
      if (dead < 0 || homes[static_cast<std::size_t>(dead)] > 0) {
        continue;
      }
      for (std::size_t s = 0; s < of.slots.size(); ++s) {
        std::int32_t const e = of.slots[s];
        if (of.lives(of.rank_of(s)) && (e < 0 || homes[static_cast<std::size_t>(e)] > 1)) {
          std::swap(dead, of.slots[s]);
          break;
        }
      }
    }
  }

  generator& draw_;
  index_t experts_;
  index_t ranks_;
  index_t max_slots_;
  homes_of_experts now_;
};

}  // namespace plimsoll_test
