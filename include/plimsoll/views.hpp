// SPDX-License-Identifier: Apache-2.0
/// @file
/// Views: non-owning references to input and output arrays.
///
/// Public functions take anything that looks like an mdspan of the right rank, any contiguous range
/// for rank 1, and the PODs below. All are converted to the PODs at once, so that algorithms are
/// instantiated for one type only. Read-only loads may also be a function of the indices.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <utility>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/call/extents.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>
#if PLIMSOLL_HAS_CUDA_COMPILER
#include <plimsoll/detail/device/scores.cuh>
#endif

namespace plimsoll { inline namespace PLIMSOLL_ABI {

/// Range whose elements are adjacent in memory, such as a vector.
template <class R>
concept contiguous_range = requires(R&& r) {
  requires std::is_pointer_v<std::remove_cvref_t<decltype(std::data(r))>>;
  { std::size(r) } -> std::convertible_to<std::size_t>;
};

/// Contiguous range whose elements can be viewed as `T`, which may add const.
template <class R, class T>
concept contiguous_range_of =
    contiguous_range<R> &&
    std::is_convertible_v<std::remove_pointer_t<decltype(std::data(std::declval<R>()))> (*)[],
                          T (*)[]>;

/// Strided view of `Rank` dimensions: pointer, extents and strides (in elements). It is trivially
/// copyable and has the same layout in every translation unit; a copy refers to the same elements.
template <class T, int Rank>
struct array_ref {
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  T* data = nullptr;
  index_t extents[static_cast<std::size_t>(Rank)] = {};
  index_t strides[static_cast<std::size_t>(Rank)] = {};

  array_ref() = default;

  /// Makes a row-major view of contiguous elements, with one extent per dimension.
  template <std::integral... Extents>
    requires(sizeof...(Extents) == Rank)
  PLIMSOLL_HD constexpr array_ref(T* elements, Extents... lengths)
      : data(elements), extents{static_cast<index_t>(lengths)...} {
    index_t step = 1;
    for (int i = Rank - 1; i >= 0; --i) {
      strides[i] = step;
      step *= extents[i];
    }
  }

  /// Makes a view of a contiguous range, such as a vector.
  template <class Range>
    requires(Rank == 1 && contiguous_range_of<Range&, T>)
  constexpr array_ref(Range& range)
      : array_ref(std::data(range), static_cast<index_t>(std::size(range))) {}

  /// Makes a row-major view of a contiguous range, such as a vector, with one extent per dimension.
  /// Throws invalid_input unless the extents multiply to the size of the range.
  template <class Range, std::integral... Extents>
    requires(Rank > 1 && sizeof...(Extents) == Rank && contiguous_range_of<Range&, T>)
  constexpr array_ref(Range& range, Extents... lengths) : array_ref(std::data(range), lengths...) {
    detail::expect_size("array_ref", {static_cast<index_t>(lengths)...},
                        static_cast<index_t>(std::size(range)));
  }

  /// Converts a view of mutable elements to a view of const elements.
  template <class U>
    requires(!std::is_const_v<U> && std::same_as<T, U const>)
  PLIMSOLL_HD constexpr array_ref(array_ref<U, Rank> const& other) : data(other.data) {
    for (int i = 0; i < Rank; ++i) {
      extents[i] = other.extents[i];
      strides[i] = other.strides[i];
    }
  }

  static constexpr int rank() { return Rank; }
  [[nodiscard]] PLIMSOLL_HD constexpr index_t extent(int i) const { return extents[i]; }
  [[nodiscard]] PLIMSOLL_HD constexpr index_t stride(int i) const { return strides[i]; }
  [[nodiscard]] PLIMSOLL_HD constexpr T* data_handle() const { return data; }

  template <std::integral... Indices>
    requires(sizeof...(Indices) == Rank)
  PLIMSOLL_HD constexpr T& operator()(Indices... indices) const {
    index_t const at[] = {static_cast<index_t>(indices)...};
    index_t offset = 0;
    for (int i = 0; i < Rank; ++i) {
      offset += at[i] * strides[i];
    }
    return data[offset];
  }
  PLIMSOLL_HD constexpr T& operator[](index_t i) const
    requires(Rank == 1)
  {
    return data[i * strides[0]];
  }
};

template <class T, std::integral... Extents>
array_ref(T*, Extents...) -> array_ref<T, static_cast<int>(sizeof...(Extents))>;
template <class Range, std::integral... Extents>
  requires contiguous_range<Range&>
array_ref(Range&, Extents...)
    -> array_ref<std::remove_pointer_t<decltype(std::data(std::declval<Range&>()))>,
                 sizeof...(Extents) == 0 ? 1 : static_cast<int>(sizeof...(Extents))>;

template <class T>
using vector_ref = array_ref<T, 1>;
template <class T>
using matrix_ref = array_ref<T, 2>;
template <class T>
using tensor_ref = array_ref<T, 3>;

/// Read-only view whose elements are computed by a function of the indices. Under a `gpu` policy
/// the function must be callable on the device.
template <class F, int Rank>
struct generated {
  F function;
  index_t extents[static_cast<std::size_t>(Rank)] = {};

  static constexpr int rank() { return Rank; }
  [[nodiscard]] PLIMSOLL_HD constexpr index_t extent(int i) const { return extents[i]; }
  template <std::integral... Indices>
    requires(sizeof...(Indices) == Rank)
  PLIMSOLL_HD constexpr auto operator()(Indices... indices) const {
    return function(static_cast<index_t>(indices)...);
  }
};

/// Makes a view of computed elements: element (l, e) of `generate(f, layers, experts)` is f(l, e).
template <class F, std::integral... Extents>
constexpr auto generate(F function, Extents... extents) {
  return generated<F, static_cast<int>(sizeof...(Extents))>{function,
                                                            {static_cast<index_t>(extents)...}};
}

namespace detail {

template <class M, int Rank>
concept mdspan_like = requires(M const& m) {
  requires(static_cast<int>(std::remove_cvref_t<M>::rank()) == Rank);
  { *m.data_handle() };
  requires std::is_pointer_v<std::remove_cvref_t<decltype(m.data_handle())>>;
  { m.extent(0) } -> std::convertible_to<index_t>;
  { m.stride(0) } -> std::convertible_to<index_t>;
};

/// Stored array of `Rank` dimensions, which has strides, unlike `generated`.
template <class M, int Rank>
concept stored = mdspan_like<std::remove_cvref_t<M>, Rank>;

template <class M>
inline constexpr bool is_generated = false;
template <class F, int Rank>
inline constexpr bool is_generated<generated<F, Rank>> = true;

/// True for a temporary container: one whose elements are const if it is const. A temporary view,
/// such as a span, refers to elements that outlive it.
template <class M>
consteval bool is_lost() {
  using bare = std::remove_cvref_t<M>;
  if constexpr (std::is_lvalue_reference_v<M> || is_generated<bare>) {
    return false;
  } else if constexpr (requires(bare& m) { m.data_handle(); }) {
    return !std::same_as<decltype(std::declval<bare const&>().data_handle()),
                         decltype(std::declval<bare&>().data_handle())>;
  } else {
    return !std::same_as<decltype(std::data(std::declval<bare const&>())),
                         decltype(std::data(std::declval<bare&>()))>;
  }
}

/// Throws if a view has elements and a null pointer.
template <class T, int Rank>
constexpr void expect_elements(std::string_view function, argument_name const& argument,
                               array_ref<T, Rank> const& view) {
  bool any = true;
  for (index_t const extent : view.extents) {
    any = any && extent > 0;
  }
  if (any && view.data == nullptr) {
    fail(function, argument, "a pointer to its elements", "a null pointer");
  }
}

/// Returns whether an optional array is given, which a pointer says; throws if an array with
/// elements has a null pointer.
template <class T, int Rank>
constexpr bool is_given(std::string_view function, argument_name const& argument,
                        array_ref<T, Rank> const& view) {
  expect_elements(function, argument, view);
  return view.data != nullptr;
}

/// Converts an argument to `array_ref`; leaves `generated` as it is.
template <int Rank, class M>
constexpr auto normalize(M&& m) {
  using bare = std::remove_cvref_t<M>;
  if constexpr (is_generated<bare>) {
    return m;
  } else if constexpr (mdspan_like<bare, Rank>) {
    using element = std::remove_pointer_t<std::remove_cvref_t<decltype(m.data_handle())>>;
    array_ref<element, Rank> result;
    result.data = m.data_handle();
    // Indices are constants, so that they convert to the index type of any view.
    [&]<int... D>(std::integer_sequence<int, D...>) {
      ((result.extents[D] = static_cast<index_t>(m.extent(D))), ...);
      ((result.strides[D] = static_cast<index_t>(m.stride(D))), ...);
    }(std::make_integer_sequence<int, Rank>{});
    return result;
  } else {
    static_assert(Rank == 1 && contiguous_range<M>);
    using element = std::remove_pointer_t<std::remove_cvref_t<decltype(std::data(m))>>;
    return array_ref<element, 1>(std::data(m), static_cast<index_t>(std::size(m)));
  }
}

/// Returns a view of the same elements as const.
template <class T, int Rank>
constexpr array_ref<T const, Rank> read_only(array_ref<T, Rank> const& view) {
  return view;
}

/// Converts an argument by `normalize`; throws for a null pointer if the view has elements.
template <int Rank, class M>
constexpr auto argument(std::string_view function, std::string_view name, M&& m) {
  auto const view = normalize<Rank>(std::forward<M>(m));
  if constexpr (!is_generated<std::remove_cvref_t<M>>) {
    expect_elements(function, name, view);
  }
  return view;
}

template <class M, int Rank>
concept readable =
    mdspan_like<std::remove_cvref_t<M>, Rank> || (Rank == 1 && contiguous_range<M>) ||
    (is_generated<std::remove_cvref_t<M>> &&
     requires { requires(std::remove_cvref_t<M>::rank() == Rank); });

template <class M, int Rank>
concept writable =
    (mdspan_like<std::remove_cvref_t<M>, Rank> || (Rank == 1 && contiguous_range<M>)) &&
    requires(M&& m) {
      requires !std::is_const_v<typename decltype(normalize<Rank>(m))::element_type>;
    };

/// Element type of a normalized view, stored or computed.
template <class View>
struct view_value;
template <class T, int Rank>
struct view_value<array_ref<T, Rank>> {
  using type = std::remove_cv_t<T>;
};
template <class F>
struct view_value<generated<F, 1>> {
  using type = std::remove_cvref_t<std::invoke_result_t<F, index_t>>;
};
template <class F>
struct view_value<generated<F, 2>> {
  using type = std::remove_cvref_t<std::invoke_result_t<F, index_t, index_t>>;
};
template <class F>
struct view_value<generated<F, 3>> {
  using type = std::remove_cvref_t<std::invoke_result_t<F, index_t, index_t, index_t>>;
};
template <class View>
using view_value_t = typename view_value<View>::type;

template <class M, int Rank>
using normalized_value_t = view_value_t<decltype(normalize<Rank>(std::declval<M&>()))>;

template <class T>
using score_storage_t = typename score_storage<T>::type;

template <class T>
concept score_value =
    std::same_as<score_storage_t<T>, float> || std::same_as<score_storage_t<T>, float16> ||
    std::same_as<score_storage_t<T>, bfloat16>;

template <class M>
auto normalize_scores(M const& scores) {
  auto const view = normalize<2>(scores);
  using storage = score_storage_t<normalized_value_t<M const, 2>>;
  matrix_ref<storage const> result;
  result.data = reinterpret_cast<storage const*>(view.data);
  for (int d = 0; d < 2; ++d) {
    result.extents[d] = view.extents[d];
    result.strides[d] = view.strides[d];
  }
  return result;
}

/// Views a row as a matrix of one row.
template <class T>
matrix_ref<T> as_matrix(vector_ref<T> const& row) {
  matrix_ref<T> result(row.data, 1, row.extent(0));
  result.strides[1] = row.stride(0);
  return result;
}
template <class F>
struct one_row {
  F function;
  PLIMSOLL_HD constexpr auto operator()(index_t, index_t i) const { return function(i); }
};
template <class F>
constexpr auto as_matrix(generated<F, 1> const& row) {
  return generate(one_row<F>{row.function}, 1, row.extent(0));
}

/// Inserts a dimension of extent 1 into a view, before its dimension `dimension`.
template <class T>
constexpr array_ref<T, 3> as_tensor(array_ref<T, 2> const& view, int dimension = 0) {
  array_ref<T, 3> result;
  result.data = view.data;
  result.extents[dimension] = 1;
  for (int i = 0; i < 2; ++i) {
    int const to = i < dimension ? i : i + 1;
    result.extents[to] = view.extents[i];
    result.strides[to] = view.strides[i];
  }
  return result;
}
template <class F>
struct one_step {
  F function;
  PLIMSOLL_HD constexpr auto operator()(index_t, index_t i, index_t j) const {
    return function(i, j);
  }
};
template <class F>
constexpr auto as_tensor(generated<F, 2> const& view) {
  return generate(one_step<F>{view.function}, 1, view.extent(0), view.extent(1));
}

/// Returns whether `View` refers to elements of type `T` that outlive it.
template <class View, class T>
consteval bool refers_to() {
  using bare = std::remove_reference_t<View>;
  if constexpr (mdspan_like<bare, 0> || mdspan_like<bare, 1>) {
    return std::convertible_to<decltype(std::declval<bare&>().data_handle()), T*> &&
           !is_lost<View>();
  } else if constexpr (contiguous_range_of<bare&, T>) {
    return !is_lost<View>();
  } else {
    return false;
  }
}

}  // namespace detail

/// One element of an output, such as the counters of a call: an object in the policy's memory, or a
/// view of one, of rank 0 or with one element. It refers to the element, as views do.
template <class T>
class scalar_ref {
 public:
  using element_type = T;
  using value_type = std::remove_cv_t<T>;

  /// Makes an empty reference, as optional outputs have it.
  scalar_ref() = default;
  constexpr scalar_ref(T& element) : data_(&element), size_(1) {}
  /// Makes a reference from a pointer, such as one to device memory.
  PLIMSOLL_HD constexpr explicit scalar_ref(T* element) : data_(element), size_(1) {}
  /// Converts a view or a contiguous range. Calls throw if it has no element or several.
  template <class View>
    requires(!std::is_pointer_v<std::remove_cvref_t<View>> &&
             !std::same_as<std::remove_cvref_t<View>, scalar_ref>)
  // NOLINTNEXTLINE(bugprone-forwarding-reference-overload): the constraint leaves copies out
  constexpr scalar_ref(View&& view) {
    constexpr bool fits = detail::refers_to<View, T>();
    static_assert(fits,
                  "Plimsoll: an output of one element must be an object of its type that is "
                  "neither const nor temporary, or a view of one");
    if constexpr (fits && detail::mdspan_like<std::remove_reference_t<View>, 0>) {
      data_ = view.data_handle();
      size_ = 1;
    } else if constexpr (fits) {
      auto const elements = detail::normalize<1>(view);
      data_ = elements.data;
      size_ = elements.extent(0);
    }
  }

  static constexpr int rank() { return 0; }
  /// Number of elements of the view that this refers to, which must be 1.
  [[nodiscard]] constexpr index_t extent(int = 0) const { return size_; }
  [[nodiscard]] static constexpr index_t stride(int = 0) { return 1; }
  [[nodiscard]] PLIMSOLL_HD constexpr T* data_handle() const { return data_; }
  /// Return the element, where its memory can be accessed.
  PLIMSOLL_HD constexpr T& operator*() const { return *data_; }
  PLIMSOLL_HD constexpr T* operator->() const { return data_; }

 private:
  T* data_ = nullptr;
  index_t size_ = 0;
};

namespace detail {

/// Returns the element as a view; throws for a view of none or several elements, or a null pointer.
template <class T>
constexpr vector_ref<T> one_element(std::string_view function, argument_name const& argument,
                                    scalar_ref<T> const& element) {
  vector_ref<T> const one(element.data_handle(), element.extent());
  if (one.extent(0) != 1) {
    fail(function, argument, "1 element", text(one.extent(0)));
  }
  expect_elements(function, argument, one);
  return one;
}

}  // namespace detail

/// View of `Rank` dimensions, stored or computed. Overloads that differ in the rank are told apart
/// by it; elements are checked inside the calls, whose messages name the argument.
template <class M, int Rank>
concept view_of_rank = detail::readable<M, Rank>;

}}  // namespace plimsoll
