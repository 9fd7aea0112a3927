// SPDX-License-Identifier: Apache-2.0
// Tests of flow_placement under the policies of a CUDA compiler.
#include "flow_placement.cases.hpp"
