"""Exponential moving average over time of many channels, each with its own rate."""

import numpy as np

from clew.coding.kernels.kernel import Array, Kernel, Option

SOURCE = """
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
"""


def reference(x, alpha, channels, time):
    out = x.reshape(channels, time).copy()
    for t in range(1, time):
        out[:, t] = alpha * out[:, t] + (1 - alpha) * out[:, t - 1]
    return {"out": out.ravel()}


kernel = Kernel(
    "ema",
    SOURCE,
    "ema",
    arrays=(
        Array("x", lambda channels, time: channels * time),
        Array("alpha", lambda channels, time: channels),
        Array("out", lambda channels, time: channels * time, role="out"),
    ),
    sizes=("channels", "time"),
    shapes=({"channels": 128, "time": 1000}, {"channels": 13, "time": 37}, {"channels": 3, "time": 1}),
    inputs=lambda rng, channels, time: {
        "x": rng.standard_normal(channels * time).astype(np.float32),
        "alpha": rng.uniform(0.01, 0.5, channels).astype(np.float32),
    },
    reference=reference,
    flops=lambda channels, time: 3.0 * channels * time,
    options=(Option("CHANNELS", (1, 4, 8), "register-block"), Option("AHEAD", (1, 2), "unroll")),
)
