// SPDX-License-Identifier: Apache-2.0
#include "slot_assignment.cases.hpp"
