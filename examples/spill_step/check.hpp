// SPDX-License-Identifier: Apache-2.0
// Checks of a step by all ranks together. An engine needs nothing of this file.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <plimsoll/least_loaded.hpp>
#include <vector>

#include "command_line.hpp"
#include "exchange.hpp"
#include "expert.hpp"
#include "step.hpp"
#include "tokens.hpp"

namespace spill_step {

inline std::int64_t over_ranks(std::int64_t value, MPI_Op op) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT64_T, op, MPI_COMM_WORLD);
  return value;
}
inline double over_ranks(double value, MPI_Op op) {
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, op, MPI_COMM_WORLD);
  return value;
}

/// The results of a step on one rank.
struct results {
  floats outputs;
  floats input_gradients;
  floats weight_gradients;
};

/// Computes a rank's tokens on the rank itself, with all experts, so that no rows or weights are
/// sent. Leaves out the gradients of weights.
inline results computed_in_place(options const& o, batch const& b) {
  results result{floats(b.inputs.size()), floats(b.inputs.size()), {}};
  auto const hidden = static_cast<std::size_t>(o.hidden);
  expert const layout(o.hidden, o.width);
  floats unused(static_cast<std::size_t>(o.expert_size()));
  floats out(hidden);
  floats gradient(hidden);
  floats in_gradient(hidden);
  for (int e = 0; e < o.experts; ++e) {
    floats const weights = weights_of(o, e);
    for (std::size_t copy = 0; copy < b.ids.size(); ++copy) {
      if (b.ids[copy] != e) {
        continue;
      }
      std::size_t const token = copy / static_cast<std::size_t>(o.top_k) * hidden;
      layout.forward(weights.data(), 1, &b.inputs[token], out.data());
      for (std::size_t i = 0; i < hidden; ++i) {
        result.outputs[token + i] += b.shares[copy] * out[i];
        gradient[i] = b.shares[copy] * b.gradients[token + i];
      }
      layout.backward(weights.data(), 1, &b.inputs[token], gradient.data(), in_gradient.data(),
                      unused.data());
      std::transform(in_gradient.begin(), in_gradient.end(), &result.input_gradients[token],
                     &result.input_gradients[token], std::plus());
    }
  }
  return result;
}

/// Returns the largest difference of two arrays over the largest number; 0 if they are equal to the
/// bit.
inline double difference(floats const& got, floats const& expected) {
  using limits = std::numeric_limits<double>;
  double apart = 0;
  double largest = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(expected[i])) {
      double const here = std::abs(double{got[i]} - double{expected[i]});
      apart = std::max({apart, std::isnan(here) ? limits::infinity() : here, limits::min()});
    }
    largest = std::max(largest, double{std::abs(expected[i])});
  }
  apart = over_ranks(apart, MPI_MAX);
  largest = over_ranks(largest, MPI_MAX);
  return apart == 0 ? 0 : apart / largest;
}
inline double difference(results const& got, results const& expected) {
  return std::max({difference(got.outputs, expected.outputs),
                   difference(got.input_gradients, expected.input_gradients),
                   difference(got.weight_gradients, expected.weight_gradients)});
}

/// Returns true if all ranks made the same plan, to the bit.
inline bool all_planned_alike(layer const& of) {
  auto const& plan = of.assignment();
  std::vector<std::int64_t> own;
  auto const offsets = fetch(plan.offsets());
  auto const transfer_offsets = fetch(plan.transfer_offsets());
  own.insert(own.end(), offsets.begin(), offsets.end());
  own.insert(own.end(), transfer_offsets.begin(), transfer_offsets.end());
  for (int i = 0; i < offsets.back(); ++i) {
    plimsoll::spill_segment const& s = plan.segments()[i];
    own.insert(own.end(), {s.expert, s.rank, s.begin, s.end});
  }
  for (int i = 0; i < transfer_offsets.back(); ++i) {
    plimsoll::spill_transfer const& t = plan.transfers()[i];
    own.insert(own.end(), {t.expert, t.from, t.to, t.bytes});
  }
  std::int64_t size = std::ssize(own);
  MPI_Bcast(&size, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
  std::vector<std::int64_t> of_first(own);
  of_first.resize(static_cast<std::size_t>(size));
  MPI_Bcast(of_first.data(), static_cast<int>(size), MPI_INT64_T, 0, MPI_COMM_WORLD);
  return over_ranks(std::int64_t{own == of_first}, MPI_MIN) != 0;
}

/// Returns true if every rank computed the planned number of token copies.
inline bool all_computed_as_planned(layer const& of, int rank) {
  bool const own = of.computed() == of.assignment().rank_loads()[rank];
  return over_ranks(std::int64_t{own}, MPI_MIN) != 0;
}

}  // namespace spill_step
