#include <math.h>
#include "simd.h"

void softmax(const float *restrict x, float *restrict out, long rows, long n) {
    for (long r = 0; r < rows; r++) {
        const float *restrict a = x + r * n;
        float *restrict o = out + r * n;
        float top = a[0], sum = 0;
        for (long i = 1; i < n; i++)
            top = a[i] > top ? a[i] : top;
        VECTORISE
        for (long i = 0; i < n; i++)
            o[i] = expf(a[i] - top);
        VECTORISE_SUM(sum)
        for (long i = 0; i < n; i++)
            sum += o[i];
        VECTORISE
        for (long i = 0; i < n; i++)
#if DIVIDE
            o[i] /= sum;
#else
            o[i] *= 1 / sum;
#endif
    }
}
