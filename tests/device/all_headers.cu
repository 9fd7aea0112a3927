// SPDX-License-Identifier: Apache-2.0
// Every header as nvcc sees it, and every body instantiated for a device team, so that device code
// is compiled for all architectures even where no GPU runs it.
#include <every_header.hpp>
