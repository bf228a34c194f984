/* Element types: f16, bf16 and e4m3 are their bits, and are computed in f32. Rounding is to nearest even.
   In integers, because gcc 12 turns a vector of _Float16 into scalar conversions. */
typedef uint16_t f16_t;
typedef uint16_t bf16_t;
typedef uint8_t e4m3_t;
typedef uint32_t ex_words __attribute__((vector_size(EX_VECTOR_BYTES)));
typedef uint16_t ex_halves
    __attribute__((vector_size(EX_VECTOR_BYTES / 2), aligned(sizeof(uint16_t)), may_alias));
typedef union { uint32_t bits; float value; } ex_f32_bits;

static inline long ex_clip(long x, long low, long high) { return x < low ? low : x > high ? high : x; }

#define ex_f32_from_f32(x) ((float)(x))
#define ex_f64_from_f64(x) ((double)(x))
#define ex_f32_from_f64(x) ((float)(x))
#define ex_f64_from_f32(x) ((double)(x))
/* The exponent is rebased by a multiply, which also normalises subnormals. */
static inline float ex_f32_from_f16(f16_t x) {
    const uint32_t wide = x;
    ex_f32_bits h = {(wide & 0x7fff) << 13};
    const uint32_t special = h.bits >= 0x7c00u << 13 ? 0x7f800000u : 0;
    h.value *= 0x1p112f;
    h.bits |= special | (wide & 0x8000) << 16;
    return h.value;
}
static inline float ex_f32_from_bf16(bf16_t x) {
    const ex_f32_bits h = {(uint32_t)x << 16};
    return h.value;
}
static inline f16_t ex_f16_from_f32(float x) {
    ex_f32_bits v = {.value = x};
    const uint32_t sign = v.bits >> 16 & 0x8000, size = v.bits & 0x7fffffff;
    const uint32_t normal = (size + 0xfff + (size >> 13 & 1) - (112u << 23)) >> 13;
    /* Adding 0.5 leaves a subnormal's rounded bits in the low end of the significand. */
    ex_f32_bits small = {size};
    small.value += 0.5f;
    const uint32_t special = size > 0x7f800000u ? 0x7e00 : 0x7c00;
    const uint32_t finite = size < 113u << 23 ? small.bits - 0x3f000000u : normal;
    return (f16_t)(sign | (size >= 143u << 23 ? special : finite));
}
static inline bf16_t ex_bf16_from_f32(float x) {
    const ex_f32_bits v = {.value = x};
    const uint32_t rounded = (v.bits + 0x7fff + (v.bits >> 16 & 1)) >> 16;
    return (bf16_t)((v.bits & 0x7fffffff) > 0x7f800000u ? (v.bits >> 16 | 0x40) : rounded);
}
/* A subnormal gets the exponent of the least normal number, which is then taken off: no step of it has a
   subnormal float, on which cores are slow. The type has no infinities, and one NaN a sign. */
static inline float ex_f32_from_e4m3(e4m3_t x) {
    const uint32_t size = (x & 0x7fu) << 20;
    ex_f32_bits h = {size + (120u << 23)}, small = {size + (121u << 23)};
    small.value -= 0x1p-6f;
    h.bits = size < 1u << 23 ? small.bits : size == 0x7fu << 20 ? 0x7fc00000u : h.bits;
    h.bits |= (x & 0x80u) << 24;
    return h.value;
}
/* What rounds to more than 448 is NaN. */
static inline e4m3_t ex_e4m3_from_f32(float x) {
    ex_f32_bits v = {.value = x};
    const uint32_t sign = v.bits >> 24 & 0x80, size = v.bits & 0x7fffffff;
    const uint32_t normal = (size + 0x7ffff + (size >> 20 & 1) - (120u << 23)) >> 20;
    /* Adding 2^14 leaves a subnormal's rounded bits in the low end of the significand. */
    ex_f32_bits small = {size};
    small.value += 0x1p14f;
    const uint32_t finite = size < 121u << 23 ? small.bits - (141u << 23) : normal;
    return (e4m3_t)(sign | (finite < 0x7f ? finite : 0x7f));
}
#define ex_f64_from_f16(x) ((double)ex_f32_from_f16(x))
#define ex_f64_from_bf16(x) ((double)ex_f32_from_bf16(x))
#define ex_f64_from_e4m3(x) ((double)ex_f32_from_e4m3(x))
#define ex_e4m3_from_f64(x) ex_e4m3_from_f32((float)(x))
#define ex_f16_from_f64(x) ex_f16_from_f32((float)(x))
#define ex_bf16_from_f64(x) ex_bf16_from_f32((float)(x))
