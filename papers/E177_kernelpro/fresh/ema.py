"""Exponential moving average over time of many channels, each with its own rate."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()


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
