// SPDX-License-Identifier: Apache-2.0
#include "eplb.cases.hpp"
