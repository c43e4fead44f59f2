#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

void prefix_sum(const float *RESTRICT x, float *RESTRICT out, long n) {
#if CHUNKS == 1 && BLOCK == 0
    float s = 0;
    for (long i = 0; i < n; i++) {
        s += x[i];
        out[i] = s;
    }
#else
    /* CHUNKS parts are scanned side by side, then each but the first is raised by the sum of those before it. */
    long len = n / CHUNKS, i = 0;
    float s[CHUNKS];
    for (long c = 0; c < CHUNKS; c++)
        s[c] = 0;
#if BLOCK
    for (; i + BLOCK <= len; i += BLOCK)
        for (long c = 0; c < CHUNKS; c++) {
            float t[BLOCK], u[BLOCK];
            for (long k = 0; k < BLOCK; k++)
                t[k] = x[c * len + i + k];
            for (long step = 1; step < BLOCK; step *= 2) {
                for (long k = 0; k < BLOCK; k++)
                    u[k] = k < step ? t[k] : t[k] + t[k - step];
                for (long k = 0; k < BLOCK; k++)
                    t[k] = u[k];
            }
#ifdef SIMD
#pragma omp simd
#endif
            for (long k = 0; k < BLOCK; k++)
                out[c * len + i + k] = s[c] + t[k];
            s[c] += t[BLOCK - 1];
        }
#endif
    for (; i < len; i++)
        for (long c = 0; c < CHUNKS; c++) {
            s[c] += x[c * len + i];
            out[c * len + i] = s[c];
        }
    float before = s[0];
    for (long c = 1; c < CHUNKS; c++) {
#ifdef SIMD
#pragma omp simd
#endif
        for (long k = 0; k < len; k++)
            out[c * len + k] += before;
        before += s[c];
    }
    for (long k = CHUNKS * len; k < n; k++) {
        before += x[k];
        out[k] = before;
    }
#endif
}
