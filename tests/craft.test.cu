// SPDX-License-Identifier: Apache-2.0
// Tests of craft under the policies of a CUDA compiler.
#include "craft.cases.hpp"
