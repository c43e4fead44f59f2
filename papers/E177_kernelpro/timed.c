#include <stdio.h>
#include <stdlib.h>
#include <time.h>
void k(const float *x, const float *y, float *out, const int *at, long n);
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}
int main(int argc, char **argv) {
    long n = atol(argv[1]), repeats = atol(argv[2]);
    float *x = aligned_alloc(64, 4 * (7 * n + 64)), *y = aligned_alloc(64, 4 * (n + 64)), *out = calloc(n + 64, 4);
    int *at = aligned_alloc(64, 4 * (n + 64));
    for (long i = 0; i < 7 * n; i++) x[i] = (i % 97) / 97.0f;
    for (long i = 0; i < n; i++) y[i] = (i % 31) / 31.0f, at[i] = (int)(i * 7919 % n);
    double start = now();
    for (long r = 0; r < repeats; r++) { k(x, y, out, at, n); __asm__ volatile("" ::: "memory"); }
    printf("%.9g\n", (now() - start) / repeats);
    return out[0] == 123.25f;
}
