"""Text of the target model for training a drafter: from stored runs, or written now behind prompts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.core.protocols import Batches, Renderer
from clew.core.records import Node, Request
from clew.core.values import Completion, Message, Sampling
from clew.store.paths import leaves
from clew.train.rows import own

AT_ONCE = 64  # texts that are written, and kept, together


class Text(NamedTuple):
    """Token ids; those from ``first`` on are the target's own, those before it prompt."""

    ids: tuple[int, ...]
    first: int
    domain: str


class Prompt(NamedTuple):
    ids: tuple[int, ...]
    domain: str


def of_runs(runs: Iterable[Any], least: int = 4) -> list[Text]:
    """Paths of stored runs that hold at least ``least`` sampled tokens; their domain is the run's taskset.

    What stands between two replies is learnt from too: drafters are asked behind every token.
    """
    found = []
    for run in runs:
        for path, spans in leaves(run, own(run)):
            ids = tuple(token for node in path for token in node.ids or ())
            starts = [s.start for s in spans if s.stop > s.start]
            if starts and sum(s.stop - s.start for s in spans) >= least and all(n.ids is not None for n in path):
                found.append(Text(ids, max(1, min(starts)), run.taskset or "runs"))
    return found


def prompts(files: Mapping[Path, Iterable[tuple[int, str]]], renderer: Renderer) -> list[Prompt]:
    """Prompts of files, given by their numbered lines: .jsonl with "prompt" (text) or "messages" in each line and
    perhaps "domain"; of any other text file each line is one. The domain is the file's name where none is given.

    Raises:
        BadInput: a line without a prompt, or a file with none.
    """
    found: list[Prompt] = []
    for file, lines in files.items():
        before = len(found)
        found += [_prompt(line, file, number, renderer) for number, line in lines]
        if len(found) == before:
            raise BadInput(f"{file} holds no prompt", remedy="Put one on each line.")
    return found


def _prompt(line: str, file: Path, number: int, renderer: Renderer) -> Prompt:
    if file.suffix != ".jsonl":
        return Prompt(tuple(renderer.encode(line)), file.stem)
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{file}:{number} is not JSON: {error}", remedy="Write one object on each line.") from error
    domain = str(given.get("domain", file.stem)) if isinstance(given, dict) else ""
    if isinstance(given, dict) and isinstance(given.get("prompt"), str):
        return Prompt(tuple(renderer.encode(given["prompt"])), domain)
    if isinstance(given, dict) and isinstance(said := given.get("messages"), list) and all(map(_is_message, said)):
        ids: list[int] = []
        for i, m in enumerate(said):
            # Each message stands by itself but for the first, which opens the conversation.
            last = Node(b"", b"", Message(said[i - 1]["role"], ""), (), "", b"") if i else None
            ids += renderer.delta(last, True, Message(m["role"], m["content"]), ())
        return Prompt((*ids, *renderer.head()), domain)
    raise BadInput(
        f'{file}:{number} has neither "prompt" nor "messages"', remedy='Write {"prompt": "..."} on each line.'
    )


def _is_message(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in ("role", "content"))


def write(
    model: Batches,
    given: Sequence[Prompt],
    tokens: int,
    kept: Path,
    *,
    samples: int = 1,
    temperature: float = 1.0,
    seed: int = 0,
    advance: Callable[[int], None] = lambda n: None,
) -> list[Text]:
    """Let the target go on behind each prompt, ``samples`` times; texts are kept in ``kept`` and not written again.

    Args:
        model: one that takes batches (clew.models.local.model.Local). tokens: of each reply at most.
        advance: told how many texts are there, those kept before included.

    Raises:
        BadInput: a prompt that the model refuses.
    """
    have = list(read(kept)) if kept.exists() else []
    advance(len(have))
    for start in range(len(have), len(given) * samples, AT_ONCE):
        part = range(start, min(start + AT_ONCE, len(given) * samples))
        requests = [asked(given[i // samples], tokens, temperature, derive(seed, "own", i)) for i in part]
        new = []
        for i, reply in zip(part, _answers(model, requests), strict=True):
            prompt = given[i // samples]
            new.append(Text((*prompt.ids, *(reply.tokens or ())), len(prompt.ids), prompt.domain))
        with kept.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(text) + "\n" for text in new)
        have += new
        advance(len(new))
    return have


def read(kept: Path) -> Iterator[Text]:
    """Texts that were kept; a last line cut short by a kill is dropped, from the file too."""
    whole, _, torn = kept.read_text(encoding="utf-8").rpartition("\n")
    if torn:
        kept.write_text(whole + "\n" if whole else "", encoding="utf-8")
    for line in whole.splitlines():
        ids, first, domain = json.loads(line)
        yield Text(tuple(ids), first, domain)


def asked(prompt: Prompt, tokens: int, temperature: float, seed: int) -> Request:
    """What the engine is asked for one text."""
    node = Node(b"", b"", Message("user", ""), prompt.ids, "", b"")
    return Request((node,), Sampling(temperature=temperature, max_tokens=tokens), seed=seed)


def _answers(model: Batches, requests: Sequence[Request]) -> list[Completion]:
    found: list[Any] = [None] * len(requests)
    left, ready = [len(requests)], threading.Event()

    def done(results: list[tuple[int, Any]]) -> None:
        for i, result in results:
            found[i] = result
        left[0] -= len(results)
        if not left[0]:
            ready.set()

    model.submit(requests, done)
    while not ready.wait(0.2):  # short, so that an interrupt is heard
        pass
    for result in found:
        if isinstance(result, BaseException):
            raise result
    return found
