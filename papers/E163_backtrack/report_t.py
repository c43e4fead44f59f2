"""Tables, pass marks and figure of tier T, from its lines of results alone."""

from papers.drawing import canvas, finish
from papers.E163_backtrack.tier_t import RETREATS, SHIFTS, WATCHED
from papers.stats import Line, Lines, Mark, bullets, document, markdown, minutes, table

SPEC = {  # specs/E163 section 4, as printed: base, golden SFT, optimum
    (3, 3, 2): ("276.0", "784.5", "36"),
    (4, 4, 3): ("754.7", "10459", "64"),
    (5, 5, 3): ("1450.0", "74355.7", "100"),
    (10, 5, 5): ("4124.0", "741502", "210"),
    (5, 15, 5): ("15562.0", "1.24e14", "280"),
    (15, 15, 5): ("50142.0", "4.37e14", "900"),
}
PRINTED_EARLY = (1769, 3819, 17269)
PRINTED_RETREATS = (9301, 1921, 307, 150, 116)
PRINTED_ASCENT = (50142, 39503, 20240, 4178, 1078, 900.44)


def of(lines: Lines, kind: str) -> list[Line]:
    return [x for x in lines if x["kind"] == kind]


def size(x: Line) -> str:
    return f"({x['w']}, {x['k']}, {x['l']})"


def spec(x: Line) -> tuple[str, ...]:
    return SPEC[x["w"], x["k"], x["l"]]


def rounds_to(value: float, printed: str) -> bool:
    """Whether ``value``, rounded as ``printed`` is, reads the same."""
    digits, _, power = printed.partition("e")
    places = len(digits.partition(".")[2])
    return f"{value / 10 ** int(power or 0):.{places}f}" == digits


def pass_marks(lines: Lines) -> list[Mark]:
    tables, sft = of(lines, "table"), of(lines, "golden SFT")
    entries = [(x, *pair) for x in tables for pair in zip((x["base"], x["golden"], x["best"]), spec(x), strict=True)]
    off = [
        f"{size(x)} {value:.4g} where {printed} is printed ({value / float(printed) - 1:+.1%})"
        for x, value, printed in entries
        if not rounds_to(value, printed)
    ]
    n, said = len(entries), f"other: golden SFT at {', '.join(off) or 'none'}"
    twin = max(abs(x["golden"] / x["recurrence"] - 1) for x in tables)
    closed, error = (max(x["error"] for x in of(lines, kind)) for kind in ("closed form", "differences"))
    law = max(abs(r * x["l"] / (x["l"] + 1) ** 2 - 1) for x in of(lines, "growth") for r in x["ratios"])
    drift, loss = (max(x[field] for x in sft) for field in ("drift", "loss"))
    ascent = of(lines, "sign ascent")[0]
    last, lowest, positive = ascent["h"][str(WATCHED[-1])], ascent["lowest"], bool(ascent["all positive"])
    return [
        Mark("T1a", f"the {n} entries of section 4 as printed", f"{n - len(off)} of {n}; {said}", not off),
        Mark("T1b", "solver and published recurrence agree to 1e-6", f"{twin:.1e} at worst", twin < 1e-6),
        Mark("T1c", "H* = (2W - 1)(2K + 1) + 1 for 20 random graphs", f"{closed:.1e} at worst", closed < 1e-9),
        Mark("T2", "growth within 1 % of (L + 1)^2 / L for K >= 4", f"{law:.2%} at worst", law < 0.01),
        Mark("T3a", "b and d do not move at all", f"{drift} after 5,000 steps", drift == 0.0),
        Mark("T3b", "cross-entropy above its floor under 1e-3", f"{loss:.1e} nats at worst", loss < 1e-3),
        Mark("T4a", "H(1200) <= 901 at (15, 15, 5)", f"{last:.3f}", last <= 901),
        Mark("T4b", "no probability under 0.9999", f"{lowest:.6f}", lowest >= 0.9999),
        Mark("T4c", "every sign positive at every step", str(positive).lower(), positive),
        Mark("T5", "gradient against differences within 1e-5", f"{error:.1e} at 20 points", error <= 1e-5),
    ]


def _partial(lines: Lines) -> str:
    x = of(lines, "partial")[0]
    early = zip(SHIFTS, x["early"], PRINTED_EARLY, strict=True)
    shifted = zip(RETREATS, x["outward and shifted"], PRINTED_RETREATS, strict=True)
    rows = [
        *([f"outward rows shifted by {s}", f"{h:,.0f}", f"{p:,}"] for s, h, p in early),
        ["retreat perfect, outward untrained", f"{x['retreat only']:,.0f}", "92,920"],
        ["outward and d perfect", f"{x['outward and d']:,.0f}", "200"],
        ["outward and b perfect", f"{x['outward and b']:,.0f}", "21,844"],
        *([f"outward perfect, retreat shifted by {s}", f"{h:,.0f}", f"{p:,}"] for s, h, p in shifted),
    ]
    return markdown("policy at (5, 5, 3) | H | specs/E163", rows)


def report(lines: Lines) -> str:
    """Markdown of the tier, pass marks first."""
    dips = [
        f"{size(x)}: lowest {min(h for _, h in x['curve']):,.1f}, first {x['curve'][0][1]:,.1f}, "
        f"after {x['curve'][-1][0]:,} steps {x['curve'][-1][1]:,.1f}"
        for x in of(lines, "golden SFT")
    ]
    h = of(lines, "sign ascent")[0]["h"]
    return document(
        "## Tier T: exact",
        f"{len(lines)} cells, {60 * minutes(lines):.1f} CPU-seconds. H is the expected number of steps, "
        "solved and not sampled; nothing here has an interval.",
        pass_marks(lines),
        "### H (what specs/E163 section 4 prints in brackets)",
        table(
            of(lines, "table"),
            ("(W, K, L)", size),
            ("uniform walker", lambda x: f"{x['base']:,.1f} ({spec(x)[0]})"),
            ("golden SFT", lambda x: f"{x['golden']:,.1f} ({spec(x)[1]})"),
            ("optimum", "best"),
            ("SFT / uniform", lambda x: x["golden"] / x["base"], ".3g"),
        ),
        "### Growth of golden-path SFT per diamond",
        table(
            of(lines, "growth"),
            ("L", "l"),
            ("H(5) / H(4)", lambda x: x["ratios"][0], ".4f"),
            ("H(11) / H(10)", lambda x: x["ratios"][-1], ".4f"),
            ("(L + 1)^2 / L", lambda x: (x["l"] + 1) ** 2 / x["l"], ".4f"),
        ),
        "### H along golden-path SFT (gradient descent, rate 1)",
        bullets(dips),
        "### Half-trained policies",
        _partial(lines),
        "### Sign gradient ascent at (15, 15, 5), rate .01",
        markdown(
            "step | H | specs/E163",
            [[i, f"{h[str(i)]:,.2f}", f"{p:,}"] for i, p in zip(WATCHED, PRINTED_ASCENT, strict=True)],
        ),
    )


def figure(lines: Lines) -> object:
    """Left: H against K for the three policies at L = 5. Right: H along sign ascent and along golden-path SFT."""
    import numpy as np

    from papers.E163_backtrack.chain import Graph, expected_steps, golden

    fig, (left, right) = canvas((9, 3.2), 1, 2)
    sizes = range(1, 16)
    graphs = [Graph(15, k, 5) for k in sizes]
    uniform = [expected_steps(g, g.policy()) for g in graphs]
    left.plot(sizes, [expected_steps(g, golden(g)) for g in graphs], color="#D55E00", label="golden-path SFT")
    left.plot(sizes, uniform, color="#000000", linestyle="--", label="uniform walker")
    left.plot(sizes, [g.best for g in graphs], color="#0072B2", linestyle=":", label="optimum")
    left.set(yscale="log", xlabel="diamonds K (W = 15, L = 5)", ylabel="expected steps")
    ascent, sft = (np.array(of(lines, kind)[-1]["curve"]) for kind in ("sign ascent", "golden SFT"))
    right.plot(ascent[:, 0], ascent[:, 1], color="#0072B2", label="sign ascent, (15, 15, 5)")
    right.plot(sft[:, 0], sft[:, 1], color="#D55E00", label="golden-path SFT, (5, 5, 3)")
    right.set(yscale="log", xlabel="step", xlim=(0, 1200))
    finish(left, right)
    return fig
