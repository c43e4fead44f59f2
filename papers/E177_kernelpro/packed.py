"""A matrix product whose changes only pay together: packing, tiling and register blocks (K7)."""

from pathlib import Path

from clew.methods.kernels.catalogue import GEMM
from clew.methods.kernels.kernel import Array, Kernel, Option

SOURCE = Path(__file__).with_suffix(".c").read_text()
PACKED = Kernel(
    "packed-gemm", SOURCE, "gemm",
    (Array("a", lambda n: n * n), Array("b", lambda n: n * n), Array("c", lambda n: n * n, role="out")),
    ("n",), ({"n": 256}, {"n": 67}, {"n": 5}), GEMM.inputs, GEMM.reference, GEMM.flops,
    (
        Option("TILE", (256, 16, 64, 128), "tile"), Option("PACK", (0, 1), "layout"),
        Option("BLOCK", (1, 2, 4, 8), "tile"),
    ),
    gemm=True,
)  # fmt: skip
