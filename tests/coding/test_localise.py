"""The loop of a diagnosis: every recovery part against a model that falters, record, replay and fork."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clew.coding.repository.repository import View
from clew.core.errors import BadInput
from clew.core.registry import register
from clew.core.values import Completion, Message, ToolCall
from clew.harness import Runner
from clew.methods.diagnose import recover
from clew.methods.diagnose.choose import Chooser
from clew.methods.diagnose.code_tools import Tools, specs
from clew.methods.diagnose.localise import localise
from clew.methods.diagnose.repository_world import Diagnosis
from clew.models.fakes import Scripted, tool_call
from clew.store import open_store
from clew.worlds.contract import check_taskset
from tests.coding.shop import REPORT, make


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Diagnosis:
    return Diagnosis(str(make(tmp_path_factory.mktemp("shop"), history=36)))


@pytest.fixture(scope="module")
def final(shop) -> str:
    found = Chooser.over(shop.tools()).findings(REPORT)[:1]
    return f"<findings>{json.dumps([f.json() for f in found])}</findings>"


register("tasksets", "diagnosis", Diagnosis)
LOOK = tool_call("view_file", path="shop/cart.py")
SEARCH = tool_call("codebase_search", text="voucher")


def by_model(shop: Diagnosis, replies: list[Any], **config: Any) -> Any:
    return localise(shop, REPORT, Scripted(replies), **config)


def test_without_a_model_the_ranking_looks_and_answers(shop):
    done = localise(shop, REPORT)
    assert done.findings[0].file == "shop/cart.py"
    assert done.findings[0].evidence[0].tool == "view_file"
    assert done.findings[0].confidence is not None
    assert all(one.confidence is None for one in done.findings[1:]), "calibrated for the first place alone"
    assert (done.recoveries, done.fallback) == ((), False)
    acts = [c for c in done.run.calls if c.kind == "act"]
    assert all("error:" not in c.text for c in acts)
    assert len(acts) == len(done.findings) + 1


def test_a_model_looks_and_answers(shop, final):
    done = by_model(shop, [LOOK, final])
    assert not done.fallback
    assert done.findings[0].file == "shop/cart.py"
    assert [c.kind for c in done.run.calls] == ["open", "ask", "act", "ask", "note", "end"]


def test_equal_calls_are_warned_of_and_then_refused(shop, final):
    done = by_model(shop, [LOOK] * 5 + [final])
    assert done.recoveries == ("loop detection",) * 4
    assert sum(c.kind == "act" for c in done.run.calls) == 3  # the fourth and fifth are not performed
    said = [done.run.store.node(c.node_in).message.text for c in done.run.calls if c.kind == "ask"]
    assert "4 times. It is not performed again" in said[4]
    assert not done.fallback


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "view_file", "arguments": {"path": "shop/cart.py"}}',
        'First:\n```json\n{"tool": "view_file", "args": {"path": "shop/cart.py"}}\n```',
        'I call view_file(path="shop/cart.py") now',
        'view_file("shop/cart.py")',
        '<tool_call>{"name": "view_file", "arguments": "{\\"path\\": \\"shop/cart.py\\"}"}</tool_call>',
    ],
)
def test_a_call_without_its_wrapper_is_recovered(shop, final, text):
    done = by_model(shop, [text, final])
    assert done.recoveries == ("implicit call",)
    (act,) = [c for c in done.run.calls if c.kind == "act"]
    assert "apply_voucher" in act.text
    assert not done.fallback


@pytest.mark.parametrize(
    "text",
    [
        "I would view the file",
        '{"name": "delete_file", "arguments": {"path": "a"}}',
        '{"name": "view_file", "arguments": {"file": "a"}}',
        '{"name": "view_file", "arguments": {"path": 3}}',
        'view_file("a") and view_file("b")',
    ],
)
def test_what_is_ambiguous_is_not_guessed(text):
    assert recover.implicit_call(text, specs(), "x") is None


def test_an_over_long_reply_is_asked_for_again(shop, final):
    cut = Completion(Message("assistant", "so " * 2000), finish="length")
    done = by_model(shop, [cut, cut, cut, LOOK, final])
    assert done.recoveries == ("response length",) * 2  # twice at most, then it counts as what it is
    assert not done.fallback


def test_an_answer_without_a_look_is_sent_back_once(shop, final):
    assert by_model(shop, [final, LOOK, final]).findings[0].file == "shop/cart.py"
    stubborn = by_model(shop, [final, final])
    assert not stubborn.fallback
    assert sum(c.kind == "ask" for c in stubborn.run.calls) == 2


def test_who_never_answers_is_told_at_the_end_and_no_run_is_lost(shop):
    done = by_model(shop, ["hm"] * 6, turns=6)
    assert done.recoveries == ("final turn",)
    assert done.fallback
    assert done.findings[0].file == "shop/cart.py"
    said = [done.run.store.node(c.node_in).message.text for c in done.run.calls if c.kind == "ask"]
    assert said[-1] == recover.FINAL


def test_a_demanded_answer_counts(shop, final):
    done = by_model(shop, [LOOK, SEARCH, final], turns=3)
    assert done.recoveries == ("final turn",)
    assert not done.fallback


def test_findings_of_nothing_fall_back_and_malformed_ones_are_asked_for_again(shop, final):
    invented = final.replace("shop/cart.py", "shop/ghost.py")
    assert by_model(shop, [LOOK, invented]).fallback
    mended = by_model(shop, [LOOK, "<findings>[{]</findings>", final])
    assert not mended.fallback


def test_the_middle_of_a_long_conversation_is_dropped(shop, final):
    looks = [tool_call("view_file", id=f"c{k}", path="shop/cart.py", start=k + 1) for k in range(12)]
    answers = dict(enumerate([*looks, final]))
    count = iter(range(99))
    model = Scripted([lambda request: answers[next(count)]] * 13)
    done = localise(shop, REPORT, model, window=2600)
    assert "context" in done.recoveries
    assert not done.fallback
    path = [n.message for n in model.last.path]
    assert path[0].role == "system"
    assert REPORT in path[1].text
    calls = {c.id for m in path for c in m.calls}
    assert {m.call_id for m in path if m.role == "tool"} == calls  # no answer without its call


def test_truncation_keeps_the_beginning_and_whole_turns():
    long = "x" * 400
    talk = [Message("system", "s"), Message("user", "u")]
    for k in range(10):
        talk += [Message("assistant", "", calls=(ToolCall(f"c{k}", "view_file", "{}"),)),
                 Message("tool", long, call_id=f"c{k}")]  # fmt: skip
    short = recover.first_and_recent(talk, window=1200)
    assert short[:2] == talk[:2]
    assert short[2:] == talk[-12:]
    assert recover.first_and_recent(talk, window=100_000) is None
    assert recover.first_and_recent(talk, window=200)[2:] == talk[-2:]  # one turn stays whatever it takes


def test_it_replays_without_a_model_and_forks_at_a_reply(shop, final, tmp_path):
    store = open_store(tmp_path / "s.db")
    done = localise(shop, REPORT, Scripted([SEARCH, LOOK, final]), store=store)
    silent = Scripted([])
    runner = Runner("clew.coding.localise:localiser", shop, silent, store)
    assert runner.replay(done.run.id).calls == len(done.run.calls)
    assert silent.calls == 0
    asks = [c for c in done.run.calls if c.kind == "ask"]
    other = final.replace("shop/cart.py", "shop/price.py").replace(":1", ":1")
    (fork,) = runner.fork(done.run, asks[-1].seq, reply=other)
    assert "shop/price.py" in [c.text for c in fork.calls if c.kind == "note"][-1]
    assert silent.calls == 0


def test_bad_input_is_said(shop, tmp_path):
    with pytest.raises(BadInput, match="report is empty"):
        localise(shop, "  \n")
    with pytest.raises(BadInput, match="nothing in the repository matches"):
        localise(shop, "zyzzyva qwertz")
    with pytest.raises(BadInput, match="not a git repository"):
        localise(str(tmp_path), REPORT)


@pytest.mark.whole
def test_past_fixes_are_tasks_that_a_judge_knows(shop):
    done = set(check_taskset(shop, lambda task: [ToolCall("a", "repo_tree", "{}"), "hello"], n=2))
    assert done >= {"check_ref", "check_sampling", "check_find", "check_opening", "check_keys", "check_judge"}
    task = shop.sample(1, split="test")[0]
    assert shop.find(task.id).secret == task.secret
    model = Chooser(shop.repo, task.data["commit"])
    run = Runner("clew.coding.localise:localiser", shop, model).collect([task], n=1).runs[0]
    assert run.reward == 1.0


@pytest.mark.whole
def test_the_tools_by_mcp_see_the_present_files(tmp_path):
    pytest.importorskip("mcp", reason="did not run: the extra 'coding' is not installed")
    import asyncio

    from mcp import Client

    from clew.methods.diagnose.mcp import Present, server

    folder = make(tmp_path)
    price = folder / "shop/price.py"

    async def talk() -> None:
        async with Client(server(Present(Tools(View(folder))))) as client:

            async def say(name: str, **arguments: Any) -> str:
                done = await client.call_tool(name, arguments)
                assert done.is_error == done.content[0].text.startswith("error:")
                return str(done.content[0].text)

            names = {t.name for t in (await client.list_tools()).tools}
            assert names == {"diagnose", "view_file", "codebase_search", "repo_tree", "connected_tree"}
            assert "Half a cent" in await say("view_file", path="shop/price.py")
            assert "error:" in await say("view_file", path="nowhere.py")
            assert "error: there is no tool" in await say("rm")
            assert "`shop/cart.py` lines 16-18" in await say("diagnose", report=REPORT)
            assert (await say("diagnose", report=REPORT, n=1)).count("### ") == 1
            # a new file, appended lines, one that is gone
            (folder / "shop/refund.py").write_text("def refund_points(customer):\n    return 0\n")
            price.write_text(price.read_text() + "\n\ndef loyalty():\n    return 7\n")
            assert "def loyalty" in await say("view_file", path="shop/price.py")
            assert "1 files contain" in await say("codebase_search", text="refund_points")
            assert "### 1. `shop/refund.py`" in await say("diagnose", report="refund_points() of a customer is 0")
            (folder / "shop/refund.py").unlink()
            assert "error:" in await say("view_file", path="shop/refund.py")
            assert "nothing in the repository matches" in await say("diagnose", report="zyzzyva")

    asyncio.run(talk())


def test_a_script_without_a_guard_is_not_run_again(tmp_path, shop):
    """Reading on several processes never imports the caller's main module."""
    import subprocess
    import sys

    script = tmp_path / "script.py"
    script.write_text(
        "print('once')\nimport clew.coding.repository.repository as v\n"
        f"v.APART = 1\nprint(len(v.View({shop.repo!r}).files))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["once", str(len(View(Path(shop.repo)).files))]
