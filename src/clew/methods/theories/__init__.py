"""Theories of how people choose: proposed, tested on designs that tell them apart, judged against the data's noise.

Question: which theory explains these choices, as far as their noise allows to tell?
For: cognitive scientists, and who models its users.
Paper: E176, arXiv 2606.26448. Command: ``clew evolve theories``. Page: docs/theories.md.
One-line rule it must beat: the weighted sum of the attributes.
"""
