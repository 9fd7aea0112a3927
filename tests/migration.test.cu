// SPDX-License-Identifier: Apache-2.0
// Tests of align, count_changes and changed_layers under the policies of a CUDA compiler.
#include "migration.cases.hpp"
