"""A tiny conductor: a language model that writes plans as text, taught their form and then trained by their rewards.

Its tokens are pieces of lines (digits apart) of the instructions, of plans and of questions; every other text is spelt
in bytes. What the tier does here, ``clew tune --plans`` and ``clew train --agent orchestrator`` do for one's own pool.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from clew.core.errors import BadInput
from clew.core.keys import derive
from clew.core.values import Message, Task
from clew.fit.trainer import Trainer
from clew.harness import Runner
from clew.harness.workflow.orchestrator import instructions
from clew.harness.workflow.plan_demonstrations import QUESTIONS, demonstrations
from clew.harness.workflow.plan_reward import Planned
from clew.harness.workflow.workplan import Part, parse, written
from clew.models.local import Local
from clew.models.rendering import ChatTemplateRenderer
from clew.train import recipes
from clew.train.loop import Plan, Training
from clew.train.offline import Passes, fit
from clew.train.text_rows import reply_rows
from papers.E166_route.conductor_pool import NAMES, Programs, Read, program, worker

PARTS, CONTEXT, VOCABULARY = 3, 512, 640
SIZE = {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4}
TEMPLATE = (
    "{%- for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<|assistant|>' }}{%- endif %}"
)
TAGS = ("<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
CONFIG: dict[str, Any] = {"workers": list(NAMES), "parts": PARTS, "strict": True}


def tokenizer(texts: Sequence[str], size: int = VOCABULARY) -> Any:
    """A byte-level BPE of ``size`` tokens over pieces of lines, with a chat template."""
    import tokenizers
    import transformers

    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    cuts = [tokenizers.Regex(one) for one in (r"\d", r"\n", r", |\. ")]
    split = [tokenizers.pre_tokenizers.Split(cut, "isolated") for cut in cuts]
    bytes_ = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([*split, bytes_])
    inner.decoder = tokenizers.decoders.ByteLevel()
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    how = {"vocab_size": size - len(TAGS), "initial_alphabet": alphabet, "show_progress": False}
    inner.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(**how))
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=TAGS[0])
    made.add_special_tokens({"additional_special_tokens": list(TAGS[1:])})
    made.chat_template = TEMPLATE
    return made


def untrained(seed: int, sizes: dict[str, int] = SIZE) -> Local:
    """A conductor that has learnt nothing; its vocabulary is the same for every seed."""
    import torch
    import transformers

    shown = demonstrations(400, NAMES, PARTS, seed=0, questions=[*QUESTIONS, *(program(n)[0] for n in range(200))])
    words = tokenizer([m.text for asked, said in shown for m in (*asked, *said)])
    ends = {"eos_token_id": words.eos_token_id, "pad_token_id": words.eos_token_id}
    head = {"num_key_value_heads": 2, "head_dim": sizes["hidden_size"] // sizes["num_attention_heads"]}
    config = transformers.Qwen3Config(
        vocab_size=len(words), max_position_embeddings=CONTEXT, tie_word_embeddings=True, **sizes, **head, **ends
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "conductor") % 2**31)
        module = transformers.Qwen3ForCausalLM(config)
    return Local(module, renderer=ChatTemplateRenderer(words), tokenizer=words, ref=f"conductor-{seed}", steady=True)


def cold_start(model: Local, plans: int, epochs: int, lr: float, seed: int) -> float:
    """Imitate plans of the right form with random workers, as the pilot of specs/E166 7.3: a part for each operation,
    which reads the one before. Gives the last loss, in nats a token."""
    rng, shown = random.Random(derive(seed, "shown")), []
    for task in Programs().sample(plans, derive(seed, "shown")):
        steps = range(len(Read(task.prompt).ops))
        chain = [Part(rng.randrange(len(NAMES)), f"Do step {i + 1}.", (i - 1,) if i else ()) for i in steps]
        told = (Message("system", instructions(NAMES, PARTS)), Message("user", task.prompt))
        shown.append((told, (Message("assistant", written(chain)),)))
    trainer, loss = Trainer(model, lr=lr), float("nan")
    for _, _, report in fit(trainer, reply_rows(shown, model.renderer), Passes(epochs=epochs, batch=16, seed=seed)):
        loss = report.loss["sft"]
    return loss


def runner(model: Local, store: str = ":memory:", world: Any = None, **config: Any) -> Runner:
    """The orchestrator led by ``model`` over the pool of programs."""
    how = {"max_tokens": 120}
    return Runner(
        "orchestrator", world or Programs(), model, store, CONFIG | config, resolve_model=worker, sampling=how
    )


class Outcome(NamedTuple):
    """Of one run: whether the answer was right, the plan where there was one, and how often workers were asked."""

    right: bool
    plan: tuple[Part, ...] | None
    calls: int


def outcome(run: Any) -> Outcome:
    asks = [call for call in run.calls if call.kind == "ask"]
    said = run.store.node(asks[0].node_out).message.text if asks and asks[0].node_out else ""
    try:
        plan = parse(said, len(NAMES), PARTS)
    except BadInput:
        plan = None
    return Outcome((run.reward or 0) > 0.5, plan, len(asks) - 1)


def outcomes(model: Local, tasks: Sequence[Task], seed: int, temperature: float = 1.0, **config: Any) -> list[Outcome]:
    """One run of each task."""
    work = runner(model, **config)
    work.sampling["temperature"] = temperature
    return [outcome(run) for run in work.collect(tasks, 1, seed).runs]


def train(model: Local, iterations: int, tasks: int, rollouts: int, lr: float, seed: int) -> list[dict[str, float]]:
    """Train plans by GRPO under the reward of plans, at a rate that falls in a line; gives what the rollouts of each
    tenth iteration came to."""
    recipe, curve = recipes.online("grpo"), list[dict[str, float]]()
    plan = Plan(name="conductor", iterations=iterations, tasks=tasks, rollouts=rollouts, seed=seed, schedule="linear")
    work = runner(model, world=Planned(Programs()))
    for done in Training(work, recipe.trainer(model, lr=lr), recipe.estimator(), plan).run():
        if done.number % 10 == 9 or done.number + 1 == iterations:
            found = [outcome(run) for run in done.groups.runs]
            named = Counter(part.worker for one in found for part in one.plan or ())
            shares = np.array(list(named.values()), float) / max(1, sum(named.values()))
            curve.append({
                "iteration": done.number + 1, "success": round(done.success.estimate, 4), "dead": round(done.dead, 4),
                "failures": round(float(np.mean([one.plan is None for one in found])), 4),
                "calls": round(float(np.mean([one.calls for one in found])), 3),
                "worker entropy": round(float(-(shares * np.log(shares)).sum()), 3),
            })  # fmt: skip
    return curve
