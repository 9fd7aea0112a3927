// SPDX-License-Identifier: Apache-2.0
#include "exact_math.cases.hpp"
