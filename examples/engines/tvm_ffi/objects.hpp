// SPDX-License-Identifier: Apache-2.0
// Makes the objects that an engine keeps between steps: their functions and arrays by name.
#pragma once

#include <memory>

#include "../common/objects.hpp"
#include "exports.hpp"
#include "tensors.hpp"

namespace tvm_ffi_example {

using object_members = ffi::Map<ffi::String, ffi::Any>;

template <class Backend>
struct objects {
  struct no_interface {};
  using lplb_object = plimsoll_engines::lplb<call<Backend>, no_interface>;
  using waterfill_object = plimsoll_engines::waterfill<call<Backend>, no_interface>;
  using capacity_mask_object = plimsoll_engines::capacity_mask<call<Backend>, no_interface>;
  using least_loaded_object = plimsoll_engines::least_loaded<call<Backend>, no_interface>;

  static object_members lplb(TensorView physical_to_logical, TensorView replica_count,
                             index_t ranks, Optional<TensorView> rank_offsets,
                             index_t max_token_copies) {
    call<Backend> const at("lplb", physical_to_logical);
    auto const object = std::make_shared<lplb_object>(at, physical_to_logical, replica_count, ranks,
                                                      rank_offsets, max_token_copies);
    return members()
        .add("update", object, &lplb_object::update)
        .add("count", object, &lplb_object::count)
        .add("plan", object, &lplb_object::plan)
        .add("dispatch", object, &lplb_object::dispatch)
        .add("check", object, &lplb_object::check)
        .add("counters", object, &lplb_object::counters)
        .add("quotas", object, object->quotas());
  }

  static object_members waterfill(DLDevice device, index_t rank, index_t ranks, index_t nodes,
                                  index_t slots, index_t top_k, index_t max_tokens, double weight,
                                  bool to_all_ranks) {
    auto const object =
        std::make_shared<waterfill_object>(call<Backend>("waterfill", device), rank, ranks, nodes,
                                           slots, top_k, max_tokens, weight, to_all_ranks);
    return members()
        .add("update", object, &waterfill_object::update)
        .add("count", object, &waterfill_object::count)
        .add("fill", object, &waterfill_object::fill)
        .add("check", object, &waterfill_object::check)
        .add("counters", object, &waterfill_object::counters);
  }

  static object_members capacity_mask(DLDevice device, index_t experts, index_t top_k,
                                      index_t max_tokens, double factor) {
    auto const object = std::make_shared<capacity_mask_object>(
        call<Backend>("capacity_mask", device), experts, top_k, max_tokens, factor);
    return members()
        .add("apply", object, &capacity_mask_object::apply)
        .add("check", object, &capacity_mask_object::check)
        .add("counters", object, &capacity_mask_object::counters);
  }

  static object_members least_loaded(DLDevice device, index_t rank, index_t ranks, index_t nodes,
                                     index_t experts, index_t max_token_copies, double alpha,
                                     index_t min_chunk, double threshold, index_t max_slots) {
    auto const object = std::make_shared<least_loaded_object>(
        call<Backend>("least_loaded", device), rank, ranks, nodes, experts, max_token_copies, alpha,
        min_chunk, threshold, max_slots);
    return members()
        .add("update", object, &least_loaded_object::update)
        .add("count", object, &least_loaded_object::count)
        .add("plan", object, &least_loaded_object::plan)
        .add("route", object, &least_loaded_object::route)
        .add("check", object, &least_loaded_object::check)
        .add("counters", object, &least_loaded_object::counters)
        .add("send_counts", object, object->send_counts())
        .add("receive_counts", object, object->receive_counts())
        .add("transfers", object, object->transfers())
        .add("transfer_offsets", object, object->transfer_offsets());
  }
};

}  // namespace tvm_ffi_example
