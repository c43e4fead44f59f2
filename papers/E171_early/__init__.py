"""E171: does thinking decide anything? Tier planted on known statistics, organisms in small models."""

NEEDS = "stats, probes, local (organisms)"
TIERS = ("planted", "organisms")
SETTINGS = ("kind", "organism", "tau")
