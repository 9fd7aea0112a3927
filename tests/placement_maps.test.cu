// SPDX-License-Identifier: Apache-2.0
// Tests of placement_maps under the policies of a CUDA compiler.
#include "placement_maps.cases.hpp"
