#include <complex.h>

#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

#if REALS /* without C's care for infinities */
#define BUTTERFLY(p, q, w) \
    float wr = crealf(w), wi = cimagf(w), qr = crealf(q), qi = cimagf(q), ur = crealf(p), ui = cimagf(p); \
    float tr = wr * qr - wi * qi, ti = wr * qi + wi * qr; \
    p = CMPLXF(ur + tr, ui + ti); \
    q = CMPLXF(ur - tr, ui - ti);
#else
#define BUTTERFLY(p, q, w) \
    float complex u = p, t = w * q; \
    p = u + t; \
    q = u - t;
#endif

void fft(const float *RESTRICT x, const float *RESTRICT roots, float *RESTRICT out, long batch, long n) {
    const float complex *RESTRICT table = (const float complex *)roots;
    for (long b = 0; b < batch; b++) {
        const float complex *from = (const float complex *)x + b * n;
        float complex *a = (float complex *)out + b * n;
        for (long i = 0, r = 0; i < n; i++) {
            a[r] = from[i];
            long bit = n / 2;
            while (bit && r & bit) {
                r ^= bit;
                bit /= 2;
            }
            r ^= bit;
        }
        for (long half = 1; half < n; half *= 2) {
            long step = n / (2 * half);
#if ORDER == 2 /* whichever is the longer loop within */
            if (half >= step)
#endif
#if ORDER != 1
                for (long i = 0; i < n; i += 2 * half)
#ifdef SIMD
#pragma omp simd
#endif
                    for (long k = 0; k < half; k++) {
                        BUTTERFLY(a[i + k], a[i + k + half], table[k * step])
                    }
#endif
#if ORDER == 2
            else
#endif
#if ORDER != 0
                for (long k = 0; k < half; k++) {
                    float complex root = table[k * step];
#ifdef SIMD
#pragma omp simd
#endif
                    for (long i = 0; i < n; i += 2 * half) {
                        BUTTERFLY(a[i + k], a[i + k + half], root)
                    }
                }
#endif
        }
    }
}
