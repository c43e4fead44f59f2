"""A pool of models measured: how well each answers each question, and whether choosing by question would pay.

``clew route`` calls it. Nothing here serves a request: the Model that does is ``clew.models.compose.router``.
"""
