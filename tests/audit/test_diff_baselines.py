"""What a feature is held against: the weight difference, the words of prompts, and a base that is told to do it."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="did not run: torch is not installed")

import torch

from clew.core.records import Cursor
from clew.core.values import Message, Task
from clew.fit import adapters
from clew.harness import Runner
from clew.harness.fork.continuations import Continuations, Start
from clew.harness.run.nodes import make_node
from clew.methods.early.outcome import Shown
from clew.methods.features import directions, without_features
from clew.methods.features.diff_verdict import Finding, Tried
from clew.methods.features.steering import Cell, Direction, Effect, Trial
from clew.methods.features.subjects import Prompt
from clew.methods.why.rewind import Behaviour
from clew.models.fakes import Scripted
from clew.models.local import small


def test_the_weight_difference_gives_the_direction_that_a_child_writes():
    base, child = (small(["a", "b"], d=16, heads=2, layers=3, seed=1) for _ in range(2))
    assert directions.change(child.module, base.module, 1, 16).changed == 0
    torch.manual_seed(0)
    planted = torch.nn.functional.normalize(torch.randn(16), dim=0)
    with torch.no_grad():
        child.module.model.layers[1].mlp.down_proj.weight += torch.outer(planted, torch.randn(48))
        child.module.model.layers[0].self_attn.q_proj.weight += 1.0  # writes into no state
        child.module.model.layers[2].mlp.down_proj.weight += 1.0  # behind the layer
    found = directions.change(child.module, base.module, 1, 16)
    assert (found.changed, found.compared, len(found.directions)) == (1, 4, 1)
    assert found.shares[0] == pytest.approx(1.0, abs=1e-4)
    assert abs(float(found.directions[0] @ planted)) > 0.999
    for model in (base, child):
        model.close()


def test_the_weight_difference_of_an_adapter_is_what_the_adapter_adds():
    base, child = (small(["a", "b"], d=16, heads=2, layers=3, seed=1) for _ in range(2))
    adapters.attach(child.module, {"r": 1, "target_modules": ["o_proj"]})
    before = child.module.model.layers[0].self_attn.o_proj
    torch.manual_seed(0)
    with torch.no_grad():
        before.lora_B["default"].weight.copy_(torch.randn(16, 1))
    found = directions.change(child.module, base.module, 0, 16)
    assert (found.changed, len(found.directions)) == (1, 1)
    wrote = before.lora_B["default"].weight.detach().flatten()
    assert abs(float(torch.cosine_similarity(found.directions[0], wrote, dim=0))) > 0.999
    assert child.module.model.layers[0].self_attn.o_proj is before
    for model in (base, child):
        model.close()


class Answers:
    """A subject whose outcomes are given: A by a word of the prompt, B never, B told so always."""

    single = True

    def __init__(self, told: bool = False) -> None:
        words = ("north", "south")
        self.told, self.models = told, {}
        self.prompts = [
            Prompt((make_node(None, Message("user", f"go {words[i % 2]} {i}"), None, ""),), (), Cursor("r", i))
            for i in range(80)
        ]

    def outcomes(self, who, stage, which, taps=()):
        shown = [self.told if who == "B" else i % 2 == 0 for i in which]
        return np.array(shown, np.float32)


def test_words_of_the_prompt_and_a_told_base_are_held_against_a_feature():
    pytest.importorskip("sklearn", reason="did not run: scikit-learn is not installed")
    found, subject, which = Finding("a call"), Answers(), np.arange(80)
    without_features.by_words(found, subject, which, subject.outcomes("A", "first", which))
    (line,) = found.lines
    assert line.report.low > 0.9
    without_features.by_words(found, subject, which, np.ones(80, np.float32))
    assert len(found.lines) == 1
    assert "is not known: 80 prompts show the outcome" in found.caveats[-1]

    test = np.arange(1, 80, 2)
    trial = Trial(subject, 0, "raise", test - 1, test)
    clean, arm = np.zeros(40, np.float32), (np.arange(40) < 20).astype(np.float32)
    cell = Cell(Direction("feature 1", torch.ones(2)), 1.0, Effect("f", arm, clean))
    found = Finding("a call", tried={"shared": Tried("shared", cell, cell.effect)})
    without_features.told_so(found, trial, Answers(told=True))
    by_name = {line.about: line.report.estimate for line in found.lines}
    assert by_name == {
        "rate of B told so": 1.0, "B told so, less B": 1.0, "A with feature 1, less B told so": -0.5
    }  # fmt: skip
    assert "it had the ability" in found.caveats[-1]
    again = Finding("a call")
    without_features.told_so(again, trial, Answers())
    assert [line.report.estimate for line in again.lines] == [0.0, 0.0]
    assert not again.caveats


def test_a_told_prompt_keeps_the_tokens_behind_its_first_message():
    renderer = small(["go", "north", "please"], d=16, heads=2, layers=2).renderer
    first = make_node(
        None, Message("user", "go north"), renderer.delta(None, True, Message("user", "go north"), ()), "w"
    )
    said = make_node(first, Message("assistant", "north"), (1, 2, 3), "w")
    plain = Prompt((first, said), (9,), Cursor("r", 0))
    told = plain.told("please", renderer)
    assert [node.message.role for node in told.path] == ["system", "user", "assistant"]
    assert told.path[0].message.text == "please"
    assert told.path[-1].ids == (1, 2, 3)
    assert told.ids[-4:] == [1, 2, 3, 9]
    assert told.path[1].parent == told.path[0].key
    twice = told.told("north", renderer)
    assert [node.message.text for node in twice.path] == ["please\n\nnorth", "go north", "north"]
    assert twice.at == plain.at


@pytest.mark.parametrize("system", ["", "Be brief."])
def test_continuations_are_told_a_sentence_in_the_system_message(system):
    def answer(request):
        first, *others = (node.message for node in request.path)
        told = first.role == "system" and first.text.removeprefix(system).strip() == "Say yes."
        return "yes" if told and others[0].text == "go" else "no"

    async def asker(run):
        chat = run.chat()
        if system:
            chat.say("system", system)
        await chat.ask(run.task.prompt)

    runner = Runner(asker, None, Scripted({"": answer}))
    run = runner.collect([Task("t", "go")], 1).runs[0]
    start, yes = Start(run.id, 0), Shown(Behaviour("yes"))
    plain, told = (Continuations(runner, outcome=yes, told=text) for text in ("", "Say yes."))
    assert plain.params != told.params
    assert plain.sample("s", [start], 2)[start].outcomes.tolist() == [0, 0]
    made = told.sample("s", [start], 2)[start]
    assert made.outcomes.tolist() == [1, 1]
    again = told.promote(start, int(made.seeds[0]))
    assert [again.reply(c.seq).message.text for c in again.calls if c.kind == "ask"] == ["yes"]
    assert again.conversation(0)[0].message.text == f"{system}\n\nSay yes.".strip()
