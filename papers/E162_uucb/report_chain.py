"""Tables, pass marks and figure of E162 on fork chains, from its lines of results alone."""

import numpy as np

from papers.drawing import canvas, finish
from papers.E162_uucb.chain import CLASSES
from papers.E162_uucb.tier_chain import ARMS, LEARNERS, PROMPTS, unbits
from papers.stats import Lines, Mark, Report, Results, document, gap, mark, markdown, minutes, over, table, times

MOVES = ("plain", "moved", "learned", "known")
AUDITED = ("pooled proxy", "pooled coverage", "within proxy", "within coverage", "ratio")


class Grown(Results):
    def mixed(self, arm: str, prompts: str, budget: str = "tokens", kind: str = "grow") -> np.ndarray:
        """Whether each prompt's group was mixed, [seeds x 600]; the order is the same for every arm."""
        return np.concatenate([unbits(x[budget]["mixed"]) for x in self.of(kind=kind, arm=arm, prompts=prompts)])

    def share(self, arm: str, prompts: str, budget: str = "tokens", kind: str = "grow") -> Report:
        return over(self.mixed(arm, prompts, budget, kind), unit="prompts")

    def against(self, arm: str, prompts: str, budget: str = "tokens") -> Report:
        """Mixed groups of a selector over those of flat sampling."""
        return times(self.mixed(arm, prompts, budget), self.mixed("flat", prompts, budget), unit="prompts")

    def mean(self, arm: str, prompts: str, budget: str, field: str) -> float:
        return float(self.get(budget, field, kind="grow", arm=arm, prompts=prompts).mean())

    def learnt(self, arm: str, field: str) -> np.ndarray:
        return self.get(field, kind="learn", arm=arm)


def report(lines: Lines) -> str:
    """Markdown, pass marks first.

    Raises:
        KeyError: a line lacks the equal-leaf or equal-time results (P4).
    """
    t = Grown(lines)
    seeds = len({line["seed"] for line in t.of(kind="grow")})
    return document(
        "# E162: UUCB on fork chains",
        f"{len(lines)} cells, {seeds} seeds of {PROMPTS} prompts a class, {minutes(lines):.1f} "
        "CPU-minutes. 95 % bootstrap intervals, over prompts unless said; the arms share prompts.",
        [*_theory(t), *_selection(t), *_moving(t), *_proxies(t), *_bounds(t), *_trained(t)],
        "## Mixed groups at equal tokens (128 decoded)",
        _budget(t, "tokens"),
        "## Mixed groups at equal leaves (8)",
        _budget(t, "leaves"),
        "## Flat sampling given the CPU time that each selector took for its 128 tokens",
        _timed(t),
        "A token of the simulator costs next to nothing, so this is the case in which choosing costs most beside "
        "decoding.",
        "## Group spread 2 sqrt(q (1 - q)) at equal tokens",
        markdown(
            ["selector", *CLASSES],
            [[arm, *(f"{t.mean(arm, name, 'tokens', 'std'):.3f}" for name in CLASSES)] for arm in ARMS],
        ),
        "## Budget moved to uniform prompts: 5 leaves' worth first, the rest where it is needed",
        _moved(t),
        "Learned: a logistic regression fitted to 600 other prompts says which uniform trees are likeliest to become "
        "mixed by the next 32 tokens. Seen before: it also knows how 8 flat rollouts of the prompt had ended.",
        "## Proxy audit: correlation with the truth, pooled over prompts and within a prompt",
        _audit(t),
        "Intervals over seeds.",
        "## Training: 40 hard prompts, 40 updates, 204,800 tokens",
        table(
            LEARNERS,
            ("rollouts, baseline", str),
            ("success before", lambda arm: over(t.learnt(arm, "before"))),
            ("success after", lambda arm: over(t.learnt(arm, "final"))),
            ("groups without signal", lambda arm: over(t.learnt(arm, "dead"))),
            ("tokens", lambda arm: t.learnt(arm, "tokens").mean(), ",.0f"),
            ("seeds", lambda arm: len(t.learnt(arm, "tokens"))),
        ),
        "Intervals over seeds. Without a named baseline: GRPO over leaves.",
    )


def _theory(t: Grown) -> list[Mark]:
    out = []
    for name in CLASSES:
        found = t.mixed("flat", name)
        exact = t.mean("flat", name, "exact", "8")
        error = 3 * float(np.sqrt(exact * (1 - exact) / len(found)))
        promise = f"flat within 3 SE ({error:.3f}) of {exact:.3f}"
        out.append(mark(f"P1 {name}", promise, over(found - exact, unit="prompts"), least=-error, most=error))
    eight, four = (t.get("exact", n, kind="grow", arm="flat", prompts="vhard") for n in ("8", "4"))
    return [*out, mark("P1 M(8)/M(4), vhard", "in [1.85, 2.0]", times(eight, four), least=1.85, most=2.0)]


def _selection(t: Grown) -> list[Mark]:
    more, even = "UUCB / flat at least {}, interval above 1", "printed; at equal leaves UUCB / flat at most 1"
    return [
        mark("P2 mid", more.format(1.25), t.against("uucb", "mid"), least=1.25, above=1),
        mark("P2 hard", more.format(1.7), t.against("uucb", "hard"), least=1.7, above=1),
        *(mark(f"P3 {name}", "UCT / flat at most 1.15", t.against("uct", name), most=1.15) for name in ("mid", "hard")),
        *(mark(f"P4 {name}", even, t.against("uucb", name, "leaves"), most=1) for name in ("mid", "hard")),
    ]


def _moving(t: Grown) -> list[Mark]:
    def gained(arm: str, prompts: str, to: str, of: str) -> Report:
        return gap(*(t.mixed(arm, prompts, which, "move") for which in (to, of)), unit="prompts")

    promise = "moving budget gains at least .02"
    return [
        *(mark(f"P5 {arm}", promise, gained(arm, "mid", "moved", "plain"), least=0.02) for arm in ("flat", "uucb")),
        mark("step 6", "a learned forecast moves it better than even shares do",
             gained("uucb", "all", "learned", "moved"), above=0),
    ]  # fmt: skip


def _proxies(t: Grown) -> list[Mark]:
    def get(depth: int, seeds: int, field: str) -> np.ndarray:
        return t.get("all", field, kind="proxy", depth=depth, seeds=seeds)

    promise = "pooled correlation at least .6 with 8 seeds"
    short, middle, long = (get(depth, 2, "ratio") for depth in (8, 16, 32))
    falls = gap(short, long)
    ordered = bool(short.mean() >= middle.mean() >= long.mean()) and falls.low > 0
    return [
        mark("P6 whole F", promise, over(get(16, 8, "pooled proxy")), least=0.6),
        mark("P6 coverage term", promise, over(get(16, 8, "pooled coverage")), least=0.6),
        Mark("P6 depth", "greedy / best falls from depth 8 over 16 to 32", falls, ordered),
    ]


def _bounds(t: Grown) -> list[Mark]:
    first, both, three = t.get("raw", kind="bounds").T
    assert np.allclose(first, 0.0)
    bad, second = over(t.get("violations", kind="bounds")), gap(both, three - both)
    least = 1 - 1 / np.e
    return [
        mark("P7 F", "no violation of diminishing returns in 1,000 pairs", bad, least=0, most=0),
        mark("P7 greedy", "smallest greedy / best at least 1 - 1/e", over(t.get("greedy", kind="bounds")), least=least),
        Mark("P7 raw M", "the second rollout gains more than the first (0)", second, second.estimate > 0),
    ]


def _trained(t: Grown) -> list[Mark]:
    drop = gap(*(t.learnt(arm, "dead") for arm in ("flat", "uucb")))
    gain = times(*(t.learnt(arm, "final") for arm in ("uucb", "flat")))
    return [
        mark("P8 dead groups", "drop of at least .05", drop, least=0.05, above=0),
        mark("P8 success", "at least 1.15 x flat", gain, least=1.15, above=1),
    ]


def _budget(t: Grown, budget: str) -> str:
    return table(
        ARMS,
        ("selector", str),
        *((name, lambda arm, name=name: t.share(arm, name, budget)) for name in CLASSES),
        ("tokens (mid)", lambda arm: t.mean(arm, "mid", budget, "used"), ".0f"),
        ("leaves (mid)", lambda arm: t.mean(arm, "mid", budget, "n"), ".1f"),
    )


def _timed(t: Grown) -> str:
    def both(arm: str, name: str) -> str:
        return f"{t.mixed(arm, name).mean():.3f} / {t.mixed(arm, name, 'timed').mean():.3f}"

    return table(
        [arm for arm in ARMS if arm != "flat"],
        ("selector", str),
        *((f"{name}, selector / flat", lambda arm, name=name: both(arm, name)) for name in CLASSES),
        ("CPU s (mid)", lambda arm: t.get("cpu_tree", kind="grow", arm=arm, prompts="mid").mean(), ".2f"),
        ("flat's leaves (mid)", lambda arm: t.mean(arm, "mid", "timed", "n"), ".1f"),
    )


def _moved(t: Grown) -> str:
    rows = []
    for prompts, arm in ((prompts, arm) for prompts in ("mid", "all") for arm in ("flat", "uucb")):
        used = [f"{t.get(which, 'used', kind='move', arm=arm, prompts=prompts).mean():.1f}" for which in MOVES]
        rows.append([prompts, arm, *(t.share(arm, prompts, which, "move") for which in MOVES), " / ".join(used)])
    head = "prompts | selector | not moved | even shares | learned | learned, prompts seen before | tokens a prompt"
    return markdown(head, rows)


def _audit(t: Grown) -> str:
    rows = []
    settings = ((scope, d, s) for scope in ("all", "uniform") for d in (8, 16, 32) for s in (2, 4, 8))
    for scope, depth, seeds in settings:
        at = {"kind": "proxy", "depth": depth, "seeds": seeds}
        many = int(t.get(scope, "prompts", **at).sum())
        rows.append([scope, depth, seeds, *(over(t.get(scope, field, **at)) for field in AUDITED), many])
    head = (
        "prompts | depth | seed rollouts | F pooled | coverage pooled | F within | coverage within | greedy / best | n"
    )
    return markdown(head, rows)


def figure(lines: Lines) -> object:
    """Mixed groups by class at equal tokens and equal leaves, and success while training."""
    t = Grown(lines)
    shown = {"flat": "#000000", "random": "#999999", "uct": "#D55E00", "entropy": "#009E73", "uucb": "#0072B2"}
    fig, axes = canvas((11, 3.2), 1, 3)
    for axis, budget, title in zip(axes, ("tokens", "leaves"), ("128 tokens each", "8 leaves each"), strict=False):
        for i, (arm, colour) in enumerate(shown.items()):
            found = [t.share(arm, name, budget) for name in CLASSES]
            middle = np.array([f.estimate for f in found])
            error = np.abs(np.array([[f.low, f.high] for f in found]).T - middle)
            at = np.arange(len(CLASSES)) + 0.16 * (i - 2)
            axis.bar(at, middle, 0.15, color=colour, label=arm, yerr=error, error_kw={"linewidth": 0.8})
        axis.set_xticks(range(len(CLASSES)), list(CLASSES))
        axis.set(title=title, ylabel="share of mixed groups")
    for arm, colour in zip(LEARNERS, ("#000000", "#0072B2", "#56B4E9", "#CC79A7"), strict=True):
        curves = t.learnt(arm, "curve")
        axes[2].plot(curves.mean(axis=0), color=colour, label=arm)
        axes[2].fill_between(range(curves.shape[1]), curves.min(axis=0), curves.max(axis=0), color=colour, alpha=0.1)
    axes[2].set(title="training at equal tokens (band: all seeds)", xlabel="update", ylabel="exact success")
    finish(axes[0], axes[2], grid=False)
    return fig
