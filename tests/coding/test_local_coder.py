"""The agent ``coder`` on a local model that was taught one repair: recorded token by token, forked at a step and inside
a reply, its files compared, replayed without a model and without running a command."""

from __future__ import annotations

from pathlib import Path

import pytest

import clew
from clew.core.values import Message
from clew.models.fakes import Scripted
from clew.sandbox.sandbox import Sandbox
from clew.serve.gateway.run_files import files_of
from clew.store import Run
from clew.worlds.workspace import Workspace, restore
from clew.worlds.workspace.tree_changes import changes
from tests.worlds.test_sandbox import needs_bubblewrap

pytest.importorskip("transformers", reason="did not run: transformers is not installed")
pytestmark = needs_bubblewrap
RIGHT, WRONG = "def total(numbers):\n    return sum(numbers)\n", "def total(numbers):\n    return sum(numbers) + 1\n"
LOOK, MEND, SPOIL = "cat total.py", "sed -i 's/ + 1//' total.py", "echo 'total = None' > total.py"
DONE = "The addition is gone."
CONFIG = {"system": "Mend it.", "by_text": True, "max_turns": 5}


def fenced(command: str) -> str:
    return f"```bash\n{command}\n```"


@pytest.fixture(scope="module")
def taskset(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    place = tmp_path_factory.mktemp("project")
    (place / "work").mkdir()
    (place / "work" / "total.py").write_text(WRONG)
    verify = "python3 -c 'from total import total; assert total([1, 2]) == 3'"
    return Workspace(str(place / "work"), verify=verify, shelf=str(place / "files"))


def runner(taskset: Workspace, model: object, store: object) -> clew.Runner:
    return clew.Runner("coder", taskset, model, store, config=CONFIG, sampling={"temperature": 0.2, "max_tokens": 40})


@pytest.fixture(scope="module")
def taught(taskset: Workspace):  # type: ignore[no-untyped-def]
    """A model of 0.1M weights that was shown one conversation, as a scripted model has it."""
    from clew.fit.trainer import Trainer
    from clew.models.local import small
    from clew.models.rendering import pieces_of
    from clew.train.rows import sft_rows

    store = clew.open_store(":memory:")
    shown = runner(taskset, Scripted([fenced(LOOK), fenced(MEND), fenced(LOOK), DONE]), store)
    run = shown.collect([taskset.find("Make it pass.")], 1).runs[0]
    talk, key = list[Message](), [call.node_out for call in run.calls if call.kind == "ask"][-1]
    while key:
        talk.insert(0, store.node(key).message)
        key = store.node(key).parent
    texts = [*(message.text for message in talk), fenced(SPOIL)]
    words = dict.fromkeys(piece for text in texts for piece in pieces_of(text))
    model = small(list(words), pieces=True, ref="taught", steady=True)
    trainer = Trainer(model, lr=3e-3, steady=True)
    for _ in range(80):
        report = trainer.step(sft_rows([talk], model.renderer, observation_weight=0.0), 1.0)
    assert report.loss["sft"] < 0.02
    yield model
    model.close()


def read(taskset: Workspace, run: Run, at: int, into: Path) -> str:
    restore(taskset.shelf, files_of(run)[at].tree, into)
    return (into / "total.py").read_text()


def test_a_local_model_mends_a_function_and_its_run_is_forked_and_replayed(taskset, taught, tmp_path, monkeypatch):
    store = clew.open_store(":memory:")
    at_work = runner(taskset, taught, store)
    run = at_work.collect([taskset.find("Make it pass.")], 1).runs[0]
    asks = [call for call in run.calls if call.kind == "ask"]
    assert run.reward == 1.0
    assert [store.node(call.node_out).message.text for call in asks] == [fenced(LOOK), fenced(MEND), fenced(LOOK), DONE]
    assert all(store.node(call.node_out).ids for call in asks)  # what was sampled, token by token
    assert (read(taskset, run, 0, tmp_path / "a"), read(taskset, run, -1, tmp_path / "b")) == (WRONG, RIGHT)

    spoiled = at_work.fork(run, asks[1].seq, reply=fenced(SPOIL))[0]  # at a step, another command
    assert spoiled.reward == 0.0
    inside = at_work.fork(run, run.at(asks[1].seq, token=4), seed=7)[0]  # inside the same reply, the rest sampled anew
    second = store.node([call for call in inside.calls if call.kind == "ask"][1].node_out)
    assert second.ids[:4] == store.node(asks[1].node_out).ids[:4]
    assert inside.reward == 1.0
    apart = changes(taskset.shelf, files_of(spoiled)[-1].tree, files_of(inside)[-1].tree)
    assert list(apart) == ["total.py"]
    assert read(taskset, spoiled, -1, tmp_path / "c") == "total = None\n"

    tried = []

    async def never(*given: object, **named: object) -> None:
        tried.append(given[1])
        raise AssertionError("a command was run")

    monkeypatch.setattr(Sandbox, "arun", never)
    at_work.fork(run, asks[1].seq, reply=fenced(SPOIL))
    assert tried, "a fork runs commands, so that this sandbox would notice"
    tried.clear()
    for one in (run, spoiled, inside):
        assert clew.Runner("coder", taskset, None, store).replay(one).calls == len(one.calls)
    assert not tried
