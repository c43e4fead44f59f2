"""A first hour with things of one's own, typed into a shell in an empty folder: weights, data, tools, worlds.

Each test is one step that a newcomer takes; none may end in a dead end, and each next line that is printed is run.
"""

from __future__ import annotations

import json
import re
import sys

import pytest

from clew.core import registry
from tests.cli.shell import Shell
from tests.models.server import chat, serving

if "dataset" not in registry.names("tasksets"):
    pytest.skip("did not run: the installed clew has no taskset `dataset`; install it again", allow_module_level=True)

REWARD = '''
def score(reply, answer):
    """1 where the reply names the answer."""
    return float(str(answer) in reply.split())
'''
TOOLS = '''
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b

def times(a: int, b: int) -> int:
    """Multiply two whole numbers."""
    return a * b
'''
WORLD = '''
import gymnasium
from gymnasium import spaces


class Walk(gymnasium.Env):
    """Three steps to the right end in the goal."""

    action_space = spaces.Discrete(2)
    observation_space = spaces.Discrete(4)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.place, {}

    def step(self, action):
        self.place += 1 if action else -1
        return self.place, float(self.place == 3), self.place in (3, -3), False, {}
'''
CREDIT = '''
from clew.credit.family import Term
from clew.credit.filing import assign


def mine(groups, k=1.0, store=True):
    """k times how far the outcome is from the mean of its group."""
    return assign(groups, "mine", [Term("R", "outcome", "group", "mean", weight=k)], {"k": k}, store=store)
'''
CELLS = """
import clew
from clew.models.fakes import Scripted
data = clew.dataset("questions.jsonl", reward="reward.py:score")
runner = clew.Runner("answerer", data, Scripted({"": "4"}), "runs.db")
# %%
groups = runner.collect(runner.taskset.sample(3), n=2)
# %%
print(groups.success())
print(clew.tree(groups.runs[0]))
fork = runner.fork(groups.runs[0], groups.runs[0].at(step=0), reply="5")
assert [runner.replay(run).calls for run in [*groups.runs, *fork]]
"""
KERNEL = """
import asyncio, sys

async def kernel():
    space = {}
    for cell in open("notebook.py").read().split("# %%"):
        exec(compile(cell, "cell", "exec"), space)

asyncio.run(kernel())
"""


@pytest.fixture
def shell(tmp_path) -> Shell:
    made = Shell(tmp_path)
    pairs = [(a, b) for a in range(1, 6) for b in range(1, 6)]
    rows = [json.dumps({"question": f"{a} plus {b}", "answer": str(a + b)}) for a, b in pairs]
    made.write(questions_jsonl="\n".join(rows) + "\n", reward_py=REWARD, tools_py=TOOLS)
    made.write(walk_py=WORLD, credit_py=CREDIT)
    return made


def follow(shell: Shell, said: str) -> list[str]:
    """Run each line that was printed for going on, as printed; the lines."""
    found = [line.strip() for line in re.findall(r"(?:^|: )\s*(clew [a-z]+ .*)$", said, re.MULTILINE)]
    for line in found:
        shell(line)
    return found


def weights(folder) -> None:
    """A tiny Hugging Face folder: a tokenizer of words with a chat template, and a model with random weights."""
    transformers = pytest.importorskip("transformers", reason="did not run: transformers is not installed")
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers

    special = ["<unk>", "<end>", "<user>", "<assistant>", "<system>"]
    words = [*special, *map(str, range(11)), "plus"]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = (
        "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }} <end> {% endfor %}"
        "{% if add_generation_prompt %}<assistant> {% endif %}"
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", pad_token="<unk>", eos_token="<end>",
        additional_special_tokens=special[2:], chat_template=template,
    )  # fmt: skip
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.Qwen3Config(
        vocab_size=32, num_key_value_heads=1, head_dim=16, max_position_embeddings=64, eos_token_id=1, pad_token_id=0,
        bos_token_id=None, **size,
    )  # fmt: skip
    transformers.Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def test_own_weights_own_data_and_reward_own_estimator(shell):
    """Train on a JSONL, with an estimator of a file, from a Hugging Face folder; then all that it says comes next."""
    weights(shell.folder / "hf")
    line = "clew run --data questions.jsonl --reward reward.py:score --model ./hf --max-tokens 3 --tasks 2 -n 2"
    said = shell(line)
    assert "success" in said
    assert len(follow(shell, said)) == 1
    shell(
        "clew train --name own --data questions.jsonl --reward reward.py:score --model ./hf --max-tokens 3 "
        "--credit 'credit.py:mine(k=2.0)' --iterations 1 --tasks 4 -n 8 --lr 1e-3"
    )
    made = ".clew/trainings/own/checkpoint"
    assert "success" in shell(f"clew eval {made} --data questions.jsonl --reward reward.py:score --max-tokens 3")
    again = shell(f"clew run --data questions.jsonl --reward reward.py:score --model {made} --max-tokens 3 --tasks 1")
    assert len(follow(shell, again)) == 1


def test_own_two_tools_over_an_endpoint(shell):
    def call(name, **arguments):
        return {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}

    with serving() as peer:

        def answer(body, count):
            asked = next(m["content"] for m in body["messages"] if m["role"] == "user")
            told = [m["content"] for m in body["messages"] if m["role"] == "tool"]
            a, b = re.findall(r"\d+", asked)
            return chat(f"It is {told[0]}") if told else chat("", tool_calls=[call("add", a=int(a), b=int(b))])

        peer.answer = answer
        line = (
            "clew run --data questions.jsonl --reward reward.py:score --tools tools.py:add,times "
            f"--model {peer.url}#toy --tasks 3"
        )
        said = shell(line)
        assert "success 1.00" in said
        assert len(follow(shell, said)) == 1
        run = said.split("run ")[1].split()[0]
        assert "(recorded)" in shell(f"clew fork {run} --step 1 -n 2")
        offered = [tool["function"]["name"] for tool in peer.bodies[0]["tools"]]
        assert offered == ["add", "times"]
    assert "calls equal" in shell(f"clew replay {run}"), "a replay needs no endpoint"


def test_own_gymnasium_world(shell):
    pytest.importorskip("gymnasium", reason="did not run: gymnasium is not installed")
    world = "gymnasium(env='walk.py:Walk', actions=('left', 'right'), steps=6)"
    assert "left" in shell(f'clew worlds "{world}" -n 1')
    said = shell(f'clew run --world "{world}" --model markov --tasks 2 -n 2')
    assert len(follow(shell, said)) == 1
    run = said.split("run ")[1].split()[0]
    (shell.folder / "sub").mkdir()
    assert "(recorded)" in shell(f"clew fork {run} --step 0 --store ../.clew/store.db", within="sub")
    assert "no file" in shell(f'clew worlds "{world.replace("walk", "wolk")}"', code=2)


def test_a_notebook(shell):
    """Cells run inside a loop, as in Jupyter."""
    shell.write(notebook_py=CELLS, kernel_py=KERNEL)
    said = shell("python -W error kernel.py")
    assert "n=6" in said
    assert "│ task:" in said
    assert sys.version_info >= (3, 11)
