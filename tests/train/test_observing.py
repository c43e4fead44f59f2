"""Models of worlds from stored runs: what is read of runs, the rows, and measures that catch what they must."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest

from clew.core.errors import BadInput, ModelError
from clew.core.registry import register
from clew.core.values import Completion, Message, ToolCall
from clew.exchange import import_file
from clew.harness import Runner
from clew.methods.world_model.model_folder import ModelCard
from clew.methods.world_model.observing.closed_loop import NO_ANSWER as GONE
from clew.methods.world_model.observing.closed_loop import demonstrated, drift, real_episodes
from clew.methods.world_model.observing.episodes import episodes_of, held_out, with_states
from clew.methods.world_model.observing.observation_rows import observation_rows, vocabulary_of
from clew.methods.world_model.observing.open_loop import NO_ANSWER, by_content, failures, outcomes, request_of
from clew.methods.world_model.prompting import conversation, reply_text, turn_text
from clew.methods.world_model.simulated import Simulated
from clew.models.rendering import WordRenderer
from clew.store import open_store
from clew.worlds.finder import Finder
from clew.worlds.records_api import Records
from clew.worlds.shell import Shell
from clew.worlds.toys import Counter, Notepad, Shop

for name, maker in {"shell": Shell, "records": Records, "finder": Finder, "shop": Shop, "counter": Counter}.items():
    register("tasksets", name, maker)
register("tasksets", "simulated", Simulated)
register("tasksets", "notepad", Notepad)


@pytest.fixture(scope="module")
def runs():
    runner = Runner("clew.harness.agents:demonstrator", Shell(), None, config={"world": "shell", "noise": 0.5})
    return runner.collect(Shell().sample(12), n=1).runs


@pytest.fixture(scope="module")
def episodes(runs):
    return list(episodes_of(runs).episodes)


class Knowing:
    """A model that knows what the real world answers, and does with the reply what it is told to do."""

    ref, version, renderer = "knowing", 0, None

    def __init__(self, episodes, card, change=lambda reply, turn: reply):
        self.known, self.change = {}, change
        for one in episodes:
            asked = [one.system(card)]
            for i, turn in enumerate(one.turns):
                asked.append(turn_text(turn.action))
                self.known[tuple(asked)] = (reply_text(turn.observation, turn.state, turn.done), i)

    async def complete(self, request):
        said = tuple(node.message.text for node in request.path if node.message.role in ("system", "user"))
        reply, turn = self.known[said]
        return Completion(Message("assistant", self.change(reply, turn)))


# -- reading runs


def test_runs_that_cannot_serve_are_named(runs):
    async def one_step(run):
        await run.act("exit")

    async def none(run):
        run.note("nothing")

    short = Runner(one_step, Shell(), None).collect(Shell().sample(2), n=1).runs
    idle = Runner(none, Shell(), None).collect(Shell().sample(1), n=1).runs
    read = episodes_of([*runs, *short, *idle, runs[0]])
    assert len(read.episodes) == len(runs)
    assert read.reasons() == {"fewer than 2 turns": 2, "no observations": 1, "the same turns as another run": 1}
    assert episodes_of([]).episodes == ()


def test_an_episode_is_what_the_world_showed(runs, episodes):
    for run, one in zip(runs, episodes, strict=True):
        acts = [call for call in run.calls if call.kind == "act"]
        assert [turn.observation for turn in one.turns] == [call.text for call in acts]
        assert one.first == run.calls[0].text
        assert one.prompt == Shell().find(run.task_id).prompt
        assert one.turns[-1].done
        assert not any(turn.done for turn in one.turns[:-1])


def test_a_call_of_an_undeclared_tool_is_told_and_not_learnt():
    async def acts(run):
        await run.act(ToolCall("1", "basket", "{}"))
        await run.act(ToolCall("2", "steal", "{}"))
        await run.act(ToolCall("3", "leave", "{}"))

    read = episodes_of(Runner(acts, Shop(), None).collect(Shop().sample(1), n=1).runs)
    (one,) = read.episodes
    assert read.foreign == 1
    assert one.learnt == (True, False, True)
    renderer = WordRenderer(vocabulary_of([one]))
    rows, counts = observation_rows([one], renderer, ModelCard(window=1), "all")
    assert [row.run for row in rows] == [f"{one.run}/0", f"{one.run}/1"]
    assert sum(counts.kept.values()) == 2


def test_of_an_imported_run_the_answers_of_its_tools_are_the_observations(tmp_path):
    asked = [{"id": f"c{i}", "function": {"name": "order", "arguments": f'{{"number": "A{i}"}}'}} for i in range(2)]
    said = [{"role": "user", "content": "Where are A0 and A1?"}]
    for one, state in zip(asked, ("packed", "sent"), strict=True):
        said.append({"role": "assistant", "content": "", "tool_calls": [{"type": "function", **one}]})
        said.append({"role": "tool", "tool_call_id": one["id"], "content": state})
    path = tmp_path / "runs.jsonl"
    path.write_text(json.dumps({"messages": [*said, {"role": "assistant", "content": "On their way."}]}))
    store = open_store(tmp_path / "s.db")
    import_file(store, path)
    (one,) = episodes_of(store.runs()).episodes
    store.close()
    assert [turn.observation for turn in one.turns] == ["packed", "sent"]
    assert (one.prompt, one.first, one.world) == ("Where are A0 and A1?", "", "")
    rows, _ = observation_rows([one], WordRenderer(vocabulary_of([one])), ModelCard(), "all")
    assert len(rows) == 1


def test_all_runs_of_a_task_are_held_out_together(episodes):
    learnt, held = held_out(episodes * 2, 0.25, seed=3)
    assert {one.task for one in learnt}.isdisjoint({one.task for one in held})
    assert len(held) == 6
    assert held_out(episodes, 0.25, seed=3)[1] == held_out(episodes[::-1], 0.25, seed=3)[1][::-1]
    assert held_out(episodes, 0.0)[1] == []


def test_states_come_from_the_world_itself(episodes):
    made = with_states(episodes[0])
    assert [turn.observation for turn in made.turns] == [turn.observation for turn in episodes[0].turns]
    assert all(" ; in /" in turn.state for turn in made.turns)
    other = episodes[0].turns[0]._replace(observation="something else")
    assert with_states(replace(episodes[0], turns=(other, *episodes[0].turns[1:]))) is None
    assert with_states(replace(episodes[0], world="no-such-world")) is None


# -- rows


@pytest.mark.parametrize("window", [0, 2])
def test_a_model_is_asked_in_the_form_in_which_it_is_fitted(episodes, window):
    card = ModelCard(window=window)
    renderer = WordRenderer(vocabulary_of(episodes))
    model = type("Asked", (), {"renderer": renderer})()
    for one in episodes:
        rows, _ = observation_rows([one], renderer, card, "all")
        for i, turn in enumerate(one.turns):
            past = one.turns[max(0, i - window) if window else 0 : i]
            asked = request_of(model, conversation(one.system(card), past, turn.action), None)
            said = renderer.encode(reply_text(turn.observation, turn.state, turn.done))
            prompt = [token for node in asked.path for token in node.ids] + list(asked.head)
            row = rows[i] if window else rows[0]
            assert row.ids[: len(prompt) + len(said)].tolist() == [*prompt, *said]
            weight = row.weights["sft"]
            assert weight[len(prompt) : len(prompt) + len(said) + 1].tolist() == [1.0] * (len(said) + 1)
            if window:
                assert weight.sum() == len(said) + 1


def test_masked_answers_stay_in_the_context(episodes):
    renderer = WordRenderer(vocabulary_of(episodes))
    every, _ = observation_rows(episodes, renderer, ModelCard(), "all")
    some, counts = observation_rows(episodes, renderer, ModelCard(), "turn", seed=1)
    kept = {row.run: row for row in some}
    for row in every:
        if row.run in kept:
            assert np.array_equal(row.ids, kept[row.run].ids)
            assert (kept[row.run].weights["sft"] <= row.weights["sft"]).all()
    assert counts.weighing < counts.tokens
    assert counts.kept["echo"] < counts.turns["echo"]
    assert counts.kept["retrieval"] == counts.turns["retrieval"] > 0
    light, _ = observation_rows(episodes, renderer, ModelCard(), "weight")
    assert {round(float(w), 2) for row in light for w in row.weights["sft"]} >= {0.0, 0.05, 1.0}


def test_rows_that_do_not_fit_and_words_that_are_too_many_are_refused(episodes):
    renderer = WordRenderer(vocabulary_of(episodes))
    with pytest.raises(BadInput, match="the model reads 40") as error:
        observation_rows(episodes, renderer, ModelCard(), "all", context=40)
    assert "--window" in str(error.value.remedy)
    with pytest.raises(BadInput, match="different words"):
        vocabulary_of(episodes, most=10)
    with pytest.raises(BadInput, match="no observation is left"):
        observation_rows([], renderer, ModelCard())


# -- measures


def test_a_model_that_knows_the_world_is_found_faithful(episodes):
    card = ModelCard()
    found = asyncio.run(outcomes(Knowing(episodes, card), episodes, card))
    assert len(found) == sum(len(one.turns) for one in episodes)
    assert all(one.exact and one.form and one.words == 1 for one in found)
    assert failures(found) == {}
    assert sum(one.copied for one in found) < 0.8 * len(found), "the world is not its own echo"


def test_each_failure_has_its_name_and_counts_as_wrong(episodes):
    card = ModelCard()

    def fail(reply, turn):
        if turn == 0:
            raise ModelError("gone")
        return "Operation completed successfully." if turn == 1 else reply

    found = asyncio.run(outcomes(Knowing(episodes, card, fail), episodes, card))
    assert failures(found) == {"ModelError": len(episodes), NO_ANSWER: len(episodes)}
    assert [one.exact for one in found] == [one.turn > 1 for one in found]


def test_a_model_is_told_its_own_account_of_the_state_and_never_the_truth(episodes):
    """A played episode holds the world's accounts; told in the past, they were half of the next answer."""
    card, true = ModelCard(), [with_states(one) for one in episodes[:4]]
    heard = []

    class Accounting(Knowing):
        async def complete(self, request):
            heard.extend(node.message.text for node in request.path if node.message.role == "assistant")
            return await super().complete(request)

    silent = Accounting(true, card, lambda reply, turn: reply.rpartition("</state>\n")[2])
    assert all(one.exact for one in asyncio.run(outcomes(silent, true, card)))
    assert heard
    assert not any("<state>" in text for text in heard)
    heard.clear()
    own = Accounting(true, card, lambda r, turn: f"<state>\nmine {turn}\n</state>\n" + r.rpartition("</state>\n")[2])
    assert all(one.exact for one in asyncio.run(outcomes(own, true, card)))
    assert heard
    assert all(text.startswith("<state>\nmine ") for text in heard)


def test_what_is_said_of_the_end_counts(episodes):
    card = ModelCard()
    found = asyncio.run(
        outcomes(Knowing(episodes, card, lambda r, t: r.replace("\n<episode_over>", "")), episodes, card)
    )
    assert sum(not one.exact for one in found) == len(episodes)


def test_ids_that_a_service_makes_up_are_a_class_of_their_own():
    real = Records(faults=0.0)
    tasks = [task for task in real.sample(30) if "Create" in task.prompt]
    plans = {task.id: ['POST /items {"name": "zed", "colour": "red", "count": 1}', "done"] for task in tasks}
    told, card = real_episodes(real, tasks, plans), ModelCard()
    guess = Knowing(told, card, lambda reply, turn: reply.replace('"id": "it_', '"id": "it_9'))
    parts = by_content(asyncio.run(outcomes(guess, told, card)))
    assert set(parts) == {"all", "determined", "runtime"}
    assert not any(one.exact for one in parts["runtime"])
    assert all(one.form for one in parts["runtime"]), "the form of the id is right"


def folder_of(tmp_path, world):
    ModelCard(world=world).write(tmp_path)
    return Simulated(folder=str(tmp_path), world=world, tries=1)


@pytest.mark.parametrize("real", [Shell(), Finder(rows=20, tables=3)], ids=repr)
def test_a_model_that_knows_the_world_never_leaves_its_way(tmp_path, real):
    tasks = real.sample(6, split="test")
    plans = demonstrated(real, tasks, noise=0.4)
    told, simulated = real_episodes(real, tasks, plans), folder_of(tmp_path, real.ref)
    left = drift(simulated, real, tasks, plans, Knowing(told, simulated.card))
    assert (left.half_life, left.failed) == (None, {})
    assert left.surviving(left.turns)[0] == left.surviving(left.turns)[1] > 0


def test_an_error_is_carried_along_and_a_lost_answer_is_a_failure(tmp_path):
    real = Shell()
    tasks = real.sample(8)
    plans = {task.id: ["pwd", "ls /", "touch /x", "ls /", "exit"] for task in tasks}
    told, simulated = real_episodes(real, tasks, plans), folder_of(tmp_path, "shell")

    class Wandering(Knowing):
        """It answers wrongly in turn 2, and goes on from what it said itself."""

        async def complete(self, request):
            said = [node.message.text for node in request.path if node.message.role in ("system", "user")]
            reply, turn = self.known[tuple(said)]
            return Completion(Message("assistant", reply_text("wrong") if turn == 2 else reply))

    left = drift(simulated, real, tasks, plans, Wandering(told, simulated.card))
    assert [left.surviving(turn) for turn in (1, 2, 3, 5)] == [(8, 8), (8, 8), (0, 8), (0, 8)]
    assert left.half_life == 3
    silent = Knowing(told, simulated.card, lambda reply, turn: reply if turn < 1 else "nothing is marked here")
    lost = drift(folder_of(tmp_path, "shell"), real, tasks, plans, silent)
    assert lost.failed == {GONE: 8}
    assert lost.half_life == 2


def test_worlds_that_cannot_be_played_are_refused(tmp_path):
    with pytest.raises(BadInput, match="demonstrates nothing"):
        demonstrated(Counter(), Counter().sample(1))
    pad = Notepad(str(tmp_path / "n.txt"))
    with pytest.raises(BadInput, match="cannot be undone"):
        real_episodes(pad, pad.sample(1), {pad.sample(1)[0].id: ["a"]})
    assert not (tmp_path / "n.txt").exists()
