/* Kernel gemm, 1 warps a block. */
#define EX_BLOCKS 2
#define EX_WARPS 1
#define EX_BLOCK_BYTES 942080
#define EX_BARRIER_BYTES 128

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

/* Barriers between the warps of a block, one thread a warp. An arrival and a wait are one atomic word;
   a wait that polls in vain parks on a condition variable, and gives up after ex_wait_limit_ms.

   Invariant: every hand-over between threads goes through an acq_rel read-modify-write and an acquire load
   of `state`; there are no fences, so ThreadSanitizer sees every edge. */
#define EX_INLINE static inline __attribute__((always_inline))
#define EX_COLD static __attribute__((noinline, cold))

EX_INLINE void ex_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* state: [31:16] number of the phase, [15] somebody is parked, [14:0] arrivals pending in this phase. */
enum { EX_PARKED = 0x8000, EX_PENDING = 0x7fff, EX_PHASE = 0x10000, EX_SLICE_MS = 50 };
typedef struct {
    _Alignas(EX_BARRIER_BYTES) _Atomic uint32_t state;
    uint32_t count;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} ex_barrier;
_Static_assert(sizeof(ex_barrier) == EX_BARRIER_BYTES, "a barrier outgrows its place in the layout");

/* Loads of `state` before a wait parks: set at the first launch. */
static int ex_polls = 20;
int ex_wait_limit_ms = 5000;

/* The waits that gave up, for the host to read after the launch; ex_aborted counts them. */
enum { EX_HANGS_MAX = 8 };
static struct { int block, warp, site; unsigned slot, parity, pending; } ex_hang[EX_HANGS_MAX];
static _Atomic int ex_aborted;

static void ex_barrier_create(ex_barrier *b) {
    pthread_mutex_init(&b->lock, 0);
    pthread_cond_init(&b->wake, 0);
}
EX_INLINE void ex_barrier_init(ex_barrier *b, uint32_t count) {
    b->count = count;
    atomic_store_explicit(&b->state, count, memory_order_relaxed);
}
EX_COLD void ex_wake(ex_barrier *b) {
    pthread_mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->wake);
    pthread_mutex_unlock(&b->lock);
}
EX_INLINE void ex_arrive(ex_barrier *b) {
    uint32_t old = atomic_load_explicit(&b->state, memory_order_relaxed), new;
    do
        new = (old & EX_PENDING) == 1 ? ((old & 0xffff0000u) + EX_PHASE) | b->count : old - 1;
    while (!atomic_compare_exchange_weak_explicit(&b->state, &old, new, memory_order_acq_rel,
                                                  memory_order_relaxed));
    if ((old & (EX_PENDING | EX_PARKED)) == (1 | EX_PARKED)) ex_wake(b);
}
/* True iff the phase of that parity is over, that is, the current one has the other parity. */
EX_INLINE int ex_test(ex_barrier *b, unsigned parity) {
    return ((atomic_load_explicit(&b->state, memory_order_acquire) >> 16) & 1) != parity;
}
static long ex_now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000L + t.tv_nsec / 1000000L;
}
static void ex_sleep_slice(ex_barrier *b) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += EX_SLICE_MS * 1000000L;
    if (t.tv_nsec >= 1000000000L) t.tv_sec++, t.tv_nsec -= 1000000000L;
    pthread_cond_timedwait(&b->wake, &b->lock, &t);
}
/* Parks until the phase of that parity is over: 0; 1 when limit_ms ran out or another wait gave up.
   limit_ms 0 waits for ever. */
EX_COLD int ex_park(ex_barrier *b, unsigned parity, int limit_ms) {
    const long end = ex_now_ms() + limit_ms;
    int result = 0;
    pthread_mutex_lock(&b->lock);
    for (;;) {
        uint32_t old = atomic_load_explicit(&b->state, memory_order_acquire);
        if (((old >> 16) & 1) != parity) break;
        if (limit_ms && (atomic_load_explicit(&ex_aborted, memory_order_relaxed) || ex_now_ms() >= end)) {
            result = 1;
            break;
        }
        if (!(old & EX_PARKED) &&
            !atomic_compare_exchange_weak_explicit(&b->state, &old, old | EX_PARKED, memory_order_relaxed,
                                                   memory_order_relaxed))
            continue;
        if (limit_ms) ex_sleep_slice(b);
        else pthread_cond_wait(&b->wake, &b->lock);
    }
    pthread_mutex_unlock(&b->lock);
    return result;
}
EX_COLD int ex_park_at(ex_barrier *b, unsigned parity, int block, int warp, int site, unsigned slot) {
    if (!ex_park(b, parity, ex_wait_limit_ms)) return 0;
    const int i = atomic_fetch_add(&ex_aborted, 1);
    if (i < EX_HANGS_MAX) {
        ex_hang[i].block = block, ex_hang[i].warp = warp, ex_hang[i].site = site, ex_hang[i].slot = slot;
        ex_hang[i].parity = parity, ex_hang[i].pending = atomic_load(&b->state) & EX_PENDING;
    }
    return 1;
}
/* 0: the phase is over. 1: the wait gave up, and the role returns. The limit costs nothing unless it parks. */
EX_INLINE int ex_wait(ex_barrier *b, unsigned parity, int block, int warp, int site, unsigned slot) {
    for (int i = 0; i < ex_polls; i++) {
        if (ex_test(b, parity)) return 0;
        ex_relax();
    }
    return ex_park_at(b, parity, block, warp, site, slot);
}

/* A launch: EX_BLOCKS x EX_WARPS threads, parked between launches, run ex_warp(block, warp).

   Invariant: the arena of EX_BLOCKS x EX_BLOCK_BYTES bytes and the threads live from the first launch to
   ex_close, which the host calls before it unloads the library. */
static void ex_warp(int block, int warp);
static void ex_create(void);
static void ex_prepare(void);
enum { EX_THREADS = EX_BLOCKS * EX_WARPS, EX_ALONE = EX_THREADS == 1, EX_HUGE_PAGE = 2 << 20 };

static char *ex_arena;
static ex_barrier ex_start, ex_done;
static pthread_t ex_thread[EX_THREADS];
static int ex_running;
static _Atomic int ex_stop;

static int ex_cores(void) {
#if defined(__linux__)
    cpu_set_t all;
    if (!sched_getaffinity(0, sizeof all, &all)) return CPU_COUNT(&all);
#endif
    return 1;
}
static void ex_pin(int core) {
#if defined(__linux__)
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all)) return;
    for (int c = 0, k = 0; c < CPU_SETSIZE; c++)
        if (CPU_ISSET(c, &all) && k++ == core) {
            CPU_ZERO(&one);
            CPU_SET(c, &one);
            pthread_setaffinity_np(pthread_self(), sizeof one, &one);
            return;
        }
#else
    (void)core;
#endif
}
/* As many blocks as cores: a block on a core. Fewer: a block's warps over its share of the cores. */
static int ex_core_of(int block, int warp, int cores) {
    const int share = cores / EX_BLOCKS;
    return share ? block * share + warp % share : block % cores;
}
static void *ex_thread_main(void *argument) {
    const int id = (int)(intptr_t)argument;
    /* The default scheduling class: SCHED_BATCH saves up to a tenth on an idle host, where a woken consumer lets
       the producer fill the ring first, but each hand-over costs a time slice beside any other process. */
    ex_pin(ex_core_of(id / EX_WARPS, id % EX_WARPS, ex_cores()));
    for (unsigned parity = 0;; parity ^= 1) {
        if (!ex_test(&ex_start, parity)) ex_park(&ex_start, parity, 0);
        if (atomic_load_explicit(&ex_stop, memory_order_relaxed)) return 0;
        ex_warp(id / EX_WARPS, id % EX_WARPS);
        ex_arrive(&ex_done);
    }
}
static int ex_spawn(void) {
    ex_barrier_create(&ex_start);
    ex_barrier_create(&ex_done);
    ex_barrier_init(&ex_start, 1);
    ex_barrier_init(&ex_done, EX_THREADS);
    /* Waking another core costs about 1000 polls; a warp that shares its core polls in place of the other. */
    if (EX_THREADS <= ex_cores()) ex_polls = 1000;
    for (int i = 0; i < EX_THREADS; i++)
        if (pthread_create(&ex_thread[i], 0, ex_thread_main, (void *)(intptr_t)i)) return -2;
    ex_running = 1;
    return 0;
}
static int ex_open(void) {
    if (ex_arena) return 0;
    const size_t bytes = ((size_t)EX_BLOCKS * EX_BLOCK_BYTES / EX_HUGE_PAGE + 1) * EX_HUGE_PAGE;
    if (posix_memalign((void **)&ex_arena, EX_HUGE_PAGE, bytes)) return -1;
#if defined(__linux__)
    madvise(ex_arena, bytes, 14 /* MADV_HUGEPAGE */);
#endif
    ex_create();
    return EX_ALONE ? 0 : ex_spawn();
}
/* 0: done. 1: a wait gave up, see ex_report. -1: no memory. -2: no threads. */
static int ex_launch(void) {
    static unsigned parity;
    const int opened = !ex_arena, failed = ex_open();
    if (failed) return failed;
    atomic_store_explicit(&ex_aborted, 0, memory_order_relaxed);
    ex_prepare();
    if (EX_ALONE) {
        ex_warp(0, 0);
    } else {
        if (opened) parity = 0;
        ex_arrive(&ex_start);
        if (!ex_test(&ex_done, parity)) ex_park(&ex_done, parity, 0);
        parity ^= 1;
    }
    return atomic_load(&ex_aborted) != 0;
}
/* Ends the parked threads and frees the arena. */
int ex_close(void) {
    if (ex_running) {
        atomic_store_explicit(&ex_stop, 1, memory_order_relaxed);
        ex_arrive(&ex_start);
        for (int i = 0; i < EX_THREADS; i++) pthread_join(ex_thread[i], 0);
        ex_running = 0;
        atomic_store_explicit(&ex_stop, 0, memory_order_relaxed);
    }
    free(ex_arena);
    ex_arena = 0;
    return 0;
}

/* Integer and floating-point arithmetic as NumPy defines it: floored division, NaN wins in least and most,
   conversions to integers truncate and saturate. */
static inline long ex_min(long a, long b) { return a < b ? a : b; }
static inline long ex_max(long a, long b) { return a > b ? a : b; }
static inline long ex_div(long a, long b) { return a / b - (a % b < 0); }
static inline long ex_mod(long a, long b) { return a % b + (a % b < 0 ? b : 0); }
static inline long ex_ceildiv(long a, long b) { return -ex_div(-a, b); }
static inline int64_t ex_abs(int64_t a) { return a < 0 ? -a : a; }
static inline int64_t ex_least_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ex_most_i64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ex_floordiv_i64(int64_t a, int64_t b) {
    return b == 0 ? 0 : b == -1 ? -a : a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t ex_floormod_i64(int64_t a, int64_t b) {
    return b == 0 || b == -1 ? 0 : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
}
static inline int64_t ex_pow_i64(int64_t a, int64_t b) {
    int64_t result = 1;
    for (; b > 0; b >>= 1, a *= a)
        if (b & 1) result *= a;
    return result;
}
#define EX_FLOATS(T, name, f)                                                              \
    static inline T ex_least_##name(T a, T b) { return a < b || a != a ? a : b; }          \
    static inline T ex_most_##name(T a, T b) { return a > b || a != a ? a : b; }           \
    static inline T ex_floordiv_##name(T a, T b) { return floor##f(a / b); }               \
    static inline T ex_floormod_##name(T a, T b) {                                         \
        const T rest = fmod##f(a, b);                                                      \
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;                       \
    }                                                                                      \
    static inline T ex_pow_##name(T a, T b) { return pow##f(a, b); }                       \
    static inline T ex_rsqrt##f(T a) { return 1 / sqrt##f(a); }                            \
    static inline T ex_sigmoid##f(T a) { return 1 / (1 + exp##f(-a)); }
EX_FLOATS(float, f32, f)
EX_FLOATS(double, f64, )
#define EX_SATURATE(T, name, low, high)                                                    \
    static inline T ex_##name##_from_f64(double x) {                                       \
        return x != x ? 0 : x <= (double)(low) ? (low) : x >= (double)(high) ? (high) : (T)x; \
    }
EX_SATURATE(int8_t, i8, INT8_MIN, INT8_MAX)
EX_SATURATE(int16_t, i16, INT16_MIN, INT16_MAX)
EX_SATURATE(int32_t, i32, INT32_MIN, INT32_MAX)
EX_SATURATE(int64_t, i64, INT64_MIN, INT64_MAX)
EX_SATURATE(uint8_t, u8, 0, UINT8_MAX)
EX_SATURATE(uint16_t, u16, 0, UINT16_MAX)
EX_SATURATE(uint32_t, u32, 0, UINT32_MAX)
EX_SATURATE(uint64_t, u64, 0, UINT64_MAX)

/* Element types: f16 and bf16 are their bits, and are computed in f32. Rounding is to nearest even.
   In integers, because gcc 12 turns a vector of _Float16 into scalar conversions. */
typedef uint16_t f16_t;
typedef uint16_t bf16_t;
typedef uint32_t ex_words __attribute__((vector_size(EX_VECTOR_BYTES)));
typedef uint16_t ex_halves
    __attribute__((vector_size(EX_VECTOR_BYTES / 2), aligned(sizeof(uint16_t)), may_alias));
typedef union { uint32_t bits; float value; } ex_f32_bits;

static inline long ex_clip(long x, long low, long high) { return x < low ? low : x > high ? high : x; }

#define ex_f32_from_f32(x) ((float)(x))
#define ex_f64_from_f64(x) ((double)(x))
#define ex_f32_from_f64(x) ((float)(x))
#define ex_f64_from_f32(x) ((double)(x))
/* The exponent is rebased by a multiply, which also normalises subnormals. */
static inline float ex_f32_from_f16(f16_t x) {
    const uint32_t wide = x;
    ex_f32_bits h = {(wide & 0x7fff) << 13};
    const uint32_t special = h.bits >= 0x7c00u << 13 ? 0x7f800000u : 0;
    h.value *= 0x1p112f;
    h.bits |= special | (wide & 0x8000) << 16;
    return h.value;
}
static inline float ex_f32_from_bf16(bf16_t x) {
    const ex_f32_bits h = {(uint32_t)x << 16};
    return h.value;
}
static inline f16_t ex_f16_from_f32(float x) {
    ex_f32_bits v = {.value = x};
    const uint32_t sign = v.bits >> 16 & 0x8000, size = v.bits & 0x7fffffff;
    const uint32_t normal = (size + 0xfff + (size >> 13 & 1) - (112u << 23)) >> 13;
    /* Adding 0.5 leaves a subnormal's rounded bits in the low end of the significand. */
    ex_f32_bits small = {size};
    small.value += 0.5f;
    const uint32_t special = size > 0x7f800000u ? 0x7e00 : 0x7c00;
    const uint32_t finite = size < 113u << 23 ? small.bits - 0x3f000000u : normal;
    return (f16_t)(sign | (size >= 143u << 23 ? special : finite));
}
static inline bf16_t ex_bf16_from_f32(float x) {
    const ex_f32_bits v = {.value = x};
    const uint32_t rounded = (v.bits + 0x7fff + (v.bits >> 16 & 1)) >> 16;
    return (bf16_t)((v.bits & 0x7fffffff) > 0x7f800000u ? (v.bits >> 16 | 0x40) : rounded);
}
#define ex_f64_from_f16(x) ((double)ex_f32_from_f16(x))
#define ex_f64_from_bf16(x) ((double)ex_f32_from_bf16(x))
#define ex_f16_from_f64(x) ex_f16_from_f32((float)(x))
#define ex_bf16_from_f64(x) ex_bf16_from_f32((float)(x))

/* Vectors of f32 (float) and the register-blocked multiply on them. f32 stands for f32 or f64.

   Invariant: all arguments but pointers and live extents are constants at every call, so that after inlining
   the accumulators are registers. */
enum { W_f32 = EX_VECTOR_BYTES / sizeof(float) };
typedef float vec_f32 __attribute__((vector_size(EX_VECTOR_BYTES), may_alias));
typedef float loose_f32 __attribute__((vector_size(EX_VECTOR_BYTES), aligned(sizeof(float)), may_alias));

/* c[mr][nv vectors] += a (mr x k, strides ai, ak) * b (k rows of stride bk). b and c are vector-aligned. */
EX_INLINE void ex_block_f32(const int mr, const int nv, const long ai, const long ak, const long bk,
                            const long ldc, const long k_live, const float *restrict a,
                            const float *restrict b, float *restrict c) {
    vec_f32 acc[EX_MR_MAX][EX_NV_MAX];
    EX_UNROLL(16) for (int i = 0; i < mr; i++)
        EX_UNROLL(8) for (int j = 0; j < nv; j++) acc[i][j] = *(const vec_f32 *)(c + i * ldc + j * W_f32);
    EX_UNROLL(4) for (long k = 0; k < k_live; k++) {
        vec_f32 bv[EX_NV_MAX];
        EX_UNROLL(8) for (int j = 0; j < nv; j++) bv[j] = *(const vec_f32 *)(b + k * bk + j * W_f32);
        EX_UNROLL(16) for (int i = 0; i < mr; i++)
            EX_UNROLL(8) for (int j = 0; j < nv; j++) acc[i][j] += a[i * ai + k * ak] * bv[j];
    }
    EX_UNROLL(16) for (int i = 0; i < mr; i++)
        EX_UNROLL(8) for (int j = 0; j < nv; j++) *(vec_f32 *)(c + i * ldc + j * W_f32) = acc[i][j];
}
/* c (m x n) += a (m x k_live) * b (k_live x n) by blocks of mr rows and nr columns, which divide m and n.
   Blocks wholly outside m_live x n_live are left out. Rows outside: a panel of a stays in L1, b streams from L2. */
EX_INLINE void ex_gemm_f32(const int m, const int n, const int mr, const int nr, const long ai, const long ak,
                           const long bk, const long ldc, const long m_live, const long n_live,
                           const long k_live, const float *a, const float *b, float *c) {
    for (int i = 0; i < m && i < m_live; i += mr)
        for (int j = 0; j < n && j < n_live; j += nr)
            ex_block_f32(mr, nr / W_f32, ai, ak, bk, ldc, k_live, a + i * ai, b + j, c + i * ldc + j);
}

/* W x W transpose in log2 W exchanges: bit b of the row changes places with bit b of the column. */
#define EX_LOW_f32(j, b) ((j) & (b) ? W_f32 + (j) - (b) : (j))
#define EX_HIGH_f32(j, b) ((j) & (b) ? W_f32 + (j) : (j) + (b))
#if EX_VECTOR_BYTES / 4 == 16
#define EX_LANES_f32 EX_LANES_16
#elif EX_VECTOR_BYTES / 4 == 8
#define EX_LANES_f32 EX_LANES_8
#elif EX_VECTOR_BYTES / 4 == 4
#define EX_LANES_f32 EX_LANES_4
#else
#define EX_LANES_f32 EX_LANES_2
#endif
typedef int32_t mask_f32 __attribute__((vector_size(EX_VECTOR_BYTES)));
#define EX_EXCHANGE_f32(b)                                                                       \
    if ((b) < W_f32) EX_UNROLL(16) for (int i = 0; i < W_f32; i++) if (!(i & (b))) {             \
        const vec_f32 x = v[i], y = v[(i + (b)) % W_f32];                                        \
        v[i] = EX_SHUFFLE(mask_f32, x, y, EX_LANES_f32(EX_LOW_f32, (b) % W_f32, 0));             \
        v[(i + (b)) % W_f32] = EX_SHUFFLE(mask_f32, x, y, EX_LANES_f32(EX_HIGH_f32, (b) % W_f32, 0)); \
    }
EX_INLINE void ex_turn_f32(vec_f32 v[W_f32]) {
    EX_EXCHANGE_f32(8) EX_EXCHANGE_f32(4) EX_EXCHANGE_f32(2) EX_EXCHANGE_f32(1)
}

/* Vector loads that widen to f32, or load f64. */
EX_INLINE vec_f32 ex_load_f32_f32(const float *p) { return *(const loose_f32 *)p; }

/* Copies of a tile of a tensor of f32 into a slot of f32: widened, and 0 where the tile leaves the tensor.
   The tile is rows x cols at (r0, c0) of a matrix of nr x nc with row stride lds; the slot's row stride is ldd.

   Invariant: every element of the slot's tile is written. A tile inside the tensor takes one test. */
EX_INLINE void ex_copy_f32_f32(const long rows, const long cols, float *restrict dst, const long ldd,
                              const float *restrict src, const long lds, const long r0, const long c0,
                              const long nr, const long nc) {
    if (cols % W_f32 == 0 && r0 >= 0 && c0 >= 0 && r0 + rows <= nr && c0 + cols <= nc) {
        src += r0 * lds + c0;
        for (long r = 0; r < rows; r++)
            EX_UNROLL(4) for (long c = 0; c < cols; c += W_f32)
                *(loose_f32 *)(dst + r * ldd + c) = ex_load_f32_f32(src + r * lds + c);
        return;
    }
    for (long r = 0; r < rows; r++) {
        const long row = r0 + r, inside = row >= 0 && row < nr;
        const long low = inside ? ex_clip(-c0, 0, cols) : 0, high = inside ? ex_clip(nc - c0, low, cols) : 0;
        const float *from = src + row * lds + c0;
        float *to = dst + r * ldd;
        long c = 0;
        for (; c < low; c++) to[c] = 0;
        for (; c + W_f32 <= high; c += W_f32) *(loose_f32 *)(to + c) = ex_load_f32_f32(from + c);
        for (; c < high; c++) to[c] = ex_f32_from_f32(from[c]);
        for (; c < cols; c++) to[c] = 0;
    }
}
/* The same with the slot's tile turned: dst[c][r] = src[r][c]. */
EX_INLINE void ex_copy_turned_f32_f32(const long rows, const long cols, float *restrict dst, const long ldd,
                                     const float *restrict src, const long lds, const long r0, const long c0,
                                     const long nr, const long nc) {
    for (long r = 0; r < rows; r += W_f32)
        for (long c = 0; c < cols; c += W_f32) {
            const long row = r0 + r, col = c0 + c;
            const float *from = src + row * lds + col;
            if (row >= 0 && col >= 0 && row + W_f32 <= nr && col + W_f32 <= nc && r + W_f32 <= rows &&
                c + W_f32 <= cols) {
                vec_f32 v[W_f32];
                EX_UNROLL(16) for (int i = 0; i < W_f32; i++) v[i] = ex_load_f32_f32(from + i * lds);
                ex_turn_f32(v);
                EX_UNROLL(16) for (int i = 0; i < W_f32; i++) *(loose_f32 *)(dst + (c + i) * ldd + r) = v[i];
                continue;
            }
            for (long j = 0; j < W_f32 && c + j < cols; j++)
                for (long i = 0; i < W_f32 && r + i < rows; i++) {
                    const int inside = row + i >= 0 && row + i < nr && col + j >= 0 && col + j < nc;
                    dst[(c + j) * ldd + r + i] = inside ? ex_f32_from_f32(from[i * lds + j]) : 0;
                }
        }
}

/* The store of a tile of f32 to a tensor of f32: rounded, and clipped to the tensor. Arguments as in copy.h. */
EX_INLINE void ex_store_f32_f32(const long rows, const long cols, const float *restrict src, const long lds,
                                float *restrict dst, const long ldd, const long r0, const long c0,
                                const long nr, const long nc) {
    const long top = ex_clip(-r0, 0, rows), bottom = ex_clip(nr - r0, top, rows);
    if (c0 >= 0 && c0 + cols <= nc) {
        for (long r = top; r < bottom; r++)
            for (long c = 0; c < cols; c++) dst[(r0 + r) * ldd + c0 + c] = ex_f32_from_f32(src[r * lds + c]);
        return;
    }
    const long low = ex_clip(-c0, 0, cols), high = ex_clip(nc - c0, low, cols);
    for (long r = top; r < bottom; r++)
        for (long c = low; c < high; c++) dst[(r0 + r) * ldd + c0 + c] = ex_f32_from_f32(src[r * lds + c]);
}

static void *const *ex_tensors;

static __attribute__((noinline)) void ex_copy_0(float *dst, const float *src, long r0, long c0, long rows, long nr) {
    ex_copy_f32_f32(256, 128, dst, 144, src, 1024, r0, c0, 1024, 1024);
}
static __attribute__((noinline)) void ex_copy_1(float *dst, const float *src, long r0, long c0, long rows, long nr) {
    ex_copy_f32_f32(128, 512, dst, 528, src, 1024, r0, c0, 1024, 1024);
}
static __attribute__((noinline)) void ex_gemm_2(const float *a, const float *b, float *c, long m, long n, long k) {
    _Static_assert(32 % W_f32 == 0, "register block of whole vectors");
    ex_gemm_f32(256, 512, 8, 32, 144, 1, 528, 512, 256, 512, 128, a, b, c);
}
static __attribute__((noinline)) void ex_store_3(float *dst, const float *src, long r0, long c0, long nr) {
    ex_store_f32_f32(256, 512, src, 512, dst, 1024, r0, c0, 1024, 1024);
}

/* worker: warps 0 .. 0 */
static void ex_role_0(const int block, const int warp) {
    char *const arena = ex_arena + (size_t)block * EX_BLOCK_BYTES;
    const long part = warp - 0;
    char *const mine = arena + 417792 + part * 524288;
    unsigned meeting = 0;
    (void)arena, (void)mine, (void)part, (void)meeting;
    for (long tile = block; tile < 8; tile += EX_BLOCKS) {
        const long v_bx = ex_div(ex_mod(tile, 16), ex_min(8, (4 - (ex_div(tile, 16) * 8))));
        (void)v_bx;
        const long v_by = ((ex_div(tile, 16) * 8) + ex_mod(ex_mod(tile, 16), ex_min(8, (4 - (ex_div(tile, 16) * 8)))));
        (void)v_by;
        /* fill_C_local */
        {
            float *const f_C_local = (float *)(mine + 0);
            memset(f_C_local, 0, 131072 * sizeof *f_C_local);
        }
        for (long v_ko = 0; v_ko < 8; v_ko++) {
            /* copy_A_shared */
            {
                float *const t_A = (float *)(ex_tensors[0]);
                float *const s_A_shared = (float *)(arena + 0 + (0) * 147456);
                ex_copy_0(s_A_shared, t_A, (v_by * 256), (v_ko * 128), 256, 1024);
            }
            /* copy_B_shared */
            {
                float *const t_B = (float *)(ex_tensors[1]);
                float *const s_B_shared = (float *)(arena + 147456 + (0) * 270336);
                ex_copy_1(s_B_shared, t_B, (v_ko * 128), (v_bx * 512), 128, 1024);
            }
            /* gemm_C_local */
            {
                float *const s_A_shared = (float *)(arena + 0 + (0) * 147456);
                float *const s_B_shared = (float *)(arena + 147456 + (0) * 270336);
                float *const f_C_local = (float *)(mine + 0);
                ex_gemm_2(s_A_shared, s_B_shared, f_C_local, 256, 512, 128);
            }
        }
        /* copy_C */
        {
            float *const f_C_local = (float *)(mine + 0);
            float *const t_C = (float *)(ex_tensors[2]);
            ex_store_3(t_C, f_C_local, (v_by * 256), (v_bx * 512), 1024);
        }
    }
}

static void ex_create(void) {
    for (int block = 0; block < EX_BLOCKS; block++) {
        ex_barrier *barrier = (ex_barrier *)(ex_arena + (size_t)block * EX_BLOCK_BYTES + 417792);
        (void)barrier;
    }
}
static void ex_prepare(void) {
    for (int block = 0; block < EX_BLOCKS; block++) {
        ex_barrier *barrier = (ex_barrier *)(ex_arena + (size_t)block * EX_BLOCK_BYTES + 417792);
        (void)barrier;
    }
}
static void ex_warp(int block, int warp) {
    if (warp >= 0 && warp < 1) ex_role_0(block, warp);
}
int ex_run(void *const *tensors) {
    ex_tensors = tensors;
    return ex_launch();
}

static const struct { const char *role, *pipeline, *side; } ex_sites[] = {
    {"", "", ""},
};
/* Who waits for what, after a launch that returned 1. */
const char *ex_report(void) {
    static char text[EX_HANGS_MAX * 256];
    size_t used = 0;
    for (int i = 0; i < atomic_load(&ex_aborted) && i < EX_HANGS_MAX; i++) {
        const int site = ex_hang[i].site;
        used += snprintf(text + used, sizeof text - used,
                         "%sblock %d role %s warp %d waits at %s.%s[%u] parity %u, %u arrivals pending",
                         i ? "; " : "", ex_hang[i].block, ex_sites[site].role, ex_hang[i].warp,
                         ex_sites[site].pipeline, ex_sites[site].side, ex_hang[i].slot, ex_hang[i].parity,
                         ex_hang[i].pending);
        if (used >= sizeof text) break;
    }
    return text;
}
