extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384, 1)
k_gemm(
    const __grid_constant__ TensorMap map_0,
    const __grid_constant__ TensorMap map_1,
    const u16* __restrict__ t_A,
    const u16* __restrict__ t_B,
    u16* __restrict__ t_C) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const u32 base = (u32)__cvta_generic_to_shared(smem);
  const u32 warp_index = __shfl_sync(0xffffffffu, threadIdx.x / 32u, 0);
  const u32 warp_group = __shfl_sync(0xffffffffu, threadIdx.x / 128u, 0);
  const u32 lane = threadIdx.x % 32u;
  if (base & 1023u) asm volatile("trap;");
  if (threadIdx.x == 0u) {
    for (u32 i = 0u; i < 2u; ++i) {
      barrier_init(base + 24576u + 8u * i, 1u);
      barrier_init(base + 24592u + 8u * i, 16u);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (threadIdx.x == 32u) {
    prefetch_map(&map_0);
    prefetch_map(&map_1);
  }
  cluster_sync();
  if (warp_group < 1u) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
    if (warp_index < 1u) {
      // role producer: warps 0 to 0
      const u32 warp = warp_index - 0u, thread = warp * 32u + lane;
      u32 p_A_B = 1u, s_A_B = 0u;
      #pragma unroll 1
      for (int v_tile = (int)blockIdx.x; v_tile < 6; v_tile += (int)gridDim.x) {
        const int v_bx = ((v_tile / 2) % 3);
        const int v_by = (v_tile % 2);
        #pragma unroll 1
        for (int v_ko = 0; v_ko < 4; ++v_ko) {
          wait(base + 24592u + 8u * s_A_B, p_A_B);
          if (elect()) {
            arrive_expect(base + 24576u + 8u * s_A_B, 12288u);
            bulk_load_2d(base + 0u + s_A_B * 8192u, &map_0, base + 24576u + 8u * s_A_B, (v_ko * 32), (v_by * 128));
            bulk_load_2d_to_2(base + 16384u + s_A_B * 4096u + (u32)(32 * (v_tile % 2)) * 64u, &map_1, base + 24576u + 8u * s_A_B, (v_ko * 32), ((v_bx * 64) + (32 * (v_tile % 2))));
          }
          if (++s_A_B == 2u) { s_A_B = 0u; p_A_B ^= 1u; }
        }
      }
    }
  }
  else if (warp_group < 2u) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 168;");
    {
      // role consumer_0: warps 4 to 7
      const u32 warp = warp_index - 4u, thread = warp * 32u + lane;
      u32 p_A_B = 0u, s_A_B = 0u;
      const u64 d_A_shared_k = 0x8000002000010000ull | (u64)(((base + 0u) & 0x3ffffu) >> 4);
      const u64 d_B_shared_k = 0x8000002000010000ull | (u64)(((base + 16384u) & 0x3ffffu) >> 4);
      #pragma unroll 1
      for (int v_tile = (int)blockIdx.x; v_tile < 6; v_tile += (int)gridDim.x) {
        const int v_bx = ((v_tile / 2) % 3);
        const int v_by = (v_tile % 2);
        float f_C_local_0[32];
        wait(base + 24576u + 8u * s_A_B, p_A_B);
        {
          const u64 a = d_A_shared_k + (u64)(s_A_B * 512u),
                    b = d_B_shared_k + (u64)(s_A_B * 256u);
          mma_fence();
          mma_n64_bf16_kk<0>(f_C_local_0, a + 0u, b + 0u, 0);
          mma_n64_bf16_kk<0>(f_C_local_0, a + 2u, b + 2u, 1);
          mma_commit();
        }
        mma_wait<0>();
        settle(f_C_local_0);
        if (lane < 2u) arrive_at(base + 24592u + 8u * s_A_B, lane);
        if (++s_A_B == 2u) { s_A_B = 0u; p_A_B ^= 1u; }
        #pragma unroll 1
        for (int v_ko = 1; v_ko < 4; ++v_ko) {
          wait(base + 24576u + 8u * s_A_B, p_A_B);
          {
            const u64 a = d_A_shared_k + (u64)(s_A_B * 512u),
                      b = d_B_shared_k + (u64)(s_A_B * 256u);
            mma_fence();
            mma_n64_bf16_kk<0>(f_C_local_0, a + 0u, b + 0u, 1);
            mma_n64_bf16_kk<0>(f_C_local_0, a + 2u, b + 2u, 1);
            mma_commit();
          }
          mma_wait<0>();
          settle(f_C_local_0);
          if (lane < 2u) arrive_at(base + 24592u + 8u * s_A_B, lane);
          if (++s_A_B == 2u) { s_A_B = 0u; p_A_B ^= 1u; }
        }
        {
          const int row = (int)(0u + warp % 4u * 16u + lane / 4u);
          const int column = (int)(lane % 4u) * 2;
          u16* at = (t_C + (long long)(v_by * 128) * 192ll + (v_bx * 64)) + row * 192ll + column;
          #pragma unroll
          for (int j = 0; j < 8; ++j) {
            *(u32*)&at[8 * j] = pack_bf16((float)f_C_local_0[4 * j + 0], (float)f_C_local_0[4 * j + 1]);
            *(u32*)&at[8 * 192ll + 8 * j] = pack_bf16((float)f_C_local_0[4 * j + 2], (float)f_C_local_0[4 * j + 3]);
          }
        }
      }
    }
  }
  else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 168;");
    {
      // role consumer_1: warps 8 to 11
      const u32 warp = warp_index - 8u, thread = warp * 32u + lane;
      u32 p_A_B = 0u, s_A_B = 0u;
      const u64 d_A_shared_k = 0x8000002000010000ull | (u64)(((base + 0u) & 0x3ffffu) >> 4);
      const u64 d_B_shared_k = 0x8000002000010000ull | (u64)(((base + 16384u) & 0x3ffffu) >> 4);
      #pragma unroll 1
      for (int v_tile = (int)blockIdx.x; v_tile < 6; v_tile += (int)gridDim.x) {
        const int v_bx = ((v_tile / 2) % 3);
        const int v_by = (v_tile % 2);
        float f_C_local_0[32];
        wait(base + 24576u + 8u * s_A_B, p_A_B);
        {
          const u64 a = d_A_shared_k + (u64)(s_A_B * 512u) + 256u,
                    b = d_B_shared_k + (u64)(s_A_B * 256u);
          mma_fence();
          mma_n64_bf16_kk<0>(f_C_local_0, a + 0u, b + 0u, 0);
          mma_n64_bf16_kk<0>(f_C_local_0, a + 2u, b + 2u, 1);
          mma_commit();
        }
        mma_wait<0>();
        settle(f_C_local_0);
        if (lane < 2u) arrive_at(base + 24592u + 8u * s_A_B, lane);
        if (++s_A_B == 2u) { s_A_B = 0u; p_A_B ^= 1u; }
        #pragma unroll 1
        for (int v_ko = 1; v_ko < 4; ++v_ko) {
          wait(base + 24576u + 8u * s_A_B, p_A_B);
          {
            const u64 a = d_A_shared_k + (u64)(s_A_B * 512u) + 256u,
                      b = d_B_shared_k + (u64)(s_A_B * 256u);
            mma_fence();
            mma_n64_bf16_kk<0>(f_C_local_0, a + 0u, b + 0u, 1);
            mma_n64_bf16_kk<0>(f_C_local_0, a + 2u, b + 2u, 1);
            mma_commit();
          }
          mma_wait<0>();
          settle(f_C_local_0);
          if (lane < 2u) arrive_at(base + 24592u + 8u * s_A_B, lane);
          if (++s_A_B == 2u) { s_A_B = 0u; p_A_B ^= 1u; }
        }
        {
          const int row = (int)(0u + warp % 4u * 16u + lane / 4u);
          const int column = (int)(lane % 4u) * 2;
          u16* at = (t_C + (long long)((v_by * 128) + 64) * 192ll + (v_bx * 64)) + row * 192ll + column;
          #pragma unroll
          for (int j = 0; j < 8; ++j) {
            *(u32*)&at[8 * j] = pack_bf16((float)f_C_local_0[4 * j + 0], (float)f_C_local_0[4 * j + 1]);
            *(u32*)&at[8 * 192ll + 8 * j] = pack_bf16((float)f_C_local_0[4 * j + 2], (float)f_C_local_0[4 * j + 3]);
          }
        }
      }
    }
  }
  cluster_sync();
}
