"""Verify or ship: which checks are worth running on a change (arXiv 2606.24453)."""
