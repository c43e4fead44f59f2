"""Brightness, from 0 to 1, of pixels given as bytes of red, green and blue."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()


def reference(rgb, pixels):
    return {"out": rgb.reshape(pixels, 3).astype(np.float64) @ np.array([0.299, 0.587, 0.114]) / 255}


kernel = Kernel(
    "grey",
    SOURCE,
    "grey",
    arrays=(Array("rgb", lambda pixels: 3 * pixels, "uint8"), Array("out", lambda pixels: pixels, role="out")),
    sizes=("pixels",),
    shapes=({"pixels": 200000}, {"pixels": 1003}, {"pixels": 3}),
    inputs=lambda rng, pixels: {"rgb": rng.integers(0, 256, 3 * pixels).astype(np.uint8)},
    reference=reference,
    flops=lambda pixels: 6.0 * pixels,
    options=(Option("FLOAT", (0, 1), "literals"), Option("PIXELS", (1, 4), "unroll")),
)
