// SPDX-License-Identifier: Apache-2.0
// Two ranks plan from the same loads, in different types, layouts and orders of work.
#include <cstdint>
#include <cstdio>
#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <vector>

namespace {

struct backwards {};  // a policy that solves the last layer first

struct backwards_executor {
  template <class F>
  void for_blocks(plimsoll::index_t n, F&& f) const {
    for (plimsoll::index_t i = n; i > 0; --i) {
      f(i - 1, i);
    }
  }
};

/// Returns the FNV-1a hash of the slots of a plan.
std::uint64_t hash(std::vector<std::int32_t> const& slots) {
  std::uint64_t result = 0xcbf29ce484222325u;
  for (std::int32_t const expert : slots) {
    result = (result ^ static_cast<std::uint32_t>(expert)) * 0x100000001b3u;
  }
  return result;
}

}  // namespace

template <>
struct plimsoll::policy_traits<backwards> {
  static plimsoll::host_context<backwards_executor> resolve(backwards const&) { return {}; }
};

int main() {
  constexpr plimsoll::index_t layers = 16;
  constexpr plimsoll::index_t experts = 64;
  std::vector<std::int32_t> tokens;                  // [layers, experts]
  std::vector<double> transposed(layers * experts);  // [experts, layers]
  for (plimsoll::index_t layer = 0; layer < layers; ++layer) {
    for (plimsoll::index_t expert = 0; expert < experts; ++expert) {
      auto const i = static_cast<std::uint64_t>(layer * experts + expert);
      tokens.push_back(static_cast<std::int32_t>(plimsoll::random::bits(0, 0, i) % 1000));
      transposed[static_cast<std::size_t>(expert * layers + layer)] = tokens.back();
    }
  }
  // [two_ranks]
  plimsoll::matrix_ref<std::int32_t const> const loads(tokens, layers, experts);
  auto const one = plimsoll::eplb(plimsoll::seq, loads, 80, {.on = {.ranks = 8}});

  plimsoll::matrix_ref<double const> same_loads(transposed, layers, experts);
  same_loads.strides[0] = 1;
  same_loads.strides[1] = layers;
  auto const other = plimsoll::eplb(backwards{}, same_loads, 80, {.on = {.ranks = 8}});
  // [end]

  auto const slots = one.physical_to_logical.to_host();
  std::printf("%s\n", slots == other.physical_to_logical.to_host() ? "the same plan" : "two plans");
  std::printf("hash on every machine: %016llx\n", static_cast<unsigned long long>(hash(slots)));
}
