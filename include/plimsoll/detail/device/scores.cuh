// SPDX-License-Identifier: Apache-2.0
/// @file
/// CUDA's types of scores, which every call with scores takes as Plimsoll's types of the same bits.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <plimsoll/config.hpp>
#include <plimsoll/types.hpp>

namespace plimsoll { inline namespace PLIMSOLL_ABI { namespace detail {

template <>
struct score_storage<__half> {
  using type = float16;
};
template <>
struct score_storage<__nv_bfloat16> {
  using type = bfloat16;
};

}}}  // namespace plimsoll::detail
