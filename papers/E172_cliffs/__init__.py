"""E172: cliff tokens. Tier toy on chains known exactly, data on released potentials, model in a small transformer."""

TIERS = ("toy", "data", "model")
SETTINGS = ("kind", "arm", "budget", "stems", "path")
