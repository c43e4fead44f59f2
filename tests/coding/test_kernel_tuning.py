"""Tuning: the correctness wall against cheats, timing, searches over planted tables, and tuning as recorded runs."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import random
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from clew.core.errors import BadInput, UnknownName
from clew.harness import Runner
from clew.methods.kernels import counts, disassembly, wall
from clew.methods.kernels.catalogue import CATALOGUE, DOT, STENCIL, load
from clew.methods.kernels.cpu import Cpu, Speed, measure_ceilings, miss_rate, speed
from clew.methods.kernels.kernel import FLAGS, STRONG, Candidate, Kernel, Option, Space, targets
from clew.methods.kernels.runs import Boxed, Direct
from clew.methods.kernels.search import SEARCHES, Catalogue, Outcome, Tries, mcts, reward
from clew.methods.kernels.world import Kernels, tries_of

needs_gcc = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("objdump")), reason="did not run: no gcc and objdump"
)


@pytest.fixture(scope="module")
def stencil(tmp_path_factory):
    return Cpu(STENCIL, Direct(tmp_path_factory.mktemp("stencil")))


@pytest.fixture(scope="module")
def dot(tmp_path_factory):
    return Cpu(DOT, Direct(tmp_path_factory.mktemp("dot")))


try:
    CPU_FLAGS = Path("/proc/cpuinfo").read_text()
except OSError:
    CPU_FLAGS = ""
HEAD = "void stencil(const float *x, float *out, long n) {"
HONEST = "for (long i = 1; i < n - 1; i++) out[i] = .25f * x[i-1] + .5f * x[i] + .25f * x[i+1];"
ENDS = "out[0] = x[0]; out[n-1] = x[n-1];"
CHEATS = {
    "all zeros": f"{HEAD} for (long i = 0; i < n; i++) out[i] = 0; }}",
    "nothing at all": f"{HEAD} (void)x; (void)out; (void)n; }}",
    "next to nothing": f"{HEAD} {ENDS} {HONEST} for (long i = 0; i < n; i++) out[i] *= 1e-3f; }}",
    "changes its input": f"{HEAD} {ENDS} {HONEST} ((float *)x)[n / 2] += 1; }}",
    "leaves the tail": f"{HEAD} {ENDS} {HONEST.replace('n - 1; i++', '(n - 1) / 8 * 8; i++')} }}",
    "half precision": f"{HEAD} {ENDS} {HONEST}"
    " for (long i = 0; i < n; i++) { union { float f; unsigned u; } v = {out[i]}; v.u &= 0xffff0000; out[i] = v.f; } }",
    "crashes": f"{HEAD} *(volatile int *)0 = 1; {ENDS} {HONEST} }}",
}
KEEPS = f"""
#include <string.h>
#include <stdlib.h>
static const void *seen[64]; static float *kept[64]; static int count;
{HEAD}
    for (int k = 0; k < count; k++) if (seen[k] == x) {{ memcpy(out, kept[k], 4 * n); return; }}
    {ENDS} {HONEST}
    if (count < 64) {{ seen[count] = x; kept[count] = malloc(4 * n); memcpy(kept[count++], out, 4 * n); }}
}}
"""


@needs_gcc
@pytest.mark.skipif(platform.machine() != "x86_64", reason="did not run: not an x86-64 machine")
@pytest.mark.parametrize("cpu", ["x86-64", "haswell", "znver3", "skylake-avx512"])
def test_the_yardsticks_build_for_cpus_with_and_without_avx512(cpu, tmp_path):
    source = files("clew.methods.kernels") / "yardsticks.c"
    flags = ["-O3", f"-march={cpu}", "-ffast-math", "-S", "-o", tmp_path / "out.s"]
    subprocess.run(["gcc", *flags, str(source)], check=True, timeout=60)
    assert ("%zmm" in (tmp_path / "out.s").read_text()) is (cpu == "skylake-avx512")


class Limited(Direct):
    """As on a machine of less: every build gets flags that take instructions away; programs run under ``prefix``."""

    def __init__(self, folder, flags, compiler="", prefix=()):
        super().__init__(folder)
        self.flags, self.compiler, self.prefix = flags, compiler, prefix

    def __call__(self, command, inputs, outputs, seconds):
        if not command[0].startswith("./"):
            return super().__call__([self.compiler or command[0], *command[1:], *self.flags], inputs, outputs, seconds)
        return super().__call__([*self.prefix, *command], inputs, outputs, seconds)


def all_bundled(run_of, folder, candidates):
    """Builds and checks bundled kernels, and runs the yardsticks; gives the ceilings."""
    for kernel in CATALOGUE.values():
        (folder / kernel.name).mkdir()
        cpu = Cpu(kernel, run_of(folder / kernel.name))  # builds and checks the plain one
        for candidate in candidates(cpu.space):
            built = cpu.build(candidate)
            assert built.path is not None, built.why
            assert cpu.check(built) is None
    return measure_ceilings(f"gcc {folder}", run_of(folder), 4096), cpu


@pytest.mark.whole
@needs_gcc
@pytest.mark.skipif("avx2" not in CPU_FLAGS, reason="did not run: not a processor with AVX2")
@pytest.mark.parametrize("flags", ["-march=x86-64-v3", "-mno-avx512f -mno-avx"])
def test_kernels_and_yardsticks_build_and_run_without_avx512(flags, tmp_path):
    strongest = lambda space: [Candidate(tuple((o, len(v) - 1) for o, v in space.values.items()))]  # noqa: E731
    found, cpu = all_bundled(lambda folder: Limited(folder, flags.split(), "gcc"), tmp_path, strongest)
    assert min(found) > 0
    code = disassembly.disassemble(cpu.build(strongest(cpu.space)[0]).path, cpu.kernel.symbol)
    assert counts.width(code) <= 32


@needs_gcc
@pytest.mark.skipif(
    not (shutil.which("aarch64-linux-gnu-gcc") and shutil.which("qemu-aarch64-static")),
    reason="did not run: no compiler for Arm and qemu",
)
def test_kernels_and_yardsticks_build_and_run_on_arm(tmp_path, monkeypatch):
    monkeypatch.setitem(
        FLAGS, "isa", ("-march=armv8-a", "-march=armv8.2-a+dotprod")
    )  # native: not for a cross compiler
    monkeypatch.setitem(STRONG, "isa", "-march=armv8.2-a")
    strongest = lambda space: [Candidate(tuple((o, len(v) - 1) for o, v in space.values.items()))]  # noqa: E731
    root = os.environ.get("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu")
    arm = lambda folder: Limited(folder, [], "aarch64-linux-gnu-gcc", ["qemu-aarch64-static", "-L", root])  # noqa: E731
    found, cpu = all_bundled(arm, tmp_path, strongest)
    assert min(found) > 0
    metrics = cpu.metrics(cpu.plain, 1e-3, profile=False)
    assert "fp_ops" not in metrics  # instructions of Arm are not counted, and what is not measured is left out
    assert cpu.bound(metrics)[0] in ("compute", "memory", "latency", "mixed")


def test_every_machine_has_flags_of_its_own():
    assert targets("x86_64")[-1] == "-march=native"
    assert not [flag for flag in targets("aarch64") if "sse" in flag or "avx" in flag]
    assert targets("aarch64")[-1] == targets("armv7l")[-1] == "-mcpu=native"
    assert targets("riscv64") == ("",)


@needs_gcc
@pytest.mark.parametrize("name", CHEATS)
def test_the_wall_refuses_cheats(stencil, name):
    built = stencil.build(stencil.space.start()._replace(source=CHEATS[name]))
    assert built.path is not None, built.why
    assert isinstance(stencil.check(built), wall.Wrong)


@needs_gcc
def test_a_result_kept_from_an_earlier_call_is_found_out_by_the_timing(stencil):
    built = stencil.build(stencil.space.start()._replace(source=KEEPS))
    assert stencil.check(built) is None  # on fresh cases it is right
    found = stencil.time(stencil.plain, built)
    assert isinstance(found, wall.Wrong)
    assert "timed" in found.case


@needs_gcc
def test_honest_builds_pass_with_reordered_sums(dot):
    for changes in ({"math": 1}, {"math": 1, "isa": 1, "opt": 1}, {"SUMS": 2}, {"simd": 1, "unroll": 1}):
        candidate = dot.space.start()
        for option, index in changes.items():
            candidate = candidate.changed(option, index)
        assert dot.check(dot.build(candidate)) is None, changes


@needs_gcc
def test_a_timing_counts_both_sides_and_judges_again(dot):
    found = dot.time(dot.plain, dot.build(dot.space.start().changed("SUMS", 1)), blocks=7)
    assert isinstance(found, Speed)
    assert found.blocks == 7
    assert found.low <= found.ratio <= found.high
    assert found.a > 0
    assert found.b > 0
    metrics = dot.metrics(dot.plain, found.a, profile=False)
    assert metrics["chains"] == 1
    assert 0 < metrics["flops_share"] < 1
    assert dot.bound(metrics)[0] in ("memory", "mixed")


@needs_gcc
def test_source_that_does_not_compile_says_where(stencil):
    built = stencil.build(stencil.space.start()._replace(source="void stencil(int x) { y }"))
    assert built.path is None
    assert "y" in built.why


@needs_gcc
def test_a_kernel_that_contradicts_its_reference_is_refused(tmp_path):
    import dataclasses

    wrong = dataclasses.replace(STENCIL, reference=lambda x, n: {"out": x + 1})
    with pytest.raises(BadInput, match="kernel stencil is wrong on 0-0"):
        Cpu(wrong, Direct(tmp_path))


def test_equal_builds_seldom_look_faster():
    rng = np.random.default_rng(0)
    pairs = [(rng.lognormal(0, 0.03, 9), rng.lognormal(0, 0.03, 9)) for _ in range(200)]
    assert sum(speed(a, b).gain for a, b in pairs) <= 4  # 2 %
    assert all(speed(a, b / 1.2).gain for a, b in pairs[:20])


def test_miss_rates_are_read_from_cachegrind():
    text = "events: Ir Dr D1mr Dw D1mw\nfn=other\n1 9 9 9 9 9\nfn=k\n1 50 10 4 10 1\n2 50 10 0 10 1\n"
    assert miss_rate(text, "k") == pytest.approx(6 / 40)
    assert miss_rate(text, "none") is None


# ---- searches over planted tables -----------------------------------------------------------------------------------


def table(options, speed_of, advice_of=lambda c: ()):
    """A space over macros alone, and an evaluation that reads what is planted."""
    import dataclasses

    kernel = dataclasses.replace(
        DOT, options=tuple(Option(n, tuple(range(k)), move) for n, (k, move) in options.items())
    )
    space = Space(kernel, flags=())

    async def evaluate(candidate):
        choice = dict(candidate.choice)
        return Outcome(speed_of(choice), tuple(advice_of(choice)))

    return space, evaluate


def search(name, space, evaluate, seed=0, budget=60, **how):
    async def go():
        tries = Tries(evaluate, budget)
        begin = await evaluate(space.start())
        await SEARCHES[name](tries, space, random.Random(seed), begin, **how)
        return tries

    return asyncio.run(go())


PLANTED = {"isa": (3, "isa"), "math": (2, "fast-math"), "tile": (6, "tile"), "order": (4, "interchange")}


def planted(choice):
    return 1.0 + 9.0 * (choice["order"] == 2) + 0.1 * choice["tile"]


def evaluations(tries, wanted):
    return next((i for i, (_, o) in enumerate(tries.done, 1) if o.speed >= wanted), 99)


def test_advice_leads_to_the_planted_gain_and_wrong_advice_leads_away():
    right = [
        table(PLANTED, planted, lambda c: ("interchange",)),
        table(PLANTED, planted, lambda c: ("isa", "tile", "fast-math")),
    ]
    took = [[evaluations(search("guided", *t, seed=s), 10.0) for s in range(30)] for t in right]
    blind = [evaluations(search("greedy", *right[0], seed=s), 10.0) for s in range(30)]
    assert np.median(took[0]) <= 3
    assert np.median(took[0]) < np.median(blind) < np.median(took[1])


def test_all_advice_is_followed_in_one_step_before_each_alone():
    """Three changes that only pay together are found at the first try where all three are advised."""
    moves = ("fast-math", "interchange", "isa")
    space, evaluate = table(
        PLANTED, lambda c: 5.0 if c["isa"] == 2 and c["math"] and c["order"] == 3 else 1.0, lambda c: moves
    )
    tries = search("guided", space, evaluate, budget=20)
    first = dict(tries.tried[0].choice)
    assert (first["isa"], first["math"], first["order"], first["tile"]) == (2, 1, 3, 0)
    assert tries.done[0][1].speed == 5.0
    told = asyncio.run(
        Catalogue(space, random.Random(0)).propose(space.start(), Outcome(1.0, ("isa",)), [space.start()])
    )
    assert [dict(c.choice)["isa"] for c in told[:2]] == [2, 1]
    alone = asyncio.run(Catalogue(space, random.Random(0), together=0).propose(space.start(), Outcome(1.0, moves), []))
    assert all(sum(i > 0 for _, i in c.choice) == 1 for c in alone)


def test_the_strongest_build_is_tried_first_and_changes_after_it():
    space, evaluate = table(PLANTED, lambda c: 1.0 + (c["order"] == 2) + (c["tile"] == 5), lambda c: ("isa",))
    tries = search("strong", space, evaluate, budget=20)
    assert dict(tries.tried[0].choice) == {"isa": 2, "math": 1, "tile": 5, "order": 3}
    assert tries.best[1].speed == 3.0
    changed = [sum(a != b for a, b in zip(c.choice, tries.tried[0].choice, strict=True)) for c in tries.tried[1:4]]
    assert changed == [1, 1, 1]


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_tries_each_candidate_once_within_its_budget(name):
    space, evaluate = table(PLANTED, planted)
    how = {"stale": None} if name == "mcts" else {}
    tries = search(name, space, evaluate, budget=200, **how)
    assert len(tries.done) == space.size - 1 or name == "mcts"
    assert len(set(tries.tried)) == len(tries.tried) <= 200
    assert space.start() not in tries.tried
    assert len(search(name, space, evaluate, budget=7, **how).done) == 7


def test_tree_search_returns_to_what_pays():
    """One change of ten makes everything below it three times as fast: most visits go there."""
    options = {f"x{i}": (2, "tile") for i in range(10)}
    space, evaluate = table(options, lambda c: (3.0 if c["x3"] else 1.0) * 1.1 ** sum(c[f"x{i}"] for i in (5, 6)))

    async def go(seed):
        return await mcts(Tries(evaluate, 80), space, random.Random(seed), Outcome(1.0), stale=None)

    for seed in range(5):
        root = asyncio.run(go(seed))
        most = max(root.children, key=lambda child: child.visits)
        assert dict(most.candidate.choice)["x3"] == 1
        assert sum(child.visits for child in root.children) == root.visits - 1


def test_one_lucky_time_does_not_hold_the_tree_with_log_rewards():
    """A branch that once looked thirty times as fast and is worth nothing, beside one that is worth three."""
    share = {linear: visits_on_the_outlier(linear) for linear in (False, True)}
    assert share[False] < share[True]


def visits_on_the_outlier(linear, seeds=20, budget=60):
    space, _ = table(
        {"lucky": (2, "tile"), "steady": (2, "isa"), **{f"x{i}": (3, "fast-math") for i in range(4)}}, planted
    )
    shares = []
    for seed in range(seeds):
        once = iter([30.0])

        async def evaluate(candidate, once=once):
            choice = dict(candidate.choice)
            others = sum(choice[f"x{i}"] == 1 for i in range(4))
            if choice["lucky"] and not choice["steady"]:
                return Outcome(next(once, 1.0) if others else 1.0)
            return Outcome(3.0 * 1.05**others if choice["steady"] else 1.0)

        async def go(evaluate=evaluate, seed=seed):
            return await mcts(
                Tries(evaluate, budget), space, random.Random(seed), Outcome(1.0), stale=None, linear=linear
            )

        root = asyncio.run(go())
        lucky = [
            c for c in root.children if dict(c.candidate.choice)["lucky"] and not dict(c.candidate.choice)["steady"]
        ]
        shares.append(sum(c.visits for c in lucky) / root.visits)
    return float(np.mean(shares))


def test_rewards_are_logarithmic_and_failures_earn_nothing():
    assert reward(0.0) == 0
    assert reward(0.5) == reward(1.0) == pytest.approx(0.1)
    assert reward(32.0) == reward(100.0) == 1
    assert reward(3.0) > 3 * reward(3.0, linear=True) - 0.25
    assert reward(6.0) - reward(3.0) == pytest.approx(reward(12.0) - reward(6.0))


def test_broken_branches_are_given_up():
    space, evaluate = table({"a": (50, "tile"), "b": (2, "isa")}, lambda c: 0.0 if c["a"] else 1.0 + c["b"])

    async def go():
        tries = Tries(evaluate, 40)
        root = await mcts(tries, space, random.Random(0), await evaluate(space.start()), stale=None)
        return tries, root

    tries, root = asyncio.run(go())
    broken = [child for child in root.children if child.outcome.speed <= 0]
    assert broken
    assert max(len(child.children) for child in broken) <= 4
    assert tries.best[1].speed == 2.0


# ---- as runs --------------------------------------------------------------------------------------------------------


@needs_gcc
def test_a_search_is_a_run_that_replays_without_a_compiler_and_forks(tmp_path, monkeypatch):
    taskset = Kernels(sandbox="", profile=False)
    runner = Runner("clew.coding.kernels.world:tuner", taskset, None, tmp_path / "s.db", {"budget": 3})
    run = runner.collect([taskset.find("stencil")], 1).runs[0]
    told = [told for _, told in tries_of(run)]
    assert len(told) == 3
    assert run.reward == max(1.0, *(t["speed"] for t in told))
    final = json.loads(run.calls[-2].text)
    assert {"build", "over_plain", "over_compiler"} <= set(final)
    with monkeypatch.context() as without:
        without.setattr("clew.methods.kernels.world.Cpu", None)
        assert runner.replay(run).calls == len(run.calls)
    second = tries_of(run)[1][0].seq
    (fork,) = runner.fork(run, second)
    assert fork.stop == "done"
    assert json.loads(fork.calls[second - 1].text) == told[0]  # shared by reference, not measured again
    assert len(tries_of(fork)) == 3


@needs_gcc
def test_new_source_needs_the_sandbox(tmp_path):
    world = Kernels(sandbox="", profile=False).open(Kernels().find("stencil"))
    assert "outside of the sandbox" in json.loads(world.step(json.dumps({"source": "int x;"})).text)["why"]
    assert "not a candidate" in json.loads(world.step("faster please").text)["why"]
    assert "opt=9" in json.loads(world.step('{"choice": {"opt": 9}}').text)["why"]
    kept = world.snapshot()
    again = Kernels(sandbox="", profile=False).open(Kernels().find("stencil"))
    again.restore(kept)
    assert again.state_key == world.state_key
    world.close()
    again.close()


@needs_gcc
def test_source_of_a_model_is_built_and_run_in_the_sandbox(tmp_path):
    if not shutil.which("bwrap"):
        pytest.skip("did not run: no bubblewrap")
    cpu = Cpu(STENCIL, Boxed(tmp_path))
    good = cpu.build(cpu.space.start()._replace(source=f"{HEAD} {ENDS} {HONEST} }}"))
    assert cpu.check(good) is None
    assert isinstance(cpu.time(cpu.plain, good), Speed)
    spin = cpu.build(cpu.space.start()._replace(source=f"{HEAD} for (;;) out[0] = x[0] + n; }}"))
    monkey = pytest.MonkeyPatch()
    monkey.setattr("clew.methods.kernels.cpu.RUN_SECONDS", 1.0)
    found = cpu.check(spin)
    monkey.undo()
    assert isinstance(found, wall.Wrong)
    assert "limit" in found.why  # on CPU time, or on a busy machine the clock


def test_kernels_are_found_by_name_or_file(tmp_path):
    assert load("dot") is CATALOGUE["dot"]
    with pytest.raises(UnknownName, match="Bundled: dot"):
        load("dott")
    file = tmp_path / "mine.py"
    file.write_text("from clew.methods.kernels.catalogue import DOT as kernel\n")
    assert isinstance(load(str(file)), Kernel)
    file.write_text("kernel = 3\n")
    with pytest.raises(BadInput, match="defines no `kernel`"):
        load(str(file))
    file.write_text("1 / 0\n")
    with pytest.raises(BadInput, match="ZeroDivisionError"):
        load(str(file))
    with pytest.raises(BadInput, match="7 kernels of 6"):
        Kernels().sample(7)


def test_candidates_say_how_they_are_built():
    space = Space(DOT)
    assert space.size == 2 * 3 * 2 * 2 * 2 * 3
    assert len(list(space.all())) == space.size == len(set(space.all()))
    assert space.told(space.start()) == "-O2 -msse4.2 -DSUMS=1"
    assert all(
        sum(a != b for a, b in zip(c.choice, space.start().choice, strict=True)) == 1
        for _, c in space.around(space.start())
    )
    assert isinstance(space.start(), Candidate)
