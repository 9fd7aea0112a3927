// SPDX-License-Identifier: Apache-2.0
#include "flow_placement.cases.hpp"
