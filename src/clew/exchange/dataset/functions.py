"""A reward that is a function of the user's: which signatures are taken, how it is called, and for how long.

Parameters are told by their names, never by trying. A function with ``completions`` or ``prompts`` is called as TRL's
reward functions are, with lists of one; any other gets what its parameters name. It runs in a thread of its own, so
that one which hangs stops nothing but its own verdict.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from clew.core.aio import in_thread
from clew.core.errors import BadInput, StoreError
from clew.exchange.dataset.given import Given, NoReward, Verdict, row_of, verdict
from clew.exchange.files import brief

OWN = ("reply", "answer", "prompt", "messages", "id", "task", "run")
TRL = ("completions", "prompts", "completion_ids", "trainer_state", "log_metric")
SHAPES = "score(reply, answer), score(task, run), or TRL's score(completions, **columns)"
Function = Callable[..., Any]


def check(function: object, where: str, columns: Sequence[str]) -> None:
    """Make sure that a function can be called.

    Raises:
        BadInput: it is none, or needs a parameter that nothing gives it.
    """
    if not callable(function):
        raise BadInput(f"{where} is no function", remedy=f"Write it as {SHAPES}.")
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise BadInput(f"{where}: its parameters cannot be read", remedy=f"Write it as {SHAPES}.") from error
    known = {*OWN, *columns} | ({*TRL} if _is_trl(parameters) else set())
    for p in parameters:
        if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL):
            raise BadInput(f"{where} takes {p.name!r} by place, not by name", remedy=f"Write it as {SHAPES}.")
        if p.kind is not p.VAR_KEYWORD and p.default is p.empty and p.name not in known:
            remedy = f"Known: {', '.join(OWN)}, and the columns {', '.join(columns) or '(none)'}."
            raise BadInput(f"{where} takes {p.name!r}, which is neither known nor a column", remedy=remedy)


def scored_by(function: Function, where: str, seconds: float) -> Callable[[Given], Awaitable[Verdict]]:
    """A function as a reward. A call that raises, takes longer, or gives no number is undecided; ``why`` names the
    function, the row and the remedy."""

    async def score(given: Given) -> Verdict:
        def undecided(what: str, remedy: str) -> Verdict:
            return Verdict(None, why=f"{where} {what} for {row_of(given)}. {remedy}")

        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                found = await in_thread(_called(function, given))
        except StoreError:
            raise
        except NoReward as error:
            remedy = "Return a finite number, True, False, a mapping of numbers, or None for undecided."
            return undecided(f"returned {error}", remedy)
        except Exception as error:
            if limit.expired():
                remedy = "Make it end, or give it more time (--reward-seconds)."
                return undecided(f"gave no reward within {seconds:g} s", remedy)
            said = " ".join(str(error).split())[:300]
            named = f"{type(error).__name__}: {said}" if said else type(error).__name__
            remedy = "Mend it, or let it return None where it cannot decide."
            return undecided(f"raised {named}{_line(error, function)}", remedy)
        return found if found.value is not None else found._replace(why=f"{where} returned None for {row_of(given)}")

    return score


async def _called(function: Function, given: Given) -> Verdict:
    parameters = list(inspect.signature(function).parameters.values())
    several = _is_trl(parameters)
    logged: dict[str, Any] = {}
    offered = _as_trl(given, logged) if several else _as_ours(given)
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    named = {p.name for p in parameters}
    more = given.columns if takes_all else ()
    arguments = {name: value for name, value in offered.items() if name in named or name in more}
    returned = function(**arguments)
    if inspect.isawaitable(returned):
        returned = await returned
    if not several:
        return verdict(returned)
    if callable(to_list := getattr(returned, "tolist", None)):  # an array or tensor
        returned = to_list()
    if not isinstance(returned, Sequence) or isinstance(returned, str) or len(returned) != 1:
        raise NoReward(f"{brief(returned)} and not a list of one reward for the list of one completion")
    said = verdict(returned[0])
    return said._replace(parts={**said.parts, **verdict(logged).parts}) if logged else said


def _as_ours(given: Given) -> dict[str, Any]:
    known = {name: getattr(given, name) for name in ("reply", "answer", "prompt", "task", "run")}
    return {**given.columns, **known, "messages": list(given.messages), "id": given.task.id}


def _as_trl(given: Given, logged: dict[str, Any]) -> dict[str, Any]:
    """Lists of one, as GRPOTrainer gives lists of many: texts, or messages where the prompt is made of messages. What
    ``log_metric`` is told goes into ``logged``."""
    talk = given.task.data.get("messages")
    prompt: object = list(given.messages) if talk else given.prompt
    reply: object = [{"role": "assistant", "content": given.reply}] if talk else given.reply
    sampled = [c.node_out for c in given.run.calls if c.kind == "ask" and c.node_out]
    ids = given.run.store.node(sampled[-1]).ids if sampled else None
    columns = {name: [value] for name, value in given.columns.items() if name not in ("prompt", "completion")}
    mine = {"prompts": [prompt], "completions": [reply], "completion_ids": [list(ids or ())]}
    return {**columns, **mine, "trainer_state": None, "log_metric": logged.__setitem__}


def _is_trl(parameters: Sequence[inspect.Parameter]) -> bool:
    return any(p.name in ("completions", "prompts") for p in parameters)


def _line(error: BaseException, function: Function) -> str:
    """Where in the function's own file an error was raised."""
    code = getattr(inspect.unwrap(_inner(function)), "__code__", None)
    at, found = error.__traceback__, 0
    while at is not None and code is not None:
        if at.tb_frame.f_code.co_filename == code.co_filename:
            found = at.tb_lineno
        at = at.tb_next
    return f" (line {found} of {os.path.basename(code.co_filename)})" if code is not None and found else ""


def _inner(function: Function) -> Function:
    return function.func if isinstance(function, functools.partial) else function
