// SPDX-License-Identifier: Apache-2.0
#include "replication.cases.hpp"
