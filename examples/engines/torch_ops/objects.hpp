// SPDX-License-Identifier: Apache-2.0
// The objects that an engine keeps between steps, as classes of PyTorch. A class is the same on all
// devices, so its functions, which common/objects.hpp describes and implements, are virtual.
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/ops/from_blob.h>
#include <torch/custom_class.h>

#include <plimsoll/views.hpp>

#include "../common/objects.hpp"
#include "tensors.hpp"

namespace torch_ops_example {

using plimsoll_engines::counter_list;
using int32_matrix = plimsoll::matrix_ref<std::int32_t const>;

struct kept_object : torch::CustomClassHolder {
  [[nodiscard]] virtual at::Device device() const = 0;
  virtual void check(bool allow_lost) = 0;
  virtual counter_list counters() = 0;
};

struct lplb_object : kept_object {
  virtual void update(Tensor const& physical_to_logical, Tensor const& replica_count,
                      optional_tensor const& rank_offsets) = 0;
  virtual void count(Tensor const& topk_ids, Tensor const& counts) = 0;
  virtual void plan(Tensor const& counts) = 0;
  virtual void dispatch(index_t layer, Tensor const& topk_ids, Tensor const& slots) = 0;
  [[nodiscard]] virtual int32_matrix quotas() const = 0;
};

struct waterfill_object : kept_object {
  virtual void update(optional_tensor const& rank_offsets, optional_tensor const& active) = 0;
  virtual void count(Tensor const& topk_ids, Tensor const& loads) = 0;
  virtual void fill(Tensor const& topk_ids, Tensor const& loads, Tensor const& ids,
                    optional_tensor const& weights, optional_tensor const& filled_weights) = 0;
};

struct capacity_mask_object : kept_object {
  virtual void apply(Tensor const& topk_ids, Tensor const& scores, Tensor const& kept_ids,
                     Tensor const& kept_scores, Tensor const& counts) = 0;
};

struct least_loaded_object : kept_object {
  virtual void update(Tensor const& physical_to_logical, optional_tensor const& rank_offsets,
                      optional_tensor const& active) = 0;
  virtual void count(Tensor const& topk_ids, Tensor const& counts) = 0;
  virtual void plan(Tensor const& counts) = 0;
  virtual void route(Tensor const& topk_ids, Tensor const& destinations, Tensor const& rows) = 0;
  [[nodiscard]] virtual int32_matrix send_counts() const = 0;
  [[nodiscard]] virtual int32_matrix receive_counts() const = 0;
  [[nodiscard]] virtual int32_matrix transfers() const = 0;
  [[nodiscard]] virtual plimsoll::vector_ref<std::int32_t const> transfer_offsets() const = 0;
};

/// Makes objects on the device of a tensor.
template <class Backend>
struct objects {
  static c10::intrusive_ptr<lplb_object> lplb(Tensor const& physical_to_logical,
                                              Tensor const& replica_count, index_t ranks,
                                              optional_tensor const& rank_offsets,
                                              index_t max_token_copies) {
    call<Backend> const at("lplb", physical_to_logical);
    return c10::make_intrusive<plimsoll_engines::lplb<call<Backend>, lplb_object>>(
        at, physical_to_logical, replica_count, ranks, rank_offsets, max_token_copies);
  }
  static c10::intrusive_ptr<waterfill_object> waterfill(Tensor const& like, index_t rank,
                                                        index_t ranks, index_t nodes, index_t slots,
                                                        index_t top_k, index_t max_tokens,
                                                        double weight, bool to_all_ranks) {
    call<Backend> const at("waterfill", like);
    return c10::make_intrusive<plimsoll_engines::waterfill<call<Backend>, waterfill_object>>(
        at, rank, ranks, nodes, slots, top_k, max_tokens, weight, to_all_ranks);
  }
  static c10::intrusive_ptr<capacity_mask_object> capacity_mask(Tensor const& like, index_t experts,
                                                                index_t top_k, index_t max_tokens,
                                                                double factor) {
    call<Backend> const at("capacity_mask", like);
    return c10::make_intrusive<
        plimsoll_engines::capacity_mask<call<Backend>, capacity_mask_object>>(at, experts, top_k,
                                                                              max_tokens, factor);
  }
  static c10::intrusive_ptr<least_loaded_object> least_loaded(Tensor const& like, index_t rank,
                                                              index_t ranks, index_t nodes,
                                                              index_t experts,
                                                              index_t max_token_copies,
                                                              double alpha, index_t min_chunk,
                                                              double threshold, index_t max_slots) {
    call<Backend> const at("least_loaded", like);
    return c10::make_intrusive<plimsoll_engines::least_loaded<call<Backend>, least_loaded_object>>(
        at, rank, ranks, nodes, experts, max_token_copies, alpha, min_chunk, threshold, max_slots);
  }
};

/// Functions of a class of PyTorch, whose first argument is of the class itself.
template <class Object>
void check(c10::intrusive_ptr<Object> const& self, bool allow_lost) {
  self->check(allow_lost);
}
template <class Object>
c10::Dict<std::string, std::int64_t> counters(c10::intrusive_ptr<Object> const& self) {
  c10::Dict<std::string, std::int64_t> result;
  for (auto const& [outcome, ids] : self->counters()) {
    result.insert(outcome, ids);
  }
  return result;
}

template <auto Array>
struct array;
/// Function that returns a tensor, which shows an array of the object and keeps it alive.
template <class Object, int Rank,
          plimsoll::array_ref<std::int32_t const, Rank> (Object::*Array)() const>
struct array<Array> {
  static Tensor of(c10::intrusive_ptr<Object> const& self) {
    auto const view = ((*self).*Array)();
    return at::from_blob(
        const_cast<std::int32_t*>(view.data), at::IntArrayRef(view.extents, Rank),
        at::IntArrayRef(view.strides, Rank), [owner = self](void*) {},
        at::TensorOptions(at::kInt).device(self->device()));
  }
};

}  // namespace torch_ops_example
