/* The store of a tile of NUM to a tensor of OUT: rounded, and clipped to the tensor. Arguments as in copy.h. */
EX_INLINE void ex_store_NUM_OUT(const long rows, const long cols, const NUM_T *restrict src, const long lds,
                                OUT_T *restrict dst, const long ldd, const long r0, const long c0,
                                const long nr, const long nc) {
    const long top = ex_clip(-r0, 0, rows), bottom = ex_clip(nr - r0, top, rows);
    if (c0 >= 0 && c0 + cols <= nc) {
        for (long r = top; r < bottom; r++)
            for (long c = 0; c < cols; c++) dst[(r0 + r) * ldd + c0 + c] = ex_OUT_from_NUM(src[r * lds + c]);
        return;
    }
    const long low = ex_clip(-c0, 0, cols), high = ex_clip(nc - c0, low, cols);
    for (long r = top; r < bottom; r++)
        for (long c = low; c < high; c++) dst[(r0 + r) * ldd + c0 + c] = ex_OUT_from_NUM(src[r * lds + c]);
}
