"""Training tabular policies on fork chains with flat and with tree rollouts, at equal decoded tokens (P8)."""

from typing import Any

import numpy as np

from clew.credit import tree as credit
from clew.harness.trees.selectors import SELECTORS
from papers.E162_uucb.chain import Forest, chains

PROMPTS, UPDATES, RATE, DEPTH, TOKENS = 40, 40, 0.5, 16, 128
ARMS: dict[str, tuple[str, credit.Baseline]] = {
    "flat": ("flat", "group"),
    "uucb": ("uucb", "group"),
    "uucb, sibling": ("uucb", "sibling"),
    "uucb, leave-out": ("uucb", "leave-out"),
}


def softmax(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(axis=2, keepdims=True))
    return np.asarray(p / p.sum(axis=2, keepdims=True))


def ascent(forest: Forest, baseline: credit.Baseline) -> np.ndarray:
    """Gradient [lanes, depth, options] of the surrogate by the logits, each token of a tree counted once."""
    lanes, room = forest.parent.shape
    made = forest.depth >= 0
    flat = np.flatnonzero(made.ravel())
    number = np.full(lanes * room, -1)
    number[flat] = np.arange(len(flat))
    offset = np.repeat(np.arange(lanes) * room, made.sum(axis=1))
    mother = forest.parent.ravel()[flat]
    parent = np.where(mother >= 0, number[np.maximum(mother, 0) + offset], -1)
    wins, visits = forest.wins.ravel()[flat], forest.visits.ravel()[flat]
    draws = forest.draws.ravel()[flat]
    found = credit.weights(credit.Tree(parent, draws, visits, wins, wins), baseline)
    edge = mother >= 0
    lane, place = (offset // room)[edge], forest.depth.ravel()[flat][edge] - 1
    token, weight = forest.token.ravel()[flat][edge], found.weight[edge]
    out = np.zeros(forest.prompts.chance.shape)
    np.add.at(out, (lane, place, token), weight)
    np.add.at(out, (lane, place), -weight[:, None] * forest.prompts.chance[lane, place])
    return out


def learn(arm: str, seed: int) -> dict[str, Any]:
    """Exact success before and after, share of groups without signal, tokens, and the curve of success."""
    selector, baseline = ARMS[arm]
    start = chains(PROMPTS, 3, DEPTH, 100 + seed)
    logits = np.log(np.where(start.chance > 0, start.chance, 1e-300))
    dead, used, curve = 0.0, 0.0, []
    for update in range(UPDATES + 1):
        prompts = start._replace(chance=softmax(logits))
        curve.append(round(float(prompts.values[:, 0].mean()), 5))
        if update < UPDATES:
            forest = Forest(prompts, 1 + TOKENS, 1000 * seed + update).grow(SELECTORS[selector], tokens=TOKENS)
            dead, used = dead + float((~forest.mixed).mean()), used + float(forest.used.sum())
            logits = logits + RATE * ascent(forest, baseline)
    return {"before": curve[0], "final": curve[-1], "dead": round(dead / UPDATES, 5), "tokens": used, "curve": curve}
