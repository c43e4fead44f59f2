#include <string.h>

#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

void histogram(const unsigned char *RESTRICT x, int *RESTRICT out, long n) {
#if PRIVATE == 1
    int (*count)[256] = (int (*)[256])out;
#else
    int count[PRIVATE][256];
#endif
    long i = 0;
    for (long c = 0; c < PRIVATE; c++)
        for (long b = 0; b < 256; b++)
            count[c][b] = 0;
#if WORDS
    for (; i + 8 <= n; i += 8) {
        unsigned long w;
        memcpy(&w, x + i, 8);
        count[0][w & 255]++;
        count[1 % PRIVATE][w >> 8 & 255]++;
        count[2 % PRIVATE][w >> 16 & 255]++;
        count[3 % PRIVATE][w >> 24 & 255]++;
        count[4 % PRIVATE][w >> 32 & 255]++;
        count[5 % PRIVATE][w >> 40 & 255]++;
        count[6 % PRIVATE][w >> 48 & 255]++;
        count[7 % PRIVATE][w >> 56]++;
    }
#elif PRIVATE > 1
    for (; i + PRIVATE <= n; i += PRIVATE)
        for (long c = 0; c < PRIVATE; c++)
            count[c][x[i + c]]++;
#endif
    for (; i < n; i++)
        count[0][x[i]]++;
#if PRIVATE > 1
    for (long b = 0; b < 256; b++) {
        int s = 0;
        for (long c = 0; c < PRIVATE; c++)
            s += count[c][b];
        out[b] = s;
    }
#endif
}
