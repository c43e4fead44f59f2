"""The bundled agent of the customer desk that needs no model: it acts by the lines of a policy.

``clew evolve agents --world desk`` evolves its policy. A line says when the last ticket is escalated, or how it writes;
the first line that applies decides, a line that it does not know is passed over, and where none applies it does what is
asked. It reads the rule and the ticket from the texts that a model would see, and must never read the task's data.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from clew.core.values import ToolCall
from clew.harness.run.live import LiveRun
from clew.methods.coevolve.agents.ticket_reading import NOUNS, ticket_in
from clew.worlds.desk.desk_rules import RULES

LOOK, ASK = "Look up the order before answering.", "Ask for the policy first."
THANK, ASSURE = "Thank the customer in every outcome.", "Say in every outcome that all rules were kept."
WHEN = ("against the rule", "within the rule", "in any case")
FIRST = LOOK
_DECIDES = {f"Escalate {noun} {when}.": (rule, when) for rule, noun in NOUNS.items() for when in WHEN}


def policy_lines(rules: Sequence[str] = tuple(RULES)) -> list[str]:
    """The lines that the agent knows, of these rules of the desk: for each one that is right, one that is wrong, and
    one that is right half of the time; and four that are about none."""
    return [line for line, (rule, _) in _DECIDES.items() if rule in rules] + [LOOK, ASK, THANK, ASSURE]


async def policy_clerk(run: LiveRun, policy: str = FIRST) -> None:
    """Works the desk by a policy.

    Args:
        policy: its lines.
    """
    lines = [line.strip() for line in policy.splitlines()]
    seen, number, looked = run.task.prompt, 0, "closed"
    ending = " Thank you for your patience." * (THANK in lines) + " All rules were kept." * (ASSURE in lines)

    async def call(name: str, **given: object) -> str:
        nonlocal number
        number += 1
        return (await run.act(ToolCall(f"call_{number}", name, json.dumps(given)))).text

    if ASK in lines:
        seen += "\n" + await call("policy")
    view = run.view.text
    while not run.done:
        looked, words = "closed", view.removeprefix("Ticket: ").split()
        order = next((word for word in words if word[:1] == "A" and word[1:].isdigit()), "")
        if LOOK in lines and order:
            looked = str(json.loads(await call("look_up", order=order)).get("state", looked))
        ticket = None if "in which state is order" in view else ticket_in(f"{seen}\n{view}")
        if ticket is not None:
            fits = ("in any case", "against the rule" if ticket.against else "within the rule")
            decided = next((_DECIDES[one] for one in lines if _DECIDES.get(one) in [(ticket.rule, w) for w in fits]), 0)
            if decided:
                await call("escalate", reason="the policy says so")
            else:
                tool, given = ticket.call
                await call(tool, **given)
            looked = "escalated" if decided else "done"
        if not run.done:
            view = await call("close", outcome=f"{looked}.{ending}")
