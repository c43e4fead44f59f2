"""Worlds that a model makes up: the form in which it is asked, and what keeps its answers honest."""
