// SPDX-License-Identifier: Apache-2.0
// Numbers of the decoded operations.
#pragma once

#include "emulator.hpp"

namespace emu {

enum opcode_id : u16 {
#define OP(name, ...) op_##name,
#define OP_JUMP(name, ...) op_##name,
#include "ops.inc"
#undef OP
#undef OP_JUMP
  op_count
};

// Fields of `kind` of memory operations with vectors, and of LD_kernel and LD_frame.
inline constexpr u16 kind_signed = 16, kind_v2 = 32, kind_v4 = 64;
// Of float_slow: operation, type, rounding, saturation, flush to zero.
enum class slow_operation : u8 {
  add,
  sub,
  mul,
  div,
  fma,
  sqrt,
  rcp,
  rsqrt,
  sin,
  cos,
  ex2,
  lg2,
  tanh,
  min_nan,
  max_nan,
  abs,
  neg,
  min,
  max
};
enum class rounding_mode : u8 { nearest, zero, down, up };
// Of CARRY
enum class carry_kind : u8 { add, sub, madlo, madhi };
// Special registers
enum class special_register : u16 {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  nwarpid,
  smid,
  nsmid,
  gridid,
  lt,
  le,
  gt,
  ge,
  eq,
  clock,
  clock64,
  timer,
  envreg1,
  envreg2,
  dynamic_shared,
  total_shared,
  zero
};
enum class atomic_operation : u8 {
  add,
  min,
  max,
  inc,
  dec,
  bit_and,
  bit_or,
  bit_xor,
  exch,
  cas,
  fadd,
  load,
  store
};

}  // namespace emu
