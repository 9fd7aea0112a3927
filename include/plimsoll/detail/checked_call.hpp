// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks extents by the shapes that documentation and messages write, such as "[layers, experts]".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include <plimsoll/config.hpp>
#include <plimsoll/error.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Name of an axis. Names are compared by a hash that the compiler computes (FNV-1a).
struct axis_name {
  std::string_view text;
  std::uint64_t hash = 0xcbf29ce484222325u;

  consteval axis_name(std::string_view name = {}) : text(name) {
    for (char const c : name) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    }
  }
  consteval axis_name(char const* name) : axis_name(std::string_view(name)) {}
};

/// Axes of a shape such as "[layers, ranks + 1]", of at most three dimensions.
struct axis_names {
  struct axis {
    axis_name name;
    index_t added = 0;  ///< 1 for "ranks + 1"
    bool is_word = false;
  };
  axis axes[3] = {};
  int rank = 0;

  consteval axis_names(char const* text) {
    std::string_view shape = text;
    for (shape.remove_prefix(1); !shape.empty(); ++rank) {
      std::string_view name = shape.substr(0, shape.find_first_of(",]"));
      shape.remove_prefix(name.size() + (shape[name.size()] == ',' ? 2 : 1));
      bool const is_sum = name.ends_with(" + 1");
      name.remove_suffix(is_sum ? 4 : 0);
      axes[rank] = {name, is_sum ? 1 : 0, name.find(' ') == name.npos};
    }
  }
};

/// Extent of an axis. Messages count `unit`, or by default what the axis is named after.
struct axis_extent {
  axis_name name;
  index_t extent;
  char const* unit = nullptr;
};

/// Call of a public function, whose name it converts to. The constructor, `know`, or the first
/// argument with an axis gives the extent that all later arguments with this axis must have. An
/// axis of several words may have any extent unless it is known, as may "ranks + 1" without ranks.
class checked_call {
 public:
  constexpr checked_call(std::string_view function,
                         std::initializer_list<axis_extent> const& known = {})
      : function_(function) {
    for (axis_extent const& axis : known) {
      know(axis);
    }
  }
  constexpr operator std::string_view() const { return function_; }

  constexpr void know(axis_extent const& axis) {
    known_[count_++] = {axis.name.hash, axis.extent, axis.unit};
  }
  /// Throws for an axis of the view with another extent than it is known to have.
  template <class View>
  constexpr void expect(argument_name const& argument, View const& view, axis_names const& names) {
    for (int d = 0; d < names.rank; ++d) {
      expect_axis(argument, names.axes[d], view.extent(d));
    }
  }
  /// Returns whether an optional array is given, and then checks it as `expect` does.
  template <class T, int Rank>
  constexpr bool expect_given(argument_name const& argument, array_ref<T, Rank> const& view,
                              axis_names const& names) {
    bool const given = is_given(function_, argument, view);
    if (given) {
      expect(argument, view, names);
    }
    return given;
  }

 private:
  struct known_axis {
    std::uint64_t hash;
    index_t extent;
    char const* unit;
  };

  constexpr void expect_axis(argument_name const& argument, axis_names::axis const& axis,
                             index_t got) {
    for (int i = 0; i < count_; ++i) {
      if (known_[i].hash == axis.name.hash) {
        if (got - axis.added != known_[i].extent) {
          refuse(argument, axis, known_[i], got);
        }
        return;
      }
    }
    if (axis.added == 0 && axis.is_word) {
      known_[count_++] = {axis.name.hash, got, nullptr};
    }
  }
  [[noreturn]] void refuse(argument_name const& argument, axis_names::axis const& axis,
                           known_axis const& known, index_t got) const {
    std::string_view const name = axis.name.text;
    std::string_view const unit = known.unit != nullptr ? known.unit
                                  : axis.added == 1     ? "offsets"
                                  : name == "k"         ? "ids per token"
                                                        : name;
    fail(function_, argument,
         text(known.extent + axis.added, " ", unit,
              axis.added == 1 ? text(" (", name, " + 1)") : ""),
         text(got));
  }

  std::string_view function_;
  int count_ = 0;
  known_axis known_[8] = {};  // the first `count_` are known
};

/// Takes the place of a `checked_call` where extents are free, or checked elsewhere.
struct unchecked_call {
  template <class View>
  constexpr void expect(argument_name const&, View const&, axis_names const&) const {}
};

}}}  // namespace plimsoll::detail
