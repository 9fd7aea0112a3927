// SPDX-License-Identifier: Apache-2.0
/// @file
/// Copies rows of matrices within the memory of a context, and from there to the host.
#pragma once

#include <cstddef>
#include <type_traits>
#include <vector>

#include <plimsoll/config.hpp>
#include <plimsoll/detail/algorithm/rows.hpp>
#include <plimsoll/detail/buffer.hpp>
#include <plimsoll/detail/dispatch.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

/// Returns the bytes from one row to the next if cudaMemcpy2D can copy the matrix, else 0. The
/// matrix must not be empty, the elements of a row must be contiguous, and the rows must be in
/// ascending order in memory.
template <class T>
std::size_t row_pitch(matrix_ref<T> const& matrix) {
  constexpr auto most = static_cast<index_t>(0x7fffffff / sizeof(T));  // cudaDevAttrMaxPitch
  index_t const rows = matrix.extent(0);
  index_t const columns = matrix.extent(1);
  index_t const pitch = rows > 1 ? matrix.stride(0) : columns;
  bool const packed = columns == 1 || matrix.stride(1) == 1;
  return rows > 0 && columns > 0 && packed && pitch >= columns && pitch <= most
             ? static_cast<std::size_t>(pitch) * sizeof(T)
             : 0;
}

/// Copies rows to a matrix of the same shape that does not overlap. On a device, cudaMemcpy2DAsync
/// copies them, unless the strides need a kernel. Does not synchronize.
template <class Context, class T>
void copy_rows(Context const& context, matrix_ref<T const> from,
               std::type_identity_t<matrix_ref<T>> to) {
  if constexpr (runs_on_device<Context>) {
    std::size_t const pitch = row_pitch(from);
    std::size_t const to_pitch = row_pitch(to);
    if (pitch > 0 && to_pitch > 0) {
      memory_of<Context>::copy_rows(context, from.data, pitch, to.data, to_pitch,
                                    static_cast<std::size_t>(from.extent(1)) * sizeof(T),
                                    static_cast<std::size_t>(from.extent(0)));
      return;
    }
  }
  launch(context, from.extent(0), copy_rows_body<T>{from, to});
}

/// Waits for the context's work so far and copies the elements of a matrix, row by row.
template <class Context, class T>
void rows_to_host(Context const& context, matrix_ref<T> matrix, std::remove_const_t<T>* to) {
  using value = std::remove_const_t<T>;
  using memory = memory_of<Context>;
  index_t const rows = matrix.extent(0);
  index_t const columns = matrix.extent(1);
  std::size_t const row_bytes = static_cast<std::size_t>(columns) * sizeof(value);
  bool const contiguous =
      (columns < 2 || matrix.stride(1) == 1) && (rows < 2 || matrix.stride(0) == columns);
  index_t const elements = rows * columns;
  if (contiguous || elements == 0) {
    // Without the comparison g++ 12 at -O3 warns of a copy of more than 2^63 bytes.
    memory::to_host(context, matrix.data, to,
                    elements > 0 ? static_cast<std::size_t>(elements) * sizeof(value) : 0);
    return;
  }
  if (std::size_t const pitch = row_pitch(matrix); pitch > 0) {
    memory::rows_to_host(context, matrix.data, pitch, to, row_bytes,
                         static_cast<std::size_t>(rows));
    return;
  }
  buffer<value, Context> const copy(context, rows * columns);
  launch(context, rows, copy_rows_body<value>{matrix, {copy.data(), rows, columns}});
  memory::to_host(context, copy.data(), to, copy.bytes());
}

/// Waits for the context's work so far and returns the elements of a matrix, row by row.
template <class Context, class T>
std::vector<std::remove_const_t<T>> rows_on_host(Context const& context, matrix_ref<T> matrix) {
  std::vector<std::remove_const_t<T>> result(
      static_cast<std::size_t>(matrix.extent(0) * matrix.extent(1)));
  rows_to_host(context, matrix, result.data());
  return result;
}

/// Waits for the context's work so far and copies the elements of a vector.
template <class Context, class T>
void copy_to_host(Context const& context, vector_ref<T> const& vector, std::remove_const_t<T>* to) {
  matrix_ref<T> column(vector.data, vector.extent(0), 1);
  column.strides[0] = vector.stride(0);
  rows_to_host(context, column, to);
}

/// Waits for the context's work so far and returns the elements of a vector.
template <class Context, class T>
std::vector<std::remove_const_t<T>> on_host(Context const& context, vector_ref<T> const& vector) {
  std::vector<std::remove_const_t<T>> result(static_cast<std::size_t>(vector.extent(0)));
  copy_to_host(context, vector, result.data());
  return result;
}

}}}  // namespace plimsoll::detail
