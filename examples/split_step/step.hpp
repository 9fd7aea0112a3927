// SPDX-License-Identifier: Apache-2.0
// One layer's step on one rank: count, exchange counts, plan, choose a slot for every token. A
// `Backend` says where arrays lie and how they travel: main.cpp and main_nccl.cu have one each.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/quota.hpp>
#include <plimsoll/systems/lplb.hpp>
#include <vector>

#include "command_line.hpp"
#include "layer_plan.hpp"
#include "tokens.hpp"

namespace split_step {

/// What rank 0 prints of a step.
struct outcome {
  double even = 0;     ///< peak over mean where every copy of an expert gets as much
  double planned = 0;  ///< peak over mean of the plan
  double local = 0;    ///< share of token copies that stay on their rank
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
        map_(backend.upload(plan_.map)),
        copies_(backend.upload(plan_.copies)),
        own_counts_(backend.zeros(o.experts)),
        counts_(backend.zeros(o.experts)),
        all_counts_(backend.zeros(o.experts * self.ranks)),
        source_quotas_(backend.zeros(slots() * self.ranks)),
        chosen_(backend.zeros(o.tokens * o.top_k)),
        routing_(backend.template zeros<plimsoll::routing_counters>(1)),
        dispatching_(backend.template zeros<plimsoll::dispatch_counters>(1)),
        lplb_(backend.policy(), placement(), {}) {}

  outcome run(int step) {
    auto const ids = backend_.upload(route(o_, step, self_.rank));
    plimsoll::matrix_ref<std::int32_t const> const topk_ids(ids.data(), o_.tokens, o_.top_k);
    auto const& policy = backend_.policy();

    // All that ranks tell each other: how many of their tokens go to each expert.
    plimsoll::count_tokens(policy, topk_ids, {}, vector(own_counts_),
                           plimsoll::vector_ref<plimsoll::routing_counters>(routing_.data(), 1));
    backend_.all_reduce(own_counts_, counts_);
    backend_.all_gather(own_counts_, all_counts_);

    // Every rank plans by itself and comes to the same quotas.
    lplb_.plan(plimsoll::matrix_ref<std::int32_t const>(counts_.data(), 1, o_.experts));
    // An engine leaves this out: it waits for the device.
    lplb_.expect_planned(policy);

    // Which tokens fill the quotas: as many as possible where they are. Then this rank's own.
    plimsoll::vector_ref<std::int32_t const> const quotas(lplb_.quotas().data, slots());
    plimsoll::source_quotas(
        policy, placement(), 1, quotas,
        plimsoll::matrix_ref<std::int32_t const>(all_counts_.data(), self_.ranks, o_.experts),
        plimsoll::matrix_ref<std::int32_t>(source_quotas_.data(), self_.ranks, slots()));
    plimsoll::dispatch(policy, topk_ids,
                       plimsoll::vector_ref<std::int32_t const>(map_.data(), slots()),
                       plimsoll::vector_ref<std::int32_t const>(
                           source_quotas_.data() + self_.rank * slots(), slots()),
                       {.experts = o_.experts},
                       plimsoll::matrix_ref<std::int32_t>(chosen_.data(), o_.tokens, o_.top_k),
                       plimsoll::vector_ref<plimsoll::dispatch_counters>(dispatching_.data(), 1));
    return check(plimsoll::read(policy, quotas));
  }

 private:
  template <class T>
  using array = typename Backend::template array<T>;

  [[nodiscard]] int slots() const { return o_.experts + o_.replicas; }
  [[nodiscard]] int rank_of(int slot) const {
    int rank = 0;
    while ((rank + 1) * slots() / self_.ranks <= slot) {
      ++rank;
    }
    return rank;
  }
  [[nodiscard]] plimsoll::placement_ref placement() const {
    return {.physical_to_logical = {map_.data(), 1, slots()},
            .replica_count = {copies_.data(), 1, o_.experts},
            .ranks = self_.ranks};
  }
  static plimsoll::vector_ref<std::int32_t> vector(array<std::int32_t>& a) {
    return {a.data(), static_cast<plimsoll::index_t>(a.size())};
  }
  template <class T>
  [[nodiscard]] std::vector<T> fetch(array<T> const& a) const {
    return plimsoll::read(
        backend_.policy(),
        plimsoll::vector_ref<T const>(a.data(), static_cast<plimsoll::index_t>(a.size())));
  }

  /// Nothing of this belongs into an engine: do all ranks have the same quotas, and do as many
  /// tokens arrive at every slot?
  outcome check(ints const& quotas) const {
    outcome result;
    std::uint64_t hash[2] = {0xcbf29ce484222325u, 0};
    for (std::int32_t const quota : quotas) {
      hash[0] = (hash[0] ^ static_cast<std::uint64_t>(quota)) * 0x100000001b3u;
    }
    hash[1] = ~hash[0];
    std::uint64_t least[2];
    MPI_Allreduce(hash, least, 2, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    if (least[0] != ~least[1]) {
      result.fault = "ranks planned different quotas";
    }

    ints sent(quotas.size() + 1, 0);  // to every slot; behind them, to slots of this rank
    for (std::int32_t const slot : fetch<std::int32_t>(chosen_)) {
      ++sent[static_cast<std::size_t>(slot)];
      sent.back() += rank_of(slot) == self_.rank ? 1 : 0;
    }
    ints arrived(sent.size());
    MPI_Allreduce(sent.data(), arrived.data(), static_cast<int>(sent.size()), MPI_INT32_T, MPI_SUM,
                  MPI_COMM_WORLD);
    if (!std::equal(quotas.begin(), quotas.end(), arrived.begin())) {
      result.fault = "slots got other numbers of tokens than their quotas";
    }
    auto const counters = fetch<plimsoll::dispatch_counters>(dispatching_)[0];
    std::int64_t odd = o_.tokens * o_.top_k - counters.routed + counters.beyond_quota;
    MPI_Allreduce(MPI_IN_PLACE, &odd, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    if (odd != 0) {
      result.fault = "tokens found no quota";
    }

    ints const counts = fetch<std::int32_t>(counts_);
    std::vector<double> even(static_cast<std::size_t>(self_.ranks), 0);
    ints planned(even.size(), 0);
    for (int slot = 0; slot < slots(); ++slot) {
      auto const rank = static_cast<std::size_t>(rank_of(slot));
      planned[rank] += quotas[static_cast<std::size_t>(slot)];
      if (std::int32_t const e = plan_.map[static_cast<std::size_t>(slot)]; e >= 0) {
        auto const expert = static_cast<std::size_t>(e);
        even[rank] += static_cast<double>(counts[expert]) / plan_.copies[expert];
      }
    }
    double const total = static_cast<double>(o_.tokens) * o_.top_k * self_.ranks;
    double const mean = total / self_.ranks;
    result.even = *std::max_element(even.begin(), even.end()) / mean;
    result.planned = *std::max_element(planned.begin(), planned.end()) / mean;
    result.local = arrived.back() / total;
    return result;
  }

  options o_;
  process self_;
  Backend& backend_;
  layer_plan plan_;
  array<std::int32_t> map_;
  array<std::int32_t> copies_;
  array<std::int32_t> own_counts_;
  array<std::int32_t> counts_;
  array<std::int32_t> all_counts_;
  array<std::int32_t> source_quotas_;
  array<std::int32_t> chosen_;
  array<plimsoll::routing_counters> routing_;
  array<plimsoll::dispatch_counters> dispatching_;
  plimsoll::lplb<typename Backend::policy_type> lplb_;
};

/// Whether all steps went well. Rank 0 prints them.
template <class Backend>
bool run_steps(options const& o, process const& self, Backend& backend) {
  step_runner<Backend> runner(o, self, backend);
  bool const prints = self.rank == 0;
  if (prints) {
    std::printf("%d ranks, %d experts and %d replicas, %d tokens a rank to %d experts each\n\n",
                self.ranks, o.experts, o.replicas, o.tokens, o.top_k);
    std::printf("      peak / mean\n");
    std::printf("step    even    plan  stay local\n");
  }
  bool good = true;
  for (int step = 1; step <= o.steps; ++step) {
    outcome const result = runner.run(step);
    good = good && result.fault == nullptr;
    if (prints) {
      std::printf("%4d  %6.4f  %6.4f  %8.1f %%  %s\n", step, result.even, result.planned,
                  100 * result.local, result.fault == nullptr ? "all ranks agree" : result.fault);
    }
  }
  return good;
}

}  // namespace split_step
