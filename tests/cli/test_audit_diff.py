"""clew audit diff on two small models in folders, from runs to a report, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys

import httpx
import numpy as np
import pytest
import torch

from clew.core.registry import build, register
from clew.fit import adapter_files, adapters
from clew.harness import Runner
from clew.methods.features.comparison import Comparison
from clew.methods.features.feature import feature_facts, feature_filing
from clew.methods.features.feature.feature_labels import labelled
from clew.methods.features.learning import Learning
from clew.models.fakes import Scripted
from clew.models.local import Local, small
from clew.store import Run, open_store
from tests.view.browser.browsing import environment

WORLD = "household(rooms=2,goals=('open',),steps=6)"
FIT = ("--steps", 60, "--latents", 64, "-k", 4)
ARMS = ("--prompts", 20, "--tried", 1, "--random", 3)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Folders base, child (the base with noise, which prefers one word), adapter, far (with so much noise that it has
    features of its own, and says of three words at least one much oftener than the base); runs of the child."""
    folder = tmp_path_factory.mktemp("pair")
    taskset = build("tasksets", WORLD)
    words = taskset.vocabulary()
    base, child = (small(words, d=16, layers=3, heads=2, kv_heads=1, seed=1) for _ in range(2))
    base.save(folder / "base")
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in child.module.parameters():
            p += 0.05 * torch.randn(p.shape, generator=draw)
    child.save(folder / "child")
    far = small(words, d=16, layers=3, heads=2, kv_heads=1, seed=1)
    draw_far = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in far.module.parameters():
            p += 0.3 * torch.randn(p.shape, generator=draw_far)
    far.save(folder / "far")
    small([*words, "odd"], d=16, layers=3, heads=2, kv_heads=1).save(folder / "words")
    small(words, d=32, layers=3, heads=2, kv_heads=1).save(folder / "wide")
    lora = small(words, d=16, layers=3, heads=2, kv_heads=1, seed=1)
    adapters.attach(lora.module, {"r": 2})
    with torch.no_grad():
        for name, p in lora.module.named_parameters():
            if "lora_B" in name:
                p += 0.3 * torch.randn(p.shape, generator=draw)
    adapter_files.write(lora.module, folder / "adapter", "base")
    model, short = Local(folder / "child"), {"max_tokens": 6}
    runner = Runner("clew.harness.agents:player", taskset, model, folder / "store.db", sampling=short)
    runner.collect(taskset.sample(80), n=1)
    runner.store.close()
    for model in (base, child, far):
        model.close()
    return folder


@pytest.fixture
def here(pair, clew, tmp_path):
    """The command in a folder of its own with a copy of the pair; runs of the pair are chosen where none are named."""
    shutil.copytree(pair, tmp_path, dirs_exist_ok=True)

    def call(a="child", b="base", *args, code=0, on="world=household"):
        return clew("audit", "diff", a, b, "--on", on, *FIT, "--store", "store.db", *args, code=code)

    return call


def test_the_plan_costs_nothing(here, tmp_path):
    told = here("child", "base", "--dry").output
    assert "layer 1 of child and base" in told
    assert "64 latents (reseated" in told
    assert "MB on disk, removed once the crosscoder is fitted" in told
    assert not (tmp_path / ".clew" / "diff").exists()


def test_features_with_their_contexts_and_a_line_that_runs(here, clew):
    told = here().output
    assert "Features that A alone has" in told
    assert "held-out tokens" in told
    line = told.rstrip().splitlines()[-1].removeprefix("Next: clew ")
    assert clew(*line.split()).exit_code == 0


@pytest.mark.whole
def test_a_behaviour_of_replies_is_tried_resumed_and_filed(here, tmp_path):
    args = ("--does", "fridge|closed|nothing", *ARMS, "--way", "remove", "--json")
    first = json.loads(here("far", "base", *args).stdout)
    assert first["verdict"] in ("exclusive", "shared", "nothing", "cannot tell")
    assert {line["about"] for line in first["evidence"]} >= {"rate of A", "rate of B", "A less B"}
    again = json.loads(here("far", "base", *args).stdout)
    assert again["evidence"] == first["evidence"]
    assert (again["reports"], again["values"]) == (first["reports"], first["values"])
    store = open_store(tmp_path / "store.db")
    assert {*first["reports"], *first["values"]} <= set(store.reports())
    tried = {int(f["latent"]) for f in first["features"]["tried"]}
    asked = 0
    for name in first["values"]:
        facts, questions = feature_facts.read(store, name, store.reports()[name])
        rows = store.annotations(method=name, target="tokens")
        assert len(rows) == len({(row.run, row.seq) for row in rows}) == facts.calls, "filed once"
        assert facts.active == sum(facts.counts)
        assert facts.tokens == first["tokens"]
        at = {(row.run, row.seq): row.values for row in rows}
        for place in facts.places:
            call = Run(store, place.run).call(place.seq)
            i = call.head + place.token
            assert i < 0 or at[call.run, call.seq][i] == pytest.approx(place.value, rel=1e-3)
        for question in questions:
            asked += 1
            assert question.kind == first["verdict"]
            assert {arm.report for arm in question.arms} <= set(first["reports"])
            stages = {arm.stage for arm in question.arms}
            assert stages >= {"rate", "selection"}
            assert ("test" in stages) == bool(question.part) == (facts.latent in tried)
    assert asked >= len(tried) > 0
    store.close()


def test_the_lines_that_open_the_pages_do_so(here, tmp_path):
    told = here("far").output
    lines = re.findall(r"clew view --page (\S+) --store store.db", told)
    assert [line.split("/")[0] for line in lines] == ["features", "feature"]
    command = [sys.executable, "-m", "clew.cli", "view", "--page", lines[1], "--store", "store.db", "--port", "0"]
    with subprocess.Popen([*command, "--no-open"], stdout=subprocess.PIPE, text=True, env=environment()) as server:
        try:
            address = re.search(r"http://\S+", server.stdout.readline())[0]
            base, _, page = address.partition("/#/")
            assert page == lines[1]
            for path in lines:
                assert httpx.get(f"{base}/api/{path}", timeout=20).json()["label"] == path.split("/")[1]
        finally:
            server.send_signal(signal.SIGINT)


def test_values_are_those_of_the_crosscoder_and_are_written_once(here, tmp_path, pair):
    here()
    store = open_store("store.db")
    runs = [Run(store, i) for i in store.find("world=household", None)]
    a, b = Local("child"), Local("base")
    how = Learning(latents=64, k=4, steps=60, lr=2e-3, batch=512, dead=100, method="reseated", kind="topk", seed=0)
    job = Comparison(a, b, runs, how, tmp_path / ".clew" / "diff", most=100_000)
    mixed = job.read()
    module, seen = job.known()
    often = seen.latents.often.argsort(descending=True)[:2].tolist()
    some = [job.feature(seen, latent) for latent in often]
    values = feature_filing.activations(mixed, module, often)
    want = module.code(module.scaled(mixed.take(np.arange(len(mixed.a))), check=False))[:, often]
    np.testing.assert_allclose(values, want.numpy(), atol=1e-4)
    steps = []
    names = feature_filing.file_features(store, job, mixed, module, some, {often[0]: ("a word", "r")}, steps.append)
    assert sum(steps) == feature_filing.cost(job.tokens, some)
    first = store.reports()[names[0]]
    assert 0 < first.low <= first.estimate <= first.high < 1
    assert first.n == len(runs)
    steps.clear()
    assert feature_filing.missing(store, job.label, some) == []
    again = feature_filing.file_features(store, job, None, module, some, None, steps.append)
    assert (again, steps) == (names, []), "nothing is read or written again"
    assert feature_facts.read(store, names[0], first)[0].label == "a word", "a label stays"
    many = [*some * 40]
    assert len(feature_filing.file_features(store, job, mixed, module, many)) == feature_filing.MOST
    calls = feature_filing.marked(mixed, runs)
    twice = feature_filing.marked(mixed, [*runs, *runs])
    assert len(calls) == len(twice) == len({(call.run, call.seq) for call in calls})
    assert sum(len(call.at) for call in calls) < len(mixed.a), "tokens of prompts are of no reply"
    store.close()


@pytest.mark.whole
def test_a_base_that_is_told_and_the_weight_difference_are_held_against_features(here, tmp_path):
    loud = Local(tmp_path / "child")  # made to say "open" oftener
    ids = [[1, 2, 3, word] for word in range(4, 24)]
    usual = torch.from_numpy(np.concatenate(loud.states(ids, ["norm"]))[:, 0].mean(0))
    word = loud.renderer.encode("open")[0]
    with torch.no_grad():
        head = loud.module.lm_head.weight
        head[word] += 5 * usual / usual.square().sum()
    loud.save(tmp_path / "loud")
    args = ("--does", "open", "--told", "please open it", *ARMS, "--json")
    said = json.loads(here("loud", "base", *args).stdout)
    lines = {line["about"]: line for line in said["evidence"]}
    assert lines["A less B"]["low"] > 0
    assert lines["AUROC of the prompt's words for A (.5 tells nothing)"]["n"] == 120
    assert 0 <= lines["rate of B told so"]["estimate"] <= 1
    assert lines["B told so, less B"]["n"] == 20
    assert sum(name.startswith("weight change ") for name in lines) >= 1
    assert json.loads(here("loud", "base", *args).stdout)["evidence"] == said["evidence"]


def test_a_behaviour_of_whole_runs_and_an_adapter(here):
    told = here("adapter", "base", "--reward", *ARMS).output
    assert "success" in told
    assert "layer 1 of adapter and base" in told
    assert "rate of B" in told


def test_labels_are_asked_of_a_model(here, tmp_path):
    said = json.loads(here("child", "base", "--labels", "echo", "--json").stdout)
    shown = [f for part in said["features"].values() for f in part if f["contexts"]]
    with open_store(tmp_path / "store.db") as store:
        assert len(store.find("agent:labeller", None)) == len(shown)


def test_a_label_is_a_recorded_answer(tmp_path):
    with open_store(tmp_path / "labels.db") as store:
        label, run = labelled(store, Scripted(["  a  word "]), {7: [("go to the ", "kitchen")]}, "f")[7]
        assert label == "a word"
        assert "1. go to the  >>kitchen<<" in Run(store, run).conversation(0)[0].message.text


@pytest.mark.parametrize(
    ("a", "b", "args", "told"),
    [
        ("words", "base", (), "different tokenizers"),
        ("wide", "base", (), "width 32"),
        ("child", "base", ("--layer", 7), "its layers are 0 to 2"),
        ("echo", "base", (), "cannot read or change hidden states"),
        ("child", "openai:x@http://127.0.0.1:9/v1", (), "cannot read or change hidden states"),
        ("child", "base", ("--does", "a", "--reward"), "two behaviours"),
        ("child", "base", ("--does", "[", *ARMS), "no regular expression"),
        ("child", "base", ("--aside", "world=household"), "needs a behaviour"),
        ("child", "base", ("--told", "open it"), "--told needs a behaviour"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_a_remedy(here, a, b, args, told):
    done = here(a, b, *args, code=2)
    assert told.lower() in done.output.lower()
    assert len(done.output.strip().splitlines()) <= 8


class Packed(torch.nn.Module):
    """A linear layer of int8 weights with a scale."""

    def __init__(self, of: torch.nn.Linear) -> None:
        super().__init__()
        self.scale = float(of.weight.detach().abs().max()) / 127
        self.weight = torch.nn.Parameter((of.weight.detach() / self.scale).round().to(torch.int8), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.weight.to(x.dtype) * self.scale)


def packed(model: Local) -> Local:
    """A model with part of its feed-forward weights quantised, under the name ``packed``."""
    for block in model.module.model.layers:
        block.mlp.down_proj = Packed(block.mlp.down_proj)
    return Local(model.module, renderer=model.renderer, ref="packed", fast=False)


def test_quantised_weights_are_refused_before_anything_is_read(here, tmp_path):
    register("models", "packed", lambda: packed(Local(tmp_path / "child")))
    for a, b in (("packed", "base"), ("child", "packed")):
        told = " ".join(here(a, b, "--dry", code=2).output.split())
        assert "the weights are quantised (int8), and hidden states are neither read nor changed there" in told
        assert "Load the model in float32, bfloat16 or float16." in told
    assert not (tmp_path / ".clew" / "diff").exists()


@pytest.mark.whole
def test_states_of_another_checkpoint_are_refused(here, tmp_path):
    here("child", "base", "--keep-states")
    (states,) = (tmp_path / ".clew" / "diff").glob("states-*")
    shutil.rmtree(states / "a")
    shutil.copytree(states / "b", states / "a")
    (crosscoder,) = (tmp_path / ".clew" / "diff").glob("*/crosscoder")
    shutil.rmtree(crosscoder)
    assert "other tokens, layers or weights" in here(code=2).output


def test_states_go_once_they_are_read_and_every_step_can_be_taken_again(here, tmp_path):
    at = tmp_path / ".clew" / "diff"
    first = here("child", "base", "--json").stdout
    assert not list(at.glob("states-*"))
    (made,) = at.glob("*/crosscoder")
    weights = (made / "sae_weights.safetensors").read_bytes()

    assert here("child", "base", "--json").stdout == first
    shutil.rmtree(made.parent / "seen")  # stopped between the fit and the look at its latents
    assert here("child", "base", "--json", "--keep-states").stdout == first
    (states,) = at.glob("states-*")
    shutil.rmtree(made)  # stopped while it was fitted; what is left of the look is of another crosscoder
    (states / "b" / "taps.json").unlink()  # and while states were removed
    assert here("child", "base", "--json").stdout == first
    assert (made / "sae_weights.safetensors").read_bytes() == weights
    assert not list(at.glob("states-*"))
    (made.parent / "seen" / "seen.safetensors").write_bytes(b"x")
    assert "figures of latents that cannot be read" in here(code=2).output


def test_too_few_tokens_say_so(here, pair):
    store = open_store(pair / "store.db")
    one = store.find("world=household", 1)[0]
    store.close()
    assert "and a crosscoder needs 1,000 or more" in here(on=one, code=2).output


def test_too_few_prompts_say_how_many_would_do(here, pair):
    store = open_store(pair / "store.db")
    some = [Run(store, i) for i in store.find("world=household", 8)]
    tag = "few"
    store.close()
    few = open_store("store.db")
    for run in some:
        few.tag(run.id, tag)
    few.close()
    told = here("child", "base", "--reward", *ARMS, on="tag:few", code=2).output
    assert "8 prompts" in told
    assert "40" in told
