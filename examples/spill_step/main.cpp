// SPDX-License-Identifier: Apache-2.0
// spill_step: every process is one rank of expert parallelism. Each step is computed twice, forward
// and backward: with the excess tokens of overloaded ranks spilled, and with all tokens at home.
//
//     mpirun -n 4 spill_step
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <limits>
#include <plimsoll/execution.hpp>
#include <plimsoll/least_loaded.hpp>
#include <utility>

#include "check.hpp"
#include "command_line.hpp"
#include "step.hpp"
#include "tokens.hpp"

namespace spill_step { namespace {

results compute(layer& of, batch const& b) {
  of.plan(b.ids);
  floats outputs = of.forward(b);
  floats input_gradients = of.backward(b);
  return {std::move(outputs), std::move(input_gradients), of.weights().gradients()};
}

/// The numbers of a step that rank 0 prints.
struct outcome {
  double plain = 1;    ///< peak over mean of token copies, with all at home
  double spilled = 1;  ///< peak over mean of token copies, as planned
  int transfers = 0;
  std::int64_t bytes = 0;  ///< of weights
  double share = 0;        ///< of token copies that were spilled
  double apart = 0;        ///< relative difference of the two results
  char const* fault = nullptr;
};

class comparison {
 public:
  comparison(options const& o, process const& self)
      : o_(o),
        self_(self),
        plain_(o, self, std::numeric_limits<double>::infinity()),
        spilled_(o, self, o.lambda) {}

  outcome run(int step) {
    batch const b = make_batch(o_, step, self_.rank);
    results const expected = compute(plain_, b);
    results const got = compute(spilled_, b);

    outcome result;
    double const bound = o_.exact() ? 0 : rounding;
    double const plain_apart = difference(expected, computed_in_place(o_, b));
    result.apart = difference(got, expected);
    if (!(result.apart <= bound)) {
      result.fault = "results differ from those without spills";
    }
    if (!(plain_apart <= bound)) {
      result.fault = "results are wrong without spills, too";
      result.apart = plain_apart;
    }
    auto const& plan = spilled_.assignment();
    plimsoll::validate(plimsoll::seq, plan.plan_ref(), plan.loads(), plan.options());
    if (!all_computed_as_planned(spilled_, self_.rank)) {
      result.fault = "a rank computed another number of tokens than planned";
    }
    if (!all_planned_alike(spilled_)) {
      result.fault = "ranks made different plans";
    }
    result.transfers = plan.report()->transfers;
    result.bytes = result.transfers * plan.options().expert_bytes;
    std::int64_t const copies = over_ranks(plain_.computed(), MPI_SUM);
    std::int64_t const taken_in = over_ranks(spilled_.taken_in(), MPI_SUM);
    std::int64_t const plain_peak = over_ranks(plain_.computed(), MPI_MAX);
    std::int64_t const spilled_peak = over_ranks(spilled_.computed(), MPI_MAX);
    if (copies > 0) {
      double const mean = static_cast<double>(copies) / self_.ranks;
      result.plain = static_cast<double>(plain_peak) / mean;
      result.spilled = static_cast<double>(spilled_peak) / mean;
      result.share = static_cast<double>(taken_in) / static_cast<double>(copies);
    }
    return result;
  }

  void print_times() const {
    double const ms[] = {1e3 * over_ranks(plain_.took().compute, MPI_MAX),
                         1e3 * over_ranks(spilled_.took().compute, MPI_MAX),
                         1e3 * over_ranks(plain_.took().exchange, MPI_MAX),
                         1e3 * over_ranks(spilled_.took().exchange, MPI_MAX)};
    if (self_.rank == 0) {
      std::printf(
          "      slowest rank: compute %.2f ms, spilled %.2f; exchange %.2f ms, spilled %.2f\n",
          ms[0], ms[1], ms[2], ms[3]);
    }
  }

 private:
  /// Gradients of weights are sums over tokens, in another order if tokens were spilled. Sums of n
  /// terms differ by about sqrt(n) 6e-8 of the largest.
  static constexpr double rounding = 1e-5;

  options o_;
  process self_;
  layer plain_;
  layer spilled_;
};

/// Runs all steps; rank 0 prints them. Returns true if no step has a fault.
bool run_steps(options const& o, process const& self) {
  comparison both(o, self);
  bool const prints = self.rank == 0;
  if (prints) {
    std::printf("%d ranks, %d experts of %d weights, up to %d tokens a rank to %d experts each\n\n",
                self.ranks, o.experts, o.expert_size(), o.tokens, o.top_k);
    std::printf("        peak / mean     weights moved      tokens\n");
    std::printf("step   plain  spilled  experts      KiB    spilled  results\n");
  }
  bool good = true;
  for (int step = 1; step <= o.steps; ++step) {
    outcome const result = both.run(step);
    good = good && result.fault == nullptr;
    if (prints) {
      std::printf("%4d  %6.4f   %6.4f  %7d  %7.0f  %7.1f %%  ", step, result.plain, result.spilled,
                  result.transfers, static_cast<double>(result.bytes) / 1024, 100 * result.share);
      if (result.fault != nullptr) {
        std::printf("%s (%.1e)\n", result.fault, result.apart);
      } else if (result.apart == 0) {
        std::printf("equal\n");
      } else {
        std::printf("within %.1e\n", result.apart);
      }
    }
    if (o.times) {
      both.print_times();
    }
  }
  return good;
}

}  // namespace
}  // namespace spill_step

int main(int argc, char** argv) {
  return spill_step::run("spill_step", argc, argv, spill_step::run_steps);
}
