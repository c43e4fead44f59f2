"""Tables, pass marks and figure of tier A, from its lines of results alone."""

from clew.methods.pins.structural import Finding, verdicts
from papers.drawing import canvas
from papers.stats import Line, Lines, Mark, bullets, document, table

FIELDS = ("history", "position", "channel", "mix", "generation")


def grids(lines: Lines, pinned: bool) -> list[Line]:
    return [line for line in lines if line["kind"] == "grid" and line["pinned"] is pinned]


def kept(found: Line) -> str:
    return f"{found['kept']} of {found['n'] - found['failed']}"


def pass_marks(lines: Lines) -> list[Mark]:
    marks = []
    for line in (line for line in lines if line["kind"] == "measured"):
        if line["pinned"]:
            lost, n = (sum(c[k] for c in line["claims"]) for k in ("lost", "n"))
            marks.append(Mark("the same runs with the pin", "lost 0", f"lost {lost} of {n}", lost == 0))
            continue
        for c in line["claims"]:
            met = c["lost"] == c["predicted"] and c["fired"] == c["n"]
            marks.append(Mark(c["claim"], f"lost {c['predicted']} of {c['n']}", f"lost {c['lost']} of {c['n']}", met))
    if pins := grids(lines, True):
        found = [line["found"] for line in pins]
        sent, held = sum(f["n"] - f["failed"] for f in found), sum(f["kept"] for f in found)
        blocks = sorted({b for line in pins for b in line["blocks"]})
        most, torn = max(line["tokens"] for line in pins), sum(f["torn"] for f in found)
        marks += [
            Mark("pin, whole grid", "kept in every request", f"{held} of {sent}", held == sent),
            Mark("pin, blocks in a request", "exactly one", str(blocks), blocks == [1]),
            Mark("pin, tokens of the block", "at most 60", str(most), most <= 60),
            Mark("pin, requests with an orphaned tool message", "0", str(torn), torn == 0),
        ]
    return marks


def finding(found: Line) -> Finding:
    """As a line has it. Older lines leave out what always holds for these stacks: each feed is cut by a summariser."""
    return Finding(**({"unknown": 0, "cut": found["n"]} | dict(found)))


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    pins = {line["stack"]: line["found"] for line in grids(lines, True)}
    plain = [line for line in grids(lines, False) if line["stack"] in pins]
    found, held = ([finding(line["found"]) for line in grids(lines, pinned)] for pinned in (False, True))
    return document(
        "## Tier A: what stacks do to a rule before any model can neglect it",
        f"Versions: {'; '.join(sorted({line['versions'] for line in lines}))}. Deterministic, so every figure is a "
        "count over the grid, not a sample: history "
        "1.1, 2, 5, 10 x the budget of 3,000 tokens; rule first, fourth, in the middle, last; told by system message, "
        "user, memory or tool; chat and tool loop; five generations of compaction. The summariser repeats the rule "
        "whenever it sees it. Kept counts requests to the model; `gave up`: feeds at which the stack raised an error.",
        pass_marks(lines),
        table(
            plain,
            ("stack", "stack"),
            ("version", lambda x: x["found"]["version"] or "this one"),
            ("kept", lambda x: kept(x["found"])),
            ("never seen", lambda x: x["found"]["unseen"]),
            ("lost later", lambda x: x["found"]["later"]),
            ("gave up", lambda x: x["found"]["failed"]),
            ("with torn tool messages", lambda x: x["found"]["torn"]),
            ("kept, pinned", lambda x: kept(pins[x["stack"]])),
        ),
        "Verdicts",
        bullets(verdicts(found, held)),
        table(
            plain, ("kept by", "stack"), *((field, lambda x, field=field: _shares(x["by"][field])) for field in FIELDS)
        ),
    )


def _shares(by: dict[str, tuple[int, int]]) -> str:
    return "; ".join(f"{value} {kept}/{n}" for value, (kept, n) in by.items())


def figure(lines: Lines) -> object:
    """Share of requests that still hold the rule, by stack and generation."""
    plain, nan = grids(lines, False), float("nan")
    fig, axis = canvas((7, 0.3 * len(plain) + 1.2))
    shares = [[kept / n if n else nan for kept, n in line["by"]["generation"].values()] for line in plain]
    width = max(map(len, shares))
    rows = [row + [nan] * (width - len(row)) for row in shares]
    image = axis.imshow(rows, vmin=0, vmax=1, aspect="auto", cmap="cividis")
    axis.set(xlabel="generation", xticks=range(width), xticklabels=range(1, width + 1))
    axis.set(yticks=range(len(plain)), yticklabels=[line["stack"] for line in plain])
    fig.colorbar(image, label="requests with the rule")
    return fig
