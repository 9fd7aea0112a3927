// SPDX-License-Identifier: Apache-2.0
// Tests of replication under the policies of a CUDA compiler.
#include "replication.cases.hpp"
