// SPDX-License-Identifier: Apache-2.0
// Objects that an engine keeps between steps. Their calls write to the caller's tensors, allocate
// nothing and wait for nothing, so that a CUDA graph can capture them.
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/ops/from_blob.h>
#include <torch/custom_class.h>

#include <plimsoll/array.hpp>
#include <plimsoll/capacity_mask.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/systems/llep.hpp>
#include <plimsoll/systems/lplb.hpp>
#include <plimsoll/waterline.hpp>

#include "../common/counters.hpp"
#include "../common/planning.hpp"
#include "tensors.hpp"

namespace torch_ops_example {

using counter_dict = c10::Dict<std::string, std::int64_t>;

inline counter_dict to_dict(plimsoll_engines::counter_list const& counted) {
  counter_dict result;
  for (plimsoll_engines::counter const& one : counted) {
    result.insert(one.name, one.value);
  }
  return result;
}

/// LPLB: counts a batch, splits the counts of all ranks over the copies, and dispatches tokens.
struct lplb_object : torch::CustomClassHolder {
  /// Takes another placement of all layers, for the steps from now on, replays of captured ones
  /// included. Checks it and waits.
  virtual void update(Tensor const& physical_to_logical, Tensor const& replica_count,
                      optional_tensor const& rank_offsets) = 0;
  /// Counts `topk_ids[tokens, k]` into `counts[experts]` int32, which the engine sums over ranks.
  virtual void count(Tensor const& topk_ids, Tensor const& counts) = 0;
  /// Splits `counts[layers, experts]` int32.
  virtual void plan(Tensor const& counts) = 0;
  /// Writes the slot of every token copy to `slots[tokens, k]`, of the type of the ids.
  virtual void dispatch(index_t layer, Tensor const& topk_ids, Tensor const& slots) = 0;
  /// Throws if the last plan refused its counts, or, unless that is allowed, if the last dispatch
  /// of a layer had ids without a slot. Waits.
  virtual void check(bool allow_lost) = 0;
  /// Returns the number of ids of the last calls by outcome. Waits.
  virtual counter_dict counters() = 0;
  /// Tokens of every slot, `[layers, slots]` int32: memory of the object, which it keeps alive.
  virtual Tensor quotas() = 0;
};

/// Waterfill on one rank: places the rows of the shared expert so that they even out the ranks.
struct waterfill_object : torch::CustomClassHolder {
  /// Takes other slots of the ranks, for the steps from now on, replays of captured ones included:
  /// `rank_offsets[ranks + 1]` int32, or none where slots are spread evenly, and which ranks live,
  /// `active[ranks]` uint8, or none where that stays. `check` throws if their values are refused.
  virtual void update(optional_tensor const& rank_offsets, optional_tensor const& active) = 0;
  /// Counts this rank's `topk_ids[tokens, top_k]`, which are slots, into `loads[2, ranks]` int64,
  /// which the engine sums over ranks.
  virtual void count(Tensor const& topk_ids, Tensor const& loads) = 0;
  /// From the sums, writes `ids[tokens, top_k + 1]`, and its weights where they are given: float32
  /// `weights[tokens, top_k]` in and `filled_weights[tokens, top_k + 1]` out.
  virtual void fill(Tensor const& topk_ids, Tensor const& loads, Tensor const& ids,
                    optional_tensor const& weights, optional_tensor const& filled_weights) = 0;
  /// Throws if the last update or the last fill refused its values, or, unless that is allowed, if
  /// the last fill had ids that are not a slot. Waits.
  virtual void check(bool allow_lost) = 0;
  /// Returns the number of ids of the last calls by outcome. Waits.
  virtual counter_dict counters() = 0;
};

/// Token Drop on top-k ids: every expert keeps its best pairs, up to its capacity.
struct capacity_mask_object : torch::CustomClassHolder {
  /// Masks `topk_ids[tokens, top_k]` by float32 `scores[tokens, top_k]`: writes kept ids, or -1, to
  /// `kept_ids`, their scores, or 0, to `kept_scores`, and `counts[experts]` int32.
  virtual void apply(Tensor const& topk_ids, Tensor const& scores, Tensor const& kept_ids,
                     Tensor const& kept_scores, Tensor const& counts) = 0;
  /// Throws, unless that is allowed, if the last batch had ids that are not an expert's. Waits.
  virtual void check(bool allow_lost) = 0;
  /// Returns the number of ids of the last batch by outcome. Waits.
  virtual counter_dict counters() = 0;
};

/// LLEP on one rank: spills the tokens of overloaded ranks to the least loaded ones.
struct least_loaded_object : torch::CustomClassHolder {
  /// Takes other homes of experts, for the steps from now on, replays of captured ones included:
  /// `physical_to_logical[slots]` int32 of one layer; the others are those of waterfill's `update`.
  virtual void update(Tensor const& physical_to_logical, optional_tensor const& rank_offsets,
                      optional_tensor const& active) = 0;
  /// Counts this rank's `topk_ids[tokens, k]` into `counts[experts]` int32, its row of the matrix
  /// that the engine gathers from all ranks.
  virtual void count(Tensor const& topk_ids, Tensor const& counts) = 0;
  /// Plans from `counts[ranks, experts]` int32, the rows of all ranks.
  virtual void plan(Tensor const& counts) = 0;
  /// Writes the rank of every counted token copy, and its row in the send buffer, to
  /// `destinations[tokens, k]` and `rows[tokens, k]`, of the type of the ids.
  virtual void route(Tensor const& topk_ids, Tensor const& destinations, Tensor const& rows) = 0;
  /// Throws if the last update or the last plan refused its values, or, unless that is allowed, if
  /// the last route had ids without a rank. Waits.
  virtual void check(bool allow_lost) = 0;
  /// Returns the number of ids of the last calls by outcome. Waits.
  virtual counter_dict counters() = 0;
  /// The object's own memory, int32: tokens that each rank (row) sends to each rank, and receives
  /// from each; expert, from and to of each transfer; offsets of transfers, of which the last is
  /// their number.
  virtual Tensor send_counts() = 0;
  virtual Tensor receive_counts() = 0;
  virtual Tensor transfers() = 0;
  virtual Tensor transfer_offsets() = 0;
};

/// Implements an object on the device and stream on which it was made. Its calls must come on the
/// same stream: the object's work is ordered by it.
template <class Backend, class Interface>
class kept : public Interface {
 protected:
  explicit kept(call<Backend> const& at)
      : device_(at.device()), stream_(Backend::stream_of(at.device())) {}

  [[nodiscard]] call<Backend> again(char const* function) const {
    if (Backend::stream_of(device_) != stream_) {
      throw plimsoll::invalid_input(
          std::string(function) +
          ": stream: expected the stream on which the object was made, got another");
    }
    return {function, device_};
  }

  /// Returns a tensor that shows an array of this object and keeps it alive.
  template <int Rank>
  Tensor borrow(plimsoll::array_ref<std::int32_t const, Rank> const& view) {
    return at::from_blob(
        const_cast<std::int32_t*>(view.data), at::IntArrayRef(view.extents, Rank),
        at::IntArrayRef(view.strides, Rank),
        [owner = c10::intrusive_ptr<torch::CustomClassHolder>::reclaim_copy(this)](void*) {},
        at::TensorOptions(at::kInt).device(device_));
  }

 private:
  at::Device device_;
  void* stream_;
};

/// Copies an engine's maps, int32 or int64, and checks them.
template <class Backend>
auto placement_of(call<Backend> const& at, Tensor const& physical_to_logical,
                  Tensor const& replica_count, index_t ranks, optional_tensor const& rank_offsets) {
  plimsoll::placement<typename Backend::policy_type> result;
  at.with_ids("physical_to_logical", physical_to_logical, 2, "[layers, slots]", [&](auto id) {
    using Id = decltype(id) const;
    auto const map =
        at.template view<Id, 2>("physical_to_logical", physical_to_logical, "[layers, slots]");
    auto const counts =
        at.template view<Id, 2>("replica_count", replica_count, "[layers, experts]");
    plimsoll::matrix_ref<Id> offsets;
    if (rank_offsets.has_value()) {
      offsets = at.template view<Id, 2>("rank_offsets", *rank_offsets, "[layers, ranks + 1]");
    }
    result = plimsoll::copy_placement(at.policy(), map, counts, ranks, offsets);
  });
  plimsoll::validate(at.policy(), result.ref());
  return result;
}

template <class Backend>
class lplb final : public kept<Backend, lplb_object> {
  using base = kept<Backend, lplb_object>;

 public:
  lplb(call<Backend> const& at, Tensor const& physical_to_logical, Tensor const& replica_count,
       index_t ranks, optional_tensor const& rank_offsets, index_t max_token_copies)
      : base(at),
        placement_(placement_of(at, physical_to_logical, replica_count, ranks, rank_offsets)),
        splitter_(at.policy(), placement_.ref(), {.max_token_copies = max_token_copies}),
        routing_(at.policy(), 1),
        dispatched_(at.policy(), placement_.physical_to_logical.extent(0)) {}

  void update(Tensor const& physical_to_logical, Tensor const& replica_count,
              optional_tensor const& rank_offsets) override {
    auto const at = this->again("lplb.update");
    auto next =
        placement_of(at, physical_to_logical, replica_count, placement_.ref().ranks, rank_offsets);
    splitter_.update(0, next.ref());
    placement_ = std::move(next);  // the enqueued kernel reads its arrays
  }
  void count(Tensor const& topk_ids, Tensor const& counts) override {
    auto const at = this->again("lplb.count");
    at.with_ids("topk_ids", topk_ids, 2, "[tokens, k]", [&](auto id) {
      plimsoll::count_tokens(
          at.policy(), at.template view<decltype(id) const, 2>("topk_ids", topk_ids, "[tokens, k]"),
          {}, at.template view<std::int32_t, 1>("counts", counts, "[experts]"), routing_);
    });
  }
  void plan(Tensor const& counts) override {
    auto const at = this->again("lplb.plan");
    splitter_.plan(at.template view<std::int32_t const, 2>("counts", counts, "[layers, experts]"));
  }
  void dispatch(index_t layer, Tensor const& topk_ids, Tensor const& slots) override {
    auto const at = this->again("lplb.dispatch");
    at.with_ids("topk_ids", topk_ids, 2, "[tokens, k]", [&](auto id) {
      using Id = decltype(id);
      splitter_.dispatch(layer, at.template view<Id const, 2>("topk_ids", topk_ids, "[tokens, k]"),
                         at.template view<Id, 2>("slots", slots, "[tokens, k]"),
                         counters_in(layer));
    });
  }
  void check(bool allow_lost) override {
    [[maybe_unused]] auto const at = this->again("lplb.check");
    splitter_.check();
    if (!allow_lost) {
      plimsoll_engines::expect_none_lost("lplb.dispatch",
                                         plimsoll_engines::sum_of(dispatched_.to_host()),
                                         {"without_slot", "out_of_range"});
    }
  }
  counter_dict counters() override {
    [[maybe_unused]] auto const at = this->again("lplb.counters");
    return to_dict(plimsoll_engines::sum_of(dispatched_.to_host()));
  }

  static c10::intrusive_ptr<lplb_object> make(Tensor const& physical_to_logical,
                                              Tensor const& replica_count, index_t ranks,
                                              optional_tensor const& rank_offsets,
                                              index_t max_token_copies) {
    call<Backend> const at("lplb", physical_to_logical);
    return c10::make_intrusive<lplb>(at, physical_to_logical, replica_count, ranks, rank_offsets,
                                     max_token_copies);
  }

  Tensor quotas() override { return this->borrow(splitter_.quotas()); }

 private:
  using policy_type = typename Backend::policy_type;

  /// Returns the counters of a layer; `dispatch` refuses a layer that does not exist.
  plimsoll::vector_ref<plimsoll::dispatch_counters> counters_in(index_t layer) {
    bool const exists = layer >= 0 && layer < dispatched_.size();
    return {dispatched_.data_handle() + (exists ? layer : 0), 1};
  }

  plimsoll::placement<policy_type> placement_;
  plimsoll::lplb<policy_type> splitter_;
  plimsoll::array<plimsoll::routing_counters, policy_type> routing_;
  plimsoll::array<plimsoll::dispatch_counters, policy_type> dispatched_;
};

template <class Backend>
class waterfill final : public kept<Backend, waterfill_object> {
  using base = kept<Backend, waterfill_object>;

 public:
  waterfill(call<Backend> const& at, plimsoll::waterline_options const& options, index_t rank)
      : base(at), line_(at.policy(), options), rank_(rank) {}

  void update(optional_tensor const& rank_offsets, optional_tensor const& active) override {
    plimsoll_engines::update_slots(this->again("waterfill.update"), line_, rank_offsets, active);
  }
  void count(Tensor const& topk_ids, Tensor const& loads) override {
    auto const at = this->again("waterfill.count");
    at.with_ids("topk_ids", topk_ids, 2, "[tokens, top_k]", [&](auto id) {
      line_.count(at.template view<decltype(id) const, 2>("topk_ids", topk_ids, "[tokens, top_k]"),
                  rank_, at.template view<std::int64_t, 2>("loads", loads, "[2, ranks]"));
    });
  }
  void fill(Tensor const& topk_ids, Tensor const& loads, Tensor const& ids,
            optional_tensor const& weights, optional_tensor const& filled_weights) override {
    auto const at = this->again("waterfill.fill");
    plimsoll::waterline_batch batch;
    plimsoll::filled_rows rows;
    if (weights.has_value()) {
      batch.weights = at.template view<float const, 2>("weights", *weights, "[tokens, top_k]");
    }
    if (filled_weights.has_value()) {
      rows.weights =
          at.template view<float, 2>("filled_weights", *filled_weights, "[tokens, top_k + 1]");
    }
    auto const sums = at.template view<std::int64_t const, 2>("loads", loads, "[2, ranks]");
    at.with_ids("topk_ids", topk_ids, 2, "[tokens, top_k]", [&](auto id) {
      using Id = decltype(id);
      auto const in = at.template view<Id const, 2>("topk_ids", topk_ids, "[tokens, top_k]");
      auto const out = at.template view<Id, 2>("ids", ids, "[tokens, top_k + 1]");
      line_.plan(sums, rank_);
      line_.fill(in, rank_, batch, out, rows);
    });
  }
  void check(bool allow_lost) override {
    [[maybe_unused]] auto const at = this->again("waterfill.check");
    line_.check();
    if (!allow_lost) {
      plimsoll_engines::expect_none_lost("waterfill.fill", report(at), {"out_of_range"});
    }
  }
  counter_dict counters() override { return to_dict(report(this->again("waterfill.counters"))); }

  static c10::intrusive_ptr<waterfill_object> make(Tensor const& like, index_t rank, index_t ranks,
                                                   index_t nodes, index_t slots, index_t top_k,
                                                   index_t max_tokens, double weight,
                                                   bool to_all_ranks) {
    call<Backend> const at("waterfill", like);
    return c10::make_intrusive<waterfill>(
        at,
        plimsoll::waterline_options{.on = {.ranks = ranks, .nodes = nodes},
                                    .slots = slots,
                                    .top_k = top_k,
                                    .max_tokens = max_tokens,
                                    .candidates = to_all_ranks ? plimsoll::candidate_ranks::all
                                                               : plimsoll::candidate_ranks::visited,
                                    .weight = static_cast<float>(weight)},
        rank);
  }

 private:
  plimsoll_engines::counter_list report(call<Backend> const& at) {
    return plimsoll_engines::sum_of(plimsoll::read(at.policy(), line_.report()));
  }

  plimsoll::waterline<typename Backend::policy_type> line_;
  index_t rank_;
};

template <class Backend>
class capacity_mask final : public kept<Backend, capacity_mask_object> {
  using base = kept<Backend, capacity_mask_object>;

 public:
  capacity_mask(call<Backend> const& at, plimsoll::capacity_options const& options)
      : base(at), mask_(at.policy(), options), report_(at.policy(), 1) {}

  void apply(Tensor const& topk_ids, Tensor const& scores, Tensor const& kept_ids,
             Tensor const& kept_scores, Tensor const& counts) override {
    auto const at = this->again("capacity_mask.apply");
    at.with_ids("topk_ids", topk_ids, 2, "[tokens, top_k]", [&](auto id) {
      using Id = decltype(id);
      mask_.apply(
          at.template view<Id const, 2>("topk_ids", topk_ids, "[tokens, top_k]"),
          at.template view<float const, 2>("scores", scores, "[tokens, top_k]"),
          plimsoll::kept_pairs_of<Id>{
              .ids = at.template view<Id, 2>("kept_ids", kept_ids, "[tokens, top_k]"),
              .weights = at.template view<float, 2>("kept_scores", kept_scores, "[tokens, top_k]"),
              .counts = at.template view<std::int32_t, 1>("counts", counts, "[experts]"),
              .report = report_.view()});
    });
  }
  void check(bool allow_lost) override {
    [[maybe_unused]] auto const at = this->again("capacity_mask.check");
    if (!allow_lost) {
      plimsoll_engines::expect_none_lost(
          "capacity_mask.apply", plimsoll_engines::sum_of(report_.to_host()), {"out_of_range"});
    }
  }
  counter_dict counters() override {
    [[maybe_unused]] auto const at = this->again("capacity_mask.counters");
    return to_dict(plimsoll_engines::sum_of(report_.to_host()));
  }

  static c10::intrusive_ptr<capacity_mask_object> make(Tensor const& like, index_t experts,
                                                       index_t top_k, index_t max_tokens,
                                                       double factor) {
    call<Backend> const at("capacity_mask", like);
    return c10::make_intrusive<capacity_mask>(
        at, plimsoll::capacity_options{
                .experts = experts, .top_k = top_k, .max_tokens = max_tokens, .factor = factor});
  }

 private:
  using policy_type = typename Backend::policy_type;

  plimsoll::capacity_mask<policy_type> mask_;
  plimsoll::array<plimsoll::capacity_report, policy_type> report_;
};

template <class Backend>
class least_loaded final : public kept<Backend, least_loaded_object> {
  using base = kept<Backend, least_loaded_object>;

 public:
  least_loaded(call<Backend> const& at, index_t rank, plimsoll::least_loaded_options const& options)
      : base(at), planner_(at.policy(), options), rank_(rank), routed_(at.policy(), 1) {}

  void update(Tensor const& physical_to_logical, optional_tensor const& rank_offsets,
              optional_tensor const& active) override {
    plimsoll_engines::update_homes(this->again("least_loaded.update"), planner_,
                                   physical_to_logical, rank_offsets, active);
  }
  void count(Tensor const& topk_ids, Tensor const& counts) override {
    auto const at = this->again("least_loaded.count");
    at.with_ids("topk_ids", topk_ids, 2, "[tokens, k]", [&](auto id) {
      planner_.count(at.template view<decltype(id) const, 2>("topk_ids", topk_ids, "[tokens, k]"),
                     at.template view<std::int32_t, 1>("counts", counts, "[experts]"));
    });
  }
  void plan(Tensor const& counts) override {
    auto const at = this->again("least_loaded.plan");
    planner_.add_up(at.template view<std::int32_t const, 2>("counts", counts, "[ranks, experts]"));
    planner_.plan();
    planner_.exchange();
  }
  void route(Tensor const& topk_ids, Tensor const& destinations, Tensor const& rows) override {
    auto const at = this->again("least_loaded.route");
    at.with_ids("topk_ids", topk_ids, 2, "[tokens, k]", [&](auto id) {
      using Id = decltype(id);
      planner_.route(rank_, at.template view<Id const, 2>("topk_ids", topk_ids, "[tokens, k]"),
                     at.template view<Id, 2>("destinations", destinations, "[tokens, k]"),
                     at.template view<Id, 2>("rows", rows, "[tokens, k]"), routed_);
    });
  }
  void check(bool allow_lost) override {
    [[maybe_unused]] auto const at = this->again("least_loaded.check");
    planner_.check();
    if (!allow_lost) {
      plimsoll_engines::expect_none_lost("least_loaded.route",
                                         plimsoll_engines::sum_of(routed_.to_host()),
                                         {"unplanned", "out_of_range"});
    }
  }
  counter_dict counters() override {
    [[maybe_unused]] auto const at = this->again("least_loaded.counters");
    return to_dict(plimsoll_engines::sum_of(routed_.to_host()));
  }

  static c10::intrusive_ptr<least_loaded_object> make(Tensor const& like, index_t rank,
                                                      index_t ranks, index_t nodes, index_t experts,
                                                      index_t max_token_copies, double alpha,
                                                      index_t min_chunk, double threshold,
                                                      index_t max_slots) {
    call<Backend> const at("least_loaded", like);
    if (rank < 0 || rank >= ranks) {
      throw plimsoll::invalid_input("least_loaded: rank: expected 0 to ranks - 1, got " +
                                    std::to_string(rank));
    }
    return c10::make_intrusive<least_loaded>(
        at, rank,
        plimsoll::least_loaded_options{.on = {.ranks = ranks, .nodes = nodes},
                                       .experts = experts,
                                       .max_slots = max_slots,
                                       .alpha = alpha,
                                       .min_chunk = min_chunk,
                                       .lambda = threshold,
                                       .max_token_copies = max_token_copies});
  }

  Tensor send_counts() override { return this->borrow(planner_.send_counts()); }
  Tensor receive_counts() override { return this->borrow(planner_.receive_counts()); }
  Tensor transfers() override { return this->borrow(columns_of(planner_.transfers())); }
  Tensor transfer_offsets() override { return this->borrow(planner_.transfer_offsets()); }

 private:
  /// Shows the first three members of transfers as columns.
  static plimsoll::matrix_ref<std::int32_t const> columns_of(
      plimsoll::vector_ref<plimsoll::spill_transfer const> const& transfers) {
    plimsoll::matrix_ref<std::int32_t const> result;
    result.data = &transfers.data->expert;
    result.extents[0] = transfers.extent(0);
    result.extents[1] = 3;
    result.strides[0] = sizeof(plimsoll::spill_transfer) / sizeof(std::int32_t);
    result.strides[1] = 1;
    return result;
  }

  using policy_type = typename Backend::policy_type;

  plimsoll::least_loaded<policy_type> planner_;
  index_t rank_;
  plimsoll::array<plimsoll::spill_counters, policy_type> routed_;
};

}  // namespace torch_ops_example
