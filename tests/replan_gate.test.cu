// SPDX-License-Identifier: Apache-2.0
// Tests of replan_gate under the policies of a CUDA compiler.
#include "replan_gate.cases.hpp"
