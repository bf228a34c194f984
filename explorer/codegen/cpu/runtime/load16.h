/* Vector loads of 16-bit floats, widened to f32. */
EX_INLINE vec_f32 ex_load_bf16_f32(const bf16_t *p) {
    return (vec_f32)(__builtin_convertvector(*(const ex_halves *)p, ex_words) << 16);
}
EX_INLINE vec_f32 ex_load_f16_f32(const f16_t *p) {
    const ex_words wide = __builtin_convertvector(*(const ex_halves *)p, ex_words);
    const ex_words size = (wide & 0x7fff) << 13;
    const ex_words special = (ex_words)(size >= 0x7c00u << 13) & 0x7f800000u;
    return (vec_f32)((ex_words)((vec_f32)size * 0x1p112f) | special | (wide & 0x8000) << 16);
}
