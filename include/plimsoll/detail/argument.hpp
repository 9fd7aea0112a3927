// SPDX-License-Identifier: Apache-2.0
/// @file
/// Converts the arguments of public functions to views; a wrong argument is one compiler message.
///
/// Each macro is an expression. It fails one static_assert, whose text names the function and the
/// argument, if the argument has another rank than its shape, holds other elements, or is an output
/// that would be lost. Its value is then an empty view of the right type, so that no other error
/// follows. At run time it throws for a null pointer to elements, and for an axis with another
/// extent than `call` knows: a `checked_call`, or `unchecked`.
#pragma once

#include <concepts>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <utility>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/checked_call.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Fault of an argument, seen by the compiler: what it is instead of what it should be.
enum class argument_fault : std::int32_t {
  none,
  rank,
  is_const,
  temporary,
  is_bool,
  is_int8,
  is_uint8,
  is_int16,
  is_uint16,
  is_int32,
  is_uint32,
  is_int64,
  is_uint64,
  is_float,
  is_double,
  is_float16,
  is_bfloat16,
  other_element
};

/// Returns the fault that names an element type.
template <class T>
consteval argument_fault fault_of_element() {
  using fault = argument_fault;
  if constexpr (std::same_as<T, bool>) {
    return fault::is_bool;
  } else if constexpr (std::integral<T> && sizeof(T) <= 8) {
    constexpr fault names[] = {fault::is_int8,   fault::is_int16, fault::is_int32,
                               fault::is_int64,  fault::is_uint8, fault::is_uint16,
                               fault::is_uint32, fault::is_uint64};
    constexpr int size = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
    return names[size + (std::signed_integral<T> ? 0 : 4)];
  } else if constexpr (std::same_as<T, float>) {
    return fault::is_float;
  } else if constexpr (std::same_as<T, double>) {
    return fault::is_double;
  } else if constexpr (std::same_as<score_storage_t<T>, float16>) {
    return fault::is_float16;
  } else if constexpr (std::same_as<score_storage_t<T>, bfloat16>) {
    return fault::is_bfloat16;
  } else {
    return fault::other_element;
  }
}

/// Kinds of elements that an argument may hold. Loads may also be computed (`generated`).
struct any_load {
  static constexpr bool may_be_generated = true;
  using fallback = std::int32_t;
  template <class T>
  static constexpr bool takes = load_value<T>;
};
struct any_count {
  static constexpr bool may_be_generated = true;
  using fallback = std::int32_t;
  template <class T>
  static constexpr bool takes = load_value<T> && std::integral<T>;
};
struct any_score {
  static constexpr bool may_be_generated = false;
  using fallback = float;
  template <class T>
  static constexpr bool takes = score_value<T>;
};
struct any_element {
  static constexpr bool may_be_generated = false;
  using fallback = std::int32_t;
  template <class T>
  static constexpr bool takes = true;
};
/// One of several types.
template <class T, class... Others>
struct one_of {
  static constexpr bool may_be_generated = false;
  using fallback = T;
  template <class U>
  static constexpr bool takes = std::same_as<T, U> || (std::same_as<Others, U> || ...);
};
/// The same, stored or computed.
template <class... Types>
struct one_of_also_generated : one_of<Types...> {
  static constexpr bool may_be_generated = true;
};

/// Whole numbers of tokens, stored.
using stored_count = one_of<std::int32_t, std::uint32_t, std::int64_t>;

/// Names that arguments of the macros below may have, as in messages.
namespace argument_names {
using int32 = std::int32_t;
using int64 = std::int64_t;
inline constexpr unchecked_call unchecked{};
}  // namespace argument_names

/// Returns the fault of an argument of type `M` (a reference, unless it is a temporary) that must
/// have `Rank` dimensions of `Elements`, and be writable for an output.
template <class M, int Rank, class Elements, bool is_output>
consteval argument_fault fault_of_argument() {
  if constexpr (!readable<M, Rank> ||
                (is_generated<std::remove_cvref_t<M>> && !Elements::may_be_generated)) {
    return argument_fault::rank;
  } else {
    using value = normalized_value_t<M, Rank>;
    if constexpr (!Elements::template takes<value>) {
      return fault_of_element<value>();
    } else if constexpr (is_output && !writable<M, Rank>) {
      return argument_fault::is_const;
    } else if constexpr (is_output && is_lost<M>()) {
      return argument_fault::temporary;
    } else {
      return argument_fault::none;
    }
  }
}

/// Converts an argument without fault by `argument` and checks its extents; returns an empty view
/// for one with a fault.
template <argument_fault Fault, int Rank, class Elements, class Call, class M>
constexpr auto checked_argument(Call& call, std::string_view function, std::string_view name,
                                axis_names const& axes, M&& m) {
  if constexpr (Fault == argument_fault::none) {
    auto const view = argument<Rank>(function, name, std::forward<M>(m));
    call.expect(name, view, axes);
    return view;
  } else {
    return array_ref<typename Elements::fallback, Rank>{};
  }
}

}}}  // namespace plimsoll::detail

#define PLIMSOLL_DETAIL_REFUSE(kind, text) \
  static_assert(fault != ::plimsoll::detail::argument_fault::kind, text)
#define PLIMSOLL_DETAIL_REFUSE_RANK(wanted_rank, text, shape)                                    \
  static_assert(fault != ::plimsoll::detail::argument_fault::rank || axes.rank != (wanted_rank), \
                text " must be a view of rank " #wanted_rank ", " shape)

#define PLIMSOLL_DETAIL_ARGUMENT(call, what, name, shape, is_output, wanted, ...)               \
  [&] {                                                                                         \
    using namespace ::plimsoll::detail::argument_names;                                         \
    static constexpr ::plimsoll::detail::axis_names axes(shape);                                \
    constexpr auto fault = ::plimsoll::detail::fault_of_argument<decltype(name), axes.rank,     \
                                                                 __VA_ARGS__, is_output>();     \
    PLIMSOLL_DETAIL_REFUSE_RANK(1, what ": " #name, shape);                                     \
    PLIMSOLL_DETAIL_REFUSE_RANK(2, what ": " #name, shape);                                     \
    PLIMSOLL_DETAIL_REFUSE_RANK(3, what ": " #name, shape);                                     \
    PLIMSOLL_DETAIL_REFUSE(is_const,                                                            \
                           what ": " #name " is an output, so its elements must not be const"); \
    PLIMSOLL_DETAIL_REFUSE(temporary,                                                           \
                           what ": " #name " is an output, so it must not be a temporary");     \
    PLIMSOLL_DETAIL_REFUSE(is_bool, what ": " #name " must hold " wanted ", not bool");         \
    PLIMSOLL_DETAIL_REFUSE(is_int8, what ": " #name " must hold " wanted ", not int8");         \
    PLIMSOLL_DETAIL_REFUSE(is_uint8, what ": " #name " must hold " wanted ", not uint8");       \
    PLIMSOLL_DETAIL_REFUSE(is_int16, what ": " #name " must hold " wanted ", not int16");       \
    PLIMSOLL_DETAIL_REFUSE(is_uint16, what ": " #name " must hold " wanted ", not uint16");     \
    PLIMSOLL_DETAIL_REFUSE(is_int32, what ": " #name " must hold " wanted ", not int32");       \
    PLIMSOLL_DETAIL_REFUSE(is_uint32, what ": " #name " must hold " wanted ", not uint32");     \
    PLIMSOLL_DETAIL_REFUSE(is_int64, what ": " #name " must hold " wanted ", not int64");       \
    PLIMSOLL_DETAIL_REFUSE(is_uint64, what ": " #name " must hold " wanted ", not uint64");     \
    PLIMSOLL_DETAIL_REFUSE(is_float, what ": " #name " must hold " wanted ", not float");       \
    PLIMSOLL_DETAIL_REFUSE(is_double, what ": " #name " must hold " wanted ", not double");     \
    PLIMSOLL_DETAIL_REFUSE(is_float16, what ": " #name " must hold " wanted ", not float16");   \
    PLIMSOLL_DETAIL_REFUSE(is_bfloat16, what ": " #name " must hold " wanted ", not bfloat16"); \
    PLIMSOLL_DETAIL_REFUSE(other_element, what ": " #name " must hold " wanted);                \
    return ::plimsoll::detail::checked_argument<fault, axes.rank, __VA_ARGS__>(                 \
        call, what, #name, axes, static_cast<decltype(name)>(name));                            \
  }()

/// Loads of any `load_value` type, stored or generated.
#define PLIMSOLL_LOADS(call, function, name, shape)            \
  PLIMSOLL_DETAIL_ARGUMENT(call, function, name, shape, false, \
                           "int32, uint32, int64, float or double", ::plimsoll::detail::any_load)
/// Whole numbers of tokens, stored or generated.
#define PLIMSOLL_COUNTS(call, function, name, shape)                                     \
  PLIMSOLL_DETAIL_ARGUMENT(call, function, name, shape, false, "int32, uint32 or int64", \
                           ::plimsoll::detail::any_count)
/// Scores of a router.
#define PLIMSOLL_SCORES(call, function, name, shape)                                         \
  PLIMSOLL_DETAIL_ARGUMENT(call, function, name, shape, false, "float, float16 or bfloat16", \
                           ::plimsoll::detail::any_score)
/// Ids of experts, slots or ranks.
#define PLIMSOLL_IDS(call, function, name, shape)                                \
  PLIMSOLL_DETAIL_ARGUMENT(call, function, name, shape, false, "int32 or int64", \
                           ::plimsoll::detail::one_of<std::int32_t, std::int64_t>)
/// Output of ids or counts in the type that the caller's engine has.
#define PLIMSOLL_OUTPUT_IDS(call, function, name, shape)                        \
  PLIMSOLL_DETAIL_ARGUMENT(call, function, name, shape, true, "int32 or int64", \
                           ::plimsoll::detail::one_of<std::int32_t, std::int64_t>)
/// Elements of type `T`, a type or one of `argument_names`.
#define PLIMSOLL_INPUT(T, call, function, name, shape) \
  PLIMSOLL_DETAIL_ARGUMENT(call, function, name, shape, false, #T, ::plimsoll::detail::one_of<T>)
/// Output of elements of type `T`.
#define PLIMSOLL_OUTPUT(T, call, function, name, shape) \
  PLIMSOLL_DETAIL_ARGUMENT(call, function, name, shape, true, #T, ::plimsoll::detail::one_of<T>)
/// Elements of the kind `__VA_ARGS__`, such as `detail::any_element`, which `wanted` describes.
#define PLIMSOLL_INPUT_OF(wanted, call, function, name, shape, ...) \
  PLIMSOLL_DETAIL_ARGUMENT(call, function, name, shape, false, wanted, __VA_ARGS__)
/// Output of elements of the kind `__VA_ARGS__`, which `wanted` describes.
#define PLIMSOLL_OUTPUT_OF(wanted, call, function, name, shape, ...) \
  PLIMSOLL_DETAIL_ARGUMENT(call, function, name, shape, true, wanted, __VA_ARGS__)

#define PLIMSOLL_DETAIL_UNWRAP(...) __VA_ARGS__

/// Overload of `function` for options that are a `Type`, or a list of its members, which belong in
/// `list`: one message instead of all candidates. `parameters`, between policy and options, have
/// the function's types, with `Loads` and `Other` for those that it deduces: then `{}` means the
/// options, because the function is more specialized. After the options come a parameter of type
/// `__VA_ARGS__`, if it is given, and outputs.
#define PLIMSOLL_EXPECT_BRACES(Type, list, function, parameters, arguments, ...)      \
  template <execution_policy P, class Loads = void, class Other = void,               \
            ::std::same_as<Type> Misplaced = ::plimsoll::Type, class... Outputs>      \
  auto function(P const& policy, PLIMSOLL_DETAIL_UNWRAP parameters, Misplaced const&, \
                __VA_OPT__(__VA_ARGS__ next = {}, ) Outputs&&... outputs) {           \
    static_assert(!::std::same_as<Misplaced, Type>,                                   \
                  #function ": members of " #Type " must be written as " list);       \
    return function(policy, PLIMSOLL_DETAIL_UNWRAP arguments, {},                     \
                    __VA_OPT__(next, ) static_cast<Outputs&&>(outputs)...);           \
  }
/// The same for a constructor, with all `parameters` before the options.
#define PLIMSOLL_EXPECT_BRACES_OF_OBJECT(Type, list, name, parameters, arguments) \
  template <::std::same_as<Type> Misplaced = ::plimsoll::Type, class... Rest>     \
  name(PLIMSOLL_DETAIL_UNWRAP parameters, Misplaced const&, Rest const&... rest)  \
      : name(PLIMSOLL_DETAIL_UNWRAP arguments, {}, rest...) {                     \
    static_assert(!::std::same_as<Misplaced, Type>,                               \
                  #name ": members of " #Type " must be written as " list);       \
  }
/// Refuse `{.ranks = 4}` for `{.on = {.ranks = 4}}`.
#define PLIMSOLL_EXPECT_ON(...) \
  PLIMSOLL_EXPECT_BRACES(rank_set, "{.on = {.ranks = ...}}", __VA_ARGS__)
#define PLIMSOLL_EXPECT_ON_OF_OBJECT(...) \
  PLIMSOLL_EXPECT_BRACES_OF_OBJECT(rank_set, "{.on = {.ranks = ...}}", __VA_ARGS__)
