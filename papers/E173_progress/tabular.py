"""Random layered MDPs whose KL-regularised optimum is known exactly (specs/E173, section 6a)."""

from typing import NamedTuple

import numpy as np

LAYERS, STATES, ACTIONS, BETA = 8, 12, 5, 0.25


class MDP(NamedTuple):
    """move: [layers - 1, states, actions, states], chances of the next state. pay: [states] of the last layer, 0 or 1.
    ref: [layers - 1, states, actions], the reference policy."""

    move: np.ndarray
    pay: np.ndarray
    ref: np.ndarray


class Solution(NamedTuple):
    """value: [layers, states]; q, advantage, policy: [layers - 1, states, actions]."""

    value: np.ndarray
    q: np.ndarray
    advantage: np.ndarray
    policy: np.ndarray


def make(seed: int, noise: float) -> MDP:
    """Each action has a main successor, which with chance ``noise`` gives way to a Dirichlet mix of three states; 30 %
    of the last states pay; rows of the reference are Dirichlet(0.6)."""
    rng = np.random.default_rng([173, seed])
    shape = (LAYERS - 1, STATES, ACTIONS)
    main = np.eye(STATES)[rng.integers(0, STATES, shape)]
    mix = np.zeros((*shape, STATES))
    for where in np.ndindex(*shape):
        mix[where][rng.choice(STATES, 3, replace=False)] = rng.dirichlet(np.ones(3))
    pay = np.zeros(STATES)
    pay[rng.choice(STATES, round(0.3 * STATES), replace=False)] = 1.0
    ref = np.maximum(rng.dirichlet(np.full(ACTIONS, 0.6), shape[:2]), 1e-12)
    return MDP((1 - noise) * main + noise * mix, pay, ref / ref.sum(-1, keepdims=True))


def solve(mdp: MDP, beta: float = BETA) -> Solution:
    """Backward soft induction: V = beta log E_ref[exp(Q / beta)], policy = ref exp((Q - V) / beta)."""
    value, q = np.zeros((LAYERS, STATES)), np.zeros(mdp.ref.shape)
    value[-1] = mdp.pay
    for t in reversed(range(LAYERS - 1)):
        q[t] = mdp.move[t] @ value[t + 1]
        top = q[t].max(-1)
        value[t] = top + beta * np.log((mdp.ref[t] * np.exp((q[t] - top[:, None]) / beta)).sum(-1))
    advantage = q - value[:-1, :, None]
    policy = mdp.ref * np.exp(advantage / beta)
    return Solution(value, q, advantage, policy / policy.sum(-1, keepdims=True))


class Walks(NamedTuple):
    """n trajectories: state [n, layers], action [n, layers - 1], reward [n]."""

    state: np.ndarray
    action: np.ndarray
    reward: np.ndarray


def walk(mdp: MDP, policy: np.ndarray, start: np.ndarray, rng: np.random.Generator) -> Walks:
    states, actions = [start], []
    for t in range(LAYERS - 1):
        actions.append(_draw(policy[t, states[-1]], rng))
        states.append(_draw(mdp.move[t, states[-1], actions[-1]], rng))
    return Walks(np.stack(states, 1), np.stack(actions, 1), mdp.pay[states[-1]])


def _draw(chance: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    below = np.cumsum(chance, -1)
    return np.asarray((rng.random(len(chance))[:, None] * below[:, -1:] > below).sum(-1))


def visits(mdp: MDP, policy: np.ndarray) -> np.ndarray:
    """Chance of being in each state [layers - 1, states], from a uniform start."""
    here = [np.full(STATES, 1 / STATES)]
    for t in range(LAYERS - 2):
        here.append(np.einsum("s,sa,sab->b", here[-1], policy[t], mdp.move[t]))
    return np.stack(here)


def ascend(mdp: MDP, logits: np.ndarray, beta: float, rate: float) -> np.ndarray:
    """One exact policy-gradient step on E[R] - beta KL(policy || ref), by the logits."""
    logits = logits - logits.max(-1, keepdims=True)
    policy = np.exp(logits)
    policy /= policy.sum(-1, keepdims=True)
    gap = beta * (np.log(np.maximum(policy, 1e-300)) - np.log(mdp.ref))
    value, advantage = mdp.pay, np.zeros(policy.shape)
    for t in reversed(range(LAYERS - 1)):
        q = mdp.move[t] @ value - gap[t]
        value = (policy[t] * q).sum(-1)
        advantage[t] = q - value[:, None]
    return logits + rate * visits(mdp, policy)[..., None] * policy * advantage


def softmax(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(p / p.sum(-1, keepdims=True))


def correlation(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> float:
    w = weight / weight.sum()
    a, b = x - (w * x).sum(), y - (w * y).sum()
    return float((w * a * b).sum() / np.sqrt((w * a**2).sum() * (w * b**2).sum()))
