"""Verify or ship: which checks are worth running on a change.

Question: may this change be merged now, or is another check worth its cost?
For: who lets agents change code under a budget for checks.
Paper: E170, arXiv 2606.24453. Command: ``clew gate``. Page: docs/gate.md.
One-line rule it must beat: run all checks, always.
"""
