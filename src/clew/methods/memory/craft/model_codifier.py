"""``ModelCodifier``: any model as a codifier. It reads a plan, the queries of its ledger and what tools take, and
writes a function as JSON.

``crafting.py`` calls it. It is shown no run. What it writes goes through the static gate here already, so that the
model is told what was wrong and is asked again, at most twice. Its answer is never run here.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from clew.core.errors import BadInput
from clew.core.keys import value_digest
from clew.core.printable import short
from clew.core.protocols import Model
from clew.core.values import Sampling, ToolSpec
from clew.harness.memory.item_kinds import Item
from clew.methods.memory.craft.drafting import Draft
from clew.methods.memory.craft.static_gate import BUILTINS, LIBRARY, gate
from clew.methods.memory.lessons.asked_json import AGAIN, ask_json, marked

SAMPLING = Sampling(max_tokens=4000, temperature=0.0)
QUERIES, QUERY, SCHEMA = 40, 500, 2000  # queries that are shown, characters of one, and of the description of a tool
ROLE = """A plan was used for many queries. Write one Python function that does what the plan says, for every query \
that the plan fits.

{plan}

{queries}

The function is NAME(query, api). api("TOOL", argument=value) calls a tool and gives what it answers: the JSON value, \
or the text where it is none, or {{"error": "..."}}. Tools:
{tools}

Rules:
- Whatever differs among the queries is read from the query. Write no number, name or filter of one query into the code.
- Go through all pages of what has pages. Read from the answers what they tell; assume nothing the plan does not say.
- Return None where the query does not fit, before any tool is called that changes something.
- Return the answer as text or as a number, or "done" where something was to be changed.
- Handle {{"error": ...}}; return None where the way is not known.
- Deterministic: no time, no random numbers, no files. Imports: {library}. Of Python's own functions only: {builtins}.
- Small functions, no classes. NAME is a new word that says what it does.

Answer with one JSON object and nothing else:
{{"name": "...", "signature": "(query: str) -> str | None", "doc": "what it does, in one sentence", "source": "..."}}"""


class ModelCodifier:
    """A codifier for ``craft``.

    Args:
        model: any Clew Model.
        sampling: of each answer.
        again: asks after an answer that cannot be used.
    """

    def __init__(self, model: Model, sampling: Sampling = SAMPLING, again: int = AGAIN) -> None:
        if again < 0:
            raise BadInput(f"{again} more asks", remedy="Give 0 or more.")
        self.model, self.sampling, self.again = model, sampling, again

    @property
    def name(self) -> str:
        """The model's reference, and 8 digits that change with what it is asked and how."""
        return f"{self.model.ref} {value_digest([ROLE, self.sampling._asdict()]).hex()[:8]}"

    def question(self, plan: Item, queries: Sequence[str], api: Sequence[ToolSpec]) -> str:
        """What the model is asked."""
        asked = "\n".join(f"- {short(one, QUERY)}" for one in queries[:QUERIES])
        tools = "\n".join(_described(spec) for spec in api) or "(none)"
        words = {"library": ", ".join(sorted(LIBRARY)), "builtins": ", ".join(sorted(BUILTINS))}
        return ROLE.format(plan=marked(plan.text, "plan"), queries=marked(asked, "queries"), tools=tools, **words)

    async def codify(self, plan: Item, queries: Sequence[str], api: Sequence[ToolSpec]) -> Draft:
        """As ``Codifier``.

        Raises:
            ModelError: the model gave no answer at all.
        """

        def check(said: object) -> Draft:
            draft = read_draft(said)
            return draft._replace(deps=gate(draft, api))

        answer = await ask_json(self.model, self.question(plan, queries, api), check, self.sampling, self.again)
        if answer.value is None:
            return Draft("", "", "", "", (), answer.cost, f"the model wrote no tool: {answer.why}")
        return answer.value._replace(cost=answer.cost)


def _described(spec: ToolSpec) -> str:
    told = json.dumps({"name": spec.name, "description": spec.description, "arguments": spec.schema}, sort_keys=True)
    return f"- {short(told, SCHEMA)}"


def read_draft(said: object) -> Draft:
    """A draft of what JSON says: an object with the texts name, signature, doc and source.

    Raises:
        BadInput: it is none.
    """
    told = said if isinstance(said, dict) else {}
    texts = [told.get(name) for name in ("name", "signature", "doc", "source")]
    if not all(isinstance(text, str) for text in texts):
        raise BadInput("it is no object with the texts name, signature, doc and source")
    name, signature, doc, source = map(str, texts)
    if not source.strip():
        raise BadInput("its source is empty")
    return Draft(name, signature, doc, source)
