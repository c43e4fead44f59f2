#include <stdlib.h>
#include <string.h>

#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

static void step(const float *RESTRICT u, float *RESTRICT v, long from, long to, long cols) {
    long i = from;
#if ROWS == 2
    for (; i + 2 <= to; i += 2) {
        const float *a = u + (i - 1) * cols, *b = a + cols, *c = b + cols, *d = c + cols;
        float *p = v + i * cols, *q = p + cols;
#ifdef SIMD
#pragma omp simd
#endif
        for (long j = 1; j < cols - 1; j++) {
            float above = b[j], below = c[j];
            p[j] = above + 0.2f * (a[j] + below + b[j - 1] + b[j + 1] - 4 * above);
            q[j] = below + 0.2f * (above + d[j] + c[j - 1] + c[j + 1] - 4 * below);
        }
    }
#endif
    for (; i < to; i++)
#ifdef SIMD
#pragma omp simd
#endif
        for (long j = 1; j < cols - 1; j++) {
            long p = i * cols + j;
            v[p] = u[p] + 0.2f * (u[p - cols] + u[p + cols] + u[p - 1] + u[p + 1] - 4 * u[p]);
        }
}

void heat2d(const float *RESTRICT x, float *RESTRICT out, long rows, long cols, long sweeps) {
    size_t bytes = rows * cols * sizeof(float);
    float *other = malloc(bytes);
    memcpy(out, x, bytes);
#if TIME == 0
    for (long s = 0; s < sweeps; s++) {
        step(out, other, 1, rows - 1, cols);
        for (long i = 1; i < rows - 1; i++)
            for (long j = 1; j < cols - 1; j++)
                out[i * cols + j] = other[i * cols + j];
    }
#else
    memcpy(other, x, bytes);
    float *grids[2] = {out, other};
#if TIME == 1 /* to and fro */
    for (long s = 0; s < sweeps; s++)
        step(grids[s % 2], grids[(s + 1) % 2], 1, rows - 1, cols);
#else /* all sweeps, each a few rows behind the one before */
    long strips = (rows - 2 + ROWS - 1) / ROWS;
    for (long k = 0; k < strips + sweeps - 1; k++)
        for (long s = 0; s < sweeps; s++) {
            long from = 1 + (k - s) * ROWS, to = from + ROWS < rows - 1 ? from + ROWS : rows - 1;
            if (k - s >= 0)
                step(grids[s % 2], grids[(s + 1) % 2], from, to, cols);
        }
#endif
    if (sweeps % 2)
        memcpy(out, other, bytes);
#endif
    free(other);
}
