"""Two language models made from what a machine ships, for E179: three domains of text, tokenizers, training.

    python -m papers.E179_dspark.small small|speed|large [--folder .clew/e179] [--steps N]

``code`` is the standard library's source, ``prose`` its docstrings and the documentation of the system, ``data`` is
generated (records, tables, sums). ``small`` reads characters (V = 128; 4 layers of 128), ``speed`` a byte-level BPE
(V = 1024; 8 layers of 256). Both are plain ``Qwen3ForCausalLM``. A killed run goes on at its last checkpoint; a second
call finds the model made.
"""

import argparse
import ast
import json
import string
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from clew.fit import checkpoint, optim

FOLDER = Path(".clew") / "e179"
DOMAINS = ("code", "prose", "data")
END, MASK = "<|end|>", "<|mask|>"
DOCUMENTATION = ("/usr/share/doc", "/usr/share/perl")
PART, HELD = 4096, 16  # tokens of a part of a domain's text; every 16th is held out
CHAT = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}"
    + END
    + "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a target is made; ``characters`` is how much text of each domain is read."""

    name: str
    vocabulary: int
    width: int
    layers: int
    heads: int
    kv: int
    feed: int
    steps: int
    batch: int
    length: int
    characters: int = 6_000_000
    lr: float = 3e-3  # of embeddings, head and norms (AdamW)
    muon_lr: float = 0.02  # of the hidden matrices (Muon)
    half: bool = False  # bfloat16 autocast: half the time where matrices are large enough
    seed: int = 0


RECIPES = {
    "small": Recipe(
        name="small", vocabulary=128, width=128, layers=4, heads=4, kv=2, feed=384, steps=1900, batch=12, length=168
    ),
    "speed": Recipe(
        name="speed", vocabulary=1024, width=256, layers=8, heads=4, kv=2, feed=768, steps=600, batch=8, length=256,
        half=True,
    ),
    "large": Recipe(
        name="large", vocabulary=1024, width=512, layers=12, heads=8, kv=2, feed=1536, steps=500, batch=12, length=256,
        half=True,
    ),
    "quick": Recipe(  # for --quick and the tests
        name="quick", vocabulary=128, width=48, layers=4, heads=2, kv=1, feed=96, steps=300, batch=8, length=96,
        characters=400_000,
    ),
}  # fmt: skip


# Text


def code(characters: int, rng: np.random.Generator) -> Iterator[str]:
    """Source files of the standard library, docstrings taken out: they are prose."""
    for path in _shuffled(_library(), rng):
        text = path.read_text(errors="ignore")
        lines = text.splitlines(keepends=True)
        for node, _ in _docstrings(text):
            for i in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[i] = ""
        yield "".join(lines)


def prose(characters: int, rng: np.random.Generator) -> Iterator[str]:
    """Docstrings, the language reference behind ``help()``, and the documentation this machine has."""
    found: list[tuple[Path, bool]] = [(path, True) for path in _library()]
    for root in DOCUMENTATION:
        for ending in ("txt", "md", "rst", "pod"):
            paths = [p for p in Path(root).rglob(f"*.{ending}") if p.is_file()]
            found += [(p, False) for p in paths if "changelog" not in p.name.lower() and "Unicode" not in p.parts]
    for path, source in _shuffled(sorted(found), rng):
        text = path.read_text(errors="ignore")
        if source and path.name == "topics.py":
            yield from ast.literal_eval(text.partition("topics = ")[2]).values()
        elif source:
            yield "\n\n".join(doc for _, doc in _docstrings(text))
        else:
            yield text


def data(characters: int, rng: np.random.Generator) -> Iterator[str]:
    """Records as JSON lines, tables with a heading, sums, settings."""
    names = ["ada", "grace", "alan", "edsger", "barbara", "donald", "tony", "leslie", "frances", "john"]
    towns = ["lyon", "porto", "riga", "turin", "ghent", "basel", "malmo", "graz"]
    made = 0
    while made < characters:
        kind, first, lines = int(rng.integers(4)), int(rng.integers(1, 900)), []
        for i in range(int(rng.integers(12, 40))):
            who, town = str(rng.choice(names)), str(rng.choice(towns))
            age, price = int(rng.integers(18, 90)), round(float(rng.uniform(1, 99)), 2)
            if kind == 0:
                lines.append(json.dumps({"id": first + i, "name": who, "age": age, "town": town, "paid": age % 2 == 0}))
            elif kind == 1:
                lines.append(f"{first + i},{who},{town},{age},{price:.2f}")
            elif kind == 2:
                lines.append(f"{age} + {first} = {age + first}; {age} * {i} = {age * i}")
            else:
                lines.append(f"{town}.{who}.limit = {first}\n{town}.{who}.price = {price:.2f}")
        if kind == 1:
            lines.insert(0, "id,name,town,age,price")
        text = "\n".join(lines) + "\n"
        made += len(text)
        yield text


def _library() -> list[Path]:
    root = Path(sysconfig.get_paths()["stdlib"])
    skipped = {"test", "tests", "site-packages", "idlelib", "lib2to3", "dist-packages", "config"}
    return sorted(p for p in root.rglob("*.py") if not skipped & set(p.relative_to(root).parts))


def _docstrings(text: str) -> list[tuple[Any, str]]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [n for n in ast.walk(tree) if isinstance(n, kinds) and ast.get_docstring(n, clean=False) is not None]
    # A docstring that is its body's only statement stays where it is: without it the source would not parse.
    return [(n.body[0], ast.get_docstring(n) or "") for n in nodes if len(n.body) > 1]


def _shuffled(things: list[Any], rng: np.random.Generator) -> list[Any]:
    return [things[i] for i in rng.permutation(len(things))]


def documents(domain: str, characters: int, seed: int = 0) -> list[str]:
    """Documents of a domain, printable ASCII only, together ``characters`` long or as long as there is."""
    rng, kept, size = np.random.default_rng((seed, DOMAINS.index(domain))), list[str](), 0
    table = {i: None for i in range(128) if chr(i) not in string.printable or chr(i) in "\r\v\f"}
    for text in {"code": code, "prose": prose, "data": data}[domain](characters, rng):
        plain = text.encode("ascii", "ignore").decode().translate(table)[: characters - size]
        if plain.strip():
            kept.append(plain)
            size += len(plain)
        if size >= characters:
            break
    return kept


# Tokens


def tokenizer(recipe: Recipe, texts: list[str]) -> Any:
    """Characters (ids are their ASCII codes; 0 ends a text, 1 is the mask), or byte-level BPE trained on ``texts``."""
    import tokenizers
    import transformers

    if recipe.vocabulary == 128:
        table = {END: 0, MASK: 1} | {chr(i): i for i in range(2, 128)}
        inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(table, unk_token="\x02"))
        inner.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(r"[\s\S]"), "isolated")
        inner.decoder = tokenizers.decoders.Fuse()
    else:
        inner = tokenizers.Tokenizer(tokenizers.models.BPE())
        inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        inner.decoder = tokenizers.decoders.ByteLevel()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=recipe.vocabulary, special_tokens=[END, MASK], show_progress=False,
            initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        )  # fmt: skip
        inner.train_from_iterator(texts, trainer)
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=END, pad_token=END, mask_token=MASK, chat_template=CHAT,
        clean_up_tokenization_spaces=False,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Corpus:
    """Token streams of the domains, cut into parts of which every 16th is held out."""

    streams: dict[str, I64]

    def windows(self, domain: str, n: int, length: int, rng: np.random.Generator, held: bool = False) -> I64:
        """Windows [n, length] of one domain, none of which crosses into a part of the other kind."""
        stream = self.streams[domain]
        parts = np.arange(len(stream) // PART)
        parts = parts[(parts % HELD == HELD - 1) == held]
        start = rng.choice(parts, n) * PART + rng.integers(0, PART - length + 1, n)
        return stream[start[:, None] + np.arange(length)]

    def batch(self, n: int, length: int, rng: np.random.Generator) -> I64:
        """As many windows of each domain, [n, length]."""
        counts = [n // 3 + (i < n % 3) for i in rng.permutation(3)]
        return np.concatenate([self.windows(d, c, length, rng) for d, c in zip(DOMAINS, counts, strict=True)])


def prepare(recipe: Recipe, folder: Path) -> tuple[Any, Corpus]:
    """Tokenizer and token streams, from FOLDER/NAME-text where they were made before."""
    import transformers

    kept = folder / f"{recipe.name}-text"
    if not kept.exists():

        def write(fresh: Path) -> None:
            texts = {d: documents(d, recipe.characters, recipe.seed) for d in DOMAINS}
            made = tokenizer(recipe, [t[:4000] for d in DOMAINS for t in texts[d][:400]])
            made.save_pretrained(fresh)
            for domain, found in texts.items():
                encoded = made.backend_tokenizer.encode_batch(found, add_special_tokens=False)
                ids = np.concatenate([np.array([*e.ids, made.eos_token_id], np.int16) for e in encoded])
                np.save(fresh / f"{domain}.npy", ids)

        checkpoint.replace(kept, write)
    streams = {d: np.load(kept / f"{d}.npy").astype(np.int64) for d in DOMAINS}
    return transformers.AutoTokenizer.from_pretrained(kept), Corpus(streams)


# Training


def network(recipe: Recipe, end: int) -> Any:
    import transformers

    torch.manual_seed(recipe.seed)
    settings = transformers.Qwen3Config(
        vocab_size=recipe.vocabulary, hidden_size=recipe.width, num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads, num_key_value_heads=recipe.kv, head_dim=recipe.width // recipe.heads,
        intermediate_size=recipe.feed, max_position_embeddings=1024, tie_word_embeddings=True,
        rope_theta=10_000.0, eos_token_id=end, pad_token_id=end, bos_token_id=None,
    )  # fmt: skip
    return transformers.Qwen3ForCausalLM(settings)


def loss_of(model: Any, ids: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1].float()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def train(recipe: Recipe, folder: Path, every: int = 100, say: Any = print) -> Any:
    """The target of a recipe, trained where FOLDER/NAME does not hold it yet. It has ``held``: loss by domain, nats."""
    import transformers

    done, going = folder / recipe.name, folder / f"{recipe.name}-training"
    if done.exists():
        return transformers.Qwen3ForCausalLM.from_pretrained(done, attn_implementation="sdpa")
    torch.set_num_threads(1)
    reader, corpus = prepare(recipe, folder)
    model = network(recipe, reader.eos_token_id)
    optimiser = optim.build(model, "muon", recipe.lr, muon_lr=recipe.muon_lr)
    first, spent = 0, 0.0
    if checkpoint.exists(going):
        state = torch.load(checkpoint.locate(going) / "state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimizer"])
        first, spent = state["step"], state["cpu_s"]
    began, since, losses = time.process_time(), first, list[float]()
    for step in range(first, recipe.steps):
        rng = np.random.default_rng((recipe.seed, 7, step))
        ids = torch.from_numpy(corpus.batch(recipe.batch, recipe.length, rng))
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.half):
            loss = loss_of(model, ids)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        # Warm-up over 2 %, then falling linearly to a twentieth: most of the gain comes late.
        optimiser.step(min((step + 1) / (0.02 * recipe.steps), max(0.05, 1 - step / recipe.steps) * 1.25, 1.0))
        losses.append(float(loss.detach()))
        if (step + 1) % every == 0 or step + 1 == recipe.steps:
            total = spent + time.process_time() - began
            left = (time.process_time() - began) / (step + 1 - since) * (recipe.steps - step - 1)
            say(
                f"{recipe.name}: step {step + 1} of {recipe.steps}, loss {np.mean(losses[-every:]):.3f} nats, "
                f"{total / 60:.1f} CPU-minutes spent, {left / 60:.1f} to go",
                flush=True,
            )
            state = {
                "model": model.state_dict(), "optimizer": optimiser.state_dict(), "step": step + 1, "cpu_s": total
            }  # fmt: skip
            checkpoint.replace(going, lambda fresh, state=state: torch.save(state, fresh / "state.pt"))
    model.eval()

    def write(fresh: Path) -> None:
        model.save_pretrained(fresh)
        reader.save_pretrained(fresh)
        cpu = spent + time.process_time() - began
        made = {"recipe": asdict(recipe), "held": held(model, corpus, recipe), "cpu_s": round(cpu, 1)}
        (fresh / "made.json").write_text(json.dumps(made, indent=1))

    checkpoint.replace(done, write)
    say((done / "made.json").read_text(), flush=True)
    return model


@torch.no_grad()
def held(model: Any, corpus: Corpus, recipe: Recipe, n: int = 48) -> dict[str, float]:
    """Loss on held-out text by domain, nats a token."""
    rng = np.random.default_rng((recipe.seed, 11))
    windows = {d: torch.from_numpy(corpus.windows(d, n, recipe.length, rng, held=True)) for d in DOMAINS}
    return {d: round(float(loss_of(model, ids)), 4) for d, ids in windows.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="small")
    parser.add_argument("which", choices=list(RECIPES))
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--steps", type=int, help="instead of the recipe's")
    asked = parser.parse_args()
    chosen = RECIPES[asked.which]
    if asked.steps:
        chosen = Recipe(**{**asdict(chosen), "steps": asked.steps})
    train(chosen, asked.folder)
