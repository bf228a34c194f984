typedef unsigned int u32;
typedef unsigned long long u64;
typedef unsigned short u16;
#define DEV static __device__ __forceinline__
struct __align__(64) TensorMap { char opaque[128]; };
DEV u32 pack_bf16(float low, float high) {
  u32 r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
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
DEV void arrive_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :: "r"(barrier), "r"(bytes) : "memory");
}
DEV void wait(u32 barrier, u32 parity) {
  asm volatile("{\n .reg .pred p;\nAGAIN:\n"
               " mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               " @p bra DONE;\n bra AGAIN;\nDONE:\n}" :: "r"(barrier), "r"(parity) : "memory");
}
DEV void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEV void role_sync(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
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
DEV void bulk_load_2d(u32 tile, const TensorMap* map, u32 barrier, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
    :: "r"(tile), "l"(map), "r"(barrier), "r"(c0), "r"(c1) : "memory"); }
template <int FIRST, int SIZE>
DEV void mma_n160_e4m3_kk(float (&d)[SIZE], u64 a, u64 b, int accumulate) {
  asm volatile("{ .reg .pred p;\n setp.ne.b32 p, %82, 0;\n"
    " wgmma.mma_async.sync.aligned.m64n160k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79},"
    " %80, %81, p, 1, 1;\n }"
    : "+f"(d[FIRST + 0]), "+f"(d[FIRST + 1]), "+f"(d[FIRST + 2]), "+f"(d[FIRST + 3]), "+f"(d[FIRST + 4]), "+f"(d[FIRST + 5]), "+f"(d[FIRST + 6]), "+f"(d[FIRST + 7]), "+f"(d[FIRST + 8]), "+f"(d[FIRST + 9]), "+f"(d[FIRST + 10]), "+f"(d[FIRST + 11]), "+f"(d[FIRST + 12]), "+f"(d[FIRST + 13]), "+f"(d[FIRST + 14]), "+f"(d[FIRST + 15]), "+f"(d[FIRST + 16]), "+f"(d[FIRST + 17]), "+f"(d[FIRST + 18]), "+f"(d[FIRST + 19]), "+f"(d[FIRST + 20]), "+f"(d[FIRST + 21]), "+f"(d[FIRST + 22]), "+f"(d[FIRST + 23]), "+f"(d[FIRST + 24]), "+f"(d[FIRST + 25]), "+f"(d[FIRST + 26]), "+f"(d[FIRST + 27]), "+f"(d[FIRST + 28]), "+f"(d[FIRST + 29]), "+f"(d[FIRST + 30]), "+f"(d[FIRST + 31]), "+f"(d[FIRST + 32]), "+f"(d[FIRST + 33]), "+f"(d[FIRST + 34]), "+f"(d[FIRST + 35]), "+f"(d[FIRST + 36]), "+f"(d[FIRST + 37]), "+f"(d[FIRST + 38]), "+f"(d[FIRST + 39]), "+f"(d[FIRST + 40]), "+f"(d[FIRST + 41]), "+f"(d[FIRST + 42]), "+f"(d[FIRST + 43]), "+f"(d[FIRST + 44]), "+f"(d[FIRST + 45]), "+f"(d[FIRST + 46]), "+f"(d[FIRST + 47]), "+f"(d[FIRST + 48]), "+f"(d[FIRST + 49]), "+f"(d[FIRST + 50]), "+f"(d[FIRST + 51]), "+f"(d[FIRST + 52]), "+f"(d[FIRST + 53]), "+f"(d[FIRST + 54]), "+f"(d[FIRST + 55]), "+f"(d[FIRST + 56]), "+f"(d[FIRST + 57]), "+f"(d[FIRST + 58]), "+f"(d[FIRST + 59]), "+f"(d[FIRST + 60]), "+f"(d[FIRST + 61]), "+f"(d[FIRST + 62]), "+f"(d[FIRST + 63]), "+f"(d[FIRST + 64]), "+f"(d[FIRST + 65]), "+f"(d[FIRST + 66]), "+f"(d[FIRST + 67]), "+f"(d[FIRST + 68]), "+f"(d[FIRST + 69]), "+f"(d[FIRST + 70]), "+f"(d[FIRST + 71]), "+f"(d[FIRST + 72]), "+f"(d[FIRST + 73]), "+f"(d[FIRST + 74]), "+f"(d[FIRST + 75]), "+f"(d[FIRST + 76]), "+f"(d[FIRST + 77]), "+f"(d[FIRST + 78]), "+f"(d[FIRST + 79]) : "l"(a), "l"(b), "r"(accumulate)); }
DEV void settle(float (&d)[80]) {
  asm volatile("" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]), "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]) :: "memory"); }
DEV void bulk_store_2d(u32 tile, const TensorMap* map, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%1, {%2, %3}], [%0];"
    :: "r"(tile), "l"(map), "r"(c0), "r"(c1) : "memory"); }
extern "C" __global__ void __launch_bounds__(384, 1)
k_gemm_promoted(
    const __grid_constant__ TensorMap map_0,
    const __grid_constant__ TensorMap map_1,
    const __grid_constant__ TensorMap map_2,
    const unsigned char* __restrict__ t_A,
    const unsigned char* __restrict__ t_B,
    u16* __restrict__ t_C) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const u32 base = (u32)__cvta_generic_to_shared(smem);
  const u32 warp_index = __shfl_sync(0xffffffffu, threadIdx.x / 32u, 0);
  const u32 warp_group = __shfl_sync(0xffffffffu, threadIdx.x / 128u, 0);
  const u32 lane = threadIdx.x % 32u;
  if (base & 1023u) asm volatile("trap;");
  if (threadIdx.x == 0u) {
    for (u32 i = 0u; i < 5u; ++i) {
      barrier_init(base + 225280u + 8u * i, 1u);
      barrier_init(base + 225320u + 8u * i, 8u);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (threadIdx.x == 32u) {
    prefetch_map(&map_0);
    prefetch_map(&map_1);
    prefetch_map(&map_2);
  }
  __syncthreads();
  if (warp_group < 1u) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (warp_index < 1u) {
      // role producer: warps 0 to 0
      const u32 warp = warp_index - 0u, thread = warp * 32u + lane;
      u32 p_A_B = 1u, s_A_B = 0u;
      #pragma unroll 1
      for (int v_tile = (int)blockIdx.x; v_tile < 1440; v_tile += (int)gridDim.x) {
        const int v_bx = ((v_tile % 360) / min(8, (32 - ((v_tile / 360) * 8))));
        const int v_by = (((v_tile / 360) * 8) + ((v_tile % 360) % min(8, (32 - ((v_tile / 360) * 8)))));
        #pragma unroll 1
        for (int v_ko = 0; v_ko < 17; ++v_ko) {
          wait(base + 225320u + 8u * s_A_B, p_A_B);
          if (elect()) {
            arrive_expect(base + 225280u + 8u * s_A_B, 36864u);
            bulk_load_2d(base + 0u + s_A_B * 16384u, &map_0, base + 225280u + 8u * s_A_B, (v_ko * 128), (v_by * 128));
            bulk_load_2d(base + 81920u + s_A_B * 20480u, &map_1, base + 225280u + 8u * s_A_B, (v_ko * 128), (v_bx * 160));
          }
          if (++s_A_B == 5u) { s_A_B = 0u; p_A_B ^= 1u; }
        }
      }
    }
  }
  else if (warp_group < 2u) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    {
      // role consumer_0: warps 4 to 7
      const u32 warp = warp_index - 4u, thread = warp * 32u + lane;
      u32 p_A_B = 0u, s_A_B = 0u;
      const u64 d_A_shared_k = 0x4000004000010000ull | (u64)(((base + 0u) & 0x3ffffu) >> 4);
      const u64 d_B_shared_k = 0x4000004000010000ull | (u64)(((base + 81920u) & 0x3ffffu) >> 4);
      #pragma unroll 1
      for (int v_tile = (int)blockIdx.x; v_tile < 1440; v_tile += (int)gridDim.x) {
        const int v_bx = ((v_tile % 360) / min(8, (32 - ((v_tile / 360) * 8))));
        const int v_by = (((v_tile / 360) * 8) + ((v_tile % 360) % min(8, (32 - ((v_tile / 360) * 8)))));
        float f_C_local_0[80];
        float f_C_part_0[80];
        #pragma unroll
        for (int x = 0; x < 80; ++x) f_C_local_0[x] = (float)((0.0f));
        #pragma unroll 1
        for (int v_ko = 0; v_ko < 17; ++v_ko) {
          wait(base + 225280u + 8u * s_A_B, p_A_B);
          {
            const u64 a = d_A_shared_k + (u64)(s_A_B * 1024u),
                      b = d_B_shared_k + (u64)(s_A_B * 1280u);
            mma_fence();
            mma_n160_e4m3_kk<0>(f_C_part_0, a + 0u, b + 0u, 0);
            mma_n160_e4m3_kk<0>(f_C_part_0, a + 2u, b + 2u, 1);
            mma_n160_e4m3_kk<0>(f_C_part_0, a + 4u, b + 4u, 1);
            mma_n160_e4m3_kk<0>(f_C_part_0, a + 6u, b + 6u, 1);
            mma_commit();
          }
          mma_wait<0>();
          settle(f_C_part_0);
          if (lane == 0u) arrive(base + 225320u + 8u * s_A_B);
          if (++s_A_B == 5u) { s_A_B = 0u; p_A_B ^= 1u; }
          {
            const int first = (0 + (int)(warp % 4u * 16u + lane / 4u));
            #pragma unroll
            for (int x = 0; x < 80; ++x) {
              const int v_i = first + 8 * (x >> 1 & 1);
              const int v_j = 8 * (x >> 2) + 2 * (int)(lane % 4u) + (x & 1);
              f_C_local_0[x] = (float)((f_C_local_0[x] + f_C_part_0[x]));
            }
          }
        }
        #pragma unroll
        for (int x = 0; x < 80; ++x) f_C_part_0[x] = (float)((0.0f));
        {
          const int first = (0 + (int)(warp % 4u * 16u + lane / 4u));
          #pragma unroll
          for (int x = 0; x < 80; ++x) {
            const int v_i = first + 8 * (x >> 1 & 1);
            const int v_j = 8 * (x >> 2) + 2 * (int)(lane % 4u) + (x & 1);
            f_C_local_0[x] = (float)((f_C_local_0[x] + f_C_part_0[x]));
          }
        }
        if (thread == 0u) store_wait_read();
        role_sync(1u, 128u);
        {
          const u32 row = 0u + warp % 4u * 16u + lane % 16u, half = lane / 16u * 16u;
          store_matrix(base + 184320u + tile_at<64, 8192, 3>(row, 0u + half), pack_bf16((float)f_C_local_0[0], (float)f_C_local_0[1]), pack_bf16((float)f_C_local_0[2], (float)f_C_local_0[3]), pack_bf16((float)f_C_local_0[4], (float)f_C_local_0[5]), pack_bf16((float)f_C_local_0[6], (float)f_C_local_0[7]));
          store_matrix(base + 184320u + tile_at<64, 8192, 3>(row, 32u + half), pack_bf16((float)f_C_local_0[8], (float)f_C_local_0[9]), pack_bf16((float)f_C_local_0[10], (float)f_C_local_0[11]), pack_bf16((float)f_C_local_0[12], (float)f_C_local_0[13]), pack_bf16((float)f_C_local_0[14], (float)f_C_local_0[15]));
          store_matrix(base + 184320u + tile_at<64, 8192, 3>(row, 64u + half), pack_bf16((float)f_C_local_0[16], (float)f_C_local_0[17]), pack_bf16((float)f_C_local_0[18], (float)f_C_local_0[19]), pack_bf16((float)f_C_local_0[20], (float)f_C_local_0[21]), pack_bf16((float)f_C_local_0[22], (float)f_C_local_0[23]));
          store_matrix(base + 184320u + tile_at<64, 8192, 3>(row, 96u + half), pack_bf16((float)f_C_local_0[24], (float)f_C_local_0[25]), pack_bf16((float)f_C_local_0[26], (float)f_C_local_0[27]), pack_bf16((float)f_C_local_0[28], (float)f_C_local_0[29]), pack_bf16((float)f_C_local_0[30], (float)f_C_local_0[31]));
          store_matrix(base + 184320u + tile_at<64, 8192, 3>(row, 128u + half), pack_bf16((float)f_C_local_0[32], (float)f_C_local_0[33]), pack_bf16((float)f_C_local_0[34], (float)f_C_local_0[35]), pack_bf16((float)f_C_local_0[36], (float)f_C_local_0[37]), pack_bf16((float)f_C_local_0[38], (float)f_C_local_0[39]));
          store_matrix(base + 184320u + tile_at<64, 8192, 3>(row, 160u + half), pack_bf16((float)f_C_local_0[40], (float)f_C_local_0[41]), pack_bf16((float)f_C_local_0[42], (float)f_C_local_0[43]), pack_bf16((float)f_C_local_0[44], (float)f_C_local_0[45]), pack_bf16((float)f_C_local_0[46], (float)f_C_local_0[47]));
          store_matrix(base + 184320u + tile_at<64, 8192, 3>(row, 192u + half), pack_bf16((float)f_C_local_0[48], (float)f_C_local_0[49]), pack_bf16((float)f_C_local_0[50], (float)f_C_local_0[51]), pack_bf16((float)f_C_local_0[52], (float)f_C_local_0[53]), pack_bf16((float)f_C_local_0[54], (float)f_C_local_0[55]));
          store_matrix(base + 184320u + tile_at<64, 8192, 3>(row, 224u + half), pack_bf16((float)f_C_local_0[56], (float)f_C_local_0[57]), pack_bf16((float)f_C_local_0[58], (float)f_C_local_0[59]), pack_bf16((float)f_C_local_0[60], (float)f_C_local_0[61]), pack_bf16((float)f_C_local_0[62], (float)f_C_local_0[63]));
          store_matrix(base + 184320u + tile_at<64, 8192, 3>(row, 256u + half), pack_bf16((float)f_C_local_0[64], (float)f_C_local_0[65]), pack_bf16((float)f_C_local_0[66], (float)f_C_local_0[67]), pack_bf16((float)f_C_local_0[68], (float)f_C_local_0[69]), pack_bf16((float)f_C_local_0[70], (float)f_C_local_0[71]));
          store_matrix(base + 184320u + tile_at<64, 8192, 3>(row, 288u + half), pack_bf16((float)f_C_local_0[72], (float)f_C_local_0[73]), pack_bf16((float)f_C_local_0[74], (float)f_C_local_0[75]), pack_bf16((float)f_C_local_0[76], (float)f_C_local_0[77]), pack_bf16((float)f_C_local_0[78], (float)f_C_local_0[79]));
        }
        fence_async();
        role_sync(1u, 128u);
        if (thread == 0u) {
          bulk_store_2d(base + 184320u, &map_2, (v_bx * 160), (v_by * 128));
          bulk_store_2d(base + 184320u + 8192u, &map_2, ((v_bx * 160) + 32), (v_by * 128));
          bulk_store_2d(base + 184320u + 16384u, &map_2, ((v_bx * 160) + 64), (v_by * 128));
          bulk_store_2d(base + 184320u + 24576u, &map_2, ((v_bx * 160) + 96), (v_by * 128));
          bulk_store_2d(base + 184320u + 32768u, &map_2, ((v_bx * 160) + 128), (v_by * 128));
          store_commit();
        }
      }
      if (thread == 0u) store_wait();
    }
  }
  else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    {
      // role consumer_1: warps 8 to 11
      const u32 warp = warp_index - 8u, thread = warp * 32u + lane;
      u32 p_A_B = 0u, s_A_B = 0u;
      const u64 d_A_shared_k = 0x4000004000010000ull | (u64)(((base + 0u) & 0x3ffffu) >> 4);
      const u64 d_B_shared_k = 0x4000004000010000ull | (u64)(((base + 81920u) & 0x3ffffu) >> 4);
      #pragma unroll 1
      for (int v_tile = (int)blockIdx.x; v_tile < 1440; v_tile += (int)gridDim.x) {
        const int v_bx = ((v_tile % 360) / min(8, (32 - ((v_tile / 360) * 8))));
        const int v_by = (((v_tile / 360) * 8) + ((v_tile % 360) % min(8, (32 - ((v_tile / 360) * 8)))));
        float f_C_local_0[80];
        float f_C_part_0[80];
        #pragma unroll
        for (int x = 0; x < 80; ++x) f_C_local_0[x] = (float)((0.0f));
        #pragma unroll 1
        for (int v_ko = 0; v_ko < 17; ++v_ko) {
          wait(base + 225280u + 8u * s_A_B, p_A_B);
          {
            const u64 a = d_A_shared_k + (u64)(s_A_B * 1024u) + 512u,
                      b = d_B_shared_k + (u64)(s_A_B * 1280u);
            mma_fence();
            mma_n160_e4m3_kk<0>(f_C_part_0, a + 0u, b + 0u, 0);
            mma_n160_e4m3_kk<0>(f_C_part_0, a + 2u, b + 2u, 1);
            mma_n160_e4m3_kk<0>(f_C_part_0, a + 4u, b + 4u, 1);
            mma_n160_e4m3_kk<0>(f_C_part_0, a + 6u, b + 6u, 1);
            mma_commit();
          }
          mma_wait<0>();
          settle(f_C_part_0);
          if (lane == 0u) arrive(base + 225320u + 8u * s_A_B);
          if (++s_A_B == 5u) { s_A_B = 0u; p_A_B ^= 1u; }
          {
            const int first = (0 + (int)(warp % 4u * 16u + lane / 4u));
            #pragma unroll
            for (int x = 0; x < 80; ++x) {
              const int v_i = first + 8 * (x >> 1 & 1);
              const int v_j = 8 * (x >> 2) + 2 * (int)(lane % 4u) + (x & 1);
              f_C_local_0[x] = (float)((f_C_local_0[x] + f_C_part_0[x]));
            }
          }
        }
        #pragma unroll
        for (int x = 0; x < 80; ++x) f_C_part_0[x] = (float)((0.0f));
        {
          const int first = (0 + (int)(warp % 4u * 16u + lane / 4u));
          #pragma unroll
          for (int x = 0; x < 80; ++x) {
            const int v_i = first + 8 * (x >> 1 & 1);
            const int v_j = 8 * (x >> 2) + 2 * (int)(lane % 4u) + (x & 1);
            f_C_local_0[x] = (float)((f_C_local_0[x] + f_C_part_0[x]));
          }
        }
        if (thread == 0u) store_wait_read();
        role_sync(2u, 128u);
        {
          const u32 row = 0u + warp % 4u * 16u + lane % 16u, half = lane / 16u * 16u;
          store_matrix(base + 184320u + 4096u + tile_at<64, 8192, 3>(row, 0u + half), pack_bf16((float)f_C_local_0[0], (float)f_C_local_0[1]), pack_bf16((float)f_C_local_0[2], (float)f_C_local_0[3]), pack_bf16((float)f_C_local_0[4], (float)f_C_local_0[5]), pack_bf16((float)f_C_local_0[6], (float)f_C_local_0[7]));
          store_matrix(base + 184320u + 4096u + tile_at<64, 8192, 3>(row, 32u + half), pack_bf16((float)f_C_local_0[8], (float)f_C_local_0[9]), pack_bf16((float)f_C_local_0[10], (float)f_C_local_0[11]), pack_bf16((float)f_C_local_0[12], (float)f_C_local_0[13]), pack_bf16((float)f_C_local_0[14], (float)f_C_local_0[15]));
          store_matrix(base + 184320u + 4096u + tile_at<64, 8192, 3>(row, 64u + half), pack_bf16((float)f_C_local_0[16], (float)f_C_local_0[17]), pack_bf16((float)f_C_local_0[18], (float)f_C_local_0[19]), pack_bf16((float)f_C_local_0[20], (float)f_C_local_0[21]), pack_bf16((float)f_C_local_0[22], (float)f_C_local_0[23]));
          store_matrix(base + 184320u + 4096u + tile_at<64, 8192, 3>(row, 96u + half), pack_bf16((float)f_C_local_0[24], (float)f_C_local_0[25]), pack_bf16((float)f_C_local_0[26], (float)f_C_local_0[27]), pack_bf16((float)f_C_local_0[28], (float)f_C_local_0[29]), pack_bf16((float)f_C_local_0[30], (float)f_C_local_0[31]));
          store_matrix(base + 184320u + 4096u + tile_at<64, 8192, 3>(row, 128u + half), pack_bf16((float)f_C_local_0[32], (float)f_C_local_0[33]), pack_bf16((float)f_C_local_0[34], (float)f_C_local_0[35]), pack_bf16((float)f_C_local_0[36], (float)f_C_local_0[37]), pack_bf16((float)f_C_local_0[38], (float)f_C_local_0[39]));
          store_matrix(base + 184320u + 4096u + tile_at<64, 8192, 3>(row, 160u + half), pack_bf16((float)f_C_local_0[40], (float)f_C_local_0[41]), pack_bf16((float)f_C_local_0[42], (float)f_C_local_0[43]), pack_bf16((float)f_C_local_0[44], (float)f_C_local_0[45]), pack_bf16((float)f_C_local_0[46], (float)f_C_local_0[47]));
          store_matrix(base + 184320u + 4096u + tile_at<64, 8192, 3>(row, 192u + half), pack_bf16((float)f_C_local_0[48], (float)f_C_local_0[49]), pack_bf16((float)f_C_local_0[50], (float)f_C_local_0[51]), pack_bf16((float)f_C_local_0[52], (float)f_C_local_0[53]), pack_bf16((float)f_C_local_0[54], (float)f_C_local_0[55]));
          store_matrix(base + 184320u + 4096u + tile_at<64, 8192, 3>(row, 224u + half), pack_bf16((float)f_C_local_0[56], (float)f_C_local_0[57]), pack_bf16((float)f_C_local_0[58], (float)f_C_local_0[59]), pack_bf16((float)f_C_local_0[60], (float)f_C_local_0[61]), pack_bf16((float)f_C_local_0[62], (float)f_C_local_0[63]));
          store_matrix(base + 184320u + 4096u + tile_at<64, 8192, 3>(row, 256u + half), pack_bf16((float)f_C_local_0[64], (float)f_C_local_0[65]), pack_bf16((float)f_C_local_0[66], (float)f_C_local_0[67]), pack_bf16((float)f_C_local_0[68], (float)f_C_local_0[69]), pack_bf16((float)f_C_local_0[70], (float)f_C_local_0[71]));
          store_matrix(base + 184320u + 4096u + tile_at<64, 8192, 3>(row, 288u + half), pack_bf16((float)f_C_local_0[72], (float)f_C_local_0[73]), pack_bf16((float)f_C_local_0[74], (float)f_C_local_0[75]), pack_bf16((float)f_C_local_0[76], (float)f_C_local_0[77]), pack_bf16((float)f_C_local_0[78], (float)f_C_local_0[79]));
        }
        fence_async();
        role_sync(2u, 128u);
        if (thread == 0u) {
          bulk_store_2d(base + 184320u + 4096u, &map_2, (v_bx * 160), ((v_by * 128) + 64));
          bulk_store_2d(base + 184320u + 4096u + 8192u, &map_2, ((v_bx * 160) + 32), ((v_by * 128) + 64));
          bulk_store_2d(base + 184320u + 4096u + 16384u, &map_2, ((v_bx * 160) + 64), ((v_by * 128) + 64));
          bulk_store_2d(base + 184320u + 4096u + 24576u, &map_2, ((v_bx * 160) + 96), ((v_by * 128) + 64));
          bulk_store_2d(base + 184320u + 4096u + 32768u, &map_2, ((v_bx * 160) + 128), ((v_by * 128) + 64));
          store_commit();
        }
      }
      if (thread == 0u) store_wait();
    }
  }
}
