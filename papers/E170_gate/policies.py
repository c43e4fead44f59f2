"""Policies over the same episodes: the plan, the rules of one line, and the published controller as it was released.

An episode holds ``horizon`` candidates with their labels and critics' verdicts, drawn beforehand, so that policies are
compared on the same ones.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from papers.E170_gate.planner import REFINE, SHIP, STOP, VERIFY, Plan, Policy, Stakes, State, goes_on, rules
from papers.E170_gate.rates import Rates

Candidate = tuple[bool, dict[str, bool]]  # label, verdicts
Act = Callable[[State, bool], str]  # state, whether the oracle has just failed this candidate


def by_plan(plan: Plan) -> Act:
    """The plan's action, remembered by state: beliefs take few values."""
    known: dict[tuple[Any, ...], str] = {}

    def act(state: State, failed: bool) -> str:
        key = (state.belief, plan.key(state), state.t, failed)
        if key not in known:
            values = plan.values(state._replace(belief=0.0) if failed else state)
            known[key] = next(name for name in values if not (failed and name == VERIFY))
        return known[key]

    return act


def by_rule(name: str, policy: Policy, stakes: Stakes) -> Act:
    def act(state: State, failed: bool) -> str:
        if failed:
            return REFINE if goes_on(name) and state.t + 1 < stakes.horizon else STOP
        return policy(state)

    return act


def all_rules(stakes: Stakes) -> dict[str, Act]:
    return {name: by_rule(name, policy, stakes) for name, policy in rules(stakes).items()}


def greedy(rates: Rates, stakes: Stakes, released: bool) -> Act:
    """The one-step controller (arXiv 2606.24453, section 3 step 4).

    ``released``: as the published code has it: after a refinement the belief stays what it was, a deterministic critic
    may be run again on the same candidate and counts again, a failed verification ends the episode. Else the belief is
    reset, a critic runs once, and a failed candidate is replaced where that pays.
    """
    s = stakes

    def value(b: float) -> float:
        return max(s.reward * b - s.verify, 0.0)

    known: dict[tuple[Any, ...], str] = {}

    def act(state: State, failed: bool) -> str:
        run = () if released else tuple(name for name, _ in state.seen)
        key = (state.belief, run, state.t, failed)
        if key not in known:
            b = state.belief
            q = {STOP: 0.0, VERIFY: s.reward * b - s.verify}
            if state.t + 1 < s.horizon:
                q[REFINE] = -s.refine + s.reward * rates.prior - s.verify
            for name, cost in s.critics.items():
                if name not in run:
                    bad, good = rates.passes[name]
                    chance = good * b + bad * (1 - b)
                    up, down = good * b / max(chance, 1e-12), (1 - good) * b / max(1 - chance, 1e-12)
                    q[name] = -cost + chance * value(up) + (1 - chance) * value(down)
            if failed:
                q = {k: v for k, v in q.items() if k in (STOP, REFINE)} if not released else {STOP: 0.0}
            known[key] = max(q, key=lambda action: q[action])
        return known[key]

    return act


def play(
    act: Act, episode: Sequence[Candidate], rates: Rates, stakes: Stakes, stale: bool = False
) -> Mapping[str, Any]:
    """What a policy earns in an episode: ``utility``, ``oracle`` runs, critics run, ``good`` and ``broken`` shipped.

    Args:
        stale: the belief is not reset by a refinement and critics may be run again, as in the released code.
    """
    state, failed, earned = State(rates.prior), False, 0.0
    oracle, used, good, broken = 0, list[str](), 0, 0
    for _ in range(64):  # the published cap on actions
        action = act(state, failed)
        label, verdicts = episode[state.t]
        if action == STOP:
            break
        if action == SHIP:
            good, broken = good + label, broken + (not label)
            earned += stakes.reward if label else -(stakes.loss or 0.0)
            break
        if action == VERIFY:
            oracle, earned = oracle + 1, earned - stakes.verify
            if label:
                earned, good = earned + stakes.reward, 1
                break
            failed = True
        elif action == REFINE:
            earned -= stakes.refine
            state = State(state.belief, (), state.t + 1) if stale else state.renewed(rates, failed)
            failed = False
        else:
            used.append(action)
            earned -= stakes.critics[action]
            after = state.after(rates, action, verdicts[action])
            state = State(after.belief, (), state.t) if stale else after
    return {"utility": earned, "oracle": oracle, "used": used, "good": good, "broken": broken}
