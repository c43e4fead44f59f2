/* Runs builds of one kernel, each a shared library, on cases from files; see cpu.py, which writes the file CALL.
 *
 *   bench check LIB CASE...            each CASE: outputs poisoned, one call, all arrays to CASE.out
 *   bench time BLOCKS NS A B CASE...   blocks of about NS nanoseconds of A and B in turn; prints the seconds of a call of
 *                                      each block; the contents of the cases move on between blocks, so that no result
 *                                      can be kept; after the last block, all arrays of B to CASE.b
 *
 * A case file: the sizes and the bytes of each array as longs, then the arrays that go in. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include CALL /* ARRAYS, SIZES, kernel_t, CALL_KERNEL(f, p, n), IS_OUT */

typedef struct {
    long n[SIZES];
    long bytes[ARRAYS];
    void *p[ARRAYS];
} Case;

/* Of the thread: under a limit on CPU time the clock of the process moves in ticks of milliseconds only. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static void fail(const char *what, const char *name) {
    fprintf(stderr, "%s: %s\n", what, name);
    exit(3);
}

static kernel_t load(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fail("does not load", dlerror());
    kernel_t found = (kernel_t)dlsym(library, SYMBOL);
    if (!found)
        fail("has no function", SYMBOL);
    return found;
}

static Case take(const char *path) {
    Case c;
    FILE *file = fopen(path, "rb");
    if (!file || fread(c.n, sizeof(long), SIZES, file) != SIZES || fread(c.bytes, sizeof(long), ARRAYS, file) != ARRAYS)
        fail("cannot read", path);
    for (int i = 0; i < ARRAYS; i++) {
        c.p[i] = aligned_alloc(64, (c.bytes[i] + 127) / 64 * 64);
        if (!c.p[i] || (!IS_OUT[i] && fread(c.p[i], 1, c.bytes[i], file) != (size_t)c.bytes[i]))
            fail("cannot read", path);
    }
    fclose(file);
    return c;
}

static void poison(Case *c) {
    for (int i = 0; i < ARRAYS; i++)
        if (IS_OUT[i])
            memset(c->p[i], 0xff, c->bytes[i]); /* NaN as a float, -1 as an integer */
}

static void give(const Case *c, const char *path, const char *end) {
    char name[4096];
    snprintf(name, sizeof name, "%s.%s", path, end);
    FILE *file = fopen(name, "wb");
    if (!file)
        fail("cannot write", name);
    for (int i = 0; i < ARRAYS; i++)
        if (fwrite(c->p[i], 1, c->bytes[i], file) != (size_t)c->bytes[i])
            fail("cannot write", name);
    fclose(file);
}

static double block(kernel_t f, Case *cases, int m, long calls) {
    for (int i = 0; i < m; i++)
        poison(&cases[i]);
    double start = now();
    for (long k = 0; k < calls; k++) {
        Case *c = &cases[k % m];
        CALL_KERNEL(f, c->p, c->n);
    }
    return (now() - start) / calls;
}

/* The arrays that go in, moved from each case to the next. */
static void move_on(Case *cases, int m) {
    for (int i = 0; i < ARRAYS; i++) {
        if (IS_OUT[i] || m < 2)
            continue;
        char *last = malloc(cases[0].bytes[i]);
        memcpy(last, cases[m - 1].p[i], cases[0].bytes[i]);
        for (int k = m - 1; k > 0; k--)
            memcpy(cases[k].p[i], cases[k - 1].p[i], cases[0].bytes[i]);
        memcpy(cases[0].p[i], last, cases[0].bytes[i]);
        free(last);
    }
}

int main(int argc, char **argv) {
    if (argc >= 3 && !strcmp(argv[1], "check")) {
        kernel_t f = load(argv[2]);
        for (int i = 3; i < argc; i++) {
            Case c = take(argv[i]);
            poison(&c);
            CALL_KERNEL(f, c.p, c.n);
            give(&c, argv[i], "out");
        }
        return 0;
    }
    if (argc >= 7 && !strcmp(argv[1], "time")) {
        int blocks = atoi(argv[2]), m = argc - 6;
        double length = 1e-9 * atof(argv[3]);
        kernel_t f[2] = {load(argv[4]), load(argv[5])};
        Case *cases = malloc(m * sizeof(Case));
        for (int i = 0; i < m; i++)
            cases[i] = take(argv[6 + i]);
        long calls[2];
        for (int side = 0; side < 2; side++) {
            double once = block(f[side], cases, m, m);
            calls[side] = m * (1 + (long)(length / (once * m + 1e-9)));
        }
        for (int b = 0; b < blocks; b++) {
            move_on(cases, m);
            for (int turn = 0; turn < 2; turn++) {
                int side = (b + turn) % 2;
                printf("%c %.9g\n", "ab"[side], block(f[side], cases, m, calls[side]));
                if (b == blocks - 1 && side)
                    for (int i = 0; i < m; i++)
                        give(&cases[i], argv[6 + i], "b");
            }
        }
        return 0;
    }
    fprintf(stderr, "usage: bench check LIB CASE... | bench time BLOCKS NS A B CASE...\n");
    return 2;
}
