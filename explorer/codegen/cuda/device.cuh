// Device functions of the generated source. Blocks are separated by one empty line; the emitter
// takes the blocks that a source mentions, and those that they mention (prelude.py).
// Sources: PTX ISA 8 (mbarrier, cp.async, cp.async.bulk.tensor, wgmma, stmatrix, fence.proxy).

struct __align__(64) TensorMap { char opaque[128]; };

template <class T> DEV T floor_div(T a, T b) {
  const T q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}

template <class T> DEV T floor_mod(T a, T b) {
  const T r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

DEV int ceil_div(int a, int b) { return -floor_div(-a, b); }

// NaN in either operand gives NaN, as in NumPy.
template <class T> DEV T least(T a, T b) { return a < b || a != a ? a : b; }

template <class T> DEV T most(T a, T b) { return a > b || a != a ? a : b; }

DEV float from_bf16(u16 x) { return __uint_as_float((u32)x << 16); }

DEV u32 pack_bf16(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// Half a pair: ptxas 13.0 makes pairs of single conversions, and takes that for a use of
// accumulators under way (C7514).
DEV u16 to_bf16(float x) { return (u16)pack_bf16(x, 0.0f); }

DEV float from_f16(u16 x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}

DEV u32 pack_f16(float low, float high) {
  u32 r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

DEV u16 to_f16(float x) { return (u16)pack_f16(x, 0.0f); }

DEV float from_e4m3(unsigned char x) {
  u32 r;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"((u16)x));
  return from_f16((u16)r);
}

DEV bool elect() {
  u32 r;
  asm volatile("{ .reg .pred p;\n elect.sync _|p, 0xffffffff;\n selp.u32 %0, 1, 0, p; }" : "=r"(r));
  return r;
}

DEV void prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

DEV void barrier_init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(count) : "memory");
}

// The unqualified form: .release.cluster costs a quarter of the main loop's speed.
DEV void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}

// One arrival at the barrier of that address in a block of the cluster.
DEV void arrive_at(u32 barrier, u32 block) {
  asm volatile("{ .reg .b32 there;\n mapa.shared::cluster.u32 there, %0, %1;\n"
               " mbarrier.arrive.shared::cluster.b64 _, [there]; }"
               :: "r"(barrier), "r"(block) : "memory");
}

// All threads of all blocks of the cluster meet.
DEV void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\n barrier.cluster.wait.acquire;" ::: "memory");
}

DEV void arrive_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(barrier), "r"(bytes) : "memory");
}

DEV void expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;"
               :: "r"(barrier), "r"(bytes) : "memory");
}

// One arrival of this thread once its earlier cp.async copies have landed.
DEV void arrive_landed(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(barrier) : "memory");
}

DEV void wait(u32 barrier, u32 parity) {
  asm volatile("{\n .reg .pred p;\nAGAIN:\n"
               " mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               " @p bra DONE;\n bra AGAIN;\nDONE:\n}" :: "r"(barrier), "r"(parity) : "memory");
}

// A wait that gives up: it writes where it stands to host memory, leaves others time, and traps.
DEV void wait_bounded(u32 barrier, u32 parity, u32* record, u32 site, u32 slot) {
  u64 start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  for (;;) {
    u32 passed;
    asm volatile("{ .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 " selp.u32 %0, 1, 0, p; }" : "=r"(passed) : "r"(barrier), "r"(parity) : "memory");
    if (passed) return;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (now - start > BOUND_NS) break;
  }
  volatile u32* out = record;
  out[1] = slot;
  out[2] = parity;
  out[0] = site + 1u;
  __threadfence_system();
  for (int i = 0; i < 200; ++i) __nanosleep(1000000);
  asm volatile("trap;");
}

DEV void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

DEV void role_sync(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

// The threads of a role draw one number; 1 where it is the last of so many. What all of them wrote
// before is seen by whoever draws later: the barrier orders it before the one thread's release.
DEV int draw_ticket(u32* ticket, u32 parts, u32 id, u32 threads, u32 thread) {
  u32 last = 0u;
  role_sync(id, threads);
  if (thread == 0u) {
    u32 drawn;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
                 : "=r"(drawn) : "l"(ticket) : "memory");
    last = drawn == parts - 1u;
    if (last) asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(ticket), "r"(0u) : "memory");
  }
  asm volatile("{ .reg .pred p;\n setp.ne.u32 p, %0, 0;\n bar.red.or.pred p, %1, %2, p;\n"
               " selp.u32 %0, 1, 0, p; }" : "+r"(last) : "r"(id), "r"(threads) : "memory");
  return (int)last;
}

template <int THREADS, int SIZE>
DEV void store_part(const float (&d)[SIZE], float* part, u32 thread) {
  float* const at = part + thread * 4u;
  #pragma unroll
  for (int i = 0; i < SIZE; i += 4)
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};"
      :: "l"(at + i * THREADS), "f"(d[i]), "f"(d[i + 1]), "f"(d[i + 2]), "f"(d[i + 3]) : "memory");
}

// d, which is that of the part `mine`, <- the sum of the same registers of all parts, in the order
// of the parts. Of two, whose sum has no order, the other one is added. BATCH times CHUNK pieces of
// four are on their way at a time. The compiler must not know that the inner loop may run once, or
// it sends off the loads of all batches together, for which there are no registers.
template <int PARTS, int THREADS, int BATCH, int CHUNK, int SIZE>
DEV void sum_parts(float (&d)[SIZE], const float* parts, int pitch, int mine, u32 thread) {
  int count = mine;
  asm volatile("" : "+r"(count));
  count = (PARTS == 2 ? 1 : PARTS) + (count >> 30);
  const float* const origin = parts + thread * 4u + (PARTS == 2 ? (1 - mine) * pitch : 0);
  #pragma unroll
  for (int first = 0; first < SIZE; first += 4 * BATCH) {
    const float* at = origin + first * THREADS;
    #pragma unroll
    for (int i = first; i < first + 4 * BATCH && PARTS > 2; ++i)
      if (i < SIZE) d[i] = 0.0f;
    #pragma unroll 1
    for (int start = 0; start < count; start += CHUNK) {
      float x[CHUNK][4 * BATCH];
      #pragma unroll
      for (int q = 0; q < CHUNK; ++q) {
        #pragma unroll
        for (int i = 0; i < 4 * BATCH; i += 4)
          if (first + i < SIZE)
            asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
              : "=f"(x[q][i]), "=f"(x[q][i + 1]), "=f"(x[q][i + 2]), "=f"(x[q][i + 3])
              : "l"(at + q * pitch + i * THREADS) : "memory");
      }
      #pragma unroll
      for (int q = 0; q < CHUNK; ++q) {
        #pragma unroll
        for (int i = 0; i < 4 * BATCH; ++i)
          if (first + i < SIZE) d[first + i] += x[q][i];
      }
      at += CHUNK * pitch;
    }
    #pragma unroll
    for (int i = first; i < first + 4 * BATCH; ++i)
      if (i < SIZE) asm volatile("" : "+f"(d[i]) :: "memory");
  }
}

DEV void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

DEV void store_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

DEV void store_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

DEV void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

DEV void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int PENDING> DEV void mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory");
}

// Where an element lies in a tile (memory/tiles.py): boxes side by side, swizzled by the row.
template <int ROW_BYTES, int BOX_BYTES, int MASK> DEV u32 tile_at(u32 row, u32 byte) {
  const u32 at = row * ROW_BYTES + byte % ROW_BYTES;
  return byte / ROW_BYTES * BOX_BYTES + (at ^ (((at >> 7) & MASK) << 4));
}

DEV void store_matrix(u32 at, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// The same with rows and columns of each 8 x 8 block exchanged.
DEV void store_matrix_turned(u32 at, u32 a, u32 b, u32 c, u32 d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// 16-bit elements of any pitch: two aligned 16-byte loads for a piece of 8, shifted together. Only
// aligned pieces that hold a wanted element are read, so that no page beyond the tensor is.
template <int ROWS, int COLUMNS, int ROW_BYTES, int BOX_BYTES, int MASK, int THREADS, int BATCH>
DEV void copy_pieces(u32 tile, const u16* source, long long pitch, int rows, int columns,
                     u32 thread) {
  constexpr u32 PIECES = ROWS * COLUMNS / 8, ACROSS = COLUMNS / 8;
  #pragma unroll 1
  for (u32 first = thread; first < PIECES; first += THREADS * BATCH) {
    u32 v[BATCH][8], misplaced[BATCH];
    #pragma unroll
    for (u32 u = 0; u < BATCH; ++u) {
      const u32 i = first + u * THREADS;
      const int row = i / ACROSS, column = i % ACROSS * 8;
      const int wanted = i < PIECES && row < rows ? columns - column : 0;
      const u64 at = (u64)(source + row * pitch + column);
      const u64 aligned = at & ~15ull;
      misplaced[u] = (u32)at & 15u;
      #pragma unroll
      for (int e = 0; e < 8; ++e) v[u][e] = 0u;
      if (wanted > 0)
        asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
          : "=r"(v[u][0]), "=r"(v[u][1]), "=r"(v[u][2]), "=r"(v[u][3]) : "l"(aligned));
      if (2 * min(wanted, 8) + (int)misplaced[u] > 16)
        asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];"
          : "=r"(v[u][4]), "=r"(v[u][5]), "=r"(v[u][6]), "=r"(v[u][7]) : "l"(aligned + 16ull));
    }
    #pragma unroll
    for (u32 u = 0; u < BATCH; ++u) {
      const u32 i = first + u * THREADS;
      if (PIECES % (THREADS * BATCH) && i >= PIECES) break;
      const int row = i / ACROSS, column = i % ACROSS * 8;
      const int wanted = row < rows ? columns - column : 0;
      const u32 words = misplaced[u] / 4u, bits = misplaced[u] % 4u * 8u;
      u32 w[5];
      #pragma unroll
      for (int e = 0; e < 5; ++e) {
        const u32 far = words & 2u ? (e + 3 < 8 ? v[u][e + 3] : 0u) : v[u][e + 1];
        const u32 near = words & 2u ? v[u][e + 2] : v[u][e];
        w[e] = words & 1u ? far : near;
      }
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const u32 x = __funnelshift_r(w[e], w[e + 1], bits);
        v[u][e] = 2 * e + 1 < wanted ? x : 2 * e < wanted ? x & 0xffffu : 0u;
      }
      asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};"
        :: "r"(tile + tile_at<ROW_BYTES, BOX_BYTES, MASK>(row, column * 2)),
           "r"(v[u][0]), "r"(v[u][1]), "r"(v[u][2]), "r"(v[u][3]) : "memory");
    }
  }
}

// cp.async of SIZE bytes a piece; what lies outside the tensor is filled with zeros.
template <int ROWS, int COLUMNS, int ELEMENT, int SIZE, int ROW_BYTES, int BOX_BYTES, int MASK,
          int THREADS>
DEV void copy_async(u32 tile, const char* source, long long pitch, int rows, int columns,
                    u32 thread) {
  constexpr int ACROSS = COLUMNS * ELEMENT / SIZE;
  #pragma unroll 4
  for (int i = thread; i < ROWS * ACROSS; i += THREADS) {
    const int row = i / ACROSS, byte = i % ACROSS * SIZE;
    const int wanted = row < rows ? min(max(columns * ELEMENT - byte, 0), SIZE) : 0;
    const char* from = wanted > 0 ? source + row * pitch * ELEMENT + byte : source;
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
      :: "r"(tile + tile_at<ROW_BYTES, BOX_BYTES, MASK>(row, byte)), "l"(from), "n"(SIZE),
         "r"(wanted) : "memory");
  }
}
