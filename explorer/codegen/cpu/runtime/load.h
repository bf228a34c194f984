/* Vector loads that widen to f32, or load f64. */
EX_INLINE vec_NUM ex_load_NUM_NUM(const NUM_T *p) { return *(const loose_NUM *)p; }
