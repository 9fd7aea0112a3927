// SPDX-License-Identifier: Apache-2.0
// Prints the table of docs/memory.md: the memory that prepared objects and plans take from a
// policy's resource for a model of 58 layers x 256 experts in 320 slots of 64 ranks.
#include <plimsoll/plimsoll.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <string>

#define PLIMSOLL_BENCH_INPUTS_ONLY
#include "../../../bench/inputs.hpp"

namespace {

using plimsoll::index_t;

constexpr index_t steps = 8, layers = 58, experts = 256, slots = 320, ranks = 64;
constexpr index_t tokens = 4096, top_k = 8;

/// Counts the bytes that calls hold at a time.
struct counting_resource {
  std::size_t held = 0;
  std::size_t most = 0;

  void* allocate(std::size_t bytes, std::size_t alignment) {
    held += bytes;
    most = std::max(most, held);
    return ::operator new(bytes, std::align_val_t{alignment});
  }
  void deallocate(void* pointer, std::size_t bytes, std::size_t alignment) {
    held -= bytes;
    ::operator delete(pointer, bytes, std::align_val_t{alignment});
  }
};

std::string mebibytes(std::size_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f", static_cast<double>(bytes) / (1 << 20));
  return text;
}

/// Prints the row of what `make` returns: kept while it exists, most at any time.
template <class Make>
void row(char const* name, char const* prepared_for, Make const& make) {
  counting_resource memory;
  auto const policy = plimsoll::seq(memory);
  auto const made = make(policy);
  std::printf("| `%s` | %s | %s | %s |\n", name, prepared_for, mebibytes(memory.held).c_str(),
              mebibytes(memory.most).c_str());
}

}  // namespace

int main() {
  using plimsoll::seq;
  using policy = plimsoll::seq_policy;
  auto const recorded = plimsoll_bench::drifting_loads(steps, layers, experts);
  plimsoll::array_ref const history(recorded, steps, layers, experts);
  plimsoll::matrix_ref<std::int32_t const> const first(recorded.data(), layers, experts);
  plimsoll::rank_set const on{.ranks = ranks};
  auto const in_use = plimsoll::eplb(seq, first, slots, {.on = on});
  plimsoll::placement_ref const layer = in_use.ref().of_layer(0);
  plimsoll::matrix_ref<std::int32_t const> const later(
      recorded.data() + (steps - 1) * layers * experts, layers, experts);
  auto const fresh = plimsoll::eplb(seq, later, slots, {.on = on});

  std::puts("| object, or plan | prepared for | kept | at most |");
  std::puts("|---|---|---:|---:|");
  row("load_window", "all layers, 16 steps of int32", [&](policy const& p) {
    return plimsoll::load_window<std::int32_t, policy>(p, layers, experts, {.window = 16});
  });
  row("load_decay", "all layers",
      [&](policy const& p) { return plimsoll::load_decay<policy>(p, layers, experts); });
  row("minmax_lp", "all layers",
      [&](policy const& p) { return plimsoll::minmax_lp<policy>(p, in_use.ref()); });
  row("lplb", "all layers, 4096 x 8 ids", [&](policy const& p) {
    return plimsoll::lplb<policy>(p, in_use.ref(), {.max_token_copies = tokens * top_k});
  });
  row("lplb", "one layer, 4096 x 8 ids", [&](policy const& p) {
    return plimsoll::lplb<policy>(p, layer, {.max_token_copies = tokens * top_k});
  });
  row("waterfill", "one layer, 4096 tokens", [&](policy const& p) {
    return plimsoll::waterfill<policy>(p, layer, {.line = {.top_k = top_k, .max_tokens = tokens}});
  });
  plimsoll::least_loaded_options const spill{
      .on = on, .experts = experts, .max_token_copies = tokens * top_k};
  row("llep", "one layer, 4096 x 8 ids",
      [&](policy const& p) { return plimsoll::llep<policy>(p, {.rank = 0, .assignment = spill}); });
  row("capacity_mask", "4096 tokens, top-8", [&](policy const& p) {
    return plimsoll::capacity_mask<policy>(
        p, {.experts = experts, .top_k = top_k, .max_tokens = tokens});
  });
  row("token_drop", "4096 tokens, top-8", [&](policy const& p) {
    return plimsoll::token_drop<policy>(
        p, {.route = {.k = top_k}, .limit = {.experts = experts, .max_tokens = tokens}});
  });
  row("eplb", "all layers",
      [&](policy const& p) { return plimsoll::eplb(p, first, slots, {.on = on}); });
  row("place_by_flow", "8 steps, all layers",
      [&](policy const& p) { return plimsoll::place_by_flow(p, history, slots, {.on = on}); });
  row("plan_within", "all layers, a tenth of the slots", [&](policy const& p) {
    return plimsoll::plan_within(p, later, in_use.ref(), fresh.ref(), {.on = on},
                                 {.max_moves = layers * slots / 10});
  });
  row("craft", "8 steps, all layers", [&](policy const& p) {
    return plimsoll::craft(p, history, {.on = on, .budget = layers * (slots - experts)});
  });
}
