#ifdef SIMD
#define RESTRICT restrict
#else
#define RESTRICT
#endif

void ema(const float *RESTRICT x, const float *RESTRICT alpha, float *RESTRICT out, long channels, long time) {
    long c = 0;
#if CHANNELS > 1 /* several channels side by side */
    for (; c + CHANNELS <= channels; c += CHANNELS) {
        const float *from = x + c * time;
        float *to = out + c * time;
        float y[CHANNELS], a[CHANNELS];
        for (long k = 0; k < CHANNELS; k++) {
            a[k] = alpha[c + k];
            to[k * time] = y[k] = from[k * time];
        }
        long t = 1;
#if AHEAD == 2
        for (; t + 2 <= time; t += 2)
#ifdef SIMD
#pragma omp simd
#endif
            for (long k = 0; k < CHANNELS; k++) {
                float b = 1 - a[k], first = a[k] * from[k * time + t], second = a[k] * from[k * time + t + 1];
                to[k * time + t] = first + b * y[k];
                y[k] = (second + b * first) + b * b * y[k];
                to[k * time + t + 1] = y[k];
            }
#endif
        for (; t < time; t++)
#ifdef SIMD
#pragma omp simd
#endif
            for (long k = 0; k < CHANNELS; k++) {
                y[k] = a[k] * from[k * time + t] + (1 - a[k]) * y[k];
                to[k * time + t] = y[k];
            }
    }
#endif
    for (; c < channels; c++) {
        const float *from = x + c * time;
        float *to = out + c * time;
        float a = alpha[c], y = from[0];
        to[0] = y;
        long t = 1;
#if AHEAD == 2 /* two steps at once */
        float b = 1 - a, bb = b * b;
        for (; t + 2 <= time; t += 2) {
            float first = a * from[t], second = a * from[t + 1];
            to[t] = first + b * y;
            y = (second + b * first) + bb * y;
            to[t + 1] = y;
        }
#endif
        for (; t < time; t++) {
            y = a * from[t] + (1 - a) * y;
            to[t] = y;
        }
    }
}
