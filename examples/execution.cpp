// SPDX-License-Identifier: Apache-2.0
// Plans under three policies: the calling thread, the same with a memory resource, and threads of a
// program's own pool.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory_resource>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <thread>
#include <vector>

// [pool]
/// Replace it by the thread pool of your program: runs f(i) for i in [0, n) on `threads` threads.
struct my_pool {
  int threads = 2;

  template <class F>
  void parallel_for(plimsoll::index_t n, F const& f) const {
    std::vector<std::jthread> workers;
    for (int worker = 0; worker < threads; ++worker) {
      workers.emplace_back([=, this] {
        for (plimsoll::index_t i = worker; i < n; i += threads) {
          f(i);
        }
      });
    }
  }
};

struct my_policy {
  my_pool* pool;
};

struct my_executor {
  my_pool* pool;

  template <class F>
  void for_blocks(plimsoll::index_t n, F&& f) const {
    pool->parallel_for(n, [&](plimsoll::index_t i) { f(i, i + 1); });
  }
};

template <>
struct plimsoll::policy_traits<my_policy> {
  static plimsoll::host_context<my_executor> resolve(my_policy const& policy) {
    return {my_executor{policy.pool}, {}};
  }
};
// [end]

namespace {

template <class Policy>
double worst_peak(Policy const& policy, std::vector<double> const& tokens) {
  plimsoll::array const loads(policy, tokens, 16, 64);
  auto const plan = plimsoll::eplb(policy, loads, 80, {.on = {.ranks = 8}});
  double peak = 0;
  for (plimsoll::certificate const& layer : plan.certificates) {
    peak = std::max(peak, layer.value);
  }
  return peak;
}

}  // namespace

int main() {
  std::vector<double> tokens(16 * 64);  // [layers, experts]
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    double const draw = plimsoll::random::uniform(0, 0, i);
    tokens[i] = 1000 * draw * draw;
  }
  // [policies]
  std::printf("seq:         peak %.2f\n", worst_peak(plimsoll::seq, tokens));

  std::pmr::unsynchronized_pool_resource memory;
  std::printf("seq(memory): peak %.2f\n", worst_peak(plimsoll::seq(memory), tokens));

  my_pool pool;
  std::printf("my_policy:   peak %.2f\n", worst_peak(my_policy{&pool}, tokens));
  // [end]
}
