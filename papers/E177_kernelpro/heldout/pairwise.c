#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

void pairwise(const float *RESTRICT a, const float *RESTRICT b, float *RESTRICT out, long n, long m, long d) {
    long i = 0;
#if TRANSPOSED /* coordinates of b one after the other, so that j can be innermost */
    float t[m * d];
    for (long j = 0; j < m; j++)
        for (long k = 0; k < d; k++)
            t[k * m + j] = b[j * d + k];
    for (; i + ROWS <= n; i += ROWS) {
        for (long p = i * m; p < (i + ROWS) * m; p++)
            out[p] = 0;
        for (long k = 0; k < d; k++)
#ifdef SIMD
#pragma omp simd
#endif
            for (long j = 0; j < m; j++)
                for (long r = 0; r < ROWS; r++) {
                    float e = a[(i + r) * d + k] - t[k * m + j];
                    out[(i + r) * m + j] += e * e;
                }
    }
#elif ROWS > 1
    for (; i + ROWS <= n; i += ROWS)
        for (long j = 0; j < m; j++) {
            float s[ROWS];
            for (long r = 0; r < ROWS; r++)
                s[r] = 0;
            for (long k = 0; k < d; k++)
                for (long r = 0; r < ROWS; r++) {
                    float e = a[(i + r) * d + k] - b[j * d + k];
                    s[r] += e * e;
                }
            for (long r = 0; r < ROWS; r++)
                out[(i + r) * m + j] = s[r];
        }
#endif
    for (; i < n; i++)
        for (long j = 0; j < m; j++) {
            float s = 0;
#ifdef SIMD
#pragma omp simd reduction(+ : s)
#endif
            for (long k = 0; k < d; k++) {
                float e = a[i * d + k] - b[j * d + k];
                s += e * e;
            }
            out[i * m + j] = s;
        }
}
