// SPDX-License-Identifier: Apache-2.0
#include "metrics.cases.hpp"
