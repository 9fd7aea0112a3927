// SPDX-License-Identifier: Apache-2.0
// Tests of gem under the policies of a CUDA compiler.
#include "gem.cases.hpp"
