#include <math.h>

#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

#if FLOAT
#define REAL float
#define C(x) x##f
#define TANH tanhf
#define EXP expf
#else
#define REAL double
#define C(x) x
#define TANH tanh
#define EXP exp
#endif

#if FORM == 2 /* a table of [-8, 8], interpolated */
static float table[16 * 512 + 2];
static int ready;

static void fill(void) {
    for (long k = 0; k < 16 * 512 + 2; k++) {
        double v = k / 512.0 - 8;
        table[k] = 0.5 * v * (1.0 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    }
    ready = 1;
}
#endif

void gelu(const float *RESTRICT x, float *RESTRICT out, long n) {
#if FORM == 2
    if (!ready)
        fill();
#endif
#ifdef SIMD
#pragma omp simd
#endif
    for (long i = 0; i < n; i++) {
        float v = x[i];
#if FORM == 0
        out[i] = C(0.5) * v * (C(1.0) + TANH(C(0.7978845608028654) * (v + C(0.044715) * v * v * v)));
#elif FORM == 1
        out[i] = v / (C(1.0) + EXP(C(-1.5957691216057308) * (v + C(0.044715) * v * v * v)));
#else
        REAL at = (v < C(-8.0) ? C(-8.0) : v > C(8.0) ? C(8.0) : v) * C(512.0) + C(4096.0);
        int k = (int)at;
        REAL share = at - k;
        float inside = table[k] + share * (table[k + 1] - table[k]);
        out[i] = v > C(8.0) ? v : inside;
#endif
    }
}
