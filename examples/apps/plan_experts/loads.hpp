// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads measured loads, the tokens of every expert of every layer, step by step and any number of
/// times: a file may be larger than memory.
///
/// | file | content |
/// |---|---|
/// | `.npy` | an array `[layers, experts]` or `[steps, layers, experts]` of any number dtype |
/// | `.json` | an object whose key `logical_count` is such an array, as nested lists; other keys
///   are ignored |
/// | `.csv` | without column names: a line per layer, a number per expert, an empty line between
///   steps |
/// | | with the column names `layer`, `expert`, `load` and optionally `step`, or SGLang's
///   `layer_id`, `expert_id` and `count`, in any order: a line per load; loads without a line are
///   0, but every step from 0 on has a line |
/// | `-` | the standard input in any of these forms, recognized by the first bytes |
///
/// In every form each load is a number from 0 to below 2^47, and so is the sum of a layer's loads
/// over all steps. A file that breaks this or any other rule is a `file_error`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <plimsoll/types.hpp>

#include "byte_store.hpp"
#include "input_file.hpp"
#include "loads_ref.hpp"
#include "loads_text.hpp"
#include "npy.hpp"

namespace examples {

using plimsoll::index_t;

/// Says whether the last dimension of a file of loads numbers experts or slots.
enum class loads_of { experts, slots };

/// Loads `[steps, layers, experts]` in a file; only a few steps are in memory at a time. A `.npy`
/// file is read in place. Text is converted to numbers once and the standard input is copied, both
/// to unnamed temporary files. An array of two dimensions is one step.
class load_file {
 public:
  /// Opens a file and determines its shape. `key` names the key or column of the loads if it is not
  /// the usual one; a `.npy` file has none.
  [[nodiscard]] static load_file open(std::string const& file, std::string const& key = {},
                                      reading_progress const& progress = {},
                                      loads_of what = loads_of::experts);

  /// Takes loads that were computed from those of another file; `numbers.bytes` has the name of
  /// that.
  [[nodiscard]] static load_file of_numbers(text_numbers numbers,
                                            loads_of what = loads_of::experts);

  /// Parses the bytes of a file, whose name gives their form.
  [[nodiscard]] static load_file of_bytes(std::string_view bytes, std::string const& file,
                                          std::string const& key = {},
                                          loads_of what = loads_of::experts);

  [[nodiscard]] std::string const& name() const { return bytes_.name(); }
  [[nodiscard]] index_t steps() const { return shape_[0]; }
  [[nodiscard]] index_t layers() const { return last_layer_ - first_layer_; }
  [[nodiscard]] index_t experts() const { return shape_[2]; }
  [[nodiscard]] std::array<index_t, 3> const& shape() const { return shape_; }
  [[nodiscard]] loads_of what() const { return what_; }

  /// Takes `[layers, ranks, slots of a rank]` as one step of `[layers, slots]`, if these dimensions
  /// show that it is that. Throws `file_error` for values in Fortran order.
  void join_ranks(index_t ranks, index_t slots);

  /// Calls `visit` with a value of the type to read the loads as: `std::int64_t` if all loads are
  /// integers, else `double`.
  template <class Visit>
  decltype(auto) with_type(Visit&& visit) const {
    return whole_ ? visit(std::int64_t{}) : visit(double{});
  }

  /// Restricts this object to the layers from `first` up to, but not including, `last`. Throws
  /// `std::out_of_range` unless 0 <= first < last <= layers.
  void select_layers(index_t first, index_t last);

  /// Reads `count` steps from `first` on into `[count, layers, experts]`. `Load` must be the type
  /// that `with_type` selects.
  template <class Load>
  void read(index_t first, index_t count, Load* to) const;

  /// Calls `visit(step, loads)` for every step in order, with its loads `[layers, experts]`.
  template <class Load, class Visit>
  void for_each_step(Visit&& visit, reading_progress const& progress = {}) const {
    index_t const of_step = layers() * experts();
    index_t const most = steps_at_once();
    std::vector<Load> some(static_cast<std::size_t>(std::min(most, steps()) * of_step));
    for (index_t first = 0; first < steps(); first += most) {
      index_t const count = std::min(most, steps() - first);
      read(first, count, some.data());
      for (index_t i = 0; i < count; ++i) {
        visit(first + i, loads_ref<Load>(some.data() + i * of_step, layers(), experts()));
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

  [[nodiscard]] static load_file parse(byte_store bytes, std::string const& key, loads_of what,
                                       reading_progress const& progress);
  void set_shape(std::vector<std::int64_t> const& shape, loads_of what);
  void expect_c_order() const;
  [[nodiscard]] index_t steps_at_once() const;
  template <class Load, class Put>
  void decode(std::uint64_t first, std::uint64_t count, Put&& put) const;

  byte_store bytes_;
  npy::detail::dtype type_;
  std::uint64_t values_at_ = 0;
  /// Values before this one are integers of 8 bytes, whatever `type_` is.
  std::uint64_t floats_from_ = 0;
  bool fortran_order_ = false;
  bool whole_ = true;
  loads_of what_ = loads_of::experts;
  std::array<index_t, 3> shape_{};
  index_t first_layer_ = 0;
  index_t last_layer_ = 0;
};

/// Results of one pass over a file, for the selected layers.
struct load_totals {
  npy::any_array loads;              ///< `[layers, experts]`: sums over the steps
  std::vector<index_t> filled = {};  ///< `[layers]`: number of steps in which the layer has load
  index_t empty_steps = 0;           ///< number of steps without load in any layer

  /// Returns the sum of `filled` over all layers.
  [[nodiscard]] index_t filled_rows() const;
};

/// Says whether `check_loads` refuses loads that look like anything but `[steps, layers, experts]`.
enum class shape_rule { looks_right, trusted };

/// Reads all steps, checks every load of all layers, then selects the layers from `first` up to,
/// but not including, `last` and returns their totals. Throws `file_error`, unless `rule` is
/// `trusted` also for an array that holds something other than loads of experts or has its
/// dimensions in another order.
[[nodiscard]] load_totals check_loads(load_file& file, index_t first, index_t last,
                                      shape_rule rule = shape_rule::looks_right,
                                      reading_progress const& progress = {});
/// Checks and selects all layers.
[[nodiscard]] inline load_totals check_loads(load_file& file) {
  return check_loads(file, 0, file.layers());
}

/// Reads all steps with load in any layer into memory: `[steps, layers, experts]`. Returns one step
/// without load if there is no other. Throws `std::bad_alloc`.
[[nodiscard]] npy::any_array filled_steps(load_file const& file, load_totals const& totals);

/// Reads the last `count` steps with load of each layer, which may be other steps in each layer. A
/// layer with fewer such steps begins with steps without load. Throws `std::bad_alloc`.
[[nodiscard]] npy::any_array last_filled_steps(load_file const& file, load_totals const& totals,
                                               index_t count);

template <class Load>
[[nodiscard]] steps_ref<Load> view_of(npy::array<Load> const& loads) {
  return {loads.values, loads.shape[0], loads.shape[1], loads.shape[2]};
}

}  // namespace examples
