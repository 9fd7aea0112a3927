// SPDX-License-Identifier: Apache-2.0
// How rows and weights travel: by all-to-all.
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

/// What the planner wrote, as a vector.
template <class View>
auto fetch(View const& view) {
  return plimsoll::read(plimsoll::seq, view);
}

/// Items of one size that ranks send each other, and the way back.
class all_to_all {
 public:
  all_to_all() = default;
  /// `[ranks]`: how many items this rank sends to each, and gets from each.
  all_to_all(ints sent, ints received) : here_(std::move(sent)), there_(std::move(received)) {}

  [[nodiscard]] std::size_t sent() const { return here_.total; }
  [[nodiscard]] std::size_t received() const { return there_.total; }

  /// Items of `size` floats, ordered by the rank that gets them; returned by the one that sent
  /// them.
  [[nodiscard]] floats send(floats const& items, int size) const {
    return exchange(items, size, here_, there_);
  }
  /// As many items as were received, in that order; returned as `send` took them.
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
