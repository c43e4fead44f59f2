"""E166: does one model in front of many pay, and is its head evolved? Tier fast in a simulated pool."""

NEEDS = "stats, probes, route"
TIERS = ("fast", "service")
SETTINGS = ("kind", "way", "n", "iterations", "fault", "down")
