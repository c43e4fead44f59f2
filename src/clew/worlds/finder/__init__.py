"""Finder: questions on invented people, by search and pages, with rich or poor snippets (specs/E167)."""

from clew.worlds.finder.finder import Finder, FinderWorld

__all__ = ["Finder", "FinderWorld"]
