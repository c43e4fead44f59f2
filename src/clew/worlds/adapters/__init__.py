"""Worlds of other packages as worlds of Clew."""
