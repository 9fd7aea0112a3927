// SPDX-License-Identifier: Apache-2.0
// capacity_mask: a layer whose experts have a limited capacity, on the host.
//
//     capacity_mask --gamma 1.25 --level rank
#include <plimsoll/execution.hpp>
#include <plimsoll/systems/token_drop.hpp>

#include "arrays.hpp"
#include "command_line.hpp"
#include "layer.hpp"
#include "summary.hpp"

int main(int argc, char** argv) {
  namespace example = capacity_mask_example;
  return example::run("capacity_mask", argc, argv, [](example::options const& o) {
    example::step_arrays arrays(plimsoll::seq, o);
    example::step_ref const step = arrays.view();

    // Once; takes all memory.
    plimsoll::token_drop drop(plimsoll::seq, example::drop_options(o, arrays.local_experts()));

    auto const for_all = [](plimsoll::index_t n, auto work) {
      for (plimsoll::index_t i = 0; i < n; ++i) {
        for (plimsoll::index_t h = 0; h < example::hidden; ++h) {
          work(i, h);
        }
      }
    };
    // Every step.
    return example::run_steps(o, plimsoll::seq, drop, arrays, [&] {
      drop.apply(step.logits, step.batch, step.kept);
      for_all(o.tokens, [&](auto token, auto h) { example::permute(step, token, h); });
      for_all(o.experts, [&](auto expert, auto h) { example::run_expert(step, expert, h); });
      for_all(o.tokens, [&](auto token, auto h) { example::combine(step, token, h); });
    });
  });
}
