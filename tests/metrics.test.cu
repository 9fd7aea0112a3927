// SPDX-License-Identifier: Apache-2.0
// Tests of metrics under the policies of a CUDA compiler.
#include "metrics.cases.hpp"
