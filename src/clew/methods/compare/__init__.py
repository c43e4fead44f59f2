"""Several models, prompts or temperatures continue one run from one place until it is known which does better.

Question: which change is better from here on, and is the difference more than chance?
For: who chooses between two models or prompts, and every other method: ``design`` holds their statistics.
Command: ``clew compare``. Page: docs/compare.md.
One-line rule it must beat: run each of them ten times and compare the means.
"""
