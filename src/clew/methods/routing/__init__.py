"""A pool of models measured: how well each answers each question, and whether choosing by question would pay.

Question: should one of these models answer everything, or another for each kind of question?
For: who runs a pool of models. Nothing here serves a request: the model that does is ``clew.models.compose.router``.
Paper: E166, arXiv 2606.21228. Command: ``clew route``. Page: docs/route.md.
One-line rule it must beat: always the model that is best on average.
"""
