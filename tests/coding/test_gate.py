"""The gate: rules that must be found and must not be, the lottery, contents, verdicts of others, bad critics."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys

import pytest

from clew.coding.repairs.mutants import mutants
from clew.core import registry
from clew.core.errors import AgentFailed, BadInput, WorldError
from clew.harness import Runner
from clew.methods.gate.candidates import Checks, CheckWorld, listed
from clew.methods.gate.gate_agent import AGENT, history
from clew.methods.gate.line_rules import (
    ENOUGH,
    LOSE,
    SHIP,
    STOP,
    VERIFY,
    Rule,
    Seen,
    belief,
    by_chance,
    choose,
    expected,
    held_out,
    judge,
    once,
    since_surprise,
)
from clew.methods.gate.past_verdicts import read
from clew.methods.gate.said import verdict
from clew.store import open_store

# ---- rules -----------------------------------------------------------------------------------------------------------


def world(rng, blind=False):
    """A candidate: ``half`` is a part of the oracle, ``last`` another, ``coin`` knows nothing."""
    good = rng.random() < 0.4
    half, last = (good or rng.random() < share for share in (0.2, 0.5))
    said = {"half": half, "last": last, "coin": rng.random() < 0.9}
    return (rng.random() < 0.4 if blind else good), said


def seen(n, seed=0, blind=False):
    rng = random.Random(seed)
    return [Seen(str(i), said, good) for i, (good, said) in ((i, world(rng, blind)) for i in range(n))]


def test_the_best_rule_is_found_and_its_saving_is_what_it_saves():
    rows = seen(400)
    best = choose(rows, ["coin", "last", "half"]).best
    assert set(best.rule.checks) == {"half", "last"}
    truth = 1 - (0.4 + 0.6 * 0.2 * 0.5)
    low, high = best.saved.interval
    assert low < truth < high
    assert best.lost.part == 0
    fresh = judge(seen(2000, seed=1), best.rule)
    assert fresh.saved.value == pytest.approx(best.saved.value, abs=0.06)
    assert held_out(rows, ["coin", "last", "half"]).saved.value == pytest.approx(truth, abs=0.08)


def test_where_critics_know_nothing_no_rule_leaves_the_oracle_out():
    for seed in range(20):
        for n in (30, 100, 300):
            assert choose(seen(n, seed, blind=True), ["half", "last", "coin"]).best.rule == Rule()


def test_nothing_is_left_out_before_enough_is_known_and_every_critic_is_run():
    rows = seen(200)
    for n in range(0, 200, 5):
        choice = choose(rows[:n], ["half", "last", "coin"])
        goods = sum(row.good for row in rows[:n])
        if choice.best.rule.checks:
            assert expected(0, goods, 1) <= LOSE
        few = min(goods, n - goods) < ENOUGH
        assert choice.explore or not few


def test_the_expected_loss_is_that_of_the_prior_it_names():
    """The formula against the sum over a grid of rates: half of all critics never fail a good candidate."""
    grid = [(i + 0.5) / 20_000 for i in range(20_000)]
    for g, checks in ((0, 1), (8, 1), (20, 2), (100, 1)):
        s = 0.5**checks
        weights = [(1 - rate) ** g / len(grid) * (1 - s) for rate in grid]
        exact = sum(w * rate for w, rate in zip(weights, grid, strict=True)) / (s + sum(weights))
        assert expected(0, g, checks) == pytest.approx(exact, rel=1e-3)
    assert expected(1, 18, 1) == pytest.approx(0.1)


def test_chance_of_a_table_is_fishers():
    from scipy.stats import fisher_exact

    for hits, n, others, m in ((5, 9, 0, 8), (1, 12, 0, 8), (3, 7, 4, 9), (0, 5, 0, 5)):
        table = [[hits, n - hits], [others, m - others]]
        assert by_chance(hits, n, others, m) == pytest.approx(fisher_exact(table, alternative="greater")[1])


def test_one_content_counts_once_and_a_flip_says_nothing():
    rows = [Seen("a", {"x": True, "y": False}, None), Seen("a", {"x": False}, True), Seen("b", {"x": True}, False)]
    first, second = once(rows * 5)
    assert (first.content, first.good, dict(first.verdicts)) == ("a", True, {"y": False})
    assert second.verdicts == {"x": True}
    many = [Seen("same", {"half": False}, False) for _ in range(100)] + seen(4)
    assert choose(many, ["half"]).best.rule == Rule()


def test_a_good_one_that_the_lottery_finds_ends_the_trust():
    rows = seen(300)
    assert choose(rows, ["half"]).best.rule == Rule(("half",))
    found = Seen("found", {"half": False}, True, ("half",), 50.0, 0.02)
    later = [*rows, found]
    assert since_surprise(later) == [found]
    assert choose(later, ["half"]).best.rule == Rule()
    broken = found._replace(good=False)
    assert choose([*rows, broken], ["half"]).best.rule == Rule(("half",))


def test_what_a_rule_did_not_run_does_not_speak_for_others():
    alone = Seen("a", {"half": True}, True, ("half",))
    beside = alone._replace(verdicts={"half": True, "last": False}, also=("last",))
    assert Rule(("half",)).knows(alone)
    assert not Rule(("half", "last")).knows(alone)
    assert Rule(("last", "half")).knows(beside)
    assert not Rule(("last",)).knows(beside)


def test_actions_of_a_rule_and_of_one_that_ships():
    rule, ships = Rule(("a", "b")), Rule(("a",), True)
    assert [rule.action(v) for v in ({"a": True, "b": True}, {"a": False}, {"a": True})] == [VERIFY, STOP, VERIFY]
    assert [ships.action(v) for v in ({"a": True}, {"a": False}, {})] == [SHIP, VERIFY, VERIFY]
    rows = [Seen(str(i), {"a": i % 2 == 0}, i % 2 == 0) for i in range(200)]
    assert choose(rows, ["a"], wrong=0.02).best.rule in (ships, Rule(("a",)))
    assert judge(rows, ships, wrong=0.02).usable
    assert not judge(rows, ships, wrong=0.0).usable
    assert str(ships) == "ship unverified if a passes, else verify"


def test_seconds_count_where_they_are_asked_for():
    rows, dear = seen(300), {"half": 3.0, "verify": 1.0}
    assert choose(rows, ["half"], seconds=dear, by="seconds").best.rule == Rule()
    assert choose(rows, ["half"], seconds=dear).best.spares < 0
    assert choose(rows, ["half"], seconds={"half": 0.1, "verify": 1.0}, by="seconds").best.rule == Rule(("half",))


def test_belief_is_bayes_rule():
    rows = [Seen(str(i), {"a": i % 10 < 9}, i < 50) for i in range(100)]
    rows = [row._replace(verdicts={"a": row.good or int(row.content) % 2 == 0}) for row in rows]
    assert belief(rows, {"a": True}) == pytest.approx((51 / 52) / (51 / 52 + 26 / 52))
    assert belief(rows, {"a": False}) == pytest.approx((1 / 52) / (1 / 52 + 26 / 52))
    assert belief([], {}) == 0.5


def test_the_simulated_gate_and_the_recorded_one_do_the_same():
    """E170's stream decides as the agent does, candidate for candidate: the agent runs with what the store has seen."""
    from papers.E170_gate.tier_stream import gated

    class Told:
        ref = "checks(told)"
        tools = ()
        restores = "none"

        def __init__(self, candidates):
            self.candidates = candidates

        def open(self, task):
            return Candidate(*self.candidates[int(task.id)], task.id)

        async def judge(self, task, run, world):
            return {}

    class Candidate:
        tools = ()
        restores = "none"
        state_key = b""

        def __init__(self, good, said, name):
            self.said, self.name = {"verify": good, **{f"critic {n}": z for n, z in said.items()}}, name

        def observe(self):
            from clew.core.values import Observation

            return Observation(self.name)

        async def step(self, action):
            from clew.core.values import Observation

            found = {"passed": self.said[str(action)], "why": "", "seconds": 0.1, "content": self.name}
            return Observation(json.dumps(found))

        def close(self):
            self.said = {}

    from clew.core.values import Task

    rng = random.Random(5)
    candidates = [world(rng) for _ in range(70)]
    store, names, verified = open_store(":memory:"), ["half", "last", "coin"], []
    for i in range(len(candidates)):
        choice = choose(history(store, "here", "o").rows, names)
        config = {
            "rule": list(choice.best.rule.checks), "critics": names, "oracle": "o", "explore": choice.explore,
            "probe": choice.probe, "cell": "here",
        }  # fmt: skip
        runner = Runner(AGENT, Told(candidates), None, store, config, concurrency=1)
        run = next(iter(runner.collect([Task(str(i), "check")], n=1, seed=i).runs))
        verified.append((any(c.kind == "act" and c.action == "verify" for c in run.calls), str(choice.best.rule)))

    class Recorded:
        """The lottery's numbers, as they were drawn."""

        draws = iter([float(c.text) for name in reversed(store.find("world=checks")) for c in store.calls(name)
                      if c.kind == "draw"])  # fmt: skip

        def random(self):
            return next(self.draws)

    assert gated(candidates, Recorded()) == verified
    assert not all(ran for ran, _ in verified)


# ---- verdicts that there are already ---------------------------------------------------------------------------------


def junit(cases):
    rows = [f'<testcase classname="{c}" name="t" time="{s}">{inner}</testcase>' for c, s, inner in cases]
    return f"<testsuites><testsuite name='pytest'>{''.join(rows)}</testsuite></testsuites>"


def test_junit_files_become_candidates(tmp_path):
    for i in range(60):
        broken = i % 2 == 1
        folder = tmp_path / f"run{i}"
        folder.mkdir()
        fails = "<failure message='no'/>" if broken else ""
        text = junit([("tests.fast", 0.5, fails), ("tests.slow", 9.0, ""), ("tests.off", 0, "<skipped/>")])
        (folder / "junit.xml").write_text(text)
    rows, seconds = read(tmp_path)
    assert (len(rows), sum(row.good for row in rows)) == (60, 30)
    assert set(rows[0].verdicts) == {"tests.fast", "tests.slow"}
    assert seconds == pytest.approx({"tests.fast": 0.5, "tests.slow": 9.0, "tests.off": 0.0, "verify": 9.5})
    best = choose(rows, ["tests.fast", "tests.slow"], seconds=seconds, by="seconds").best
    assert best.rule == Rule(("tests.fast",))
    assert best.spares == pytest.approx(0.5 * 9.5 - 0.5)


def test_a_failure_in_one_of_several_junit_files_of_a_candidate_is_not_overwritten(tmp_path):
    for i in range(2):
        (tmp_path / f"run{i}").mkdir()
        for version, inner in (("py310", "<failure message='no'/>" * i), ("py311", "")):
            (tmp_path / f"run{i}" / f"{version}.xml").write_text(junit([("tests.fast", 0.5, inner)]))
    rows, seconds = read(tmp_path)
    assert [(row.verdicts, row.good) for row in rows] == [({"tests.fast": True}, True), ({"tests.fast": False}, False)]
    assert seconds["tests.fast"] == 1.0


def test_the_last_attempt_counts_in_whichever_file_of_an_export_it_stands(tmp_path):
    for page, hour, ended in (("page1", "02", "success"), ("page2", "01", "failure")):
        check = {"head_sha": "c", "name": "lint", "conclusion": ended, "started_at": f"2026-01-01T{hour}:00:00Z"}
        (tmp_path / f"{page}.json").write_text(json.dumps({"check_runs": [check]}))
    assert read(tmp_path)[0][0].verdicts == {"lint": True}


@pytest.mark.parametrize("form", ["check_runs", "list", "lines"])
def test_github_checks_become_candidates_and_the_last_attempt_counts(tmp_path, form):
    checks = []
    for i in range(40):
        for name, ended in (
            ("lint", "failure" if i % 4 == 3 else "success"),
            ("e2e", "success" if i % 2 == 0 else "failure"),
        ):
            times = {"started_at": "2026-01-01T00:00:00Z", "completed_at": "2026-01-01T00:02:00Z"}
            checks.append({"name": name, "head_sha": f"{i:040x}", "conclusion": ended, **times})
    if form == "list":  # as `gh` exports them where nobody asked for times: the newest first
        checks = [{"headSha": c["head_sha"], "name": c["name"], "conclusion": c["conclusion"]} for c in checks]
    again = {**checks[1], "conclusion": "failure", **({"started_at": "2025-12-31"} if form != "list" else {})}
    checks += [again, {**checks[2], "name": "deploy", "conclusion": "cancelled"}]
    text = {"check_runs": json.dumps({"check_runs": checks}), "list": json.dumps(checks)}.get(
        form, "\n".join(map(json.dumps, checks))
    )
    path = tmp_path / ("x.jsonl" if form == "lines" else "x.json")
    path.write_text(text)
    rows, seconds = read(path, "e2e")
    assert (len(rows), sum(bool(row.good) for row in rows)) == (40, 20)
    assert {name for row in rows for name in row.verdicts} == {"lint"}
    assert seconds.get("verify", 120) == 120
    with pytest.raises(BadInput, match="no check called 'no'"):
        read(path, "no")


def test_hostile_verdict_files_are_refused(tmp_path):
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;">]><testsuite>&b;</testsuite>'
    for name, text, why in (
        ("a.xml", bomb, "document type"),
        ("b.xml", "<testsuite>", "no XML"),
        ("c.json", "[" * 100_000, "no JSON"),
        ("d.json", "[1, 2]", "no verdict"),
        ("e.jsonl", "{", "no JSON"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(BadInput, match=why):
            read(tmp_path / name)
    with pytest.raises(BadInput, match="no verdicts files"):
        read(tmp_path / "nothing")


# ---- the world of commands -------------------------------------------------------------------------------------------

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")
ORACLE = f"{sys.executable} -c 'import m; assert m.double(3) == 6'"
CRITIC = "grep -q return {file}"


@pytest.fixture
def repo(tmp_path):
    (tmp_path / "m.py").write_text("def double(x):\n    return x * 2\n")
    (tmp_path / "__pycache__").mkdir()
    registry.register("tasksets", "checks", Checks)
    return tmp_path


def gated(checks, store, task, learn=False, seed=0, **more):
    config = {
        "critics": list(checks.critics),
        "oracle": checks.oracle,
        "cell": "here",
        "explore": learn,
        "twice": learn,
    }
    runner = Runner(AGENT, checks, None, store, config | more, concurrency=1)
    return runner, next(iter(runner.collect([task], n=1, seed=seed).runs))


def notes(run, name):
    return [json.loads(c.text) for c in run.calls if c.kind == "note" and c.action == f"gate {name}"]


@needs_bubblewrap
def test_a_run_of_the_gate_is_recorded_replays_forks_and_teaches(repo):
    checks = Checks(ORACLE, [CRITIC], folder=str(repo))
    store = open_store(":memory:")
    runner, run = gated(checks, store, checks.find("m.py"), learn=True)
    (end,) = notes(run, "end")
    assert end == {"verdict": "ship", "good": True, "reward": 1.0}
    assert runner.replay(run).calls == len(run.calls)
    assert run.reward == 1.0
    broken = checks.variant("m.py", "def double(x):\n    return x + 2\n")
    _, second = gated(checks, store, broken, learn=True)
    assert notes(second, "end")[0]["verdict"] == "stop"
    assert (repo / "m.py").read_text().endswith("x * 2\n")
    rows, seconds, known = history(store, "here", ORACLE)
    assert [row.good for row in rows] == [True, False]
    assert len({row.content for row in rows}) == 2
    assert set(seconds) == {CRITIC, "verify"}
    assert known[checks.open(checks.find("m.py")).state_key] == run.id
    assert history(store, "there", ORACLE).rows == history(store, "here", "another oracle").rows == []
    gated(checks, store, checks.find("m.py"), learn=True)
    assert len(once(history(store, "here", ORACLE).rows)) == 2
    verified = next(c for c in second.calls if c.kind == "act" and c.action == "verify")
    passed = json.dumps({"passed": True, "why": "", "seconds": 0.1, "tail": ""})
    (fork,) = runner.fork(second, at=second.at(verified.seq), result=passed)
    assert notes(fork, "end")[0]["verdict"] == "ship"


@needs_bubblewrap
def test_hanging_flipping_and_crashing_checks_decide_nothing(repo):
    (repo / "flip.sh").write_text("test $(date +%N | cut -c 7) -lt 0$RANDOM && exit 0; exit 1\n")
    hang, flips = (
        "sleep 60",
        "test -e /proc/self && test $(($(cat /proc/uptime | tr -d . | cut -d ' ' -f 1) / 20 % 2)) = 0",
    )
    checks = Checks("exit 3", [hang, flips, "no-such-tool"], folder=str(repo), wall=1.0)
    world = checks.open(checks.find("m.py"))

    async def said(action):
        return json.loads((await world.step(action)).text)

    assert asyncio.run(said(f"critic {hang}"))["why"] == "ended for its limit: wall"
    assert asyncio.run(said("critic no-such-tool"))["passed"] is None
    assert asyncio.run(said("verify"))["passed"] is None
    with pytest.raises(WorldError, match="is no check"):
        asyncio.run(said("critic rm"))
    _, run = gated(
        Checks("exit 3", [CRITIC], folder=str(repo)), open_store(":memory:"), checks.find("m.py"), learn=True
    )
    assert notes(run, "end")[0]["verdict"] == "undecided"
    assert notes(run, "candidate")[0]["good"] is None


@needs_bubblewrap
def test_a_critic_that_flips_is_not_counted(repo, monkeypatch):
    checks, told, whole = Checks(ORACLE, [CRITIC], folder=str(repo)), [0], CheckWorld.step

    async def step(self, action):
        observation = await whole(self, action)
        told[0] += action.startswith("critic")
        if told[0] == 2 and action.startswith("critic"):
            return observation._replace(text=observation.text.replace('"passed": true', '"passed": false'))
        return observation

    monkeypatch.setattr("clew.methods.gate.candidates.CheckWorld.step", step)
    _, run = gated(checks, open_store(":memory:"), checks.find("m.py"), learn=True)
    assert notes(run, "flip")[0]["critic"] == CRITIC
    assert notes(run, "candidate")[0]["verdicts"] == {}


@needs_bubblewrap
def test_refining_changes_the_copy_and_goes_on(repo):
    (repo / "m.py").write_text("def double(x):\n    return x + 2\n")
    checks = Checks(ORACLE, [], "sed -i 's/x + 2/x * 2/' {file}", folder=str(repo))
    _, run = gated(checks, open_store(":memory:"), checks.find("m.py"), horizon=2)
    assert [c.action for c in run.calls if c.kind == "act"] == ["verify", "refine", "verify"]
    assert notes(run, "end")[0] == {"verdict": "ship", "good": True, "reward": 1.0}
    assert len({found["content"] for found in notes(run, "candidate")}) == 2
    assert "x + 2" in (repo / "m.py").read_text()


def test_outside_has_to_be_asked_for_and_restores_nothing(repo):
    checks = Checks(ORACLE, [CRITIC], folder=str(repo), outside=True)
    _, run = gated(checks, open_store(":memory:"), checks.find("m.py"), learn=True)
    assert notes(run, "end")[0]["verdict"] == "ship"
    assert checks.open(checks.find("m.py")).restores == "none"
    with pytest.raises(BadInput, match="overwrite"):
        checks.open(checks.variant("m.py", "x"))


def test_bad_candidates_and_commands_are_named(repo):
    (repo / "b.bin").write_bytes(b"\x00\xff")
    (repo / "big.py").write_text("#" * (5 << 20) + "#")
    checks = Checks(ORACLE, folder=str(repo), outside=True)
    for name, why in (("b.bin", "no text"), ("big.py", "5 MB"), ("no.py", "no file"), ("../x", "no file")):
        with pytest.raises(BadInput, match=why):
            checks.find(name)
    with pytest.raises(BadInput, match="no command"):
        Checks("pytest 'x", folder=str(repo))
    with pytest.raises(BadInput, match="twice"):
        Checks(ORACLE, ["a", "a"], folder=str(repo), outside=True)
    assert verdict("pytest", 2, "") == (False, "exit 2")
    assert verdict("mypy", 2, "")[0] is None


def test_mutants_differ_parse_and_stay_within():
    source = "def f(x):\n    return x + 1 if x < 3 else 0\n\ndef g(x):\n    return x - 1\n"
    found = mutants(source, 50, within=["f"])
    assert len(found) == len(set(found)) >= 5
    assert all(text.endswith("return x - 1\n") for text in found)
    for text in found:
        compile(text, "m", "exec")
    assert mutants(source, 3, seed=1) == mutants(source, 3, seed=1)
    with pytest.raises(BadInput, match="parse"):
        mutants("def", 1)


def test_a_folder_that_the_repository_around_it_ignores_is_listed_whole(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("brought/\n")
    (tmp_path / "brought" / "sub").mkdir(parents=True)
    for name in ("a.py", "sub/b.py", ".hidden"):
        (tmp_path / "brought" / name).write_text("x = 1\n")
    assert listed(tmp_path / "brought") == ["a.py", "sub/b.py"]
    assert listed(tmp_path) == [".gitignore"]


@needs_bubblewrap
def test_the_lottery_verifies_some_of_what_the_rule_stops_by_the_runs_seed(repo):
    checks, store = Checks(ORACLE, ["false"], folder=str(repo)), open_store(":memory:")
    verified = []
    for seed in range(12):
        _, run = gated(checks, store, checks.find("m.py"), rule=["false"], audit=0.5, seed=seed)
        (found,) = notes(run, "candidate")
        verified.append(found["good"])
        assert (found["weight"], found["chance"]) == ((2.0, 0.5) if found["good"] else (1.0, 0.5))
        assert notes(run, "end")[0]["verdict"] == ("ship" if found["good"] else "stop")
    assert set(verified) == {True, None}  # one seed in two: all alike once in 2,048 times, and these seeds are fixed
    assert choose(history(store, "here", ORACLE).rows, ["false"]).best.rule == Rule()


def commit(folder, *words):
    names = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "-C", folder, *names, *words], check=True, capture_output=True)


@needs_bubblewrap
def test_diffs_commits_and_working_trees_are_candidates(repo):
    (repo / "other.py").write_text("y = 1\n")
    commit(repo, "init", "-q")
    commit(repo, "add", ".")
    commit(repo, "commit", "-qm", "one")
    (repo / "m.py").write_text("def double(x):\n    return x + x\n")
    (repo / "new file.py").write_text("z = 1\n")
    (repo / "other.py").unlink()
    commit(repo, "add", "-A")
    patch = subprocess.run(["git", "-C", repo, "diff", "--cached"], capture_output=True, check=True).stdout
    checks = Checks(ORACLE, ["grep -c '' {file}", "test ! -e other.py"], folder=str(repo))
    tasks = [checks.working()]
    commit(repo, "commit", "-qm", "two")
    tasks += [checks.revision("HEAD"), checks.revision("HEAD~1..HEAD")]
    commit(repo, "checkout", "-q", "HEAD~1")
    tasks.append(checks.diff(patch))
    commit(repo, "checkout", "-q", "-")
    contents = set()
    for task in (tasks[1], tasks[2]):
        world = checks.open(task)
        for action in ("verify", *(f"critic {c}" for c in checks.critics)):
            said = json.loads(asyncio.run(world.step(action)).text)
            assert said["passed"], said
        contents.add(world.content)
        assert "m.py:2" in json.loads(asyncio.run(world.step(f"critic {checks.critics[0]}")).text)["tail"]
        assert "./new file.py" not in world._names
    commit(repo, "checkout", "-q", "HEAD~1")
    world = checks.open(tasks[3])
    assert json.loads(asyncio.run(world.step("critic test ! -e other.py")).text)["passed"]
    assert json.loads(asyncio.run(world.step("verify")).text)["passed"]
    assert {*contents, world.content} == {world.content}
    assert tasks[0].data["names"] == tasks[1].data["names"] == ["m.py", "new file.py"]
    assert checks.revision("HEAD").data["names"] == ["m.py", "other.py"]  # the first commit
    with pytest.raises(BadInput, match="does not apply"):
        checks.diff(patch.replace(b"x * 2", b"x * 9"))
    with pytest.raises(BadInput, match="changes nothing"):
        checks.working()
    with pytest.raises(BadInput, match="no commit"):
        checks.revision("--output=x")


def test_runs_of_the_earlier_gate_are_read_and_not_continued():
    """A record of the earlier gate that was broken off says so."""
    from clew.methods.gate.gate_agent import BEFORE
    from clew.worlds.toys import Counter

    store = open_store(":memory:")
    runner = Runner(BEFORE, Counter(), None, store, {"stakes": {}, "cell": "here"}, concurrency=1)
    with pytest.raises(AgentFailed, match="an earlier gate, which can be read but not continued"):
        runner.collect([Counter().sample(1)[0]], n=1)
