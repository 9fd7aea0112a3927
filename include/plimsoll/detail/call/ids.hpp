// SPDX-License-Identifier: Apache-2.0
/// @file
/// Gives bodies int32 ids where the caller has int64 ones, and copies ids to int32.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/ids.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/detail/rows.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Copies ids of type int32 or int64 to an int32 matrix of the same shape, in stream order.
template <class Context, class Id>
void copy_ids(Context const& context, matrix_ref<Id> const& from,
              matrix_ref<std::int32_t> const& to) {
  using value = std::remove_const_t<Id>;
  if constexpr (std::same_as<value, std::int32_t>) {
    copy_rows(context, matrix_ref<std::int32_t const>(from), to);
  } else {
    convert_ids_body<value, std::int32_t> const body{as_tensor(matrix_ref<value const>(from)),
                                                     as_tensor(to)};
    launch(context, body.problems(), body);
  }
}

/// Copies ids of type int32 or int64 to an int32 tensor of the same shape, in stream order.
template <class Context, class Id>
void copy_ids(Context const& context, tensor_ref<Id> const& from,
              tensor_ref<std::int32_t> const& to) {
  using value = std::remove_const_t<Id>;
  convert_ids_body<value, std::int32_t> const body{tensor_ref<value const>(from), to};
  launch(context, body.problems(), body);
}

/// Ids of a caller as int32: the caller's array itself, or a copy of an int64 array in the memory
/// of the context. Neither call synchronizes.
template <class Context, class Id, int Rank>
class int32_ids {
  using value = std::remove_const_t<Id>;
  static constexpr bool copies = !std::same_as<value, std::int32_t>;

 public:
  /// Element type of the view: const where the caller's array is.
  using element = std::conditional_t<std::is_const_v<Id>, std::int32_t const, std::int32_t>;

  int32_ids(Context const& context, array_ref<Id, Rank> const& ids) : context_(context), ids_(ids) {
    if constexpr (copies) {
      index_t size = 1;
      for (index_t const extent : ids.extents) {
        size *= extent;
      }
      copy_ = {context, size};
    }
  }

  /// Reads the caller's ids into the copy.
  void load() const {
    if constexpr (copies) {
      convert<value, std::int32_t>(ids_, copy());
    }
  }
  /// Writes the copy to the caller's array.
  void store() const
    requires(!std::is_const_v<Id>)
  {
    if constexpr (copies) {
      convert<std::int32_t, value>(copy(), ids_);
    }
  }
  [[nodiscard]] array_ref<element, Rank> view() const {
    if constexpr (copies) {
      return copy();
    } else {
      return ids_;
    }
  }

 private:
  [[nodiscard]] array_ref<std::int32_t, Rank> copy() const {
    array_ref<std::int32_t, Rank> result;
    result.data = copy_.data();
    index_t step = 1;
    for (int d = Rank - 1; d >= 0; --d) {
      result.extents[d] = ids_.extent(d);
      result.strides[d] = step;
      step *= ids_.extent(d);
    }
    return result;
  }

  template <class T>
  static tensor_ref<T> tensor(array_ref<T, Rank> const& view) {
    tensor_ref<T> result;
    result.data = view.data;
    for (int d = 0; d < 3; ++d) {
      int const from = d - (3 - Rank);
      result.extents[d] = from < 0 ? 1 : view.extent(from);
      result.strides[d] = from < 0 ? 0 : view.stride(from);
    }
    return result;
  }

  template <class From, class To>
  void convert(std::type_identity_t<array_ref<From const, Rank>> const& from,
               array_ref<To, Rank> const& to) const {
    convert_ids_body<From, To> const body{tensor<From const>(from), tensor<To>(to)};
    launch(context_, body.problems(), body);
  }

  Context context_;
  array_ref<Id, Rank> ids_;
  buffer<std::int32_t, Context> copy_;
};

}}}  // namespace plimsoll::detail
