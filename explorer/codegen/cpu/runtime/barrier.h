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
