"""E164: rules that compaction deletes. Tier A needs the frameworks, R the shared data, B torch."""

NEEDS = "make frameworks (A), ../shared (R), local (B)"
TIERS = ("A", "R", "B")
SETTINGS = ("kind", "stack", "delivery", "condition", "strategy", "summariser", "budget", "pinned", "size")
