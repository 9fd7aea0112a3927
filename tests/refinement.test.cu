// SPDX-License-Identifier: Apache-2.0
// Tests of refinement under the policies of a CUDA compiler.
#include "refinement.cases.hpp"
