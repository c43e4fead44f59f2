"""E168: text memory first, code when it is earned, in the world ``apps``. Player, reflector, codifiers go by rules."""

NEEDS = "memory, stats"
TIERS = ("bare", "streams", "cost", "flaw", "drift", "shadow", "store", "learn", "worth", "real")
SETTINGS = (
    "kind",
    "errands",
    "place",
    "size",
    "families",
    "condition",
    "zipf",
    "price",
    "bug",
    "flaw",
    "override",
    "calls",
)
