"""clew serve from the command line: keys, drafters that do not fit, costs that are missing or stale."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from clew.cli import serve, verbs
from clew.cli.shared import speculation
from clew.core.errors import BadInput
from clew.harness import Runner
from clew.store import Run, open_store

pytest.importorskip("torch")
WORDS = [f"w{i}" for i in range(30)]
PLAIN: Any = {"model_options": "{}", "context": None, "max_rows": None, "draft": "lookup", "lengths": "auto",
              "draft_temperature": 1.0}  # fmt: skip


def said(*line: str, **env: str) -> Result:
    return CliRunner(env=env).invoke(verbs, ["serve", *line])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from clew.models.local import small

    path = tmp_path_factory.mktemp("model")
    small(WORDS, d=16, layers=3, context=64).save(path)
    return path


@pytest.fixture
def model(folder: Path) -> Any:
    import clew.models

    return clew.models.load(folder)


def test_who_may_serve_whom(tmp_path: Path) -> None:
    refused = said("echo", "--host", "0.0.0.0")
    assert refused.exit_code == 2
    assert "can be reached by others, and there are no keys" in refused.output
    keys = tmp_path / "keys"
    keys.write_text("one-long-key\n\ntwo-long-key\n")
    assert serve.api_keys(str(keys)) == ("one-long-key", "two-long-key")
    keys.write_text("short\n")
    with pytest.raises(BadInput, match="less than 8"):
        serve.api_keys(str(keys))
    keys.write_text("\n")
    assert "holds no key" in said("echo", "--keys", str(keys)).output
    assert "limits of a run are for an agent" in said("echo", "--run-cost", "1").output


def test_models_beside_have_names_of_their_own() -> None:
    given: dict[str, Any] = {"names": ("m",), "also": ("small=./a", "big=openai:b@http://c/v1?x=1")}
    assert serve.named("echo", given) == (("m",), {"small": "./a", "big": "openai:b@http://c/v1?x=1"})
    for wrong in ("small", "=./a", "small="):
        refused = said("no-such-model", "--also", wrong)
        assert refused.exit_code == 2
        assert "names no model" in refused.output
    for also in (
        ("--also", "echo=fake"),
        ("--also", "a=echo", "--also", "a=fake"),
        ("--name", "b", "--also", "b=fake"),
    ):
        assert "names two models" in said("echo", *also).output


def test_drafters_that_do_not_fit_are_refused(folder: Path, tmp_path: Path) -> None:
    assert "no weights in this process" in said("echo", "--draft", "lookup").output
    missing = said(str(folder), "--draft", str(tmp_path / "nowhere"))
    assert missing.exit_code == 2
    assert "nowhere" in missing.output
    assert "there is no policy" in said(str(folder), "--draft", "lookup", "--lengths", "some").output
    needs = said(str(folder), "--draft", "lookup", "--lengths", "scheduler")
    assert needs.exit_code == 2
    assert "clew serve --profile" in needs.output


def test_a_drafter_of_another_tokenizer_model_or_calibration_is_refused(
    folder: Path, model: Any, tmp_path: Path
) -> None:
    from clew.models.drafters import calibration
    from clew.models.drafters import folder as folders
    from clew.models.local import small

    design = folders.design_for(
        model.module, mask=1, block=3, layers=1, kind="dspark", rank=4, confidence=True, taps=(0,)
    )
    drafter = folders.fresh(design, model.module)
    kept = tmp_path / "drafter"
    kept.mkdir()
    folders.write(drafter, kept, folders.target_of(model.module, model.tokenizer, "tiny"), {})
    speculation.drafted(model, str(folder), PLAIN | {"draft": str(kept)}).close()  # that of this model is not

    others = {"tokenizer": small(WORDS[::-1], d=16, layers=3, context=64), "weights": small(WORDS, 16, 3, seed=9)}
    for what, other in others.items():
        other.save(tmp_path / what)
        refused = said(str(tmp_path / what), "--draft", str(kept))
        assert refused.exit_code == 2
        assert f"was made for {what}" in refused.output
        assert "clew draft train" in refused.output
    calibration.keep(
        kept, calibration.Table(drafter="of another", block=3, temperature=1.0, temperatures=(1, 1, 1), rounds=9)
    )
    stale = said(str(folder), "--draft", str(kept))
    assert stale.exit_code == 2
    assert "fitted for drafter" in stale.output


def test_costs_that_do_not_hold_are_said(
    folder: Path, model: Any, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert speculation.drafted(model, str(folder), PLAIN).engine.stats().running == 0
    assert "no costs were measured" in caplog.text
    table = {"sizes": [1, 8], "verify": [0.01, 0.02], "rows": [1, 8], "plain": [0.01, 0.01], "draft": [0.0, 0.0],
             "block": 7, "model": "others", "drafter": "lookup"}  # fmt: skip
    (folder / "costs.json").write_text(json.dumps(table))
    try:
        speculation.drafted(model, str(folder), PLAIN)
        assert "measured with target 'others'" in capsys.readouterr().err
        with pytest.raises(BadInput, match="measured with target 'others'"):
            speculation.drafted(model, str(folder), PLAIN | {"lengths": "scheduler"})
    finally:
        (folder / "costs.json").unlink()


def test_the_model_gets_what_the_options_say(folder: Path) -> None:
    given = {"model_options": '{"steady": true}', "max_cost": None, "context": 32, "dtype": "float64", "device": "cpu",
             "max_rows": 4, "threads": 1, "template": None}  # fmt: skip
    roomy = serve.load(str(folder), given | {"cache_gb": 0.5})
    assert roomy._how["cache_bytes"] == 500_000_000
    assert speculation.given(given | {"cache_gb": 0.5})["cache_bytes"] == 500_000_000, "a drafted model has it as well"
    model = serve.load(str(folder), given)
    assert model.context == 32
    assert str(next(model.module.parameters()).dtype) == "torch.float64"
    assert speculation.given(given) == {"steady": True, "context": 32, "max_rows": 4}


def test_two_models_are_recorded_in_one_run_and_its_fork_asks_both(tmp_path: Path) -> None:
    store, env = str(tmp_path / "s.db"), {**os.environ, "CLEW_STORE": str(tmp_path / "s.db")}
    line = [sys.executable, "-m", "clew.cli", "serve", "markov", "--name", "big", "--also", "small=echo"]
    with subprocess.Popen([*line, "--record", store, "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            told = process.stdout.readline()  # type: ignore[union-attr]
            base = re.search(r"http://[^/]+", told)[0]  # type: ignore[index]
            served = [row["id"] for row in httpx.get(f"{base}/v1/models", timeout=60).json()["data"]]
            (tmp_path / "both.py").write_text(BOTH)
            first = asked_both(tmp_path, f"{base}/r/both/v1")
        finally:
            process.terminate()
    assert "small: echo" in told
    assert served == ["big", "small"]
    run = Run(open_store(store), open_store(store).find("tag:both")[0])
    asks = [call for call in run.calls if call.kind == "ask"]
    assert [call.setup.model for call in asks] == ["markov", "echo"]
    fork = [sys.executable, "-m", "clew.cli", "gateway", "--fork", f"{run.id}@{asks[-1].seq}", "--store", store]
    line = [*fork, "--", sys.executable, str(tmp_path / "both.py")]
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert first[1] == "say this" == done.stdout.splitlines()[1]
    assert first[0] == done.stdout.splitlines()[0]


BOTH = """
import os, httpx
for name in ("big", "small"):
    body = {"model": name, "messages": [{"role": "user", "content": "say this"}], "max_tokens": 4, "seed": 1}
    answer = httpx.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json=body, timeout=60)
    print(repr(answer.json()["choices"][0]["message"]["content"]).strip("'"))
"""


def asked_both(folder: Path, base: str) -> list[str]:
    """What a program prints that asks both models."""
    env = {**os.environ, "OPENAI_BASE_URL": base}
    line = [sys.executable, str(folder / "both.py")]
    return subprocess.run(line, env=env, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()


AGENT = """
async def solve(run):
    reply = await run.chat().ask(run.task.prompt)
    return f"{reply.text}, said the agent"
"""


def test_an_agent_answers_in_place_of_its_model(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    store = str(tmp_path / "s.db")
    agent = f"{tmp_path}/agent.py:solve"
    line = [sys.executable, "-m", "clew.cli", "serve", "echo", "--agent", agent, "--record", store, "--port", "0"]
    line += ["--run-tokens", "500"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            told = process.stdout.readline()  # type: ignore[union-attr]
            base = re.search(r"http://\S+", told)[0]  # type: ignore[index]
            asked = {"model": "echo", "messages": [{"role": "user", "content": "hello"}]}
            got = httpx.post(f"{base}/chat/completions", json=asked, timeout=60)
        finally:
            process.terminate()
    message = got.json()["choices"][0]["message"]
    assert message["content"] == "hello, said the agent"
    inner, outer = (Run(open_store(store), run) for run in (message["clew_run"], got.headers["x-clew-run"]))
    assert inner.agent == agent
    assert 500 in json.loads(inner.row.settings)["limits"].values()
    assert Runner.of(inner.store, inner).replay(inner).calls == len(inner.calls)
    assert inner.id in outer.conversation(0)[-1].message.extra
