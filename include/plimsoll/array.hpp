// SPDX-License-Identifier: Apache-2.0
/// @file
/// Owning arrays and placements in a policy's memory. Every call takes them where it takes a view.
#pragma once

#include <concepts>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/argument.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/call/extents.hpp>
#include <plimsoll/detail/call/ids.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_types.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// @brief Owns a row-major array in a policy's memory: host memory, or device memory for `gpu`.
///
/// An array is passed to a call as a view is; a const array has const elements. It can be moved,
/// not copied. The memory comes from the policy's resource, which must outlive the array; the
/// destructor frees it in the order of the policy's stream and does not wait. `T` is trivially
/// copyable, `Rank` is 0 (one element), 1, 2 or 3.
///
/// With a host policy it is one type for host and CUDA compilers and passes between .cpp and .cu
/// files. `Context` follows from `P`: a device context carries the architectures of
/// PLIMSOLL_DEVICE_ABI into the type. Callers leave it out.
template <class T, unqualified_policy P, int Rank = 1, class Context = kept_context<P>>
class array {
  static_assert(Rank >= 0 && Rank <= 3, "plimsoll::array: the rank must be 0, 1, 2 or 3");
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                "plimsoll::array: elements must be trivially copyable and not const");

 public:
  using element_type = T;
  using value_type = T;
  /// View of the elements, of type `U`.
  template <class U>
  using view_type = std::conditional_t<Rank == 0, scalar_ref<U>, array_ref<U, Rank>>;

  /// Makes an empty array, without a policy.
  array() = default;

  /// @brief Allocates an array of the given extents and sets every byte to zero.
  ///
  /// @throws invalid_input if an extent is negative or the elements cannot be addressed
  /// @workspace keeps the elements, from the policy
  /// @stream enqueues, does not synchronize; the memory is usable on the policy's stream
  template <std::integral... Extents>
    requires(sizeof...(Extents) == Rank)
  array(P const& policy, Extents... extents)
      : memory_(detail::resolve(policy),
                detail::element_count("array", {1, static_cast<index_t>(extents)...},
                                      static_cast<index_t>(sizeof(T)))),
        view_(memory_.data(), extents...) {
    memory_.zero();
  }

  /// @brief Copies a contiguous range from host memory, such as a vector, to an array of rank 1.
  ///
  /// @workspace keeps the elements, from the policy
  /// @stream synchronizes: the range may be freed when the constructor returns
  template <class Range>
    requires(Rank == 1 && contiguous_range_of<Range const&, T const>)
  array(P const& policy, Range const& elements) : array(policy, elements, std::size(elements)) {}

  /// @brief Copies a contiguous range from host memory, in row-major order, to an array of the
  /// given extents.
  ///
  /// @throws invalid_input if an extent is negative or their product is not the size of the range
  /// @workspace keeps the elements, from the policy
  /// @stream synchronizes: the range may be freed when the constructor returns
  template <class Range, std::integral... Extents>
    requires(sizeof...(Extents) == Rank && contiguous_range_of<Range const&, T const>)
  array(P const& policy, Range const& elements, Extents... extents)
      : memory_(detail::resolve(policy),
                detail::expect_size("array", {static_cast<index_t>(extents)...},
                                    static_cast<index_t>(std::size(elements)))),
        view_(memory_.data(), extents...) {
    memory_.assign(std::data(elements));
  }

  array(array&& other) noexcept
      : memory_(std::move(other.memory_)), view_(std::exchange(other.view_, {})) {}
  array& operator=(array&& other) noexcept {
    memory_ = std::move(other.memory_);
    std::swap(view_, other.view_);
    return *this;
  }
  ~array() = default;

  /// @brief Replaces the elements by those of a contiguous range in host memory, in row-major
  ///   order.
  ///
  /// @throws invalid_input if the range has another size
  /// @stream synchronizes: the range may be freed when the call returns
  template <class Range>
    requires contiguous_range_of<Range const&, T const>
  void assign(Range const& elements) {
    detail::expect_size<Rank>("array::assign", view_.extents,
                              static_cast<index_t>(std::size(elements)));
    memory_.assign(std::data(elements));
  }

  /// Return a row-major view of the elements.
  [[nodiscard]] view_type<T> view() { return view_; }
  [[nodiscard]] view_type<T const> view() const { return view_; }
  /// Convert to views, as options take them. A temporary does not: its elements are freed.
  operator array_ref<T, Rank>() &
        requires(Rank > 0)
  {
    return view_;
  }
  operator array_ref<T const, Rank>() const&
    requires(Rank > 0)
  {
    return view_;
  }
  operator array_ref<T const, Rank>() const&&
    requires(Rank > 0)
  = delete;

  /// @brief Copies the elements to the host, in row-major order; of rank 0 the one element.
  ///
  /// @stream synchronizes the policy's stream
  [[nodiscard]] auto to_host() const {
    if constexpr (Rank == 0) {
      return memory_.read().front();
    } else {
      return memory_.read();
    }
  }

  /// Returns the number of elements.
  [[nodiscard]] index_t size() const { return memory_.size(); }

  static constexpr int rank() { return Rank; }
  [[nodiscard]] index_t extent(int i) const { return view_.extent(i); }
  [[nodiscard]] index_t stride(int i) const { return view_.stride(i); }
  [[nodiscard]] T* data_handle() { return view_.data_handle(); }
  [[nodiscard]] T const* data_handle() const { return view_.data_handle(); }

 private:
  detail::buffer<T, Context> memory_;
  view_type<T> view_;
};

template <execution_policy P, class Range, std::integral... Extents>
  requires contiguous_range<Range const&>
array(P const&, Range const&, Extents...)
    -> array<std::remove_cvref_t<decltype(*std::data(std::declval<Range const&>()))>, P,
             sizeof...(Extents) == 0 ? 1 : static_cast<int>(sizeof...(Extents))>;

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Makes an array whose bytes are zero: `zeros<double>(policy, layers, ranks)`; without
/// extents, one element.
///
/// @throws invalid_input if an extent is negative or the elements cannot be addressed
/// @stream enqueues, does not synchronize; the memory is usable on the policy's stream
template <class T, execution_policy P, std::integral... Extents>
array<T, P, static_cast<int>(sizeof...(Extents))> zeros(P const& policy, Extents... extents) {
  return {policy, extents...};
}

}  // namespace PLIMSOLL_DEVICE_ABI

/// @brief Owns a placement: the expert in each slot, the copies of each expert, and the
/// certificates of the call that made it. All arrays are in the policy's memory.
///
/// Other calls take it as it is, or its views, `ref()`. With a host policy it passes between .cpp
/// and .cu files, as `array` does.
template <unqualified_policy P, class Context = kept_context<P>>
struct placement {
  /// `[layers, slots]`: expert in each slot, slots ordered by rank; -1 in empty slots.
  array<std::int32_t, P, 2, Context> physical_to_logical;
  /// `[layers, experts]`: number of copies of each expert.
  array<std::int32_t, P, 2, Context> replica_count;
  /// `[layers, ranks + 1]`: first slot of each rank. Empty: slots are spread evenly, rank r begins
  /// at floor(r * slots / ranks).
  array<std::int32_t, P, 2, Context> rank_offsets;
  index_t ranks = 0;
  /// `[layers]`: what the planning call returned; empty for a copy of an engine's maps.
  std::vector<certificate> certificates;

  /// Returns views of the arrays; they must not outlive the placement.
  [[nodiscard]] placement_ref ref() const& {
    return {physical_to_logical.view(), replica_count.view(), ranks, rank_offsets.view()};
  }
  placement_ref ref() const&& = delete;
  /// Converts to `ref()`, so that a placement is passed to calls as an array is.
  operator placement_ref() const& { return ref(); }
  operator placement_ref() const&& = delete;
};

namespace detail { inline namespace PLIMSOLL_DEVICE_ABI {

/// Makes a placement of the given shape: zeros, and a copy of `rank_offsets`.
template <execution_policy P, class Id>
placement<P> allocate_placement(P const& policy, index_t layers, index_t experts, index_t slots,
                                index_t ranks, matrix_ref<Id> const& rank_offsets) {
  placement<P> result{.physical_to_logical = {policy, layers, slots},
                      .replica_count = {policy, layers, experts},
                      .rank_offsets = {policy, rank_offsets.extent(0), rank_offsets.extent(1)},
                      .ranks = ranks,
                      .certificates = {}};
  copy_ids(resolve(policy), rank_offsets, result.rank_offsets.view());
  return result;
}

}  // namespace PLIMSOLL_DEVICE_ABI

}  // namespace detail

inline namespace PLIMSOLL_DEVICE_ABI {

/// @brief Copies the maps of an engine to a placement of its own.
///
/// @param physical_to_logical `[layers, slots]` int32 or int64, in the policy's memory: expert in
///   each slot, slots ordered by rank; -1 in empty slots
/// @param replica_count `[layers, experts]` int32 or int64, in the policy's memory: copies of each
///   expert
/// @param ranks number of ranks, 1 to 32767
/// @param rank_offsets `[layers, ranks + 1]` int32 or int64, in the policy's memory: first slot of
///   each rank. Empty: slots are spread evenly
/// @return the placement, without certificates. Values are not checked; `validate` does. Values
///   beyond int32 become -2^31, which `validate` refuses
/// @throws invalid_input for shapes
/// @complexity O(layers (slots + experts + ranks))
/// @workspace keeps 4 bytes for each element of the maps, from the policy
/// @stream enqueues, does not synchronize
/// @determinism the same bits under every policy
template <execution_policy P, class Map, class Counts,
          class Offsets = matrix_ref<std::int32_t const>>
placement<P> copy_placement(P const& policy, Map const& physical_to_logical,
                            Counts const& replica_count, index_t ranks,
                            Offsets const& rank_offsets = {}) {
  detail::checked_call call("copy_placement");
  auto const map = PLIMSOLL_IDS(call, "copy_placement", physical_to_logical, "[layers, slots]");
  auto const counts = PLIMSOLL_IDS(call, "copy_placement", replica_count, "[layers, experts]");
  auto const offsets =
      PLIMSOLL_IDS(unchecked, "copy_placement", rank_offsets, "[layers, ranks + 1]");
  index_t const layers = map.extent(0);
  detail::expect_between(call, "ranks", 1, rank_limit, ranks, "ranks");
  if (offsets.extent(0) > 0 || offsets.extent(1) > 0) {
    detail::expect_extent(call, "rank_offsets", layers, offsets.extent(0), "layers");
    detail::expect_extent(call, "rank_offsets", ranks + 1, offsets.extent(1),
                          "offsets (ranks + 1)");
  }

  auto result =
      detail::allocate_placement(policy, layers, counts.extent(1), map.extent(1), ranks, offsets);
  auto const context = detail::resolve(policy);
  detail::copy_ids(context, map, result.physical_to_logical.view());
  detail::copy_ids(context, counts, result.replica_count.view());
  return result;
}

/// @brief Copies the rows per rank of an engine, as TensorRT-LLM, RTP-LLM and vLLM Ascend hold
/// them, to a placement of its own. `slots_to_rank_rows` is the other way.
///
/// @param rank_experts `[layers, ranks, slots of a rank]` int32 or int64, in the policy's memory:
///   expert in each slot of each rank; -1 in empty slots
/// @param replica_count `[layers, experts]` int32 or int64, in the policy's memory: copies of each
///   expert
/// @return the placement, in which slot i of a rank is entry i of its row, without certificates.
///   Values are not checked, as in the call with a slot map
/// @throws invalid_input for shapes
/// @complexity O(layers (slots + experts))
/// @workspace keeps 4 bytes for each element of the maps, from the policy
/// @stream enqueues, does not synchronize
/// @determinism the same bits under every policy
template <execution_policy P, class Rows, class Counts>
placement<P> copy_placement(P const& policy, Rows const& rank_experts,
                            Counts const& replica_count) {
  detail::checked_call call("copy_placement");
  auto const rows =
      PLIMSOLL_IDS(call, "copy_placement", rank_experts, "[layers, ranks, slots of a rank]");
  auto const counts = PLIMSOLL_IDS(call, "copy_placement", replica_count, "[layers, experts]");
  index_t const layers = rows.extent(0);
  index_t const ranks = rows.extent(1);
  index_t const width = rows.extent(2);
  detail::expect_between(call, "rank_experts", 1, rank_limit, ranks, "ranks");

  auto result = detail::allocate_placement(policy, layers, counts.extent(1), ranks * width, ranks,
                                           matrix_ref<std::int32_t const>{});
  auto const context = detail::resolve(policy);
  detail::copy_ids(
      context, rows,
      tensor_ref<std::int32_t>(result.physical_to_logical.data_handle(), layers, ranks, width));
  detail::copy_ids(context, counts, result.replica_count.view());
  return result;
}

}  // namespace PLIMSOLL_DEVICE_ABI

}}  // namespace plimsoll
