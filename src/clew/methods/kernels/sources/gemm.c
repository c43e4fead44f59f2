
#include "simd.h"

static void block(const float *restrict a, const float *restrict b, float *restrict c, long n, long k0, long k1,
                  long j0, long j1) {
    for (long i = 0; i < n; i++) {
#if ORDER == 0
        for (long j = j0; j < j1; j++) {
            float s = c[i * n + j];
            VECTORISE_SUM(s)
            for (long k = k0; k < k1; k++)
                s += a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
#else
        for (long k = k0; k < k1; k++) {
            float v = a[i * n + k];
            VECTORISE
            for (long j = j0; j < j1; j++)
                c[i * n + j] += v * b[k * n + j];
        }
#endif
    }
}
void gemm(const float *restrict a, const float *restrict b, float *restrict c, long n) {
    for (long i = 0; i < n * n; i++)
        c[i] = 0;
    long t = TILE ? TILE : n;
    for (long k = 0; k < n; k += t)
        for (long j = 0; j < n; j += t)
            block(a, b, c, n, k, k + t < n ? k + t : n, j, j + t < n ? j + t : n);
}
