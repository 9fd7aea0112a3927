// SPDX-License-Identifier: Apache-2.0
#include "lla.cases.hpp"
