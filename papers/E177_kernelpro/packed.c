#include <string.h>
#if PACK
static float packed[256 * 256];
#endif
static void rows(const float *restrict a, const float *restrict b, float *restrict c, long n, long k0, long k1, long j0,
                 long j1) {
#if PACK
    for (long k = k0; k < k1; k++)
        memcpy(packed + (k - k0) * (j1 - j0), b + k * n + j0, sizeof(float) * (j1 - j0));
    const float *restrict p = packed;
    const long step = j1 - j0;
#else
    const float *restrict p = b + k0 * n + j0;
    const long step = n;
#endif
    long i = 0;
#if BLOCK > 1
    for (; i + BLOCK <= n; i += BLOCK)
        for (long j = j0; j + 16 <= j1; j += 16) {
            float s[BLOCK][16];
            for (int r = 0; r < BLOCK; r++)
                for (int v = 0; v < 16; v++)
                    s[r][v] = c[(i + r) * n + j + v];
            for (long k = k0; k < k1; k++)
                for (int r = 0; r < BLOCK; r++)
                    for (int v = 0; v < 16; v++)
                        s[r][v] += a[(i + r) * n + k] * p[(k - k0) * step + j - j0 + v];
            for (int r = 0; r < BLOCK; r++)
                for (int v = 0; v < 16; v++)
                    c[(i + r) * n + j + v] = s[r][v];
        }
    for (long e = 0; e < i; e++)
        for (long k = k0; k < k1; k++)
            for (long j = j0 + (j1 - j0) / 16 * 16; j < j1; j++)
                c[e * n + j] += a[e * n + k] * p[(k - k0) * step + j - j0];
#endif
    for (; i < n; i++)
        for (long k = k0; k < k1; k++)
            for (long j = j0; j < j1; j++)
                c[i * n + j] += a[i * n + k] * p[(k - k0) * step + j - j0];
}
void gemm(const float *restrict a, const float *restrict b, float *restrict c, long n) {
    memset(c, 0, sizeof(float) * n * n);
    long t = TILE < n ? TILE : n;
    for (long k = 0; k < n; k += t)
        for (long j = 0; j < n; j += t)
            rows(a, b, c, n, k, k + t < n ? k + t : n, j, j + t < n ? j + t : n);
}
