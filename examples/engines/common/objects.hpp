// SPDX-License-Identifier: Apache-2.0
// Objects that an engine keeps between steps, for every binding. Their calls write to the caller's
// tensors, allocate nothing and wait for nothing, so that a CUDA graph can capture them.
#pragma once

#include <cstdint>
#include <optional>
#include <plimsoll/array.hpp>
#include <plimsoll/capacity_mask.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/memory.hpp>
#include <plimsoll/placement_maps.hpp>
#include <plimsoll/systems/llep.hpp>
#include <plimsoll/systems/lplb.hpp>
#include <plimsoll/waterline.hpp>
#include <string>
#include <utility>

#include "call.hpp"
#include "counters.hpp"

namespace plimsoll_engines {

/// Returns the ranks of an update: `active` is empty (the same ranks live) or a tensor `[ranks]` of
/// uint8.
template <class Call, class OptionalTensor>
std::optional<plimsoll::rank_set> live_ranks(Call const& at, OptionalTensor const& active) {
  if (!active.has_value()) {
    return {};
  }
  return plimsoll::rank_set{
      .active = at.template view<std::uint8_t const, 1>("active", *active, "[ranks]")};
}

/// Gives an object for one layer other slots of ranks. `rank_offsets` is empty (slots are spread
/// evenly) or a tensor `[ranks + 1]` of int32; `active` as for `live_ranks`.
template <class Call, class Line, class OptionalTensor>
void update_slots(Call const& at, Line& line, OptionalTensor const& rank_offsets,
                  OptionalTensor const& active) {
  plimsoll::vector_ref<std::int32_t const> offsets;
  if (rank_offsets.has_value()) {
    offsets = at.template view<std::int32_t const, 1>("rank_offsets", *rank_offsets, "[ranks + 1]");
  }
  line.update(offsets, live_ranks(at, active));
}

/// Returns a view of a tensor of one row.
template <class Call, class Tensor>
plimsoll::matrix_ref<std::int32_t const> row_of(Call const& at, char const* argument,
                                                Tensor const& tensor, char const* shape) {
  auto const row = at.template view<std::int32_t const, 1>(argument, tensor, shape);
  plimsoll::matrix_ref<std::int32_t const> result(row.data, 1, row.extent(0));
  result.strides[1] = row.strides[0];
  return result;
}

/// Gives a planner for one layer other homes of experts: `physical_to_logical` is a tensor
/// `[slots]` of int32, the others are those of `update_slots`.
template <class Call, class Planner, class Tensor, class OptionalTensor>
void update_homes(Call const& at, Planner& planner, Tensor const& physical_to_logical,
                  OptionalTensor const& rank_offsets, OptionalTensor const& active) {
  plimsoll::placement_ref residents{
      .physical_to_logical = row_of(at, "physical_to_logical", physical_to_logical, "[slots]"),
      .ranks = planner.options().on.ranks};
  if (rank_offsets.has_value()) {
    residents.rank_offsets = row_of(at, "rank_offsets", *rank_offsets, "[ranks + 1]");
  }
  planner.update({.residents = residents}, live_ranks(at, active));
}

/// Device and stream on which an object was made. Its calls must come on the same stream: the
/// object's work is ordered by it. `Interface` is the base class that a binding needs: its virtual
/// functions, if any, are those of the object.
template <class Call, class Interface>
class kept_object : public Interface {
 public:
  using policy_type = typename Call::policy_type;
  using device_type = typename Call::device_type;
  using tensor = typename Call::tensor;
  using optional = typename Call::optional;

  [[nodiscard]] device_type device() const { return device_; }

 protected:
  explicit kept_object(Call const& at)
      : device_(at.device()), stream_(Call::backend::stream_of(at.device())) {}

  [[nodiscard]] Call again(char const* function) const {
    if (Call::backend::stream_of(device_) != stream_) {
      refuse(function, "stream", "the stream on which the object was made", "another");
    }
    return {function, device_};
  }

 private:
  device_type device_;
  void* stream_;
};

/// Copies an engine's maps, int32 or int64, and checks them.
template <class Call>
auto checked_placement(Call const& at, typename Call::tensor const& physical_to_logical,
                       typename Call::tensor const& replica_count, index_t ranks,
                       typename Call::optional const& rank_offsets) {
  plimsoll::placement<typename Call::policy_type> result;
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
template <class Call, class Interface>
class lplb : public kept_object<Call, Interface> {
  using base = kept_object<Call, Interface>;

 public:
  using typename base::optional;
  using typename base::policy_type;
  using typename base::tensor;

  lplb(Call const& at, tensor physical_to_logical, tensor replica_count, index_t ranks,
       optional rank_offsets, index_t max_token_copies)
      : base(at),
        placement_(checked_placement(at, physical_to_logical, replica_count, ranks, rank_offsets)),
        splitter_(at.policy(), placement_.ref(), {.max_token_copies = max_token_copies}),
        routing_(at.policy(), 1),
        dispatched_(at.policy(), placement_.physical_to_logical.extent(0)) {}

  /// Takes another placement of all layers, for the steps from now on, replays of captured ones
  /// included. Checks it and waits.
  void update(tensor physical_to_logical, tensor replica_count, optional rank_offsets) {
    auto const at = this->again("lplb.update");
    auto next = checked_placement(at, physical_to_logical, replica_count, placement_.ref().ranks,
                                  rank_offsets);
    splitter_.update(0, next.ref());
    placement_ = std::move(next);  // the enqueued kernel reads its arrays
  }
  /// Counts `topk_ids[tokens, k]` into `counts[experts]` int32, which the engine sums over ranks.
  void count(tensor topk_ids, tensor counts) {
    auto const at = this->again("lplb.count");
    at.with_ids("topk_ids", topk_ids, 2, "[tokens, k]", [&](auto id) {
      plimsoll::count_tokens(
          at.policy(), at.template view<decltype(id) const, 2>("topk_ids", topk_ids, "[tokens, k]"),
          {}, at.template view<std::int32_t, 1>("counts", counts, "[experts]"), routing_);
    });
  }
  /// Splits `counts[layers, experts]` int32.
  void plan(tensor counts) {
    auto const at = this->again("lplb.plan");
    splitter_.plan(at.template view<std::int32_t const, 2>("counts", counts, "[layers, experts]"));
  }
  /// Writes the slot of every token copy to `slots[tokens, k]`, of the type of the ids.
  void dispatch(index_t layer, tensor topk_ids, tensor slots) {
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
      expect_none_lost("lplb.dispatch", sum_of(dispatched_.to_host()),
                       {"without_slot", "out_of_range"});
    }
  }
  /// Returns what the last dispatch of every layer counted, summed. Waits.
  counter_list counters() {
    [[maybe_unused]] auto const at = this->again("lplb.counters");
    return sum_of(dispatched_.to_host());
  }

  /// Tokens of every slot, `[layers, slots]`.
  [[nodiscard]] plimsoll::matrix_ref<std::int32_t const> quotas() const {
    return splitter_.quotas();
  }

 private:
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
template <class Call, class Interface>
class waterfill : public kept_object<Call, Interface> {
  using base = kept_object<Call, Interface>;

 public:
  using typename base::optional;
  using typename base::policy_type;
  using typename base::tensor;

  waterfill(Call const& at, index_t rank, index_t ranks, index_t nodes, index_t slots,
            index_t top_k, index_t max_tokens, double weight, bool to_all_ranks)
      : base(at),
        line_(at.policy(), {.on = {.ranks = ranks, .nodes = nodes},
                            .slots = slots,
                            .top_k = top_k,
                            .max_tokens = max_tokens,
                            .candidates = to_all_ranks ? plimsoll::candidate_ranks::all
                                                       : plimsoll::candidate_ranks::visited,
                            .weight = static_cast<float>(weight)}),
        rank_(rank) {}

  /// Takes other slots of the ranks, for the steps from now on, replays of captured ones included:
  /// `rank_offsets[ranks + 1]` int32, or none where slots are spread evenly, and which ranks live,
  /// `active[ranks]` uint8, or none where that stays. `check` throws if their values are refused.
  void update(optional rank_offsets, optional active) {
    update_slots(this->again("waterfill.update"), line_, rank_offsets, active);
  }
  /// Counts this rank's `topk_ids[tokens, top_k]`, which are slots, into `loads[2, ranks]` int64,
  /// which the engine sums over ranks.
  void count(tensor topk_ids, tensor loads) {
    auto const at = this->again("waterfill.count");
    at.with_ids("topk_ids", topk_ids, 2, "[tokens, top_k]", [&](auto id) {
      line_.count(at.template view<decltype(id) const, 2>("topk_ids", topk_ids, "[tokens, top_k]"),
                  rank_, at.template view<std::int64_t, 2>("loads", loads, "[2, ranks]"));
    });
  }
  /// From the sums, writes `ids[tokens, top_k + 1]`, and its weights where they are given: float32
  /// `weights[tokens, top_k]` in and `filled_weights[tokens, top_k + 1]` out.
  void fill(tensor topk_ids, tensor loads, tensor ids, optional weights, optional filled_weights) {
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
      expect_none_lost("waterfill.fill", report(at), {"out_of_range"});
    }
  }
  /// Returns what the last fill counted. Waits.
  counter_list counters() { return report(this->again("waterfill.counters")); }

 private:
  counter_list report(Call const& at) {
    return counters_of(plimsoll::read(at.policy(), line_.report()));
  }

  plimsoll::waterline<policy_type> line_;
  index_t rank_;
};

/// Token Drop on top-k ids: every expert keeps its best pairs, up to its capacity.
template <class Call, class Interface>
class capacity_mask : public kept_object<Call, Interface> {
  using base = kept_object<Call, Interface>;

 public:
  using typename base::optional;
  using typename base::policy_type;
  using typename base::tensor;

  capacity_mask(Call const& at, index_t experts, index_t top_k, index_t max_tokens, double factor)
      : base(at),
        mask_(at.policy(),
              {.experts = experts, .top_k = top_k, .max_tokens = max_tokens, .factor = factor}),
        report_(at.policy(), 1) {}

  /// Masks `topk_ids[tokens, top_k]` by float32 `scores[tokens, top_k]`: writes kept ids, or -1, to
  /// `kept_ids`, their scores, or 0, to `kept_scores`, and `counts[experts]` int32. Outputs may be
  /// the inputs.
  void apply(tensor topk_ids, tensor scores, tensor kept_ids, tensor kept_scores, tensor counts) {
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
      expect_none_lost("capacity_mask.apply", sum_of(report_.to_host()), {"out_of_range"});
    }
  }
  /// Returns what the last batch counted. Waits.
  counter_list counters() {
    [[maybe_unused]] auto const at = this->again("capacity_mask.counters");
    return sum_of(report_.to_host());
  }

 private:
  plimsoll::capacity_mask<policy_type> mask_;
  plimsoll::array<plimsoll::capacity_report, policy_type> report_;
};

/// LLEP on one rank: spills the tokens of overloaded ranks to the least loaded ones.
template <class Call, class Interface>
class least_loaded : public kept_object<Call, Interface> {
  using base = kept_object<Call, Interface>;

 public:
  using typename base::optional;
  using typename base::policy_type;
  using typename base::tensor;

  least_loaded(Call const& at, index_t rank, index_t ranks, index_t nodes, index_t experts,
               index_t max_token_copies, double alpha, index_t min_chunk, double threshold,
               index_t max_slots)
      : base(at),
        planner_(at.policy(), {.on = {.ranks = ranks, .nodes = nodes},
                               .experts = experts,
                               .max_slots = max_slots,
                               .alpha = alpha,
                               .min_chunk = min_chunk,
                               .lambda = threshold,
                               .max_token_copies = max_token_copies}),
        rank_(rank),
        routed_(at.policy(), 1) {
    if (rank < 0 || rank >= ranks) {
      refuse("least_loaded", "rank", "0 to ranks - 1", std::to_string(rank));
    }
  }

  /// Takes other homes of experts, for the steps from now on, replays of captured ones included:
  /// `physical_to_logical[slots]` int32 of one layer; the others are those of waterfill's `update`.
  void update(tensor physical_to_logical, optional rank_offsets, optional active) {
    update_homes(this->again("least_loaded.update"), planner_, physical_to_logical, rank_offsets,
                 active);
  }
  /// Counts this rank's `topk_ids[tokens, k]` into `counts[experts]` int32, its row of the matrix
  /// that the engine gathers from all ranks.
  void count(tensor topk_ids, tensor counts) {
    auto const at = this->again("least_loaded.count");
    at.with_ids("topk_ids", topk_ids, 2, "[tokens, k]", [&](auto id) {
      planner_.count(at.template view<decltype(id) const, 2>("topk_ids", topk_ids, "[tokens, k]"),
                     at.template view<std::int32_t, 1>("counts", counts, "[experts]"));
    });
  }
  /// Plans from `counts[ranks, experts]` int32, the rows of all ranks.
  void plan(tensor counts) {
    auto const at = this->again("least_loaded.plan");
    planner_.add_up(at.template view<std::int32_t const, 2>("counts", counts, "[ranks, experts]"));
    planner_.plan();
    planner_.exchange();
  }
  /// Writes the rank of every counted token copy, and its row in the send buffer, to
  /// `destinations[tokens, k]` and `rows[tokens, k]`, of the type of the ids.
  void route(tensor topk_ids, tensor destinations, tensor rows) {
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
      expect_none_lost("least_loaded.route", sum_of(routed_.to_host()),
                       {"unplanned", "out_of_range"});
    }
  }
  /// Returns what the last route counted. Waits.
  counter_list counters() {
    [[maybe_unused]] auto const at = this->again("least_loaded.counters");
    return sum_of(routed_.to_host());
  }

  /// Tokens that each rank (row) sends to each rank, and receives from each.
  [[nodiscard]] plimsoll::matrix_ref<std::int32_t const> send_counts() const {
    return planner_.send_counts();
  }
  [[nodiscard]] plimsoll::matrix_ref<std::int32_t const> receive_counts() const {
    return planner_.receive_counts();
  }
  /// Expert, from and to of each transfer: the first three members as columns.
  [[nodiscard]] plimsoll::matrix_ref<std::int32_t const> transfers() const {
    auto const all = planner_.transfers();
    plimsoll::matrix_ref<std::int32_t const> result(&all.data->expert, all.extent(0), 3);
    result.strides[0] = sizeof(plimsoll::spill_transfer) / sizeof(std::int32_t);
    return result;
  }
  /// Offsets of transfers, of which the last is their number.
  [[nodiscard]] plimsoll::vector_ref<std::int32_t const> transfer_offsets() const {
    return planner_.transfer_offsets();
  }

 private:
  plimsoll::least_loaded<policy_type> planner_;
  index_t rank_;
  plimsoll::array<plimsoll::spill_counters, policy_type> routed_;
};

}  // namespace plimsoll_engines
