// SPDX-License-Identifier: Apache-2.0
/// @file
/// The version of the library: the only copy, read by CMake and by every package recipe.
#pragma once

#define PLIMSOLL_VERSION_MAJOR 0
#define PLIMSOLL_VERSION_MINOR 5
#define PLIMSOLL_VERSION_PATCH 0
