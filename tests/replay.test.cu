// SPDX-License-Identifier: Apache-2.0
// Tests of replay under the policies of a CUDA compiler.
#include "replay.cases.hpp"
