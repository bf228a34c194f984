/* Vectors of NUM (NUM_T) and the register-blocked multiply on them. NUM stands for f32 or f64.

   Invariant: all arguments but pointers and live extents are constants at every call, so that after inlining
   the accumulators are registers. */
enum { W_NUM = EX_VECTOR_BYTES / sizeof(NUM_T) };
typedef NUM_T vec_NUM __attribute__((vector_size(EX_VECTOR_BYTES), may_alias));
typedef NUM_T loose_NUM __attribute__((vector_size(EX_VECTOR_BYTES), aligned(sizeof(NUM_T)), may_alias));

/* c[mr][nv vectors] += a (mr x k, strides ai, ak) * b (k rows of stride bk). b and c are vector-aligned. */
EX_INLINE void ex_block_NUM(const int mr, const int nv, const long ai, const long ak, const long bk,
                            const long ldc, const long k_live, const NUM_T *restrict a,
                            const NUM_T *restrict b, NUM_T *restrict c) {
    vec_NUM acc[EX_MR_MAX][EX_NV_MAX];
    EX_UNROLL(16) for (int i = 0; i < mr; i++)
        EX_UNROLL(8) for (int j = 0; j < nv; j++) acc[i][j] = *(const vec_NUM *)(c + i * ldc + j * W_NUM);
    EX_UNROLL(4) for (long k = 0; k < k_live; k++) {
        vec_NUM bv[EX_NV_MAX];
        EX_UNROLL(8) for (int j = 0; j < nv; j++) bv[j] = *(const vec_NUM *)(b + k * bk + j * W_NUM);
        EX_UNROLL(16) for (int i = 0; i < mr; i++)
            EX_UNROLL(8) for (int j = 0; j < nv; j++) acc[i][j] += a[i * ai + k * ak] * bv[j];
    }
    EX_UNROLL(16) for (int i = 0; i < mr; i++)
        EX_UNROLL(8) for (int j = 0; j < nv; j++) *(vec_NUM *)(c + i * ldc + j * W_NUM) = acc[i][j];
}
/* c (m x n) += a (m x k_live) * b (k_live x n) by blocks of mr rows and nr columns, which divide m and n.
   Blocks wholly outside m_live x n_live are left out. Rows outside: a panel of a stays in L1, b streams from L2. */
EX_INLINE void ex_gemm_NUM(const int m, const int n, const int mr, const int nr, const long ai, const long ak,
                           const long bk, const long ldc, const long m_live, const long n_live,
                           const long k_live, const NUM_T *a, const NUM_T *b, NUM_T *c) {
    for (int i = 0; i < m && i < m_live; i += mr)
        for (int j = 0; j < n && j < n_live; j += nr)
            ex_block_NUM(mr, nr / W_NUM, ai, ak, bk, ldc, k_live, a + i * ai, b + j, c + i * ldc + j);
}

/* W x W transpose in log2 W exchanges: bit b of the row changes places with bit b of the column. */
#define EX_LOW_NUM(j, b) ((j) & (b) ? W_NUM + (j) - (b) : (j))
#define EX_HIGH_NUM(j, b) ((j) & (b) ? W_NUM + (j) : (j) + (b))
#if EX_VECTOR_BYTES / NUM_BYTES == 16
#define EX_LANES_NUM EX_LANES_16
#elif EX_VECTOR_BYTES / NUM_BYTES == 8
#define EX_LANES_NUM EX_LANES_8
#elif EX_VECTOR_BYTES / NUM_BYTES == 4
#define EX_LANES_NUM EX_LANES_4
#else
#define EX_LANES_NUM EX_LANES_2
#endif
typedef NUM_INT_T mask_NUM __attribute__((vector_size(EX_VECTOR_BYTES)));
#define EX_EXCHANGE_NUM(b)                                                                       \
    if ((b) < W_NUM) EX_UNROLL(16) for (int i = 0; i < W_NUM; i++) if (!(i & (b))) {             \
        const vec_NUM x = v[i], y = v[(i + (b)) % W_NUM];                                        \
        v[i] = EX_SHUFFLE(mask_NUM, x, y, EX_LANES_NUM(EX_LOW_NUM, (b) % W_NUM, 0));             \
        v[(i + (b)) % W_NUM] = EX_SHUFFLE(mask_NUM, x, y, EX_LANES_NUM(EX_HIGH_NUM, (b) % W_NUM, 0)); \
    }
EX_INLINE void ex_turn_NUM(vec_NUM v[W_NUM]) {
    EX_EXCHANGE_NUM(8) EX_EXCHANGE_NUM(4) EX_EXCHANGE_NUM(2) EX_EXCHANGE_NUM(1)
}
