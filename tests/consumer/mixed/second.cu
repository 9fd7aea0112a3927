// SPDX-License-Identifier: Apache-2.0
#define CONSUMER_SECOND
#include "../main.cpp"
