// SPDX-License-Identifier: Apache-2.0
// Tests of memory under the policies of a CUDA compiler.
#include "memory.cases.hpp"
