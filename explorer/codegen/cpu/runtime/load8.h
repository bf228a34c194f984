/* Vector loads of 8-bit floats, widened to f32 as ex_f32_from_e4m3 does. By way of 16 bits, because gcc 12
   widens bytes fourfold one by one. */
typedef uint8_t ex_quarters __attribute__((vector_size(EX_VECTOR_BYTES / 4), aligned(1), may_alias));
EX_INLINE vec_f32 ex_load_e4m3_f32(const e4m3_t *p) {
    const ex_halves half = __builtin_convertvector(*(const ex_quarters *)p, ex_halves);
    const ex_words wide = __builtin_convertvector(half, ex_words);
    const ex_words size = (wide & 0x7f) << 20;
    const ex_words small = (ex_words)((vec_f32)(size + (121u << 23)) - 0x1p-6f);
    const ex_words below = (ex_words)(size < 1u << 23), nan = (ex_words)(size == 0x7fu << 20);
    const ex_words finite = (small & below) | ((size + (120u << 23)) & ~below);
    return (vec_f32)(finite | (nan & 0x7fc00000u) | (wide & 0x80) << 24);
}
