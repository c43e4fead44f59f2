"""What lies beside the weights of a fitted model of a world: how it is asked, and which world it stands for.

The fitting of such a model writes the file, and ``simulated(folder=...)`` reads it. It must hold nothing that only a
judge may know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from clew.core.errors import BadInput
from clew.methods.world_model.prompting import system_text
from clew.methods.world_model.tool_files import tools_of_data

FILE = "world_model.json"
REMEDY = "Name a folder that `clew world fit` wrote, or give simulated() a model and tools."
LARGEST = 8 << 20  # bytes of the file


@dataclass(frozen=True, slots=True)
class ModelCard:
    """How a fitted model of a world is asked.

    Args:
        description: the part of the system text that it was fitted with; "" where it saw each task's prompt there.
        rules: how to answer, as it was fitted: mostly "".
        tools: what an agent may call, each as OpenAI's API writes a tool.
        world: reference of the taskset whose runs it was fitted to.
        told_tools: whether its system text held the tools.
        window: the turns before an action that it was told, at most; 0: all.
        echo: its state was told again every so many turns; 0: never.
        max_tokens, temperature: how it is sampled.
        measured: what is known of its fidelity, by name.
    """

    description: str = ""
    rules: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()
    world: str = ""
    told_tools: bool = False
    window: int = 0
    echo: int = 0
    max_tokens: int = 512
    temperature: float = 0.0
    measured: Mapping[str, Any] = field(default_factory=dict)

    def system(self, prompt: str, first: str) -> str:
        """The system text of a task, in fitting as in asking.

        Args:
            prompt: of the task. first: what the agent sees before its first action.
        """
        offers = tools_of_data(list(self.tools), "the model's tools") if self.told_tools and self.tools else []
        specs = [offer.spec for offer in offers]
        return system_text(self.description or prompt, specs, first, rules=self.rules)

    def write(self, folder: Path) -> None:
        """Put the file into the folder of the weights."""
        (folder / FILE).write_text(json.dumps(asdict(self), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> ModelCard:
        """The file of a folder.

        Raises:
            BadInput: there is none, or it holds something else.
        """
        path = folder / FILE
        try:
            if path.stat().st_size > LARGEST:
                raise BadInput(f"{path} is larger than {LARGEST:,} bytes", remedy=REMEDY)
            data = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise BadInput(f"{folder} holds no model of a world: {error.strerror}", remedy=REMEDY) from error
        except (ValueError, RecursionError) as error:
            raise BadInput(f"{path} is no JSON: {error}", remedy=REMEDY) from error
        kinds = {name: type(value) for name, value in asdict(cls()).items()} | {"tools": list}
        if not isinstance(data, dict) or (odd := sorted(set(data) - set(kinds))):
            raise BadInput(f"{path} holds {odd[0] if isinstance(data, dict) else 'no object'}", remedy=REMEDY)
        for name, value in data.items():
            kind = (int, float) if kinds[name] is float else kinds[name]
            if not isinstance(value, kind):
                raise BadInput(f"{path}: {name} is a {type(value).__name__}", remedy=REMEDY)
        tools = data.pop("tools", ())
        if not all(isinstance(tool, dict) for tool in tools):
            raise BadInput(f"{path}: tools holds something that is no object", remedy=REMEDY)
        return cls(**data, tools=tuple(tools))
