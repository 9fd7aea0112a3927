// SPDX-License-Identifier: Apache-2.0
#include "replay.cases.hpp"
