"""E176: theories of how people choose, found by a closed loop and judged by noise and by twins (arXiv 2606.26448)."""

NEEDS = "evolve, ../shared (human)"
TIERS = ("loop", "gate", "human")
SETTINGS = ("truth", "lacking", "policy", "loss", "people", "rule", "pair", "kind", "ratings", "control")
