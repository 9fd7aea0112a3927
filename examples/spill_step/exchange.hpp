// SPDX-License-Identifier: Apache-2.0
// The all-to-all that exchanges rows and weights.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <plimsoll/execution.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/systems/llep.hpp>
#include <utility>

#include "tokens.hpp"

namespace spill_step {

using planner = plimsoll::llep<plimsoll::seq_policy>;

/// Copies an output of the planner to a vector.
template <class View>
auto fetch(View const& view) {
  return plimsoll::read(plimsoll::seq, view);
}

/// Exchanges items of one size among ranks, and back.
class all_to_all {
 public:
  all_to_all() = default;
  /// @param sent, received `[ranks]`: the items that this rank sends to each rank, and receives
  all_to_all(ints sent, ints received) : here_(std::move(sent)), there_(std::move(received)) {}

  [[nodiscard]] std::size_t sent() const { return here_.total; }
  [[nodiscard]] std::size_t received() const { return there_.total; }

  /// Sends items of `size` floats, sorted by receiver. Returns the received items, sorted by
  /// sender.
  [[nodiscard]] floats send(floats const& items, int size) const {
    return exchange(items, size, here_, there_);
  }
  /// Sends an item back for each received one, in their order. Returns them in the order of `send`.
  [[nodiscard]] floats send_back(floats const& items, int size) const {
    return exchange(items, size, there_, here_);
  }

 private:
  struct side {
    ints counts;
    ints offsets;
    std::size_t total = 0;

    side() = default;
    explicit side(ints of_ranks)
        : counts(std::move(of_ranks)),
          offsets(counts.size()),
          total(std::accumulate(counts.begin(), counts.end(), std::size_t{0})) {
      std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), 0);
    }
  };

  static floats exchange(floats const& items, int size, side const& from, side const& to) {
    floats result(to.total * static_cast<std::size_t>(size));
    MPI_Datatype item = MPI_DATATYPE_NULL;
    MPI_Type_contiguous(size, MPI_FLOAT, &item);
    MPI_Type_commit(&item);
    MPI_Alltoallv(items.data(), from.counts.data(), from.offsets.data(), item, result.data(),
                  to.counts.data(), to.offsets.data(), item, MPI_COMM_WORLD);
    MPI_Type_free(&item);
    return result;
  }

  side here_;
  side there_;
};

}  // namespace spill_step
