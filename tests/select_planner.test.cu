// SPDX-License-Identifier: Apache-2.0
// Tests of select_planner under the policies of a CUDA compiler.
#include "select_planner.cases.hpp"
