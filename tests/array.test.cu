// SPDX-License-Identifier: Apache-2.0
// Tests of array under the policies of a CUDA compiler.
#include "array.cases.hpp"
