"""`clew train` as people configure it: recipes that tell what they set, options, files, adapters, what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from clew.cli.shared.training_options import held_out
from clew.core import registry
from clew.models.local import small
from clew.worlds.household import Household

WORLD = ("--world", "lenient", "--max-tokens", 3)
BRIEF = ("--iterations", 2, "--tasks", 2, "-n", 4)
pytestmark = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft's own


class Lenient(Household):
    """Judged by the run's seed, so that a model that has learnt nothing has a signal."""

    def __init__(self) -> None:
        super().__init__(rooms=2, receptacles=2, objects=2, closed=1, steps=3)
        self.ref = "lenient"

    async def judge(self, task, run, world):
        return {"reward": float(run.row.seed % 3 > 0)}


@pytest.fixture
def tiny(tmp_path) -> Path:
    registry.register("tasksets", "lenient", Lenient)
    made = small(Lenient().vocabulary(), d=16, layers=1, heads=2, kv_heads=1, context=256, ref="tiny")
    made.save(tmp_path / "tiny")
    made.close()
    return tmp_path / "tiny"


def train(clew, *more, name="t", brief=BRIEF, model="tiny", code=0, **extra):
    return clew("train", "--name", name, "--model", model, *WORLD, *brief, *more, code=code, **extra)


def settings(name="t"):
    return json.loads(Path(f".clew/trainings/{name}/settings.json").read_text())


def sources(done):
    """field -> (value, source), as the line told it."""
    told = re.split(r"\n  (?=from |by )", done.stderr.split("\nno held-out")[0].split("\nheld-out")[0])[1:]
    out = {}
    for part in told:
        source, _, values = part.partition(":")
        for item in " ".join(values.split()).split(", "):
            field, _, value = item.partition(" ")
            out[field] = (value, source)
    return out


def test_a_recipe_tells_every_field_with_its_value_and_where_it_is_from(clew, tiny):
    done = train(clew, "--recipe", "dapo", "--clip", "0.1,0.3", "--lr", "1e-3",
                 default_map={"train": {"epochs": 2, "n": 9, "weight_decay": 0.01}})  # fmt: skip
    assert "recipe dapo: DAPO, arXiv 2503.14476" in done.stderr
    told = sources(done)
    assert told["credit"] == ("grpo", "from recipe")
    assert told["weight_by"] == ("token", "from recipe")
    assert told["dynamic"] == ("3", "from recipe")
    assert told["clip"] == ("0.1/0.3", "from option")
    assert told["lr"] == ("0.001", "from option")
    assert told["epochs"] == ("2", "from file")
    assert told["n"] == ("4", "from option"), "the line goes before the file"
    assert told["weight_decay"] == ("0.01", "from file")
    assert told["max_grad_norm"] == ("1", "from default")
    from clew.cli.shared import training_options as options

    named = f"{options.OF_TRAINER} {options.OF_PLAN} {options.OF_LORA}".split()
    assert set(told) == {*named, *options.OF_RECIPE}
    kept = settings()
    assert (kept["credit"], kept["clip"], kept["lr"]) == ("grpo", [0.1, 0.3], 1e-3)
    assert (kept["plan"]["epochs"], kept["plan"]["dynamic"], kept["weight_decay"]) == (2, 3, 0.01)


def test_every_field_of_plan_trainer_and_lora_is_an_option():
    import inspect
    from dataclasses import fields

    from clew.cli.train import command
    from clew.fit.trainer import Trainer
    from clew.train.loop import Plan

    known = {param.name for param in command.params}
    elsewhere = {"rollouts": "n", "component": "loss", "growth": "rollouts", "clip": "max_grad_norm", "losses": "loss"}
    elsewhere |= {"tracker": "track", "self": "name", "ranks": "nproc"}
    wanted_by_python = {"masters"}  # the line loads weights in float32
    wanted = [field.name for field in fields(Plan)] + [*inspect.signature(Trainer.__init__).parameters]
    assert {name for name in wanted if elsewhere.get(name, name) not in known} == wanted_by_python
    assert {"lora", "lora_alpha", "lora_targets", "lora_dropout"} <= known


def test_without_a_recipe_nothing_has_changed_and_the_rate_suits_the_model(clew, tiny):
    told = sources(train(clew))
    assert told["credit"] == ("g2po", "from recipe")
    assert told["lr"][0] == "0.0007"
    assert "size of the model" in told["lr"][1]
    kept = settings()
    assert set(kept) == {"plan", "agent", "taskset", "model", "credit", "lr", "lora"}, "as earlier versions recorded it"
    plan = {"name", "iterations", "tasks", "rollouts", "seed", "component", "kl", "eval_every", "eval_tasks"}
    assert set(kept["plan"]) == {*plan, "eval_split", "checkpoint_every"}


def test_the_held_out_curve_is_bounded_told_drawn_and_goes_on_as_begun(clew, tiny):
    brief = ("--iterations", 4, "--tasks", 8, "-n", 8)
    done = train(clew, brief=brief)
    assert "held-out curve: 25 tasks of split 'eval' at the start and at the end" in done.stderr
    assert "50 runs beside 256" in done.stderr
    assert re.search(r"\n +0 \|.*\*.*\|.*\n +4 \|", done.stdout)
    assert re.search(r"of 25 held-out tasks \d+ were won and \d+ lost since the start \(sign test p", done.stdout)
    longer = train(clew, brief=("--iterations", 5, *brief[2:]), name="t")
    assert sources(longer)["eval_every"] == ("4", "by as begun")
    none = json.loads(train(clew, "--eval-every", 0, "--json", brief=brief, name="u").stdout)
    assert none["held_out"] == []
    assert held_out(45, 2880) == (6, 64)
    for iterations, runs in ((45, 2880), (20, 1280), (3, 400), (7, 1000), (200, 12800), (1, 5000)):
        every, tasks = held_out(iterations, runs)
        assert tasks * (-(-iterations // every) + 1) <= 0.2 * runs
    assert held_out(3, 96) == (0, 0)


def test_a_world_without_held_out_tasks_is_trained_on_all_the_same(clew, tiny):
    class Bare(Lenient):
        def sample(self, n, seed=0, split="train"):
            if split != "train":
                raise KeyError(split)
            return super().sample(n, seed, split)

    registry.register("tasksets", "lenient", Bare)
    done = train(clew, brief=("--iterations", 4, "--tasks", 8, "-n", 8))
    assert "no held-out curve: no 25 tasks of split 'eval' (KeyError)" in done.stderr


def test_a_line_stopped_on_its_way_goes_on_as_if_never_stopped(clew, tiny, monkeypatch):
    """Schedule, warm-up, minibatches, dropout in adapters: the state of all of them is kept."""
    from clew.models.engine.forwards.weights import weights_digest
    from clew.train.loop import Training

    more = ("--recipe", "gspo", "--schedule", "cosine", "--warmup", 1, "--lora", 2, "--lora-dropout", 0.1,
            "--checkpoint-every", 1, "--epochs", 2, "--lr", 0.005)  # fmt: skip
    brief = ("--iterations", 4, "--tasks", 2, "-n", 4)
    train(clew, *more, name="whole", brief=brief)
    save, saved = Training._save, []

    def stopping(self, iteration):
        save(self, iteration)
        saved.append(iteration)
        if iteration == 2 and saved.count(2) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(Training, "_save", stopping)
    train(clew, *more, name="parts", brief=brief, code=130)
    train(clew, *more, name="parts", brief=brief)
    assert saved == [1, 2, 3, 4]

    def weights(name):
        return weights_digest(AutoModelForCausalLM.from_pretrained(f".clew/trainings/{name}/checkpoint"))

    assert weights("whole") == weights("parts") != weights_digest(AutoModelForCausalLM.from_pretrained(tiny))


def test_adapters_go_out_and_in(clew, tiny):
    import peft  # here, since it takes seconds of every process that collects this file

    done = train(clew, "--lora", 2, "--lora-alpha", 4, "--lora-targets", "q_proj,v_proj", "--lr", 0.01, name="first")
    assert "lora_targets q_proj,v_proj" in done.stderr
    adapter = Path(".clew/trainings/first/checkpoint/adapter")
    loaded = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny), adapter)
    config = loaded.peft_config["default"]
    assert (config.r, config.lora_alpha, set(config.target_modules)) == (2, 4, {"q_proj", "v_proj"})
    train(clew, "--adapter", adapter, "--lr", 0.01, "--kl", 0.1, name="second")
    told = json.loads(Path(".clew/trainings/second/settings.json").read_text())
    assert told["adapter"] == str(adapter)
    further = Path(".clew/trainings/second/checkpoint/adapter")
    merged = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(tiny), further).merge_and_unload()
    exported = AutoModelForCausalLM.from_pretrained(".clew/trainings/second/checkpoint")
    for (name, a), (_, b) in zip(merged.named_parameters(), exported.named_parameters(), strict=True):
        assert (a - b).abs().max() < 1e-6, name
    clew("eval", ".clew/trainings/second/checkpoint", *WORLD, "--tasks", 2)


def test_metrics_go_where_they_are_sent(clew, tiny):
    pytest.importorskip("tensorboard")
    train(clew, "--track", "jsonl", "--track", "tensorboard", "--track", "jsonl:here/log.jsonl")
    lines = Path(".clew/trainings/t/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
    assert len(Path("here/log.jsonl").read_text().splitlines()) == 2
    assert list(Path(".clew/trainings/t/tensorboard").iterdir())


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--recipe", "ppo"), "no recipe is called 'ppo'"),
        (("--recipe", "dpo"), "clew tune RUNS --recipe dpo"),
        (("--lr", "0"), "above 0"),
        (("--lr", "-1"), "above 0"),
        (("--lr", "nan"), "above 0"),
        (("--warmup", 2), "a warm-up of 2 iterations does not fit into a training of 2"),
        (("--schedule", "step"), "'constant', 'linear', 'cosine'"),
        (("--clip", "0.1,0.2,0.3"), "is not one number or two"),
        (("--clip", "2,0.2"), "LOW at most 1"),
        (("--ratio", "sequence"), "Take the loss pg-sequence"),
        (("--loss", "nll"), "no losse? is called 'nll'"),
        (("--lora", 2, "--adapter", "x"), "--adapter and --lora contradict each other"),
        (("--lora-alpha", 2), "--lora-alpha without --lora sets nothing"),
        (("--adapter", "nowhere"), "nowhere holds no adapter"),
        (("--credit", "grpo(mode='mean')", "--normalise", "std"), "contradict each other"),
        (("--credit", "tree", "--normalise", "std"), "no normalisation to choose"),
        (("--betas", "0.9,1"), "from 0 to below 1"),
        (("--track", "mlflow"), "is not a tracker"),
        (("--epochs", 0), "at least 1"),
        (("--lora", 2, "--lora-targets", "nothing"), "nothing"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_a_sentence_with_a_remedy(clew, tiny, more, told):
    done = train(clew, *more, code=2)
    assert re.search(told, " ".join(done.output.split())), done.output
    assert "Traceback" not in done.output


def test_a_rate_that_does_not_suit_is_warned_of(clew, tiny):
    done = train(clew, "--lr", 0.1, brief=("--iterations", 1, "--tasks", 1, "-n", 2))
    assert re.search(r"warning: lr 0.1 is large for a model of [\d,]+ weights .* 7e-05 to 7e-03 is usual", done.stderr)


def test_runs_of_the_store_are_imitated(clew, tiny):
    train(clew, "--eval-every", 0)
    done = clew(
        "tune", "name=t/* return>0.5", "--recipe", "sft", "--name", "s", "--model", "tiny", "--weight-by", "run"
    )
    assert "weights" in done.stdout
    offline = json.loads(Path(".clew/trainings/s/offline.json").read_text())
    assert offline["settings"]["weight_by"] == "run"
    assert offline["settings"]["lr"] == 7e-4
