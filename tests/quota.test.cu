// SPDX-License-Identifier: Apache-2.0
#include "quota.cases.hpp"
