// SPDX-License-Identifier: Apache-2.0
#include "makespan.cases.hpp"
