// SPDX-License-Identifier: Apache-2.0
// Objects that an engine keeps between steps. Their calls write to the caller's tensors, allocate
// nothing and wait for nothing, so that a CUDA graph can capture them.
#pragma once

#include <tvm/ffi/container/map.h>

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
#include "exports.hpp"
#include "tensors.hpp"

namespace tvm_ffi_example {

using ffi::Optional;
using object_members = ffi::Map<ffi::String, ffi::Any>;
using counter_map = ffi::Map<ffi::String, std::int64_t>;

inline counter_map to_map(plimsoll_engines::counter_list const& counted) {
  counter_map result;
  for (plimsoll_engines::counter const& one : counted) {
    result.Set(one.name, one.value);
  }
  return result;
}

/// Device and stream on which an object was made. Its calls must come on the same stream: the
/// object's work is ordered by it.
template <class Backend>
class kept_object {
 public:
  using policy_type = typename Backend::policy_type;

 protected:
  explicit kept_object(call<Backend> const& at)
      : device_(at.device()), stream_(Backend::stream_of(at.device())) {}

  [[nodiscard]] call<Backend> again(char const* function) const {
    if (Backend::stream_of(device_) != stream_) {
      refuse(function, "stream", "the stream on which the object was made", "another");
    }
    return {function, device_};
  }

 private:
  DLDevice device_;
  void* stream_;
};

/// Copies an engine's maps, int32 or int64, and checks them.
template <class Backend>
auto placement_of(call<Backend> const& at, TensorView const& physical_to_logical,
                  TensorView const& replica_count, index_t ranks,
                  Optional<TensorView> const& rank_offsets) {
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

/// LPLB: counts a batch, splits the counts of all ranks over the copies, and dispatches tokens.
template <class Backend>
class lplb : kept_object<Backend> {
 public:
  lplb(call<Backend> const& at, TensorView physical_to_logical, TensorView replica_count,
       index_t ranks, Optional<TensorView> rank_offsets, index_t max_token_copies)
      : kept_object<Backend>(at),
        placement_(placement_of(at, physical_to_logical, replica_count, ranks, rank_offsets)),
        splitter_(at.policy(), placement_.ref(), {.max_token_copies = max_token_copies}),
        routing_(at.policy(), 1),
        dispatched_(at.policy(), placement_.physical_to_logical.extent(0)) {}

  /// Takes another placement of all layers, for the steps from now on, replays of captured ones
  /// included. Checks it and waits.
  void update(TensorView physical_to_logical, TensorView replica_count,
              Optional<TensorView> rank_offsets) {
    auto const at = this->again("lplb.update");
    auto next =
        placement_of(at, physical_to_logical, replica_count, placement_.ref().ranks, rank_offsets);
    splitter_.update(0, next.ref());
    placement_ = std::move(next);  // the enqueued kernel reads its arrays
  }
  /// Counts `topk_ids[tokens, k]` into `counts[experts]` int32, which the engine sums over ranks.
  void count(TensorView topk_ids, TensorView counts) {
    auto const at = this->again("lplb.count");
    at.with_ids("topk_ids", topk_ids, 2, "[tokens, k]", [&](auto id) {
      plimsoll::count_tokens(
          at.policy(), at.template view<decltype(id) const, 2>("topk_ids", topk_ids, "[tokens, k]"),
          {}, at.template view<std::int32_t, 1>("counts", counts, "[experts]"), routing_);
    });
  }
  /// Splits `counts[layers, experts]` int32.
  void plan(TensorView counts) {
    auto const at = this->again("lplb.plan");
    splitter_.plan(at.template view<std::int32_t const, 2>("counts", counts, "[layers, experts]"));
  }
  /// Writes the slot of every token copy to `slots[tokens, k]`, of the type of the ids.
  void dispatch(index_t layer, TensorView topk_ids, TensorView slots) {
    auto const at = this->again("lplb.dispatch");
    at.with_ids("topk_ids", topk_ids, 2, "[tokens, k]", [&](auto id) {
      using Id = decltype(id);
      splitter_.dispatch(layer, at.template view<Id const, 2>("topk_ids", topk_ids, "[tokens, k]"),
                         at.template view<Id, 2>("slots", slots, "[tokens, k]"),
                         counters_in(layer));
    });
  }
  /// Throws if the last plan refused its counts, or, unless that is allowed, if the last dispatch
  /// of a layer had ids without a slot. Waits.
  void check(bool allow_lost) {
    [[maybe_unused]] auto const at = this->again("lplb.check");
    splitter_.check();
    if (!allow_lost) {
      plimsoll_engines::expect_none_lost("lplb.dispatch",
                                         plimsoll_engines::sum_of(dispatched_.to_host()),
                                         {"without_slot", "out_of_range"});
    }
  }
  /// Returns what the last dispatch of every layer counted, summed. Waits.
  counter_map counters() {
    [[maybe_unused]] auto const at = this->again("lplb.counters");
    return to_map(plimsoll_engines::sum_of(dispatched_.to_host()));
  }

  static object_members make(TensorView physical_to_logical, TensorView replica_count,
                             index_t ranks, Optional<TensorView> rank_offsets,
                             index_t max_token_copies) {
    call<Backend> const at("lplb", physical_to_logical);
    auto const object = std::make_shared<lplb>(at, physical_to_logical, replica_count, ranks,
                                               rank_offsets, max_token_copies);
    return members()
        .add("update", object, &lplb::update)
        .add("count", object, &lplb::count)
        .add("plan", object, &lplb::plan)
        .add("dispatch", object, &lplb::dispatch)
        .add("check", object, &lplb::check)
        .add("counters", object, &lplb::counters)
        .add("quotas", borrow<std::int32_t>(object, at.device(), object->splitter_.quotas()));
  }

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

/// Waterfill on one rank: places the rows of the shared expert so that they even out the ranks.
template <class Backend>
class waterfill : kept_object<Backend> {
 public:
  waterfill(call<Backend> const& at, plimsoll::waterline_options const& options, index_t rank)
      : kept_object<Backend>(at), line_(at.policy(), options), rank_(rank) {}

  /// Takes other slots of the ranks, for the steps from now on, replays of captured ones included:
  /// `rank_offsets[ranks + 1]` int32, or none where slots are spread evenly, and which ranks live,
  /// `active[ranks]` uint8, or none where that stays. `check` throws if their values are refused.
  void update(Optional<TensorView> rank_offsets, Optional<TensorView> active) {
    plimsoll_engines::update_slots(this->again("waterfill.update"), line_, rank_offsets, active);
  }
  /// Counts this rank's `topk_ids[tokens, top_k]`, which are slots, into `loads[2, ranks]` int64,
  /// which the engine sums over ranks.
  void count(TensorView topk_ids, TensorView loads) {
    auto const at = this->again("waterfill.count");
    at.with_ids("topk_ids", topk_ids, 2, "[tokens, top_k]", [&](auto id) {
      line_.count(at.template view<decltype(id) const, 2>("topk_ids", topk_ids, "[tokens, top_k]"),
                  rank_, at.template view<std::int64_t, 2>("loads", loads, "[2, ranks]"));
    });
  }
  /// From the sums, writes `ids[tokens, top_k + 1]`, and its weights where they are given: float32
  /// `weights[tokens, top_k]` in and `filled_weights[tokens, top_k + 1]` out.
  void fill(TensorView topk_ids, TensorView loads, TensorView ids, Optional<TensorView> weights,
            Optional<TensorView> filled_weights) {
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
  /// Throws if the last update or the last fill refused its values, or, unless that is allowed, if
  /// the last fill had ids that are not a slot. Waits.
  void check(bool allow_lost) {
    [[maybe_unused]] auto const at = this->again("waterfill.check");
    line_.check();
    if (!allow_lost) {
      plimsoll_engines::expect_none_lost("waterfill.fill", report(at), {"out_of_range"});
    }
  }
  /// Returns what the last fill counted. Waits.
  counter_map counters() { return to_map(report(this->again("waterfill.counters"))); }

  static object_members make(DLDevice device, index_t rank, index_t ranks, index_t nodes,
                             index_t slots, index_t top_k, index_t max_tokens, double weight,
                             bool to_all_ranks) {
    call<Backend> const at("waterfill", device);
    auto const object = std::make_shared<waterfill>(
        at,
        plimsoll::waterline_options{.on = {.ranks = ranks, .nodes = nodes},
                                    .slots = slots,
                                    .top_k = top_k,
                                    .max_tokens = max_tokens,
                                    .candidates = to_all_ranks ? plimsoll::candidate_ranks::all
                                                               : plimsoll::candidate_ranks::visited,
                                    .weight = static_cast<float>(weight)},
        rank);
    return members()
        .add("update", object, &waterfill::update)
        .add("count", object, &waterfill::count)
        .add("fill", object, &waterfill::fill)
        .add("check", object, &waterfill::check)
        .add("counters", object, &waterfill::counters);
  }

 private:
  plimsoll_engines::counter_list report(call<Backend> const& at) {
    return plimsoll_engines::sum_of(plimsoll::read(at.policy(), line_.report()));
  }

  plimsoll::waterline<typename Backend::policy_type> line_;
  index_t rank_;
};

/// Token Drop on top-k ids: every expert keeps its best pairs, up to its capacity.
template <class Backend>
class capacity_mask : kept_object<Backend> {
 public:
  capacity_mask(call<Backend> const& at, plimsoll::capacity_options const& options)
      : kept_object<Backend>(at), mask_(at.policy(), options), report_(at.policy(), 1) {}

  /// Masks `topk_ids[tokens, top_k]` by float32 `scores[tokens, top_k]`: writes kept ids, or -1, to
  /// `kept_ids`, their scores, or 0, to `kept_scores`, and `counts[experts]` int32. Outputs may be
  /// the inputs.
  void apply(TensorView topk_ids, TensorView scores, TensorView kept_ids, TensorView kept_scores,
             TensorView counts) {
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
  /// Throws, unless that is allowed, if the last batch had ids that are not an expert's. Waits.
  void check(bool allow_lost) {
    [[maybe_unused]] auto const at = this->again("capacity_mask.check");
    if (!allow_lost) {
      plimsoll_engines::expect_none_lost(
          "capacity_mask.apply", plimsoll_engines::sum_of(report_.to_host()), {"out_of_range"});
    }
  }
  /// Returns what the last batch counted. Waits.
  counter_map counters() {
    [[maybe_unused]] auto const at = this->again("capacity_mask.counters");
    return to_map(plimsoll_engines::sum_of(report_.to_host()));
  }

  static object_members make(DLDevice device, index_t experts, index_t top_k, index_t max_tokens,
                             double factor) {
    call<Backend> const at("capacity_mask", device);
    auto const object = std::make_shared<capacity_mask>(
        at, plimsoll::capacity_options{
                .experts = experts, .top_k = top_k, .max_tokens = max_tokens, .factor = factor});
    return members()
        .add("apply", object, &capacity_mask::apply)
        .add("check", object, &capacity_mask::check)
        .add("counters", object, &capacity_mask::counters);
  }

 private:
  using policy_type = typename Backend::policy_type;

  plimsoll::capacity_mask<policy_type> mask_;
  plimsoll::array<plimsoll::capacity_report, policy_type> report_;
};

/// LLEP on one rank: spills the tokens of overloaded ranks to the least loaded ones.
template <class Backend>
class least_loaded : kept_object<Backend> {
 public:
  least_loaded(call<Backend> const& at, index_t rank, plimsoll::least_loaded_options const& options)
      : kept_object<Backend>(at),
        planner_(at.policy(), options),
        rank_(rank),
        routed_(at.policy(), 1) {}

  /// Takes other homes of experts, for the steps from now on, replays of captured ones included:
  /// `physical_to_logical[slots]` int32 of one layer; the others are those of waterfill's `update`.
  void update(TensorView physical_to_logical, Optional<TensorView> rank_offsets,
              Optional<TensorView> active) {
    plimsoll_engines::update_homes(this->again("least_loaded.update"), planner_,
                                   physical_to_logical, rank_offsets, active);
  }
  /// Counts this rank's `topk_ids[tokens, k]` into `counts[experts]` int32, its row of the matrix
  /// that the engine gathers from all ranks.
  void count(TensorView topk_ids, TensorView counts) {
    auto const at = this->again("least_loaded.count");
    at.with_ids("topk_ids", topk_ids, 2, "[tokens, k]", [&](auto id) {
      planner_.count(at.template view<decltype(id) const, 2>("topk_ids", topk_ids, "[tokens, k]"),
                     at.template view<std::int32_t, 1>("counts", counts, "[experts]"));
    });
  }
  /// Plans from `counts[ranks, experts]` int32, the rows of all ranks.
  void plan(TensorView counts) {
    auto const at = this->again("least_loaded.plan");
    planner_.add_up(at.template view<std::int32_t const, 2>("counts", counts, "[ranks, experts]"));
    planner_.plan();
    planner_.exchange();
  }
  /// Writes the rank of every counted token copy, and its row in the send buffer, to
  /// `destinations[tokens, k]` and `rows[tokens, k]`, of the type of the ids.
  void route(TensorView topk_ids, TensorView destinations, TensorView rows) {
    auto const at = this->again("least_loaded.route");
    at.with_ids("topk_ids", topk_ids, 2, "[tokens, k]", [&](auto id) {
      using Id = decltype(id);
      planner_.route(rank_, at.template view<Id const, 2>("topk_ids", topk_ids, "[tokens, k]"),
                     at.template view<Id, 2>("destinations", destinations, "[tokens, k]"),
                     at.template view<Id, 2>("rows", rows, "[tokens, k]"), routed_);
    });
  }
  /// Throws if the last update or the last plan refused its values, or, unless that is allowed, if
  /// the last route had ids without a rank. Waits.
  void check(bool allow_lost) {
    [[maybe_unused]] auto const at = this->again("least_loaded.check");
    planner_.check();
    if (!allow_lost) {
      plimsoll_engines::expect_none_lost("least_loaded.route",
                                         plimsoll_engines::sum_of(routed_.to_host()),
                                         {"unplanned", "out_of_range"});
    }
  }
  /// Returns what the last route counted. Waits.
  counter_map counters() {
    [[maybe_unused]] auto const at = this->again("least_loaded.counters");
    return to_map(plimsoll_engines::sum_of(routed_.to_host()));
  }

  static object_members make(DLDevice device, index_t rank, index_t ranks, index_t nodes,
                             index_t experts, index_t max_token_copies, double alpha,
                             index_t min_chunk, double threshold, index_t max_slots) {
    call<Backend> const at("least_loaded", device);
    if (rank < 0 || rank >= ranks) {
      refuse("least_loaded", "rank", "0 to ranks - 1", std::to_string(rank));
    }
    auto const object = std::make_shared<least_loaded>(
        at, rank,
        plimsoll::least_loaded_options{.on = {.ranks = ranks, .nodes = nodes},
                                       .experts = experts,
                                       .max_slots = max_slots,
                                       .alpha = alpha,
                                       .min_chunk = min_chunk,
                                       .lambda = threshold,
                                       .max_token_copies = max_token_copies});
    auto const& planner = object->planner_;
    return members()
        .add("update", object, &least_loaded::update)
        .add("count", object, &least_loaded::count)
        .add("plan", object, &least_loaded::plan)
        .add("route", object, &least_loaded::route)
        .add("check", object, &least_loaded::check)
        .add("counters", object, &least_loaded::counters)
        // Tokens that each rank (row) sends to each rank, and receives from each.
        .add("send_counts", borrow<std::int32_t>(object, device, planner.send_counts()))
        .add("receive_counts", borrow<std::int32_t>(object, device, planner.receive_counts()))
        // Expert, from and to of each transfer; the last offset is their number.
        .add("transfers", borrow<std::int32_t>(object, device, columns_of(planner.transfers())))
        .add("transfer_offsets", borrow<std::int32_t>(object, device, planner.transfer_offsets()));
  }

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

}  // namespace tvm_ffi_example
