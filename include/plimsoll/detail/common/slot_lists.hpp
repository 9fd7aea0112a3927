// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lists of the slots of every expert.
#pragma once

#include <cstddef>
#include <cstdint>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/detail/team.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// The slots of every expert, in rising order, concatenated by expert.
struct slot_lists {
  index_t experts;
  index_t slots;
  std::int32_t* first;  ///< `[experts + 1]` into `slot`, or `[layers, experts + 1]`
  std::int32_t* slot;   ///< `[slots]`, or `[layers, slots]`

  [[nodiscard]] PLIMSOLL_HD static slot_lists in(scratch& memory, index_t experts, index_t slots,
                                                 index_t layers = 1) {
    return {experts, slots, memory.take<std::int32_t>(layers * (experts + 1)),
            memory.take<std::int32_t>(layers * slots)};
  }
  [[nodiscard]] PLIMSOLL_HD slot_lists of_layer(index_t layer) const {
    return {experts, slots, first + layer * (experts + 1), slot + layer * slots};
  }
  [[nodiscard]] PLIMSOLL_HD static std::uint64_t key(index_t expert, index_t slot) {
    return static_cast<std::uint64_t>(expert) << 32 | static_cast<std::uint64_t>(slot);
  }

  /// Lists the slots of `expert_of`, without empty ones. A parallel team sorts in the memory of
  /// `keys`, `[slots]`, with `storage`.
  template <class Team, class Id>
  PLIMSOLL_HD void fill(Team& team, vector_ref<Id const> const& expert_of, std::uint64_t* keys,
                        std::byte* storage) const {
    if constexpr (Team::is_serial) {
      team.single([=, this] { fill_in_order(expert_of); });
    } else {
      team.for_each(slots, [=, this](index_t s) {
        keys[s] = key(is_expert(expert_of[s]) ? expert_of[s] : experts, s);
      });
      team.sort(keys, slots, storage);
      team.for_each(experts + 1, [=, this](index_t e) {
        first[e] = static_cast<std::int32_t>(keys_below(keys, key(e, 0)));
      });
      team.for_each(slots, [=, this](index_t i) {
        if (keys[i] < key(experts, 0)) {
          slot[i] = static_cast<std::int32_t>(keys[i]);
        }
      });
    }
  }
  [[nodiscard]] PLIMSOLL_HD bool is_expert(std::int64_t id) const {
    return id >= 0 && id < experts;
  }

 private:
  template <class Id>
  PLIMSOLL_HD void fill_in_order(vector_ref<Id const> const& expert_of) const {
    for (index_t e = 0; e <= experts; ++e) {
      first[e] = 0;
    }
    for (index_t s = 0; s < slots; ++s) {
      if (is_expert(expert_of[s])) {
        ++first[expert_of[s]];
      }
    }
    for (index_t e = 0; e < experts; ++e) {
      first[e + 1] += first[e];
    }
    for (index_t s = slots - 1; s >= 0; --s) {
      if (is_expert(expert_of[s])) {
        slot[--first[expert_of[s]]] = static_cast<std::int32_t>(s);
      }
    }
  }

  PLIMSOLL_HD index_t keys_below(std::uint64_t const* keys, std::uint64_t limit) const {
    index_t low = 0;
    PLIMSOLL_NO_UNROLL
    for (index_t high = slots; low < high;) {
      index_t const middle = low + (high - low) / 2;
      if (keys[middle] < limit) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

}}}  // namespace plimsoll::detail
