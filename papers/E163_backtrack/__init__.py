"""E163: who learns to retreat in a maze. Tier T is exact, S learns from rollouts, D from traces, N is a network."""

NEEDS = "local (N)"
TIERS = ("T", "S", "D", "N")
SETTINGS = ("kind", "n", "share", "w", "k", "l")
