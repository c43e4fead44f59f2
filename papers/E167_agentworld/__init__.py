"""E167: a model of a world from stored runs: how faithful, for how long, what it forgets, what it trains."""

NEEDS = "local (all), stats"
TIERS = ("fit", "think", "mask", "replay", "reward", "flatter", "decouple", "warm")
SETTINGS = ("kind", "world", "arm", "share", "every", "size", "bias")
