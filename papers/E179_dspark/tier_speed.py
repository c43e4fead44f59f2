"""The cells of tier speed: mark T7 of specs/E179, tokens per second of one request at a time, all arms interleaved.

A cell is one held-out prompt at one temperature, answered by every arm in turn (the order rotates with the prompt):
transformers' ``generate``, its assisted generation with an independent one-layer drafter (7 tokens; and its default,
20 with a threshold of .4) and its prompt lookup, all on the very module the engine serves; the engine's plain
decoding; the engine with DFlash, DSpark and prompt lookup, whole blocks verified, and DSpark under the scheduler with
this machine's costs. Every reply has the same number of tokens. One thread; process time and wall time.
"""

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import torch

from clew.core.values import Sampling
from clew.models.drafters import ready
from clew.models.drafters.plain import Lookup
from clew.models.engine.speculation.lengths import Fixed, Scheduler
from clew.models.engine.speculation.profile import measure
from clew.models.local import Local
from papers.E179_dspark import drafting
from papers.E179_dspark.tier_exact import BLOCK, Plain, _ask, _windows
from papers.experiment import Line, apart, grid

REPLY = 128
ARMS = (
    "generate", "assisted 7", "assisted 20", "generate lookup", "plain", "engine lookup", "DFlash", "DSpark",
    "DSpark scheduled",
)  # fmt: skip


PROMPTS = {("speed", 1.0): 24, ("speed", 0.0): 24, ("small", 1.0): 12, ("large", 1.0): 24, ("large", 0.0): 12}
portions = apart
QUICK = {("quick", 1.0): 3, ("quick", 0.0): 3}


def cells(quick: bool) -> Iterator[Line]:
    """A seed is a prompt, of the three domains in turn. ``quick``: the small target made for it, fewer prompts."""
    for (which, temperature), prompts in (QUICK if quick else PROMPTS).items():
        yield from grid(kind="speed", target=which, temperature=temperature, seed=range(prompts))


def cost(cell: Line) -> float:
    """CPU-seconds, from a first run."""
    return {"quick": 2.0, "small": 3.0, "speed": 7.0, "large": 20.0}[cell["target"]]


def run(setting: Line, seeds: Sequence[int]) -> list[Line]:
    """Results of one setting for all seeds, in their order."""
    torch.set_num_threads(1)
    arms = _arms(setting["target"])
    found: list[Line] = []
    for seed in seeds:
        prompt = _windows(setting["target"], 24, 7)[seed].tolist()
        out: Line = {"domain": ("code", "prose", "data")[seed % 3]}
        for i in range(len(ARMS)):
            name = ARMS[(seed + i) % len(ARMS)]
            cpu, wall = time.process_time(), time.perf_counter()
            tokens = arms[name](prompt, setting["temperature"], seed)
            out[name] = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "tokens": tokens}
        out["tau"] = {name: round(arm.tau(), 4) for name, arm in arms.items() if isinstance(arm, _Engine)}
        found.append(out)
    return found


class _Engine:
    """One arm of ours: tokens of a reply."""

    def __init__(self, module: Any, drafter: Any = None, lengths: Any = None) -> None:
        renderer: Any = Plain(())
        self.model = Local(module, renderer=renderer, draft=drafter, lengths=lengths)
        self._before = 0, 0

    def __call__(self, prompt: list[int], temperature: float, seed: int) -> int:
        asked = Sampling(max_tokens=REPLY, temperature=temperature)
        return len(_ask(self.model, [prompt], asked, [seed], 1)[0].tokens or ())

    def tau(self) -> float:
        """Tokens a round since the last call."""
        counts = self.model.engine.drafted
        if counts is None:
            return 1.0
        rounds, emitted = counts.rounds - self._before[0], counts.emitted - self._before[1]
        self._before = counts.rounds, counts.emitted
        return emitted / max(1, rounds)


def _generate(module: Any, **options: Any) -> Callable[[list[int], float, int], int]:
    def reply(prompt: list[int], temperature: float, seed: int) -> int:
        torch.manual_seed(seed)
        how = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}
        ids = torch.tensor([prompt])
        out = module.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=REPLY, min_new_tokens=REPLY,
            **{"do_sample": False, **how, **options},
        )  # fmt: skip
        return int(out.shape[1]) - len(prompt)

    return reply


def _assistant(module: Any, tokens: int, threshold: float) -> Any:
    """A copy that proposes so many tokens, or fewer where it is less sure than the threshold."""
    copied = copy.deepcopy(module)
    how = copied.generation_config
    how.num_assistant_tokens, how.num_assistant_tokens_schedule = tokens, "constant"
    how.assistant_confidence_threshold, how.is_assistant = threshold, True
    return copied


@cache
def _arms(name: str) -> dict[str, Callable[[list[int], float, int], int]]:
    """Every arm, warmed up."""
    module, _ = drafting.target(name)
    module.generation_config.eos_token_id, module.generation_config.pad_token_id = None, 0
    dflash, dspark, alone = (drafting.drafter(name, arm, BLOCK, 0) for arm in ("D0", "D3", "D6"))
    plain = _Engine(module)
    costs = measure(plain.model, ready(dspark), max_rows=1).by_process_time()
    arms: dict[str, Callable[[list[int], float, int], int]] = {
        "generate": _generate(module),
        "assisted 7": _generate(module, assistant_model=_assistant(alone.inner, 7, 0.0)),
        "assisted 20": _generate(module, assistant_model=_assistant(alone.inner, 20, 0.4)),
        "generate lookup": _generate(module, prompt_lookup_num_tokens=10),
        "plain": plain,
        "engine lookup": _Engine(module, Lookup(module.config.vocab_size, BLOCK), Fixed(BLOCK)),
        "DFlash": _Engine(module, ready(dflash), Fixed(BLOCK)),
        "DSpark": _Engine(module, ready(dspark), Fixed(BLOCK)),
        "DSpark scheduled": _Engine(module, ready(dspark), Scheduler(costs)),
    }
    for arm in arms.values():
        for temperature in (1.0, 0.0):
            arm(_windows(name, 24, 8)[0].tolist(), temperature, 0)
    for arm in arms.values():
        if isinstance(arm, _Engine):
            arm.tau()
    return arms
