"""E172: cliff tokens. Tier toy on chains known exactly, data on released potentials, model in a small transformer."""

NEEDS = "../shared (data), local (model)"
TIERS = ("toy", "data", "model")
SETTINGS = ("kind", "arm", "budget", "stems", "path")
