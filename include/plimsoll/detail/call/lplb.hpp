// SPDX-License-Identifier: Apache-2.0
/// @file
/// Calls of `lplb`: its buffers, the launches of `plan` and `dispatch`, and messages about refused
/// counts.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/lplb.hpp>
#include <plimsoll/detail/algorithm/quota.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/minmax_lp.hpp>
#include <plimsoll/detail/call/quota.hpp>
#include <plimsoll/detail/common/topology.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/scratch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/minmax_lp_types.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/quota_types.hpp>
#include <plimsoll/rank_set_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Throws for the first layer whose counts `lplb::plan` could not split or round.
inline void expect_all_planned(std::vector<fault> const& faults,
                               std::vector<quota_report> const& reports) {
  constexpr char const* name = "lplb::plan";
  constexpr fault_names names{{{"loads", "counts"}}};
  for (std::size_t layer = 0; layer < faults.size(); ++layer) {
    expect_no_fault(name, faults[layer], static_cast<index_t>(layer), names);
    expect_no_fault(name, reports[layer], static_cast<index_t>(layer), names);
  }
}

/// A placement that is prepared for `lplb`, and the results of the last plan; `lp` keeps the
/// certificates and faults.
template <class Context>
struct lplb_pipeline {
  Context context;
  minmax_lp_pipeline<Context> lp;
  buffer<double, Context> split;         ///< `[layers, slots]`
  buffer<std::int32_t, Context> quotas;  ///< `[layers, slots]`
  buffer<std::int32_t, Context> shares;  ///< `[layers, slots]`: quotas of one source
  buffer<std::int64_t, Context> sums;    ///< `[layers, experts]`
  std::vector<bool> is_own;              ///< `[layers]`: the last plan was for one source
  buffer<quota_report, Context> reports;
  buffer<std::byte, Context> launch_memory;    ///< scratch of every launch
  buffer<std::byte, Context> dispatch_memory;  ///< arrays that the launches of a dispatch share

  /// Does not wait for the context's work. `max_token_copies` is that of the largest dispatch.
  lplb_pipeline(Context const& on, placement_ref const& placement, minmax_lp_options const& options,
                index_t max_token_copies)
      : context(on), lp(on_behalf_of("lplb", "minmax_lp", {{"options.", "options.lp."}}, [&] {
          return minmax_lp_pipeline<Context>(on, placement, options, "minmax_lp", true);
        })) {
    expect_between("lplb", "options.max_token_copies", 0, 0x7fffffff, max_token_copies, "ids");
    lp.allocate_results();
    split = {context, layers() * slots()};
    split.zero();
    quotas = {context, layers() * slots()};
    quotas.zero();
    shares = {context, layers() * slots()};
    shares.zero();
    sums = {context, layers() * experts()};
    is_own.resize(static_cast<std::size_t>(layers()));
    reports = {context, std::vector<quota_report>(static_cast<std::size_t>(layers()))};

    tensor_ref<std::int32_t const> const counts(nullptr, layers(), lp.graph.ranks, experts());
    using dispatch_type = dispatch_body<std::int32_t, std::int32_t>;  // any types of ids
    dispatch_type dispatching{};
    dispatching.tiles = {max_token_copies, experts() + 2, nullptr, nullptr};
    launch_memory = {
        context,
        std::max({launch_bytes(context, layers(), own_plan_body(0, counts, 0)),
                  launch_bytes(context, dispatching.problems(), dispatching), lp.update_bytes()})};
    dispatch_memory = {context, static_cast<index_t>(bytes_taken_by<dispatch_type>(
                                    max_token_copies, experts(), slots()))};
  }

  void enqueue_update(index_t first_layer, placement_ref const& to, rank_set const* ranks) {
    lp.enqueue_update(first_layer, to, ranks, launch_memory.data());
  }

  template <class Counts>
  void plan(std::string_view name, index_t first_layer, Counts const& counts) {
    expect_layers(name, first_layer, counts.extent(0));
    auto const loads =
        generate(counts_from_layer<Counts>{counts, first_layer}, layers(), experts());
    launch(context, counts.extent(0), plan_body(loads, first_layer), launch_memory.data());
    std::fill_n(is_own.begin() + first_layer, counts.extent(0), false);
  }
  /// Plans for the tokens of one source, from the counts `[layers, ranks, experts]` of all.
  template <class Counts>
  void plan_own(std::string_view name, index_t first_layer, Counts const& counts, index_t source) {
    expect_layers(name, first_layer, counts.extent(0));
    expect_between(name, "source", 0, lp.graph.ranks - 1, source, "as rank");
    launch(context, counts.extent(0), own_plan_body(first_layer, counts, source),
           launch_memory.data());
    std::fill_n(is_own.begin() + first_layer, counts.extent(0), true);
  }

  void expect_layers(std::string_view name, index_t first_layer, index_t count) const {
    expect_between(name, "first_layer", 0, layers() - 1, first_layer, "as layer");
    expect_between(name, "counts", 0, layers() - first_layer, count, "layers from first_layer on");
  }

  template <class Id, class Slot>
  void enqueue_dispatch(index_t layer, matrix_ref<Id const> ids, dispatch_options const& options,
                        matrix_ref<Slot> chosen, vector_ref<dispatch_counters> counters) {
    scratch arrays(dispatch_memory.data());
    vector_ref<std::int32_t const> const own =
        row_of(per_slot(is_own[static_cast<std::size_t>(layer)] ? shares : quotas), layer);
    auto body = dispatch_body_of(ids, row_of(lp.physical_to_logical(), layer), own, options, chosen,
                                 counters, arrays);
    body.lists = lp.lists.of_layer(layer);
    body.listed = true;
    detail::enqueue_dispatch(prepared_context<Context>{context, launch_memory.data()}, body);
  }

  [[nodiscard]] index_t layers() const { return lp.layers; }
  [[nodiscard]] index_t experts() const { return lp.graph.experts; }
  [[nodiscard]] index_t slots() const { return lp.graph.slots; }

  template <class T>
  [[nodiscard]] matrix_ref<T> per_slot(buffer<T, Context> const& memory) const {
    return {memory.data(), layers(), slots()};
  }
  [[nodiscard]] vector_ref<quota_report> reports_view() const { return {reports.data(), layers()}; }

 private:
  template <class Loads>
  lplb_plan_body<Loads> plan_body(Loads const& loads, index_t first_layer = 0) {
    return {lp.body_of(loads, {}, per_slot(split), {}),
            {.loads = loads,
             .physical_to_logical = lp.physical_to_logical(),
             .ranges = {lp.rank_offsets(), slots(), lp.graph.ranks},
             .split = per_slot(split),
             .quotas = per_slot(quotas),
             .reports = reports_view(),
             .lists = lp.lists},
            first_layer};
  }
  template <class Counts>
  lplb_own_plan_body<Counts> own_plan_body(index_t first_layer, Counts const& counts,
                                           index_t source) {
    matrix_ref<std::int64_t> const loads(sums.data(), layers(), experts());
    return {.plan = plan_body(matrix_ref<std::int64_t const>(loads), first_layer),
            .counts = counts,
            .where = {.ranges = {lp.rank_offsets(), slots(), lp.graph.ranks},
                      .nodes = lp.options.on.nodes},
            .source = source,
            .sums = loads,
            .shares = per_slot(shares)};
  }
};

}}}  // namespace plimsoll::detail
