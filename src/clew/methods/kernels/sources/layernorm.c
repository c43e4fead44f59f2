#include <math.h>
#include "simd.h"

#if DOUBLE
#define real double
#else
#define real float
#endif
void layernorm(const float *restrict x, const float *restrict w, const float *restrict b, float *restrict out,
               long rows, long n) {
    for (long r = 0; r < rows; r++) {
        const float *restrict a = x + r * n;
        real mean = 0, square = 0;
        VECTORISE_SUM(mean)
        for (long i = 0; i < n; i++)
            mean += a[i];
        mean /= n;
        VECTORISE_SUM(square)
        for (long i = 0; i < n; i++)
            square += (a[i] - mean) * (a[i] - mean);
        real scale = 1 / sqrt(square / n + 1e-5);
        VECTORISE
        for (long i = 0; i < n; i++)
            out[r * n + i] = (a[i] - mean) * scale * w[i] + b[i];
    }
}
