"""E162: rollout trees branched by UUCB. Tier chain on prompts whose chance is known, sums in a small transformer."""

NEEDS = "local (sums)"
TIERS = ("chain", "sums")
SETTINGS = ("kind", "arm", "prompts", "depth", "seeds")
