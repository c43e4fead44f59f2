"""The one form in which a model is told of a world and says what the world answers (arXiv 2606.24597).

A model of a world is fitted, evaluated and asked in this form, so that the three never differ: what fits a model, what
measures one and the world that asks one all call this module. A conversation is a system text, then for each turn
the action as a user message and the answer as an assistant message. Nothing here may ask a model, nor take a part of a
reply for an observation that is not marked as one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from clew.core.values import Message, ToolCall, ToolSpec

OBSERVATION, STATE, OVER = "predicted_observation", "state", "episode_over"
RULES = f"""You are the environment that an agent acts in, and never the agent. Each message is one action of the agent.
Answer with exactly what the environment answers, between <{OBSERVATION}> and </{OBSERVATION}>, in the form that this
environment uses, errors included. Be consistent with everything that happened before. Do not comment, do not praise,
do not help. Before it you may say, between <{STATE}> and </{STATE}>, in a few words what is true after the action.
Where the action ends the episode, write <{OVER}> after it."""
"""What a model is told that was fitted to no world; one that was fitted needs none of it (``rules=""``)."""
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_MARK = re.compile(rf"<(\\*)(?=/?(?:{OBSERVATION}|{STATE}|{OVER}|think)>)")


class Turn(NamedTuple):
    """One action and what the environment answered. ``state``: what was true afterwards, where somebody says. ``done``:
    the episode ended with it."""

    action: str | ToolCall
    observation: str
    state: str = ""
    done: bool = False


class Demonstration(NamedTuple):
    """A recorded run as a model is shown it: its task and its first turns."""

    task: str
    turns: tuple[Turn, ...]


def system_text(
    description: str,
    tools: Sequence[ToolSpec] = (),
    initial_state: str = "",
    demonstrations: Sequence[Demonstration] = (),
    instruction: str = "",
    rules: str = RULES,
) -> str:
    """What a model is told before the first action. A part that is empty is left out, its heading too.

    Args:
        description: what the environment is, and what the agent is asked to do in it.
        tools: what the agent may call.
        initial_state: what is true before the first action, or what the agent sees then.
        instruction: how the environment is to behave, as ``Instruction.text`` writes it.
        rules: how to answer.
    """
    shown = [f"{t.name}: {' '.join(t.description.split())} {_json(dict(t.schema))}" for t in tools]
    examples = [f"Task: {one.task}\n" + "\n".join(map(_shown, one.turns)) for one in demonstrations]
    parts = [
        rules,
        description,
        _headed("Tools of the agent", shown),
        _headed("State at the start", [initial_state] if initial_state else []),
        _headed("Recorded examples", examples),
        _headed("Instruction", [instruction] if instruction else []),
    ]
    return "\n\n".join(part for part in parts if part)


def turn_text(action: str | ToolCall) -> str:
    """An action as the model is told it; of a tool call the name and the arguments, these in one order of keys."""
    if isinstance(action, str):
        return _escaped(action)
    try:
        given = _json(json.loads(action.arguments or "{}"))
    except (ValueError, RecursionError):
        given = action.arguments
    return _escaped(f"{action.name} {given}")


def reply_text(observation: str, state: str = "", done: bool = False) -> str:
    """What a model is to say where the environment answers ``observation``; ``extract``, ``extract_state`` and
    ``extract_done`` read it back."""
    before = f"<{STATE}>\n{_escaped(state)}\n</{STATE}>\n" if state else ""
    return f"{before}<{OBSERVATION}>\n{_escaped(observation)}\n</{OBSERVATION}>" + f"\n<{OVER}>" * done


def extract(reply: str) -> str | None:
    """The observation of a reply: its last marked block, outside of any thought; None where it has none.

    White space around it is not part of it. Nothing else of a reply is ever taken for an observation: a judge or an
    agent that reads one sees neither the thought nor any praise around it.
    """
    return _inner(_said(reply), OBSERVATION)


def extract_state(reply: str) -> str:
    """What a reply says is true after the action; empty where it says nothing of it."""
    said = _said(reply)
    begin, _ = _block(said, OBSERVATION)
    return _inner(said[: max(begin, 0)], STATE) or ""


def extract_done(reply: str) -> bool:
    """Whether a reply says that the episode is over, after its observation."""
    said = _said(reply)
    _, end = _block(said, OBSERVATION)
    return end >= 0 and f"<{OVER}>" in said[end:]


def reply_grammar(longest: int = 4000) -> str:
    """A grammar, as ``Sampling.grammar`` takes it, that every reply of this form matches whose observation has at most
    ``longest`` characters and no closing tag in it. A model that thinks first cannot be held to it."""
    said = rf"([^<]|<[^/]){{0,{longest}}}"
    state = rf"(<{STATE}>\n{said}\n</{STATE}>\n)?"
    return rf"regex:{state}<{OBSERVATION}>\n{said}\n</{OBSERVATION}>(\n<{OVER}>)?"


def conversation(system: str, turns: Sequence[Turn], action: str | ToolCall, reminder: str = "") -> list[Message]:
    """The messages that ask for the answer to ``action`` after ``turns``.

    Args:
        reminder: what is true before the action; it is told with it.
    """
    said = [Message("system", system)] if system else []
    for turn in turns:
        said += [
            Message("user", turn_text(turn.action)),
            Message("assistant", reply_text(turn.observation, turn.state, turn.done)),
        ]
    before = f"What is true now: {_escaped(reminder)}\n" if reminder else ""
    return [*said, Message("user", before + turn_text(action))]


def _said(reply: str) -> str:
    """A reply without its thought, also where the template opened it or a bound of tokens left it open."""
    return _THOUGHT.sub("", reply).rpartition("</think>")[2]


def _block(said: str, tag: str) -> tuple[int, int]:
    """Where the last block of a tag begins and ends; -1 and -1 where there is none."""
    end = said.rfind(f"</{tag}>")
    begin = said.rfind(f"<{tag}>", 0, max(end, 0))
    return (begin, end) if begin >= 0 else (-1, -1)


def _inner(said: str, tag: str) -> str | None:
    begin, end = _block(said, tag)
    if begin < 0:
        return None
    return _MARK.sub(lambda mark: "<" + mark[1][1:], said[begin + len(tag) + 2 : end].strip())


def _shown(turn: Turn) -> str:
    return f"> {turn_text(turn.action)}\n{reply_text(turn.observation, turn.state, turn.done)}"


def _headed(heading: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{heading}:", *lines]) if lines else ""


def _escaped(text: str) -> str:
    """The text with a backslash in the marks of this form that stand in it, so that they mark nothing."""
    return _MARK.sub(lambda mark: mark[0] + "\\", text)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


__all__ = [
    "OBSERVATION", "OVER", "RULES", "STATE", "Demonstration", "Turn", "conversation", "extract", "extract_done",
    "extract_state", "reply_grammar", "reply_text", "system_text", "turn_text",
]  # fmt: skip
