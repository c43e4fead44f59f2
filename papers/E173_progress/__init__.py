"""E173: progress as a log-ratio. Tier tabular is exact, clerk a small transformer; weights in .clew/models/E173."""

NEEDS = "local (clerk)"
TIERS = ("tabular", "clerk")
SETTINGS = ("kind", "slips", "kl", "at", "noise", "n", "tilt", "size")
