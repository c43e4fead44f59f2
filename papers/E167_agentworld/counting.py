"""What reports count in lines of results: shares of answers that are told by letter, with episodes drawn whole; and
the figure of episodes left to themselves, which two of them draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clew.core.records import Report
from clew.methods.compare.design import clustered
from papers.drawing import band, canvas, finish
from papers.E167_agentworld.episodes import DEEP
from papers.experiment import Line
from papers.stats import Lines, pooled

Answer = dict[str, str]
Wanted = Callable[[Answer], bool]


def answers(line: Line) -> list[Answer]:
    """The answers of a line: each field that holds a letter for an answer, with the episode, ``task``, and ``base``, 1
    where it is of the episodes as they come."""
    runs = line["runs"]
    n = sum(runs)
    fields = {name: text for name, text in line.items() if isinstance(text, str) and len(text) == n}
    places = [i for i, count in enumerate(runs) for _ in range(count)]
    first = line.get("plain_runs", len(runs))
    return [
        {name: text[i] for name, text in fields.items()} | {"task": str(place), "base": str(int(place < first))}
        for i, place in enumerate(places)
    ]


def share(lines: Lines, wanted: Wanted, field: str = "exact") -> Report:
    """The share of the wanted answers that are right, over all lines; episodes are drawn whole, all seeds of one
    together, since all seeds are asked the same."""
    found = [one for line in lines for one in answers(line) if wanted(one)]
    values, tasks = [float(one[field]) for one in found], [one["task"] for one in found]
    if len(set(values)) < 2 or len(set(tasks)) < 2:
        return pooled(sum(values), len(values))
    return clustered("", values, tasks, unit="episodes")


def gain(one: Lines, other: Lines, wanted: Wanted) -> Report:
    """How much more of the wanted answers the first lines have right than the others, paired by episode."""
    sides = [[answer for line in lines for answer in answers(line) if wanted(answer)] for lines in (one, other)]
    values, tasks = ([[pick(a) for a in side] for side in sides] for pick in (_right, _task))
    return clustered("", values[0], tasks[0], values[1], tasks[1], unit="episodes")


def _right(answer: Answer) -> float:
    return float(answer["exact"])


def _task(answer: Answer) -> str:
    return answer["task"]


def count(lines: Lines, wanted: Wanted) -> int:
    """Wanted answers in all lines."""
    return sum(wanted(one) for line in lines for one in answers(line))


def staying(lines: Lines, turn: int) -> tuple[int, int]:
    """Of the episodes that are as long: those in which no answer was wrong up to ``turn``, and all; left to itself."""
    pairs = [(way, n) for line in lines for way, n in zip(line["alone"], line["runs"], strict=False) if n >= turn]
    return sum(len(way) >= turn and "0" not in way[:turn] for way, _ in pairs), len(pairs)


def agreeing(lines: Lines, turn: int) -> tuple[int, int]:
    """Of the episodes that are as long: those whose answer at ``turn`` is the world's, whatever came before; left to
    itself."""
    pairs = [(way, n) for line in lines for way, n in zip(line["alone"], line["runs"], strict=False) if n >= turn]
    return sum(way[turn - 1 : turn] == "1" for way, _ in pairs), len(pairs)


def ways(sides: Mapping[str, Lines], turns: int) -> object:
    """A figure of the episodes still on the world's way, by turn: a band for each side that has lines."""
    fig, axis = canvas((5, 2.6))
    for i, (name, own) in enumerate(sides.items()):
        if own:
            found = [pooled(*staying(own, turn)) for turn in range(1, turns + 1)]
            band(axis, range(1, turns + 1), found, color=f"C{i}", label=name)
    axis.set(xlabel="turns left to itself", ylabel="on the world's way", ylim=(0, 1))
    finish(axis)
    return fig


def half_life(lines: Lines) -> int | None:
    """The first turn after which at most half of the episodes are still on the world's way."""
    longest = max(max(line["runs"]) for line in lines)
    for turn in range(1, longest + 1):
        hits, n = staying(lines, turn)
        if n and 2 * hits <= n:
            return turn
    return None


def told_half(half: int | None) -> str:
    """A half-life in words."""
    return "beyond the longest episode" if half is None else f"{half} turns"


def curve(lines: Lines, turns: int) -> list[str]:
    """Turn by turn: the share of episodes still on the world's way, and that of answers that are the world's."""
    found = [(pooled(*staying(lines, t)).estimate, pooled(*agreeing(lines, t)).estimate) for t in range(1, turns + 1)]
    return [f"{way:.2f}, {said:.2f}" for way, said in found]


# ---- which answers -------------------------------------------------------------------------------------------------


def usual(one: Answer) -> bool:
    """Of the episodes as they come."""
    return one["base"] == "1"


def knowable(one: Answer) -> bool:
    """Of these, what follows from what was told before, and is no transient failure."""
    return usual(one) and one["content"] == "d" and one["busy"] == "0"


def made_up(one: Answer) -> bool:
    """Of these, with an id that the world makes up."""
    return usual(one) and one["content"] == "r"


def moved(one: Answer) -> bool:
    """Of these, what depends on earlier actions."""
    return usual(one) and one["depth"] != "0"


def same(one: Answer) -> bool:
    """Of these, what depends on none."""
    return usual(one) and one["depth"] == "0"


def far(one: Answer) -> bool:
    """Of all episodes, what depends on three earlier actions or more."""
    return one["depth"].isdigit() and int(one["depth"]) >= DEEP


def paired(one: Answer) -> bool:
    """Of all episodes, what comes right after a pair of commands that no run to learn from holds in a row."""
    return one["pair"] == "1"


def missed(one: Answer) -> bool:
    """Of the episodes as they come, what the commonest answer to the action misses."""
    return usual(one) and one["guessed"] == "0"
