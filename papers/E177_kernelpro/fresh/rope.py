"""Rotary position embedding: each pair of neighbours within a head is turned by an angle of its position."""

from pathlib import Path

import numpy as np

from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()


def reference(x, positions, heads, dim):
    pairs = x.reshape(positions, heads, dim // 2, 2)
    angle = np.arange(positions)[:, None] * 10000.0 ** (-2.0 * np.arange(dim // 2) / dim)
    c, s = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    a, b = pairs[..., 0], pairs[..., 1]
    return {"out": np.stack([a * c - b * s, a * s + b * c], -1).ravel()}


kernel = Kernel(
    "rope",
    SOURCE,
    "rope",
    arrays=(
        Array("x", lambda positions, heads, dim: positions * heads * dim),
        Array("out", lambda positions, heads, dim: positions * heads * dim, role="out"),
    ),
    sizes=("positions", "heads", "dim"),
    shapes=(
        {"positions": 64, "heads": 8, "dim": 64},
        {"positions": 7, "heads": 3, "dim": 10},
        {"positions": 33, "heads": 1, "dim": 6},
    ),
    inputs=lambda rng, positions, heads, dim: {"x": rng.standard_normal(positions * heads * dim).astype(np.float32)},
    reference=reference,
    flops=lambda positions, heads, dim: 3.0 * positions * heads * dim,
    options=(Option("ORDER", (0, 1, 2), "interchange"), Option("FLOAT", (0, 1), "literals")),
)
