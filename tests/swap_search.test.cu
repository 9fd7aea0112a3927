// SPDX-License-Identifier: Apache-2.0
#include "swap_search.cases.hpp"
