
void transpose(const float *restrict x, float *restrict out, long n) {
    long t = TILE ? TILE : n;
    for (long i0 = 0; i0 < n; i0 += t)
        for (long j0 = 0; j0 < n; j0 += t)
            for (long i = i0; i < (i0 + t < n ? i0 + t : n); i++)
                for (long j = j0; j < (j0 + t < n ? j0 + t : n); j++)
                    out[j * n + i] = x[i * n + j];
}
