"""Apps: six small apps with habits that nobody is told of, worked by tools (specs/E168, section 7.1)."""

from clew.worlds.apps.apps import Apps, AppsWorld

__all__ = ["Apps", "AppsWorld"]
