"""E165: G2PO and its family. Tier 8a is tabular, 8b a small transformer, programs one that a foreign program asks."""

NEEDS = "local (8b, programs), serve and bubblewrap (programs)"
TIERS = ("8a", "8b", "programs")
SETTINGS = ("kind", "arm", "variant", "rescale", "lr", "eps")
