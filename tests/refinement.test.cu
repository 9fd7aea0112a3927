// SPDX-License-Identifier: Apache-2.0
#include "refinement.cases.hpp"
