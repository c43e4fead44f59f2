
#ifdef SIMD
#define VECTORISE _Pragma("omp simd")
#define VECTORISE_SUM(s) _Pragma(TEXT(omp simd reduction(+:s)))
#define TEXT(x) #x
#else
#define VECTORISE
#define VECTORISE_SUM(s)
#endif

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
