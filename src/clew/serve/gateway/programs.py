"""What a program that the gateway starts finds in its environment, and the endpoints that answer it.

``clew gateway`` and the plug-in for pytest use it. A program must never be given the credential of the upstream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from clew.core.protocols import Model


def environment(address: str, name: str, token: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The variables of a program of the run ``name``: those inherited, with the gateway's address as the endpoint's."""
    base, key = f"{address}/r/{name}", token or f"clew:{name}"
    given = {k: v for k, v in inherited.items() if k != "CLEW_API_KEY"} | {"CLEW_RUN": name}
    given |= {"OPENAI_BASE_URL": f"{base}/v1", "OPENAI_API_BASE": f"{base}/v1", "OPENAI_API_KEY": key}
    return given | {"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": key}


def endpoints(
    upstream: str, key_of: Callable[[str], str | None], given: Mapping[str, Any]
) -> Callable[[str, str, Mapping[str, Any]], Model]:
    """Finds the endpoint's model of the name asked for, one for each combination.

    Args:
        upstream: as in http://host/v1; empty: OpenAI's or Anthropic's, by the dialect.
        key_of: the credential by dialect. given: options of each model.
    """
    known: dict[str, Model] = {}  # shared by all runs, with its connections, limits and what the endpoint refuses

    def resolve(dialect: str, name: str, extra: Mapping[str, Any]) -> Model:
        from clew.models import ALIASES
        from clew.models.remote.client import Remote

        place = json.dumps([dialect, name, extra], sort_keys=True)
        if place not in known:
            home = ALIASES["anthropic" if dialect == "messages" else "openai"][1]
            merged = {**given, "extra": {**given.get("extra", {}), **extra}}
            known[place] = Remote(upstream or home, name, key_of(dialect), dialect=dialect, **merged)
        return known[place]

    return resolve
