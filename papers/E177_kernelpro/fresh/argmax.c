#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

void argmax(const float *RESTRICT x, int *RESTRICT out, long rows, long cols) {
    for (long i = 0; i < rows; i++) {
        const float *row = x + i * cols;
#if PASSES == 1 && ACC == 1
        long best = 0;
        for (long j = 1; j < cols; j++)
            if (row[j] > row[best])
                best = j;
        out[i] = best;
#elif PASSES == 1
        float m[ACC];
        int at[ACC];
        int j;
        for (int k = 0; k < ACC; k++) {
            m[k] = row[0];
            at[k] = 0;
        }
        for (j = 0; j + ACC <= cols; j += ACC)
#ifdef SIMD
#pragma omp simd
#endif
            for (int k = 0; k < ACC; k++) {
                at[k] = row[j + k] > m[k] ? j + k : at[k];
                m[k] = row[j + k] > m[k] ? row[j + k] : m[k];
            }
        for (; j < cols; j++)
            if (row[j] > m[0]) {
                m[0] = row[j];
                at[0] = j;
            }
        for (int k = 1; k < ACC; k++)
            if (m[k] > m[0] || (m[k] == m[0] && at[k] < at[0])) {
                m[0] = m[k];
                at[0] = at[k];
            }
        out[i] = at[0];
#else /* first the value, then its place */
#if ACC == 1
        float m = row[0];
#ifdef SIMD
#pragma omp simd reduction(max : m)
#endif
        for (long j = 1; j < cols; j++)
            m = row[j] > m ? row[j] : m;
#else
        float ms[ACC];
        long j;
        for (long k = 0; k < ACC; k++)
            ms[k] = row[0];
        for (j = 0; j + ACC <= cols; j += ACC)
#ifdef SIMD
#pragma omp simd
#endif
            for (long k = 0; k < ACC; k++)
                ms[k] = row[j + k] > ms[k] ? row[j + k] : ms[k];
        for (; j < cols; j++)
            ms[0] = row[j] > ms[0] ? row[j] : ms[0];
        float m = ms[0];
        for (long k = 1; k < ACC; k++)
            m = ms[k] > m ? ms[k] : m;
#endif
        long at = 0;
        while (row[at] != m)
            at++;
        out[i] = at;
#endif
    }
}
