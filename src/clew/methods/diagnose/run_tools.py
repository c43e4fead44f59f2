"""Tools of coding for an agent that works in the files of a run: ``diagnose``, for ``coder`` and any other agent.

``clew run coder --tools clew.coding.run_tools:diagnose`` offers it. Each call sees the files as they are then in the
run, never those of the user's folder, and nothing that git could be told to run there is run. Stored runs name
``clew.coding.run_tools:diagnose``: that name leads here (``clew.harness.loading.MODULES``).
"""

from __future__ import annotations

import functools

from clew.coding.repository.contained import contained
from clew.coding.repository.repository import LARGEST, Index, View
from clew.core.errors import BadInput
from clew.harness.tools import RunFiles, tool
from clew.methods.diagnose.choose import FIRST, Chooser
from clew.methods.diagnose.code_tools import Tools
from clew.methods.diagnose.known import ELSEWHERE
from clew.methods.diagnose.mcp import MOST, ranked_places

MOST_FILES, MOST_BYTES = 100_000, 1 << 29  # of a project that is looked at: an agent can write no end of files


@functools.cache
def _read() -> Index:
    """What was learnt of contents in this process: most are the same in all runs of a folder."""
    return Index()


@tool(idempotent=True)
def diagnose(report: str, files: RunFiles, n: int = FIRST) -> str:
    """Rank the places of this project, as its files are now, that a bug report points to, at most n (1 to 20). Stack
    traces, names of code, options, messages and files in the report are used; give the report whole, as the user wrote
    it, or the output of a failing test."""
    try:
        git = contained(files)
        sizes = [entry.size for entry in git.entries() if entry.size <= LARGEST]
        if len(sizes) > MOST_FILES or sum(sizes) > MOST_BYTES:
            told = f"{len(sizes):,} files of {sum(sizes) >> 20:,} MiB are too many to look at"
            raise BadInput(told, remedy=f"At most {MOST_FILES:,} files of {MOST_BYTES >> 20} MiB are; remove some.")
        view = View(git, "", _read())
        return ranked_places(Chooser.over(Tools(view), MOST), report, n, ELSEWHERE)
    except BadInput as error:  # the folder of this moment is no name that a model knows
        told = error.message.replace(str(files.resolve()), "the project").replace(str(files), "the project")
        raise BadInput(told, remedy=error.remedy) from None
