"""The agent of runs whose asks a foreign program makes: it asks the run's model what the program asks.

``clew run --command`` names it, with a taskset of ``program_world``. Each step is one or more asks and the act that
hands the program their answers and gives what it asks next. It must never act on
anything but what the program asked. Stored runs name it as ``harness.loading.RECORDED`` says.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from clew.core.errors import BadInput, ClewError, ReplayError, StoreError, WorldError
from clew.core.values import Sampling, StopReason, ToolCall
from clew.harness.run.live import Conversation, LiveRun
from clew.harness.run.pending import Stop
from clew.serve.history import Arrival
from clew.serve.programs.line import refused, written
from clew.serve.relay import entered, opened

EXCHANGE = "exchange"  # the one action of a program's world
DEFAULTS = Sampling()._asdict()
LINE = 400  # characters of what a program printed that are told where the run is shown


class Told(NamedTuple):
    """What the world of a program says: its next requests, or how it ended.

    keys: digests of what the requests ask, one each. tree: key of the snapshot of its files, empty where it has none.
    differs: started again, the program has asked something in other words than recorded. code: exit status,
    None where a limit ended it. stop: why the run ends, where not by the program's orderly end; records made before
    it was told have none.
    """

    requests: tuple[Arrival, ...]
    keys: tuple[str, ...] = ()
    tree: str = ""
    differs: bool = False
    ended: str = ""
    code: int | None = None
    output: str = ""
    stop: str = ""

    def text(self) -> str:
        """As JSON, which ``read`` reads."""
        fields: dict[str, Any] = {"requests": [json.loads(it.text()) for it in self.requests], "tree": self.tree}
        fields |= {"keys": self.keys, **({"differs": True} if self.differs else {})}
        if self.ended:
            fields |= {"ended": self.ended, "code": self.code, "output": self.output}
            fields |= {"stop": self.stop} if self.stop else {}
        return json.dumps(fields, ensure_ascii=False)

    @classmethod
    def read(cls, text: str) -> Told:
        """
        Raises:
            BadInput: this is not what the world of a program says.
        """
        try:
            fields = json.loads(text)
            found = [Arrival.read(json.dumps(it)) for it in fields["requests"]]
            ended, tree, keys = str(fields.get("ended", "")), str(fields["tree"]), tuple(map(str, fields["keys"]))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            told = "the agent commanded was told something that no program asks"
            raise BadInput(told, remedy="It works in the world of a program: clew run --command.") from None
        asked, differs = tuple(it for it in found if it), bool(fields.get("differs"))
        printed, stop = str(fields.get("output", "")), str(fields.get("stop", ""))
        return cls(asked, keys, tree, differs, ended, fields.get("code"), printed, stop)


async def commanded(run: LiveRun, held: Sequence[str] = ()) -> str:
    """Ask for a program what it asks, several at once where it asks several, until it ends; gives what it printed.

    Args:
        held: settings of sampling (``temperature``) that are the run's own, whatever the program asks for.

    Raises:
        WorldError: the program failed before it asked anything. Stop: it failed later, or a limit ended it.
    """
    threads: list[Any] = []
    answers: Sequence[Mapping[str, Any]] = ()
    differs = False
    while True:
        seen = await run.act(ToolCall("", EXCHANGE, json.dumps({"answers": answers}, ensure_ascii=False)))
        told = Told.read(seen.text)
        if told.differs and not differs:
            differs = True
            run.note("drift", why="started again, the program asked in other words than recorded")
        if told.ended or seen.done:
            if told.code != 0 and not threads:
                said = told.output.strip()[-LINE:]
                why = f"the program asked nothing and ended: {told.ended}{': ' * bool(said)}{said}"
                raise WorldError(why, remedy="Try its command by hand; --readable shows it more of this machine.")
            run.note("program", ended=told.ended, code=told.code, printed=told.output[-LINE:])
            if told.stop:
                raise Stop(StopReason(told.stop), f"the program ended: {told.ended}")
            return told.output
        asks = []
        for it, key in zip(told.requests, told.keys, strict=True):
            if it.thread == len(threads):
                threads.append(await opened(run, threads, it, model=None))
            asks.append(_answered(run, entered(run, threads[it.thread], it), it, key, held))
        answers = await asyncio.gather(*asks)


async def _answered(run: LiveRun, chat: Conversation, it: Arrival, key: str, held: Sequence[str]) -> dict[str, Any]:
    """The answer to one request; an error of the model is the program's to take, and the run goes on."""
    given = {k: v for k, v in it.sampling.items() if k not in held and v != DEFAULTS.get(k)}
    place = it.number, key, it.thread
    prompt = sum(len(node.ids or ()) for node in chat.nodes)
    try:
        return written(*place, await chat.ask(**given), prompt)
    except (StoreError, ReplayError):
        raise
    except ClewError as error:
        return refused(*place, error)
