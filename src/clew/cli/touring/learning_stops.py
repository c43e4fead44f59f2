"""Stops of `clew tour` on training: an agent learns, groups that teach nothing, credit, recoveries, agreement."""

from __future__ import annotations

from typing import Any

from clew.cli.touring.journey import Found, Stop, Walk, figure, report
from clew.methods.compare.design import rate

WORLD = "--world household"
START = "household-sft"
FAMILY = "grpo+gigpo+hgpo+graphgpo+g2po+bellman"


def trained(walk: Walk) -> str:
    """The weights after the stop ``train``."""
    return walk.path("trainings/desk/checkpoint")


def collect(walk: Walk, name: str, model: str, rest: str = "") -> dict[str, Any]:
    """The success of a model at the tasks that all collections of the tour share: 16, each eight times."""
    sizes = f"--tasks 16 --n 8 --max-tokens 8 --name {name}"
    success: dict[str, Any] = walk.type(f"run {WORLD} --model {model} {sizes}{rest}")["success"]
    return success


def train(walk: Walk) -> Found:
    """Train the small agent by RL, and let both it and the one it began as work at the same tasks."""
    walk.type(f"train --name desk {WORLD} --model {START} --credit g2po --iterations {walk.few(24, 3)}")
    before, after = collect(walk, "flat", START), collect(walk, "after", trained(walk))
    return Found(
        figure=report(after, "success of the trained agent"),
        control=report(before, "success of the agent it began as, at the same tasks"),
        unit="%",
        means="The agent learnt from its own runs; every one of them is in the store, with tokens, seeds and rewards.",
        place="training/desk",
    )


def groups(walk: Walk) -> Found:
    """Count the groups that teach nothing, among independent runs and among trees of the same budget."""
    collect(walk, "grown", START, " --rollouts tree")
    flat = walk.rows("log --zero-variance 'name=flat/*'")[0]
    grown = walk.rows("log --zero-variance 'name=grown/*'")[0]
    wins = grown["zero_variance"] < flat["zero_variance"]
    silent, design = "zero_variance", "groups of eight runs whose rewards are all equal, Wilson interval"
    return Found(
        figure=rate("groups without a signal, grown as trees", grown[silent], grown["groups"], design=design),
        control=rate("groups without a signal, independent runs", flat[silent], flat["groups"], design=design),
        unit="%",
        means="A group whose runs all end alike teaches nothing; "
        + (
            "growing trees left fewer of them here."
            if wins
            else "trees left no fewer here, so keep to independent runs."
        ),
        place="runs?q=name%3Dgrown%2F*",
    )


def credit(walk: Walk) -> Found:
    """Give every step an advantage by six estimators, and see how far two of them agree."""
    made = walk.type(f"credit '{FAMILY}' 'name=flat/*'")
    walk.type("credit 'g2po+bellman' 'name=after/*'")
    agreed = walk.type("audit methods 'name=flat/*'")
    pair = next(it for it in agreed["pairs"] if (it["a"], it["b"], it["on"]) == ("g2po", "grpo", "calls"))
    (low, high), (least, most) = pair["interval"], pair["shuffled"]
    steps = max(method["valued"] for method in made["methods"])
    between = {"estimate": pair["rank correlation"], "low": low, "high": high, "n": pair["tasks"]}
    return Found(
        figure=report(
            between, "rank correlation of G2PO's and GRPO's advantages", f"{steps} steps, interval over tasks"
        ),
        control=figure("the same, one's values dealt out at random", 0.0, least, most, pair["tasks"], ""),
        means="GRPO gives each step of a run the same credit; G2PO asks at which state the run was lost.",
        place=f"run/{pair['apart']}",
    )


def recoveries(walk: Walk) -> Found:
    """Make supervised data with the agent's detours and without them, and count the recoveries that are left."""
    for name, rest in (("full", ""), ("erased", " --erase-loops")):
        walk.type(f"export --sft {walk.path(name)}.jsonl 'name=flat/* return>0.5'{rest}")
    full = walk.type(f"audit coverage {walk.path('full.jsonl')}")["share of retreats"]
    erased = walk.type(f"audit coverage {walk.path('erased.jsonl')}")["share of retreats"]
    design = "distinct recoveries of solved runs, bootstrap over tasks"
    return Found(
        figure=report(erased, "recoveries that perfect solutions teach", design),
        control=report(full, "recoveries that the runs as they were teach", design),
        unit="%",
        means="Who trains on solutions cleaned of mistakes trains away what the agent does after one.",
        place="runs?q=name%3Dflat%2F*%20return%3E0.5",
    )


STOPS = (
    Stop(
        name="train",
        does="Reinforcement learning: runs are collected, their steps are given credit, and the weights follow.",
        paper="",
        arxiv="",
        method="A training to look at",
        walk=train,
        asks="Does it learn?",
    ),
    Stop(
        name="groups",
        does=(
            "A tree of forks from the most informative places takes the place of independent runs, so that a "
            "group has both successes and failures."
        ),
        paper="E162",
        arxiv="2605.05262",
        method="Trees for groups that teach nothing",
        walk=groups,
        after=("train",),
        asks="Why has the training stopped learning?",
    ),
    Stop(
        name="credit",
        does=(
            "The runs of a task are merged where they reach equal states, and each step is worth what it changed "
            "on that graph."
        ),
        paper="E165",
        arxiv="2606.22995",
        method="Credit for every step",
        walk=credit,
        after=("train",),
        asks="Which step deserves the blame?",
    ),
    Stop(
        name="recoveries",
        does="Runs are searched for mistakes and for what put them right, and training data for both.",
        paper="E163",
        arxiv="2606.22938",
        method="Learning to backtrack",
        walk=recoveries,
        after=("train",),
        asks="Does my data teach what to do after a mistake?",
    ),
)
