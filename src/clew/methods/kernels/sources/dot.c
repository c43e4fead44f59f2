
#include "simd.h"

void dot(const float *restrict x, const float *restrict y, float *restrict out, long n) {
#if SUMS == 1
    float s = 0;
    VECTORISE_SUM(s)
    for (long i = 0; i < n; i++)
        s += x[i] * y[i];
    out[0] = s;
#else
    float s[SUMS] = {0};
    long i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int k = 0; k < SUMS; k++)
            s[k] += x[i + k] * y[i + k];
    for (; i < n; i++)
        s[0] += x[i] * y[i];
    for (int k = 1; k < SUMS; k++)
        s[0] += s[k];
    out[0] = s[0];
#endif
}
