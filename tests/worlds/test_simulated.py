"""A world that a model makes up: it keeps the contract, its record is whole, and code keeps it to what was wished."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from clew.core.errors import BadInput, ContextOverflow, ReplayError, Undecided, WorldError
from clew.core.protocols import Taskset
from clew.core.records import Request
from clew.core.registry import build, register
from clew.core.values import Completion, Message, Observation, StopReason, Task, ToolCall, Usage
from clew.exchange import export
from clew.harness import Runner
from clew.harness.agents import player
from clew.methods.world_model import Simulated
from clew.methods.world_model.prompting import reply_text
from clew.methods.world_model.run_check import check
from clew.methods.world_model.simulated import LIVE_RUNS
from clew.methods.world_model.simulated_world import SimulatedWorld
from clew.models.fakes import Scripted, tool_call
from clew.store.run import Run
from clew.worlds.contract import as_run, check_taskset
from clew.worlds.desk import Desk
from clew.worlds.toys import Counter
from clew.worlds.world_asks import Asks
from tests.worlds.simulators import Shadow

MOVES = ["up", "up", "down", "up", "up", "stop"]


@pytest.fixture(autouse=True)
def registered():
    register("tasksets", "simulated", Simulated)


class Answered(Simulated):
    """A simulated world with a model at hand, so that it can be opened alone."""

    model: Shadow

    def open(self, task: Task, asks: Asks | None = None) -> SimulatedWorld:
        return super().open(task, asks or Asks(self.model.answer))


def shadow_of(real: Taskset, wrong: float = 0.0) -> Shadow:
    tasks = [task for split in ("train", "eval", "test") for task in real.sample(6, split=split)]
    return Shadow(real, tasks, wrong)


@pytest.mark.parametrize("how", [{}, {"kept": False, "echo": 2, "window": 4}, {"instruction": {"fail_rate": 0.4}}])
def test_the_contract_of_worlds_holds_for_one_with_words(how):
    class Words(Answered):
        model = shadow_of(Counter())

    register("tasksets", "simulated", Words)
    if how.get("window"):  # the shadow needs every action
        how = how | {"window": 60}
    done = check_taskset(Words(world="counter", **how), acts=lambda task: MOVES)
    assert {"check_snapshots", "check_keys", "check_end", "check_secret", "check_judge"} <= set(done)


def test_the_contract_of_worlds_holds_for_one_with_tools():
    class Desks(Answered):
        model = shadow_of(Desk())

    register("tasksets", "simulated", Desks)
    done = check_taskset(Desks(world="desk"), acts=lambda task: Desk().demonstrate(task), n=2)
    assert {"check_snapshots", "check_rewards", "check_judge"} <= set(done)


def runner(taskset: Taskset, model: object, replies: list[str] = MOVES, **how: object) -> Runner:
    return Runner(player, taskset, Scripted(replies), resolve_model=lambda ref: model, **how)


@pytest.fixture
def shadow() -> Shadow:
    return shadow_of(Counter(3, 3))


def test_a_run_is_judged_by_the_real_world_and_replayed_without_its_model(shadow):
    taskset = Simulated(world="counter(low=3, high=3)", model="shadow")
    made = runner(taskset, shadow)
    group = made.collect(taskset.sample(1), n=2)
    run, twin = group.runs
    assert (run.stop, run.reward) == (StopReason.DONE, 1.0)
    assert {a.value for a in run.annotations("fidelity")} == {1.0}
    asked = shadow.calls
    assert asked == len(MOVES), "the second run has its answers from the cache"
    assert [c.text for c in run.calls if c.kind == "act"] == [c.text for c in twin.calls if c.kind == "act"]
    assert sorted([run.cost, twin.cost]) == pytest.approx([0.0, 0.06])
    for one in (run, twin):
        made.replay(one)
        assert made.judge([one])[0].value == 1.0
    assert shadow.calls == asked
    assert made.store.verify() == []


@pytest.mark.parametrize("which", [0, 1])
def test_a_fork_stands_at_any_step_and_another_process_restores_it_without_the_cache(shadow, which):
    taskset = Simulated(world="counter(low=3, high=3)", model="shadow")
    made = runner(taskset, shadow)
    run = made.collect(taskset.sample(1), n=2).runs[which]
    made.taskset = build("tasksets", taskset.ref)
    for step in (1, 3, 5):
        before = shadow.calls
        fork = made.fork(run, at=run.at(step=step), seed="same")[0]
        assert fork.reward == 1.0
        assert shadow.calls - before <= len(MOVES) - step
    assert made.store.verify() == []


def test_a_world_that_is_wrong_has_low_fidelity_and_stops_what_relies_on_it():
    wrong = shadow_of(Counter(3, 3), wrong=0.7)
    taskset = Simulated(world="counter(low=3, high=3)", model="shadow", bound=0.9, steps=len(MOVES))
    made = runner(taskset, wrong)
    with pytest.raises(BadInput, match="agrees with the real one in 0"):
        made.collect(taskset.sample(1), n=20)
    assert taskset.monitor is not None
    assert taskset.monitor.n < 20


def judged_and_begun(bound: float) -> tuple[list[Run], list[Run], str]:
    """Of 60 runs in a world that is wrong: those with a verdict of fidelity, those that were begun, and the error."""
    taskset = Simulated(world="counter(low=3, high=3)", model="shadow", bound=bound, steps=len(MOVES))
    made = runner(taskset, shadow_of(Counter(3, 3), wrong=0.7))
    error = ""
    try:
        made.collect(taskset.sample(1), n=60)
    except BadInput as fallen:
        error = str(fallen)
    assert made.store.verify() == []
    runs = made.store.runs()
    return [run for run in runs if run.annotations("fidelity")], [run for run in runs if run.calls], error


def test_a_bound_that_falls_ends_the_collection_before_its_other_runs_begin():
    judged, begun, error = judged_and_begun(bound=0.9)
    assert "agrees with the real one in 0" in error
    assert 2 <= len(judged) < 20
    assert len(begun) <= len(judged) + 1 + 2 * LIVE_RUNS < 30
    assert all(run.stop is StopReason.DONE and run.reward is not None for run in judged), "what was done is kept"


def test_without_a_bound_or_above_it_all_runs_are_performed():
    judged, begun, error = judged_and_begun(bound=0.0)
    assert (len(judged), len(begun), error) == (60, 60, "")
    judged, begun, error = judged_and_begun(bound=0.01)
    assert (len(judged), len(begun), error) == (60, 60, "")


def test_a_real_world_in_which_actions_last_is_not_acted_in_to_judge(shadow):
    taskset = Simulated(world="counter(low=3, high=3, restores='none')", model="shadow")
    made = runner(taskset, shadow)
    run = made.collect(taskset.sample(1), n=1).runs[0]
    assert (run.stop, run.reward) == (StopReason.DONE, None)
    assert "cannot be undone" in "".join(a.data for a in run.annotations("undecided"))


def test_a_run_whose_world_an_edit_changed_is_not_judged_by_another(shadow):
    taskset = Simulated(world="counter(low=3, high=3)", model="shadow")
    made = runner(taskset, shadow)
    run = made.collect(taskset.sample(1), n=1).runs[0]
    snapshot = made.store.blob(next(c for c in run.calls if c.kind == "act").snapshot)
    fork = made.fork(run, at=run.at(step=3), world=snapshot)[0]
    assert fork.stop is not None
    assert fork.reward is None
    with pytest.raises(BadInput, match="changed by an edit"):
        asyncio.run(check(fork))


class Says:
    """A model that says what is told, whatever it is asked."""

    ref, version, renderer = "says", 1, None

    def __init__(self, *replies: str) -> None:
        self.replies, self.asked = list(replies), list[list[Message]]()

    async def complete(self, request: Request) -> Completion:
        self.asked.append([node.message for node in request.path])
        reply = self.replies[min(len(self.asked), len(self.replies)) - 1]
        return Completion(Message("assistant", reply), usage=Usage(1, 1, 0))


@pytest.mark.parametrize("reply", ["count 1", "<think>" + reply_text("count 1"), "", "<predicted_observation>cut"])
def test_an_answer_that_is_none_ends_the_episode_with_a_reason_and_without_a_reward(reply):
    says = Says(reply)
    taskset = Simulated(world="counter", model="says", tries=3)
    run = runner(taskset, says).collect(taskset.sample(1), n=1).runs[0]
    assert (run.stop, run.reward) == (StopReason.WORLD_ERROR, None)
    assert "no answer to 'up' in 3 tries: it has no <predicted_observation> block" in run.calls[-1].error
    assert len(says.asked) == 3
    assert "That is no answer" in says.asked[1][-1].text


def test_a_model_of_the_world_whose_context_is_full_is_a_failure_of_the_world_not_of_the_agent():
    full = Scripted([ContextOverflow("1,030 tokens do not fit")] * 9)
    taskset = Simulated(world="counter", model="full")
    run = runner(taskset, full).collect(taskset.sample(1), n=1).runs[0]
    assert (run.stop, run.reward) == (StopReason.WORLD_ERROR, None)
    assert "its context is full (1,030 tokens do not fit)" in run.calls[-1].error


def test_an_answer_is_asked_for_again_and_the_second_counts():
    says = Says("hm", reply_text("count 1"))
    taskset = Simulated(world="counter", model="says", steps=1)
    made = runner(taskset, says)
    run = made.collect(taskset.sample(1), n=1).runs[0]
    act = next(c for c in run.calls if c.kind == "act")
    assert (act.text, len(act.inner)) == ("count 1", 2)
    made.replay(run)
    assert made.judge([run])
    assert made.store.verify() == []


TOOLS = [
    {"type": "function", "function": {"name": "list_orders", "description": "All orders.",
     "parameters": {"type": "object", "properties": {}}}},
    {"name": "order", "description": "One.", "inputSchema": {"type": "object", "properties": {"id": {"type": "string"}},
     "required": ["id"]}, "outputSchema": {"type": "object", "properties": {"state": {"type": "string"}},
     "required": ["state"]}},
]  # fmt: skip


@pytest.fixture
def service(tmp_path) -> Callable[..., Simulated]:
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    turn = {"id": "c1", "type": "function", "function": {"name": "order", "arguments": '{"id": "A1"}'}}
    said = [{"role": "user", "content": f"Find order A{i}."} for i in range(12)]
    lines = [[one, {"role": "assistant", "tool_calls": [turn]},
              {"role": "tool", "tool_call_id": "c1", "content": '{"state": "sent"}'}] for one in said]  # fmt: skip
    (tmp_path / "demos.jsonl").write_text("\n".join(json.dumps({"messages": line}) for line in lines))
    tools, demos = str(tmp_path / "tools.json"), str(tmp_path / "demos.jsonl")
    return lambda **how: Simulated(model="says", tools=tools, demos=demos, **how)


def acting(taskset: Simulated, says: Says, *calls: ToolCall | str) -> list[Observation]:
    """What the world answers, one after the other."""

    async def answer(messages, model, sampling):
        return (await says.complete(Request(tuple(_Node(m) for m in messages)))).message.text

    world = taskset.open(taskset.sample(1)[0], Asks(answer))

    async def all_of() -> list[Observation]:
        return [await world.step(call) for call in calls]

    return asyncio.run(all_of())


class _Node:
    def __init__(self, message: Message) -> None:
        self.message = message


def call(name: str, **given: object) -> ToolCall:
    return ToolCall("x", name, json.dumps(given))


def test_tools_and_demonstrations_are_told_and_what_no_schema_allows_is_answered_by_code(service):
    says = Says(reply_text('{"state": "sent"}'))
    seen = acting(service(), says, call("order", id="A1"), call("order"), call("drop"), "hello", call("order", id=3))
    assert [s.text for s in seen] == [
        '{"state": "sent"}',
        "error: order: the call lacks \"id\"",
        "error: there is no tool 'drop'; the tools are list_orders, order",
        "error: call one of the tools: list_orders, order",
        "error: order: argument id must be string, not 3",
    ]  # fmt: skip
    assert all(s.call_id == "x" for s in seen if s is not seen[3])
    assert len(says.asked) == 1
    system = says.asked[0][0].text
    assert "list_orders: All orders." in system
    assert '> order {"id": "A1"}\n' + reply_text('{"state": "sent"}') in system


def test_an_answer_must_fit_the_schema_of_the_tools_answers(service):
    says = Says(
        reply_text("sent"), reply_text('{"state": 3}'), reply_text('{"state": "sent"}'), reply_text("error: 404")
    )
    seen = acting(service(tries=3), says, call("order", id="A1"), call("order", id="A2"))
    assert [s.text for s in seen] == ['{"state": "sent"}', "error: 404"]
    assert "answer.state must be string" in says.asked[2][-1].text
    with pytest.raises(WorldError, match="no JSON"):
        acting(service(), Says(reply_text("sent")), call("order", id="A1"))


def test_a_long_list_is_given_in_pages_that_are_the_whole_list(service):
    whole = [{"id": i} for i in range(7)]
    says = Says(reply_text(json.dumps({"orders": whole})))
    taskset = service(instruction={"paginate": 3})
    first = acting(taskset, says, call("list_orders"))[0]
    found, cursor, pages = json.loads(first.text)["orders"], json.loads(first.text)["next_cursor"], 1
    while cursor:
        acts = [call("next_page", cursor=f"0.{i}") for i in range(1, pages + 1)]
        last = json.loads(acting(taskset, says, call("list_orders"), *acts)[-1].text)
        found, cursor, pages = found + last["orders"], last.get("next_cursor"), pages + 1
    assert found == whole
    assert pages == 3
    assert len(says.asked) == 1, "the cache and code answer the rest"
    assert "error: there is no page" in acting(taskset, says, call("next_page", cursor="9.1"))[0].text


def test_refusals_come_at_the_rate_that_was_wished_and_have_no_effect(service):
    says = Says(reply_text("[]"))
    taskset = service(instruction={"fail_rate": 0.3}, steps=400, kept=False)
    seen = acting(taskset, says, *[call("list_orders")] * 400)
    refused = sum(s.text.startswith("error: 503") for s in seen)
    assert 80 < refused < 160
    assert len(says.asked) == 400 - refused
    assert len(says.asked[-1]) == 2 * (400 - refused), "the model is not told of calls that never reached it"


def test_an_answer_lost_in_part_says_so_and_its_action_has_happened(service):
    says = Says(reply_text("[1, 2, 3, 4]"), reply_text('{"state": "sent"}'))
    taskset = service(instruction={"partial": 0.999}, kept=False)
    lists, lost = acting(taskset, says, call("list_orders"), call("order", id="A1"))
    told = json.loads(lists.text)
    assert len(told["items"]) + told["failed"] == 4
    assert lost.text.startswith("error: 504")
    assert len(says.asked) == 2


def test_without_a_real_world_nothing_judges_and_the_tasks_are_those_of_the_recorded_runs(service):
    taskset = service()
    task = taskset.sample(1)[0]
    assert task.prompt.startswith("Find order A")
    with pytest.raises(Undecided):
        asyncio.run(taskset.judge(task, as_run([(Observation(""), b"")], []), None))
    with pytest.raises(BadInput, match="only"):
        taskset.sample(40)


def test_recorded_runs_of_the_store_teach_how_an_episode_ends(tmp_path):
    replies = [tool_call("look_up", order="A5978"), *[tool_call("close", outcome="sent")] * 3]
    made = Runner("clew.harness.agents:tool_user", Desk(), Scripted(replies))
    export(made.store, made.collect(Desk().sample(2), n=1).runs, tmp_path / "runs.jsonl")
    says = Says(reply_text("done", done=True))
    taskset = Simulated(world="desk", model="says", demos=str(tmp_path / "runs.jsonl"), told=["request"])
    seen = acting(taskset, says, call("policy"))
    assert seen[0].done
    system = says.asked[0][0].text
    assert reply_text("The desk is closed.", done=True) in system
    assert f"request: {taskset.sample(1)[0].data['request']}" in system


def test_facts_of_a_fiction_come_with_the_action_that_is_about_them(service, tmp_path):
    table = tmp_path / "facts.csv"
    table.write_text("order,state\nA1,lost at sea\nA2,eaten by goats\n")
    says = Says(reply_text('{"state": "lost at sea"}'))
    acting(service(instruction={"fiction": str(table)}), says, call("order", id="A1"))
    assert "order: A1; state: lost at sea" in says.asked[0][-1].text
    assert "goats" not in says.asked[0][-1].text


class Secretive(Counter):
    """Tasks with an answer that the world's model knows and must not tell."""

    def __init__(self) -> None:
        super().__init__()
        self.ref = "secretive"

    def find(self, task_id: str) -> Task:
        return Task(task_id, "Who wrote it?", secret={"answer": "Mabel Otto Finch"})


@pytest.mark.parametrize(("leak", "opens", "told"), [("full", [], 3), ("tease", ["open"], 1), ("none", [], 0)])
def test_the_answer_is_told_only_where_it_was_wished(leak, opens, told):
    register("tasksets", "secretive", Secretive)
    says = Says(reply_text("It was Mabel Otto Finch, they say."))
    taskset = Simulated(
        world="secretive", instruction={"leak": leak, **({"opens": opens} if opens else {})}, kept=False
    )
    seen = acting(taskset, says, "search it", "look", "open 3")
    assert sum("Mabel Otto Finch" in s.text for s in seen) == told
    assert all(("…" in s.text) != ("Otto" in s.text) for s in seen)


def test_a_snapshot_of_a_world_that_was_told_something_else_is_refused(service, tmp_path):
    says = Says(reply_text("[]"))
    one, other = service(), service(shots=0)
    task = one.sample(1)[0]
    world, again = one.open(task), other.open(task)
    with pytest.raises(WorldError, match="told something else"):
        again.restore(world.snapshot())
    assert says.asked == []


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({}, "told of no world"),
        ({"world": "counter", "steps": 0}, "steps=0"),
        ({"world": "counter", "bound": 2}, "bound 2"),
        ({"world": "counter", "instruction": {"luck": 1}}, "no instruction is called 'luck'"),
        ({"world": "counter", "instruction": {"fail_rate": 0.7, "partial": 0.4}}, "leave no action that succeeds"),
        ({"world": "counter", "instruction": {"leak": "tease"}}, "needs a way to the answer"),
        ({"world": "counter", "instruction": {"leak": "none", "opens": ["open"]}}, "makes no difference"),
        ({"world": "counter", "instruction": {"latency": -1}}, "latency is -1"),
        ({"world": "counter", "tools": "nowhere.json"}, "cannot read tools"),
        ({"demos": "nowhere.jsonl"}, "cannot read recorded runs"),
        ({"world": "desk", "told": ["luck"]}, "has no data 'luck'"),
        ({"folder": "nowhere"}, "holds no model of a world"),
    ],
)
def test_bad_input_is_named(how, told):
    with pytest.raises(BadInput, match=told):
        (made := Simulated(**how)).open(made.sample(1)[0])


def test_a_cached_answer_that_the_record_does_not_hold_has_diverged(shadow):
    taskset = Simulated(world="counter(low=3, high=3)", model="shadow")
    made = runner(taskset, shadow)
    run = made.collect(taskset.sample(1), n=1).runs[0]
    act = next(c for c in run.calls if c.kind == "act")
    asks = Asks(shadow.answer)
    asks.tell(act._replace(inner=()))
    with pytest.raises(ReplayError):
        asyncio.run(taskset.open(taskset.sample(1)[0], asks).step("up"))
