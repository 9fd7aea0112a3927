// SPDX-License-Identifier: Apache-2.0
// Tests of plan_within under the policies of a CUDA compiler.
#include "migration_plan.cases.hpp"
