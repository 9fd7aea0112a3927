// SPDX-License-Identifier: Apache-2.0
#include "craft.cases.hpp"
