"""The cells of tier A: the structural audit of the installed stacks (specs/E164, sections 5 and 8A), without chance.

Run it with an interpreter that has the frameworks (``pip install 'clew[frameworks]'``); stacks that are not installed
have no cells.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from clew.methods.pins import structural
from clew.methods.pins.stacks import STACKS
from papers.E164_governance.measured import measured, versions
from papers.experiment import Line, by_kind, grid


def cells(quick: bool) -> Iterator[Line]:
    """``quick``: two histories and three generations."""
    installed = [name for name, stack in STACKS.items() if stack.package == "clew" or stack.version]
    about = {"versions": ", ".join(f"{p} {v}" for p, v in versions().items())}
    if all(STACKS[name].version for name in ("langmem", "langchain", "autogen-buffered") if name in installed):
        yield from grid(kind="measured", pinned=(False, True), **about, seed=0)
    yield from grid(
        kind="grid", stack=installed, pinned=(False, True), size="quick" if quick else "full", **about, seed=0
    )


def cost(cell: Line) -> float:
    return 3.0 if cell["kind"] == "measured" else 1.0 if cell["size"] == "quick" else 9.0


def _measured(setting: Line, seed: int) -> Line:
    claims: dict[str, list[Any]] = defaultdict(list)
    for found in measured(setting["pinned"]):
        claims[found.claim].append(found)
    return {
        "claims": [
            {
                "claim": claim, "n": len(runs), "lost": sum(f.lost for f in runs), "fired": sum(f.fired for f in runs),
                "predicted": sum(f.predicted for f in runs), "asked": sum(f.asked for f in runs),
            }
            for claim, runs in claims.items()
        ]
    }  # fmt: skip


def _grid(setting: Line, seed: int) -> Line:
    quick = setting["size"] == "quick"
    grid = structural.cells((1.1, 5.0)) if quick else structural.cells()
    outcomes = structural.survey([setting["stack"]], grid, pinned=setting["pinned"], generations=3 if quick else 5)
    sent = [o for o in outcomes if not o.error]
    by = {
        field: {
            str(value): [sum(o.kept for o in sent if key(o) == value), sum(key(o) == value for o in sent)]
            for value in sorted({key(o) for o in sent}, key=str)
        }
        for field, key in KEYS.items()
    }
    (finding,) = structural.findings(outcomes)
    return {
        "found": {name: getattr(finding, name) for name in finding.__slots__},
        "by": by,
        "blocks": sorted({o.blocks for o in sent}),
        "tokens": max((o.tokens for o in sent), default=0),
    }


KEYS: dict[str, Any] = {
    "history": lambda o: o.cell.history,
    "position": lambda o: o.cell.position,
    "channel": lambda o: o.cell.channel,
    "mix": lambda o: o.cell.mix,
    "generation": lambda o: o.generation,
}

run = by_kind({"measured": _measured, "grid": _grid})
