// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads measured loads, how many tokens went to every expert of every layer, step by step, as
/// often as needed: a file may be larger than the memory.
///
/// | file | holds |
/// |---|---|
/// | `.npy` | an array `[layers, experts]` or `[steps, layers, experts]` of any number dtype |
/// | `.json` | an object whose key `logical_count` is such an array, as nested lists; other keys
/// are
///   ignored |
/// | `.csv` | without column names: a line per layer, a number per expert, an empty line between
///   steps |
/// | | with the column names `layer`, `expert`, `load` and perhaps `step`, in any order: a line per
///   load; loads without a line are 0, but every layer and step from 0 on has a line |
/// | `-` | the standard input, any of these, told apart by the first bytes |
///
/// Whatever the file, every load is a number from 0 to below 2^47, and so is the sum of a layer's
/// loads over all steps; a file that breaks this, or any other rule, is a `file_error`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

#include "byte_store.hpp"
#include "input_file.hpp"
#include "npy.hpp"

namespace examples {

using plimsoll::index_t;

/// Loads `[steps, layers, experts]` in a file, of which this holds a few steps at a time. A `.npy`
/// file is read where it is; texts are turned into numbers once, and the standard input is copied,
/// both in temporary files without a name. A file of two dimensions is one step.
class load_file {
 public:
  /// Opens a file and finds out its shape. `key` names the key or column of the loads where it is
  /// not the usual one; a `.npy` file has none.
  [[nodiscard]] static load_file open(std::string const& file, std::string const& key = {},
                                      reading_progress const& progress = {});

  /// The same for the bytes of a file, whose name says what they are.
  [[nodiscard]] static load_file of_bytes(std::string_view bytes, std::string const& file,
                                          std::string const& key = {});

  [[nodiscard]] std::string const& name() const { return bytes_.name(); }
  [[nodiscard]] index_t steps() const { return shape_[0]; }
  [[nodiscard]] index_t layers() const { return last_layer_ - first_layer_; }
  [[nodiscard]] index_t experts() const { return shape_[2]; }
  [[nodiscard]] std::array<index_t, 3> const& shape() const { return shape_; }

  /// Calls `visit` with an `std::int64_t` where all loads are whole numbers, else with a `double`:
  /// the type to read them as.
  template <class Visit>
  decltype(auto) with_type(Visit&& visit) const {
    return whole_ ? visit(std::int64_t{}) : visit(double{});
  }

  /// From here on only the layers from `first` up to, not including, `last` are there. Throws
  /// `std::out_of_range` unless 0 <= first < last <= layers.
  void select_layers(index_t first, index_t last);

  /// Writes `count` steps from `first` on, `[count, layers, experts]`. `Load` is as `with_type`
  /// says.
  template <class Load>
  void read(index_t first, index_t count, Load* to) const;

  /// Calls `visit(step, loads)` for every step, in order, with its `[layers, experts]`.
  template <class Load, class Visit>
  void for_each_step(Visit&& visit, reading_progress const& progress = {}) const {
    index_t const of_step = layers() * experts();
    index_t const most = steps_at_once();
    std::vector<Load> some(static_cast<std::size_t>(std::min(most, steps()) * of_step));
    for (index_t first = 0; first < steps(); first += most) {
      index_t const count = std::min(most, steps() - first);
      read(first, count, some.data());
      for (index_t i = 0; i < count; ++i) {
        visit(first + i,
              plimsoll::matrix_ref<Load const>(some.data() + i * of_step, layers(), experts()));
      }
      if (progress) {
        auto const part = static_cast<double>(first + count) / static_cast<double>(steps());
        progress(static_cast<std::uint64_t>(part * static_cast<double>(bytes_.size())),
                 bytes_.size());
      }
    }
  }

 private:
  explicit load_file(byte_store bytes) : bytes_(std::move(bytes)) {}

  [[nodiscard]] static load_file parse(byte_store bytes, std::string const& key,
                                       reading_progress const& progress);
  void set_shape(std::vector<std::int64_t> const& shape);
  [[nodiscard]] index_t steps_at_once() const;
  template <class Load, class Put>
  void decode(std::uint64_t first, std::uint64_t count, Put&& put) const;

  byte_store bytes_;
  npy::detail::dtype type_;
  std::uint64_t values_at_ = 0;
  std::uint64_t floats_from_ =
      0;  ///< values before are whole numbers of 8 bytes, whatever the type
  bool fortran_order_ = false;
  bool whole_ = true;
  std::array<index_t, 3> shape_{};
  index_t first_layer_ = 0;
  index_t last_layer_ = 0;
};

/// Result of one pass over a file, for the selected layers.
struct load_totals {
  npy::any_array loads;              ///< `[layers, experts]`: sums over the steps
  std::vector<index_t> filled = {};  ///< `[layers]`: the steps in which the layer has load
  index_t empty_steps = 0;           ///< steps in which no layer has

  /// Of all layers.
  [[nodiscard]] index_t filled_rows() const;
};

/// Reads all steps and checks every load of all layers, then selects the layers from `first` up to,
/// not including, `last`, whose totals it gives. Throws `file_error`, also for arrays that are
/// something else than loads or have their dimensions in another order.
[[nodiscard]] load_totals check_loads(load_file& file, index_t first, index_t last,
                                      reading_progress const& progress = {});
/// The same for all layers.
[[nodiscard]] inline load_totals check_loads(load_file& file) {
  return check_loads(file, 0, file.layers());
}

/// The steps with load in any layer, all in memory: `[steps, layers, experts]`. One step without
/// load where there is no other. Throws `std::bad_alloc`.
[[nodiscard]] npy::any_array filled_steps(load_file const& file, load_totals const& totals);

/// The last `count` steps with load of every layer, each layer for itself; steps without load come
/// first where a layer has fewer. Throws `std::bad_alloc`.
[[nodiscard]] npy::any_array last_filled_steps(load_file const& file, load_totals const& totals,
                                               index_t count);

template <class Load>
[[nodiscard]] plimsoll::tensor_ref<Load const> view_of(npy::array<Load> const& loads) {
  return {loads.values.data(), loads.shape[0], loads.shape[1], loads.shape[2]};
}

}  // namespace examples
