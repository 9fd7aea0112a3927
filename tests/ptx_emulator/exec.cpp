// SPDX-License-Identifier: Apache-2.0
// Runs kernels: the interpreter of one thread, the scheduler of blocks, and the checkers.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <cstdarg>
#include <cstring>
#include <limits>

#include <cxxabi.h>

#include "ops.hpp"

namespace emu {

u64 total_instructions = 0, total_launches = 0, total_path = 0;
random_numbers random_source{0};

namespace {

enum class stop_reason : u8 { exit, warp, block, yield };
enum class thread_status : u8 { ready, at_warp, at_block, done };

struct block_state;

struct call_frame {
  decoded_instruction const* back;
  u8* frame;
  ptx_function* function;
  u64 local_at;
  call_site const* site;
};

struct ptx_thread {
  decoded_instruction const* ip = nullptr;
  u8* frame = nullptr;
  ptx_function* function = nullptr;
  u64 local_at = 0;
  block_state* block = nullptr;
  u32 lane = 0, warp = 0, id = 0;
  extents tid{};
  thread_status state = thread_status::ready;
  u32 carry = 0;
  u32 clock = 0;
  u64 count = 0;  ///< instructions
  u64 barriers = 0;
  std::vector<issue_cell*> executed;  ///< since the lanes last met, if costs are counted
  std::vector<call_frame> calls;
  u8 *stack = nullptr, *local = nullptr;
};

struct ptx_warp {
  u32 first = 0, lanes = 0;
  u32 alive = 0, waiting = 0;
  std::vector<u32> known;  ///< [32][32]: up to when a lane knows what another one did
  u64 issued = 0;          ///< instructions, if costs are counted
};

struct block_barrier {
  u32 arrived = 0, expected = 0;
  u32 sum = 0;  ///< threads with a true predicate
};

struct launch_state;

struct block_state {
  launch_request const* launch = nullptr;
  launch_state* state = nullptr;
  extents id{};
  u32 index = 0;
  u64 slot = 0;  ///< in the cells of the race checker for shared memory
  std::vector<ptx_thread> threads;
  std::vector<ptx_warp> warps;
  block_barrier barriers[16];
  u32 alive = 0;
  u32 started = 0, barrier_time = 0;
  std::vector<u8> shared, shared_written;
  std::vector<u8> stacks, locals;
};

/// What the race checker knows of a byte: the last write and the last reads by two threads. Bit 31
/// of a thread: the access was atomic or volatile.
struct shadow_cell {
  u32 writer, write_time;
  u32 reader[2], read_time[2];
};
constexpr u32 strong_bit = 0x80000000u;

struct launch_state {
  launch_request const* launch = nullptr;
  u32 started = 0;       ///< time
  u32 grid_time = 0;     ///< of the last grid barrier
  u64 shared_bytes = 0;  ///< static and dynamic
  u64 dynamic_at = 0;
  u32 threads = 0;
};

u32 now = 1;  // time of the race checker: grows with every barrier
u64 countdown = 0;
u8* race_cells = nullptr;
auto& shared_cells = *new std::vector<shadow_cell>;
int findings = 0;
u64 grid_workspace = 0;
decoded_instruction const* last_reported[64];
// Of the costs of a launch: a bit for each byte of the arena, and the words that have some set.
u64* touched = nullptr;
auto& touched_words = *new std::vector<u64>;

// ----- messages ----------------------------------------------------------------------------------

std::string where(ptx_thread const& t, decoded_instruction const& i) {
  ptx_function const& f = *t.function;
  char buffer[400];
  std::string text;
  block_state const& b = *t.block;
  std::snprintf(buffer, sizeof buffer, "block (%u,%u,%u) thread (%u,%u,%u) of ", b.id.x, b.id.y,
                b.id.z, t.tid.x, t.tid.y, t.tid.z);
  text += buffer;
  text += demangled(b.launch->kernel->name);
  if (t.function != b.launch->kernel)
    text += "\n  in " + demangled(f.name);
  std::size_t const at = static_cast<std::size_t>(&i - f.code.data());
  if (at < f.sources.size() && f.sources[at].second != 0) {
    auto const file = f.module->files.find(f.sources[at].first);
    text += "\n  at " + (file == f.module->files.end() ? "?" : file->second) + ":" +
            std::to_string(f.sources[at].second);
  }
  if (i.line > 0 && i.line <= f.module->lines.size()) {
    text += "\n  PTX " + std::to_string(i.line) + ": " + std::string(f.module->lines[i.line - 1]);
  }
  return text;
}

[[noreturn]] void bad(ptx_thread const& t, decoded_instruction const& i, char const* what) {
  die("%s\n  %s", what, where(t, i).c_str());
}
[[noreturn]] void bad_address(ptx_thread const& t, decoded_instruction const& i, u64 address,
                              char const* what) {
  std::string near;
  auto at = allocations.upper_bound(address);
  if (at != allocations.begin()) {
    --at;
    near = " (" + std::to_string(address - at->first) + " bytes into an allocation of " +
           std::to_string(at->second.size) + ")";
  }
  die("the address 0x%llx %s%s\n  %s", static_cast<unsigned long long>(address), what,
      address >> 48 == 0 ? near.c_str() : "", where(t, i).c_str());
}
/// Reports a finding of a checker, once per instruction.
void report(ptx_thread const& t, decoded_instruction const& i, std::string const& what) {
  for (decoded_instruction const* const reported : last_reported)
    if (reported == &i)
      return;
  last_reported[findings % 64] = &i;
  if (++findings <= settings.max_reports)
    std::fprintf(stderr, "ptxemu: %s\n  %s\n", what.c_str(), where(t, i).c_str());
}

struct launch_summary {
  ~launch_summary() {
    if (settings.leaks) {
      finish_streams();
      report_leaks();
    }
    if (settings.statistics) {
      std::fprintf(stderr,
                   "ptxemu: %llu launches, %llu instructions, %llu of the longest threads\n",
                   static_cast<unsigned long long>(total_launches),
                   static_cast<unsigned long long>(total_instructions),
                   static_cast<unsigned long long>(total_path));
    }
    if (findings > 0) {
      std::fprintf(stderr, "ptxemu: %d findings\n", findings);
      std::fflush(nullptr);
      _exit(86);
    }
  }
} summary;

// ----- arithmetic --------------------------------------------------------------------------------

template <class X>
u64 bits_of(X v) {
  if constexpr (std::is_same_v<X, float>) {
    return std::bit_cast<u32>(v);
  } else if constexpr (std::is_same_v<X, double>) {
    return std::bit_cast<u64>(v);
  } else {
    return static_cast<u64>(v);
  }
}
inline bool is_nan(float x) { return x != x; }
inline bool is_nan(double x) { return x != x; }
inline float canonical(float x) { return x == x ? x : std::bit_cast<float>(0x7fffffffu); }
inline double canonical(double x) { return x; }
inline float fused(float a, float b, float c) { return std::fma(a, b, c); }
inline double fused(double a, double b, double c) { return std::fma(a, b, c); }
template <class X>
X least(X a, X b) {
  if (a != a)
    return canonical(b);
  if (b != b)
    return a;
  if (a == b)
    return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class X>
X greatest(X a, X b) {
  if (a != a)
    return canonical(b);
  if (b != b)
    return a;
  if (a == b)
    return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
template <class X>
X clamp_to(s64 v) {
  return static_cast<X>(
      std::clamp<s64>(v, std::numeric_limits<X>::min(), std::numeric_limits<X>::max()));
}
template <class X>
X divide(X a, X b) {
  if (b == 0)
    return static_cast<X>(-1);
  if (b == -1)
    return static_cast<X>(0 - static_cast<u64>(a));
  return static_cast<X>(a / b);
}
template <class X>
X remainder_of(X a, X b) {
  if (b == 0)
    return a;
  if (b == -1)
    return 0;
  return static_cast<X>(a % b);
}
u64 extract(u64 a, u32 position, u32 length, u32 width, bool is_signed) {
  position &= 0xff;
  length &= 0xff;
  u32 const msb = width - 1;
  bool const sign =
      is_signed && length != 0 && (a >> std::min(position + length - 1, msb) & 1) != 0;
  u64 result = 0;
  for (u32 i = 0; i <= msb; ++i) {
    bool const bit = i < length && position + i <= msb ? (a >> (position + i) & 1) != 0 : sign;
    result |= u64{bit} << i;
  }
  return result;
}
u64 insert(u64 a, u64 b, u32 position, u32 length, u32 width) {
  position &= 0xff;
  length &= 0xff;
  u64 result = b;
  for (u32 i = 0; i < length && position + i < width; ++i) {
    u64 const bit = u64{1} << (position + i);
    result = (result & ~bit) | ((a >> i & 1) != 0 ? bit : 0);
  }
  return result;
}
u32 find_highest(u64 a, u32 kind) {
  bool const wide = (kind & 1) != 0;
  if (!wide)
    a = static_cast<u32>(a);
  u32 const msb = wide ? 63 : 31;
  if ((kind & 2) != 0 && (a >> msb & 1) != 0)
    a = wide ? ~a : static_cast<u32>(~a);
  if (a == 0)
    return ~u32{0};
  u32 const at = 63 - static_cast<u32>(std::countl_zero(a));
  return (kind & 4) != 0 ? msb - at : at;
}
u64 reversed(u64 a) {
  u64 r = 0;
  for (int i = 0; i < 64; ++i)
    r |= (a >> i & 1) << (63 - i);
  return r;
}
u32 nth_set(u32 mask, u32 base, s32 offset) {
  if (offset == 0)
    return base < 32 && (mask >> base & 1) != 0 ? base : ~u32{0};
  s64 position = base;
  s32 const step = offset > 0 ? 1 : -1;
  s32 left = offset > 0 ? offset : -offset;
  for (; position >= 0 && position < 32; position += step) {
    if ((mask >> position & 1) != 0 && --left == 0)
      return static_cast<u32>(position);
  }
  return ~u32{0};
}
u32 logic3(u32 a, u32 b, u32 c, u32 table) {
  u32 r = 0;
  if (table & 0x01)
    r |= ~a & ~b & ~c;
  if (table & 0x02)
    r |= ~a & ~b & c;
  if (table & 0x04)
    r |= ~a & b & ~c;
  if (table & 0x08)
    r |= ~a & b & c;
  if (table & 0x10)
    r |= a & ~b & ~c;
  if (table & 0x20)
    r |= a & ~b & c;
  if (table & 0x40)
    r |= a & b & ~c;
  if (table & 0x80)
    r |= a & b & c;
  return r;
}
u32 funnel(u32 a, u32 b, u32 c, u32 kind) {
  u32 const n = (kind & 2) != 0 ? std::min(c, 32u) : c & 31;
  u64 const both = u64{b} << 32 | a;
  return (kind & 1) != 0 ? static_cast<u32>((n == 32 ? both << 31 << 1 : both << n) >> 32)
                         : static_cast<u32>(both >> n);
}
u32 permute(u32 a, u32 b, u32 c, u32 mode) {
  u64 const both = u64{b} << 32 | a;
  auto const byte = [&](u32 i) { return static_cast<u32>(both >> (8 * (i & 7)) & 0xff); };
  u32 const n = c & 3;
  u32 s[4];
  switch (mode) {
    case 0: {
      u32 r = 0;
      for (u32 i = 0; i < 4; ++i) {
        u32 const pick = c >> (4 * i) & 15;
        u32 v = byte(pick);
        if (pick & 8)
          v = v & 0x80 ? 0xff : 0;
        r |= v << (8 * i);
      }
      return r;
    }
    case 1:
      for (u32 i = 0; i < 4; ++i)
        s[i] = n + i;
      break;  // f4e
    case 2:
      for (u32 i = 0; i < 4; ++i)
        s[i] = (n + 8 - i) & 7;
      break;  // b4e
    case 3:
      for (u32 i = 0; i < 4; ++i)
        s[i] = n;
      break;  // rc8
    case 4:
      for (u32 i = 0; i < 4; ++i)
        s[i] = std::max(i, n);
      break;  // ecl
    case 5:
      for (u32 i = 0; i < 4; ++i)
        s[i] = std::min(i, n);
      break;  // ecr
    default:
      for (u32 i = 0; i < 4; ++i)
        s[i] = (n & 1) * 2 + i % 2;
      break;  // rc16
  }
  return byte(s[0]) | byte(s[1]) << 8 | byte(s[2]) << 16 | byte(s[3]) << 24;
}
u32 bit_mask(u32 position, u32 length, bool clamps) {
  if (!clamps) {
    position &= 31;
    length &= 31;
  }
  if (position > 31)
    return 0;
  u64 const ones = length >= 32 ? 0xffffffffu : (u64{1} << length) - 1;
  return static_cast<u32>(ones << position);
}

template <class X>
X& operand(u8* frame, u32 at) {
  return *reinterpret_cast<X*>(frame + at);
}

void carry(decoded_instruction const& i, u8* R, u32& flag) {
  bool const wide = i.imm & 1, in = i.imm & 2, out = i.imm & 4, is_signed = i.imm & 8;
  u64 const mask = wide ? ~u64{0} : 0xffffffffu;
  u64 const a = operand<u64>(R, i.a) & mask, b = operand<u64>(R, i.b) & mask,
            c = operand<u64>(R, i.c) & mask;
  u32 const from = in ? flag : 0;
  u64 result = 0;
  u32 next = 0;
  auto const sum = [&](u64 x, u64 y) {
    u128 const s = u128{x} + y + from;
    result = static_cast<u64>(s) & mask;
    next = static_cast<u32>(s >> (wide ? 64 : 32)) & 1;
  };
  switch (static_cast<carry_kind>(i.kind)) {
    case carry_kind::add:
      sum(a, b);
      break;
    case carry_kind::sub: {
      // As the hardware does: a + ~b + carry. The carry is the opposite of a borrow; nvcc's
      // division of 128-bit integers reads it by addc after subc.cc.
      u128 const s = u128{a} + (~b & mask) + (in ? flag : 1);
      result = static_cast<u64>(s) & mask;
      next = static_cast<u32>(s >> (wide ? 64 : 32)) & 1;
      break;
    }
    case carry_kind::madlo:
      sum((a * b) & mask, c);
      break;
    case carry_kind::madhi: {
      u64 high = 0;
      if (wide) {
        high = is_signed ? static_cast<u64>((s128{static_cast<s64>(a)} * static_cast<s64>(b)) >> 64)
                         : static_cast<u64>((u128{a} * b) >> 64);
      } else {
        high = is_signed ? static_cast<u32>((s64{static_cast<s32>(a)} * static_cast<s32>(b)) >> 32)
                         : (a * b) >> 32;
      }
      sum(high, c);
      break;
    }
  }
  operand<u64>(R, i.d) = result;
  if (out)
    flag = next;
}

int mode_of(rounding_mode r) {
  switch (r) {
    case rounding_mode::zero:
      return FE_TOWARDZERO;
    case rounding_mode::down:
      return FE_DOWNWARD;
    case rounding_mode::up:
      return FE_UPWARD;
    default:
      return FE_TONEAREST;
  }
}

template <class X>
__attribute__((noinline, optimize("rounding-math"))) void float_slow_of(
    decoded_instruction const& i, u8* R) {
  X volatile a = operand<X>(R, i.a), b = operand<X>(R, i.b), c = operand<X>(R, i.c);
  auto const flush = [&](X x) {
    return (i.imm & 64) && std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(X{0}, x) : x;
  };
  a = flush(a);
  b = flush(b);
  c = flush(c);
  X volatile r = 0;
  std::fesetround(mode_of(static_cast<rounding_mode>(i.imm & 3)));
  switch (static_cast<slow_operation>(i.kind)) {
    case slow_operation::add:
      r = a + b;
      break;
    case slow_operation::sub:
      r = a - b;
      break;
    case slow_operation::mul:
      r = a * b;
      break;
    case slow_operation::div:
      r = a / b;
      break;
    case slow_operation::fma:
      r = std::fma(static_cast<X>(a), static_cast<X>(b), static_cast<X>(c));
      break;
    case slow_operation::sqrt:
      r = std::sqrt(static_cast<X>(a));
      break;
    case slow_operation::rcp:
      r = X{1} / a;
      break;
    case slow_operation::rsqrt:
      r = static_cast<X>(1 / std::sqrt(static_cast<double>(a)));
      break;
    case slow_operation::sin:
      r = static_cast<X>(std::sin(static_cast<double>(a)));
      break;
    case slow_operation::cos:
      r = static_cast<X>(std::cos(static_cast<double>(a)));
      break;
    case slow_operation::ex2:
      r = static_cast<X>(std::exp2(static_cast<double>(a)));
      break;
    case slow_operation::lg2:
      r = static_cast<X>(std::log2(static_cast<double>(a)));
      break;
    case slow_operation::tanh:
      r = static_cast<X>(std::tanh(static_cast<double>(a)));
      break;
    case slow_operation::min_nan:
      r = a != a || b != b ? std::numeric_limits<X>::quiet_NaN() : least<X>(a, b);
      break;
    case slow_operation::max_nan:
      r = a != a || b != b ? std::numeric_limits<X>::quiet_NaN() : greatest<X>(a, b);
      break;
    case slow_operation::min:
      r = least<X>(a, b);
      break;
    case slow_operation::max:
      r = greatest<X>(a, b);
      break;
    case slow_operation::abs:
      r = std::fabs(static_cast<X>(a));
      break;
    case slow_operation::neg:
      r = -a;
      break;
  }
  std::fesetround(FE_TONEAREST);
  X v = canonical(static_cast<X>(r));
  v = flush(v);
  if (i.imm & 32)
    v = v != v ? X{0} : std::min(std::max(v, X{0}), X{1});
  operand<u64>(R, i.d) = bits_of(v);
}
void float_slow(decoded_instruction const& i, u8* R) {
  if (i.imm & 16) {
    float_slow_of<double>(i, R);
  } else {
    float_slow_of<float>(i, R);
  }
}
u32 test_float(decoded_instruction const& i, u8* R) {
  double const v = i.imm ? operand<double>(R, i.a) : 0;
  float const f = operand<float>(R, i.a);
  int const kind = i.imm ? std::fpclassify(v) : std::fpclassify(f);
  switch (i.kind) {
    case 0:
      return kind != FP_INFINITE && kind != FP_NAN;
    case 1:
      return kind == FP_INFINITE;
    case 2:
      return kind != FP_NAN;
    case 3:
      return kind == FP_NAN;
    case 4:
      return kind == FP_NORMAL;
    default:
      return kind == FP_SUBNORMAL;
  }
}

float half_to_float(u16 h) {
  u32 const sign = static_cast<u32>(h >> 15) << 31;
  u32 const exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 31)
    return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  float const magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                        : std::ldexp(static_cast<float>(fraction | 1024),
                                                     static_cast<int>(exponent) - 25);
  return sign != 0 ? -magnitude : magnitude;
}
/// Rounds to a format with so many bits of fraction and of exponent.
u16 to_small(double x, int fraction_bits, int exponent_bits, rounding_mode rounding) {
  u32 const sign = std::signbit(x) ? 1u << 15 : 0;
  int const bias = (1 << (exponent_bits - 1)) - 1;
  u32 const infinity = static_cast<u32>((1 << exponent_bits) - 1) << fraction_bits;
  if (x != x)
    return 0x7fff;
  if (std::isinf(x))
    return static_cast<u16>(sign | infinity);
  double const m = std::fabs(x);
  if (m == 0)
    return static_cast<u16>(sign);
  int e = std::max(std::ilogb(m), 1 - bias);
  double const scaled = std::ldexp(m, fraction_bits - e);
  double whole = std::floor(scaled);
  double const rest = scaled - whole;
  bool up = false;
  switch (rounding) {
    case rounding_mode::nearest:
      up = rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) == 1);
      break;
    case rounding_mode::zero:
      break;
    case rounding_mode::down:
      up = sign != 0 && rest > 0;
      break;
    case rounding_mode::up:
      up = sign == 0 && rest > 0;
      break;
  }
  u64 value = static_cast<u64>(whole) + (up ? 1 : 0);
  // Adding the exponent to the fraction with its hidden bit carries by itself.
  u64 bits = value + (static_cast<u64>(e + bias - 1) << fraction_bits);
  if (bits >= infinity) {
    bool const saturates = rounding == rounding_mode::zero ||
                           (rounding == rounding_mode::down && sign == 0) ||
                           (rounding == rounding_mode::up && sign != 0);
    bits = saturates ? infinity - 1 : infinity;
  }
  return static_cast<u16>(sign | bits);
}

__attribute__((noinline, optimize("rounding-math"))) void convert(decoded_instruction const& i,
                                                                  u8* R) {
  ptx_type const from = static_cast<ptx_type>(i.kind & 31), to = static_cast<ptx_type>(i.kind >> 5);
  rounding_mode const rounding = static_cast<rounding_mode>(i.imm & 3);
  bool const sat = i.imm & 32, ftz = i.imm & 64, integral = i.imm & 128;
  u64& d = operand<u64>(R, i.d);
  if (is_float(from)) {
    double v = 0;
    switch (from) {
      case ptx_type::f32:
        v = operand<float>(R, i.a);
        break;
      case ptx_type::f64:
        v = operand<double>(R, i.a);
        break;
      case ptx_type::f16:
        v = half_to_float(operand<u16>(R, i.a));
        break;
      case ptx_type::bf16:
        v = std::bit_cast<float>(u32{operand<u16>(R, i.a)} << 16);
        break;
      default:
        die("cvt from an unknown type");
    }
    if (ftz && from == ptx_type::f32 && std::fpclassify(operand<float>(R, i.a)) == FP_SUBNORMAL)
      v = std::copysign(0.0, v);
    auto const whole = [&](double x) {
      switch (rounding) {
        case rounding_mode::zero:
          return std::trunc(x);
        case rounding_mode::down:
          return std::floor(x);
        case rounding_mode::up:
          return std::ceil(x);
        default:
          return std::nearbyint(x);
      }
    };
    if (!is_float(to)) {
      double const w = whole(v);
      int const bits = 8 * size_of(to);
      if (v != v) {
        d = from == ptx_type::f64 || bits == 64 ? u64{1} << (bits - 1) : 0;
      } else if (is_signed(to)) {
        double const limit = std::ldexp(1.0, bits - 1);
        s64 const r = w >= limit   ? static_cast<s64>((u64{1} << (bits - 1)) - 1)
                      : w < -limit ? static_cast<s64>(~u64{0} << (bits - 1))
                                   : static_cast<s64>(w);
        d = static_cast<u64>(r);
      } else {
        double const limit = std::ldexp(1.0, bits);
        d = w >= limit ? (bits == 64 ? ~u64{0} : (u64{1} << bits) - 1)
            : w <= 0   ? 0
                       : static_cast<u64>(w);
      }
      return;
    }
    if (integral)
      v = whole(v);
    if (sat)
      v = v != v ? 0 : std::min(std::max(v, 0.0), 1.0);
    switch (to) {
      case ptx_type::f64:
        d = bits_of(v);
        return;
      case ptx_type::f32: {
        double volatile x = v;
        std::fesetround(mode_of(integral ? rounding_mode::nearest : rounding));
        float volatile r = static_cast<float>(x);
        std::fesetround(FE_TONEAREST);
        float f = canonical(static_cast<float>(r));
        if (ftz && std::fpclassify(f) == FP_SUBNORMAL)
          f = std::copysign(0.0f, f);
        d = bits_of(f);
        return;
      }
      case ptx_type::f16:
        d = to_small(v, 10, 5, rounding);
        return;
      case ptx_type::bf16:
        d = to_small(v, 7, 8, rounding);
        return;
      default:
        die("cvt to an unknown type");
    }
  }
  // From integers
  s64 const s = from == ptx_type::s8    ? operand<s8>(R, i.a)
                : from == ptx_type::s16 ? operand<s16>(R, i.a)
                : from == ptx_type::s32 ? operand<s32>(R, i.a)
                                        : operand<s64>(R, i.a);
  u64 const u = size_of(from) == 1   ? operand<u8>(R, i.a)
                : size_of(from) == 2 ? operand<u16>(R, i.a)
                : size_of(from) == 4 ? operand<u32>(R, i.a)
                                     : operand<u64>(R, i.a);
  if (is_float(to)) {
    s64 volatile vs = s;
    u64 volatile vu = u;
    std::fesetround(mode_of(rounding));
    double volatile wide = 0;
    float volatile narrow = 0;
    if (to == ptx_type::f64) {
      wide = is_signed(from) ? static_cast<double>(vs) : static_cast<double>(vu);
    } else if (to == ptx_type::f32) {
      narrow = is_signed(from) ? static_cast<float>(vs) : static_cast<float>(vu);
    }
    std::fesetround(FE_TONEAREST);
    if (to == ptx_type::f64) {
      d = bits_of(static_cast<double>(wide));
    } else if (to == ptx_type::f32) {
      d = bits_of(static_cast<float>(narrow));
    } else if (size_of(from) <= 4) {
      double const v = is_signed(from) ? static_cast<double>(s) : static_cast<double>(u);
      d = to == ptx_type::f16 ? to_small(v, 10, 5, rounding) : to_small(v, 7, 8, rounding);
    } else {
      die("cvt of 64-bit integers to a small float");
    }
    return;
  }
  // Saturating conversions between integers
  int const bits = 8 * size_of(to);
  s128 const v = is_signed(from) ? s128{s} : static_cast<s128>(u);
  s128 const lowest = is_signed(to) ? -(s128{1} << (bits - 1)) : 0;
  s128 const highest = is_signed(to) ? (s128{1} << (bits - 1)) - 1 : (s128{1} << bits) - 1;
  d = static_cast<u64>(static_cast<s64>(std::clamp(v, lowest, highest)));
}

void extend_into(u64& to, u8 const* p, u16 kind) {
  bool const negative = (kind & kind_signed) != 0;
  switch (kind & 15) {
    case 1:
      to = negative ? static_cast<u64>(s64{static_cast<s8>(*p)}) : *p;
      break;
    case 2: {
      u16 v;
      std::memcpy(&v, p, 2);
      to = negative ? static_cast<u64>(s64{static_cast<s16>(v)}) : v;
      break;
    }
    case 4: {
      u32 v;
      std::memcpy(&v, p, 4);
      to = negative ? static_cast<u64>(s64{static_cast<s32>(v)}) : v;
      break;
    }
    default:
      std::memcpy(&to, p, 8);
      break;
  }
}

// ----- races -------------------------------------------------------------------------------------

enum class access_kind : u8 { read, write };
constexpr access_kind read_access = access_kind::read, write_access = access_kind::write;

u32 thread_in_launch(ptx_thread const& t) {
  return t.block->index * t.block->state->threads + t.id;
}

/// Whether what `other` did at `time` happened before what t does now.
bool is_ordered(ptx_thread const& t, u32 other, u32 time) {
  launch_state const& s = *t.block->state;
  u32 const block = other / s.threads;
  if (block != t.block->index)
    return time < s.grid_time;
  if (time < t.block->barrier_time)
    return true;
  u32 const id = other % s.threads;
  if (id / 32 != t.warp)
    return false;
  ptx_warp const& w = t.block->warps[t.warp];
  return time < w.known[t.lane * 32 + id % 32];
}

void check_race(ptx_thread& t, decoded_instruction const& i, shadow_cell* cells, u64 bytes,
                access_kind access, bool strong, u32 since, char const* space, u64 address) {
  u32 const me = thread_in_launch(t);
  for (u64 k = 0; k < bytes; ++k) {
    shadow_cell& c = cells[k];
    auto const conflicts = [&](u32 other, u32 time) {
      return time >= since && (other & ~strong_bit) != me && !(strong && (other & strong_bit)) &&
             !is_ordered(t, other & ~strong_bit, time);
    };
    char const* what = nullptr;
    u32 other = 0;
    if (c.write_time != 0 && conflicts(c.writer, c.write_time)) {
      what = access == access_kind::write ? "two writes" : "a read after a write";
      other = c.writer;
    } else if (access == access_kind::write) {
      for (int r = 0; r < 2; ++r) {
        if (c.read_time[r] != 0 && conflicts(c.reader[r], c.read_time[r])) {
          what = "a write after a read";
          other = c.reader[r];
        }
      }
    }
    if (what != nullptr) {
      u32 const n = t.block->state->threads;
      char text[300];
      std::snprintf(text, sizeof text,
                    "racecheck: %s of %s byte 0x%llx without a barrier between; the other: block "
                    "%u thread %u",
                    what, space, static_cast<unsigned long long>(address + k),
                    (other & ~strong_bit) / n, (other & ~strong_bit) % n);
      report(t, i, text);
    }
    u32 const who = me | (strong ? strong_bit : 0);
    if (access == access_kind::write) {
      c.writer = who;
      c.write_time = t.clock;
    } else if (c.read_time[0] == 0 || c.read_time[0] < since || (c.reader[0] & ~strong_bit) == me) {
      // A weak read must not be hidden by a strong one of the same time.
      if (!(c.read_time[0] == t.clock && c.reader[0] == me)) {
        c.reader[0] = who;
        c.read_time[0] = t.clock;
      }
    } else {
      c.reader[1] = who;
      c.read_time[1] = t.clock;
    }
  }
}
shadow_cell* cells_of(u64 offset) { return reinterpret_cast<shadow_cell*>(race_cells) + offset; }

// ----- memory ------------------------------------------------------------------------------------

[[noreturn]] void bad_global(ptx_thread const& t, decoded_instruction const& i, u64 address,
                             u64 size, bool is_write) {
  char text[100];
  if (address % size != 0) {
    std::snprintf(text, sizeof text, "is not aligned to the %llu bytes of the access",
                  static_cast<unsigned long long>(size));
  } else {
    std::snprintf(text, sizeof text, "is invalid: a %s of %llu bytes outside of all allocations",
                  is_write ? "write" : "read", static_cast<unsigned long long>(size));
  }
  bad_address(t, i, address, text);
}
void check_init(ptx_thread const& t, decoded_instruction const& i, u8 const* s, u64 size,
                char const* space, u64 address) {
  for (u64 k = 0; k < size; ++k) {
    if ((s[k] & 2) == 0) {
      char text[120];
      std::snprintf(text, sizeof text, "initcheck: %s byte 0x%llx is read but was never written",
                    space, static_cast<unsigned long long>(address + k));
      report(t, i, text);
      return;
    }
  }
}

/// Notes an access of global memory for the costs of the launch.
void touch(u64 offset, u64 size) {
  u64& word = touched[offset / 64];
  if (word == 0)
    touched_words.push_back(offset / 64);
  word |= ((u64{1} << size) - 1) << offset % 64;  // aligned, and at most 32 bytes
}

/// Host address of [address, +size), checked.
template <bool Check, u64 Size>
inline u8* global_at(ptx_thread& t, decoded_instruction const& i, u8*, u64 address,
                     access_kind access) {
  u64 const offset = address - reinterpret_cast<u64>(arena);
  if (offset >= arena_size - 64 || offset % Size != 0) [[unlikely]]
    bad_global(t, i, address, Size, access == access_kind::write);
  using word_type = std::conditional_t<
      Size == 1, u8, std::conditional_t<Size == 2, u16, std::conditional_t<Size == 4, u32, u64>>>;
  for (u64 k = 0; k < Size; k += sizeof(word_type)) {
    word_type& s = *reinterpret_cast<word_type*>(shadow + offset + k);
    constexpr word_type ones = static_cast<word_type>(0x0101010101010101u);
    if ((s & ones) != ones) [[unlikely]]
      bad_global(t, i, address, Size, access == access_kind::write);
    if constexpr (Check) {
      if (settings.init && access == access_kind::read)
        check_init(t, i, shadow + offset + k, sizeof(word_type), "global", address + k);
    }
    if (access == access_kind::write)
      s = static_cast<word_type>(s | ones * 3);
  }
  if constexpr (Check) {
    if (settings.costs != 0)
      touch(offset, Size);
    if (settings.race)
      check_race(t, i, cells_of(offset), Size, access, false, t.block->state->started, "global",
                 address);
  }
  return reinterpret_cast<u8*>(address);
}
template <bool Check, u64 Size>
inline u8* shared_at(ptx_thread& t, decoded_instruction const& i, u8*, u64 address,
                     access_kind access) {
  block_state& b = *t.block;
  u64 const offset = address - shared_base;
  if (offset + Size > b.shared.size() || offset > b.shared.size() || address % Size != 0)
      [[unlikely]] {
    bad_address(t, i, address | shared_window,
                address % Size != 0 ? "in shared memory is not aligned to the access"
                                    : "is outside of the block's shared memory");
  }
  if constexpr (Check) {
    if (settings.init) {
      if (access == access_kind::read) {
        check_init(t, i, b.shared_written.data() + offset, Size, "shared", address);
      } else {
        std::memset(b.shared_written.data() + offset, 2, Size);
      }
    }
    if (settings.race) {
      // Blocks that run at the same time have their own cells.
      check_race(t, i, shared_cells.data() + b.slot * b.state->shared_bytes + offset, Size, access,
                 false, b.started, "shared", address);
    }
  }
  return b.shared.data() + offset;
}
template <bool Check, u64 Size>
inline u8* local_at(ptx_thread& t, decoded_instruction const& i, u8*, u64 address, access_kind) {
  u64 const limit = t.block->launch->kernel->local_stack;
  if (address + Size > limit || address > limit || address % Size != 0) [[unlikely]] {
    bad_address(t, i, address | local_window,
                "is outside of the thread's local memory, or not aligned");
  }
  return t.local + address;
}
template <bool Check, u64 Size>
inline u8* generic_at(ptx_thread& t, decoded_instruction const& i, u8* R, u64 address,
                      access_kind access) {
  u64 const window = address >> 48;
  if (window == 0) [[likely]]
    return global_at<Check, Size>(t, i, R, address, access);
  if (window == 1)
    return shared_at<Check, Size>(t, i, R, address - shared_window, access);
  if (window == 2)
    return local_at<Check, Size>(t, i, R, address - local_window, access);
  if (window == 3 && access == access_kind::read) {
    u64 const offset = address - param_window;
    auto& params = const_cast<std::vector<u8>&>(t.block->launch->params);
    if (offset + Size <= params.size())
      return params.data() + offset;
  }
  bad_address(t, i, address, "is no address");
}

bool needs_checks() {
  return settings.race || settings.init || settings.costs != 0 || settings.preempt != 0;
}

void atomic(ptx_thread& t, decoded_instruction const& i, u8* R) {
  ptx_type const type = static_cast<ptx_type>(i.e);
  atomic_operation const kind = static_cast<atomic_operation>(i.kind & 15);
  memory_space space = static_cast<memory_space>(i.kind >> 4);
  u64 address = operand<u64>(R, i.a) + static_cast<u64>(i.imm);
  if (space == memory_space::generic) {
    u64 const window = address >> 48;
    space = window == 0   ? memory_space::global
            : window == 1 ? memory_space::shared
                          : memory_space::generic;
    if (window == 1)
      address -= shared_window;
    if (window == 2 && (kind == atomic_operation::load || kind == atomic_operation::store)) {
      space = memory_space::local;
      address -= local_window;
    }
    if (space == memory_space::generic)
      bad_address(t, i, address, "is no address of an atomic access");
  }
  access_kind const access =
      kind == atomic_operation::load ? access_kind::read : access_kind::write;
  u64 const size = static_cast<u64>(size_of(type));
  u8* p = nullptr;
  auto const find = [&](auto get) {
    switch (size) {
      case 1:
        return get(std::integral_constant<u64, 1>{});
      case 2:
        return get(std::integral_constant<u64, 2>{});
      case 4:
        return get(std::integral_constant<u64, 4>{});
      default:
        return get(std::integral_constant<u64, 8>{});
    }
  };
  p = find([&](auto n) {
    constexpr u64 Size = decltype(n)::value;
    return space == memory_space::global  ? global_at<false, Size>(t, i, R, address, access)
           : space == memory_space::local ? local_at<false, Size>(t, i, R, address, access)
                                          : shared_at<false, Size>(t, i, R, address, access);
  });
  if (settings.costs != 0 && space == memory_space::global)
    touch(static_cast<u64>(p - arena), size);
  if (settings.init && space != memory_space::local) {
    u8* const s = space == memory_space::global
                      ? shadow + (p - arena)
                      : t.block->shared_written.data() + (address - shared_base);
    if (access == access_kind::write && kind != atomic_operation::store &&
        kind != atomic_operation::exch) {
      // global_at marked it written already, so that only shared memory is checked here
      if (space == memory_space::shared)
        check_init(t, i, s, size, "shared", address);
    } else if (access == access_kind::read) {
      check_init(t, i, s, size, space == memory_space::global ? "global" : "shared", address);
    }
    if (access == access_kind::write && space == memory_space::shared)
      std::memset(s, 2, size);
  }
  if (settings.race && space != memory_space::local) {
    if (space == memory_space::global) {
      check_race(t, i, cells_of(static_cast<u64>(p - arena)), size, access, true,
                 t.block->state->started, "global", address);
    } else {
      block_state& b = *t.block;
      check_race(t, i,
                 shared_cells.data() + b.slot * b.state->shared_bytes + (address - shared_base),
                 size, access, true, b.started, "shared", address);
    }
  }
  u64 old = 0;
  std::memcpy(&old, p, size);
  auto const narrow_signed = [&](u64 v) {
    return size == 4 ? s64{static_cast<s32>(v)} : static_cast<s64>(v);
  };
  auto const narrow = [&](u64 v) {
    return size == 4 ? u64{static_cast<u32>(v)} : size == 2 ? u64{static_cast<u16>(v)} : v;
  };
  u64 const b = operand<u64>(R, i.b);
  u64 next = old;
  switch (kind) {
    case atomic_operation::load:
      operand<u64>(R, i.d) = 0;
      extend_into(operand<u64>(R, i.d), p,
                  static_cast<u16>(size | (is_signed(type) ? kind_signed : 0)));
      return;
    case atomic_operation::store:
      next = b;
      break;
    case atomic_operation::add:
      next = old + b;
      break;
    case atomic_operation::min:
      next = is_signed(type) ? (narrow_signed(b) < narrow_signed(old) ? b : old)
                             : (narrow(b) < narrow(old) ? b : old);
      break;
    case atomic_operation::max:
      next = is_signed(type) ? (narrow_signed(b) > narrow_signed(old) ? b : old)
                             : (narrow(b) > narrow(old) ? b : old);
      break;
    case atomic_operation::inc:
      next = narrow(old) >= narrow(b) ? 0 : old + 1;
      break;
    case atomic_operation::dec:
      next = narrow(old) == 0 || narrow(old) > narrow(b) ? b : old - 1;
      break;
    case atomic_operation::bit_and:
      next = old & b;
      break;
    case atomic_operation::bit_or:
      next = old | b;
      break;
    case atomic_operation::bit_xor:
      next = old ^ b;
      break;
    case atomic_operation::exch:
      next = b;
      break;
    case atomic_operation::cas:
      next = narrow(old) == narrow(b) ? operand<u64>(R, i.c) : old;
      break;
    case atomic_operation::fadd:
      next = type == ptx_type::f32 ? bits_of(canonical(std::bit_cast<float>(static_cast<u32>(old)) +
                                                       std::bit_cast<float>(static_cast<u32>(b))))
                                   : bits_of(std::bit_cast<double>(old) + std::bit_cast<double>(b));
      break;
  }
  std::memcpy(p, &next, size);
  if (kind != atomic_operation::store)
    operand<u64>(R, i.d) = old;
  // The last block to arrive at a grid barrier flips the top bit of its word.
  if (address == grid_workspace + 4 && ((old ^ next) & 0x80000000u) != 0)
    t.block->state->grid_time = ++now;
}

// ----- calls -------------------------------------------------------------------------------------

void enter(ptx_thread& t, decoded_instruction const& i, ptx_function* indirect) {
  call_site const& site = t.function->calls[static_cast<std::size_t>(i.imm)];
  ptx_function* const f = site.callee != nullptr ? site.callee : indirect;
  u8* const frame = t.frame + t.function->frame_bytes;
  if (frame + f->frame_bytes > t.stack + t.block->launch->kernel->stack_bytes)
    bad(t, i, "the stack of calls overflows");
  std::memcpy(frame, f->constants.data(), 8 * f->constants.size());
  for (auto const& m : site.arguments)
    std::memcpy(frame + f->area + m.to, t.frame + m.from, m.size);
  t.calls.push_back({&i + 1, t.frame, t.function, t.local_at, &site});
  t.local_at += t.function->local_bytes;
  t.frame = frame;
  t.function = f;
  t.ip = f->code.data();
}
/// Returns from a function; true at the end of the kernel.
bool leave(ptx_thread& t) {
  if (t.calls.empty())
    return true;
  call_frame const c = t.calls.back();
  t.calls.pop_back();
  for (auto const& m : c.site->results)
    std::memcpy(c.frame + m.from, t.frame + t.function->area + m.to, m.size);
  t.ip = c.back;
  t.frame = c.frame;
  t.function = c.function;
  t.local_at = c.local_at;
  return false;
}

u64 special(ptx_thread const& t, u16 kind) {
  block_state const& b = *t.block;
  launch_request const& l = *b.launch;
  u32 const bit = u32{1} << t.lane;
  switch (static_cast<special_register>(kind)) {
    case special_register::tid_x:
      return t.tid.x;
    case special_register::tid_y:
      return t.tid.y;
    case special_register::tid_z:
      return t.tid.z;
    case special_register::ntid_x:
      return l.block.x;
    case special_register::ntid_y:
      return l.block.y;
    case special_register::ntid_z:
      return l.block.z;
    case special_register::ctaid_x:
      return b.id.x;
    case special_register::ctaid_y:
      return b.id.y;
    case special_register::ctaid_z:
      return b.id.z;
    case special_register::nctaid_x:
      return l.grid.x;
    case special_register::nctaid_y:
      return l.grid.y;
    case special_register::nctaid_z:
      return l.grid.z;
    case special_register::laneid:
      return t.lane;
    case special_register::warpid:
      return t.warp;
    case special_register::nwarpid:
      return 64;
    case special_register::smid:
      return b.index % static_cast<u32>(settings.sms);
    case special_register::nsmid:
      return static_cast<u64>(settings.sms);
    case special_register::gridid:
      return total_launches;
    case special_register::lt:
      return bit - 1;
    case special_register::le:
      return (bit - 1) | bit;
    case special_register::gt:
      return ~((bit - 1) | bit);
    case special_register::ge:
      return ~(bit - 1);
    case special_register::eq:
      return bit;
    case special_register::clock:
      return static_cast<u32>(total_instructions);
    case special_register::clock64:
      return total_instructions;
    case special_register::timer:
      return static_cast<u64>(std::chrono::steady_clock::now().time_since_epoch().count());
    case special_register::envreg1:
      return l.cooperative ? grid_workspace >> 32 : 0;
    case special_register::envreg2:
      return l.cooperative ? static_cast<u32>(grid_workspace) : 0;
    case special_register::dynamic_shared:
      return shared_base + b.state->dynamic_at;
    case special_register::total_shared:
      return b.state->shared_bytes;
    case special_register::zero:
      return 0;
  }
  return 0;
}

void print(ptx_thread& t, decoded_instruction const& i, u8* R) {
  u64 format = 0, list = 0;
  std::memcpy(&format, R + (i.imm & 0xffffffff), 8);
  std::memcpy(&list, R + (i.imm >> 32), 8);
  auto const text_at = [&](u64 a) {
    std::string s;
    for (;; ++a) {
      char const c = static_cast<char>(*generic_at<false, 1>(t, i, R, a, read_access));
      if (c == '\0')
        return s;
      s += c;
    }
  };
  std::string const f = text_at(format);
  u64 at = list;
  std::string out;
  for (std::size_t k = 0; k < f.size(); ++k) {
    if (f[k] != '%') {
      out += f[k];
      continue;
    }
    std::size_t const from = k++;
    while (k < f.size() && std::strchr("-+ #0123456789.", f[k]))
      ++k;
    bool wide = false;
    while (k < f.size() && std::strchr("hlzjt", f[k]))
      wide |= f[k++] != 'h';
    if (k >= f.size())
      break;
    std::string const spec = f.substr(from, k - from + 1);
    char buffer[400];
    if (f[k] == '%') {
      out += '%';
      continue;
    }
    bool const is_real = std::strchr("fFeEgGaA", f[k]) != nullptr;
    wide |= is_real || f[k] == 's' || f[k] == 'p';
    if (wide)
      at = (at + 7) / 8 * 8;
    u64 v = 0;
    if (wide) {
      std::memcpy(&v, generic_at<false, 8>(t, i, R, at, read_access), 8);
    } else {
      std::memcpy(&v, generic_at<false, 4>(t, i, R, at, read_access), 4);
    }
    at += wide ? 8 : 4;
    if (is_real) {
      std::snprintf(buffer, sizeof buffer, spec.c_str(), std::bit_cast<double>(v));
    } else if (f[k] == 's') {
      std::snprintf(buffer, sizeof buffer, spec.c_str(), text_at(v).c_str());
    } else if (wide) {
      std::snprintf(buffer, sizeof buffer, spec.c_str(), v);
    } else {
      std::snprintf(buffer, sizeof buffer, spec.c_str(), static_cast<u32>(v));
    }
    out += buffer;
  }
  std::fputs(out.c_str(), stdout);
}

// ----- the interpreter ---------------------------------------------------------------------------

bool interrupts() {
  if (--countdown != 0)
    return false;
  countdown = 1 + random_source.below(2 * settings.preempt);
  return true;
}

template <bool Check>
stop_reason run(ptx_thread& T) {
  static void const* const labels[] = {
#define OP(name, ...) &&label_##name,
#define OP_JUMP(name, ...) &&label_##name,
#include "ops.inc"
#undef OP
#undef OP_JUMP
  };
  decoded_instruction const* I = T.ip;
  u8* R = T.frame;
  u64 count = 0;
  u32 slice = 1u << 16;  // jumps back before other threads run: the thread may wait for them
#define V(type, x) (*reinterpret_cast<type*>(R + I->x))
#define W(type, v) (V(u64, d) = bits_of(static_cast<type>(v)))
#define DISPATCH goto* labels[I->op]
#define SAVE (T.ip = I, T.frame = R)
#define STOP(why)     \
  do {                \
    T.count += count; \
    return why;       \
  } while (false)
#define JUMP(to)                                                            \
  do {                                                                      \
    decoded_instruction const* const next = T.function->code.data() + (to); \
    bool const is_back = next <= I;                                         \
    I = next;                                                               \
    if (is_back && --slice == 0) [[unlikely]] {                             \
      SAVE;                                                                 \
      STOP(stop_reason::yield);                                             \
    }                                                                       \
  } while (false)
#define ADDRESS(space, size, access) \
  (space##_at<Check, size>(T, *I, R, V(u64, a) + static_cast<u64>(I->imm), access))
#define INTERRUPT                                \
  if constexpr (Check) {                         \
    if (settings.preempt != 0 && interrupts()) { \
      ++I;                                       \
      SAVE;                                      \
      STOP(stop_reason::yield);                  \
    }                                            \
  }
#define LOAD(space, type)                                               \
  T.ip = I;                                                             \
  type v;                                                               \
  std::memcpy(&v, ADDRESS(space, sizeof(type), read_access), sizeof v); \
  V(u64, d) = static_cast<u64>(v);                                      \
  INTERRUPT
#define STORE(space, type)                                               \
  T.ip = I;                                                              \
  type const v = V(type, b);                                             \
  std::memcpy(ADDRESS(space, sizeof(type), write_access), &v, sizeof v); \
  INTERRUPT
#define ADDRESS_VECTOR(space, access)                            \
  [&]() -> u8* {                                                 \
    u64 const address = V(u64, a) + static_cast<u64>(I->imm);    \
    switch ((I->kind & 15) * (I->kind & 64 ? 4 : 2)) {           \
      case 2:                                                    \
        return space##_at<Check, 2>(T, *I, R, address, access);  \
      case 4:                                                    \
        return space##_at<Check, 4>(T, *I, R, address, access);  \
      case 8:                                                    \
        return space##_at<Check, 8>(T, *I, R, address, access);  \
      case 16:                                                   \
        return space##_at<Check, 16>(T, *I, R, address, access); \
      default:                                                   \
        return space##_at<Check, 32>(T, *I, R, address, access); \
    }                                                            \
  }()
#define FENCED INTERRUPT
#define RECORD                                                                        \
  if constexpr (Check) {                                                              \
    if (settings.costs != 0)                                                          \
      T.executed.push_back(T.function->cells.data() + (I - T.function->code.data())); \
  }
  DISPATCH;
#define OP(name, ...) \
  label_##name : {    \
    RECORD;           \
    __VA_ARGS__;      \
    ++I;              \
    ++count;          \
  }                   \
  DISPATCH;
#define OP_JUMP(name, ...) \
  label_##name : {         \
    RECORD;                \
    ++count;               \
    __VA_ARGS__;           \
  }                        \
  DISPATCH;
#include "ops.inc"
#undef RECORD
#undef OP
#undef OP_JUMP
}

// ----- barriers ----------------------------------------------------------------------------------

void join(block_state& b, ptx_warp& w, u32 mask) {
  if (!settings.race)
    return;
  ++now;
  u32 merged[32] = {};
  for (u32 m = mask; m != 0; m &= m - 1) {
    u32 const lane = static_cast<u32>(std::countr_zero(m));
    for (u32 k = 0; k < 32; ++k)
      merged[k] = std::max(merged[k], w.known[lane * 32 + k]);
  }
  for (u32 m = mask; m != 0; m &= m - 1) {
    u32 const lane = static_cast<u32>(std::countr_zero(m));
    merged[lane] = now;
    b.threads[w.first + lane].clock = now;
  }
  for (u32 m = mask; m != 0; m &= m - 1) {
    u32 const lane = static_cast<u32>(std::countr_zero(m));
    std::copy(merged, merged + 32, &w.known[lane * 32]);
  }
}

/// Adds what a warp issued since these lanes last met: each instruction as often as the lane that
/// executed it most often. Lanes in one loop go round together, lanes that branch apart take turns.
void add_issued(block_state& b, ptx_warp& w, u32 mask) {
  static u64 round = 0;
  if (settings.costs == 0)
    return;
  ++round;
  for (u32 m = mask; m != 0; m &= m - 1) {
    u32 const lane = static_cast<u32>(std::countr_zero(m));
    auto& executed = b.threads[w.first + lane].executed;
    for (issue_cell* const cell : executed) {
      if (cell->round != round)
        *cell = {round, lane, 0, 0, cell->weight, cell->issued};
      if (cell->lane != lane) {
        cell->lane = lane;
        cell->count = 0;
      }
      if (++cell->count > cell->most) {
        cell->most = cell->count;
        w.issued += cell->weight;
        cell->issued += cell->weight;
      }
    }
    executed.clear();
  }
}

/// Completes what the thread waits for in its warp if all named lanes are there.
bool complete_warp(block_state& b, ptx_warp& w, ptx_thread& t) {
  decoded_instruction const& mine = *t.ip;
  u32 const named = operand<u32>(t.frame, mine.f);
  if ((named >> t.lane & 1) != 0 && (w.waiting & named) != (named & w.alive))
    return false;
  u32 const existing = w.lanes == 32 ? ~0u : (1u << w.lanes) - 1;
  if ((named >> t.lane & 1) == 0)
    bad(t, mine, "the thread is not in its own mask");
  u32 const mask = named & w.alive;
  if (mask != (named & existing) && mine.op != op_WARPBAR)
    bad(t, mine, "the mask names a thread that has ended");
  if ((w.waiting & mask) != mask)
    return false;
  ptx_thread* lanes[32] = {};
  for (u32 m = mask; m != 0; m &= m - 1) {
    u32 const lane = static_cast<u32>(std::countr_zero(m));
    ptx_thread& other = b.threads[w.first + lane];
    lanes[lane] = &other;
    decoded_instruction const& theirs = *other.ip;
    if (operand<u32>(other.frame, theirs.f) != named) {
      // It may wait with others first.
      return false;
    }
    if (other.ip != t.ip && (theirs.op != op_WARPBAR || mine.op != op_WARPBAR)) {
      std::string const there = where(other, theirs);
      die("threads of a warp are at different instructions that wait for each other\n  %s\nand\n  "
          "%s",
          where(t, mine).c_str(), there.c_str());
    }
  }
  auto const each = [&](auto f) {
    for (u32 m = mask; m != 0; m &= m - 1) {
      u32 const lane = static_cast<u32>(std::countr_zero(m));
      f(lane, *lanes[lane]);
    }
  };
  switch (mine.op) {
    case op_WARPBAR:
      join(b, w, mask);
      break;
    case op_SHFL: {
      u32 values[32];
      if (mask != ~0u) {
        for (u32 k = 0; k < 32; ++k)
          values[k] = static_cast<u32>(random_source.next());  // undefined
      }
      each([&](u32 lane, ptx_thread& o) { values[lane] = operand<u32>(o.frame, mine.a); });
      u32 results[32], valid = 0;
      each([&](u32 lane, ptx_thread& o) {
        u32 const n = operand<u32>(o.frame, mine.b) & 31;
        u32 const c = operand<u32>(o.frame, mine.c);
        u32 const clamp = c & 31, segment = c >> 8 & 31;
        u32 const highest = (lane & segment) | (clamp & ~segment & 31);
        u32 const lowest = lane & segment;
        s32 from = 0;
        bool is_valid = false;
        switch (mine.kind) {
          case 0:
            from = static_cast<s32>(lane) - static_cast<s32>(n);
            is_valid = from >= static_cast<s32>(highest);
            break;
          case 1:
            from = static_cast<s32>(lane + n);
            is_valid = from <= static_cast<s32>(highest);
            break;
          case 2:
            from = static_cast<s32>(lane ^ n);
            is_valid = from <= static_cast<s32>(highest);
            break;
          default:
            from = static_cast<s32>(lowest | (n & ~segment & 31));
            is_valid = from <= static_cast<s32>(highest);
            break;
        }
        if (!is_valid)
          from = static_cast<s32>(lane);
        results[lane] = values[from & 31];
        valid |= u32{is_valid} << lane;
      });
      each([&](u32 lane, ptx_thread& o) {
        operand<u64>(o.frame, mine.d) = results[lane];
        operand<u64>(o.frame, mine.e) = valid >> lane & 1;
      });
      break;
    }
    case op_VOTE: {
      u32 ballot = 0;
      each([&](u32 lane, ptx_thread& o) { ballot |= (operand<u32>(o.frame, mine.a) & 1) << lane; });
      u32 const result = mine.kind == 0   ? ballot == mask
                         : mine.kind == 1 ? ballot != 0
                         : mine.kind == 2 ? ballot == mask || ballot == 0
                                          : ballot;
      each([&](u32, ptx_thread& o) { operand<u64>(o.frame, mine.d) = result; });
      break;
    }
    case op_MATCH: {
      u64 values[32] = {};
      each([&](u32 lane, ptx_thread& o) {
        values[lane] =
            mine.kind & 2 ? operand<u64>(o.frame, mine.a) : operand<u32>(o.frame, mine.a);
      });
      u32 results[32] = {};
      each([&](u32 lane, ptx_thread&) {
        each([&](u32 other, ptx_thread&) {
          results[lane] |= u32{values[other] == values[lane]} << other;
        });
      });
      bool same = true;
      each([&](u32 lane, ptx_thread&) { same &= results[lane] == mask; });
      each([&](u32 lane, ptx_thread& o) {
        operand<u64>(o.frame, mine.d) = mine.kind & 1 ? (same ? mask : 0) : results[lane];
        operand<u64>(o.frame, mine.e) = same;
      });
      break;
    }
    case op_REDUX: {
      bool first = true;
      u32 r = 0;
      each([&](u32, ptx_thread& o) {
        u32 const v = operand<u32>(o.frame, mine.a);
        if (first) {
          r = v;
          first = false;
          return;
        }
        bool const less = mine.imm ? static_cast<s32>(v) < static_cast<s32>(r) : v < r;
        switch (mine.kind) {
          case 0:
            r += v;
            break;
          case 1:
            r = less ? v : r;
            break;
          case 2:
            r = less ? r : v;
            break;
          case 3:
            r &= v;
            break;
          case 4:
            r |= v;
            break;
          default:
            r ^= v;
            break;
        }
      });
      each([&](u32, ptx_thread& o) { operand<u64>(o.frame, mine.d) = r; });
      break;
    }
    case op_ELECT: {
      u32 const leader = static_cast<u32>(std::countr_zero(mask));
      each([&](u32 lane, ptx_thread& o) {
        operand<u64>(o.frame, mine.d) = leader;
        operand<u64>(o.frame, mine.e) = lane == leader;
      });
      break;
    }
    default:
      bad(t, mine, "internal error: an unknown wait");
  }
  add_issued(b, w, mask);
  w.waiting &= ~mask;
  each([&](u32, ptx_thread& o) {
    ++o.ip;
    o.state = thread_status::ready;
  });
  return true;
}

bool complete_block(block_state& b, u32 id) {
  block_barrier& barrier = b.barriers[id];
  if (barrier.arrived == 0)
    return false;
  if (barrier.arrived < (barrier.expected != 0 ? barrier.expected : b.alive))
    return false;
  if (settings.race) {
    ++now;
    if (barrier.expected == 0)
      b.barrier_time = now;
  }
  for (ptx_warp& w : b.warps) {
    ptx_thread* first = nullptr;
    for (u32 k = 0; k < w.lanes; ++k) {
      ptx_thread& t = b.threads[w.first + k];
      if (t.state != thread_status::at_block || (operand<u32>(t.frame, t.ip->a) & 15) != id)
        continue;
      if (first == nullptr)
        first = &t;
    }
    if (first == nullptr)
      continue;
    decoded_instruction const& there = *first->ip;
    u32 here = 0;
    for (u32 k = 0; k < w.lanes; ++k) {
      ptx_thread& t = b.threads[w.first + k];
      if (t.state != thread_status::at_block || (operand<u32>(t.frame, t.ip->a) & 15) != id)
        continue;
      here |= 1u << k;
      decoded_instruction const& i = *t.ip;
      if (&i != &there && (i.kind & 8) != 0) {
        report(t, i,
               "synccheck: threads of a warp are at different aligned barriers; another one: PTX "
               "line " +
                   std::to_string(there.line));
      }
    }
    add_issued(b, w, here);
    for (u32 k = 0; k < w.lanes; ++k) {
      ptx_thread& t = b.threads[w.first + k];
      if (t.state != thread_status::at_block || (operand<u32>(t.frame, t.ip->a) & 15) != id)
        continue;
      decoded_instruction const& i = *t.ip;
      u32 const mode = i.kind & 3;
      if (mode != 0) {
        operand<u64>(t.frame, i.d) = mode == 1   ? barrier.sum
                                     : mode == 2 ? barrier.sum == barrier.arrived
                                                 : barrier.sum != 0;
      }
      t.state = thread_status::ready;
      t.clock = now;
      if (settings.race)
        w.known[k * 32 + k] = now;
      ++t.ip;
    }
  }
  barrier = {};
  return true;
}

/// A thread has arrived at a barrier of the block.
bool arrive(block_state& b, ptx_thread& t) {
  decoded_instruction const& i = *t.ip;
  u32 const id = operand<u32>(t.frame, i.a);
  if (id > 15)
    bad(t, i, "a barrier with a number above 15");
  u32 const count = operand<u32>(t.frame, i.b);
  block_barrier& barrier = b.barriers[id];
  if (barrier.arrived != 0 && barrier.expected != count)
    bad(t, i, "threads wait at one barrier for different numbers of threads");
  barrier.expected = count;
  ++barrier.arrived;
  barrier.sum += operand<u32>(t.frame, i.c) & 1;
  if ((i.kind & 4) != 0) {
    ++t.ip;
  } else {
    t.state = thread_status::at_block;
  }
  return complete_block(b, id);
}

// ----- the scheduler -----------------------------------------------------------------------------

struct run_order {
  u32 items[64];
  u32 n;
  run_order(u32 count, bool shuffled) : n(count) {
    for (u32 i = 0; i < n; ++i)
      items[i] = i;
    if (shuffled) {
      for (u32 i = n; i > 1; --i)
        std::swap(items[i - 1], items[random_source.below(i)]);
    }
  }
};

/// Runs the ready threads of a warp until none is left or all have been interrupted. Sets
/// `advanced` if one of them came to its end or to a barrier, and not only to an interruption.
bool run_warp(block_state& b, ptx_warp& w, bool checks, bool& advanced) {
  bool ran = false;
  for (bool again = true; again;) {
    again = false;
    run_order const order(w.lanes, settings.seed != 0);
    for (u32 k = 0; k < order.n; ++k) {
      ptx_thread& t = b.threads[w.first + order.items[k]];
      if (t.state != thread_status::ready)
        continue;
      ran = true;
      stop_reason const stop = checks ? run<true>(t) : run<false>(t);
      advanced |= stop != stop_reason::yield;
      switch (stop) {
        case stop_reason::exit:
          t.state = thread_status::done;
          w.alive &= ~(1u << t.lane);
          --b.alive;
          for (u32 id = 0; id < 16; ++id)
            again |= complete_block(b, id);
          for (u32 m = w.waiting; m != 0; m &= m - 1) {
            ptx_thread& other = b.threads[w.first + static_cast<u32>(std::countr_zero(m))];
            if (other.state == thread_status::at_warp && complete_warp(b, w, other)) {
              again = true;
              break;
            }
          }
          break;
        case stop_reason::warp:
          t.state = thread_status::at_warp;
          t.barriers += t.ip->op == op_WARPBAR;
          w.waiting |= 1u << t.lane;
          again |= complete_warp(b, w, t);
          break;
        case stop_reason::block:
          ++t.barriers;
          again |= arrive(b, t) || t.state == thread_status::ready;
          break;
        case stop_reason::yield:
          break;
      }
    }
  }
  return ran;
}

[[noreturn]] void deadlock(std::vector<block_state*> const& blocks) {
  std::string text = "deadlock: no thread can go on";
  int listed = 0;
  for (block_state const* const b : blocks) {
    for (ptx_thread const& t : b->threads) {
      if (t.state == thread_status::done)
        continue;
      if (++listed <= 8) {
        text +=
            std::string("\n  ") +
            (t.state == thread_status::at_warp ? "waits for its warp: " : "waits for its block: ") +
            where(t, *t.ip);
        if (t.state == thread_status::at_warp) {
          char mask[80];
          std::snprintf(mask, sizeof mask, "\n  mask %08x, waiting %08x, alive %08x",
                        operand<u32>(t.frame, t.ip->f), b->warps[t.warp].waiting,
                        b->warps[t.warp].alive);
          text += mask;
        }
      }
    }
  }
  die("%s\n  %d threads wait", text.c_str(), listed);
}

void start(block_state& b, launch_state& s, u32 index) {
  launch_request const& l = *s.launch;
  ptx_function& f = *l.kernel;
  b.launch = &l;
  b.state = &s;
  b.index = index;
  b.id = {index % l.grid.x, index / l.grid.x % l.grid.y, index / l.grid.x / l.grid.y};
  u32 const n = s.threads;
  b.alive = n;
  for (block_barrier& barrier : b.barriers)
    barrier = {};
  b.shared.assign(s.shared_bytes, static_cast<u8>(0x5c + 0x35 * settings.seed));
  if (settings.init)
    b.shared_written.assign(s.shared_bytes, 0);
  u64 const local = (f.local_stack + 15) / 16 * 16, stack = (f.stack_bytes + 63) / 64 * 64;
  b.stacks.resize(n * stack + 64);
  b.locals.assign(n * local, static_cast<u8>(0x93 + 0x35 * settings.seed));
  u8* const stacks = reinterpret_cast<u8*>((reinterpret_cast<u64>(b.stacks.data()) + 63) / 64 * 64);
  b.threads.resize(n);
  b.warps.assign((n + 31) / 32, {});
  if (settings.race)
    b.started = b.barrier_time = ++now;
  for (u32 k = 0; k < b.warps.size(); ++k) {
    ptx_warp& w = b.warps[k];
    w.first = 32 * k;
    w.lanes = std::min(32u, n - w.first);
    w.alive = w.lanes == 32 ? ~0u : (1u << w.lanes) - 1;
    if (settings.race)
      w.known.assign(32 * 32, 0);
  }
  for (u32 k = 0; k < n; ++k) {
    ptx_thread& t = b.threads[k];
    t.block = &b;
    t.id = k;
    t.lane = k % 32;
    t.warp = k / 32;
    t.tid = {k % l.block.x, k / l.block.x % l.block.y, k / l.block.x / l.block.y};
    t.state = thread_status::ready;
    t.carry = 0;
    t.count = t.barriers = 0;
    t.executed.clear();
    t.clock = now;
    t.calls.clear();
    t.function = &f;
    t.stack = t.frame = stacks + k * stack;
    t.local = b.locals.data() + k * local;
    t.local_at = 0;
    t.ip = f.code.data();
    std::memcpy(t.frame, f.constants.data(), 8 * f.constants.size());
  }
}

/// Prints the source lines of a module that issued most in the launch, and forgets them.
void report_lines(ptx_module& m) {
  std::map<std::pair<u32, u32>, u64> lines;
  for (auto& [name, f] : m.functions) {
    for (std::size_t k = 0; k < f->cells.size(); ++k) {
      lines[f->sources[k]] += f->cells[k].issued;
      f->cells[k].issued = 0;
    }
  }
  std::vector<std::pair<u64, std::pair<u32, u32>>> order;
  for (auto const& [line, issued] : lines)
    order.emplace_back(issued, line);
  std::sort(order.rbegin(), order.rend());
  order.resize(std::min<std::size_t>(order.size(), 200));
  for (auto const& [issued, line] : order) {
    if (issued != 0)
      std::fprintf(stderr, "ptxemu: costs line %llu %s:%u\n",
                   static_cast<unsigned long long>(issued), m.files[line.first].c_str(),
                   line.second);
  }
}

/// Prints what PTXEMU_COSTS promises of a launch, and forgets what memory it touched.
void report_costs(launch_request const& l, u64 threads, u64 instructions, u64 longest, u64 issued,
                  u64 barriers) {
  u64 bytes = 0, sectors = 0;
  for (u64 const at : touched_words) {
    u64 const word = touched[at];
    bytes += static_cast<u64>(std::popcount(word));
    sectors += (word << 32 != 0) + (word >> 32 != 0);
    touched[at] = 0;
  }
  touched_words.clear();
  std::fprintf(
      stderr,
      "ptxemu: costs launch blocks %llu threads %llu instructions %llu longest %llu issued "
      "%llu barriers %llu bytes %llu sectors %llu kernel %s\n",
      static_cast<unsigned long long>(u64{l.grid.x} * l.grid.y * l.grid.z),
      static_cast<unsigned long long>(threads), static_cast<unsigned long long>(instructions),
      static_cast<unsigned long long>(longest), static_cast<unsigned long long>(issued),
      static_cast<unsigned long long>(barriers), static_cast<unsigned long long>(bytes),
      static_cast<unsigned long long>(sectors), demangled(l.kernel->name).c_str());
  if (settings.costs >= 2)
    report_lines(*l.kernel->module);
}

}  // namespace

void execute(launch_request const& l) {
  ptx_function& f = *l.kernel;
  decode(f);
  ++total_launches;
  u64 const before = total_instructions;
  launch_state s;
  s.launch = &l;
  s.threads = l.block.x * l.block.y * l.block.z;
  u64 const fixed = static_cast<u64>(static_shared(f));
  s.dynamic_at = (fixed + 15) / 16 * 16;
  s.shared_bytes = l.shared == 0 ? fixed : s.dynamic_at + l.shared;
  u64 const blocks = u64{l.grid.x} * l.grid.y * l.grid.z;
  if (blocks == 0 || s.threads == 0 || s.threads > 1024)
    die("a launch of %llu blocks of %u threads", static_cast<unsigned long long>(blocks),
        s.threads);
  if (l.cooperative && grid_workspace == 0)
    grid_workspace = reinterpret_cast<u64>(allocate(64, device_allocation::variable));
  if (l.cooperative)
    std::memset(reinterpret_cast<void*>(grid_workspace), 0, 64);
  u64 const resident =
      l.cooperative ? blocks : std::min<u64>(blocks, static_cast<u64>(settings.resident));
  if (settings.race) {
    s.started = ++now;
    if (race_cells == nullptr) {
      void* const p = mmap(nullptr, arena_size * sizeof(shadow_cell), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (p == MAP_FAILED)
        die("cannot reserve addresses for the race checker");
      race_cells = static_cast<u8*>(p);
    }
    shared_cells.resize(std::max<std::size_t>(shared_cells.size(), resident * s.shared_bytes));
  }
  if (settings.costs != 0 && touched == nullptr) {
    void* const p = mmap(nullptr, arena_size / 8, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
      die("cannot reserve addresses for the costs");
    touched = static_cast<u64*>(p);
  }
  bool const checks = needs_checks();
  if (settings.preempt != 0 && countdown == 0)
    countdown = settings.preempt;
  static auto& pool = *new std::vector<std::unique_ptr<block_state>>;
  while (pool.size() < resident)
    pool.push_back(std::make_unique<block_state>());
  std::vector<u32> order(blocks);
  for (u32 k = 0; k < blocks; ++k)
    order[k] = k;
  if (settings.seed != 0) {
    for (u64 k = blocks; k > 1; --k)
      std::swap(order[k - 1], order[random_source.below(k)]);
  }
  std::vector<block_state*> active;
  u64 next = 0, longest = 0, passes = 0, barriers = 0, issued = 0;
  auto const refill = [&] {
    if (!active.empty())
      return;
    for (u64 k = 0; k < resident && next < blocks; ++k) {
      pool[k]->slot = k;
      start(*pool[k], s, order[next]);
      active.push_back(pool[k].get());
      ++next;
    }
  };
  for (refill(); !active.empty(); refill()) {
    bool ran = false;
    for (std::size_t k = 0; k < active.size(); ++k) {
      block_state& b = *active[k];
      u32 const warps = static_cast<u32>(b.warps.size());
      // A block goes on until it waits for another one, or blocks take turns, so that a missing
      // barrier of the grid shows.
      bool const goes_on = settings.seed == 0 || random_source.below(2) == 0;
      for (bool advanced = true; advanced && b.alive > 0;) {
        advanced = false;
        run_order const turns(warps, settings.seed != 0);
        for (u32 w = 0; w < warps; ++w)
          ran |= run_warp(b, b.warps[turns.items[w]], checks, advanced);
        advanced &= goes_on;
      }
    }
    std::erase_if(active, [&](block_state* b) {
      if (b->alive != 0)
        return false;
      for (ptx_thread const& t : b->threads) {
        total_instructions += t.count;
        longest = std::max(longest, t.count);
        barriers = std::max(barriers, t.barriers);
      }
      for (ptx_warp& w : b->warps) {
        add_issued(*b, w, ~u32{0} >> (32 - w.lanes));
        issued = std::max(issued, w.issued);
      }
      return true;
    });
    if (!ran && !active.empty())
      deadlock(active);
    if (settings.max_instructions != 0 && ++passes % 16 == 0) {
      u64 n = total_instructions - before;
      for (block_state const* const b : active)
        for (ptx_thread const& t : b->threads)
          n += t.count;
      if (n > settings.max_instructions * 1'000'000)
        die("more than %llu million instructions in %s",
            static_cast<unsigned long long>(settings.max_instructions), demangled(f.name).c_str());
    }
  }
  total_path += longest;
  if (settings.costs != 0)
    report_costs(l, s.threads, total_instructions - before, longest, issued, barriers);
  if (settings.trace >= 1) {
    std::fprintf(
        stderr,
        "ptxemu: %s<<<(%u,%u,%u), %u, %llu>>>%s %llu instructions, %llu of the longest thread\n",
        demangled(f.name).substr(0, 160).c_str(), l.grid.x, l.grid.y, l.grid.z, s.threads,
        static_cast<unsigned long long>(l.shared), l.cooperative ? " cooperative" : "",
        static_cast<unsigned long long>(total_instructions - before),
        static_cast<unsigned long long>(longest));
  }
}

void report_leaks() {
  for (auto const& [at, a] : allocations) {
    if (a.kind == device_allocation::variable || a.kind == device_allocation::graph)
      continue;
    if (++findings <= settings.max_reports) {
      std::fprintf(stderr, "ptxemu: leakcheck: allocation %llu, of %llu bytes, was not freed\n",
                   static_cast<unsigned long long>(a.number),
                   static_cast<unsigned long long>(a.size));
    }
  }
}

void report_copy(char const* call, void const* p, u64 bytes, u64 at) {
  if (++findings <= settings.max_reports) {
    std::fprintf(
        stderr,
        "ptxemu: initcheck: %s copies %llu bytes from %p; those from %llu on were never written\n",
        call, static_cast<unsigned long long>(bytes), p, static_cast<unsigned long long>(at));
  }
}

std::string demangled(std::string const& name) {
  int status = 0;
  char* const s = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 && s != nullptr ? s : name;
  std::free(s);
  return result;
}

void die(char const* format, ...) {
  std::fflush(stdout);
  std::fputs("ptxemu: ", stderr);
  va_list list;
  va_start(list, format);
  std::vfprintf(stderr, format, list);
  va_end(list);
  std::fputs("\n", stderr);
  std::fflush(nullptr);
  _exit(87);
}

}  // namespace emu
