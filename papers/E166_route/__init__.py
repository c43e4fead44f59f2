"""E166: does one model in front of many pay? Its head is evolved, its plans are learnt, in a simulated pool."""

NEEDS = "stats, probes, route"
TIERS = ("fast", "plans")
SETTINGS = ("kind", "way", "n", "iterations", "copying", "files", "memory", "size")
