"""Simulated steps a second: a world asked through the engine, against the same model generating by ``transformers``.

    python benchmarks/simulated_speed.py [--sizes 128x4] [--steps 12] [--repeats 5] [--runs 16] [--json FILE]

The model is an untrained Qwen3 over bytes of WIDTHxLAYERS, whose replies are held by a grammar to the form of an answer
that does not end the episode, so that each is one. A run acts ``--steps`` times with a scripted agent in a simulated
`counter`; its verdict is the real one's. Measured: (engine) a whole run through `Runner`, recorded, answers read and
checked, no cache of answers; (transformers) `model.generate` on the very prompts of that run, one after the other, for
as many new tokens as the run's answers had, with its own cache of keys and values inside a call; the grammar is not
applied there. The two are taken in turn, after a round that is not counted. Printed: steps a second of each, median
[least, most] of the repeats, the ratio, and steps a second of ``--runs`` runs at once through the engine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import transformers

import clew
from benchmarks.route import byte_model
from clew.core.registry import register
from clew.harness import Runner
from clew.methods.world_model import Simulated
from clew.methods.world_model.prompting import OVER, conversation
from clew.models.fakes import Scripted

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
HELD = 40  # characters of an observation


def main() -> None:
    parser = argparse.ArgumentParser(description="See the module's docstring.")
    parser.add_argument("--sizes", default="128x4")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--runs", type=int, default=16)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    register("tasksets", "simulated", Simulated)  # as the entry point does
    folder = byte_model(given.sizes, Path(tempfile.mkdtemp()))
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(tokenizer("\x00").input_ids)[0]
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    plain: Any = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    local = clew.models.load(str(folder))
    taskset = Simulated(world="counter", model="local", steps=given.steps, kept=False, held=HELD, temperature=1.0)
    sampling = taskset._manner["sampling"]
    sampling["grammar"] = sampling["grammar"].partition(rf"(\n<{OVER}>)")[0]
    agent = Scripted(["up", "down"] * given.steps)
    task = taskset.sample(1)[0]

    def run(n: int, seed: int) -> tuple[float, list[Any]]:
        runner = Runner("clew.harness.agents:player", taskset, agent, resolve_model=lambda ref: local)
        began = time.perf_counter()
        runs = runner.collect([task], n, seed).runs
        seconds = time.perf_counter() - began
        assert all(len(one.steps) == given.steps for one in runs), runs[0].calls[-1].error
        return seconds, runs

    def generate(done: Any) -> float:
        acts = [call for call in done.calls if call.kind == "act"]
        world = taskset.open(task)
        spent = 0.0
        for call in acts:
            said = conversation(world._system, world.turns, call.action)
            talk = [{"role": message.role, "content": message.text} for message in said]
            text = tokenizer.apply_chat_template(talk, tokenize=False, add_generation_prompt=True)
            ids = tokenizer(text, return_tensors="pt")
            new = call.inner[-1].usage.completion
            began = time.perf_counter()
            with torch.inference_mode():
                plain.generate(**ids, max_new_tokens=new, min_new_tokens=new, do_sample=True, pad_token_id=0)
            spent += time.perf_counter() - began
            turn, _ = world._read(call.inner[-1].text, call.action)
            assert turn is not None
            world.turns.append(turn)
        return spent

    ours, theirs, prompts, fresh = [], [], [], []
    for seed in range(given.repeats + 1):
        seconds, (done,) = run(1, seed)
        other = generate(done)
        if seed:
            ours.append(given.steps / seconds)
            theirs.append(given.steps / other)
            inner = [call.inner[-1] for call in done.calls if call.kind == "act"]
            prompts.append(statistics.fmean(one.usage.prompt for one in inner))
            fresh.append(statistics.fmean(one.usage.completion for one in inner))
    many, _ = run(given.runs, 99)
    ratio = [a / b for a, b in zip(ours, theirs, strict=True)]
    print(f"prompts of {statistics.fmean(prompts):,.0f} tokens, answers of {statistics.fmean(fresh):.0f}")
    print(f"engine {spread(ours)} steps/s, transformers {spread(theirs)} steps/s, ratio {spread(ratio)}")
    print(f"{given.runs} runs at once through the engine: {given.runs * given.steps / many:.1f} steps/s")
    if given.json:
        given.json.write_text(
            json.dumps({"engine": ours, "transformers": theirs, "many": given.runs * given.steps / many})
        )


def spread(x: list[float]) -> str:
    return f"{statistics.median(x):.2f} [{min(x):.2f}, {max(x):.2f}]"


if __name__ == "__main__":
    main()
