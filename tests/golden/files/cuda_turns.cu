extern "C" __global__ void __launch_bounds__(384, 1)
k_gemm(
    const __grid_constant__ TensorMap map_0,
    const __grid_constant__ TensorMap map_1,
    const __grid_constant__ TensorMap map_2,
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
      barrier_init(base + 40960u + 8u * i, 1u);
      barrier_init(base + 40976u + 8u * i, 4u);
    }
    for (u32 i = 0u; i < 1u; ++i) {
      barrier_init(base + 40992u + 8u * i, 4u);
      barrier_init(base + 41000u + 8u * i, 4u);
    }
    for (u32 i = 0u; i < 1u; ++i) {
      barrier_init(base + 41008u + 8u * i, 4u);
      barrier_init(base + 41016u + 8u * i, 4u);
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
    asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
    if (warp_index < 1u) {
      // role producer: warps 0 to 0
      const u32 warp = warp_index - 0u, thread = warp * 32u + lane;
      u32 p_A_B = 1u, s_A_B = 0u;
      #pragma unroll 1
      for (int v_tile = (int)blockIdx.x; v_tile < 4; v_tile += (int)gridDim.x) {
        const int v_bx = (v_tile % 2);
        const int v_by = (v_tile / 2);
        #pragma unroll 1
        for (int v_ko = 0; v_ko < 4; ++v_ko) {
          wait(base + 40976u + 8u * s_A_B, p_A_B);
          if (elect()) {
            arrive_expect(base + 40960u + 8u * s_A_B, 12288u);
            bulk_load_2d(base + 0u + s_A_B * 8192u, &map_0, base + 40960u + 8u * s_A_B, (v_ko * 32), (v_by * 128));
            bulk_load_2d(base + 16384u + s_A_B * 4096u, &map_1, base + 40960u + 8u * s_A_B, (v_ko * 32), (v_bx * 64));
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
      u32 p_order_ko = 1u;
      u32 p_A_B = 0u, s_A_B = 0u, r_A_B = 0u;
      u32 p_C_staging = 1u;
      const u64 d_A_shared_k = 0x8000002000010000ull | (u64)(((base + 0u) & 0x3ffffu) >> 4);
      const u64 d_B_shared_k = 0x8000002000010000ull | (u64)(((base + 16384u) & 0x3ffffu) >> 4);
      #pragma unroll 1
      for (int v_tile = (int)blockIdx.x; v_tile < 4; v_tile += 2 * (int)gridDim.x) {
        const int v_bx = (v_tile % 2);
        const int v_by = (v_tile / 2);
        float f_C_local_0[32];
        float f_C_local_1[32];
        wait(base + 41000u, p_order_ko);
        wait(base + 40960u + 8u * s_A_B, p_A_B);
        {
          const u64 a = d_A_shared_k + (u64)(s_A_B * 512u),
                    b = d_B_shared_k + (u64)(s_A_B * 256u);
          mma_fence();
          mma_n64_bf16_kk<0>(f_C_local_0, a + 0u, b + 0u, 0);
          mma_n64_bf16_kk<0>(f_C_local_1, a + 256u, b + 0u, 0);
          mma_n64_bf16_kk<0>(f_C_local_0, a + 2u, b + 2u, 1);
          mma_n64_bf16_kk<0>(f_C_local_1, a + 258u, b + 2u, 1);
          mma_commit();
        }
        if (++s_A_B == 2u) { s_A_B = 0u; p_A_B ^= 1u; }
        mma_wait<1>();
        #pragma unroll 1
        for (int v_ko = 1; v_ko < 4; ++v_ko) {
          wait(base + 40960u + 8u * s_A_B, p_A_B);
          {
            const u64 a = d_A_shared_k + (u64)(s_A_B * 512u),
                      b = d_B_shared_k + (u64)(s_A_B * 256u);
            mma_fence();
            mma_n64_bf16_kk<0>(f_C_local_0, a + 0u, b + 0u, 1);
            mma_n64_bf16_kk<0>(f_C_local_1, a + 256u, b + 0u, 1);
            mma_n64_bf16_kk<0>(f_C_local_0, a + 2u, b + 2u, 1);
            mma_n64_bf16_kk<0>(f_C_local_1, a + 258u, b + 2u, 1);
            mma_commit();
          }
          if (++s_A_B == 2u) { s_A_B = 0u; p_A_B ^= 1u; }
          mma_wait<1>();
          if (lane == 0u) arrive(base + 40976u + 8u * r_A_B);
          if (++r_A_B == 2u) r_A_B = 0u;
        }
        __syncwarp();
        if (lane == 0u) arrive(base + 40992u);
        p_order_ko ^= 1u;
        mma_wait<0>();
        settle(f_C_local_0);
        settle(f_C_local_1);
        if (lane == 0u) arrive(base + 40976u + 8u * r_A_B);
        if (++r_A_B == 2u) r_A_B = 0u;
        wait(base + 41016u, p_C_staging);
        {
          const u32 row = 0u + warp % 4u * 16u + lane % 16u, half = lane / 16u * 16u;
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 0u + half), pack_bf16((float)f_C_local_0[0], (float)f_C_local_0[1]), pack_bf16((float)f_C_local_0[2], (float)f_C_local_0[3]), pack_bf16((float)f_C_local_0[4], (float)f_C_local_0[5]), pack_bf16((float)f_C_local_0[6], (float)f_C_local_0[7]));
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 32u + half), pack_bf16((float)f_C_local_0[8], (float)f_C_local_0[9]), pack_bf16((float)f_C_local_0[10], (float)f_C_local_0[11]), pack_bf16((float)f_C_local_0[12], (float)f_C_local_0[13]), pack_bf16((float)f_C_local_0[14], (float)f_C_local_0[15]));
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 64u + half), pack_bf16((float)f_C_local_0[16], (float)f_C_local_0[17]), pack_bf16((float)f_C_local_0[18], (float)f_C_local_0[19]), pack_bf16((float)f_C_local_0[20], (float)f_C_local_0[21]), pack_bf16((float)f_C_local_0[22], (float)f_C_local_0[23]));
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 96u + half), pack_bf16((float)f_C_local_0[24], (float)f_C_local_0[25]), pack_bf16((float)f_C_local_0[26], (float)f_C_local_0[27]), pack_bf16((float)f_C_local_0[28], (float)f_C_local_0[29]), pack_bf16((float)f_C_local_0[30], (float)f_C_local_0[31]));
        }
        {
          const u32 row = 64u + warp % 4u * 16u + lane % 16u, half = lane / 16u * 16u;
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 0u + half), pack_bf16((float)f_C_local_1[0], (float)f_C_local_1[1]), pack_bf16((float)f_C_local_1[2], (float)f_C_local_1[3]), pack_bf16((float)f_C_local_1[4], (float)f_C_local_1[5]), pack_bf16((float)f_C_local_1[6], (float)f_C_local_1[7]));
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 32u + half), pack_bf16((float)f_C_local_1[8], (float)f_C_local_1[9]), pack_bf16((float)f_C_local_1[10], (float)f_C_local_1[11]), pack_bf16((float)f_C_local_1[12], (float)f_C_local_1[13]), pack_bf16((float)f_C_local_1[14], (float)f_C_local_1[15]));
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 64u + half), pack_bf16((float)f_C_local_1[16], (float)f_C_local_1[17]), pack_bf16((float)f_C_local_1[18], (float)f_C_local_1[19]), pack_bf16((float)f_C_local_1[20], (float)f_C_local_1[21]), pack_bf16((float)f_C_local_1[22], (float)f_C_local_1[23]));
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 96u + half), pack_bf16((float)f_C_local_1[24], (float)f_C_local_1[25]), pack_bf16((float)f_C_local_1[26], (float)f_C_local_1[27]), pack_bf16((float)f_C_local_1[28], (float)f_C_local_1[29]), pack_bf16((float)f_C_local_1[30], (float)f_C_local_1[31]));
        }
        fence_async();
        role_sync(1u, 128u);
        if (thread == 0u) {
          bulk_store_2d(base + 24576u, &map_2, (v_bx * 64), (v_by * 128));
          store_commit();
        }
        if (thread == 0u) store_wait_read();
        __syncwarp();
        if (lane == 0u) arrive(base + 41008u);
        p_C_staging ^= 1u;
      }
      if (thread == 0u) store_wait();
    }
  }
  else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 168;");
    {
      // role consumer_1: warps 8 to 11
      const u32 warp = warp_index - 8u, thread = warp * 32u + lane;
      u32 p_order_ko = 0u;
      u32 p_A_B = 0u, s_A_B = 0u, r_A_B = 0u;
      u32 p_C_staging = 0u;
      const u64 d_A_shared_k = 0x8000002000010000ull | (u64)(((base + 0u) & 0x3ffffu) >> 4);
      const u64 d_B_shared_k = 0x8000002000010000ull | (u64)(((base + 16384u) & 0x3ffffu) >> 4);
      #pragma unroll 1
      for (int v_tile = (int)blockIdx.x + 1 * (int)gridDim.x; v_tile < 4; v_tile += 2 * (int)gridDim.x) {
        const int v_bx = (v_tile % 2);
        const int v_by = (v_tile / 2);
        float f_C_local_0[32];
        float f_C_local_1[32];
        wait(base + 40992u, p_order_ko);
        wait(base + 40960u + 8u * s_A_B, p_A_B);
        {
          const u64 a = d_A_shared_k + (u64)(s_A_B * 512u),
                    b = d_B_shared_k + (u64)(s_A_B * 256u);
          mma_fence();
          mma_n64_bf16_kk<0>(f_C_local_0, a + 0u, b + 0u, 0);
          mma_n64_bf16_kk<0>(f_C_local_1, a + 256u, b + 0u, 0);
          mma_n64_bf16_kk<0>(f_C_local_0, a + 2u, b + 2u, 1);
          mma_n64_bf16_kk<0>(f_C_local_1, a + 258u, b + 2u, 1);
          mma_commit();
        }
        if (++s_A_B == 2u) { s_A_B = 0u; p_A_B ^= 1u; }
        mma_wait<1>();
        #pragma unroll 1
        for (int v_ko = 1; v_ko < 4; ++v_ko) {
          wait(base + 40960u + 8u * s_A_B, p_A_B);
          {
            const u64 a = d_A_shared_k + (u64)(s_A_B * 512u),
                      b = d_B_shared_k + (u64)(s_A_B * 256u);
            mma_fence();
            mma_n64_bf16_kk<0>(f_C_local_0, a + 0u, b + 0u, 1);
            mma_n64_bf16_kk<0>(f_C_local_1, a + 256u, b + 0u, 1);
            mma_n64_bf16_kk<0>(f_C_local_0, a + 2u, b + 2u, 1);
            mma_n64_bf16_kk<0>(f_C_local_1, a + 258u, b + 2u, 1);
            mma_commit();
          }
          if (++s_A_B == 2u) { s_A_B = 0u; p_A_B ^= 1u; }
          mma_wait<1>();
          if (lane == 0u) arrive(base + 40976u + 8u * r_A_B);
          if (++r_A_B == 2u) r_A_B = 0u;
        }
        if (lane == 0u) arrive(base + 41000u);
        p_order_ko ^= 1u;
        mma_wait<0>();
        settle(f_C_local_0);
        settle(f_C_local_1);
        if (lane == 0u) arrive(base + 40976u + 8u * r_A_B);
        if (++r_A_B == 2u) r_A_B = 0u;
        wait(base + 41008u, p_C_staging);
        {
          const u32 row = 0u + warp % 4u * 16u + lane % 16u, half = lane / 16u * 16u;
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 0u + half), pack_bf16((float)f_C_local_0[0], (float)f_C_local_0[1]), pack_bf16((float)f_C_local_0[2], (float)f_C_local_0[3]), pack_bf16((float)f_C_local_0[4], (float)f_C_local_0[5]), pack_bf16((float)f_C_local_0[6], (float)f_C_local_0[7]));
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 32u + half), pack_bf16((float)f_C_local_0[8], (float)f_C_local_0[9]), pack_bf16((float)f_C_local_0[10], (float)f_C_local_0[11]), pack_bf16((float)f_C_local_0[12], (float)f_C_local_0[13]), pack_bf16((float)f_C_local_0[14], (float)f_C_local_0[15]));
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 64u + half), pack_bf16((float)f_C_local_0[16], (float)f_C_local_0[17]), pack_bf16((float)f_C_local_0[18], (float)f_C_local_0[19]), pack_bf16((float)f_C_local_0[20], (float)f_C_local_0[21]), pack_bf16((float)f_C_local_0[22], (float)f_C_local_0[23]));
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 96u + half), pack_bf16((float)f_C_local_0[24], (float)f_C_local_0[25]), pack_bf16((float)f_C_local_0[26], (float)f_C_local_0[27]), pack_bf16((float)f_C_local_0[28], (float)f_C_local_0[29]), pack_bf16((float)f_C_local_0[30], (float)f_C_local_0[31]));
        }
        {
          const u32 row = 64u + warp % 4u * 16u + lane % 16u, half = lane / 16u * 16u;
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 0u + half), pack_bf16((float)f_C_local_1[0], (float)f_C_local_1[1]), pack_bf16((float)f_C_local_1[2], (float)f_C_local_1[3]), pack_bf16((float)f_C_local_1[4], (float)f_C_local_1[5]), pack_bf16((float)f_C_local_1[6], (float)f_C_local_1[7]));
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 32u + half), pack_bf16((float)f_C_local_1[8], (float)f_C_local_1[9]), pack_bf16((float)f_C_local_1[10], (float)f_C_local_1[11]), pack_bf16((float)f_C_local_1[12], (float)f_C_local_1[13]), pack_bf16((float)f_C_local_1[14], (float)f_C_local_1[15]));
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 64u + half), pack_bf16((float)f_C_local_1[16], (float)f_C_local_1[17]), pack_bf16((float)f_C_local_1[18], (float)f_C_local_1[19]), pack_bf16((float)f_C_local_1[20], (float)f_C_local_1[21]), pack_bf16((float)f_C_local_1[22], (float)f_C_local_1[23]));
          store_matrix(base + 24576u + tile_at<128, 16384, 7>(row, 96u + half), pack_bf16((float)f_C_local_1[24], (float)f_C_local_1[25]), pack_bf16((float)f_C_local_1[26], (float)f_C_local_1[27]), pack_bf16((float)f_C_local_1[28], (float)f_C_local_1[29]), pack_bf16((float)f_C_local_1[30], (float)f_C_local_1[31]));
        }
        fence_async();
        role_sync(2u, 128u);
        if (thread == 0u) {
          bulk_store_2d(base + 24576u, &map_2, (v_bx * 64), (v_by * 128));
          store_commit();
        }
        if (thread == 0u) store_wait_read();
        __syncwarp();
        if (lane == 0u) arrive(base + 41016u);
        p_C_staging ^= 1u;
      }
      if (thread == 0u) store_wait();
    }
  }
}
