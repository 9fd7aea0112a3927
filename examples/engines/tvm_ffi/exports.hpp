// SPDX-License-Identifier: Apache-2.0
// Makes functions and objects callable from Python. Arguments that are refused become ValueError.
#pragma once

#include <tvm/ffi/container/map.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <memory>
#include <plimsoll/error.hpp>
#include <plimsoll/views.hpp>
#include <utility>

#include "../common/counters.hpp"
#include "tensors.hpp"

namespace tvm_ffi_example {

/// Calls `f` and turns Plimsoll's exception into Python's.
template <class F>
auto guarded(F&& f) {
  try {
    return f();
  } catch (plimsoll::invalid_input const& e) {
    throw ffi::Error("ValueError", e.what(), "");
  }
}

template <auto F>
struct exported;
template <class R, class... A, R (*F)(A...)>
struct exported<F> {
  static R run(A... arguments) {
    return guarded([&] { return F(arguments...); });
  }
};

/// Functions and arrays of a kept object by name. They share the object, which lives as long as one
/// of them.
class members {
 public:
  template <class Object, class R, class... A>
  members& add(char const* name, std::shared_ptr<Object> const& object, R (Object::*method)(A...)) {
    list_.Set(name, ffi::Function::FromTyped([object, method](A... arguments) -> R {
                return guarded([&] { return ((*object).*method)(arguments...); });
              }));
    return *this;
  }
  /// Adds the counters of an object as a map.
  template <class Object>
  members& add(char const* name, std::shared_ptr<Object> const& object,
               plimsoll_engines::counter_list (Object::*counters)()) {
    list_.Set(name, ffi::Function::FromTyped([object, counters] {
                return guarded([&] {
                  ffi::Map<ffi::String, std::int64_t> result;
                  for (auto const& [outcome, ids] : ((*object).*counters)()) {
                    result.Set(outcome, ids);
                  }
                  return result;
                });
              }));
    return *this;
  }
  /// Adds a tensor that shows an array of an object.
  template <class Object, int Rank>
  members& add(char const* name, std::shared_ptr<Object> const& object,
               plimsoll::array_ref<std::int32_t const, Rank> const& array) {
    list_.Set(name, borrow<std::int32_t>(object, object->device(), array));
    return *this;
  }
  operator ffi::Map<ffi::String, ffi::Any>() const { return list_; }

 private:
  ffi::Map<ffi::String, ffi::Any> list_;
};

}  // namespace tvm_ffi_example
