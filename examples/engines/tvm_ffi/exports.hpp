// SPDX-License-Identifier: Apache-2.0
// Makes functions and objects callable from Python. Arguments that are refused become ValueError.
#pragma once

#include <tvm/ffi/container/map.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/function.h>

#include <memory>
#include <plimsoll/error.hpp>
#include <utility>

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
  members& add(char const* name, Tensor tensor) {
    list_.Set(name, std::move(tensor));
    return *this;
  }
  operator ffi::Map<ffi::String, ffi::Any>() const { return list_; }

 private:
  ffi::Map<ffi::String, ffi::Any> list_;
};

}  // namespace tvm_ffi_example
