/* Integer and floating-point arithmetic as NumPy defines it: floored division, NaN wins in least and most,
   conversions to integers truncate and saturate. */
static inline long ex_min(long a, long b) { return a < b ? a : b; }
static inline long ex_max(long a, long b) { return a > b ? a : b; }
static inline long ex_div(long a, long b) { return a / b - (a % b < 0); }
static inline long ex_mod(long a, long b) { return a % b + (a % b < 0 ? b : 0); }
static inline long ex_ceildiv(long a, long b) { return -ex_div(-a, b); }
static inline int64_t ex_abs(int64_t a) { return a < 0 ? -a : a; }
static inline int64_t ex_least_i64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t ex_most_i64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ex_floordiv_i64(int64_t a, int64_t b) {
    return b == 0 ? 0 : b == -1 ? -a : a / b - (a % b != 0 && (a < 0) != (b < 0));
}
static inline int64_t ex_floormod_i64(int64_t a, int64_t b) {
    return b == 0 || b == -1 ? 0 : a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
}
static inline int64_t ex_pow_i64(int64_t a, int64_t b) {
    int64_t result = 1;
    for (; b > 0; b >>= 1, a *= a)
        if (b & 1) result *= a;
    return result;
}
#define EX_FLOATS(T, name, f)                                                              \
    static inline T ex_least_##name(T a, T b) { return a < b || a != a ? a : b; }          \
    static inline T ex_most_##name(T a, T b) { return a > b || a != a ? a : b; }           \
    static inline T ex_floordiv_##name(T a, T b) { return floor##f(a / b); }               \
    static inline T ex_floormod_##name(T a, T b) {                                         \
        const T rest = fmod##f(a, b);                                                      \
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;                       \
    }                                                                                      \
    static inline T ex_pow_##name(T a, T b) { return pow##f(a, b); }                       \
    static inline T ex_rsqrt##f(T a) { return 1 / sqrt##f(a); }                            \
    static inline T ex_sigmoid##f(T a) { return 1 / (1 + exp##f(-a)); }
EX_FLOATS(float, f32, f)
EX_FLOATS(double, f64, )
#define EX_SATURATE(T, name, low, high)                                                    \
    static inline T ex_##name##_from_f64(double x) {                                       \
        return x != x ? 0 : x <= (double)(low) ? (low) : x >= (double)(high) ? (high) : (T)x; \
    }
EX_SATURATE(int8_t, i8, INT8_MIN, INT8_MAX)
EX_SATURATE(int16_t, i16, INT16_MIN, INT16_MAX)
EX_SATURATE(int32_t, i32, INT32_MIN, INT32_MAX)
EX_SATURATE(int64_t, i64, INT64_MIN, INT64_MAX)
EX_SATURATE(uint8_t, u8, 0, UINT8_MAX)
EX_SATURATE(uint16_t, u16, 0, UINT16_MAX)
EX_SATURATE(uint32_t, u32, 0, UINT32_MAX)
EX_SATURATE(uint64_t, u64, 0, UINT64_MAX)
