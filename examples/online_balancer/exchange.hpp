// SPDX-License-Identifier: Apache-2.0
// Communication between processes: sums, the router's choices, and hashes of every process's plan.
// `one_process` acts for all ranks and has no one to tell; mpi_exchange.hpp has the same calls for
// several processes.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <plimsoll/migration_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/replan_gate_types.hpp>

#include "stand_ins.hpp"

namespace online_balancer {

// [hash]
/// FNV-1a over the bytes of numbers, the lowest byte first.
class hash {
 public:
  template <std::integral T>
  hash& add(T number) {
    for (int byte = 0; byte < 8; ++byte) {
      value_ ^= static_cast<std::uint64_t>(number) >> 8 * byte & 0xff;
      value_ *= 0x100000001b3;
    }
    return *this;
  }
  hash& add(double number) { return add(std::bit_cast<std::uint64_t>(number)); }
  [[nodiscard]] std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

/// Hashes maps and counts in host memory.
inline hash hash_of(plimsoll::placement_ref const& placement) {
  hash result;
  for (auto const& rows : {placement.physical_to_logical, placement.replica_count}) {
    for (index_t l = 0; l < rows.extent(0); ++l) {
      for (index_t i = 0; i < rows.extent(1); ++i) {
        result.add(rows(l, i));
      }
    }
  }
  return result;
}
inline hash hash_of(plimsoll::replan_decision const& decision) {
  hash result;
  result.add(static_cast<int>(decision.answer));
  for (auto const& judged : decision.candidates) {
    result.add(judged.gain_seconds).add(judged.standard_error).add(judged.move_seconds);
  }
  return result;
}
inline hash hash_of(plimsoll::transfer_plan const& plan) {
  hash result;
  for (plimsoll::transfer const& t : plan.list) {
    result.add(t.layer).add(t.expert).add(static_cast<int>(t.kind)).add(t.bytes);
    result.add(t.source_rank).add(t.source_slot).add(t.destination_rank).add(t.destination_slot);
    result.add(t.round).add(t.staging_slot).add(t.commit_round);
  }
  return result;
}
// [end]

/// One process that acts for all ranks.
struct one_process {
  static constexpr bool is_alone = true;
  /// The ranks that this process acts for: [first_rank, end_rank).
  static constexpr index_t first_rank() { return 0; }
  static constexpr index_t end_rank() { return ranks; }
  /// Adds up the values of all processes, element by element.
  static void sum(auto* /*values*/, index_t /*size*/) {}
  /// Fills in the other processes' parts of an array; every process has written its own part.
  static void gather(auto* /*values*/, index_t /*size*/) {}
  /// Returns whether `own` is true in all processes.
  static bool all_of(bool own) { return own; }
  /// Throws unless all processes have the same.
  static void expect_same(char const* /*what*/, hash const& /*of*/) {}
};

}  // namespace online_balancer
