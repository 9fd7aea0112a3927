// SPDX-License-Identifier: Apache-2.0
#include "placement_maps.cases.hpp"
