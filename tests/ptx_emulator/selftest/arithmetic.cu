// SPDX-License-Identifier: Apache-2.0
// Arithmetic of the emulator against the host's, on random and on special values.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cfenv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

constexpr int outputs = 96;
struct in_t {
  std::uint64_t a, b, c;
};

__host__ __device__ inline std::uint64_t bits(double x) {
  std::uint64_t r;
  memcpy(&r, &x, 8);
  return r;
}
__host__ __device__ inline std::uint64_t bits(float x) {
  std::uint32_t r;
  memcpy(&r, &x, 4);
  return r;
}

/// What both sides compute with plain C++.
__host__ __device__ void common(in_t v, std::uint64_t* o) {
  auto const a = v.a, b = v.b, c = v.c;
  auto const sa = static_cast<std::int64_t>(a), sb = static_cast<std::int64_t>(b);
  auto const wa = static_cast<std::uint32_t>(a), wb = static_cast<std::uint32_t>(b),
             wc = static_cast<std::uint32_t>(c);
  auto const ia = static_cast<std::int32_t>(wa), ib = static_cast<std::int32_t>(wb);
  auto const ha = static_cast<std::int16_t>(a), hb = static_cast<std::int16_t>(b);
  auto const ba = static_cast<std::int8_t>(a);
  int n = 0;
  o[n++] = a * b + c;
  o[n++] = b != 0 ? a / b : 7;
  o[n++] = b != 0 ? a % b : 7;
  o[n++] = b != 0 && sb != -1 ? static_cast<std::uint64_t>(sa / sb) : 7;
  o[n++] = b != 0 && sb != -1 ? static_cast<std::uint64_t>(sa % sb) : 7;
  o[n++] = wb != 0 ? wa / wb : 7;
  o[n++] = ib != 0 && ib != -1 ? static_cast<std::uint64_t>(std::int64_t{ia / ib}) : 7;
  o[n++] = ib != 0 && ib != -1 ? static_cast<std::uint64_t>(std::int64_t{ia % ib}) : 7;
  o[n++] = hb != 0 ? static_cast<std::uint64_t>(std::int64_t{ha / hb}) : 7;
  o[n++] = static_cast<std::uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
  o[n++] = static_cast<std::uint64_t>((static_cast<__int128>(sa) * sb) >> 64);
  unsigned __int128 const sum =
      (static_cast<unsigned __int128>(a) << 64 | b) + (static_cast<unsigned __int128>(c) << 64 | a);
  o[n++] = static_cast<std::uint64_t>(sum >> 64);
  o[n++] = static_cast<std::uint64_t>(sum);
  unsigned __int128 const difference =
      (static_cast<unsigned __int128>(a) << 64 | b) - (static_cast<unsigned __int128>(c) << 64 | a);
  o[n++] = static_cast<std::uint64_t>(difference >> 64);
  unsigned __int128 const product =
      (static_cast<unsigned __int128>(a) << 64 | b) * (static_cast<unsigned __int128>(c) << 64 | a);
  o[n++] = static_cast<std::uint64_t>(product >> 64);
  unsigned __int128 const quotient = c != 0 ? (static_cast<unsigned __int128>(a) << 64 | b) / c : 7;
  o[n++] = static_cast<std::uint64_t>(quotient >> 64);
  o[n++] = static_cast<std::uint64_t>(quotient);
  o[n++] = a << (b & 63) ^ a >> (c & 63);
  o[n++] = static_cast<std::uint64_t>(sa >> (c & 63));
  o[n++] = wa << (b & 31) ^ static_cast<std::uint32_t>(ia >> (c & 31));
  o[n++] = static_cast<std::uint64_t>(sa < sb ? sa : sb);
  o[n++] = a < b ? b : a;
  o[n++] = static_cast<std::uint64_t>(std::int64_t{ia < ib ? ia : ib});
  o[n++] = static_cast<std::uint64_t>(std::int64_t{ba}) + static_cast<std::uint8_t>(b) +
           static_cast<std::uint64_t>(std::int64_t{ha});
  o[n++] = (wa & wb) | (wb ^ wc) | (~wa & wc);
  o[n++] = a == b ? 1 : a < c ? 2 : 3;
  o[n++] = static_cast<std::uint64_t>(std::int64_t{sa < 0 ? -1 : 1});
  double const x = static_cast<double>(sa), y = static_cast<double>(b);
  o[n++] = bits(x);
  o[n++] = bits(y);
  o[n++] = bits(static_cast<float>(sa));
  o[n++] = bits(static_cast<float>(b));
  o[n++] = bits(static_cast<double>(ia)) ^ bits(static_cast<float>(wb));
  o[n++] = bits(x / y);
  o[n++] = bits(sqrt(y));
  o[n++] = bits(static_cast<float>(x));
  o[n++] = bits(static_cast<double>(static_cast<float>(y)));
  o[n++] = bits(fma(x, y, 3.0));
  o[n++] = bits(fmaf(static_cast<float>(x), static_cast<float>(y), 3.0f));
  o[n++] = bits(static_cast<float>(x) / static_cast<float>(y));
  o[n++] = bits(sqrtf(static_cast<float>(y)));
  o[n++] = bits(floor(x / y)) ^ bits(ceil(y / 3.0));
  o[n++] = bits(trunc(x / y)) ^ bits(rint(y / 2.0));
  o[n++] = bits(fmin(x, y)) ^ bits(fmax(x, y));
  o[n++] = static_cast<std::uint64_t>(static_cast<std::int64_t>(x / 3.0));
  o[n++] = static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(ia / 3.0)});
  o[n++] = static_cast<std::uint64_t>(y / 3.0);
  o[n++] = x < y ? 1 : x == y ? 2 : 3;
  o[n++] = bits(fabs(x)) ^ bits(-y);
  o[n++] = bits(ldexp(y, 3)) ^ bits(copysign(y, x));
  while (n < outputs)
    o[n++] = 0;
}

__global__ void on_device(in_t const* in, std::uint64_t* out, int n) {
  int const i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n)
    common(in[i], out + i * outputs);
}

/// Intrinsics, whose results the host computes by its rounding modes.
__global__ void intrinsics(in_t const* in, std::uint64_t* out, int n) {
  int const i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n)
    return;
  std::uint64_t* const o = out + i * outputs;
  double const x = __longlong_as_double(static_cast<long long>(in[i].a)),
               y = __longlong_as_double(static_cast<long long>(in[i].b));
  float const f = __int_as_float(static_cast<int>(in[i].a)),
              g = __int_as_float(static_cast<int>(in[i].b));
  int k = 0;
  o[k++] = bits(__dadd_rz(x, y));
  o[k++] = bits(__dadd_ru(x, y));
  o[k++] = bits(__dadd_rd(x, y));
  o[k++] = bits(__dmul_rz(x, y));
  o[k++] = bits(__dmul_ru(x, y));
  o[k++] = bits(__ddiv_rd(x, y));
  o[k++] = bits(__dsqrt_ru(fabs(x)));
  o[k++] = bits(__fadd_rz(f, g));
  o[k++] = bits(__fmul_rd(f, g));
  o[k++] = bits(__fdiv_ru(f, g));
  o[k++] = bits(__double2float_rz(x));
  o[k++] = bits(__double2float_ru(x));
  o[k++] = bits(__ll2float_rd(static_cast<long long>(in[i].a)));
  o[k++] = bits(__ull2double_ru(in[i].a));
  o[k++] = static_cast<std::uint64_t>(__double2ll_rn(x));
  o[k++] = static_cast<std::uint64_t>(__double2ll_rd(x));
  o[k++] = __double2ull_rz(x);
  o[k++] = static_cast<std::uint32_t>(__float2int_ru(f));
  o[k++] = __float2uint_rz(f);
  o[k++] = static_cast<std::uint64_t>(__popcll(in[i].a) * 1000 +
                                      __clzll(static_cast<long long>(in[i].b)));
  o[k++] = static_cast<std::uint64_t>(__popc(static_cast<unsigned>(in[i].a)) * 1000 +
                                      __ffsll(static_cast<long long>(in[i].b)));
  o[k++] = __brevll(in[i].a);
  o[k++] = __byte_perm(static_cast<unsigned>(in[i].a), static_cast<unsigned>(in[i].b),
                       static_cast<unsigned>(in[i].c));
  o[k++] = __funnelshift_l(static_cast<unsigned>(in[i].a), static_cast<unsigned>(in[i].b),
                           static_cast<unsigned>(in[i].c));
  o[k++] = __funnelshift_rc(static_cast<unsigned>(in[i].a), static_cast<unsigned>(in[i].b),
                            static_cast<unsigned>(in[i].c));
  o[k++] = __half_as_ushort(__double2half(x));
  o[k++] = __half_as_ushort(__float2half_rn(f));
  o[k++] = bits(__half2float(__ushort_as_half(static_cast<unsigned short>(in[i].a))));
  o[k++] = __bfloat16_as_ushort(__float2bfloat16_rn(f));
  o[k++] = bits(__bfloat162float(__ushort_as_bfloat16(static_cast<unsigned short>(in[i].a))));
  unsigned e = 0;
  asm("bfe.u32 %0, %1, %2, %3;"
      : "=r"(e)
      : "r"(static_cast<unsigned>(in[i].a)), "r"(static_cast<unsigned>(in[i].b & 63)),
        "r"(static_cast<unsigned>(in[i].c & 63)));
  o[k++] = e;
  asm("bfe.s32 %0, %1, %2, %3;"
      : "=r"(e)
      : "r"(static_cast<unsigned>(in[i].a)), "r"(static_cast<unsigned>(in[i].b & 63)),
        "r"(static_cast<unsigned>(in[i].c & 63)));
  o[k++] = e;
  asm("bfi.b32 %0, %1, %2, %3, %4;"
      : "=r"(e)
      : "r"(static_cast<unsigned>(in[i].a)), "r"(static_cast<unsigned>(in[i].b)),
        "r"(static_cast<unsigned>(in[i].b & 63)), "r"(static_cast<unsigned>(in[i].c & 63)));
  o[k++] = e;
  asm("bfind.s32 %0, %1;" : "=r"(e) : "r"(static_cast<unsigned>(in[i].a)));
  o[k++] = e;
  asm("bmsk.clamp.b32 %0, %1, %2;"
      : "=r"(e)
      : "r"(static_cast<unsigned>(in[i].b & 63)), "r"(static_cast<unsigned>(in[i].c & 63)));
  o[k++] = e;
  asm("lop3.b32 %0, %1, %2, %3, 0xe8;"
      : "=r"(e)
      : "r"(static_cast<unsigned>(in[i].a)), "r"(static_cast<unsigned>(in[i].b)),
        "r"(static_cast<unsigned>(in[i].c)));
  o[k++] = e;
  unsigned long long m = 0;
  asm("mad.wide.s32 %0, %1, %2, %3;"
      : "=l"(m)
      : "r"(static_cast<unsigned>(in[i].a)), "r"(static_cast<unsigned>(in[i].b)), "l"(in[i].c));
  o[k++] = m;
  asm("{ .reg .pred p, q; setp.lt.and.s32 p|q, %1, %2, 1; selp.u32 %0, 10, 20, p; @q add.u32 %0, "
      "%0, 1; }"
      : "=r"(e)
      : "r"(static_cast<unsigned>(in[i].a)), "r"(static_cast<unsigned>(in[i].b)));
  o[k++] = e;
  while (k < outputs)
    o[k++] = 0;
}

template <class F>
auto rounded(int mode, F f) {
  std::fesetround(mode);
  auto volatile r = f();
  std::fesetround(FE_TONEAREST);
  return static_cast<decltype(f())>(r);
}
template <class T, class F>
T to_integer(F x, bool nan_is_top) {
  if (x != x)
    return nan_is_top ? std::numeric_limits<T>::is_signed
                            ? std::numeric_limits<T>::min()
                            : static_cast<T>(T{1} << (8 * sizeof(T) - 1))
                      : T{0};
  if (static_cast<double>(x) >= std::ldexp(1.0, 8 * sizeof(T) - std::numeric_limits<T>::is_signed))
    return std::numeric_limits<T>::max();
  if (static_cast<double>(x) <= static_cast<double>(std::numeric_limits<T>::min()))
    return std::numeric_limits<T>::min();
  return static_cast<T>(x);
}

__attribute__((optimize("rounding-math"))) void intrinsics_on_host(in_t v, std::uint64_t* o) {
  double volatile x, y;
  float volatile f, g;
  memcpy(const_cast<double*>(&x), &v.a, 8);
  memcpy(const_cast<double*>(&y), &v.b, 8);
  memcpy(const_cast<float*>(&f), &v.a, 4);
  memcpy(const_cast<float*>(&g), &v.b, 4);
  int k = 0;
  o[k++] = bits(rounded(FE_TOWARDZERO, [&] { return x + y; }));
  o[k++] = bits(rounded(FE_UPWARD, [&] { return x + y; }));
  o[k++] = bits(rounded(FE_DOWNWARD, [&] { return x + y; }));
  o[k++] = bits(rounded(FE_TOWARDZERO, [&] { return x * y; }));
  o[k++] = bits(rounded(FE_UPWARD, [&] { return x * y; }));
  o[k++] = bits(rounded(FE_DOWNWARD, [&] { return x / y; }));
  o[k++] = bits(rounded(FE_UPWARD, [&] { return std::sqrt(std::fabs(x)); }));
  o[k++] = bits(rounded(FE_TOWARDZERO, [&] { return f + g; }));
  o[k++] = bits(rounded(FE_DOWNWARD, [&] { return f * g; }));
  o[k++] = bits(rounded(FE_UPWARD, [&] { return f / g; }));
  o[k++] = bits(rounded(FE_TOWARDZERO, [&] { return static_cast<float>(x); }));
  o[k++] = bits(rounded(FE_UPWARD, [&] { return static_cast<float>(x); }));
  std::int64_t volatile sa = static_cast<std::int64_t>(v.a);
  std::uint64_t volatile ua = v.a;
  o[k++] = bits(rounded(FE_DOWNWARD, [&] { return static_cast<float>(sa); }));
  o[k++] = bits(rounded(FE_UPWARD, [&] { return static_cast<double>(ua); }));
  o[k++] = static_cast<std::uint64_t>(to_integer<std::int64_t>(std::nearbyint(x), true));
  o[k++] = static_cast<std::uint64_t>(to_integer<std::int64_t>(std::floor(x), true));
  o[k++] = to_integer<std::uint64_t>(std::trunc(x), true);
  o[k++] = static_cast<std::uint32_t>(to_integer<std::int32_t>(std::ceil(f), false));
  o[k++] = to_integer<std::uint32_t>(std::trunc(f), false);
  o[k++] = static_cast<std::uint64_t>(__builtin_popcountll(v.a) * 1000 +
                                      (v.b == 0 ? 64 : __builtin_clzll(v.b)));
  o[k++] = static_cast<std::uint64_t>(__builtin_popcount(static_cast<unsigned>(v.a)) * 1000 +
                                      __builtin_ffsll(static_cast<long long>(v.b)));
  std::uint64_t r = 0;
  for (int i = 0; i < 64; ++i)
    r |= (v.a >> i & 1) << (63 - i);
  o[k++] = r;
  std::uint64_t const both = (v.b & 0xffffffffu) << 32 | (v.a & 0xffffffffu);
  r = 0;
  for (int i = 0; i < 4; ++i)
    r |= (both >> (8 * (v.c >> (4 * i) & 7)) & 0xff) << (8 * i);  // __byte_perm uses three bits
  o[k++] = r;
  o[k++] = static_cast<std::uint32_t>((both << (v.c & 31)) >> 32);
  unsigned const n = (v.c & 0xffffffffu) > 32 ? 32 : static_cast<unsigned>(v.c);
  o[k++] = static_cast<std::uint32_t>(both >> n);
  o[k++] = __half_as_ushort(__double2half(x));
  o[k++] = __half_as_ushort(__float2half_rn(f));
  o[k++] = bits(__half2float(__ushort_as_half(static_cast<unsigned short>(v.a))));
  o[k++] = __bfloat16_as_ushort(__float2bfloat16_rn(f));
  o[k++] = bits(__bfloat162float(__ushort_as_bfloat16(static_cast<unsigned short>(v.a))));
  auto const field = [&](bool is_signed) {
    unsigned const p = v.b & 63, l = v.c & 63;
    unsigned const a = static_cast<unsigned>(v.a);
    unsigned e = 0;
    unsigned const sign_at = p + l - 1 < 31 ? p + l - 1 : 31;
    unsigned const sign = is_signed && l != 0 ? a >> sign_at & 1 : 0;
    for (unsigned i = 0; i < 32; ++i)
      e |= (i < l && p + i < 32 ? a >> (p + i) & 1 : sign) << i;
    return e;
  };
  o[k++] = field(false);
  o[k++] = field(true);
  unsigned e = static_cast<unsigned>(v.b);
  for (unsigned i = 0; i < (v.c & 63) && (v.b & 63) + i < 32; ++i) {
    unsigned const at = static_cast<unsigned>(v.b & 63) + i;
    e = (e & ~(1u << at)) | (static_cast<unsigned>(v.a) >> i & 1) << at;
  }
  o[k++] = e;
  std::int32_t const s = static_cast<std::int32_t>(v.a);
  unsigned const magnitude = static_cast<unsigned>(s < 0 ? ~s : s);
  o[k++] = magnitude == 0 ? 0xffffffffu : 31 - static_cast<unsigned>(__builtin_clz(magnitude));
  unsigned const p = v.b & 63, l = v.c & 63;
  o[k++] = p > 31 ? 0 : static_cast<std::uint32_t>((l > 31 ? 0xffffffffull : (1ull << l) - 1) << p);
  unsigned const A = static_cast<unsigned>(v.a), B = static_cast<unsigned>(v.b),
                 C = static_cast<unsigned>(v.c);
  o[k++] = (A & B) | (A & C) | (B & C);
  o[k++] = static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(v.a)} *
                                      static_cast<std::int32_t>(v.b)) +
           v.c;
  bool const less = static_cast<std::int32_t>(v.a) < static_cast<std::int32_t>(v.b);
  o[k++] = (less ? 10u : 20u) + (less ? 0u : 1u);
  while (k < outputs)
    o[k++] = 0;
}

int main() {
  std::vector<in_t> in;
  std::uint64_t const special[] = {0,
                                   1,
                                   2,
                                   3,
                                   31,
                                   32,
                                   33,
                                   63,
                                   64,
                                   0x7fffffff,
                                   0x80000000,
                                   0xffffffff,
                                   0x100000000,
                                   0x7fffffffffffffff,
                                   0x8000000000000000,
                                   0xffffffffffffffff,
                                   0x3ff0000000000000,
                                   0x7ff0000000000000,
                                   0xfff0000000000000,
                                   0x7ff8000000000000,
                                   0x3f800000,
                                   0x7f800000,
                                   0x7fc00000,
                                   0x00000001,
                                   0x000fffffffffffff,
                                   0x43e0000000000000,
                                   0xc3e0000000000000,
                                   0x4f000000,
                                   0xcf000000,
                                   0x4050000000000001};
  for (auto const a : special)
    for (auto const b : special)
      in.push_back({a, b, a ^ b});
  std::uint64_t s = 88172645463325252u;
  auto const next = [&] {
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
  };
  for (int i = 0; i < 3000; ++i) {
    in_t v{next(), next(), next()};
    if (i % 3 == 0)
      v.b >>= next() % 64;
    if (i % 4 == 0)
      v.a >>= next() % 64;
    in.push_back(v);
  }
  int const n = static_cast<int>(in.size());
  in_t* d = nullptr;
  std::uint64_t* out = nullptr;
  cudaMalloc(&d, in.size() * sizeof(in_t));
  cudaMalloc(&out, in.size() * outputs * 8);
  cudaMemcpy(d, in.data(), in.size() * sizeof(in_t), cudaMemcpyHostToDevice);
  std::vector<std::uint64_t> got(in.size() * outputs), expected(in.size() * outputs);
  int wrong = 0;
  for (int part = 0; part < 2; ++part) {
    if (part == 0)
      on_device<<<(n + 127) / 128, 128>>>(d, out, n);
    else
      intrinsics<<<(n + 127) / 128, 128>>>(d, out, n);
    cudaMemcpy(got.data(), out, got.size() * 8, cudaMemcpyDeviceToHost);
    bool reported[outputs] = {};
    for (int i = 0; i < n; ++i) {
      std::uint64_t* const e = expected.data() + i * outputs;
      if (part == 0)
        common(in[static_cast<std::size_t>(i)], e);
      else
        intrinsics_on_host(in[static_cast<std::size_t>(i)], e);
      for (int k = 0; k < outputs; ++k) {
        std::uint64_t const g = got[static_cast<std::size_t>(i * outputs + k)];
        auto const nan64 = [](std::uint64_t v) {
          return (v & 0x7fffffffffffffff) > 0x7ff0000000000000;
        };
        auto const nan32 = [](std::uint64_t v) {
          return v >> 32 == 0 && (v & 0x7fffffff) > 0x7f800000;
        };
        auto const nan16 = [](std::uint64_t v) { return v >> 16 == 0 && (v & 0x7fff) > 0x7c00; };
        if (g == e[k] || (nan64(g) && nan64(e[k])) || (nan32(g) && nan32(e[k])) ||
            (nan16(g) && nan16(e[k])))
          continue;
        ++wrong;
        if (!reported[k]) {
          reported[k] = true;
          in_t const v = in[static_cast<std::size_t>(i)];
          std::printf("part %d, value %d of (%llx, %llx, %llx): got %llx, expected %llx\n", part, k,
                      (unsigned long long)v.a, (unsigned long long)v.b, (unsigned long long)v.c,
                      (unsigned long long)g, (unsigned long long)e[k]);
        }
      }
    }
  }
  std::printf("arithmetic: %d wrong\n", wrong);
  return wrong != 0;
}
