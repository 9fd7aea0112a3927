// SPDX-License-Identifier: Apache-2.0
// Tests of transfers and validate under the policies of a CUDA compiler.
#include "migration_transfers.cases.hpp"
