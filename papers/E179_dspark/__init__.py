"""E179: drafting under load. toy T1; exact T2, T3, T9; draft T4, T5; confidence T6; speed T7; load T8, T10.

Targets and drafters are made below .clew/e179 of the present folder, once.
"""

NEEDS = "local (all but toy, load)"
TIERS = ("toy", "exact", "draft", "confidence", "speed", "load")
# No tier may call a result by one of these names: "rows" is a result of load.
SETTINGS = ("kind", "arm", "block", "table", "policy", "r", "m", "noise", "n", "temperature")
SETTINGS += ("target", "drafter", "lengths", "sampling")
