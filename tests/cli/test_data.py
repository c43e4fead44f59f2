"""--data and --reward on the command line: every verb that takes a world takes them, and its next steps carry them."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from clew.core.registry import register
from clew.exchange.dataset.tasks import Dataset

register("tasksets", "dataset", Dataset)  # as the entry point does
REWARD = (
    "def score(reply, answer):\n    return float(answer in reply)\n\ndef bad(reply):\n    raise OSError('no scale')\n"
)


@pytest.fixture
def data(tmp_path):
    rows = [{"question": f"{a} plus 2", "answer": str(a + 2)} for a in range(40)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "reward.py").write_text(REWARD)
    return ("--data", "q.jsonl", "--reward", "reward.py:score")


def test_rows_are_shown_with_what_was_found(clew, data):
    said = clew("worlds", "--data", "q.jsonl", "--prompt", "{question} Be brief.", "-n", 1).output
    assert "q.jsonl: 40 rows; prompt from a template; answer from column 'answer'" in said
    assert re.search(r"\d+ plus 2 Be brief\.", said)


def test_run_fork_replay_and_eval_of_ones_own_data(clew, data):
    made = clew("run", *data, "--model", "echo", "--tasks", 4, "-n", 2, "--json").stdout
    runs = json.loads(made)["runs"]
    assert len(runs) == 8
    assert {run["stop"] for run in runs} == {"returned"}
    assert "calls equal" in clew("replay", runs[0]["run"]).output
    assert "reward" in clew("fork", f"{runs[0]['run']}@1", "--model", "echo").output
    assert "success" in clew("eval", "echo", *data, "--split", "train", "--tasks", 4).output


def test_a_fork_after_the_reward_changed_says_so_and_takes_another(clew, data, tmp_path):
    run = json.loads(clew("run", *data, "--model", "echo", "--tasks", 1, "--json").stdout)["runs"][0]["run"]
    (tmp_path / "reward.py").write_text(REWARD + "# changed\n")
    said = clew("fork", f"{run}@1", "--model", "echo", code=2).output
    assert "reward.py is not what it was when these runs were made" in said
    assert "--data FILE --reward REWARD" in said
    assert "reward" in clew("fork", f"{run}@1", "--model", "echo", *data).output
    assert len(json.loads(clew("log", "--json").stdout)) == 2


def test_runs_without_a_reward_are_told(clew, data):
    said = clew("run", "--data", "q.jsonl", "--reward", "reward.py:bad", "--model", "echo", "--tasks", 2).output
    assert "2 of 2 runs have no reward: reward.py:bad raised OSError: no scale (line 5 of reward.py)" in said
    said = clew("eval", "echo", "--data", "q.jsonl", "--reward", "reward.py:bad", "--tasks", 2, code=2).output
    assert "no run of these groups has a reward: reward.py:bad raised OSError" in said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run --data q.jsonl --world household", "data and a world are named"),
        ("run --reward exact", "--reward is for --data"),
        ("run --held-out 0.2", "--held-out does nothing without --data"),
        ("run --data absent.jsonl --reward exact", "there is no file"),
        ("run --data q.jsonl --reward exactly", "no reward is called 'exactly'"),
        ("run --data q.jsonl --prompt x --reward exact", "no column 'x'"),
        ("eval echo --data q.jsonl", "names data and no reward"),
        ("train --name a --data q.jsonl", "names data and no reward"),
        ("worlds household --data q.jsonl", "names data and the world household"),
        ("run --data q.jsonl --reward exact --task row-x", "is no row of q.jsonl"),
    ],
)
def test_bad_lines_are_answered_in_a_sentence(clew, data, line, said):
    done = clew(*shlex.split(line), code=2)
    assert said in done.output
    assert "Traceback" not in done.output


def test_a_training_on_ones_own_data_and_its_next_lines(clew, data, tmp_path):
    torch = pytest.importorskip("torch", reason="did not run: torch is not installed")
    transformers = pytest.importorskip("transformers", reason="did not run: transformers is not installed")
    from clew.models.local.model import Local
    from clew.models.rendering import WordRenderer

    torch.manual_seed(0)
    words = WordRenderer([*map(str, range(42)), "plus"])
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.Qwen3Config(
        vocab_size=64, head_dim=16, num_key_value_heads=1, max_position_embeddings=64, tie_word_embeddings=True, **size
    )
    Local(transformers.Qwen3ForCausalLM(config), renderer=words).save(tmp_path / "weights")
    said = clew("train", "--name", "own", *data, "--model", "weights", "--iterations", 2, "--max-tokens", 8).output
    lines = [line.strip() for line in said.splitlines() if line.startswith("  clew ")]
    assert any(shlex.split(line)[1] == "eval" for line in lines)
    assert all("--data q.jsonl --reward reward.py:score" in line for line in lines if shlex.split(line)[1] == "eval")
    for line in lines:
        clew(*shlex.split(line)[1:])
