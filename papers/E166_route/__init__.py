"""E166: does one model in front of many pay? Its head is evolved, its service measured, its plans learnt."""

NEEDS = "stats, probes, route, local (conductor)"
TIERS = ("fast", "service", "plans", "conductor")
SETTINGS = ("kind", "way", "n", "iterations", "fault", "worker", "copying", "files", "memory", "size")
