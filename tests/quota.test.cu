// SPDX-License-Identifier: Apache-2.0
// Tests of quota under the policies of a CUDA compiler.
#include "quota.cases.hpp"
