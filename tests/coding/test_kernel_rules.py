"""The fifteen rules: each fires on metrics that show its fault, and on none that are just short of it."""

from __future__ import annotations

import math

import pytest

from clew.methods.kernels.kernel import ALSO, FLAGS, MOVES
from clew.methods.kernels.rules import BY_NAME, RULES, advice, diagnose

# rule -> backend -> (metrics that fire, metrics that do not)
FIXTURES = {
    "MemoryCoalescing": {
        "cuda": ({"l1_hit": 0.12, "stall_memory": 0.55}, {"l1_hit": 0.12, "stall_memory": 0.35}),
        "cpu": ({"d1_miss_rate": 0.53}, {"d1_miss_rate": 0.06}),
    },
    "HighDRAMThroughput": {
        "cuda": ({"dram_throughput": 0.91}, {"dram_throughput": 0.8}),
        "cpu": ({"bandwidth_share": 0.9}, {"bandwidth_share": 0.5}),
    },
    "OccupancyLimiter": {
        "cuda": ({"occupancy": 0.25}, {"occupancy": 0.5}),
        "cpu": ({"threads": 2, "chunks_per_thread": 1, "thread_share": 1}, {"threads": 1, "chunks_per_thread": 1}),
    },
    "HighRegisterUsage": {
        "cuda": ({"registers": 128}, {"registers": 96}),
        "cpu": ({"register_share": 1.0}, {"register_share": 0.5}),
    },
    "WarpStall": {
        "cuda": ({"stall_dominant": 0.62}, {"stall_dominant": 0.4}),
        "cpu": ({"chains": 1}, {"chains": 4}),
    },
    "BarrierStall": {
        "cuda": ({"stall_barrier": 0.31}, {"stall_barrier": 0.3}),
        "cpu": ({"barrier_share": 0.4}, {"barrier_share": 0.1}),
    },
    "LaunchOverhead": {
        "cuda": ({"launch_share": 0.5}, {"launch_share": 0.05}),
        "cpu": ({"region_share": 0.3}, {"region_share": 0.01}),
    },
    "Uncoalesced": {
        "cuda": ({"sectors_ratio": 2.0}, {"sectors_ratio": 1.0}),
        "cpu": ({"gathers": 2}, {"gathers": 0}),
    },
    "RegisterSpill": {
        "cuda": (
            {"local_ops": 6, "stall_long_scoreboard": 0.2, "compute": 0.3, "memory": 0.4},
            {"local_ops": 6, "stall_long_scoreboard": 0.2, "compute": 0.7, "memory": 0.4},
        ),
        "cpu": ({"spills": 1}, {"spills": 0}),
    },
    "SharedMemTiling": {
        "cuda": ({"reuse": 64, "global_ops": 3, "shared_ops": 0}, {"reuse": 64, "global_ops": 3, "shared_ops": 8}),
        "cpu": ({"reuse": 64, "working_set_share": 3}, {"reuse": 64, "working_set_share": 0.4}),
    },
    "TensorCore": {
        "cuda": ({"gemm_like": 1, "mma_ops": 0}, {"gemm_like": 1, "mma_ops": 16}),
        "cpu": ({"gemm_like": 1, "fma_wide": 0}, {"gemm_like": 0, "fma_wide": 0}),
    },
    "Vectorization": {
        "cuda": (
            {"narrow_ops": 2, "wide_ops": 0, "ops_per_access": 0.5},
            {"narrow_ops": 2, "wide_ops": 2, "ops_per_access": 0.5},
        ),
        "cpu": ({"fp_ops": 4, "width": 16}, {"fp_ops": 4, "width": 32}),
    },
    "ScalarFallback": {
        "cuda": ({"conversions": 4}, {"conversions": 0, "calls": 0}),
        "cpu": ({"scalar_share": 0.89}, {"scalar_share": 0.0, "conversions": 0, "calls": 0}),
    },
    "BankConflict": {
        "cuda": ({"bank_conflicts": 8}, {"bank_conflicts": 1}),
        "cpu": ({"aliasing": 1}, {"aliasing": 0}),
    },
    "WaveTail": {
        "cuda": ({"branch_efficiency": 0.6}, {"branch_efficiency": 0.95, "last_wave": 0.9}),
        "cpu": ({"branches": 2}, {"branches": 0, "tail_share": 0.05}),
    },
}


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
@pytest.mark.parametrize("name", FIXTURES)
def test_a_rule_fires_on_its_fault_and_only_then(name, backend):
    fires, silent = FIXTURES[name][backend]
    rule = BY_NAME[name]
    found = rule(fires, backend)
    assert found is not None
    assert found.evidence
    assert all(fires[metric] == value for metric, value, *_ in found.evidence)
    assert rule(silent, backend) is None
    assert rule({}, backend) is None  # what was not measured fires nothing
    assert rule(dict.fromkeys(fires, math.nan), backend) is None


def test_a_rule_tells_every_case_that_holds():
    found = BY_NAME["ScalarFallback"]({"scalar_share": 0.9, "conversions": 2, "calls": 1}, "cpu")
    assert [metric for metric, *_ in found.evidence] == ["scalar_share", "conversions", "calls"]
    assert "a function is called for every element" in found.cause
    assert "0.3f for 0.3" in found.action
    chain = BY_NAME["WarpStall"]({"chains": 1, "address_chain": 0}, "cpu")
    assert "load" not in chain.cause
    assert chain.cause.count("waits for") == 1


def test_the_table_is_the_papers():
    assert [rule.number for rule in RULES] == list(range(1, 16))
    assert set(FIXTURES) == set(BY_NAME)
    assert BY_NAME["RegisterSpill"].hit_rate == 0.182  # the paper's most useful tool


@pytest.mark.parametrize(
    ("metrics", "fires"),
    [
        ({"local_ops": 9, "memory": 0.7, "local_share": 0.4}, True),  # case B
        ({"local_ops": 9, "memory": 0.7, "local_share": 0.05}, False),
        ({"local_ops": 9, "spill_bytes": 128}, True),  # a compiled object alone
        ({"local_ops": 0, "spill_bytes": 128}, False),
    ],
)
def test_spills_have_three_cases(metrics, fires):
    assert bool(BY_NAME["RegisterSpill"](metrics, "cuda")) is fires


def test_only_rules_that_concern_the_bottleneck_are_asked():
    everything = {k: v for both in FIXTURES.values() for k, v in both["cuda"][0].items()}
    of_memory = {f.rule for f in diagnose(everything, "cuda", "memory", most=99)}
    of_compute = {f.rule for f in diagnose(everything, "cuda", "compute", most=99)}
    assert "TensorCore" not in of_memory
    assert "MemoryCoalescing" in of_memory
    assert "MemoryCoalescing" not in of_compute
    assert "TensorCore" in of_compute
    assert {"RegisterSpill", "ScalarFallback"} <= of_memory & of_compute


def test_findings_come_by_severity_and_hit_rate_and_are_few():
    everything = {k: v for both in FIXTURES.values() for k, v in both["cpu"][0].items()}
    found = diagnose(everything, "cpu")
    assert len(found) == 5
    assert found[0].rule == "RegisterSpill"
    assert advice(found)[:2] == ("smaller-tile", "less-unroll")
    assert "spills 1 > 0" in found[0].line()
    assert found[0].json()["evidence"]["spills"] == {"value": 1.0, "fires": "> 0"}


def test_every_flag_has_a_move_that_some_rule_recommends():
    recommended = {ALSO.get(move, move) for rule in RULES for move in rule.moves}
    assert set(MOVES) == set(FLAGS)
    assert set(MOVES.values()) - {"unroll"} <= recommended
    assert "unroll" in BY_NAME["WarpStall"].moves
