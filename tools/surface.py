"""The public surface: every name of ``clew``, of ``clew.credit``, and every verb, with its parameters.

python tools/surface.py            # prints it
python tools/surface.py --write    # into tests/repo/surface.txt, which a test compares with the code
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

SNAPSHOT = Path(__file__).resolve().parent.parent / "tests" / "repo" / "surface.txt"


def lines() -> Iterator[str]:
    import click

    import clew
    import clew.credit
    from clew.cli import verbs

    for package in (clew, clew.credit):
        for name in sorted(package.__all__):
            thing = getattr(package, name)
            if isinstance(thing, ModuleType):
                yield f"{package.__name__}.{name}"
            else:
                yield from describe(f"{package.__name__}.{name}", thing)
    context = click.Context(verbs)
    for verb in verbs.list_commands(context):
        command = verbs.get_command(context, verb)
        yield from said(command, verb)


def said(command: Any, name: str) -> Iterator[str]:
    """A verb with its parameters; of a group, each of its verbs."""
    import click

    if isinstance(command, click.Group):
        context = click.Context(command)
        for verb in command.list_commands(context):
            yield from said(command.get_command(context, verb), f"{name} {verb}")
        return
    names = [p.opts[0] if isinstance(p, click.Option) else str(p.name).upper() for p in command.params]
    yield f"$ clew {name} {' '.join(sorted(names))}"


def describe(name: str, thing: Any) -> Iterator[str]:
    """A function with its parameters; a class with its constructor and public members."""
    if not inspect.isclass(thing):
        yield name + (parameters(thing) if callable(thing) else "")
        return
    yield f"{name}{parameters(thing)}"
    for member, value in sorted(vars(thing).items()):
        if member.startswith("_"):
            continue
        inner = getattr(value, "__func__", value)
        yield f"{name}.{member}" + (parameters(inner, skip=1) if inspect.isfunction(inner) else "")


def parameters(thing: Any, skip: int = 0) -> str:
    """Names of parameters, ``=`` behind those that have a default."""
    try:
        found = list(inspect.signature(thing).parameters.values())[skip:]
    except (TypeError, ValueError):
        return ""
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return f"({', '.join(marks.get(p.kind, '') + p.name + '=' * (p.default is not p.empty) for p in found)})"


def main() -> int:
    text = "\n".join(lines()) + "\n"
    if "--write" in sys.argv:
        SNAPSHOT.write_text(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
