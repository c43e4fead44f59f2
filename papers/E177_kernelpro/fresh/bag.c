#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

void bag(const float *RESTRICT table, const int *RESTRICT index, const float *RESTRICT weight, float *RESTRICT out,
         long vocab, long bags, long per, long dim) {
    for (long b = 0; b < bags; b++) {
        const int *at = index + b * per;
        const float *w = weight + b * per;
        float *to = out + b * dim;
#if ORDER == 0
        for (long d = 0; d < dim; d++) {
            float s = 0;
            long k = 0;
#if ITEMS == 4
            for (; k + 4 <= per; k += 4)
                s += w[k] * table[at[k] * dim + d] + w[k + 1] * table[at[k + 1] * dim + d] +
                     w[k + 2] * table[at[k + 2] * dim + d] + w[k + 3] * table[at[k + 3] * dim + d];
#elif defined SIMD
#pragma omp simd reduction(+ : s)
            for (k = 0; k < per; k++)
                s += w[k] * table[at[k] * dim + d];
#endif
            for (; k < per; k++)
                s += w[k] * table[at[k] * dim + d];
            to[d] = s;
        }
#else /* one table row after the other */
        for (long d = 0; d < dim; d++)
            to[d] = 0;
        long k = 0;
#if ITEMS == 4
        for (; k + 4 <= per; k += 4) {
            const float *r0 = table + at[k] * dim, *r1 = table + at[k + 1] * dim;
            const float *r2 = table + at[k + 2] * dim, *r3 = table + at[k + 3] * dim;
            float w0 = w[k], w1 = w[k + 1], w2 = w[k + 2], w3 = w[k + 3];
#ifdef SIMD
#pragma omp simd
#endif
            for (long d = 0; d < dim; d++)
                to[d] += w0 * r0[d] + w1 * r1[d] + w2 * r2[d] + w3 * r3[d];
        }
#endif
        for (; k < per; k++)
#ifdef SIMD
#pragma omp simd
#endif
            for (long d = 0; d < dim; d++)
                to[d] += w[k] * table[at[k] * dim + d];
#endif
    }
}
