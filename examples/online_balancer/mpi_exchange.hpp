// SPDX-License-Identifier: Apache-2.0
// The exchange of several processes by MPI, in host memory.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "exchange.hpp"

namespace online_balancer {

/// Every process acts for as many ranks as any other, so that their number must divide that of the
/// ranks. All make the same calls in the same order. `one_process` says what each call does.
class mpi_exchange {
 public:
  static constexpr bool is_alone = false;

  mpi_exchange() {
    MPI_Comm_rank(MPI_COMM_WORLD, &process_);
    MPI_Comm_size(MPI_COMM_WORLD, &processes_);
  }

  [[nodiscard]] int process() const { return process_; }
  [[nodiscard]] int processes() const { return processes_; }
  [[nodiscard]] index_t first_rank() const { return process_ * (ranks / processes_); }
  [[nodiscard]] index_t end_rank() const { return first_rank() + ranks / processes_; }

  // [exchange]
  template <class T>
  void sum(T* values, index_t size) const {
    MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(size), type_of<T>(), MPI_SUM,
                  MPI_COMM_WORLD);
  }
  template <class T>
  void gather(T* values, index_t size) const {
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values, static_cast<int>(size) / processes_,
                  type_of<T>(), MPI_COMM_WORLD);
  }
  [[nodiscard]] bool all_of(bool own) const {
    int all = own ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all != 0;
  }
  void expect_same(char const* what, hash const& of) const {
    std::vector<std::uint64_t> all(static_cast<std::size_t>(processes_));
    std::uint64_t const own = of.value();
    MPI_Allgather(&own, 1, MPI_UINT64_T, all.data(), 1, MPI_UINT64_T, MPI_COMM_WORLD);
    std::string others;
    for (std::size_t i = 1; i < all.size(); ++i) {
      if (all[i] != all[0]) {
        others += (others.empty() ? "process " : ", process ") + std::to_string(i);
      }
    }
    if (!others.empty()) {
      throw std::runtime_error(std::string("process 0 disagrees on the ") + what + " with " +
                               others);
    }
  }
  // [end]

 private:
  template <class T>
  static MPI_Datatype type_of() {
    if constexpr (std::is_same_v<T, std::int32_t>) {
      return MPI_INT32_T;
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      return MPI_INT64_T;
    } else {
      static_assert(std::is_same_v<T, float>);
      return MPI_FLOAT;
    }
  }

  int process_ = 0;
  int processes_ = 1;
};

}  // namespace online_balancer
