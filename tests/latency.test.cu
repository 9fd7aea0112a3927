// SPDX-License-Identifier: Apache-2.0
// Tests of latency under the policies of a CUDA compiler.
#include "latency.cases.hpp"
