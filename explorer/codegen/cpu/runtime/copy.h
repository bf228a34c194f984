/* Copies of a tile of a tensor of IN into a slot of NUM: widened, and 0 where the tile leaves the tensor.
   The tile is rows x cols at (r0, c0) of a matrix of nr x nc with row stride lds; the slot's row stride is ldd.

   Invariant: every element of the slot's tile is written. A tile inside the tensor takes one test. */
EX_INLINE void ex_copy_IN_NUM(const long rows, const long cols, NUM_T *restrict dst, const long ldd,
                              const IN_T *restrict src, const long lds, const long r0, const long c0,
                              const long nr, const long nc) {
    if (cols % W_NUM == 0 && r0 >= 0 && c0 >= 0 && r0 + rows <= nr && c0 + cols <= nc) {
        src += r0 * lds + c0;
        for (long r = 0; r < rows; r++)
            EX_UNROLL(4) for (long c = 0; c < cols; c += W_NUM)
                *(loose_NUM *)(dst + r * ldd + c) = ex_load_IN_NUM(src + r * lds + c);
        return;
    }
    for (long r = 0; r < rows; r++) {
        const long row = r0 + r, inside = row >= 0 && row < nr;
        const long low = inside ? ex_clip(-c0, 0, cols) : 0, high = inside ? ex_clip(nc - c0, low, cols) : 0;
        const IN_T *from = src + row * lds + c0;
        NUM_T *to = dst + r * ldd;
        long c = 0;
        for (; c < low; c++) to[c] = 0;
        for (; c + W_NUM <= high; c += W_NUM) *(loose_NUM *)(to + c) = ex_load_IN_NUM(from + c);
        for (; c < high; c++) to[c] = ex_NUM_from_IN(from[c]);
        for (; c < cols; c++) to[c] = 0;
    }
}
/* The same with the slot's tile turned: dst[c][r] = src[r][c]. */
EX_INLINE void ex_copy_turned_IN_NUM(const long rows, const long cols, NUM_T *restrict dst, const long ldd,
                                     const IN_T *restrict src, const long lds, const long r0, const long c0,
                                     const long nr, const long nc) {
    for (long r = 0; r < rows; r += W_NUM)
        for (long c = 0; c < cols; c += W_NUM) {
            const long row = r0 + r, col = c0 + c;
            const IN_T *from = src + row * lds + col;
            if (row >= 0 && col >= 0 && row + W_NUM <= nr && col + W_NUM <= nc && r + W_NUM <= rows &&
                c + W_NUM <= cols) {
                vec_NUM v[W_NUM];
                EX_UNROLL(16) for (int i = 0; i < W_NUM; i++) v[i] = ex_load_IN_NUM(from + i * lds);
                ex_turn_NUM(v);
                EX_UNROLL(16) for (int i = 0; i < W_NUM; i++) *(loose_NUM *)(dst + (c + i) * ldd + r) = v[i];
                continue;
            }
            for (long j = 0; j < W_NUM && c + j < cols; j++)
                for (long i = 0; i < W_NUM && r + i < rows; i++) {
                    const int inside = row + i >= 0 && row + i < nr && col + j >= 0 && col + j < nc;
                    dst[(c + j) * ldd + r + i] = inside ? ex_NUM_from_IN(from[i * lds + j]) : 0;
                }
        }
}
