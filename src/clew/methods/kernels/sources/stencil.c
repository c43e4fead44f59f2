
#include "simd.h"

#if DOUBLE
#define C(x) x
#else
#define C(x) x##f
#endif
void stencil(const float *restrict x, float *restrict out, long n) {
    out[0] = x[0];
    VECTORISE
    for (long i = 1; i < n - 1; i++)
        out[i] = C(0.25) * x[i - 1] + C(0.5) * x[i] + C(0.25) * x[i + 1];
    out[n - 1] = x[n - 1];
}
