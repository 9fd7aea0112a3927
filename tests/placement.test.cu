// SPDX-License-Identifier: Apache-2.0
#include "placement.cases.hpp"
