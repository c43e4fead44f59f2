#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

#if FLOAT
#define GREY(r, g, b) ((0.299f * (r) + 0.587f * (g) + 0.114f * (b)) / 255.0f)
#else
#define GREY(r, g, b) ((0.299 * (r) + 0.587 * (g) + 0.114 * (b)) / 255.0)
#endif

void grey(const unsigned char *RESTRICT rgb, float *RESTRICT out, long pixels) {
    long p = 0;
#if PIXELS == 4
    for (; p + 4 <= pixels; p += 4) {
        const unsigned char *c = rgb + 3 * p;
        float g0 = GREY(c[0], c[1], c[2]), g1 = GREY(c[3], c[4], c[5]);
        float g2 = GREY(c[6], c[7], c[8]), g3 = GREY(c[9], c[10], c[11]);
        out[p] = g0;
        out[p + 1] = g1;
        out[p + 2] = g2;
        out[p + 3] = g3;
    }
    for (; p < pixels; p++)
#else
#ifdef SIMD
#pragma omp simd
#endif
    for (p = 0; p < pixels; p++)
#endif
        out[p] = GREY(rgb[3 * p], rgb[3 * p + 1], rgb[3 * p + 2]);
}
