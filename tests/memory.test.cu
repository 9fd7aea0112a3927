// SPDX-License-Identifier: Apache-2.0
#include "memory.cases.hpp"
