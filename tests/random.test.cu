// SPDX-License-Identifier: Apache-2.0
#include "random.cases.hpp"
