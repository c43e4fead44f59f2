"""The static files of the web viewer: its modules, its style, and D3 from the package that brings it."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.machinery import ModuleSpec
from importlib.resources import files
from importlib.util import find_spec, module_from_spec

from clew.core.errors import MissingExtra, UnknownName

TYPES = {end: f"text/{kind}; charset=utf-8" for end, kind in (("html", "html"), ("js", "javascript"), ("css", "css"))}
TYPES |= {"svg": "image/svg+xml", "png": "image/png", "json": "application/json", "woff2": "font/woff2"}


def static(name: str) -> tuple[bytes, str]:
    """A file of the page by its path below ``static``, and its media type.

    Raises:
        UnknownName: there is none. MissingExtra: the package that brings D3 is not installed.
    """
    if name == "d3.js":
        return d3(), TYPES["js"]
    ending = name.rpartition(".")[2]
    if ending not in TYPES or not all(re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", part) for part in name.split("/")):
        raise UnknownName(f"no file {name!r}")
    try:
        return files("clew.view").joinpath("static", *name.split("/")).read_bytes(), TYPES[ending]
    except OSError:
        raise UnknownName(f"no file {name!r}") from None


@lru_cache(maxsize=1)
def d3() -> bytes:
    """D3 5 as the package mpld3 ships it; read, not imported, since importing it would load matplotlib.

    Raises:
        MissingExtra: mpld3 is not installed, or no longer ships it.
    """
    spec: ModuleSpec | None = find_spec("mpld3")
    try:
        if spec is None:
            raise FileNotFoundError
        return files(module_from_spec(spec)).joinpath("js", "d3.v5.min.js").read_bytes()
    except OSError as error:
        remedy = 'Run pip install "clew[view]".'
        raise MissingExtra("D3, which the package mpld3 brings, is not installed", remedy=remedy) from error
