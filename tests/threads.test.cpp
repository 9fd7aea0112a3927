// SPDX-License-Identifier: Apache-2.0
// What docs/threads.md allows several threads at the same time. Every result is compared with that
// of one thread; ThreadSanitizer sees what the threads share.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <plimsoll/array.hpp>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/replay.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/lplb.hpp>

#include <barrier>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "support/policies.hpp"

namespace plimsoll_test { namespace {

using ints = std::vector<std::int32_t>;

constexpr plimsoll::index_t steps = 4, layers = 3, experts = 16, ranks = 4, slots = 24;
constexpr int thread_count = 4;

/// Recorded loads `[steps, layers, experts]`, and the ids of a step's tokens in the first layer.
struct recording {
  ints loads = ints(steps * layers * experts);
  ints ids = ints(64 * 2);

  recording() {
    for (std::size_t i = 0; i < loads.size(); ++i) {
      loads[i] = static_cast<std::int32_t>(i * 2654435761u % 997);
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ids[i] = static_cast<std::int32_t>(i * i % experts);
    }
  }
  [[nodiscard]] plimsoll::tensor_ref<std::int32_t const> history() const {
    return {loads.data(), steps, layers, experts};
  }
  [[nodiscard]] plimsoll::matrix_ref<std::int32_t const> step(plimsoll::index_t i) const {
    return {loads.data() + i * layers * experts, layers, experts};
  }
  [[nodiscard]] plimsoll::matrix_ref<std::int32_t const> topk_ids() const {
    return {ids.data(), 64, 2};
  }
};

/// A resource that several threads may call.
class locked_resource {
 public:
  void* allocate(std::size_t bytes, std::size_t alignment) {
    std::scoped_lock const lock(mutex_);
    ++taken_;
    return ::operator new(bytes, std::align_val_t{alignment});
  }
  void deallocate(void* pointer, std::size_t, std::size_t alignment) {
    std::scoped_lock const lock(mutex_);
    --taken_;
    ::operator delete(pointer, std::align_val_t{alignment});
  }
  [[nodiscard]] long taken() const { return taken_; }

 private:
  std::mutex mutex_;
  long taken_ = 0;
};

/// Calls f(0), f(1), ... in threads of their own, which begin at the same time.
void at_the_same_time(std::function<void(int)> const& f) {
  std::barrier begin(thread_count);
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < thread_count; ++thread) {
    threads.emplace_back([&, thread] {
      begin.arrive_and_wait();
      f(thread);
    });
  }
}

/// The values that a chain of free calls computes from shared inputs.
template <class P>
ints free_calls(P const& policy, recording const& in, plimsoll::placement_ref const& in_use) {
  plimsoll::rank_set const on{.ranks = ranks};
  auto const fresh = plimsoll::eplb(policy, in.step(0), slots, {.on = on});
  auto const flow = plimsoll::place_by_flow(policy, in.history(), slots, {.on = on});
  auto const aligned = plimsoll::align(policy, in_use, fresh.ref(), {.on = on});
  plimsoll::validate(policy, aligned.ref());
  ints result = aligned.physical_to_logical.to_host();
  ints const other = flow.physical_to_logical.to_host();
  result.insert(result.end(), other.begin(), other.end());
  ints counts(experts);
  std::vector<plimsoll::routing_counters> counters(1);
  plimsoll::count_tokens(policy, in.topk_ids(), {}, counts, counters);
  result.insert(result.end(), counts.begin(), counts.end());
  return result;
}

/// Splits a step by an object, and returns the quotas.
template <class Planner>
ints quotas_of(Planner& planner, recording const& in, plimsoll::index_t step) {
  planner.plan(in.step(step));
  planner.check();
  auto const quotas = planner.quotas();
  return {quotas.data, quotas.data + layers * slots};
}

plimsoll::placement<plimsoll::seq_policy> plan_of(recording const& in, plimsoll::index_t step) {
  return plimsoll::eplb(plimsoll::seq, in.step(step), slots, {.on = {.ranks = ranks}});
}

}  // namespace
}  // namespace plimsoll_test

PLIMSOLL_TEST_CASE("threads: free calls share inputs, a placement and a policy", P,
                   PLIMSOLL_POLICIES) {
  using namespace plimsoll_test;
  auto const policy = make_policy<P>();
  recording const in;
  auto const in_use = plan_of(in, 1);
  ints const expected = free_calls(plimsoll::seq, in, in_use.ref());
  std::vector<ints> results(thread_count);
  at_the_same_time([&](int thread) {
    results[static_cast<std::size_t>(thread)] = free_calls(policy, in, in_use.ref());
  });
  for (ints const& result : results) {
    CHECK(result == expected);
  }
}

TEST_CASE("threads: objects prepared for one placement work at the same time") {
  using namespace plimsoll_test;
  recording const in;
  auto const placement = plan_of(in, 0);
  std::vector<ints> expected;
  for (int thread = 0; thread < thread_count; ++thread) {
    plimsoll::lplb planner(plimsoll::seq, placement.ref(), {});
    expected.push_back(quotas_of(planner, in, thread % steps));
  }
  std::vector<ints> results(thread_count);
  at_the_same_time([&](int thread) {
    plimsoll::lplb planner(plimsoll::seq, placement.ref(), {});
    for (int round = 0; round < 3; ++round) {
      results[static_cast<std::size_t>(thread)] = quotas_of(planner, in, thread % steps);
    }
  });
  CHECK(results == expected);
}

TEST_CASE("threads: one object is called by one thread after the other") {
  using namespace plimsoll_test;
  recording const in;
  auto const placement = plan_of(in, 0);
  plimsoll::lplb planner(plimsoll::seq, placement.ref(), {});
  ints const expected = quotas_of(planner, in, 2);
  std::mutex one_call;
  std::vector<ints> results(thread_count);
  at_the_same_time([&](int thread) {
    std::scoped_lock const lock(one_call);
    results[static_cast<std::size_t>(thread)] = quotas_of(planner, in, 2);
  });
  for (ints const& result : results) {
    CHECK(result == expected);
  }
}

TEST_CASE("threads: another thread updates the placement between steps") {
  using namespace plimsoll_test;
  recording const in;
  ints expected[2];
  for (int which : {0, 1}) {
    auto const plan = plan_of(in, 3 * which);
    plimsoll::lplb planner(plimsoll::seq, plan.ref(), {});
    expected[which] = quotas_of(planner, in, 1);
  }
  REQUIRE(expected[0] != expected[1]);
  auto const first = plan_of(in, 0);
  plimsoll::lplb planner(plimsoll::seq, first.ref(), {});
  std::mutex one_call;
  int in_use = 0;
  std::vector<bool> same;
  at_the_same_time([&](int thread) {
    for (int turn = 0; turn < 20; ++turn) {
      if (thread == 0) {  // the engine's
        std::scoped_lock const lock(one_call);
        same.push_back(quotas_of(planner, in, 1) == expected[in_use]);
      } else {
        auto const next = plan_of(in, 3 * (turn % 2));
        std::scoped_lock const lock(one_call);
        planner.update(0, next.ref());
        in_use = turn % 2;
      }
    }
  });
  CHECK(same == std::vector<bool>(20, true));
}

TEST_CASE("threads: a worker plans and prepares what the engine's thread takes over") {
  using namespace plimsoll_test;
  struct balancer {
    plimsoll::placement<plimsoll::seq_policy> placement;
    plimsoll::lplb<plimsoll::seq_policy> planner;
    explicit balancer(plimsoll::placement<plimsoll::seq_policy> plan)
        : placement(std::move(plan)), planner(plimsoll::seq, placement.ref(), {}) {}
  };
  recording const in;
  balancer first(plan_of(in, 0));
  balancer second(plan_of(in, 3));
  ints const before = quotas_of(first.planner, in, 1);
  ints const after = quotas_of(second.planner, in, 1);
  REQUIRE(before != after);

  balancer current(plan_of(in, 0));
  auto next = std::async(std::launch::async, [&] { return balancer(plan_of(in, 3)); });
  for (int step = 0; step < 3; ++step) {
    CHECK(quotas_of(current.planner, in, 1) == before);
  }
  current = next.get();
  CHECK(quotas_of(current.planner, in, 1) == after);
  balancer moved(std::move(current));
  CHECK(quotas_of(moved.planner, in, 1) == after);
}

TEST_CASE("threads: a resource that is safe for threads serves calls of several") {
  using namespace plimsoll_test;
  recording const in;
  auto const in_use = plan_of(in, 1);
  ints const expected = free_calls(plimsoll::seq, in, in_use.ref());
  locked_resource memory;
  std::vector<ints> results(thread_count);
  at_the_same_time([&](int thread) {
    results[static_cast<std::size_t>(thread)] = free_calls(plimsoll::seq(memory), in, in_use.ref());
  });
  for (ints const& result : results) {
    CHECK(result == expected);
  }
  CHECK(memory.taken() == 0);
}

TEST_CASE("threads: after fork the child plans with seq, whatever the parent's threads do") {
  using namespace plimsoll_test;
  recording const in;
  auto const in_use = plan_of(in, 1);
  ints const expected = free_calls(plimsoll::seq, in, in_use.ref());
#if PLIMSOLL_TEST_OMP
  REQUIRE(free_calls(plimsoll::omp(3), in, in_use.ref()) == expected);  // OpenMP has threads now
#endif
  std::jthread const busy([&](std::stop_token const& stop) {
    while (!stop.stop_requested()) {
      static_cast<void>(free_calls(plimsoll::seq, in, in_use.ref()));
    }
  });
  pid_t const child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    alarm(60);  // ends a child that waits forever
    _exit(free_calls(plimsoll::seq, in, in_use.ref()) == expected ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
