/* What this machine reaches: best of several tries of CPU time. Prints a name and a number a line, in SI units. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Floats of this machine's widest vector register, and the letter by which inline assembly names such a register. */
#if defined(__AVX512F__)
#define WIDE 16
#elif defined(__AVX__)
#define WIDE 8
#else
#define WIDE 4
#endif
#if defined(__x86_64__) || defined(__i386__)
#define REGISTER "+v"
#elif defined(__aarch64__) || defined(__ARM_NEON)
#define REGISTER "+w"
#else
#define REGISTER "+m"
#endif
#define CHAINS 12
typedef float vector __attribute__((vector_size(4 * WIDE)));

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* that of the process moves in ticks under a limit */
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static double flops(long n) {
    vector s[CHAINS], x = {0}, y = {0};
    for (int k = 0; k < WIDE; k++)
        x[k] = 0.999f, y[k] = 1e-3f * (k + 1);
    for (int k = 0; k < CHAINS; k++)
        s[k] = y * (float)(k + 1);
    double start = now();
    for (long i = 0; i < n; i++)
        for (int k = 0; k < CHAINS; k++) {
            s[k] = s[k] * x + y;
            __asm__ volatile("" : REGISTER(s[k])); /* every one of them is done */
        }
    double took = now() - start;
    volatile float kept = 0;
    for (int k = 0; k < CHAINS; k++)
        kept += s[k][0];
    return 2.0 * WIDE * CHAINS * n / took;
}

/* Bytes read and written a second by copies of n bytes altogether, done until a good many have moved. */
static double bytes(char *buffer, size_t n) {
    size_t half = n / 2, times = 1 + (64u << 20) / n;
    double start = now();
    for (size_t i = 0; i < times; i++) {
        memcpy(buffer + (i % 2) * half, buffer + (1 - i % 2) * half, half);
        __asm__ volatile("" ::: "memory");
    }
    return (double)n * times / (now() - start);
}

__attribute__((noinline)) static void nothing(long n) { __asm__ volatile("" ::"r"(n)); }

int main(void) {
    const size_t sizes[] = {32u << 10, 512u << 10, 8u << 20, 128u << 20};
    double f = 0, call = 1, moved[4] = {0};
    char *buffer = malloc(sizes[3]);
    if (!buffer)
        return 1;
    memset(buffer, 1, sizes[3]);
    for (int i = 0; i < 7; i++) {
        double found = flops(2000000);
        f = found > f ? found : f;
        for (int k = 0; k < 4; k++) {
            found = bytes(buffer, sizes[k]);
            moved[k] = found > moved[k] ? found : moved[k];
        }
        void (*volatile empty)(long) = nothing;
        double start = now();
        for (long k = 0; k < 2000000; k++)
            empty(k);
        found = (now() - start) / 2000000;
        call = found < call ? found : call;
    }
    printf("flops %.6g\ncall %.6g\n", f, call);
    for (int k = 0; k < 4; k++)
        printf("copy-%zu %.6g\n", sizes[k], moved[k]);
    return 0;
}
