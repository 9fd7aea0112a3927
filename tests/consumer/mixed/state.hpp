// SPDX-License-Identifier: Apache-2.0
// Holds state that the .cpp and .cu files of an engine share: each makes it, reads it and moves it.
#pragma once

#include <plimsoll/plimsoll.hpp>

struct state {
  plimsoll::array<double, plimsoll::seq_policy, 3> loads;  // [steps, layers, experts]
  plimsoll::placement<plimsoll::seq_policy> plan;
  plimsoll::flow_plan<plimsoll::seq_policy> flow;
};

// Declares the same functions for each compiler.
#define MIXED_DECLARE(compiler)                                            \
  namespace compiler {                                                     \
  /* Plans a layer of two experts, with loads 3 and 1, on three ranks. */  \
  state make();                                                            \
  bool as_expected(state const& given);                                    \
  /* Moves the plan out of the state, as a caller that keeps only that. */ \
  plimsoll::placement<plimsoll::seq_policy> take(state&& given);           \
  bool as_expected(plimsoll::placement<plimsoll::seq_policy> const& plan); \
  }
MIXED_DECLARE(of_host)
MIXED_DECLARE(of_cuda)
#undef MIXED_DECLARE
