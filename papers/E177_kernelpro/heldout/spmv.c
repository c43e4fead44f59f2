#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

static inline float part(const float *RESTRICT val, const int *RESTRICT col, const float *RESTRICT x, int k, int end) {
    float s = 0;
#if SUMS > 1
    float t[SUMS];
    for (int a = 0; a < SUMS; a++)
        t[a] = 0;
    for (; k + SUMS <= end; k += SUMS)
        for (int a = 0; a < SUMS; a++)
            t[a] += val[k + a] * x[col[k + a]];
    for (int a = 0; a < SUMS; a++)
        s += t[a];
#elif defined SIMD
#pragma omp simd reduction(+ : s)
#endif
    for (int p = k; p < end; p++)
        s += val[p] * x[col[p]];
    return s;
}

void spmv(const float *RESTRICT val, const int *RESTRICT col, const int *RESTRICT start, const float *RESTRICT x,
          float *RESTRICT y, long rows, long cols, long nnz) {
    long i = 0;
#if ROWS == 2
    for (; i + 2 <= rows; i += 2) {
        int p = start[i], q = start[i + 1], end = start[i + 2];
        int both = q - p < end - q ? q - p : end - q;
        float s = 0, t = 0;
        for (int k = 0; k < both; k++) {
            s += val[p + k] * x[col[p + k]];
            t += val[q + k] * x[col[q + k]];
        }
        y[i] = s + part(val, col, x, p + both, q);
        y[i + 1] = t + part(val, col, x, q + both, end);
    }
#endif
    for (; i < rows; i++)
        y[i] = part(val, col, x, start[i], start[i + 1]);
}
