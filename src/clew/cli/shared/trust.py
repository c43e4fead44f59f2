"""What a clew.toml may say on its own, what a person allows once, and what no file can say.

A file of a cloned repository is a stranger's. It may name data and defaults. Whatever runs, sends, listens, deletes or
overwrites is asked for once, on a terminal, and remembered outside the project by the file's path and what it says.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

import click

from clew.core.errors import BadInput
from clew.core.printable import visible

NEVER = {"yes": "a consent", "anyway": "a consent", "token": "a secret"}
"""Options whose value no file gives: a person says it, on each line."""
NUMBERS_ASKED = ("port", "openenv")
CHOICES_ASKED = ("allow", "clear", "sandbox", "unnamed")
SWITCHES = """all all_replies by_labels compat_eos debug dry effect every files frontier full gemm hard json
keep_recoveries labels lasting no_files no_open one_folder pairs pick pieces quick read_only recompute reward saving
scales separate sft steady think tune_only zero_variance"""
TEXTS = """answer betas clip component device does doses dtype eval_split family id_column lengths limits_column
lora_targets method methods name outcome policy prompt query rate rubric run runs seed selector shares split
split_column stances sweep system task temperatures types until verdicts visible where with"""
BUNDLED = {
    "world": "apps clerk counter desk finder house household maze notepad records shop slow sums tally",
    "model": "echo markov scripted",
    "agent": "answerer chatter coder demonstrator orchestrator player tool_user",
    "reward": "exact mathematics numeric plan regex",
    "credit": "bellman gagpo gigpo g2po graphgpo grpo hgpo tree",
    "loss": "cliff-dpo dpo entropy kl pg pg-sequence sft",
    "draft": "lookup",
    "recipe": "",
}
"""Names that come with Clew and touch nothing outside the process, by the option that takes them."""
PLACES = ("store", "data")  # options that name a file or folder, which must lie in the project
PLAIN_ARGUMENTS = re.compile(r"[\w\s=.,+\-()\[\]]*|[\w\s=.,+\-()\[\]'\"]*")
REMEDY = "Read them. `clew doctor --trust` allows them until they change. Or say your own on the line."


class Setting(NamedTuple):
    """One setting of a clew.toml: the verb whose table holds it, empty for the top; its name; its value."""

    where: str
    key: str
    value: object

    def __str__(self) -> str:
        said = json.dumps(self.value, ensure_ascii=False, default=str)
        return visible(f"{f'[{self.where}] ' if self.where else ''}{self.key} = {said}")


def refused(key: str, value: object, param: click.Parameter) -> str:
    """Why no file may say this; empty where one may."""
    return "" if value is False or isinstance(param.type, click.Choice) else NEVER.get(key, "")


def harmless(key: str, value: object, param: click.Parameter, root: Path) -> bool:
    """Whether a setting can do no more than choose data or a default: all that is not known to be so is asked for.

    Args:
        key: the name of the option, with ``_``.
        param: the option.
        root: the folder of clew.toml; what lies in it may be read.
    """
    if isinstance(value, list):
        return all(harmless(key, one, param, root) for one in value)
    if isinstance(value, bool):
        return not value or key in SWITCHES.split()
    if isinstance(value, int | float):
        return key not in NUMBERS_ASKED
    if isinstance(value, dict):
        return all(isinstance(one, int | float) and not isinstance(one, bool) for one in value.values())
    if not isinstance(value, str):
        return False
    if isinstance(param.type, click.Choice):
        return key not in CHOICES_ASKED
    if key in PLACES:
        return value == ":memory:" or _inside(value, root)
    if (kind := "model" if key == "models" else key) in BUNDLED:
        return _bundled(value, BUNDLED[kind].split())
    return key in TEXTS.split()


def _inside(text: str, root: Path) -> bool:
    """Whether a path lies in the project, links followed; what looks like an address or a reference does not."""
    if ":" in text or text.startswith("~") or text.endswith(".py"):
        return False
    try:
        return (root / text).resolve().is_relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError):
        return False


def _bundled(ref: str, names: list[str]) -> bool:
    """Whether a reference is one of these names, its arguments no place and no address."""
    name, _, rest = ref.strip().rpartition("*")[2].partition("(")
    return name in names and PLAIN_ARGUMENTS.fullmatch(rest) is not None


class Trust:
    """Whether what a clew.toml asks for was allowed: a file outside the project says so.

    Args:
        path: of clew.toml.
        asked: its settings that are not harmless.
    """

    def __init__(self, path: Path, asked: list[Setting]) -> None:
        self.path, self.asked = path, asked
        self.said = "\n".join(sorted(json.dumps(one, sort_keys=True, default=str) for one in asked))
        named = f"{os.path.realpath(path)}\0{self.said}"
        self.kept = _home() / "trusted" / hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def given(self) -> bool:
        return not self.asked or self.kept.is_file()

    def give(self) -> None:
        """Remember it.

        Raises:
            BadInput: the folder of the user's state cannot be written.
        """
        try:
            self.kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.kept.write_text(f"{self.path}\n{self.said}\n", errors="backslashreplace")
        except OSError as error:
            remedy = "Let XDG_STATE_HOME name a folder that can be written."
            raise BadInput(f"what was allowed cannot be kept in {self.kept.parent}: {error}", remedy=remedy) from error

    def ask(self, used: list[Setting]) -> None:
        """Ask on a terminal; without one, refuse.

        Args:
            used: what the present line would take.

        Raises:
            BadInput: there is no terminal, or the answer is no.
        """
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise BadInput(f"{self.path} says what only you may allow: {'; '.join(map(str, used))}", remedy=REMEDY)
        if not click.confirm(f"{self.question()}\nAllow this until it changes?", err=True):
            raise BadInput(f"{self.path} was not allowed, and nothing was done", remedy=REMEDY)
        self.give()

    def question(self) -> str:
        """What is to be allowed, line by line."""
        told = visible(f"{self.path} names programs, addresses, files or other things that only you may allow:")
        return "\n".join([told, *(f"  {one}" for one in self.asked)])


def _home() -> Path:
    """The folder of what Clew remembers of a user, outside all projects."""
    named = os.environ.get("XDG_STATE_HOME", "")
    return (Path(named) if os.path.isabs(named) else Path.home() / ".local" / "state") / "clew"


GUARDED = "_clew_guarded"
BEFORE = "clew.before"  # what click's context calls what is to be asked before a verb is done


def guarded(command: click.Command) -> click.Command:
    """The command, which asks for what clew.toml says before it does anything."""
    done = command.callback
    if done is not None and not hasattr(done, GUARDED):

        @functools.wraps(done)
        def call(*args: object, **named: object) -> object:
            context = click.get_current_context()
            if (before := context.meta.get(BEFORE)) is not None:
                before(context)
            return done(*args, **named)

        setattr(call, GUARDED, True)
        command.callback = call
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            guarded(inner)
    return command
