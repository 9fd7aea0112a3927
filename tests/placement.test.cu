// SPDX-License-Identifier: Apache-2.0
// Tests of placement under the policies of a CUDA compiler.
#include "placement.cases.hpp"
