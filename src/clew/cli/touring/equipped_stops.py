"""Stops of `clew tour` on what stands around an agent: memory, a simulated world, a choice of models, drafts."""

from __future__ import annotations

from clew.cli.touring.journey import Found, Stop, Walk, report
from clew.cli.touring.learning_stops import START, WORLD, trained

ITEMS = (
    "A kettle can be returned within 30 days.",
    "A lamp can be returned within 30 days.",
    "A shirt can be returned within 60 days.",
    "A radio can be returned within 90 days.",  # wrong: a radio goes back within 14
)


def memory(walk: Walk) -> Found:
    """Give an agent a memory in which one item is wrong, and ask what each item is worth."""
    walk.unpack("returns.py", "returns.jsonl")
    for text in ITEMS:
        walk.type(f"memory add returns --kind fact --text '{text}' --by tour")
    rows = f"--data {walk.path('returns.jsonl')} --reward exact --model echo"
    walk.type(f"run {walk.path('returns.py')}:agent {rows} --tasks {walk.few(120, 40)} --n 1 --name returns")
    audited = walk.type(f"memory audit returns -n {walk.few(120, 40)}")
    texts = {item["id"]: item["text"] for item in walk.rows("memory list returns")}
    single = [one for one in audited["worth"] if one["kind"] == "item"]
    worst = min(single, key=lambda one: float(one["success"]["estimate"]))
    best = max(single, key=lambda one: float(one["success"]["estimate"]))
    return Found(
        figure=report(worst["success"], f"success with the item less success without: {texts[worst['items'][0]]}"),
        control=report(best["success"], f"the same of the best item: {texts[best['items'][0]]}"),
        means=f"The verdict on the worst item is: {worst['verdict']}. "
        + ("Success alone had not told it." if worst["verdict"] == "harmful" else "More runs would decide."),
        place="reports?q=memory",
    )


def world(walk: Walk) -> Found:
    """Fit a model to what the world answered in all runs of the training, and hold it against the world."""
    sizes = f"--epochs {walk.few(2, 1)} --width 64 --layers 2 --measure {walk.few(30, 8)}"
    made = walk.type(f"world fit world=household --model scratch {sizes} -o {walk.path('house-model')}")
    exact = made["measured"]["fidelity"]["all"]["exact"]
    rule = next(iter(made["measured"]["table"].items()))
    beaten = exact["low"] > rule[1]["high"]
    return Found(
        figure=report(exact, "answers of the fitted model that are the world's to the letter, on other tasks"),
        control=report(rule[1], f"the same of a rule: {rule[0].rpartition(', has')[0]}"),
        unit="%",
        means='The fitted model is a world of its own: clew run --world "simulated(folder=...)"; '
        + ("it beats the table." if beaten else "so little fitting does not beat a table: fit more runs."),
        place="runs?q=world%3Dhousehold",
    )


def route(walk: Walk) -> Found:
    """Measure what choosing a model by question could gain over always asking the better one."""
    pool = f"--models {START},{trained(walk)} {WORLD} --split test --tasks {walk.few(40, 24)} -n {walk.few(4, 2)}"
    walk.type(f"route measure {pool} --max-tokens 8 --name pool")
    told = walk.type("route report pool")
    single = next(arm for arm in told["arms"] if arm["name"] == "best single")
    return Found(
        figure=report(told["headroom"], "reward that an oracle which chooses by question gains"),
        control=report(single["reward"], "reward of the better model alone"),
        means=f"The verdict is: {told['verdict']}.",
        place="reports?q=route",
    )


def drafts(walk: Walk) -> Found:
    """Train a drafter on the agent's own replies, and count on text held back how many tokens a round gives with it."""
    learn = f"draft train {trained(walk)} --data 'name=after/*' --block 4"
    made = [
        walk.type(f"{learn} --steps {steps} --out {walk.path(name)}")["accepted"]["all"]
        for name, steps in (("drafter", walk.few(300, 40)), ("untrained-drafter", 1))
    ]
    tokens, untrained = ({**one, "estimate": one["length"], "n": one["texts"]} for one in made)
    design = "replies held back; percentile bootstrap over replies"
    return Found(
        figure=report(tokens, "tokens that one pass of the model gives with the drafter (1 without drafts)", design),
        control=report(untrained, "the same of a drafter after one step of training", design),
        means="Whether fewer passes are faster depends on the machine: clew serve times it and keeps what pays."
        if tokens["low"] > untrained["high"]
        else "The drafter learnt nothing that one step had not: train it longer, on more replies.",
        place="runs?q=name%3Dafter%2F*",
    )


STOPS = (
    Stop(
        name="memory",
        does=(
            "Runs that were given an item are forked at the recall that gave it, with the item and without, under "
            "the same seeds."
        ),
        paper="E168",
        arxiv="2606.24151",
        method="What a memory's items are worth",
        walk=memory,
        asks="Which note in the agent's memory does harm?",
    ),
    Stop(
        name="world",
        does=(
            "A small model learns to answer as the world did, from recorded runs, and is held against the world "
            "on other tasks."
        ),
        paper="E167",
        arxiv="2606.24597",
        method="A model of a world",
        walk=world,
        after=("train", "diff"),
        asks="Can I try the agent where the real environment is too dear?",
    ),
    Stop(
        name="route",
        does=(
            "Each model answers each question several times; an oracle that chooses by question is scored on "
            "samples that it has not seen."
        ),
        paper="E166",
        arxiv="2606.21228",
        method="One model in front of many",
        walk=route,
        after=("train",),
        asks="Would choosing a model by question pay?",
    ),
    Stop(
        name="drafts",
        does=(
            "A drafter proposes tokens and the model verifies them in one pass; what is said keeps its distribution."
        ),
        paper="E179",
        arxiv="2607.05147",
        method="Speculative decoding",
        walk=drafts,
        after=("train",),
        asks="Can I serve the same model faster?",
    ),
)
