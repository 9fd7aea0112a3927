// SPDX-License-Identifier: Apache-2.0
// A small expert, second(relu(first(token))), on the CPU: replace it by your kernels. Each row is
// computed on its own, so that its bits do not depend on the other rows.
#pragma once

#include <algorithm>
#include <cstddef>

namespace spill_step {

/// The shape and the products of an expert: each neuron has `hidden` weights from the token and
/// `hidden` weights to the output.
class expert {
 public:
  expert(int hidden, int width)
      : hidden_(static_cast<std::size_t>(hidden)), width_(static_cast<std::size_t>(width)) {}

  void forward(float const* weights, std::size_t rows, float const* in, float* out) const {
    for (std::size_t row = 0; row < rows; ++row, in += hidden_, out += hidden_) {
      std::fill_n(out, hidden_, 0.0f);
      for (std::size_t n = 0; n < width_; ++n) {
        float const* const first = weights + 2 * n * hidden_;
        float const neuron = std::max(dot(first, in), 0.0f);
        add(neuron, first + hidden_, out);
      }
    }
  }

  /// Writes the gradients of the inputs, and adds those of the weights to `weight_gradients`.
  void backward(float const* weights, std::size_t rows, float const* in, float const* out_gradients,
                float* in_gradients, float* weight_gradients) const {
    for (std::size_t row = 0; row < rows;
         ++row, in += hidden_, out_gradients += hidden_, in_gradients += hidden_) {
      std::fill_n(in_gradients, hidden_, 0.0f);
      for (std::size_t n = 0; n < width_; ++n) {
        float const* const first = weights + 2 * n * hidden_;
        float const neuron = dot(first, in);
        if (neuron > 0) {
          float const slope = dot(first + hidden_, out_gradients);
          add(slope, first, in_gradients);
          add(slope, in, weight_gradients + 2 * n * hidden_);
          add(neuron, out_gradients, weight_gradients + (2 * n + 1) * hidden_);
        }
      }
    }
  }

 private:
  [[nodiscard]] float dot(float const* a, float const* b) const {
    float sum = 0;
    for (std::size_t i = 0; i < hidden_; ++i) {
      sum += a[i] * b[i];
    }
    return sum;
  }
  void add(float factor, float const* values, float* sums) const {
    for (std::size_t i = 0; i < hidden_; ++i) {
      sums[i] += factor * values[i];
    }
  }

  std::size_t hidden_;
  std::size_t width_;
};

}  // namespace spill_step
