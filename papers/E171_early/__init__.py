"""E171: does thinking decide anything? Tier planted on known statistics, organisms and matched in small models."""

NEEDS = "stats, probes, local (organisms, matched)"
TIERS = ("planted", "organisms", "matched")
SETTINGS = ("kind", "organism", "tau")
