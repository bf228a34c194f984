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
