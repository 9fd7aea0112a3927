// SPDX-License-Identifier: Apache-2.0
#include "gem.cases.hpp"
