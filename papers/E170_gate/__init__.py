"""E170: when to run the oracle. ``sim`` reads what ``bench`` found; ``shell`` is a real repository."""

NEEDS = "bubblewrap (bench, shell)"
TIERS = ("bench", "sim", "shell")
SETTINGS = ("kind", "program", "level", "prior", "verify")
