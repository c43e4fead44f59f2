"""E165: G2PO and its family. Tier 8a is tabular, 8b a small transformer."""

NEEDS = "local (8b)"
TIERS = ("8a", "8b")
SETTINGS = ("kind", "arm", "variant", "rescale", "lr", "eps")
