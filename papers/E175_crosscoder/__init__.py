"""E175: which single feature did training add? Tier activations on planted features, pairs in tiny language models."""

NEEDS = "local (all), stats (all)"
TIERS = ("activations", "pairs")
SETTINGS = ("kind", "pair", "method", "often", "cosine", "prompts", "steps")
