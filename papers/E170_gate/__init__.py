"""E170: when to run the oracle. ``sim`` reads what ``bench`` found, ``stream`` what ``fresh`` found; ``shell`` is a
real repository."""

NEEDS = "bubblewrap (bench, shell, fresh), ../shared (bench, fresh)"
TIERS = ("bench", "sim", "shell", "fresh", "stream")
SETTINGS = ("kind", "program", "level", "prior", "verify")
