"""E166: does one model in front of many pay, and is its head evolved? Tier fast in a simulated pool."""

NEEDS = "stats, probes, route, local (conductor)"
TIERS = ("fast", "service", "conductor")
SETTINGS = ("kind", "way", "n", "iterations", "fault", "down")
