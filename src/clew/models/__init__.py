"""Models: fakes, remote endpoints, local weights. ``load`` finds a model by its reference."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clew.core import registry
from clew.core.doors import SchemeOpener
from clew.core.errors import BadInput, UnknownName
from clew.core.protocols import Model
from clew.core.sources import file_of

ALIASES = {
    "openai": ("chat", "https://api.openai.com/v1"),
    "anthropic": ("messages", "https://api.anthropic.com/v1"),
    "chat": ("chat", ""),
    "responses": ("responses", ""),
    "messages": ("messages", ""),
}
SHAPES = (
    'a name ("echo"), a class of a file ("mine.py:Model"), a folder or hub name of weights ("./weights", "org/model"), '
    'an endpoint ("http://host/v1#model"), or a fitted router ("route:./folder")'
)


def load(
    ref: str | Path | Model,
    *,
    api_key: str | Callable[[], str] | None = None,
    keys: Mapping[str, str] | None = None,
    **options: Any,
) -> Model:
    """A model by reference; a Model is given back as it is.

    Args:
        ref: ``name`` or ``name(key=value)`` of a registered model; ``path/file.py:Class(key=value)`` of a file's;
            ``http(s)://host/v1#model`` or ``openai:model[@base_url]`` (also ``anthropic:``, ``responses:``,
            ``messages:``) for an endpoint; ``route:FOLDER[?POLICY][#WORKER]`` for a pool behind a router; a folder or
            hub name of weights. Other words before a colon are looked up among ``clew.schemes``.
        api_key: credential of an endpoint; not looked at for other models.
        keys: credentials of a pool's workers by their names in capitals, ``_`` for other signs than letters and digits.
            A worker without one gets ``api_key`` only where it is at its provider's home or on this machine: a folder
            of somebody else must not choose who is sent it.
        options: passed to the model.

    Raises:
        UnknownName: nothing of that name is known here. BadInput: a reference or option that makes no sense.
        MissingExtra: weights need packages that are not installed.
    """
    if not isinstance(ref, (str, Path)):
        if hasattr(ref, "complete") and hasattr(ref, "ref"):
            return ref
        raise BadInput(f"a {type(ref).__name__} is not a model", remedy=f"Give {SHAPES}, or an object that is a Model.")
    text = str(ref).strip()
    scheme, _, rest = text.partition(":")
    if scheme in ("http", "https"):
        url, _, model = text.partition("#")
        if not model:
            shown = url.rpartition("@")[2]
            raise BadInput(f"{shown!r} does not say which model", remedy=f"Write {shown}#name-of-the-model.")
        return _remote(url, model, api_key, options)
    if scheme in ALIASES and rest:
        dialect, home = ALIASES[scheme]
        model, _, url = rest.partition("@http")
        url = "http" + url if url else home
        if not url:
            raise BadInput(f"{text!r} does not say where", remedy=f"Write {scheme}:{model}@http://host/v1.")
        return _remote(url, model, api_key, {"dialect": dialect} | options)
    if file_of(text):
        return _in_file(text, options)
    if rest and re.fullmatch(r"[a-z][a-z0-9+-]*", scheme) and scheme in registry.names("schemes"):
        return _opened(scheme, text, api_key, keys or {}, options)
    if (weights := weights_in(text)) is not None:
        return _weights(weights, options)
    name, arguments = registry.parse_ref(text) if re.match(r"[\w.-]+(\(|$)", text) else ("", {})
    if name in registry.names("models"):
        return _registered(text, name, arguments | options)
    near = difflib.get_close_matches(name or text, registry.names("models"), 3)
    raise UnknownName(
        f"no model is called {text!r}"
        + (", and there is no such folder" if "/" in text or text.startswith(".") else ""),
        remedy=(f"Did you mean {', '.join(near)}? " if near else "") + f"Give {SHAPES}; `clew models` lists the names.",
    )


def weights_in(text: str) -> str | None:
    """The folder or hub name of weights that ``load`` takes a text for; None where it is something else."""
    if text and Path(text).expanduser().is_dir():
        return str(Path(text).expanduser())
    return text if re.fullmatch(r"[\w.-]+/[\w.-]+", text) and not text.startswith(".") else None


def _in_file(text: str, options: dict[str, Any]) -> Model:
    name, arguments = registry.parse_ref(text)
    made: Model = registry.build("models", registry.make_ref(name, arguments | options))
    return made


def _registered(text: str, name: str, arguments: dict[str, Any]) -> Model:
    try:
        return registry.lookup("models", name)(**arguments)  # type: ignore[no-any-return]
    except TypeError as error:
        if "argument" not in str(error):
            raise
        raise BadInput(f"model {text!r}: {error}", remedy=f"`clew models` shows what {name} takes.") from error


def _remote(url: str, model: str, api_key: str | Callable[[], str] | None, options: dict[str, Any]) -> Model:
    from clew.models.remote.client import Remote

    try:
        return Remote(url, model, api_key, **options)
    except TypeError as error:
        raise BadInput(
            f"endpoint for {model!r}: {error}", remedy="See clew.models.remote.client.Remote for options."
        ) from error


def _weights(source: str, options: dict[str, Any]) -> Model:
    if "weights" not in registry.names("schemes"):
        remedy = 'Run pip install "clew[local]", or name an endpoint: openai:model@http://host/v1.'
        raise UnknownName(f"{source!r} names weights, and nothing here loads weights", remedy=remedy)
    return _opened("weights", source, None, {}, options)


def _opened(
    scheme: str, text: str, api_key: str | Callable[[], str] | None, keys: Mapping[str, str], options: dict[str, Any]
) -> Model:
    opens: SchemeOpener = registry.lookup("schemes", scheme)
    return opens(text, api_key=api_key, keys=keys, **options)
