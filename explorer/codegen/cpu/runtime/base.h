/* What every kernel needs of the compiler and the C library. */
#define _GNU_SOURCE
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

#if defined(__AVX512F__)
#define EX_VECTOR_BYTES 64
#elif defined(__AVX__)
#define EX_VECTOR_BYTES 32
#else
#define EX_VECTOR_BYTES 16
#endif
enum { EX_MR_MAX = 16, EX_NV_MAX = 8 };

#define EX_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define EX_UNROLL(count) EX_PRAGMA(clang loop unroll_count(count))
#define EX_SHUFFLE(mask, x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define EX_UNROLL(count) EX_PRAGMA(GCC unroll count)
#define EX_SHUFFLE(mask, x, y, ...) __builtin_shuffle(x, y, (mask){__VA_ARGS__})
#endif
#define EX_LANES_2(f, b, o) f(o, b), f(o + 1, b)
#define EX_LANES_4(f, b, o) EX_LANES_2(f, b, o), EX_LANES_2(f, b, o + 2)
#define EX_LANES_8(f, b, o) EX_LANES_4(f, b, o), EX_LANES_4(f, b, o + 4)
#define EX_LANES_16(f, b, o) EX_LANES_8(f, b, o), EX_LANES_8(f, b, o + 8)
