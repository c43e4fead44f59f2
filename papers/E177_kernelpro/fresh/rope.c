#include <math.h>

#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

#if FLOAT
#define REAL float
#define FREQUENCY(i) powf(10000.0f, -2.0f * (i) / dim)
#define COS cosf
#define SIN sinf
#else
#define REAL double
#define FREQUENCY(i) pow(10000.0, -2.0 * (i) / dim)
#define COS cos
#define SIN sin
#endif

void rope(const float *RESTRICT x, float *RESTRICT out, long positions, long heads, long dim) {
    long half = dim / 2;
#if ORDER == 0
    for (long t = 0; t < positions; t++)
        for (long h = 0; h < heads; h++)
#ifdef SIMD
#pragma omp simd
#endif
            for (long i = 0; i < half; i++) {
                REAL angle = t * FREQUENCY(i);
                float c = COS(angle), s = SIN(angle);
                long p = (t * heads + h) * dim + 2 * i;
                out[p] = x[p] * c - x[p + 1] * s;
                out[p + 1] = x[p] * s + x[p + 1] * c;
            }
#else
#if ORDER == 1 /* an angle once for all heads */
    for (long t = 0; t < positions; t++)
        for (long i = 0; i < half; i++) {
            REAL angle = t * FREQUENCY(i);
#else /* a frequency once for all positions, too */
    for (long i = 0; i < half; i++) {
        REAL frequency = FREQUENCY(i);
        for (long t = 0; t < positions; t++) {
            REAL angle = t * frequency;
#endif
            float c = COS(angle), s = SIN(angle);
#ifdef SIMD
#pragma omp simd
#endif
            for (long h = 0; h < heads; h++) {
                long p = (t * heads + h) * dim + 2 * i;
                out[p] = x[p] * c - x[p + 1] * s;
                out[p + 1] = x[p] * s + x[p + 1] * c;
            }
        }
#if ORDER == 2
    }
#endif
#endif
}
