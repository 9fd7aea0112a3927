// SPDX-License-Identifier: Apache-2.0
#include "minmax_lp.cases.hpp"
