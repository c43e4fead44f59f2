#include <math.h>

#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

void rms_norm(const float *RESTRICT x, const float *RESTRICT gain, float *RESTRICT out, long rows, long cols) {
    for (long i = 0; i < rows; i++) {
        const float *row = x + i * cols;
        float s = 0;
        long j = 0;
#if SUMS > 1
        float t[SUMS];
        for (long a = 0; a < SUMS; a++)
            t[a] = 0;
        for (; j + SUMS <= cols; j += SUMS)
            for (long a = 0; a < SUMS; a++)
                t[a] += row[j + a] * row[j + a];
        for (long a = 0; a < SUMS; a++)
            s += t[a];
#elif defined SIMD
#pragma omp simd reduction(+ : s)
#endif
        for (long k = j; k < cols; k++)
            s += row[k] * row[k];
        float rms = sqrtf(s / cols + 1e-5f);
#if INVERSE
        float inverse = 1 / rms;
#endif
#ifdef SIMD
#pragma omp simd
#endif
        for (long k = 0; k < cols; k++)
#if INVERSE
            out[i * cols + k] = row[k] * inverse * gain[k];
#else
            out[i * cols + k] = row[k] / rms * gain[k];
#endif
    }
}
