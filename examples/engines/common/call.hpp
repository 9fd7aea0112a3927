// SPDX-License-Identifier: Apache-2.0
// Checks the tensors of a call from Python and shows them to Plimsoll, for every binding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <plimsoll/config.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>
#include <string>
#include <type_traits>
#include <utility>

namespace plimsoll_engines {

using plimsoll::index_t;

/// Refuses an argument in the form of Plimsoll's own messages.
[[noreturn]] inline void refuse(std::string const& function, std::string const& argument,
                                std::string const& expected, std::string const& got) {
  throw plimsoll::invalid_input(function + ": " + argument + ": expected " + expected + ", got " +
                                got);
}

enum class load_type { float32, float64, int32, int64 };

/// Reads loads of every type in which engines count them, so that each planner is compiled once.
struct load_reader {
  void const* data = nullptr;
  index_t strides[3] = {};
  load_type type = load_type::int64;

  template <class... Indices>
  PLIMSOLL_HD double operator()(Indices... indices) const {
    index_t offset = 0;
    int dimension = 0;
    ((offset += indices * strides[dimension++]), ...);
    switch (type) {
      case load_type::float32:
        return static_cast<float const*>(data)[offset];
      case load_type::float64:
        return static_cast<double const*>(data)[offset];
      case load_type::int32:
        return static_cast<std::int32_t const*>(data)[offset];
      default:
        return static_cast<double>(static_cast<std::int64_t const*>(data)[offset]);
    }
  }
};

/// One call from Python, on the device and the current stream of a tensor. All other tensors must
/// be on that device, too.
///
/// `Backend` is one kind of device: its policy, stream, and guard of the current device. `Tensors`
/// is what a binding knows of its tensors: the types `device`, `tensor`, which has `size(i)`,
/// `stride(i)` and `device()`, and `optional`, a tensor that may be absent; `dimensions(tensor)`,
/// `data(tensor)`, `holds<T>(tensor)` and `is_on(tensor, device)`; and for messages `name_of<T>()`,
/// `describe(tensor)` and `describe(device)`.
template <class Backend, class Tensors>
class call {
 public:
  using backend = Backend;
  using policy_type = typename Backend::policy_type;
  using device_type = typename Tensors::device;
  using tensor = typename Tensors::tensor;
  using optional = typename Tensors::optional;

  call(char const* function, device_type device)
      : function_(function), device_(device), guard_(device), policy_(Backend::policy_on(device)) {}
  call(char const* function, tensor const& first) : call(function, first.device()) {}

  [[nodiscard]] policy_type const& policy() const { return policy_; }
  [[nodiscard]] device_type device() const { return device_; }
  [[nodiscard]] char const* function() const { return function_; }

  /// Returns a view of a tensor of `T`; `shape` names its dimensions in messages.
  template <class T, int Rank>
  plimsoll::array_ref<T, Rank> view(char const* argument, tensor const& of,
                                    char const* shape) const {
    using element = std::remove_const_t<T>;
    expect<element>(argument, of, Tensors::template holds<element>(of), Rank, shape);
    plimsoll::array_ref<T, Rank> result;
    result.data = static_cast<T*>(Tensors::data(of));
    for (int i = 0; i < Rank; ++i) {
      result.extents[i] = of.size(i);
      result.strides[i] = of.stride(i);
    }
    return result;
  }
  /// Returns a view of a new tensor of int64.
  template <int Rank>
  plimsoll::array_ref<std::int64_t, Rank> out(tensor const& result) const {
    return view<std::int64_t, Rank>("result", result, "");
  }

  /// Returns loads of any of their types as a view. If `optional_first`, the tensor may lack the
  /// first dimension, whose extent is then 1.
  template <int Rank>
  auto loads(char const* argument, tensor const& of, char const* shape,
             bool optional_first = false) const {
    load_reader reader;
    auto const is = [&]<class T>(load_type type, T) {
      reader.type = type;
      return Tensors::template holds<T>(of);
    };
    bool const is_load = is(load_type::float32, float{}) || is(load_type::float64, double{}) ||
                         is(load_type::int32, std::int32_t{}) ||
                         is(load_type::int64, std::int64_t{});
    int const absent = optional_first && Tensors::dimensions(of) == Rank - 1 ? 1 : 0;
    expect<float, double, std::int32_t, std::int64_t>(argument, of, is_load, Rank - absent, shape);
    reader.data = Tensors::data(of);
    index_t extents[Rank] = {1};
    for (int i = absent; i < Rank; ++i) {
      extents[i] = of.size(i - absent);
      reader.strides[i] = of.stride(i - absent);
    }
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return plimsoll::generate(reader, extents[I]...);
    }(std::make_index_sequence<Rank>{});
  }

  /// Calls `f` with an int32 or an int64 of the type of the tensor's elements.
  template <class F>
  void with_ids(char const* argument, tensor const& of, int rank, char const* shape, F&& f) const {
    bool const is_narrow = Tensors::template holds<std::int32_t>(of);
    expect<std::int32_t, std::int64_t>(
        argument, of, is_narrow || Tensors::template holds<std::int64_t>(of), rank, shape);
    is_narrow ? f(std::int32_t{}) : f(std::int64_t{});
  }

 private:
  /// Refuses a tensor unless `has_type`, which is one of `T`.
  template <class... T>
  void expect(char const* argument, tensor const& of, bool has_type, int rank,
              char const* shape) const {
    if (has_type && Tensors::dimensions(of) == rank && Tensors::is_on(of, device_)) {
      return;
    }
    std::string types;
    int left = sizeof...(T);
    ((types += Tensors::template name_of<T>(), types += --left > 1 ? ", "
                                                        : left > 0 ? " or "
                                                                   : ""),
     ...);
    refuse(function_, argument, types + " " + shape + " on " + Tensors::describe(device_),
           Tensors::describe(of));
  }

  char const* function_;
  device_type device_;
  typename Backend::device_guard guard_;
  policy_type policy_;
};

}  // namespace plimsoll_engines
