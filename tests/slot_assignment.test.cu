// SPDX-License-Identifier: Apache-2.0
// Tests of slot_assignment under the policies of a CUDA compiler.
#include "slot_assignment.cases.hpp"
