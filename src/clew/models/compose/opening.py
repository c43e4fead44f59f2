"""Opens a fitted router by its reference: the pool of its folder, a policy and a ledger, as ``Routed`` takes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from clew.core.errors import BadInput
from clew.core.protocols import Model
from clew.models import ALIASES, load
from clew.models.compose import router
from clew.models.compose.backbone import Backbone
from clew.models.compose.ledger import Ledger, key_of
from clew.models.compose.policy import Policy
from clew.models.compose.routed import Parts, Routed
from clew.models.compose.router import Worker
from clew.models.remote.limits import Purse

LOOPBACK = ("localhost", "127.0.0.1", "::1")
SHARED = ("attempts", "backoff", "timeout", "deadline", "concurrency")  # options for each endpoint of a pool


def opened(
    ref: str,
    *,
    api_key: str | Callable[[], str] | None = None,
    keys: Mapping[str, str] | None = None,
    **options: Any,
) -> Routed:
    """The router of ``route:FOLDER[?POLICY][#WORKER]`` with the models of its workers, as ``clew.schemes`` opens it.

    Args:
        api_key, keys: as ``clew.models.load``.
        options: of ``Routed``; those named ``SHARED`` go to each endpoint, ``max_cost`` to all together.

    Raises:
        BadInput: the folder, the policy or an option makes no sense.
    """
    parts = Parts.of(ref)
    found = router.load(Path(parts.folder).expanduser())
    if isinstance(found.features, Backbone):
        found.features.model()  # its weights, so that no request waits for them
    ends = {"attempts": 1} | {name: options.pop(name) for name in SHARED if name in options}  # the next worker is there
    if (most := options.pop("max_cost", None)) is not None:
        ends["max_cost"] = most if isinstance(most, Purse) else Purse(most)
    models = [_worker(one, api_key, keys or {}, dict(ends)) for one in found.workers]
    policy = parts.policy
    if (said := options.pop("policy", None)) is not None:
        policy = policy.narrowed(said if isinstance(said, Policy) else Policy.read(said))
    ledger, key = options.pop("ledger", None), options.pop("ledger_key", None)
    if (ledger is None) != (key is None):
        raise BadInput("a ledger needs a key, and a key a ledger", remedy="Give ledger=FILE and ledger_key=FILE.")
    signed = Ledger(ledger, key_of(key)) if ledger is not None else None
    try:
        return Routed(found, models, folder=parts.folder, worker=parts.worker, policy=policy, ledger=signed, **options)
    except TypeError as error:
        raise BadInput(f"{ref}: {error}", remedy="See clew.models.compose.routed.Routed for options.") from error


def _worker(
    worker: Worker, api_key: str | Callable[[], str] | None, keys: Mapping[str, str], options: dict[str, Any]
) -> Model:
    """The model of one worker, which connects to nothing yet."""
    scheme, _, rest = worker.ref.strip().partition(":")
    if scheme not in ("http", "https", *ALIASES):
        return load(worker.ref)
    url = worker.ref if scheme in ("http", "https") else "http" + rest.partition("@http")[2] if "@http" in rest else ""
    own = keys.get(re.sub(r"[^A-Z0-9]", "_", worker.name.upper()))
    trusted = api_key if not url or urlsplit(url).hostname in LOOPBACK else None
    if worker.price_in is not None and worker.price_out is not None:
        options["price"] = (worker.price_in, worker.price_out)
    return load(worker.ref, api_key=own or trusted, **options)
