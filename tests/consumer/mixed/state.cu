// SPDX-License-Identifier: Apache-2.0
#define MIXED_COMPILER of_cuda
#include "state.cpp"
