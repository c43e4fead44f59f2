"""Stops of `clew tour` on a repository: where a bug is, whether to verify what an agent changed, a faster kernel."""

from __future__ import annotations

import json
import shlex

from clew.cli.touring.journey import Found, Stop, Walk, figure, report
from clew.core.registry import make_ref
from clew.methods.compare.design import rate


def bug(walk: Walk) -> Found:
    """Ask of eight bug reports on a small shop where the bug is; the place of each is known."""
    walk.unpack("shop", "reports.jsonl")
    walk.shell(f"git init -q {walk.path('shop')}")
    known = [json.loads(line) for line in (walk.folder / "reports.jsonl").read_text().splitlines()]
    right = 0
    for number, bug in enumerate(known):
        file = walk.folder / "reports" / f"{number}.txt"
        file.parent.mkdir(exist_ok=True)
        file.write_text(bug["report"])
        found = walk.type(
            f"diagnose report {walk.path('shop')} --report {shlex.quote(str(file))} --store {walk.path('store.db')}"
        )
        right += found["findings"][0]["location"]["file"] == bug["file"]
    files = len([path for path in (walk.folder / "shop").glob("*.py") if not path.name.startswith("test")])
    return Found(
        figure=rate("reports whose first finding names the right file", right, len(known)),
        control=figure("the same by lot", 1 / files, 1 / files, 1 / files, len(known), f"one of {files} files"),
        unit="%",
        means="A coding agent that is told where to look begins at the bug; nothing of the repository was run.",
        place="runs?q=world%3Ddiagnosis",
    )


def gate(walk: Walk) -> Found:
    """Let `coder` mend the bug in a workspace, ship what passes, and ask the past which checks were needed."""
    walk.unpack("shop", "mender.py", "checks.json")
    folder = walk.path("shop")
    walk.shell(f"git init -q {folder}")
    made = {"folder": str(walk.folder / "shop"), "verify": "python3 test_shop.py", "shelf": str(walk.folder / "files")}
    ref = make_ref("workspace", made, {})
    place = shlex.quote(ref) if set(ref) & set('"$`\\') else f'"{ref}"'
    who = f"--model {walk.path('mender.py')}:Mender --n {walk.few(16, 6)} --name mend"
    mended = walk.type(f"run coder --world {place} --task 'mend how prices are rounded' {who}")
    checks = "--critic 'python3 -m py_compile {file}' --oracle 'python3 test_shop.py'"
    walk.rows(f"gate --run 'name=mend/*' --repo {folder} {checks}", codes=(0, 1))
    past = walk.type(f"gate --from {walk.path('checks.json')} --oracle suite")["held_out"]
    saved, lost = past["saved"], past["lost"]
    low, high = saved["interval"]
    of = {"estimate": saved["share"], "low": low, "high": high, "n": saved["n"]}
    design = (
        f"rule chosen on one half of {saved['n']} changes, judged on the other; {lost['share']:.0%} of the good lost"
    )
    return Found(
        figure=report(of, f"runs of the whole suite saved: {past['rule']}", design),
        control=report(mended["success"], "changes of the coder that pass the suite"),
        unit="%",
        means="The rule says when the expensive check is worth its time; the coder's files come back at every step.",
        place="runs?q=name%3Dmend%2F*",
    )


def kernel(walk: Walk) -> Found:
    """Let diagnosis rules guide a search for a faster build of softmax."""
    tuned = walk.type(f"kernels tune softmax --budget {walk.few(8, 3)}")
    estimate, low, high = tuned["final"]["over_plain"]
    usual, usual_low, usual_high = tuned["final"]["over_compiler"]
    n = len(tuned["tries"])
    return Found(
        figure=figure("speed of the best build of softmax, by that of the plain one", estimate, low, high, n, "tries"),
        control=figure("the same by that of the compiler's own best flags", usual, usual_low, usual_high, n, "tries"),
        means="Each try is built, checked against the plain build, timed in turn with it, and diagnosed.",
        place=f"run/{tuned['run']}",
    )


STOPS = (
    Stop(
        name="bug",
        does=(
            "Words, names and stack traces of a report are matched with the code, and each place gets a "
            "confidence from past fixes."
        ),
        paper="E169",
        arxiv="2606.24820",
        method="Where a bug is",
        walk=bug,
        asks="Where should the coding agent look?",
        needs=("git",),
    ),
    Stop(
        name="gate",
        does=(
            "What cheap checks said of past changes gives the rule that leaves out the expensive one most often "
            "without losing good changes."
        ),
        paper="E170",
        arxiv="2606.24453",
        method="Verify or ship",
        walk=gate,
        asks="Is the expensive check worth it for this change?",
        needs=("git", "bwrap"),
    ),
    Stop(
        name="kernel",
        does="Fifteen rules read a build's instructions and counters, and advise which build to try next.",
        paper="E177",
        arxiv="2606.26453",
        method="Diagnose before you prescribe",
        walk=kernel,
        asks="Why is this kernel slow?",
        needs=("cc",),
    ),
)
