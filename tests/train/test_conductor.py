"""Plans trained by their rewards: the leading model's replies alone give rows, and they may be held to a grammar."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="did not run: torch is not installed (pip install 'clew[local]')")
pytest.importorskip("llguidance", reason="did not run: llguidance is not installed (pip install 'clew[local]')")

import torch
import transformers

import clew.credit
from clew.core.errors import AgentFailed, BadInput
from clew.core.values import Task
from clew.fit.forbidden import forbidden
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.harness.workflow import Part, parse, written
from clew.harness.workflow.plan_demonstrations import demonstrations
from clew.harness.workflow.plan_grammar import MOST, plan_grammar
from clew.harness.workflow.plan_reward import Planned, plan_reward
from clew.harness.workflow.subsets import some
from clew.models.fakes import Scripted
from clew.models.local import Local, small
from clew.models.rendering import ChatTemplateRenderer
from clew.train.dump import dump, load
from clew.train.loop import Plan, Training
from clew.train.rows import reference, rows, sft_rows
from clew.worlds.sums import Sums
from tests.engine.test_rendering import PLAIN, tokenizer

ONE = written([Part(0, "Add them up.")])


@pytest.fixture(scope="module")
def lead():
    """An untrained model of bytes with room for the instructions."""
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=262, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, max_position_embeddings=2048,
    )  # fmt: skip
    module = transformers.Qwen3ForCausalLM(config)
    made = Local(module, renderer=ChatTemplateRenderer(tokenizer(PLAIN)), ref="lead", steady=True)
    yield made
    made.close()


class Halves(Sums):
    """Rewards every second run, whatever it answers."""

    async def judge(self, task, run, world):
        return {"reward": float(run.row.order[-1] % 2)}


def collected(lead, workers, n=2, world=None, **config):
    config = {"workers": list(workers), "parts": 1, "strict": True, "grammar": True, **config}
    runner = Runner(
        "orchestrator", world or Halves(), lead, config=config, resolve_model=workers.__getitem__,
        sampling={"max_tokens": 200},
    )  # fmt: skip
    return runner, runner.collect(runner.taskset.sample(1), n=n)


def test_only_the_leading_model_gives_rows_whoever_works(lead):
    """Workers: one without token ids, one of another tokenizer, and the same weights under the same name."""
    words = small(["add", "1"], d=8, layers=1, heads=2, kv_heads=1, context=2048, ref="words")
    for worker in (Scripted({"": "12"}), words, lead):
        _, groups = collected(lead, {"a": worker}, n=4)
        credit = clew.credit.grpo(groups)
        made = rows(groups, credit)
        leads = {(run.id, run.calls[1].seq) for run in groups.runs}
        assert {cursor[:2] for row in made for _, cursor in row.source} == leads
        asked = {(c.run, c.seq) for run in groups.runs for c in run.calls if c.kind == "ask"}
        assert asked > leads, "a worker was asked"
        assert {(a.run, a.seq) for a in credit.annotations()} > leads, "and its asks have a value"
        assert all("You lead other models" in lead.renderer.parse(row.ids.tolist()).text for row in made)
    imitated = sft_rows([groups], observation_weight=0.0)
    assert len(imitated) == len(leads), "what workers said is not imitated either"
    words.close()


def test_a_model_that_several_policies_name_is_taken_by_its_name(lead):
    _, groups = collected(lead, {"a": lead}, n=4)
    every = {(c.run, c.seq): 1.0 for run in groups.runs for c in run.calls if c.kind == "ask"}
    assert len(rows(groups, every, model="lead")) > len(rows(groups, every)) == 4
    assert rows(groups, every, model="other") == []


def test_the_trainer_scores_the_law_that_the_grammar_left(lead, tmp_path):
    runner, groups = collected(lead, {"a": Scripted({"": "12"}), "b": Scripted({"": "13"})})
    made = rows(groups, clew.credit.grpo(groups))
    assert all(row.held for row in made)
    report = Trainer(lead).step(made)
    assert report.mismatch is not None
    assert report.mismatch < 1e-4
    assert report.ratio["outside"] == 0
    (back, *_) = load(dump(made, tmp_path / "rows.npz"))
    assert back.held == made[0].held
    groups = runner.collect(runner.taskset.sample(1), n=2, seed=1)
    made = rows(groups, clew.credit.grpo(groups))
    with pytest.raises(BadInput, match="sampler and trainer disagree"):  # against the free law every ratio is wrong
        Trainer(lead).step([replace(row, held=[]) for row in made])
    with pytest.raises(BadInput, match="a penalty towards a reference"):
        reference(made, lead)
    with pytest.raises(BadInput, match="cannot say what it forbids"):
        forbidden(made, None)
    other = [replace(made[0], held=[(first, stop, "regex:[ab]+") for first, stop, _ in made[0].held])]
    with pytest.raises(BadInput, match="breaks the grammar"):
        forbidden(other, lead.guide)


def test_a_loss_that_reads_entropies_is_finite_under_a_grammar(lead):
    _, groups = collected(lead, {"a": Scripted({"": "12"})})
    made = rows(groups, clew.credit.grpo(groups), also={"entropy": 0.01})
    assert Trainer(lead).step(made).loss["entropy"] < 0


def test_what_the_grammar_allows_is_a_plan(lead):
    _, groups = collected(lead, {name: Scripted({"": "1"}) for name in "abc"}, n=8)
    said = [run.store.node(run.calls[1].node_out) for run in groups.runs]
    whole = [node for node in said if node.ids[-1] in lead.renderer.stop]
    assert whole
    for node in whole:
        assert parse(node.message.text, 3, 1)
    expression = plan_grammar(3, 3)[6:]
    for plan in ([Part(2, "a b.")], [Part(0, "x"), Part(1, "y?", (0,)), Part(2, "z", (0, 1))]):
        assert re.fullmatch(expression, written(plan))
    for wrong in ([Part(3, "a")], [Part(0, " ")], [Part(0, "a", (0,))], [Part(0, "a")] * 4):
        assert not re.fullmatch(expression, written(wrong))
    assert re.fullmatch(plan_grammar(3, 3, "finished")[6:], "finished")
    with pytest.raises(BadInput, match="plans of 99 parts"):
        plan_grammar(3, MOST + 87)


def test_a_model_that_cannot_be_held_says_so_in_a_sentence():
    words = small(["add"], d=8, layers=1, heads=2, kv_heads=1, context=256, ref="words")
    with pytest.raises(AgentFailed, match="replies of this model cannot be held to a grammar"):
        collected(words, {"a": Scripted({"": "12"})}, n=1)
    words.close()


def judged(*said, world=None, **config):
    """The rewards of one run for each reply of the leading model; the worker answers what it is asked last."""
    turn = iter(said)
    lead = Scripted({"": lambda request: next(turn)})
    right = {"a": Scripted({"": lambda request: str(sum(map(int, re.findall(r"\d+", request.path[-1].message.text))))})}
    config = {"strict": True, "grammar": False, **config}
    runner, groups = collected(lead, right, n=1, world=world or Planned(Answers()), **config)
    return runner, groups.runs[0]


class Answers(Sums):
    """The answer is the number alone."""

    def verdict(self, task, last):
        return {"reward": float(last.reply == str(sum(self.terms(task.id))))}


def test_plans_are_rewarded_as_reported():
    _, run = judged(written([Part(0, "Add them up.")]))
    assert run.reward == 1
    said = [run.store.node(call.node_out).message.text for call in run.calls if call.kind == "ask"]
    assert run.calls[-2].action == said[-1], "the answer is the action"
    _, run = judged(written([Part(0, "Add them up, and 5.")]))
    assert run.reward == 0.5
    _, run = judged("I would add them up.")
    assert run.reward == 0
    assert [call.kind for call in run.calls if call.kind == "ask"] == ["ask"], "nobody answers in its place"
    _, run = judged("I would add them up.", ONE, strict=False)
    assert run.reward == 0, "a second try does not count"
    runner, run = judged("no", "nor this", strict=False)
    assert run.reward == 0, "nor the answer of a worker without a plan"
    parts = {a.method: a.value for a in run.annotations(target="run")}
    assert parts == {"reward": 0, "answer": 1}
    assert runner.replay(run).calls == len(run.calls)
    assert plan_reward(SimpleNamespace(calls=()), 1.0) == 0
    assert repr(Planned("sums(high=4)")) == "planned(world='sums(high=4)')"


def test_a_part_of_the_pool_is_drawn_for_each_task_recorded_and_replayed():
    lead = Scripted({"": ONE})
    workers = {name: Scripted({"": name}) for name in "abcdef"}
    config = {"workers": list(workers), "subset": True}
    runner = Runner("orchestrator", None, lead, config=config, resolve_model=workers.__getitem__)
    told = dict[str, set[str]]()
    groups = runner.collect([Task(f"t{i}", "What is it?") for i in range(12)], n=3)
    for run in groups.runs:
        assert [call.kind for call in run.calls].count("draw") == 1
        system = run.conversation()[0].message.text
        told.setdefault(run.task_id, set()).add(system.partition("number:\n")[2].partition("\nFor")[0])
        asked = [call.setup.model for call in run.calls if call.kind == "ask"][1:]
        assert asked
        assert runner.replay(run).calls == len(run.calls)
    assert all(len(found) == 1 for found in told.values()), "runs that are compared have the same workers"
    sizes = {min(found).count("\n") + 1 for found in told.values()}
    assert len(sizes) > 2
    assert all(min(found).startswith("0: ") for found in told.values())
    again = runner.collect([Task(f"t{i}", "What is it?") for i in range(12)], n=1)
    assert {run.conversation()[0].key for run in again.runs} <= {run.conversation()[0].key for run in groups.runs}


def test_parts_of_a_pool_hold_two_or_more_and_half_are_the_whole():
    drawn = Counter(len(some("abcde", i / 1000)) for i in range(1000))
    assert set(drawn) == {2, 3, 4, 5}
    assert 400 < drawn[5] < 600
    assert some(["a", "b"], 0.9) == ["a", "b"]
    kept = some({"a": "x", "b": "y", "c": "z"}, next(i / 100 for i in range(100) if len(some("abc", i / 100)) == 2))
    assert kept.items() < {"a": "x", "b": "y", "c": "z"}.items()


def test_demonstrations_are_valid_plans_that_prefer_nobody():
    shown = demonstrations(600, ["a", "b", "c"], parts=4)
    plans = [parse(said[0].text, 3, 4) for _, said in shown]
    named = Counter(part.worker for plan in plans for part in plan)
    assert min(named.values()) > 0.8 * max(named.values())
    assert {len(plan) for plan in plans} == {1, 2, 3, 4}
    assert all("0: a\n1: b\n2: c" in asked[0].text for asked, _ in shown)
    assert shown == demonstrations(600, ["a", "b", "c"], parts=4)
    assert shown != demonstrations(600, ["a", "b", "c"], parts=4, seed=1)
    (asked, said) = demonstrations(1, {"x": "ref", "y": "ref2"}, questions=["Why?"])[0]
    assert asked[1].text == "Why?"
    assert parse(said[0].text, 2, 5)
    parts = {asked[0].text.count("\n0: ") for asked, _ in demonstrations(9, list("abcdef"), subset=True)}
    assert parts == {1}
    for wrong, told in (({"workers": []}, "no workers"), ({"workers": ["a"], "parts": 0}, "without parts")):
        with pytest.raises(BadInput, match=told):
            demonstrations(1, **wrong)


def test_a_training_of_plans_steps_on_the_leading_model_alone(lead):
    workers = {"a": Scripted({"": "12"}), "b": lead}
    config = {"workers": list(workers), "parts": 1, "strict": True, "grammar": True}
    world = Planned(Halves())
    runner = Runner(
        "orchestrator", world, lead, config=config, resolve_model=workers.__getitem__, sampling={"max_tokens": 200}
    )
    work = Training(runner, Trainer(lead), clew.credit.grpo, Plan(name="t", iterations=1, tasks=1, rollouts=4))
    (done,) = work.run()
    assert done.step is not None
    assert done.step.rows == 4
    assert done.step.mismatch < 1e-4
    assert {a.method for run in done.groups.runs for a in run.annotations(target="run")} >= {"reward", "answer"}
    assert json.loads(done.groups.runs[0].row.config)["grammar"]
