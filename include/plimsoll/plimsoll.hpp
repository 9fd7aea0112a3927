// SPDX-License-Identifier: Apache-2.0
/// @file
/// Includes every public header that needs only the standard library (and, under a CUDA compiler,
/// the CUDA Toolkit). Opt-in headers are in <plimsoll/execution/>.
#pragma once

#include <plimsoll/config.hpp>  // first: its messages come before other errors

#include <plimsoll/array.hpp>
#include <plimsoll/capacity_mask.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/knapsack.hpp>
#include <plimsoll/latency.hpp>
#include <plimsoll/least_loaded.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/metrics.hpp>
#include <plimsoll/migration.hpp>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/quota.hpp>
#include <plimsoll/random.hpp>
#include <plimsoll/refinement.hpp>
#include <plimsoll/replan_gate.hpp>
#include <plimsoll/replay.hpp>
#include <plimsoll/replication.hpp>
#include <plimsoll/slot_assignment.hpp>
#include <plimsoll/swap_search.hpp>
#include <plimsoll/systems/craft.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/systems/gem.hpp>
#include <plimsoll/systems/llep.hpp>
#include <plimsoll/systems/lplb.hpp>
#include <plimsoll/systems/select_planner.hpp>
#include <plimsoll/systems/token_drop.hpp>
#include <plimsoll/systems/waterfill.hpp>
#include <plimsoll/top_k.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/version.hpp>
#include <plimsoll/views.hpp>
#include <plimsoll/waterline.hpp>
