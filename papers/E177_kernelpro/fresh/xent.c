#include <math.h>
#include <string.h>

#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

#if EXP
static inline float exponential(float x) { /* of x <= 0 */
    x = x < -87.0f ? -87.0f : x;
    int n = (int)(x * 1.44269504f - 0.5f);
    float f = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.0f / 720;
    p = p * f + 1.0f / 120;
    p = p * f + 1.0f / 24;
    p = p * f + 1.0f / 6;
    p = p * f + 0.5f;
    p = p * f + 1.0f;
    p = p * f + 1.0f;
    int bits = (n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}
#else
#define exponential expf
#endif

void xent(const float *RESTRICT x, const int *RESTRICT label, float *RESTRICT loss, long rows, long classes) {
    for (long i = 0; i < rows; i++) {
        const float *row = x + i * classes;
#if ACC == 1
        float m = row[0];
#ifdef SIMD
#pragma omp simd reduction(max : m)
#endif
        for (long j = 1; j < classes; j++)
            m = row[j] > m ? row[j] : m;
        float s = 0;
#ifdef SIMD
#pragma omp simd reduction(+ : s)
#endif
        for (long j = 0; j < classes; j++)
            s += exponential(row[j] - m);
#else
        float ms[ACC], ss[ACC];
        long j;
        for (long k = 0; k < ACC; k++) {
            ms[k] = row[0];
            ss[k] = 0;
        }
        for (j = 0; j + ACC <= classes; j += ACC)
#ifdef SIMD
#pragma omp simd
#endif
            for (long k = 0; k < ACC; k++)
                ms[k] = row[j + k] > ms[k] ? row[j + k] : ms[k];
        for (; j < classes; j++)
            ms[0] = row[j] > ms[0] ? row[j] : ms[0];
        float m = ms[0];
        for (long k = 1; k < ACC; k++)
            m = ms[k] > m ? ms[k] : m;
        for (j = 0; j + ACC <= classes; j += ACC)
#ifdef SIMD
#pragma omp simd
#endif
            for (long k = 0; k < ACC; k++)
                ss[k] += exponential(row[j + k] - m);
        for (; j < classes; j++)
            ss[0] += exponential(row[j] - m);
        float s = 0;
        for (long k = 0; k < ACC; k++)
            s += ss[k];
#endif
        loss[i] = logf(s) + m - row[label[i]];
    }
}
