"""E177: tuning kernels by advice. detector K1, K2; search K3, K4; wall K5, K10; tree K6, K7; machine K8; cuda K9."""

NEEDS = "C compiler (all but cuda), nvcc and kernels (cuda)"
TIERS = ("detector", "search", "wall", "tree", "machine", "cuda")
SETTINGS = ("kind", "name", "arm")
