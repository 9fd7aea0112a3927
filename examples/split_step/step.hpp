// SPDX-License-Identifier: Apache-2.0
// A layer's step on one rank: counts tokens, exchanges the counts, plans, and chooses a slot for
// every token; then does the same for the shared expert. A `Backend` has a policy, in whose memory
// all arrays are, and exchanges them: main.cpp and main_nccl.cu have one each.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <plimsoll/array.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/quota.hpp>
#include <plimsoll/systems/lplb.hpp>
#include <plimsoll/systems/waterfill.hpp>
#include <plimsoll/views.hpp>
#include <vector>

#include "command_line.hpp"
#include "layer_plan.hpp"
#include "tokens.hpp"

namespace split_step {

/// The numbers of a step that rank 0 prints.
struct outcome {
  double even = 0;     ///< peak over mean if an expert's copies share its tokens evenly
  double planned = 0;  ///< peak over mean of the plan
  double local = 0;    ///< share of token copies that stay on their rank
  double home = 0;     ///< peak over mean of the plan and the shared expert's rows, all at home
  double filled = 0;   ///< peak over mean of the plan and the shared expert's rows, as placed
  double moved = 0;    ///< share of the shared expert's rows that leave home
  char const* fault = nullptr;
};

template <class Backend>
class step_runner {
 public:
  step_runner(options const& o, process const& self, Backend& backend)
      : o_(o),
        self_(self),
        backend_(backend),
        plan_(o, self.ranks),
        map_(backend.policy(), plan_.map, 1, slots()),
        copies_(backend.policy(), plan_.copies, 1, o.experts),
        own_counts_(backend.policy(), 1, o.experts),
        all_counts_(backend.policy(), self.ranks, o.experts),
        chosen_(backend.policy(), o.tokens, o.top_k),
        filled_(backend.policy(), o.tokens, o.top_k + 1),
        routing_(backend.policy(), 1),
        dispatching_(backend.policy(), 1),
        lplb_(backend.policy(), placement(), {.max_token_copies = o.tokens * o.top_k}),
        waterfill_(backend.policy(), placement(), {.rank = self.rank, .line = line(o)}) {}

  outcome run(int step) {
    auto const& policy = backend_.policy();
    int const tokens = tokens_of(o_, step, self_.rank);
    plimsoll::array const topk_ids(policy, route(o_, step, self_.rank), tokens, o_.top_k);
    auto const chosen = first_rows(chosen_, tokens);

    // Ranks exchange how many of their tokens go to each expert.
    plimsoll::count_tokens(policy, topk_ids, {}, row(own_counts_, 0), routing_);
    backend_.all_gather(own_counts_, all_counts_);

    // Every rank plans by itself and computes the same quotas. It divides them among the ranks so
    // that as many tokens as possible stay on their rank, and dispatches its tokens by its part.
    lplb_.plan(0, all_counts_, self_.rank);
    // An engine leaves this out: it waits for the device.
    lplb_.check();
    lplb_.dispatch(0, topk_ids, chosen, dispatching_);

    // The shared expert is on all ranks. Ranks exchange how many tokens they send to each rank and
    // how many they have; then every rank knows which of its rows leave, and their destinations.
    waterfill_.count(chosen);
    backend_.all_reduce(waterfill_.loads());
    waterfill_.fill(chosen, {}, first_rows(filled_, tokens));
    // An engine leaves this out, too.
    waterfill_.check();
    return check(step, plimsoll::read(policy, plimsoll::array_ref(lplb_.quotas().data, slots())));
  }

 private:
  using policy_type = typename Backend::policy_type;
  template <class T>
  using vector = plimsoll::array<T, policy_type>;
  using matrix = plimsoll::array<std::int32_t, policy_type, 2>;

  [[nodiscard]] int slots() const { return o_.experts + o_.replicas; }
  [[nodiscard]] int first_slot(int rank) const { return rank * slots() / self_.ranks; }
  /// Lets rows go to all ranks, so that the peak does not depend on the tokens, as `check`
  /// requires. With `candidate_ranks::visited` rows would only go where their tokens are sent
  /// anyway, but some surplus rows might have to stay.
  static plimsoll::waterline_options line(options const& o) {
    return {.top_k = o.top_k,
            .max_tokens = o.tokens,
            .candidates = plimsoll::candidate_ranks::all,
            .min_tokens = 0};
  }
  [[nodiscard]] plimsoll::placement_ref placement() const {
    return {
        .physical_to_logical = map_.view(), .replica_count = copies_.view(), .ranks = self_.ranks};
  }
  /// Returns a view of row i.
  template <class Matrix>
  static auto row(Matrix& matrix, int i) {
    return plimsoll::array_ref(matrix.data_handle() + i * matrix.extent(1), matrix.extent(1));
  }
  /// Returns a view of the rows of a step's tokens, which may be fewer than in other steps.
  template <class Matrix>
  static auto first_rows(Matrix& matrix, int tokens) {
    return plimsoll::array_ref(matrix.data_handle(), tokens, matrix.extent(1));
  }

  /// Returns true if all ranks have the same numbers.
  template <class T>
  static bool all_agree(std::vector<T> const& values) {
    std::uint64_t hash[2] = {0xcbf29ce484222325u, 0};
    for (T const value : values) {
      hash[0] = (hash[0] ^ static_cast<std::uint64_t>(value)) * 0x100000001b3u;
    }
    hash[1] = ~hash[0];
    std::uint64_t least[2];
    MPI_Allreduce(hash, least, 2, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    return least[0] == ~least[1];
  }
  static void add_up(std::int64_t* values, std::size_t size) {
    MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(size), MPI_INT64_T, MPI_SUM,
                  MPI_COMM_WORLD);
  }
  [[nodiscard]] bool same_lines(plimsoll::waterline_report const& report) const {
    auto const& policy = backend_.policy();
    auto line = plimsoll::read(policy, waterfill_.slack());
    auto const loads =
        plimsoll::read(policy, plimsoll::array_ref(waterfill_.loads().data, 2 * self_.ranks));
    line.insert(line.end(), loads.begin(), loads.end());
    line.insert(line.end(), {static_cast<std::int64_t>(report.level), report.surplus});
    return all_agree(line);
  }

  /// Checks that all ranks have the same plans, that the tokens that arrive at every slot are its
  /// quota, and that the shared expert fills ranks exactly to the level. An engine does not need
  /// this.
  outcome check(int step, ints const& quotas) const {
    outcome result;
    auto const& policy = backend_.policy();
    plimsoll::waterline_report const report = plimsoll::read(policy, waterfill_.report());
    if (!all_agree(quotas)) {
      result.fault = "ranks planned different quotas";
    }
    if (!same_lines(report)) {
      result.fault = "ranks filled to different levels";
    }

    // Sums over all ranks: tokens that arrive at each slot; tokens, ranks with tokens without a
    // quota, copies that stay on their rank, and shared rows that left home or could not leave.
    int const own = tokens_of(o_, step, self_.rank);
    std::vector<std::int64_t> arrived(static_cast<std::size_t>(slots() + self_.ranks), 0);
    plimsoll::array_ref const sent(filled_.data_handle(), own * (o_.top_k + 1));
    for (std::int32_t const slot : plimsoll::read(policy, sent)) {
      if (slot >= 0) {
        ++arrived[static_cast<std::size_t>(slot)];
      }
    }
    auto const counters = dispatching_.to_host()[0];
    bool const no_quota = counters.routed != own * o_.top_k || counters.beyond_quota != 0;
    auto const at_home = arrived.begin() + self_.rank;
    std::int64_t sums[] = {own, no_quota ? 1 : 0,
                           std::accumulate(at_home + first_slot(self_.rank),
                                           at_home + first_slot(self_.rank + 1), std::int64_t{0}),
                           report.moved, report.unplaced};
    add_up(sums, std::size(sums));
    add_up(arrived.data(), arrived.size());
    auto const [tokens, strays, stay, moved, unplaced] = sums;
    if (strays != 0) {
      result.fault = "some tokens have no quota";
    }

    // The peaks: split evenly, as planned, and with shared rows at home and as placed.
    double even = 0;
    std::int64_t planned = 0;
    std::int64_t home = 0;
    std::int64_t filled = 0;
    ints counts(static_cast<std::size_t>(o_.experts), 0);
    ints const of_ranks = all_counts_.to_host();
    for (std::size_t i = 0; i < of_ranks.size(); ++i) {
      counts[i % counts.size()] += of_ranks[i];
    }
    std::size_t at = 0;
    for (int rank = 0; rank < self_.ranks; ++rank) {
      double evenly = 0;
      std::int64_t routed = 0;
      for (int slot = first_slot(rank); slot < first_slot(rank + 1); ++slot) {
        auto const s = static_cast<std::size_t>(slot);
        if (arrived[at++] != quotas[s]) {
          result.fault = "a slot got another number of tokens than its quota";
        }
        routed += quotas[s];
        if (std::int32_t const e = plan_.map[s]; e >= 0) {
          auto const expert = static_cast<std::size_t>(e);
          evenly += static_cast<double>(counts[expert]) / plan_.copies[expert];
        }
      }
      even = std::max(even, evenly);
      planned = std::max(planned, routed);
      home = std::max(home, routed + tokens_of(o_, step, rank));
      filled = std::max(filled, routed + arrived[at++]);
    }
    std::int64_t const copies = tokens * o_.top_k;
    std::int64_t const mean = (copies + tokens + self_.ranks - 1) / self_.ranks;
    std::int64_t const level = std::max(mean, planned);
    if (filled != level || report.level != static_cast<double>(level)) {
      result.fault = "the shared expert's rows fill ranks to another level";
    }
    if (moved != report.surplus || unplaced != 0) {
      result.fault = "the number of moved rows of the shared expert is not the surplus";
    }

    auto const over_mean = [&](auto peak, std::int64_t total) {
      return static_cast<double>(peak) * self_.ranks / static_cast<double>(total);
    };
    result.even = over_mean(even, copies);
    result.planned = over_mean(planned, copies);
    result.local = static_cast<double>(stay) / static_cast<double>(copies);
    result.home = over_mean(home, copies + tokens);
    result.filled = over_mean(filled, copies + tokens);
    result.moved = static_cast<double>(moved) / static_cast<double>(tokens);
    return result;
  }

  options o_;
  process self_;
  Backend& backend_;
  layer_plan plan_;
  matrix map_;         ///< [1, slots]
  matrix copies_;      ///< [1, experts]
  matrix own_counts_;  ///< [1, experts]
  matrix all_counts_;  ///< [ranks, experts]
  matrix chosen_;      ///< [tokens, top_k]: slots
  matrix filled_;  ///< [tokens, top_k + 1]: slots, with one more on each rank for the shared expert
  vector<plimsoll::routing_counters> routing_;
  vector<plimsoll::dispatch_counters> dispatching_;
  plimsoll::lplb<policy_type> lplb_;
  plimsoll::waterfill<policy_type> waterfill_;
};

/// Runs all steps; rank 0 prints them. Returns true if no step has a fault.
template <class Backend>
bool run_steps(options const& o, process const& self, Backend& backend) {
  step_runner<Backend> runner(o, self, backend);
  bool const prints = self.rank == 0;
  if (prints) {
    std::printf(
        "%d ranks, %d experts and %d replicas, up to %d tokens a rank to %d experts each\n\n",
        self.ranks, o.experts, o.replicas, o.tokens, o.top_k);
    std::printf("      peak / mean               with the shared expert\n");
    std::printf("step    even    plan  stay local    home  filled   moved\n");
  }
  bool good = true;
  for (int step = 1; step <= o.steps; ++step) {
    outcome const result = runner.run(step);
    good = good && result.fault == nullptr;
    if (prints) {
      std::printf("%4d  %6.4f  %6.4f  %8.1f %%  %6.4f  %6.4f  %4.1f %%  %s\n", step, result.even,
                  result.planned, 100 * result.local, result.home, result.filled,
                  100 * result.moved, result.fault == nullptr ? "all ranks agree" : result.fault);
    }
  }
  return good;
}

}  // namespace split_step
