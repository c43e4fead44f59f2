#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

void int8_dot(const signed char *RESTRICT w, const signed char *RESTRICT x, int *RESTRICT y, long rows, long cols) {
    long i = 0;
#if WIDE /* the vector widened once, for products of 16 bits */
    short v[cols];
    for (long j = 0; j < cols; j++)
        v[j] = x[j];
#else
    const signed char *v = x;
#endif
#if ROWS > 1
    for (; i + ROWS <= rows; i += ROWS) {
        int s[ROWS];
        for (long r = 0; r < ROWS; r++)
            s[r] = 0;
        for (long j = 0; j < cols; j++)
            for (long r = 0; r < ROWS; r++)
                s[r] += w[(i + r) * cols + j] * v[j];
        for (long r = 0; r < ROWS; r++)
            y[i + r] = s[r];
    }
#endif
    for (; i < rows; i++) {
        int s = 0;
#ifdef SIMD
#pragma omp simd reduction(+ : s)
#endif
        for (long j = 0; j < cols; j++)
            s += w[i * cols + j] * v[j];
        y[i] = s;
    }
}
