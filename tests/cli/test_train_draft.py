"""clew train --draft through the line: it trains, tells what came of drafts, goes on, and refuses what cannot be."""

from __future__ import annotations

import json

import pytest
import torch

from clew.core.registry import register
from clew.credit.tree import tree
from clew.models.drafters import folder as folders
from clew.models.drafters import load
from clew.models.engine.forwards.weights import weights_digest
from clew.models.engine.speculation.costs import Costs, hardware
from clew.models.local import Local, small
from clew.worlds.sums import Sums

pytest.importorskip("transformers")
register("credits", "tree", tree)
register("tasksets", "sums", Sums)
LINE = ("--world", "sums(low=3,high=3)", "--model", "tiny", "--max-tokens", 12, "--tasks", 2, "-n", 3, "--credit",
        "grpo", "--json")  # fmt: skip
SHAPE = {"d": 16, "layers": 3, "heads": 2, "kv_heads": 1, "context": 64, "seed": 1}


@pytest.fixture
def tiny(tmp_path):
    """A model, and beside it an untrained drafter and costs under which everything is drafted."""
    words = Sums(3, 3).vocabulary()
    small(words, **SHAPE).save(tmp_path / "tiny")
    model = Local(tmp_path / "tiny")
    module = folders.fresh(folders.design_for(model.module, mask=0, block=2, layers=1), model.module)
    (tmp_path / "drafter").mkdir()
    folders.write(module, tmp_path / "drafter", folders.target_of(model.module, model.tokenizer, "tiny"))
    Costs(
        (1, 4096), (1.0, 1.001), (1, 512), (1.0, 1.001), (0.0, 0.0), block=2, hardware=hardware(),
        model=model.digest(), drafter=weights_digest(module),
    ).save(tmp_path / "tiny")  # fmt: skip
    model.close()
    return tmp_path


@pytest.mark.parametrize("more", [(), ("--lora", 2), ("--rollouts", "tree", "--budget", 30)], ids=lambda m: str(m[:1]))
def test_a_drafter_is_used_and_refreshed_and_lies_in_the_checkpoint(clew, tiny, more):
    if "--lora" in more:
        pytest.importorskip("peft", reason="did not run: peft is not installed")
    line = [*("train", "--name", "t", "--draft", "drafter", *LINE), *more]
    if "tree" in more:
        line[line.index("grpo")] = "tree"
    done = json.loads(clew(*line, "--iterations", 1).stdout)
    assert done["metrics"]["0"]["draft/drafted"] > 0.3
    assert done["metrics"]["0"]["draft/length"] >= 1
    assert done["metrics"]["0"]["seconds/draft"] > 0
    assert not (tiny / ".clew" / "trainings" / "t" / "costs.json").exists(), "those beside the model held"
    trained = Local(done["checkpoint"])
    made = folders.read(f"{done['checkpoint']}/drafter", trained.module, trained.tokenizer)  # of these very weights
    assert weights_digest(made) != folders.about(f"{done['checkpoint']}/drafter")["made"]["of"]
    assert torch.equal(made.embed_tokens.weight, trained.module.get_input_embeddings().weight)
    assert load(f"{done['checkpoint']}/drafter", trained.module, trained.tokenizer).block == 2
    trained.close()
    again = json.loads(clew(*line, "--iterations", 2).stdout)
    assert set(again["metrics"]) == {"0", "1"}
    assert again["metrics"]["0"] == done["metrics"]["0"]
    assert "tokens a round" in (tiny / ".clew" / "trainings" / "t" / "report.html").read_text()


def test_prompt_lookup_needs_no_drafter_and_its_costs_are_kept(clew, tiny):
    done = json.loads(clew("train", "--name", "t", "--draft", "lookup", *LINE, "--iterations", 1).stdout)
    assert done["metrics"]["0"]["draft/length"] >= 1
    assert (tiny / ".clew" / "trainings" / "t" / "costs.json").exists()
    assert not (tiny / ".clew" / "trainings" / "t" / "checkpoint" / "drafter").exists()


def test_what_cannot_be_is_refused(clew, tiny):
    def refused(*more) -> str:
        return " ".join(clew("train", "--name", "t", *LINE, "--iterations", 1, *more, code=2).output.split())

    assert "no drafter at nowhere" in refused("--draft", "nowhere")
    assert "No such option '--draft'" in refused("--draft", "lookup", "--loss", "dpo", "--data", "world=sums")
    small(Sums(3, 3).vocabulary(), **SHAPE | {"seed": 2}).save(tiny / "other")
    assert "was made for weights" in refused("--draft", "drafter", "--model", "other")
    small([*Sums(3, 3).vocabulary(), "word"], **SHAPE).save(tiny / "longer")
    assert "was made for tokenizer" in refused("--draft", "drafter", "--model", "longer")
    register("models", "steadily", lambda: Local(tiny / "tiny", steady=True))
    told = refused("--draft", "lookup", "--model", "steadily")
    assert "a steady engine does not draft" in told
    assert "steady=False" in told
    assert not (tiny / ".clew" / "trainings" / "t" / "checkpoint").exists()
