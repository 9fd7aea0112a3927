// SPDX-License-Identifier: Apache-2.0
// Tests of eplb under the policies of a CUDA compiler.
#include "eplb.cases.hpp"
