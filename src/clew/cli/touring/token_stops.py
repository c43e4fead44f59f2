"""Stops of `clew tour` that look into runs: the token that sank one, steps graded by two checkpoints, whether thinking
decides anything, and which feature the training added."""

from __future__ import annotations

from pathlib import Path

from clew.cli.touring.journey import Found, Stop, Walk, figure, report
from clew.cli.touring.learning_stops import START, WORLD, trained
from clew.methods.compare.design import rate


def cliffs(walk: Walk) -> Found:
    """Look for the tokens at which failed runs were lost, and train on one token against another at each."""
    lost = walk.rows(f"log 'name=after/* return<0.5 g2po<-1.5' -n {walk.few(3, 1)}")
    names = " ".join(run["run"] for run in lost)
    walk.type(f"store tag sunk {names}")
    looked = walk.type(f"audit cliffs tag:sunk --at tokens -n {walk.few(48, 16)} --pairs {walk.path('pairs.jsonl')}")
    kept = [cliff for cliff in looked["cliffs"] if cliff["confirmed"]]
    if not kept:
        none = rate("flagged tokens that were confirmed on a fresh batch", 0, max(len(looked["cliffs"]), 1))
        return Found(
            figure=none, means="These runs were lost little by little, at no single token.", place="runs?q=tag%3Asunk"
        )
    walk.type(f"tune tag:sunk --loss cliff-dpo --name mended --model {trained(walk)} --epochs 2")
    worst = max(kept, key=lambda cliff: cliff["drop"])
    drop = figure(
        f"chance of success that one token cost ({worst['at']})",
        worst["drop"],
        worst["low"],
        worst["high"],
        looked["potential"][0]["n"],
        "continuations before and after the token, Newcombe's interval, fresh batch",
    )
    means = f"{len(kept)} of {looked['positions']} tokens sank these runs; the agent was tuned on a pair at each."
    again = report(looked["replicated"], "flagged tokens that a fresh batch confirms")
    return Found(figure=drop, control=again, means=means, place=f"run/{worst['at'].partition('+')[0]}", unit="%")


def grade(walk: Walk) -> Found:
    """Grade every step by the weights after training against those before it."""
    graded = walk.type(f"audit grade 'name=flat/*' --policy {trained(walk)} --reference {START}")
    score, shortness = graded["auroc"]["score"], graded["auroc"]["shortness alone"]
    n = {"n": graded["judged"]}
    wins = score["low"] > shortness["high"]
    return Found(
        figure=report(
            score | n, "AUROC of the grade against success", f"{graded['tasks']} tasks, bootstrap over tasks"
        ),
        control=report(shortness | n, "AUROC of a one-line rule: shorter is better", "the same runs"),
        means="Two checkpoints grade runs without any sampling; "
        + (
            "here they beat the length of the run."
            if wins
            else "here the length of the run says as much or more, so use that."
        ),
        place="runs?q=name%3Dflat%2F*%20has%3Dgrade",
    )


def early(walk: Walk) -> Found:
    """Ask whether the outcome is settled before the agent has looked around."""
    sizes = f"--prompts {walk.few(16, 8)} -n {walk.few(4, 2)}"
    asked = walk.type(f"audit early 'name=flat/*' --outcome 'return>0.5' --thinking calls {sizes}")
    return Found(
        figure=report(asked["fixed"], "share of the outcome that is fixed at the prompt"),
        control=report(asked["rate"], "rate of success from the prompt"),
        means=f"The verdict is: {asked['verdict']}.",
        place="reports",
    )


def diff(walk: Walk) -> Found:
    """Fit one dictionary to the hidden states of both checkpoints, and write what training added."""
    wide = f"--tasks {walk.few(140, 130)} --n 1 --max-tokens 8 --name wide"
    walk.type(f"run {WORLD} --model {trained(walk)} {wide}")
    sizes = (
        f"--steps {walk.few(300, 60)} --prompts {walk.few(60, 60)} --random {walk.few(10, 4)} --tried {walk.few(2, 1)}"
    )
    found = walk.type(f"audit diff {trained(walk)} {START} --on 'name=wide/*' --reward {sizes}")
    tried = [line for line in found["evidence"] if ": feature " in line["about"]]
    trained_by = next(line for line in found["evidence"] if line["about"] == "A less B")
    best = max(tried, key=lambda line: float(line["estimate"]), default=trained_by)
    return Found(
        figure=report(best, f"success that the base gains by one feature ({best['about']})"),
        control=report(trained_by, "success that training added, all of it"),
        means=f"The verdict is: {found['verdict']}; {found['text']}.",
        place=f"features/{label}" if (label := _label(found)) else "reports",
    )


def _label(found: dict[str, str]) -> str:
    """The name of a comparison, as the viewer's addresses have it: the folder of its crosscoder."""
    return Path(found["crosscoder"]).parent.name


STOPS = (
    Stop(
        name="cliffs",
        does=(
            "Continuations are sampled before and after each token that can matter; a token at which the chance "
            "of success falls is tested again on fresh ones."
        ),
        paper="E172",
        arxiv="2606.25524",
        method="Cliff tokens",
        walk=cliffs,
        after=("train", "credit"),
        asks="At which token was the run lost?",
    ),
    Stop(
        name="grade",
        does=(
            "The logprobs of two checkpoints are subtracted at every recorded token: under a KL penalty that is "
            "the advantage, and nothing is sampled."
        ),
        paper="E173",
        arxiv="2606.26080",
        method="The grader in two checkpoints",
        walk=grade,
        after=("train",),
        asks="Can I grade steps without a reward model?",
    ),
    Stop(
        name="early",
        does=(
            "Runs are cut after some of their thinking and continued from there: what still varies is not settled yet."
        ),
        paper="E171",
        arxiv="2606.25013",
        method="Does thinking decide anything?",
        walk=early,
        after=("train",),
        asks="Is the outcome settled before the agent thinks?",
    ),
    Stop(
        name="diff",
        does=(
            "One sparse dictionary is fitted to the hidden states of both checkpoints, and its features are "
            "written into a model while it acts."
        ),
        paper="E175",
        arxiv="2606.26474",
        method="Which feature did training add?",
        walk=diff,
        after=("train",),
        asks="What did training change inside the model?",
    ),
)
