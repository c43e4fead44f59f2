#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

void conv3(const float *RESTRICT x, const float *RESTRICT w, float *RESTRICT out, long rows, long cols) {
    long h = rows - 2, v = cols - 2;
#if ORDER == 0
    for (long i = 0; i < h; i++)
#if defined SIMD && TAPS
#pragma omp simd
#endif
        for (long j = 0; j < v; j++) {
#if TAPS
            const float *a = x + i * cols + j, *b = a + cols, *c = b + cols;
            out[i * v + j] = w[0] * a[0] + w[1] * a[1] + w[2] * a[2] + w[3] * b[0] + w[4] * b[1] + w[5] * b[2] +
                             w[6] * c[0] + w[7] * c[1] + w[8] * c[2];
#else
            float s = 0;
            for (long k = 0; k < 3; k++)
                for (long l = 0; l < 3; l++)
                    s += w[k * 3 + l] * x[(i + k) * cols + j + l];
            out[i * v + j] = s;
#endif
        }
#else
#if ORDER == 1 /* the weights within a row of the output */
    for (long i = 0; i < h; i++) {
        long from = i, to = i + 1;
#else /* the weights outside everything */
    {
        long from = 0, to = h;
#endif
        for (long p = from * v; p < to * v; p++)
            out[p] = 0;
        for (long k = 0; k < 3; k++) {
#if TAPS
            float w0 = w[k * 3], w1 = w[k * 3 + 1], w2 = w[k * 3 + 2];
            for (long r = from; r < to; r++)
#ifdef SIMD
#pragma omp simd
#endif
                for (long j = 0; j < v; j++) {
                    const float *a = x + (r + k) * cols + j;
                    out[r * v + j] += w0 * a[0] + w1 * a[1] + w2 * a[2];
                }
#else
            for (long l = 0; l < 3; l++)
                for (long r = from; r < to; r++)
#ifdef SIMD
#pragma omp simd
#endif
                    for (long j = 0; j < v; j++)
                        out[r * v + j] += w[k * 3 + l] * x[(r + k) * cols + j + l];
#endif
        }
    }
#endif
}
