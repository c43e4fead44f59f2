"""``EndState``: copies of the world of a stored run as it was when the task ended, for a reflector to look around in.

``ModelReflector`` asks it after a failure; a reflector of one's own may. Each query goes to a copy of its own that is
made again from the record and thrown away, so that no look is seen by the next, by the run or by a fork. It never asks
an agent, a model or a tool beside the world, and it refuses a world that cannot be made again (kind ``none``): there
an act would be done in earnest. What a copy answers is as hostile as what the run was answered.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from clew.core.aio import in_thread
from clew.core.errors import BadInput, CannotRestore, ClewError
from clew.core.protocols import Taskset, World
from clew.core.registry import build as built
from clew.core.values import ToolCall
from clew.methods.memory.lessons.grounds import failed
from clew.methods.memory.lessons.run_view import LOOK, Moment
from clew.store import Run
from clew.worlds.judging import retrace
from clew.worlds.world_asks import Asks, open_world

T = TypeVar("T")
ACTS, SECONDS = 4, 30.0  # acts of one query; that making the copy and acting in it may take
LONGEST = 2000  # characters of one act
TOOLS = 4000  # characters in which a world's tools are told
Act = str | ToolCall


class EndState:
    """Copies of the world of a run.

    Args:
        run: one of a world that can be made again.
        seconds: that one query may take.
    """

    def __init__(self, run: Run, seconds: float = SECONDS) -> None:
        self.run, self.seconds = run, seconds
        acts = [call for call in run.calls if call.kind == "act" and call.done >= 0 and call.state]
        self.last = acts[-1].seq if acts and acts[-1].terminal else len(run.calls)  # the act that ended the task
        self._acts, self._edits = acts, list(run.changes.edits)

    async def tools(self) -> str:
        """What can be done there, a tool a line, at most 4,000 characters; a world without tools is acted in by words.

        Raises:
            ClewError: the world cannot be made again.
        """

        async def told(world: World) -> str:
            lines = [f"{spec.name}{json.dumps(spec.schema)}: {spec.description}" for spec in world.tools]
            return "\n".join(lines)[:TOOLS]

        return await self._in_copy(self.last, told) or "none: an act is a line of text"

    async def query(self, acts: Sequence[Act], before: int | None = None) -> tuple[Moment, ...]:
        """Carry out up to 4 acts, one after the other, in a fresh copy, and tell what each was answered.

        Gives a Moment for each act that was carried out; ``acted`` where it was answered by no error and left the state
        of the copy as it was, so that it only looked. An act that ends the task is the last.

        Args:
            before: number of the Call before which the world is entered; None: before the act that ended the task.

        Raises:
            ClewError: the world cannot be made again, or not in time.
        """
        start = self.last if before is None else min(before, self.last)

        async def carried_out(world: World) -> tuple[Moment, ...]:
            done = list[Moment]()
            for act in list(acts)[:ACTS]:
                was, over = world.state_key, False
                try:
                    seen = world.step(act)
                    seen = await seen if inspect.isawaitable(seen) else seen
                    answer, over = seen.text, seen.done
                except Exception as error:  # a world of the user's own may raise anything at what it does not expect
                    answer = f"error: {error.message if isinstance(error, ClewError) else type(error).__name__}"
                looked = world.state_key == was and not over and not failed(answer)
                changed = "" if world.state_key == was else " (this changed the copy)"
                done.append(Moment(start, _did(act), answer[:LOOK] + changed, looked))
                if over:
                    break
            return tuple(done)

        return await self._in_copy(start, carried_out)

    async def _in_copy(self, seq: int, work: Callable[[World], Awaitable[T]]) -> T:
        """Do something in a copy of the world as it was before a Call; in a thread, which may compute without end."""

        async def inside() -> T:
            taskset: Taskset = built("tasksets", self.run.row.taskset)
            asks = Asks()
            world = open_world(taskset, taskset.find(self.run.row.task_id), asks)
            try:
                if world.restores not in ("exact", "reenact"):
                    raise CannotRestore(f"a world of kind {world.restores} is not made again for a look")
                acts = [call for call in self._acts if call.seq < seq]
                await retrace(world, acts, [edit for edit in self._edits if edit.seq <= seq], asks)
                return await work(world)
            finally:
                world.close()

        if not self.run.row.taskset:
            raise BadInput("the run was made without a world")
        try:
            async with asyncio.timeout(self.seconds):
                return await in_thread(inside())
        except TimeoutError:
            raise BadInput(f"its world gave nothing within {self.seconds:g} s") from None
        except ClewError:
            raise
        except Exception as error:  # whatever a world of the user's own raises
            raise CannotRestore(f"its world failed: {type(error).__name__}") from error


def read_acts(told: object) -> tuple[Act, ...]:
    """Acts as a model writes them in JSON: texts, or objects with ``name`` and ``arguments``.

    Raises:
        BadInput: they are none.
    """
    if not isinstance(told, list) or not told:
        raise BadInput("query is no list of acts")
    return tuple(_read(one, number) for number, one in enumerate(told[:ACTS]))


def _read(one: object, number: int) -> Act:
    if isinstance(one, str) and 0 < len(one) <= LONGEST:
        return one
    name, given = (one.get("name"), one.get("arguments", {})) if isinstance(one, dict) else (None, None)
    if not isinstance(name, str) or not name or not isinstance(given, dict):
        raise BadInput("an act is no text and no object with name and arguments")
    arguments = json.dumps(given)
    if len(name) + len(arguments) > LONGEST:
        raise BadInput(f"an act has more than {LONGEST:,} characters")
    return ToolCall(f"look-{number}", name, arguments)


def _did(act: Act) -> str:
    """An act as ``RunView`` tells those of the run."""
    return f"{act.name}({act.arguments})" if isinstance(act, ToolCall) else act
