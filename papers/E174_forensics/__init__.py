"""E174: why an agent did it. A cell is one check of specs/E174 section 9 at one seed."""

NEEDS = "stats"
TIERS = ("A",)
SETTINGS = ("check",)
