// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compiler checks, and the macros that every other header uses. No macro changes a function body
/// or a class layout between translation units.
#pragma once

#include <plimsoll/version.hpp>

#if __cplusplus <= 201703L
#error "Plimsoll needs C++20: compile with -std=c++20 or newer."
#include <plimsoll/stops_here>  // no such file: ends the compilation before a thousand more errors
#endif

#if !defined(__cpp_exceptions) && !defined(__EXCEPTIONS)
#error "Plimsoll reports bad input by exceptions: compile without -fno-exceptions."
#include <plimsoll/stops_here>
#endif

#if defined(min) || defined(max)
#error \
    "Plimsoll: a macro named min or max is defined, which breaks functions of these names, the standard library's too. Define NOMINMAX for <windows.h>, or #undef both before you include Plimsoll."
#include <plimsoll/stops_here>
#endif

// Results are the same bits everywhere only if the compiler keeps IEEE semantics. Parts of
// fast-math are detected by the macros that compilers define: g++ defines one for each part,
// clang++ only __FINITE_MATH_ONLY__. An x87 rounds to 64 bits of mantissa, then to 53
// (FLT_EVAL_METHOD 2).
#if !defined(PLIMSOLL_ALLOW_FAST_MATH)
#if defined(__FAST_MATH__) || defined(__USE_FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || \
    defined(__RECIPROCAL_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0)
#error \
    "Plimsoll: fast-math breaks the promise of equal bits on every rank. Compile without it, or define PLIMSOLL_ALLOW_FAST_MATH to give the promise up."
#elif defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2)
#error \
    "Plimsoll: this target computes in more bits than its types have (x87), which breaks the promise of equal bits on every rank. Compile for SSE2 (-mfpmath=sse), or define PLIMSOLL_ALLOW_FAST_MATH to give the promise up."
#endif
#endif

#if defined(__CUDACC__)
/// 1 if a CUDA compiler compiles the translation unit, so that `gpu` policies can run; else 0.
#define PLIMSOLL_HAS_CUDA_COMPILER 1
/// Marks a function that a body may call on the host and on the device.
#define PLIMSOLL_HD __host__ __device__
#else
#define PLIMSOLL_HAS_CUDA_COMPILER 0
#define PLIMSOLL_HD
#endif

#if defined(__CUDA_ARCH__)
/// Prevents CUDA compilers from unrolling the next loop, which would copy its body with all team
/// calls and gain nothing. Empty on the host, where compilers do not know the pragma.
#define PLIMSOLL_NO_UNROLL _Pragma("unroll 1")
#define PLIMSOLL_DETAIL_PRAGMA(text) _Pragma(#text)
/// Unrolls the next loop `n` times, so that the memory accesses of `n` iterations overlap, and no
/// further, so that their values fit the registers. Empty on the host, likewise.
#define PLIMSOLL_UNROLL(n) PLIMSOLL_DETAIL_PRAGMA(unroll n)
#else
#define PLIMSOLL_NO_UNROLL
#define PLIMSOLL_UNROLL(n)
#endif

/// Marks a large function with several callers, which CUDA compilers compile far faster if it is
/// not inlined.
#define PLIMSOLL_NOINLINE __attribute__((noinline))

#define PLIMSOLL_DETAIL_ABI_NAME(major, minor) v##major##_##minor
#define PLIMSOLL_DETAIL_ABI(major, minor) PLIMSOLL_DETAIL_ABI_NAME(major, minor)
/// Inline namespace that keeps two versions of the library apart in one program.
#define PLIMSOLL_ABI PLIMSOLL_DETAIL_ABI(PLIMSOLL_VERSION_MAJOR, PLIMSOLL_VERSION_MINOR)

#define PLIMSOLL_DETAIL_ARCHES_NAME(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ...) \
  arch_##a##b##c##d##e##f##g##h##i##j##k##l##m##n##o##p
#define PLIMSOLL_DETAIL_ARCHES(...) \
  PLIMSOLL_DETAIL_ARCHES_NAME(__VA_ARGS__, , , , , , , , , , , , , , , , , )
/// Inline namespace of everything that takes a policy, and so may launch a kernel. As in CCCL, it
/// names the device architectures that the compiler builds for. Otherwise two shared objects built
/// for different GPUs would share one copy of such a template, and thus kernels that one of the
/// GPUs cannot run. Types that pass between host and CUDA translation units are outside of it;
/// those that own arrays have the context as a template argument, and `device_context` is inside.
#if !defined(__CUDACC__)
#define PLIMSOLL_DEVICE_ABI host_only
#elif defined(__CUDA_ARCH_LIST__)
#define PLIMSOLL_DEVICE_ABI PLIMSOLL_DETAIL_ARCHES(__CUDA_ARCH_LIST__)
#else
#define PLIMSOLL_DEVICE_ABI arch_unknown
#endif
