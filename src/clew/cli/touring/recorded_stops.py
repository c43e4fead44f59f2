"""The first stops of `clew tour`: what was recorded elsewhere, a rule lost to compaction, and why an agent did it."""

from __future__ import annotations

import re

from clew.cli.touring.journey import Found, Stop, Walk, report

RULE = "Never refund an order that has shipped."


def decay(walk: Walk) -> Found:
    """Import conversations, and compact their histories with every installed stack, the rule pinned and not."""
    walk.unpack("recorded.jsonl")
    walk.type(f"import {walk.path('recorded.jsonl')} --name recorded")
    found = walk.type(f"audit decay name=recorded --rule '{RULE}'")["stacks"]
    able = [stack for stack in found if stack["kept"]]  # others gave up in every run
    worst = min(able, key=lambda stack: float(stack["kept"]["estimate"]))
    cut = worst["kept"]["estimate"] < 1
    return Found(
        figure=report(worst["kept"], f"runs whose next request still holds the rule, by {worst['stack']}"),
        control=report(worst["pinned"], "the same with the rule pinned"),
        unit="%",
        means="A history that is cut to fit loses a rule told in it; a pin outside the history keeps it."
        if cut
        else "No stack lost the rule: in a system message it is never cut.",
        place="runs?q=name%3Drecorded",
    )


def why(walk: Walk) -> Found:
    """Take a recorded run that broke the rule, remove each sentence that it was told, alone and in pairs."""
    walk.unpack("order_clerk.py")
    broke = walk.rows("log 'name=recorded text:\"refund the order\"' -n 1")[0]["run"]
    model = f"--model {walk.path('order_clerk.py')}:OrderClerk"
    asked = walk.type(f"audit why {broke} --does '^refund' {model} -n {walk.few(60, 30)}")
    found = max(asked["evidence"], key=lambda line: -line["estimate"] if line["reads"] == "for" else -1)
    placebo = next(line for line in asked["evidence"] if line["test"] == "placebo")
    about = " / ".join(part.partition(": ")[2] for part in found["about"]) or "nothing"
    said = re.sub(r"\b\d+: ", "", asked["verdict"])  # the numbers of the messages that hold the sentences
    return Found(
        figure=report(found, f"change of the rate of refunds where it is not told: {about}"),
        control=report(placebo, "the same where a placebo of equal length is left out"),
        means=f"{said[:1].upper()}{said[1:]}.",
        place=f"run/{broke}",
    )


STOPS = (
    Stop(
        name="decay",
        does=(
            "The histories of recorded runs are compacted by every installed stack, and the next request is searched "
            "for the rule, with a pin that keeps it outside and without."
        ),
        paper="E164",
        arxiv="2606.22528",
        method="Rules that survive compaction",
        walk=decay,
        asks="My agent forgot a rule after its history was compacted. Who lost it?",
    ),
    Stop(
        name="why",
        does=(
            "The run is rewound to its last reply, each sentence that the agent was told is left out, alone and "
            "in pairs, and many replies are sampled, beside a placebo."
        ),
        paper="E174",
        arxiv="2606.26071",
        method="Model forensics",
        walk=why,
        after=("decay",),
        asks="Why did the agent do that?",
    ),
)
