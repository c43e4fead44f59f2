"""E178: the Red Queen engine in a world whose truth is known: writers with skill and gloss, judges that weigh cues."""

NEEDS = "stats"
TIERS = ("modes", "programs", "sweep", "equal", "cost", "desk")
SETTINGS = ("mode", "gate", "anchor", "labels", "budget", "challengers", "errors", "schedule")
