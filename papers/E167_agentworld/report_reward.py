"""Table, pass marks and figure of tier reward (E4), from its lines of results alone."""

from __future__ import annotations

import numpy as np

from papers.drawing import canvas, finish
from papers.E167_agentworld.single import every
from papers.E167_agentworld.tier_reward import ARMS, SIZES
from papers.stats import Lines, Mark, Results, by_seed, document, mark, markdown, minutes, show

GAIN, RATIO = 0.03, 2.0  # specs/E167, section 6, E4
RL = ("one", "every", "every, by run", "noise")


def gains(lines: Lines, arm: str, field: str) -> np.ndarray:
    """Of each seed, the share of right answers less that of the model begun with."""
    found = Results(lines)
    return np.array(every(found.of(arm=arm), field)) - np.array(every(found.of(arm="start"), field))


def dead(lines: Lines, arm: str) -> np.ndarray:
    """Of each seed, the share of groups rewarded alike over the whole training."""
    return np.array([np.mean(line["dead"]) for line in Results(lines).of(arm=arm)])


def pass_marks(lines: Lines) -> list[Mark]:
    one, told = dead(lines, "one"), f"at least {RATIO:g} times the zero-variance groups of one turn"
    out = [mark("gain", "exact at least +.03 over the start", by_seed(gains(lines, "one", "exact")), least=GAIN)]
    out += [
        mark(f"dead, {arm}", told, by_seed(dead(lines, arm) / np.maximum(one, 1e-9)), least=RATIO) for arm in RL[1:3]
    ]
    lot = by_seed(gains(lines, "noise", "exact"))
    out.append(mark("control", "rewards by lot gain less than +.03", lot, under=GAIN))
    out.append(Mark("sampled", "gain at temperature 1", by_seed(gains(lines, "one", "sampled")), None))
    plain = gains(lines, "one", "exact") - gains(lines, "learnt", "exact")
    return [*out, Mark("against the plain loss", "exact, one less learnt", by_seed(plain), None)]


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    found, rows = Results(lines), []
    for arm in ARMS:
        own = found.of(arm=arm)
        row = [arm, by_seed(every(own, "exact")), by_seed(every(own, "sampled"))]
        row += [show(by_seed(gains(lines, arm, f)), "+.3f") if arm != "start" else "" for f in ("exact", "sampled")]
        if arm in RL:
            full = by_seed([np.mean(line["full"]) for line in own])
            row += [by_seed(dead(lines, arm)), full]
        rows.append(row + [""] * (7 - len(row)))
    size, n = SIZES[lines[0]["size"]], [len(line["exact"]) for line in found.of(arm="start")]
    head = (
        "arm | exact, greedy | exact, sampled | gain, greedy | gain, sampled | groups rewarded alike | at full reward"
    )
    return document(
        "## Tier reward: single-turn RL on next observations (E4)",
        f"{len(n)} seeds (runs, weights and sampling); {size.learnt} runs learnt, {size.pool} more for RL of "
        f"{size.updates} updates, {size.turns} turns x 8 replies each; {min(n)} to {max(n)} answers of {size.held} "
        f"held-out runs. Intervals over seeds. {minutes(lines):.1f} CPU-minutes.",
        pass_marks(lines),
        markdown(head, rows),
    )


def figure(lines: Lines) -> object:
    """Share of groups rewarded alike by update, mean over seeds, in windows of eight updates."""
    fig, axis = canvas((5, 2.6))
    for arm in RL:
        each = np.array([line["dead"] for line in Results(lines).of(arm=arm)]).mean(axis=0)
        width = min(8, len(each))
        axis.plot(np.convolve(each, np.ones(width) / width, mode="valid"), label=arm)
    axis.set(xlabel="update", ylabel="groups rewarded alike", ylim=(0, 1))
    finish(axis)
    return fig
